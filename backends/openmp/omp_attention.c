/* omp_attention.c - attention forward.
 *
 * An item is one row and one set, for all heads that attend to it, or, where
 * rows attend to one range of key rows each, a few neighbouring rows and one
 * key/value head. Its lanes (see omp_lanes.h) meet tiles of key rows: logits =
 * k q, online softmax, o += v^T shares.
 *
 * A lane's numbers never depend on the lanes beside it: the key rows of a set
 * come in their order, 64 at a time; those of a range in tiles at multiples of
 * 64, in which what a lane does not see has a share of exactly 0. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "omp_attention.h"
#include "omp_kernels.h"
#include "omp_order.h"

#define LANES_WANTED 128
#define KEYS_AT_ONCE 24

/* The heads of an item that share a key/value head. */
struct part {
	struct omp_lanes lanes;
	float *q, *o; /* [D][lanes], [V][lanes] */
	double *sum;  /* [lanes] of exp(logit - largest) */
	struct omp_soften soften;
};

/* Scratch of one thread. */
struct scratch {
	int64_t keys[2][OMP_TILE]; /* of this tile and the next */
	int64_t next_count;
	struct omp_shared shared;
	int64_t part_count;
	struct part *parts;
	float *shares; /* [OMP_TILE][lanes] */
	float *k, *v;  /* [OMP_TILE][D], [OMP_TILE][V] */
	float *spare;  /* [OMP_LANES][max(D, V)] */
};

/* Rows of an item where they share: lanes enough, and items enough for all threads. */
static int64_t rows_per_item(const struct hys_problem *problem, int64_t rows, int32_t threads)
{
	const int64_t by_lanes = omp_shared_rows(problem, LANES_WANTED);
	const int64_t by_rows = rows * problem->attending.kv_heads / (4 * (int64_t)threads);

	return hys_max64(1, hys_min64(by_lanes, by_rows));
}

static void take_part(struct omp_arena *arena, const struct hys_problem *problem, int64_t pitch,
		      struct part *part)
{
	struct part made = {
		.q = omp_take(arena, problem->attending.head_dim * pitch, sizeof(float)),
		.o = omp_take(arena, problem->attending.value_dim * pitch, sizeof(float)),
		.sum = omp_take(arena, pitch, sizeof(double)),
		.soften = {omp_take(arena, pitch, sizeof(float)),
			   omp_take(arena, pitch, sizeof(float)),
			   omp_take(arena, pitch, sizeof(float))},
	};

	if (part)
		*part = made;
}

static struct scratch *lay_out(struct omp_arena *arena, const struct hys_problem *problem,
			       bool shared)
{
	const int64_t rows = shared ? omp_shared_rows(problem, LANES_WANTED) : 1;
	const int64_t pitch = omp_pitch(rows * omp_heads_most(problem));
	const int64_t k_pitch = omp_pitch(problem->attending.head_dim);
	const int64_t v_pitch = omp_pitch(problem->attending.value_dim);
	const int64_t parts = shared ? 1 : omp_parts_most(problem);
	struct scratch *scratch = omp_take(arena, 1, sizeof *scratch);
	struct scratch made = {0};

	made.shares = omp_take(arena, OMP_TILE * pitch, sizeof(float));
	made.k = omp_take(arena, OMP_TILE * k_pitch, sizeof(float));
	made.v = omp_take(arena, OMP_TILE * v_pitch, sizeof(float));
	made.spare = omp_take(arena, OMP_LANES * hys_max64(k_pitch, v_pitch), sizeof(float));
	made.parts = omp_take(arena, parts, sizeof *made.parts);
	for (int64_t i = 0; i < parts; i++)
		take_part(arena, problem, pitch, scratch ? made.parts + i : NULL);
	if (scratch)
		*scratch = made;
	return scratch;
}

/* A plan does not know whether calls come with indices. */
static int64_t scratch_bytes(const struct hys_problem *problem)
{
	struct omp_arena one = {0}, several = {0};

	lay_out(&one, problem, false);
	lay_out(&several, problem, true);
	return hys_max64(hys_max64(one.used, several.used),
			 omp_is_narrow(problem) ? omp_narrow_scratch(problem) : 0);
}

static int64_t order_bytes(int64_t rows)
{
	return hys_round_up(rows * (int64_t)sizeof(int32_t), HYS_ALIGN);
}

int64_t omp_attention_forward_workspace(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_size *size)
{
	(void)kernel;
	return hys_add64(order_bytes(size->rows),
			 hys_mul64(scratch_bytes(size->problem), omp_device(device)->threads));
}

static void start_part(const struct omp_forward *f, const struct scratch *scratch,
		       struct part *part, const struct omp_heads *heads, int64_t row)
{
	const int64_t rows = hys_min64(f->item_rows, f->call->size.rows - row);

	part->lanes = omp_lanes(heads, row, rows, f->pitch);
	omp_lanes_load(f->isa, &f->args->q, &part->lanes, f->head_dim, part->q, scratch->spare,
		       omp_pitch(f->head_dim));
	memset(part->o, 0, (size_t)(f->value_dim * f->pitch) * sizeof(float));
	for (int64_t lane = 0; lane < part->lanes.padded; lane++) {
		part->soften.largest[lane] = -FLT_MAX;
		part->sum[lane] = 0.0;
	}
}

/* Logits become shares relative to the largest logit so far, which stays finite:
 * -inf logits then give exactly 0, +inf ones an infinite sum. What was summed
 * before shrinks accordingly. */
static void soften(const struct omp_forward *f, const struct part *part, float *shares,
		   const struct omp_view *view)
{
	const int64_t count = view->keys.end - view->keys.begin;
	const int64_t begin = view->lane_begin, n = view->lane_end - begin, pitch = f->pitch;
	const struct omp_soften state = {part->soften.largest + begin, part->soften.shrink + begin,
					 part->soften.sums + begin};
	const bool ready = f->capped || !view->whole; /* before -inf comes in */
	bool moved = false;

	for (int64_t key = 0; ready && key < count; key++)
		omp_logits(f->call->problem, shares + key * pitch + begin, n);
	if (!view->whole)
		omp_view_hide(view, &part->lanes, shares, -INFINITY);
	f->isa->soften(shares + begin, pitch, count, n, ready ? 1.0f : f->scale, &state);
	for (int64_t lane = 0; lane < n; lane++) {
		double *sum = part->sum + begin + lane;

		*sum = *sum * (double)state.shrink[lane] + (double)state.sums[lane];
		moved = moved || state.shrink[lane] != 1.0f;
	}
	if (moved)
		f->isa->scale_lanes(part->o + begin, pitch, f->value_dim, n, state.shrink);
}

/* Asks memory for part i of n of the next tile, all heads of a key row. */
static void fetch(const struct omp_forward *f, const struct scratch *scratch, int64_t i, int64_t n)
{
	const struct part *first = scratch->parts, *last = first + scratch->part_count - 1;
	const int64_t head = first->lanes.heads.kv_head;
	const int64_t heads = last->lanes.heads.kv_head + 1 - head;
	const int64_t begin = scratch->next_count * i / n;
	const int64_t count = scratch->next_count * (i + 1) / n - begin;
	const int64_t *keys = scratch->keys[1] + begin;

	omp_prefetch(&f->keys, head, heads, keys, count, f->head_dim);
	if (!f->v_is_k)
		omp_prefetch(&f->values, head, heads, keys, count, f->value_dim);
}

/* Dot products of the view's lanes, a few key rows at a time: between them the
 * next tile is on its way. */
static void multiply(const struct omp_forward *f, const struct scratch *scratch, int64_t p,
		     const struct omp_view *view, const struct omp_matrix *k)
{
	const int64_t begin = view->lane_begin, n = view->lane_end - begin, pitch = f->pitch;
	const int64_t count = view->keys.end - view->keys.begin;
	const int64_t pieces = omp_ceil_div(count, KEYS_AT_ONCE);

	for (int64_t i = 0; i < pieces; i++) {
		const int64_t key = i * KEYS_AT_ONCE;

		fetch(f, scratch, p * pieces + i, scratch->part_count * pieces);
		f->isa->gemm_nn(hys_min64(KEYS_AT_ONCE, count - key), n, f->head_dim,
				k->at + key * k->pitch, k->pitch, scratch->parts[p].q + begin,
				pitch, scratch->shares + key * pitch + begin, pitch, false);
	}
}

/* o += v^T shares. Where 0 times what a lane does not see would be NaN, each
 * row adds up its own key rows alone. */
static void add_values(const struct omp_forward *f, const struct part *part, const float *shares,
		       const struct omp_view *view, const struct omp_matrix *v)
{
	const int64_t pitch = f->pitch, count = view->keys.end - view->keys.begin;
	const int64_t begin = view->lane_begin, per_row = part->lanes.per_row;

	if (view->whole || omp_is_finite(v->at, count, f->value_dim, v->pitch)) {
		f->isa->gemm_tn(f->value_dim, view->lane_end - begin, count, v->at, v->pitch,
				shares + begin, pitch, part->o + begin, pitch, true);
		return;
	}
	for (int64_t i = view->row_begin; i < view->row_end; i++) {
		const struct omp_range seen = omp_view_row(view, i);

		f->isa->gemm_tn(f->value_dim, per_row, seen.end - seen.begin,
				v->at + seen.begin * v->pitch, v->pitch,
				shares + seen.begin * pitch + i * per_row, pitch,
				part->o + i * per_row, pitch, true);
	}
}

/* The view's lanes of part p attend to key rows scratch->keys[0]. */
static void attend_tile(const struct omp_forward *f, const struct scratch *scratch, int64_t p,
			const struct omp_view *view)
{
	const struct part *part = scratch->parts + p;
	const int64_t kv_head = part->lanes.heads.kv_head;
	const int64_t count = view->keys.end - view->keys.begin;
	const bool copy = view->lane_end - view->lane_begin > OMP_DIRECT_LANES_MOST;
	const struct omp_matrix k = omp_key_rows(f->isa, &f->keys, kv_head, scratch->keys[0], count,
						 f->head_dim, copy, scratch->k);
	const struct omp_matrix v =
		f->v_is_k ? k
			  : omp_key_rows(f->isa, &f->values, kv_head, scratch->keys[0], count,
					 f->value_dim, copy, scratch->v);

	multiply(f, scratch, p, view, &k);
	soften(f, part, scratch->shares, view);
	add_values(f, part, scratch->shares, view, &v);
}

/* The row attends to what its walk hands out. */
static void attend_walk(const struct omp_forward *f, struct scratch *scratch)
{
	const struct omp_lanes *lanes = &scratch->parts->lanes;
	struct omp_walk walk;
	int64_t count;

	omp_walk_start(&walk, &f->rows, lanes->row, lanes->heads.group);
	scratch->next_count = omp_walk_keys(&walk, scratch->keys[1], OMP_TILE);
	while ((count = scratch->next_count) > 0) {
		memcpy(scratch->keys[0], scratch->keys[1], sizeof scratch->keys[0]);
		scratch->next_count = omp_walk_keys(&walk, scratch->keys[1], OMP_TILE);
		for (int64_t p = 0; p < scratch->part_count; p++) {
			const struct omp_view all = {.keys = {0, count},
						     .lane_end = scratch->parts[p].lanes.padded,
						     .row_end = 1,
						     .whole = true};

			attend_tile(f, scratch, p, &all);
		}
	}
}

/* The rows attend to their ranges of one source, whose first key row has the
 * number `origin`. */
static void attend_ranges(const struct omp_forward *f, struct scratch *scratch,
			  const struct omp_range *ranges, int64_t origin)
{
	const struct omp_lanes *lanes = &scratch->parts->lanes;
	const struct omp_range all = omp_shared_all(ranges, lanes->rows);
	struct omp_view view;

	for (int64_t at = all.begin - (all.begin - origin) % OMP_TILE; at < all.end;
	     at += OMP_TILE) {
		if (!omp_view_tile(&view, lanes, ranges, (struct omp_range){at, at + OMP_TILE}))
			continue;
		for (int64_t i = 0; i < OMP_TILE; i++) {
			scratch->keys[0][i] = view.keys.begin + i;
			scratch->keys[1][i] = at + OMP_TILE + i;
		}
		scratch->next_count = hys_max64(0, hys_min64(OMP_TILE, all.end - at - OMP_TILE));
		attend_tile(f, scratch, 0, &view);
	}
}

/* o = sum / (sum of exp, sink included); lse without the sink. */
void omp_forward_finish(const struct omp_forward *f, int64_t row, int64_t head, double largest,
			double sum, float *o)
{
	const struct hys_attention_args *args = f->args;
	double total = sum;

	if (hys_present(&args->sink))
		total += exp((double)*(const float *)omp_at(&args->sink, head, 0, 0) - largest);
	for (int64_t i = 0; i < f->value_dim; i++)
		o[i] = sum == 0.0 ? 0.0f : (float)((double)o[i] / total);
	omp_store(f->isa, &args->o, row, head, o, f->value_dim, false, NULL);
	if (hys_present(&args->lse))
		*(float *)omp_at(&args->lse, row, head, 0) = (float)(largest + log(sum));
}

static void finish_part(const struct omp_forward *f, const struct scratch *scratch,
			const struct part *part)
{
	const struct omp_lanes *lanes = &part->lanes;

	for (int64_t lane = 0; lane < lanes->count; lane++) {
		omp_lanes_row(part->o, f->pitch, lane, f->value_dim, scratch->spare);
		omp_forward_finish(f, lanes->row + lane / lanes->per_row,
				   lanes->heads.begin + lane % lanes->per_row,
				   (double)part->soften.largest[lane], part->sum[lane],
				   scratch->spare);
	}
}

/* One row and one set. */
static void set_item(void *context, int64_t item, int32_t thread)
{
	const struct omp_forward *f = context;
	const struct hys_problem *problem = f->call->problem;
	const int64_t groups = problem->scoring.groups;
	const int64_t row = f->order[item / groups];
	struct omp_arena arena = {f->scratch + thread * f->scratch_bytes, 0};
	struct scratch *scratch = lay_out(&arena, problem, false);
	struct omp_heads heads = {0};

	scratch->part_count = 0;
	while (omp_heads_next(problem, false, &heads))
		if (heads.group == item % groups)
			start_part(f, scratch, &scratch->parts[scratch->part_count++], &heads, row);
	attend_walk(f, scratch);
	for (int64_t p = 0; p < scratch->part_count; p++)
		finish_part(f, scratch, scratch->parts + p);
}

/* A few rows and one key/value head: head after head, so that its key rows stay
 * in a cache. */
static void rows_item(void *context, int64_t item, int32_t thread)
{
	const struct omp_forward *f = context;
	const struct hys_problem *problem = f->call->problem;
	const int64_t blocks = omp_ceil_div(f->call->size.rows, f->item_rows);
	const int64_t row = f->order[item % blocks] * f->item_rows;
	struct omp_arena arena = {f->scratch + thread * f->scratch_bytes, 0};
	struct scratch *scratch = lay_out(&arena, problem, true);
	struct omp_heads heads = {0};

	while (heads.end == 0 || heads.kv_head < item / blocks)
		omp_heads_next(problem, true, &heads);
	scratch->part_count = 1;
	start_part(f, scratch, scratch->parts, &heads, row);
	omp_shared_start(&scratch->shared, &f->rows, &scratch->parts->lanes);
	attend_ranges(f, scratch, scratch->shared.first, 0);
	attend_ranges(f, scratch, scratch->shared.second, f->rows.keys);
	finish_part(f, scratch, scratch->parts);
}

/* Key rows that the rows of an item attend to. */
static int64_t rows_cost(const void *context, int64_t item)
{
	const struct omp_forward *f = context;
	const int64_t end = hys_min64((item + 1) * f->item_rows, f->call->size.rows);
	int64_t cost = 0;

	for (int64_t t = item * f->item_rows; t < end; t++)
		cost += omp_attended(&f->rows, t);
	return cost;
}

static void attend_all(struct omp_forward *f, int32_t threads)
{
	const struct hys_problem *problem = f->call->problem;
	const int64_t rows = f->call->size.rows;

	if (omp_is_shared(&f->rows)) {
		f->item_rows = rows_per_item(problem, rows, threads);
		f->pitch = omp_pitch(f->item_rows * omp_heads_most(problem));
		omp_order(f->order, omp_ceil_div(rows, f->item_rows), rows_cost, f);
		omp_for(threads, omp_ceil_div(rows, f->item_rows) * problem->attending.kv_heads,
			rows_item, f);
		return;
	}
	f->item_rows = 1;
	f->pitch = omp_pitch(omp_heads_most(problem));
	omp_order(f->order, rows, rows_cost, f);
	omp_for(threads, rows * problem->scoring.groups,
		omp_is_narrow(problem) ? omp_narrow_item : set_item, f);
}

hys_status omp_attention_forward_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				     void *instance, const struct hys_call *call,
				     struct hys_error *error)
{
	const struct hys_attention_args *args = &call->args.attention;
	const struct hys_problem *problem = call->problem;
	const int64_t second = hys_present(&args->window_k) ? call->size.window_keys : 0;
	struct omp_forward f = {
		.call = call,
		.args = args,
		.isa = omp_isa_of_stream(kernel, stream),
		.rows = {problem, &call->batch, &args->indices, call->size.keys, call->size.entries,
			 second},
		.keys = {&args->k, &args->window_k, call->size.keys},
		.v_is_k = !hys_present(&args->v) && (second == 0 || !hys_present(&args->window_v)),
		.head_dim = problem->attending.head_dim,
		.value_dim = problem->attending.value_dim,
		.capped = problem->attending.softcap > 0.0,
		.scratch = omp_arena(&call->workspace).base,
		.scratch_bytes = scratch_bytes(problem),
	};

	(void)instance, (void)error;
	f.values = omp_values(&f.keys, &args->v, &args->window_v);
	f.scale = f.capped ? 1.0f : (float)problem->attending.scale;
	f.order = (int32_t *)(void *)f.scratch;
	f.scratch += order_bytes(call->size.rows);
	attend_all(&f, omp_threads(stream));
	return HYS_OK;
}
