/* omp_attention_backward.c - attention backward, the same bits for any number
 * of threads.
 *
 * For a tile of rows and a chunk of their key rows (omp_backward.h), first
 * threads share the units: shares and d logits are recomputed into memory, dq
 * grows. Then threads own disjoint ranges of key rows, and add what the tile's
 * units, in order, hold for them to dk and dv. Where rows share key rows and
 * there are heads enough, a thread owns a key/value head instead and shares
 * never leave its cache. Either way a key row's gradient is added up unit after
 * unit, whoever does it. */
#include <math.h>
#include <string.h>

#include "omp_backward.h"
#include "omp_kernels.h"

#define LANES_WANTED 128
#define TILE_ROWS_MOST 256
#define TILE_BYTES (INT64_C(64) << 20) /* of shares, d logits and dq */

/* ---- memory ---- */

static void take_unit(struct omp_arena *arena, const struct hys_problem *problem,
		      const struct omp_backward_layout *at, int64_t chunk, struct omp_unit *unit)
{
	const int64_t columns = problem->attending.head_dim * at->pitch;
	const int64_t rows = omp_heads_most(problem) * at->q_pitch;
	const int64_t pitch = at->pitch;
	struct omp_unit made = {
		.shares = omp_take(arena, chunk * pitch, sizeof(float)),
		.d_logits = omp_take(arena, chunk * pitch, sizeof(float)),
		.dq = omp_take(arena, hys_max64(columns, rows), sizeof(float)),
		.totals = omp_take(arena, pitch, sizeof(float)),
		.means = omp_take(arena, pitch, sizeof(float)),
	};

	if (unit)
		*unit = made;
}

static struct omp_backward_scratch lay_out_scratch(struct omp_arena *arena,
						   const struct hys_problem *problem, bool shared,
						   const struct omp_backward_layout *at)
{
	const struct hys_attending *attending = &problem->attending;
	const int64_t lanes = at->block_rows * omp_heads_most(problem);
	const int64_t parts = shared ? 1 : omp_parts_most(problem);
	const int64_t q = hys_max64(attending->head_dim * at->pitch, lanes * at->q_pitch);
	const int64_t grad_o = hys_max64(attending->value_dim * at->pitch, lanes * at->v_pitch);
	struct omp_backward_scratch s = {
		.shared = omp_take(arena, 1, sizeof *s.shared),
		.q = omp_take(arena, parts * q, sizeof(float)),
		.grad_o = omp_take(arena, parts * grad_o, sizeof(float)),
		.q_rows = omp_take(arena, lanes * at->q_pitch, sizeof(float)),
		.grad_o_rows = omp_take(arena, lanes * at->v_pitch, sizeof(float)),
		.k = omp_take(arena, OMP_TILE * at->q_pitch, sizeof(float)),
		.v = omp_take(arena, OMP_TILE * at->v_pitch, sizeof(float)),
		.k_rows = omp_take(arena, OMP_TILE, sizeof *s.k_rows),
		.v_rows = omp_take(arena, OMP_TILE, sizeof *s.v_rows),
		.slope = omp_take(arena, attending->softcap > 0.0 ? OMP_TILE * at->pitch : 0,
				  sizeof(float)),
		.product = omp_take(arena, OMP_TILE * at->product_pitch, sizeof(float)),
		.spare = omp_take(arena, OMP_LANES * at->product_pitch, sizeof(float)),
	};

	if (shared) {
		s.own = omp_take(arena, 1, sizeof *s.own);
		take_unit(arena, problem, at, OMP_TILE, s.own);
	}
	return s;
}

static int64_t count_segments(const struct hys_problem *problem, bool one_group)
{
	struct omp_heads heads = {0};
	int64_t count = 0;

	while (omp_heads_next(problem, one_group, &heads))
		count++;
	return count;
}

/* Sizes of chunk, block and tile. Only the problem decides the rows of a block,
 * because they decide the order of sums; the same goes for a tile's where its
 * rows have several chunks. */
static void size_tiles(const struct hys_size *size, bool shared, struct omp_backward_layout *at)
{
	const struct hys_problem *problem = size->problem;
	const struct hys_attending *attending = &problem->attending;
	int64_t block_bytes;

	at->groups = shared ? 1 : problem->scoring.groups;
	at->segments = count_segments(problem, shared);
	at->chunk = OMP_CHUNK_MOST;
	if (!shared)
		at->chunk = hys_max64(1, hys_min64(omp_walk_most(size), OMP_CHUNK_MOST));
	at->block_rows = shared ? omp_shared_rows(problem, LANES_WANTED) : 1;
	at->pitch = omp_pitch(at->block_rows * omp_heads_most(problem));
	at->q_pitch = omp_pitch(attending->head_dim);
	at->v_pitch = omp_pitch(attending->value_dim);
	at->product_pitch = hys_max64(at->q_pitch, at->v_pitch);
	at->chunk_pitch = hys_round_up(at->chunk, OMP_LANES);
	block_bytes = at->segments * at->pitch * (2 * OMP_CHUNK_MOST + attending->head_dim) *
		      (int64_t)sizeof(float);
	/* Its factors are 1 and more. NOLINTNEXTLINE(clang-analyzer-core.DivideZero) */
	const int64_t by_bytes = TILE_BYTES / block_bytes;
	at->tile_blocks = hys_max64(1, hys_min64(by_bytes, TILE_ROWS_MOST / at->block_rows));
	at->tile_blocks =
		hys_min64(at->tile_blocks, hys_max64(1, omp_ceil_div(size->rows, at->block_rows)));
}

static void lay_out(struct omp_arena *arena, const struct hys_size *size, int32_t threads,
		    bool shared, struct omp_backward_layout *at)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t key_heads =
		hys_mul64(hys_add64(size->keys, size->window_keys), attending->kv_heads);
	struct omp_arena counting = {0};

	size_tiles(size, shared, at);
	const int64_t sets = at->tile_blocks * at->groups;
	const int64_t units = at->tile_blocks * at->segments;

	at->walks = omp_take(arena, sets, sizeof *at->walks);
	at->keys = omp_take(arena, sets * at->chunk, sizeof *at->keys);
	at->counts = omp_take(arena, sets, sizeof *at->counts);
	at->units = omp_take(arena, units, sizeof *at->units);
	for (int64_t i = 0; i < units; i++)
		take_unit(arena, size->problem, at, at->chunk_pitch,
			  arena->base ? at->units + i : NULL);
	at->dsink = omp_take(arena, attending->heads, sizeof(double));
	at->dk = omp_take(arena, hys_mul64(key_heads, attending->head_dim), sizeof(float));
	at->dv = omp_take(arena, hys_mul64(key_heads, attending->value_dim), sizeof(float));
	lay_out_scratch(&counting, size->problem, shared, at);
	at->scratch_bytes = counting.used;
	at->scratch = omp_take(arena, hys_mul64(counting.used, threads), 1);
}

/* A plan does not know whether calls come with indices. */
int64_t omp_attention_backward_workspace(const struct hys_kernel *kernel,
					 const struct hys_device *device,
					 const struct hys_size *size)
{
	const int32_t threads = omp_device(device)->threads;
	struct omp_arena rows = {0}, blocks = {0};
	struct omp_backward_layout at;

	(void)kernel;
	lay_out(&rows, size, threads, false, &at);
	lay_out(&blocks, size, threads, true, &at);
	return hys_max64(rows.used, blocks.used);
}

struct omp_backward_scratch omp_backward_scratch(const struct omp_backward *b, int32_t thread)
{
	struct omp_arena arena = {b->at.scratch + thread * b->at.scratch_bytes, 0};

	return lay_out_scratch(&arena, b->call->problem, b->shared, &b->at);
}

/* ---- units ---- */

static void name_lanes(const struct omp_backward *b, struct omp_unit *unit,
		       const struct omp_heads *heads, int64_t row)
{
	const int64_t rows = hys_min64(b->at.block_rows, b->call->size.rows - row);

	/* NULL only while space is counted. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	unit->lanes = omp_lanes(heads, row, rows, b->at.pitch);
}

static void name_units(struct omp_backward *b)
{
	for (int64_t block = 0; block < b->blocks; block++) {
		const int64_t row = b->tile + block * b->at.block_rows;
		struct omp_unit *unit = b->at.units + block * b->at.segments;
		struct omp_heads heads = {0};

		for (; omp_heads_next(b->call->problem, b->shared, &heads); unit++) {
			name_lanes(b, unit, &heads, row);
			unit->set = block * b->at.groups + (b->shared ? 0 : heads.group);
		}
	}
}

static void start_unit(void *context, int64_t item, int32_t thread)
{
	const struct omp_backward *b = context;
	const struct omp_backward_scratch s = omp_backward_scratch(b, thread);

	(b->narrow ? omp_narrow_start : omp_unit_start)(b, &s, b->at.units + item);
}

static void store_unit(void *context, int64_t item, int32_t thread)
{
	const struct omp_backward *b = context;
	const struct omp_backward_scratch s = omp_backward_scratch(b, thread);

	(b->narrow ? omp_narrow_store_dq : omp_unit_store_dq)(b, &s, b->at.units + item);
}

/* ---- sets of one row ---- */

/* The units of a set are neighbours. */
struct parts {
	struct omp_unit *first;
	int64_t count;
};

static struct parts parts_of(const struct omp_backward *b, int64_t set)
{
	struct parts parts = {b->at.units + set / b->at.groups * b->at.segments, 0};

	while (parts.first->set != set)
		parts.first++;
	while (parts.first + parts.count < b->at.units + b->blocks * b->at.segments &&
	       parts.first[parts.count].set == set)
		parts.count++;
	return parts;
}

/* Asks memory for part i of n of some key rows, all heads of each. */
static void fetch(const struct omp_backward *b, const struct parts *parts, const int64_t *keys,
		  int64_t count, int64_t i, int64_t n)
{
	const int64_t head = parts->first->lanes.heads.kv_head;
	const int64_t heads = parts->first[parts->count - 1].lanes.heads.kv_head + 1 - head;
	const int64_t begin = count * i / n;

	omp_prefetch(&b->keys, head, heads, keys + begin, count * (i + 1) / n - begin, b->head_dim);
	if (!b->v_is_k)
		omp_prefetch(&b->values, head, heads, keys + begin, count * (i + 1) / n - begin,
			     b->value_dim);
}

static void share_set(void *context, int64_t set, int32_t thread)
{
	const struct omp_backward *b = context;
	const struct omp_backward_scratch s = omp_backward_scratch(b, thread);
	const int64_t count = b->at.counts[set];
	const int64_t *keys = b->at.keys + set * b->at.chunk;
	const struct parts parts = parts_of(b, set);

	for (int64_t p = 0; count > 0 && p < parts.count; p++)
		(b->narrow ? omp_narrow_load : omp_unit_load)(b, &s, parts.first + p, p);
	for (int64_t first = 0; first < count; first += OMP_TILE) {
		const int64_t n = hys_min64(OMP_TILE, count - first);
		const int64_t next = hys_min64(OMP_TILE, count - first - n);
		const struct omp_view view = {.keys = {0, n}, .whole = true};

		for (int64_t p = 0; b->narrow && p < parts.count; p++)
			omp_narrow_share(b, &s, parts.first + p, p, keys + first, n, first);
		for (int64_t p = 0; !b->narrow && p < parts.count; p++) {
			fetch(b, &parts, keys + first + n, next, p, parts.count);
			omp_unit_share(b, &s, parts.first + p, p, &view, keys + first,
				       first * b->at.pitch);
		}
	}
}

static void list_keys(void *context, int64_t set, int32_t thread)
{
	const struct omp_backward *b = context;

	(void)thread;
	b->at.counts[set] =
		omp_walk_keys(&b->at.walks[set], b->at.keys + set * b->at.chunk, b->at.chunk);
}

/* ---- blocks of rows that share ---- */

/* What the unit's rows look at of a tile of key rows; false if that is nothing.
 * All lanes take part. */
static bool view_tile(const struct omp_unit *unit, const struct omp_range *ranges,
		      struct omp_range tile, struct omp_view *view)
{
	const struct omp_lanes *lanes = &unit->lanes;

	if (!omp_view_tile(view, lanes, ranges, tile))
		return false;
	view->lane_begin = view->row_begin = 0;
	view->lane_end = lanes->padded;
	view->row_end = lanes->rows;
	for (int64_t i = 0; i < lanes->rows; i++)
		view->whole = view->whole && ranges[i].begin <= view->keys.begin &&
			      ranges[i].end >= view->keys.end;
	return true;
}

/* What of the key rows [begin, end) the unit's block looks at, from the first
 * key row of a tile on. */
static struct omp_range seen_by(const struct omp_unit *unit, const struct omp_range *ranges,
				struct omp_range chunk)
{
	struct omp_range all = omp_shared_all(ranges, unit->lanes.rows);

	all.begin = hys_max64(all.begin, chunk.begin);
	all.begin -= (all.begin - chunk.begin) % OMP_TILE;
	all.end = hys_min64(all.end, chunk.end);
	return all;
}

static void list_range(void *context, int64_t set, int32_t thread)
{
	const struct omp_backward *b = context;
	const struct omp_backward_scratch s = omp_backward_scratch(b, thread);
	const struct omp_unit *unit = b->at.units + set * b->at.segments;
	const struct omp_range *ranges = omp_unit_ranges(b, unit, s.shared, b->chunk.begin);
	const struct omp_range seen = seen_by(unit, ranges, b->chunk);
	int64_t *keys = b->at.keys + set * b->at.chunk;

	b->at.counts[set] = hys_max64(0, seen.end - seen.begin);
	for (int64_t i = 0; i < b->at.counts[set]; i++)
		keys[i] = seen.begin + i;
}

/* One tile of a unit's key rows, whose shares begin at key row `at`; what is not
 * seen gets shares of 0. */
static void share_tile(const struct omp_backward *b, const struct omp_backward_scratch *s,
		       struct omp_unit *unit, const struct omp_range *ranges, struct omp_range tile,
		       const int64_t *keys, int64_t at)
{
	const int64_t pitch = b->at.pitch;
	const size_t bytes = (size_t)((tile.end - tile.begin) * pitch) * sizeof(float);
	struct omp_view view;
	const bool seen = view_tile(unit, ranges, tile, &view);

	if (!seen || view.keys.begin > tile.begin || view.keys.end < tile.end) {
		memset(unit->shares + at * pitch, 0, bytes);
		memset(unit->d_logits + at * pitch, 0, bytes);
	}
	if (!seen || !view.whole || view.keys.begin > tile.begin || view.keys.end < tile.end)
		unit->hides |= (uint8_t)(1 << at / OMP_TILE);
	if (seen)
		omp_unit_share(b, s, unit, 0, &view, keys + (view.keys.begin - tile.begin),
			       (at + view.keys.begin - tile.begin) * pitch);
}

static void share_unit(void *context, int64_t item, int32_t thread)
{
	const struct omp_backward *b = context;
	const struct omp_backward_scratch s = omp_backward_scratch(b, thread);
	struct omp_unit *unit = b->at.units + item;
	const int64_t count = b->at.counts[unit->set];
	const int64_t *keys = b->at.keys + unit->set * b->at.chunk;

	unit->hides = 0;
	if (count == 0)
		return;
	const struct omp_range *ranges = omp_unit_ranges(b, unit, s.shared, keys[0]);

	omp_unit_load(b, &s, unit, 0);
	for (int64_t at = 0; at < count; at += OMP_TILE) {
		const struct omp_range tile = {keys[at],
					       keys[at] + hys_min64(OMP_TILE, count - at)};

		share_tile(b, &s, unit, ranges, tile, keys + at, at);
	}
}

/* ---- threads that own a key/value head ---- */

static void own_range(const struct omp_backward *b, const struct omp_backward_scratch *s,
		      struct omp_unit *unit, const struct omp_range *ranges,
		      struct omp_range source)
{
	const struct omp_range seen = seen_by(unit, ranges, source);
	int64_t keys[OMP_TILE];

	for (int64_t at = seen.begin; at < seen.end; at += OMP_TILE) {
		const struct omp_range tile = {at, hys_min64(at + OMP_TILE, seen.end)};

		for (int64_t i = 0; i < tile.end - at; i++)
			keys[i] = at + i;
		unit->hides = 0;
		share_tile(b, s, unit, ranges, tile, keys, 0);
		if (b->wants_dk || b->wants_dv)
			omp_unit_collect(b, s, unit, keys, 0, tile.end - at);
	}
}

static void own_head(void *context, int64_t head, int32_t thread)
{
	const struct omp_backward *b = context;
	const struct omp_backward_scratch s = omp_backward_scratch(b, thread);
	const struct omp_range first = {0, b->rows.keys};
	const struct omp_range second = {first.end, first.end + b->rows.window_keys};
	struct omp_heads heads = {0};

	while (heads.end == 0 || heads.kv_head < head)
		omp_heads_next(b->call->problem, true, &heads);
	for (int64_t row = 0; row < b->call->size.rows; row += b->at.block_rows) {
		name_lanes(b, s.own, &heads, row);
		omp_unit_start(b, &s, s.own);
		omp_unit_load(b, &s, s.own, 0);
		omp_shared_start(s.shared, &b->rows, &s.own->lanes);
		own_range(b, &s, s.own, s.shared->first, first);
		own_range(b, &s, s.own, s.shared->second, second);
		if (hys_present(&b->args->dq))
			omp_unit_store_dq(b, &s, s.own);
		if (hys_present(&b->args->sink) && hys_present(&b->args->dsink))
			omp_unit_add_dsink(b, s.own);
	}
}

/* ---- the whole ---- */

/* False when no set has key rows left. */
static bool do_chunk(struct omp_backward *b)
{
	const int64_t sets = b->blocks * b->at.groups;
	const int64_t units = b->blocks * b->at.segments;
	int64_t most = 0;

	omp_for(b->threads, sets, b->shared ? list_range : list_keys, b);
	for (int64_t set = 0; set < sets; set++)
		most = hys_max64(most, b->at.counts[set]);
	if (most == 0)
		return false;
	omp_for(b->threads, b->shared ? units : sets, b->shared ? share_unit : share_set, b);
	omp_backward_collect(b);
	return true;
}

static void do_ranges(struct omp_backward *b, int64_t begin, int64_t end)
{
	for (int64_t at = begin; at < end; at += b->at.chunk) {
		b->chunk = (struct omp_range){at, hys_min64(at + b->at.chunk, end)};
		do_chunk(b);
	}
}

static void do_walks(struct omp_backward *b)
{
	for (int64_t set = 0; set < b->blocks * b->at.groups; set++)
		omp_walk_start(&b->at.walks[set], &b->rows, b->tile + set / b->at.groups,
			       set % b->at.groups);
	while (do_chunk(b))
		;
}

static void do_tile(struct omp_backward *b)
{
	const int64_t units = b->blocks * b->at.segments;

	name_units(b);
	omp_for(b->threads, units, start_unit, b);
	if (b->shared) {
		do_ranges(b, 0, b->rows.keys);
		do_ranges(b, b->rows.keys, b->rows.keys + b->rows.window_keys);
	} else {
		do_walks(b);
	}
	if (hys_present(&b->args->dq))
		omp_for(b->threads, units, store_unit, b);
	if (hys_present(&b->args->sink) && hys_present(&b->args->dsink))
		for (int64_t i = 0; i < units; i++)
			omp_unit_add_dsink(b, b->at.units + i);
}

static void do_tiles(struct omp_backward *b)
{
	const int64_t rows = b->call->size.rows;

	if (b->shared && b->kv_heads >= b->threads) {
		omp_for(b->threads, b->kv_heads, own_head, b);
		return;
	}
	for (; b->tile < rows; b->tile += b->at.tile_blocks * b->at.block_rows) {
		b->blocks = hys_min64(b->at.tile_blocks,
				      omp_ceil_div(rows - b->tile, b->at.block_rows));
		do_tile(b);
	}
}

static void store_dsink(const struct omp_backward *b)
{
	for (int64_t head = 0; head < b->heads; head++) {
		float *out = omp_at(&b->args->dsink, head, 0, 0);

		*out = (float)(b->at.dsink[head] + (b->add_sums ? (double)*out : 0.0));
	}
}

static struct omp_backward make(const struct hys_kernel *kernel, const struct hys_stream *stream,
				const struct hys_call *call)
{
	const struct hys_attention_grad_args *args = &call->args.attention_grad;
	const struct hys_attending *attending = &call->problem->attending;
	const int64_t second = hys_present(&args->window_k) ? call->size.window_keys : 0;
	const bool first_shared = !hys_present(&args->v);
	const bool second_shared = second > 0 && !hys_present(&args->window_v);
	struct omp_backward b = {
		.call = call,
		.args = args,
		.isa = omp_isa_of_stream(kernel, stream),
		.rows = {call->problem, &call->batch, &args->indices, call->size.keys,
			 call->size.entries, second},
		.keys = {&args->k, &args->window_k, call->size.keys},
		.v_is_k = first_shared && (second == 0 || second_shared),
		.first_shared = first_shared,
		.second_shared = second_shared,
		.add = (args->flags & HYS_GRAD_ACCUMULATE) != 0,
		.add_sums = hys_adds_sums(args->flags),
		.wants_dk = hys_present(&args->dk) || hys_present(&args->dwindow_k),
		.heads = attending->heads,
		.kv_heads = attending->kv_heads,
		.head_dim = attending->head_dim,
		.value_dim = attending->value_dim,
		.scale = (float)attending->scale,
		.softcap = (float)attending->softcap,
		.threads = omp_threads(stream),
	};

	b.values = omp_values(&b.keys, &args->v, &args->window_v);
	b.shared = omp_is_shared(&b.rows);
	b.narrow = !b.shared && omp_is_narrow(call->problem);
	b.wants_dv = !b.v_is_k && (hys_present(&args->dv) || hys_present(&args->dwindow_v) ||
				   (first_shared && hys_present(&args->dk)) ||
				   (second_shared && hys_present(&args->dwindow_k)));
	return b;
}

hys_status omp_attention_backward_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				      void *instance, const struct hys_call *call,
				      struct hys_error *error)
{
	struct omp_arena arena = omp_arena(&call->workspace);
	struct omp_backward b = make(kernel, stream, call);

	(void)instance, (void)error;
	lay_out(&arena, &call->size, b.threads, b.shared, &b.at);
	memset(b.at.dsink, 0, (size_t)b.heads * sizeof(double));
	omp_backward_zero(&b);
	do_tiles(&b);
	omp_backward_store(&b);
	if (hys_present(&b.args->dsink))
		store_dsink(&b);
	return HYS_OK;
}
