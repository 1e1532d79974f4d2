/* What calls teach of a device whose times are known, however others disturb it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "lessons.h"

#define FIXED_S 2e-3
#define ROW_S 5e-6
#define FLOP_S 1e-10
#define TINY_ROWS 16
/* The better of a disturbed device's two speeds comes once in so many calls. */
#define SELDOM 9
#define SLOWER 1.8

static const double flops_of_row[HYS_ACTS] = {[HYS_HEAVY] = 2e6, [HYS_LIGHT] = 2e4};

static double busy_s(int act, double rows)
{
	return FIXED_S + rows * (ROW_S + flops_of_row[act] * FLOP_S);
}

static void expect_near(double found, double right)
{
	if (!(fabs(found - right) <= 0.02 * right))
		fail_msg("found %g, expected %g within 2%%", found, right);
}

static void watch(struct hys_seen *seen, bool disturbed)
{
	static const double rows[HYS_ACTS] = {[HYS_HEAVY] = 64, [HYS_LIGHT] = 2048};

	for (int a = 0; a < HYS_ACTS; a++) {
		seen[a] =
			(struct hys_seen){.tiny_s = busy_s(a, TINY_ROWS), .tiny_weight = TINY_ROWS};
		for (int n = 0; n < 40; n++) {
			const double weight = rows[a] * (1 + n % 4);
			const bool slow = disturbed && n % SELDOM != 4 * a;

			hys_seen_note(&seen[a], busy_s(a, weight) * (slow ? SLOWER : 1), weight,
				      weight * flops_of_row[a]);
		}
	}
}

static void test_three_costs(void **state)
{
	struct hys_seen seen[HYS_ACTS];

	(void)state;
	for (int disturbed = 0; disturbed < 2; disturbed++) {
		struct hys_lesson lesson = {.row_s = 1e-6, .flop_s = 3e-10};

		watch(seen, disturbed);
		hys_lessons_learn(seen, HYS_ACTS, 1e-4, &lesson);
		expect_near(lesson.fixed_s, FIXED_S);
		expect_near(lesson.row_s, ROW_S);
		expect_near(lesson.flop_s, FLOP_S);
		if (disturbed)
			assert_true(lesson.noise > 1.5 && lesson.noise < 2);
		else
			assert_true(lesson.noise >= 1 && lesson.noise < 1.01);
	}
}

/* Rows of one kind cannot tell two costs apart: their proportion stays. */
static void test_heavy_rows_only(void **state)
{
	const double heavy_s = ROW_S + flops_of_row[HYS_HEAVY] * FLOP_S;
	struct hys_lesson lesson = {.row_s = 1e-5, .flop_s = 1e-11};
	struct hys_seen seen[HYS_ACTS];

	(void)state;
	watch(seen, true);
	hys_lessons_learn(seen, HYS_LIGHT, 1e-4, &lesson);
	expect_near(lesson.row_s / lesson.flop_s, 1e6);
	expect_near(lesson.row_s + flops_of_row[HYS_HEAVY] * lesson.flop_s, heavy_s);
	expect_near(lesson.fixed_s, FIXED_S);
}

/* Rows that have less work cannot take longer than others: what is more is chance. */
static void test_light_rows_disturbed(void **state)
{
	const double heavy_s = ROW_S + flops_of_row[HYS_HEAVY] * FLOP_S;
	struct hys_lesson lesson = {.row_s = 1e-5, .flop_s = 1e-11};
	struct hys_seen seen[HYS_ACTS];

	(void)state;
	watch(seen, false);
	for (int32_t n = 0; n < seen[HYS_LIGHT].calls; n++)
		seen[HYS_LIGHT].busy_s[n] *= 100;
	hys_lessons_learn(seen, HYS_ACTS, 1e-4, &lesson);
	expect_near(lesson.row_s + flops_of_row[HYS_HEAVY] * lesson.flop_s, heavy_s);
}

/* A call takes no less than it was found to take alone. */
static void test_fixed_at_least(void **state)
{
	struct hys_lesson lesson = {.row_s = 1e-6, .flop_s = 3e-10};
	struct hys_seen seen[HYS_ACTS];

	(void)state;
	watch(seen, false);
	seen[HYS_HEAVY].tiny_s = 1e-9;
	hys_lessons_learn(seen, HYS_ACTS, 3e-3, &lesson);
	assert_true(lesson.fixed_s == 3e-3);
	assert_true(fabs(lesson.row_s - ROW_S) < 0.1 * ROW_S);
}

/* A device that took over what another left had no call of the fewest rows. */
static void test_no_tiny_call(void **state)
{
	struct hys_lesson lesson = {.row_s = 1e-6, .flop_s = 3e-10};
	struct hys_seen seen[HYS_ACTS];

	(void)state;
	watch(seen, false);
	for (int a = 0; a < HYS_ACTS; a++) {
		seen[a].tiny_s = (double)INFINITY;
		seen[a].tiny_weight = 0;
	}
	hys_lessons_learn(seen, HYS_ACTS, 1e-4, &lesson);
	assert_true(lesson.fixed_s == 1e-4);
	assert_true(lesson.row_s > ROW_S && lesson.row_s < 2 * ROW_S);
	seen[HYS_LIGHT].calls = 0; /* nor any of light rows: the proportion stays */
	lesson = (struct hys_lesson){.row_s = 1e-5, .flop_s = 1e-11};
	hys_lessons_learn(seen, HYS_ACTS, 1e-4, &lesson);
	expect_near(lesson.row_s / lesson.flop_s, 1e6);
}

static void test_what_is_noted(void **state)
{
	struct hys_seen seen = {0};

	(void)state;
	hys_seen_note(&seen, 1, 0, 0); /* had no rows */
	assert_int_equal(seen.calls, 0);
	for (int n = 0; n < HYS_ROUNDS_MOST + 3; n++)
		hys_seen_note(&seen, n + 1, 2, 6);
	assert_int_equal(seen.calls, HYS_ROUNDS_MOST);
	assert_true(seen.busy_s[HYS_ROUNDS_MOST - 1] == HYS_ROUNDS_MOST && seen.row_flops == 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_three_costs),	     cmocka_unit_test(test_heavy_rows_only),
		cmocka_unit_test(test_light_rows_disturbed), cmocka_unit_test(test_fixed_at_least),
		cmocka_unit_test(test_no_tiny_call),	     cmocka_unit_test(test_what_is_noted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
