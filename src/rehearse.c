/* Devices of one machine share memory, power and the host's cores: together they
 * are slower than each was alone, and not all alike. So a plan lets them rehearse:
 * calls of some of the rows, shared as calls will be. What the devices take for
 * them corrects what they were found to take alone, and those that are no help leave
 * the operation to the fastest. */
#include <math.h>
#include <string.h>

#include "act.h"
#include "clock.h"
#include "lessons.h"
#include "partition.h"

/* Nobody minds how calls are shared that are over much sooner. */
#define TIME_LEAST_S 0.002
/* Tensors of a call, of either kind: more than caches hold together. */
#define BYTES_MOST 0x1p27
#define KEYS_LEAST INT64_C(256)
/* So many rows that each device has some tiles, since what rows take and what the call takes
 * whatever they are could not be told apart else; of fewer keys if need be. */
#define ROWS_LEAST INT64_C(256)
#define ROWS_LEAST_MOST INT64_C(1024)
#define TILES_LEAST 4
#define KEYS_TYPICAL INT64_C(4096)
/* Light rows use so many indices, but so many times fewer than heavy ones at least: some are
 * cheaper than as many of a heavy row's, whose keys are further apart. */
#define LIGHT_SLOTS INT64_C(8)
#define LIGHTER 8
/* Fewest rounds of calls. */
#define ROUNDS_LEAST 6
/* Nothing disturbs devices whose mean is that much more than their least. */
#define CALM 1.05
/* Calls may be so much longer than they should. */
#define LONGER 1.5
/* What the first of them tell counts for the shares of the others only. */
#define ROUNDS_TO_TRY 2
/* Copies take that much more or less than they did alone, at most. */
#define COPIES_DIFFER 16
/* Devices that may be the fastest one alone, by what they were found to take; so many pairs of
 * calls at least say whether one is. */
#define MAY_BE_FASTER 2
#define PAIRS 7
/* Sharing has to be that much faster than one device alone. */
#define LEAST_GAIN 0.03

/* Devices that others use, too, are slower for a while, one here, one there. So the least that
 * each took counts, of calls that take about so long, for so many seconds, calm or disturbed, of
 * all the plan's operations together. Cores of a virtual machine, whose other halves are somebody
 * else's, change between two speeds within hundredths of a second, and keep one for seconds: short
 * calls find the better one where long ones do not. Calls of devices that copy must hide how a copy
 * begins. */
static const struct pattern {
	double call_s, calm_s, disturbed_s;
} processors = {0.015, 4, 12}, copying = {0.1, 0, 8};

struct rehearsal {
	const struct hys_picker *picker;
	struct hys_plan *plan;
	hys_op op;
	struct pattern pattern;
	struct hys_act acts[HYS_ACTS];
	int32_t act_count;
	struct hys_seen seen[HYS_LANES_MAX][HYS_ACTS];
	struct hys_pace before[HYS_LANES_MAX]; /* what devices take alone */
	double *noise;			       /* of lessons, by device */
};

/* ---- what is rehearsed ---- */

static bool can_rehearse(hys_op op)
{
	return !hys_is_pooling(op) && op != HYS_OP_MERGE;
}

static struct pattern pattern_of(const struct hys_plan *plan)
{
	struct pattern pattern = processors;
	int32_t operations = 0;

	for (int32_t i = 0; i < plan->device_count; i++)
		if (plan->devices[i]->info.kind != HYS_DEVICE_CPU)
			pattern = copying;
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		operations += (plan->operations & HYS_OP_BIT(op)) && can_rehearse((hys_op)op);
	pattern.calm_s /= operations;
	pattern.disturbed_s /= operations;
	return pattern;
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

/* As long as no device is too slow for that. */
static int64_t rows_least(const struct rehearsal *r, int64_t keys)
{
	const double together_s = time_together_s(r, ROWS_LEAST, keys);
	double slowest_s = together_s;

	for (int32_t i = 0; i < r->plan->device_count; i++)
		if (!hys_plan_pace(r->plan, r->op, i)->idle)
			slowest_s = fmax(slowest_s, time_alone_s(r, i, ROWS_LEAST, keys));
	return hys_max64(ROWS_LEAST,
			 (int64_t)fmin(HYS_ROW_TILE * TILES_LEAST * slowest_s / together_s,
				       ROWS_LEAST_MOST));
}

/* Of so many rows that see all of so many keys, fewer until they fit. False when they are not
 * worth it. */
static bool find_size(const struct rehearsal *r, int64_t rows, int64_t keys,
		      struct hys_trial_size *size)
{
	const struct hys_plan *plan = r->plan;
	const int64_t least = rows_least(r, keys);
	double per_row, fixed;

	hys_cost_copies(plan, r->op, &per_row, &fixed);
	while ((rows >= 2 * least && time_together_s(r, rows, keys) > r->pattern.call_s) ||
	       (rows > ROWS_LEAST && per_row * (double)rows > BYTES_MOST))
		rows /= 2;
	*size = (struct hys_trial_size){
		.rows = rows,
		.keys = keys,
		.topk = hys_min64(plan->problem.choosing.topk_max,
				  hys_max64(1, keys / plan->problem.scoring.pool)),
	};
	return time_together_s(r, rows, keys) >= TIME_LEAST_S;
}

/* Rows have the more work the more indices they use, whatever they see. */
static bool uses_indices(const struct rehearsal *r)
{
	const bool dense = r->plan->problem.attending.flags & HYS_ATTENDING_DENSE;
	const bool attends =
		r->op == HYS_OP_ATTENTION_FORWARD || r->op == HYS_OP_ATTENTION_BACKWARD;

	return (attends && !dense) || r->op == HYS_OP_INDEXER_LOSS;
}

/* Some kernels of exact select neither score rows that see no more than they keep nor choose
 * from them. */
static int64_t few_keys(const struct rehearsal *r)
{
	const struct hys_problem *problem = &r->plan->problem;
	const int64_t pool = problem->scoring.pool;
	const int64_t kept = problem->choosing.topk_max;

	if (uses_indices(r))
		return hys_max64(1, hys_min64(LIGHT_SLOTS, kept / LIGHTER)) *
		       hys_index_step(problem) * pool;
	return hys_max64(64, hys_is_select(r->op) ? 2 * kept : 0) * pool;
}

/* Rows at the end of the largest document, of a shorter one until it fits; and as long a call
 * of rows that see little. Answers how many acts are worth it. */
static int32_t find_sizes(struct rehearsal *r)
{
	const struct hys_plan *plan = r->plan;
	const int64_t pool = plan->problem.scoring.pool;
	struct hys_trial_size *light = &r->acts[HYS_LIGHT].size;
	int64_t keys = plan->keys_max, few;
	double per_row, fixed;

	hys_cost_copies(plan, r->op, &per_row, &fixed);
	while (keys > KEYS_LEAST && fixed * (double)keys / (double)plan->keys_max > BYTES_MOST)
		keys /= 2;
	few = few_keys(r);
	while (keys >= 2 * KEYS_TYPICAL * pool && keys >= 4 * few &&
	       time_together_s(r, rows_least(r, keys), keys) > r->pattern.call_s)
		keys /= 2;
	if (!find_size(r, hys_min64(plan->rows_max, keys), keys, &r->acts[HYS_HEAVY].size))
		return 0;
	if (few > keys / 2 || !find_size(r, plan->rows_max, few, light))
		return 1;
	light->all_seen = true;
	if (uses_indices(r)) /* most slots are empty, but copied */
		light->topk = plan->problem.choosing.topk_max;
	return 2;
}

/* ---- calls ---- */

static hys_status watch_tiny(struct rehearsal *r, int32_t a, int32_t i, struct hys_error *error)
{
	struct hys_act *act = &r->acts[a];
	struct hys_seen *seen = &r->seen[i][a];
	const struct hys_tally before = *hys_act_tally(act, i), *after = hys_act_tally(act, i);
	double seconds;
	hys_status status;

	HYS_TRY(hys_act_call_alone(act, i, hys_min64(HYS_ROW_TILE, act->size.rows), &seconds,
				   error));
	seen->tiny_s = fmin(seen->tiny_s, after->busy_s - before.busy_s);
	seen->tiny_weight = after->weight - before.weight;
cleanup:
	return status;
}

static hys_status watch(struct rehearsal *r, int32_t a, struct hys_error *error)
{
	struct hys_act *act = &r->acts[a];
	struct hys_tally before[HYS_LANES_MAX];
	double seconds;
	hys_status status;

	for (int32_t i = 0; i < r->plan->device_count; i++)
		before[i] = *hys_act_tally(act, i);
	HYS_TRY(hys_act_call(act, act->rows, &seconds, error));
	for (int32_t i = 0; i < r->plan->device_count; i++) {
		const struct hys_tally *after = hys_act_tally(act, i);

		hys_seen_note(&r->seen[i][a], after->busy_s - before[i].busy_s,
			      after->weight - before[i].weight, after->flops - before[i].flops);
	}
cleanup:
	return status;
}

/* ---- rounds ---- */

static void learn(struct rehearsal *r, int32_t i)
{
	struct hys_pace *pace = hys_plan_pace(r->plan, r->op, i);
	struct hys_lane_cost costs[HYS_LANES_MAX];
	struct hys_lesson lesson;
	double differ;

	if (!(r->seen[i][HYS_HEAVY].calls > 0))
		return;
	hys_partition_costs(r->plan, NULL, r->op, costs);
	lesson = (struct hys_lesson){.row_s = costs[i].row_s, .flop_s = costs[i].flop_s};
	hys_lessons_learn(r->seen[i], r->act_count, r->before[i].call_s, &lesson);
	r->noise[i] = lesson.noise;
	pace->flop_s = lesson.flop_s;
	/* Of what is fixed, the copies are known. */
	hys_partition_costs(&r->acts[HYS_HEAVY].plan, NULL, r->op, costs);
	pace->call_s =
		fmax(lesson.fixed_s - (costs[i].fixed_s - pace->call_s), r->before[i].call_s);
	if (!(pace->byte_s > 0)) {
		pace->row_s = lesson.row_s;
		return;
	}
	pace->row_s = r->before[i].row_s;
	pace->byte_s = r->before[i].byte_s;
	hys_partition_costs(r->plan, NULL, r->op, costs);
	differ = fmin(fmax(lesson.row_s / costs[i].row_s, 1.0 / COPIES_DIFFER), COPIES_DIFFER);
	pace->row_s *= differ;
	pace->byte_s *= differ;
}

static hys_status play_round(struct rehearsal *r, struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int32_t a = 0; a < r->act_count; a++) {
		for (int32_t i = 0; i < r->plan->device_count; i++)
			if (!hys_plan_pace(r->plan, r->op, i)->idle)
				HYS_TRY(watch_tiny(r, a, i, error));
		HYS_TRY(watch(r, a, error));
	}
	for (int32_t i = 0; i < r->plan->device_count; i++)
		learn(r, i);
cleanup:
	return status;
}

/* The first calls warm up, and tell how many rows fill the time. */
static hys_status warm_up(struct rehearsal *r, struct hys_act *act, struct hys_error *error)
{
	double seconds;
	hys_status status;

	act->rows = act->size.rows;
	HYS_TRY(hys_act_call(act, act->rows, &seconds, error));
	HYS_TRY(hys_act_call(act, act->rows, &seconds, error));
	while (act->rows >= 2 * rows_least(r, act->size.keys) &&
	       seconds > LONGER * r->pattern.call_s) {
		act->rows /= 2;
		seconds /= 2;
	}
cleanup:
	return status;
}

static bool is_calm(const struct rehearsal *r)
{
	for (int32_t i = 0; i < r->plan->device_count; i++)
		if (r->noise[i] > CALM)
			return false;
	return true;
}

static void forget(struct rehearsal *r)
{
	for (int32_t i = 0; i < r->plan->device_count; i++)
		for (int32_t a = 0; a < HYS_ACTS; a++)
			r->seen[i][a] = (struct hys_seen){.tiny_s = (double)INFINITY};
}

static hys_status play(struct rehearsal *r, struct hys_error *error)
{
	double begun, seconds;
	hys_status status;

	for (int32_t a = 0; a < r->act_count; a++)
		HYS_TRY(warm_up(r, &r->acts[a], error));
	begun = hys_now_s();
	for (int32_t round = 1; round <= HYS_ROUNDS_MOST; round++) {
		seconds = hys_now_s() - begun;
		if (round > ROUNDS_LEAST &&
		    seconds > (is_calm(r) ? r->pattern.calm_s : r->pattern.disturbed_s))
			break;
		HYS_TRY(hys_picker_go_on(r->picker, error));
		HYS_TRY(play_round(r, error));
		if (round == ROUNDS_TO_TRY)
			forget(r);
	}
cleanup:
	return status;
}

/* ---- is one as fast? ---- */

/* A heavy call of device `alone`, or of all when that is -1: what each took over what was
 * foretold, 0 of those that had nothing, and what the call took beside: all wake up and meet. */
static hys_status find_excess(struct rehearsal *r, int32_t alone, double *excess, double *beside_s,
			      struct hys_error *error)
{
	struct hys_act *act = &r->acts[HYS_HEAVY];
	struct hys_tally before[HYS_LANES_MAX];
	double longest_s = 0, seconds;
	hys_status status;

	for (int32_t i = 0; i < r->plan->device_count; i++)
		before[i] = *hys_act_tally(act, i);
	HYS_TRY(alone < 0 ? hys_act_call(act, act->rows, &seconds, error)
			  : hys_act_call_alone(act, alone, act->rows, &seconds, error));
	for (int32_t i = 0; i < r->plan->device_count; i++) {
		const struct hys_tally *after = hys_act_tally(act, i);
		const double busy_s = after->busy_s - before[i].busy_s;
		const double foretold_s = after->foretold_s - before[i].foretold_s;

		excess[i] = foretold_s > 0 ? busy_s / foretold_s : 0;
		longest_s = fmax(longest_s, busy_s);
	}
	*beside_s = seconds - longest_s;
cleanup:
	return status;
}

/* The plan's largest call, of devices that take as much more or less than was foretold as they
 * did in a rehearsal, in shares that fit that. */
static double foresee_s(const struct rehearsal *r, const double *excess)
{
	double rate = 0;

	for (int32_t i = 0; i < r->plan->device_count; i++)
		if (excess[i] > 0)
			rate += 1 / (excess[i] *
				     time_alone_s(r, i, r->plan->rows_max, r->plan->keys_max));
	return 1 / rate;
}

/* What device i takes alone for the plan's largest call, of what all take: it is faster than
 * beside the others, and meets nobody. Turn by turn, so that what disturbs one disturbs the
 * others. *ratio is at most `limit` when most pairs say so, else infinite; where they do, there are
 * more of them while there is time, since a share given up by chance costs more than one that
 * hardly helps. */
static hys_status compare_alone(struct rehearsal *r, int32_t i, double limit, double *ratio,
				struct hys_error *error)
{
	const double end_s = hys_now_s() + r->pattern.calm_s;
	double excess[HYS_LANES_MAX], alone_s, together_s, beside_s, sum = 0;
	int32_t pairs = 0, agree = 0;
	hys_status status = HYS_OK;

	while (pairs < PAIRS || (2 * agree > pairs && hys_now_s() < end_s)) {
		HYS_TRY(hys_picker_go_on(r->picker, error));
		HYS_TRY(find_excess(r, i, excess, &beside_s, error));
		alone_s = foresee_s(r, excess) + beside_s;
		HYS_TRY(find_excess(r, -1, excess, &beside_s, error));
		together_s = foresee_s(r, excess) + beside_s;
		agree += alone_s <= limit * together_s;
		sum += alone_s / together_s;
		pairs++;
	}
	*ratio = 2 * agree > pairs ? fmin(sum / pairs, limit) : (double)INFINITY;
cleanup:
	return status;
}

/* The device that does the plan's largest call nearly as fast alone, -1 = none. Rehearsals
 * themselves do not say: what calls take whatever their rows counts for much there. */
static hys_status find_winner(struct rehearsal *r, int32_t *winner, struct hys_error *error)
{
	const struct hys_plan *plan = r->plan;
	double least_s = (double)INFINITY, least = 1 + LEAST_GAIN;
	hys_status status = HYS_OK;

	*winner = -1;
	for (int32_t i = 0; i < plan->device_count; i++)
		least_s = fmin(least_s, time_alone_s(r, i, plan->rows_max, plan->keys_max));
	for (int32_t i = 0; i < plan->device_count; i++) {
		double ratio;

		if (time_alone_s(r, i, plan->rows_max, plan->keys_max) > MAY_BE_FASTER * least_s ||
		    hys_plan_rows_most(plan, r->op, i) < r->acts[HYS_HEAVY].rows)
			continue;
		HYS_TRY(compare_alone(r, i, least, &ratio, error));
		if (ratio <= least) {
			least = ratio;
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
	hys_status status = HYS_OK;

	for (int32_t a = 0; a < r->act_count; a++)
		HYS_TRY(hys_act_open(&r->acts[a], r->plan, r->op, error));
	HYS_TRY(play(r, error));
	HYS_TRY(find_winner(r, &winner, error));
	if (winner >= 0)
		leave_to(r, winner);
cleanup:
	for (int32_t a = 0; a < r->act_count; a++)
		hys_act_close(&r->acts[a]);
	return status;
}

/* What devices take alone counts again. */
static void take_back(const struct rehearsal *r)
{
	for (int32_t i = 0; i < r->plan->device_count; i++) {
		*hys_plan_pace(r->plan, r->op, i) = r->before[i];
		r->noise[i] = 1;
	}
}

hys_status hys_plan_rehearse(struct hys_picker *picker, hys_op op, double *noise,
			     struct hys_error *error)
{
	struct hys_plan *plan = picker->plan;
	struct hys_error failure = {HYS_OK, 0, ""};
	struct rehearsal *r;
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < plan->device_count; i++)
		noise[i] = 1;
	if (!can_rehearse(op) || count_working(plan, op) < 2)
		return HYS_OK;
	r = hys_alloc(&plan->context->host.allocator, sizeof(*r));
	if (!r)
		return HYS_OK;
	memset(r, 0, sizeof(*r));
	r->picker = picker;
	r->plan = plan;
	r->op = op;
	r->pattern = pattern_of(plan);
	r->noise = noise;
	for (int32_t i = 0; i < plan->device_count; i++)
		r->before[i] = *hys_plan_pace(plan, op, i);
	forget(r);
	r->act_count = find_sizes(r);
	if (r->act_count > 0)
		status = rehearse(r, &failure);
	if (status == HYS_CANCELLED) {
		if (error)
			*error = failure;
	} else if (status != HYS_OK) {
		status = HYS_OK;
		take_back(r);
		hys_host_log(&plan->context->host, HYS_LOG_WARNING,
			     "%s could not be rehearsed, speeds are those of devices alone: %s",
			     hys_op_name(op), failure.message);
	}
	hys_free(&plan->context->host.allocator, r);
	return status;
}
