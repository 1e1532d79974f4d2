/* Two processors, one of them slower, rehearse: what their calls take must come out as what rows
 * and work take, however wrong a plan was before. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "partition.h"

#define LANES 2
#include "lanes_fixture.h"

#define ROWS 16384
#define CALL_S 100e-6
#define ROW_S 4e-6
#define FLOP_S 1e-11
#define HEADS 4
#define DIM 64

static const int32_t slower[LANES] = {1, 3};

/* Rehearsals are of a document's last rows, far fewer than its keys: each sees about all. */
static hys_status sleep_rows(const struct hys_kernel *kernel, struct hys_stream *stream,
			     void *instance, const struct hys_call *call, struct hys_error *error)
{
	const double row_s = ROW_S + 2.0 * HEADS * DIM * (double)call->size.keys * FLOP_S;
	const double seconds = CALL_S + (double)call->size.rows * row_s;
	struct timespec time = {.tv_sec = (time_t)seconds,
				.tv_nsec = (long)(fmod(seconds, 1) * 1e9)};

	(void)kernel;
	(void)stream;
	(void)instance;
	(void)error;
	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
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
		f->devices[i].base.slow = slower[i];
		f->plan.rows_most[i] = ROWS;
	}
	plan_fixture(f, &problem, ROWS, HYS_OP_BIT(HYS_OP_SELECT));
	*state = f;
	return 0;
}

static void expect_near(const char *what, double found, double right)
{
	if (!(fabs(found - right) <= 0.15 * right))
		fail_msg("%s: found %g, expected %g within 15%%", what, found, right);
}

static void test_slower_device(void **state)
{
	struct fixture *f = *state;
	struct hys_plan *plan = &f->plan.plan;
	double noise[LANES];

	for (int i = 0; i < LANES; i++)
		*hys_plan_pace(plan, HYS_OP_SELECT, i) = (struct hys_pace){
			.call_s = CALL_S, .row_s = 3 * ROW_S, .flop_s = FLOP_S / 2};
	hys_plan_rehearse(plan, HYS_OP_SELECT, noise);
	for (int i = 0; i < LANES; i++) {
		const struct hys_pace *pace = hys_plan_pace(plan, HYS_OP_SELECT, i);

		assert_true(pace->call_s < HYS_NEVER_S); /* nobody was left out */
		expect_near("a row", pace->row_s, slower[i] * ROW_S);
		expect_near("a flop", pace->flop_s, slower[i] * FLOP_S);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_slower_device, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
