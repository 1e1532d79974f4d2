/* omp_pool.c - pooling of rows into units: mean, gated, overlapped. Sums are
 * taken in f64, in the order of the slots. */
#include "omp_pool.h"

#include <math.h>

#include "omp_kernels.h"

#define ITEM_UNITS 16

struct omp_pool_unit omp_pool_unit(const struct omp_pool *pool, int64_t unit)
{
	const bool blocks = pool->kind == HYS_POOL_BLOCKS;
	const struct hys_tensor *rows =
		blocks ? &pool->batch->coarse_entry : &pool->batch->entry_key;
	const struct hys_tensor *docs = blocks ? &pool->batch->coarse_doc : &pool->batch->entry_doc;
	struct omp_pool_unit found = {omp_number(rows, unit, 0), -1};
	if (pool->pooling == HYS_POOL_OVERLAPPED && unit > 0 &&
	    omp_number(docs, unit, 0) == omp_number(docs, unit - 1, 0))
		found.previous = omp_number(rows, unit - 1, 0);
	return found;
}

static int64_t slots_of(const struct omp_pool *pool, const struct omp_pool_unit *unit)
{
	return unit->previous >= 0 ? 2 * pool->size : pool->size;
}

static struct omp_pool_slot slot_of(const struct omp_pool *pool, const struct omp_pool_unit *unit,
				    int64_t i)
{
	const int64_t own_channel = pool->pooling == HYS_POOL_OVERLAPPED ? pool->channels : 0;
	if (unit->previous >= 0 && i < pool->size)
		return (struct omp_pool_slot){unit->previous + i, i, 0};
	i %= pool->size;
	return (struct omp_pool_slot){unit->own + i, i, own_channel};
}

void omp_pool_load(const struct omp_pool *pool, const struct omp_pool_slot *slot, int64_t channel,
		   int64_t n, float *x)
{
	pool->isa->to_f32(pool->x->dtype, omp_at(pool->x, slot->row, slot->channel + channel, 0), x,
			  n);
}

/* gate + bias at a slot. */
static void load_gate(const struct omp_pool *pool, const struct omp_pool_slot *slot,
		      int64_t channel, int64_t n, float *gate)
{
	const int64_t from = slot->channel + channel;
	pool->isa->to_f32(pool->gate->dtype, omp_at(pool->gate, slot->row, from, 0), gate, n);
	if (hys_present(pool->bias))
		pool->isa->axpy(1.0f, omp_at(pool->bias, slot->bias_row, from, 0), gate, n);
}

/* A later NaN stays, as in every maximum of softmax. */
static void raise_largest(const float *gate, int64_t n, float *largest)
{
	for (int64_t c = 0; c < n; c++)
		if (!(gate[c] <= largest[c]) && largest[c] == largest[c])
			largest[c] = gate[c];
}

static void exp_less(const struct omp_isa *isa, const float *largest, int64_t n, float *gate)
{
	for (int64_t c = 0; c < n; c++)
		gate[c] = largest[c] == -INFINITY ? -INFINITY : gate[c] - largest[c];
	isa->exp(gate, n);
}

void omp_pool_soft(const struct omp_pool *pool, const struct omp_pool_unit *unit, int64_t channel,
		   int64_t n, struct omp_pool_soft *soft)
{
	const int64_t slots = slots_of(pool, unit);
	float gate[OMP_POOL_TILE], x[OMP_POOL_TILE];
	double sum[OMP_POOL_TILE];
	for (int64_t c = 0; c < n; c++) {
		soft->largest[c] = -INFINITY;
		soft->total[c] = 0.0;
		sum[c] = 0.0;
	}
	for (int64_t i = 0; i < slots; i++) {
		const struct omp_pool_slot slot = slot_of(pool, unit, i);
		load_gate(pool, &slot, channel, n, gate);
		raise_largest(gate, n, soft->largest);
	}
	for (int64_t i = 0; i < slots; i++) {
		const struct omp_pool_slot slot = slot_of(pool, unit, i);
		load_gate(pool, &slot, channel, n, gate);
		omp_pool_load(pool, &slot, channel, n, x);
		exp_less(pool->isa, soft->largest, n, gate);
		for (int64_t c = 0; c < n; c++) {
			soft->total[c] += (double)gate[c];
			sum[c] += gate[c] == 0.0f ? 0.0 : (double)gate[c] * (double)x[c];
		}
	}
	for (int64_t c = 0; c < n; c++)
		soft->y[c] = soft->total[c] == 0.0 ? 0.0f : (float)(sum[c] / soft->total[c]);
}

void omp_pool_weights(const struct omp_pool *pool, const struct omp_pool_soft *soft,
		      const struct omp_pool_slot *slot, int64_t channel, int64_t n, float *weights)
{
	load_gate(pool, slot, channel, n, weights);
	exp_less(pool->isa, soft->largest, n, weights);
	for (int64_t c = 0; c < n; c++)
		weights[c] =
			soft->total[c] == 0.0 ? 0.0f : (float)((double)weights[c] / soft->total[c]);
}

void omp_pool_mean(const struct omp_pool *pool, const struct omp_pool_unit *unit, int64_t channel,
		   int64_t n, const struct hys_tensor *y, float *mean)
{
	float x[OMP_POOL_TILE];
	double sum[OMP_POOL_TILE] = {0};
	for (int64_t i = 0; i < pool->size; i++) {
		const struct omp_pool_slot slot = {unit->own + i, i, 0};
		omp_pool_load(pool, &slot, channel, n, x);
		for (int64_t c = 0; c < n; c++)
			sum[c] += (double)x[c];
	}
	for (int64_t c = 0; c < n; c++)
		mean[c] = (float)(sum[c] / (double)pool->size);
	if (hys_present(y)) {
		pool->isa->from_f32(y->dtype, mean, x, n);
		pool->isa->to_f32(y->dtype, x, mean, n);
	}
}

struct forward {
	struct omp_pool pool;
	const struct hys_call *call;
};

static void pool_unit(const struct forward *forward, int64_t row)
{
	const struct omp_pool *pool = &forward->pool;
	const struct hys_pool_args *args = &forward->call->args.pool;
	const struct omp_pool_unit unit = omp_pool_unit(pool, forward->call->row_first + row);
	if (pool->pooling == HYS_POOL_BOUNDS) {
		omp_pool_bounds(pool, args, &unit, row);
		return;
	}
	for (int64_t c = 0; hys_present(&args->y) && c < pool->channels; c += OMP_POOL_TILE) {
		const int64_t n = hys_min64(OMP_POOL_TILE, pool->channels - c);
		struct omp_pool_soft soft;
		if (pool->pooling == HYS_POOL_MEAN)
			omp_pool_mean(pool, &unit, c, n, &args->y, soft.y);
		else
			omp_pool_soft(pool, &unit, c, n, &soft);
		pool->isa->from_f32(args->y.dtype, soft.y, omp_at(&args->y, row, c, 0), n);
	}
}

static void forward_item(void *context, int64_t item, int32_t thread)
{
	const struct forward *forward = context;
	const int64_t end = hys_min64((item + 1) * ITEM_UNITS, forward->call->size.rows);
	(void)thread;
	for (int64_t row = item * ITEM_UNITS; row < end; row++)
		pool_unit(forward, row);
}

hys_status omp_pool_run(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			const struct hys_call *call, struct hys_error *error)
{
	const struct hys_pool_args *args = &call->args.pool;
	const bool blocks = args->unit == HYS_POOL_BLOCKS;
	const int64_t width = args->x.shape[1];
	struct forward forward = {
		.pool = {.isa = omp_isa_of_stream(kernel, stream),
			 .batch = &call->batch,
			 .pooling = args->pooling,
			 .kind = args->unit,
			 .size = blocks ? call->problem->choosing.coarse_block
					: call->problem->scoring.pool,
			 .units = blocks ? call->size.coarse_blocks : call->size.entries,
			 .channels = args->pooling == HYS_POOL_OVERLAPPED ? width / 2 : width,
			 .x = &args->x,
			 .gate = &args->gate,
			 .bias = &args->bias},
		.call = call,
	};
	(void)instance, (void)error;
	omp_for(omp_threads(stream), omp_ceil_div(call->size.rows, ITEM_UNITS), forward_item,
		&forward);
	return HYS_OK;
}
