#include "core.h"

/* Copies that are done as soon as the device is told of them: it is told of many at
 * once. */
#define SMALL_BYTES ((int64_t)1 << 20)

hys_status hys_buffer_make(struct hys_context *context, struct hys_device *device, int64_t bytes,
			   struct hys_buffer **buffer, struct hys_error *error)
{
	const struct hys_allocator *allocator = &context->host.allocator;
	struct hys_buffer *made;
	hys_status status;

	/* Where size_t has 32 bits, a device may still have more memory. */
	if ((uint64_t)bytes > SIZE_MAX / 2)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "a buffer of %lld bytes",
				(long long)bytes);
	made = hys_alloc(allocator, sizeof(*made));
	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a buffer");
	made->context = context;
	made->device = device;
	made->bytes = bytes;
	status = device->backend->buffer_create(made, error);
	if (status != HYS_OK) {
		hys_free(allocator, made);
		return status;
	}
	hys_context_retain(context);
	*buffer = made;
	return HYS_OK;
}

static hys_status check_new(struct hys_context *context, int32_t i, int64_t bytes,
			    struct hys_buffer **buffer, struct hys_error *error)
{
	hys_status status = hys_context_check(context, error);

	if (status != HYS_OK)
		return status;
	if (!buffer)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "buffer is NULL");
	if (i < 0 || i >= context->device_count)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"device number is %d, expected 0 to %d", i,
				context->device_count - 1);
	if (bytes <= 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "bytes is %lld, expected 1 or more",
				(long long)bytes);
	return HYS_OK;
}

hys_status hys_buffer_create(struct hys_context *context, int32_t i, int64_t bytes,
			     struct hys_buffer **buffer, struct hys_error *error)
{
	hys_status status = check_new(context, i, bytes, buffer, error);

	if (status != HYS_OK)
		return status;
	return hys_buffer_make(context, context->devices[i], bytes, buffer, error);
}

hys_status hys_buffer_wrap(struct hys_context *context, int32_t i, void *native, int64_t bytes,
			   struct hys_buffer **buffer, struct hys_error *error)
{
	hys_status status = check_new(context, i, bytes, buffer, error);
	struct hys_buffer *made;

	if (status != HYS_OK)
		return status;
	if (!native)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "native is NULL");
	made = hys_alloc(&context->host.allocator, sizeof(*made));
	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a buffer");
	made->context = context;
	made->device = context->devices[i];
	made->native = native;
	made->bytes = bytes;
	made->wrapped = true;
	hys_context_retain(context);
	*buffer = made;
	return HYS_OK;
}

static void destroy_replicas(struct hys_buffer *buffer)
{
	for (int32_t i = 0; buffer->replicas && i < buffer->replica_count; i++)
		hys_buffer_destroy(buffer->replicas[i]);
	hys_free(&buffer->context->host.allocator, buffer->replicas);
}

/* In a forked child the driver is not to be touched: only host memory goes. */
void hys_buffer_destroy(struct hys_buffer *buffer)
{
	struct hys_context *context;

	if (!buffer)
		return;
	context = buffer->context;
	destroy_replicas(buffer);
	if (!buffer->wrapped && hys_context_check(context, NULL) == HYS_OK)
		buffer->device->backend->buffer_destroy(buffer);
	hys_free(&context->host.allocator, buffer);
	hys_context_release(context);
}

/* The first copy stands for all where only one is asked for. */
hys_status hys_buffer_replicate(struct hys_plan *plan, int64_t bytes, struct hys_buffer **buffer,
				struct hys_error *error)
{
	struct hys_buffer *made = NULL;
	hys_status status;

	if (!plan)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "plan is NULL");
	HYS_TRY(check_new(plan->context, plan->device_numbers[0], bytes, buffer, error));
	made = hys_alloc(&plan->context->host.allocator, sizeof(*made));
	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a buffer");
	hys_context_retain(plan->context);
	made->context = plan->context;
	made->wrapped = true;
	made->bytes = bytes;
	made->replicas = hys_alloc_array(&plan->context->host.allocator, plan->device_count,
					 sizeof(*made->replicas));
	if (!made->replicas)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a buffer"));
	for (; made->replica_count < plan->device_count; made->replica_count++)
		HYS_TRY(hys_buffer_make(plan->context, plan->devices[made->replica_count], bytes,
					&made->replicas[made->replica_count], error));
	made->device = made->replicas[0]->device;
	made->native = made->replicas[0]->native;
	*buffer = made;
	made = NULL;
cleanup:
	hys_buffer_destroy(made);
	return status;
}

struct hys_region hys_replica_region(const struct hys_tensor *tensor, int32_t i)
{
	const int64_t size = (int64_t)hys_dtype_size(tensor->dtype);
	struct hys_buffer *replica = tensor->buffer->replicas[i];
	struct hys_region region = {.offset_bytes = tensor->offset * size,
				    .bytes = hys_tensor_elements(tensor) * size};

	if (replica->device->host_memory) {
		region.host = (char *)replica->native + region.offset_bytes;
		region.offset_bytes = 0;
	} else {
		region.buffer = replica;
	}
	return region;
}

int64_t hys_buffer_bytes(const struct hys_buffer *buffer)
{
	return buffer ? buffer->bytes : 0;
}

static bool same_devices(const struct hys_plan *plan, const struct hys_buffer *buffer)
{
	bool same = plan->device_count == buffer->replica_count;

	for (int32_t i = 0; same && i < plan->device_count; i++)
		same = plan->devices[i] == buffer->replicas[i]->device;
	return same;
}

/* The lane of the buffer's device; -1 when the plan has none. */
static int32_t find_lane(const struct hys_exec *exec, const struct hys_buffer *buffer)
{
	const struct hys_plan *plan = exec->plan;

	if (buffer->replica_count > 0 && !same_devices(plan, buffer))
		return -1;
	for (int32_t i = 0; i < plan->device_count; i++)
		if (plan->devices[i] == buffer->device)
			return i;
	return -1;
}

static hys_status check_copy(const struct hys_exec *exec, const struct hys_buffer *buffer,
			     int64_t offset_bytes, const void *host, int64_t bytes, int32_t *lane,
			     struct hys_error *error)
{
	hys_status status;

	if (!exec)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "exec is NULL");
	status = hys_context_check(exec->plan->context, error);
	if (status != HYS_OK)
		return status;
	if (!buffer)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "buffer is NULL");
	if (offset_bytes < 0 || bytes < 0 || offset_bytes > buffer->bytes - bytes)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"offset_bytes %lld with bytes %lld, expected a range within the "
				"buffer's %lld",
				(long long)offset_bytes, (long long)bytes,
				(long long)buffer->bytes);
	if (!host && bytes > 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "host memory is NULL");
	*lane = find_lane(exec, buffer);
	if (*lane < 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"buffer is on %s, expected a device of the exec's plan",
				buffer->device->info.name);
	return HYS_OK;
}

static hys_status run_write(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			    struct hys_error *error)
{
	return exec->plan->devices[lane]->backend->copy_in(exec->lanes[lane].stream, &task->copy,
							   error);
}

static hys_status run_read(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			   struct hys_error *error)
{
	return exec->plan->devices[lane]->backend->copy_out(exec->lanes[lane].stream, &task->copy,
							    error);
}

static hys_status run_fill(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			   struct hys_error *error)
{
	return exec->plan->devices[lane]->backend->fill(exec->lanes[lane].stream, &task->region,
							task->value, error);
}

static hys_status run_copy(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			   struct hys_error *error)
{
	return exec->plan->devices[lane]->backend->copy(exec->lanes[lane].stream, &task->region,
							&task->copy.device, error);
}

/* The copy of a buffer that the lane has. */
static struct hys_buffer *copy_on(struct hys_buffer *buffer, int32_t lane)
{
	return buffer->replica_count > 0 ? buffer->replicas[lane] : buffer;
}

static bool is_dropped(struct hys_exec *exec, int32_t lane)
{
	return atomic_load(&exec->lanes[lane].dropped) != 0;
}

static hys_status submit_copy(struct hys_exec *exec, struct hys_buffer *buffer,
			      int64_t offset_bytes, void *host, int64_t bytes, hys_task_run *run,
			      struct hys_error *error)
{
	struct hys_task task = {.run = run};
	int32_t lane = 0, last;
	hys_status status = check_copy(exec, buffer, offset_bytes, host, bytes, &lane, error);

	if (status != HYS_OK || bytes == 0)
		return status;
	last = lane;
	if (buffer->replica_count > 0 && run != run_read)
		last = buffer->replica_count - 1;
	task.copy.host = host;
	task.copy.bytes = bytes;
	task.copy.count[0] = task.copy.count[1] = 1;
	task.lingers = bytes < SMALL_BYTES;
	for (; status == HYS_OK && lane <= last; lane++) {
		if (last > 0 && is_dropped(exec, lane))
			continue;
		task.copy.device =
			(struct hys_region){NULL, copy_on(buffer, lane), offset_bytes, bytes};
		status = hys_exec_submit(exec, lane, &task, error);
	}
	return status;
}

hys_status hys_buffer_write(struct hys_exec *exec, struct hys_buffer *buffer, int64_t offset_bytes,
			    const void *source, int64_t bytes, struct hys_error *error)
{
	return submit_copy(exec, buffer, offset_bytes, (void *)(uintptr_t)source, bytes, run_write,
			   error);
}

hys_status hys_buffer_read(struct hys_exec *exec, struct hys_buffer *buffer, int64_t offset_bytes,
			   void *target, int64_t bytes, struct hys_error *error)
{
	return submit_copy(exec, buffer, offset_bytes, target, bytes, run_read, error);
}

hys_status hys_buffer_fill(struct hys_exec *exec, struct hys_buffer *buffer, int64_t offset_bytes,
			   int64_t bytes, uint8_t value, struct hys_error *error)
{
	struct hys_task task = {.run = run_fill, .value = value, .lingers = true};
	int32_t lane = 0, last;
	hys_status status = check_copy(exec, buffer, offset_bytes, buffer, bytes, &lane, error);

	if (status != HYS_OK || bytes == 0)
		return status;
	last = buffer->replica_count > 0 ? buffer->replica_count - 1 : lane;
	for (; status == HYS_OK && lane <= last; lane++) {
		if (last > 0 && is_dropped(exec, lane))
			continue;
		task.region = (struct hys_region){NULL, copy_on(buffer, lane), offset_bytes, bytes};
		status = hys_exec_submit(exec, lane, &task, error);
	}
	return status;
}

static hys_status check_copies(const struct hys_buffer *target, int64_t target_offset,
			       const struct hys_buffer *source, int64_t source_offset,
			       int64_t bytes, struct hys_error *error)
{
	if (target->replica_count != source->replica_count || target->device != source->device)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"the buffers are on unlike devices, %s and %s",
				target->device->info.name, source->device->info.name);
	if (target == source && target_offset < source_offset + bytes &&
	    source_offset < target_offset + bytes)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"a copy of %lld bytes from %lld to %lld of one buffer, expected "
				"ranges that do not overlap",
				(long long)bytes, (long long)source_offset,
				(long long)target_offset);
	return HYS_OK;
}

hys_status hys_buffer_copy(struct hys_exec *exec, struct hys_buffer *target,
			   int64_t target_offset_bytes, struct hys_buffer *source,
			   int64_t source_offset_bytes, int64_t bytes, struct hys_error *error)
{
	struct hys_task task = {.run = run_copy, .lingers = true};
	int32_t lane = 0, last;
	hys_status status;

	HYS_TRY(check_copy(exec, target, target_offset_bytes, target, bytes, &lane, error));
	HYS_TRY(check_copy(exec, source, source_offset_bytes, source, bytes, &lane, error));
	if (bytes == 0)
		return HYS_OK;
	HYS_TRY(check_copies(target, target_offset_bytes, source, source_offset_bytes, bytes,
			     error));
	last = source->replica_count > 0 ? source->replica_count - 1 : lane;
	for (; lane <= last; lane++) {
		if (last > 0 && is_dropped(exec, lane))
			continue;
		task.region = (struct hys_region){NULL, copy_on(target, lane), target_offset_bytes,
						  bytes};
		task.copy.device = (struct hys_region){NULL, copy_on(source, lane),
						       source_offset_bytes, bytes};
		HYS_TRY(hys_exec_submit(exec, lane, &task, error));
	}
cleanup:
	return status;
}

static hys_status check_rows(const struct hys_exec *exec, const struct hys_batch *batch,
			     const struct hys_tensor *tensor, const void *target,
			     struct hys_error *error)
{
	const char *missing = !exec ? "exec" : !batch ? "batch" : !tensor ? "tensor" : "target";
	hys_status status;

	if (!exec || !batch || !tensor || !target)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL", missing);
	status = hys_context_check(exec->plan->context, error);
	if (status != HYS_OK)
		return status;
	if (!tensor->buffer || tensor->buffer->replica_count != exec->plan->device_count ||
	    !hys_present(tensor) || tensor->rank < 1 || batch->plan != exec->plan)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"tensor is not in a replicated buffer of the plan, or batch is "
				"another plan's");
	if (tensor->shape[0] != batch->rows || tensor->offset < 0 ||
	    (tensor->offset + hys_tensor_elements(tensor)) *
			    (int64_t)hys_dtype_size(tensor->dtype) >
		    tensor->buffer->bytes)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"tensor has %lld rows, expected the batch's %lld, within its "
				"buffer",
				(long long)tensor->shape[0], (long long)batch->rows);
	return HYS_OK;
}

hys_status hys_rows_read(struct hys_exec *exec, struct hys_batch *batch,
			 const struct hys_tensor *tensor, int64_t row_first, int64_t row_count,
			 void *target, struct hys_error *error)
{
	struct hys_task task = {.run = run_read};
	hys_status status = check_rows(exec, batch, tensor, target, error);
	int64_t row_bytes, start;

	if (status != HYS_OK || row_count == 0)
		return status;
	if (row_first < 0 || row_count < 0 || row_first > batch->rows - row_count)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"row_first is %lld and row_count %lld, expected a range of the "
				"batch's %lld rows",
				(long long)row_first, (long long)row_count, (long long)batch->rows);
	row_bytes =
		hys_tensor_elements(tensor) / batch->rows * (int64_t)hys_dtype_size(tensor->dtype);
	start = tensor->offset * (int64_t)hys_dtype_size(tensor->dtype);
	task.copy.count[0] = task.copy.count[1] = 1;
	for (int32_t i = 0; status == HYS_OK && i < batch->range_count; i++) {
		const struct hys_range *range = &batch->ranges[i];
		const int64_t first = hys_max64(range->first, row_first);
		const int64_t end = hys_min64(range->first + range->count, row_first + row_count);

		if (first >= end)
			continue;
		task.copy.bytes = (end - first) * row_bytes;
		task.copy.host = (char *)target + (first - row_first) * row_bytes;
		task.copy.device = (struct hys_region){NULL, tensor->buffer->replicas[range->lane],
						       start + first * row_bytes, task.copy.bytes};
		status = hys_exec_submit(exec, range->lane, &task, error);
	}
	return status;
}
