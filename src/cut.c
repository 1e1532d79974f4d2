/* Cuts over ranks: made, asked, and handed out as batches. */
#include <string.h>

#include "cut.h"

static const struct hys_allocator *const allocator = &hys_allocator_default;

/* ---- runs ---- */

hys_status hys_run_push(struct hys_run_list *list, struct hys_span run, struct hys_error *error)
{
	if (list->count == list->room) {
		const int64_t room = hys_max64(64, hys_mul64(list->room, 2));
		struct hys_span *more = hys_alloc_array(allocator, room, sizeof(*more));

		if (!more)
			return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %lld runs",
					(long long)room);
		if (list->runs)
			memcpy(more, list->runs, (size_t)list->count * sizeof(*more));
		hys_free(allocator, list->runs);
		list->runs = more;
		list->room = room;
	}
	/* There is room. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	list->runs[list->count++] = run;
	return HYS_OK;
}

hys_status hys_run_add(struct hys_run_list *list, int64_t first, int64_t count,
		       struct hys_error *error)
{
	struct hys_span *last = list->count > 0 ? &list->runs[list->count - 1] : NULL;

	if (count <= 0)
		return HYS_OK;
	if (last && last->first + last->count == first) {
		last->count += count;
		return HYS_OK;
	}
	return hys_run_push(list, (struct hys_span){first, count}, error);
}

hys_status hys_run_table_make(struct hys_run_table *table, int32_t ranks, struct hys_error *error)
{
	table->first = hys_alloc_array(allocator, (int64_t)ranks + 1, sizeof(*table->first));
	table->total = hys_alloc_array(allocator, ranks, sizeof(*table->total));
	if (table->first && table->total)
		return HYS_OK;
	return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %d ranks", ranks);
}

hys_status hys_run_table_add(struct hys_run_table *table, int32_t rank, int64_t first,
			     int64_t count, struct hys_error *error)
{
	hys_status status = HYS_OK;

	if (count > 0 && table->list.count == table->first[rank])
		status = hys_run_push(&table->list, (struct hys_span){first, count}, error);
	else
		status = hys_run_add(&table->list, first, count, error);
	if (status == HYS_OK)
		table->total[rank] += hys_max64(0, count);
	table->first[rank + 1] = table->list.count;
	return status;
}

void hys_run_clear(struct hys_run_list *list)
{
	hys_free(allocator, list->runs);
	*list = (struct hys_run_list){0};
}

static void sift(struct hys_span *runs, int64_t at, int64_t count)
{
	const struct hys_span moved = runs[at];

	for (int64_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && runs[child + 1].first > runs[child].first)
			child++;
		if (runs[child].first <= moved.first)
			break;
		runs[at] = runs[child];
	}
	runs[at] = moved;
}

/* Heapsort: no memory, and the same order with any C library. */
void hys_run_sort(struct hys_run_list *list)
{
	struct hys_span *runs = list->runs;
	int64_t kept = 0;

	for (int64_t i = list->count / 2; i-- > 0;)
		sift(runs, i, list->count);
	for (int64_t last = list->count - 1; last > 0; last--) {
		const struct hys_span largest = runs[0];

		runs[0] = runs[last];
		runs[last] = largest;
		sift(runs, 0, last);
	}
	for (int64_t i = 1; i < list->count; i++) {
		struct hys_span *at = &runs[kept];

		if (runs[i].first > at->first + at->count)
			runs[++kept] = runs[i];
		else
			at->count = hys_max64(at->count, runs[i].first + runs[i].count - at->first);
	}
	list->count = list->count > 0 ? kept + 1 : 0;
}

int64_t hys_run_common(const struct hys_span *a, int32_t a_count, const struct hys_span *b,
		       int32_t b_count, int64_t first, int64_t count)
{
	int64_t common = 0;

	for (int32_t i = 0, j = 0; i < a_count && j < b_count;) {
		const int64_t a_end = a[i].first + a[i].count, b_end = b[j].first + b[j].count;
		const int64_t begin = hys_max64(first, hys_max64(a[i].first, b[j].first));
		const int64_t end = hys_min64(first + count, hys_min64(a_end, b_end));

		common += hys_max64(0, end - begin);
		if (a_end <= b_end)
			i++;
		if (b_end <= a_end)
			j++;
	}
	return common;
}

/* ---- making ---- */

const char *hys_cut_way_name(hys_cut_way way)
{
	static const char *const names[HYS_CUT_WAY_COUNT] = {"balanced", "contiguous", "zigzag"};

	return (unsigned)way < HYS_CUT_WAY_COUNT ? names[way] : "unknown";
}

static hys_status copy_cu(struct hys_cut *cut, int32_t i, const int32_t **array,
			  struct hys_error *error)
{
	const int64_t count = (int64_t)cut->desc.documents + 1;

	if (!*array || cut->desc.documents < 1)
		return HYS_OK;
	cut->cu[i] = hys_alloc_array(allocator, count, sizeof(**array));
	if (!cut->cu[i])
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %lld documents",
				(long long)count);
	memcpy(cut->cu[i], *array, (size_t)count * sizeof(**array));
	*array = cut->cu[i];
	return HYS_OK;
}

/* Intervals and prefix sums of all rows, as hys_batch_create finds them. */
static hys_status fill_batch(struct hys_cut *cut, const struct hys_batch_desc *desc,
			     struct hys_error *error)
{
	struct hys_batch *batch = &cut->batch;
	hys_status status;

	batch->plan = &cut->plan;
	HYS_TRY(hys_batch_check_desc(&cut->plan, desc, error));
	cut->desc = *desc;
	HYS_TRY(copy_cu(cut, 0, &cut->desc.cu_seqlens_q, error));
	HYS_TRY(copy_cu(cut, 1, &cut->desc.cu_seqlens_k, error));
	HYS_TRY(hys_documents_make(&cut->plan, &cut->desc, &cut->documents, error));
	batch->rows = desc->rows;
	batch->keys = desc->keys;
	batch->window_keys = desc->window_keys;
	batch->entries = cut->documents.entry[cut->documents.count];
	batch->key_pairs_before = hys_alloc_array(allocator, desc->rows + 1, sizeof(int64_t));
	batch->entry_pairs_before = hys_alloc_array(allocator, desc->rows + 1, sizeof(int64_t));
	if (!batch->key_pairs_before || !batch->entry_pairs_before ||
	    !hys_batch_layout(batch, desc->window_begin != NULL))
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a cut of %lld rows",
				 (long long)desc->rows));
	HYS_TRY(hys_batch_fill_rows(batch, &cut->desc, &cut->documents, error));
cleanup:
	return status;
}

/* Rows that a pool, or a block of entries, has of a document. */
static int64_t unit_of(const struct hys_problem *problem)
{
	const int64_t block = (int64_t)problem->scoring.pool * hys_max64(problem->scoring.block, 1);
	const int64_t span = hys_max64(problem->attending.granularity, 1);

	return block % span == 0 ? block : hys_mul64(block, span);
}

static bool follows_rows(const struct hys_batch_desc *desc)
{
	if (desc->rows != desc->keys)
		return false;
	return !desc->cu_seqlens_k || !desc->documents ||
	       memcmp(desc->cu_seqlens_k, desc->cu_seqlens_q,
		      ((size_t)desc->documents + 1) * sizeof(int32_t)) == 0;
}

static hys_status make(struct hys_cut *cut, const struct hys_problem *problem,
		       const struct hys_batch_desc *desc, const struct hys_cut_options *options,
		       struct hys_error *error)
{
	hys_status status;

	cut->ranks = options->ranks;
	cut->way = options->way;
	cut->slices = options->slices > 0 ? options->slices : HYS_CUT_SLICES;
	cut->context.host.allocator = *allocator;
	cut->plan.context = &cut->context;
	cut->plan.problem = *problem;
	cut->plan.keys_max = cut->plan.window_keys_max = INT32_MAX;
	HYS_TRY(hys_problem_complete(&cut->plan.problem, error));
	HYS_TRY(fill_batch(cut, desc, error));
	cut->unit = unit_of(&cut->plan.problem);
	cut->together = follows_rows(&cut->desc);
	cut->size[HYS_CUT_ROWS] = cut->batch.rows;
	cut->size[HYS_CUT_KEYS] = cut->batch.keys;
	cut->size[HYS_CUT_ENTRIES] = cut->batch.entries;
	cut->size[HYS_CUT_WINDOW_KEYS] = cut->batch.window_keys;
	HYS_TRY(hys_cut_rows(cut, error));
	HYS_TRY(hys_cut_parts(cut, error));
cleanup:
	return status;
}

hys_status hys_cut_create(const struct hys_problem *problem, const struct hys_batch_desc *desc,
			  const struct hys_cut_options *options, struct hys_cut **cut,
			  struct hys_error *error)
{
	struct hys_cut *made = NULL;
	hys_status status;

	if (!problem || !cut)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				problem ? "cut" : "problem");
	HYS_TRY(hys_check_struct(options, sizeof(*options), "options", error));
	HYS_TRY(hys_check_range(error, "options.ranks", options->ranks, 1, 1 << 20));
	HYS_TRY(hys_check_range(error, "options.way", options->way, 0, HYS_CUT_WAY_COUNT - 1));
	HYS_TRY(hys_check_range(error, "options.slices", options->slices, 0, 1024));
	made = hys_alloc(allocator, sizeof(*made));
	if (!made)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a cut"));
	HYS_TRY(make(made, problem, desc, options, error));
	*cut = made;
	made = NULL;
cleanup:
	hys_cut_destroy(made);
	return status;
}

static void clear_table(struct hys_run_table *table)
{
	hys_run_clear(&table->list);
	hys_free(allocator, table->first);
	hys_free(allocator, table->total);
}

void hys_cut_destroy(struct hys_cut *cut)
{
	if (!cut)
		return;
	for (int32_t part = 0; part < HYS_CUT_PART_COUNT; part++) {
		clear_table(&cut->owned[part]);
		clear_table(&cut->needed[part]);
	}
	hys_documents_clear(&cut->documents);
	hys_free(allocator, cut->batch.packed);
	hys_free(allocator, cut->batch.key_pairs_before);
	hys_free(allocator, cut->batch.entry_pairs_before);
	hys_free(allocator, cut->cu[0]);
	hys_free(allocator, cut->cu[1]);
	hys_free(allocator, cut);
}

/* ---- asking ---- */

int32_t hys_cut_ranks(const struct hys_cut *cut)
{
	return cut ? cut->ranks : 0;
}

int32_t hys_cut_slices(const struct hys_cut *cut)
{
	return cut ? cut->slices : 0;
}

static bool known(const struct hys_cut *cut, hys_cut_part part, int32_t rank)
{
	return cut && (unsigned)part < HYS_CUT_PART_COUNT && rank >= 0 && rank < cut->ranks;
}

int64_t hys_cut_size(const struct hys_cut *cut, hys_cut_part part)
{
	return known(cut, part, 0) ? cut->size[part] : 0;
}

static const struct hys_span no_runs; /* what lists of none point to */

static int32_t runs_of(const struct hys_run_table *table, int32_t rank,
		       const struct hys_span **runs)
{
	*runs = table->list.runs ? table->list.runs + table->first[rank] : &no_runs;
	return (int32_t)(table->first[rank + 1] - table->first[rank]);
}

int32_t hys_cut_owned(const struct hys_cut *cut, hys_cut_part part, int32_t rank,
		      const struct hys_span **runs)
{
	*runs = &no_runs;
	return known(cut, part, rank) ? runs_of(&cut->owned[part], rank, runs) : 0;
}

int64_t hys_cut_count(const struct hys_cut *cut, hys_cut_part part, int32_t rank)
{
	return known(cut, part, rank) ? cut->owned[part].total[rank] : 0;
}

int32_t hys_cut_needed(const struct hys_cut *cut, hys_cut_part part, int32_t rank,
		       const struct hys_span **runs)
{
	*runs = &no_runs;
	return known(cut, part, rank) ? runs_of(&cut->needed[part], rank, runs) : 0;
}

/* Ends of what rows see of a part; NULL when they see nothing. */
static void intervals_of(const struct hys_cut *cut, hys_cut_part part, const int32_t **begins,
			 const int32_t **ends)
{
	const struct hys_batch_arrays *host = &cut->batch.host;
	const int32_t *const all[HYS_CUT_PART_COUNT][2] = {
		{NULL, NULL},
		{host->row_begin, host->row_end},
		{host->index_begin, host->index_end},
		{host->window_begin, host->window_end},
	};

	*begins = all[part][0];
	*ends = all[part][1];
}

int64_t hys_cut_ready(const struct hys_cut *cut, hys_cut_part part, int32_t rank, int32_t slices)
{
	const int32_t *begins, *ends;
	const struct hys_span *runs;
	const int32_t count = hys_cut_owned(cut, HYS_CUT_ROWS, rank, &runs);
	int64_t ready = 0, limit;

	if (!known(cut, part, rank))
		return 0;
	limit = cut->size[part] * hys_min64(slices, cut->slices) / cut->slices;
	intervals_of(cut, part, &begins, &ends);
	for (int32_t i = 0; i < count; i++)
		for (int64_t t = runs[i].first; t < runs[i].first + runs[i].count; t++, ready++)
			if (ends && begins[t] < ends[t] && ends[t] > limit)
				return ready;
	return ready;
}

static int64_t pairs_of(const struct hys_cut *cut, const int64_t *before, int32_t rank)
{
	const struct hys_span *runs;
	const int32_t count = hys_cut_owned(cut, HYS_CUT_ROWS, rank, &runs);
	int64_t pairs = 0;

	for (int32_t i = 0; i < count; i++)
		pairs += before[runs[i].first + runs[i].count] - before[runs[i].first];
	return pairs;
}

int64_t hys_cut_key_pairs(const struct hys_cut *cut, int32_t rank)
{
	return cut ? pairs_of(cut, cut->batch.key_pairs_before, rank) : 0;
}

int64_t hys_cut_entry_pairs(const struct hys_cut *cut, int32_t rank)
{
	return cut ? pairs_of(cut, cut->batch.entry_pairs_before, rank) : 0;
}

struct hys_cut_traffic hys_cut_traffic(const struct hys_cut *cut, hys_cut_part part, int32_t rank)
{
	struct hys_cut_traffic traffic = {0};
	const struct hys_span *own, *need;
	const int32_t own_count = hys_cut_owned(cut, part, rank, &own);
	const int32_t need_count = hys_cut_needed(cut, part, rank, &need);

	if (!known(cut, part, rank))
		return traffic;
	for (int32_t slice = 0; slice < cut->slices; slice++) {
		const int64_t first = cut->size[part] * slice / cut->slices;
		const int64_t count = cut->size[part] * (slice + 1) / cut->slices - first;

		for (int32_t other = 0; other < cut->ranks; other++) {
			const struct hys_span *theirs, *wanted;
			const int32_t n = hys_cut_owned(cut, part, other, &theirs);
			const int32_t m = hys_cut_needed(cut, part, other, &wanted);
			const int64_t in =
				hys_run_common(need, need_count, theirs, n, first, count);
			const int64_t out = hys_run_common(own, own_count, wanted, m, first, count);

			if (other == rank)
				continue;
			traffic.received += in;
			traffic.messages_received += in > 0;
			traffic.sent += out;
			traffic.messages_sent += out > 0;
		}
	}
	return traffic;
}
