/* isa_functions.h - the functions of each instruction set, as isa.h describes
 * them. Only isa.c and the files that define them include this. */
#ifndef HYS_OMP_ISA_FUNCTIONS_H
#define HYS_OMP_ISA_FUNCTIONS_H

#include "isa.h"

float omp_dot_portable(const float *a, const float *b, int64_t n);
void omp_axpy_portable(float a, const float *x, float *y, int64_t n);
void omp_exp_portable(float *x, int64_t n);
void omp_to_f32_portable(hys_dtype dtype, const void *source, float *target, int64_t n);
void omp_from_f32_portable(hys_dtype dtype, const float *source, void *target, int64_t n);
void omp_gemm_nt_portable(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
			  const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate);
void omp_gemm_nn_portable(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
			  const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate);
void omp_gemm_tn_portable(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
			  const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate);
void omp_score_portable(const struct omp_query *query, const float *packed, float *scores,
			int64_t stride);
int64_t omp_filter_portable(const float *scores, int64_t n, float least, int32_t first,
			    float *out_scores, int32_t *out_indices);
bool omp_has_nan_portable(const float *x, int64_t n);
float omp_maximum_portable(const float *x, int64_t n);
double omp_peak_portable(int64_t rounds, float *sink);

float omp_dot_avx2(const float *a, const float *b, int64_t n);
void omp_axpy_avx2(float a, const float *x, float *y, int64_t n);
void omp_exp_avx2(float *x, int64_t n);
void omp_to_f32_avx2(hys_dtype dtype, const void *source, float *target, int64_t n);
void omp_from_f32_avx2(hys_dtype dtype, const float *source, void *target, int64_t n);
void omp_gemm_nt_avx2(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		      int64_t ldb, float *c, int64_t ldc, bool accumulate);
void omp_gemm_nn_avx2(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		      int64_t ldb, float *c, int64_t ldc, bool accumulate);
void omp_gemm_tn_avx2(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		      int64_t ldb, float *c, int64_t ldc, bool accumulate);
void omp_score_avx2(const struct omp_query *query, const float *packed, float *scores,
		    int64_t stride);
int64_t omp_filter_avx2(const float *scores, int64_t n, float least, int32_t first,
			float *out_scores, int32_t *out_indices);
bool omp_has_nan_avx2(const float *x, int64_t n);
float omp_maximum_avx2(const float *x, int64_t n);
double omp_peak_avx2(int64_t rounds, float *sink);

/* Keys of a panel. */
#define OMP_PANEL_PORTABLE 8
#define OMP_PANEL_AVX2 24

#endif
