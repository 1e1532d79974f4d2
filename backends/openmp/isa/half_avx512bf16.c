/* half_avx512bf16.c - scoring bf16 as it is with AVX512-BF16: two products a
 * lane and instruction. */
#include <string.h>

#include "heads_avx512.h"

/* Two neighbours of a head in every lane. */
static inline __m512bh both(const uint16_t *q)
{
	int32_t pair;
	memcpy(&pair, q, sizeof pair);
	return (__m512bh)_mm512_set1_epi32(pair);
}

/* dot[h][v] = <q_h, keys 16v..16v+15>, for a number of heads that the compiler
 * knows. */
static inline __attribute__((always_inline)) void multiply(const struct omp_query *query, int64_t j,
							   int32_t heads, const uint16_t *packed,
							   __m512 dot[HEADS][VECTORS])
{
	const uint16_t *q = query->half + j * query->half_dim;
	for (int32_t h = 0; h < heads; h++)
		for (int32_t v = 0; v < VECTORS; v++)
			dot[h][v] = _mm512_setzero_ps();
	for (int64_t d = 0; d < query->dim; d += 2, packed += 2 * PANEL) {
		const __m512bh k0 = (__m512bh)_mm512_loadu_si512(packed);
		const __m512bh k1 = (__m512bh)_mm512_loadu_si512(packed + 32);
		for (int32_t h = 0; h < heads; h++) {
			const __m512bh a = both(q + h * query->half_dim + d);
			dot[h][0] = _mm512_dpbf16_ps(dot[h][0], a, k0);
			dot[h][1] = _mm512_dpbf16_ps(dot[h][1], a, k1);
		}
	}
}

static inline __attribute__((always_inline)) void score_heads(const struct omp_query *query,
							      int64_t j, int32_t heads,
							      const uint16_t *packed,
							      int64_t panels, struct cursor *cursor)
{
	const struct cursor before = *cursor;
	for (int64_t p = 0; p < panels; p++, packed += query->half_dim * PANEL) {
		__m512 dot[HEADS][VECTORS];
		multiply(query, j, heads, packed, dot);
		*cursor = before;
		add_some(query, j, heads, dot, cursor, p * PANEL);
	}
}

static void score_half(const struct omp_query *query, const uint16_t *packed, int64_t panels,
		       float *scores, int64_t stride)
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

static void half_begin(void)
{
}

static void half_end(void)
{
}

void omp_fill_half_avx512bf16(struct omp_isa *isa)
{
	isa->score_half = score_half;
	isa->half_begin = half_begin;
	isa->half_end = half_end;
}
