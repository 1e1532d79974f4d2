/* What a plan finds that devices take: calls of a known time must come out as their rows and
 * their work. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "partition.h"
#include "virtual_clock.h"

#define LANES 2
#include "lanes_fixture.h"

#define UNITS 8
#define TILE 64
#define KEPT 2048
#define ROWS 16384
/* A GPU: a round of one tile of rows for each unit, and work. */
#define CALL_S 20e-6
#define ROUND_S 100e-6
#define ROW_S (ROUND_S / (UNITS * TILE))
#define FLOP_S 0.2e-12

/* Of one causal document, whose rows are the last; those that keep all they see take nothing. */
static hys_status select_rows(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error)
{
	const int64_t rows = call->size.rows, keys = call->size.keys;
	const int64_t choosing = hys_max64(0, hys_min64(rows, keys - KEPT));
	const double pairs = (double)choosing * ((double)keys - (double)(choosing - 1) / 2);
	const struct hys_scoring *scoring = &call->problem->scoring;
	const double rounds = ceil(ceil((double)choosing / TILE) / UNITS);
	const double seconds =
		CALL_S + rounds * ROUND_S + 2.0 * scoring->heads * scoring->dim * pairs * FLOP_S;

	(void)kernel;
	(void)stream;
	(void)instance;
	(void)error;
	virtual_clock_sleep(seconds);
	return HYS_OK;
}

static int set_up(void **state)
{
	const struct hys_problem problem = {
		.struct_size = sizeof(problem),
		.scoring = {.heads = 4, .dim = 64},
		.choosing = {.topk_max = KEPT},
	};
	struct fixture *f = make_fixture(select_rows);

	for (int i = 0; i < LANES; i++) {
		f->devices[i].base.info.compute_units = UNITS;
		f->devices[i].base.info.nominal_flops_per_s = 1 / FLOP_S;
		f->plan.rows_most[i] = ROWS;
	}
	plan_fixture(f, &problem, ROWS, HYS_OP_BIT(HYS_OP_SELECT));
	f->plan.plan.flags = HYS_PLAN_BUFFERS_ONLY;
	virtual_clock_main_thread();
	*state = f;
	return 0;
}

static void expect_near(double found, double right)
{
	if (!(fabs(found - right) <= 0.05 * right))
		fail_msg("found %g, expected %g within 5%%", found, right);
}

/* Rows that keep all would say that rows take nothing, fewer than fill the device that they take
 * twice as long. */
static void test_rows_and_work(void **state)
{
	struct fixture *f = *state;
	const struct hys_wish wish = {0};
	struct hys_picker picker = {.context = f->context, .plan = &f->plan.plan, .wish = &wish};
	const struct hys_pace *pace = hys_plan_pace(&f->plan.plan, HYS_OP_SELECT, 0);

	assert_int_equal(hys_plan_pace_devices(&picker, NULL), HYS_OK);
	expect_near(pace->row_s, ROW_S);
	expect_near(pace->flop_s, FLOP_S);
	expect_near(pace->call_s, CALL_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rows_and_work, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
