/* Schedules: what is decided when, what feedback changes, that a saved state
 * goes on as if nothing had happened, and what a run costs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hyscale/hyscale.h"
#include "rng.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Dense, coarse, then finer with K falling from 512 to 128. */
static const struct hys_schedule_piece usual_pieces[] = {
	{.step = 0, .phase = HYS_PHASE_DENSE, .loss_row_stride = 4},
	{.step = 100, .phase = HYS_PHASE_COARSE, .topk = 512},
	{.step = 200, .phase = HYS_PHASE_COARSE_TO_FINE, .topk = 512, .topk_end = 128},
	{.step = 600, .phase = HYS_PHASE_EXACT, .density = 0.25, .density_end = 0.125},
};

static struct hys_schedule_options usual(void)
{
	struct hys_schedule_options options = {
		.struct_size = sizeof(options),
		.steps = 1000,
		.layers = 6,
		.groups = 2,
		.topk_max = 1024,
		.coarse_block = 64,
		.pieces = usual_pieces,
		.piece_count = COUNT(usual_pieces),
	};

	return options;
}

static struct hys_schedule *make(const struct hys_schedule_options *options)
{
	struct hys_schedule *schedule = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	if (hys_schedule_create(options, &schedule, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return schedule;
}

static struct hys_decision ask(const struct hys_schedule *schedule, int64_t step, int32_t layer,
			       hys_pass pass)
{
	const struct hys_schedule_question question = {.struct_size = sizeof(question),
						       .step = step,
						       .data = 7,
						       .keys = 4096,
						       .layer = layer,
						       .pass = pass};
	struct hys_decision decision;
	struct hys_error error = {HYS_OK, 0, ""};

	memset(&decision, 0x5a, sizeof(decision));
	if (hys_schedule_decide(schedule, &question, &decision, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return decision;
}

static int32_t topk_at(const struct hys_schedule *schedule, int64_t step, int32_t layer,
		       int32_t group)
{
	return ask(schedule, step, layer, HYS_PASS_FORWARD).topk[group];
}

static void tell(struct hys_schedule *schedule, int64_t step, int32_t layer, double recall)
{
	const struct hys_schedule_feedback feedback = {.struct_size = sizeof(feedback),
						       .step = step,
						       .keys = 4096,
						       .layer = layer,
						       .group = -1,
						       .recall = recall,
						       .overlap = -1,
						       .loss = -1};

	assert_int_equal(hys_schedule_feedback(schedule, &feedback, NULL), HYS_OK);
}

static void test_pieces(void **state)
{
	const struct hys_schedule_options options = usual();
	struct hys_schedule *schedule = make(&options);
	struct hys_decision at = ask(schedule, 99, 3, HYS_PASS_FORWARD);

	(void)state;
	assert_int_equal(at.phase, HYS_PHASE_DENSE);
	assert_int_equal(at.source, HYS_SOURCE_NONE);
	assert_int_equal(at.loss_flags, HYS_LOSS_DENSE);
	assert_int_equal(at.row_stride, 4);
	assert_int_equal(at.row_offset, 3);
	assert_int_equal(at.topk[0], 0);
	at = ask(schedule, 100, 3, HYS_PASS_FORWARD);
	assert_int_equal(at.phase, HYS_PHASE_COARSE);
	assert_int_equal(at.source, HYS_SOURCE_SELECT);
	assert_int_equal(at.method, HYS_METHOD_COARSE);
	assert_int_equal(at.granularity, 64);
	assert_int_equal(at.topk[0], 8);
	assert_int_equal(at.topk[1], 8);
	assert_int_equal(at.topk[2], 0);
	assert_int_equal(at.loss_flags, 0);
	assert_int_equal(at.row_stride, 1);
	at = ask(schedule, 200, 0, HYS_PASS_FORWARD);
	assert_int_equal(at.method, HYS_METHOD_COARSE_TO_FINE);
	assert_int_equal(at.granularity, 1);
	assert_int_equal(at.topk[1], 512);
	assert_int_equal(topk_at(schedule, 400, 0, 0), 320);
	assert_int_equal(topk_at(schedule, 599, 0, 0), 129);
	assert_int_equal(topk_at(schedule, 600, 0, 0), 1024);
	assert_int_equal(topk_at(schedule, 800, 0, 0), 768);
	hys_schedule_destroy(schedule);
}

static void test_passes_reuse_their_own_data(void **state)
{
	const struct hys_schedule_options options = usual();
	struct hys_schedule *schedule = make(&options);
	const hys_pass again[] = {HYS_PASS_RECOMPUTE, HYS_PASS_BACKWARD};

	(void)state;
	for (size_t i = 0; i < COUNT(again); i++) {
		const struct hys_decision at = ask(schedule, 300, 5, again[i]);

		assert_int_equal(at.source, HYS_SOURCE_REUSE);
		assert_int_equal(at.source_layer, 5);
		assert_int_equal(at.source_data, 7);
		assert_int_equal(ask(schedule, 50, 5, again[i]).source, HYS_SOURCE_NONE);
	}
	hys_schedule_destroy(schedule);
}

static void test_layers_share(void **state)
{
	const int32_t sources[] = {0, 0, 2, 2, 0, 5};
	struct hys_schedule_options options = usual();
	struct hys_schedule *schedule;

	(void)state;
	options.share_every = 4;
	schedule = make(&options);
	for (int32_t l = 0; l < 6; l++) {
		const struct hys_decision at = ask(schedule, 150, l, HYS_PASS_FORWARD);

		assert_int_equal(at.source_layer, l / 4 * 4);
		assert_int_equal(at.source, l % 4 == 0 ? HYS_SOURCE_SELECT : HYS_SOURCE_REUSE);
	}
	hys_schedule_destroy(schedule);
	options.share_every = 0;
	options.source_layers = sources;
	schedule = make(&options);
	for (int32_t l = 0; l < 6; l++)
		assert_int_equal(ask(schedule, 150, l, HYS_PASS_FORWARD).source_layer, sources[l]);
	hys_schedule_destroy(schedule);
}

static void test_key_steps_refine(void **state)
{
	struct hys_schedule_options options = usual();
	struct hys_schedule *schedule;

	(void)state;
	options.key_period = 10;
	schedule = make(&options);
	assert_int_equal(ask(schedule, 110, 0, HYS_PASS_FORWARD).phase, HYS_PHASE_COARSE_TO_FINE);
	assert_int_equal(ask(schedule, 110, 0, HYS_PASS_FORWARD).key_step, 1);
	assert_int_equal(ask(schedule, 110, 0, HYS_PASS_FORWARD).topk[0], 512);
	assert_int_equal(ask(schedule, 111, 0, HYS_PASS_FORWARD).phase, HYS_PHASE_COARSE);
	assert_int_equal(ask(schedule, 210, 0, HYS_PASS_FORWARD).phase, HYS_PHASE_EXACT);
	assert_int_equal(ask(schedule, 610, 0, HYS_PASS_FORWARD).phase, HYS_PHASE_EXACT);
	assert_int_equal(ask(schedule, 10, 0, HYS_PASS_FORWARD).phase, HYS_PHASE_DENSE);
	hys_schedule_destroy(schedule);
}

static void test_overrides(void **state)
{
	const struct hys_schedule_override overrides[] = {
		{.layer_first = 1, .layer_count = 2, .factor = 0.5},
		{.layer_first = 2, .group_first = 1, .factor = 0.5, .topk_least = 100},
		{.layer_first = 4, .layer_count = 1, .topk_most = 70},
	};
	struct hys_schedule_options options = usual();
	struct hys_schedule *schedule;

	(void)state;
	options.overrides = overrides;
	options.override_count = COUNT(overrides);
	schedule = make(&options);
	assert_int_equal(topk_at(schedule, 200, 0, 0), 512);
	assert_int_equal(topk_at(schedule, 200, 1, 1), 256);
	assert_int_equal(topk_at(schedule, 200, 2, 0), 256);
	assert_int_equal(topk_at(schedule, 200, 2, 1), 128);
	assert_int_equal(topk_at(schedule, 599, 2, 1), 100);
	assert_int_equal(topk_at(schedule, 200, 4, 0), 70);
	hys_schedule_destroy(schedule);
}

/* K goes down only where recall has held, by no more than `shrink` at a time,
 * and comes back up where it has not. */
static void test_recall_steers(void **state)
{
	struct hys_schedule_options options = usual();
	struct hys_schedule *schedule;

	(void)state;
	options.recall_floor = 0.9;
	options.shrink = 0.8;
	options.grow = 1.5;
	options.smoothing = 1;
	schedule = make(&options);
	assert_int_equal(topk_at(schedule, 590, 0, 0), 512);
	tell(schedule, 590, 0, 0.95);
	assert_int_equal(topk_at(schedule, 590, 0, 0), 410); /* 512 * 0.8, up */
	assert_int_equal(topk_at(schedule, 590, 1, 0), 512);
	tell(schedule, 591, 0, 0.85);
	assert_int_equal(topk_at(schedule, 591, 0, 0), 615);
	assert_int_equal(topk_at(schedule, 599, 0, 0), 615);
	tell(schedule, 592, 0, 0.5);
	tell(schedule, 593, 0, 0.5);
	tell(schedule, 594, 0, 0.5);
	assert_int_equal(topk_at(schedule, 595, 0, 0), 1024); /* topk_max */
	for (int64_t step = 595; step < 600; step++)
		tell(schedule, step, 0, 0.99);
	assert_in_range(topk_at(schedule, 599, 0, 0), 130, 345); /* 1024 * 0.8^5, rounded up */
	for (int64_t i = 0; i < 20; i++)
		tell(schedule, 599, 0, 0.99);
	assert_int_equal(topk_at(schedule, 599, 0, 0), 129); /* no further than the options */
	hys_schedule_destroy(schedule);
}

static void test_loss_holds_k(void **state)
{
	struct hys_schedule_options options = usual();
	struct hys_schedule_feedback feedback = {.struct_size = sizeof(feedback),
						 .step = 400,
						 .keys = 4096,
						 .layer = 2,
						 .group = 1,
						 .recall = 1,
						 .overlap = -1,
						 .loss = 3};
	struct hys_schedule *schedule;

	(void)state;
	options.recall_floor = 0.9;
	options.loss_limit = 2;
	options.smoothing = 1;
	schedule = make(&options);
	assert_int_equal(hys_schedule_feedback(schedule, &feedback, NULL), HYS_OK);
	assert_int_equal(topk_at(schedule, 400, 2, 1), 512);
	feedback.loss = 1;
	assert_int_equal(hys_schedule_feedback(schedule, &feedback, NULL), HYS_OK);
	assert_int_equal(topk_at(schedule, 400, 2, 1), 410);
	assert_int_equal(topk_at(schedule, 400, 2, 0), 512);
	hys_schedule_destroy(schedule);
}

static void test_overlap_refines(void **state)
{
	struct hys_schedule_options options = usual();
	struct hys_schedule_feedback feedback = {.struct_size = sizeof(feedback),
						 .step = 150,
						 .layer = 2,
						 .group = -1,
						 .recall = -1,
						 .overlap = 0.9,
						 .loss = -1};
	struct hys_schedule *schedule;

	(void)state;
	options.overlap_floor = 0.8;
	schedule = make(&options);
	assert_int_equal(hys_schedule_feedback(schedule, &feedback, NULL), HYS_OK);
	assert_int_equal(ask(schedule, 151, 2, HYS_PASS_FORWARD).phase, HYS_PHASE_COARSE);
	feedback.overlap = 0.2;
	assert_int_equal(hys_schedule_feedback(schedule, &feedback, NULL), HYS_OK);
	assert_int_equal(ask(schedule, 151, 2, HYS_PASS_FORWARD).phase, HYS_PHASE_COARSE_TO_FINE);
	assert_int_equal(ask(schedule, 151, 1, HYS_PASS_FORWARD).phase, HYS_PHASE_COARSE);
	hys_schedule_destroy(schedule);
}

static void test_when_to_measure(void **state)
{
	struct hys_schedule_options options = usual();
	struct hys_schedule *schedule;

	(void)state;
	options.recall_floor = 0.9;
	options.feedback_period = 30;
	schedule = make(&options);
	assert_int_equal(ask(schedule, 90, 0, HYS_PASS_FORWARD).measure, 0);
	assert_int_equal(ask(schedule, 100, 0, HYS_PASS_FORWARD).measure, 1);
	assert_int_equal(ask(schedule, 130, 0, HYS_PASS_FORWARD).measure, 1);
	assert_int_equal(ask(schedule, 131, 0, HYS_PASS_FORWARD).measure, 0);
	assert_int_equal(ask(schedule, 130, 0, HYS_PASS_BACKWARD).measure, 0);
	hys_schedule_destroy(schedule);
}

/* ---- state ---- */

static struct hys_schedule_options learning(void)
{
	struct hys_schedule_options options = usual();

	options.recall_floor = 0.9;
	options.overlap_floor = 0.5;
	options.feedback_period = 10;
	return options;
}

/* Random feedback for steps [first, end), the same for the same seed. */
static void live(struct hys_schedule *schedule, struct rng *rng, int64_t first, int64_t end)
{
	for (int64_t step = first; step < end; step += 10)
		for (int32_t l = 0; l < 6; l++) {
			const struct hys_schedule_feedback feedback = {
				.struct_size = sizeof(feedback),
				.step = step,
				.keys = 4096,
				.layer = l,
				.group = (int32_t)rng_range(rng, -1, 2),
				.recall = 0.8 + 0.2 * rng_uniform(rng),
				.overlap = 0.45 + 0.5 * rng_uniform(rng),
				.loss = rng_uniform(rng)};

			assert_int_equal(hys_schedule_feedback(schedule, &feedback, NULL), HYS_OK);
		}
}

static void assert_same_decisions(const struct hys_schedule *a, const struct hys_schedule *b)
{
	for (int64_t step = 0; step < 1000; step += 7)
		for (int32_t l = 0; l < 6; l++) {
			const struct hys_decision x = ask(a, step, l, HYS_PASS_FORWARD);
			const struct hys_decision y = ask(b, step, l, HYS_PASS_FORWARD);

			assert_int_equal(x.phase, y.phase);
			assert_memory_equal(x.topk, y.topk, sizeof(x.topk));
		}
}

static void test_saved_state_goes_on(void **state)
{
	const struct hys_schedule_options options = learning();
	struct hys_schedule *whole = make(&options), *resumed = make(&options);
	unsigned char bytes[4096];
	struct rng rng, again;
	size_t length;

	(void)state;
	rng_seed(&rng, 11);
	live(whole, &rng, 100, 400);
	length = hys_schedule_save(whole, NULL, 0);
	assert_in_range(length, 1, sizeof(bytes));
	assert_int_equal(hys_schedule_save(whole, bytes, length - 1), length);
	assert_int_equal(hys_schedule_save(whole, bytes, sizeof(bytes)), length);
	assert_int_equal(hys_schedule_load(resumed, bytes, length, NULL), HYS_OK);
	assert_same_decisions(whole, resumed);
	again = rng;
	live(whole, &rng, 400, 900);
	live(resumed, &again, 400, 900);
	assert_same_decisions(whole, resumed);
	hys_schedule_destroy(whole);
	hys_schedule_destroy(resumed);
}

/* Every byte matters, and what is refused changes nothing. */
static void test_damaged_state(void **state)
{
	const struct hys_schedule_options options = learning();
	struct hys_schedule_options other = options;
	struct hys_schedule *whole = make(&options), *fresh = make(&options),
			    *untouched = make(&options);
	struct hys_schedule *foreign;
	unsigned char bytes[4096];
	struct rng rng;
	struct hys_error error = {HYS_OK, 0, ""};
	size_t length;

	(void)state;
	rng_seed(&rng, 12);
	live(whole, &rng, 100, 400);
	length = hys_schedule_save(whole, bytes, sizeof(bytes));
	for (size_t cut = 0; cut < length; cut++)
		assert_int_equal(hys_schedule_load(fresh, bytes, cut, NULL), HYS_FORMAT);
	for (size_t i = 0; i < length; i++) {
		bytes[i] ^= 1;
		assert_int_not_equal(hys_schedule_load(fresh, bytes, length, NULL), HYS_OK);
		bytes[i] ^= 1;
	}
	assert_same_decisions(fresh, untouched);
	bytes[8]++;
	assert_int_equal(hys_schedule_load(fresh, bytes, length, &error), HYS_VERSION_MISMATCH);
	assert_non_null(strstr(error.message, "format 2"));
	bytes[8]--;
	other.key_period = 50;
	foreign = make(&other);
	assert_int_equal(hys_schedule_load(foreign, bytes, length, &error), HYS_VERSION_MISMATCH);
	assert_non_null(strstr(error.message, "other options"));
	assert_int_equal(hys_schedule_load(fresh, bytes, length, NULL), HYS_OK);
	hys_schedule_destroy(whole);
	hys_schedule_destroy(fresh);
	hys_schedule_destroy(untouched);
	hys_schedule_destroy(foreign);
}

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
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_passes_reuse_their_own_data),
		cmocka_unit_test(test_layers_share),
		cmocka_unit_test(test_key_steps_refine),
		cmocka_unit_test(test_overrides),
		cmocka_unit_test(test_recall_steers),
		cmocka_unit_test(test_loss_holds_k),
		cmocka_unit_test(test_overlap_refines),
		cmocka_unit_test(test_when_to_measure),
		cmocka_unit_test(test_saved_state_goes_on),
		cmocka_unit_test(test_damaged_state),
		cmocka_unit_test(test_bad_options),
		cmocka_unit_test(test_bad_pieces),
		cmocka_unit_test(test_bad_questions),
		cmocka_unit_test(test_prices),
		cmocka_unit_test(test_prices_add_up),
		cmocka_unit_test(test_description),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
