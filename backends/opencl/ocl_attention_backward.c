/* ocl_attention_backward.c - gradients of attention, chunk by chunk. */
#include "ocl_attention.h"
#include "ocl_gradient.h"

#define LOCAL 64
#define DIFFERENTIATE 128

static const char *const entries[] = {HYS_OCL_PRODUCT_ENTRIES,
				      HYS_OCL_ROW_ENTRIES,
				      HYS_OCL_GRADIENT_ENTRIES,
				      "prepare",
				      "differentiate",
				      "finish_rows",
				      "add_sink",
				      NULL};
static const char *const matrix_entries[] = {
	HYS_OCL_PRODUCT_ENTRIES, HYS_OCL_ROW_ENTRIES, HYS_OCL_GRADIENT_ENTRIES,
	"common_parts",		 "prepare",	      "differentiate",
	"finish_rows",		 "add_sink",	      NULL};
#define SOURCE                                                                         \
	{                                                                              \
		"attention_backward.cl", entries, hys_ocl_attention_define, NULL, NULL \
	}
const struct hys_ocl_products hys_ocl_backward_cpu = {SOURCE, HYS_OCL_CPU_VECTORS};
const struct hys_ocl_products hys_ocl_backward_tile = {SOURCE, HYS_OCL_TILE};
const struct hys_ocl_products hys_ocl_backward_matrix = {
	{"attention_backward.cl", matrix_entries, hys_ocl_attention_define, NULL, NULL},
	HYS_OCL_MATRIX};
const struct hys_ocl_products hys_ocl_backward_ref = {SOURCE, HYS_OCL_REF};

bool hys_ocl_backward_matrix_applicable(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_problem *problem,
					char reason[HYS_REASON_SIZE])
{
	(void)kernel;
	return hys_ocl_unit_multiplies_weights(hys_ocl_device(device), "attention",
					       problem->attending.dtype, reason);
}

/* Keys and values of a source, and their gradients. With a shared v the gradient of the
 * keys takes both parts. */
struct source {
	struct hys_tensor k, v;
	struct hys_ocl_gradient dk, dv;
	bool shared;
};

struct backward {
	struct hys_ocl_attention attention; /* its operands: q, ds, dq */
	struct hys_ocl_operands values;	    /* grad_o, p */
	struct hys_ocl_head_regions heads;
	int64_t sink_sums;
	struct source sources[2];
	bool accumulate; /* what is summed over rows */
};

/* ---- workspace ---- */

struct fixed {
	int64_t dk[2], dv[2], sink_sums;
};

/* What does not depend on the tile; answers the end. */
static int64_t lay_out_fixed(int64_t next, const struct hys_size *size, struct fixed *fixed)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t keys[2] = {size->keys, size->window_keys};
	for (int32_t i = 0; i < 2; i++) {
		fixed->dk[i] = next;
		next = hys_add64(next,
				 hys_ocl_gradient_bytes(attending->dtype, keys[i],
							attending->kv_heads, attending->head_dim));
		fixed->dv[i] = next;
		next = hys_add64(next,
				 hys_ocl_gradient_bytes(attending->dtype, keys[i],
							attending->kv_heads, attending->value_dim));
	}
	fixed->sink_sums = next;
	return hys_add64(next,
			 hys_round_up(2 * (int64_t)sizeof(float) * attending->heads, HYS_ALIGN));
}

static int64_t lay_out(struct hys_ocl_space space, const struct hys_size *size,
		       const struct hys_ocl_reach *reach, struct backward *backward)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t floats = (int64_t)sizeof(float) * reach->tile.bundles * reach->tile.pitch;
	const int64_t head_width = hys_ocl_padded(&reach->blocks, attending->head_dim);
	const int64_t value_width = hys_ocl_padded(&reach->blocks, attending->value_dim);
	const bool turned = reach->blocks.width > 1;
	struct hys_ocl_operands *at = &backward->attention.at, *values = &backward->values;
	hys_ocl_rows_layout(&space, reach, &backward->attention.rows, at);
	at->weights = hys_ocl_take(&space, floats * reach->tile.capacity);
	at->y = hys_ocl_take(&space, floats * head_width);
	at->y_turned = turned ? hys_ocl_take(&space, floats * attending->head_dim) : -1;
	at->sums = hys_ocl_take(&space, floats * head_width);
	at->factor = -1;
	*values = *at;
	values->weights = hys_ocl_take(&space, floats * reach->tile.capacity);
	values->y = hys_ocl_take(&space, floats * value_width);
	values->y_turned = turned ? hys_ocl_take(&space, floats * attending->value_dim) : -1;
	backward->heads.whole = hys_ocl_take(&space, floats);
	backward->heads.common = hys_ocl_take(&space, floats);
	backward->heads.sink = hys_ocl_take(&space, floats);
	return space.next;
}

static int64_t row_bytes(const struct hys_size *size, const struct hys_ocl_reach *reach)
{
	struct backward scratch = {0};
	const struct hys_ocl_space one = {.rows = 1};
	return lay_out(one, size, reach, &scratch);
}

int64_t hys_ocl_backward_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				   const struct hys_size *size)
{
	const struct hys_ocl_reach reach = hys_ocl_reach_of(kernel, device, size);
	struct fixed fixed;
	return hys_add64(lay_out_fixed(0, size, &fixed),
			 hys_ocl_tile_bytes(device, size->rows, row_bytes(size, &reach)));
}

/* ---- launches ---- */

static struct hys_ocl_args begin(const struct backward *backward, const char *entry)
{
	return hys_ocl_begin_named(backward->attention.job.stream, backward->attention.job.instance,
				   entry);
}

/* MATRIX: <o, grad_o> by the unit, since `scores` has <v, grad_o> from there. */
static hys_status common_parts(const struct backward *backward)
{
	const struct hys_ocl_attention *attention = &backward->attention;
	const struct hys_ocl_blocks *blocks = &attention->reach.blocks;
	const struct hys_tensor *o = &attention->call->args.attention_grad.o;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t tiles =
		hys_ocl_divide_up(tile->bundle, (int64_t)blocks->row_tiles * blocks->unit->rows);
	const int64_t groups[1] = {(int64_t)tile->rows * tile->bundles * tiles};
	const int64_t local[1] = {hys_ocl_unit_group(blocks->unit)};
	const int64_t channels = attention->call->problem->attending.value_dim;
	struct hys_ocl_args args = begin(backward, "common_parts");
	hys_ocl_arg_tensor(&args, o);
	hys_ocl_arg_i32(&args, channels);
	hys_ocl_arg_i32(&args, hys_ocl_padded(blocks, channels));
	hys_ocl_arg(&args, &attention->map, sizeof(attention->map));
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, &backward->values, sizeof(backward->values));
	hys_ocl_arg(&args, &backward->heads, sizeof(backward->heads));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

static hys_status prepare(const struct backward *backward)
{
	const struct hys_ocl_attention *attention = &backward->attention;
	const struct hys_attention_grad_args *tensors = &attention->call->args.attention_grad;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t heads = (int64_t)tile->rows * tile->bundles * tile->pitch;
	const int64_t groups[1] = {hys_ocl_divide_up(heads, LOCAL)};
	const int64_t local[1] = {LOCAL};
	struct hys_ocl_args args = begin(backward, "prepare");
	hys_ocl_arg_tensor(&args, &tensors->o);
	hys_ocl_arg_tensor(&args, &tensors->grad_o);
	hys_ocl_arg_i32(&args, tensors->o.dtype);
	hys_ocl_arg_i32(&args, attention->call->problem->attending.value_dim);
	hys_ocl_arg_tensor(&args, &tensors->lse);
	hys_ocl_arg_tensor(&args, &tensors->sink);
	hys_ocl_arg(&args, &attention->map, sizeof(attention->map));
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, &backward->heads, sizeof(backward->heads));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

static hys_status differentiate(const struct backward *backward, int64_t positions)
{
	const struct hys_ocl_attention *attention = &backward->attention;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t most = hys_min64(positions, tile->capacity);
	const int64_t groups[2] = {(int64_t)tile->rows * tile->bundles,
				   hys_ocl_divide_up(most, DIFFERENTIATE)};
	const int64_t local[2] = {hys_ocl_local(&attention->job), 1};
	struct hys_ocl_args args = begin(backward, "differentiate");
	hys_ocl_arg(&args, &attention->reach.logit, sizeof(attention->reach.logit));
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, &attention->at, sizeof(attention->at));
	hys_ocl_arg(&args, &backward->values, sizeof(backward->values));
	hys_ocl_arg(&args, &backward->heads, sizeof(backward->heads));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 2, groups, local, attention->job.error);
}

static hys_status finish_rows(const struct backward *backward)
{
	const struct hys_ocl_attention *attention = &backward->attention;
	const struct hys_attention_grad_args *tensors = &attention->call->args.attention_grad;
	const struct hys_ocl_gathered shape = hys_ocl_gathered_of(&attention->job, &tensors->dq);
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t groups[1] = {(int64_t)tile->rows * tile->heads};
	const int64_t local[1] = {LOCAL};
	struct hys_ocl_args args = begin(backward, "finish_rows");
	hys_ocl_arg_tensor(&args, &tensors->dq);
	hys_ocl_arg_i32(&args, shape.type);
	hys_ocl_arg_i32(&args, shape.channels);
	hys_ocl_arg_i32(&args, shape.width);
	hys_ocl_arg_i32(&args, (tensors->flags & HYS_GRAD_ACCUMULATE) != 0);
	hys_ocl_arg_tensor(&args, &tensors->lse);
	hys_ocl_arg(&args, &attention->map, sizeof(attention->map));
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, &attention->at, sizeof(attention->at));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

hys_status hys_ocl_add_sink(const struct hys_ocl_attention *attention,
			    const struct hys_ocl_head_regions *heads, int64_t sums_at, bool start,
			    bool last)
{
	const struct hys_attention_grad_args *tensors = &attention->call->args.attention_grad;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t groups[1] = {hys_ocl_divide_up(tile->heads, LOCAL)};
	const int64_t local[1] = {LOCAL};
	struct hys_ocl_args args =
		hys_ocl_begin_named(attention->job.stream, attention->job.instance, "add_sink");
	hys_ocl_arg_tensor(&args, &tensors->dsink);
	hys_ocl_arg_i32(&args, hys_adds_sums(tensors->flags));
	hys_ocl_arg_i32(&args, start);
	hys_ocl_arg_i32(&args, last);
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, heads, sizeof(*heads));
	hys_ocl_arg_i64(&args, sums_at);
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

static hys_status add_sink(const struct backward *backward, bool start, bool last)
{
	return hys_ocl_add_sink(&backward->attention, &backward->heads, backward->sink_sums, start,
				last);
}

/* ---- the pass ---- */

/* The gradient of values, where v is shared: the first channels of that of the keys. */
static struct hys_tensor value_sums(const struct backward *backward, const struct source *source)
{
	struct hys_tensor sums = source->shared ? source->dk.sums : source->dv.sums;
	sums.shape[2] = backward->attention.call->problem->attending.value_dim;
	return sums;
}

/* One chunk. `start`: dq begins at 0. */
static hys_status chunk(const struct backward *backward, int32_t i, int64_t first, bool start)
{
	const struct hys_ocl_attention *attention = &backward->attention;
	const struct source *source = &backward->sources[i];
	const struct hys_ocl_job *job = &attention->job;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const struct hys_tensor values = value_sums(backward, source);
	const int64_t positions = attention->reach.positions[i] - first;
	hys_status status;

	HYS_TRY(hys_ocl_expand(attention, i, first));
	HYS_TRY(hys_ocl_scores(job, &source->k, positions, &attention->at, tile));
	HYS_TRY(hys_ocl_scores(job, &source->v, positions, &backward->values, tile));
	HYS_TRY(differentiate(backward, positions));
	if (hys_present(&attention->call->args.attention_grad.dq))
		HYS_TRY(hys_ocl_combine(job, &source->k, start, &attention->at, tile));
	if (hys_present(&source->dk.sums))
		HYS_TRY(hys_ocl_scatter(job, &source->dk.sums, &attention->at, tile));
	if (hys_present(&values))
		HYS_TRY(hys_ocl_scatter(job, &values, &backward->values, tile));
cleanup:
	return status;
}

static bool wanted(const struct backward *backward, int32_t source)
{
	return hys_present(&backward->attention.call->args.attention_grad.dq) ||
	       hys_present(&backward->sources[source].dk.out) ||
	       hys_present(&backward->sources[source].dv.out);
}

static hys_status run_tile(const struct backward *backward, bool first_tile, bool last_tile)
{
	const struct hys_ocl_attention *attention = &backward->attention;
	const struct hys_attention_grad_args *tensors = &attention->call->args.attention_grad;
	const struct hys_ocl_reach *reach = &attention->reach;
	bool start = true;
	hys_status status;

	HYS_TRY(hys_ocl_clean(attention));
	HYS_TRY(hys_ocl_pack(&attention->job, &tensors->q, &tensors->lse, attention->map,
			     &attention->at, &reach->tile));
	HYS_TRY(hys_ocl_pack(&attention->job, &tensors->grad_o, &tensors->lse, attention->map,
			     &backward->values, &reach->tile));
	if (reach->blocks.unit)
		HYS_TRY(common_parts(backward));
	HYS_TRY(prepare(backward));
	for (int32_t source = 0; source < 2; source++)
		for (int64_t p = 0; wanted(backward, source) && p < reach->positions[source];
		     p += reach->tile.capacity) {
			HYS_TRY(chunk(backward, source, p, start));
			start = false;
		}
	if (hys_present(&tensors->dq))
		HYS_TRY(finish_rows(backward));
	if (hys_present(&tensors->dsink))
		HYS_TRY(add_sink(backward, first_tile, last_tile));
cleanup:
	return status;
}

static hys_status open_source(struct backward *backward, int32_t i, const struct hys_tensor *k,
			      const struct hys_tensor *v, const struct hys_tensor *dk,
			      const struct hys_tensor *dv, const struct fixed *fixed)
{
	const struct hys_ocl_job *job = &backward->attention.job;
	struct source *source = &backward->sources[i];
	hys_status status;

	source->k = *k;
	source->shared = !hys_present(v);
	source->v = source->shared ? *k : *v;
	source->v.shape[2] = backward->attention.call->problem->attending.value_dim;
	HYS_TRY(hys_ocl_gradient_open(job, dk, backward->accumulate, fixed->dk[i], &source->dk));
	HYS_TRY(hys_ocl_gradient_open(job, dv, backward->accumulate, fixed->dv[i], &source->dv));
cleanup:
	return status;
}

static hys_status open_sources(struct backward *backward, const struct fixed *fixed)
{
	const struct hys_attention_grad_args *tensors =
		&backward->attention.call->args.attention_grad;
	hys_status status;

	HYS_TRY(open_source(backward, 0, &tensors->k, &tensors->v, &tensors->dk, &tensors->dv,
			    fixed));
	HYS_TRY(open_source(backward, 1, &tensors->window_k, &tensors->window_v,
			    &tensors->dwindow_k, &tensors->dwindow_v, fixed));
cleanup:
	return status;
}

static hys_status run_tiles(struct backward *backward, int64_t tile_rows)
{
	const int64_t rows = backward->attention.call->size.rows;
	hys_status status = HYS_OK;

	for (int64_t row = 0; row < rows; row += tile_rows) {
		backward->attention.map.first = row;
		backward->attention.reach.tile.rows = (int32_t)hys_min64(tile_rows, rows - row);
		HYS_TRY(run_tile(backward, row == 0, row + tile_rows >= rows));
	}
	if (rows == 0 && hys_present(&backward->attention.call->args.attention_grad.dsink))
		HYS_TRY(add_sink(backward, true, true));
cleanup:
	return status;
}

hys_status hys_ocl_backward(const struct hys_kernel *kernel, struct hys_stream *stream,
			    void *instance, const struct hys_call *call, struct hys_error *error)
{
	struct backward backward = {0};
	struct hys_ocl_attention *attention = &backward.attention;
	struct hys_ocl_space space = {0};
	struct fixed fixed;
	hys_status status;

	hys_ocl_attention_open(attention, kernel, stream, instance, call, error);
	attention->indices = &call->args.attention_grad.indices;
	backward.accumulate = hys_adds_sums(call->args.attention_grad.flags);
	space.next = lay_out_fixed(call->workspace.offset_bytes, &call->size, &fixed);
	space.rows = hys_ocl_tile_rows(&stream->device->base, call->size.rows,
				       row_bytes(&call->size, &attention->reach));
	lay_out(space, &call->size, &attention->reach, &backward);
	backward.sink_sums = fixed.sink_sums;
	HYS_TRY(open_sources(&backward, &fixed));
	HYS_TRY(run_tiles(&backward, space.rows));
	for (int32_t i = 0; i < 2; i++) {
		HYS_TRY(hys_ocl_gradient_close(&attention->job, &backward.sources[i].dk));
		HYS_TRY(hys_ocl_gradient_close(&attention->job, &backward.sources[i].dv));
	}
cleanup:
	return status;
}
