/* ocl_attention_backward_gather.c - attention backward over gathered key rows, by wgmma: for each tile of
 * rows shares and slopes, then the gradients of keys and of rows. */
#include "ocl_gather.h"
#include "ocl_gradient.h"
#include "ocl_ptx.h"

#define STAGES_MAX 4
#define PAIR_KEYS 64
#define PAIR_BYTES HYS_OCL_CHUNK_BYTES
#define PAIR_SLOTS 4
#define BARRIER_BYTES 256
#define LARGEST_BYTES ((int64_t)HYS_OCL_ITEM_HEADS * 4)
#define PAIR_TILE_BYTES (2 * PAIR_BYTES + 2048) /* P, dS, and bounds */
#define BOUND_PARTS 256				/* of a largest bound, that bounds are summed in */
#define BOUND_ITEMS 256
/* A tile of rows: P and dS of all its pairs are in memory. After each, all sums of keys are added to
 * gradients: where those are large, so are tiles. */
#define TILE_BUDGET (INT64_C(640) << 20)
#define TILE_SUMS 3 /* or so many times the sums' bytes */
/* The more items add to a key's sums, the coarser their quanta are: so many at most, where each row reads many
 * of the keys, and more where a key is read by few rows. */
#define TILE_ITEMS 1056
#define TILE_ITEMS_MAX 4224
#define TILE_READINGS 66 /* of a key, on the average */
#define CLEAR_WORDS 1024

static const char *const entries[] = {HYS_OCL_PRODUCT_ENTRIES,
				      HYS_OCL_ROW_ENTRIES,
				      HYS_OCL_GRADIENT_ENTRIES,
				      "prepare",
				      "differentiate",
				      "finish_rows",
				      "add_sink",
				      "list_rows",
				      "slopes_shared",
				      "slopes_separate",
				      "key_gradients",
				      "row_gradients",
				      "sum_bounds",
				      "clear_words",
				      "fold_sums",
				      NULL};

/* ---- programs ---- */

struct shape {
	int64_t stages, bytes;
};

static struct shape slopes_shape(const struct hys_problem *problem, bool separate)
{
	const int64_t keys = problem->attending.head_dim / HYS_OCL_CHUNK;
	const int64_t values = problem->attending.value_dim / HYS_OCL_CHUNK;
	const int64_t stage =
		(keys + (separate ? values : 0)) * HYS_OCL_CHUNK_BYTES + LARGEST_BYTES;
	const int64_t exchange = problem->attending.softcap > 0 ? 2 * PAIR_BYTES : PAIR_BYTES;
	const int64_t others = exchange + LARGEST_BYTES + BARRIER_BYTES;
	struct shape shape = {0};
	shape.stages = hys_min64(STAGES_MAX, (HYS_PTX_LOCAL_MAX - others) / stage);
	if (shape.stages < 2 || (!separate && values > keys))
		shape.stages = 0;
	shape.bytes = others + shape.stages * stage;
	return shape;
}

static struct shape rows_shape(const struct hys_problem *problem)
{
	const int64_t stage =
		problem->attending.head_dim / HYS_OCL_CHUNK * HYS_OCL_CHUNK_BYTES + PAIR_BYTES;
	struct shape shape = {
		.stages = hys_min64(STAGES_MAX, (HYS_PTX_LOCAL_MAX - BARRIER_BYTES) / stage)};
	shape.bytes = shape.stages * stage + BARRIER_BYTES;
	return shape;
}

/* Items whose gradients of keys are added up before they go to memory. */
static int64_t key_parts(const struct hys_problem *problem)
{
	const struct hys_attending *attending = &problem->attending;
	const int64_t bundle =
		hys_ocl_bundle(attending->heads, problem->scoring.groups, attending->kv_heads);
	return bundle > HYS_OCL_ITEM_HEADS ? 2 : 1;
}

/* Their passes over chunks of keys' gradients: `stages` chunks, each with q and dO. */
static struct shape keys_shape(const struct hys_problem *problem)
{
	const int64_t parts = key_parts(problem), chunk = 2 * parts * HYS_OCL_CHUNK_BYTES;
	const int64_t channels = problem->attending.head_dim + problem->attending.value_dim;
	const int64_t others = (int64_t)PAIR_SLOTS * 2 * PAIR_BYTES * parts + BARRIER_BYTES;
	struct shape shape = {.stages = hys_min64(channels / HYS_OCL_CHUNK,
						  (HYS_PTX_LOCAL_MAX - others) / chunk)};
	shape.bytes = others + shape.stages * chunk;
	return shape;
}

static void define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct shape shared = slopes_shape(problem, false);
	const struct shape separate = slopes_shape(problem, true);
	const struct shape rows = rows_shape(problem), keys = keys_shape(problem);
	hys_ocl_attention_define(source, device, problem, options);
	hys_ocl_gather_define(problem, options);
	hys_ocl_define(options, "STAGES_SHARED", shared.stages);
	hys_ocl_define(options, "LOCAL_SHARED", shared.bytes);
	hys_ocl_define(options, "STAGES_SEPARATE", separate.stages);
	hys_ocl_define(options, "LOCAL_SEPARATE", separate.bytes);
	hys_ocl_define(options, "STAGES_ROWS", rows.stages);
	hys_ocl_define(options, "LOCAL_ROWS", rows.bytes);
	hys_ocl_define(options, "KEY_PARTS", key_parts(problem));
	hys_ocl_define(options, "PASS_CHUNKS", keys.stages);
	hys_ocl_define(options, "LOCAL_KEYS", keys.bytes);
}

static void define_atomic(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
			  const struct hys_problem *problem, struct hys_ocl_options *options)
{
	define(source, device, problem, options);
	hys_ocl_define(options, "ORDER_FREE", 1);
}

const struct hys_ocl_products hys_ocl_backward_gather = {
	{"attention_backward_gather.cl", entries, define, NULL, "sm_90a"}, HYS_OCL_TILE};
const struct hys_ocl_products hys_ocl_backward_gather_atomic = {
	{"attention_backward_gather.cl", entries, define_atomic, NULL, "sm_90a"}, HYS_OCL_TILE};

/* ---- workspace ---- */

struct source {
	struct hys_ocl_gradient dk, dv;
	int64_t keys;
	bool shared;
};

struct backward {
	struct hys_ocl_attention attention;
	struct hys_ocl_lists lists; /* of the tile */
	struct hys_ocl_pair_regions pairs;
	struct hys_ocl_sum_regions sums;
	struct hys_ocl_head_regions heads;
	int64_t sink_sums;
	struct source sources[2];
	bool separate, wants_keys;
	bool order_free; /* nothing is rounded, and sums go on from tile to tile */
};

/* What does not depend on the tile. */
struct fixed {
	int64_t dk[2], dv[2], sink_sums, bounds, value_bounds, counts, value_counts, sums;
	int64_t words; /* of bounds, counts and sums, which lie together */
};

static int64_t place(int64_t *next, int64_t bytes)
{
	const int64_t at = *next;
	*next = hys_add64(at, hys_round_up(bytes, HYS_ALIGN));
	return at;
}

static int64_t lay_out_fixed(int64_t next, const struct hys_size *size, struct fixed *fixed)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t keys[2] = {size->keys, size->window_keys};
	const int64_t vectors = hys_mul64(hys_add64(keys[0], keys[1]),
					  attending->kv_heads * (int64_t)sizeof(float));
	const int64_t channels =
		attending->head_dim +
		(slopes_shape(size->problem, true).stages > 0 ? attending->value_dim : 0);
	for (int32_t i = 0; i < 2; i++) {
		fixed->dk[i] = place(&next, hys_ocl_gradient_bytes(attending->dtype, keys[i],
								   attending->kv_heads,
								   attending->head_dim));
		fixed->dv[i] = place(&next, hys_ocl_gradient_bytes(attending->dtype, keys[i],
								   attending->kv_heads,
								   attending->value_dim));
	}
	fixed->sink_sums = place(&next, 2 * (int64_t)sizeof(float) * attending->heads);
	fixed->bounds = place(&next, vectors);
	fixed->value_bounds = place(&next, vectors);
	fixed->counts = place(&next, vectors);
	fixed->value_counts = place(&next, vectors);
	fixed->sums = place(&next, hys_mul64(vectors, channels));
	fixed->words = (next - fixed->bounds) / 4;
	return next;
}

static int64_t row_items(const struct hys_ocl_reach *reach)
{
	struct hys_ocl_tile tile = reach->tile;
	tile.rows = 1;
	return hys_ocl_items(&tile);
}

/* The lists of `listed` rows, and a tile of space.rows; answers the end. */
static int64_t lay_out(struct hys_ocl_space space, int64_t listed,
		       const struct hys_ocl_reach *reach, struct backward *backward)
{
	const int64_t floats = (int64_t)sizeof(float) * reach->tile.bundles * reach->tile.pitch;
	const int64_t rows = space.rows;
	space.rows = listed;
	backward->lists = hys_ocl_take_lists(&space, reach);
	space.rows = rows;
	backward->pairs.tiles = hys_ocl_divide_up(backward->lists.pitch, PAIR_KEYS);
	backward->pairs.pairs = hys_ocl_take(
		&space, hys_mul64(backward->pairs.tiles, row_items(reach) * PAIR_TILE_BYTES));
	backward->heads.sink = hys_ocl_take(&space, floats);
	return space.next;
}

/* Bytes of `listed` rows' lists and of a tile. */
static int64_t bytes_of(int64_t listed, int64_t rows, const struct hys_ocl_reach *reach)
{
	struct backward scratch = {0};
	const struct hys_ocl_space space = {.rows = rows};
	return lay_out(space, listed, reach, &scratch);
}

static int64_t sums_bytes(const struct hys_size *size)
{
	struct fixed fixed;
	const int64_t end = lay_out_fixed(0, size, &fixed);
	return end - fixed.sums;
}

/* Items that may add to a key's sums. */
static int64_t items_max(const struct hys_size *size, const struct hys_ocl_reach *reach)
{
	const int64_t keys = hys_add64(size->keys, size->window_keys);
	const int64_t each = hys_max64(1, hys_add64(reach->positions[0], reach->positions[1]));
	return hys_max64(TILE_ITEMS,
			 hys_min64(TILE_ITEMS_MAX, hys_mul64(keys, TILE_READINGS) / each));
}

static int64_t rows_max(const struct hys_size *size, const struct hys_ocl_reach *reach)
{
	const int64_t budget = hys_max64(TILE_BUDGET, hys_mul64(sums_bytes(size), TILE_SUMS));
	const int64_t items = hys_max64(1, row_items(reach) / reach->tile.kv_heads);
	return hys_max64(1,
			 hys_min64(items_max(size, reach) / items, budget / bytes_of(0, 1, reach)));
}

/* Tiles of about one size, whose items fill the device's units. */
static int64_t tile_rows(const struct hys_device *device, const struct hys_size *size,
			 const struct hys_ocl_reach *reach)
{
	const int64_t rows = size->rows, most = rows_max(size, reach);
	const int64_t units = hys_max64(1, device->info.compute_units);
	const int64_t tiles = hys_max64(1, hys_ocl_divide_up(rows, most));
	const int64_t even = hys_round_up(hys_ocl_divide_up(rows, tiles), units);
	return hys_max64(1, hys_min64(rows, hys_min64(most, even)));
}

static int64_t listed_rows(int64_t rows, const struct hys_ocl_reach *reach)
{
	return hys_ocl_gather_rows(hys_max64(rows, 1), bytes_of(1, 0, reach));
}

int64_t hys_ocl_backward_gather_workspace(const struct hys_kernel *kernel,
					  const struct hys_device *device,
					  const struct hys_size *size)
{
	const struct hys_ocl_reach reach = hys_ocl_reach_of(kernel, device, size);
	const int64_t rows = hys_max64(1, hys_min64(size->rows, rows_max(size, &reach)));
	struct fixed fixed;
	return hys_max64(hys_ocl_backward_workspace(kernel, device, size),
			 hys_add64(lay_out_fixed(0, size, &fixed),
				   bytes_of(listed_rows(size->rows, &reach), rows, &reach)));
}

/* ---- launches ---- */

static struct hys_ocl_args begin(const struct backward *backward, const char *entry)
{
	return hys_ocl_begin_named(backward->attention.job.stream, backward->attention.job.instance,
				   entry);
}

/* The arguments that end most kernels, and a persistent launch. */
static hys_status launch(const struct backward *backward, struct hys_ocl_args *args, bool sums,
			 int64_t threads)
{
	const struct hys_ocl_attention *attention = &backward->attention;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t groups[1] = {hys_ocl_persistent(&attention->job, hys_ocl_items(tile))};
	hys_ocl_arg(args, &attention->map, sizeof(attention->map));
	hys_ocl_arg_work(args, &attention->job);
	hys_ocl_arg(args, &backward->lists, sizeof(backward->lists));
	hys_ocl_arg(args, &backward->pairs, sizeof(backward->pairs));
	if (sums)
		hys_ocl_arg(args, &backward->sums, sizeof(backward->sums));
	hys_ocl_arg(args, tile, sizeof(*tile));
	return hys_ocl_launch(args, 1, groups, &threads, attention->job.error);
}

static hys_status slopes(const struct backward *backward)
{
	const struct hys_attention_grad_args *tensors =
		&backward->attention.call->args.attention_grad;
	const struct hys_tensor *v = &tensors->v, *window_v = &tensors->window_v;
	struct hys_ocl_args args =
		begin(backward, backward->separate ? "slopes_separate" : "slopes_shared");
	hys_ocl_arg_tensor(&args, &tensors->q);
	hys_ocl_arg_tensor(&args, &tensors->k);
	hys_ocl_arg_tensor(&args, hys_present(v) ? v : &tensors->k);
	hys_ocl_arg_tensor(&args, &tensors->window_k);
	hys_ocl_arg_tensor(&args, hys_present(window_v) ? window_v : &tensors->window_k);
	hys_ocl_arg_tensor(&args, &tensors->sink);
	hys_ocl_arg_tensor(&args, &tensors->o);
	hys_ocl_arg_tensor(&args, &tensors->lse);
	hys_ocl_arg_tensor(&args, &tensors->grad_o);
	return launch(backward, &args, false, 512);
}

static hys_status key_gradients(const struct backward *backward)
{
	const struct hys_attention_grad_args *tensors =
		&backward->attention.call->args.attention_grad;
	struct hys_ocl_args args = begin(backward, "key_gradients");
	hys_ocl_arg_tensor(&args, &tensors->q);
	hys_ocl_arg_tensor(&args, &tensors->grad_o);
	return launch(backward, &args, true, 512);
}

static hys_status sum_bounds(const struct backward *backward)
{
	const struct hys_ocl_attention *attention = &backward->attention;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const int64_t groups[1] = {hys_ocl_items(tile)}, local[1] = {BOUND_ITEMS};
	struct hys_ocl_args args = begin(backward, "sum_bounds");
	hys_ocl_arg(&args, &attention->map, sizeof(attention->map));
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, &backward->lists, sizeof(backward->lists));
	hys_ocl_arg(&args, &backward->pairs, sizeof(backward->pairs));
	hys_ocl_arg(&args, &backward->sums, sizeof(backward->sums));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

static hys_status row_gradients(const struct backward *backward)
{
	const struct hys_attention_grad_args *tensors =
		&backward->attention.call->args.attention_grad;
	struct hys_ocl_args args = begin(backward, "row_gradients");
	hys_ocl_arg_tensor(&args, &tensors->k);
	hys_ocl_arg_tensor(&args, &tensors->window_k);
	hys_ocl_arg_tensor(&args, &tensors->dq);
	hys_ocl_arg_i32(&args, tensors->dq.dtype);
	hys_ocl_arg_i32(&args, (tensors->flags & HYS_GRAD_ACCUMULATE) != 0);
	hys_ocl_arg_i32(&args, hys_ocl_rows_aligned(&tensors->dq));
	return launch(backward, &args, false, 640);
}

static hys_status fold_source(const struct backward *backward, int32_t i)
{
	const struct hys_ocl_attention *attention = &backward->attention;
	const struct hys_attending *attending = &attention->call->problem->attending;
	const struct source *source = &backward->sources[i];
	const int64_t groups[1] = {source->keys * attending->kv_heads};
	const int64_t local[1] = {64};
	struct hys_ocl_args args = begin(backward, "fold_sums");
	hys_ocl_arg_tensor(&args, &source->dk.sums);
	hys_ocl_arg_tensor(&args, &source->dv.sums);
	hys_ocl_arg_i64(&args, i == 0 ? 0 : backward->sources[0].keys);
	hys_ocl_arg_i32(&args, source->shared);
	hys_ocl_arg_i32(&args, attending->head_dim);
	hys_ocl_arg_i32(&args, attending->value_dim);
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, &backward->pairs, sizeof(backward->pairs));
	hys_ocl_arg(&args, &backward->sums, sizeof(backward->sums));
	hys_ocl_arg(&args, &attention->reach.tile, sizeof(attention->reach.tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

static hys_status clear_sums(const struct backward *backward, const struct fixed *fixed)
{
	const int64_t groups[1] = {hys_ocl_divide_up(fixed->words, CLEAR_WORDS)};
	const int64_t local[1] = {64};
	struct hys_ocl_args args = begin(backward, "clear_words");
	hys_ocl_arg_work(&args, &backward->attention.job);
	hys_ocl_arg_i64(&args, fixed->bounds);
	hys_ocl_arg_i64(&args, fixed->words);
	return hys_ocl_launch(&args, 1, groups, local, backward->attention.job.error);
}

/* ---- the pass ---- */

static hys_status run_tile(const struct backward *backward, bool first_tile, bool last_tile)
{
	const struct hys_attention_grad_args *tensors =
		&backward->attention.call->args.attention_grad;
	hys_status status;

	HYS_TRY(slopes(backward));
	if (backward->wants_keys) {
		if (!backward->order_free)
			HYS_TRY(sum_bounds(backward));
		HYS_TRY(key_gradients(backward));
		for (int32_t i = 0; i < 2 && (!backward->order_free || last_tile); i++)
			HYS_TRY(fold_source(backward, i));
	}
	if (hys_present(&tensors->dq))
		HYS_TRY(row_gradients(backward));
	if (hys_present(&tensors->dsink))
		HYS_TRY(hys_ocl_add_sink(&backward->attention, &backward->heads,
					 backward->sink_sums, first_tile, last_tile));
cleanup:
	return status;
}

static hys_status open_source(struct backward *backward, int32_t i, int64_t keys, bool shared,
			      const struct hys_tensor *dk, const struct hys_tensor *dv,
			      const struct fixed *fixed)
{
	const struct hys_ocl_job *job = &backward->attention.job;
	const bool accumulate = hys_adds_sums(backward->attention.call->args.attention_grad.flags);
	struct source *source = &backward->sources[i];
	hys_status status;

	source->keys = keys;
	source->shared = shared;
	HYS_TRY(hys_ocl_gradient_open(job, dk, accumulate, fixed->dk[i], &source->dk));
	HYS_TRY(hys_ocl_gradient_open(job, dv, accumulate, fixed->dv[i], &source->dv));
	if (hys_present(dk) || hys_present(dv))
		backward->wants_keys = true;
cleanup:
	return status;
}

static hys_status open_sources(struct backward *backward, const struct fixed *fixed)
{
	const struct hys_call *call = backward->attention.call;
	const struct hys_attention_grad_args *tensors = &call->args.attention_grad;
	hys_status status;

	HYS_TRY(open_source(backward, 0, call->size.keys, !hys_present(&tensors->v), &tensors->dk,
			    &tensors->dv, fixed));
	HYS_TRY(open_source(backward, 1, call->size.window_keys, !hys_present(&tensors->window_v),
			    &tensors->dwindow_k, &tensors->dwindow_v, fixed));
	if (backward->wants_keys)
		HYS_TRY(clear_sums(backward, fixed));
cleanup:
	return status;
}

static void set_regions(struct backward *backward, const struct fixed *fixed)
{
	const struct hys_call *call = backward->attention.call;
	const struct hys_attending *attending = &call->problem->attending;
	backward->pairs.keys = call->size.keys;
	backward->pairs.bounds = backward->wants_keys && !backward->order_free ? fixed->bounds : -1;
	backward->pairs.value_bounds = fixed->value_bounds;
	backward->pairs.counts = fixed->counts;
	backward->pairs.value_counts = fixed->value_counts;
	backward->pairs.sink =
		hys_present(&call->args.attention_grad.dsink) ? backward->heads.sink : -1;
	backward->sums.sums = fixed->sums;
	backward->sums.separate = backward->separate;
	backward->sums.pitch =
		attending->head_dim + (backward->separate ? attending->value_dim : 0);
	backward->sums.parts = BOUND_PARTS;
	backward->sink_sums = fixed->sink_sums;
}

static bool fits(const struct hys_call *call, bool separate)
{
	const struct hys_attention_grad_args *tensors = &call->args.attention_grad;
	return slopes_shape(call->problem, separate).stages > 0 &&
	       hys_ocl_rows_aligned(&tensors->q) && hys_ocl_rows_aligned(&tensors->k) &&
	       hys_ocl_rows_aligned(&tensors->v) && hys_ocl_rows_aligned(&tensors->window_k) &&
	       hys_ocl_rows_aligned(&tensors->window_v) && hys_ocl_rows_aligned(&tensors->o) &&
	       hys_ocl_rows_aligned(&tensors->grad_o);
}

/* Rows [first, end), whose lists are all made at once. */
static hys_status run_tiles(struct backward *backward, int64_t first, int64_t end, int64_t tile)
{
	const int64_t rows = backward->attention.call->size.rows;
	const struct hys_ocl_lists lists = backward->lists;
	struct hys_ocl_attention *attention = &backward->attention;
	const int64_t numbers = (int64_t)sizeof(int32_t) * attention->reach.tile.groups;
	hys_status status;

	attention->map.first = first;
	attention->reach.tile.rows = (int32_t)(end - first);
	HYS_TRY(hys_ocl_list_rows(attention, &lists));
	for (int64_t row = first; row < end; row += tile) {
		backward->lists.list = lists.list + (row - first) * numbers * lists.pitch;
		backward->lists.count = lists.count + (row - first) * numbers;
		attention->map.first = row;
		attention->reach.tile.rows = (int32_t)hys_min64(tile, end - row);
		HYS_TRY(run_tile(backward, row == 0, row + tile >= rows));
	}
cleanup:
	backward->lists = lists;
	return status;
}

static hys_status run_rows(struct backward *backward, int64_t listed, int64_t tile)
{
	const int64_t rows = backward->attention.call->size.rows;
	hys_status status = HYS_OK;

	/* whole tiles, so that the same rows share one however many are listed */
	listed = hys_max64(tile, listed / tile * tile);
	for (int64_t row = 0; row < rows; row += listed)
		HYS_TRY(run_tiles(backward, row, hys_min64(rows, row + listed), tile));
	if (rows == 0 && hys_present(&backward->attention.call->args.attention_grad.dsink))
		HYS_TRY(hys_ocl_add_sink(&backward->attention, &backward->heads,
					 backward->sink_sums, true, true));
cleanup:
	return status;
}

hys_status hys_ocl_backward_gather_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				       void *instance, const struct hys_call *call,
				       struct hys_error *error)
{
	struct backward backward = {0};
	struct hys_ocl_attention *attention = &backward.attention;
	struct hys_ocl_space space = {0};
	struct fixed fixed;
	int64_t listed;
	hys_status status;

	backward.order_free = kernel->order_free;
	backward.separate = hys_present(&call->args.attention_grad.v) ||
			    hys_present(&call->args.attention_grad.window_v);
	if (!fits(call, backward.separate))
		return hys_ocl_backward(kernel, stream, instance, call, error);
	hys_ocl_attention_open(attention, kernel, stream, instance, call, error);
	attention->indices = &call->args.attention_grad.indices;
	space.next = lay_out_fixed(call->workspace.offset_bytes, &call->size, &fixed);
	listed = listed_rows(call->size.rows, &attention->reach);
	space.rows =
		hys_min64(listed, tile_rows(&stream->device->base, &call->size, &attention->reach));
	lay_out(space, listed, &attention->reach, &backward);
	HYS_TRY(open_sources(&backward, &fixed));
	set_regions(&backward, &fixed);
	HYS_TRY(run_rows(&backward, listed, space.rows));
	for (int32_t i = 0; i < 2; i++) {
		HYS_TRY(hys_ocl_gradient_close(&attention->job, &backward.sources[i].dk));
		HYS_TRY(hys_ocl_gradient_close(&attention->job, &backward.sources[i].dv));
	}
cleanup:
	return status;
}
