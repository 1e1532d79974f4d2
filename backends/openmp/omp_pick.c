/* omp_pick.c - the choice of one (row, group). */
#include "omp_pick.h"

#include <math.h>
#include <string.h>

struct omp_tiling omp_tiling(int64_t origin, int64_t begin, int64_t end, int64_t size)
{
	struct omp_tiling tiling = {.origin = origin, .begin = begin, .end = end, .size = size};
	tiling.first = (begin - origin) / size;
	if (end > begin)
		tiling.count = (end - 1 - origin) / size + 1 - tiling.first;
	return tiling;
}

struct omp_tiling omp_tiling_of_row(const struct hys_call *call, int64_t t, int64_t size)
{
	const struct hys_batch_view *batch = &call->batch;
	const int64_t row_begin = omp_number(&batch->row_begin, t, 0);
	const int64_t row_end = omp_number(&batch->row_end, t, call->size.entries);
	const int64_t key_origin = omp_number(&batch->key_origin, t, 0);
	return omp_tiling(omp_number(&batch->entry_origin, t, key_origin),
			  omp_number(&batch->index_begin, t, row_begin),
			  omp_number(&batch->index_end, t, row_end), size);
}

void omp_tiling_whole(const struct omp_tiling *tiling, int64_t *begin, int64_t *end)
{
	*begin = omp_ceil_div(tiling->begin - tiling->origin, tiling->size);
	*end = hys_max64(*begin, (tiling->end - tiling->origin) / tiling->size);
}

static struct omp_parts part(const struct omp_tiling *tiling, const struct omp_wanted *wanted)
{
	struct omp_parts parts;
	const int64_t end = tiling->first + tiling->count;
	const int64_t local = hys_min64(wanted->local_blocks, tiling->count);
	const int64_t first = hys_min64(wanted->first_blocks, tiling->count - local);
	const int64_t local_kept = hys_min64(local, wanted->k);
	const int64_t first_kept = hys_min64(first, wanted->k - local_kept);
	parts.first_end = tiling->first + first_kept;
	parts.middle_begin = tiling->first + first;
	parts.middle_end = end - local;
	parts.local_begin = end - local_kept;
	parts.local_end = end;
	parts.free = wanted->k - local_kept - first_kept;
	return parts;
}

void omp_pick_start(struct omp_pick *pick, const struct omp_tiling *tiling,
		    const struct omp_wanted *wanted)
{
	pick->tiling = *tiling;
	pick->parts = part(tiling, wanted);
	pick->k = wanted->k;
	pick->unit = -1;
	pick->best = NAN;
	pick->pending_first = 0;
	pick->pending_count = 0;
	omp_topk_start(&pick->topk, pick->parts.free);
}

/* Copies the scores of units [first, first + n) that lie in [begin, end). */
static void copy_part(float *slots, const float *scores, int64_t n, int64_t first, int64_t begin,
		      int64_t end)
{
	const int64_t from = hys_max64(begin, first);
	const int64_t to = hys_min64(end, first + n);
	if (from < to)
		memcpy(slots + (from - begin), scores + (from - first),
		       (size_t)(to - from) * sizeof *slots);
}

void omp_pick_units(struct omp_pick *pick, const float *scores, int64_t n, int64_t first)
{
	const struct omp_parts *parts = &pick->parts;
	const int64_t from = hys_max64(parts->middle_begin, first);
	const int64_t to = hys_min64(parts->middle_end, first + n);
	if (from < to)
		omp_topk_push(&pick->topk, pick->isa, scores + (from - first), to - from,
			      (int32_t)from);
	if (!pick->scores)
		return;
	/* Local ones go to the last slots of K, wherever they end up. */
	const int64_t local = pick->k - (parts->local_end - parts->local_begin);
	copy_part(pick->scores, scores, n, first, pick->tiling.first, parts->first_end);
	copy_part(pick->scores + local, scores, n, first, parts->local_begin, parts->local_end);
}

static void push_pending(struct omp_pick *pick)
{
	if (pick->pending_count > 0)
		omp_pick_units(pick, pick->pending, pick->pending_count, pick->pending_first);
	pick->pending_count = 0;
}

/* The unit that was being looked at is complete; `next` follows. */
static void close_unit(struct omp_pick *pick, int64_t next)
{
	if (pick->unit >= 0) {
		if (pick->pending_count == OMP_PENDING ||
		    pick->unit != pick->pending_first + pick->pending_count)
			push_pending(pick);
		if (pick->pending_count == 0)
			pick->pending_first = pick->unit;
		pick->pending[pick->pending_count++] = pick->best;
	}
	pick->unit = next;
	pick->best = NAN;
}

void omp_pick_entries(struct omp_pick *pick, const float *scores, int64_t n, int64_t first)
{
	const int64_t size = pick->tiling.size;
	int64_t at = first - pick->tiling.origin;
	if (size == 1) {
		omp_pick_units(pick, scores, n, at);
		return;
	}
	for (int64_t done = 0; done < n;) {
		const int64_t unit = at / size;
		const int64_t count = hys_min64(n - done, (unit + 1) * size - at);
		if (unit != pick->unit)
			close_unit(pick, unit);
		/* fmaxf leaves a single NaN out. */
		pick->best = fmaxf(pick->best, pick->isa->maximum(scores + done, count));
		done += count;
		at += count;
	}
}

struct omp_picked omp_picked(const struct hys_select_args *args, int64_t t, int64_t u)
{
	return (struct omp_picked){
		.indices = omp_at(&args->indices, t, u, 0),
		.scores = hys_present(&args->scores) ? omp_at(&args->scores, t, u, 0) : NULL,
		.count = hys_present(&args->counts) ? omp_at(&args->counts, t, u, 0) : NULL,
		.kth = hys_present(&args->kth) ? omp_at(&args->kth, t, u, 0) : NULL,
		.slots = args->indices.shape[2],
	};
}

/* Indices of units [begin, end) at slots from `place` on; answers the next. */
static int64_t write_units(const struct omp_tiling *tiling, int64_t begin, int64_t end,
			   int32_t *indices, int64_t place)
{
	for (int64_t unit = begin; unit < end; unit++)
		indices[place++] = (int32_t)(tiling->origin + unit * tiling->size);
	return place;
}

static void write_rest(const struct omp_picked *picked, int64_t count, int64_t k, float lowest)
{
	for (int64_t i = count; i < picked->slots; i++)
		picked->indices[i] = -1;
	for (int64_t i = count; picked->scores && i < picked->slots; i++)
		picked->scores[i] = 0.0f;
	if (picked->count)
		*picked->count = (int32_t)count;
	if (picked->kth)
		*picked->kth = count < k ? -INFINITY : lowest;
}

void omp_pick_finish(struct omp_pick *pick, const struct omp_picked *picked)
{
	const struct omp_parts *parts = &pick->parts;
	const struct omp_tiling *tiling = &pick->tiling;
	const int64_t local = parts->local_end - parts->local_begin;
	float lowest;
	close_unit(pick, -1);
	push_pending(pick);
	const int64_t chosen = omp_topk_finish(&pick->topk, pick->isa, &lowest);
	int64_t place = write_units(tiling, tiling->first, parts->first_end, picked->indices, 0);
	if (pick->scores) {
		if (local > 0)
			memmove(pick->scores + place + chosen, pick->scores + pick->k - local,
				(size_t)local * sizeof *pick->scores);
		if (chosen > 0)
			memcpy(pick->scores + place, pick->topk.scores,
			       (size_t)chosen * sizeof *pick->scores);
	}
	for (int64_t i = 0; i < chosen; i++)
		picked->indices[place++] =
			(int32_t)(tiling->origin + pick->topk.indices[i] * tiling->size);
	place = write_units(tiling, parts->local_begin, parts->local_end, picked->indices, place);
	write_rest(picked, place, pick->k, lowest);
}

void omp_pick_all(const struct omp_tiling *tiling, const struct omp_picked *picked)
{
	const int64_t place = write_units(tiling, tiling->first, tiling->first + tiling->count,
					  picked->indices, 0);
	write_rest(picked, place, picked->slots + 1, 0.0f);
}
