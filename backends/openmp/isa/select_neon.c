/* select_neon.c - scoring with NEON; filtering is left to plain C. Six heads by
 * 16 keys take 24 of 32 registers. */
#include <arm_neon.h>
#include <math.h>

#include "isa_functions.h"

#define PANEL 16
#define HEADS 6
#define VECTORS (PANEL / 4)

/* dot[h][v] = <q_h, keys 4v..4v+3>, for a number of heads that the compiler
 * knows. */
static inline __attribute__((always_inline)) void multiply(const float *q, int32_t heads,
							   int64_t dim, const float *packed,
							   float32x4_t dot[HEADS][VECTORS])
{
	for (int32_t h = 0; h < heads; h++)
		for (int32_t v = 0; v < VECTORS; v++)
			dot[h][v] = vdupq_n_f32(0.0f);
	for (int64_t d = 0; d < dim; d++, packed += PANEL) {
		float32x4_t key[VECTORS];
		for (int32_t v = 0; v < VECTORS; v++)
			key[v] = vld1q_f32(packed + 4 * v);
		for (int32_t h = 0; h < heads; h++)
			for (int32_t v = 0; v < VECTORS; v++)
				dot[h][v] = vfmaq_n_f32(dot[h][v], key[v], q[h * dim + d]);
	}
}

/* sums += w * act(scale * dot) */
static inline void add_head(const struct omp_query *query, float w, const float32x4_t dot[VECTORS],
			    float *sums)
{
	for (int32_t v = 0; v < VECTORS; v++) {
		float32x4_t z = vmulq_n_f32(dot[v], query->scale);
		if (query->relu) /* a maximum that keeps NaN */
			z = vmaxq_f32(z, vdupq_n_f32(0.0f));
		vst1q_f32(sums + 4 * v, vfmaq_n_f32(vld1q_f32(sums + 4 * v), z, w));
	}
}

/* Where the next head's products go, as in select_avx2.c. */
struct cursor {
	float *sums, *next;
	int64_t left, stride;
};

static inline __attribute__((always_inline)) void score_heads(const struct omp_query *query,
							      int64_t j, int32_t heads,
							      const float *packed,
							      struct cursor *cursor)
{
	float32x4_t dot[HEADS][VECTORS];
	multiply(query->q + j * query->dim, heads, query->dim, packed, dot);
	for (int32_t h = 0; h < heads; h++, cursor->left--) {
		if (cursor->left == 0) {
			cursor->left = query->group_heads;
			cursor->sums = cursor->next;
			cursor->next += cursor->stride;
			for (int32_t i = 0; i < PANEL; i++)
				cursor->sums[i] = 0.0f;
		}
		add_head(query, query->w[j + h], dot[h], cursor->sums);
	}
}

static void score_panel(const struct omp_query *query, const float *packed, float *scores,
			int64_t stride)
{
	struct cursor cursor = {.next = scores, .stride = stride};
	int64_t j = 0;
	for (; j + HEADS <= query->heads; j += HEADS)
		score_heads(query, j, HEADS, packed, &cursor);
	for (; j + 2 <= query->heads; j += 2)
		score_heads(query, j, 2, packed, &cursor);
	if (j < query->heads)
		score_heads(query, j, 1, packed, &cursor);
}

static void score(const struct omp_query *query, const float *packed, int64_t panels, float *scores,
		  int64_t stride)
{
	for (int64_t p = 0; p < panels; p++)
		score_panel(query, packed + p * query->dim * PANEL, scores + p * PANEL, stride);
}

static bool has_nan(const float *x, int64_t n)
{
	uint32x4_t equal = vdupq_n_u32(UINT32_MAX);
	int64_t i = 0;
	for (; i + 4 <= n; i += 4) {
		const float32x4_t y = vld1q_f32(x + i);
		equal = vandq_u32(equal, vceqq_f32(y, y));
	}
	return vminvq_u32(equal) == 0 || omp_has_nan_portable(x + i, n - i);
}

static float maximum(const float *x, int64_t n)
{
	float32x4_t largest = vdupq_n_f32(NAN);
	int64_t i = 0;
	for (; i + 4 <= n; i += 4) /* a maximum that prefers numbers */
		largest = vmaxnmq_f32(largest, vld1q_f32(x + i));
	return fmaxf(vmaxnmvq_f32(largest), omp_maximum_portable(x + i, n - i));
}

void omp_fill_select_neon(struct omp_isa *isa)
{
	isa->panel = PANEL;
	isa->score = score;
	isa->has_nan = has_nan;
	isa->maximum = maximum;
}
