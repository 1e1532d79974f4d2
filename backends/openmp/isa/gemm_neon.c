/* gemm_neon.c - small matrix products with NEON, as in gemm_avx2.c.
 *
 * c = a * b^T sums along both operands' rows: a tile of 4 x 4 dot products.
 * c = a * b and c = a^T * b multiply elements of a with vectors of b: a tile of
 * 8 x 12 accumulators. */
#include <arm_neon.h>

#include "isa_functions.h"

#define INLINE static inline __attribute__((always_inline))

/* The first n of four lanes, the others 0. */
INLINE float32x4_t load_some(const float *from, int64_t n)
{
	float lane[4] = {0};

	if (n >= 4)
		return vld1q_f32(from);
	for (int64_t i = 0; i < n; i++)
		lane[i] = from[i];
	return vld1q_f32(lane);
}

INLINE void store_some(float *to, float32x4_t x, int64_t n)
{
	float lane[4];

	if (n >= 4) {
		vst1q_f32(to, x);
		return;
	}
	vst1q_f32(lane, x);
	for (int64_t i = 0; i < n; i++)
		to[i] = lane[i];
}

/* ---- c = a * b^T ---- */

INLINE void dot_tile(const int rows, const int columns, int64_t k, const float *a, int64_t lda,
		     const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	float32x4_t sum[4][4];

	for (int i = 0; i < rows; i++)
		for (int j = 0; j < columns; j++)
			sum[i][j] = vdupq_n_f32(0.0f);
	for (int64_t p = 0; p < k; p += 4) {
		float32x4_t right[4];

		for (int j = 0; j < columns; j++)
			right[j] = load_some(b + j * ldb + p, k - p);
		for (int i = 0; i < rows; i++) {
			const float32x4_t left = load_some(a + i * lda + p, k - p);

			for (int j = 0; j < columns; j++)
				sum[i][j] = vfmaq_f32(sum[i][j], left, right[j]);
		}
	}
	for (int i = 0; i < rows; i++)
		for (int j = 0; j < columns; j++) {
			const float value = vaddvq_f32(sum[i][j]);

			c[i * ldc + j] = accumulate ? c[i * ldc + j] + value : value;
		}
}

INLINE void dot_columns(const int columns, int64_t m, int64_t k, const float *a, int64_t lda,
			const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	int64_t i = 0;

	for (; i + 4 <= m; i += 4)
		dot_tile(4, columns, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
	for (; i < m; i++)
		dot_tile(1, columns, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
}

static void gemm_nt(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		    int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	int64_t j = 0;

	for (; j + 4 <= n; j += 4)
		dot_columns(4, m, k, a, lda, b + j * ldb, ldb, c + j, ldc, accumulate);
	for (; j < n; j++)
		dot_columns(1, m, k, a, lda, b + j * ldb, ldb, c + j, ldc, accumulate);
}

/* ---- c = a * b and c = a^T * b ---- */

/* The left operand: element (i, p) of it is at[i * row_step + p * sum_step]. */
struct left {
	const float *at;
	int64_t row_step, sum_step;
};

/* rows x n elements of c, n <= 4 * vectors, more than 4 * (vectors - 1). */
INLINE void outer_tile(const int rows, const int vectors, int64_t n, int64_t k, struct left a,
		       const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	const int64_t last = n - 4 * (vectors - 1);
	float32x4_t sum[8][3];

	for (int i = 0; i < rows; i++)
		for (int v = 0; v < vectors; v++)
			sum[i][v] = vdupq_n_f32(0.0f);
	for (int64_t p = 0; p < k; p++, b += ldb, a.at += a.sum_step) {
		float32x4_t right[3];

		for (int v = 0; v < vectors; v++)
			right[v] =
				v < vectors - 1 ? vld1q_f32(b + 4 * v) : load_some(b + 4 * v, last);
		for (int i = 0; i < rows; i++)
			for (int v = 0; v < vectors; v++)
				sum[i][v] = vfmaq_n_f32(sum[i][v], right[v], a.at[i * a.row_step]);
	}
	for (int i = 0; i < rows; i++)
		for (int v = 0; v < vectors; v++) {
			float *out = c + i * ldc + 4 * v;
			const int64_t some = v < vectors - 1 ? 4 : last;
			float32x4_t x = sum[i][v];

			if (accumulate)
				x = vaddq_f32(load_some(out, some), x);
			store_some(out, x, some);
		}
}

INLINE void outer_panel(const int vectors, int64_t m, int64_t n, int64_t k, struct left a,
			const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	int64_t i = 0;

	for (; i + 8 <= m; i += 8, a.at += 8 * a.row_step)
		outer_tile(8, vectors, n, k, a, b, ldb, c + i * ldc, ldc, accumulate);
	for (; i + 2 <= m; i += 2, a.at += 2 * a.row_step)
		outer_tile(2, vectors, n, k, a, b, ldb, c + i * ldc, ldc, accumulate);
	if (i < m)
		outer_tile(1, vectors, n, k, a, b, ldb, c + i * ldc, ldc, accumulate);
}

static void outer(int64_t m, int64_t n, int64_t k, struct left a, const float *b, int64_t ldb,
		  float *c, int64_t ldc, bool accumulate)
{
	int64_t j = 0;

	for (; j + 8 < n; j += 12)
		outer_panel(3, m, n - j < 12 ? n - j : 12, k, a, b + j, ldb, c + j, ldc,
			    accumulate);
	if (j + 4 < n)
		outer_panel(2, m, n - j, k, a, b + j, ldb, c + j, ldc, accumulate);
	else if (j < n)
		outer_panel(1, m, n - j, k, a, b + j, ldb, c + j, ldc, accumulate);
}

static void gemm_nn(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		    int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	outer(m, n, k, (struct left){a, lda, 1}, b, ldb, c, ldc, accumulate);
}

static void gemm_tn(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		    int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	outer(m, n, k, (struct left){a, 1, lda}, b, ldb, c, ldc, accumulate);
}

void omp_fill_gemm_neon(struct omp_isa *isa)
{
	isa->gemm_nt = gemm_nt;
	isa->gemm_nn = gemm_nn;
	isa->gemm_tn = gemm_tn;
}
