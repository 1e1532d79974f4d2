/* omp_pool_backward.c - gradients of pooling. Each row of x gathers from the
 * unit that pools it: its own and, in the first series of overlapped pooling,
 * the next one. */
#include <string.h>

#include "omp_kernels.h"
#include "omp_pool.h"

#define ITEM_ROWS 256

struct backward {
	struct omp_pool pool;
	const struct hys_call *call;
	int64_t tiles; /* of the channels of one series */
	double *sums;  /* [threads][size][OMP_POOL_TILE], when dbias is wanted */
};

/* Some channels of one series of x, and rows [begin, end) of the call. */
struct part {
	bool previous; /* the series that the next unit looks at */
	int64_t channel, n;
	int64_t begin, end;
	double *sums; /* [size][OMP_POOL_TILE] or NULL */
};

/* What is known of the unit that rows are gathering from. */
struct known {
	int64_t number;
	struct omp_pool_unit unit;
	struct omp_pool_soft soft;
	float grad[OMP_POOL_TILE];
};

/* The unit that pools row i of x in this part's series, or -1. */
static int64_t unit_of(const struct omp_pool *pool, int64_t i, bool previous)
{
	const bool blocks = pool->kind == HYS_POOL_BLOCKS;
	const struct hys_tensor *units =
		blocks ? &pool->batch->entry_block : &pool->batch->key_entry;
	const int64_t own = omp_number(units, i, -1);
	if (own < 0 || !previous)
		return own;
	if (own + 1 >= pool->units || omp_pool_unit(pool, own + 1).previous < 0)
		return -1;
	return own + 1;
}

static void learn_unit(const struct backward *backward, const struct part *part, int64_t number,
		       struct known *known)
{
	const struct omp_pool *pool = &backward->pool;
	const struct hys_tensor *grad_y = &backward->call->args.pool_grad.grad_y;
	if (known->number == number)
		return;
	known->number = number;
	known->unit = omp_pool_unit(pool, number);
	pool->isa->to_f32(grad_y->dtype, omp_at(grad_y, number, part->channel, 0), known->grad,
			  part->n);
	if (pool->pooling != HYS_POOL_MEAN)
		omp_pool_soft(pool, &known->unit, part->channel, part->n, &known->soft);
}

/* Gradients of one row's channels: of x and of the gate. */
static void differentiate(const struct backward *backward, const struct part *part,
			  const struct known *known, int64_t row, float *dx, float *dgate)
{
	const struct omp_pool *pool = &backward->pool;
	const bool overlapped = pool->pooling == HYS_POOL_OVERLAPPED;
	const int64_t first = part->previous ? known->unit.previous : known->unit.own;
	const struct omp_pool_slot slot = {row, row - first,
					   overlapped && !part->previous ? pool->channels : 0};
	float x[OMP_POOL_TILE];
	if (pool->pooling == HYS_POOL_MEAN) {
		for (int64_t c = 0; c < part->n; c++)
			dx[c] = known->grad[c] / (float)pool->size;
		return;
	}
	omp_pool_load(pool, &slot, part->channel, part->n, x);
	omp_pool_weights(pool, &known->soft, &slot, part->channel, part->n, dx);
	for (int64_t c = 0; c < part->n; c++) {
		dx[c] *= known->grad[c];
		dgate[c] = dx[c] == 0.0f ? 0.0f : dx[c] * (x[c] - known->soft.y[c]);
		if (part->sums)
			part->sums[slot.bias_row * OMP_POOL_TILE + c] += (double)dgate[c];
	}
}

static void store(const struct backward *backward, const struct hys_tensor *tensor, int64_t row,
		  int64_t channel, int64_t n, float *values)
{
	const struct omp_isa *isa = backward->pool.isa;
	float old[OMP_POOL_TILE];
	if (!hys_present(tensor))
		return;
	if (backward->call->args.pool_grad.flags & HYS_GRAD_ACCUMULATE) {
		isa->to_f32(tensor->dtype, omp_at(tensor, row, channel, 0), old, n);
		isa->axpy(1.0f, old, values, n);
	}
	isa->from_f32(tensor->dtype, values, omp_at(tensor, row, channel, 0), n);
}

static void do_part(const struct backward *backward, const struct part *part)
{
	const struct omp_pool *pool = &backward->pool;
	const struct hys_pool_grad_args *args = &backward->call->args.pool_grad;
	const bool overlapped = pool->pooling == HYS_POOL_OVERLAPPED;
	const int64_t to = part->channel + (overlapped && !part->previous ? pool->channels : 0);
	struct known known = {.number = -1};
	for (int64_t i = part->begin; i < part->end; i++) {
		const int64_t row = backward->call->row_first + i;
		const int64_t unit = unit_of(pool, row, part->previous);
		float dx[OMP_POOL_TILE] = {0}, dgate[OMP_POOL_TILE] = {0};
		if (unit >= 0) {
			learn_unit(backward, part, unit, &known);
			differentiate(backward, part, &known, row, dx, dgate);
		}
		store(backward, &args->dx, i, to, part->n, dx);
		store(backward, &args->dgate, i, to, part->n, dgate);
	}
}

/* Item `tile` of both series' channel tiles. */
static struct part part_of(const struct backward *backward, int64_t tile)
{
	const bool overlapped = backward->pool.pooling == HYS_POOL_OVERLAPPED;
	const int64_t channel = tile % backward->tiles * OMP_POOL_TILE;
	return (struct part){
		.previous = overlapped && tile < backward->tiles,
		.channel = channel,
		.n = hys_min64(OMP_POOL_TILE, backward->pool.channels - channel),
	};
}

static void rows_item(void *context, int64_t item, int32_t thread)
{
	const struct backward *backward = context;
	const bool overlapped = backward->pool.pooling == HYS_POOL_OVERLAPPED;
	const int64_t tiles = overlapped ? 2 * backward->tiles : backward->tiles;
	struct part part = part_of(backward, item % tiles);
	(void)thread;
	part.begin = item / tiles * ITEM_ROWS;
	part.end = hys_min64(part.begin + ITEM_ROWS, backward->call->size.rows);
	do_part(backward, &part);
}

/* With a bias all rows of a channel tile are one item: its sums run over them
 * in order. */
static void channels_item(void *context, int64_t item, int32_t thread)
{
	const struct backward *backward = context;
	const struct omp_pool *pool = &backward->pool;
	const struct hys_tensor *dbias = &backward->call->args.pool_grad.dbias;
	const bool overlapped = pool->pooling == HYS_POOL_OVERLAPPED;
	const int64_t count = pool->size * OMP_POOL_TILE;
	struct part part = part_of(backward, item);
	part.end = backward->call->size.rows;
	part.sums = backward->sums + thread * count;
	memset(part.sums, 0, (size_t)count * sizeof *part.sums);
	do_part(backward, &part);
	for (int64_t i = 0; i < pool->size; i++) {
		float sums[OMP_POOL_TILE];
		for (int64_t c = 0; c < part.n; c++)
			sums[c] = (float)part.sums[i * OMP_POOL_TILE + c];
		store(backward, dbias, i,
		      part.channel + (overlapped && !part.previous ? pool->channels : 0), part.n,
		      sums);
	}
}

static double *take_sums(struct omp_arena *arena, const struct hys_problem *problem,
			 int32_t threads)
{
	const int64_t size =
		hys_max64(problem->scoring.pool, problem->choosing.coarse_block) * OMP_POOL_TILE;
	return omp_take(arena, hys_mul64(threads, size), sizeof(double));
}

int64_t omp_pool_backward_workspace(const struct hys_kernel *kernel,
				    const struct hys_device *device, const struct hys_size *size)
{
	struct omp_arena arena = {0};
	(void)kernel;
	take_sums(&arena, size->problem, omp_device(device)->threads);
	return arena.used;
}

hys_status omp_pool_backward_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				 void *instance, const struct hys_call *call,
				 struct hys_error *error)
{
	const struct hys_pool_grad_args *args = &call->args.pool_grad;
	const bool blocks = args->unit == HYS_POOL_BLOCKS;
	const bool overlapped = args->pooling == HYS_POOL_OVERLAPPED;
	const int32_t threads = omp_threads(stream);
	struct omp_arena arena = omp_arena(&call->workspace);
	struct backward backward = {
		.pool = {.isa = omp_isa_of_stream(kernel, stream),
			 .batch = &call->batch,
			 .pooling = args->pooling,
			 .kind = args->unit,
			 .size = blocks ? call->problem->choosing.coarse_block
					: call->problem->scoring.pool,
			 .units = blocks ? call->size.coarse_blocks : call->size.entries,
			 .channels = overlapped ? args->x.shape[1] / 2 : args->x.shape[1],
			 .x = &args->x,
			 .gate = &args->gate,
			 .bias = &args->bias},
		.call = call,
		.sums = take_sums(&arena, call->problem, threads),
	};
	(void)instance, (void)error;
	backward.tiles = omp_ceil_div(backward.pool.channels, OMP_POOL_TILE);
	const int64_t tiles = overlapped ? 2 * backward.tiles : backward.tiles;
	if (hys_present(&args->dbias))
		omp_for(threads, tiles, channels_item, &backward);
	else
		omp_for(threads, tiles * omp_ceil_div(call->size.rows, ITEM_ROWS), rows_item,
			&backward);
	return HYS_OK;
}
