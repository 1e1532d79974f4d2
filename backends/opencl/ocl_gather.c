/* ocl_gather.c - when gathering kernels apply, their lists and work-groups. */
#include <stdio.h>

#include "ocl_gather.h"

#define BUNDLE_MIN 16 /* of 64 heads of a product; below, most of it would be padding */
#define CHUNKS_MAX 9
#define VALUE_CHUNKS_MAX 8
#define BUDGET (INT64_C(128) << 20)

bool hys_ocl_gather_applicable(const struct hys_kernel *kernel, const struct hys_device *device,
			       const struct hys_problem *problem, char reason[HYS_REASON_SIZE])
{
	const struct hys_attending *attending = &problem->attending;
	const int64_t bundle =
		hys_ocl_bundle(attending->heads, problem->scoring.groups, attending->kv_heads);
	(void)kernel;
	(void)device;
	reason[0] = 0;
	if (attending->dtype != HYS_BF16 && attending->dtype != HYS_F16)
		snprintf(reason, HYS_REASON_SIZE, "needs bf16 or f16");
	else if (attending->flags & HYS_ATTENDING_DENSE)
		snprintf(reason, HYS_REASON_SIZE, "dense rows have no lists");
	else if (bundle < BUNDLE_MIN)
		snprintf(reason, HYS_REASON_SIZE,
			 "needs %d heads that read the same key rows, these are %lld", BUNDLE_MIN,
			 (long long)bundle);
	else if (attending->head_dim % HYS_OCL_CHUNK ||
		 attending->head_dim > CHUNKS_MAX * HYS_OCL_CHUNK)
		snprintf(reason, HYS_REASON_SIZE, "needs head_dim to be a multiple of %d up to %d",
			 HYS_OCL_CHUNK, CHUNKS_MAX * HYS_OCL_CHUNK);
	else if (attending->value_dim % (2 * HYS_OCL_CHUNK) ||
		 attending->value_dim > VALUE_CHUNKS_MAX * HYS_OCL_CHUNK)
		snprintf(reason, HYS_REASON_SIZE, "needs value_dim to be a multiple of %d up to %d",
			 2 * HYS_OCL_CHUNK, VALUE_CHUNKS_MAX * HYS_OCL_CHUNK);
	return reason[0] == 0;
}

void hys_ocl_gather_define(const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_attending *attending = &problem->attending;
	hys_ocl_define(options, "ELEMENT_TYPE", attending->dtype);
	hys_ocl_define_f32(options, "SCALE", attending->scale);
	if (attending->softcap > 0)
		hys_ocl_define_f32(options, "SOFTCAP", attending->softcap);
	else if (attending->scale < 0)
		hys_ocl_define(options, "SCALE_NEGATIVE", 1);
	hys_ocl_define(options, "KEY_CHUNKS", attending->head_dim / HYS_OCL_CHUNK);
	hys_ocl_define(options, "VALUE_CHUNKS", attending->value_dim / HYS_OCL_CHUNK);
}

struct hys_ocl_lists hys_ocl_take_lists(struct hys_ocl_space *space,
					const struct hys_ocl_reach *reach)
{
	const int64_t numbers = (int64_t)sizeof(int32_t) * reach->tile.groups;
	struct hys_ocl_lists lists;
	lists.pitch = hys_add64(reach->positions[0], reach->positions[1]);
	lists.list = hys_ocl_take(space, hys_mul64(numbers, lists.pitch));
	lists.count = hys_ocl_take(space, numbers);
	return lists;
}

int64_t hys_ocl_gather_rows(int64_t rows, int64_t row_bytes)
{
	return hys_max64(1, hys_min64(rows, BUDGET / hys_max64(row_bytes, 1)));
}

bool hys_ocl_rows_aligned(const struct hys_tensor *tensor)
{
	const int64_t pieces = 8; /* elements of 16 bytes */
	if (!hys_present(tensor))
		return true;
	return tensor->offset % pieces == 0 && tensor->stride[0] % pieces == 0 &&
	       tensor->stride[1] % pieces == 0 && tensor->stride[0] < INT32_MAX;
}

int64_t hys_ocl_items(const struct hys_ocl_tile *tile)
{
	return (int64_t)tile->rows * tile->bundles *
	       hys_ocl_divide_up(tile->bundle, HYS_OCL_ITEM_HEADS);
}

int64_t hys_ocl_persistent(const struct hys_ocl_job *job, int64_t items)
{
	return hys_min64(items, job->stream->device->base.info.compute_units);
}
