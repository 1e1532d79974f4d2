/* gemm_avx2.c - small matrix products with AVX2 and FMA.
 *
 * c = a * b^T sums along both operands' rows: a tile of 3 x 4 dot products
 * keeps 12 accumulators of eight lanes, which are folded at the end.
 * c = a * b and c = a^T * b broadcast elements of a over vectors of b: a tile
 * of 6 x 16 (or 3 x 32 where few rows are left) accumulators.
 * Tiles are inline functions whose sizes are constants where they are called,
 * so that the compiler keeps the accumulators in registers. A product is summed
 * from zero and then added to c, which keeps long sums over many calls exact. */
#include <immintrin.h>

#include "isa_functions.h"

#define INLINE static inline __attribute__((always_inline))

/* Bytes of b's rows that the dot products keep in the first-level cache. */
#define NT_CACHE_BYTES 20480

/* The first n of eight lanes, n <= 8. */
INLINE __m256i lane_mask(int64_t n)
{
	const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/* The sum of each vector's lanes: pairs, fours, then the halves. */
INLINE __m128 fold_four(const __m256 v[4])
{
	const __m256 pairs = _mm256_hadd_ps(v[0], v[1]);
	const __m256 more_pairs = _mm256_hadd_ps(v[2], v[3]);
	const __m256 fours = _mm256_hadd_ps(pairs, more_pairs);

	return _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
}

INLINE void store_first(float *c, __m128 value, int count, bool accumulate)
{
	float values[4];

	if (count == 4) {
		if (accumulate)
			value = _mm_add_ps(_mm_loadu_ps(c), value);
		_mm_storeu_ps(c, value);
		return;
	}
	_mm_storeu_ps(values, value);
	for (int j = 0; j < count; j++)
		c[j] = accumulate ? c[j] + values[j] : values[j];
}

/* rows x columns dot products of length k. */
INLINE void dot_tile(const int rows, const int columns, int64_t k, const float *a, int64_t lda,
		     const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	__m256 sum[3][4];
	int64_t p = 0;

	for (int i = 0; i < rows; i++)
		for (int j = 0; j < 4; j++)
			sum[i][j] = _mm256_setzero_ps();
	for (; p + 8 <= k; p += 8) {
		__m256 left[3];

		for (int i = 0; i < rows; i++)
			left[i] = _mm256_loadu_ps(a + i * lda + p);
		for (int j = 0; j < columns; j++) {
			const __m256 right = _mm256_loadu_ps(b + j * ldb + p);

			for (int i = 0; i < rows; i++)
				sum[i][j] = _mm256_fmadd_ps(left[i], right, sum[i][j]);
		}
	}
	if (p < k) {
		const __m256i mask = lane_mask(k - p);

		for (int j = 0; j < columns; j++) {
			const __m256 right = _mm256_maskload_ps(b + j * ldb + p, mask);

			for (int i = 0; i < rows; i++) {
				const __m256 left = _mm256_maskload_ps(a + i * lda + p, mask);

				sum[i][j] = _mm256_fmadd_ps(left, right, sum[i][j]);
			}
		}
	}
	for (int i = 0; i < rows; i++)
		store_first(c + i * ldc, fold_four(sum[i]), columns, accumulate);
}

/* All rows of a against 1 to 4 rows of b. */
INLINE void dot_columns(const int columns, int64_t m, int64_t k, const float *a, int64_t lda,
			const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	int64_t i = 0;

	for (; i + 3 <= m; i += 3)
		dot_tile(3, columns, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
	if (m - i == 2)
		dot_tile(2, columns, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
	else if (m - i == 1)
		dot_tile(1, columns, k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
}

/* Three rows of a at a time against n rows of b, few enough to stay cached. */
static void dot_block(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		      int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	for (int64_t i = 0; i < m; i += 3) {
		const int64_t rows = m - i < 3 ? m - i : 3;
		const float *left = a + i * lda;
		float *out = c + i * ldc;
		int64_t j = 0;

		for (; j + 4 <= n; j += 4)
			dot_columns(4, rows, k, left, lda, b + j * ldb, ldb, out + j, ldc,
				    accumulate);
		for (; j < n; j++)
			dot_columns(1, rows, k, left, lda, b + j * ldb, ldb, out + j, ldc,
				    accumulate);
	}
}

static void gemm_nt(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		    int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	const int64_t row_bytes = (k > 0 ? k : 1) * (int64_t)sizeof(float);
	int64_t block = NT_CACHE_BYTES / row_bytes & ~(int64_t)3;

	if (block < 4)
		block = 4;
	for (int64_t j = 0; j < n; j += block)
		dot_block(m, n - j < block ? n - j : block, k, a, lda, b + j * ldb, ldb, c + j, ldc,
			  accumulate);
}

/* The left operand of the outer products: element (i, p) of it is
 * at[i * row_step + p * sum_step]. */
struct left {
	const float *at;
	int64_t row_step, sum_step;
};

/* rows x (8 * vectors) elements of c. */
INLINE void outer_tile(const int rows, const int vectors, int64_t k, struct left a, const float *b,
		       int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	__m256 sum[6][4];

	for (int i = 0; i < rows; i++)
		for (int v = 0; v < vectors; v++)
			sum[i][v] = _mm256_setzero_ps();
	for (int64_t p = 0; p < k; p++) {
		__m256 right[4];

		for (int v = 0; v < vectors; v++)
			right[v] = _mm256_loadu_ps(b + p * ldb + 8 * v);
		for (int i = 0; i < rows; i++) {
			const __m256 left =
				_mm256_broadcast_ss(a.at + i * a.row_step + p * a.sum_step);

			for (int v = 0; v < vectors; v++)
				sum[i][v] = _mm256_fmadd_ps(left, right[v], sum[i][v]);
		}
	}
	for (int i = 0; i < rows; i++)
		for (int v = 0; v < vectors; v++) {
			float *out = c + i * ldc + 8 * v;

			if (accumulate)
				sum[i][v] = _mm256_add_ps(_mm256_loadu_ps(out), sum[i][v]);
			_mm256_storeu_ps(out, sum[i][v]);
		}
}

/* The same for the n <= 16 last columns. */
INLINE void outer_edge(const int rows, int64_t n, int64_t k, struct left a, const float *b,
		       int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	const __m256i mask[2] = {lane_mask(n < 8 ? n : 8), lane_mask(n < 8 ? 0 : n - 8)};
	__m256 sum[6][2];

	for (int i = 0; i < rows; i++)
		for (int v = 0; v < 2; v++)
			sum[i][v] = _mm256_setzero_ps();
	for (int64_t p = 0; p < k; p++) {
		const __m256 low = _mm256_maskload_ps(b + p * ldb, mask[0]);
		const __m256 high = _mm256_maskload_ps(b + p * ldb + 8, mask[1]);

		for (int i = 0; i < rows; i++) {
			const __m256 left =
				_mm256_broadcast_ss(a.at + i * a.row_step + p * a.sum_step);

			sum[i][0] = _mm256_fmadd_ps(left, low, sum[i][0]);
			sum[i][1] = _mm256_fmadd_ps(left, high, sum[i][1]);
		}
	}
	for (int i = 0; i < rows; i++)
		for (int v = 0; v < 2; v++) {
			float *out = c + i * ldc + 8 * v;

			if (accumulate)
				sum[i][v] =
					_mm256_add_ps(_mm256_maskload_ps(out, mask[v]), sum[i][v]);
			_mm256_maskstore_ps(out, mask[v], sum[i][v]);
		}
}

/* `rows` rows of c, all columns, in panels of 8 * vectors. */
INLINE void outer_rows(const int rows, const int vectors, int64_t n, int64_t k, struct left a,
		       const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	int64_t j = 0;

	for (; j + 8 * vectors <= n; j += 8 * vectors)
		outer_tile(rows, vectors, k, a, b + j, ldb, c + j, ldc, accumulate);
	for (; j < n; j += 16)
		outer_edge(rows, n - j < 16 ? n - j : 16, k, a, b + j, ldb, c + j, ldc, accumulate);
}

/* The last m < 6 rows. */
static void outer_rest(int64_t m, int64_t n, int64_t k, struct left a, const float *b, int64_t ldb,
		       float *c, int64_t ldc, bool accumulate)
{
	switch (m) {
	case 5:
		outer_rows(5, 2, n, k, a, b, ldb, c, ldc, accumulate);
		break;
	case 4:
		outer_rows(4, 2, n, k, a, b, ldb, c, ldc, accumulate);
		break;
	case 3:
		outer_rows(3, 4, n, k, a, b, ldb, c, ldc, accumulate);
		break;
	case 2:
		outer_rows(2, 4, n, k, a, b, ldb, c, ldc, accumulate);
		break;
	case 1:
		outer_rows(1, 4, n, k, a, b, ldb, c, ldc, accumulate);
		break;
	default:
		break;
	}
}

/* rows elements of each of n <= 8 columns. */
INLINE void narrow_tile(const int rows, __m256i mask, int64_t k, struct left a, const float *b,
			int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	__m256 sum[12];

	for (int i = 0; i < rows; i++)
		sum[i] = _mm256_setzero_ps();
	for (int64_t p = 0; p < k; p++) {
		const __m256 right = _mm256_maskload_ps(b + p * ldb, mask);

		for (int i = 0; i < rows; i++)
			sum[i] = _mm256_fmadd_ps(
				_mm256_broadcast_ss(a.at + i * a.row_step + p * a.sum_step), right,
				sum[i]);
	}
	for (int i = 0; i < rows; i++) {
		if (accumulate)
			sum[i] = _mm256_add_ps(_mm256_maskload_ps(c + i * ldc, mask), sum[i]);
		_mm256_maskstore_ps(c + i * ldc, mask, sum[i]);
	}
}

/* All rows of the n <= 8 last columns. */
static void outer_narrow(int64_t m, int64_t n, int64_t k, struct left a, const float *b,
			 int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	const __m256i mask = lane_mask(n);
	int64_t i = 0;

	for (; i + 12 <= m; i += 12, a.at += 12 * a.row_step)
		narrow_tile(12, mask, k, a, b, ldb, c + i * ldc, ldc, accumulate);
	for (; i + 4 <= m; i += 4, a.at += 4 * a.row_step)
		narrow_tile(4, mask, k, a, b, ldb, c + i * ldc, ldc, accumulate);
	for (; i < m; i++, a.at += a.row_step)
		narrow_tile(1, mask, k, a, b, ldb, c + i * ldc, ldc, accumulate);
}

/* Column panels outermost: a panel of b stays in the first-level cache. */
static void outer(int64_t m, int64_t n, int64_t k, struct left a, const float *b, int64_t ldb,
		  float *c, int64_t ldc, bool accumulate)
{
	const int64_t whole = m / 6 * 6;
	const struct left rest = {a.at + whole * a.row_step, a.row_step, a.sum_step};
	const int64_t last = n % 16;

	if (last > 0 && last <= 8) {
		n -= last;
		outer_narrow(m, last, k, a, b + n, ldb, c + n, ldc, accumulate);
	}
	for (int64_t j = 0; whole > 0 && j < n; j += 16)
		for (int64_t i = 0; i < whole; i += 6) {
			const struct left six = {a.at + i * a.row_step, a.row_step, a.sum_step};
			const int64_t columns = n - j < 16 ? n - j : 16;

			outer_rows(6, 2, columns, k, six, b + j, ldb, c + i * ldc + j, ldc,
				   accumulate);
		}
	outer_rest(m - whole, n, k, rest, b, ldb, c + whole * ldc, ldc, accumulate);
}

void omp_gemm_nn_avx2(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		      int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	outer(m, n, k, (struct left){a, lda, 1}, b, ldb, c, ldc, accumulate);
}

void omp_gemm_tn_avx2(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		      int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	outer(m, n, k, (struct left){a, 1, lda}, b, ldb, c, ldc, accumulate);
}

void omp_fill_gemm_avx2(struct omp_isa *isa)
{
	isa->gemm_nt = gemm_nt;
	isa->gemm_nn = omp_gemm_nn_avx2;
	isa->gemm_tn = omp_gemm_tn_avx2;
}
