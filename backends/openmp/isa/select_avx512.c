/* select_avx512.c - scoring and filtering with AVX-512. Eight heads by 32 keys
 * take 16 accumulators; wider panels would be cut more often where blocks of keys
 * are chosen. */
#include "heads_avx512.h"

/* dot[h][v] = <q_h, keys 16v..16v+15>, for a number of heads that the compiler
 * knows. */
static inline __attribute__((always_inline)) void multiply(const float *q, int32_t heads,
							   int64_t dim, const float *packed,
							   __m512 dot[HEADS][VECTORS])
{
	for (int32_t h = 0; h < heads; h++)
		for (int32_t v = 0; v < VECTORS; v++)
			dot[h][v] = _mm512_setzero_ps();
	for (int64_t d = 0; d < dim; d++, packed += PANEL) {
		const __m512 k0 = _mm512_loadu_ps(packed);
		const __m512 k1 = _mm512_loadu_ps(packed + 16);
		for (int32_t h = 0; h < heads; h++) {
			const __m512 a = _mm512_set1_ps(q[h * dim + d]);
			dot[h][0] = _mm512_fmadd_ps(a, k0, dot[h][0]);
			dot[h][1] = _mm512_fmadd_ps(a, k1, dot[h][1]);
		}
	}
}

static inline __attribute__((always_inline)) void score_heads(const struct omp_query *query,
							      int64_t j, int32_t heads,
							      const float *packed, int64_t panels,
							      struct cursor *cursor)
{
	const struct cursor before = *cursor;
	for (int64_t p = 0; p < panels; p++, packed += query->dim * PANEL) {
		__m512 dot[HEADS][VECTORS];
		multiply(query->q + j * query->dim, heads, query->dim, packed, dot);
		*cursor = before;
		add_some(query, j, heads, dot, cursor, p * PANEL);
	}
}

static void score(const struct omp_query *query, const float *packed, int64_t panels, float *scores,
		  int64_t stride)
{
	struct cursor cursor = {.next = scores, .stride = stride};
	int64_t j = 0;
	for (; j + HEADS <= query->heads; j += HEADS)
		score_heads(query, j, HEADS, packed, panels, &cursor);
	for (; j + 4 <= query->heads; j += 4)
		score_heads(query, j, 4, packed, panels, &cursor);
	for (; j + 2 <= query->heads; j += 2)
		score_heads(query, j, 2, packed, panels, &cursor);
	if (j < query->heads)
		score_heads(query, j, 1, packed, panels, &cursor);
}

/* The first n of sixteen lanes. */
static inline __mmask16 first_lanes(int64_t n)
{
	return (__mmask16)(n >= 16 ? 0xffff : (1 << n) - 1);
}

static int64_t filter(const float *scores, int64_t n, float least, int32_t first, float *out_scores,
		      int32_t *out_indices)
{
	const __m512 bound = _mm512_set1_ps(least);
	__m512i index = _mm512_add_epi32(
		_mm512_set1_epi32(first),
		_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
	int64_t count = 0;
	for (int64_t i = 0; i < n; i += 16) {
		const __mmask16 some = first_lanes(n - i);
		const __m512 x = _mm512_maskz_loadu_ps(some, scores + i);
		const __mmask16 kept = _mm512_mask_cmp_ps_mask(some, x, bound, _CMP_NLT_UQ);
		/* Compressed in registers: to memory that is slow on some. */
		if (kept) {
			_mm512_storeu_ps(out_scores + count, _mm512_maskz_compress_ps(kept, x));
			_mm512_storeu_si512(out_indices + count,
					    _mm512_maskz_compress_epi32(kept, index));
			count += __builtin_popcount(kept);
		}
		index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
	}
	return count;
}

static int64_t keep(float *scores, int32_t *indices, int64_t n, float least)
{
	const __m512 bound = _mm512_set1_ps(least);
	int64_t count = 0;
	for (int64_t i = 0; i < n; i += 16) {
		const __mmask16 some = first_lanes(n - i);
		const __m512 x = _mm512_maskz_loadu_ps(some, scores + i);
		const __m512i index = _mm512_maskz_loadu_epi32(some, indices + i);
		const __mmask16 kept = _mm512_mask_cmp_ps_mask(some, x, bound, _CMP_NLT_UQ);
		const __mmask16 packed = first_lanes(__builtin_popcount(kept));
		_mm512_mask_storeu_ps(scores + count, packed, _mm512_maskz_compress_ps(kept, x));
		_mm512_mask_storeu_epi32(indices + count, packed,
					 _mm512_maskz_compress_epi32(kept, index));
		count += __builtin_popcount(kept);
	}
	return count;
}

static bool has_nan(const float *x, int64_t n)
{
	__mmask16 found = 0;
	for (int64_t i = 0; i < n; i += 16) {
		const __m512 y = _mm512_maskz_loadu_ps(first_lanes(n - i), x + i);
		found |= _mm512_cmp_ps_mask(y, y, _CMP_UNORD_Q);
	}
	return found != 0;
}

static float maximum(const float *x, int64_t n)
{
	__m512 largest = _mm512_set1_ps(-INFINITY);
	__mmask16 ordered = 0;
	for (int64_t i = 0; i < n; i += 16) {
		const __mmask16 some = first_lanes(n - i);
		const __m512 y = _mm512_maskz_loadu_ps(some, x + i);
		const __mmask16 numbers = _mm512_mask_cmp_ps_mask(some, y, y, _CMP_ORD_Q);
		largest = _mm512_mask_max_ps(largest, numbers, y, largest);
		ordered |= numbers;
	}
	return ordered ? _mm512_reduce_max_ps(largest) : NAN;
}

void omp_fill_select_avx512(struct omp_isa *isa)
{
	isa->panel = PANEL;
	isa->score = score;
	isa->filter = filter;
	isa->keep = keep;
	isa->has_nan = has_nan;
	isa->maximum = maximum;
}
