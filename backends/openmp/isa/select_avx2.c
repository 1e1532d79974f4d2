/* select_avx2.c - scoring and filtering with AVX2 and FMA. Six heads by 16 keys
 * take 12 accumulators, two registers of keys and one of a head; wider panels
 * would be cut more often where blocks of keys are chosen. */
#include <immintrin.h>
#include <math.h>

#include "isa_functions.h"

#define PANEL 16
#define HEADS 6
#define VECTORS (PANEL / 8)

/* dot[h][v] = <q_h, keys 8v..8v+7>, for a number of heads that the compiler
 * knows. */
static inline __attribute__((always_inline)) void multiply(const float *q, int32_t heads,
							   int64_t dim, const float *packed,
							   __m256 dot[HEADS][VECTORS])
{
	for (int32_t h = 0; h < heads; h++)
		for (int32_t v = 0; v < VECTORS; v++)
			dot[h][v] = _mm256_setzero_ps();
	for (int64_t d = 0; d < dim; d++, packed += PANEL) {
		const __m256 k0 = _mm256_loadu_ps(packed);
		const __m256 k1 = _mm256_loadu_ps(packed + 8);
		for (int32_t h = 0; h < heads; h++) {
			const __m256 a = _mm256_broadcast_ss(q + h * dim + d);
			dot[h][0] = _mm256_fmadd_ps(a, k0, dot[h][0]);
			dot[h][1] = _mm256_fmadd_ps(a, k1, dot[h][1]);
		}
	}
}

/* sum + w * act(scale * dot). A maximum with dot behind keeps its NaN. */
static inline __m256 add_head(__m256 sum, __m256 w, __m256 scale, __m256 floor, __m256 dot)
{
	return _mm256_fmadd_ps(w, _mm256_max_ps(floor, _mm256_mul_ps(scale, dot)), sum);
}

/* Where the next head's products go: the sums of its group in the first panel,
 * and how many heads of that are still to come. */
struct cursor {
	float *sums, *next;
	int64_t left, stride;
};

/* The heads' products with one panel, some of which may open a group. */
static inline void add_heads(const struct omp_query *query, int64_t j, int32_t heads, __m256 scale,
			     __m256 floor, __m256 dot[HEADS][VECTORS], struct cursor *cursor,
			     int64_t at)
{
	for (int32_t h = 0; h < heads; h++, cursor->left--) {
		const bool opens = cursor->left == 0;
		const __m256 w = _mm256_broadcast_ss(query->w + j + h);
		if (opens) {
			cursor->sums = cursor->next;
			cursor->next += cursor->stride;
			cursor->left = query->group_heads;
		}
		for (int32_t v = 0; v < VECTORS; v++) {
			float *to = cursor->sums + at + 8 * v;
			const __m256 sum = opens ? _mm256_setzero_ps() : _mm256_loadu_ps(to);
			_mm256_storeu_ps(to, add_head(sum, w, scale, floor, dot[h][v]));
		}
	}
}

/* The same when all of them belong to the current group. */
static inline void add_whole(const float *w, __m256 scale, __m256 floor, __m256 dot[HEADS][VECTORS],
			     float *sums)
{
	for (int32_t v = 0; v < VECTORS; v++) {
		__m256 sum = _mm256_loadu_ps(sums + 8 * v);
		for (int32_t h = 0; h < HEADS; h++)
			sum = add_head(sum, _mm256_broadcast_ss(w + h), scale, floor, dot[h][v]);
		_mm256_storeu_ps(sums + 8 * v, sum);
	}
}

static inline __attribute__((always_inline)) void score_heads(const struct omp_query *query,
							      int64_t j, int32_t heads,
							      const float *packed, int64_t panels,
							      struct cursor *cursor)
{
	const __m256 scale = _mm256_set1_ps(query->scale);
	const __m256 floor = _mm256_set1_ps(query->relu ? 0.0f : -INFINITY);
	const bool whole = heads == HEADS && cursor->left >= HEADS;
	const struct cursor before = *cursor;
	for (int64_t p = 0; p < panels; p++, packed += query->dim * PANEL) {
		__m256 dot[HEADS][VECTORS];
		multiply(query->q + j * query->dim, heads, query->dim, packed, dot);
		*cursor = before;
		if (whole)
			add_whole(query->w + j, scale, floor, dot, cursor->sums + p * PANEL);
		else
			add_heads(query, j, heads, scale, floor, dot, cursor, p * PANEL);
	}
	if (whole)
		cursor->left -= HEADS;
}

static void score(const struct omp_query *query, const float *packed, int64_t panels, float *scores,
		  int64_t stride)
{
	struct cursor cursor = {.next = scores, .stride = stride};
	const int64_t rest = query->heads % HEADS;
	const int64_t whole = query->heads - rest;
	for (int64_t j = 0; j < whole; j += HEADS)
		score_heads(query, j, HEADS, packed, panels, &cursor);
	if (rest >= 4)
		score_heads(query, whole, 4, packed, panels, &cursor);
	if (rest % 4 >= 2)
		score_heads(query, whole + rest / 4 * 4, 2, packed, panels, &cursor);
	if (rest % 2 == 1)
		score_heads(query, query->heads - 1, 1, packed, panels, &cursor);
}

/* Appends the lanes of `mask`, lowest first. */
static inline int64_t append(const float *scores, int32_t mask, int32_t first, float *out_scores,
			     int32_t *out_indices, int64_t count)
{
	for (; mask; mask &= mask - 1, count++) {
		const int32_t lane = __builtin_ctz((unsigned int)mask);
		out_scores[count] = scores[lane];
		out_indices[count] = first + lane;
	}
	return count;
}

static int64_t filter(const float *scores, int64_t n, float least, int32_t first, float *out_scores,
		      int32_t *out_indices)
{
	const __m256 bound = _mm256_set1_ps(least);
	const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	int64_t count = 0, i = 0;
	for (; i + 8 <= n; i += 8) {
		const __m256 x = _mm256_loadu_ps(scores + i);
		const int32_t mask = _mm256_movemask_ps(_mm256_cmp_ps(x, bound, _CMP_NLT_UQ));
		const int32_t at = first + (int32_t)i;
		if (mask == 0)
			continue;
		if (mask != 0xff) {
			count = append(scores + i, mask, at, out_scores, out_indices, count);
			continue;
		}
		_mm256_storeu_ps(out_scores + count, x);
		_mm256_storeu_si256((void *)(out_indices + count),
				    _mm256_add_epi32(_mm256_set1_epi32(at), lanes));
		count += 8;
	}
	return count + omp_filter_portable(scores + i, n - i, least, first + (int32_t)i,
					   out_scores + count, out_indices + count);
}

static bool has_nan(const float *x, int64_t n)
{
	__m256 found = _mm256_setzero_ps();
	int64_t i = 0;
	for (; i + 8 <= n; i += 8) {
		const __m256 y = _mm256_loadu_ps(x + i);
		found = _mm256_or_ps(found, _mm256_cmp_ps(y, y, _CMP_UNORD_Q));
	}
	return _mm256_movemask_ps(found) != 0 || omp_has_nan_portable(x + i, n - i);
}

static float maximum(const float *x, int64_t n)
{
	__m256 largest = _mm256_set1_ps(-INFINITY), ordered = _mm256_setzero_ps();
	float lane[8];
	int64_t i = 0;
	for (; i + 8 <= n; i += 8) {
		const __m256 y = _mm256_loadu_ps(x + i);
		largest = _mm256_max_ps(y, largest); /* the second of a NaN pair */
		ordered = _mm256_or_ps(ordered, _mm256_cmp_ps(y, y, _CMP_ORD_Q));
	}
	const float rest = omp_maximum_portable(x + i, n - i);
	if (_mm256_movemask_ps(ordered) == 0)
		return rest;
	_mm256_storeu_ps(lane, largest);
	return fmaxf(omp_maximum_portable(lane, 8), rest);
}

void omp_fill_select_avx2(struct omp_isa *isa)
{
	isa->panel = PANEL;
	isa->score = score;
	isa->filter = filter;
	isa->has_nan = has_nan;
	isa->maximum = maximum;
}
