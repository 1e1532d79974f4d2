/* ocl_add.c - adds what devices have summed apart. */
#include "ocl_internal.h"

#define ADD_LOCAL 64
#define ADD_GROUPS_MAX 8192

static const char *const entries[] = {"add_f32", "add_i32", NULL};
const struct hys_ocl_source hys_ocl_add_source = {"add.cl", entries, NULL, NULL, NULL};

hys_status hys_ocl_add_prepare(struct hys_stream *stream, struct hys_error *error)
{
	cl_int code = CL_SUCCESS;
	hys_status status = hys_ocl_program_build(stream->device, &hys_ocl_add_source, NULL,
						  &stream->add_program, error);
	if (status != HYS_OK)
		return status;
	stream->add.entries = entries;
	for (; entries[stream->add.count] && code == CL_SUCCESS; stream->add.count++)
		stream->add.kernels[stream->add.count] =
			clCreateKernel(stream->add_program, entries[stream->add.count], &code);
	return hys_ocl_check(error, code, "clCreateKernel");
}

void hys_ocl_add_clear(struct hys_stream *stream)
{
	for (int32_t i = 0; i < stream->add.count; i++)
		if (stream->add.kernels[i])
			clReleaseKernel(stream->add.kernels[i]);
	if (stream->add_program)
		clReleaseProgram(stream->add_program);
}

hys_status hys_ocl_add(struct hys_stream *stream, const struct hys_region *target,
		       const struct hys_region *part, hys_dtype dtype, struct hys_error *error)
{
	const int64_t count = target->bytes / 4, local = ADD_LOCAL;
	const int64_t groups = hys_min64(hys_ocl_divide_up(count, ADD_LOCAL), ADD_GROUPS_MAX);
	struct hys_ocl_args args = hys_ocl_begin(stream, &stream->add, dtype == HYS_I32);
	hys_ocl_arg_region(&args, target, 0);
	hys_ocl_arg_region(&args, part, 0);
	hys_ocl_arg_i64(&args, count);
	return hys_ocl_launch(&args, 1, &groups, &local, error);
}
