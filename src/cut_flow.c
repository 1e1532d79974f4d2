/* What every rank receives and sends, slice by slice, found in one pass for all
 * of them: pair by pair it would take ranks * ranks. */
#include "cut.h"

static const struct hys_allocator *const allocator = &hys_allocator_default;

/* Runs of the whole part with their owners. */
struct owned {
	int64_t first, end;
	int32_t rank;
};

static hys_status list_owners(const struct hys_cut *cut, hys_cut_part part, struct owned **list,
			      int64_t *count, struct hys_error *error)
{
	const struct hys_run_table *table = &cut->owned[part];
	int32_t *owner = hys_alloc_array(allocator, cut->size[part] + 1, sizeof(*owner));
	hys_status status = HYS_OK;

	*count = 0;
	*list = hys_alloc_array(allocator, table->list.count + 1, sizeof(**list));
	if (!owner || !*list)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for the owners of %lld",
				 (long long)cut->size[part]));
	for (int32_t rank = 0; rank < cut->ranks; rank++)
		for (int64_t i = table->first[rank]; i < table->first[rank + 1]; i++)
			owner[table->list.runs[i].first] = rank + 1;
	for (int64_t t = 0; t < cut->size[part]; t++) {
		if (owner[t] == 0)
			continue;
		if (*count > 0)
			(*list)[*count - 1].end = t;
		(*list)[(*count)++] = (struct owned){t, cut->size[part], owner[t] - 1};
	}
cleanup:
	hys_free(allocator, owner);
	return status;
}

/* The run that `at` lies in. */
static int64_t find(const struct owned *list, int64_t count, int64_t at)
{
	int64_t low = 0, high = count;

	while (high - low > 1) {
		const int64_t middle = low + (high - low) / 2;

		if (list[middle].first <= at)
			low = middle;
		else
			high = middle;
	}
	return low;
}

struct walk {
	const struct hys_cut *cut;
	hys_cut_part part;
	const struct owned *owners;
	int64_t owner_count;
	int64_t *seen; /* [ranks] slice that a message to the rank was last counted in */
	struct hys_flow *flows;
};

static void take(struct walk *walk, int32_t rank, int32_t owner, int64_t slice, int64_t rows)
{
	struct hys_flow *flow = &walk->flows[rank];

	if (owner == rank)
		return;
	flow->received[slice] += rows;
	walk->flows[owner].sent += rows;
	if (walk->seen[owner] != rank * (int64_t)walk->cut->slices + slice + 1) {
		walk->seen[owner] = rank * (int64_t)walk->cut->slices + slice + 1;
		flow->messages_in++;
		walk->flows[owner].messages_out++;
	}
}

static void walk_run(struct walk *walk, int32_t rank, const struct hys_span *run)
{
	const int64_t size = walk->cut->size[walk->part], slices = walk->cut->slices;
	int64_t at = run->first, slice = 0;
	const int64_t end = run->first + run->count;

	for (int64_t i = find(walk->owners, walk->owner_count, at); at < end; i++)
		while (at < hys_min64(end, walk->owners[i].end)) {
			while (size * (slice + 1) / slices <= at)
				slice++;
			const int64_t stop = hys_min64(hys_min64(end, walk->owners[i].end),
						       size * (slice + 1) / slices);

			take(walk, rank, walk->owners[i].rank, slice, stop - at);
			at = stop;
		}
}

hys_status hys_cut_flows(const struct hys_cut *cut, hys_cut_part part, struct hys_flow *flows,
			 struct hys_error *error)
{
	struct walk walk = {.cut = cut, .part = part, .flows = flows};
	struct owned *owners = NULL;
	hys_status status;

	walk.seen = hys_alloc_array(allocator, cut->ranks, sizeof(*walk.seen));
	if (!walk.seen)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %d ranks",
				 cut->ranks));
	HYS_TRY(list_owners(cut, part, &owners, &walk.owner_count, error));
	walk.owners = owners;
	for (int32_t rank = 0; rank < cut->ranks; rank++) {
		const struct hys_span *needed;
		const int32_t count = hys_cut_needed(cut, part, rank, &needed);

		for (int32_t i = 0; i < count; i++)
			walk_run(&walk, rank, &needed[i]);
	}
cleanup:
	hys_free(allocator, owners);
	hys_free(allocator, walk.seen);
	return status;
}
