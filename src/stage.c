/* Running an operation on a lane. Where the device cannot reach host memory,
 * host tensors are copied to the lane's workspace, contiguous, and results
 * back, run by run, so that what lies between an output's strides stays. */
#include "core.h"

/* Partial outputs are summed in f32 whatever the caller's type. */
static hys_dtype part_dtype(const struct hys_tensor *tensor)
{
	return tensor->dtype == HYS_I32 ? HYS_I32 : HYS_F32;
}

int64_t hys_stage_layout(const struct hys_plan *plan, int32_t lane, struct hys_task *task)
{
	const struct hys_device *device = plan->devices[lane];
	const struct hys_kernel *kernel = hys_plan_choice(plan, task->call.op, lane)->kernel;
	const struct hys_fields *fields = hys_op_fields(task->call.op);
	int64_t bytes = 0;

	if (kernel->workspace)
		task->call.workspace.bytes = kernel->workspace(kernel, device, &task->call.size);
	bytes = hys_round_up(task->call.workspace.bytes, HYS_ALIGN);
	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_tensor *tensor =
			hys_field_tensor(&fields->fields[i], &task->call.args);
		hys_dtype dtype = tensor->dtype;

		task->stage_offset[i] = -1;
		if (!hys_present(tensor) || tensor->buffer || device->host_memory)
			continue;
		if (task->slot_offset[i] >= 0)
			dtype = part_dtype(tensor);
		task->stage_offset[i] = bytes;
		bytes = hys_add64(bytes, hys_round_up(hys_tensor_elements(tensor) *
							      (int64_t)hys_dtype_size(dtype),
						      HYS_ALIGN));
	}
	return bytes;
}

static void make_contiguous(struct hys_tensor *tensor)
{
	int64_t stride = 1;

	for (int32_t d = tensor->rank - 1; d >= 0; d--) {
		tensor->stride[d] = stride;
		stride *= hys_max64(tensor->shape[d], 1);
	}
}

/* The partial output of a lane in host memory. */
static struct hys_tensor slot_tensor(const struct hys_exec *exec, int32_t lane,
				     const struct hys_tensor *tensor, int64_t offset)
{
	struct hys_tensor slot = *tensor;

	slot.dtype = part_dtype(tensor);
	slot.host = hys_gather_slot(exec->gather, lane) + offset;
	make_contiguous(&slot);
	return slot;
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

/* Where field i is on the host: the caller's tensor or the lane's slot. */
static struct hys_tensor host_tensor(const struct hys_exec *exec, int32_t lane,
				     const struct hys_task *task, int32_t i)
{
	const struct hys_field *field = &hys_op_fields(task->call.op)->fields[i];
	struct hys_call *call = (struct hys_call *)(uintptr_t)&task->call;
	const struct hys_tensor *tensor = hys_field_tensor(field, &call->args);

	if (task->slot_offset[i] < 0)
		return *tensor;
	return slot_tensor(exec, lane, tensor, task->slot_offset[i]);
}

static struct hys_region workspace_region(const struct hys_plan *plan, const struct hys_exec *exec,
					  int32_t lane, int64_t bytes)
{
	struct hys_buffer *workspace = exec->lanes[lane].workspace;
	struct hys_region region = {.bytes = bytes};

	if (workspace && plan->devices[lane]->host_memory)
		region.host = workspace->native;
	else
		region.buffer = workspace;
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
		*tensor = host_tensor(exec, lane, task, i);
		if (task->stage_offset[i] >= 0)
			*tensor = staged_tensor(&exec->lanes[lane], tensor, task->stage_offset[i]);
	}
	call->workspace = workspace_region(exec->plan, exec, lane, task->call.workspace.bytes);
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

/* Partial outputs that are added to start from nothing in each lane. */
static hys_status clear(const struct hys_exec *exec, int32_t lane, const struct hys_tensor *tensor,
			struct hys_error *error)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	const int64_t size = (int64_t)hys_dtype_size(tensor->dtype);
	struct hys_region region = {.bytes = hys_tensor_elements(tensor) * size};

	if (tensor->buffer) {
		region.buffer = tensor->buffer;
		region.offset_bytes = tensor->offset * size;
	} else {
		region.host = tensor->host;
	}
	return backend->fill(exec->lanes[lane].stream, &region, 0, error);
}

static hys_status bring_in(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			   struct hys_call *call, struct hys_error *error)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	const struct hys_fields *fields = hys_op_fields(call->op);
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		const struct hys_tensor *tensor = hys_field_tensor(field, &call->args);
		struct hys_tensor host;
		struct hys_copy copy;

		if (!hys_present(tensor) || hys_tensor_elements(tensor) == 0)
			continue;
		if ((field->flags & HYS_FIELD_OUT) && !task->keeps)
			continue;
		if (task->slot_offset[i] >= 0) {
			HYS_TRY(clear(exec, lane, tensor, error));
		} else if (task->stage_offset[i] >= 0) {
			host = host_tensor(exec, lane, task, i);
			copy = copy_of(&host, tensor);
			HYS_TRY(backend->copy_in(exec->lanes[lane].stream, &copy, error));
		}
	}
cleanup:
	return status;
}

static hys_status bring_out(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			    struct hys_call *call, struct hys_error *error)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	const struct hys_fields *fields = hys_op_fields(call->op);
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		const struct hys_tensor *tensor = hys_field_tensor(field, &call->args);
		struct hys_tensor host;
		struct hys_copy copy;

		if (task->stage_offset[i] < 0 || !(field->flags & HYS_FIELD_OUT) ||
		    hys_tensor_elements(tensor) == 0)
			continue;
		host = host_tensor(exec, lane, task, i);
		copy = copy_of(&host, tensor);
		HYS_TRY(backend->copy_out(exec->lanes[lane].stream, &copy, error));
	}
cleanup:
	return status;
}

hys_status hys_stage_run(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			 struct hys_error *error)
{
	const struct hys_kernel *kernel = hys_plan_choice(exec->plan, task->call.op, lane)->kernel;
	struct hys_lane *own = &exec->lanes[lane];
	struct hys_call call = task->call;
	hys_status status;

	place(exec, lane, task, &call);
	HYS_TRY(bring_in(exec, lane, task, &call, error));
	HYS_TRY(kernel->run(kernel, own->stream, own->instances[call.op], &call, error));
	HYS_TRY(bring_out(exec, lane, task, &call, error));
cleanup:
	return status;
}
