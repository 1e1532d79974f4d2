/* The rows of a rank as a batch: over all keys, or over those of one rank. */
#include <string.h>

#include "cut.h"

static const struct hys_allocator *const allocator = &hys_allocator_default;

/* The rows of a rank out of an array of all rows. */
static int32_t *pick(const struct hys_cut *cut, int32_t rank, const int32_t *all, int32_t **next)
{
	const struct hys_span *runs;
	const int32_t count = hys_cut_owned(cut, HYS_CUT_ROWS, rank, &runs);
	int32_t *to = *next;

	if (!all)
		return NULL;
	for (int32_t i = 0; i < count; i++) {
		memcpy(*next, all + runs[i].first, (size_t)runs[i].count * sizeof(**next));
		*next += runs[i].count;
	}
	return to;
}

/* How many elements of the runs lie before each of `count` places. */
static void number(const struct hys_span *runs, int32_t run_count, const int64_t *before,
		   int32_t *places, int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		const int64_t place = places[i];
		int32_t low = 0, high = run_count;

		while (low < high) {
			const int32_t middle = low + (high - low) / 2;

			if (runs[middle].first <= place)
				low = middle + 1;
			else
				high = middle;
		}
		/* `low` runs begin at or before the place. */
		places[i] =
			low == 0
				? 0
				: (int32_t)(before[low - 1] + hys_min64(place - runs[low - 1].first,
									runs[low - 1].count));
	}
}

/* Renumbers places among all to places among what the shard owns of a part. */
static hys_status renumber(const struct hys_cut *cut, hys_cut_part part, int32_t shard,
			   int32_t *const *arrays, int32_t array_count, int64_t count,
			   struct hys_error *error)
{
	const struct hys_span *runs;
	const int32_t run_count = hys_cut_owned(cut, part, shard, &runs);
	int64_t *before = hys_alloc_array(allocator, (int64_t)run_count + 1, sizeof(*before));

	if (!before)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %d runs", run_count);
	for (int32_t i = 0; i < run_count; i++)
		before[i + 1] = before[i] + runs[i].count;
	for (int32_t a = 0; a < array_count; a++)
		if (arrays[a])
			number(runs, run_count, before, arrays[a], count);
	hys_free(allocator, before);
	return HYS_OK;
}

/* First rows of the documents among the rank's own. */
static void place_documents(const struct hys_cut *cut, int32_t rank, int32_t *cu)
{
	const struct hys_span *runs;
	const int32_t count = hys_cut_owned(cut, HYS_CUT_ROWS, rank, &runs);
	int64_t before = 0;
	int32_t i = 0;

	for (int32_t d = 0; d <= cut->documents.count; d++) {
		const int64_t origin = cut->documents.q[d];

		while (i < count && runs[i].first + runs[i].count <= origin)
			before += runs[i++].count;
		cu[d] = (int32_t)(before + (i < count ? hys_max64(0, origin - runs[i].first) : 0));
	}
}

/* Arrays of a description while it is made. */
struct arrays {
	int32_t *row[2], *index[2], *window[2], *cu_q, *cu_k;
};

static hys_status take_shard(const struct hys_cut *cut, int32_t shard, struct arrays *arrays,
			     struct hys_batch_desc *desc, struct hys_error *error)
{
	const int64_t documents = (int64_t)desc->documents + 1;
	hys_status status;

	HYS_TRY(renumber(cut, HYS_CUT_KEYS, shard, arrays->row, 2, desc->rows, error));
	HYS_TRY(renumber(cut, HYS_CUT_ENTRIES, shard, arrays->index, 2, desc->rows, error));
	HYS_TRY(renumber(cut, HYS_CUT_WINDOW_KEYS, shard, arrays->window, 2, desc->rows, error));
	HYS_TRY(renumber(cut, HYS_CUT_KEYS, shard, &arrays->cu_k, 1, documents, error));
	desc->keys = hys_cut_count(cut, HYS_CUT_KEYS, shard);
	desc->entries = hys_cut_count(cut, HYS_CUT_ENTRIES, shard);
	desc->window_keys = hys_cut_count(cut, HYS_CUT_WINDOW_KEYS, shard);
cleanup:
	return status;
}

static void take_rows(const struct hys_cut *cut, int32_t rank, int32_t *next, struct arrays *arrays,
		      struct hys_batch_desc *desc)
{
	const struct hys_batch_arrays *host = &cut->batch.host;

	arrays->row[0] = pick(cut, rank, host->row_begin, &next);
	arrays->row[1] = pick(cut, rank, host->row_end, &next);
	arrays->index[0] = pick(cut, rank, host->index_begin, &next);
	arrays->index[1] = pick(cut, rank, host->index_end, &next);
	arrays->window[0] = pick(cut, rank, host->window_begin, &next);
	arrays->window[1] = pick(cut, rank, host->window_end, &next);
	if (desc->documents > 0) {
		arrays->cu_q = next;
		arrays->cu_k = next + desc->documents + 1;
		place_documents(cut, rank, arrays->cu_q);
		memcpy(arrays->cu_k, cut->documents.k,
		       ((size_t)desc->documents + 1) * sizeof(int32_t));
	}
}

static hys_status make(const struct hys_cut *cut, int32_t rank, int32_t shard,
		       struct hys_plan *plan, struct hys_batch **batch, struct hys_error *error)
{
	struct hys_batch_desc desc = {.struct_size = sizeof(desc)};
	struct arrays arrays = {0};
	int32_t *memory = NULL;
	hys_status status;

	if (!cut || rank < 0 || rank >= cut->ranks || shard >= cut->ranks)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				cut ? "rank or shard is %d, expected 0 to %d" : "cut is NULL",
				cut && shard >= cut->ranks ? shard : rank,
				cut ? cut->ranks - 1 : 0);
	desc.rows = hys_cut_count(cut, HYS_CUT_ROWS, rank);
	desc.keys = cut->batch.keys;
	desc.window_keys = cut->batch.window_keys;
	desc.entries = cut->batch.entries;
	desc.documents = cut->desc.documents;
	memory = hys_alloc_array(allocator, 6 * desc.rows + 2 * ((int64_t)desc.documents + 1),
				 sizeof(*memory));
	if (!memory)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %lld rows",
				 (long long)desc.rows));
	take_rows(cut, rank, memory, &arrays, &desc);
	if (shard >= 0)
		HYS_TRY(take_shard(cut, shard, &arrays, &desc, error));
	desc.row_begin = arrays.row[0];
	desc.row_end = arrays.row[1];
	desc.index_begin = arrays.index[0];
	desc.index_end = arrays.index[1];
	desc.window_begin = arrays.window[0];
	desc.window_end = arrays.window[1];
	desc.cu_seqlens_q = arrays.cu_q;
	desc.cu_seqlens_k = arrays.cu_k;
	HYS_TRY(hys_batch_create(plan, &desc, batch, error));
cleanup:
	hys_free(allocator, memory);
	return status;
}

hys_status hys_cut_batch(const struct hys_cut *cut, int32_t rank, struct hys_plan *plan,
			 struct hys_batch **batch, struct hys_error *error)
{
	return make(cut, rank, -1, plan, batch, error);
}

hys_status hys_cut_shard(const struct hys_cut *cut, int32_t rank, int32_t shard,
			 struct hys_plan *plan, struct hys_batch **batch, struct hys_error *error)
{
	if (shard < 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "shard is %d, expected 0 or more",
				shard);
	return make(cut, rank, shard, plan, batch, error);
}
