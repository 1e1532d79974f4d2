/* ocl_loss_launch.c - the launches of the indexer loss. */
#include "ocl_loss_parts.h"

#define LOCAL 64
#define LIST_BLOCK 1024

static struct hys_ocl_args begin(const struct ocl_loss *loss, const char *entry)
{
	return hys_ocl_begin_named(loss->job.stream, loss->job.instance, entry);
}

static hys_status launch(const struct ocl_loss *loss, struct hys_ocl_args *args, int64_t x,
			 int64_t y, int64_t items)
{
	const int64_t groups[2] = {x, y}, local[2] = {items, 1};
	return hys_ocl_launch(args, 2, groups, local, loss->job.error);
}

static void arg_sets(struct hys_ocl_args *args, const struct ocl_loss *loss)
{
	hys_ocl_arg(args, &loss->layout.sets, sizeof(loss->layout.sets));
}

static void arg_regions(struct hys_ocl_args *args, const struct ocl_loss *loss)
{
	hys_ocl_arg(args, &loss->layout.at, sizeof(loss->layout.at));
}

static void arg_rules(struct hys_ocl_args *args, const struct ocl_loss *loss)
{
	hys_ocl_arg(args, &loss->reach.rules, sizeof(loss->reach.rules));
}

static void arg_map(struct hys_ocl_args *args, const struct ocl_loss *loss)
{
	hys_ocl_arg(args, &loss->map, sizeof(loss->map));
}

static void arg_visible(struct hys_ocl_args *args, const struct ocl_loss *loss)
{
	const struct hys_batch_view *batch = &loss->call->batch;
	hys_ocl_arg_array(args, &batch->row_begin);
	hys_ocl_arg_array(args, &batch->row_end);
	hys_ocl_arg_array(args, &batch->index_begin);
	hys_ocl_arg_array(args, &batch->index_end);
	hys_ocl_arg_array(args, &batch->key_origin);
	hys_ocl_arg_array(args, &batch->entry_origin);
}

static void arg_tile(struct hys_ocl_args *args, const struct hys_ocl_tile *tile)
{
	hys_ocl_arg(args, tile, sizeof(*tile));
}

static int64_t sets_of(const struct ocl_loss *loss)
{
	return (int64_t)loss->reach.scores.rows * loss->reach.scores.groups;
}

static hys_status clear_counter(const struct ocl_loss *loss)
{
	struct hys_ocl_args args = begin(loss, "clear_counter");
	hys_ocl_arg_work(&args, &loss->job);
	arg_regions(&args, loss);
	return launch(loss, &args, 1, 1, 1);
}

hys_status ocl_loss_count(const struct ocl_loss *loss)
{
	const struct hys_loss_args *tensors = loss->args;
	const struct hys_attending *attending = &loss->call->problem->attending;
	const struct ocl_teacher_from from = {
		.heads = attending->heads,
		.kv_heads = attending->kv_heads,
		.channels = attending->head_dim,
		.type = (int32_t)attending->dtype,
		.scale = loss->logit.scale,
		.softcap = loss->logit.softcap,
	};
	const int64_t sets = loss->rows * loss->reach.scores.groups;
	struct hys_ocl_row_map map = loss->map;
	struct hys_ocl_args args;
	hys_status status = clear_counter(loss);
	if (status != HYS_OK)
		return status;
	args = begin(loss, "count_sets");
	hys_ocl_arg_tensor(&args, &tensors->indices);
	arg_visible(&args, loss);
	hys_ocl_arg(&args, &map, sizeof(map));
	hys_ocl_arg_i64(&args, loss->rows);
	hys_ocl_arg_i32(&args, loss->reach.scores.groups);
	arg_rules(&args, loss);
	hys_ocl_arg_tensor(&args, &tensors->teacher_in);
	hys_ocl_arg_tensor(&args, &tensors->q);
	hys_ocl_arg_tensor(&args, &tensors->k);
	hys_ocl_arg_tensor(&args, &tensors->lse);
	hys_ocl_arg_tensor(&args, &tensors->sink);
	hys_ocl_arg(&args, &from, sizeof(from));
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg_i64(&args, loss->layout.at.factor + (int64_t)sizeof(float));
	return launch(loss, &args, hys_ocl_divide_up(sets, LOCAL), 1, LOCAL);
}

hys_status ocl_loss_set_factor(const struct ocl_loss *loss, double number, bool counted)
{
	struct hys_ocl_args args = begin(loss, "set_factor");
	hys_ocl_arg_f32(&args, number);
	hys_ocl_arg_i32(&args, counted);
	hys_ocl_arg_work(&args, &loss->job);
	arg_regions(&args, loss);
	return launch(loss, &args, 1, 1, 1);
}

hys_status ocl_loss_find_sets(const struct ocl_loss *loss)
{
	struct hys_ocl_args args = begin(loss, "find_sets");
	hys_ocl_arg_tensor(&args, &loss->args->indices);
	arg_visible(&args, loss);
	arg_map(&args, loss);
	arg_rules(&args, loss);
	hys_ocl_arg_work(&args, &loss->job);
	arg_sets(&args, loss);
	arg_tile(&args, &loss->reach.scores);
	return launch(loss, &args, hys_ocl_divide_up(sets_of(loss), LOCAL), 1, LOCAL);
}

hys_status ocl_loss_list(const struct ocl_loss *loss, enum ocl_list what, int64_t first)
{
	struct hys_ocl_args args = begin(loss, "list_units");
	hys_ocl_arg_i32(&args, what);
	hys_ocl_arg_i64(&args, first);
	hys_ocl_arg_i64(&args, loss->layout.at.best);
	hys_ocl_arg_i32(&args, loss->layout.at.most);
	arg_rules(&args, loss);
	hys_ocl_arg_work(&args, &loss->job);
	arg_sets(&args, loss);
	arg_tile(&args, &loss->reach.scores);
	return launch(loss, &args, sets_of(loss),
		      hys_ocl_divide_up(loss->reach.scores.capacity, LIST_BLOCK), LOCAL);
}

hys_status ocl_loss_pack_weights(const struct ocl_loss *loss)
{
	const struct hys_ocl_tile *tile = &loss->reach.scores;
	const int64_t weights = (int64_t)tile->rows * tile->bundles * tile->pitch;
	struct hys_ocl_args args = begin(loss, "pack_weights");
	hys_ocl_arg_tensor(&args, &loss->args->index_w);
	arg_map(&args, loss);
	hys_ocl_arg_work(&args, &loss->job);
	arg_regions(&args, loss);
	arg_tile(&args, tile);
	return launch(loss, &args, hys_ocl_divide_up(weights, LOCAL), 1, LOCAL);
}

static hys_status entry_scores(const struct ocl_loss *loss, int64_t positions)
{
	const struct hys_ocl_tile *tile = &loss->reach.scores;
	struct hys_ocl_args args = begin(loss, "entry_scores");
	hys_ocl_arg(&args, &loss->scoring, sizeof(loss->scoring));
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.scores, sizeof(loss->layout.scores));
	arg_regions(&args, loss);
	arg_tile(&args, tile);
	return launch(loss, &args, sets_of(loss), hys_ocl_divide_up(positions, LOCAL),
		      hys_ocl_local(&loss->job));
}

/* The kernels that go from positions to units take the same arguments. */
static hys_status join_units(const struct ocl_loss *loss, const char *entry, int64_t first)
{
	struct hys_ocl_args args = begin(loss, entry);
	hys_ocl_arg_i64(&args, first);
	arg_rules(&args, loss);
	hys_ocl_arg_work(&args, &loss->job);
	arg_sets(&args, loss);
	arg_regions(&args, loss);
	arg_tile(&args, &loss->reach.scores);
	return launch(loss, &args, sets_of(loss), hys_ocl_divide_up(loss->reach.units, LOCAL),
		      LOCAL);
}

hys_status ocl_loss_unit_scores(const struct ocl_loss *loss, int64_t first)
{
	const int64_t positions =
		hys_min64(loss->reach.entries - first, loss->reach.scores.capacity);
	const hys_status status = entry_scores(loss, positions);
	return status == HYS_OK ? join_units(loss, "unit_scores", first) : status;
}

hys_status ocl_loss_take(const struct ocl_loss *loss, const struct hys_tensor *given, int64_t to)
{
	struct hys_ocl_args args = begin(loss, "take_units");
	hys_ocl_arg_tensor(&args, given);
	hys_ocl_arg_i64(&args, to);
	arg_map(&args, loss);
	hys_ocl_arg_i32(&args, loss->reach.rules.topk);
	hys_ocl_arg_work(&args, &loss->job);
	arg_sets(&args, loss);
	arg_regions(&args, loss);
	arg_tile(&args, &loss->reach.scores);
	return launch(loss, &args, sets_of(loss), hys_ocl_divide_up(loss->reach.units, LOCAL),
		      LOCAL);
}

hys_status ocl_loss_normalise(const struct ocl_loss *loss, bool start)
{
	struct hys_ocl_args args = begin(loss, "normalise");
	hys_ocl_arg_i32(&args, start);
	hys_ocl_arg(&args, &loss->logit, sizeof(loss->logit));
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.teacher, sizeof(loss->layout.teacher));
	hys_ocl_arg(&args, &loss->layout.totals, sizeof(loss->layout.totals));
	arg_tile(&args, &loss->reach.teacher);
	return launch(loss, &args, hys_ocl_head_groups(&loss->job, &loss->reach.teacher), 1,
		      hys_ocl_local(&loss->job));
}

hys_status ocl_loss_set_totals(const struct ocl_loss *loss)
{
	const struct hys_ocl_tile *tile = &loss->reach.teacher;
	const int64_t heads = (int64_t)tile->rows * tile->bundles * tile->pitch;
	struct hys_ocl_args args = begin(loss, "set_totals");
	hys_ocl_arg_tensor(&args, &loss->args->lse);
	hys_ocl_arg_tensor(&args, &loss->args->sink);
	arg_map(&args, loss);
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.totals, sizeof(loss->layout.totals));
	arg_tile(&args, tile);
	return launch(loss, &args, hys_ocl_divide_up(heads, LOCAL), 1, LOCAL);
}

static hys_status key_shares(const struct ocl_loss *loss, int64_t positions)
{
	struct hys_ocl_args args = begin(loss, "key_shares");
	hys_ocl_arg(&args, &loss->logit, sizeof(loss->logit));
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.teacher, sizeof(loss->layout.teacher));
	hys_ocl_arg(&args, &loss->layout.totals, sizeof(loss->layout.totals));
	arg_regions(&args, loss);
	arg_tile(&args, &loss->reach.teacher);
	return launch(loss, &args, sets_of(loss), hys_ocl_divide_up(positions, LOCAL),
		      hys_ocl_local(&loss->job));
}

hys_status ocl_loss_unit_shares(const struct ocl_loss *loss, int64_t first)
{
	const int64_t positions = hys_min64(loss->reach.keys - first, loss->reach.teacher.capacity);
	const hys_status status = key_shares(loss, positions);
	return status == HYS_OK ? join_units(loss, "unit_shares", first) : status;
}

hys_status ocl_loss_store_teacher(const struct ocl_loss *loss)
{
	struct hys_ocl_args args = begin(loss, "store_teacher");
	hys_ocl_arg_tensor(&args, &loss->args->teacher_out);
	arg_map(&args, loss);
	hys_ocl_arg_i32(&args, loss->reach.rules.topk);
	hys_ocl_arg_work(&args, &loss->job);
	arg_sets(&args, loss);
	arg_regions(&args, loss);
	arg_tile(&args, &loss->reach.scores);
	return launch(loss, &args, sets_of(loss), 1, LOCAL);
}

hys_status ocl_loss_judge(const struct ocl_loss *loss)
{
	struct hys_ocl_args args = begin(loss, "judge");
	hys_status status;
	hys_ocl_arg_work(&args, &loss->job);
	arg_sets(&args, loss);
	arg_regions(&args, loss);
	status = launch(loss, &args, sets_of(loss), 1, LOCAL);
	if (status != HYS_OK)
		return status;
	args = begin(loss, "add_loss");
	hys_ocl_arg_work(&args, &loss->job);
	arg_regions(&args, loss);
	arg_tile(&args, &loss->reach.scores);
	return launch(loss, &args, 1, 1, LOCAL);
}

hys_status ocl_loss_store(const struct ocl_loss *loss)
{
	struct hys_ocl_args args = begin(loss, "store_loss");
	hys_ocl_arg_tensor(&args, &loss->args->loss);
	hys_ocl_arg_i32(&args, loss->accumulate);
	hys_ocl_arg_work(&args, &loss->job);
	arg_regions(&args, loss);
	return launch(loss, &args, 1, 1, 1);
}

hys_status ocl_loss_spread(const struct ocl_loss *loss, int64_t first)
{
	struct hys_ocl_args args = begin(loss, "spread");
	hys_ocl_arg_i32(&args, first == 0);
	hys_ocl_arg_i64(&args, first);
	hys_ocl_arg(&args, &loss->scoring, sizeof(loss->scoring));
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.scores, sizeof(loss->layout.scores));
	arg_regions(&args, loss);
	arg_tile(&args, &loss->reach.scores);
	return launch(loss, &args, hys_ocl_head_groups(&loss->job, &loss->reach.scores), 1,
		      hys_ocl_local(&loss->job));
}

hys_status ocl_loss_finish_rows(const struct ocl_loss *loss)
{
	const struct hys_ocl_tile *tile = &loss->reach.scores;
	const struct hys_scoring *scoring = &loss->call->problem->scoring;
	struct hys_ocl_args args = begin(loss, "finish_rows");
	hys_ocl_arg_tensor(&args, &loss->args->d_index_q);
	hys_ocl_arg_i32(&args, loss->args->d_index_q.dtype);
	hys_ocl_arg_i32(&args, scoring->dim);
	hys_ocl_arg_i32(&args, hys_ocl_padded(&loss->reach.blocks, scoring->dim));
	hys_ocl_arg_tensor(&args, &loss->args->d_index_w);
	hys_ocl_arg_i32(&args, loss->accumulate);
	arg_map(&args, loss);
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.scores, sizeof(loss->layout.scores));
	arg_regions(&args, loss);
	arg_tile(&args, tile);
	return launch(loss, &args, (int64_t)tile->rows * tile->heads, 1, LOCAL);
}

hys_status ocl_loss_clear_rows(const struct ocl_loss *loss, const struct hys_tensor *out)
{
	struct hys_ocl_args args;
	if (!hys_present(out) || loss->args->row_stride <= 1)
		return HYS_OK;
	args = begin(loss, "clear_rows");
	hys_ocl_arg_tensor(&args, out);
	hys_ocl_arg_i32(&args, out->dtype);
	hys_ocl_arg_i32(&args, out->rank == 3 ? out->shape[1] : 1);
	hys_ocl_arg_i32(&args, out->shape[out->rank - 1]);
	hys_ocl_arg_i64(&args, loss->call->row_first);
	hys_ocl_arg_i32(&args, loss->args->row_stride);
	hys_ocl_arg_i32(&args, loss->args->row_offset);
	return launch(loss, &args, out->shape[0], 1, LOCAL);
}
