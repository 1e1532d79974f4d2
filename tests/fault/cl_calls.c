/* One wrapper per OpenCL function that the backend uses. A function without one
 * here does not link: give it a line. */
#include "cl_calls.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <CL/cl.h>

static atomic_long made, fail_at, live;
static const char *_Atomic failed;

void cl_calls_arm(long number)
{
	atomic_store(&made, 0);
	atomic_store(&fail_at, number);
}

bool cl_calls_fired(void)
{
	return atomic_load(&fail_at) > 0 && atomic_load(&made) >= atomic_load(&fail_at);
}

long cl_calls_live(void)
{
	return atomic_load(&live);
}

const char *cl_calls_failed(void)
{
	return atomic_load(&failed);
}

/* What the call answers instead of being made; CL_SUCCESS = it is to be made. Errors of
 * several kinds take their turns. */
static cl_int strike(const char *name)
{
	static const cl_int errors[] = {CL_OUT_OF_RESOURCES, CL_DEVICE_NOT_AVAILABLE,
					CL_OUT_OF_HOST_MEMORY, CL_INVALID_OPERATION};
	const long number = atomic_fetch_add(&made, 1) + 1;

	if (number != atomic_load(&fail_at))
		return CL_SUCCESS;
	atomic_store(&failed, name);
	return errors[number % 4];
}

static void hold(bool held)
{
	if (held)
		atomic_fetch_add(&live, 1);
}

/* HYS_PLANT=leaked_buffer: one buffer is never released, as a bug of the library would do it,
 * to see that whoever counts notices. */
static bool leaks(const char *release)
{
	static atomic_flag leaked = ATOMIC_FLAG_INIT;
	const char *plant = getenv("HYS_PLANT");

	return plant && strcmp(plant, "leaked_buffer") == 0 &&
	       strcmp(release, "clReleaseMemObject") == 0 && !atomic_flag_test_and_set(&leaked);
}

/* clang-format off */

/* Answers a cl_int and makes nothing. */
#define PLAIN(name, parameters, arguments)                                \
	cl_int __real_##name parameters;                                  \
	cl_int __wrap_##name parameters;                                  \
	cl_int __wrap_##name parameters                                   \
	{                                                                 \
		const cl_int error = strike(#name);                       \
		return error != CL_SUCCESS ? error : __real_##name arguments; \
	}
/* Answers an object, and the error through its last parameter. */
#define CREATE(type, name, parameters, arguments)                         \
	type __real_##name parameters;                                    \
	type __wrap_##name parameters;                                    \
	type __wrap_##name parameters                                     \
	{                                                                 \
		const cl_int struck = strike(#name);                      \
		type object = NULL;                                       \
		if (struck == CL_SUCCESS)                                 \
			object = __real_##name arguments;                 \
		else if (error)                                           \
			*error = struck;                                  \
		hold(object != NULL);                                     \
		return object;                                            \
	}
/* Its last parameter, `event`, may ask for one. */
#define ENQUEUE(name, parameters, arguments)                              \
	cl_int __real_##name parameters;                                  \
	cl_int __wrap_##name parameters;                                  \
	cl_int __wrap_##name parameters                                   \
	{                                                                 \
		cl_int error = strike(#name);                             \
		if (error == CL_SUCCESS)                                  \
			error = __real_##name arguments;                  \
		hold(error == CL_SUCCESS && event);                       \
		return error;                                             \
	}
#define RETAIN(name, type)                                                \
	cl_int __real_##name(type object);                                \
	cl_int __wrap_##name(type object);                                \
	cl_int __wrap_##name(type object)                                 \
	{                                                                 \
		cl_int error = strike(#name);                             \
		if (error == CL_SUCCESS)                                  \
			error = __real_##name(object);                    \
		hold(error == CL_SUCCESS);                                \
		return error;                                             \
	}
/* Released though it is said to have failed: nobody could do anything about it. */
#define RELEASE(name, type)                                               \
	cl_int __real_##name(type object);                                \
	cl_int __wrap_##name(type object);                                \
	cl_int __wrap_##name(type object)                                 \
	{                                                                 \
		const cl_int struck = strike(#name);                      \
		const cl_int error = leaks(#name) ? CL_INVALID_MEM_OBJECT : __real_##name(object); \
		if (error == CL_SUCCESS)                                  \
			atomic_fetch_sub(&live, 1);                       \
		return struck != CL_SUCCESS ? struck : error;             \
	}

typedef void (CL_CALLBACK *context_notify)(const char *, const void *, size_t, void *);
typedef void (CL_CALLBACK *build_notify)(cl_program, void *);

PLAIN(clGetPlatformIDs, (cl_uint n, cl_platform_id *ids, cl_uint *count), (n, ids, count))
PLAIN(clGetPlatformInfo, (cl_platform_id id, cl_platform_info what, size_t n, void *value, size_t *size),
      (id, what, n, value, size))
PLAIN(clGetDeviceIDs, (cl_platform_id id, cl_device_type type, cl_uint n, cl_device_id *ids, cl_uint *count),
      (id, type, n, ids, count))
PLAIN(clGetDeviceInfo, (cl_device_id id, cl_device_info what, size_t n, void *value, size_t *size),
      (id, what, n, value, size))
PLAIN(clGetProgramInfo, (cl_program id, cl_program_info what, size_t n, void *value, size_t *size),
      (id, what, n, value, size))
PLAIN(clGetProgramBuildInfo, (cl_program id, cl_device_id device, cl_program_build_info what, size_t n, void *value, size_t *size),
      (id, device, what, n, value, size))
PLAIN(clGetCommandQueueInfo, (cl_command_queue id, cl_command_queue_info what, size_t n, void *value, size_t *size),
      (id, what, n, value, size))
PLAIN(clGetEventInfo, (cl_event id, cl_event_info what, size_t n, void *value, size_t *size),
      (id, what, n, value, size))
PLAIN(clGetEventProfilingInfo, (cl_event id, cl_profiling_info what, size_t n, void *value, size_t *size),
      (id, what, n, value, size))
PLAIN(clBuildProgram, (cl_program id, cl_uint n, const cl_device_id *devices, const char *options, build_notify notify, void *user),
      (id, n, devices, options, notify, user))
PLAIN(clSetKernelArg, (cl_kernel id, cl_uint i, size_t size, const void *value), (id, i, size, value))
PLAIN(clFinish, (cl_command_queue id), (id))
PLAIN(clFlush, (cl_command_queue id), (id))
PLAIN(clWaitForEvents, (cl_uint n, const cl_event *events), (n, events))

CREATE(cl_context, clCreateContext,
       (const cl_context_properties *properties, cl_uint n, const cl_device_id *devices, context_notify notify, void *user, cl_int *error),
       (properties, n, devices, notify, user, error))
CREATE(cl_command_queue, clCreateCommandQueue,
       (cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *error),
       (context, device, properties, error))
CREATE(cl_mem, clCreateBuffer, (cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *error),
       (context, flags, size, host, error))
CREATE(cl_program, clCreateProgramWithSource,
       (cl_context context, cl_uint n, const char **texts, const size_t *lengths, cl_int *error),
       (context, n, texts, lengths, error))
CREATE(cl_program, clCreateProgramWithBinary,
       (cl_context context, cl_uint n, const cl_device_id *devices, const size_t *lengths, const unsigned char **binaries, cl_int *status, cl_int *error),
       (context, n, devices, lengths, binaries, status, error))
CREATE(cl_kernel, clCreateKernel, (cl_program program, const char *name, cl_int *error), (program, name, error))

ENQUEUE(clEnqueueNDRangeKernel,
	(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset, const size_t *global, const size_t *local, cl_uint n, const cl_event *list, cl_event *event),
	(queue, kernel, dims, offset, global, local, n, list, event))
ENQUEUE(clEnqueueReadBuffer,
	(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size, void *host, cl_uint n, const cl_event *list, cl_event *event),
	(queue, buffer, blocking, offset, size, host, n, list, event))
ENQUEUE(clEnqueueWriteBuffer,
	(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size, const void *host, cl_uint n, const cl_event *list, cl_event *event),
	(queue, buffer, blocking, offset, size, host, n, list, event))
ENQUEUE(clEnqueueReadBufferRect,
	(cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t *at, const size_t *host_at, const size_t *region, size_t row, size_t slice, size_t host_row, size_t host_slice, void *host, cl_uint n, const cl_event *list, cl_event *event),
	(queue, buffer, blocking, at, host_at, region, row, slice, host_row, host_slice, host, n, list, event))
ENQUEUE(clEnqueueWriteBufferRect,
	(cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t *at, const size_t *host_at, const size_t *region, size_t row, size_t slice, size_t host_row, size_t host_slice, const void *host, cl_uint n, const cl_event *list, cl_event *event),
	(queue, buffer, blocking, at, host_at, region, row, slice, host_row, host_slice, host, n, list, event))
ENQUEUE(clEnqueueFillBuffer,
	(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t length, size_t offset, size_t size, cl_uint n, const cl_event *list, cl_event *event),
	(queue, buffer, pattern, length, offset, size, n, list, event))
ENQUEUE(clEnqueueCopyBuffer,
	(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_at, size_t to_at, size_t size, cl_uint n, const cl_event *list, cl_event *event),
	(queue, from, to, from_at, to_at, size, n, list, event))
ENQUEUE(clEnqueueMarkerWithWaitList, (cl_command_queue queue, cl_uint n, const cl_event *list, cl_event *event),
	(queue, n, list, event))
ENQUEUE(clEnqueueBarrierWithWaitList, (cl_command_queue queue, cl_uint n, const cl_event *list, cl_event *event),
	(queue, n, list, event))

ENQUEUE(clEnqueueUnmapMemObject, (cl_command_queue queue, cl_mem memory, void *host, cl_uint n, const cl_event *list, cl_event *event),
	(queue, memory, host, n, list, event))

/* Answers memory, which goes with the object that is mapped. */
#define MAP (cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags, size_t at, size_t size, cl_uint n, const cl_event *list, cl_event *event, cl_int *error)
void *__real_clEnqueueMapBuffer MAP;
void *__wrap_clEnqueueMapBuffer MAP;
void *__wrap_clEnqueueMapBuffer MAP
{
	const cl_int struck = strike("clEnqueueMapBuffer");

	if (struck == CL_SUCCESS)
		return __real_clEnqueueMapBuffer(queue, buffer, blocking, flags, at, size, n, list, event, error);
	if (error)
		*error = struck;
	return NULL;
}

RETAIN(clRetainContext, cl_context)
RETAIN(clRetainCommandQueue, cl_command_queue)

RELEASE(clReleaseContext, cl_context)
RELEASE(clReleaseCommandQueue, cl_command_queue)
RELEASE(clReleaseMemObject, cl_mem)
RELEASE(clReleaseProgram, cl_program)
RELEASE(clReleaseKernel, cl_kernel)
RELEASE(clReleaseEvent, cl_event)
