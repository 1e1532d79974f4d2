/* omp_attention.c - attention forward.
 *
 * An item is one key/value head (and group) of one row, or, where a row attends
 * to one range of key rows alone, of a few neighbouring rows. Its lanes (see
 * omp_lanes.h) meet tiles of key rows: logits = k q, online softmax, o += v^T
 * shares.
 *
 * A lane's numbers never depend on the lanes beside it: the key rows of a set
 * come in their order, 64 at a time; those of a range in tiles at multiples of
 * 64, in which what a lane does not see has a share of exactly 0. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "omp_kernels.h"
#include "omp_attention.h"

#define LANES_WANTED 128
/* Up to this many lanes read each key row about once, where it lies. */
#define DIRECT_LANES_MOST 32
#define KEYS_AT_ONCE 24

/* Scratch of one thread. */
struct scratch {
	int64_t keys[2][OMP_TILE]; /* of this tile and the next */
	int64_t next_count;
	struct omp_shared shared;
	float *q, *o;	/* [D][lanes], [V][lanes] */
	float *shares;	/* [OMP_TILE][lanes] */
	float *k, *v;	/* [OMP_TILE][D], [OMP_TILE][V] */
	float *spare;	/* [OMP_LANES][max(D, V)] */
	double *sum;	/* [lanes] of exp(logit - largest) */
	float *factors; /* [lanes] */
	struct omp_soften soften;
};

/* Rows of an item where they share: lanes enough, and items enough for all threads. */
static int64_t rows_per_item(const struct hys_problem *problem, int64_t rows, int32_t threads)
{
	const int64_t by_lanes = omp_shared_rows(problem, LANES_WANTED);
	const int64_t by_rows = rows * problem->attending.kv_heads / (4 * (int64_t)threads);

	return hys_max64(1, hys_min64(by_lanes, by_rows));
}

static struct scratch *lay_out(struct omp_arena *arena, const struct hys_problem *problem)
{
	const int64_t lanes = omp_shared_rows(problem, LANES_WANTED) * omp_heads_most(problem);
	const int64_t pitch = omp_pitch(lanes);
	const int64_t k_pitch = omp_pitch(problem->attending.head_dim);
	const int64_t v_pitch = omp_pitch(problem->attending.value_dim);
	struct scratch *scratch = omp_take(arena, 1, sizeof *scratch);
	struct scratch made;

	made.q = omp_take(arena, problem->attending.head_dim * pitch, sizeof(float));
	made.o = omp_take(arena, problem->attending.value_dim * pitch, sizeof(float));
	made.shares = omp_take(arena, OMP_TILE * pitch, sizeof(float));
	made.k = omp_take(arena, OMP_TILE * k_pitch, sizeof(float));
	made.v = omp_take(arena, OMP_TILE * v_pitch, sizeof(float));
	made.spare = omp_take(arena, OMP_LANES * hys_max64(k_pitch, v_pitch), sizeof(float));
	made.sum = omp_take(arena, pitch, sizeof(double));
	made.factors = omp_take(arena, pitch, sizeof(float));
	made.soften.largest = omp_take(arena, pitch, sizeof(float));
	made.soften.shrink = omp_take(arena, pitch, sizeof(float));
	made.soften.sums = omp_take(arena, pitch, sizeof(float));
	if (scratch)
		*scratch = made;
	return scratch;
}

static int64_t scratch_bytes(const struct hys_problem *problem)
{
	struct omp_arena arena = {0};

	lay_out(&arena, problem);
	return hys_max64(arena.used, omp_is_narrow(problem) ? omp_narrow_scratch(problem) : 0);
}

int64_t omp_attention_forward_workspace(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_size *size)
{
	(void)kernel;
	return hys_mul64(scratch_bytes(size->problem), omp_device(device)->threads);
}

static void start_lanes(const struct omp_forward *f, const struct omp_lanes *lanes,
			struct scratch *scratch)
{
	omp_lanes_load(f->isa, &f->args->q, lanes, f->head_dim, scratch->q, scratch->spare,
		       omp_pitch(f->head_dim));
	memset(scratch->o, 0, (size_t)(f->value_dim * lanes->pitch) * sizeof(float));
	for (int64_t lane = 0; lane < lanes->padded; lane++) {
		scratch->soften.largest[lane] = -FLT_MAX;
		scratch->sum[lane] = 0.0;
	}
}

/* Logits of the keys in scratch->k become shares relative to the largest logit
 * so far, which stays finite: -inf logits then give exactly 0, +inf ones an
 * infinite sum. What was summed before shrinks accordingly. */
static void soften(const struct omp_forward *f, const struct omp_lanes *lanes,
		   const struct scratch *scratch, const struct omp_view *view, int64_t count)
{
	const int64_t begin = view->lane_begin, n = view->lane_end - begin;
	const struct omp_soften state = {scratch->soften.largest + begin,
					 scratch->soften.shrink + begin,
					 scratch->soften.sums + begin};
	float *x = scratch->shares + begin;
	bool moved = false;

	for (int64_t key = 0; f->capped && key < count; key++)
		omp_logits(f->call->problem, x + key * lanes->pitch, n);
	if (!view->whole)
		omp_view_hide(view, lanes, scratch->shares, -INFINITY);
	f->isa->soften(x, lanes->pitch, count, n, f->scale, &state);
	for (int64_t lane = 0; lane < n; lane++) {
		double *sum = scratch->sum + begin + lane;

		*sum = *sum * (double)state.shrink[lane] + (double)state.sums[lane];
		moved = moved || state.shrink[lane] != 1.0f;
	}
	if (moved)
		f->isa->scale_lanes(scratch->o + begin, lanes->pitch, f->value_dim, n,
				    state.shrink);
}

/* Asks memory for part i of `parts` of the next tile's key rows. */
static void fetch_part(const struct omp_forward *f, const struct omp_lanes *lanes,
		       const struct scratch *scratch, int64_t i, int64_t parts)
{
	const int64_t begin = scratch->next_count * i / parts;
	const int64_t count = scratch->next_count * (i + 1) / parts - begin;
	const int64_t *keys = scratch->keys[1] + begin;

	omp_prefetch(&f->keys, lanes->heads.kv_head, keys, count, f->head_dim);
	if (!f->v_is_k)
		omp_prefetch(&f->values, lanes->heads.kv_head, keys, count, f->value_dim);
}

/* Logits of the view's lanes, a few key rows at a time: between them the next
 * tile is on its way. */
static void multiply(const struct omp_forward *f, const struct omp_lanes *lanes,
		     const struct scratch *scratch, const struct omp_view *view,
		     const struct omp_matrix *k, int64_t count)
{
	const int64_t begin = view->lane_begin, n = view->lane_end - begin;
	const int64_t parts = omp_ceil_div(count, KEYS_AT_ONCE);

	for (int64_t i = 0; i < parts; i++) {
		const int64_t key = i * KEYS_AT_ONCE;

		fetch_part(f, lanes, scratch, i, parts);
		f->isa->gemm_nn(hys_min64(KEYS_AT_ONCE, count - key), n, f->head_dim,
				k->at + key * k->pitch, k->pitch, scratch->q + begin, lanes->pitch,
				scratch->shares + key * lanes->pitch + begin, lanes->pitch, false);
	}
}

/* o += v^T shares. Where 0 times what a lane does not see would be NaN, each
 * row adds up its own key rows alone. */
static void add_values(const struct omp_forward *f, const struct omp_lanes *lanes,
		       const struct scratch *scratch, const struct omp_view *view,
		       const struct omp_matrix *v)
{
	const int64_t pitch = lanes->pitch, count = view->keys.end - view->keys.begin;
	const int64_t begin = view->lane_begin;

	if (view->whole || omp_is_finite(v->at, count, f->value_dim, v->pitch)) {
		f->isa->gemm_tn(f->value_dim, view->lane_end - begin, count, v->at, v->pitch,
				scratch->shares + begin, pitch, scratch->o + begin, pitch, true);
		return;
	}
	for (int64_t i = view->row_begin; i < view->row_end; i++) {
		const struct omp_range seen = omp_view_row(view, i);
		const int64_t lane = i * lanes->per_row;

		f->isa->gemm_tn(f->value_dim, lanes->per_row, seen.end - seen.begin,
				v->at + seen.begin * v->pitch, v->pitch,
				scratch->shares + seen.begin * pitch + lane, pitch,
				scratch->o + lane, pitch, true);
	}
}

/* The lanes of the view attend to key rows scratch->keys[0]. */
static void attend_tile(const struct omp_forward *f, const struct omp_lanes *lanes,
			struct scratch *scratch, const struct omp_view *view)
{
	const int64_t kv_head = lanes->heads.kv_head, count = view->keys.end - view->keys.begin;
	const bool copy = view->lane_end - view->lane_begin > DIRECT_LANES_MOST;
	const struct omp_matrix k = omp_key_rows(f->isa, &f->keys, kv_head, scratch->keys[0], count,
						 f->head_dim, copy, scratch->k);
	const struct omp_matrix v =
		f->v_is_k ? k
			  : omp_key_rows(f->isa, &f->values, kv_head, scratch->keys[0], count,
					 f->value_dim, copy, scratch->v);

	multiply(f, lanes, scratch, view, &k, count);
	soften(f, lanes, scratch, view, count);
	add_values(f, lanes, scratch, view, &v);
}

/* The row attends to what its walk hands out. */
static void attend_walk(const struct omp_forward *f, const struct omp_lanes *lanes,
			struct scratch *scratch)
{
	struct omp_view all = {.lane_end = lanes->padded, .row_end = 1, .whole = true};
	struct omp_walk walk;

	omp_walk_start(&walk, &f->rows, lanes->row, lanes->heads.group);
	scratch->next_count = omp_walk_keys(&walk, scratch->keys[1], OMP_TILE);
	while ((all.keys.end = scratch->next_count) > 0) {
		memcpy(scratch->keys[0], scratch->keys[1], sizeof scratch->keys[0]);
		scratch->next_count = omp_walk_keys(&walk, scratch->keys[1], OMP_TILE);
		attend_tile(f, lanes, scratch, &all);
	}
}

/* The rows attend to their ranges of one source, whose first key row has the
 * number `origin`. */
static void attend_ranges(const struct omp_forward *f, const struct omp_lanes *lanes,
			  struct scratch *scratch, const struct omp_range *ranges, int64_t origin)
{
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
		attend_tile(f, lanes, scratch, &view);
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

static void finish_lane(const struct omp_forward *f, const struct omp_lanes *lanes,
			const struct scratch *scratch, int64_t lane)
{
	omp_lanes_row(scratch->o, lanes->pitch, lane, f->value_dim, scratch->spare);
	omp_forward_finish(
		f, lanes->row + lane / lanes->per_row, lanes->heads.begin + lane % lanes->per_row,
		(double)scratch->soften.largest[lane], scratch->sum[lane], scratch->spare);
}

/* The last rows first: causal ones have more to do. Where rows share key rows,
 * head after head, so that those stay in a cache. */
static void attend_item(void *context, int64_t item, int32_t thread)
{
	const struct omp_forward *f = context;
	const struct hys_problem *problem = f->call->problem;
	const int64_t blocks = omp_ceil_div(f->call->size.rows, f->item_rows);
	const int64_t segment = f->shared ? item / blocks : item % f->segments;
	const int64_t block = f->shared ? item % blocks : item / f->segments;
	const int64_t row = (blocks - 1 - block) * f->item_rows;
	struct omp_arena arena = {f->scratch + thread * f->scratch_bytes, 0};
	struct scratch *scratch = lay_out(&arena, problem);
	struct omp_heads heads = {0};

	for (int64_t i = 0; i <= segment; i++)
		omp_heads_next(problem, f->shared, &heads);
	const struct omp_lanes lanes =
		omp_lanes(&heads, row, hys_min64(f->item_rows, f->call->size.rows - row), f->pitch);

	start_lanes(f, &lanes, scratch);
	if (f->shared) {
		omp_shared_start(&scratch->shared, &f->rows, &lanes);
		attend_ranges(f, &lanes, scratch, scratch->shared.first, 0);
		attend_ranges(f, &lanes, scratch, scratch->shared.second, f->rows.keys);
	} else {
		attend_walk(f, &lanes, scratch);
	}
	for (int64_t lane = 0; lane < lanes.count; lane++)
		finish_lane(f, &lanes, scratch, lane);
}

static int64_t count_heads(const struct hys_problem *problem, bool one_group)
{
	struct omp_heads heads = {0};
	int64_t count = 0;

	while (omp_heads_next(problem, one_group, &heads))
		count++;
	return count;
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
		.item_rows = 1,
		.capped = problem->attending.softcap > 0.0,
		.scratch = omp_arena(&call->workspace).base,
		.scratch_bytes = scratch_bytes(problem),
	};

	(void)instance, (void)error;
	f.values = omp_values(&f.keys, &args->v, &args->window_v);
	f.scale = f.capped ? 1.0f : (float)problem->attending.scale;
	f.shared = omp_is_shared(&f.rows);
	if (f.shared)
		f.item_rows = rows_per_item(problem, call->size.rows, omp_threads(stream));
	if (!f.shared && omp_is_narrow(problem)) {
		omp_for(omp_threads(stream), call->size.rows * problem->scoring.groups,
			omp_narrow_item, &f);
		return HYS_OK;
	}
	f.segments = count_heads(problem, f.shared);
	f.pitch = omp_pitch(f.item_rows * omp_heads_most(problem));
	omp_for(omp_threads(stream), omp_ceil_div(call->size.rows, f.item_rows) * f.segments,
		attend_item, &f);
	return HYS_OK;
}
