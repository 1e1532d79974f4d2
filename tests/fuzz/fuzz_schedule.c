/* Any bytes as a schedule's state: a status, and with what was accepted every decision is in bounds. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define STEPS 1000
#define LAYERS 2
#define GROUPS 2
#define TOPK 64
#define HEAD 24 /* magic, version, signature of the options */
#define STATE (HEAD + 8 * (LAYERS * (GROUPS * 4 + 2) + 1))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct hys_schedule *make_schedule(void)
{
	static const struct hys_schedule_piece pieces[] = {
		{.step = 0, .phase = HYS_PHASE_DENSE},
		{.step = 100, .phase = HYS_PHASE_COARSE, .topk = 64, .topk_end = 16},
		{.step = 400, .phase = HYS_PHASE_COARSE_TO_FINE, .density = 0.5},
		{.step = 700, .phase = HYS_PHASE_EXACT, .topk = 64, .topk_end = 8},
	};
	const struct hys_schedule_options options = {.struct_size = sizeof options,
						     .steps = STEPS,
						     .layers = LAYERS,
						     .groups = GROUPS,
						     .topk_max = TOPK,
						     .block = 1,
						     .coarse_block = 8,
						     .pieces = pieces,
						     .piece_count = 4,
						     .key_period = 7,
						     .recall_floor = 0.9,
						     .overlap_floor = 0.5};
	struct hys_schedule *schedule = NULL;

	return hys_schedule_create(&options, &schedule, NULL) == HYS_OK ? schedule : NULL;
}

static void check_decisions(const struct hys_schedule *schedule)
{
	struct hys_schedule_question question = {
		.struct_size = sizeof question, .keys = 500, .pass = HYS_PASS_BACKWARD};
	struct hys_decision decision;

	for (question.step = 0; question.step < STEPS; question.step += 33) {
		for (question.layer = 0; question.layer < LAYERS; question.layer++) {
			if (hys_schedule_decide(schedule, &question, &decision, NULL) != HYS_OK ||
			    decision.phase < 0 || decision.phase >= HYS_PHASE_COUNT ||
			    decision.source_layer < 0 || decision.source_layer > question.layer)
				abort();
			for (int32_t u = 0; u < GROUPS; u++)
				if (decision.topk[u] < (decision.phase != HYS_PHASE_DENSE) ||
				    decision.topk[u] > TOPK)
					abort();
		}
	}
}

/* What was learned goes on being learned. */
static void feed(struct hys_schedule *schedule, const uint8_t *data, size_t size)
{
	struct hys_schedule_feedback feedback = {.struct_size = sizeof feedback, .keys = 500};

	for (size_t i = 0; i + 3 < size && i < 32; i += 4) {
		feedback.step = data[i] * STEPS / 256;
		feedback.layer = data[i + 1] % LAYERS;
		feedback.group = data[i + 1] / LAYERS % (GROUPS + 1) - 1;
		feedback.recall = data[i + 2] / 255.0;
		feedback.overlap = data[i + 3] / 255.0;
		feedback.loss = data[i + 3];
		if (hys_schedule_feedback(schedule, &feedback, NULL) != HYS_OK)
			abort();
	}
	check_decisions(schedule);
}

/* The bytes behind the head of a right state, with the right checksum behind them. */
static void load_signed(struct hys_schedule *schedule, const uint8_t *data, size_t size)
{
	unsigned char state[STATE];
	uint64_t sum;

	if (hys_schedule_save(schedule, state, sizeof state) != sizeof state)
		abort();
	memcpy(state + HEAD, data, size < STATE - HEAD - 8 ? size : STATE - HEAD - 8);
	sum = hys_hash(hys_hash_start, state, STATE - 8);
	for (int i = 0; i < 8; i++)
		state[STATE - 8 + i] = (unsigned char)(sum >> 8 * i);
	if (hys_schedule_load(schedule, state, sizeof state, NULL) == HYS_OK) {
		check_decisions(schedule);
		feed(schedule, data, size);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hys_schedule *schedule = make_schedule();

	if (!schedule)
		abort();
	hys_schedule_load(schedule, data, size, NULL);
	check_decisions(schedule);
	load_signed(schedule, data, size);
	hys_schedule_destroy(schedule);
	return 0;
}
