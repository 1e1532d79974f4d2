/* From a checked call to one task per lane. */
#include "core.h"

#include <string.h>

static void cut_fields(struct hys_task *task, int64_t first, int64_t count)
{
	const struct hys_fields *fields = hys_op_fields(task->call.op);

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		struct hys_tensor *tensor = hys_field_tensor(field, &task->call.args);

		if (!hys_present(tensor) || field->dims[0] != HYS_DIM_ROWS)
			continue;
		tensor->shape[0] = count;
		if (hys_tensor_elements(tensor) == 0 || first == 0)
			continue;
		if (tensor->buffer)
			tensor->offset += first * tensor->stride[0];
		else
			tensor->host =
				(char *)tensor->host +
				first * tensor->stride[0] * (int64_t)hys_dtype_size(tensor->dtype);
	}
}

static void view_batch(const struct hys_batch *batch, int32_t lane, struct hys_call *call)
{
	const int64_t first = call->row_first, end = first + call->size.rows;

	if (hys_is_pooling(call->op)) {
		call->batch = batch->views[lane];
		return;
	}
	call->batch = hys_batch_slice(batch, lane, first, call->size.rows);
	call->size.key_pairs =
		(double)(batch->key_pairs_before[end] - batch->key_pairs_before[first]);
	call->size.entry_pairs =
		(double)(batch->entry_pairs_before[end] - batch->entry_pairs_before[first]);
	call->size.row_keys = batch->row_keys;
	call->size.row_entries = batch->row_entries;
	call->size.row_window_keys = batch->row_window_keys;
}

void hys_task_set_gaps(struct hys_task *task, const struct hys_gap *gaps, int32_t count)
{
	const struct hys_batch *batch = task->batch;
	struct hys_size *size = &task->call.size;
	int64_t first = task->call.row_first, done = 0;

	task->call.gap_count = count;
	size->key_pairs = size->entry_pairs = 0;
	for (int32_t i = 0; i <= count; i++) {
		const int64_t rows = (i < count ? gaps[i].at : size->rows) - done;

		size->key_pairs += (double)(batch->key_pairs_before[first + rows] -
					    batch->key_pairs_before[first]);
		size->entry_pairs += (double)(batch->entry_pairs_before[first + rows] -
					      batch->entry_pairs_before[first]);
		done += rows;
		first += rows;
		if (i == count)
			break;
		task->call.gaps[i] = gaps[i];
		first += gaps[i].by;
	}
}

int64_t hys_task_cut(const struct hys_exec *exec, int32_t lane, struct hys_task *task,
		     int64_t first, int64_t count)
{
	task->call.row_first += first;
	task->call.size.rows = count;
	cut_fields(task, first, count);
	view_batch(task->batch, lane, &task->call);
	return hys_stage_layout(exec->plan, lane, task);
}

/* The whole call; lanes of several devices cut it themselves. */
static hys_status make_task(const struct hys_request *request, struct hys_task *task,
			    struct hys_error *error)
{
	hys_status status = HYS_OK;

	memset(task, 0, sizeof(*task));
	task->run = hys_stage_run;
	task->call = request->call;
	task->keeps = request->keeps;
	task->batch = request->batch;
	task->spread = request->spread;
	for (int32_t i = 0; i < HYS_FIELDS_MAX; i++)
		task->slot_offset[i] = -1;
	if (request->exec->gather) {
		task->run = hys_gather_run;
		task->always = true;
		task->counts = request->counts;
		task->accumulate = request->accumulate;
		HYS_TRY(hys_gather_layout(request->exec->gather, task, request->name, error));
	}
cleanup:
	return status;
}

/* Whether the lane has room for its largest piece of the call. */
static hys_status check_room(const struct hys_request *request, int32_t lane,
			     const struct hys_task *task, struct hys_error *error)
{
	const struct hys_plan *plan = request->plan;
	const struct hys_buffer *workspace = request->exec->lanes[lane].workspace;
	const int64_t have = workspace ? workspace->bytes : 0;
	const int64_t most = hys_plan_rows_most(plan, request->op, lane);
	struct hys_task largest = *task;
	const int64_t bytes =
		hys_task_cut(request->exec, lane, &largest, 0, hys_min64(most, request->row_count));

	if (bytes <= have)
		return HYS_OK;
	return hys_fail(error, HYS_WORKSPACE_TOO_SMALL, 0,
			"%s: needs %lld bytes of workspace on %s, the exec has %lld", request->name,
			(long long)bytes, plan->devices[lane]->info.name, (long long)have);
}

hys_status hys_request_submit(struct hys_request *request, struct hys_error *error)
{
	const int32_t lanes = request->plan->device_count;
	struct hys_exec *exec = request->exec;
	struct hys_task task;
	hys_status status;

	HYS_TRY(hys_exec_failure(exec, error));
	HYS_TRY(make_task(request, &task, error));
	for (int32_t i = 0; i < lanes; i++)
		HYS_TRY(check_room(request, i, &task, error));
	if (exec->gather)
		task.ticket = hys_gather_ticket(exec->gather);
	else
		hys_task_cut(exec, 0, &task, 0, request->row_count);
	for (int32_t i = 0; i < lanes; i++)
		HYS_TRY(hys_exec_submit(exec, i, &task, error));
cleanup:
	return status;
}
