/* ocl_gradient.c - gradients that are sums over rows. */
#include "ocl_gradient.h"

#define LOCAL 64
#define KEYS 16

int64_t hys_ocl_gradient_bytes(hys_dtype dtype, int64_t keys, int64_t heads, int64_t channels)
{
	if (dtype == HYS_F32)
		return 0;
	return hys_round_up(hys_mul64(hys_mul64(keys, heads * channels), (int64_t)sizeof(float)),
			    HYS_ALIGN);
}

/* The arguments that end both kernels. */
static hys_status launch(const struct hys_ocl_job *job, struct hys_ocl_args *args,
			 const struct hys_tensor *out)
{
	const int64_t groups[1] = {hys_ocl_divide_up(out->shape[0], KEYS)};
	const int64_t local[1] = {LOCAL};
	hys_ocl_arg_i64(args, out->shape[0]);
	hys_ocl_arg_i32(args, out->rank == 3 ? out->shape[1] : 1);
	hys_ocl_arg_i32(args, out->shape[out->rank - 1]);
	return hys_ocl_launch(args, 1, groups, local, job->error);
}

hys_status hys_ocl_gradient_open(const struct hys_ocl_job *job, const struct hys_tensor *out,
				 bool accumulate, int64_t at, struct hys_ocl_gradient *gradient)
{
	struct hys_ocl_args args;
	gradient->out = gradient->sums = *out;
	gradient->accumulate = accumulate;
	if (!hys_present(out) || (out->dtype == HYS_F32 && accumulate))
		return HYS_OK;
	if (out->dtype != HYS_F32) {
		gradient->sums.buffer = job->work;
		gradient->sums.offset = at / (int64_t)sizeof(float);
		gradient->sums.dtype = HYS_F32;
		gradient->sums.stride[out->rank - 1] = 1;
		for (int32_t d = out->rank - 2; d >= 0; d--)
			gradient->sums.stride[d] = gradient->sums.stride[d + 1] * out->shape[d + 1];
	}
	args = hys_ocl_begin_named(job->stream, job->instance, "clear_keys");
	hys_ocl_arg_tensor(&args, &gradient->sums);
	return launch(job, &args, out);
}

hys_status hys_ocl_gradient_close(const struct hys_ocl_job *job,
				  const struct hys_ocl_gradient *gradient)
{
	const struct hys_tensor *out = &gradient->out;
	struct hys_ocl_args args;
	if (!hys_present(out) || out->dtype == HYS_F32)
		return HYS_OK;
	args = hys_ocl_begin_named(job->stream, job->instance, "finish_keys");
	hys_ocl_arg_tensor(&args, out);
	hys_ocl_arg_i32(&args, out->dtype);
	hys_ocl_arg_i32(&args, gradient->accumulate);
	hys_ocl_arg_tensor(&args, &gradient->sums);
	return launch(job, &args, out);
}
