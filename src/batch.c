#include "batch_build.h"
#include "partition.h"

/* Copies the packed arrays to a device that cannot read host memory. */
static hys_status upload(const struct hys_batch *batch, struct hys_buffer *buffer,
			 struct hys_error *error)
{
	struct hys_device *device = buffer->device;
	const struct hys_backend *backend = device->backend;
	const struct hys_copy copy = {
		.host = batch->packed,
		.device = {NULL, buffer, 0, batch->packed_bytes},
		.bytes = batch->packed_bytes,
		.count = {1, 1},
	};
	struct hys_stream *stream = NULL;
	hys_status status;

	HYS_TRY(backend->stream_create(device, NULL, &stream, error));
	HYS_TRY(backend->copy_in(stream, &copy, error));
	HYS_TRY(backend->finish(stream, error));
cleanup:
	if (stream)
		backend->stream_destroy(stream);
	return status;
}

static hys_status place_on_devices(struct hys_batch *batch, struct hys_error *error)
{
	const struct hys_plan *plan = batch->plan;
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < plan->device_count; i++) {
		if (!plan->devices[i]->host_memory) {
			HYS_TRY(hys_buffer_make(plan->context, plan->devices[i],
						batch->packed_bytes, &batch->buffers[i], error));
			HYS_TRY(upload(batch, batch->buffers[i], error));
		}
		batch->views[i] = hys_batch_view_of(batch, batch->buffers[i]);
	}
cleanup:
	return status;
}

static bool allocate(struct hys_batch *batch, bool window)
{
	const struct hys_allocator *allocator = &batch->plan->context->host.allocator;
	int32_t devices = batch->plan->device_count;

	batch->key_pairs_before =
		hys_alloc_array(allocator, batch->rows + 1, sizeof(*batch->key_pairs_before));
	batch->entry_pairs_before =
		hys_alloc_array(allocator, batch->rows + 1, sizeof(*batch->entry_pairs_before));
	batch->buffers = hys_alloc_array(allocator, devices, sizeof(*batch->buffers));
	batch->views = hys_alloc_array(allocator, devices, sizeof(*batch->views));
	return batch->key_pairs_before && batch->entry_pairs_before && batch->buffers &&
	       batch->views && hys_batch_layout(batch, window);
}

static hys_status build(struct hys_batch *batch, const struct hys_batch_desc *desc,
			const struct hys_documents *documents, struct hys_error *error)
{
	hys_status status;

	batch->rows = desc->rows;
	batch->keys = desc->keys;
	batch->window_keys = desc->window_keys;
	batch->entries = documents->entry[documents->count];
	batch->coarse_blocks = documents->coarse[documents->count];
	if (!allocate(batch, desc->window_begin != NULL))
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0,
				"no memory for a batch of %lld rows and %lld keys",
				(long long)desc->rows, (long long)desc->keys);
	HYS_TRY(hys_batch_fill_rows(batch, desc, documents, error));
	hys_batch_fill_tables(batch, documents);
	if (!hys_partition_batch(batch))
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0,
				"no memory to share %lld rows between devices",
				(long long)desc->rows);
	HYS_TRY(place_on_devices(batch, error));
cleanup:
	return status;
}

hys_status hys_batch_create(struct hys_plan *plan, const struct hys_batch_desc *desc,
			    struct hys_batch **batch, struct hys_error *error)
{
	struct hys_documents documents = {0};
	struct hys_batch *made = NULL;
	hys_status status;

	if (!plan || !batch)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				plan ? "batch" : "plan");
	HYS_TRY(hys_context_check(plan->context, error));
	HYS_TRY(hys_batch_check_desc(plan, desc, error));
	HYS_TRY(hys_documents_make(plan, desc, &documents, error));
	made = hys_alloc(&plan->context->host.allocator, sizeof(*made));
	if (!made)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a batch"));
	hys_plan_retain(plan);
	made->plan = plan;
	HYS_TRY(build(made, desc, &documents, error));
	*batch = made;
	made = NULL;
cleanup:
	hys_documents_clear(&documents);
	hys_batch_destroy(made);
	return status;
}

void hys_batch_destroy(struct hys_batch *batch)
{
	struct hys_plan *plan;
	const struct hys_allocator *allocator;

	if (!batch)
		return;
	plan = batch->plan;
	allocator = &plan->context->host.allocator;
	for (int32_t i = 0; batch->buffers && i < plan->device_count; i++)
		hys_buffer_destroy(batch->buffers[i]);
	hys_free(allocator, batch->buffers);
	hys_free(allocator, batch->views);
	hys_free(allocator, batch->packed);
	hys_free(allocator, batch->ranges);
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		hys_free(allocator, batch->flops_before[op]);
	hys_free(allocator, batch->key_pairs_before);
	hys_free(allocator, batch->entry_pairs_before);
	hys_free(allocator, batch);
	hys_plan_release(plan);
}

int64_t hys_batch_rows(const struct hys_batch *batch)
{
	return batch ? batch->rows : 0;
}

int64_t hys_batch_keys(const struct hys_batch *batch)
{
	return batch ? batch->keys : 0;
}

int64_t hys_batch_entries(const struct hys_batch *batch)
{
	return batch ? batch->entries : 0;
}

int64_t hys_batch_coarse_blocks(const struct hys_batch *batch)
{
	return batch ? batch->coarse_blocks : 0;
}

int64_t hys_batch_key_pairs(const struct hys_batch *batch)
{
	return batch ? batch->key_pairs_before[batch->rows] : 0;
}

int64_t hys_batch_entry_pairs(const struct hys_batch *batch)
{
	return batch ? batch->entry_pairs_before[batch->rows] : 0;
}

int64_t hys_batch_bytes(const struct hys_batch *batch)
{
	return batch->packed_bytes;
}
