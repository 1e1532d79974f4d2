/* ocl_launch.c - kernel arguments and launches. */
#include <stdio.h>
#include <string.h>

#include "ocl_internal.h"

struct hys_ocl_args hys_ocl_begin(struct hys_stream *stream, void *instance, int32_t entry)
{
	const struct hys_ocl_instance *kernels = instance;
	struct hys_ocl_args args = {0};
	args.stream = stream;
	args.kernel = kernels->kernels[entry];
	args.name = kernels->entries[entry];
	return args;
}

struct hys_ocl_args hys_ocl_begin_named(struct hys_stream *stream, void *instance,
					const char *entry)
{
	const struct hys_ocl_instance *kernels = instance;
	for (int32_t i = 0; i < kernels->count; i++)
		if (strcmp(kernels->entries[i], entry) == 0)
			return hys_ocl_begin(stream, instance, i);
	return (struct hys_ocl_args){.stream = stream, .name = entry, .failed = CL_INVALID_KERNEL};
}

void hys_ocl_arg(struct hys_ocl_args *args, const void *value, size_t bytes)
{
	cl_int code = args->kernel ? clSetKernelArg(args->kernel, args->next, bytes, value)
				   : CL_INVALID_KERNEL;
	if (code != CL_SUCCESS && args->failed == CL_SUCCESS) {
		args->failed = code;
		args->failed_at = args->next;
	}
	args->next++;
}

void hys_ocl_arg_i32(struct hys_ocl_args *args, int64_t value)
{
	cl_int number = (cl_int)value;
	hys_ocl_arg(args, &number, sizeof(number));
}

void hys_ocl_arg_i64(struct hys_ocl_args *args, int64_t value)
{
	cl_long number = value;
	hys_ocl_arg(args, &number, sizeof(number));
}

void hys_ocl_arg_f32(struct hys_ocl_args *args, double value)
{
	cl_float number = (cl_float)value;
	hys_ocl_arg(args, &number, sizeof(number));
}

static void arg_memory(struct hys_ocl_args *args, const struct hys_buffer *buffer)
{
	cl_mem memory = buffer ? buffer->native : NULL;
	hys_ocl_arg(args, memory ? &memory : NULL, sizeof(memory));
}

void hys_ocl_arg_tensor(struct hys_ocl_args *args, const struct hys_tensor *tensor)
{
	cl_long4 at = {{-1, 0, 0, 0}};
	if (hys_present(tensor) && tensor->buffer) {
		at.s[0] = tensor->offset;
		for (int32_t d = 0; d < tensor->rank && d < 3; d++)
			at.s[d + 1] = tensor->stride[d];
	}
	arg_memory(args, hys_present(tensor) ? tensor->buffer : NULL);
	hys_ocl_arg(args, &at, sizeof(at));
}

void hys_ocl_arg_array(struct hys_ocl_args *args, const struct hys_tensor *array)
{
	bool present = hys_present(array) && array->buffer;
	arg_memory(args, present ? array->buffer : NULL);
	hys_ocl_arg_i64(args, present ? array->offset : -1);
}

void hys_ocl_arg_region(struct hys_ocl_args *args, const struct hys_region *region, int64_t offset)
{
	arg_memory(args, region->buffer);
	hys_ocl_arg_i64(args, region->offset_bytes + offset);
}

hys_status hys_ocl_launch(struct hys_ocl_args *args, int32_t dims, const int64_t *groups,
			  const int64_t *local, struct hys_error *error)
{
	size_t global_size[3], local_size[3];
	if (args->failed != CL_SUCCESS) {
		char call[96];
		snprintf(call, sizeof(call), "clSetKernelArg of argument %u of %s", args->failed_at,
			 args->name);
		return hys_ocl_check(error, args->failed, call);
	}
	for (int32_t d = 0; d < dims; d++) {
		if (groups[d] == 0)
			return HYS_OK;
		if (d > 0 && groups[d] > HYS_OCL_GROUPS_MAX)
			return hys_fail(error, HYS_INTERNAL, 0, "%lld groups in dimension %d of %s",
					(long long)groups[d], (int)d, args->name);
		if (hys_mul64(groups[d], local[d]) > (int64_t)(SIZE_MAX / 2))
			return hys_fail(error, HYS_UNSUPPORTED, 0,
					"%lld groups of %lld work-items of %s: fewer rows at once",
					(long long)groups[d], (long long)local[d], args->name);
		global_size[d] = (size_t)(groups[d] * local[d]);
		local_size[d] = (size_t)local[d];
	}
	cl_int code = clEnqueueNDRangeKernel(args->stream->queue, args->kernel, (cl_uint)dims, NULL,
					     global_size, local_size, 0, NULL, NULL);
	return hys_ocl_check(error, code, args->name);
}
