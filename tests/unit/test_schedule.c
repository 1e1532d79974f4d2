/* Schedules: what is decided when, what feedback changes, and that a saved state
 * goes on as if nothing had happened. */
#include <math.h>
#include <stdlib.h>

#include "schedule_fixture.h"
#include "rng.h"

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
