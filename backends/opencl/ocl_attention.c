/* ocl_attention.c - attention forward: scores, softmax and combine, chunk by chunk. */
#include "ocl_attention.h"

#define LOCAL 64

static const char *const entries[] = {HYS_OCL_PRODUCT_ENTRIES, HYS_OCL_ROW_ENTRIES, "softmax",
				      "finish", NULL};
#define SOURCE                                                                        \
	{                                                                             \
		"attention_forward.cl", entries, hys_ocl_attention_define, NULL, NULL \
	}
const struct hys_ocl_products hys_ocl_forward_cpu = {SOURCE, HYS_OCL_CPU_VECTORS};
const struct hys_ocl_products hys_ocl_forward_tile = {SOURCE, HYS_OCL_TILE};
const struct hys_ocl_products hys_ocl_forward_matrix = {SOURCE, HYS_OCL_MATRIX};
const struct hys_ocl_products hys_ocl_forward_ref = {SOURCE, HYS_OCL_REF};

bool hys_ocl_forward_matrix_applicable(const struct hys_kernel *kernel,
				       const struct hys_device *device,
				       const struct hys_problem *problem,
				       char reason[HYS_REASON_SIZE])
{
	(void)kernel;
	return hys_ocl_unit_multiplies(hys_ocl_device(device), "attention",
				       problem->attending.dtype, reason);
}

/* `struct running` of attention_forward.cl. */
struct running {
	int64_t most, sum, factor;
};

struct forward {
	struct hys_ocl_attention attention;
	struct running run;
};

/* Lays the workspace of a tile out; answers the end. */
static int64_t lay_out(struct hys_ocl_space space, const struct hys_size *size,
		       const struct hys_ocl_reach *reach, struct hys_ocl_attention *attention,
		       struct running *run)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t floats = (int64_t)sizeof(float) * reach->tile.bundles * reach->tile.pitch;
	struct hys_ocl_operands *at = &attention->at;
	hys_ocl_rows_layout(&space, reach, &attention->rows, at);
	at->weights = hys_ocl_take(&space, floats * reach->tile.capacity);
	at->y = hys_ocl_take(&space,
			     floats * (reach->blocks.unit
					       ? hys_ocl_padded(&reach->blocks, attending->head_dim)
					       : attending->head_dim));
	at->sums =
		hys_ocl_take(&space, floats * hys_ocl_padded(&reach->blocks, attending->value_dim));
	run->factor = hys_ocl_take(&space, floats);
	run->most = hys_ocl_take(&space, floats);
	run->sum = hys_ocl_take(&space, floats);
	at->factor = run->factor;
	at->y_turned = -1;
	if (reach->blocks.width > 1) { /* only the turned one is read */
		at->y_turned = at->y;
		at->y = -1;
	}
	return space.next;
}

static int64_t row_bytes(const struct hys_size *size, const struct hys_ocl_reach *reach)
{
	struct forward scratch = {0};
	const struct hys_ocl_space one = {.rows = 1};
	return lay_out(one, size, reach, &scratch.attention, &scratch.run);
}

int64_t hys_ocl_forward_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				  const struct hys_size *size)
{
	const struct hys_ocl_reach reach = hys_ocl_reach_of(kernel, device, size);
	return hys_ocl_tile_bytes(device, size->rows, row_bytes(size, &reach));
}

static hys_status softmax(const struct forward *forward, bool start)
{
	const struct hys_ocl_attention *attention = &forward->attention;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t groups[1] = {hys_ocl_head_groups(&attention->job, tile)};
	const int64_t local[1] = {hys_ocl_local(&attention->job)};
	struct hys_ocl_args args =
		hys_ocl_begin_named(attention->job.stream, attention->job.instance, "softmax");
	hys_ocl_arg_i32(&args, start);
	hys_ocl_arg(&args, &attention->reach.logit, sizeof(attention->reach.logit));
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, &attention->at, sizeof(attention->at));
	hys_ocl_arg(&args, &forward->run, sizeof(forward->run));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

static hys_status finish(const struct forward *forward)
{
	const struct hys_ocl_attention *attention = &forward->attention;
	const struct hys_attention_args *tensors = &attention->call->args.attention;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const struct hys_ocl_gathered shape = hys_ocl_gathered_of(&attention->job, &tensors->o);
	const int64_t groups[1] = {(int64_t)tile->rows * tile->heads};
	const int64_t local[1] = {LOCAL};
	struct hys_ocl_args args =
		hys_ocl_begin_named(attention->job.stream, attention->job.instance, "finish");
	hys_ocl_arg_tensor(&args, &tensors->o);
	hys_ocl_arg_i32(&args, shape.type);
	hys_ocl_arg_i32(&args, shape.channels);
	hys_ocl_arg_i32(&args, shape.width);
	hys_ocl_arg_tensor(&args, &tensors->lse);
	hys_ocl_arg_tensor(&args, &tensors->sink);
	hys_ocl_arg(&args, &attention->map, sizeof(attention->map));
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, &attention->at, sizeof(attention->at));
	hys_ocl_arg(&args, &forward->run, sizeof(forward->run));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

/* One chunk of a source. */
static hys_status attend(const struct forward *forward, int32_t source, int64_t first, bool start)
{
	const struct hys_ocl_attention *attention = &forward->attention;
	const struct hys_attention_args *tensors = &attention->call->args.attention;
	const struct hys_tensor *k = source == 0 ? &tensors->k : &tensors->window_k;
	const struct hys_tensor *v = source == 0 ? &tensors->v : &tensors->window_v;
	struct hys_tensor values = hys_present(v) ? *v : *k;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	hys_status status;

	values.shape[2] = attention->call->problem->attending.value_dim;
	HYS_TRY(hys_ocl_expand(attention, source, first));
	HYS_TRY(hys_ocl_scores(&attention->job, k, attention->reach.positions[source] - first,
			       &attention->at, tile));
	HYS_TRY(softmax(forward, start));
	HYS_TRY(hys_ocl_combine(&attention->job, &values, start, &attention->at, tile));
cleanup:
	return status;
}

static hys_status run_tile(const struct forward *forward)
{
	const struct hys_ocl_attention *attention = &forward->attention;
	const struct hys_attention_args *tensors = &attention->call->args.attention;
	const struct hys_ocl_reach *reach = &attention->reach;
	const struct hys_tensor none = {0};
	bool start = true;
	hys_status status;

	HYS_TRY(hys_ocl_clean(attention));
	HYS_TRY(hys_ocl_pack(&attention->job, &tensors->q, &none, attention->map, &attention->at,
			     &reach->tile));
	for (int32_t source = 0; source < 2; source++)
		for (int64_t p = 0; p < reach->positions[source]; p += reach->tile.capacity) {
			HYS_TRY(attend(forward, source, p, start));
			start = false;
		}
	HYS_TRY(finish(forward));
cleanup:
	return status;
}

hys_status hys_ocl_forward(const struct hys_kernel *kernel, struct hys_stream *stream,
			   void *instance, const struct hys_call *call, struct hys_error *error)
{
	struct forward forward = {0};
	struct hys_ocl_attention *attention = &forward.attention;
	struct hys_ocl_space space = {.next = call->workspace.offset_bytes};
	hys_status status = HYS_OK;

	hys_ocl_attention_open(attention, kernel, stream, instance, call, error);
	attention->indices = &call->args.attention.indices;
	space.rows = hys_ocl_tile_rows(&stream->device->base, call->size.rows,
				       row_bytes(&call->size, &attention->reach));
	lay_out(space, &call->size, &attention->reach, attention, &forward.run);
	for (int64_t row = 0; row < call->size.rows; row += space.rows) {
		attention->map.first = row;
		attention->reach.tile.rows = (int32_t)hys_min64(space.rows, call->size.rows - row);
		HYS_TRY(run_tile(&forward));
	}
cleanup:
	return status;
}
