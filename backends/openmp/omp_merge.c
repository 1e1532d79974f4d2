/* omp_merge.c - attention over two disjoint key sets made one. */
#include <math.h>

#include "omp_kernels.h"
#include "omp_tile.h"

#define ITEM_ROWS 16
#define TILE 256 /* channels at a time */

struct merge {
	const struct omp_isa *isa;
	const struct hys_call *call;
};

static float number_at(const struct hys_tensor *tensor, int64_t t, int64_t h)
{
	return *(const float *)omp_at(tensor, t, h, 0);
}

/* What a part counts in the whole; a part without keys counts nothing. */
static float share(double lse, double total)
{
	return lse == -(double)INFINITY ? 0.0f : (float)exp(lse - total);
}

/* Adds weight * o[t,h,channel..] to sum. What has no weight is not read: it may
 * be anything. */
static void add_part(const struct omp_isa *isa, const struct hys_tensor *o, int64_t t, int64_t h,
		     int64_t channel, int64_t n, float weight, float *sum)
{
	float x[TILE];
	if (weight == 0.0f)
		return;
	isa->to_f32(o->dtype, omp_at(o, t, h, channel), x, n);
	isa->axpy(weight, x, sum, n);
}

static void merge_vector(const struct merge *merge, int64_t t, int64_t h)
{
	const struct hys_merge_args *args = &merge->call->args.merge;
	const double a = (double)number_at(&args->lse_a, t, h);
	const double b = (double)number_at(&args->lse_b, t, h);
	const double total = omp_log_add(a, b);
	const int64_t channels = args->o.shape[2];
	for (int64_t c = 0; c < channels; c += TILE) {
		const int64_t n = hys_min64(TILE, channels - c);
		float sum[TILE] = {0};
		add_part(merge->isa, &args->o_a, t, h, c, n, share(a, total), sum);
		add_part(merge->isa, &args->o_b, t, h, c, n, share(b, total), sum);
		merge->isa->from_f32(args->o.dtype, sum, omp_at(&args->o, t, h, c), n);
	}
	if (hys_present(&args->lse))
		*(float *)omp_at(&args->lse, t, h, 0) = (float)total;
}

static void merge_item(void *context, int64_t item, int32_t thread)
{
	const struct merge *merge = context;
	const int64_t end = hys_min64((item + 1) * ITEM_ROWS, merge->call->size.rows);
	(void)thread;
	for (int64_t t = item * ITEM_ROWS; t < end; t++)
		for (int64_t h = 0; h < merge->call->problem->attending.heads; h++)
			merge_vector(merge, t, h);
}

hys_status omp_merge_run(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			 const struct hys_call *call, struct hys_error *error)
{
	struct merge merge = {omp_isa_of_stream(kernel, stream), call};
	(void)instance, (void)error;
	omp_for(omp_threads(stream), omp_ceil_div(call->size.rows, ITEM_ROWS), merge_item, &merge);
	return HYS_OK;
}
