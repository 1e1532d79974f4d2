/* Decisions: from options, step, layer and what was learned to what is done. */
#include <math.h>

#include "schedule.h"

const struct hys_schedule_piece *hys_schedule_piece_at(const struct hys_schedule *schedule,
						       int64_t step, int64_t *end)
{
	const struct hys_schedule_options *options = &schedule->options;
	int32_t low = 0, high = options->piece_count - 1;

	while (low < high) {
		const int32_t middle = (low + high + 1) / 2;

		if (options->pieces[middle].step <= step)
			low = middle;
		else
			high = middle - 1;
	}
	*end = low + 1 < options->piece_count ? options->pieces[low + 1].step : options->steps;
	return &options->pieces[low];
}

/* The straight line from `first` at step 0 of `steps` to `last` at its end. */
static double between(double first, double last, int64_t step, int64_t steps)
{
	return first + (last - first) * ((double)step / (double)steps);
}

static double piece_entries(const struct hys_schedule_piece *piece, int64_t step, int64_t end,
			    int64_t keys)
{
	const int64_t into = step - piece->step, steps = end - piece->step;
	const double first = piece->topk > 0 ? piece->topk : piece->density;
	double last = piece->topk > 0 ? piece->topk_end : piece->density_end;

	if (last == 0)
		last = first;
	return between(first, last, into, steps) * (piece->topk > 0 ? 1 : (double)keys);
}

static bool applies(const struct hys_schedule_override *over, int32_t layer, int32_t group)
{
	return layer >= over->layer_first &&
	       (over->layer_count == 0 || layer - over->layer_first < over->layer_count) &&
	       group >= over->group_first &&
	       (over->group_count == 0 || group - over->group_first < over->group_count);
}

/* Within the limits of the layer and group, rounded up. */
static int64_t limited(const struct hys_schedule *schedule, double entries, int32_t layer,
		       int32_t group)
{
	const struct hys_schedule_options *options = &schedule->options;
	double least = 1, most = options->topk_max;

	for (int32_t i = 0; i < options->override_count; i++) {
		const struct hys_schedule_override *over = &options->overrides[i];

		if (!applies(over, layer, group))
			continue;
		least = fmax(least, over->topk_least);
		if (over->topk_most > 0)
			most = fmin(most, over->topk_most);
	}
	/* A product and its factor must not round up past what they stand for. */
	return (int64_t)fmax(least, fmin(ceil(entries * (1 - 1e-12)), most));
}

static double factor_of(const struct hys_schedule *schedule, int32_t layer, int32_t group)
{
	const struct hys_schedule_options *options = &schedule->options;
	double factor = 1;

	for (int32_t i = 0; i < options->override_count; i++) {
		const struct hys_schedule_override *over = &options->overrides[i];

		if (over->factor > 0 && applies(over, layer, group))
			factor *= over->factor;
	}
	return factor;
}

double hys_schedule_wish(const struct hys_schedule *schedule, int64_t step, int32_t layer,
			 int32_t group, int64_t keys)
{
	int64_t end;
	const struct hys_schedule_piece *piece = hys_schedule_piece_at(schedule, step, &end);

	if (piece->phase == HYS_PHASE_DENSE)
		return 0;
	return piece_entries(piece, step, end, keys) * factor_of(schedule, layer, group);
}

int64_t hys_schedule_target(const struct hys_schedule *schedule, int64_t step, int32_t layer,
			    int32_t group, int64_t keys)
{
	const double wish = hys_schedule_wish(schedule, step, layer, group, keys);

	return wish == 0 ? 0 : limited(schedule, wish, layer, group);
}

/* What the options say, but not less than at the last step that feedback has
 * cleared: without feedback K stays where it is. */
int64_t hys_schedule_entries(const struct hys_schedule *schedule, int64_t step, int32_t layer,
			     int32_t group, int64_t keys)
{
	const struct hys_schedule_options *options = &schedule->options;
	const struct hys_learned *learned =
		&schedule->learned[(int64_t)layer * options->groups + group];
	const int64_t now = hys_schedule_target(schedule, step, layer, group, keys);
	double held;

	if (now == 0 || options->recall_floor == 0)
		return now;
	held = learned->boost *
	       hys_schedule_wish(schedule, hys_min64(step, learned->cleared), layer, group, keys);
	return hys_max64(now, limited(schedule, held, layer, group));
}

hys_phase hys_phase_finer(hys_phase phase, int32_t finer)
{
	if (phase == HYS_PHASE_DENSE)
		return phase;
	return (hys_phase)hys_min64((int64_t)phase + finer, HYS_PHASE_EXACT);
}

bool hys_schedule_key_step(const struct hys_schedule *schedule, int64_t step)
{
	return schedule->options.key_period > 0 && step % schedule->options.key_period == 0;
}

int32_t hys_schedule_source(const struct hys_schedule *schedule, int32_t layer)
{
	const struct hys_schedule_options *options = &schedule->options;

	if (options->source_layers)
		return options->source_layers[layer];
	return options->share_every > 1 ? layer - layer % options->share_every : layer;
}

int32_t hys_schedule_granularity(const struct hys_schedule *schedule, hys_phase phase)
{
	return phase == HYS_PHASE_COARSE ? schedule->options.coarse_block : schedule->options.block;
}

static hys_method method_of(hys_phase phase)
{
	static const hys_method methods[HYS_PHASE_COUNT] = {
		HYS_METHOD_DEFAULT, HYS_METHOD_COARSE, HYS_METHOD_COARSE_TO_FINE, HYS_METHOD_EXACT};

	return methods[phase];
}

static hys_source source_of(hys_phase phase, hys_pass pass, bool own)
{
	if (phase == HYS_PHASE_DENSE)
		return HYS_SOURCE_NONE;
	return own && pass == HYS_PASS_FORWARD ? HYS_SOURCE_SELECT : HYS_SOURCE_REUSE;
}

static hys_status check_question(const struct hys_schedule *schedule,
				 const struct hys_schedule_question *question,
				 const struct hys_decision *decision, struct hys_error *error)
{
	hys_status status;

	if (!schedule || !decision)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				schedule ? "decision" : "schedule");
	HYS_TRY(hys_check_struct(question, sizeof(*question), "question", error));
	HYS_TRY(hys_check_range(error, "step", question->step, 0, schedule->options.steps - 1));
	HYS_TRY(hys_check_range(error, "layer", question->layer, 0, schedule->options.layers - 1));
	HYS_TRY(hys_check_range(error, "keys", question->keys, 0, INT64_MAX));
	HYS_TRY(hys_check_range(error, "pass", (int64_t)question->pass, 0, HYS_PASS_COUNT - 1));
cleanup:
	return status;
}

hys_status hys_schedule_decide(const struct hys_schedule *schedule,
			       const struct hys_schedule_question *question,
			       struct hys_decision *decision, struct hys_error *error)
{
	struct hys_decision made = {0};
	const struct hys_schedule_piece *piece;
	const struct hys_schedule_options *options;
	int64_t end;
	hys_status status = check_question(schedule, question, decision, error);

	if (status != HYS_OK)
		return status;
	options = &schedule->options;
	piece = hys_schedule_piece_at(schedule, question->step, &end);
	/* A layer that shares does as its source does. */
	made.source_layer = hys_schedule_source(schedule, question->layer);
	made.source_data = question->data;
	made.key_step = hys_schedule_key_step(schedule, question->step);
	made.phase = hys_phase_finer(
		piece->phase, schedule->learned_layers[made.source_layer].raised + made.key_step);
	made.source = source_of(made.phase, question->pass, made.source_layer == question->layer);
	made.method = method_of(made.phase);
	made.granularity = hys_schedule_granularity(schedule, made.phase);
	for (int32_t u = 0; u < options->groups && made.phase != HYS_PHASE_DENSE; u++) {
		const int64_t entries = hys_schedule_entries(schedule, question->step,
							     made.source_layer, u, question->keys);

		made.topk[u] = (int32_t)((entries + made.granularity - 1) / made.granularity);
	}
	made.measure = made.phase != HYS_PHASE_DENSE && question->pass == HYS_PASS_FORWARD &&
		       (options->recall_floor > 0 || options->overlap_floor > 0) &&
		       (question->step - schedule->first_sparse) % options->feedback_period == 0;
	made.loss_flags = made.phase == HYS_PHASE_DENSE ? HYS_LOSS_DENSE : 0;
	made.row_stride = piece->loss_row_stride > 0 ? piece->loss_row_stride : 1;
	made.row_offset = (int32_t)(question->step % made.row_stride);
	*decision = made;
	return HYS_OK;
}
