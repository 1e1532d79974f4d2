#include "core.h"

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

/* In a forked child the driver is not to be touched: only host memory goes. */
void hys_buffer_destroy(struct hys_buffer *buffer)
{
	struct hys_context *context;

	if (!buffer)
		return;
	context = buffer->context;
	if (!buffer->wrapped && hys_context_check(context, NULL) == HYS_OK)
		buffer->device->backend->buffer_destroy(buffer);
	hys_free(&context->host.allocator, buffer);
	hys_context_release(context);
}

int64_t hys_buffer_bytes(const struct hys_buffer *buffer)
{
	return buffer ? buffer->bytes : 0;
}

/* The lane of the buffer's device; -1 when the plan has none. */
static int32_t find_lane(const struct hys_exec *exec, const struct hys_buffer *buffer)
{
	const struct hys_plan *plan = exec->plan;

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

static hys_status submit_copy(struct hys_exec *exec, struct hys_buffer *buffer,
			      int64_t offset_bytes, void *host, int64_t bytes, hys_task_run *run,
			      struct hys_error *error)
{
	struct hys_task task = {.run = run};
	int32_t lane = 0;
	hys_status status = check_copy(exec, buffer, offset_bytes, host, bytes, &lane, error);

	if (status != HYS_OK || bytes == 0)
		return status;
	task.copy.host = host;
	task.copy.device = (struct hys_region){NULL, buffer, offset_bytes, bytes};
	task.copy.bytes = bytes;
	task.copy.count[0] = task.copy.count[1] = 1;
	return hys_exec_submit(exec, lane, &task, error);
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
	struct hys_task task = {.run = run_fill, .value = value};
	int32_t lane = 0;
	hys_status status = check_copy(exec, buffer, offset_bytes, buffer, bytes, &lane, error);

	if (status != HYS_OK || bytes == 0)
		return status;
	task.region = (struct hys_region){NULL, buffer, offset_bytes, bytes};
	return hys_exec_submit(exec, lane, &task, error);
}
