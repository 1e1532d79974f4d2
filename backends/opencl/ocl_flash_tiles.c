/* ocl_flash_tiles.c - attention forward over tiles of keys by mma.sync: dense, windows, blocks.
 * Host side of cl_kernels/flash_tiles.clh. */
#include "ocl_flash.h"

#include <stdio.h>

#define DIM_MAX 128
#define GRANULARITY_MIN 16

/* What a place of the ring takes besides its tile: what is in it, and barriers. */
#define PLACE_EXTRA 32
#define WARPS 8 /* that compute, each WARP_ROWS packed rows */
#define WARP_ROWS 16
#define PLACES_MAX 16
/* What twelve warps keep there: sixteen bytes of a work-item's q for each step of channels, and the intervals
 * of a warp's two slots. */
#define SHARING_WARPS 12
#define STEP_BYTES (SHARING_WARPS * 32 * 16)
#define INTERVALS_BYTES (SHARING_WARPS * 2 * 32)

struct hys_ocl_flash_tiles hys_ocl_flash_tiles_of(const struct hys_ocl_flash_way *way,
						  const struct hys_problem *problem)
{
	const struct hys_attending *attending = &problem->attending;
	const int64_t most = way->large ? 64 : 32;
	const int64_t panels =
		hys_ocl_panels(attending->head_dim) + hys_ocl_panels(attending->value_dim);
	const bool dense = hys_ocl_flash_is_dense(problem);
	int64_t room = (way->large ? INT64_C(231424) : INT64_C(48) * 1024) - 64;
	struct hys_ocl_flash_tiles shape = {
		.tile_keys = most, .threads = way->large ? 384 : 288, .warps = WARPS};
	int64_t place, kept = 0;

	if (way->shares && !dense) {
		shape.warps = SHARING_WARPS;
		shape.threads = SHARING_WARPS * 32 + 128;
		kept = hys_ocl_divide_up(attending->head_dim, 16) * STEP_BYTES + INTERVALS_BYTES;
		room -= kept;
	}
	if (!dense) { /* an index's tiles, as equal as they can be */
		const int64_t span = attending->granularity;
		shape.tile_keys =
			hys_round_up(hys_ocl_divide_up(span, hys_ocl_divide_up(span, most)), 16);
	}
	place = shape.tile_keys * panels * HYS_OCL_PANEL_BYTES + PLACE_EXTRA;
	shape.places = hys_min64(PLACES_MAX, room / place);
	shape.kept = shape.places * place;
	shape.local_bytes = shape.kept + kept;
	return shape;
}

void hys_ocl_flash_define_tiles(const struct hys_ocl_flash_way *way,
				const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_ocl_flash_tiles shape = hys_ocl_flash_tiles_of(way, problem);
	hys_ocl_define(options, "ELEMENT_TYPE", problem->attending.dtype);
	hys_ocl_define(options, "HEAD_DIM", problem->attending.head_dim);
	hys_ocl_define(options, "VALUE_DIM", problem->attending.value_dim);
	hys_ocl_define(options, "SOFTCAP", problem->attending.softcap > 0);
	hys_ocl_define(options, "TILE_KEYS", shape.tile_keys);
	hys_ocl_define(options, "PLACES", shape.places);
	if (shape.warps != WARPS) {
		hys_ocl_define(options, "WARPS", shape.warps);
		hys_ocl_define(options, "Q_AT", shape.kept);
	}
	if (way->large)
		hys_ocl_define(options, "HAND_OVER", 1);
}

static void define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_ocl_flash_way *way = (const struct hys_ocl_flash_way *)source;
	(void)device;
	hys_ocl_flash_define_tiles(way, problem, options);
	hys_ocl_define(options, "LOCAL_BYTES", hys_ocl_flash_tiles_of(way, problem).local_bytes);
}

void hys_ocl_flash_arg_reading(struct hys_ocl_args *args, const struct hys_tensor *indices,
			       const struct hys_batch_view *batch, bool second)
{
	const struct hys_tensor none = {0};
	hys_ocl_arg_tensor(args, indices);
	hys_ocl_arg_array(args, &batch->row_begin);
	hys_ocl_arg_array(args, &batch->row_end);
	hys_ocl_arg_array(args, second ? &batch->window_begin : &none);
	hys_ocl_arg_array(args, second ? &batch->window_end : &none);
}

static const char *const entries[] = {HYS_OCL_PACK_ENTRIES, "forward", NULL};
const struct hys_ocl_flash_way hys_ocl_flash_forward_sm90 = {
	.source = {.file = "flash_forward_mma.cl",
		   .entries = entries,
		   .define = define,
		   .rewrite = "sm_90a"},
	.large = true,
	.lists = true,
};
const struct hys_ocl_flash_way hys_ocl_flash_forward_twelve = {
	.source = {.file = "flash_forward_mma.cl",
		   .entries = entries,
		   .define = define,
		   .rewrite = "sm_90a"},
	.large = true,
	.lists = true,
	.shares = true,
};
const struct hys_ocl_flash_way hys_ocl_flash_forward_mma = {
	.source = {.file = "flash_forward_mma.cl", .entries = entries, .define = define},
	.lists = true,
};

bool hys_ocl_flash_tiles_applicable(const struct hys_kernel *kernel,
				    const struct hys_device *device,
				    const struct hys_problem *problem, char reason[HYS_REASON_SIZE])
{
	const struct hys_attending *attending = &problem->attending;
	(void)kernel;
	(void)device;
	if (!hys_ocl_flash_can(problem, DIM_MAX, DIM_MAX, reason))
		return false;
	if (hys_ocl_flash_is_dense(problem))
		return true;
	if (problem->scoring.pool > 1)
		snprintf(reason, HYS_REASON_SIZE, "indices of pooled keys");
	else if (attending->granularity < GRANULARITY_MIN)
		snprintf(reason, HYS_REASON_SIZE, "granularity below %d", GRANULARITY_MIN);
	return reason[0] == '\0';
}

static hys_status forward(const struct hys_ocl_job *job, const struct hys_ocl_flash_way *way,
			  const struct hys_call *call, const struct hys_ocl_flash_source sources[2])
{
	const struct hys_attention_args *tensors = &call->args.attention;
	const struct hys_ocl_rules rules = hys_ocl_flash_rules(&call->size);
	const struct hys_ocl_flash_tiles shape = hys_ocl_flash_tiles_of(way, call->problem);
	const int64_t tiles = hys_ocl_divide_up(call->size.rows * hys_ocl_flash_pad(call->problem),
						shape.warps * WARP_ROWS);
	struct hys_ocl_flash flash = hys_ocl_flash_of(call, sources);
	const int64_t items = tiles * flash.bundles;
	const int64_t units = job->stream->device->base.info.compute_units;
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, "forward");

	flash.tiles = (int32_t)tiles;
	hys_ocl_arg_tensor(&args, &tensors->q);
	hys_ocl_arg_i32(&args, hys_ocl_flash_pairs(&tensors->q));
	hys_ocl_arg_tensor(&args, &tensors->o);
	hys_ocl_arg_i32(&args, hys_ocl_flash_pairs(&tensors->o));
	hys_ocl_arg_tensor(&args, &tensors->lse);
	hys_ocl_arg_tensor(&args, &tensors->sink);
	hys_ocl_flash_arg_reading(&args, &tensors->indices, &call->batch,
				  hys_present(&sources[1].k));
	hys_ocl_arg(&args, &rules, sizeof(rules));
	hys_ocl_arg_work(&args, job);
	hys_ocl_arg(&args, &flash, sizeof(flash));
	return hys_ocl_flash_launch(&args, hys_min64(items, units) * shape.threads, shape.threads,
				    job->error);
}

hys_status hys_ocl_flash_forward_tiles(const struct hys_kernel *kernel, struct hys_stream *stream,
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

	if (call->size.rows == 0)
		return HYS_OK;
	hys_ocl_flash_layout(call->workspace.offset_bytes, &call->size, sources);
	hys_ocl_flash_open_source(&sources[0], call->problem, &tensors->k, &tensors->v,
				  &call->batch.row_begin, &call->batch.row_end);
	hys_ocl_flash_open_source(&sources[1], call->problem, &tensors->window_k,
				  &tensors->window_v, &call->batch.window_begin,
				  &call->batch.window_end);
	HYS_TRY(hys_ocl_flash_pack(&job, call, &tensors->indices, sources));
	HYS_TRY(forward(&job, kernel->detail, call, sources));
cleanup:
	return status;
}
