/* isa_functions.h - what the files of isa/ offer each other. Only they include
 * this. */
#ifndef HYS_OMP_ISA_FUNCTIONS_H
#define HYS_OMP_ISA_FUNCTIONS_H

#include "isa.h"

/* Each file enters its functions into the table. */
void omp_fill_vector_portable(struct omp_isa *isa);
void omp_fill_softmax_portable(struct omp_isa *isa);
void omp_fill_gemm_portable(struct omp_isa *isa);
void omp_fill_rows_portable(struct omp_isa *isa);
void omp_fill_select_portable(struct omp_isa *isa);
void omp_fill_peak_portable(struct omp_isa *isa);

void omp_fill_vector_neon(struct omp_isa *isa);
void omp_fill_gemm_neon(struct omp_isa *isa);
void omp_fill_rows_neon(struct omp_isa *isa);
void omp_fill_select_neon(struct omp_isa *isa);
void omp_fill_peak_neon(struct omp_isa *isa);

void omp_fill_vector_avx2(struct omp_isa *isa);
void omp_fill_softmax_avx2(struct omp_isa *isa);
void omp_fill_gemm_avx2(struct omp_isa *isa);
void omp_fill_rows_avx2(struct omp_isa *isa);
void omp_fill_select_avx2(struct omp_isa *isa);
void omp_fill_peak_avx2(struct omp_isa *isa);

void omp_fill_vector_avx512(struct omp_isa *isa);
void omp_fill_softmax_avx512(struct omp_isa *isa);
void omp_fill_gemm_avx512(struct omp_isa *isa);
void omp_fill_rows_avx512(struct omp_isa *isa);
void omp_fill_select_avx512(struct omp_isa *isa);
void omp_fill_peak_avx512(struct omp_isa *isa);

void omp_fill_half_avx512bf16(struct omp_isa *isa);
void omp_fill_half_amx(struct omp_isa *isa);

/* For what does not fill a register. */
void omp_gemm_nn_avx2(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		      int64_t ldb, float *c, int64_t ldc, bool accumulate);
void omp_gemm_tn_avx2(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		      int64_t ldb, float *c, int64_t ldc, bool accumulate);
void omp_to_f32_portable(hys_dtype dtype, const void *source, float *target, int64_t n);
void omp_from_f32_portable(hys_dtype dtype, const float *source, void *target, int64_t n);
int64_t omp_filter_portable(const float *scores, int64_t n, float least, int32_t first,
			    float *out_scores, int32_t *out_indices);
bool omp_has_nan_portable(const float *x, int64_t n);
float omp_maximum_portable(const float *x, int64_t n);

#endif
