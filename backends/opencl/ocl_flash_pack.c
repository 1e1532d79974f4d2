/* ocl_flash_pack.c - keys and values into panels; see cl_kernels/flash_pack.clh. */
#include "ocl_flash.h"

#include <stdio.h>

#define LOCAL 256
#define REACH_BLOCK (LOCAL * 16) /* keys: SCAN_BLOCK of flash_pack.clh */
/* Tiles of keys are read whole, and may start at any key. */
#define TILE_KEYS_MAX 128
/* Packed rows of a row whose keys are listed fill tiles of this many, or divide them. */
#define PAD_STEP 64

bool hys_ocl_flash_can(const struct hys_problem *problem, int32_t head_dim_max,
		       int32_t value_dim_max, char reason[HYS_REASON_SIZE])
{
	const struct hys_attending *attending = &problem->attending;
	reason[0] = '\0';
	if (attending->dtype != HYS_F16 && attending->dtype != HYS_BF16)
		snprintf(reason, HYS_REASON_SIZE, "tensor cores take f16 and bf16");
	else if (attending->head_dim > head_dim_max || attending->value_dim > value_dim_max)
		snprintf(reason, HYS_REASON_SIZE, "head_dim above %d or value_dim above %d",
			 (int)head_dim_max, (int)value_dim_max);
	else if (attending->scale == 0)
		snprintf(reason, HYS_REASON_SIZE, "scale is 0");
	return reason[0] == '\0';
}

void hys_ocl_flash_define(const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_attending *attending = &problem->attending;
	hys_ocl_define(options, "ELEMENT_TYPE", attending->dtype);
	hys_ocl_define(options, "HEAD_PANELS", hys_ocl_panels(attending->head_dim));
	hys_ocl_define(options, "VALUE_PANELS", hys_ocl_panels(attending->value_dim));
	hys_ocl_define(options, "SOFTCAP", attending->softcap > 0);
}

int32_t hys_ocl_flash_pad(const struct hys_problem *problem)
{
	const struct hys_attending *attending = &problem->attending;
	const bool dense = hys_ocl_flash_is_dense(problem);
	const int64_t bundle = hys_ocl_bundle(attending->heads, dense ? 1 : problem->scoring.groups,
					      attending->kv_heads);
	int64_t pad = 8;

	if (dense)
		return (int32_t)bundle;
	while (pad < bundle && pad < PAD_STEP)
		pad *= 2;
	return (int32_t)(pad < bundle ? hys_round_up(bundle, PAD_STEP) : pad);
}

/* For whose ends there is room behind those of keys. */
static int64_t reach_blocks(int64_t keys)
{
	return hys_ocl_divide_up(keys, REACH_BLOCK);
}

static int64_t lay_out_source(int64_t next, const struct hys_problem *problem, int64_t count,
			      struct hys_ocl_flash_source *source)
{
	const struct hys_attending *attending = &problem->attending;
	int64_t rows;

	source->count = count;
	source->pitch = hys_round_up(count, TILE_KEYS_MAX) + TILE_KEYS_MAX;
	rows = hys_mul64(source->pitch, (int64_t)attending->kv_heads * HYS_OCL_PANEL_BYTES);
	source->reach = next;
	next = hys_add64(next,
			 hys_round_up((count + 1 + reach_blocks(count)) * (int64_t)sizeof(int32_t),
				      HYS_ALIGN));
	source->keys = next;
	next = hys_add64(next, hys_mul64(rows, hys_ocl_panels(attending->head_dim)));
	source->values = next;
	return hys_add64(next, hys_mul64(rows, hys_ocl_panels(attending->value_dim)));
}

int64_t hys_ocl_flash_layout(int64_t next, const struct hys_size *size,
			     struct hys_ocl_flash_source sources[2])
{
	next = lay_out_source(next, size->problem, size->keys, &sources[0]);
	if (size->window_keys > 0)
		next = lay_out_source(next, size->problem, size->window_keys, &sources[1]);
	return next;
}

void hys_ocl_flash_open_source(struct hys_ocl_flash_source *source,
			       const struct hys_problem *problem, const struct hys_tensor *k,
			       const struct hys_tensor *v, const struct hys_tensor *begin,
			       const struct hys_tensor *end)
{
	if (!hys_present(k))
		return;
	source->k = *k;
	source->shared = !hys_present(v);
	source->v = source->shared ? *k : *v;
	source->v.shape[2] = problem->attending.value_dim;
	source->begin = *begin;
	source->end = *end;
}

struct hys_ocl_flash hys_ocl_flash_of(const struct hys_call *call,
				      const struct hys_ocl_flash_source sources[2])
{
	const struct hys_attending *attending = &call->problem->attending;
	struct hys_ocl_flash flash = {0};
	for (int32_t i = 0; i < 2; i++) {
		flash.keys[i] = sources[i].keys;
		flash.values[i] = sources[i].values;
		flash.pitch[i] = sources[i].pitch;
	}
	flash.rows = (int32_t)call->size.rows;
	flash.heads = attending->heads;
	flash.kv_heads = attending->kv_heads;
	flash.groups = hys_ocl_flash_is_dense(call->problem) ? 1 : call->problem->scoring.groups;
	flash.bundle = (int32_t)hys_ocl_bundle(attending->heads, flash.groups, attending->kv_heads);
	flash.bundles = attending->heads / flash.bundle;
	flash.pad = hys_ocl_flash_pad(call->problem);
	flash.tiles = (int32_t)hys_ocl_divide_up(call->size.rows * (int64_t)flash.pad,
						 HYS_OCL_FLASH_TILE_ROWS);
	flash.scale = (float)attending->scale;
	flash.softcap = (float)attending->softcap;
	return flash;
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

hys_status hys_ocl_flash_launch(struct hys_ocl_args *args, int64_t items, int64_t local,
				struct hys_error *error)
{
	const int64_t groups[1] = {hys_ocl_divide_up(items, local)};
	const int64_t locals[1] = {local};
	return hys_ocl_launch(args, 1, groups, locals, error);
}

struct hys_ocl_rules hys_ocl_flash_rules(const struct hys_size *size)
{
	const struct hys_attending *attending = &size->problem->attending;
	struct hys_ocl_rules rules = {0};

	rules.dense = hys_ocl_flash_is_dense(size->problem);
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
	return hys_ocl_flash_launch(&args, call->size.rows * lists, LOCAL, job->error);
}

/* The kernels over `reach` alone. */
static hys_status over_reach(const struct hys_ocl_job *job, const char *entry, int64_t items,
			     const struct hys_ocl_flash_source *source)
{
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, entry);
	hys_ocl_arg_work(&args, job);
	hys_ocl_arg_i64(&args, source->reach);
	hys_ocl_arg_i64(&args, source->count);
	return hys_ocl_flash_launch(&args, items, LOCAL, job->error);
}

static hys_status pack(const struct hys_ocl_job *job, const struct hys_tensor *tensor,
		       const struct hys_ocl_flash_source *source, int64_t to)
{
	const int64_t heads = tensor->shape[1], columns = tensor->shape[2];
	const int32_t panels = hys_ocl_panels(columns);
	const int64_t items = source->pitch * heads * panels * (HYS_OCL_PANEL_BYTES / 16);
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
	return hys_ocl_flash_launch(&args, items, LOCAL, job->error);
}

static hys_status pack_source(const struct hys_ocl_job *job, const struct hys_call *call,
			      const struct hys_ocl_rules *rules, const struct hys_tensor *indices,
			      const struct hys_ocl_flash_source *source)
{
	hys_status status;

	HYS_TRY(over_reach(job, "clear_reach", source->count + 1, source));
	HYS_TRY(mark(job, call, rules, indices, source));
	HYS_TRY(over_reach(job, "scan_reach", reach_blocks(source->count) * LOCAL, source));
	HYS_TRY(over_reach(job, "join_reach", LOCAL, source));
	HYS_TRY(pack(job, &source->k, source, source->keys));
	HYS_TRY(pack(job, &source->v, source, source->values));
cleanup:
	return status;
}

hys_status hys_ocl_flash_pack(const struct hys_ocl_job *job, const struct hys_call *call,
			      const struct hys_tensor *indices,
			      const struct hys_ocl_flash_source sources[2])
{
	const struct hys_ocl_rules rules = hys_ocl_flash_rules(&call->size), all = {.dense = 1};
	const struct hys_tensor none = {0};
	hys_status status;

	HYS_TRY(pack_source(job, call, &rules, indices, &sources[0]));
	if (hys_present(&sources[1].k))
		HYS_TRY(pack_source(job, call, &all, &none, &sources[1]));
cleanup:
	return status;
}
