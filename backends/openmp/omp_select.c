/* omp_select.c - select over packed keys: workspace, packing, scanning, and the
 * exact method. */
#include "omp_select.h"

#include <math.h>
#include <string.h>

#include "omp_kernels.h"
#include "omp_order.h"
#include "omp_tile.h"

#define PANEL_BYTES (INT64_C(16) << 10)

/* Rows that share each panel while it is in the first-level cache: about 256
 * heads, or 1024 where products are so fast that keys must come seldom from
 * further away, but tiles enough for all threads. */
static int64_t tile_of(const struct omp_select *select, const struct hys_problem *problem,
		       int64_t rows)
{
	const int64_t by_heads = (select->half_dim ? 1024 : 256) / problem->scoring.heads;
	const int64_t by_rows = rows / (4 * (int64_t)select->threads);
	return hys_max64(1, hys_min64(OMP_TILE_MAX, hys_min64(by_heads, by_rows)));
}

static void take_pick(struct omp_arena *arena, struct omp_pick *pick, int64_t capacity,
		      uint32_t *keys)
{
	float *scores = omp_take(arena, capacity + OMP_FILTER_SLACK, sizeof *scores);
	int32_t *indices = omp_take(arena, capacity + OMP_FILTER_SLACK, sizeof *indices);
	if (!arena->base)
		return;
	pick->topk.scores = scores;
	pick->topk.indices = indices;
	pick->topk.capacity = capacity;
	pick->topk.keys = keys;
}

/* Picks of one tile. Those of coarse_to_fine's first step want coarse_keep. */
static void take_picks(struct omp_arena *arena, struct omp_select_scratch *scratch, hys_op op,
		       const struct hys_size *size, int64_t tile)
{
	const struct hys_problem *problem = size->problem;
	const int64_t count = tile * problem->scoring.groups;
	const int64_t fine =
		omp_topk_capacity(problem->choosing.topk_max, size->entries, OMP_STRIP);
	const int64_t coarse =
		omp_topk_capacity(problem->choosing.coarse_keep, size->coarse_blocks, OMP_STRIP);
	const bool two_steps = op == HYS_OP_SELECT_COARSE_TO_FINE;
	const int64_t most = two_steps ? hys_max64(fine, coarse) : fine;
	uint32_t *keys = omp_take(arena, most, sizeof *keys);
	scratch->picks = omp_take(arena, count, sizeof *scratch->picks);
	for (int64_t i = 0; i < count; i++)
		take_pick(arena, arena->base ? scratch->picks + i : NULL, two_steps ? coarse : fine,
			  keys);
	if (!two_steps)
		return;
	scratch->finals = omp_take(arena, 1, sizeof *scratch->finals);
	take_pick(arena, scratch->finals, fine, keys);
}

static void take_scratch(struct omp_arena *arena, struct omp_select_scratch *scratch,
			 const struct omp_select *select, hys_op op, const struct hys_size *size)
{
	const struct hys_scoring *scoring = &size->problem->scoring;
	const struct omp_isa *isa = select->isa;
	const int64_t tile = select->tile, heads = tile * scoring->heads;
	scratch->q = omp_take(arena, hys_mul64(heads, scoring->dim), sizeof *scratch->q);
	scratch->w = omp_take(arena, heads, sizeof *scratch->w);
	scratch->strip =
		omp_take(arena, tile * scoring->groups * OMP_STRIP, sizeof *scratch->strip);
	scratch->rows = omp_take(arena, isa->panel * scoring->dim, sizeof *scratch->rows);
	scratch->sums = omp_take(arena, scoring->dim, sizeof *scratch->sums);
	scratch->key = omp_take(arena, scoring->dim, sizeof *scratch->key);
	scratch->partial = omp_take(arena, isa->panel * scoring->dim, sizeof *scratch->partial);
	take_picks(arena, scratch, op, size, tile);
	scratch->bounds = omp_take(arena, tile * scoring->groups, sizeof *scratch->bounds);
	if (!select->half_dim)
		return;
	scratch->half = omp_take(arena, hys_mul64(heads + OMP_HALF_SLACK, select->half_dim),
				 sizeof *scratch->half);
	scratch->half_key = omp_take(arena, scoring->dim, sizeof *scratch->half_key);
	scratch->careful_keys =
		omp_take(arena, isa->panel * scoring->dim, sizeof *scratch->careful_keys);
	scratch->careful = omp_take(arena, isa->panel * scoring->groups, sizeof *scratch->careful);
}

static struct omp_panels take_panels(struct omp_arena *arena, const struct omp_isa *isa,
				     int64_t keys, int64_t dim, int64_t half_dim)
{
	const int64_t panels = omp_ceil_div(keys, isa->panel);
	struct omp_panels packed = {0};
	if (half_dim) {
		packed.halves = omp_take(arena, hys_mul64(panels, isa->panel * half_dim),
					 sizeof *packed.halves);
		packed.lowest = omp_take(arena, panels, sizeof *packed.lowest);
	} else {
		packed.floats =
			omp_take(arena, hys_mul64(panels, isa->panel * dim), sizeof *packed.floats);
	}
	return packed;
}

/* Lays a call's memory out; with an empty arena only counts it. */
static void lay_out(struct omp_arena *arena, struct omp_select *select, hys_op op,
		    const struct hys_size *size)
{
	struct omp_select_scratch none = {0};
	const int64_t dim = size->problem->scoring.dim;
	const bool halves = select->isa->score_half && size->problem->scoring.dtype == HYS_BF16;
	select->half_dim = halves ? hys_round_up(dim, OMP_HALF_STEP) : 0;
	select->tile = tile_of(select, size->problem, size->rows);
	if (op != HYS_OP_SELECT_COARSE)
		select->entries =
			take_panels(arena, select->isa, size->entries, dim, select->half_dim);
	if (op == HYS_OP_SELECT)
		select->entries.norms =
			omp_take(arena, omp_ceil_div(size->entries, select->isa->panel),
				 sizeof *select->entries.norms);
	if (op != HYS_OP_SELECT)
		select->means = take_panels(arena, select->isa, size->coarse_blocks, dim, 0);
	select->order = omp_take(arena, size->rows, sizeof *select->order);
	select->scratch = omp_take(arena, select->threads, sizeof *select->scratch);
	for (int32_t i = 0; i < select->threads; i++) {
		struct omp_select_scratch *scratch = arena->base ? select->scratch + i : &none;
		memset(scratch, 0, sizeof *scratch);
		take_scratch(arena, scratch, select, op, size);
	}
}

int64_t omp_select_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
			     const struct hys_size *size)
{
	struct omp_arena arena = {0};
	struct omp_select select = {.isa = omp_isa(kernel, device),
				    .threads = omp_device(device)->threads};
	lay_out(&arena, &select, kernel->op, size);
	return arena.used;
}

void omp_load_key(const struct omp_select *select, int64_t entry, float *key)
{
	const struct hys_select_args *args = &select->call->args.select;
	select->isa->to_f32(args->index_k.dtype, omp_at(&args->index_k, entry, 0, 0), key,
			    select->dim);
	if (hys_present(&args->index_k_scale))
		omp_scale(key, select->dim,
			  *(const float *)omp_at(&args->index_k_scale, entry, 0, 0));
}

void omp_load_query(const struct omp_select *select, struct omp_select_scratch *scratch, int64_t r,
		    struct omp_select_row *row)
{
	const struct hys_select_args *args = &select->call->args.select;
	const struct hys_scoring *scoring = &select->call->problem->scoring;
	float *q = scratch->q + r * select->heads * select->dim;
	float *w = scratch->w + r * select->heads;
	for (int64_t j = 0; j < select->heads; j++) {
		float *head = q + j * select->dim;
		select->isa->to_f32(args->index_q.dtype, omp_at(&args->index_q, row->t, j, 0), head,
				    select->dim);
		if (hys_present(&args->index_q_scale))
			omp_scale(head, select->dim,
				  *(const float *)omp_at(&args->index_q_scale, row->t, j, 0));
		w[j] = hys_present(&args->index_w)
			       ? *(const float *)omp_at(&args->index_w, row->t, j, 0)
			       : 1.0f;
	}
	row->query = (struct omp_query){
		.q = q,
		.w = w,
		.heads = select->heads,
		.dim = select->dim,
		.group_heads = select->heads / select->groups,
		.scale = (float)scoring->scale,
		.relu = scoring->activation == HYS_ACTIVATION_RELU,
	};
	if (select->half_dim)
		omp_half_load_query(select, scratch, r, row);
}

struct omp_query omp_query_group(const struct omp_query *query, int64_t u)
{
	struct omp_query group = *query;
	group.heads = query->group_heads;
	group.q += u * group.heads * query->dim;
	group.w += u * group.heads;
	if (query->half)
		group.half += u * group.heads * query->half_dim;
	return group;
}

void omp_pack(const float *keys, int64_t count, int64_t dim, int64_t panel, float *packed)
{
	for (int64_t d = 0; d < dim; d++) {
		float *to = packed + d * panel;
		for (int64_t i = 0; i < count; i++)
			to[i] = keys[i * dim + d];
		for (int64_t i = count; i < panel; i++)
			to[i] = 0.0f;
	}
}

/* Panels that one item of packing makes. */
#define PACK_ITEM 16

struct packing {
	const struct omp_select *select;
	int64_t panel_first, panel_end;
};

/* Panel p as f32; its keys stay in the scratch. */
static void load_panel(const struct omp_select *select, struct omp_select_scratch *scratch,
		       int64_t p, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		omp_load_key(select, p * select->isa->panel + i, scratch->rows + i * select->dim);
}

static int64_t panel_keys(const struct omp_select *select, int64_t p)
{
	const int64_t panel = select->isa->panel;
	return hys_min64(panel, select->call->size.entries - p * panel);
}

static void pack_panel(const struct omp_select *select, struct omp_select_scratch *scratch,
		       int64_t p)
{
	const int64_t panel = select->isa->panel, dim = select->dim;
	const int64_t count = panel_keys(select, p);
	load_panel(select, scratch, p, count);
	omp_pack(scratch->rows, count, dim, panel, select->entries.floats + p * panel * dim);
}

/* The norm of panel p's longest key, rounded up; NaN wins. */
static float longest_key(const struct omp_select *select, struct omp_select_scratch *scratch,
			 int64_t p)
{
	const int64_t count = panel_keys(select, p);
	double longest = 0.0;
	load_panel(select, scratch, p, count);
	for (int64_t i = 0; i < count; i++) {
		const double norm =
			omp_bound_norm(select->isa, scratch->rows + i * select->dim, select->dim);
		longest = longest != longest || norm <= longest ? longest : norm;
	}
	return nextafterf((float)longest, INFINITY);
}

static void pack_item(void *context, int64_t item, int32_t thread)
{
	const struct packing *packing = context;
	const struct omp_select *select = packing->select;
	struct omp_select_scratch *scratch = select->scratch + thread;
	const int64_t from = packing->panel_first + item * PACK_ITEM;
	const int64_t to = hys_min64(from + PACK_ITEM, packing->panel_end);
	for (int64_t p = from; p < to; p++) {
		if (select->half_dim)
			omp_half_pack(select, scratch, p);
		else
			pack_panel(select, scratch, p);
		if (select->entries.norms)
			select->entries.norms[p] = longest_key(select, scratch, p);
	}
}

/* Packs the entries that any row of the call sees. */
static void pack_entries(const struct omp_select *select)
{
	const struct hys_call *call = select->call;
	int64_t begin = INT64_MAX, end = 0;
	for (int64_t t = 0; t < call->size.rows; t++) {
		const struct omp_tiling seen = omp_tiling_of_row(call, t, 1);
		if (seen.count == 0)
			continue;
		begin = hys_min64(begin, seen.begin);
		end = hys_max64(end, seen.end);
	}
	if (begin >= end)
		return;
	const struct packing packing = {select, begin / select->isa->panel,
					omp_ceil_div(end, select->isa->panel)};
	omp_for(select->threads, omp_ceil_div(packing.panel_end - packing.panel_first, PACK_ITEM),
		pack_item, (void *)(uintptr_t)&packing);
}

/* Panels that a query meets at a time: what stays in the first-level cache while
 * its heads come from the second. */
static int64_t keys_at_once(const struct omp_select *select, const struct omp_panels *packed)
{
	const int64_t panel = select->isa->panel;
	const int64_t key_bytes = packed->halves
					  ? select->half_dim * (int64_t)sizeof *packed->halves
					  : select->dim * (int64_t)sizeof *packed->floats;
	/* Halves are packed of half_dim > 0 only. NOLINTNEXTLINE(clang-analyzer-core.DivideZero) */
	return panel * hys_max64(1, PANEL_BYTES / (panel * key_bytes));
}

void omp_score_panels(const struct omp_select *select, struct omp_select_scratch *scratch,
		      const struct omp_query *query, const struct omp_panels *packed, int64_t p,
		      int64_t count, float *scores)
{
	if (packed->halves)
		omp_half_score(select, scratch, query, p, count, scores);
	else
		select->isa->score(query, packed->floats + p * select->isa->panel * select->dim,
				   count, scores, OMP_STRIP);
}

/* Scores keys [begin, end), from a multiple of the panel on, to scores[u][strip]
 * of which the first is key `strip`'s. */
static void score_keys(const struct omp_select *select, struct omp_select_scratch *scratch,
		       const struct omp_query *query, const struct omp_panels *packed,
		       int64_t begin, int64_t end, int64_t strip, float *scores)
{
	const int64_t panel = select->isa->panel, step = keys_at_once(select, packed);
	for (int64_t key = begin; key < end; key += step) {
		const int64_t panels = omp_ceil_div(hys_min64(step, end - key), panel);
		omp_score_panels(select, scratch, query, packed, key / panel, panels,
				 scores + (key - strip));
	}
}

/* Whether slot r's row needs none of keys [from, to); their scores are then
 * below all that is chosen. */
static bool leave_out(const struct omp_select *select, const struct omp_select_scratch *scratch,
		      int64_t r, int64_t from, int64_t to, float *scores)
{
	const int64_t panel = select->isa->panel, groups = select->groups;
	if (!select->skip ||
	    !omp_bound_skips(select, scratch->bounds + r * groups, scratch->picks + r * groups,
			     from / panel, omp_ceil_div(to, panel)))
		return false;
	for (int64_t u = 0; u < groups; u++)
		for (int64_t i = 0; i < to - from; i++)
			scores[u * OMP_STRIP + i] = -INFINITY;
	return true;
}

/* Scores keys [strip, end) of one strip for all rows that look at them. */
static void score_strip(const struct omp_select *select, struct omp_select_scratch *scratch,
			const struct omp_scan *scan, int64_t strip, int64_t end)
{
	const int64_t panel = select->isa->panel, step = keys_at_once(select, scan->panels);
	const int64_t stop = hys_min64(end, strip + OMP_STRIP);
	for (int64_t key = strip; key < stop; key += step)
		for (int64_t r = 0; r < scan->row_count; r++) {
			const struct omp_select_row *row = scan->rows + r;
			const int64_t from = hys_max64(key, row->begin - row->begin % panel);
			const int64_t to = hys_min64(hys_min64(key + step, stop), row->end);
			if (from >= to)
				continue;
			float *scores = scratch->strip + r * select->groups * OMP_STRIP;
			if (!leave_out(select, scratch, r, from, to, scores + (from - strip)))
				score_keys(select, scratch, &row->query, scan->panels, from, to,
					   strip, scores);
		}
}

/* Hands a row's part of a strip to its picks. */
static void take_strip(const struct omp_select *select, const struct omp_scan *scan,
		       struct omp_select_row *row, int64_t strip, const float *scores,
		       struct omp_pick *picks)
{
	const int64_t begin = hys_max64(row->begin, strip);
	const int64_t count = hys_min64(row->end, strip + OMP_STRIP) - begin;
	if (count <= 0)
		return;
	for (int64_t u = 0; u < select->groups; u++) {
		const float *from = scores + u * OMP_STRIP + (begin - strip);
		row->nan |= select->isa->has_nan(from, count);
		if (scan->units)
			omp_pick_units(picks + u, from, count, begin - row->origin);
		else
			omp_pick_entries(picks + u, from, count, begin);
	}
}

void omp_scan_tile(const struct omp_select *select, struct omp_select_scratch *scratch,
		   const struct omp_scan *scan)
{
	int64_t begin = INT64_MAX, end = 0;
	for (int64_t r = 0; r < scan->row_count; r++) {
		if (scan->rows[r].begin >= scan->rows[r].end)
			continue;
		begin = hys_min64(begin, scan->rows[r].begin);
		end = hys_max64(end, scan->rows[r].end);
	}
	if (begin >= end)
		return;
	for (int64_t strip = begin - begin % OMP_STRIP; strip < end; strip += OMP_STRIP) {
		score_strip(select, scratch, scan, strip, end);
		for (int64_t r = 0; r < scan->row_count; r++)
			take_strip(select, scan, scan->rows + r, strip,
				   scratch->strip + r * select->groups * OMP_STRIP,
				   scratch->picks + r * select->groups);
	}
}

void omp_scan_run(const struct omp_select *select, struct omp_select_scratch *scratch,
		  const struct omp_query *query, int64_t begin, int64_t end, struct omp_pick *pick,
		  bool *nan)
{
	const int64_t panel = select->isa->panel;
	float *strip = scratch->strip;
	for (int64_t at = begin - begin % OMP_STRIP; at < end; at += OMP_STRIP) {
		const int64_t from = hys_max64(at, begin), to = hys_min64(at + OMP_STRIP, end);
		score_keys(select, scratch, query, &select->entries, from - from % panel, to, at,
			   strip);
		*nan |= select->isa->has_nan(strip + (from - at), to - from);
		omp_pick_entries(pick, strip + (from - at), to - from, from);
	}
}

struct omp_wanted omp_wanted(const struct hys_call *call, int64_t u)
{
	const struct hys_choosing *choosing = &call->problem->choosing;
	return (struct omp_wanted){call->topk[u], choosing->first_blocks, choosing->local_blocks};
}

/* Whether a row's picks are all that it sees, and no score is asked for. */
static bool needs_no_score(const struct omp_select *select, const struct omp_tiling *tiling)
{
	const struct hys_select_args *args = &select->call->args.select;
	if (hys_present(&args->scores) || hys_present(&args->nan_rows))
		return false;
	for (int64_t u = 0; u < select->groups; u++)
		if (tiling->count >= select->call->topk[u])
			return false;
	return true;
}

/* Starts the picks of the tile's slot r. */
static void start_row(const struct omp_select *select, struct omp_select_scratch *scratch,
		      int64_t r, struct omp_select_row *row)
{
	const struct hys_call *call = select->call;
	const struct omp_tiling tiling =
		omp_tiling_of_row(call, row->t, call->problem->scoring.block);
	if (!needs_no_score(select, &tiling)) {
		row->begin = tiling.begin;
		row->end = tiling.end;
		omp_load_query(select, scratch, r, row);
	}
	for (int64_t u = 0; u < select->groups; u++) {
		const struct omp_picked picked = omp_picked(&call->args.select, row->t, u);
		const struct omp_wanted wanted = omp_wanted(call, u);
		struct omp_pick *pick = scratch->picks + r * select->groups + u;
		pick->isa = select->isa;
		pick->scores = picked.scores;
		omp_pick_start(pick, &tiling, &wanted);
		if (select->skip && row->begin < row->end)
			scratch->bounds[r * select->groups + u] =
				omp_bound_of_query(select->isa, &row->query, u);
	}
}

static void exact_tile(const struct omp_select *select, struct omp_select_scratch *scratch,
		       struct omp_select_row *rows, int64_t row_count)
{
	const struct hys_call *call = select->call;
	const struct omp_scan scan = {&select->entries, rows, row_count, false};
	for (int64_t r = 0; r < row_count; r++)
		start_row(select, scratch, r, rows + r);
	omp_scan_tile(select, scratch, &scan);
	for (int64_t r = 0; r < row_count; r++)
		for (int64_t u = 0; u < select->groups; u++) {
			struct omp_pick *pick = scratch->picks + r * select->groups + u;
			const struct omp_picked picked =
				omp_picked(&call->args.select, rows[r].t, u);
			if (rows[r].begin < rows[r].end)
				omp_pick_finish(pick, &picked);
			else
				omp_pick_all(&pick->tiling, &picked);
		}
}

/* Entries that a tile's rows see. */
static int64_t tile_cost(const void *context, int64_t tile)
{
	const struct omp_select *select = context;
	const struct hys_call *call = select->call;
	const int64_t end = hys_min64((tile + 1) * select->tile, call->size.rows);
	int64_t cost = 0;
	for (int64_t t = tile * select->tile; t < end; t++)
		cost += hys_max64(omp_number(&call->batch.index_end, t, call->size.entries) -
					  omp_number(&call->batch.index_begin, t, 0),
				  0);
	return cost;
}

static void tile_item(void *context, int64_t item, int32_t thread)
{
	const struct omp_select *select = context;
	struct omp_select_scratch *scratch = select->scratch + thread;
	struct omp_select_row rows[OMP_TILE_MAX] = {0};
	const int64_t first = select->order[item] * select->tile;
	const int64_t count = hys_min64(select->tile, select->call->size.rows - first);
	for (int64_t r = 0; r < count; r++)
		rows[r].t = first + r;
	if (select->half_dim)
		select->isa->half_begin();
	if (select->call->op == HYS_OP_SELECT)
		exact_tile(select, scratch, rows, count);
	else
		omp_select_coarse_tile(select, scratch, rows, count);
	if (select->half_dim)
		select->isa->half_end();
	for (int64_t r = 0; r < count; r++)
		scratch->nan_rows += rows[r].nan;
}

hys_status omp_select_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			  void *instance, const struct hys_call *call, struct hys_error *error)
{
	struct omp_arena arena = omp_arena(&call->workspace);
	struct omp_select select = {
		.call = call,
		.isa = omp_isa_of_stream(kernel, stream),
		.threads = omp_threads(stream),
		.heads = call->problem->scoring.heads,
		.dim = call->problem->scoring.dim,
		.groups = call->problem->scoring.groups,
	};
	int64_t tiles;
	int32_t nan_rows = 0;
	(void)instance, (void)error;
	lay_out(&arena, &select, call->op, &call->size);
	if (!omp_bound_applies(call))
		select.entries.norms = NULL;
	if (call->op != HYS_OP_SELECT_COARSE)
		pack_entries(&select);
	if (call->op != HYS_OP_SELECT)
		omp_select_means(&select);
	select.skip = select.entries.norms && omp_bound_pays(&select);
	tiles = omp_ceil_div(call->size.rows, select.tile);
	omp_order(select.order, tiles, tile_cost, &select);
	omp_for(select.threads, tiles, tile_item, &select);
	for (int32_t i = 0; i < select.threads; i++)
		nan_rows += select.scratch[i].nan_rows;
	if (hys_present(&call->args.select.nan_rows))
		*(int32_t *)omp_at(&call->args.select.nan_rows, 0, 0, 0) = nan_rows;
	return HYS_OK;
}
