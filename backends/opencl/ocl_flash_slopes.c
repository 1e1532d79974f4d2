/* ocl_flash_slopes.c - dq of slopes that the key pass keeps. Host side of cl_kernels/flash_backward_slopes.clh. */
#include "ocl_flash_backward.h"

#define SLOPE_ROWS 16 /* of which slopes are kept at once */
#define SLOPE_WARPS 7 /* that sum; one more fetches */
#define SLOPE_THREADS (SLOPE_WARPS * 32 + 32)
#define SLOPE_GROUPS 2 /* of a unit */
#define SLOPE_PLACES 6
#define BARRIER_BYTES 1024

bool hys_ocl_keeps_slopes(const struct hys_problem *problem)
{
	const struct hys_attending *attending = &problem->attending;
	const struct hys_ocl_packed_rows packed = hys_ocl_backward_packed(problem);
	return !hys_ocl_flash_is_dense(problem) && attending->window == 0 &&
	       attending->first == 0 && packed.pad % SLOPE_ROWS == 0 &&
	       packed.bundles == packed.groups;
}

int64_t hys_ocl_slopes_bytes(const struct hys_problem *problem, int64_t rows, int64_t topk)
{
	const struct hys_ocl_packed_rows packed = hys_ocl_backward_packed(problem);
	const int64_t row =
		hys_mul64((int64_t)packed.bundles * packed.pad * HYS_OCL_LISTED_KEYS * 2,
			  hys_ocl_flash_reached(problem, topk));
	return hys_ocl_keeps_slopes(problem) ? hys_mul64(rows, row) : 0;
}

int64_t hys_ocl_slopes_local(const struct hys_problem *problem)
{
	return (int64_t)SLOPE_PLACES * HYS_OCL_LISTED_KEYS * HYS_OCL_PANEL_BYTES *
		       hys_ocl_panels(problem->attending.head_dim) +
	       BARRIER_BYTES;
}

int64_t hys_ocl_slopes_of(const struct hys_ocl_backward *backward)
{
	const struct hys_attention_grad_args *tensors = &backward->call->args.attention_grad;
	const bool keys = hys_present(&tensors->dk) || hys_present(&tensors->dv);
	const bool listed = backward->sets == 1u << LISTED && !hys_present(&backward->sources[1].k);

	return backward->way->lists && listed && keys && hys_present(&tensors->dq)
		       ? backward->slopes
		       : -1;
}

hys_status hys_ocl_sum_slopes(const struct hys_ocl_backward *backward)
{
	const struct hys_attention_grad_args *tensors = &backward->chunk.args.attention_grad;
	const struct hys_ocl_packed_rows *packed = &backward->packed;
	const struct hys_ocl_put to =
		hys_ocl_backward_gradient(&tensors->dq, tensors->flags & HYS_GRAD_ACCUMULATE);
	const int64_t blocks = (int64_t)packed->rows * packed->pad / SLOPE_ROWS;
	const int64_t items = hys_ocl_divide_up(blocks, SLOPE_WARPS) * packed->bundles;
	const int64_t units = backward->job.stream->device->base.info.compute_units;
	struct hys_ocl_args args =
		hys_ocl_begin_named(backward->job.stream, backward->job.instance, "sum_slopes");
	hys_ocl_arg_tensor(&args, &tensors->dq);
	hys_ocl_arg(&args, &to, sizeof(to));
	hys_ocl_arg_work(&args, &backward->job);
	hys_ocl_arg(&args, &backward->flash, sizeof(backward->flash));
	hys_ocl_arg(&args, packed, sizeof(*packed));
	hys_ocl_arg(&args, &backward->lists, sizeof(backward->lists));
	return hys_ocl_flash_launch(&args, hys_min64(items, units * SLOPE_GROUPS) * SLOPE_THREADS,
				    SLOPE_THREADS, backward->job.error);
}
