/* Upper bounds of scores: never below what any set computes, near it where they
 * can be, and useless where something is not a number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "isas.h"
#include "omp_select.h"
#include "rng.h"

enum { HEADS = 6, DIM = 40, GROUP = 3 };

struct operands {
	float q[HEADS * DIM], w[HEADS], key[DIM];
};

static struct omp_query query_of(const struct operands *x, float scale, bool relu)
{
	return (struct omp_query){.q = x->q,
				  .w = x->w,
				  .heads = HEADS,
				  .group_heads = GROUP,
				  .dim = DIM,
				  .scale = scale,
				  .relu = relu};
}

/* The score that the set computes for the key, in each group. */
static void score(const struct omp_isa *isa, const struct omp_query *query, const float *key,
		  float scores[HEADS / GROUP])
{
	static float packed[DIM * OMP_PANEL_MAX], all[HEADS / GROUP * OMP_PANEL_MAX];
	omp_pack(key, 1, DIM, isa->panel, packed);
	isa->score(query, packed, 1, all, OMP_PANEL_MAX);
	for (int32_t u = 0; u < HEADS / GROUP; u++)
		scores[u] = all[u * OMP_PANEL_MAX];
}

static void fill(struct rng *rng, struct operands *x, double magnitude, bool parallel)
{
	for (int32_t d = 0; d < DIM; d++)
		x->key[d] = (float)(magnitude * rng_normal(rng));
	for (int32_t j = 0; j < HEADS; j++) {
		const double factor = rng_log_normal(rng, 0.0, 1.0);
		x->w[j] = (float)rng_normal(rng);
		for (int32_t d = 0; d < DIM; d++)
			x->q[j * DIM + d] =
				parallel ? (float)(factor * (double)x->key[d] / magnitude)
					 : (float)rng_normal(rng);
	}
}

static void check(const struct omp_isa *isa, const struct operands *x, float scale, bool relu,
		  bool tight)
{
	const struct omp_query query = query_of(x, scale, relu);
	const double norm = omp_bound_norm(isa, x->key, DIM);
	float scores[HEADS / GROUP];
	score(isa, &query, x->key, scores);
	for (int32_t u = 0; u < HEADS / GROUP; u++) {
		const struct omp_bound bound = omp_bound_of_query(isa, &query, u);
		const double most = bound.factor * norm + bound.least;
		assert_true((double)scores[u] <= most);
		if (tight)
			assert_true((double)scores[u] >= 0.9999 * most);
	}
}

static void test_never_below(void **state)
{
	static const double magnitudes[] = {1.0, 1e-20, 1e-38, 1e-42, 1e15};
	struct operands x;
	struct rng rng;
	(void)state;
	rng_seed(&rng, 15);
	for (int32_t s = 0; isa_at(s); s++)
		for (int32_t turn = 0; turn < 400; turn++) {
			const double magnitude = magnitudes[turn % 5];
			const bool parallel = turn % 2 != 0, relu = turn % 3 != 0;
			fill(&rng, &x, magnitude, parallel);
			check(isa_at(s), &x, turn % 7 == 0 ? -0.3f : 0.7f, relu, false);
			for (int32_t j = 0; j < HEADS; j++)
				x.w[j] = fabsf(x.w[j]);
			/* q, k and their product in the same direction: nothing is lost */
			check(isa_at(s), &x, 0.7f, relu, parallel && magnitude == 1.0);
		}
}

static void test_not_numbers(void **state)
{
	const float bad[] = {NAN, INFINITY, -INFINITY};
	struct operands x;
	struct rng rng;
	(void)state;
	rng_seed(&rng, 16);
	for (int32_t s = 0; isa_at(s); s++)
		for (int32_t i = 0; i < 9; i++) {
			fill(&rng, &x, 1.0, false);
			*(i % 3 == 0 ? x.q + 5 : i % 3 == 1 ? x.w + 1 : x.key + 7) = bad[i / 3];
			const struct omp_query query = query_of(&x, 1.0f, false);
			const struct omp_bound bound = omp_bound_of_query(isa_at(s), &query, 0);
			const double norm = omp_bound_norm(isa_at(s), x.key, DIM);
			assert_false(bound.factor * norm + bound.least < (double)INFINITY);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_never_below),
		cmocka_unit_test(test_not_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
