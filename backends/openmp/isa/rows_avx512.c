/* rows_avx512.c - few lanes against key rows that lie anywhere, with AVX-512, as
 * in rows_avx2.c. Dot products: 3 lanes x 4 rows of accumulators. Sums: 3 lanes x
 * 64 channels. */
#include <immintrin.h>

#include "isa_functions.h"

#define INLINE static inline __attribute__((always_inline))

/* The first n of sixteen lanes. */
INLINE __mmask16 first_lanes(int64_t n)
{
	return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}

/* The sum of each vector's lanes. */
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

INLINE void dot_tile(const int lanes, int64_t dim, const float *q, int64_t q_pitch,
		     const float *const row[4], __m128 out[3])
{
	__m512 sum[3][4];

	for (int h = 0; h < lanes; h++)
		for (int j = 0; j < 4; j++)
			sum[h][j] = _mm512_setzero_ps();
	for (int64_t d = 0; d < dim; d += 16) {
		const __mmask16 some = first_lanes(dim - d);
		__m512 left[3];

		for (int h = 0; h < lanes; h++)
			left[h] = _mm512_maskz_loadu_ps(some, q + h * q_pitch + d);
		for (int j = 0; j < 4; j++) {
			const __m512 right = _mm512_maskz_loadu_ps(some, row[j] + d);

			for (int h = 0; h < lanes; h++)
				sum[h][j] = _mm512_fmadd_ps(left[h], right, sum[h][j]);
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

		dot_tile(lanes, dim, q, q_pitch, row, out);
		for (int h = 0; h < lanes; h++)
			_mm_mask_storeu_ps(x + h * pitch + i, (__mmask8)((1 << n) - 1), out[h]);
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

/* 16 * vectors channels, of the last sixteen those of `last`. */
INLINE void add_tile(const int lanes, const int vectors, __mmask16 last, int64_t count,
		     const float *x, int64_t pitch, const float *const *rows, int64_t d, float *o,
		     int64_t o_pitch)
{
	__m512 sum[3][4];

	for (int h = 0; h < lanes; h++)
		for (int v = 0; v < vectors; v++)
			sum[h][v] = _mm512_setzero_ps();
	for (int64_t i = 0; i < count; i++) {
		const float *row = rows[i] + d;
		__m512 right[4];

		for (int v = 0; v < vectors; v++)
			right[v] = v < vectors - 1 ? _mm512_loadu_ps(row + 16 * v)
						   : _mm512_maskz_loadu_ps(last, row + 16 * v);
		for (int h = 0; h < lanes; h++) {
			const __m512 left = _mm512_set1_ps(x[h * pitch + i]);

			for (int v = 0; v < vectors; v++)
				sum[h][v] = _mm512_fmadd_ps(left, right[v], sum[h][v]);
		}
	}
	for (int h = 0; h < lanes; h++)
		for (int v = 0; v < vectors; v++) {
			const __mmask16 some = v < vectors - 1 ? 0xffff : last;
			float *out = o + h * o_pitch + d + 16 * v;

			_mm512_mask_storeu_ps(
				out, some,
				_mm512_add_ps(_mm512_maskz_loadu_ps(some, out), sum[h][v]));
		}
}

INLINE void add_channels(const int lanes, int64_t count, int64_t dim, const float *x, int64_t pitch,
			 const float *const *rows, float *o, int64_t o_pitch)
{
	int64_t d = 0;

	for (; d + 64 <= dim; d += 64)
		add_tile(lanes, 4, 0xffff, count, x, pitch, rows, d, o, o_pitch);
	for (; d < dim; d += 16)
		add_tile(lanes, 1, first_lanes(dim - d), count, x, pitch, rows, d, o, o_pitch);
}

static void add_rows(int64_t lanes, int64_t count, int64_t dim, const float *x, int64_t pitch,
		     const float *const *rows, float *o, int64_t o_pitch)
{
	for (; lanes >= 3; lanes -= 3, x += 3 * pitch, o += 3 * o_pitch)
		add_channels(3, count, dim, x, pitch, rows, o, o_pitch);
	if (lanes == 2)
		add_channels(2, count, dim, x, pitch, rows, o, o_pitch);
	else if (lanes == 1)
		add_channels(1, count, dim, x, pitch, rows, o, o_pitch);
}

void omp_fill_rows_avx512(struct omp_isa *isa)
{
	isa->dot_rows = dot_rows;
	isa->add_rows = add_rows;
}
