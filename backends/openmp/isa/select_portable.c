/* select_portable.c - scoring and filtering in plain C. Four heads by eight
 * keys: small enough for the registers of most processors. */
#include <math.h>
#include <string.h>

#include "isa_functions.h"

#define PANEL 8
#define HEADS 4
#define QUADS (PANEL / 4)

/* Four floats, in whatever registers there are: left to itself, a compiler may
 * vectorise the wrong loop of multiply. */
typedef float quad __attribute__((vector_size(16)));
typedef int32_t quad_bits __attribute__((vector_size(16)));

static inline quad load(const float *from)
{
	quad x;
	memcpy(&x, from, sizeof x);
	return x;
}

/* dot[h] = <q_h, keys>, for a number of heads that the compiler knows. */
static inline __attribute__((always_inline)) void
multiply(const float *q, int32_t heads, int64_t dim, const float *packed, quad dot[HEADS][QUADS])
{
	for (int32_t h = 0; h < heads; h++)
		for (int32_t v = 0; v < QUADS; v++)
			dot[h][v] = (quad){0};
	for (int64_t d = 0; d < dim; d++, packed += PANEL) {
		const quad k0 = load(packed), k1 = load(packed + 4);
		for (int32_t h = 0; h < heads; h++) {
			const float a = q[h * dim + d];
			const quad factor = {a, a, a, a};
			dot[h][0] += factor * k0;
			dot[h][1] += factor * k1;
		}
	}
}

static inline void store(float *to, quad x)
{
	memcpy(to, &x, sizeof x);
}

/* z where it is not negative, NaN included, else 0. */
static inline quad relu(quad z)
{
	return (quad)((quad_bits)z & ~(quad_bits)(z < 0.0f));
}

static inline void add_head(const struct omp_query *query, float w, const quad dot[QUADS],
			    float *sums)
{
	for (int32_t v = 0; v < QUADS; v++) {
		const quad z = query->scale * dot[v];
		store(sums + 4 * v, load(sums + 4 * v) + w * (query->relu ? relu(z) : z));
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
	quad dot[HEADS][QUADS];
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
	for (; j < query->heads; j++)
		score_heads(query, j, 1, packed, &cursor);
}

static void score(const struct omp_query *query, const float *packed, int64_t panels, float *scores,
		  int64_t stride)
{
	for (int64_t p = 0; p < panels; p++)
		score_panel(query, packed + p * query->dim * PANEL, scores + p * PANEL, stride);
}

int64_t omp_filter_portable(const float *scores, int64_t n, float least, int32_t first,
			    float *out_scores, int32_t *out_indices)
{
	int64_t count = 0;
	for (int64_t i = 0; i < n; i++) {
		out_scores[count] = scores[i];
		out_indices[count] = first + (int32_t)i;
		count += !(scores[i] < least);
	}
	return count;
}

static int64_t keep(float *scores, int32_t *indices, int64_t n, float least)
{
	int64_t count = 0;
	for (int64_t i = 0; i < n; i++) {
		const float score = scores[i];
		scores[count] = score;
		indices[count] = indices[i];
		count += !(score < least);
	}
	return count;
}

bool omp_has_nan_portable(const float *x, int64_t n)
{
	bool found = false;
	for (int64_t i = 0; i < n; i++)
		found |= x[i] != x[i];
	return found;
}

float omp_maximum_portable(const float *x, int64_t n)
{
	float largest = NAN;
	for (int64_t i = 0; i < n; i++)
		if (!(x[i] <= largest) && x[i] == x[i])
			largest = x[i];
	return largest;
}

void omp_fill_select_portable(struct omp_isa *isa)
{
	isa->panel = PANEL;
	isa->score = score;
	isa->filter = omp_filter_portable;
	isa->keep = keep;
	isa->has_nan = omp_has_nan_portable;
	isa->maximum = omp_maximum_portable;
}
