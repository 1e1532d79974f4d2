/* ocl_merge.c - merging partial attention. */
#include "ocl_merge.h"

#define LOCAL 64

static void define(const struct hys_ocl_source *own, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	(void)own;
	(void)device;
	hys_ocl_define(options, "O_TYPE", problem->attending.dtype);
	hys_ocl_define(options, "HEADS", problem->attending.heads);
	hys_ocl_define(options, "VALUE_DIM", problem->attending.value_dim);
}

static const char *const entries[] = {"merge", NULL};
const struct hys_ocl_source hys_ocl_merge_source = {"merge.cl", entries, define, NULL, NULL};

hys_status hys_ocl_merge(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			 const struct hys_call *call, struct hys_error *error)
{
	const struct hys_merge_args *merge = &call->args.merge;
	const int64_t groups = call->problem->attending.heads * call->size.rows;
	const int64_t local = LOCAL;
	struct hys_ocl_args args = hys_ocl_begin(stream, instance, 0);
	(void)kernel;
	hys_ocl_arg_tensor(&args, &merge->o_a);
	hys_ocl_arg_tensor(&args, &merge->o_b);
	hys_ocl_arg_tensor(&args, &merge->lse_a);
	hys_ocl_arg_tensor(&args, &merge->lse_b);
	hys_ocl_arg_tensor(&args, &merge->o);
	hys_ocl_arg_tensor(&args, &merge->lse);
	return hys_ocl_launch(&args, 1, &groups, &local, error);
}
