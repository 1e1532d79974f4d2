#include "batch_build.h"

/* The arrays of a batch: where they stand in struct hys_batch_arrays and in
 * struct hys_batch_view, how long they are, and when they exist. */
enum length { ROWS, BLOCKS, ENTRIES, KEYS };

#define NEEDS_WINDOW 1u
#define NEEDS_COARSE 2u
#define NEEDS_POOLS 4u

struct column {
	size_t array, view;
	enum length length;
	unsigned needs;
};

#define COLUMN(name, length, needs)                                                             \
	{                                                                                       \
		offsetof(struct hys_batch_arrays, name), offsetof(struct hys_batch_view, name), \
			length, needs                                                           \
	}

static const struct column columns[] = {
	COLUMN(row_begin, ROWS, 0),
	COLUMN(row_end, ROWS, 0),
	COLUMN(index_begin, ROWS, 0),
	COLUMN(index_end, ROWS, 0),
	COLUMN(key_origin, ROWS, 0),
	COLUMN(entry_origin, ROWS, 0),
	COLUMN(window_begin, ROWS, NEEDS_WINDOW),
	COLUMN(window_end, ROWS, NEEDS_WINDOW),
	COLUMN(coarse_base, ROWS, NEEDS_COARSE),
	COLUMN(coarse_entry, BLOCKS, NEEDS_COARSE),
	COLUMN(coarse_doc, BLOCKS, NEEDS_COARSE),
	COLUMN(entry_key, ENTRIES, NEEDS_POOLS),
	COLUMN(entry_doc, ENTRIES, NEEDS_POOLS),
	COLUMN(key_entry, KEYS, NEEDS_POOLS),
	COLUMN(entry_block, ENTRIES, NEEDS_POOLS | NEEDS_COARSE),
};

#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

static int32_t **array_of(struct hys_batch_arrays *arrays, const struct column *column)
{
	return (int32_t **)(void *)((char *)arrays + column->array);
}

static struct hys_tensor *view_of(struct hys_batch_view *view, const struct column *column)
{
	return (struct hys_tensor *)(void *)((char *)view + column->view);
}

static int64_t length_of(const struct hys_batch *batch, const struct column *column)
{
	const int64_t lengths[] = {[ROWS] = batch->rows,
				   [BLOCKS] = batch->coarse_blocks,
				   [ENTRIES] = batch->entries,
				   [KEYS] = batch->keys};

	return lengths[column->length];
}

static unsigned present_parts(const struct hys_plan *plan, bool window)
{
	unsigned pools = HYS_OP_BIT(HYS_OP_POOL) | HYS_OP_BIT(HYS_OP_POOL_BACKWARD);

	return (window ? NEEDS_WINDOW : 0) |
	       (plan->problem.choosing.coarse_block > 0 ? NEEDS_COARSE : 0) |
	       (plan->operations & pools ? NEEDS_POOLS : 0);
}

bool hys_batch_layout(struct hys_batch *batch, bool window)
{
	unsigned parts = present_parts(batch->plan, window);
	int64_t bytes = 0, offsets[COLUMN_COUNT];

	for (size_t i = 0; i < COLUMN_COUNT; i++) {
		offsets[i] = (columns[i].needs & ~parts) ? -1 : bytes;
		if (offsets[i] >= 0)
			bytes += hys_round_up(length_of(batch, &columns[i]) * 4, HYS_ALIGN);
	}
	/* One unit more, so that an empty array has an address too. */
	bytes += HYS_ALIGN;
	batch->packed = hys_alloc(&batch->plan->context->host.allocator, bytes);
	if (!batch->packed)
		return false;
	batch->packed_bytes = bytes;
	for (size_t i = 0; i < COLUMN_COUNT; i++)
		if (offsets[i] >= 0)
			*array_of(&batch->host, &columns[i]) =
				(int32_t *)(void *)((char *)batch->packed + offsets[i]);
	return true;
}

static void fill_coarse(struct hys_batch *batch, const struct hys_documents *documents, int32_t d)
{
	int32_t size = batch->plan->problem.choosing.coarse_block;

	for (int32_t b = documents->coarse[d]; b < documents->coarse[d + 1]; b++) {
		batch->host.coarse_entry[b] =
			documents->entry[d] + (b - documents->coarse[d]) * size;
		batch->host.coarse_doc[b] = d;
	}
}

static void fill_pools(struct hys_batch *batch, const struct hys_documents *documents, int32_t d)
{
	int32_t pool = batch->plan->problem.scoring.pool;
	int32_t first = documents->entry[d], count = documents->entry[d + 1] - first;

	for (int32_t e = 0; e < count; e++) {
		batch->host.entry_key[first + e] = documents->k[d] + e * pool;
		batch->host.entry_doc[first + e] = d;
	}
	for (int32_t s = documents->k[d]; s < documents->k[d + 1]; s++) {
		int32_t e = (s - documents->k[d]) / pool;

		batch->host.key_entry[s] = e < count ? first + e : -1;
	}
}

static void fill_entry_blocks(struct hys_batch *batch, const struct hys_documents *documents,
			      int32_t d)
{
	int32_t size = batch->plan->problem.choosing.coarse_block;
	int32_t first = documents->entry[d];

	for (int32_t e = first; e < documents->entry[d + 1]; e++) {
		int32_t block = documents->coarse[d] + (e - first) / size;

		batch->host.entry_block[e] = block < documents->coarse[d + 1] ? block : -1;
	}
}

void hys_batch_fill_tables(struct hys_batch *batch, const struct hys_documents *documents)
{
	for (int32_t d = 0; d < documents->count; d++) {
		if (batch->host.coarse_entry)
			fill_coarse(batch, documents, d);
		if (batch->host.entry_key)
			fill_pools(batch, documents, d);
		if (batch->host.entry_block)
			fill_entry_blocks(batch, documents, d);
	}
}

struct hys_batch_view hys_batch_view_of(const struct hys_batch *batch, struct hys_buffer *buffer)
{
	struct hys_batch_arrays host = batch->host;
	struct hys_batch_view view = {0};

	for (size_t i = 0; i < COLUMN_COUNT; i++) {
		const int32_t *array = *array_of(&host, &columns[i]);
		int64_t length = length_of(batch, &columns[i]);
		struct hys_tensor *tensor = view_of(&view, &columns[i]);

		if (!array)
			continue;
		*tensor = buffer ? hys_device(buffer, array - (const int32_t *)batch->packed,
					      HYS_I32, 1, length, 0, 0)
				 : hys_host(array, HYS_I32, 1, length, 0, 0);
		tensor->stride[0] = 1;
	}
	return view;
}

struct hys_batch_view hys_batch_slice(const struct hys_batch *batch, int32_t device, int64_t first,
				      int64_t count)
{
	struct hys_batch_view view = batch->views[device];

	for (size_t i = 0; i < COLUMN_COUNT; i++) {
		struct hys_tensor *tensor = view_of(&view, &columns[i]);

		if (columns[i].length != ROWS || !hys_present(tensor))
			continue;
		tensor->shape[0] = count;
		if (tensor->buffer)
			tensor->offset += first;
		else
			tensor->host = (int32_t *)tensor->host + first;
	}
	return view;
}
