/* ocl_flash.c - attention forward on NVIDIA's tensor cores. */
#include "ocl_flash.h"

#include <stdio.h>

#define THREADS 384
#define TILE_ROWS 128
#define TILE_KEYS 128
#define STAGES 2
#define BARRIER_BYTES 1024

/* Most channels that local memory and registers take. */
#define HEAD_DIM_MAX 192
#define VALUE_DIM_MAX 128

/* `struct flash` of the kernels. */
struct flash {
	int64_t keys[2], values[2], pitch[2];
	int32_t rows, heads, kv_heads, bundle, bundles, tiles;
	float scale, softcap;
};

static void define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_attending *attending = &problem->attending;
	const int64_t head = hys_ocl_panels(attending->head_dim);
	const int64_t value = hys_ocl_panels(attending->value_dim);
	(void)source;
	(void)device;
	hys_ocl_define(options, "ELEMENT_TYPE", attending->dtype);
	hys_ocl_define(options, "HEAD_PANELS", head);
	hys_ocl_define(options, "VALUE_PANELS", value);
	hys_ocl_define(options, "SOFTCAP", attending->softcap > 0);
	hys_ocl_define(options, "LOCAL_BYTES",
		       HYS_OCL_PANEL_BYTES *
				       (head * TILE_ROWS + STAGES * (head + value) * TILE_KEYS) +
			       BARRIER_BYTES);
}

static const char *const entries[] = {HYS_OCL_PACK_ENTRIES, "forward", NULL};
const struct hys_ocl_source hys_ocl_flash_forward_wgmma = {
	.file = "flash_forward_wgmma.cl",
	.entries = entries,
	.define = define,
	.rewrite = "sm_90a",
};

bool hys_ocl_flash_dense_applicable(const struct hys_kernel *kernel,
				    const struct hys_device *device,
				    const struct hys_problem *problem, char reason[HYS_REASON_SIZE])
{
	const struct hys_attending *attending = &problem->attending;
	(void)kernel;
	(void)device;
	reason[0] = '\0';
	if (attending->dtype != HYS_F16 && attending->dtype != HYS_BF16)
		snprintf(reason, HYS_REASON_SIZE, "tensor cores take f16 and bf16");
	else if (!(attending->flags & HYS_ATTENDING_DENSE))
		snprintf(reason, HYS_REASON_SIZE, "only for dense attention");
	else if (attending->head_dim > HEAD_DIM_MAX || attending->value_dim > VALUE_DIM_MAX)
		snprintf(reason, HYS_REASON_SIZE, "head_dim above %d or value_dim above %d",
			 HEAD_DIM_MAX, VALUE_DIM_MAX);
	else if (attending->scale == 0)
		snprintf(reason, HYS_REASON_SIZE, "scale is 0");
	return reason[0] == '\0';
}

/* Both sources' panels from byte `next` on; answers the end. */
static int64_t lay_out(int64_t next, const struct hys_size *size,
		       struct hys_ocl_flash_source sources[2])
{
	next = hys_ocl_flash_layout(next, size->problem, size->keys, &sources[0]);
	if (size->window_keys > 0)
		next = hys_ocl_flash_layout(next, size->problem, size->window_keys, &sources[1]);
	return next;
}

int64_t hys_ocl_flash_forward_workspace(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_size *size)
{
	struct hys_ocl_flash_source scratch[2];
	(void)kernel;
	(void)device;
	return lay_out(0, size, scratch);
}

static void open_source(struct hys_ocl_flash_source *source, const struct hys_problem *problem,
			const struct hys_tensor *k, const struct hys_tensor *v,
			const struct hys_tensor *begin, const struct hys_tensor *end)
{
	source->k = *k;
	source->v = hys_present(v) ? *v : *k;
	source->v.shape[2] = problem->attending.value_dim;
	source->begin = *begin;
	source->end = *end;
}

static struct flash flash_of(const struct hys_call *call,
			     const struct hys_ocl_flash_source sources[2])
{
	const struct hys_attending *attending = &call->problem->attending;
	struct flash flash = {0};
	for (int32_t i = 0; i < 2; i++) {
		flash.keys[i] = sources[i].keys;
		flash.values[i] = sources[i].values;
		flash.pitch[i] = sources[i].pitch;
	}
	flash.rows = (int32_t)call->size.rows;
	flash.heads = attending->heads;
	flash.kv_heads = attending->kv_heads;
	flash.bundle = attending->heads / attending->kv_heads;
	flash.bundles = attending->kv_heads;
	flash.tiles =
		(int32_t)hys_ocl_divide_up(call->size.rows * (int64_t)flash.bundle, TILE_ROWS);
	flash.scale = (float)attending->scale;
	flash.softcap = (float)attending->softcap;
	return flash;
}

static hys_status forward(const struct hys_ocl_job *job, const struct hys_call *call,
			  const struct hys_ocl_flash_source sources[2])
{
	const struct hys_attention_args *tensors = &call->args.attention;
	const struct flash flash = flash_of(call, sources);
	const int64_t groups[1] = {(int64_t)flash.tiles * flash.bundles};
	const int64_t local[1] = {THREADS};
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, "forward");
	hys_ocl_arg_tensor(&args, &tensors->q);
	hys_ocl_arg_i32(&args, hys_ocl_flash_wide(&tensors->q));
	hys_ocl_arg_i32(&args, tensors->q.shape[2]);
	hys_ocl_arg_tensor(&args, &tensors->o);
	hys_ocl_arg_i32(&args, hys_ocl_flash_pairs(&tensors->o));
	hys_ocl_arg_i32(&args, tensors->o.shape[2]);
	hys_ocl_arg_tensor(&args, &tensors->lse);
	hys_ocl_arg_tensor(&args, &tensors->sink);
	hys_ocl_arg_array(&args, &sources[0].begin);
	hys_ocl_arg_array(&args, &sources[0].end);
	hys_ocl_arg_array(&args, &sources[1].begin);
	hys_ocl_arg_array(&args, &sources[1].end);
	hys_ocl_arg_work(&args, job);
	hys_ocl_arg(&args, &flash, sizeof(flash));
	return hys_ocl_launch(&args, 1, groups, local, job->error);
}

hys_status hys_ocl_flash_forward(const struct hys_kernel *kernel, struct hys_stream *stream,
				 void *instance, const struct hys_call *call,
				 struct hys_error *error)
{
	const struct hys_attention_args *tensors = &call->args.attention;
	const struct hys_ocl_rules rules = hys_ocl_flash_rules(&call->size);
	const struct hys_ocl_rules all = {.dense = 1};
	const struct hys_tensor none = {0};
	const struct hys_ocl_job job = {.stream = stream,
					.instance = instance,
					.work = call->workspace.buffer,
					.error = error};
	struct hys_ocl_flash_source sources[2] = {{.count = 0}};
	hys_status status;

	(void)kernel;
	if (call->size.rows == 0)
		return HYS_OK;
	lay_out(call->workspace.offset_bytes, &call->size, sources);
	open_source(&sources[0], call->problem, &tensors->k, &tensors->v, &call->batch.row_begin,
		    &call->batch.row_end);
	HYS_TRY(hys_ocl_flash_pack(&job, call, &rules, &tensors->indices, &sources[0]));
	if (hys_present(&tensors->window_k)) {
		open_source(&sources[1], call->problem, &tensors->window_k, &tensors->window_v,
			    &call->batch.window_begin, &call->batch.window_end);
		HYS_TRY(hys_ocl_flash_pack(&job, call, &all, &none, &sources[1]));
	}
	HYS_TRY(forward(&job, call, sources));
cleanup:
	return status;
}
