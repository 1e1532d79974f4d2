/* isa.c - the tables of instruction sets. */
#include "isa_functions.h"

static void fill_portable(struct omp_isa *isa)
{
	omp_fill_vector_portable(isa);
	omp_fill_softmax_portable(isa);
	omp_fill_gemm_portable(isa);
	omp_fill_rows_portable(isa);
	omp_fill_select_portable(isa);
	omp_fill_peak_portable(isa);
}

#ifdef HYS_ISA_NEON
/* Exponentials are left to plain C, which compilers vectorise. */
static void fill_neon(struct omp_isa *isa)
{
	omp_fill_vector_neon(isa);
	omp_fill_gemm_neon(isa);
	omp_fill_rows_neon(isa);
	omp_fill_select_neon(isa);
	omp_fill_peak_neon(isa);
}
#endif

#ifdef HYS_ISA_AVX2
static void fill_avx2(struct omp_isa *isa)
{
	omp_fill_vector_avx2(isa);
	omp_fill_softmax_avx2(isa);
	omp_fill_gemm_avx2(isa);
	omp_fill_rows_avx2(isa);
	omp_fill_select_avx2(isa);
	omp_fill_peak_avx2(isa);
}
#endif

#ifdef HYS_ISA_AVX512
static void fill_avx512(struct omp_isa *isa)
{
	omp_fill_vector_avx512(isa);
	omp_fill_softmax_avx512(isa);
	omp_fill_gemm_avx512(isa);
	omp_fill_rows_avx512(isa);
	omp_fill_select_avx512(isa);
	omp_fill_peak_avx512(isa);
}
#endif

void omp_isa_fill(struct omp_isa *isa, enum omp_set set)
{
	fill_portable(isa);
#ifdef HYS_ISA_NEON
	if (set >= OMP_SET_NEON)
		fill_neon(isa);
#endif
#ifdef HYS_ISA_AVX2
	if (set >= OMP_SET_AVX2)
		fill_avx2(isa);
#endif
#ifdef HYS_ISA_AVX512
	if (set >= OMP_SET_AVX512)
		fill_avx512(isa);
#endif
#ifdef HYS_ISA_AVX512BF16
	if (set >= OMP_SET_AVX512BF16)
		omp_fill_half_avx512bf16(isa);
#endif
#ifdef HYS_ISA_AMX
	if (set >= OMP_SET_AMX)
		omp_fill_half_amx(isa);
#endif
	(void)set;
}
