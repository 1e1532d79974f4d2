/* gemm_avx512.c - small matrix products with AVX-512, as in gemm_avx2.c.
 *
 * c = a * b^T sums along both operands' rows: a tile of 6 x 4 dot products.
 * c = a * b and c = a^T * b broadcast elements of a over vectors of b: a tile of
 * 12 x 32 accumulators, 24 x 16 where there are no more columns, 3 x 64 where
 * there are few rows. */
#include <immintrin.h>

#include "isa_functions.h"

#define INLINE static inline __attribute__((always_inline))

/* The first n of sixteen lanes. */
INLINE __mmask16 first_lanes(int64_t n)
{
	return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}

/* ---- c = a * b^T ---- */

/* Four sums of lanes. */
INLINE __m128 fold_four(const __m512 v[4])
{
	__m256 half[4];

	for (int i = 0; i < 4; i++)
		half[i] = _mm256_add_ps(_mm512_castps512_ps256(v[i]),
					_mm512_extractf32x8_ps(v[i], 1));
	const __m256 pairs = _mm256_hadd_ps(half[0], half[1]);
	const __m256 more_pairs = _mm256_hadd_ps(half[2], half[3]);
	const __m256 fours = _mm256_hadd_ps(pairs, more_pairs);

	return _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
}

/* 4 columns of b at most, `rows` of a. */
INLINE void dot_tile(const int rows, const int columns, int64_t k, const float *a, int64_t lda,
		     const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	const __mmask8 stored = (__mmask8)((1 << columns) - 1);
	__m512 sum[6][4];

	for (int i = 0; i < rows; i++)
		for (int j = 0; j < 4; j++)
			sum[i][j] = _mm512_setzero_ps();
	for (int64_t p = 0; p < k; p += 16) {
		const __mmask16 some = first_lanes(k - p);
		__m512 right[4];

		for (int j = 0; j < columns; j++)
			right[j] = _mm512_maskz_loadu_ps(some, b + j * ldb + p);
		for (int i = 0; i < rows; i++) {
			const __m512 left = _mm512_maskz_loadu_ps(some, a + i * lda + p);

			for (int j = 0; j < columns; j++)
				sum[i][j] = _mm512_fmadd_ps(left, right[j], sum[i][j]);
		}
	}
	for (int i = 0; i < rows; i++) {
		__m128 value = fold_four(sum[i]);

		if (accumulate)
			value = _mm_add_ps(_mm_maskz_loadu_ps(stored, c + i * ldc), value);
		_mm_mask_storeu_ps(c + i * ldc, stored, value);
	}
}

INLINE void dot_columns(const int columns, int64_t m, int64_t k, const float *a, int64_t lda,
			const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	int64_t i = 0;

	for (; i + 6 <= m; i += 6)
		dot_tile(6, columns, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
	for (; i + 2 <= m; i += 2)
		dot_tile(2, columns, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
	if (i < m)
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

/* rows x (16 * vectors) elements of c; of the last vector those of `last`. Rows
 * are counted in halves: compilers unroll 16 rounds at most. */
INLINE void outer_tile(const int halves, const int rows, const int vectors, const bool whole,
		       __mmask16 last, int64_t k, struct left a, const float *b, int64_t ldb,
		       float *c, int64_t ldc, bool accumulate)
{
	__m512 sum[2][12][4];

	for (int h = 0; h < halves; h++)
		for (int i = 0; i < rows; i++)
			for (int v = 0; v < vectors; v++)
				sum[h][i][v] = _mm512_setzero_ps();
	for (int64_t p = 0; p < k; p++, b += ldb, a.at += a.sum_step) {
		__m512 right[4];

		for (int v = 0; v < vectors; v++)
			right[v] = whole || v < vectors - 1
					   ? _mm512_loadu_ps(b + 16 * v)
					   : _mm512_maskz_loadu_ps(last, b + 16 * v);
		for (int h = 0; h < halves; h++)
			for (int i = 0; i < rows; i++) {
				const __m512 left =
					_mm512_set1_ps(a.at[(h * rows + i) * a.row_step]);

				for (int v = 0; v < vectors; v++)
					sum[h][i][v] =
						_mm512_fmadd_ps(left, right[v], sum[h][i][v]);
			}
	}
	for (int h = 0; h < halves; h++)
		for (int i = 0; i < rows; i++)
			for (int v = 0; v < vectors; v++) {
				float *out = c + (h * rows + i) * ldc + 16 * v;
				const __mmask16 some = whole || v < vectors - 1 ? 0xffff : last;
				__m512 x = sum[h][i][v];

				if (accumulate)
					x = _mm512_add_ps(_mm512_maskz_loadu_ps(some, out), x);
				_mm512_mask_storeu_ps(out, some, x);
			}
}

/* halves * rows rows of a panel of n <= 16 * vectors columns. */
INLINE void outer_rows(const int halves, const int rows, const int vectors, int64_t n, int64_t k,
		       struct left a, const float *b, int64_t ldb, float *c, int64_t ldc,
		       bool accumulate)
{
	if (n == 16 * vectors)
		outer_tile(halves, rows, vectors, true, 0xffff, k, a, b, ldb, c, ldc, accumulate);
	else
		outer_tile(halves, rows, vectors, false, first_lanes(n - 16 * (vectors - 1)), k, a,
			   b, ldb, c, ldc, accumulate);
}

/* All rows of such a panel, halves * rows at a time, then fewer. */
INLINE void outer_panel(const int halves, const int rows, const int vectors, int64_t m, int64_t n,
			int64_t k, struct left a, const float *b, int64_t ldb, float *c,
			int64_t ldc, bool accumulate)
{
	const int most = halves * rows;

	for (; m >= most; m -= most, a.at += most * a.row_step, c += most * ldc)
		outer_rows(halves, rows, vectors, n, k, a, b, ldb, c, ldc, accumulate);
	for (; m >= 4; m -= 4, a.at += 4 * a.row_step, c += 4 * ldc)
		outer_rows(1, 4, vectors, n, k, a, b, ldb, c, ldc, accumulate);
	for (; m > 0; m--, a.at += a.row_step, c += ldc)
		outer_rows(1, 1, vectors, n, k, a, b, ldb, c, ldc, accumulate);
}

/* m < 8 rows of n <= 64 columns. */
INLINE void outer_few(int64_t m, int64_t n, int64_t k, struct left a, const float *b, int64_t ldb,
		      float *c, int64_t ldc, bool accumulate)
{
	if (n > 48)
		outer_panel(1, 3, 4, m, n, k, a, b, ldb, c, ldc, accumulate);
	else
		outer_panel(1, 3, 3, m, n, k, a, b, ldb, c, ldc, accumulate);
}

/* Column panels outermost: a panel of b stays in the first-level cache. */
INLINE void outer(int64_t m, int64_t n, int64_t k, struct left a, const float *b, int64_t ldb,
		  float *c, int64_t ldc, bool accumulate)
{
	int64_t j = 0;

	for (; m < 8 && n - j > 32; j += 64)
		outer_few(m, n - j < 64 ? n - j : 64, k, a, b + j, ldb, c + j, ldc, accumulate);
	for (; n - j > 16; j += 32)
		outer_panel(1, 12, 2, m, n - j < 32 ? n - j : 32, k, a, b + j, ldb, c + j, ldc,
			    accumulate);
	if (j < n)
		outer_panel(2, 12, 1, m, n - j, k, a, b + j, ldb, c + j, ldc, accumulate);
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

/* The same on processors that do 512 bits in two steps: 16 columns or fewer are
 * then as quick in two vectors of eight, whose shorter tiles wait less for rows
 * that come from further away. */
static void gemm_nn_halved(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
			   const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	(n > 16 ? gemm_nn : omp_gemm_nn_avx2)(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

static void gemm_tn_halved(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
			   const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	(n > 16 ? gemm_tn : omp_gemm_tn_avx2)(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

void omp_fill_gemm_avx512(struct omp_isa *isa)
{
	const bool halved = __builtin_cpu_is("amdfam19h"); /* Zen 4 */

	isa->gemm_nt = gemm_nt;
	isa->gemm_nn = halved ? gemm_nn_halved : gemm_nn;
	isa->gemm_tn = halved ? gemm_tn_halved : gemm_tn;
}
