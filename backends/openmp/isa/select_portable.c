/* select_portable.c - scoring and filtering in plain C. Four heads by eight
 * keys: small enough for the registers of most processors. */
#include <math.h>

#include "isa_functions.h"

#define PANEL OMP_PANEL_PORTABLE
#define HEADS 4

/* dot[h][i] = <q_h, key_i> */
static void multiply(const float *q, int64_t heads, int64_t dim, const float *packed,
		     float dot[HEADS][PANEL])
{
	for (int64_t h = 0; h < heads; h++) {
		float sum[PANEL] = {0};
		for (int64_t d = 0; d < dim; d++)
			for (int32_t i = 0; i < PANEL; i++)
				sum[i] += q[h * dim + d] * packed[d * PANEL + i];
		for (int32_t i = 0; i < PANEL; i++)
			dot[h][i] = sum[i];
	}
}

static void add_head(const struct omp_query *query, float w, const float dot[PANEL], float *scores)
{
	for (int32_t i = 0; i < PANEL; i++) {
		const float z = query->scale * dot[i];
		scores[i] += w * (query->relu && z < 0.0f ? 0.0f : z);
	}
}

void omp_score_portable(const struct omp_query *query, const float *packed, float *scores,
			int64_t stride)
{
	float dot[HEADS][PANEL];
	float *sums = scores, *next = scores;
	int64_t left = 0; /* heads of the group that are still to come */
	for (int64_t j = 0; j < query->heads; j += HEADS) {
		const int64_t heads = query->heads - j < HEADS ? query->heads - j : HEADS;
		multiply(query->q + j * query->dim, heads, query->dim, packed, dot);
		for (int64_t h = 0; h < heads; h++, left--) {
			if (left == 0) {
				left = query->group_heads;
				sums = next;
				next += stride;
				for (int32_t i = 0; i < PANEL; i++)
					sums[i] = 0.0f;
			}
			add_head(query, query->w[j + h], dot[h], sums);
		}
	}
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
