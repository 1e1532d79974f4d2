/* hyscale/opencl.h - share an OpenCL context with the library.
 *
 * The only public header that names OpenCL. Make the hys_context with a
 * hys_native_device, wrap cl_mem objects as buffers, give the exec a queue;
 * the library then enqueues into it, in order, and never flushes or finishes
 * it. Everything else works as with the library's own devices.
 * Without WITH_OPENCL these functions answer HYS_UNSUPPORTED. */
#ifndef HYSCALE_OPENCL_H
#define HYSCALE_OPENCL_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include "exec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For hys_context_options.natives. */
static inline struct hys_native_device hys_opencl_device(cl_context context, cl_device_id device)
{
	struct hys_native_device native = {"opencl", context, device};
	return native;
}

/* A cl_mem as a buffer; the caller keeps its own reference until the buffer is
 * destroyed. Statuses of hys_buffer_wrap. */
static inline hys_status hys_opencl_buffer(struct hys_context *context, int32_t device,
					   cl_mem memory, int64_t bytes, struct hys_buffer **buffer,
					   struct hys_error *error)
{
	return hys_buffer_wrap(context, device, memory, bytes, buffer, error);
}

/* Work given to `exec` from now on waits for these events. They may be
 * released right after. */
HYS_API hys_status hys_opencl_wait(struct hys_exec *exec, cl_uint count, const cl_event *events,
				   struct hys_error *error);
/* An event that is reached when everything given to `exec` so far is done; the
 * caller releases it. */
HYS_API hys_status hys_opencl_record(struct hys_exec *exec, cl_event *event,
				     struct hys_error *error);

#ifdef __cplusplus
}
#endif
#endif
