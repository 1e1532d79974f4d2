/* ocl_add.c - adds what devices have summed apart. */
#include "ocl_internal.h"

#define ADD_LOCAL 64
#define ADD_GROUPS_MAX 8192

static const char *const entries[] = {"add_f32", "add_i32", NULL};
const struct hys_ocl_source hys_ocl_add_source = {"add.cl", entries, NULL, NULL, NULL};

hys_status hys_ocl_own_prepare(struct hys_stream *stream, const struct hys_ocl_source *source,
			       struct hys_ocl_own *own, struct hys_error *error)
{
	hys_status status =
		hys_ocl_program_build(stream->device, source, NULL, &own->program, error);
	if (status == HYS_OK)
		status = hys_ocl_kernels_create(own->program, source, &own->instance, error);
	return status;
}

void hys_ocl_own_clear(struct hys_ocl_own *own)
{
	hys_ocl_kernels_release(&own->instance);
	if (own->program)
		clReleaseProgram(own->program);
}

hys_status hys_ocl_add_prepare(struct hys_stream *stream, struct hys_error *error)
{
	return hys_ocl_own_prepare(stream, &hys_ocl_add_source, &stream->add, error);
}

hys_status hys_ocl_add(struct hys_stream *stream, const struct hys_region *target,
		       const struct hys_region *part, hys_dtype dtype, struct hys_error *error)
{
	const int64_t count = target->bytes / 4, local = ADD_LOCAL;
	const int64_t groups = hys_min64(hys_ocl_divide_up(count, ADD_LOCAL), ADD_GROUPS_MAX);
	struct hys_ocl_args args = hys_ocl_begin(stream, &stream->add.instance, dtype == HYS_I32);
	hys_ocl_arg_region(&args, target, 0);
	hys_ocl_arg_region(&args, part, 0);
	hys_ocl_arg_i64(&args, count);
	return hys_ocl_launch(&args, 1, &groups, &local, error);
}
