#include "half_score.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rng.h"

enum { PANELS = 3, HEADS_MAX = 64, DIM_MAX = 128, STRIDE = PANELS * OMP_PANEL_MAX + 3 };

static float float_of(uint16_t half)
{
	const uint32_t bits = (uint32_t)half << 16;
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static void fill(struct rng *rng, const struct omp_isa *isa, uint16_t *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		const float y = (float)rng_normal(rng);
		isa->from_f32(HYS_BF16, &y, x + i, 1);
	}
}

/* The score of group g in f64, and the sum of all magnitudes. */
static double score(const struct omp_query *query, int64_t g, const uint16_t *key,
		    double *magnitude)
{
	double sum = 0.0;
	*magnitude = 0.0;
	for (int64_t j = g * query->group_heads; j < (g + 1) * query->group_heads; j++) {
		double z = 0.0;
		for (int64_t d = 0; d < query->dim; d++) {
			const double product =
				(double)query->scale *
				(double)float_of(query->half[j * query->half_dim + d]) *
				(double)float_of(key[d]);
			z += product;
			*magnitude += fabs((double)query->w[j] * product);
		}
		sum += (double)query->w[j] * (query->relu && z < 0.0 ? 0.0 : z);
	}
	return sum;
}

/* One key at `place`, NaN in all others. */
static void place_key(const struct omp_isa *isa, const struct omp_query *query, const uint16_t *key,
		      int64_t place, uint16_t *packed)
{
	const int64_t panel = isa->panel, size = query->half_dim * panel;
	for (int64_t i = 0; i < PANELS * size; i++)
		packed[i] = 0x7fc0;
	for (int64_t d = 0; d < query->half_dim; d++)
		packed[place / panel * size + (d / 2 * panel + place % panel) * 2 + d % 2] =
			d < query->dim ? key[d] : 0;
}

static void check_shape(const struct omp_isa *isa, const struct omp_query *query,
			const uint16_t *key)
{
	static uint16_t packed[PANELS * OMP_PANEL_MAX * DIM_MAX];
	static float scores[HEADS_MAX * STRIDE], first[HEADS_MAX];
	const int64_t keys = PANELS * isa->panel, groups = query->heads / query->group_heads;
	for (int64_t place = 0; place < keys; place++) {
		place_key(isa, query, key, place, packed);
		isa->half_begin();
		isa->score_half(query, packed, PANELS, scores, STRIDE);
		isa->half_end();
		for (int64_t g = 0; g < groups; g++) {
			if (place == 0)
				first[g] = scores[g * STRIDE];
			assert_memory_equal(first + g, scores + g * STRIDE + place, sizeof *first);
			assert_true(isnan(scores[g * STRIDE + (place + 1) % keys]));
		}
	}
	for (int64_t g = 0; g < groups; g++) {
		double magnitude;
		const double want = score(query, g, key, &magnitude);
		assert_true(fabs((double)first[g] - want) <= 1e-6 * magnitude);
	}
}

void half_score_check(const struct omp_isa *isa)
{
	static const int64_t shapes[][3] = {/* heads, heads of a group, dim */
					    {1, 1, 1},	  {2, 1, 3},   {3, 3, 32},  {16, 4, 33},
					    {17, 17, 64}, {32, 2, 31}, {33, 11, 5}, {64, 64, 128},
					    {40, 8, 96},  {12, 6, 24}, {48, 16, 70}};
	static uint16_t q[(HEADS_MAX + OMP_HALF_SLACK) * DIM_MAX], key[DIM_MAX];
	static float w[HEADS_MAX];
	struct rng rng;
	rng_seed(&rng, 12);
	fill(&rng, isa, key, DIM_MAX);
	for (int32_t j = 0; j < HEADS_MAX; j++)
		w[j] = (float)rng_normal(&rng);
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		struct omp_query query = {.half = q,
					  .w = w,
					  .heads = shapes[i][0],
					  .group_heads = shapes[i][1],
					  .dim = shapes[i][2],
					  .scale = 0.5f};
		query.half_dim = hys_round_up(query.dim, OMP_HALF_STEP);
		memset(q, 0, sizeof q);
		for (int64_t j = 0; j < query.heads; j++)
			fill(&rng, isa, q + j * query.half_dim, query.dim);
		check_shape(isa, &query, key);
		query.relu = true;
		check_shape(isa, &query, key);
	}
}
