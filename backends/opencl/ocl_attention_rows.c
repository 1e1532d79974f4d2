/* ocl_attention_rows.c - which rows a tile of attention reads. */
#include "ocl_attention.h"
#include "ocl_gather.h"

#define LOCAL 64
#define EXPAND 1024
#define LISTS_OF_GROUP 4 /* of list_rows: one a warp */

static struct hys_ocl_rules rules_of(const struct hys_size *size)
{
	const struct hys_attending *attending = &size->problem->attending;
	struct hys_ocl_rules rules = {0};
	rules.dense = (attending->flags & HYS_ATTENDING_DENSE) != 0;
	rules.topk = rules.dense ? 0 : (int32_t)size->topk;
	rules.span = (int32_t)hys_index_span(size->problem);
	rules.step = (int32_t)hys_index_step(size->problem);
	rules.pool = size->problem->scoring.pool > 1;
	rules.window = attending->window;
	rules.first = attending->first;
	return rules;
}

/* `most` of one row, at least 1; 0 = unknown. */
static int64_t reach_of(int64_t most, int64_t all)
{
	return hys_max64(1, most > 0 ? hys_min64(most, all) : all);
}

struct hys_ocl_reach hys_ocl_reach_of(const struct hys_kernel *kernel,
				      const struct hys_device *device, const struct hys_size *size)
{
	const struct hys_ocl_products *products = kernel->detail;
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t groups = size->problem->scoring.groups;
	const int64_t channels = hys_max64(attending->head_dim, attending->value_dim);
	struct hys_ocl_reach reach = {0};
	int64_t most, chosen;

	reach.rules = rules_of(size);
	reach.blocks = hys_ocl_blocks_of(
		hys_ocl_device(device), products->variant,
		hys_ocl_bundle(attending->heads, groups, attending->kv_heads), channels);
	reach.tile = hys_ocl_tile_of(&reach.blocks, attending->heads, groups, attending->kv_heads);
	reach.logit.scale = (float)attending->scale;
	reach.logit.softcap = (float)attending->softcap;
	most = reach_of(size->row_keys, size->keys);
	chosen = hys_add64(hys_mul64(reach.rules.topk, reach.rules.span),
			   (int64_t)attending->window + attending->first);
	reach.positions[0] = reach.rules.dense ? most : hys_max64(1, hys_min64(most, chosen));
	if (size->window_keys > 0)
		reach.positions[1] = reach_of(size->row_window_keys, size->window_keys);
	reach.tile.capacity =
		(int32_t)hys_ocl_capacity(device, (int64_t)reach.tile.bundles * reach.tile.pitch,
					  hys_max64(reach.positions[0], reach.positions[1]));
	return reach;
}

void hys_ocl_attention_define(const struct hys_ocl_source *source,
			      const struct hys_ocl_device *device,
			      const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_ocl_products *products = (const struct hys_ocl_products *)source;
	const struct hys_attending *attending = &problem->attending;
	const struct hys_ocl_blocks blocks = hys_ocl_blocks_of(
		device, products->variant,
		hys_ocl_bundle(attending->heads, problem->scoring.groups, attending->kv_heads),
		hys_max64(attending->head_dim, attending->value_dim));
	hys_ocl_define_blocks(options, products->variant, &blocks, attending->dtype);
}

void hys_ocl_rows_layout(struct hys_ocl_space *space, const struct hys_ocl_reach *reach,
			 struct hys_ocl_row_regions *rows, struct hys_ocl_operands *at)
{
	const int64_t set_bytes = 10 * (int64_t)sizeof(int32_t);
	const int64_t groups = reach->tile.groups;
	rows->sets = hys_ocl_take(space, groups * set_bytes);
	rows->starts = hys_ocl_take(space, groups * reach->rules.topk * (int64_t)sizeof(int32_t));
	rows->list = hys_ocl_take(space, groups * reach->tile.capacity * (int64_t)sizeof(int32_t));
	rows->count = hys_ocl_take(space, groups * (int64_t)sizeof(int32_t));
	at->list = rows->list;
	at->count = rows->count;
}

void hys_ocl_attention_open(struct hys_ocl_attention *attention, const struct hys_kernel *kernel,
			    struct hys_stream *stream, void *instance, const struct hys_call *call,
			    struct hys_error *error)
{
	const struct hys_ocl_products *products = kernel->detail;
	attention->reach = hys_ocl_reach_of(kernel, &stream->device->base, &call->size);
	attention->job = (struct hys_ocl_job){.stream = stream,
					      .instance = instance,
					      .variant = products->variant,
					      .blocks = attention->reach.blocks,
					      .work = call->workspace.buffer,
					      .error = error};
	attention->call = call;
	attention->map.step = 1;
}

/* The arguments that `clean` and `list_rows` begin with. */
static struct hys_ocl_args begin_rows(const struct hys_ocl_attention *attention, const char *entry)
{
	const struct hys_batch_view *batch = &attention->call->batch;
	const struct hys_tensor none = {0};
	const bool other = attention->reach.positions[1] > 0;
	struct hys_ocl_args args =
		hys_ocl_begin_named(attention->job.stream, attention->job.instance, entry);
	hys_ocl_arg_tensor(&args, attention->reach.rules.dense ? &none : attention->indices);
	hys_ocl_arg_array(&args, &batch->row_begin);
	hys_ocl_arg_array(&args, &batch->row_end);
	hys_ocl_arg_array(&args, &batch->key_origin);
	hys_ocl_arg_array(&args, &batch->entry_origin);
	hys_ocl_arg_array(&args, other ? &batch->window_begin : &none);
	hys_ocl_arg_array(&args, other ? &batch->window_end : &none);
	hys_ocl_arg(&args, &attention->map, sizeof(attention->map));
	hys_ocl_arg(&args, &attention->reach.rules, sizeof(attention->reach.rules));
	hys_ocl_arg_work(&args, &attention->job);
	return args;
}

hys_status hys_ocl_clean(const struct hys_ocl_attention *attention)
{
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t groups[1] = {hys_ocl_divide_up((int64_t)tile->rows * tile->groups, LOCAL)};
	const int64_t local[1] = {LOCAL};
	struct hys_ocl_args args = begin_rows(attention, "clean");
	hys_ocl_arg(&args, &attention->rows, sizeof(attention->rows));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

hys_status hys_ocl_list_rows(const struct hys_ocl_attention *attention,
			     const struct hys_ocl_lists *lists)
{
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t groups[1] = {
		hys_ocl_divide_up((int64_t)tile->rows * tile->groups, LISTS_OF_GROUP)};
	const int64_t local[1] = {128};
	struct hys_ocl_args args = begin_rows(attention, "list_rows");
	hys_ocl_arg(&args, lists, sizeof(*lists));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

hys_status hys_ocl_expand(const struct hys_ocl_attention *attention, int32_t source, int64_t first)
{
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t groups[2] = {(int64_t)tile->rows * tile->groups,
				   hys_ocl_divide_up(tile->capacity, EXPAND)};
	const int64_t local[2] = {LOCAL, 1};
	struct hys_ocl_args args =
		hys_ocl_begin_named(attention->job.stream, attention->job.instance, "expand");
	hys_ocl_arg_i32(&args, attention->reach.rules.span);
	hys_ocl_arg_i32(&args, attention->reach.rules.topk);
	hys_ocl_arg_i32(&args, source);
	hys_ocl_arg_i64(&args, first);
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, &attention->rows, sizeof(attention->rows));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 2, groups, local, attention->job.error);
}
