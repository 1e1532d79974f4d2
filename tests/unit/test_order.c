/* In what order a processor takes items of uneven cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "omp_order.h"
#include "rng.h"

#define MOST 3000

static int64_t costs[MOST];
static int32_t order[MOST];

static int64_t cost_of(const void *context, int64_t item)
{
	return ((const int64_t *)context)[item];
}

/* Every item once; no item before one that costs an eighth more; the last first
 * of those that cost the same. */
static void check(int64_t count)
{
	int32_t seen[MOST] = {0};
	int64_t least = INT64_MAX;

	omp_order(order, count, cost_of, costs);
	for (int64_t i = 0; i < count; i++) {
		assert_in_range(order[i], 0, count - 1);
		assert_int_equal(seen[order[i]]++, 0);
		if (costs[order[i]] < least)
			least = costs[order[i]];
		assert_true(costs[order[i]] - least <= least / 8);
		if (i > 0 && costs[order[i]] == costs[order[i - 1]])
			assert_true(order[i] < order[i - 1]);
	}
}

static void test_random(void **state)
{
	struct rng rng;

	(void)state;
	rng_seed(&rng, 1);
	for (int64_t count = 0; count < MOST; count = 2 * count + 1) {
		for (int64_t i = 0; i < count; i++)
			costs[i] = (int64_t)(rng_u64(&rng) >> rng_range(&rng, 2, 64));
		check(count);
	}
}

static void test_rising(void **state)
{
	(void)state;
	for (int64_t step = 0; step < INT64_C(1) << 50; step = 100 * step + 1) {
		for (int64_t i = 0; i < 1000; i++)
			costs[i] = i * step;
		check(1000);
		assert_int_equal(order[999], 0);
	}
}

/* What rows cost: the slots that they use, or all that they see. */
static void test_attended(void **state)
{
	static const int32_t indices[3][2][4] = {{{0, -1, -1, -1}, {-1, -1, -1, -1}},
						 {{0, 2, 3, 5}, {1, 2, 3, -1}},
						 {{0, 1, -1, -1}, {0, -1, -1, -1}}};
	static const int32_t begin[3] = {0, 0, 4}, end[3] = {1, 6, 9};
	const struct hys_tensor given = {.host = (void *)(uintptr_t)indices,
					 .dtype = HYS_I32,
					 .rank = 3,
					 .shape = {3, 2, 4},
					 .stride = {8, 4, 1}};
	const struct hys_tensor none = {0};
	struct hys_problem problem = {.scoring = {.groups = 2, .pool = 1, .block = 1},
				      .attending = {.granularity = 2, .window = 3}};
	const struct hys_batch_view batch = {.row_begin = {.host = (void *)(uintptr_t)begin,
							   .dtype = HYS_I32,
							   .rank = 1,
							   .shape = {3},
							   .stride = {1}},
					     .row_end = {.host = (void *)(uintptr_t)end,
							 .dtype = HYS_I32,
							 .rank = 1,
							 .shape = {3},
							 .stride = {1}}};
	struct omp_rows rows = {&problem, &batch, &given, 16, 16, 0};

	(void)state;
	assert_int_equal(omp_attended(&rows, 0), 2 + 2 * 1);
	assert_int_equal(omp_attended(&rows, 1), 2 * 7 + 2 * 3);
	assert_int_equal(omp_attended(&rows, 2), 2 * 3 + 2 * 3);
	rows.indices = &none;
	assert_int_equal(omp_attended(&rows, 1), 2 * 3);
	problem.attending.flags = HYS_ATTENDING_DENSE;
	assert_int_equal(omp_attended(&rows, 2), 2 * 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_rising),
		cmocka_unit_test(test_attended),
	};

	return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
