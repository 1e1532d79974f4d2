/* The K best of a stream of scores, against sorting all of them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "isas.h"
#include "omp_topk.h"
#include "rng.h"

#define MOST 9000
#define PIECE 192

struct candidate {
	float score;
	int32_t index;
};

/* Rank order of the specification, written independently of the keys. */
static int compare_rank(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	if (isnan(a->score) != isnan(b->score))
		return isnan(a->score) ? 1 : -1;
	if (a->score > b->score || a->score < b->score)
		return a->score > b->score ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

static int compare_index(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	return a->index < b->index ? -1 : a->index > b->index;
}

static float *scores_made, *held_scores;
static int32_t *held_indices;
static uint32_t *held_keys;
static struct candidate *ranking;

static int set_up(void **state)
{
	const size_t room = 2 * MOST + PIECE + OMP_FILTER_SLACK;
	(void)state;
	scores_made = malloc(MOST * sizeof *scores_made);
	held_scores = malloc(room * sizeof *held_scores);
	held_indices = malloc(room * sizeof *held_indices);
	held_keys = malloc(room * sizeof *held_keys);
	ranking = malloc(MOST * sizeof *ranking);
	return scores_made && held_scores && held_indices && held_keys && ranking ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	free(scores_made);
	free(held_scores);
	free(held_indices);
	free(held_keys);
	free(ranking);
	return 0;
}

/* Streams n scores in pieces of at most `piece` and compares what stays. */
static void check_stream(const struct omp_isa *isa, int64_t n, int64_t k, int64_t piece)
{
	struct omp_topk topk = {.capacity = omp_topk_capacity(k, n, piece),
				.scores = held_scores,
				.indices = held_indices,
				.keys = held_keys};
	const int64_t wanted = k < n ? k : n;
	float lowest;

	omp_topk_start(&topk, k);
	for (int64_t at = 0; at < n; at += piece)
		omp_topk_push(&topk, isa, scores_made + at, piece < n - at ? piece : n - at,
			      (int32_t)at + 5);
	assert_int_equal(omp_topk_finish(&topk, isa, &lowest), wanted);
	for (int64_t i = 0; i < n; i++)
		ranking[i] = (struct candidate){scores_made[i], (int32_t)i + 5};
	qsort(ranking, (size_t)n, sizeof *ranking, compare_rank);
	const float last = wanted > 0 ? ranking[wanted - 1].score : -INFINITY;
	assert_true(lowest == last || (isnan(lowest) && isnan(last)));
	qsort(ranking, (size_t)wanted, sizeof *ranking, compare_index);
	for (int64_t i = 0; i < wanted; i++) {
		assert_int_equal(topk.indices[i], ranking[i].index);
		assert_memory_equal(&topk.scores[i], &ranking[i].score, sizeof(float));
	}
}

/* Sizes around the buffer's edges: it holds 2K or 1024 candidates and a piece. */
static void check_sizes(void)
{
	static const int64_t sizes[] = {0,    1,    7,	  8,	9,    191,  192,  193, 1023,
					1024, 1025, 1216, 1217, 2047, 4096, 4289, MOST};
	static const int64_t wanted[] = {0, 1, 2, 3, 16, 511, 512, 513, 1024, 2048, 4500, MOST};
	static const int64_t pieces[] = {1, 7, 64, PIECE};
	for (int32_t s = 0; isa_at(s); s++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
			for (size_t j = 0; j < sizeof wanted / sizeof *wanted; j++)
				check_stream(isa_at(s), sizes[i], wanted[j], pieces[(i + j) % 4]);
}

static void test_random(void **state)
{
	struct rng rng;
	(void)state;
	rng_seed(&rng, 1);
	for (int64_t i = 0; i < MOST; i++)
		scores_made[i] = (float)rng_normal(&rng);
	check_sizes();
}

/* Each newcomer is better, or worse, than all before. */
static void test_sorted(void **state)
{
	(void)state;
	for (int64_t i = 0; i < MOST; i++)
		scores_made[i] = (float)(i - MOST / 2);
	check_sizes();
	for (int64_t i = 0; i < MOST; i++)
		scores_made[i] = (float)(MOST / 2 - i);
	check_sizes();
}

static void test_ties(void **state)
{
	struct rng rng;
	(void)state;
	rng_seed(&rng, 2);
	for (int64_t i = 0; i < MOST; i++)
		scores_made[i] = (float)rng_range(&rng, -2, 3);
	check_sizes();
	for (int64_t i = 0; i < MOST; i++)
		scores_made[i] = 1.5f;
	check_sizes();
}

static void test_zeros_are_equal(void **state)
{
	struct rng rng;
	(void)state;
	rng_seed(&rng, 3);
	for (int64_t i = 0; i < MOST; i++)
		scores_made[i] = rng_range(&rng, 0, 2) ? 0.0f : -0.0f;
	check_sizes();
}

/* NaN, infinities, subnormal and huge numbers. */
static void test_special(void **state)
{
	static const float special[] = {NAN,	  INFINITY, -INFINITY, 3.4e38f,
					-3.4e38f, 1.4e-45f, -1.4e-45f, 0.0f};
	struct rng rng;
	(void)state;
	rng_seed(&rng, 4);
	for (int64_t i = 0; i < MOST; i++)
		scores_made[i] = special[rng_range(&rng, 0, 8)];
	check_sizes();
	for (int64_t i = 0; i < MOST; i++)
		scores_made[i] = i % 5 ? NAN : -INFINITY;
	check_sizes();
	for (int64_t i = 0; i < MOST; i++)
		scores_made[i] = i % 3 ? INFINITY : NAN;
	check_sizes();
	for (int64_t i = 0; i < MOST; i++)
		scores_made[i] = NAN;
	check_sizes();
}

static void test_keys_are_ordered(void **state)
{
	static const float ascending[] = {-INFINITY, -3.4e38f, -1.0f,	 -1.2e-38f, -1.4e-45f,
					  0.0f,	     1.4e-45f, 1.2e-38f, 1.0f,	    INFINITY};
	(void)state;
	assert_int_equal(omp_topk_key(0.0f), omp_topk_key(-0.0f));
	assert_true(omp_topk_key(NAN) < omp_topk_key(-INFINITY));
	assert_int_equal(omp_topk_key(NAN), omp_topk_key(-NAN));
	for (size_t i = 1; i < sizeof ascending / sizeof *ascending; i++)
		assert_true(omp_topk_key(ascending[i - 1]) < omp_topk_key(ascending[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),	cmocka_unit_test(test_sorted),
		cmocka_unit_test(test_ties),	cmocka_unit_test(test_zeros_are_equal),
		cmocka_unit_test(test_special), cmocka_unit_test(test_keys_are_ordered),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
