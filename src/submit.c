/* From a checked call to one task per lane. */
#include "core.h"

#include <string.h>

/* Rows are shared in units of this many, so that kernels' row tiles stay
 * whole. */
#define ROW_TILE 16

int64_t hys_rows_before(const struct hys_plan *plan, int64_t rows, int32_t i)
{
	double share = 0;

	if (i >= plan->device_count)
		return rows;
	for (int32_t d = 0; d < i; d++)
		share += plan->shares[d];
	return hys_min64((int64_t)(share * (double)rows / ROW_TILE + 0.5) * ROW_TILE, rows);
}

static bool is_pooling(hys_op op)
{
	return op == HYS_OP_POOL || op == HYS_OP_POOL_BACKWARD;
}

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

static void view_batch(const struct hys_request *request, int32_t lane, struct hys_call *call)
{
	const struct hys_batch *batch = request->batch;
	const int64_t first = call->row_first, end = first + call->size.rows;

	if (is_pooling(call->op)) {
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

/* The lane's part of the call, laid out in its workspace. */
static hys_status make_task(const struct hys_request *request, int32_t lane, struct hys_task *task,
			    struct hys_error *error)
{
	const struct hys_plan *plan = request->plan;
	const struct hys_buffer *workspace = request->exec->lanes[lane].workspace;
	const int64_t first = hys_rows_before(plan, request->row_count, lane);
	const int64_t count = hys_rows_before(plan, request->row_count, lane + 1) - first;
	const int64_t have = workspace ? workspace->bytes : 0;
	int64_t bytes;
	hys_status status = HYS_OK;

	memset(task, 0, sizeof(*task));
	task->run = hys_stage_run;
	task->call = request->call;
	task->call.row_first += first;
	task->call.size.rows = count;
	task->keeps = request->keeps;
	cut_fields(task, first, count);
	view_batch(request, lane, &task->call);
	for (int32_t i = 0; i < HYS_FIELDS_MAX; i++)
		task->slot_offset[i] = -1;
	if (request->exec->gather) {
		task->run = hys_gather_run;
		task->always = true;
		task->counts = request->counts;
		task->accumulate = request->accumulate;
		task->batch = request->batch;
		HYS_TRY(hys_gather_layout(request->exec->gather, task, request->name, error));
	}
	bytes = hys_stage_layout(plan, lane, task);
	if (bytes > have)
		status = hys_fail(error, HYS_WORKSPACE_TOO_SMALL, 0,
				  "%s: needs %lld bytes of workspace on %s, the exec has %lld",
				  request->name, (long long)bytes, plan->devices[lane]->info.name,
				  (long long)have);
cleanup:
	return status;
}

hys_status hys_request_submit(struct hys_request *request, struct hys_error *error)
{
	const int32_t lanes = request->plan->device_count;
	struct hys_exec *exec = request->exec;
	struct hys_task task;
	int64_t ticket = 0;
	hys_status status;

	HYS_TRY(hys_exec_failure(exec, error));
	for (int32_t i = 0; i < lanes; i++)
		HYS_TRY(make_task(request, i, &task, error));
	if (exec->gather)
		ticket = hys_gather_ticket(exec->gather);
	for (int32_t i = 0; i < lanes; i++) {
		if (lanes > 1)
			HYS_TRY(make_task(request, i, &task, error));
		task.ticket = ticket;
		HYS_TRY(hys_exec_submit(exec, i, &task, error));
	}
cleanup:
	return status;
}
