/* stream_run.c - one layer over a long document: keys, their gradients and all indices stay on the
 * device, rows come in ranges. */
#include "stream.h"

#include <math.h>
#include <string.h>

/* Operands of the rows are windows of pools of this many ranges, so that no two ranges are alike and
 * nothing is copied from the host between them. */
#define POOL_RANGES 2
/* Rows between the windows of two ranges: has no factor in common with usual sizes. */
#define POOL_STEP 769
/* Elements of a gradient that are looked at. */
#define LOOK 4096

/* A plan and what it needs to run. */
struct lane {
	struct hys_plan *plan;
	struct hys_batch *batch;
	struct hys_exec *exec;
};

struct layer {
	const struct stream *stream;
	struct lane select, attend;
	struct bench_data data;
	/* whole document */
	struct hys_tensor select_k, select_k_scale, index_k, k, v, indices;
	struct hys_tensor d_index_k, dk, dv, loss;
	/* pools of rows */
	struct hys_tensor select_q, select_q_scale, index_q, index_w, q, grad_o;
	/* a range */
	struct hys_tensor scores, o, lse, dq, d_index_q, d_index_w;
};

static const hys_op ops[STREAM_STEPS] = {HYS_OP_SELECT, HYS_OP_ATTENTION_FORWARD,
					 HYS_OP_INDEXER_LOSS, HYS_OP_ATTENTION_BACKWARD};

static hys_op op_of(const struct stream *stream, enum stream_step step)
{
	const hys_method method = stream->problem.choosing.method;
	if (step != STREAM_SELECT || method == HYS_METHOD_EXACT)
		return ops[step];
	return method == HYS_METHOD_COARSE ? HYS_OP_SELECT_COARSE : HYS_OP_SELECT_COARSE_TO_FINE;
}

static struct lane *lane_of(struct layer *layer, enum stream_step step)
{
	return step == STREAM_SELECT ? &layer->select : &layer->attend;
}

static bool open_lane(struct layer *layer, struct lane *lane, const struct hys_problem *problem,
		      uint32_t operations)
{
	const struct stream *stream = layer->stream;
	struct hys_error *error = &layer->data.error;
	const struct hys_plan_options wanted = {.struct_size = sizeof wanted,
						.operations = operations,
						.flags = HYS_PLAN_BUFFERS_ONLY,
						.devices = &layer->data.device,
						.device_count = 1,
						.rows_max = stream->range,
						.keys_max = stream->tokens,
						.kernels = stream->kernels,
						.progress = tool_plan_progress};
	const struct hys_batch_desc desc = {.struct_size = sizeof desc,
					    .rows = stream->tokens,
					    .keys = stream->tokens,
					    .flags = HYS_BATCH_CAUSAL};
	return hys_plan_create(layer->data.context, problem, &wanted, &lane->plan, error) ==
		       HYS_OK &&
	       hys_batch_create(lane->plan, &desc, &lane->batch, error) == HYS_OK &&
	       hys_exec_create(lane->plan, NULL, &lane->exec, error) == HYS_OK;
}

static bool open_lanes(struct layer *layer)
{
	const struct stream *stream = layer->stream;
	struct hys_problem select = stream->problem, attend = stream->problem;
	select.scoring.dtype = stream->select_dtype;
	select.attending = (struct hys_attending){0};
	attend.choosing.method = HYS_METHOD_EXACT;
	return open_lane(layer, &layer->select, &select,
			 HYS_OP_BIT(op_of(stream, STREAM_SELECT))) &&
	       open_lane(layer, &layer->attend, &attend,
			 HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD) |
				 HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD) |
				 HYS_OP_BIT(HYS_OP_INDEXER_LOSS));
}

static void close_lane(struct lane *lane)
{
	hys_exec_destroy(lane->exec);
	hys_batch_destroy(lane->batch);
	hys_plan_destroy(lane->plan);
}

/* ---- tensors ---- */

/* Scales of f8 are any positive number. */
static struct hys_tensor make_scales(struct bench_data *d, int32_t rank, int64_t n0, int64_t n1)
{
	struct hys_tensor t = bench_tensor(d, HYS_F32, rank, n0, n1, 0, 0);
	/* 0x3f3f3f3f = 0.747 */
	if (!d->failed && t.buffer)
		d->failed = hys_buffer_fill(d->exec, t.buffer, 0, hys_buffer_bytes(t.buffer), 0x3f,
					    &d->error) != HYS_OK;
	return t;
}

static bool shared_value(const struct hys_attending *a)
{
	return a->kv_heads == 1 && a->value_dim < a->head_dim;
}

static void make_document(struct layer *layer)
{
	const struct stream *stream = layer->stream;
	const struct hys_scoring *s = &stream->problem.scoring;
	const struct hys_attending *a = &stream->problem.attending;
	const int64_t n = stream->tokens;
	struct bench_data *d = &layer->data;
	layer->index_k = bench_tensor(d, stream->dtype, 2, n, s->dim, 0, 1);
	layer->select_k = layer->index_k;
	if (stream->select_dtype != stream->dtype)
		layer->select_k = bench_tensor(d, stream->select_dtype, 2, n, s->dim, 0, 1);
	if (stream->select_dtype == HYS_F8E4M3)
		layer->select_k_scale = make_scales(d, 1, n, 0);
	layer->k = bench_tensor(d, stream->dtype, 3, n, a->kv_heads, a->head_dim, 1);
	layer->dk = bench_tensor(d, HYS_F32, 3, n, a->kv_heads, a->head_dim, 0);
	if (!shared_value(a)) {
		layer->v = bench_tensor(d, stream->dtype, 3, n, a->kv_heads, a->value_dim, 1);
		layer->dv = bench_tensor(d, HYS_F32, 3, n, a->kv_heads, a->value_dim, 0);
	}
	layer->d_index_k = bench_tensor(d, HYS_F32, 2, n, s->dim, 0, 0);
	layer->indices =
		bench_tensor(d, HYS_I32, 3, n, s->groups, stream->problem.choosing.topk_max, 0);
	layer->loss = bench_tensor(d, HYS_F32, 1, 1, 0, 0, 0);
}

static void make_rows(struct layer *layer)
{
	const struct stream *stream = layer->stream;
	const struct hys_scoring *s = &stream->problem.scoring;
	const struct hys_attending *a = &stream->problem.attending;
	const int64_t rows = stream->range, pool = POOL_RANGES * rows;
	struct bench_data *d = &layer->data;
	layer->index_q = bench_tensor(d, stream->dtype, 3, pool, s->heads, s->dim, 1);
	layer->select_q = layer->index_q;
	if (stream->select_dtype != stream->dtype)
		layer->select_q =
			bench_tensor(d, stream->select_dtype, 3, pool, s->heads, s->dim, 1);
	if (stream->select_dtype == HYS_F8E4M3)
		layer->select_q_scale = make_scales(d, 2, pool, s->heads);
	layer->index_w = bench_tensor(d, HYS_F32, 2, pool, s->heads, 0, 1);
	layer->q = bench_tensor(d, stream->dtype, 3, pool, a->heads, a->head_dim, 1);
	layer->grad_o = bench_tensor(d, stream->dtype, 3, pool, a->heads, a->value_dim, 1);
	layer->scores =
		bench_tensor(d, HYS_F32, 3, rows, s->groups, stream->problem.choosing.topk_max, 0);
	layer->o = bench_tensor(d, stream->dtype, 3, rows, a->heads, a->value_dim, 0);
	layer->lse = bench_tensor(d, HYS_F32, 2, rows, a->heads, 0, 0);
	layer->dq = bench_tensor(d, stream->dtype, 3, rows, a->heads, a->head_dim, 0);
	layer->d_index_q = bench_tensor(d, stream->dtype, 3, rows, s->heads, s->dim, 0);
	layer->d_index_w = bench_tensor(d, HYS_F32, 2, rows, s->heads, 0, 0);
}

/* Two batches: prefix sums and intervals of each row. */
#define BATCH_ROW_BYTES (INT64_C(2) * (16 + 32))

int64_t stream_needs(const struct stream *stream, int64_t *host)
{
	struct layer layer = {.stream = stream, .data = {.count_only = true}};
	make_document(&layer);
	make_rows(&layer);
	*host = layer.data.staged + stream->tokens * BATCH_ROW_BYTES;
	return layer.data.bytes;
}

/* ---- ranges ---- */

struct range {
	int64_t first, rows;
	int64_t pool_row; /* where its operands begin in the pools */
	bool start;	  /* nothing has been added up so far */
};

/* `rows` rows of a tensor, from `first` on. */
static struct hys_tensor rows_of(struct hys_tensor tensor, int64_t first, int64_t rows)
{
	int64_t row = 1;
	for (int32_t d = 1; d < tensor.rank; d++)
		row *= tensor.shape[d];
	if (tensor.dtype) {
		tensor.offset += first * row;
		tensor.shape[0] = rows;
	}
	return tensor;
}

static struct hys_tensor pooled(const struct range *range, struct hys_tensor tensor)
{
	return rows_of(tensor, range->pool_row, range->rows);
}

static struct hys_tensor of_range(const struct range *range, struct hys_tensor tensor)
{
	return rows_of(tensor, 0, range->rows);
}

static hys_status run_select(struct layer *layer, const struct range *range)
{
	const struct hys_select_args args = {.struct_size = sizeof args,
					     .row_first = range->first,
					     .row_count = range->rows,
					     .method = layer->stream->problem.choosing.method,
					     .index_q = pooled(range, layer->select_q),
					     .index_k = layer->select_k,
					     .index_w = pooled(range, layer->index_w),
					     .index_q_scale = pooled(range, layer->select_q_scale),
					     .index_k_scale = layer->select_k_scale,
					     .indices = layer->indices,
					     .scores = of_range(range, layer->scores)};
	return hys_select(layer->select.exec, layer->select.batch, &args, &layer->data.error);
}

static hys_status run_forward(struct layer *layer, const struct range *range)
{
	const struct hys_attention_args args = {.struct_size = sizeof args,
						.row_first = range->first,
						.row_count = range->rows,
						.q = pooled(range, layer->q),
						.k = layer->k,
						.v = layer->v,
						.indices = layer->indices,
						.o = of_range(range, layer->o),
						.lse = of_range(range, layer->lse)};
	return hys_attention_forward(layer->attend.exec, layer->attend.batch, &args,
				     &layer->data.error);
}

/* Gradients of rows are added to, as those of keys are: they begin at 0. */
static hys_status clear(struct layer *layer, const struct hys_tensor *tensor)
{
	return hys_buffer_fill(layer->attend.exec, tensor->buffer, 0,
			       hys_buffer_bytes(tensor->buffer), 0, &layer->data.error);
}

static hys_status run_loss(struct layer *layer, const struct range *range)
{
	/* The scores that a lower precision selected by are not those to learn from. */
	const bool same = layer->stream->select_dtype == layer->stream->dtype;
	const struct hys_tensor none = {0};
	const struct hys_loss_args args = {.struct_size = sizeof args,
					   .row_first = range->first,
					   .row_count = range->rows,
					   .flags = range->start ? 0 : HYS_LOSS_ACCUMULATE,
					   .divisor = (double)layer->stream->tokens *
						      layer->stream->problem.scoring.groups,
					   .index_q = pooled(range, layer->index_q),
					   .index_k = layer->index_k,
					   .index_w = pooled(range, layer->index_w),
					   .indices = layer->indices,
					   .q = pooled(range, layer->q),
					   .k = layer->k,
					   .lse = of_range(range, layer->lse),
					   .scores = same ? of_range(range, layer->scores) : none,
					   .loss = layer->loss,
					   .d_index_q = of_range(range, layer->d_index_q),
					   .d_index_k = layer->d_index_k,
					   .d_index_w = of_range(range, layer->d_index_w)};
	hys_status status = HYS_OK;
	if (!range->start)
		status = clear(layer, &layer->d_index_q);
	if (status == HYS_OK && !range->start)
		status = clear(layer, &layer->d_index_w);
	return status != HYS_OK ? status
				: hys_indexer_loss(layer->attend.exec, layer->attend.batch, &args,
						   &layer->data.error);
}

static hys_status run_backward(struct layer *layer, const struct range *range)
{
	const struct hys_attention_grad_args args = {.struct_size = sizeof args,
						     .row_first = range->first,
						     .row_count = range->rows,
						     .flags =
							     range->start ? 0 : HYS_GRAD_ACCUMULATE,
						     .q = pooled(range, layer->q),
						     .k = layer->k,
						     .v = layer->v,
						     .indices = layer->indices,
						     .o = of_range(range, layer->o),
						     .lse = of_range(range, layer->lse),
						     .grad_o = pooled(range, layer->grad_o),
						     .dq = of_range(range, layer->dq),
						     .dk = layer->dk,
						     .dv = layer->dv};
	hys_status status = HYS_OK;
	if (!range->start)
		status = clear(layer, &layer->dq);
	return status != HYS_OK ? status
				: hys_attention_backward(layer->attend.exec, layer->attend.batch,
							 &args, &layer->data.error);
}

/* All steps of a range; seconds may be NULL. */
static bool run_range(struct layer *layer, const struct range *range, double *seconds)
{
	static hys_status (*const runs[STREAM_STEPS])(struct layer *, const struct range *) = {
		run_select, run_forward, run_loss, run_backward};
	for (int step = 0; step < STREAM_STEPS; step++) {
		const double start = tool_now();
		if (runs[step](layer, range) != HYS_OK ||
		    hys_exec_finish(lane_of(layer, step)->exec, &layer->data.error) != HYS_OK)
			return false;
		if (seconds)
			seconds[step] += tool_now() - start;
	}
	return true;
}

static struct range range_at(const struct stream *stream, int64_t number, bool start)
{
	const int64_t first = number * stream->range, left = stream->tokens - first;
	const struct range range = {.first = first,
				    .rows = left < stream->range ? left : stream->range,
				    .pool_row = number * POOL_STEP %
						((POOL_RANGES - 1) * stream->range + 1),
				    .start = start};
	return range;
}

static bool run_ranges(struct layer *layer, struct stream_result *result)
{
	const struct stream *stream = layer->stream;
	const int64_t all = (stream->tokens + stream->range - 1) / stream->range;
	const int64_t count = stream->ranges && stream->ranges < all ? stream->ranges : all;
	const struct range last = range_at(stream, all - 1, true);
	if (!run_range(layer, &last, NULL)) /* to warm up */
		return false;
	for (int64_t i = 0; i < count; i++) {
		const struct range range =
			range_at(stream, (2 * i + 1) * all / (2 * count), i == 0);
		tool_progress(i, count, "ranges");
		if (!run_range(layer, &range, result->seconds))
			return false;
		result->rows += range.rows;
	}
	tool_progress(1, 1, "");
	return true;
}

/* ---- results ---- */

/* Whether the last elements of a gradient are numbers. */
static bool look_at(struct layer *layer, const struct hys_tensor *tensor, bool *finite)
{
	float values[LOOK];
	const int64_t bytes = hys_buffer_bytes(tensor->buffer);
	const int64_t some = bytes < (int64_t)sizeof values ? bytes : (int64_t)sizeof values;
	if (hys_buffer_read(layer->attend.exec, tensor->buffer, bytes - some, values, some,
			    &layer->data.error) != HYS_OK ||
	    hys_exec_finish(layer->attend.exec, &layer->data.error) != HYS_OK)
		return false;
	for (int64_t i = 0; i < some / (int64_t)sizeof values[0]; i++)
		*finite = *finite && isfinite(values[i]);
	return true;
}

static bool read_results(struct layer *layer, struct stream_result *result)
{
	float loss = 0;
	result->finite = true;
	if (hys_buffer_read(layer->attend.exec, layer->loss.buffer, 0, &loss, sizeof loss,
			    &layer->data.error) != HYS_OK ||
	    !look_at(layer, &layer->dk, &result->finite) ||
	    !look_at(layer, &layer->d_index_k, &result->finite))
		return false;
	result->loss = (double)loss * (double)layer->stream->tokens / (double)result->rows;
	result->finite = result->finite && isfinite(result->loss);
	return true;
}

static bool describe(struct layer *layer, struct stream_result *result)
{
	const struct stream *stream = layer->stream;
	int64_t workspaces[2] = {0, 0};
	for (int step = 0; step < STREAM_STEPS; step++) {
		const struct lane *lane = lane_of(layer, step);
		const hys_op op = op_of(stream, step);
		int64_t *most = &workspaces[step == STREAM_SELECT], bytes = 0;
		struct hys_cost cost;
		if (hys_plan_cost(lane->plan, op, lane->batch, &cost, &layer->data.error) !=
			    HYS_OK ||
		    hys_plan_workspace(lane->plan, op, stream->range, 0, &bytes,
				       &layer->data.error) != HYS_OK)
			return false;
		*most = bytes > *most ? bytes : *most;
		result->kernels[step] = hys_plan_kernel(lane->plan, op, 0);
		result->flops[step] = cost.flops * (double)result->rows / (double)stream->tokens;
	}
	result->memory = layer->data.bytes + workspaces[0] + workspaces[1];
	return true;
}

bool stream_run(const struct stream *stream, struct hys_context *context, int32_t device,
		struct stream_result *result, struct hys_error *error)
{
	struct layer layer = {.stream = stream,
			      .data = {.context = context, .device = device, .seed = 1}};
	bool ok = open_lanes(&layer);
	memset(result, 0, sizeof *result);
	layer.data.exec = layer.attend.exec;
	if (ok) {
		make_document(&layer);
		make_rows(&layer);
		ok = !layer.data.failed;
	}
	ok = ok && run_ranges(&layer, result) && read_results(&layer, result) &&
	     describe(&layer, result);
	if (!ok)
		*error = layer.data.error;
	close_lane(&layer.select);
	close_lane(&layer.attend);
	bench_data_free(&layer.data);
	return ok;
}
