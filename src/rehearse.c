/* Devices of one machine share memory, power and the host's cores: together they
 * are slower than each was alone, and not all alike. So a plan lets them rehearse:
 * a call of some of the rows, shared as calls will be. What the devices take for
 * it corrects what they were found to take alone, and those that are no help leave
 * the operation to the fastest. */
#include <math.h>
#include <string.h>

#include "clock.h"
#include "partition.h"
#include "trial.h"

/* As many rows as take about so long, in tensors of so many bytes. Nobody minds
 * how calls are shared that are over much sooner. */
#define TIME_S 0.2
#define TIME_LEAST_S 0.002
#define BYTES_MOST 0x1p27 /* of either kind; more than caches hold together */
#define ROWS_LEAST INT64_C(256)
/* Calls of a share: the least counts, since what disturbs a device for a moment is not what it
 * is slower by in calls that are longer. */
#define CALLS 3
/* Shares that are tried; corrections below this are not worth another. */
#define LESSONS 4
#define CLOSE_ENOUGH 0.03
/* Of what a device takes, its rows are that much at least: less is chance. */
#define LEAST_OF_ROWS 0.2
/* Devices that may be the fastest one alone, by what they were found to take. */
#define MAY_BE_FASTER 2
/* Sharing has to be that much faster than one device alone. */
#define LEAST_GAIN 0.03

struct rehearsal {
	struct hys_plan *plan;
	struct hys_plan part; /* the plan, cut to one operation and few rows */
	struct hys_context *context;
	hys_op op;
	struct hys_trial_size size;
	struct hys_trial trial;
	struct hys_batch *batch;
	struct hys_exec *exec;
};

/* ---- what is rehearsed ---- */

static bool can_rehearse(hys_op op)
{
	return !hys_is_pooling(op) && op != HYS_OP_MERGE;
}

static int32_t count_working(const struct hys_plan *plan, hys_op op)
{
	int32_t working = 0;

	for (int32_t i = 0; i < plan->device_count; i++)
		working += !hys_plan_pace(plan, op, i)->idle;
	return working;
}

/* What one device takes for the last rows of as many keys, copies included. */
static double time_alone_s(const struct rehearsal *r, int32_t i, int64_t rows, int64_t keys)
{
	const struct hys_pace *pace = hys_plan_pace(r->plan, r->op, i);
	const struct hys_work work = hys_work_of(&r->plan->problem, NULL, rows, keys);
	double per_row, fixed;

	hys_cost_copies(r->plan, r->op, &per_row, &fixed);
	fixed *= (double)keys / (double)r->plan->keys_max;
	return pace->call_s + pace->row_s * (double)rows +
	       pace->flop_s * hys_cost_flops(r->op, &r->plan->problem, &work) +
	       pace->byte_s * (per_row * (double)rows + fixed);
}

static double time_together_s(const struct rehearsal *r, int64_t rows, int64_t keys)
{
	double rate = 0;

	for (int32_t i = 0; i < r->plan->device_count; i++)
		if (!hys_plan_pace(r->plan, r->op, i)->idle)
			rate += 1 / fmax(time_alone_s(r, i, rows, keys), 1e-9);
	return 1 / rate;
}

/* Rows at the end of the largest document, fewer and of a shorter one until they
 * fit. False when they are not worth it. */
static bool find_size(struct rehearsal *r)
{
	const struct hys_plan *plan = r->plan;
	const double keys_max = (double)plan->keys_max;
	double per_row, fixed;

	r->size = (struct hys_trial_size){.rows = hys_min64(plan->rows_max, plan->keys_max),
					  .keys = plan->keys_max};
	hys_cost_copies(plan, r->op, &per_row, &fixed);
	while (r->size.keys > ROWS_LEAST && fixed * (double)r->size.keys / keys_max > BYTES_MOST)
		r->size.keys /= 2;
	r->size.rows = hys_min64(r->size.rows, r->size.keys);
	while (r->size.rows > ROWS_LEAST &&
	       (time_together_s(r, r->size.rows, r->size.keys) > TIME_S ||
		per_row * (double)r->size.rows > BYTES_MOST))
		r->size.rows /= 2;
	r->size.topk = hys_min64(plan->problem.choosing.topk_max,
				 hys_max64(1, r->size.keys / plan->problem.scoring.pool));
	return time_together_s(r, r->size.rows, r->size.keys) >= TIME_LEAST_S;
}

static hys_status open_rehearsal(struct rehearsal *r, struct hys_error *error)
{
	const struct hys_batch_desc desc = {.struct_size = sizeof(desc),
					    .rows = r->size.rows,
					    .keys = r->size.keys,
					    .flags = HYS_BATCH_CAUSAL};
	hys_status status;

	r->part = *r->plan;
	atomic_init(&r->part.references, 1);
	r->part.operations = HYS_OP_BIT(r->op);
	r->part.rows_max = r->size.rows;
	r->part.keys_max = r->size.keys;
	r->part.window_keys_max = 0;
	r->part.split = HYS_SPLIT_STATIC;
	HYS_TRY(hys_trial_make(&r->trial, r->context, &r->plan->problem, r->op, &r->size, error));
	HYS_TRY(hys_batch_create(&r->part, &desc, &r->batch, error));
	HYS_TRY(hys_exec_create(&r->part, NULL, &r->exec, error));
	for (int32_t i = 0; i < hys_op_fields(r->op)->count; i++) {
		struct hys_tensor *tensor =
			hys_field_tensor(&hys_op_fields(r->op)->fields[i], &r->trial.call.args);

		if (r->trial.at[i] >= 0)
			tensor->host = r->trial.input + r->trial.at[i];
	}
cleanup:
	return status;
}

static void close_rehearsal(struct rehearsal *r)
{
	hys_exec_destroy(r->exec);
	hys_batch_destroy(r->batch);
	hys_trial_clear(&r->trial);
}

/* ---- calls ---- */

static hys_status submit(struct rehearsal *r, struct hys_error *error)
{
	struct hys_call *call = &r->trial.call;

	switch (r->op) {
	case HYS_OP_SELECT:
		call->args.select.method = HYS_METHOD_EXACT;
		return hys_select(r->exec, r->batch, &call->args.select, error);
	case HYS_OP_SELECT_COARSE:
		call->args.select.method = HYS_METHOD_COARSE;
		return hys_select(r->exec, r->batch, &call->args.select, error);
	case HYS_OP_SELECT_COARSE_TO_FINE:
		call->args.select.method = HYS_METHOD_COARSE_TO_FINE;
		return hys_select(r->exec, r->batch, &call->args.select, error);
	case HYS_OP_ATTENTION_FORWARD:
		return hys_attention_forward(r->exec, r->batch, &call->args.attention, error);
	case HYS_OP_ATTENTION_BACKWARD:
		return hys_attention_backward(r->exec, r->batch, &call->args.attention_grad, error);
	case HYS_OP_INDEXER_LOSS:
		return hys_indexer_loss(r->exec, r->batch, &call->args.loss, error);
	default:
		return hys_fidelity(r->exec, r->batch, &call->args.fidelity, error);
	}
}

/* Of as many of the rehearsal's rows. */
static hys_status call(struct rehearsal *r, int64_t rows, double *seconds, struct hys_error *error)
{
	const double begun = hys_now_s();
	hys_status status;

	r->trial.call.args.select.row_count = rows; /* all args begin like these */
	HYS_TRY(submit(r, error));
	HYS_TRY(hys_exec_finish(r->exec, error));
	*seconds = hys_now_s() - begun;
cleanup:
	return status;
}

/* One call on one device only. */
static hys_status call_alone(struct rehearsal *r, int32_t alone, int64_t rows, double *seconds,
			     struct hys_error *error)
{
	bool idle[HYS_LANES_MAX] = {false};
	hys_status status;

	for (int32_t i = 0; i < r->plan->device_count; i++) {
		idle[i] = hys_plan_pace(r->plan, r->op, i)->idle;
		hys_plan_pace(r->plan, r->op, i)->idle = i != alone;
	}
	status = call(r, rows, seconds, error);
	for (int32_t i = 0; i < r->plan->device_count; i++)
		hys_plan_pace(r->plan, r->op, i)->idle = idle[i];
	return status;
}

/* What a call takes on a device whatever its rows: keys are made ready, threads and caches
 * awake. It is what calls of the fewest rows take without the work of these. */
static hys_status find_fixed(struct rehearsal *r, int32_t i, struct hys_error *error)
{
	const int64_t rows = hys_min64(HYS_ROW_TILE, r->size.rows);
	const struct hys_tally *tally = &r->exec->lanes[i].tallies[r->op];
	struct hys_pace *pace = hys_plan_pace(r->plan, r->op, i);
	double least_s = (double)INFINITY, foretold_s, seconds;
	hys_status status = HYS_OK;

	for (int32_t n = 0; n < CALLS; n++) {
		const struct hys_tally before = *tally;

		HYS_TRY(call_alone(r, i, rows, &seconds, error));
		least_s = fmin(least_s, tally->busy_s - before.busy_s);
		foretold_s = tally->foretold_s - before.foretold_s;
	}
	pace->call_s = fmax(least_s - (foretold_s - pace->call_s), pace->call_s);
cleanup:
	return status;
}

/* What a lane has taken for its rows since, over what was foretold; 0 = it has none. */
static double factor_since(const struct rehearsal *r, int32_t i, const struct hys_tally *before)
{
	const struct hys_tally *after = &r->exec->lanes[i].tallies[r->op];
	const double fixed_s = hys_plan_pace(r->plan, r->op, i)->call_s;
	const double busy_s = after->busy_s - before->busy_s;
	const double foretold_s = after->foretold_s - before->foretold_s - fixed_s;

	return foretold_s > 0 ? fmax(busy_s - fixed_s, LEAST_OF_ROWS * busy_s) / foretold_s : 0;
}

/* What devices take for their rows of what was foretold, 0 of those that have none. */
static hys_status find_factors(struct rehearsal *r, double *factors, struct hys_error *error)
{
	const int32_t count = r->plan->device_count;
	double seconds;
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < count; i++)
		factors[i] = (double)INFINITY;
	for (int32_t n = 0; n < CALLS; n++) {
		struct hys_tally before[HYS_LANES_MAX] = {{0}};

		for (int32_t i = 0; i < count; i++)
			before[i] = r->exec->lanes[i].tallies[r->op];
		HYS_TRY(call(r, r->size.rows, &seconds, error));
		for (int32_t i = 0; i < count; i++)
			factors[i] = fmin(factors[i], factor_since(r, i, &before[i]));
	}
cleanup:
	return status;
}

/* ---- lessons ---- */

static void correct(struct hys_pace *pace, double factor)
{
	pace->row_s *= factor;
	pace->flop_s *= factor;
	pace->byte_s *= factor;
}

/* Devices that are the same take the same: the mean of what they took. */
static double mean_factor(const struct rehearsal *r, const double *factors, int32_t like)
{
	const uint64_t signature = hys_device_signature(r->plan->devices[like]);
	double sum = 0;
	int32_t count = 0;

	for (int32_t i = 0; i < r->plan->device_count; i++) {
		if (!(factors[i] > 0) || hys_device_signature(r->plan->devices[i]) != signature)
			continue;
		sum += log(factors[i]);
		count++;
	}
	return count > 0 ? exp(sum / count) : 1;
}

/* The first call warms up. Later lessons refine the mean of what was learnt: what is left
 * then is chance. */
static hys_status learn(struct rehearsal *r, struct hys_error *error)
{
	double factors[HYS_LANES_MAX] = {0}, seconds;
	hys_status status;

	HYS_TRY(call(r, r->size.rows, &seconds, error));
	for (int32_t i = 0; i < r->plan->device_count; i++)
		if (!hys_plan_pace(r->plan, r->op, i)->idle)
			HYS_TRY(find_fixed(r, i, error));
	for (int32_t lesson = 0; lesson < LESSONS; lesson++) {
		const double weight = 1 / fmax(1, lesson);
		double least = (double)INFINITY, most = 0;

		HYS_TRY(find_factors(r, factors, error));
		for (int32_t i = 0; i < r->plan->device_count; i++) {
			const double factor = mean_factor(r, factors, i);

			correct(hys_plan_pace(r->plan, r->op, i), pow(factor, weight));
			least = factors[i] > 0 ? fmin(least, factor) : least;
			most = factors[i] > 0 ? fmax(most, factor) : most;
		}
		if (most < least * (1 + CLOSE_ENOUGH))
			break;
	}
cleanup:
	return status;
}

/* The longest that a device was foretold to take since `before`. */
static double foretold_since_s(const struct rehearsal *r, const double *before)
{
	double most = 0;

	for (int32_t i = 0; i < r->plan->device_count; i++)
		most = fmax(most, r->exec->lanes[i].tallies[r->op].foretold_s - before[i]);
	return most;
}

/* The time of a call over what was foretold: of device `alone`, or of all when that is -1. */
static hys_status find_excess(struct rehearsal *r, int32_t alone, double *excess,
			      struct hys_error *error)
{
	double before[HYS_LANES_MAX], seconds;
	hys_status status;

	for (int32_t i = 0; i < r->plan->device_count; i++)
		before[i] = r->exec->lanes[i].tallies[r->op].foretold_s;
	HYS_TRY(alone < 0 ? call(r, r->size.rows, &seconds, error)
			  : call_alone(r, alone, r->size.rows, &seconds, error));
	*excess = seconds / fmax(foretold_since_s(r, before), 1e-9);
cleanup:
	return status;
}

/* What device i takes for the plan's largest call, as if calls of all devices took what was
 * foretold: alone it is faster than it was beside the others, by as much as it is in a
 * rehearsal. Turn by turn, so that what disturbs one disturbs the others; and not by the
 * mean, since a share given up by chance costs more than one that hardly helps. */
static hys_status foresee_alone(struct rehearsal *r, int32_t i, double *alone_s,
				struct hys_error *error)
{
	const struct hys_plan *plan = r->plan;
	double most = 0;
	hys_status status = HYS_OK;

	for (int32_t n = 0; n < CALLS; n++) {
		double alone, together;

		HYS_TRY(find_excess(r, i, &alone, error));
		HYS_TRY(find_excess(r, -1, &together, error));
		most = fmax(most, alone / together);
	}
	*alone_s = time_alone_s(r, i, plan->rows_max, plan->keys_max) * most;
cleanup:
	return status;
}

/* The device that does the plan's largest call nearly as fast alone, -1 = none. Rehearsals
 * themselves do not say: what calls take whatever their rows counts for much there. */
static hys_status find_winner(struct rehearsal *r, int32_t *winner, struct hys_error *error)
{
	const struct hys_plan *plan = r->plan;
	double least_s = (double)INFINITY;
	double won_s = time_together_s(r, plan->rows_max, plan->keys_max) * (1 + LEAST_GAIN);
	hys_status status = HYS_OK;

	*winner = -1;
	for (int32_t i = 0; i < plan->device_count; i++)
		least_s = fmin(least_s, time_alone_s(r, i, plan->rows_max, plan->keys_max));
	for (int32_t i = 0; i < plan->device_count; i++) {
		double alone_s;

		if (time_alone_s(r, i, plan->rows_max, plan->keys_max) > MAY_BE_FASTER * least_s ||
		    hys_plan_rows_most(plan, r->op, i) < r->size.rows)
			continue;
		HYS_TRY(foresee_alone(r, i, &alone_s, error));
		if (alone_s <= won_s) {
			won_s = alone_s;
			*winner = i;
		}
	}
cleanup:
	return status;
}

static void leave_to(struct rehearsal *r, int32_t fastest)
{
	for (int32_t i = 0; i < r->plan->device_count; i++)
		if (i != fastest)
			hys_plan_pace(r->plan, r->op, i)->call_s = HYS_NEVER_S;
}

static hys_status rehearse(struct rehearsal *r, struct hys_error *error)
{
	int32_t winner;
	hys_status status;

	HYS_TRY(open_rehearsal(r, error));
	HYS_TRY(learn(r, error));
	HYS_TRY(find_winner(r, &winner, error));
	if (winner >= 0)
		leave_to(r, winner);
cleanup:
	close_rehearsal(r);
	return status;
}

void hys_plan_rehearse(struct hys_plan *plan, hys_op op)
{
	struct rehearsal *r;
	struct hys_pace before[HYS_LANES_MAX];
	struct hys_error error = {HYS_OK, 0, ""};

	if (!can_rehearse(op) || count_working(plan, op) < 2)
		return;
	r = hys_alloc(&plan->context->host.allocator, sizeof(*r));
	if (!r)
		return;
	r->plan = plan;
	r->context = plan->context;
	r->op = op;
	for (int32_t i = 0; i < plan->device_count; i++)
		before[i] = *hys_plan_pace(plan, op, i);
	if (find_size(r) && rehearse(r, &error) != HYS_OK) {
		for (int32_t i = 0; i < plan->device_count; i++)
			*hys_plan_pace(plan, op, i) = before[i];
		hys_host_log(&plan->context->host, HYS_LOG_WARNING,
			     "%s could not be rehearsed, speeds are those of devices alone: %s",
			     hys_op_name(op), error.message);
	}
	hys_free(&plan->context->host.allocator, r);
}
