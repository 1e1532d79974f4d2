/* heads_avx512.h - from products of heads and keys to scores, for all that
 * multiplies a tile of eight heads by 32 keys. Only the AVX-512 files of isa/
 * include this. */
#ifndef HYS_OMP_HEADS_AVX512_H
#define HYS_OMP_HEADS_AVX512_H

#include <immintrin.h>
#include <math.h>

#include "isa_functions.h"

#define PANEL 32
#define HEADS 8
#define VECTORS (PANEL / 16)

/* sum + w * act(scale * dot). A maximum with dot behind keeps its NaN. */
static inline __m512 add_head(__m512 sum, __m512 w, __m512 scale, __m512 floor, __m512 dot)
{
	return _mm512_fmadd_ps(w, _mm512_max_ps(floor, _mm512_mul_ps(scale, dot)), sum);
}

/* Where the next head's products go: the sums of its group in the first panel,
 * and how many heads of that are still to come. */
struct cursor {
	float *sums, *next;
	int64_t left, stride;
};

/* The heads' products with one panel, some of which may open a group. */
static inline void add_heads(const struct omp_query *query, int64_t j, int32_t heads, __m512 scale,
			     __m512 floor, __m512 dot[HEADS][VECTORS], struct cursor *cursor,
			     int64_t at)
{
	for (int32_t h = 0; h < heads; h++, cursor->left--) {
		const bool opens = cursor->left == 0;
		const __m512 w = _mm512_set1_ps(query->w[j + h]);
		if (opens) {
			cursor->sums = cursor->next;
			cursor->next += cursor->stride;
			cursor->left = query->group_heads;
		}
		for (int32_t v = 0; v < VECTORS; v++) {
			float *to = cursor->sums + at + 16 * v;
			const __m512 sum = opens ? _mm512_setzero_ps() : _mm512_loadu_ps(to);
			_mm512_storeu_ps(to, add_head(sum, w, scale, floor, dot[h][v]));
		}
	}
}

/* The same when all of them belong to the current group. */
static inline void add_whole(const float *w, __m512 scale, __m512 floor, __m512 dot[HEADS][VECTORS],
			     float *sums)
{
	for (int32_t v = 0; v < VECTORS; v++) {
		__m512 sum = _mm512_loadu_ps(sums + 16 * v);
		for (int32_t h = 0; h < HEADS; h++)
			sum = add_head(sum, _mm512_set1_ps(w[h]), scale, floor, dot[h][v]);
		_mm512_storeu_ps(sums + 16 * v, sum);
	}
}

/* Adds heads [j, j + heads) to the scores of a panel whose keys begin at `at`;
 * the cursor moves on. */
static inline __attribute__((always_inline)) void add_some(const struct omp_query *query, int64_t j,
							   int32_t heads,
							   __m512 dot[HEADS][VECTORS],
							   struct cursor *cursor, int64_t at)
{
	const __m512 scale = _mm512_set1_ps(query->scale);
	const __m512 floor = _mm512_set1_ps(query->relu ? 0.0f : -INFINITY);
	if (heads < HEADS || cursor->left < HEADS) {
		add_heads(query, j, heads, scale, floor, dot, cursor, at);
		return;
	}
	add_whole(query->w + j, scale, floor, dot, cursor->sums + at);
	cursor->left -= HEADS;
}

#endif
