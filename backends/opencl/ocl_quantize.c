/* ocl_quantize.c - vectors to f8. */
#include "ocl_internal.h"

#define LOCAL 256
#define VECTORS 16 /* of a work-group */
#define CLOSE 8	   /* elements of a work-item beside each other */

static const char *const entries[] = {"quantize_f32", "quantize_f16", "quantize_bf16", NULL};
const struct hys_ocl_source hys_ocl_quantize_source = {"quantize.cl", entries, NULL, NULL, NULL};

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

hys_status hys_ocl_quantize(struct hys_stream *stream, const struct hys_quantize_args *quantize,
			    struct hys_error *error)
{
	const struct hys_tensor *x = &quantize->x;
	const int64_t heads = x->rank == 3 ? x->shape[1] : 1, vectors = x->shape[0] * heads;
	const int64_t groups = hys_ocl_divide_up(vectors, VECTORS), local = LOCAL;
	struct hys_ocl_args args =
		hys_ocl_begin(stream, &stream->quantize.instance, (int32_t)(x->dtype - HYS_F32));
	hys_ocl_arg_tensor(&args, x);
	hys_ocl_arg_tensor(&args, &quantize->f8);
	hys_ocl_arg_tensor(&args, &quantize->scale);
	hys_ocl_arg_i64(&args, vectors);
	hys_ocl_arg_i32(&args, heads);
	hys_ocl_arg_i32(&args, x->shape[x->rank - 1]);
	hys_ocl_arg_i32(&args, is_close(x) && is_close(&quantize->f8));
	return hys_ocl_launch(&args, 1, &groups, &local, error);
}
