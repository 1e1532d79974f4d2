/* omp_attention.c - attention forward.
 *
 * An item is one row, or, where all visible rows are attended, a few
 * neighbouring rows. The heads that share a key/value head (times the rows of
 * the item) are the lanes: rows of a matrix q. Tiles of key rows are gathered
 * into f32, then logits = q k^T, online softmax, o += shares v.
 *
 * What a tile holds depends on the row alone, never on the rows beside it: the
 * key rows of a set come in their order, 64 at a time; dense ones at multiples
 * of 64, so that rows which see a whole tile can share it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "omp_kernels.h"
#include "omp_tile.h"

/* Lanes that an item of several rows aims at, and its most rows. */
#define LANES_WANTED 64
#define ROWS_MOST 32

/* Scratch of one thread. */
struct scratch {
	int64_t keys[OMP_TILE];
	float *q, *o;	/* [lanes][D], [lanes][V] */
	float *logits;	/* [lanes][OMP_TILE] */
	float *k, *v;	/* [OMP_TILE][D], [OMP_TILE][V] */
	float *largest; /* [lanes] of the logits so far */
	double *sum;	/* [lanes] of exp(logit - largest) */
};

struct forward {
	const struct hys_call *call;
	const struct hys_attention_args *args;
	const struct omp_isa *isa;
	struct omp_rows rows;
	struct omp_source keys, values;
	bool shared; /* all v = first V channels of k */
	bool dense;
	int64_t head_dim, value_dim;
	int64_t q_pitch, v_pitch, logit_pitch;
	int64_t item_rows;
	char *scratch;
	int64_t scratch_bytes;
};

/* The heads of one item that share a key/value head. */
struct lanes {
	struct scratch *scratch;
	struct omp_heads heads;
	int64_t row, rows; /* of the call */
};

static int64_t rows_per_item(const struct hys_problem *problem)
{
	const int64_t rows = LANES_WANTED / omp_heads_most(problem);

	if (!(problem->attending.flags & HYS_ATTENDING_DENSE))
		return 1;
	return hys_max64(1, hys_min64(rows, ROWS_MOST));
}

static struct scratch *lay_out(struct omp_arena *arena, const struct hys_problem *problem)
{
	const int64_t lanes = rows_per_item(problem) * omp_heads_most(problem);
	const int64_t q_pitch = omp_pitch(problem->attending.head_dim);
	const int64_t v_pitch = omp_pitch(problem->attending.value_dim);
	struct scratch *scratch = omp_take(arena, 1, sizeof *scratch);
	struct scratch made;

	made.q = omp_take(arena, lanes * q_pitch, sizeof(float));
	made.o = omp_take(arena, lanes * v_pitch, sizeof(float));
	made.logits = omp_take(arena, lanes * omp_pitch(OMP_TILE), sizeof(float));
	made.k = omp_take(arena, OMP_TILE * q_pitch, sizeof(float));
	made.v = omp_take(arena, OMP_TILE * v_pitch, sizeof(float));
	made.largest = omp_take(arena, lanes, sizeof(float));
	made.sum = omp_take(arena, lanes, sizeof(double));
	if (scratch)
		*scratch = made;
	return scratch;
}

static int64_t scratch_bytes(const struct hys_problem *problem)
{
	struct omp_arena arena = {0};

	lay_out(&arena, problem);
	return arena.used;
}

int64_t omp_attention_forward_workspace(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_size *size)
{
	(void)kernel;
	return hys_mul64(scratch_bytes(size->problem), omp_device(device)->threads);
}

static float *lane_o(const struct forward *f, const struct lanes *lanes, int64_t lane)
{
	return lanes->scratch->o + lane * f->v_pitch;
}

static void load_lanes(const struct forward *f, struct lanes *lanes)
{
	const struct omp_heads *heads = &lanes->heads;
	const int64_t per_row = heads->end - heads->begin;
	struct scratch *scratch = lanes->scratch;

	for (int64_t i = 0; i < lanes->rows; i++)
		omp_load(f->isa, &f->args->q, lanes->row + i, heads->begin, per_row, f->head_dim,
			 scratch->q + i * per_row * f->q_pitch, f->q_pitch);
	memset(scratch->o, 0, (size_t)(lanes->rows * per_row * f->v_pitch) * sizeof(float));
	for (int64_t lane = 0; lane < lanes->rows * per_row; lane++) {
		scratch->largest[lane] = -FLT_MAX;
		scratch->sum[lane] = 0.0;
	}
}

/* One lane's logits become shares relative to the largest logit so far, which
 * stays finite: -inf logits then give exactly 0, +inf ones an infinite sum. */
static void soften(const struct forward *f, const struct lanes *lanes, int64_t lane, int64_t count)
{
	struct scratch *scratch = lanes->scratch;
	float *x = scratch->logits + lane * f->logit_pitch;

	omp_logits(f->call->problem, x, count);
	const float top = fminf(f->isa->maximum(x, count), FLT_MAX);
	const float before = scratch->largest[lane];

	if (top > before) {
		const float shrink = expf(before - top);

		omp_scale(lane_o(f, lanes, lane), f->value_dim, shrink);
		scratch->sum[lane] *= (double)shrink;
		scratch->largest[lane] = top;
	}
	for (int64_t i = 0; i < count; i++)
		x[i] -= scratch->largest[lane];
	f->isa->exp(x, count);
	scratch->sum[lane] += (double)omp_sum(x, count);
}

/* Lanes [first, first + n) attend to the key rows scratch->keys[count]. */
static void attend_tile(const struct forward *f, const struct lanes *lanes, int64_t first,
			int64_t n, int64_t count)
{
	const struct scratch *scratch = lanes->scratch;
	const int64_t kv_head = lanes->heads.kv_head;
	const float *v = f->shared ? scratch->k : scratch->v;
	float *logits = scratch->logits + first * f->logit_pitch;

	omp_gather(f->isa, &f->keys, kv_head, scratch->keys, count, f->head_dim, scratch->k,
		   f->q_pitch);
	if (!f->shared)
		omp_gather(f->isa, &f->values, kv_head, scratch->keys, count, f->value_dim,
			   scratch->v, f->v_pitch);
	f->isa->gemm_nt(n, count, f->head_dim, scratch->q + first * f->q_pitch, f->q_pitch,
			scratch->k, f->q_pitch, logits, f->logit_pitch, false);
	for (int64_t lane = first; lane < first + n; lane++)
		soften(f, lanes, lane, count);
	f->isa->gemm_nn(n, f->value_dim, count, logits, f->logit_pitch, v,
			f->shared ? f->q_pitch : f->v_pitch, lane_o(f, lanes, first), f->v_pitch,
			true);
}

/* Row i of the item attends to what the walk has left. */
static void attend_walk(const struct forward *f, struct lanes *lanes, int64_t i,
			struct omp_walk *walk)
{
	const int64_t per_row = lanes->heads.end - lanes->heads.begin;
	int64_t count;

	while ((count = omp_walk_keys(walk, lanes->scratch->keys, OMP_TILE)) > 0)
		attend_tile(f, lanes, i * per_row, per_row, count);
}

static void attend_range(const struct forward *f, struct lanes *lanes, int64_t first_row,
			 int64_t rows, struct omp_range range)
{
	const int64_t per_row = lanes->heads.end - lanes->heads.begin;
	const int64_t count = range.end - range.begin;

	for (int64_t i = 0; i < count; i++)
		lanes->scratch->keys[i] = range.begin + i;
	if (count > 0)
		attend_tile(f, lanes, first_row * per_row, rows * per_row, count);
}

/* The part of `tile` that row i of the item sees. */
static struct omp_range seen(const struct forward *f, const struct lanes *lanes, int64_t i,
			     struct omp_range tile)
{
	const struct omp_range visible = omp_visible_keys(&f->rows, lanes->row + i);

	return (struct omp_range){hys_max64(visible.begin, tile.begin),
				  hys_min64(visible.end, tile.end)};
}

/* All rows of the item at once where they see the whole tile. */
static void attend_dense_tile(const struct forward *f, struct lanes *lanes, struct omp_range tile)
{
	bool whole = true;

	for (int64_t i = 0; i < lanes->rows; i++) {
		const struct omp_range range = seen(f, lanes, i, tile);

		whole = whole && range.begin == tile.begin && range.end == tile.end;
	}
	if (whole) {
		attend_range(f, lanes, 0, lanes->rows, tile);
		return;
	}
	for (int64_t i = 0; i < lanes->rows; i++)
		attend_range(f, lanes, i, 1, seen(f, lanes, i, tile));
}

static void attend_dense(const struct forward *f, struct lanes *lanes)
{
	struct omp_range all = {INT64_MAX, 0};

	for (int64_t i = 0; i < lanes->rows; i++) {
		const struct omp_range visible = omp_visible_keys(&f->rows, lanes->row + i);

		if (visible.begin < visible.end) {
			all.begin = hys_min64(all.begin, visible.begin);
			all.end = hys_max64(all.end, visible.end);
		}
	}
	if (all.begin >= all.end)
		return;
	for (int64_t at = all.begin / OMP_TILE * OMP_TILE; at < all.end; at += OMP_TILE)
		attend_dense_tile(f, lanes, (struct omp_range){at, at + OMP_TILE});
}

/* o = sum / (sum of exp, sink included); lse without the sink. */
static void finish_lane(const struct forward *f, const struct lanes *lanes, int64_t lane)
{
	const struct hys_attention_args *args = f->args;
	const int64_t per_row = lanes->heads.end - lanes->heads.begin;
	const int64_t row = lanes->row + lane / per_row;
	const int64_t head = lanes->heads.begin + lane % per_row;
	const double largest = (double)lanes->scratch->largest[lane];
	const double sum = lanes->scratch->sum[lane];
	float *o = lane_o(f, lanes, lane);
	double total = sum;

	if (hys_present(&args->sink))
		total += exp((double)*(const float *)omp_at(&args->sink, head, 0, 0) - largest);
	for (int64_t i = 0; i < f->value_dim; i++)
		o[i] = sum == 0.0 ? 0.0f : (float)((double)o[i] / total);
	omp_store(f->isa, &args->o, row, head, o, f->value_dim, false, NULL);
	if (hys_present(&args->lse))
		*(float *)omp_at(&args->lse, row, head, 0) = (float)(largest + log(sum));
}

static void attend_item(void *context, int64_t item, int32_t thread)
{
	const struct forward *f = context;
	struct omp_arena arena = {f->scratch + thread * f->scratch_bytes, 0};
	struct lanes lanes = {.scratch = lay_out(&arena, f->call->problem),
			      .row = item * f->item_rows};

	lanes.rows = hys_min64(f->item_rows, f->call->size.rows - lanes.row);
	while (omp_heads_next(f->call->problem, f->dense, &lanes.heads)) {
		load_lanes(f, &lanes);
		if (f->dense)
			attend_dense(f, &lanes);
		for (int64_t i = 0; i < lanes.rows; i++) {
			struct omp_walk walk;

			omp_walk_start(&walk, &f->rows, lanes.row + i, lanes.heads.group);
			if (f->dense)
				walk.window.begin = walk.window.end;
			attend_walk(f, &lanes, i, &walk);
		}
		for (int64_t i = 0; i < lanes.rows * (lanes.heads.end - lanes.heads.begin); i++)
			finish_lane(f, &lanes, i);
	}
}

hys_status omp_attention_forward_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				     void *instance, const struct hys_call *call,
				     struct hys_error *error)
{
	const struct hys_attention_args *args = &call->args.attention;
	const struct hys_problem *problem = call->problem;
	const int64_t second = hys_present(&args->window_k) ? call->size.window_keys : 0;
	struct forward f = {
		.call = call,
		.args = args,
		.isa = omp_isa(kernel),
		.rows = {problem, &call->batch, &args->indices, call->size.keys, call->size.entries,
			 second},
		.keys = {&args->k, &args->window_k, call->size.keys},
		.shared = !hys_present(&args->v) && (second == 0 || !hys_present(&args->window_v)),
		.dense = (problem->attending.flags & HYS_ATTENDING_DENSE) != 0,
		.head_dim = problem->attending.head_dim,
		.value_dim = problem->attending.value_dim,
		.q_pitch = omp_pitch(problem->attending.head_dim),
		.v_pitch = omp_pitch(problem->attending.value_dim),
		.logit_pitch = omp_pitch(OMP_TILE),
		.item_rows = rows_per_item(problem),
		.scratch = omp_arena(&call->workspace).base,
		.scratch_bytes = scratch_bytes(problem),
	};

	(void)instance, (void)error;
	f.values = omp_values(&f.keys, &args->v, &args->window_v);
	omp_for(omp_threads(stream), omp_ceil_div(call->size.rows, f.item_rows), attend_item, &f);
	return HYS_OK;
}
