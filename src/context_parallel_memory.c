/* Memory that calls share, and tensors on their way into it and out of it. */
#include "context_parallel.h"

#include <string.h>

/* ---- blocks ---- */

static bool serves(const struct hys_cp_block *block, const struct hys_context *context,
		   int32_t device, int64_t bytes)
{
	const bool there =
		context ? block->buffer && block->context == context && block->device == device
			: block->host != NULL;

	return there && !block->taken && block->bytes >= bytes &&
	       block->bytes / 2 <= hys_max64(bytes, 4096);
}

void hys_cp_drop(struct hys_cp *cp, struct hys_cp_block *block)
{
	hys_buffer_destroy(block->buffer);
	hys_free(&cp->allocator, block->host);
	*block = (struct hys_cp_block){0};
}

/* A place for a new block: an unused one, else that of a block nobody has. */
static struct hys_cp_block *find_place(struct hys_cp *cp)
{
	struct hys_cp_block *idle = NULL;

	for (int32_t i = 0; i < HYS_CP_BLOCKS; i++) {
		struct hys_cp_block *block = &cp->blocks[i];

		if (!block->host && !block->buffer)
			return block;
		if (!block->taken)
			idle = block;
	}
	if (idle)
		hys_cp_drop(cp, idle);
	return idle;
}

static hys_status fill(struct hys_cp *cp, struct hys_cp_block *block, struct hys_context *context,
		       int32_t device, int64_t bytes, struct hys_error *error)
{
	if (context) {
		hys_status status = hys_buffer_create(context, device, hys_max64(bytes, 1),
						      &block->buffer, error);

		if (status != HYS_OK)
			return status;
		block->context = context;
		block->device = device;
	} else {
		block->host = hys_alloc(&cp->allocator, bytes);
		if (!block->host)
			return hys_fail(error, HYS_OUT_OF_MEMORY, 0,
					"no memory for %lld bytes of keys", (long long)bytes);
	}
	block->bytes = bytes;
	return HYS_OK;
}

struct hys_cp_block *hys_cp_take(struct hys_cp *cp, const struct hys_plan *plan, bool on_device,
				 int64_t bytes, struct hys_error *error)
{
	struct hys_context *context = on_device ? hys_plan_context(plan) : NULL;
	const int32_t device = on_device ? hys_plan_device(plan, 0) : 0;
	struct hys_cp_block *block;

	for (int32_t i = 0; i < HYS_CP_BLOCKS; i++) {
		block = &cp->blocks[i];
		if (serves(block, context, device, bytes)) {
			block->taken = true;
			return block;
		}
	}
	block = find_place(cp);
	if (!block) {
		hys_report(error, HYS_UNSUPPORTED, 0,
			   "more than %d arrays of keys are alive at once", HYS_CP_BLOCKS);
		return NULL;
	}
	if (fill(cp, block, context, device, bytes, error) != HYS_OK)
		return NULL;
	block->taken = true;
	return block;
}

void hys_cp_give(struct hys_cp_block *block)
{
	if (block)
		block->taken = false;
}

/* ---- tensors ---- */

bool hys_cp_is_present(const struct hys_tensor *tensor)
{
	return tensor->dtype != HYS_DTYPE_DEFAULT;
}

int64_t hys_cp_row_bytes(const struct hys_tensor *tensor)
{
	int64_t bytes = (int64_t)hys_dtype_size(tensor->dtype);

	for (int32_t d = 1; d < tensor->rank; d++)
		bytes = hys_mul64(bytes, tensor->shape[d]);
	return bytes;
}

struct hys_tensor hys_cp_tensor(const struct hys_cp_block *block, const struct hys_tensor *like,
				hys_dtype dtype, int64_t rows)
{
	struct hys_tensor tensor = {
		.host = block->host, .buffer = block->buffer, .dtype = dtype, .rank = like->rank};

	tensor.shape[0] = rows;
	for (int32_t d = 1; d < like->rank; d++)
		tensor.shape[d] = like->shape[d];
	return tensor;
}

/* Elements between neighbours of each dimension. */
static void find_strides(const struct hys_tensor *tensor, int64_t stride[4])
{
	int64_t next = 1;

	for (int32_t d = tensor->rank - 1; d >= 0; d--) {
		stride[d] = tensor->stride[d] != 0 ? tensor->stride[d] : next;
		next = stride[d] * hys_max64(tensor->shape[d], 1);
	}
}

bool hys_cp_is_contiguous(const struct hys_tensor *tensor)
{
	int64_t stride[4] = {0}, next = 1;

	find_strides(tensor, stride);
	for (int32_t d = tensor->rank - 1; d >= 0; d--) {
		if (tensor->shape[d] > 1 && stride[d] != next)
			return false;
		next *= tensor->shape[d];
	}
	return true;
}

const char *hys_cp_in_place(const struct hys_tensor *tensor)
{
	if (tensor->buffer || !hys_cp_is_contiguous(tensor))
		return NULL;
	return (const char *)tensor->host + tensor->offset * (int64_t)hys_dtype_size(tensor->dtype);
}

/* One contiguous piece, to or from host memory. */
static hys_status copy_piece(struct hys_exec *exec, const struct hys_tensor *tensor, int64_t at,
			     char *host, int64_t bytes, bool out, struct hys_error *error)
{
	const int64_t offset = (tensor->offset + at) * (int64_t)hys_dtype_size(tensor->dtype);

	if (tensor->buffer && out)
		return hys_buffer_write(exec, tensor->buffer, offset, host, bytes, error);
	if (tensor->buffer)
		return hys_buffer_read(exec, tensor->buffer, offset, host, bytes, error);
	if (out)
		memcpy((char *)tensor->host + offset, host, (size_t)bytes);
	else
		memcpy(host, (const char *)tensor->host + offset, (size_t)bytes);
	return HYS_OK;
}

static hys_status wait_for(struct hys_exec *exec, struct hys_error *error)
{
	struct hys_event *event = NULL;
	hys_status status;

	HYS_TRY(hys_exec_record(exec, &event, error));
	HYS_TRY(hys_event_wait(event, error));
cleanup:
	hys_event_destroy(event);
	return status;
}

static hys_status copy_all(struct hys_exec *exec, const struct hys_tensor *tensor, char *host,
			   bool out, struct hys_error *error)
{
	const int32_t last = tensor->rank - 1;
	const int64_t size = (int64_t)hys_dtype_size(tensor->dtype);
	int64_t stride[4] = {0}, bytes = tensor->shape[last] * size, rows = 1;
	hys_status status = HYS_OK;

	find_strides(tensor, stride);
	for (int32_t d = 0; d < last; d++)
		rows *= tensor->shape[d];
	if (hys_cp_is_contiguous(tensor)) {
		bytes *= rows;
		rows = 1;
	}
	for (int64_t i = 0; i < rows && bytes > 0; i++) {
		int64_t at = 0, rest = i;

		for (int32_t d = last - 1; d >= 0; d--) {
			at += rest % tensor->shape[d] * stride[d];
			rest /= tensor->shape[d];
		}
		HYS_TRY(copy_piece(exec, tensor, rows == 1 ? 0 : at, host + i * bytes, bytes, out,
				   error));
	}
	if (tensor->buffer)
		HYS_TRY(wait_for(exec, error));
cleanup:
	return status;
}

hys_status hys_cp_fetch(struct hys_exec *exec, const struct hys_tensor *tensor, char *to,
			struct hys_error *error)
{
	return copy_all(exec, tensor, to, false, error);
}

hys_status hys_cp_store(struct hys_exec *exec, const struct hys_tensor *tensor, const char *from,
			struct hys_error *error)
{
	return copy_all(exec, tensor, (char *)(uintptr_t)from, true, error);
}

hys_status hys_cp_zero(struct hys_exec *exec, const struct hys_tensor *tensor,
		       struct hys_error *error)
{
	const int64_t size = (int64_t)hys_dtype_size(tensor->dtype);
	const int32_t last = tensor->rank - 1;
	int64_t stride[4] = {0}, rows = 1;

	find_strides(tensor, stride);
	for (int32_t d = 0; d < last; d++)
		rows *= tensor->shape[d];
	if (tensor->buffer && !hys_cp_is_contiguous(tensor))
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"a buffer that is cleared first has strides, expected a "
				"contiguous tensor");
	if (tensor->buffer)
		return hys_buffer_fill(exec, tensor->buffer, tensor->offset * size,
				       rows * tensor->shape[last] * size, 0, error);
	for (int64_t i = 0; i < rows; i++) {
		int64_t at = tensor->offset, rest = i;

		for (int32_t d = last - 1; d >= 0; d--) {
			at += rest % tensor->shape[d] * stride[d];
			rest /= tensor->shape[d];
		}
		memset((char *)tensor->host + at * size, 0, (size_t)(tensor->shape[last] * size));
	}
	return HYS_OK;
}
