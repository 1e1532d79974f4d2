/* The lanes of several devices do one operation at a time. Each takes what the
 * plan gives it, or, guided, the next piece when it is free; a device that
 * fails is dropped, and the others redo its rows. When all is done and what
 * lanes have summed lies in host memory, it is merged. */
#include <math.h>

#include "gather.h"
#include "lane.h"
#include "slow.h"
#include "trace.h"

/* Guided: a lane takes so much of what would keep all busy to the end. */
#define PIECE 0.5
/* Fewest pieces per lane that guided cuts into. */
#define PIECES_MOST 32

enum move { TAKE, DELIVER, END };

/* Under the lock, but for the time that it looks. */
static void await(struct hys_exec *exec)
{
	struct hys_gather *gather = exec->gather;
	const unsigned seen = atomic_load(&gather->changes);
	const struct hys_patience patience = hys_patience_of(exec);

	pthread_mutex_unlock(&gather->lock);
	while (atomic_load(&gather->changes) == seen && hys_patience_is_left(&patience))
		;
	pthread_mutex_lock(&gather->lock);
	if (atomic_load(&gather->changes) == seen)
		pthread_cond_wait(&gather->changed, &gather->lock);
}

static void announce(struct hys_gather *gather)
{
	atomic_fetch_add(&gather->changes, 1);
	pthread_cond_broadcast(&gather->changed);
}

static bool is_dropped(const struct hys_exec *exec, int32_t lane)
{
	return atomic_load(&exec->lanes[lane].dropped) != 0;
}

bool hys_gather_contributes(const struct hys_exec *exec, int32_t lane)
{
	return exec->gather->lanes[lane].parts > 0 && !is_dropped(exec, lane);
}

/* ---- cutting, by the first lane that comes ---- */

/* Rows of replicated buffers are where they were computed, or gone. */
static hys_status check_owners(const struct hys_exec *exec, struct hys_error *error)
{
	for (int32_t i = 0; i < exec->gather->turn_count; i++) {
		const int32_t lane = exec->gather->turns[i].range.lane;

		if (is_dropped(exec, lane))
			return hys_fail(error, HYS_DEVICE_FAILED, exec->lanes[lane].drop.native,
					"rows in replicated buffers are lost with %s, which was "
					"dropped",
					exec->plan->devices[lane]->info.name);
	}
	return HYS_OK;
}

/* Without those that were dropped; if nobody is left, those that usually do
 * better without must. */
static void find_costs(struct hys_exec *exec, const struct hys_task *task)
{
	struct hys_gather *gather = exec->gather;
	const int32_t lanes = gather->plan->device_count;
	bool all_idle = true;

	hys_partition_costs(gather->plan, task, task->call.op, gather->costs);
	for (int32_t i = 0; i < lanes; i++)
		all_idle = all_idle && (gather->costs[i].idle || is_dropped(exec, i));
	for (int32_t i = 0; i < lanes; i++)
		gather->costs[i].idle = is_dropped(exec, i) || (gather->costs[i].idle && !all_idle);
}

static hys_status cut(struct hys_exec *exec, const struct hys_task *task, struct hys_error *error)
{
	struct hys_gather *gather = exec->gather;

	gather->tiles.rows = task->call.size.rows;
	hys_tiles_weigh(&gather->tiles, task);
	find_costs(exec, task);
	gather->next_tile = gather->tiles.count;
	gather->guided = gather->plan->split == HYS_SPLIT_GUIDED && !task->spread;
	if (task->spread)
		hys_gather_deal_ranges(exec, task);
	else if (gather->guided)
		gather->next_tile = 0;
	else
		hys_gather_deal_by_cost(gather);
	return task->spread ? check_owners(exec, error) : HYS_OK;
}

/* The first lane that comes says for all whether the operation is to be done,
 * and cuts it. */
static hys_status prepare(struct hys_exec *exec, const struct hys_task *task, bool *skip,
			  struct hys_error *error)
{
	struct hys_gather *gather = exec->gather;
	hys_status status = HYS_OK;

	pthread_mutex_lock(&gather->lock);
	while (gather->current != task->ticket)
		await(exec);
	if (!gather->preparing) {
		gather->preparing = true;
		gather->skip = gather->skip || hys_exec_failure(exec, NULL) != HYS_OK;
		*skip = gather->skip;
		pthread_mutex_unlock(&gather->lock);
		if (!*skip)
			status = cut(exec, task, error);
		pthread_mutex_lock(&gather->lock);
		gather->failed = status != HYS_OK;
		gather->prepared = true;
		announce(gather);
	}
	while (!gather->prepared)
		await(exec);
	*skip = gather->skip;
	pthread_mutex_unlock(&gather->lock);
	return status;
}

/* ---- the next piece; all under the lock ---- */

/* How much longer than foretold the lane takes. */
static double correction(const struct hys_gather *gather, int32_t lane)
{
	const struct hys_gather_lane *own = &gather->lanes[lane];

	return own->guided_foretold_s > 0 ? own->guided_real_s / own->guided_foretold_s : 1;
}

static double remaining_s(const struct hys_gather *gather, int32_t lane)
{
	struct hys_lane_cost cost = gather->costs[lane];

	cost.fixed_s = 0;
	return correction(gather, lane) *
	       hys_lane_time_s(&gather->tiles, &cost, gather->next_tile, gather->tiles.count);
}

/* Part of what is left, such that all lanes would end together; less and less. */
static int64_t piece_end(const struct hys_gather *gather, int32_t lane)
{
	const int64_t tiles = gather->tiles.count;
	const int64_t least =
		hys_max64(1, tiles / (PIECES_MOST * (int64_t)gather->plan->device_count));
	const double own_s = remaining_s(gather, lane);
	struct hys_lane_cost cost = gather->costs[lane];
	double rate = 0, together_s;
	int64_t end = gather->next_tile;

	for (int32_t i = 0; i < gather->plan->device_count; i++)
		if (!gather->costs[i].idle)
			rate += 1 / fmax(remaining_s(gather, i), 1e-12);
	together_s = rate > 0 ? 1 / rate : own_s;
	cost.fixed_s = 0;
	while (end < tiles &&
	       correction(gather, lane) *
			       hys_lane_time_s(&gather->tiles, &cost, gather->next_tile, end + 1) <=
		       PIECE * together_s)
		end++;
	return hys_min64(tiles, hys_max64(end, gather->next_tile + least));
}

static struct hys_turn *take_guided(struct hys_gather *gather, int32_t lane)
{
	const int64_t first = hys_tile_row(&gather->tiles, gather->next_tile);
	int64_t end;

	if (gather->next_tile >= gather->tiles.count)
		return NULL;
	end = gather->turn_count + 1 >= gather->turns_most ? gather->tiles.count
							   : piece_end(gather, lane);
	gather->next_tile = end;
	hys_gather_add_turn(gather, first, hys_tile_row(&gather->tiles, end) - first, lane);
	return &gather->turns[gather->turn_count - 1];
}

static struct hys_turn *find_turn(struct hys_gather *gather, int32_t lane)
{
	for (int32_t i = 0; i < gather->turn_count; i++)
		if (gather->turns[i].range.lane == lane && !gather->turns[i].taken)
			return &gather->turns[i];
	return NULL;
}

static struct hys_turn *take(struct hys_gather *gather, int32_t lane)
{
	const bool idle = gather->costs[lane].idle;
	struct hys_turn *turn = find_turn(gather, lane);

	if (!turn && !idle && gather->guided)
		turn = take_guided(gather, lane);
	/* What another had to leave; somebody has to, idle or not. */
	if (!turn)
		turn = find_turn(gather, -1);
	if (!turn)
		return NULL;
	turn->taken = true;
	turn->range.lane = lane;
	return turn;
}

static bool is_settled(const struct hys_exec *exec)
{
	const struct hys_gather *gather = exec->gather;

	for (int32_t i = 0; i < gather->turn_count; i++)
		if (!gather->turns[i].done)
			return false;
	for (int32_t i = 0; i < gather->plan->device_count; i++)
		if (gather->lanes[i].working && !gather->lanes[i].delivered && !is_dropped(exec, i))
			return false;
	return gather->next_tile >= gather->tiles.count;
}

static enum move next_move(struct hys_exec *exec, int32_t lane, struct hys_turn **turn)
{
	struct hys_gather *gather = exec->gather;
	struct hys_gather_lane *own = &gather->lanes[lane];
	enum move move = END;

	pthread_mutex_lock(&gather->lock);
	while (!gather->failed && !is_dropped(exec, lane)) {
		*turn = take(gather, lane);
		if (*turn) {
			if (!own->working)
				own->begun_s = hys_now_s();
			own->working = true;
			own->delivered = false;
			move = TAKE;
			break;
		}
		if (own->working && !own->delivered) {
			move = DELIVER;
			break;
		}
		if (is_settled(exec))
			break;
		await(exec);
	}
	pthread_mutex_unlock(&gather->lock);
	return move;
}

/* ---- failures ---- */

/* A piece for each that is left. */
static void free_turn(struct hys_gather *gather, struct hys_turn *turn, int32_t left)
{
	const int64_t first = turn->range.first, count = turn->range.count;
	const int64_t each = hys_round_up((count + left - 1) / left, HYS_ROW_TILE);

	*turn = (struct hys_turn){.range = {first, hys_min64(each, count), -1}};
	for (int64_t at = each; at < count; at += each) {
		if (gather->turn_count == gather->turns_most) {
			turn->range.count = count;
			return;
		}
		hys_gather_add_turn(gather, first + at, hys_min64(each, count - at), -1);
	}
}

/* Outputs of rows that were added to may have been added to already; rows that
 * lie on the device are lost with it. */
static bool can_redo(const struct hys_task *task)
{
	const struct hys_fields *fields = hys_op_fields(task->call.op);
	struct hys_call *call = (struct hys_call *)(uintptr_t)&task->call;

	for (int32_t i = 0; task->accumulate && i < fields->count; i++)
		if ((fields->fields[i].flags & HYS_FIELD_OUT) && task->slot_offset[i] < 0 &&
		    hys_present(hys_field_tensor(&fields->fields[i], &call->args)))
			return false;
	return !task->spread;
}

/* Whether the others can do without this lane; the first reason is kept. */
static bool drop(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
		 hys_status status, const struct hys_error *error)
{
	struct hys_gather *gather = exec->gather;
	const int32_t count = gather->turn_count;
	int32_t left = -1;

	for (int32_t i = 0; i < gather->plan->device_count; i++)
		left += !is_dropped(exec, i) && gather->costs[i].rows_most > 0;
	exec->lanes[lane].drop = *error;
	exec->lanes[lane].drop.status = status;
	atomic_store(&exec->lanes[lane].dropped, 1);
	if (left < 1 || !can_redo(task))
		return false;
	for (int32_t i = 0; i < count; i++)
		if (gather->turns[i].range.lane == lane)
			free_turn(gather, &gather->turns[i], left);
	return true;
}

/* What becomes of a turn, or, NULL, of what the lane delivered. Answers the status that the whole call has of it. */
static hys_status settle(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			 struct hys_turn *turn, hys_status status, const struct hys_error *error)
{
	struct hys_gather *gather = exec->gather;
	struct hys_gather_lane *own = &gather->lanes[lane];

	pthread_mutex_lock(&gather->lock);
	if (status != HYS_OK) {
		if (drop(exec, lane, task, status, error))
			status = HYS_OK;
		else
			gather->failed = true;
	} else if (turn) {
		turn->done = true;
		own->rows += turn->range.count;
	} else {
		own->delivered = true;
		own->ended_s = hys_now_s();
	}
	announce(gather);
	pthread_mutex_unlock(&gather->lock);
	return status;
}

/* ---- computing ---- */

/* Rows that fit in the lane's workspace at once; those with gaps do. */
static hys_status compute(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			  const struct hys_turn *turn, struct hys_error *error)
{
	struct hys_gather_lane *own = &exec->gather->lanes[lane];
	const struct hys_range *range = &turn->range;
	const int64_t most = hys_max64(exec->gather->costs[lane].rows_most, 1);
	hys_status status = HYS_OK;

	for (int64_t at = 0; at < range->count; at += most) {
		struct hys_task part = *task;

		hys_task_cut(exec, lane, &part, range->first + at,
			     hys_min64(most, range->count - at));
		if (turn->gap_count > 0)
			hys_task_set_gaps(&part, turn->gaps, turn->gap_count);
		part.part = own->parts++;
		HYS_TRY(hys_stage_run(exec, lane, &part, error));
	}
cleanup:
	return status;
}

/* The turn's tiles, gaps left out: what they count for beside their work, and that. */
static void weigh_turn(const struct hys_tiles *tiles, const struct hys_turn *turn, double *weight,
		       double *flops)
{
	int64_t first = turn->range.first, done = 0;

	*weight = *flops = 0;
	for (int32_t i = 0; i <= turn->gap_count; i++) {
		const bool last = i == turn->gap_count;
		const int64_t end = last ? turn->range.count : turn->gaps[i].at;
		const int64_t begin_tile = first / HYS_ROW_TILE;
		const int64_t end_tile = hys_tiles_of(first + end - done);

		*weight += hys_tiles_rows(tiles, begin_tile, end_tile);
		*flops += tiles->flops_before[end_tile] - tiles->flops_before[begin_tile];
		first += end - done + (last ? 0 : turn->gaps[i].by);
		done = end;
	}
}

/* Waits for the turn only if there is a reason: `deliver` waits for all at once. */
static hys_status take_turn(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			    const struct hys_turn *turn, struct hys_error *error)
{
	struct hys_gather *gather = exec->gather;
	struct hys_gather_lane *own = &gather->lanes[lane];
	const struct hys_lane_cost *cost = &gather->costs[lane];
	const struct hys_device *device = exec->plan->devices[lane];
	const double begun = hys_now_s();
	double weight, flops, rows_s;
	hys_status status;

	weigh_turn(&gather->tiles, turn, &weight, &flops);
	rows_s = cost->row_s * weight + cost->flop_s * flops;
	own->weight += weight;
	own->flops += flops;
	own->foretold_s += rows_s + (own->parts > 0 ? 0 : cost->fixed_s);
	exec->lanes[lane].idle = false;
	HYS_TRY(compute(exec, lane, task, turn, error));
	if (!gather->guided && !hys_is_slowed(device))
		return HYS_OK;
	HYS_TRY(device->backend->finish(exec->lanes[lane].stream, error));
	hys_slow_down(device, hys_now_s() - begun);
	pthread_mutex_lock(&gather->lock);
	own->guided_real_s += hys_now_s() - begun;
	own->guided_foretold_s += cost->fixed_s + rows_s;
	pthread_mutex_unlock(&gather->lock);
cleanup:
	return status;
}

/* What the lane has summed, to where all can read it. */
static hys_status deliver(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			  struct hys_error *error)
{
	const struct hys_device *device = exec->plan->devices[lane];
	const double begun = hys_now_s();
	hys_status status;

	HYS_TRY(hys_stage_sums_out(exec, lane, task, error));
	HYS_TRY(hys_lane_finish(exec, lane, error));
	hys_slow_down(device, hys_now_s() - begun);
cleanup:
	return status;
}

static hys_status work(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
		       struct hys_error *error)
{
	hys_status status = HYS_OK;

	while (status == HYS_OK) {
		struct hys_turn *turn = NULL;
		struct hys_turn own = {.taken = false};
		const enum move move = next_move(exec, lane, &turn);

		if (move == END)
			break;
		if (turn)
			own = *turn;
		status = move == TAKE ? take_turn(exec, lane, task, &own, error)
				      : deliver(exec, lane, task, error);
		status = settle(exec, lane, task, turn, status, error);
	}
	return status;
}

/* ---- the mean of a loss ---- */

/* Adds this lane's count of a part of the rows and answers that of all lanes:
 * a mean needs the number of all non-empty groups before any gradient can be
 * written. */
static int64_t count_together(struct hys_exec *exec, int32_t lane, const struct hys_task *task)
{
	struct hys_gather *gather = exec->gather;
	const int32_t lanes = exec->plan->device_count;
	const int64_t rows = task->call.size.rows;
	const int64_t first = rows * lane / lanes;
	struct hys_task part = *task;
	int64_t own, all;

	hys_task_cut(exec, lane, &part, first, rows * (lane + 1) / lanes - first);
	own = hys_count_nonempty(&part);
	pthread_mutex_lock(&gather->lock);
	gather->nonempty += own;
	gather->counted++;
	announce(gather);
	while (gather->counted < lanes)
		await(exec);
	all = gather->nonempty;
	pthread_mutex_unlock(&gather->lock);
	return all;
}

/* ---- meeting ---- */

/* Waits until all have come so far. False when the call has failed. */
static bool arrive(struct hys_exec *exec)
{
	struct hys_gather *gather = exec->gather;
	bool failed;

	pthread_mutex_lock(&gather->lock);
	gather->arrived++;
	announce(gather);
	while (gather->arrived < gather->plan->device_count)
		await(exec);
	failed = gather->failed;
	pthread_mutex_unlock(&gather->lock);
	return !failed;
}

static void note_tallies(struct hys_exec *exec, hys_op op)
{
	for (int32_t i = 0; i < exec->plan->device_count; i++) {
		const struct hys_gather_lane *own = &exec->gather->lanes[i];
		struct hys_tally *tally = &exec->lanes[i].tallies[op];

		if (!own->working || is_dropped(exec, i))
			continue;
		tally->calls++;
		tally->rows += own->rows;
		tally->busy_s += own->ended_s - own->begun_s;
		tally->foretold_s += own->foretold_s;
		tally->weight += own->weight;
		tally->flops += own->flops;
	}
}

static void reset(struct hys_gather *gather)
{
	for (int32_t i = 0; i < gather->plan->device_count; i++) {
		const struct hys_gather_lane old = gather->lanes[i];

		gather->lanes[i] = (struct hys_gather_lane){.slot = old.slot, .native = old.native};
	}
	gather->preparing = gather->prepared = gather->failed = false;
	gather->counted = gather->arrived = gather->merged = gather->turn_count = 0;
	gather->nonempty = gather->next_tile = 0;
}

/* The last lane to leave lets all go on. A call that follows one that failed
 * is skipped by all. */
static void leave(struct hys_exec *exec, const struct hys_task *task, bool failed)
{
	struct hys_gather *gather = exec->gather;

	pthread_mutex_lock(&gather->lock);
	gather->failed = gather->failed || failed;
	if (++gather->merged == gather->plan->device_count) {
		if (!gather->failed && !gather->skip)
			note_tallies(exec, task->call.op);
		gather->skip = gather->skip || gather->failed;
		reset(gather);
		gather->current++;
		announce(gather);
	}
	pthread_mutex_unlock(&gather->lock);
}

static hys_status run(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
		      struct hys_error *error)
{
	struct hys_task own = *task;
	hys_status status;

	if (task->counts)
		own.call.args.loss.divisor = (double)count_together(exec, lane, task);
	status = work(exec, lane, &own, error);
	/* Who has nothing to merge need not wait for the others here, too. */
	if (task->sums_bytes > 0 && arrive(exec) && status == HYS_OK) {
		const double begun = hys_trace_begin(exec, lane);

		status = hys_gather_merge(exec, lane, task, error);
		if (status == HYS_OK)
			hys_trace_note(exec, lane, "merge", &task->call, begun);
	}
	return status;
}

hys_status hys_gather_run(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			  struct hys_error *error)
{
	bool skip = false;
	hys_status status = prepare(exec, task, &skip, error);
	struct hys_error later = {HYS_OK, 0, ""};
	hys_status ran = skip ? HYS_OK : run(exec, lane, task, status == HYS_OK ? error : &later);

	status = status == HYS_OK ? ran : status;
	leave(exec, task, status != HYS_OK);
	return status;
}

void hys_gather_forgive(struct hys_gather *gather)
{
	if (gather)
		gather->skip = false;
}
