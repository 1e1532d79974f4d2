/* Rows are cut by what they cost, not by their number. The cost of a row comes
 * from what it sees and reads; what a device takes for it from the plan. */
#include "partition.h"

#include <math.h>
#include <string.h>

/* An operation does without a device that shortens it by less than this. */
#define LEAST_GAIN 0.02
/* Of a row's cost beside its work, what one takes that keeps all it sees. */
#define KEEPS_ALL 0.125
/* Of what a call takes, what more runs of rows may cost; and what one costs at least. */
#define RUNS_MAY_COST 0.03
#define RUN_LEAST_S 1e-4
/* Of a stripe, for each lane: else single tiles count for much. */
#define STRIPE_TILES 32

/* ---- weighing ---- */

/* The mean over groups of the slots that row `row` of the call uses; *last is what the last list
 * used that was looked at: most use as many. */
static double slots_used(const struct hys_tensor *indices, int64_t row, int64_t *last)
{
	const int32_t *slots = (const int32_t *)indices->host + row * indices->stride[0];
	int64_t count = 0;

	for (int64_t u = 0; u < indices->shape[1]; u++) {
		*last = hys_count_slots(slots + u * indices->stride[1], indices->shape[2], *last);
		count += *last;
	}
	return (double)count / (double)hys_max64(indices->shape[1], 1);
}

static struct hys_tensor indices_of(const struct hys_task *task)
{
	switch (task->call.op) {
	case HYS_OP_ATTENTION_FORWARD:
		return task->call.args.attention.indices;
	case HYS_OP_ATTENTION_BACKWARD:
		return task->call.args.attention_grad.indices;
	case HYS_OP_INDEXER_LOSS:
		return task->call.args.loss.indices;
	default:
		return (struct hys_tensor){0};
	}
}

/* Whether rows that keep all they see are cheap, on all devices that work; who shares by number
 * counts them nevertheless. */
static bool keeping_is_cheap(const struct hys_plan *plan, hys_op op)
{
	if (op != HYS_OP_SELECT || plan->split == HYS_SPLIT_EQUAL)
		return false;
	for (int32_t i = 0; i < plan->device_count; i++)
		if (!hys_plan_pace(plan, op, i)->idle &&
		    !hys_plan_choice(plan, op, i)->kernel->keeps_unscored)
			return false;
	return true;
}

static bool keeps_all(const struct hys_batch *batch, int64_t t, const struct hys_limits *limits)
{
	return (double)(batch->entry_pairs_before[t + 1] - batch->entry_pairs_before[t]) <=
	       limits->topk_entries;
}

static double row_flops(const struct hys_batch *batch, hys_op op, int64_t t,
			const struct hys_limits *limits)
{
	const struct hys_batch_arrays *host = &batch->host;
	struct hys_work work = {0};

	hys_work_add_row(&work, limits, batch->key_pairs_before[t + 1] - batch->key_pairs_before[t],
			 batch->entry_pairs_before[t + 1] - batch->entry_pairs_before[t]);
	if (host->window_begin)
		work.attended_pairs += host->window_end[t] - host->window_begin[t];
	return hys_cost_flops(op, &batch->plan->problem, &work);
}

/* `indices` are the call's or without memory. */
static void weigh(struct hys_tiles *tiles, const struct hys_batch *batch, hys_op op, int64_t first,
		  const struct hys_tensor *indices)
{
	const struct hys_problem *problem = &batch->plan->problem;
	const struct hys_limits all = hys_limits_of(problem);
	const bool cheap = keeping_is_cheap(batch->plan, op);
	double sum = 0, rows = 0;
	int64_t last = 0;

	tiles->count = hys_tiles_of(tiles->rows);
	tiles->flops_before[0] = 0;
	if (tiles->rows_before)
		tiles->rows_before[0] = 0;
	for (int64_t tile = 0; tile < tiles->count; tile++) {
		for (int64_t row = tile * HYS_ROW_TILE; row < hys_tile_row(tiles, tile + 1);
		     row++) {
			struct hys_limits limits = all;
			bool keeps;

			if (hys_is_pooling(op)) {
				rows += 1;
				continue;
			}
			if (indices->host)
				hys_limits_of_slots(&limits, problem,
						    slots_used(indices, row, &last));
			keeps = cheap && keeps_all(batch, first + row, &limits);
			sum += keeps ? 0 : row_flops(batch, op, first + row, &limits);
			rows += keeps ? KEEPS_ALL : 1;
		}
		tiles->flops_before[tile + 1] = sum;
		if (tiles->rows_before)
			tiles->rows_before[tile + 1] = rows;
	}
}

/* What the batch knows of its rows before one of them, tiles weighing evenly. */
static double sum_before(const struct hys_batch *batch, const double *before, int64_t row)
{
	const int64_t tile = row / HYS_ROW_TILE, first = tile * HYS_ROW_TILE;
	const int64_t end = hys_min64(first + HYS_ROW_TILE, batch->rows);

	if (row == first)
		return before[tile];
	return before[tile] +
	       (before[tile + 1] - before[tile]) * (double)(row - first) / (double)(end - first);
}

static void take_sums(const struct hys_batch *batch, const double *before, int64_t begin,
		      const struct hys_tiles *tiles, double *sums)
{
	const double first = sum_before(batch, before, begin);
	const double *from = before + begin / HYS_ROW_TILE;
	const bool same_tiles = begin % HYS_ROW_TILE == 0;

	for (int64_t tile = 0; same_tiles && tile < tiles->count; tile++)
		sums[tile] = from[tile] - first;
	for (int64_t tile = same_tiles ? tiles->count : 0; tile <= tiles->count; tile++)
		sums[tile] = sum_before(batch, before, begin + hys_tile_row(tiles, tile)) - first;
}

/* What the batch knows already; unless the call itself lists what rows read. */
void hys_tiles_weigh(struct hys_tiles *tiles, const struct hys_task *task)
{
	const struct hys_tensor indices = indices_of(task);
	const struct hys_batch *batch = task->batch;
	const hys_op op = task->call.op;
	const int64_t begin = task->call.row_first;

	if (indices.host || !batch->flops_before[op]) {
		weigh(tiles, batch, op, begin, &indices);
		return;
	}
	tiles->count = hys_tiles_of(tiles->rows);
	take_sums(batch, batch->flops_before[op], begin, tiles, tiles->flops_before);
	if (tiles->rows_before)
		take_sums(batch, batch->rows_before[op], begin, tiles, tiles->rows_before);
}

void hys_tiles_weigh_batch(struct hys_tiles *tiles, const struct hys_batch *batch, hys_op op,
			   int64_t first)
{
	const struct hys_tensor none = {0};

	weigh(tiles, batch, op, first, &none);
}

/* ---- cutting ---- */

double hys_lane_time_s(const struct hys_tiles *tiles, const struct hys_lane_cost *cost,
		       int64_t begin, int64_t end)
{
	if (hys_tile_row(tiles, end) == hys_tile_row(tiles, begin))
		return 0;
	return cost->fixed_s + cost->row_s * hys_tiles_rows(tiles, begin, end) +
	       cost->flop_s * (tiles->flops_before[end] - tiles->flops_before[begin]);
}

/* The last tile up to which the lane comes in that time. */
static int64_t reach(const struct hys_tiles *tiles, const struct hys_lane_cost *cost, int64_t begin,
		     double time_s)
{
	int64_t low = begin;
	int64_t high = hys_min64(tiles->count, begin + cost->rows_most / HYS_ROW_TILE);

	if (cost->idle)
		return begin;
	if (cost->rows_most >= tiles->rows - hys_tile_row(tiles, begin))
		high = tiles->count;
	while (low < high) {
		const int64_t middle = low + (high - low + 1) / 2;

		if (hys_lane_time_s(tiles, cost, begin, middle) <= time_s)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* Whether all is done in that time. */
static bool cover(const struct hys_tiles *tiles, const struct hys_lane_cost *costs, int32_t lanes,
		  double time_s, int64_t *begin)
{
	begin[0] = 0;
	for (int32_t i = 0; i < lanes; i++)
		begin[i + 1] = reach(tiles, &costs[i], begin[i], time_s);
	return begin[lanes] == tiles->count;
}

double hys_partition_cut(const struct hys_tiles *tiles, const struct hys_lane_cost *costs,
			 int32_t lanes, int64_t *begin)
{
	double low = 0, high = 0;

	for (int32_t i = 0; i < lanes; i++)
		if (!costs[i].idle)
			high = fmax(high, hys_lane_time_s(tiles, &costs[i], 0, tiles->count));
	high *= 1 + 1e-9;
	for (int32_t step = 0; step < 60; step++) {
		const double middle = (low + high) / 2;

		if (cover(tiles, costs, lanes, middle, begin))
			high = middle;
		else
			low = middle;
	}
	/* What memory does not let the others take goes to whoever can. */
	if (!cover(tiles, costs, lanes, high, begin)) {
		int32_t last = lanes - 1;

		while (last > 0 && costs[last].idle)
			last--;
		for (int32_t i = last; i < lanes; i++)
			begin[i + 1] = tiles->count;
	}
	return high;
}

/* ---- dealing ---- */

/* One where memory says who takes how many rows. */
static int32_t count_stripes(const struct hys_tiles *tiles, const struct hys_lane_cost *costs,
			     int32_t lanes, double time_s)
{
	const double most = (double)tiles->count / (STRIPE_TILES * (double)lanes);
	double again_s = RUN_LEAST_S, wanted;

	for (int32_t i = 0; i < lanes; i++) {
		if (costs[i].idle)
			continue;
		if (costs[i].rows_most < tiles->rows)
			return 1;
		again_s = fmax(again_s, costs[i].again_s);
	}
	wanted = fmin(1 + RUNS_MAY_COST * time_s / again_s, HYS_STRIPES_MOST);
	return (int32_t)fmax(fmin(wanted, most), 1);
}

/* Stripes that take one lane, of those that work, the same time. */
static void cut_stripes(const struct hys_tiles *tiles, const struct hys_lane_cost *costs,
			int32_t stripes, int64_t *begin)
{
	struct hys_lane_cost same[HYS_STRIPES_MOST];

	while (costs->idle)
		costs++;
	for (int32_t i = 0; i < stripes; i++) {
		same[i] = *costs;
		same[i].fixed_s = 0;
	}
	hys_partition_cut(tiles, same, stripes, begin);
}

static int32_t add_range(struct hys_range *ranges, int32_t count, int64_t first, int64_t end,
			 int32_t lane)
{
	if (end == first)
		return count;
	if (count > 0 && ranges[count - 1].lane == lane) {
		ranges[count - 1].count += end - first;
		return count;
	}
	ranges[count] = (struct hys_range){first, end - first, lane};
	return count + 1;
}

/* Every other stripe backwards, so that neighbours are one run. */
int32_t hys_partition_deal(const struct hys_tiles *tiles, const struct hys_lane_cost *costs,
			   int32_t lanes, struct hys_range *ranges)
{
	int64_t stripe[HYS_STRIPES_MOST + 1] = {0}, begin[HYS_LANES_MAX + 1];
	const double time_s = hys_partition_cut(tiles, costs, lanes, begin);
	const int32_t stripes = count_stripes(tiles, costs, lanes, time_s);
	int32_t count = 0;

	stripe[1] = tiles->count;
	if (stripes > 1)
		cut_stripes(tiles, costs, stripes, stripe);
	for (int32_t s = 0; s < stripes; s++) {
		const int64_t first = hys_tile_row(tiles, stripe[s]);
		const struct hys_tiles part = {
			.rows = hys_tile_row(tiles, stripe[s + 1]) - first,
			.count = stripe[s + 1] - stripe[s],
			.flops_before = tiles->flops_before + stripe[s],
			.rows_before = tiles->rows_before ? tiles->rows_before + stripe[s] : NULL};
		struct hys_lane_cost own[HYS_LANES_MAX];

		for (int32_t i = 0; i < lanes; i++) {
			own[i] = costs[s % 2 ? lanes - 1 - i : i];
			own[i].fixed_s /= stripes;
		}
		if (stripes > 1) /* one is cut already */
			hys_partition_cut(&part, own, lanes, begin);
		for (int32_t i = 0; i < lanes; i++)
			count = add_range(ranges, count, first + hys_tile_row(&part, begin[i]),
					  first + hys_tile_row(&part, begin[i + 1]),
					  s % 2 ? lanes - 1 - i : i);
	}
	return count;
}

/* ---- what lanes take ---- */

/* Bytes of the call's host tensors that are copied: per row, and whatever the
 * rows. */
static void count_copies(const struct hys_task *task, double *per_row, double *fixed)
{
	const struct hys_fields *fields = hys_op_fields(task->call.op);
	struct hys_call *call = (struct hys_call *)(uintptr_t)&task->call;
	const double rows = (double)hys_max64(task->call.size.rows, 1);

	*per_row = *fixed = 0;
	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		const struct hys_tensor *tensor = hys_field_tensor(field, &call->args);
		double bytes;

		if (!hys_present(tensor) || tensor->buffer)
			continue;
		bytes = (double)hys_tensor_elements(tensor) * (double)hys_dtype_size(tensor->dtype);
		if (field->dims[0] == HYS_DIM_ROWS)
			*per_row += bytes / rows;
		else
			*fixed += bytes;
	}
}

void hys_partition_costs(const struct hys_plan *plan, const struct hys_task *task, hys_op op,
			 struct hys_lane_cost *costs)
{
	double per_row, fixed;

	if (task)
		count_copies(task, &per_row, &fixed);
	else
		hys_cost_copies(plan, op, &per_row, &fixed);
	for (int32_t i = 0; i < plan->device_count; i++) {
		const struct hys_pace *pace = hys_plan_pace(plan, op, i);

		costs[i] = (struct hys_lane_cost){
			.fixed_s = pace->call_s + pace->byte_s * fixed,
			.again_s = plan->split == HYS_SPLIT_EQUAL ? (double)INFINITY
								  : HYS_CALL_BEHIND * pace->call_s,
			.row_s = pace->row_s + pace->byte_s * per_row,
			.flop_s = pace->flop_s,
			.rows_most = hys_plan_rows_most(plan, op, i),
			.idle = pace->idle,
		};
	}
}

/* ---- a plan's shares ---- */

/* The plan's largest causal call. */
static void weigh_largest(struct hys_tiles *tiles, const struct hys_plan *plan, hys_op op)
{
	struct hys_work work;
	double all;

	tiles->rows = hys_plan_rows_max(plan, op);
	tiles->count = hys_tiles_of(tiles->rows);
	work = hys_work_of(&plan->problem, NULL, tiles->rows, plan->keys_max);
	all = hys_is_pooling(op) ? 0 : hys_cost_flops(op, &plan->problem, &work);
	for (int64_t i = 0; i <= tiles->count; i++) {
		const int64_t behind = tiles->rows - hys_tile_row(tiles, i);

		work = hys_work_of(&plan->problem, NULL, behind, plan->keys_max);
		tiles->flops_before[i] =
			hys_is_pooling(op) ? 0 : all - hys_cost_flops(op, &plan->problem, &work);
	}
}

static double time_without(const struct hys_tiles *tiles, const struct hys_lane_cost *costs,
			   int32_t lanes, int32_t without, int64_t *begin)
{
	struct hys_lane_cost others[HYS_LANES_MAX];

	memcpy(others, costs, (size_t)lanes * sizeof(*costs));
	others[without].idle = true;
	if (!cover(tiles, others, lanes, (double)INFINITY, begin))
		return (double)INFINITY;
	return hys_partition_cut(tiles, others, lanes, begin);
}

/* Leaves out devices that are no help, then, one by one, the one that is missed least. */
static void leave_out(struct hys_plan *plan, hys_op op, const struct hys_tiles *tiles,
		      struct hys_lane_cost *costs)
{
	int64_t begin[HYS_LANES_MAX + 1];

	for (int32_t i = 0; i < plan->device_count; i++)
		if (hys_plan_pace(plan, op, i)->call_s >= HYS_NEVER_S)
			costs[i].idle = hys_plan_pace(plan, op, i)->idle = true;
	for (;;) {
		const double all_s = hys_partition_cut(tiles, costs, plan->device_count, begin);
		double least_s = (double)INFINITY;
		int32_t least = -1, working = 0;

		for (int32_t i = 0; i < plan->device_count; i++) {
			const double time_s =
				costs[i].idle
					? (double)INFINITY
					: time_without(tiles, costs, plan->device_count, i, begin);

			working += !costs[i].idle;
			if (time_s < least_s) {
				least_s = time_s;
				least = i;
			}
		}
		if (working < 2 || least < 0 || !(least_s <= all_s * (1 + LEAST_GAIN)))
			return;
		costs[least].idle = hys_plan_pace(plan, op, least)->idle = true;
	}
}

static void share_operation(struct hys_plan *plan, hys_op op, struct hys_tiles *tiles, bool fixed)
{
	struct hys_lane_cost costs[HYS_LANES_MAX];
	struct hys_range ranges[HYS_STRIPES_MOST * HYS_LANES_MAX];
	int64_t rows[HYS_LANES_MAX] = {0};
	int32_t count;

	weigh_largest(tiles, plan, op);
	hys_partition_costs(plan, NULL, op, costs);
	if (!fixed && plan->split != HYS_SPLIT_EQUAL)
		leave_out(plan, op, tiles, costs);
	count = hys_partition_deal(tiles, costs, plan->device_count, ranges);
	for (int32_t i = 0; i < count; i++)
		rows[ranges[i].lane] += ranges[i].count;
	for (int32_t i = 0; i < plan->device_count; i++)
		plan->shares[i * HYS_OP_COUNT + (int32_t)op] =
			(double)rows[i] / (double)hys_max64(tiles->rows, 1);
}

hys_status hys_partition_plan(struct hys_plan *plan, bool fixed, struct hys_error *error)
{
	const struct hys_allocator *allocator = &plan->context->host.allocator;
	const int64_t most = hys_tiles_of(hys_max64(plan->rows_max, plan->keys_max));
	struct hys_tiles tiles = {.flops_before = NULL};

	tiles.flops_before = hys_alloc_array(allocator, most + 1, sizeof(double));
	if (!tiles.flops_before)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory to share rows");
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		if (plan->operations & HYS_OP_BIT(op))
			share_operation(plan, (hys_op)op, &tiles, fixed);
	hys_free(allocator, tiles.flops_before);
	return HYS_OK;
}
