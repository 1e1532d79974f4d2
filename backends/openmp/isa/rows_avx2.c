/* rows_avx2.c - few lanes against key rows that lie anywhere, with AVX2 and FMA.
 * Dot products: 3 lanes x 4 rows of accumulators. Sums: 3 lanes x 32 channels.
 * Sizes of tiles are constants where they are called, as in gemm_avx2.c. */
#include <immintrin.h>

#include "isa_functions.h"

#define INLINE static inline __attribute__((always_inline))

/* The first n of eight lanes, n <= 8. */
INLINE __m256i lane_mask(int64_t n)
{
	const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/* The sum of each vector's lanes. */
INLINE __m128 fold_four(const __m256 v[4])
{
	const __m256 pairs = _mm256_hadd_ps(v[0], v[1]);
	const __m256 more_pairs = _mm256_hadd_ps(v[2], v[3]);
	const __m256 fours = _mm256_hadd_ps(pairs, more_pairs);

	return _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
}

INLINE void dot_tile(const int lanes, int64_t dim, const float *q, int64_t q_pitch,
		     const float *const row[4], __m128 out[3])
{
	__m256 sum[3][4];
	int64_t d = 0;

	for (int h = 0; h < lanes; h++)
		for (int j = 0; j < 4; j++)
			sum[h][j] = _mm256_setzero_ps();
	for (; d + 8 <= dim; d += 8)
		for (int j = 0; j < 4; j++) {
			const __m256 right = _mm256_loadu_ps(row[j] + d);

			for (int h = 0; h < lanes; h++)
				sum[h][j] = _mm256_fmadd_ps(_mm256_loadu_ps(q + h * q_pitch + d),
							    right, sum[h][j]);
		}
	if (d < dim) {
		const __m256i mask = lane_mask(dim - d);

		for (int j = 0; j < 4; j++) {
			const __m256 right = _mm256_maskload_ps(row[j] + d, mask);

			for (int h = 0; h < lanes; h++)
				sum[h][j] = _mm256_fmadd_ps(
					_mm256_maskload_ps(q + h * q_pitch + d, mask), right,
					sum[h][j]);
		}
	}
	for (int h = 0; h < lanes; h++)
		out[h] = fold_four(sum[h]);
}

INLINE void dot_lanes(const int lanes, int64_t count, int64_t dim, const float *q, int64_t q_pitch,
		      const float *const *rows, float *x, int64_t pitch)
{
	__m128 out[3];

	for (int64_t i = 0; i < count; i += 4) {
		const int64_t n = count - i < 4 ? count - i : 4;
		/* Rows past the last one are that one again. */
		const float *const row[4] = {rows[i], rows[i + (n > 1)],
					     rows[i + (n > 2 ? 2 : n - 1)],
					     rows[i + (n > 3 ? 3 : n - 1)]};
		float values[4];

		dot_tile(lanes, dim, q, q_pitch, row, out);
		for (int h = 0; h < lanes; h++) {
			float *to = x + h * pitch + i;

			/* Written here, which it takes for a read. */
			/* cppcheck-suppress legacyUninitvar */
			_mm_storeu_ps(n == 4 ? to : values, out[h]);
			for (int64_t j = 0; n < 4 && j < n; j++)
				to[j] = values[j];
		}
	}
}

static void dot_rows(int64_t lanes, int64_t count, int64_t dim, const float *q, int64_t q_pitch,
		     const float *const *rows, float *x, int64_t pitch)
{
	for (; lanes >= 3; lanes -= 3, q += 3 * q_pitch, x += 3 * pitch)
		dot_lanes(3, count, dim, q, q_pitch, rows, x, pitch);
	if (lanes == 2)
		dot_lanes(2, count, dim, q, q_pitch, rows, x, pitch);
	else if (lanes == 1)
		dot_lanes(1, count, dim, q, q_pitch, rows, x, pitch);
}

/* 8 * vectors channels, the last eight of which may be masked. */
INLINE void add_tile(const int lanes, const int vectors, const bool whole, __m256i mask,
		     int64_t count, const float *x, int64_t pitch, const float *const *rows,
		     int64_t d, float *o, int64_t o_pitch)
{
	__m256 sum[3][4];

	for (int h = 0; h < lanes; h++)
		for (int v = 0; v < vectors; v++)
			sum[h][v] = _mm256_setzero_ps();
	for (int64_t i = 0; i < count; i++) {
		const float *row = rows[i] + d;
		__m256 right[4];

		for (int v = 0; v < vectors; v++)
			right[v] = whole || v < vectors - 1 ? _mm256_loadu_ps(row + 8 * v)
							    : _mm256_maskload_ps(row + 8 * v, mask);
		for (int h = 0; h < lanes; h++) {
			const __m256 left = _mm256_broadcast_ss(x + h * pitch + i);

			for (int v = 0; v < vectors; v++)
				sum[h][v] = _mm256_fmadd_ps(left, right[v], sum[h][v]);
		}
	}
	for (int h = 0; h < lanes; h++)
		for (int v = 0; v < vectors; v++) {
			float *out = o + h * o_pitch + d + 8 * v;

			if (whole || v < vectors - 1)
				_mm256_storeu_ps(out,
						 _mm256_add_ps(_mm256_loadu_ps(out), sum[h][v]));
			else
				_mm256_maskstore_ps(
					out, mask,
					_mm256_add_ps(_mm256_maskload_ps(out, mask), sum[h][v]));
		}
}

INLINE void add_lanes(const int lanes, int64_t count, int64_t dim, const float *x, int64_t pitch,
		      const float *const *rows, float *o, int64_t o_pitch)
{
	const __m256i all = _mm256_set1_epi32(-1);
	int64_t d = 0;

	for (; d + 32 <= dim; d += 32)
		add_tile(lanes, 4, true, all, count, x, pitch, rows, d, o, o_pitch);
	for (; d + 8 <= dim; d += 8)
		add_tile(lanes, 1, true, all, count, x, pitch, rows, d, o, o_pitch);
	if (d < dim)
		add_tile(lanes, 1, false, lane_mask(dim - d), count, x, pitch, rows, d, o, o_pitch);
}

static void add_rows(int64_t lanes, int64_t count, int64_t dim, const float *x, int64_t pitch,
		     const float *const *rows, float *o, int64_t o_pitch)
{
	for (; lanes >= 3; lanes -= 3, x += 3 * pitch, o += 3 * o_pitch)
		add_lanes(3, count, dim, x, pitch, rows, o, o_pitch);
	if (lanes == 2)
		add_lanes(2, count, dim, x, pitch, rows, o, o_pitch);
	else if (lanes == 1)
		add_lanes(1, count, dim, x, pitch, rows, o, o_pitch);
}

void omp_fill_rows_avx2(struct omp_isa *isa)
{
	isa->dot_rows = dot_rows;
	isa->add_rows = add_rows;
}
