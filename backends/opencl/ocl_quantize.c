/* ocl_quantize.c - vectors to f8. */
#include "ocl_internal.h"

#define LOCAL 256
#define VECTORS 16 /* of a work-group */
#define CLOSE 8	   /* elements of a work-item beside each other */

/* Vectors of a launch, which kernels count in 32 bits. */
#define LAUNCHED_MAX (INT64_C(1) << 30)

static void define(const struct hys_ocl_source *own, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	(void)own;
	(void)problem;
	if (device->compute_capability >= 89)
		hys_ocl_define(options, "CONVERT_F8", 1);
}

static const char *const entries[] = {"quantize_f32", "quantize_f16", "quantize_bf16", NULL};
const struct hys_ocl_source hys_ocl_quantize_source = {"quantize.cl", entries, define, NULL, NULL};

hys_status hys_ocl_quantize_prepare(struct hys_stream *stream, struct hys_error *error)
{
	return hys_ocl_own_prepare(stream, &hys_ocl_quantize_source, &stream->quantize, error);
}

/* Whether every vector starts at a multiple of what CLOSE elements take. */
static bool is_close(const struct hys_tensor *tensor)
{
	bool close = tensor->offset % CLOSE == 0 && tensor->shape[tensor->rank - 1] % CLOSE == 0;
	for (int32_t d = 0; d < tensor->rank - 1; d++)
		close = close && tensor->stride[d] % CLOSE == 0;
	return close;
}

static struct hys_tensor rows_of(const struct hys_tensor *tensor, int64_t first, int64_t count)
{
	struct hys_tensor rows = *tensor;
	rows.offset += first * tensor->stride[0];
	rows.shape[0] = count;
	return rows;
}

static hys_status launch(struct hys_stream *stream, const struct hys_quantize_args *quantize,
			 int64_t first, int64_t count, struct hys_error *error)
{
	const struct hys_tensor x = rows_of(&quantize->x, first, count);
	const struct hys_tensor f8 = rows_of(&quantize->f8, first, count);
	const struct hys_tensor scale = rows_of(&quantize->scale, first, count);
	const int64_t heads = x.rank == 3 ? x.shape[1] : 1, vectors = count * heads;
	const int64_t groups = hys_ocl_divide_up(vectors, VECTORS), local = LOCAL;
	struct hys_ocl_args args =
		hys_ocl_begin(stream, &stream->quantize.instance, (int32_t)(x.dtype - HYS_F32));
	hys_ocl_arg_tensor(&args, &x);
	hys_ocl_arg_tensor(&args, &f8);
	hys_ocl_arg_tensor(&args, &scale);
	hys_ocl_arg_i32(&args, vectors);
	hys_ocl_arg_i32(&args, heads);
	hys_ocl_arg_i32(&args, x.shape[x.rank - 1]);
	hys_ocl_arg_i32(&args, is_close(&quantize->x) && is_close(&quantize->f8));
	return hys_ocl_launch(&args, 1, &groups, &local, error);
}

hys_status hys_ocl_quantize(struct hys_stream *stream, const struct hys_quantize_args *quantize,
			    struct hys_error *error)
{
	const struct hys_tensor *x = &quantize->x;
	const int64_t most = LAUNCHED_MAX / (x->rank == 3 ? x->shape[1] : 1);
	hys_status status = HYS_OK;

	if (most == 0)
		return hys_fail(error, HYS_UNSUPPORTED, 0, "quantize: %lld vectors a row",
				(long long)x->shape[1]);
	for (int64_t first = 0; status == HYS_OK && first < x->shape[0]; first += most)
		status = launch(stream, quantize, first, hys_min64(most, x->shape[0] - first),
				error);
	return status;
}
