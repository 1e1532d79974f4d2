/* ocl_loss_gather.c - the indexer loss over gathered key rows, by wgmma. Host side of
 * cl_kernels/indexer_loss_gather.cl: for each tile of rows their sets, teachers and scores, then, by the
 * kernels of every loss, d score, and gradients. */
#include <stdio.h>

#include "ocl_gather.h"
#include "ocl_loss.h"
#include "ocl_loss_parts.h"
#include "ocl_ptx.h"

#define HEADS_MAX 64 /* of the indexer: one product's */
#define INDEX_CHUNKS_MAX 2
#define KEY_CHUNKS_MAX 9
#define STAGES_MAX 4
#define WARPS 4 /* of 64 heads: each gives shares of its own */
#define TILE_BUDGET (INT64_C(512) << 20)
#define TILE_ROWS_MAX 2112
#define CLEAR_WORDS 1024
#define LOCAL 64

static const char *const entries[] = {
	OCL_LOSS_ENTRIES, "list_sets",	 "find_totals", "find_shares",
	"join_shares",	  "find_scores", "learn",	"bound_entries",
	"clear_words",	  "fold_sums",	 NULL};

/* ---- the program ---- */

static int64_t key_chunks(const struct hys_problem *problem)
{
	return problem->attending.head_dim / HYS_OCL_CHUNK;
}

static int64_t index_chunks(const struct hys_problem *problem)
{
	return problem->scoring.dim / HYS_OCL_CHUNK;
}

/* Tiles in flight, and the local memory that they take with `others`. */
static int64_t stages_of(int64_t stage, int64_t others, int64_t *bytes)
{
	const int64_t stages = hys_min64(STAGES_MAX, (HYS_PTX_LOCAL_MAX - others) / stage);
	*bytes = stages * stage + others;
	return stages;
}

static void define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_scoring *scoring = &problem->scoring;
	const int64_t entry = index_chunks(problem) * HYS_OCL_CHUNK_BYTES;
	int64_t bytes;
	ocl_loss_define(source, device, problem, options);
	hys_ocl_define(options, "ELEMENT_TYPE", problem->attending.dtype);
	hys_ocl_define_f32(options, "SCALE", problem->attending.scale);
	if (problem->attending.softcap > 0)
		hys_ocl_define_f32(options, "SOFTCAP", problem->attending.softcap);
	hys_ocl_define(options, "KEY_CHUNKS", key_chunks(problem));
	hys_ocl_define_f32(options, "INDEX_SCALE", scoring->scale);
	hys_ocl_define(options, "INDEX_RELU", scoring->activation == HYS_ACTIVATION_RELU);
	hys_ocl_define(options, "INDEX_CHUNKS", index_chunks(problem));
	hys_ocl_define(options, "TEACHER_STAGES",
		       stages_of(key_chunks(problem) * HYS_OCL_CHUNK_BYTES, 64, &bytes));
	hys_ocl_define(options, "LOCAL_SHARES", bytes);
	/* two halves, each with heads and slopes twice */
	hys_ocl_define(
		options, "INDEX_STAGES",
		stages_of(2 * entry, 2 * (2 * entry + 2 * HYS_OCL_CHUNK_BYTES) + 256, &bytes));
	hys_ocl_define(options, "LOCAL_LEARN", bytes);
}

const struct hys_ocl_products hys_ocl_loss_wgmma = {
	{"indexer_loss_gather.cl", entries, define, NULL, "sm_90a"}, HYS_OCL_TILE};

bool hys_ocl_loss_gather_applicable(const struct hys_kernel *kernel,
				    const struct hys_device *device,
				    const struct hys_problem *problem, char reason[HYS_REASON_SIZE])
{
	const struct hys_scoring *scoring = &problem->scoring;
	const struct hys_attending *attending = &problem->attending;
	(void)kernel;
	(void)device;
	reason[0] = 0;
	if (scoring->dtype != HYS_BF16 || attending->dtype != HYS_BF16)
		snprintf(reason, HYS_REASON_SIZE, "needs bf16");
	else if (scoring->groups != 1 || attending->kv_heads != 1)
		snprintf(reason, HYS_REASON_SIZE, "needs one group and one kv head");
	else if (scoring->pool != 1 || hys_index_span(problem) != 1 || hys_index_step(problem) != 1)
		snprintf(reason, HYS_REASON_SIZE, "needs indices of single key rows");
	else if (attending->head_dim % HYS_OCL_CHUNK || key_chunks(problem) > KEY_CHUNKS_MAX)
		snprintf(reason, HYS_REASON_SIZE, "needs head_dim to be a multiple of %d up to %d",
			 HYS_OCL_CHUNK, KEY_CHUNKS_MAX * HYS_OCL_CHUNK);
	else if (scoring->dim % HYS_OCL_CHUNK || index_chunks(problem) > INDEX_CHUNKS_MAX ||
		 scoring->heads > HEADS_MAX)
		snprintf(reason, HYS_REASON_SIZE,
			 "needs up to %d index heads of %d or %d dimensions", HEADS_MAX,
			 HYS_OCL_CHUNK, INDEX_CHUNKS_MAX * HYS_OCL_CHUNK);
	return reason[0] == 0;
}

/* ---- workspace ---- */

struct learning {
	struct ocl_loss loss;
	struct hys_ocl_pair_regions bounds;
	struct hys_ocl_sum_regions sums;
	int64_t shares;	 /* of warps, bytes behind the start of the workspace */
	int64_t cleared; /* words of bounds, counts and sums, which lie together */
};

static int64_t head_parts(const struct ocl_loss *loss)
{
	return hys_ocl_divide_up(loss->reach.teacher.heads, HYS_OCL_ITEM_HEADS);
}

/* Bounds and sums of the entries' gradients, from byte `next` on; answers the end. */
static int64_t lay_out_sums(int64_t next, const struct hys_size *size, struct learning *learning)
{
	const int64_t entries_bytes = hys_mul64(size->entries, (int64_t)sizeof(float));
	const int64_t each = hys_round_up(entries_bytes, HYS_ALIGN);
	learning->bounds.bounds = next;
	learning->bounds.counts = hys_add64(next, each);
	learning->bounds.sink = -1;
	learning->sums.sums = hys_add64(learning->bounds.counts, each);
	learning->sums.parts = 1;
	learning->sums.pitch = size->problem->scoring.dim;
	next = hys_add64(
		learning->sums.sums,
		hys_round_up(hys_mul64(entries_bytes, size->problem->scoring.dim), HYS_ALIGN));
	learning->cleared = (next - learning->bounds.bounds) / 4;
	return next;
}

/* A tile of space.rows rows; answers the end. */
static int64_t lay_out(struct hys_ocl_space space, struct learning *learning)
{
	const struct ocl_loss_reach *reach = &learning->loss.reach;
	struct ocl_loss_layout *layout = &learning->loss.layout;
	const int64_t number = (int64_t)sizeof(int32_t);
	layout->sets.sets = hys_ocl_take(&space, 8 * number);
	layout->sets.slots = hys_ocl_take(&space, number * reach->units);
	layout->sets.index = hys_ocl_take(&space, number * reach->units);
	layout->sets.count = hys_ocl_take(&space, number);
	layout->at.score = hys_ocl_take(&space, number * reach->units);
	layout->at.teacher = hys_ocl_take(&space, number * reach->units);
	layout->at.most = reach->units;
	layout->at.loss = hys_ocl_take(&space, number);
	layout->at.w = hys_ocl_take(&space, number * reach->scores.pitch);
	layout->totals.most = hys_ocl_take(&space, number * reach->teacher.pitch);
	layout->totals.sum = hys_ocl_take(&space, number * reach->teacher.pitch);
	layout->totals.whole = hys_ocl_take(&space, number * reach->teacher.pitch);
	learning->shares =
		hys_ocl_take(&space, head_parts(&learning->loss) * WARPS * number * reach->units);
	return space.next;
}

static int64_t tile_rows(int64_t rows, struct learning *learning)
{
	const struct hys_ocl_space one = {.rows = 1};
	const int64_t most = TILE_BUDGET / hys_max64(1, lay_out(one, learning));
	return hys_max64(1, hys_min64(rows, hys_min64(most, TILE_ROWS_MAX)));
}

int64_t hys_ocl_loss_gather_workspace(const struct hys_kernel *kernel,
				      const struct hys_device *device, const struct hys_size *size)
{
	struct learning learning = {0};
	struct hys_ocl_space space = {0};
	learning.loss.reach = ocl_loss_reach_of(kernel, device, size, false);
	space.rows = tile_rows(size->rows, &learning);
	space.next = lay_out_sums(ocl_loss_fixed_bytes(size), size, &learning);
	return hys_max64(hys_ocl_loss_workspace(kernel, device, size), lay_out(space, &learning));
}

/* ---- launches ---- */

static struct hys_ocl_args begin(const struct learning *learning, const char *entry)
{
	return hys_ocl_begin_named(learning->loss.job.stream, learning->loss.job.instance, entry);
}

static hys_status launch(const struct learning *learning, struct hys_ocl_args *args, int64_t x,
			 int64_t y, int64_t items)
{
	const int64_t groups[2] = {x, y}, local[2] = {items, 1};
	return hys_ocl_launch(args, 2, groups, local, learning->loss.job.error);
}

static hys_status list_sets(const struct learning *learning)
{
	const struct ocl_loss *loss = &learning->loss;
	const struct hys_batch_view *batch = &loss->call->batch;
	struct hys_ocl_args args = begin(learning, "list_sets");
	hys_ocl_arg_tensor(&args, &loss->args->indices);
	hys_ocl_arg_array(&args, &batch->row_begin);
	hys_ocl_arg_array(&args, &batch->row_end);
	hys_ocl_arg_array(&args, &batch->index_begin);
	hys_ocl_arg_array(&args, &batch->index_end);
	hys_ocl_arg_array(&args, &batch->key_origin);
	hys_ocl_arg_array(&args, &batch->entry_origin);
	hys_ocl_arg(&args, &loss->map, sizeof(loss->map));
	hys_ocl_arg(&args, &loss->reach.rules, sizeof(loss->reach.rules));
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.sets, sizeof(loss->layout.sets));
	hys_ocl_arg(&args, &loss->reach.scores, sizeof(loss->reach.scores));
	return launch(learning, &args, hys_ocl_divide_up(loss->reach.scores.rows, 4), 1, 128);
}

/* Shares by heads' totals, or, with find_totals, the totals. */
static hys_status share(const struct learning *learning, const char *entry)
{
	const struct ocl_loss *loss = &learning->loss;
	const int64_t items = loss->reach.teacher.rows * hys_ocl_divide_up(head_parts(loss), 2);
	struct hys_ocl_args args = begin(learning, entry);
	hys_ocl_arg_tensor(&args, &loss->args->q);
	hys_ocl_arg_tensor(&args, &loss->args->k);
	hys_ocl_arg(&args, &loss->map, sizeof(loss->map));
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.sets, sizeof(loss->layout.sets));
	hys_ocl_arg(&args, &loss->layout.totals, sizeof(loss->layout.totals));
	hys_ocl_arg_i64(&args, learning->shares);
	hys_ocl_arg_i32(&args, loss->reach.units);
	hys_ocl_arg(&args, &loss->reach.teacher, sizeof(loss->reach.teacher));
	return launch(learning, &args, hys_ocl_persistent(&loss->job, items), 1, 384);
}

static hys_status join_shares(const struct learning *learning)
{
	const struct ocl_loss *loss = &learning->loss;
	struct hys_ocl_args args = begin(learning, "join_shares");
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.sets, sizeof(loss->layout.sets));
	hys_ocl_arg(&args, &loss->layout.at, sizeof(loss->layout.at));
	hys_ocl_arg_i64(&args, learning->shares);
	hys_ocl_arg(&args, &loss->reach.teacher, sizeof(loss->reach.teacher));
	return launch(learning, &args, loss->reach.teacher.rows,
		      hys_ocl_divide_up(loss->reach.units, LOCAL), LOCAL);
}

/* Gradients by d score, or, with find_scores, the scores. */
static hys_status learn(const struct learning *learning, const char *entry)
{
	const struct ocl_loss *loss = &learning->loss;
	const struct hys_tensor *dq = &loss->args->d_index_q;
	struct hys_ocl_args args = begin(learning, entry);
	hys_ocl_arg_tensor(&args, &loss->args->index_q);
	hys_ocl_arg_tensor(&args, &loss->args->index_k);
	hys_ocl_arg_tensor(&args, dq);
	hys_ocl_arg_tensor(&args, &loss->args->d_index_w);
	hys_ocl_arg_i32(&args, dq->dtype);
	hys_ocl_arg_i32(&args, loss->accumulate);
	hys_ocl_arg_i32(&args, hys_ocl_rows_aligned(dq));
	hys_ocl_arg(&args, &loss->map, sizeof(loss->map));
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.sets, sizeof(loss->layout.sets));
	hys_ocl_arg(&args, &loss->layout.at, sizeof(loss->layout.at));
	hys_ocl_arg(&args, &learning->bounds, sizeof(learning->bounds));
	hys_ocl_arg(&args, &learning->sums, sizeof(learning->sums));
	hys_ocl_arg(&args, &loss->reach.scores, sizeof(loss->reach.scores));
	return launch(learning, &args,
		      hys_ocl_persistent(&loss->job, hys_ocl_divide_up(loss->reach.scores.rows, 2)),
		      1, 512);
}

static hys_status bound_entries(const struct learning *learning)
{
	const struct ocl_loss *loss = &learning->loss;
	struct hys_ocl_args args = begin(learning, "bound_entries");
	hys_ocl_arg_tensor(&args, &loss->args->index_q);
	hys_ocl_arg(&args, &loss->map, sizeof(loss->map));
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &loss->layout.sets, sizeof(loss->layout.sets));
	hys_ocl_arg(&args, &loss->layout.at, sizeof(loss->layout.at));
	hys_ocl_arg(&args, &learning->bounds, sizeof(learning->bounds));
	hys_ocl_arg(&args, &loss->reach.scores, sizeof(loss->reach.scores));
	return launch(learning, &args, loss->reach.scores.rows, 1, LOCAL);
}

static hys_status fold_sums(const struct learning *learning)
{
	const struct ocl_loss *loss = &learning->loss;
	const struct hys_tensor none = {0};
	struct hys_ocl_args args = begin(learning, "fold_sums");
	hys_ocl_arg_tensor(&args, &loss->dk.sums);
	hys_ocl_arg_tensor(&args, &none);
	hys_ocl_arg_i64(&args, 0);
	hys_ocl_arg_i32(&args, true);
	hys_ocl_arg_i32(&args, learning->sums.pitch);
	hys_ocl_arg_i32(&args, 0);
	hys_ocl_arg_work(&args, &loss->job);
	hys_ocl_arg(&args, &learning->bounds, sizeof(learning->bounds));
	hys_ocl_arg(&args, &learning->sums, sizeof(learning->sums));
	hys_ocl_arg(&args, &loss->reach.scores, sizeof(loss->reach.scores));
	return launch(learning, &args, loss->call->size.entries, 1, LOCAL);
}

static hys_status clear_sums(const struct learning *learning)
{
	struct hys_ocl_args args = begin(learning, "clear_words");
	hys_ocl_arg_work(&args, &learning->loss.job);
	hys_ocl_arg_i64(&args, learning->bounds.bounds);
	hys_ocl_arg_i64(&args, learning->cleared);
	return launch(learning, &args, hys_ocl_divide_up(learning->cleared, CLEAR_WORDS), 1, LOCAL);
}

/* ---- the order of kernels ---- */

static hys_status teach(const struct learning *learning)
{
	const struct ocl_loss *loss = &learning->loss;
	hys_status status;

	if (hys_present(&loss->args->teacher_in))
		return ocl_loss_take(loss, &loss->args->teacher_in, loss->layout.at.teacher);
	if (!hys_present(&loss->args->lse))
		HYS_TRY(share(learning, "find_totals"));
	HYS_TRY(ocl_loss_set_totals(loss));
	HYS_TRY(share(learning, "find_shares"));
	HYS_TRY(join_shares(learning));
cleanup:
	return status;
}

static hys_status add_gradients(const struct learning *learning)
{
	const bool wants_keys = hys_present(&learning->loss.dk.sums);
	hys_status status;

	if (wants_keys)
		HYS_TRY(bound_entries(learning));
	HYS_TRY(learn(learning, "learn"));
	if (wants_keys)
		HYS_TRY(fold_sums(learning));
cleanup:
	return status;
}

static hys_status run_tile(const struct learning *learning)
{
	const struct ocl_loss *loss = &learning->loss;
	hys_status status;

	HYS_TRY(list_sets(learning));
	HYS_TRY(teach(learning));
	if (hys_present(&loss->args->teacher_out))
		HYS_TRY(ocl_loss_store_teacher(loss));
	if (!loss->wants_gradients && !hys_present(&loss->args->loss))
		goto cleanup;
	HYS_TRY(ocl_loss_pack_weights(loss));
	if (hys_present(&loss->args->scores))
		HYS_TRY(ocl_loss_take(loss, &loss->args->scores, loss->layout.at.score));
	else
		HYS_TRY(learn(learning, "find_scores"));
	HYS_TRY(ocl_loss_judge(loss));
	if (loss->wants_gradients)
		HYS_TRY(add_gradients(learning));
cleanup:
	return status;
}

/* Whether entries can be copied 16 bytes at a time. */
static bool entries_aligned(const struct hys_tensor *tensor)
{
	const int64_t pieces = 8;
	return tensor->offset % pieces == 0 && tensor->stride[0] % pieces == 0 &&
	       tensor->stride[0] < INT32_MAX;
}

static bool fits(const struct hys_loss_args *args)
{
	return !(args->flags & HYS_LOSS_DENSE) && hys_ocl_rows_aligned(&args->index_q) &&
	       entries_aligned(&args->index_k) && hys_ocl_rows_aligned(&args->q) &&
	       hys_ocl_rows_aligned(&args->k);
}

hys_status hys_ocl_loss_gather(const struct hys_kernel *kernel, struct hys_stream *stream,
			       void *instance, const struct hys_call *call, struct hys_error *error)
{
	struct learning learning = {.loss = ocl_loss_make(kernel, stream, instance, call, error)};
	struct ocl_loss *loss = &learning.loss;
	const int64_t start = call->workspace.offset_bytes, first = loss->map.first;
	struct hys_ocl_space space = {0};
	hys_status status;

	if (!fits(&call->args.loss))
		return hys_ocl_loss(kernel, stream, instance, call, error);
	space.rows = tile_rows(loss->rows, &learning);
	space.next =
		lay_out_sums(start + ocl_loss_fixed_bytes(&call->size), &call->size, &learning);
	lay_out(space, &learning);
	loss->layout.at.factor = start;
	HYS_TRY(ocl_loss_open(loss, start + HYS_ALIGN));
	if (hys_present(&loss->dk.sums))
		HYS_TRY(clear_sums(&learning));
	else
		learning.bounds.bounds = -1;
	for (int64_t row = 0; row < loss->rows; row += space.rows) {
		const int32_t rows = (int32_t)hys_min64(space.rows, loss->rows - row);
		loss->map.first = first + row * loss->map.step;
		loss->reach.scores.rows = loss->reach.teacher.rows = rows;
		HYS_TRY(run_tile(&learning));
	}
	HYS_TRY(hys_ocl_gradient_close(&loss->job, &loss->dk));
	if (hys_present(&call->args.loss.loss))
		HYS_TRY(ocl_loss_store(loss));
cleanup:
	return status;
}
