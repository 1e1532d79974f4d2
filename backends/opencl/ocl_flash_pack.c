/* ocl_flash_pack.c - keys and values into panels; see cl_kernels/flash_pack.clh. */
#include "ocl_flash.h"

#define LOCAL 256
/* Tiles of keys are read whole, and may start at any key. */
#define TILE_KEYS_MAX 128

int64_t hys_ocl_flash_layout(int64_t next, const struct hys_problem *problem, int64_t count,
			     struct hys_ocl_flash_source *source)
{
	const struct hys_attending *attending = &problem->attending;
	int64_t rows;

	source->count = count;
	source->pitch = hys_round_up(count, TILE_KEYS_MAX) + TILE_KEYS_MAX;
	rows = hys_mul64(source->pitch, (int64_t)attending->kv_heads * HYS_OCL_PANEL_BYTES);
	source->reach = next;
	next = hys_add64(next, hys_round_up((count + 1) * (int64_t)sizeof(int32_t), HYS_ALIGN));
	source->keys = next;
	next = hys_add64(next, hys_mul64(rows, hys_ocl_panels(attending->head_dim)));
	source->values = next;
	return hys_add64(next, hys_mul64(rows, hys_ocl_panels(attending->value_dim)));
}

static bool strides_divide(const struct hys_tensor *tensor, int64_t elements)
{
	for (int32_t d = 0; d < tensor->rank - 1; d++)
		if (tensor->stride[d] % elements != 0)
			return false;
	return tensor->offset % elements == 0;
}

/* Buffers of the caller's may start anywhere within an allocation only as far as OpenCL
 * lets sub-buffers: at the device's own alignment, which is more. */
bool hys_ocl_flash_wide(const struct hys_tensor *tensor)
{
	return strides_divide(tensor, 8);
}

bool hys_ocl_flash_pairs(const struct hys_tensor *tensor)
{
	return strides_divide(tensor, 2);
}

struct hys_ocl_rules hys_ocl_flash_rules(const struct hys_size *size)
{
	const struct hys_attending *attending = &size->problem->attending;
	struct hys_ocl_rules rules = {0};

	rules.dense = (attending->flags & HYS_ATTENDING_DENSE) != 0;
	rules.topk = rules.dense ? 0 : (int32_t)size->topk;
	rules.span = (int32_t)hys_index_span(size->problem);
	rules.step = (int32_t)hys_index_step(size->problem);
	rules.window = attending->window;
	rules.first = attending->first;
	return rules;
}

static hys_status mark(const struct hys_ocl_job *job, const struct hys_call *call,
		       const struct hys_ocl_rules *rules, const struct hys_tensor *indices,
		       const struct hys_ocl_flash_source *source)
{
	const int64_t lists =
		hys_present(indices) && rules->topk > 0 ? call->problem->scoring.groups : 1;
	const int64_t groups[1] = {hys_ocl_divide_up(call->size.rows * lists, LOCAL)};
	const int64_t local[1] = {LOCAL};
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, "mark_reach");
	hys_ocl_arg_tensor(&args, indices);
	hys_ocl_arg_array(&args, &source->begin);
	hys_ocl_arg_array(&args, &source->end);
	hys_ocl_arg_array(&args, &call->batch.key_origin);
	hys_ocl_arg_array(&args, &call->batch.entry_origin);
	hys_ocl_arg(&args, rules, sizeof(*rules));
	hys_ocl_arg_i32(&args, call->size.rows);
	hys_ocl_arg_i32(&args, lists);
	hys_ocl_arg_work(&args, job);
	hys_ocl_arg_i64(&args, source->reach);
	return hys_ocl_launch(&args, 1, groups, local, job->error);
}

/* The kernels over `reach` alone. */
static hys_status over_reach(const struct hys_ocl_job *job, const char *entry, int64_t items,
			     const struct hys_ocl_flash_source *source)
{
	const int64_t groups[1] = {hys_ocl_divide_up(items, LOCAL)};
	const int64_t local[1] = {LOCAL};
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, entry);
	hys_ocl_arg_work(&args, job);
	hys_ocl_arg_i64(&args, source->reach);
	hys_ocl_arg_i64(&args, source->count);
	return hys_ocl_launch(&args, 1, groups, local, job->error);
}

static hys_status pack(const struct hys_ocl_job *job, const struct hys_tensor *tensor,
		       const struct hys_ocl_flash_source *source, int64_t to)
{
	const int64_t heads = tensor->shape[1], columns = tensor->shape[2];
	const int32_t panels = hys_ocl_panels(columns);
	const int64_t items = source->pitch * heads * panels * (HYS_OCL_PANEL_BYTES / 16);
	const int64_t groups[1] = {hys_ocl_divide_up(items, LOCAL)};
	const int64_t local[1] = {LOCAL};
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, "pack_keys");
	hys_ocl_arg_tensor(&args, tensor);
	hys_ocl_arg_i32(&args, hys_ocl_flash_wide(tensor));
	hys_ocl_arg_i64(&args, source->count);
	hys_ocl_arg_i32(&args, heads);
	hys_ocl_arg_i32(&args, columns);
	hys_ocl_arg_work(&args, job);
	hys_ocl_arg_i64(&args, source->reach);
	hys_ocl_arg_i64(&args, to);
	hys_ocl_arg_i32(&args, panels);
	hys_ocl_arg_i64(&args, source->pitch);
	return hys_ocl_launch(&args, 1, groups, local, job->error);
}

hys_status hys_ocl_flash_pack(const struct hys_ocl_job *job, const struct hys_call *call,
			      const struct hys_ocl_rules *rules, const struct hys_tensor *indices,
			      const struct hys_ocl_flash_source *source)
{
	hys_status status;

	HYS_TRY(over_reach(job, "clear_reach", source->count + 1, source));
	HYS_TRY(mark(job, call, rules, indices, source));
	HYS_TRY(over_reach(job, "scan_reach", 1, source));
	HYS_TRY(pack(job, &source->k, source, source->keys));
	HYS_TRY(pack(job, &source->v, source, source->values));
cleanup:
	return status;
}
