/*
 * A schedule of a thousand steps, six layers and two groups, and questions to it.
 */
#ifndef HYS_TEST_SCHEDULE_FIXTURE_H
#define HYS_TEST_SCHEDULE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "hyscale/hyscale.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Dense, coarse, then finer with K falling from 512 to 128. */
static const struct hys_schedule_piece usual_pieces[] = {
	{.step = 0, .phase = HYS_PHASE_DENSE, .loss_row_stride = 4},
	{.step = 100, .phase = HYS_PHASE_COARSE, .topk = 512},
	{.step = 200, .phase = HYS_PHASE_COARSE_TO_FINE, .topk = 512, .topk_end = 128},
	{.step = 600, .phase = HYS_PHASE_EXACT, .density = 0.25, .density_end = 0.125},
};

static inline struct hys_schedule_options usual(void)
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

static inline struct hys_schedule *make(const struct hys_schedule_options *options)
{
	struct hys_schedule *schedule = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	if (hys_schedule_create(options, &schedule, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return schedule;
}

static inline struct hys_decision ask(const struct hys_schedule *schedule, int64_t step,
				      int32_t layer, hys_pass pass)
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

static inline int32_t topk_at(const struct hys_schedule *schedule, int64_t step, int32_t layer,
			      int32_t group)
{
	return ask(schedule, step, layer, HYS_PASS_FORWARD).topk[group];
}

#endif
