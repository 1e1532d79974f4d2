/* ocl_flash_backward.c - attention backward on NVIDIA's tensor cores.
 *
 * Keys and values are packed once; rows in chunks that fit a bounded workspace. Of one chunk
 * alone gradients of keys are written where they belong; of several they are summed in f32. */
#include "ocl_flash_backward.h"

#include <stdio.h>

#define LOCAL 256
#define BARRIER_BYTES 1024
#define INFO_BYTES 16 /* of a packed row */
#define REACH_BYTES 16
#define REACH_ROWS 64
#define PANEL(columns) (HYS_OCL_PANEL_BYTES * (int64_t)hys_ocl_panels(columns))

/* Places of the rings, as the kernels have them. */
#define KEY_STAGES 3
#define VALUE_STAGES 2
#define PLACES 3	/* of packed rows, for keys of 128 */
#define LISTED_PLACES 4 /* for those of 64 */
#define PLACE_ROWS 64
#define PLACE_EXTRA (1024 + 64)

/* Most channels that registers take. */
#define DIM_MAX 128

/* Packed rows of a chunk: as many as need this much, or with slopes. */
#define CHUNK_BYTES (INT64_C(5) << 28)
#define SLOPES_BYTES (INT64_C(10) << 30)
#define DOT_LANES 8
#define EIGHT 8

static void define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_ocl_flash_way *way = (const struct hys_ocl_flash_way *)source;
	const int64_t head = PANEL(problem->attending.head_dim);
	const int64_t value = PANEL(problem->attending.value_dim);
	const int64_t keys = way->lists ? HYS_OCL_LISTED_KEYS : HYS_OCL_FLASH_TILE_KEYS;
	int64_t rows_local = (head + value) * HYS_OCL_FLASH_TILE_ROWS +
			     (KEY_STAGES * head + VALUE_STAGES * value) * HYS_OCL_FLASH_TILE_KEYS +
			     BARRIER_BYTES;
	(void)device;
	if (way->lists) {
		hys_ocl_flash_define_tiles(way, problem, options);
		rows_local = hys_ocl_flash_tiles_of(way, problem).local_bytes;
	} else {
		hys_ocl_flash_define(problem, options);
	}
	if (way->lists)
		hys_ocl_define(options, "SLOPES_LOCAL", hys_ocl_slopes_local(problem));
	hys_ocl_define(options, "ROWS_LOCAL", rows_local);
	hys_ocl_define(options, "KEYS_LOCAL",
		       (head + value) * keys +
			       (way->lists ? LISTED_PLACES : PLACES) *
				       ((head + value) * PLACE_ROWS + PLACE_EXTRA) +
			       BARRIER_BYTES);
}

#define ENTRIES                                                                            \
	HYS_OCL_PACK_ENTRIES, HYS_OCL_GRADIENT_ENTRIES, "prepare_rows", "reach_of_tiles",  \
		"pack_rows", "find_largest", "clear_largest", "sum_sink", "backward_rows", \
		"backward_keys"
static const char *const dense_entries[] = {ENTRIES, NULL};
static const char *const blocks_entries[] = {ENTRIES, HYS_OCL_LIST_ENTRIES, "sum_slopes", NULL};
const struct hys_ocl_flash_way hys_ocl_flash_backward_dense = {
	.source = {.file = "flash_backward_wgmma.cl",
		   .entries = dense_entries,
		   .define = define,
		   .rewrite = "sm_90a"},
	.large = true,
};
const struct hys_ocl_flash_way hys_ocl_flash_backward_blocks = {
	.source = {.file = "flash_backward_blocks.cl",
		   .entries = blocks_entries,
		   .define = define,
		   .rewrite = "sm_90a"},
	.large = true,
	.lists = true,
};

bool hys_ocl_flash_backward_applicable(const struct hys_kernel *kernel,
				       const struct hys_device *device,
				       const struct hys_problem *problem,
				       char reason[HYS_REASON_SIZE])
{
	const struct hys_ocl_flash_way *way = kernel->detail;
	if (way->lists)
		return hys_ocl_flash_tiles_applicable(kernel, device, problem, reason);
	if (!hys_ocl_flash_can(problem, DIM_MAX, DIM_MAX, reason))
		return false;
	if (!hys_ocl_flash_is_dense(problem))
		snprintf(reason, HYS_REASON_SIZE, "only for dense attention");
	return hys_ocl_flash_is_dense(problem);
}

/* ---- workspace ---- */

/* Behind the last row lies at least one that is all zero. */
static int64_t packed_pitch(int64_t rows, int64_t pad)
{
	return hys_round_up(hys_mul64(rows, pad), HYS_OCL_FLASH_TILE_ROWS) +
	       hys_round_up(pad, HYS_OCL_FLASH_TILE_ROWS);
}

struct hys_ocl_packed_rows hys_ocl_backward_packed(const struct hys_problem *problem)
{
	const struct hys_attending *attending = &problem->attending;
	struct hys_ocl_packed_rows packed = {0};
	packed.groups = hys_ocl_flash_is_dense(problem) ? 1 : problem->scoring.groups;
	packed.bundle =
		(int32_t)hys_ocl_bundle(attending->heads, packed.groups, attending->kv_heads);
	packed.pad = hys_ocl_flash_pad(problem);
	packed.bundles = attending->heads / packed.bundle;
	packed.kv_heads = attending->kv_heads;
	return packed;
}

/* Rows of a chunk: the same for every call of a problem, so that sums are. */
static int64_t chunk_rows(const struct hys_problem *problem)
{
	const struct hys_attending *attending = &problem->attending;
	const struct hys_ocl_packed_rows packed = hys_ocl_backward_packed(problem);
	const int64_t row = (int64_t)packed.bundles * packed.pad *
			    (PANEL(attending->head_dim) + PANEL(attending->value_dim) +
			     (int64_t)SETS * INFO_BYTES);
	const int64_t slopes = hys_ocl_slopes_bytes(problem, 1, problem->choosing.topk_max);
	const int64_t rows = hys_min64(CHUNK_BYTES / row, SLOPES_BYTES / hys_max64(slopes, 1));
	return hys_max64(1, rows / HYS_OCL_FLASH_TILE_ROWS) * HYS_OCL_FLASH_TILE_ROWS;
}

static int64_t take(int64_t *next, int64_t bytes)
{
	const int64_t at = *next;
	*next = hys_add64(*next, hys_round_up(bytes, HYS_ALIGN));
	return at;
}

static void lay_out_rows(int64_t *next, const struct hys_size *size,
			 struct hys_ocl_packed_rows *packed)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t rows = hys_min64(size->rows, chunk_rows(size->problem));
	int64_t all;

	*packed = hys_ocl_backward_packed(size->problem);
	all = hys_mul64(packed_pitch(rows, packed->pad), packed->bundles);
	packed->q = take(next, hys_mul64(all, PANEL(attending->head_dim)));
	packed->grad_o = take(next, hys_mul64(all, PANEL(attending->value_dim)));
	for (int32_t i = 0; i < SETS; i++) {
		packed->info[i] = take(next, hys_mul64(all, INFO_BYTES));
		packed->reach[i] = take(next, hys_mul64(all / REACH_ROWS, REACH_BYTES));
	}
	packed->most = take(next, 2 * (int64_t)sizeof(uint32_t));
}

static int64_t lay_out_lists(int64_t next, const struct hys_size *size,
			     struct hys_ocl_backward *backward)
{
	const int64_t rows = hys_min64(size->rows, chunk_rows(size->problem));

	next = hys_ocl_flash_lay_out_lists(next, size, rows, &backward->lists);
	backward->slopes = -1;
	if (hys_ocl_keeps_slopes(size->problem))
		backward->slopes =
			take(&next, hys_ocl_slopes_bytes(size->problem, rows, size->topk));
	return next;
}

/* Everything, from byte `next` on; answers the end. */
static int64_t lay_out(int64_t next, const struct hys_size *size, struct hys_ocl_backward *backward)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t keys[2] = {size->keys, size->window_keys};

	next = hys_ocl_flash_layout(next, size, backward->sources);
	lay_out_rows(&next, size, &backward->packed);
	if (backward->way->lists)
		next = lay_out_lists(next, size, backward);
	backward->several = size->rows > chunk_rows(size->problem);
	for (int32_t i = 0; i < 2 && backward->several; i++) {
		backward->sums[i][0] = take(&next, hys_ocl_gradient_bytes(attending->dtype, keys[i],
									  attending->kv_heads,
									  attending->head_dim));
		backward->sums[i][1] = take(&next, hys_ocl_gradient_bytes(attending->dtype, keys[i],
									  attending->kv_heads,
									  attending->value_dim));
	}
	return next;
}

int64_t hys_ocl_flash_backward_workspace(const struct hys_kernel *kernel,
					 const struct hys_device *device,
					 const struct hys_size *size)
{
	struct hys_ocl_backward scratch = {.way = kernel->detail};
	(void)device;
	return lay_out(0, size, &scratch);
}

/* ---- rows ---- */

static struct hys_ocl_args begin(const struct hys_ocl_backward *backward, const char *entry)
{
	return hys_ocl_begin_named(backward->job.stream, backward->job.instance, entry);
}

static int64_t packed_count(const struct hys_ocl_backward *backward)
{
	return backward->packed.pitch * backward->packed.bundles;
}

/* Enqueues `each` work-items for each packed row of each bundle. */
static hys_status launch_rows(const struct hys_ocl_backward *backward, struct hys_ocl_args *args,
			      int64_t each)
{
	const int64_t groups[2] = {hys_ocl_divide_up(backward->packed.pitch * each, LOCAL),
				   backward->packed.bundles};
	const int64_t locals[2] = {LOCAL, 1};
	return hys_ocl_launch(args, 2, groups, locals, backward->job.error);
}

static hys_status prepare_set(const struct hys_ocl_backward *backward, int32_t set)
{
	const struct hys_attention_grad_args *tensors = &backward->chunk.args.attention_grad;
	const struct hys_batch_view *batch = &backward->chunk.batch;
	const bool other = set == SET_OTHER;
	const struct hys_ocl_rules own = hys_ocl_flash_rules(&backward->chunk.size);
	const struct hys_ocl_rules dense = {.dense = 1};
	const struct hys_ocl_rules rules = other ? dense : own;
	struct hys_ocl_args args = begin(backward, "prepare_rows");
	hys_ocl_arg_tensor(&args, &tensors->o);
	hys_ocl_arg_tensor(&args, &tensors->grad_o);
	hys_ocl_arg_i32(&args,
			hys_ocl_flash_wide(&tensors->o) && hys_ocl_flash_wide(&tensors->grad_o));
	hys_ocl_arg_i32(&args, tensors->o.shape[2]);
	hys_ocl_arg_tensor(&args, &tensors->lse);
	hys_ocl_arg_tensor(&args, &tensors->sink);
	hys_ocl_arg_array(&args, other ? &batch->window_begin : &batch->row_begin);
	hys_ocl_arg_array(&args, other ? &batch->window_end : &batch->row_end);
	hys_ocl_arg(&args, &rules, sizeof(rules));
	hys_ocl_arg(&args, &backward->packed, sizeof(backward->packed));
	hys_ocl_arg_i32(&args, set);
	hys_ocl_arg_i32(&args, set == SET_WINDOW); /* the first of all: packs grad_o, too */
	hys_ocl_arg_work(&args, &backward->job);
	return launch_rows(backward, &args, DOT_LANES);
}

static hys_status reach_of_tiles(const struct hys_ocl_backward *backward, int32_t set)
{
	struct hys_ocl_args args = begin(backward, "reach_of_tiles");
	hys_ocl_arg(&args, &backward->packed, sizeof(backward->packed));
	hys_ocl_arg_i32(&args, set);
	hys_ocl_arg_work(&args, &backward->job);
	return hys_ocl_flash_launch(&args, packed_count(backward) / REACH_ROWS, LOCAL,
				    backward->job.error);
}

/* The numbers of each row, which SET_WINDOW has even where nothing sees by it, and intervals. */
static hys_status prepare_rows(const struct hys_ocl_backward *backward)
{
	const uint32_t other = hys_present(&backward->sources[1].k) ? 1u << SET_OTHER : 0;
	const uint32_t sets = backward->sets | 1u << SET_WINDOW | other;
	hys_status status = HYS_OK;

	for (int32_t set = 0; set < SETS; set++)
		if (sets >> set & 1) {
			HYS_TRY(prepare_set(backward, set));
			if (set == SET_OTHER || backward->sets >> set & 1)
				HYS_TRY(reach_of_tiles(backward, set));
		}
cleanup:
	return status;
}

static hys_status pack_rows(const struct hys_ocl_backward *backward)
{
	const struct hys_tensor *tensor = &backward->chunk.args.attention_grad.q;
	const int32_t panels = hys_ocl_panels(tensor->shape[2]);
	struct hys_ocl_args args = begin(backward, "pack_rows");
	hys_ocl_arg_tensor(&args, tensor);
	hys_ocl_arg_i32(&args, hys_ocl_flash_wide(tensor));
	hys_ocl_arg_i32(&args, tensor->shape[2]);
	hys_ocl_arg(&args, &backward->packed, sizeof(backward->packed));
	hys_ocl_arg_work(&args, &backward->job);
	return launch_rows(backward, &args, panels * (HYS_OCL_PANEL_BYTES / 16));
}

/* ---- the range of f16 ---- */

/* Of `bytes` bytes in runs of `run` that begin `step` after each other. */
static hys_status find_largest(const struct hys_ocl_backward *backward, int64_t from, int64_t bytes,
			       int64_t run, int64_t step, int32_t number)
{
	struct hys_ocl_args args = begin(backward, "find_largest");
	hys_ocl_arg_work(&args, &backward->job);
	hys_ocl_arg_i64(&args, from);
	hys_ocl_arg_i64(&args, bytes / 16);
	hys_ocl_arg_i64(&args, run);
	hys_ocl_arg_i64(&args, step);
	hys_ocl_arg_i64(&args, backward->packed.most + number * (int64_t)sizeof(uint32_t));
	return hys_ocl_flash_launch(&args, bytes / 16, LOCAL, backward->job.error);
}

static hys_status find_most(const struct hys_ocl_backward *backward)
{
	const struct hys_attending *attending = &backward->call->problem->attending;
	/* with lists eight rows of q's panels and of grad_o's lie beside each other */
	const int64_t value = EIGHT * PANEL(attending->value_dim);
	const int64_t both = value + EIGHT * PANEL(attending->head_dim);
	const int64_t all = packed_count(backward) * PANEL(attending->value_dim);
	struct hys_ocl_args args = begin(backward, "clear_largest");
	hys_status status;

	hys_ocl_arg_work(&args, &backward->job);
	hys_ocl_arg_i64(&args, backward->packed.most);
	HYS_TRY(hys_ocl_flash_launch(&args, 2, 1, backward->job.error));
	if (backward->way->lists)
		HYS_TRY(find_largest(backward, backward->packed.q + both - value, all, value, both,
				     0));
	else
		HYS_TRY(find_largest(backward, backward->packed.grad_o, all, all, all, 0));
	for (int32_t i = 0; i < 2; i++)
		if (hys_present(&backward->sources[i].k)) {
			const int64_t bytes = backward->sources[i].pitch * attending->kv_heads *
					      PANEL(attending->value_dim);
			HYS_TRY(find_largest(backward, backward->sources[i].values, bytes, bytes,
					     bytes, 1));
		}
cleanup:
	return status;
}

/* ---- passes ---- */

struct hys_ocl_put hys_ocl_backward_gradient(const struct hys_tensor *tensor, bool add)
{
	struct hys_ocl_put gradient = {0};
	gradient.type = (int32_t)tensor->dtype;
	gradient.columns = hys_present(tensor) ? (int32_t)tensor->shape[2] : 0;
	gradient.add = add;
	gradient.pairs = hys_ocl_flash_pairs(tensor);
	return gradient;
}

/* How a row pass goes over its items. */
static int64_t row_groups(const struct hys_ocl_backward *backward)
{
	const struct hys_ocl_flash *flash = &backward->flash;
	const int64_t items = (int64_t)flash->tiles * flash->bundles;
	const int64_t units = backward->job.stream->device->base.info.compute_units;
	return backward->way->lists ? hys_min64(items, units) : items;
}

static hys_status row_pass(const struct hys_ocl_backward *backward)
{
	const struct hys_attention_grad_args *tensors = &backward->chunk.args.attention_grad;
	const struct hys_ocl_put to =
		hys_ocl_backward_gradient(&tensors->dq, tensors->flags & HYS_GRAD_ACCUMULATE);
	const struct hys_ocl_rules rules = hys_ocl_flash_rules(&backward->chunk.size);
	struct hys_ocl_args args = begin(backward, "backward_rows");
	if (!hys_present(&tensors->dq))
		return HYS_OK;
	hys_ocl_flash_arg_reading(&args, &tensors->indices, &backward->chunk.batch,
				  hys_present(&backward->sources[1].k));
	hys_ocl_arg(&args, &rules, sizeof(rules));
	hys_ocl_arg_tensor(&args, &tensors->dq);
	hys_ocl_arg(&args, &to, sizeof(to));
	hys_ocl_arg_work(&args, &backward->job);
	hys_ocl_arg(&args, &backward->flash, sizeof(backward->flash));
	hys_ocl_arg(&args, &backward->packed, sizeof(backward->packed));
	return hys_ocl_flash_launch(&args, row_groups(backward) * HYS_OCL_FLASH_THREADS,
				    HYS_OCL_FLASH_THREADS, backward->job.error);
}

static hys_status key_pass(const struct hys_ocl_backward *backward, int32_t i)
{
	const struct hys_ocl_flash_source *source = &backward->sources[i];
	const struct hys_tensor *dk =
		backward->several ? &backward->dk[i].sums : &backward->dk[i].out;
	const struct hys_tensor *dv =
		backward->several ? &backward->dv[i].sums : &backward->dv[i].out;
	const int64_t keys = backward->way->lists ? HYS_OCL_LISTED_KEYS : HYS_OCL_FLASH_TILE_KEYS;
	const bool add = backward->several || backward->accumulate;
	const struct hys_ocl_put dk_to = hys_ocl_backward_gradient(dk, add);
	struct hys_ocl_put dv_to = hys_ocl_backward_gradient(dv, add);
	struct hys_ocl_args args = begin(backward, "backward_keys");
	if (!hys_present(&source->k) || (!hys_present(dk) && !hys_present(dv)))
		return HYS_OK;
	dv_to.columns = backward->call->problem->attending.value_dim;
	hys_ocl_arg_tensor(&args, dk);
	hys_ocl_arg(&args, &dk_to, sizeof(dk_to));
	hys_ocl_arg_tensor(&args, dv);
	hys_ocl_arg(&args, &dv_to, sizeof(dv_to));
	hys_ocl_arg_i32(&args, source->shared);
	hys_ocl_arg_i32(&args, i);
	hys_ocl_arg_i32(&args, i == 0 ? backward->sets : 1u << SET_OTHER);
	hys_ocl_arg_i64(&args, source->count);
	hys_ocl_arg_work(&args, &backward->job);
	hys_ocl_arg(&args, &backward->flash, sizeof(backward->flash));
	hys_ocl_arg(&args, &backward->packed, sizeof(backward->packed));
	if (backward->way->lists)
		hys_ocl_arg(&args, &backward->lists, sizeof(backward->lists));
	return hys_ocl_flash_launch(&args,
				    hys_ocl_divide_up(source->count, keys) *
					    backward->packed.kv_heads * HYS_OCL_FLASH_THREADS,
				    HYS_OCL_FLASH_THREADS, backward->job.error);
}

static hys_status sum_sink(const struct hys_ocl_backward *backward, bool first)
{
	const struct hys_attention_grad_args *tensors = &backward->chunk.args.attention_grad;
	struct hys_ocl_args args = begin(backward, "sum_sink");
	if (!hys_present(&tensors->dsink))
		return HYS_OK;
	hys_ocl_arg_tensor(&args, &tensors->sink);
	hys_ocl_arg_tensor(&args, &tensors->dsink);
	hys_ocl_arg_i32(&args, backward->accumulate || !first);
	hys_ocl_arg(&args, &backward->packed, sizeof(backward->packed));
	hys_ocl_arg_work(&args, &backward->job);
	return hys_ocl_flash_launch(&args, (int64_t)backward->flash.heads * LOCAL, LOCAL,
				    backward->job.error);
}

/* ---- chunks ---- */

static void skip_rows(struct hys_tensor *tensor, int64_t rows)
{
	if (hys_present(tensor))
		tensor->offset += rows * tensor->stride[0];
}

static void cut_chunk(struct hys_ocl_backward *backward, int64_t first, int64_t rows)
{
	struct hys_call *chunk = &backward->chunk;
	struct hys_attention_grad_args *tensors = &chunk->args.attention_grad;
	struct hys_tensor *const of_rows[] = {&tensors->q,
					      &tensors->o,
					      &tensors->lse,
					      &tensors->grad_o,
					      &tensors->dq,
					      &tensors->indices,
					      &chunk->batch.row_begin,
					      &chunk->batch.row_end,
					      &chunk->batch.window_begin,
					      &chunk->batch.window_end};
	*chunk = *backward->call;
	chunk->size.rows = rows;
	for (size_t i = 0; i < sizeof(of_rows) / sizeof(of_rows[0]); i++)
		skip_rows(of_rows[i], first);
	backward->flash = hys_ocl_flash_of(chunk, backward->sources);
	backward->packed.rows = (int32_t)rows;
	backward->packed.pitch = packed_pitch(rows, backward->packed.pad);
}

static hys_status run_chunk(struct hys_ocl_backward *backward, int64_t first, int64_t rows)
{
	const struct hys_attention_grad_args *tensors = &backward->chunk.args.attention_grad;
	hys_status status;

	cut_chunk(backward, first, rows);
	HYS_TRY(prepare_rows(backward));
	if (backward->sets >> LISTED)
		HYS_TRY(hys_ocl_flash_make_lists(&backward->job, &backward->chunk,
						 &tensors->indices, &backward->lists));
	HYS_TRY(pack_rows(backward));
	if (tensors->q.dtype == HYS_F16)
		HYS_TRY(find_most(backward));
	if (backward->lists.slopes < 0)
		HYS_TRY(row_pass(backward));
	for (int32_t i = 0; i < 2; i++)
		HYS_TRY(key_pass(backward, i));
	if (backward->lists.slopes >= 0)
		HYS_TRY(hys_ocl_sum_slopes(backward));
	HYS_TRY(sum_sink(backward, first == 0));
cleanup:
	return status;
}

/* ---- the pass ---- */

static void open_sources(struct hys_ocl_backward *backward)
{
	const struct hys_attention_grad_args *tensors = &backward->call->args.attention_grad;
	const struct hys_batch_view *batch = &backward->call->batch;

	hys_ocl_flash_open_source(&backward->sources[0], backward->call->problem, &tensors->k,
				  &tensors->v, &batch->row_begin, &batch->row_end);
	hys_ocl_flash_open_source(&backward->sources[1], backward->call->problem,
				  &tensors->window_k, &tensors->window_v, &batch->window_begin,
				  &batch->window_end);
	backward->dk[0].out = tensors->dk;
	backward->dv[0].out = tensors->dv;
	backward->dk[1].out = tensors->dwindow_k;
	backward->dv[1].out = tensors->dwindow_v;
}

/* By which sets rows see the first source. */
static uint32_t sets_of(const struct hys_call *call)
{
	const struct hys_ocl_rules rules = hys_ocl_flash_rules(&call->size);
	const bool listed = hys_present(&call->args.attention_grad.indices) && rules.topk > 0;

	return (rules.dense || rules.window > 0 ? 1u << SET_WINDOW : 0) |
	       (!rules.dense && rules.first > 0 ? 1u << SET_FIRST : 0) |
	       (listed ? 1u << LISTED : 0);
}

static hys_status open_sums(struct hys_ocl_backward *backward)
{
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < 2 && backward->several; i++) {
		const struct hys_tensor dk = backward->dk[i].out, dv = backward->dv[i].out;
		HYS_TRY(hys_ocl_gradient_open(&backward->job, &dk, backward->accumulate,
					      backward->sums[i][0], &backward->dk[i]));
		HYS_TRY(hys_ocl_gradient_open(&backward->job, &dv, backward->accumulate,
					      backward->sums[i][1], &backward->dv[i]));
	}
cleanup:
	return status;
}

static hys_status close_sums(const struct hys_ocl_backward *backward)
{
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < 2 && backward->several; i++) {
		HYS_TRY(hys_ocl_gradient_close(&backward->job, &backward->dk[i]));
		HYS_TRY(hys_ocl_gradient_close(&backward->job, &backward->dv[i]));
	}
cleanup:
	return status;
}

hys_status hys_ocl_flash_backward(const struct hys_kernel *kernel, struct hys_stream *stream,
				  void *instance, const struct hys_call *call,
				  struct hys_error *error)
{
	const int64_t rows = call->size.rows, each = chunk_rows(call->problem);
	struct hys_ocl_backward backward = {.job = {.stream = stream,
						    .instance = instance,
						    .work = call->workspace.buffer,
						    .error = error},
					    .way = kernel->detail,
					    .call = call,
					    .sets = sets_of(call)};
	hys_status status;

	backward.accumulate = hys_adds_sums(call->args.attention_grad.flags);
	lay_out(call->workspace.offset_bytes, &call->size, &backward);
	open_sources(&backward);
	HYS_TRY(open_sums(&backward));
	HYS_TRY(hys_ocl_flash_pack(&backward.job, call, &call->args.attention_grad.indices,
				   backward.sources));
	backward.lists.slopes = hys_ocl_slopes_of(&backward);
	for (int64_t row = 0; row == 0 || row < rows; row += each)
		HYS_TRY(run_chunk(&backward, row, hys_min64(each, rows - row)));
	HYS_TRY(close_sums(&backward));
cleanup:
	return status;
}
