/* ocl_flash.c - attention forward on NVIDIA's tensor cores. */
#include "ocl_flash.h"

#include <stdio.h>

#define STAGES 2
#define BARRIER_BYTES 1024

/* Most channels that local memory and registers take. */
#define HEAD_DIM_MAX 192
#define VALUE_DIM_MAX 128

static void define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const int64_t head = hys_ocl_panels(problem->attending.head_dim);
	const int64_t value = hys_ocl_panels(problem->attending.value_dim);
	(void)source;
	(void)device;
	hys_ocl_flash_define(problem, options);
	hys_ocl_define(options, "LOCAL_BYTES",
		       HYS_OCL_PANEL_BYTES * (head * HYS_OCL_FLASH_TILE_ROWS +
					      STAGES * (head + value) * HYS_OCL_FLASH_TILE_KEYS) +
			       BARRIER_BYTES);
}

static const char *const entries[] = {HYS_OCL_PACK_ENTRIES, "forward", NULL};
const struct hys_ocl_source hys_ocl_flash_forward_wgmma = {
	.file = "flash_forward_wgmma.cl",
	.entries = entries,
	.define = define,
	.rewrite = "sm_90a",
};

bool hys_ocl_flash_forward_applicable(const struct hys_kernel *kernel,
				      const struct hys_device *device,
				      const struct hys_problem *problem,
				      char reason[HYS_REASON_SIZE])
{
	(void)kernel;
	(void)device;
	if (!hys_ocl_flash_can(problem, HEAD_DIM_MAX, VALUE_DIM_MAX, reason))
		return false;
	if (!hys_ocl_flash_is_dense(problem))
		snprintf(reason, HYS_REASON_SIZE, "only for dense attention");
	return hys_ocl_flash_is_dense(problem);
}

int64_t hys_ocl_flash_forward_workspace(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_size *size)
{
	struct hys_ocl_flash_source scratch[2];
	(void)kernel;
	(void)device;
	return hys_ocl_flash_layout(0, size, scratch);
}

static hys_status forward(const struct hys_ocl_job *job, const struct hys_call *call,
			  const struct hys_ocl_flash_source sources[2])
{
	const struct hys_attention_args *tensors = &call->args.attention;
	const struct hys_ocl_flash flash = hys_ocl_flash_of(call, sources);
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
	return hys_ocl_flash_launch(&args,
				    (int64_t)flash.tiles * flash.bundles * HYS_OCL_FLASH_THREADS,
				    HYS_OCL_FLASH_THREADS, job->error);
}

hys_status hys_ocl_flash_forward(const struct hys_kernel *kernel, struct hys_stream *stream,
				 void *instance, const struct hys_call *call,
				 struct hys_error *error)
{
	const struct hys_attention_args *tensors = &call->args.attention;
	const struct hys_ocl_job job = {.stream = stream,
					.instance = instance,
					.work = call->workspace.buffer,
					.error = error};
	struct hys_ocl_flash_source sources[2] = {{.count = 0}};
	hys_status status = HYS_OK;

	(void)kernel;
	if (call->size.rows == 0)
		return HYS_OK;
	hys_ocl_flash_layout(call->workspace.offset_bytes, &call->size, sources);
	hys_ocl_flash_open_source(&sources[0], call->problem, &tensors->k, &tensors->v,
				  &call->batch.row_begin, &call->batch.row_end);
	hys_ocl_flash_open_source(&sources[1], call->problem, &tensors->window_k,
				  &tensors->window_v, &call->batch.window_begin,
				  &call->batch.window_end);
	HYS_TRY(hys_ocl_flash_pack(&job, call, &tensors->indices, sources));
	HYS_TRY(forward(&job, call, sources));
cleanup:
	return status;
}
