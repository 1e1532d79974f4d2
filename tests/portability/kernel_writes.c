/* With HYS_TEST_KERNEL_WRITES set, what the host writes to a buffer is written by a kernel
 * that copies it from a buffer of exactly that size, and neither buffers nor programs, which
 * may have constants in memory, are released. Oclgrind 21.10 keeps account of initialised
 * memory wrongly otherwise: a fill or a strided write counts for nothing, after a write of a
 * part of a buffer it forgets what kernels store in the rest, and memory in the place of
 * released memory keeps that one's size. The linker sends these calls here. */
#include <stdlib.h>
#include <string.h>

#include <CL/cl.h>

static const char source[] =
	"__kernel void copy(__global const uchar *from, __global uchar *to, ulong offset)\n"
	"{ to[offset + get_global_id(0)] = from[get_global_id(0)]; }\n";

cl_int __real_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_bool wait,
				   size_t offset, size_t bytes, const void *host, cl_uint count,
				   const cl_event *events, cl_event *event);
cl_int __real_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
				     const size_t *offset, const size_t *global,
				     const size_t *local, cl_uint count, const cl_event *events,
				     cl_event *event);

cl_int __real_clReleaseMemObject(cl_mem memory);
cl_int __wrap_clReleaseMemObject(cl_mem memory);
cl_int __wrap_clReleaseMemObject(cl_mem memory)
{
	return getenv("HYS_TEST_KERNEL_WRITES") ? CL_SUCCESS : __real_clReleaseMemObject(memory);
}

cl_int __real_clReleaseProgram(cl_program program);
cl_int __wrap_clReleaseProgram(cl_program program);
cl_int __wrap_clReleaseProgram(cl_program program)
{
	return getenv("HYS_TEST_KERNEL_WRITES") ? CL_SUCCESS : __real_clReleaseProgram(program);
}

/* Not kept for the next write: contexts come and go. */
static cl_kernel build_copy(cl_context context)
{
	const char *text = source;
	cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, NULL);
	cl_kernel kernel = NULL;

	if (program && clBuildProgram(program, 0, NULL, NULL, NULL, NULL) == CL_SUCCESS)
		kernel = clCreateKernel(program, "copy", NULL);
	if (program)
		__real_clReleaseProgram(program);
	return kernel;
}

static cl_int launch(cl_command_queue queue, cl_kernel kernel, cl_mem from, cl_mem to,
		     size_t offset, size_t bytes)
{
	const cl_ulong at = offset;
	cl_int code = clSetKernelArg(kernel, 0, sizeof(from), &from);

	if (code == CL_SUCCESS)
		code = clSetKernelArg(kernel, 1, sizeof(to), &to);
	if (code == CL_SUCCESS)
		code = clSetKernelArg(kernel, 2, sizeof(at), &at);
	if (code == CL_SUCCESS)
		code = __real_clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &bytes, NULL, 0, NULL,
						     NULL);
	return code == CL_SUCCESS ? clFinish(queue) : code;
}

static cl_int write_by_kernel(cl_command_queue queue, cl_mem memory, size_t offset, size_t bytes,
			      const void *host)
{
	cl_context context = NULL;
	cl_kernel kernel = NULL;
	cl_mem from = NULL;
	cl_int code =
		clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL);

	if (code == CL_SUCCESS) {
		kernel = build_copy(context);
		from = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &code);
	}
	if (code == CL_SUCCESS && !kernel)
		code = CL_OUT_OF_RESOURCES;
	if (code == CL_SUCCESS)
		code = __real_clEnqueueWriteBuffer(queue, from, CL_TRUE, 0, bytes, host, 0, NULL,
						   NULL);
	if (code == CL_SUCCESS)
		code = launch(queue, kernel, from, memory, offset, bytes);
	if (kernel)
		clReleaseKernel(kernel);
	if (from)
		__wrap_clReleaseMemObject(from);
	return code;
}

cl_int __wrap_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_bool wait,
				   size_t offset, size_t bytes, const void *host, cl_uint count,
				   const cl_event *events, cl_event *event);
cl_int __wrap_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_bool wait,
				   size_t offset, size_t bytes, const void *host, cl_uint count,
				   const cl_event *events, cl_event *event)
{
	if (getenv("HYS_TEST_KERNEL_WRITES"))
		return write_by_kernel(queue, memory, offset, bytes, host);
	return __real_clEnqueueWriteBuffer(queue, memory, wait, offset, bytes, host, count, events,
					   event);
}

cl_int __real_clEnqueueFillBuffer(cl_command_queue queue, cl_mem memory, const void *pattern,
				  size_t pattern_bytes, size_t offset, size_t bytes, cl_uint count,
				  const cl_event *events, cl_event *event);
cl_int __wrap_clEnqueueFillBuffer(cl_command_queue queue, cl_mem memory, const void *pattern,
				  size_t pattern_bytes, size_t offset, size_t bytes, cl_uint count,
				  const cl_event *events, cl_event *event);
cl_int __wrap_clEnqueueFillBuffer(cl_command_queue queue, cl_mem memory, const void *pattern,
				  size_t pattern_bytes, size_t offset, size_t bytes, cl_uint count,
				  const cl_event *events, cl_event *event)
{
	char *filled;
	cl_int code;

	if (!getenv("HYS_TEST_KERNEL_WRITES"))
		return __real_clEnqueueFillBuffer(queue, memory, pattern, pattern_bytes, offset,
						  bytes, count, events, event);
	if (bytes == 1) /* a new buffer is touched: that is not its contents */
		return CL_SUCCESS;
	filled = malloc(bytes);
	if (!filled)
		return CL_OUT_OF_HOST_MEMORY;
	for (size_t i = 0; i < bytes; i += pattern_bytes)
		memcpy(filled + i, pattern, pattern_bytes);
	code = write_by_kernel(queue, memory, offset, bytes, filled);
	free(filled);
	return code;
}

/* Where row y of slice z begins; pitches of 0 are those of contiguous rows. */
static size_t place(const size_t *origin, const size_t *region, size_t row_pitch,
		    size_t slice_pitch, size_t y, size_t z)
{
	const size_t row = row_pitch ? row_pitch : region[0];
	const size_t slice = slice_pitch ? slice_pitch : row * region[1];

	return origin[0] + (origin[1] + y) * row + (origin[2] + z) * slice;
}

cl_int __real_clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem memory, cl_bool wait,
				       const size_t *to, const size_t *from, const size_t *region,
				       size_t to_row, size_t to_slice, size_t from_row,
				       size_t from_slice, const void *host, cl_uint count,
				       const cl_event *events, cl_event *event);
cl_int __wrap_clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem memory, cl_bool wait,
				       const size_t *to, const size_t *from, const size_t *region,
				       size_t to_row, size_t to_slice, size_t from_row,
				       size_t from_slice, const void *host, cl_uint count,
				       const cl_event *events, cl_event *event);
cl_int __wrap_clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem memory, cl_bool wait,
				       const size_t *to, const size_t *from, const size_t *region,
				       size_t to_row, size_t to_slice, size_t from_row,
				       size_t from_slice, const void *host, cl_uint count,
				       const cl_event *events, cl_event *event)
{
	cl_int code = CL_SUCCESS;

	if (!getenv("HYS_TEST_KERNEL_WRITES"))
		return __real_clEnqueueWriteBufferRect(queue, memory, wait, to, from, region,
						       to_row, to_slice, from_row, from_slice, host,
						       count, events, event);
	for (size_t z = 0; z < region[2]; z++)
		for (size_t y = 0; y < region[1] && code == CL_SUCCESS; y++)
			code = write_by_kernel(queue, memory,
					       place(to, region, to_row, to_slice, y, z), region[0],
					       (const char *)host + place(from, region, from_row,
									  from_slice, y, z));
	return code;
}
