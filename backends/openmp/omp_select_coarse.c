/* omp_select_coarse.c - select by means of coarse blocks: alone, or as a first
 * step that leaves few entries to score. */
#include <string.h>

#include "omp_select.h"

/* Mean of entries [begin, end): f64 sums, rounded once. */
static void mean_of(const struct omp_select *select, struct omp_select_scratch *scratch,
		    int64_t begin, int64_t end, float *key, float *mean)
{
	double *sums = scratch->sums;
	for (int64_t d = 0; d < select->dim; d++)
		sums[d] = 0.0;
	for (int64_t e = begin; e < end; e++) {
		omp_load_key(select, e, key);
		for (int64_t d = 0; d < select->dim; d++)
			sums[d] += (double)key[d];
	}
	for (int64_t d = 0; d < select->dim; d++)
		mean[d] = (float)(sums[d] / (double)(end - begin));
}

struct packing {
	const struct omp_select *select;
	int64_t panel_first, end; /* end is a coarse block */
};

static void pack_item(void *context, int64_t item, int32_t thread)
{
	const struct packing *packing = context;
	const struct omp_select *select = packing->select;
	const struct hys_call *call = select->call;
	const int64_t panel = select->isa->panel, dim = select->dim;
	const int64_t p = packing->panel_first + item;
	const int64_t count = hys_min64(panel, packing->end - p * panel);
	struct omp_select_scratch *scratch = select->scratch + thread;
	for (int64_t i = 0; i < count; i++) {
		const int64_t begin = omp_number(&call->batch.coarse_entry, p * panel + i, 0);
		mean_of(select, scratch, begin, begin + call->problem->choosing.coarse_block,
			scratch->key, scratch->rows + i * dim);
	}
	omp_pack(scratch->rows, count, dim, panel, select->means.floats + p * panel * dim);
}

/* Numbers of the complete coarse blocks that row t sees whole. */
static void whole_blocks(const struct hys_call *call, int64_t t, const struct omp_tiling *tiling,
			 int64_t *begin, int64_t *end)
{
	const int64_t base = omp_number(&call->batch.coarse_base, t, 0);
	omp_tiling_whole(tiling, begin, end);
	*begin += base;
	*end += base;
}

void omp_select_means(struct omp_select *select)
{
	const struct hys_call *call = select->call;
	int64_t first = INT64_MAX, last = 0;
	for (int64_t t = 0; t < call->size.rows; t++) {
		const struct omp_tiling tiling =
			omp_tiling_of_row(call, t, call->problem->choosing.coarse_block);
		int64_t begin, end;
		whole_blocks(call, t, &tiling, &begin, &end);
		if (tiling.count == 0 || begin >= end)
			continue;
		first = hys_min64(first, begin);
		last = hys_max64(last, end);
	}
	if (first >= last)
		return;
	const struct packing packing = {select, first / select->isa->panel, last};
	omp_for(select->threads, omp_ceil_div(last, select->isa->panel) - packing.panel_first,
		pack_item, (void *)(uintptr_t)&packing);
}

/* Starts the coarse choice of slot r's row. */
static void start_row(const struct omp_select *select, struct omp_select_scratch *scratch,
		      int64_t r, struct omp_select_row *row)
{
	const struct hys_call *call = select->call;
	const struct hys_choosing *choosing = &call->problem->choosing;
	const bool alone = call->op == HYS_OP_SELECT_COARSE;
	const struct omp_tiling tiling = omp_tiling_of_row(call, row->t, choosing->coarse_block);
	whole_blocks(call, row->t, &tiling, &row->begin, &row->end);
	row->origin = omp_number(&call->batch.coarse_base, row->t, 0);
	if (tiling.count == 0)
		row->end = row->begin;
	else
		omp_load_query(select, scratch, r, row);
	for (int64_t u = 0; u < select->groups; u++) {
		struct omp_wanted wanted = {choosing->coarse_keep, 0, 0};
		struct omp_pick *pick = scratch->picks + r * select->groups + u;
		if (alone) {
			wanted = omp_wanted(call, u);
			wanted.local_blocks = hys_max64(1, wanted.local_blocks);
		}
		pick->isa = select->isa;
		pick->scores = alone ? omp_picked(&call->args.select, row->t, u).scores : NULL;
		omp_pick_start(pick, &tiling, &wanted);
		/* Candidates are whole blocks. */
		pick->parts.middle_begin =
			hys_max64(pick->parts.middle_begin, row->begin - row->origin);
		pick->parts.middle_end = hys_min64(pick->parts.middle_end, row->end - row->origin);
	}
}

/* The score of the mean of a partly visible block, for a forced one's slot.
 * Takes the strip's first part. */
static float score_partial(const struct omp_select *select, struct omp_select_scratch *scratch,
			   const struct omp_query *query, int64_t u, int64_t begin, int64_t end)
{
	const struct omp_query group = omp_query_group(query, u);
	mean_of(select, scratch, begin, end, scratch->key, scratch->rows);
	omp_pack(scratch->rows, 1, select->dim, select->isa->panel, scratch->partial);
	select->isa->score(&group, scratch->partial, 1, scratch->strip, OMP_STRIP);
	return scratch->strip[0];
}

/* Scores the first and the last visible block, if they are not whole. */
static void add_partial(const struct omp_select *select, struct omp_select_scratch *scratch,
			const struct omp_select_row *row, int64_t u, struct omp_pick *pick)
{
	const struct omp_tiling *tiling = &pick->tiling;
	const int64_t last = tiling->first + tiling->count - 1;
	for (int64_t unit = tiling->first; unit <= last; unit = hys_max64(unit + 1, last)) {
		const int64_t begin = tiling->origin + unit * tiling->size;
		const int64_t from = hys_max64(begin, tiling->begin);
		const int64_t to = hys_min64(begin + tiling->size, tiling->end);
		if (to - from == tiling->size)
			continue;
		const float score = score_partial(select, scratch, &row->query, u, from, to);
		omp_pick_units(pick, &score, 1, unit);
	}
}

static void coarse_tile(const struct omp_select *select, struct omp_select_scratch *scratch,
			const struct omp_select_row *rows, int64_t row_count)
{
	for (int64_t r = 0; r < row_count; r++)
		for (int64_t u = 0; u < select->groups; u++) {
			struct omp_pick *pick = scratch->picks + r * select->groups + u;
			const struct omp_picked picked =
				omp_picked(&select->call->args.select, rows[r].t, u);
			if (pick->scores)
				add_partial(select, scratch, rows + r, u, pick);
			omp_pick_finish(pick, &picked);
		}
}

/* Which coarse blocks stand for choice besides the kept ones: those before
 * first_end and from local_begin on. */
struct forced {
	int64_t first_end, local_begin;
};

/* first_blocks and local_blocks count coarse blocks, or, when blocks of entries
 * are chosen, those: then their coarse blocks are meant. */
static struct forced forced_blocks(const struct hys_call *call, const struct omp_tiling *coarse,
				   const struct omp_tiling *fine)
{
	const struct hys_choosing *choosing = &call->problem->choosing;
	const struct omp_tiling *tiling = fine->size > 1 ? fine : coarse;
	const int64_t ratio = coarse->size / tiling->size;
	const int64_t last = coarse->first + coarse->count - 1;
	const int64_t first = hys_min64(choosing->first_blocks, tiling->count);
	const int64_t local_begin =
		tiling->first + tiling->count - hys_min64(choosing->local_blocks, tiling->count);
	return (struct forced){
		.first_end = first > 0 ? omp_ceil_div(tiling->first + first, ratio) : coarse->first,
		.local_begin = hys_min64(last, local_begin / ratio),
	};
}

/* The next coarse block after `block` that stands for choice, walking the kept
 * ones at *place; `end` when there is none. */
static int64_t next_block(const struct omp_topk *kept, const struct forced *forced, int64_t block,
			  int64_t end, int64_t *place)
{
	const int64_t next = block + 1;
	while (*place < kept->count && kept->indices[*place] < next)
		++*place;
	if (next < forced->first_end || next >= forced->local_begin)
		return hys_min64(next, end);
	const int64_t found = *place < kept->count ? kept->indices[*place] : end;
	return hys_min64(hys_min64(found, forced->local_begin), end);
}

/* The second step: the best entries, or blocks of them, of what was kept. */
static void fine_choice(const struct omp_select *select, struct omp_select_scratch *scratch,
			struct omp_select_row *row, int64_t u, struct omp_pick *coarse)
{
	const struct hys_call *call = select->call;
	const struct omp_picked picked = omp_picked(&call->args.select, row->t, u);
	const struct omp_tiling *blocks = &coarse->tiling;
	const struct omp_tiling fine =
		omp_tiling_of_row(call, row->t, call->problem->scoring.block);
	const struct forced forced = forced_blocks(call, blocks, &fine);
	const int64_t end = blocks->first + blocks->count;
	struct omp_wanted wanted = omp_wanted(call, u);
	struct omp_pick *pick = scratch->finals;
	const struct omp_query group = omp_query_group(&row->query, u);
	int64_t place = 0;
	float lowest;

	if (fine.size == 1)
		wanted.first_blocks = wanted.local_blocks = 0;
	omp_topk_finish(&coarse->topk, select->isa, &lowest);
	pick->isa = select->isa;
	pick->scores = picked.scores;
	omp_pick_start(pick, &fine, &wanted);
	int64_t block = next_block(&coarse->topk, &forced, blocks->first - 1, end, &place);
	while (block < end) {
		/* Neighbours are scored in one run. */
		const int64_t first = block;
		int64_t after;
		while ((after = next_block(&coarse->topk, &forced, block, end, &place)) ==
			       block + 1 &&
		       after < end)
			block = after;
		omp_scan_run(select, scratch, &group,
			     hys_max64(blocks->begin, blocks->origin + first * blocks->size),
			     hys_min64(blocks->end, blocks->origin + (block + 1) * blocks->size),
			     pick, &row->nan);
		block = after;
	}
	omp_pick_finish(pick, &picked);
}

void omp_select_coarse_tile(const struct omp_select *select, struct omp_select_scratch *scratch,
			    struct omp_select_row *rows, int64_t row_count)
{
	const struct omp_scan scan = {&select->means, rows, row_count, true};
	for (int64_t r = 0; r < row_count; r++)
		start_row(select, scratch, r, rows + r);
	omp_scan_tile(select, scratch, &scan);
	if (select->call->op == HYS_OP_SELECT_COARSE) {
		coarse_tile(select, scratch, rows, row_count);
		return;
	}
	for (int64_t r = 0; r < row_count; r++)
		for (int64_t u = 0; u < select->groups; u++)
			fine_choice(select, scratch, rows + r, u,
				    scratch->picks + r * select->groups + u);
}
