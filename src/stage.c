/* Running an operation on a lane. Where the device cannot reach host memory,
 * host tensors are copied to the lane's workspace, contiguous, and results
 * back, run by run, so that what lies between an output's strides stays. */
#include "trace.h"

/* Partial outputs are summed in f32 whatever the caller's type. */
static hys_dtype part_dtype(const struct hys_tensor *tensor)
{
	return tensor->dtype == HYS_I32 ? HYS_I32 : HYS_F32;
}

static bool is_staged(const struct hys_device *device, const struct hys_task *task, int32_t i)
{
	struct hys_call *call = (struct hys_call *)(uintptr_t)&task->call;
	const struct hys_tensor *tensor =
		hys_field_tensor(&hys_op_fields(call->op)->fields[i], &call->args);

	return hys_present(tensor) && !tensor->buffer && !device->host_memory &&
	       task->slot_offset[i] < 0;
}

static bool has_rows(const struct hys_task *task, int32_t i)
{
	return hys_op_fields(task->call.op)->fields[i].dims[0] == HYS_DIM_ROWS;
}

/* Places for the staged fields that have rows, or that have none. */
static int64_t lay_out(const struct hys_device *device, struct hys_task *task, bool rows,
		       int64_t bytes)
{
	const struct hys_fields *fields = hys_op_fields(task->call.op);

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_tensor *tensor =
			hys_field_tensor(&fields->fields[i], &task->call.args);

		if (has_rows(task, i) != rows || !is_staged(device, task, i))
			continue;
		task->stage_offset[i] = bytes;
		bytes = hys_add64(bytes,
				  hys_round_up(hys_tensor_elements(tensor) *
						       (int64_t)hys_dtype_size(tensor->dtype),
					       HYS_ALIGN));
	}
	return bytes;
}

/* What does not depend on the number of rows comes first: it stays where it is
 * while a lane computes one piece of the rows after the other. */
int64_t hys_stage_layout(const struct hys_plan *plan, int32_t lane, struct hys_task *task)
{
	const struct hys_device *device = plan->devices[lane];
	const struct hys_kernel *kernel = hys_plan_choice(plan, task->call.op, lane)->kernel;
	int64_t bytes = device->host_memory ? 0 : 2 * task->sums_bytes;

	for (int32_t i = 0; i < HYS_FIELDS_MAX; i++)
		task->stage_offset[i] = -1;
	bytes = lay_out(device, task, false, bytes);
	if (kernel->workspace)
		task->call.workspace.bytes = kernel->workspace(kernel, device, &task->call.size);
	task->workspace_offset = bytes;
	bytes = hys_add64(bytes, hys_round_up(task->call.workspace.bytes, HYS_ALIGN));
	return lay_out(device, task, true, bytes);
}

static void make_contiguous(struct hys_tensor *tensor)
{
	int64_t stride = 1;

	for (int32_t d = tensor->rank - 1; d >= 0; d--) {
		tensor->stride[d] = stride;
		stride *= hys_max64(tensor->shape[d], 1);
	}
}

/* Where a lane sums a partial output of this piece: on the host in its slot,
 * else in its workspace. Behind the sums of all pieces so far is the place of
 * those of the next. */
static struct hys_tensor sums_tensor(const struct hys_exec *exec, int32_t lane,
				     const struct hys_task *task, const struct hys_tensor *tensor,
				     int32_t i)
{
	const int64_t at = task->slot_offset[i] + (task->part > 0 ? task->sums_bytes : 0);
	struct hys_tensor sums = *tensor;

	sums.dtype = part_dtype(tensor);
	sums.host = NULL;
	sums.buffer = NULL;
	sums.offset = 0;
	if (exec->plan->devices[lane]->host_memory) {
		sums.host = hys_gather_slot(exec->gather, lane) + at;
	} else {
		sums.buffer = exec->lanes[lane].workspace;
		sums.offset = at / 4;
	}
	make_contiguous(&sums);
	return sums;
}

static struct hys_tensor staged_tensor(const struct hys_lane *lane, const struct hys_tensor *tensor,
				       int64_t offset_bytes)
{
	struct hys_tensor staged = *tensor;

	staged.host = NULL;
	staged.buffer = lane->workspace;
	staged.offset = offset_bytes / (int64_t)hys_dtype_size(tensor->dtype);
	make_contiguous(&staged);
	return staged;
}

static struct hys_tensor replica_tensor(const struct hys_exec *exec, int32_t lane,
					const struct hys_tensor *tensor)
{
	struct hys_buffer *replica = tensor->buffer->replicas[lane];
	struct hys_tensor own = *tensor;

	if (exec->plan->devices[lane]->host_memory) {
		own.buffer = NULL;
		own.host = (char *)replica->native +
			   tensor->offset * (int64_t)hys_dtype_size(tensor->dtype);
		own.offset = 0;
	} else {
		own.buffer = replica;
	}
	return own;
}

static struct hys_region workspace_region(const struct hys_exec *exec, int32_t lane,
					  const struct hys_task *task)
{
	struct hys_buffer *workspace = exec->lanes[lane].workspace;
	struct hys_region region = {.bytes = task->call.workspace.bytes};

	if (workspace && exec->plan->devices[lane]->host_memory) {
		region.host = (char *)workspace->native + task->workspace_offset;
	} else {
		region.buffer = workspace;
		region.offset_bytes = task->workspace_offset;
	}
	return region;
}

/* Rewrites the call's tensors to where the kernel finds them. */
static void place(const struct hys_exec *exec, int32_t lane, const struct hys_task *task,
		  struct hys_call *call)
{
	const struct hys_fields *fields = hys_op_fields(call->op);

	for (int32_t i = 0; i < fields->count; i++) {
		struct hys_tensor *tensor = hys_field_tensor(&fields->fields[i], &call->args);

		if (!hys_present(tensor))
			continue;
		if (task->slot_offset[i] >= 0)
			*tensor = sums_tensor(exec, lane, task, tensor, i);
		else if (task->stage_offset[i] >= 0)
			*tensor = staged_tensor(&exec->lanes[lane], tensor, task->stage_offset[i]);
		else if (tensor->buffer && exec->gather)
			*tensor = replica_tensor(exec, lane, tensor);
	}
	call->workspace = workspace_region(exec, lane, task);
}

/* The copy between a host tensor and its contiguous twin in the workspace. */
static struct hys_copy copy_of(const struct hys_tensor *host, const struct hys_tensor *staged)
{
	const int64_t size = (int64_t)hys_dtype_size(host->dtype);
	const int32_t last = host->rank - 1;
	struct hys_copy copy = {
		.host = host->host,
		.bytes = host->shape[last] * size,
		.count = {1, 1},
	};

	for (int32_t d = 0; d < last; d++) {
		copy.count[d] = host->shape[d];
		copy.host_pitch[d] = host->stride[d] * size;
		copy.device_pitch[d] = staged->stride[d] * size;
	}
	copy.device.buffer = staged->buffer;
	copy.device.offset_bytes = staged->offset * size;
	copy.device.bytes = hys_tensor_elements(staged) * size;
	return copy;
}

static struct hys_region region_of(const struct hys_tensor *tensor)
{
	const int64_t size = (int64_t)hys_dtype_size(tensor->dtype);
	struct hys_region region = {.bytes = hys_tensor_elements(tensor) * size};

	if (tensor->buffer) {
		region.buffer = tensor->buffer;
		region.offset_bytes = tensor->offset * size;
	} else {
		region.host = tensor->host;
	}
	return region;
}

/* Whether the kernel needs what the field holds before. */
static bool goes_in(const struct hys_task *task, const struct hys_field *field, int32_t i)
{
	if (field->flags & HYS_FIELD_OUT)
		return task->keeps;
	return task->part == 0 || has_rows(task, i);
}

/* Partial outputs that are added to start from nothing in each lane. */
static hys_status bring_in(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			   struct hys_call *call, struct hys_error *error)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	struct hys_stream *stream = exec->lanes[lane].stream;
	struct hys_call *given = (struct hys_call *)(uintptr_t)&task->call;
	const struct hys_fields *fields = hys_op_fields(call->op);
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		const struct hys_tensor *tensor = hys_field_tensor(field, &call->args);
		const struct hys_region region = region_of(tensor);
		struct hys_copy copy;

		if (!hys_present(tensor) || region.bytes == 0 || !goes_in(task, field, i))
			continue;
		if (task->slot_offset[i] >= 0) {
			HYS_TRY(backend->fill(stream, &region, 0, error));
		} else if (task->stage_offset[i] >= 0) {
			copy = copy_of(hys_field_tensor(field, &given->args), tensor);
			HYS_TRY(backend->copy_in(stream, &copy, error));
		}
	}
cleanup:
	return status;
}

static hys_status bring_out(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			    struct hys_call *call, struct hys_error *error)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	struct hys_call *given = (struct hys_call *)(uintptr_t)&task->call;
	const struct hys_fields *fields = hys_op_fields(call->op);
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		const struct hys_tensor *tensor = hys_field_tensor(field, &call->args);
		struct hys_copy copy;

		if (task->stage_offset[i] < 0 || !(field->flags & HYS_FIELD_OUT) ||
		    hys_tensor_elements(tensor) == 0)
			continue;
		copy = copy_of(hys_field_tensor(field, &given->args), tensor);
		HYS_TRY(backend->copy_out(exec->lanes[lane].stream, &copy, error));
	}
cleanup:
	return status;
}

/* Adds what this piece has summed to what those before it have. */
static hys_status add_sums(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			   struct hys_call *call, struct hys_error *error)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	const struct hys_fields *fields = hys_op_fields(call->op);
	hys_status status = HYS_OK;

	for (int32_t i = 0; task->part > 0 && i < fields->count; i++) {
		const struct hys_tensor *tensor = hys_field_tensor(&fields->fields[i], &call->args);
		const struct hys_region part = region_of(tensor);
		struct hys_region sums = part;

		if (task->slot_offset[i] < 0 || part.bytes == 0)
			continue;
		if (sums.buffer)
			sums.offset_bytes -= task->sums_bytes;
		else
			sums.host = (char *)sums.host - task->sums_bytes;
		HYS_TRY(backend->add(exec->lanes[lane].stream, &sums, &part, tensor->dtype, error));
	}
cleanup:
	return status;
}

hys_status hys_stage_sums_out(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			      struct hys_error *error)
{
	const struct hys_device *device = exec->plan->devices[lane];
	const struct hys_copy copy = {
		.host = device->host_memory ? NULL : hys_gather_slot(exec->gather, lane),
		.device = {NULL, exec->lanes[lane].workspace, 0, task->sums_bytes},
		.bytes = task->sums_bytes,
		.count = {1, 1},
	};

	if (device->host_memory || task->sums_bytes == 0)
		return HYS_OK;
	return device->backend->copy_out(exec->lanes[lane].stream, &copy, error);
}

hys_status hys_stage_run(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			 struct hys_error *error)
{
	const struct hys_kernel *kernel = hys_plan_choice(exec->plan, task->call.op, lane)->kernel;
	struct hys_lane *own = &exec->lanes[lane];
	struct hys_call call = task->call;
	double begun;
	hys_status status;

	begun = hys_trace_begin(exec, lane);
	place(exec, lane, task, &call);
	HYS_TRY(bring_in(exec, lane, task, &call, error));
	hys_trace_note(exec, lane, "copy in", &call, begun);
	begun = hys_trace_begin(exec, lane);
	HYS_TRY(kernel->run(kernel, own->stream, own->instances[call.op], &call, error));
	HYS_TRY(add_sums(exec, lane, task, &call, error));
	hys_trace_note(exec, lane, "kernel", &call, begun);
	begun = hys_trace_begin(exec, lane);
	HYS_TRY(bring_out(exec, lane, task, &call, error));
	hys_trace_note(exec, lane, "copy out", &call, begun);
cleanup:
	return status;
}
