/* omp_quantize.c - vectors to f8. */
#include <math.h>

#include "omp_internal.h"

#define TILE 256 /* elements at a time */
#define LARGEST 448.0f
#define LEAST_EXPONENT (-100)

struct quantizing {
	const struct omp_isa *isa;
	const struct hys_quantize_args *args;
	int64_t heads, dim;
};

/* Keys have no heads. */
static void *vector_at(const struct hys_tensor *tensor, int64_t row, int64_t head, int64_t c)
{
	return tensor->rank == 3 ? omp_at(tensor, row, head, c) : omp_at(tensor, row, c, 0);
}

static float largest_finite(const struct quantizing *q, int64_t row, int64_t head)
{
	float x[TILE], most = 0;
	for (int64_t c = 0; c < q->dim; c += TILE) {
		const int64_t n = hys_min64(TILE, q->dim - c);
		q->isa->to_f32(q->args->x.dtype, vector_at(&q->args->x, row, head, c), x, n);
		for (int64_t i = 0; i < n; i++)
			most = isfinite(x[i]) && fabsf(x[i]) > most ? fabsf(x[i]) : most;
	}
	return most;
}

/* Of the smallest power of two by which nothing exceeds LARGEST. */
static int exponent_of(float most)
{
	int exponent, full;
	if (most == 0)
		return 0;
	const float part = frexpf(most, &exponent), limit = frexpf(LARGEST, &full);
	exponent -= full - (part > limit);
	return exponent > LEAST_EXPONENT ? exponent : LEAST_EXPONENT;
}

static void quantize_vector(const struct quantizing *q, int64_t row, int64_t head)
{
	const int exponent = exponent_of(largest_finite(q, row, head));
	const float inverse = ldexpf(1, -exponent);
	float x[TILE];
	for (int64_t c = 0; c < q->dim; c += TILE) {
		const int64_t n = hys_min64(TILE, q->dim - c);
		q->isa->to_f32(q->args->x.dtype, vector_at(&q->args->x, row, head, c), x, n);
		for (int64_t i = 0; i < n; i++)
			x[i] *= inverse;
		q->isa->from_f32(HYS_F8E4M3, x, vector_at(&q->args->f8, row, head, c), n);
	}
	*(float *)omp_at(&q->args->scale, row, head, 0) = ldexpf(1, exponent);
}

static void quantize_row(void *context, int64_t row, int32_t thread)
{
	const struct quantizing *q = context;
	(void)thread;
	for (int64_t head = 0; head < q->heads; head++)
		quantize_vector(q, row, head);
}

hys_status omp_quantize(struct hys_stream *stream, const struct hys_quantize_args *args,
			struct hys_error *error)
{
	const struct hys_tensor *x = &args->x;
	const struct omp_device *device = ((struct omp_stream *)(void *)stream)->device;
	struct quantizing q = {device->isas + OMP_SET_PORTABLE, args,
			       x->rank == 3 ? x->shape[1] : 1, x->shape[x->rank - 1]};
	(void)error;
	omp_for(omp_threads(stream), x->shape[0], quantize_row, &q);
	return HYS_OK;
}
