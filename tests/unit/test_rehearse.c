/* Two processors rehearse: what their calls take must come out as what rows and work take, however
 * wrong a plan was before. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "partition.h"
#include "virtual_clock.h"

#define LANES 2
#include "lanes_fixture.h"

#define ROWS 16384
#define CALL_S 100e-6
#define ROW_S 4e-6
#define FLOP_S 1e-11
#define HEADS 4
#define DIM 64

static bool disturbed;

/* Rehearsals are of a document's last rows, far fewer than its keys: each sees about all. */
static hys_status sleep_rows(const struct hys_kernel *kernel, struct hys_stream *stream,
			     void *instance, const struct hys_call *call, struct hys_error *error)
{
	const double row_s = ROW_S + 2.0 * HEADS * DIM * (double)call->size.keys * FLOP_S;

	(void)kernel;
	(void)stream;
	(void)instance;
	(void)error;
	virtual_clock_work(CALL_S + (double)call->size.rows * row_s, disturbed);
	return HYS_OK;
}

static int set_up(void **state)
{
	const struct hys_problem problem = {
		.struct_size = sizeof(problem),
		.scoring = {.heads = HEADS, .dim = DIM},
		.choosing = {.topk_max = 16},
	};
	struct fixture *f = make_fixture(sleep_rows);

	for (int i = 0; i < LANES; i++) {
		f->devices[i].base.info.kind = HYS_DEVICE_CPU;
		f->plan.rows_most[i] = ROWS;
	}
	f->context->host.cpus_allowed = LANES; /* nobody looks while others compute */
	plan_fixture(f, &problem, ROWS, HYS_OP_BIT(HYS_OP_SELECT));
	disturbed = false;
	virtual_clock_main_thread();
	*state = f;
	return 0;
}

/* The second device is so many times slower. */
static hys_status rehearse_watched(struct fixture *f, int32_t slower, hys_progress *progress,
				   void *told, double *noise, struct hys_error *error)
{
	const struct hys_wish wish = {.progress = progress, .progress_user = told};
	struct hys_picker picker = {.context = f->context,
				    .plan = &f->plan.plan,
				    .wish = &wish,
				    .step = 5,
				    .steps = 7,
				    .doing = "rehearsing"};

	f->devices[1].base.slow = slower;
	for (int i = 0; i < LANES; i++)
		*hys_plan_pace(&f->plan.plan, HYS_OP_SELECT, i) = (struct hys_pace){
			.call_s = CALL_S, .row_s = 3 * ROW_S, .flop_s = FLOP_S / 2};
	return hys_plan_rehearse(&picker, HYS_OP_SELECT, noise, error);
}

static void rehearse(struct fixture *f, int32_t slower, double *noise)
{
	assert_int_equal(rehearse_watched(f, slower, NULL, NULL, noise, NULL), HYS_OK);
}

static void expect_near(const char *what, double found, double right)
{
	if (!(fabs(found - right) <= 0.05 * right))
		fail_msg("%s: found %g, expected %g within 5%%", what, found, right);
}

static void expect_paces(struct fixture *f, int32_t slower)
{
	for (int i = 0; i < LANES; i++) {
		const struct hys_pace *pace = hys_plan_pace(&f->plan.plan, HYS_OP_SELECT, i);
		const int32_t factor = i == 0 ? 1 : slower;

		assert_true(pace->call_s < HYS_NEVER_S); /* nobody was left out */
		expect_near("a row", pace->row_s, factor * ROW_S);
		expect_near("a flop", pace->flop_s, factor * FLOP_S);
	}
}

static void test_slower_device(void **state)
{
	static const int32_t slower[] = {1, 3};
	struct fixture *f = *state;

	for (size_t s = 0; s < sizeof(slower) / sizeof(slower[0]); s++) {
		double noise[LANES];

		rehearse(f, slower[s], noise);
		expect_paces(f, slower[s]);
		for (int i = 0; i < LANES; i++)
			assert_true(noise[i] >= 1 && noise[i] < 1.01);
	}
}

/* The least of short calls counts, and there are so many that some find the better speed. */
static void test_disturbed(void **state)
{
	struct fixture *f = *state;
	double noise[LANES];

	disturbed = true;
	rehearse(f, 3, noise);
	expect_paces(f, 3);
	for (int i = 0; i < LANES; i++)
		assert_true(noise[i] > 1.3 && noise[i] < VIRTUAL_CLOCK_SLOWER);
}

/* A device that would hardly help has no rows. */
static void test_hardly_helps(void **state)
{
	struct fixture *f = *state;
	double noise[LANES];

	rehearse(f, 100, noise);
	assert_true(hys_plan_pace(&f->plan.plan, HYS_OP_SELECT, 0)->call_s < HYS_NEVER_S);
	assert_true(hys_plan_pace(&f->plan.plan, HYS_OP_SELECT, 1)->call_s == HYS_NEVER_S);
}

struct told {
	int32_t count, stop_at;
};

static int count_told(void *user, int32_t step, int32_t steps, const char *what)
{
	struct told *told = user;

	assert_int_equal(step, 4); /* the one that was told last */
	assert_int_equal(steps, 7);
	assert_string_equal(what, "rehearsing");
	return ++told->count == told->stop_at;
}

static void expect_cancelled(struct fixture *f, int32_t stop_at)
{
	struct told told = {.stop_at = stop_at};
	struct hys_error error = {HYS_OK, 0, ""};
	double noise[LANES];

	assert_int_equal(rehearse_watched(f, 3, count_told, &told, noise, &error), HYS_CANCELLED);
	assert_int_equal(told.count, stop_at);
	assert_int_equal(error.status, HYS_CANCELLED);
	assert_string_equal(error.message,
			    "stopped by options.progress at step 4 of 7: rehearsing");
	assert_int_equal(fake_plan_references(&f->plan), 0);
}

/* In the middle of the rounds, and of the pairs that compare one device with both, which are the
 * last. */
static void test_cancelled(void **state)
{
	struct fixture *f = *state;
	struct told told = {.stop_at = -1};
	double noise[LANES];

	assert_int_equal(rehearse_watched(f, 3, count_told, &told, noise, NULL), HYS_OK);
	expect_cancelled(f, 9);
	expect_cancelled(f, told.count - 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_slower_device, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_disturbed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hardly_helps, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cancelled, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
