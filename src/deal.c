/* Which rows of a call each lane of several devices takes first. */
#include "gather.h"

void hys_gather_add_turn(struct hys_gather *gather, int64_t first, int64_t count, int32_t lane)
{
	if (count > 0 && gather->turn_count < gather->turns_most)
		gather->turns[gather->turn_count++] =
			(struct hys_turn){.range = {first, count, lane}};
}

/* Whether the lane's kernel does several ranges in one call: then fewer rows
 * than fill the device are not alone in it. Rows of host tensors are staged
 * range by range. */
static bool takes_gaps(const struct hys_exec *exec, int32_t lane, const struct hys_task *task)
{
	const struct hys_fields *fields = hys_op_fields(task->call.op);
	struct hys_call *call = (struct hys_call *)(uintptr_t)&task->call;

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_tensor *tensor = hys_field_tensor(&fields->fields[i], &call->args);

		if (fields->fields[i].dims[0] == HYS_DIM_ROWS && hys_present(tensor) &&
		    !tensor->buffer)
			return false;
	}
	return hys_plan_choice(exec->plan, call->op, lane)->kernel->gaps;
}

/* Behind the lane's last turn; false when that has no room for more. */
static bool join_turn(struct hys_gather *gather, int64_t first, int64_t count, int32_t lane)
{
	struct hys_turn *last = NULL;
	int64_t end;

	for (int32_t i = 0; i < gather->turn_count; i++)
		if (gather->turns[i].range.lane == lane)
			last = &gather->turns[i];
	if (!last || last->gap_count == HYS_GAPS_MAX ||
	    last->range.count + count > gather->costs[lane].rows_most)
		return false;
	end = last->range.first + last->range.count;
	for (int32_t i = 0; i < last->gap_count; i++)
		end += last->gaps[i].by;
	last->gaps[last->gap_count++] = (struct hys_gap){last->range.count, first - end};
	last->range.count += count;
	return true;
}

void hys_gather_deal_ranges(struct hys_exec *exec, const struct hys_task *task)
{
	const int64_t begin = task->call.row_first, end = begin + task->call.size.rows;

	for (int32_t i = 0; i < task->batch->range_count; i++) {
		const struct hys_range *range = &task->batch->ranges[i];
		const int64_t first = hys_max64(range->first, begin) - begin;
		const int64_t count = hys_min64(range->first + range->count, end) - begin - first;

		if (count > 0 && takes_gaps(exec, range->lane, task) &&
		    join_turn(exec->gather, first, count, range->lane))
			continue;
		hys_gather_add_turn(exec->gather, first, count, range->lane);
	}
}

void hys_gather_deal_by_cost(struct hys_gather *gather)
{
	struct hys_range ranges[HYS_STRIPES_MOST * HYS_LANES_MAX];
	const int32_t count = hys_partition_deal(&gather->tiles, gather->costs,
						 gather->plan->device_count, ranges);

	for (int32_t i = 0; i < count; i++)
		hys_gather_add_turn(gather, ranges[i].first, ranges[i].count, ranges[i].lane);
}
