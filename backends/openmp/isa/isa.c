/* isa.c - the tables of instruction sets. */
#include "isa_functions.h"

const struct omp_isa omp_isa_portable = {
	.dot = omp_dot_portable,
	.axpy = omp_axpy_portable,
	.exp = omp_exp_portable,
	.to_f32 = omp_to_f32_portable,
	.from_f32 = omp_from_f32_portable,
	.gemm_nt = omp_gemm_nt_portable,
	.gemm_nn = omp_gemm_nn_portable,
	.gemm_tn = omp_gemm_tn_portable,
	.panel = OMP_PANEL_PORTABLE,
	.score = omp_score_portable,
	.filter = omp_filter_portable,
	.has_nan = omp_has_nan_portable,
	.maximum = omp_maximum_portable,
	.peak = omp_peak_portable,
};

#ifdef HYS_ISA_AVX2
const struct omp_isa omp_isa_avx2 = {
	.dot = omp_dot_avx2,
	.axpy = omp_axpy_avx2,
	.exp = omp_exp_avx2,
	.to_f32 = omp_to_f32_avx2,
	.from_f32 = omp_from_f32_avx2,
	.gemm_nt = omp_gemm_nt_avx2,
	.gemm_nn = omp_gemm_nn_avx2,
	.gemm_tn = omp_gemm_tn_avx2,
	.panel = OMP_PANEL_AVX2,
	.score = omp_score_avx2,
	.filter = omp_filter_avx2,
	.has_nan = omp_has_nan_avx2,
	.maximum = omp_maximum_avx2,
	.peak = omp_peak_avx2,
};
#endif
