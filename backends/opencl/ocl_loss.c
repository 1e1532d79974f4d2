/* ocl_loss.c - the indexer loss: sizes, and the order of its kernels. */
#include "ocl_loss.h"

#include "ocl_loss_parts.h"

static const char *const entries[] = {OCL_LOSS_ENTRIES, NULL};

/* The heads of the teacher cost more than those of the indexer: they choose the blocks. */
static struct hys_ocl_blocks blocks_of(const struct hys_ocl_device *device,
				       enum hys_ocl_variant variant,
				       const struct hys_problem *problem)
{
	const struct hys_attending *attending = &problem->attending;
	return hys_ocl_blocks_of(
		device, variant,
		hys_ocl_bundle(attending->heads, problem->scoring.groups, attending->kv_heads),
		problem->scoring.dim);
}

void ocl_loss_define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		     const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_ocl_products *products = (const struct hys_ocl_products *)source;
	const struct hys_ocl_blocks blocks = blocks_of(device, products->variant, problem);
	hys_ocl_define_blocks(options, products->variant, &blocks, problem->attending.dtype);
}

#define SOURCE                                                          \
	{                                                               \
		"indexer_loss.cl", entries, ocl_loss_define, NULL, NULL \
	}
const struct hys_ocl_products hys_ocl_loss_cpu = {SOURCE, HYS_OCL_CPU_VECTORS};
const struct hys_ocl_products hys_ocl_loss_tile = {SOURCE, HYS_OCL_TILE};
const struct hys_ocl_products hys_ocl_loss_ref = {SOURCE, HYS_OCL_REF};

/* ---- sizes ---- */

static struct hys_ocl_rules rules_of(const struct hys_size *size, bool dense)
{
	struct hys_ocl_rules rules = {0};
	rules.dense = dense;
	rules.topk = dense ? 0 : (int32_t)size->topk;
	rules.pool = size->problem->scoring.pool > 1;
	rules.span = dense && !rules.pool ? 1 : (int32_t)hys_index_span(size->problem);
	rules.step = dense ? 1 : (int32_t)hys_index_step(size->problem);
	return rules;
}

static int64_t most_of(int64_t row, int64_t all)
{
	return hys_max64(1, row > 0 ? hys_min64(row, all) : all);
}

static int64_t padded_heads(const struct hys_ocl_tile *tile)
{
	return (int64_t)tile->bundles * tile->pitch;
}

struct ocl_loss_reach ocl_loss_reach_of(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_size *size, bool dense)
{
	const struct hys_ocl_products *products = kernel->detail;
	const struct hys_scoring *scoring = &size->problem->scoring;
	const struct hys_attending *attending = &size->problem->attending;
	struct ocl_loss_reach reach = {.rules = rules_of(size, dense)};
	int64_t heads;

	reach.blocks = blocks_of(hys_ocl_device(device), products->variant, size->problem);
	reach.scores = hys_ocl_tile_of(&reach.blocks, scoring->heads, scoring->groups, 1);
	reach.teacher = hys_ocl_tile_of(&reach.blocks, attending->heads, scoring->groups,
					attending->kv_heads);
	reach.entries = most_of(size->row_entries, size->entries);
	reach.keys = most_of(size->row_keys, size->keys);
	reach.units = reach.entries;
	if (!dense) {
		reach.units = hys_max64(1, size->topk);
		reach.entries = hys_min64(reach.entries, hys_mul64(reach.units, reach.rules.step));
		reach.keys = hys_min64(reach.keys, hys_mul64(reach.units, reach.rules.span));
	}
	heads = hys_max64(padded_heads(&reach.scores), padded_heads(&reach.teacher));
	reach.scores.capacity = reach.teacher.capacity =
		(int32_t)hys_ocl_capacity(device, heads, hys_max64(reach.entries, reach.keys));
	return reach;
}

static void lay_out_sets(struct hys_ocl_space *space, const struct ocl_loss_reach *reach,
			 struct ocl_loss_layout *layout)
{
	const int64_t numbers = (int64_t)sizeof(int32_t) * reach->scores.groups;
	layout->sets.sets = hys_ocl_take(space, 8 * numbers);
	layout->sets.slots = hys_ocl_take(space, numbers * reach->rules.topk);
	layout->sets.index = hys_ocl_take(space, numbers * reach->rules.topk);
	layout->sets.list = hys_ocl_take(space, numbers * reach->scores.capacity);
	layout->sets.count = hys_ocl_take(space, numbers);
	layout->at.part = hys_ocl_take(space, numbers * reach->scores.capacity);
	layout->at.score = hys_ocl_take(space, numbers * reach->units);
	layout->at.teacher = hys_ocl_take(space, numbers * reach->units);
	layout->at.best = reach->rules.step > 1 ? hys_ocl_take(space, numbers * reach->units) : 0;
	layout->at.most = reach->units;
	layout->at.loss = hys_ocl_take(space, numbers);
}

/* Lays the workspace of a tile out; answers the end. */
static int64_t lay_out(struct hys_ocl_space space, const struct hys_problem *problem,
		       const struct ocl_loss_reach *reach, struct ocl_loss_layout *layout)
{
	const int64_t index_floats = (int64_t)sizeof(float) * padded_heads(&reach->scores);
	const int64_t floats = (int64_t)sizeof(float) * padded_heads(&reach->teacher);
	const int64_t width = hys_ocl_padded(&reach->blocks, problem->scoring.dim);
	const bool turned = reach->blocks.width > 1;
	struct hys_ocl_operands *scores = &layout->scores, *teacher = &layout->teacher;

	lay_out_sets(&space, reach, layout);
	layout->at.w = hys_ocl_take(&space, index_floats);
	layout->at.dw = hys_ocl_take(&space, index_floats);
	scores->list = layout->sets.list;
	scores->count = layout->sets.count;
	scores->weights =
		hys_ocl_take(&space, hys_max64(index_floats, floats) * reach->scores.capacity);
	scores->y = hys_ocl_take(&space, index_floats * width);
	scores->y_turned = turned ? hys_ocl_take(&space, index_floats * problem->scoring.dim) : -1;
	scores->sums = hys_ocl_take(&space, index_floats * width);
	scores->factor = -1;
	*teacher = *scores;
	teacher->y = hys_ocl_take(&space, floats * problem->attending.head_dim);
	teacher->y_turned = -1;
	if (turned) {
		teacher->y_turned = teacher->y;
		teacher->y = -1;
	}
	layout->totals.most = hys_ocl_take(&space, floats);
	layout->totals.sum = hys_ocl_take(&space, floats);
	layout->totals.whole = hys_ocl_take(&space, floats);
	return space.next;
}

static int64_t row_bytes(const struct hys_problem *problem, const struct ocl_loss_reach *reach)
{
	struct ocl_loss_layout scratch = {0};
	const struct hys_ocl_space one = {.rows = 1};
	return lay_out(one, problem, reach, &scratch);
}

int64_t ocl_loss_fixed_bytes(const struct hys_size *size)
{
	const struct hys_scoring *scoring = &size->problem->scoring;
	return hys_add64(HYS_ALIGN,
			 hys_ocl_gradient_bytes(scoring->dtype, size->entries, 1, scoring->dim));
}

/* A plan does not know whether calls will be dense. */
int64_t hys_ocl_loss_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
			       const struct hys_size *size)
{
	int64_t bytes = 0;
	for (int32_t dense = 0; dense < 2; dense++) {
		const struct ocl_loss_reach reach = ocl_loss_reach_of(kernel, device, size, dense);
		bytes = hys_max64(bytes, hys_ocl_tile_bytes(device, size->rows,
							    row_bytes(size->problem, &reach)));
	}
	return hys_add64(bytes, ocl_loss_fixed_bytes(size));
}

/* ---- the order of kernels ---- */

static hys_status find_scores(const struct ocl_loss *loss)
{
	const struct hys_loss_args *tensors = loss->args;
	const struct ocl_loss_reach *reach = &loss->reach;
	const bool given = hys_present(&tensors->scores);
	const struct hys_tensor none = {0};
	hys_status status;

	HYS_TRY(hys_ocl_pack(&loss->job, &tensors->index_q, &none, loss->map, &loss->layout.scores,
			     &reach->scores));
	HYS_TRY(ocl_loss_pack_weights(loss));
	/* Given scores do not say which entry of a block is the best. */
	for (int64_t p = 0; (!given || reach->rules.step > 1) && p < reach->entries;
	     p += reach->scores.capacity) {
		HYS_TRY(ocl_loss_list(loss, OCL_LIST_ENTRIES, p));
		HYS_TRY(hys_ocl_scores(&loss->job, &tensors->index_k, reach->entries - p,
				       &loss->layout.scores, &reach->scores));
		HYS_TRY(ocl_loss_unit_scores(loss, p));
	}
	if (given)
		HYS_TRY(ocl_loss_take(loss, &tensors->scores, loss->layout.at.score));
cleanup:
	return status;
}

static hys_status key_dots(const struct ocl_loss *loss, int64_t first)
{
	hys_status status;
	HYS_TRY(ocl_loss_list(loss, OCL_LIST_KEYS, first));
	HYS_TRY(hys_ocl_scores(&loss->job, &loss->args->k, loss->reach.keys - first,
			       &loss->layout.teacher, &loss->reach.teacher));
cleanup:
	return status;
}

static hys_status teach(const struct ocl_loss *loss)
{
	const struct hys_loss_args *tensors = loss->args;
	const struct ocl_loss_reach *reach = &loss->reach;
	const bool totals = hys_present(&tensors->lse);
	const bool once = !totals && reach->keys <= reach->teacher.capacity;
	const struct hys_tensor none = {0};
	hys_status status;

	HYS_TRY(hys_ocl_pack(&loss->job, &tensors->q, &none, loss->map, &loss->layout.teacher,
			     &reach->teacher));
	for (int64_t p = 0; !totals && p < reach->keys; p += reach->teacher.capacity) {
		HYS_TRY(key_dots(loss, p));
		HYS_TRY(ocl_loss_normalise(loss, p == 0));
	}
	HYS_TRY(ocl_loss_set_totals(loss));
	for (int64_t p = 0; p < reach->keys; p += reach->teacher.capacity) {
		if (!once) /* else the dot products are still there */
			HYS_TRY(key_dots(loss, p));
		HYS_TRY(ocl_loss_unit_shares(loss, p));
	}
cleanup:
	return status;
}

static hys_status add_gradients(const struct ocl_loss *loss)
{
	const struct hys_loss_args *tensors = loss->args;
	const struct hys_ocl_operands *at = &loss->layout.scores;
	const struct ocl_loss_reach *reach = &loss->reach;
	hys_status status = HYS_OK;

	for (int64_t p = 0; p < reach->units; p += reach->scores.capacity) {
		HYS_TRY(ocl_loss_list(loss, OCL_LIST_BEST, p));
		HYS_TRY(hys_ocl_scores(&loss->job, &tensors->index_k, reach->units - p, at,
				       &reach->scores));
		HYS_TRY(ocl_loss_spread(loss, p));
		if (hys_present(&tensors->d_index_q))
			HYS_TRY(hys_ocl_combine(&loss->job, &tensors->index_k, p == 0, at,
						&reach->scores));
		if (hys_present(&loss->dk.sums))
			HYS_TRY(hys_ocl_scatter(&loss->job, &loss->dk.sums, at, &reach->scores));
	}
	if (hys_present(&tensors->d_index_q) || hys_present(&tensors->d_index_w))
		HYS_TRY(ocl_loss_finish_rows(loss));
cleanup:
	return status;
}

static hys_status run_tile(const struct ocl_loss *loss)
{
	const struct hys_loss_args *tensors = loss->args;
	hys_status status;

	HYS_TRY(ocl_loss_find_sets(loss));
	if (hys_present(&tensors->teacher_in))
		HYS_TRY(ocl_loss_take(loss, &tensors->teacher_in, loss->layout.at.teacher));
	else
		HYS_TRY(teach(loss));
	if (hys_present(&tensors->teacher_out))
		HYS_TRY(ocl_loss_store_teacher(loss));
	if (!loss->wants_gradients && !hys_present(&tensors->loss))
		goto cleanup;
	HYS_TRY(find_scores(loss));
	HYS_TRY(ocl_loss_judge(loss));
	if (loss->wants_gradients)
		HYS_TRY(add_gradients(loss));
cleanup:
	return status;
}

static hys_status find_factor(const struct ocl_loss *loss)
{
	const struct hys_loss_args *args = loss->args;
	hys_status status;

	if (args->reduction == HYS_REDUCTION_SUM)
		return ocl_loss_set_factor(loss, args->coefficient * (double)loss->map.step, false);
	if (args->divisor != 0.0)
		return ocl_loss_set_factor(loss, args->coefficient / args->divisor, false);
	HYS_TRY(ocl_loss_count(loss));
	HYS_TRY(ocl_loss_set_factor(loss, args->coefficient, true));
cleanup:
	return status;
}

hys_status ocl_loss_open(struct ocl_loss *loss, int64_t dk_at)
{
	const struct hys_loss_args *args = loss->args;
	hys_status status;

	HYS_TRY(find_factor(loss));
	if (!loss->accumulate) {
		HYS_TRY(ocl_loss_clear_rows(loss, &args->d_index_q));
		HYS_TRY(ocl_loss_clear_rows(loss, &args->d_index_w));
	}
	HYS_TRY(ocl_loss_clear_rows(loss, &args->teacher_out));
	HYS_TRY(hys_ocl_gradient_open(&loss->job, &args->d_index_k, loss->accumulate, dk_at,
				      &loss->dk));
cleanup:
	return status;
}

struct ocl_loss ocl_loss_make(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error)
{
	const struct hys_loss_args *args = &call->args.loss;
	const struct hys_problem *problem = call->problem;
	const int64_t stride = hys_max64(args->row_stride, 1);
	const int64_t gap = args->row_offset - call->row_first % stride;
	struct ocl_loss loss = {.call = call, .args = args};

	loss.reach = ocl_loss_reach_of(kernel, &stream->device->base, &call->size,
				       (args->flags & HYS_LOSS_DENSE) != 0);
	loss.job = (struct hys_ocl_job){
		.stream = stream,
		.instance = instance,
		.variant = ((const struct hys_ocl_products *)kernel->detail)->variant,
		.blocks = loss.reach.blocks,
		.work = call->workspace.buffer,
		.error = error,
	};
	loss.map.first = gap < 0 ? gap + stride : gap;
	loss.map.step = stride;
	if (loss.map.first < call->size.rows)
		loss.rows = hys_ocl_divide_up(call->size.rows - loss.map.first, stride);
	loss.logit.scale = (float)problem->attending.scale;
	loss.logit.softcap = (float)problem->attending.softcap;
	loss.scoring.scale = (float)problem->scoring.scale;
	loss.scoring.relu = problem->scoring.activation == HYS_ACTIVATION_RELU;
	loss.accumulate = (args->flags & HYS_LOSS_ACCUMULATE) != 0;
	loss.wants_gradients = hys_present(&args->d_index_q) || hys_present(&args->d_index_k) ||
			       hys_present(&args->d_index_w);
	return loss;
}

hys_status hys_ocl_loss(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			const struct hys_call *call, struct hys_error *error)
{
	struct ocl_loss loss = ocl_loss_make(kernel, stream, instance, call, error);
	const int64_t start = call->workspace.offset_bytes, first = loss.map.first;
	const int64_t bytes = row_bytes(call->problem, &loss.reach);
	struct hys_ocl_space space = {.next = start + ocl_loss_fixed_bytes(&call->size)};
	hys_status status;

	space.rows = hys_ocl_tile_rows(&stream->device->base, loss.rows, bytes);
	lay_out(space, call->problem, &loss.reach, &loss.layout);
	loss.layout.at.factor = start;
	HYS_TRY(ocl_loss_open(&loss, start + HYS_ALIGN));
	for (int64_t row = 0; row < loss.rows; row += space.rows) {
		const int32_t rows = (int32_t)hys_min64(space.rows, loss.rows - row);
		loss.map.first = first + row * loss.map.step;
		loss.reach.scores.rows = loss.reach.teacher.rows = rows;
		HYS_TRY(run_tile(&loss));
	}
	HYS_TRY(hys_ocl_gradient_close(&loss.job, &loss.dk));
	if (hys_present(&call->args.loss.loss))
		HYS_TRY(ocl_loss_store(&loss));
cleanup:
	return status;
}
