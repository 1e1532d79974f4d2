/* What follows from the rows of a cut: whose the keys are, and who needs them. */
#include "cut.h"

/* ---- owned ---- */

static hys_status copy_runs(const struct hys_run_table *from, struct hys_run_table *to,
			    int32_t ranks, struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int32_t rank = 0; rank < ranks; rank++) {
		HYS_TRY(hys_run_table_add(to, rank, 0, 0, error));
		for (int64_t i = from->first[rank]; i < from->first[rank + 1]; i++)
			HYS_TRY(hys_run_table_add(to, rank, from->list.runs[i].first,
						  from->list.runs[i].count, error));
	}
cleanup:
	return status;
}

/* The start of key s's unit. */
static int64_t align(const struct hys_cut *cut, int64_t s)
{
	const int32_t *origin = cut->documents.k;
	int32_t low = 0, high = cut->documents.count;

	if (cut->unit == 1 || s >= cut->batch.keys)
		return s;
	while (high - low > 1) {
		const int32_t middle = low + (high - low) / 2;

		if (origin[middle] <= s)
			low = middle;
		else
			high = middle;
	}
	return s - (s - origin[low]) % cut->unit;
}

static hys_status equal_ranges(struct hys_cut *cut, hys_cut_part part, struct hys_error *error)
{
	const int64_t size = cut->size[part];
	hys_status status = HYS_OK;

	for (int32_t rank = 0; rank < cut->ranks; rank++) {
		int64_t begin = size * rank / cut->ranks, end = size * (rank + 1) / cut->ranks;

		if (part == HYS_CUT_KEYS) {
			begin = align(cut, begin);
			end = align(cut, end);
		}
		HYS_TRY(hys_run_table_add(&cut->owned[part], rank, begin, end - begin, error));
	}
cleanup:
	return status;
}

/* Entries whose first key lies in [first, first + count). */
static hys_status entries_of(struct hys_cut *cut, int32_t rank, struct hys_span keys, int32_t *d,
			     struct hys_error *error)
{
	const struct hys_documents *documents = &cut->documents;
	const int64_t pool = cut->plan.problem.scoring.pool, end = keys.first + keys.count;
	hys_status status = HYS_OK;

	while (*d < documents->count && documents->k[*d + 1] <= keys.first)
		++*d;
	for (int32_t at = *d; at < documents->count && documents->k[at] < end; at++) {
		const int64_t origin = documents->k[at];
		const int64_t most = documents->entry[at + 1] - documents->entry[at];
		const int64_t low = hys_max64(0, keys.first - origin);
		const int64_t high = hys_min64(end, documents->k[at + 1]) - origin;
		const int64_t from = hys_min64(most, (low + pool - 1) / pool);
		const int64_t to = hys_min64(most, (high + pool - 1) / pool);

		HYS_TRY(hys_run_table_add(&cut->owned[HYS_CUT_ENTRIES], rank,
					  documents->entry[at] + from, to - from, error));
	}
cleanup:
	return status;
}

static hys_status own_entries(struct hys_cut *cut, struct hys_error *error)
{
	const struct hys_run_table *keys = &cut->owned[HYS_CUT_KEYS];
	const int32_t pool = cut->plan.problem.scoring.pool;
	hys_status status = HYS_OK;

	if (pool == 1 && cut->size[HYS_CUT_ENTRIES] == cut->size[HYS_CUT_KEYS])
		return copy_runs(keys, &cut->owned[HYS_CUT_ENTRIES], cut->ranks, error);
	/* Pools of documents that the caller does not describe. */
	if (cut->desc.documents == 0 && cut->batch.entries != cut->batch.keys / pool)
		return equal_ranges(cut, HYS_CUT_ENTRIES, error);
	for (int32_t rank = 0; rank < cut->ranks; rank++) {
		int32_t d = 0;

		HYS_TRY(hys_run_table_add(&cut->owned[HYS_CUT_ENTRIES], rank, 0, 0, error));
		for (int64_t i = keys->first[rank]; i < keys->first[rank + 1]; i++)
			HYS_TRY(entries_of(cut, rank, keys->list.runs[i], &d, error));
	}
cleanup:
	return status;
}

/* ---- needed ---- */

/* The union of what rows [first, first + count) see, added to the list. */
static hys_status see(struct hys_span rows, const int32_t *begins, const int32_t *ends,
		      struct hys_run_list *list, struct hys_error *error)
{
	int64_t begin = 0, end = 0;
	hys_status status = HYS_OK;

	for (int64_t t = rows.first; t < rows.first + rows.count; t++) {
		const int64_t b = begins[t], e = ends[t];

		if (b == e)
			continue;
		if (begin < end && b <= end && e >= begin) {
			begin = hys_min64(begin, b);
			end = hys_max64(end, e);
			continue;
		}
		if (begin < end)
			HYS_TRY(hys_run_push(list, (struct hys_span){begin, end - begin}, error));
		begin = b;
		end = e;
	}
	if (begin < end)
		HYS_TRY(hys_run_push(list, (struct hys_span){begin, end - begin}, error));
cleanup:
	return status;
}

static hys_status need(struct hys_cut *cut, hys_cut_part part, const int32_t *begins,
		       const int32_t *ends, struct hys_error *error)
{
	struct hys_run_table *table = &cut->needed[part];
	struct hys_run_list list = {0};
	hys_status status = HYS_OK;

	for (int32_t rank = 0; rank < cut->ranks; rank++) {
		const struct hys_span *rows;
		const int32_t count = hys_cut_owned(cut, HYS_CUT_ROWS, rank, &rows);

		list.count = 0;
		HYS_TRY(hys_run_table_add(table, rank, 0, 0, error));
		for (int32_t i = 0; begins && i < count; i++)
			HYS_TRY(see(rows[i], begins, ends, &list, error));
		hys_run_sort(&list);
		for (int64_t i = 0; i < list.count; i++)
			HYS_TRY(hys_run_table_add(table, rank, list.runs[i].first,
						  list.runs[i].count, error));
	}
cleanup:
	hys_run_clear(&list);
	return status;
}

hys_status hys_cut_parts(struct hys_cut *cut, struct hys_error *error)
{
	const struct hys_batch_arrays *host = &cut->batch.host;
	const struct hys_run_table *rows = &cut->owned[HYS_CUT_ROWS];
	const bool joint = cut->together && cut->size[HYS_CUT_WINDOW_KEYS] == cut->batch.rows;
	hys_status status = HYS_OK;

	for (int32_t part = 0; part < HYS_CUT_PART_COUNT; part++) {
		if (part != HYS_CUT_ROWS)
			HYS_TRY(hys_run_table_make(&cut->owned[part], cut->ranks, error));
		HYS_TRY(hys_run_table_make(&cut->needed[part], cut->ranks, error));
	}
	HYS_TRY(cut->together ? copy_runs(rows, &cut->owned[HYS_CUT_KEYS], cut->ranks, error)
			      : equal_ranges(cut, HYS_CUT_KEYS, error));
	HYS_TRY(own_entries(cut, error));
	HYS_TRY(joint ? copy_runs(rows, &cut->owned[HYS_CUT_WINDOW_KEYS], cut->ranks, error)
		      : equal_ranges(cut, HYS_CUT_WINDOW_KEYS, error));
	HYS_TRY(need(cut, HYS_CUT_KEYS, host->row_begin, host->row_end, error));
	HYS_TRY(need(cut, HYS_CUT_ENTRIES, host->index_begin, host->index_end, error));
	HYS_TRY(need(cut, HYS_CUT_WINDOW_KEYS, host->window_begin, host->window_end, error));
cleanup:
	return status;
}
