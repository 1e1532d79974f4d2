#include "batch_build.h"

struct interval {
	int32_t begin, end;
};

/* ---- from a description ---- */

static hys_status find_position(const struct hys_batch_desc *desc,
				const struct hys_documents *documents, int32_t d, int64_t t,
				int64_t *position, struct hys_error *error)
{
	int64_t queries = documents->q[d + 1] - documents->q[d];
	int64_t keys = documents->k[d + 1] - documents->k[d];

	if (!desc->positions) {
		*position = keys - queries + (t - documents->q[d]);
		return HYS_OK;
	}
	*position = desc->positions[t];
	if (*position >= 0 && *position < hys_max64(keys, 1))
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
			"desc.positions[%lld] is %d, expected 0 to %lld: document %d has %lld keys",
			(long long)t, desc->positions[t], (long long)hys_max64(keys, 1) - 1, d,
			(long long)keys);
}

/* Within the document, from 0. */
static struct interval see_keys(const struct hys_batch_desc *desc, int64_t keys, int64_t position)
{
	int64_t begin = 0, end = keys;

	if (desc->flags & HYS_BATCH_CAUSAL || desc->window > 0)
		end = hys_max64(0, hys_min64(keys, position + 1));
	if (desc->window > 0)
		begin = hys_min64(end, hys_max64(0, position + 1 - desc->window));
	return (struct interval){(int32_t)begin, (int32_t)end};
}

/* Entries that lie wholly inside the keys. */
static struct interval see_entries(struct interval keys, int32_t pool)
{
	int32_t end = keys.end / pool;
	int64_t begin = ((int64_t)keys.begin + pool - 1) / pool;

	return (struct interval){(int32_t)hys_min64(begin, end), end};
}

static hys_status describe_document(struct hys_batch *batch, const struct hys_batch_desc *desc,
				    const struct hys_documents *documents, int32_t d,
				    struct hys_error *error)
{
	int32_t origin = documents->k[d], entry = documents->entry[d];
	int32_t pool = batch->plan->problem.scoring.pool;

	for (int64_t t = documents->q[d]; t < documents->q[d + 1]; t++) {
		int64_t position;
		struct interval keys, entries;
		hys_status status = find_position(desc, documents, d, t, &position, error);

		if (status != HYS_OK)
			return status;
		keys = see_keys(desc, documents->k[d + 1] - origin, position);
		entries = see_entries(keys, pool);
		batch->host.row_begin[t] = origin + keys.begin;
		batch->host.row_end[t] = origin + keys.end;
		batch->host.index_begin[t] = entry + entries.begin;
		batch->host.index_end[t] = entry + entries.end;
	}
	return HYS_OK;
}

/* ---- the caller's own ---- */

struct intervals {
	const int32_t *begin, *end;
	const char *name; /* "row", "index", "window" */
};

/* One interval within [least, most); an empty one may lie anywhere in the array
 * and is moved to the document. */
static hys_status take_interval(const struct intervals *from, int64_t t, int32_t least,
				int32_t most, int64_t total, struct interval *to,
				struct hys_error *error)
{
	int32_t begin = from->begin[t], end = from->end[t];

	if (begin < 0 || begin > total)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"desc.%s_begin[%lld] is %d, expected 0 to %lld", from->name,
				(long long)t, begin, (long long)total);
	if (end < begin || end > total)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"desc.%s_end[%lld] is %d, expected %d, its begin, to %lld",
				from->name, (long long)t, end, begin, (long long)total);
	if (begin == end) {
		to->begin = to->end = (int32_t)hys_max64(least, hys_min64(begin, most));
		return HYS_OK;
	}
	if (begin < least || end > most)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"desc.%s_begin[%lld] and %s_end are %d and %d, expected an "
				"interval within the row's document, %d to %d",
				from->name, (long long)t, from->name, begin, end, least, most);
	*to = (struct interval){begin, end};
	return HYS_OK;
}

static hys_status copy_document(struct hys_batch *batch, const struct hys_batch_desc *desc,
				const struct hys_documents *documents, int32_t d,
				struct hys_error *error)
{
	const struct intervals rows = {desc->row_begin, desc->row_end, "row"};
	const struct intervals indices = {desc->index_begin, desc->index_end, "index"};
	hys_status status = HYS_OK;

	for (int64_t t = documents->q[d]; t < documents->q[d + 1]; t++) {
		struct interval keys, entries;

		HYS_TRY(take_interval(&rows, t, documents->k[d], documents->k[d + 1], batch->keys,
				      &keys, error));
		entries = keys;
		if (desc->index_begin)
			HYS_TRY(take_interval(&indices, t, documents->entry[d],
					      documents->entry[d + 1], batch->entries, &entries,
					      error));
		batch->host.row_begin[t] = keys.begin;
		batch->host.row_end[t] = keys.end;
		batch->host.index_begin[t] = entries.begin;
		batch->host.index_end[t] = entries.end;
	}
cleanup:
	return status;
}

static hys_status copy_window(struct hys_batch *batch, const struct hys_batch_desc *desc,
			      struct hys_error *error)
{
	const struct intervals window = {desc->window_begin, desc->window_end, "window"};
	hys_status status = HYS_OK;

	for (int64_t t = 0; t < batch->rows; t++) {
		struct interval keys;

		HYS_TRY(take_interval(&window, t, 0, (int32_t)batch->window_keys,
				      batch->window_keys, &keys, error));
		batch->host.window_begin[t] = keys.begin;
		batch->host.window_end[t] = keys.end;
	}
cleanup:
	return status;
}

/* ---- both ---- */

static void place_document(struct hys_batch *batch, const struct hys_documents *documents,
			   int32_t d)
{
	for (int64_t t = documents->q[d]; t < documents->q[d + 1]; t++) {
		batch->host.key_origin[t] = documents->k[d];
		batch->host.entry_origin[t] = documents->entry[d];
		if (batch->host.coarse_base)
			batch->host.coarse_base[t] = documents->coarse[d];
	}
}

static void sum_pairs(struct hys_batch *batch)
{
	const struct hys_batch_arrays *host = &batch->host;

	batch->row_keys = batch->row_entries = batch->row_window_keys = 1;
	for (int64_t t = 0; t < batch->rows; t++) {
		const int64_t keys = host->row_end[t] - host->row_begin[t];
		const int64_t entries = host->index_end[t] - host->index_begin[t];

		batch->key_pairs_before[t + 1] = batch->key_pairs_before[t] + keys;
		batch->entry_pairs_before[t + 1] = batch->entry_pairs_before[t] + entries;
		batch->row_keys = hys_max64(batch->row_keys, keys);
		batch->row_entries = hys_max64(batch->row_entries, entries);
		if (host->window_begin)
			batch->row_window_keys =
				hys_max64(batch->row_window_keys,
					  (int64_t)host->window_end[t] - host->window_begin[t]);
	}
}

hys_status hys_batch_fill_rows(struct hys_batch *batch, const struct hys_batch_desc *desc,
			       const struct hys_documents *documents, struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int32_t d = 0; d < documents->count; d++) {
		HYS_TRY(desc->row_begin ? copy_document(batch, desc, documents, d, error)
					: describe_document(batch, desc, documents, d, error));
		place_document(batch, documents, d);
	}
	if (desc->window_begin)
		HYS_TRY(copy_window(batch, desc, error));
	sum_pairs(batch);
cleanup:
	return status;
}
