/* Schedules: what is refused, what a run costs, and the run as a table. */
#include <math.h>
#include <stdlib.h>

#include "schedule_fixture.h"

/* ---- bad input ---- */

static void refuse(const struct hys_schedule_options *options, const char *words)
{
	struct hys_schedule *schedule = (struct hys_schedule *)(uintptr_t)1;
	struct hys_error error = {HYS_OK, 0, ""};

	assert_int_equal(hys_schedule_create(options, &schedule, &error), HYS_INVALID_ARGUMENT);
	assert_ptr_equal(schedule, (struct hys_schedule *)(uintptr_t)1);
	if (!strstr(error.message, words))
		fail_msg("\"%s\" does not say \"%s\"", error.message, words);
}

#define REFUSE(change, words)                                  \
	do {                                                   \
		struct hys_schedule_options options = usual(); \
		change;                                        \
		refuse(&options, words);                       \
	} while (0)

static void test_bad_options(void **state)
{
	(void)state;
	REFUSE(options.steps = 0, "steps is 0");
	REFUSE(options.layers = 0, "layers is 0");
	REFUSE(options.groups = 257, "groups is 257");
	REFUSE(options.groups = -1, "groups is -1");
	REFUSE(options.topk_max = -5, "topk_max is -5");
	REFUSE(options.topk_max = 300, "pieces[1].topk is 512");
	REFUSE(options.piece_count = 0, "piece_count is 0");
	REFUSE(options.pieces = NULL, "pieces is NULL");
	REFUSE(options.override_count = 1, "overrides is NULL");
	REFUSE(options.steps = 600, "pieces[3].step is 600");
	REFUSE(options.recall_floor = NAN, "recall_floor is");
	REFUSE(options.recall_floor = 1.5, "recall_floor is 1.5");
	REFUSE(options.shrink = 1.5, "shrink is 1.5");
	REFUSE(options.grow = 0.5, "grow is 0.5");
	REFUSE(options.smoothing = -1, "smoothing is -1");
	REFUSE(options.key_period = -1, "key_period is -1");
	REFUSE(options.feedback_period = -1, "feedback_period is -1");
	REFUSE(options.share_every = -1, "share_every is -1");
}

#define REFUSE_PIECE(change, words)                                                  \
	do {                                                                         \
		struct hys_schedule_options options = usual();                       \
		struct hys_schedule_piece piece[2] = {{.step = 0}, usual_pieces[1]}; \
		change;                                                              \
		options.pieces = piece;                                              \
		options.piece_count = 2;                                             \
		refuse(&options, words);                                             \
	} while (0)

static void test_bad_pieces(void **state)
{
	const int32_t forward[] = {0, 2, 2, 3, 4, 5}, chain[] = {0, 0, 1, 3, 4, 5};

	(void)state;
	REFUSE_PIECE(piece[0].step = 1, "pieces[0].step is 1");
	REFUSE_PIECE(piece[1].step = 0, "pieces[1].step is 0");
	REFUSE_PIECE(piece[1].phase = (hys_phase)9, "pieces[1].phase is 9");
	REFUSE_PIECE(piece[1].topk = 0, "pieces[1].density is 0");
	REFUSE_PIECE(piece[1].density = 0.5, "pieces[1].density is 0.5");
	REFUSE_PIECE((piece[1].topk = 0, piece[1].density = 1.5), "density is 1.5");
	REFUSE_PIECE((piece[1].topk = 0, piece[1].density = NAN), "density is");
	REFUSE_PIECE(piece[1].topk_end = -1, "topk_end is -1");
	REFUSE_PIECE(piece[1].loss_row_stride = -1, "loss_row_stride is -1");
	REFUSE(options.source_layers = forward, "source_layers[1] is 2");
	REFUSE(options.source_layers = chain, "source_layers[2] is 1");
	REFUSE((options.source_layers = chain, options.share_every = 2), "share_every is 2");
}

static void test_bad_questions(void **state)
{
	const struct hys_schedule_options options = usual();
	struct hys_schedule *schedule = make(&options);
	struct hys_schedule_question question = {.struct_size = sizeof(question), .step = 1000};
	struct hys_schedule_feedback feedback = {.struct_size = sizeof(feedback), .recall = NAN};
	struct hys_decision decision;
	struct hys_error error = {HYS_OK, 0, ""};

	(void)state;
	assert_int_equal(hys_schedule_decide(schedule, &question, &decision, &error),
			 HYS_INVALID_ARGUMENT);
	assert_non_null(strstr(error.message, "step is 1000, expected 0 to 999"));
	question.step = 0;
	question.layer = 6;
	assert_int_equal(hys_schedule_decide(schedule, &question, &decision, &error),
			 HYS_INVALID_ARGUMENT);
	question.layer = 0;
	question.pass = HYS_PASS_COUNT;
	assert_int_equal(hys_schedule_decide(schedule, &question, &decision, &error),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_schedule_decide(NULL, &question, &decision, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_schedule_decide(schedule, NULL, &decision, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_schedule_feedback(schedule, &feedback, &error), HYS_INVALID_ARGUMENT);
	assert_non_null(strstr(error.message, "recall is"));
	feedback.recall = 2;
	assert_int_equal(hys_schedule_feedback(schedule, &feedback, &error), HYS_INVALID_ARGUMENT);
	feedback.recall = 0.5;
	feedback.group = 2;
	assert_int_equal(hys_schedule_feedback(schedule, &feedback, &error), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_schedule_load(schedule, NULL, 5, &error), HYS_INVALID_ARGUMENT);
	hys_schedule_destroy(schedule);
	hys_schedule_destroy(NULL);
}

/* ---- prices ---- */

static void make_plan(struct hys_context **context, struct hys_plan **plan)
{
	const struct hys_context_options on = {.struct_size = sizeof(on), .devices = "openmp"};
	struct hys_plan_options options = {
		.struct_size = sizeof(options), .rows_max = 2048, .keys_max = 2048};
	const struct hys_problem problem = {
		.struct_size = sizeof(problem),
		.scoring = {.heads = 4, .dim = 16},
		.choosing = {.topk_max = 1024, .coarse_block = 64, .coarse_keep = 8},
		.attending = {.heads = 4, .head_dim = 16},
	};

	options.flags = HYS_PLAN_NO_SELF_TEST;
	assert_int_equal(hys_context_create(&on, context, NULL), HYS_OK);
	assert_int_equal(hys_plan_create(*context, &problem, &options, plan, NULL), HYS_OK);
}

static struct hys_schedule_cost price(const struct hys_schedule *schedule,
				      const struct hys_plan *plan, hys_run run, int64_t first,
				      int64_t count)
{
	struct hys_schedule_cost cost;
	struct hys_error error = {HYS_OK, 0, ""};

	if (hys_schedule_price(schedule, plan, run, first, count, &cost, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return cost;
}

static void test_prices(void **state)
{
	struct hys_schedule_options options = usual();
	struct hys_context *context;
	struct hys_plan *plan;
	struct hys_schedule *schedule;
	struct hys_schedule_cost one, run, exact, dense;
	struct hys_cost op;

	(void)state;
	options.groups = 1;
	make_plan(&context, &plan);
	schedule = make(&options);
	/* One exact step: as the plan itself prices it, for each layer. */
	one = price(schedule, plan, HYS_RUN_SCHEDULED, 700, 1);
	assert_int_equal(hys_plan_cost(plan, HYS_OP_SELECT, NULL, &op, NULL), HYS_OK);
	assert_true(fabs(one.select_flops - 6 * op.flops) < 1e-9 * op.flops);
	assert_true(one.select_s > 0 && one.attend_s > 0 && one.loss_s > 0);
	/* A dense step chooses nothing; its rows are a quarter. */
	one = price(schedule, plan, HYS_RUN_SCHEDULED, 50, 1);
	assert_true(one.select_flops == 0);
	assert_true(one.loss_flops > 0);
	run = price(schedule, plan, HYS_RUN_SCHEDULED, 0, 0);
	exact = price(schedule, plan, HYS_RUN_EXACT, 0, 0);
	dense = price(schedule, plan, HYS_RUN_DENSE, 0, 0);
	assert_true(run.select_flops < exact.select_flops);
	assert_true(run.attend_flops < dense.attend_flops);
	assert_true(dense.select_flops == 0);
	assert_true(fabs(exact.attend_flops - run.attend_flops) < 1e-6 * run.attend_flops);
	hys_schedule_destroy(schedule);
	options.share_every = 3;
	options.key_period = 5;
	schedule = make(&options);
	one = price(schedule, plan, HYS_RUN_SCHEDULED, 701, 1);
	assert_true(fabs(one.select_flops - 2 * op.flops) < 1e-9 * op.flops);
	assert_int_equal(hys_schedule_price(schedule, plan, HYS_RUN_COUNT, 0, 0, &one, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_schedule_price(schedule, plan, HYS_RUN_EXACT, 0, 1001, &one, NULL),
			 HYS_INVALID_ARGUMENT);
	hys_schedule_destroy(schedule);
	hys_plan_destroy(plan);
	hys_context_destroy(context);
}

/* Pieces priced one by one add up to the run, key steps included. */
static void test_prices_add_up(void **state)
{
	struct hys_schedule_options options = usual();
	struct hys_context *context;
	struct hys_plan *plan;
	struct hys_schedule *schedule;
	struct hys_schedule_cost run, sum = {0};

	(void)state;
	options.key_period = 7;
	make_plan(&context, &plan);
	schedule = make(&options);
	run = price(schedule, plan, HYS_RUN_SCHEDULED, 0, 0);
	for (int64_t step = 0; step < 1000; step++)
		sum.select_flops += price(schedule, plan, HYS_RUN_SCHEDULED, step, 1).select_flops;
	assert_true(fabs(run.select_flops - sum.select_flops) < 0.01 * sum.select_flops);
	hys_schedule_destroy(schedule);
	hys_plan_destroy(plan);
	hys_context_destroy(context);
}

static void test_description(void **state)
{
	struct hys_schedule_options options = usual();
	struct hys_context *context;
	struct hys_plan *plan;
	struct hys_schedule *schedule;
	char text[4096], cut[16];
	size_t length;

	(void)state;
	options.key_period = 5;
	options.recall_floor = 0.9;
	make_plan(&context, &plan);
	schedule = make(&options);
	length = hys_schedule_describe(schedule, plan, text, sizeof(text));
	assert_in_range(length, 1, sizeof(text) - 1);
	assert_int_equal(strlen(text), length);
	assert_non_null(strstr(text, "200-599"));
	assert_non_null(strstr(text, "512 to 128"));
	assert_non_null(strstr(text, "250/1000 to 125/1000"));
	assert_non_null(strstr(text, "always exact"));
	assert_int_equal(hys_schedule_describe(schedule, plan, cut, sizeof(cut)), length);
	assert_int_equal(strlen(cut), sizeof(cut) - 1);
	length = hys_schedule_describe(schedule, NULL, text, sizeof(text));
	assert_in_range(length, 1, sizeof(text) - 1);
	assert_null(strstr(text, "FLOP"));
	hys_schedule_destroy(schedule);
	hys_plan_destroy(plan);
	hys_context_destroy(context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_options),   cmocka_unit_test(test_bad_pieces),
		cmocka_unit_test(test_bad_questions), cmocka_unit_test(test_prices),
		cmocka_unit_test(test_prices_add_up), cmocka_unit_test(test_description),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
