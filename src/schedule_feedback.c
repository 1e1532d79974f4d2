/* What feedback changes: how far K may go down, and which layers go finer. */
#include <math.h>

#include "schedule.h"

static hys_status check_feedback(const struct hys_schedule *schedule,
				 const struct hys_schedule_feedback *feedback,
				 struct hys_error *error)
{
	hys_status status;

	if (!schedule)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "schedule is NULL");
	HYS_TRY(hys_check_struct(feedback, sizeof(*feedback), "feedback", error));
	HYS_TRY(hys_check_range(error, "step", feedback->step, 0, schedule->options.steps - 1));
	HYS_TRY(hys_check_range(error, "keys", feedback->keys, 0, INT64_MAX));
	HYS_TRY(hys_check_range(error, "layer", feedback->layer, 0, schedule->options.layers - 1));
	HYS_TRY(hys_check_range(error, "group", feedback->group, -1, schedule->options.groups - 1));
	/* Rounding may put a share a little above 1. */
	if (!(feedback->recall <= 1.001))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"recall is %g, expected a share up to 1, or less than 0",
				feedback->recall);
	if (!(feedback->overlap <= 1.001))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"overlap is %g, expected a share up to 1, or less than 0",
				feedback->overlap);
	if (isnan(feedback->loss))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "loss is NaN, expected a number");
cleanup:
	return status;
}

/* A running mean; the first value stands for itself. */
static void average(double *mean, double value, double smoothing)
{
	if (value >= 0)
		*mean = *mean < 0 ? value : *mean + smoothing * (value - *mean);
}

/* K after feedback on the K that was used: at or above the floor it may follow
 * the options up to now, but by no more than `shrink`; below, it grows. */
static void move(const struct hys_schedule *schedule, const struct hys_schedule_feedback *feedback,
		 int32_t group)
{
	const struct hys_schedule_options *options = &schedule->options;
	const int32_t layer = feedback->layer;
	struct hys_learned *learned = &schedule->learned[(int64_t)layer * options->groups + group];
	const double used = (double)hys_schedule_entries(schedule, feedback->step, layer, group,
							 feedback->keys);
	const bool good = learned->recall >= options->recall_floor;
	const bool settled = options->loss_limit == 0 || learned->loss <= options->loss_limit;
	double wish;

	if (used == 0 || learned->recall < 0 || (good && !settled))
		return;
	if (good)
		learned->cleared = hys_max64(learned->cleared, feedback->step);
	wish = hys_schedule_wish(schedule, hys_min64(feedback->step, learned->cleared), layer,
				 group, feedback->keys);
	if (wish > 0)
		learned->boost = fmax(1, used * (good ? options->shrink : options->grow) / wish);
}

/* A layer whose choice is too far from the exact one goes a phase finer, for
 * the rest of the run. */
static void refine(const struct hys_schedule *schedule, struct hys_learned_layer *layer)
{
	const double floor = schedule->options.overlap_floor;

	if (floor == 0 || layer->overlap < 0)
		return;
	if (layer->overlap < floor && layer->raised < HYS_PHASE_EXACT - HYS_PHASE_COARSE) {
		layer->raised++;
		layer->overlap = -1; /* what was seen belongs to the coarser phase */
	}
}

hys_status hys_schedule_feedback(struct hys_schedule *schedule,
				 const struct hys_schedule_feedback *feedback,
				 struct hys_error *error)
{
	const struct hys_schedule_options *options;
	struct hys_learned_layer *layer;
	int32_t first, last;
	hys_status status = check_feedback(schedule, feedback, error);

	if (status != HYS_OK)
		return status;
	options = &schedule->options;
	layer = &schedule->learned_layers[feedback->layer];
	first = feedback->group < 0 ? 0 : feedback->group;
	last = feedback->group < 0 ? options->groups - 1 : feedback->group;
	for (int32_t u = first; u <= last; u++) {
		struct hys_learned *learned =
			&schedule->learned[(int64_t)feedback->layer * options->groups + u];

		average(&learned->recall, feedback->recall, options->smoothing);
		average(&learned->loss, feedback->loss, options->smoothing);
		if (options->recall_floor > 0 && feedback->recall >= 0)
			move(schedule, feedback, u);
	}
	average(&layer->overlap, feedback->overlap, options->smoothing);
	refine(schedule, layer);
	return HYS_OK;
}
