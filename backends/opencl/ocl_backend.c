/* ocl_backend.c - the OpenCL backend: buffers, streams, copies, events. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "ocl_internal.h"

static const char *const capability_names[] = {"cpu",  "clblast", "mma",  "wgmma",
					       "mfma", "wmma",	  "dpas", NULL};

/* ---- buffers ---- */

/* Drivers promise memory that they do not have; writing makes them take it. Not by a fill:
 * NVIDIA's of one byte beyond 2 GiB broke the queue. That a write blocks says only that its
 * source may go: other queues must not come first. Its source stays, for the first write may
 * be under way when the second fails. */
static hys_status touch(struct hys_ocl_device *device, cl_mem memory, int64_t bytes,
			struct hys_error *error)
{
	static const cl_uchar zero = 0;
	const size_t last = (size_t)bytes - 1;
	cl_int code =
		clEnqueueWriteBuffer(device->queue, memory, CL_FALSE, 0, 1, &zero, 0, NULL, NULL);
	if (code == CL_SUCCESS)
		code = clEnqueueWriteBuffer(device->queue, memory, CL_FALSE, last, 1, &zero, 0,
					    NULL, NULL);
	if (code == CL_SUCCESS)
		code = clFinish(device->queue);
	return hys_ocl_check_bytes(error, code, "touching a buffer", bytes);
}

/* Sizes above CL_DEVICE_MAX_MEM_ALLOC_SIZE are tried: many drivers grant them. */
static hys_status buffer_create(struct hys_buffer *buffer, struct hys_error *error)
{
	struct hys_ocl_device *device = hys_ocl_device(buffer->device);
	size_t bytes = buffer->bytes > 0 ? (size_t)buffer->bytes : 1;
	cl_int code = CL_SUCCESS;
	cl_mem memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
	if (!memory)
		return hys_ocl_check_bytes(error, code, "clCreateBuffer", buffer->bytes);
	hys_status status = touch(device, memory, (int64_t)bytes, error);
	if (status == HYS_OK)
		buffer->native = memory;
	else
		clReleaseMemObject(memory);
	return status;
}

static void buffer_destroy(struct hys_buffer *buffer)
{
	if (buffer->native && !buffer->wrapped)
		clReleaseMemObject(buffer->native);
}

/* ---- streams ---- */

static hys_status check_queue(const struct hys_ocl_device *device, cl_command_queue queue,
			      struct hys_error *error)
{
	cl_context context = NULL;
	cl_device_id id = NULL;
	cl_command_queue_properties properties = 0;
	cl_int code =
		clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL);
	if (code == CL_SUCCESS)
		code = clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(id), &id, NULL);
	if (code == CL_SUCCESS)
		code = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(properties),
					     &properties, NULL);
	if (code != CL_SUCCESS)
		return hys_ocl_check(error, code, "clGetCommandQueueInfo of the caller's queue");
	if (context != device->context || id != device->id)
		return hys_fail(
			error, HYS_INVALID_ARGUMENT, 0,
			"native_queues: the queue is not of the context and device \"%s\" that "
			"were given in natives",
			device->base.info.name);
	if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"native_queues: the queue is out of order, expected one in order");
	return HYS_OK;
}

static hys_status open_queue(struct hys_stream *stream, cl_command_queue native,
			     struct hys_error *error)
{
	struct hys_ocl_device *device = stream->device;
	cl_int code = CL_SUCCESS;
	if (!native) {
		stream->queue = clCreateCommandQueue(device->context, device->id, 0, &code);
		return hys_ocl_check(error, code, "clCreateCommandQueue");
	}
	hys_status status = check_queue(device, native, error);
	if (status != HYS_OK)
		return status;
	code = clRetainCommandQueue(native);
	if (code == CL_SUCCESS)
		stream->queue = native;
	stream->native = true;
	return hys_ocl_check(error, code, "clRetainCommandQueue");
}

static hys_status flush(struct hys_stream *stream, struct hys_error *error)
{
	if (stream->native)
		return HYS_OK;
	return hys_ocl_check(error, clFlush(stream->queue), "clFlush");
}

static hys_status finish(struct hys_stream *stream, struct hys_error *error)
{
	if (stream->native)
		return HYS_OK;
	if (stream->device->quirk->finish_forgets) {
		hys_status status = hys_ocl_check(
			error, clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, NULL),
			"clEnqueueMarkerWithWaitList");
		if (status != HYS_OK)
			return status;
	}
	return hys_ocl_check(error, clFinish(stream->queue), "clFinish");
}

static void stream_destroy(struct hys_stream *stream)
{
	if (!stream)
		return;
	/* After a failure work may still be under way on memory that is freed next. */
	if (stream->queue)
		(void)finish(stream, NULL);
	hys_ocl_own_clear(&stream->add);
	hys_ocl_own_clear(&stream->quantize);
	if (stream->queue)
		clReleaseCommandQueue(stream->queue);
	hys_free(&stream->device->base.host->allocator, stream);
}

static hys_status stream_create(struct hys_device *base, void *native_queue,
				struct hys_stream **out, struct hys_error *error)
{
	struct hys_stream *stream = hys_alloc(&base->host->allocator, sizeof(*stream));
	if (!stream)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a stream");
	stream->device = hys_ocl_device(base);
	hys_status status = open_queue(stream, native_queue, error);
	if (status == HYS_OK)
		*out = stream;
	else
		stream_destroy(stream);
	return status;
}

/* ---- pinned host memory ---- */

static void host_destroy(struct hys_stream *stream, void *host, void *native)
{
	cl_mem memory = native;
	if (host &&
	    clEnqueueUnmapMemObject(stream->queue, memory, host, 0, NULL, NULL) == CL_SUCCESS)
		clFinish(stream->queue);
	clReleaseMemObject(memory);
}

static hys_status host_create(struct hys_stream *stream, int64_t bytes, void **host, void **native,
			      struct hys_error *error)
{
	cl_int code = CL_SUCCESS;
	cl_mem memory =
		clCreateBuffer(stream->device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
			       (size_t)bytes, NULL, &code);
	if (!memory)
		return hys_ocl_check_bytes(error, code, "clCreateBuffer", bytes);
	*host = clEnqueueMapBuffer(stream->queue, memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
				   (size_t)bytes, 0, NULL, NULL, &code);
	if (*host) {
		*native = memory;
		return HYS_OK;
	}
	clReleaseMemObject(memory);
	return hys_ocl_check_bytes(error, code, "clEnqueueMapBuffer", bytes);
}

/* ---- copies ---- */

/* One call of OpenCL: count[0] x count[1] runs with pitches that it allows. */
static cl_int copy_rect(struct hys_stream *stream, const struct hys_copy *copy, bool in)
{
	cl_mem memory = copy->device.buffer->native;
	size_t start = (size_t)copy->device.offset_bytes;
	size_t bytes = (size_t)copy->bytes;
	if (copy->count[0] == 1 && copy->count[1] == 1) {
		return in ? clEnqueueWriteBuffer(stream->queue, memory, CL_FALSE, start, bytes,
						 copy->host, 0, NULL, NULL)
			  : clEnqueueReadBuffer(stream->queue, memory, CL_FALSE, start, bytes,
						copy->host, 0, NULL, NULL);
	}
	const size_t here[3] = {start, 0, 0}, there[3] = {0, 0, 0};
	const size_t region[3] = {bytes, (size_t)copy->count[1], (size_t)copy->count[0]};
	size_t device_row = copy->count[1] > 1 ? (size_t)copy->device_pitch[1] : bytes;
	size_t host_row = copy->count[1] > 1 ? (size_t)copy->host_pitch[1] : bytes;
	size_t device_slice = copy->count[0] > 1 ? (size_t)copy->device_pitch[0] : 0;
	size_t host_slice = copy->count[0] > 1 ? (size_t)copy->host_pitch[0] : 0;
	return in ? clEnqueueWriteBufferRect(stream->queue, memory, CL_FALSE, here, there, region,
					     device_row, device_slice, host_row, host_slice,
					     copy->host, 0, NULL, NULL)
		  : clEnqueueReadBufferRect(stream->queue, memory, CL_FALSE, here, there, region,
					    device_row, device_slice, host_row, host_slice,
					    copy->host, 0, NULL, NULL);
}

/* Whether OpenCL takes these pitches: rows must not overlap, slices must be whole rows. */
static bool rect_legal(const struct hys_copy *copy, const int64_t pitch[2])
{
	int64_t row = copy->count[1] > 1 ? pitch[1] : copy->bytes;
	if (row < copy->bytes)
		return false;
	return copy->count[0] == 1 || (pitch[0] >= row * copy->count[1] && pitch[0] % row == 0);
}

/* Runs that lie behind each other on both sides are one. */
static void merge_inner(struct hys_copy *copy)
{
	if (copy->count[1] > 1 && copy->host_pitch[1] == copy->bytes &&
	    copy->device_pitch[1] == copy->bytes) {
		copy->bytes *= copy->count[1];
		copy->count[1] = 1;
	}
}

static void merge_runs(struct hys_copy *copy)
{
	merge_inner(copy);
	if (copy->count[1] > 1)
		return;
	/* the outer ones take the inner ones' place */
	copy->count[1] = copy->count[0];
	copy->host_pitch[1] = copy->host_pitch[0];
	copy->device_pitch[1] = copy->device_pitch[0];
	copy->count[0] = 1;
	merge_inner(copy);
}

/* Splits along a dimension until OpenCL takes the pieces. */
static cl_int copy_split(struct hys_stream *stream, const struct hys_copy *copy, bool in)
{
	if (rect_legal(copy, copy->host_pitch) && rect_legal(copy, copy->device_pitch))
		return copy_rect(stream, copy, in);
	int d = copy->count[0] > 1 ? 0 : 1;
	cl_int code = CL_SUCCESS;
	for (int64_t i = 0; i < copy->count[d] && code == CL_SUCCESS; i++) {
		struct hys_copy part = *copy;
		part.count[d] = 1;
		part.host = (char *)copy->host + i * copy->host_pitch[d];
		part.device.offset_bytes += i * copy->device_pitch[d];
		code = copy_split(stream, &part, in);
	}
	return code;
}

static hys_status copy(struct hys_stream *stream, const struct hys_copy *given, bool in,
		       struct hys_error *error)
{
	struct hys_copy merged = *given;
	if (merged.bytes == 0 || merged.count[0] == 0 || merged.count[1] == 0)
		return HYS_OK;
	merge_runs(&merged);
	return hys_ocl_check_bytes(error, copy_split(stream, &merged, in),
				   in ? "writing a buffer" : "reading a buffer",
				   given->bytes * given->count[0] * given->count[1]);
}

static hys_status copy_in(struct hys_stream *stream, const struct hys_copy *given,
			  struct hys_error *error)
{
	return copy(stream, given, true, error);
}

static hys_status copy_out(struct hys_stream *stream, const struct hys_copy *given,
			   struct hys_error *error)
{
	return copy(stream, given, false, error);
}

static hys_status fill(struct hys_stream *stream, const struct hys_region *region, uint8_t value,
		       struct hys_error *error)
{
	if (region->bytes == 0)
		return HYS_OK;
	cl_uchar pattern[16];
	memset(pattern, value, sizeof(pattern));
	bool wide = region->offset_bytes % 16 == 0 && region->bytes % 16 == 0;
	cl_int code = clEnqueueFillBuffer(stream->queue, region->buffer->native, pattern,
					  wide ? 16 : 1, (size_t)region->offset_bytes,
					  (size_t)region->bytes, 0, NULL, NULL);
	return hys_ocl_check_bytes(error, code, "clEnqueueFillBuffer", region->bytes);
}

static hys_status copy_between(struct hys_stream *stream, const struct hys_region *target,
			       const struct hys_region *source, struct hys_error *error)
{
	if (source->bytes == 0)
		return HYS_OK;
	cl_int code =
		clEnqueueCopyBuffer(stream->queue, source->buffer->native, target->buffer->native,
				    (size_t)source->offset_bytes, (size_t)target->offset_bytes,
				    (size_t)source->bytes, 0, NULL, NULL);
	return hys_ocl_check_bytes(error, code, "clEnqueueCopyBuffer", source->bytes);
}

/* ---- events ---- */

/* Another queue can only wait for work that was flushed. */
static hys_status record(struct hys_stream *stream, void **event, struct hys_error *error)
{
	cl_event made = NULL;
	hys_status status =
		hys_ocl_check(error, clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, &made),
			      "clEnqueueMarkerWithWaitList");
	if (status == HYS_OK)
		status = flush(stream, error);
	if (status == HYS_OK)
		*event = made;
	else if (made)
		clReleaseEvent(made);
	return status;
}

static hys_status event_wait(struct hys_device *device, void *event, struct hys_error *error)
{
	(void)device;
	cl_event waited = event;
	if (!event)
		return HYS_OK;
	return hys_ocl_check(error, clWaitForEvents(1, &waited), "clWaitForEvents");
}

/* A failure ends it, too. */
static bool event_reached(struct hys_device *device, void *event)
{
	cl_int state = CL_COMPLETE;
	(void)device;
	cl_int code = clGetEventInfo((cl_event)event, CL_EVENT_COMMAND_EXECUTION_STATUS,
				     sizeof(state), &state, NULL);
	return code != CL_SUCCESS || state <= CL_COMPLETE;
}

/* Queues can only wait for events of their own context. */
static hys_status stream_wait(struct hys_stream *stream, void *event, struct hys_error *error)
{
	cl_event waited = event;
	cl_context context = NULL;
	if (!event)
		return HYS_OK;
	cl_int code = clGetEventInfo(waited, CL_EVENT_CONTEXT, sizeof(context), &context, NULL);
	if (code != CL_SUCCESS)
		return hys_ocl_check(error, code, "clGetEventInfo");
	if (context != stream->device->context)
		return event_wait(&stream->device->base, event, error);
	return hys_ocl_check(error, clEnqueueBarrierWithWaitList(stream->queue, 1, &waited, NULL),
			     "clEnqueueBarrierWithWaitList");
}

/* Another queue, which keeps times; and how its clock and the host's differ. */
static hys_status time_events(struct hys_stream *stream, struct hys_error *error)
{
	struct hys_ocl_device *device = stream->device;
	struct timespec now;
	cl_event event = NULL;
	cl_ulong then = 0;
	cl_int code = CL_SUCCESS;
	cl_command_queue queue =
		clCreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &code);
	if (!queue)
		return hys_ocl_check(error, code, "clCreateCommandQueue with profiling");
	clReleaseCommandQueue(stream->queue);
	stream->queue = queue;
	code = clEnqueueMarkerWithWaitList(queue, 0, NULL, &event);
	if (code == CL_SUCCESS)
		code = clFinish(queue);
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (code == CL_SUCCESS)
		code = clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(then), &then,
					       NULL);
	if (event)
		clReleaseEvent(event);
	stream->clock_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - 1e-9 * (double)then;
	return hys_ocl_check(error, code, "timing a marker");
}

static double event_time_s(struct hys_stream *stream, void *event)
{
	cl_ulong then = 0;
	if (clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(then), &then, NULL) !=
	    CL_SUCCESS)
		return (double)NAN;
	return stream->clock_s + 1e-9 * (double)then;
}

static void event_destroy(struct hys_device *device, void *event)
{
	(void)device;
	if (event)
		clReleaseEvent(event);
}

const struct hys_backend hys_backend_opencl = {
	.name = "opencl",
	.kernels = hys_ocl_kernels,
	.kernel_count = HYS_OCL_KERNEL_COUNT,
	.capability_names = capability_names,
	.discover = hys_ocl_discover,
	.device_destroy = hys_ocl_device_destroy,
	.measure = hys_ocl_measure,
	.buffer_create = buffer_create,
	.buffer_destroy = buffer_destroy,
	.program_create = hys_ocl_program_create,
	.program_destroy = hys_ocl_program_destroy,
	.stream_create = stream_create,
	.stream_destroy = stream_destroy,
	.instance_create = hys_ocl_instance_create,
	.instance_destroy = hys_ocl_instance_destroy,
	.copy_in = copy_in,
	.copy_out = copy_out,
	.fill = fill,
	.copy = copy_between,
	.host_create = host_create,
	.host_destroy = host_destroy,
	.add_prepare = hys_ocl_add_prepare,
	.add = hys_ocl_add,
	.quantize_prepare = hys_ocl_quantize_prepare,
	.quantize = hys_ocl_quantize,
	.record = record,
	.wait = stream_wait,
	.event_wait = event_wait,
	.event_reached = event_reached,
	.event_destroy = event_destroy,
	.time_events = time_events,
	.event_time_s = event_time_s,
	.flush = flush,
	.finish = finish,
};
