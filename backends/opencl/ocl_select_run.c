/* ocl_select_run.c - select: what is enqueued, tile of rows by tile of rows. */
#include "ocl_select.h"

/* As in select_fine_wgmma.cl: of work-groups that score two lines, of those that choose, what these hold. */
#define WGMMA_ITEMS 384
#define WGMMA_ORDER_ITEMS 512
#define WGMMA_HELD 8704

/* A call in progress. */
struct job {
	struct hys_stream *stream;
	void *instance;
	const struct hys_call *call;
	const struct hys_select_args *args;
	enum hys_ocl_scorer scorer;
	struct hys_ocl_select_tiles tiles;
	struct hys_ocl_select_layout layout;
	int64_t row_first, rows; /* of the tile */
	int64_t groups;
};

static struct hys_ocl_args begin(const struct job *job, const char *kernel)
{
	return hys_ocl_begin_named(job->stream, job->instance, kernel);
}

static hys_status launch(struct hys_ocl_args *args, int64_t groups_x, int64_t groups_y,
			 int64_t local, struct hys_error *error)
{
	const int64_t groups[2] = {groups_x, groups_y}, locals[2] = {local, 1};
	return hys_ocl_launch(args, 2, groups, locals, error);
}

/* ---- argument lists, as the macros of select_pick.clh ---- */

static void scoring_arg(struct hys_ocl_args *args, const struct job *job)
{
	const struct hys_scoring *scoring = &job->call->problem->scoring;
	const struct hys_choosing *choosing = &job->call->problem->choosing;
	const struct hys_ocl_scoring given = {
		.heads = scoring->heads,
		.group_heads = scoring->heads / scoring->groups,
		.groups = scoring->groups,
		.dim = scoring->dim,
		.relu = scoring->activation == HYS_ACTIVATION_RELU,
		.block = scoring->block,
		.first_blocks = choosing->first_blocks,
		.local_blocks = choosing->local_blocks,
		.coarse = choosing->coarse_block,
		.keep = choosing->coarse_keep,
		.scale = (cl_float)scoring->scale,
	};
	hys_ocl_arg(args, &given, sizeof(given));
}

static void row_args(struct hys_ocl_args *args, const struct job *job)
{
	scoring_arg(args, job);
	hys_ocl_arg_array(args, &job->call->batch.index_begin);
	hys_ocl_arg_array(args, &job->call->batch.index_end);
	hys_ocl_arg_array(args, &job->call->batch.entry_origin);
	hys_ocl_arg_i64(args, job->row_first);
}

static void key_args(struct hys_ocl_args *args, const struct job *job)
{
	hys_ocl_arg_tensor(args, &job->args->index_k);
	hys_ocl_arg_tensor(args, &job->args->index_k_scale);
}

static void score_args(struct hys_ocl_args *args, const struct job *job)
{
	row_args(args, job);
	hys_ocl_arg_tensor(args, &job->args->index_q);
	hys_ocl_arg_tensor(args, &job->args->index_q_scale);
	key_args(args, job);
	hys_ocl_arg_tensor(args, &job->args->index_w);
}

static void work_arg(struct hys_ocl_args *args, const struct job *job, int64_t offset)
{
	hys_ocl_arg_region(args, &job->call->workspace, offset);
}

/* The means, or nothing when entries are scored. */
static void means_arg(struct hys_ocl_args *args, const struct job *job, bool means)
{
	if (means) {
		work_arg(args, job, job->layout.means);
	} else {
		hys_ocl_arg(args, NULL, sizeof(cl_mem));
		hys_ocl_arg_i64(args, -1);
	}
}

static void lines_arg(struct hys_ocl_args *args, const struct job *job)
{
	work_arg(args, job, job->layout.lines);
	hys_ocl_arg_i64(args, job->layout.line_size);
}

static void lists_arg(struct hys_ocl_args *args, const struct job *job)
{
	work_arg(args, job, job->layout.lists);
	hys_ocl_arg_i32(args, job->layout.slots);
}

static void output_args(struct hys_ocl_args *args, const struct job *job)
{
	hys_ocl_arg_tensor(args, &job->args->indices);
	hys_ocl_arg_tensor(args, &job->args->counts);
	hys_ocl_arg_tensor(args, &job->args->scores);
	hys_ocl_arg_tensor(args, &job->args->kth);
	hys_ocl_arg_i32(args, job->call->size.topk);
}

/* ---- steps ---- */

static hys_status clear_flags(const struct job *job, struct hys_error *error)
{
	struct hys_region flags = job->call->workspace;
	flags.offset_bytes += job->layout.flags;
	flags.bytes = job->call->size.rows * (int64_t)sizeof(cl_int);
	return hys_backend_opencl.fill(job->stream, &flags, 0, error);
}

static hys_status coarse_means(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, "coarse_means");
	scoring_arg(&args, job);
	key_args(&args, job);
	hys_ocl_arg_array(&args, &job->call->batch.coarse_entry);
	work_arg(&args, job, job->layout.means);
	return launch(&args, job->layout.keys, 1, 64, error);
}

/* Packs keys [first, end), means or entries, to the workspace at `to`. */
static hys_status pack_keys(const struct job *job, bool means, int64_t first, int64_t end,
			    int64_t to, struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, "pack_keys");
	scoring_arg(&args, job);
	key_args(&args, job);
	means_arg(&args, job, means);
	hys_ocl_arg_i64(&args, first);
	hys_ocl_arg_i64(&args, end);
	work_arg(&args, job, to);
	return launch(&args, hys_ocl_divide_up(end - first, job->tiles.panel_keys), 1, 1, error);
}

static hys_status pack_q(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, "pack_q");
	scoring_arg(&args, job);
	hys_ocl_arg_tensor(&args, &job->args->index_q);
	hys_ocl_arg_tensor(&args, &job->args->index_q_scale);
	hys_ocl_arg_i64(&args, job->row_first);
	work_arg(&args, job, job->layout.packed);
	return launch(&args, job->groups * job->tiles.head_blocks, job->rows, 1, error);
}

static hys_status score_panels(const struct job *job, int64_t first, int64_t end,
			       struct hys_error *error)
{
	enum { ROWS = 8 }; /* of a work-item, as in select_cpu.cl */
	struct hys_ocl_args args = begin(job, "score_panels");
	row_args(&args, job);
	hys_ocl_arg_array(&args, &job->call->batch.coarse_base);
	hys_ocl_arg_i64(&args, job->call->op == HYS_OP_SELECT ? -1 : 0);
	hys_ocl_arg_tensor(&args, &job->args->index_w);
	work_arg(&args, job, job->layout.packed);
	work_arg(&args, job, job->layout.strip);
	hys_ocl_arg_i64(&args, first);
	hys_ocl_arg_i64(&args, end);
	hys_ocl_arg_i64(&args, job->rows);
	lines_arg(&args, job);
	return launch(&args, job->layout.line_size / job->tiles.panel_keys,
		      hys_ocl_divide_up(job->rows, ROWS), 1, error);
}

/* Keys are packed strip by strip; all at once, and only once, when they fit. */
static hys_status score_packed(const struct job *job, struct hys_error *error)
{
	const int64_t keys = job->layout.keys, strip = job->layout.strip_keys;
	hys_status status = HYS_OK;
	HYS_TRY(pack_q(job, error));
	for (int64_t first = 0; first < keys; first += strip) {
		int64_t end = hys_min64(first + strip, keys);
		if (job->row_first == 0 || strip < keys)
			HYS_TRY(pack_keys(job, job->call->op != HYS_OP_SELECT, first, end,
					  job->layout.strip, error));
		HYS_TRY(score_panels(job, first, end, error));
	}
cleanup:
	return status;
}

/* index_q as a matrix [rows * heads, dim] times the means; false when index_q is not
 * one, or too large for CLBlast, or when it does not pay. */
static bool as_gemm(const struct job *job, struct hys_ocl_gemm *gemm)
{
	const struct hys_tensor *q = &job->args->index_q;
	const struct hys_scoring *scoring = &job->call->problem->scoring;
	const struct hys_region *work = &job->call->workspace;
	const int64_t f32 = sizeof(float);
	if (q->stride[0] != q->stride[1] * scoring->heads || work->offset_bytes % f32 != 0)
		return false;
	/* With many documents most products would be in vain. */
	if (job->layout.keys == 0 || job->layout.row_keys < job->layout.keys / 2)
		return false;
	gemm->m = job->rows * scoring->heads;
	gemm->n = job->layout.keys;
	gemm->k = scoring->dim;
	gemm->a = q->buffer->native;
	gemm->b = gemm->c = work->buffer->native;
	gemm->a_offset = q->offset + job->row_first * q->stride[0];
	gemm->b_offset = (work->offset_bytes + job->layout.means) / f32;
	gemm->c_offset = (work->offset_bytes + job->layout.products) / f32;
	gemm->a_pitch = q->stride[1];
	gemm->b_pitch = scoring->dim;
	gemm->c_pitch = gemm->n;
	return hys_ocl_gemm_fits(gemm);
}

static hys_status score_by_products(const struct job *job, const struct hys_ocl_gemm *gemm,
				    struct hys_error *error)
{
	hys_status status = hys_ocl_gemm(job->stream, gemm, error);
	if (status != HYS_OK)
		return status;
	struct hys_ocl_args args = begin(job, "score_products");
	row_args(&args, job);
	hys_ocl_arg_array(&args, &job->call->batch.coarse_base);
	hys_ocl_arg_tensor(&args, &job->args->index_w);
	work_arg(&args, job, job->layout.products);
	hys_ocl_arg_i64(&args, job->layout.keys);
	lines_arg(&args, job);
	return launch(&args, hys_ocl_divide_up(job->layout.row_keys, 64), job->rows * job->groups,
		      64, error);
}

/* Tiles of all entries, each for a few rows: enough work-groups to fill the device, but a tile's keys
 * serve several rows. */
static hys_status score_entries(const struct job *job, struct hys_error *error)
{
	enum { ROWS = 16, GROUPS_PER_UNIT = 16 };
	const int64_t tiles = hys_ocl_divide_up(job->call->size.entries, job->tiles.matrix_keys);
	const int64_t wanted =
		GROUPS_PER_UNIT * hys_max64(1, job->stream->device->base.info.compute_units);
	const int64_t each = hys_max64(1, hys_min64(ROWS, job->rows * tiles / wanted));
	struct hys_ocl_args args = begin(job, "score_entries");
	score_args(&args, job);
	hys_ocl_arg_i64(&args, job->call->size.entries);
	hys_ocl_arg_i64(&args, job->rows);
	hys_ocl_arg_i32(&args, each);
	lines_arg(&args, job);
	return launch(&args, tiles, hys_ocl_divide_up(job->rows, each),
		      hys_ocl_unit_group(job->stream->device->unit), error);
}

/* Work-groups that score two lines each; their number is the last argument. */
static hys_status launch_pairs(struct hys_ocl_args *args, const struct job *job,
			       struct hys_error *error)
{
	const int64_t lines = job->rows * job->groups;
	hys_ocl_arg_i32(args, (int32_t)lines);
	return launch(args, 1, hys_ocl_divide_up(lines, 2), WGMMA_ITEMS, error);
}

/* Means as two bf16 each, the second what the first leaves. */
static hys_status split_means(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, "split_means");
	work_arg(&args, job, job->layout.means);
	work_arg(&args, job, job->layout.parts);
	return launch(&args, job->layout.keys, 1, 64, error);
}

static hys_status score_means(const struct job *job, struct hys_error *error)
{
	const int64_t dim = job->call->problem->scoring.dim;
	struct hys_ocl_args args = begin(job, "score_means");
	score_args(&args, job);
	hys_ocl_arg_array(&args, &job->call->batch.coarse_base);
	work_arg(&args, job, job->layout.parts);
	hys_ocl_arg_i64(&args, job->layout.keys * dim * 2);
	lines_arg(&args, job);
	return launch_pairs(&args, job, error);
}

/* Lines of scores of the tile's rows, over entries or complete coarse blocks. */
static hys_status score_keys(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_gemm gemm = {0};
	if (job->scorer == HYS_OCL_SCORE_CPU)
		return score_packed(job, error);
	if (job->scorer == HYS_OCL_SCORE_MATRIX)
		return score_entries(job, error);
	if (job->scorer == HYS_OCL_SCORE_WGMMA)
		return score_means(job, error);
	if (job->scorer == HYS_OCL_SCORE_CLBLAST && as_gemm(job, &gemm))
		return score_by_products(job, &gemm, error);
	const int64_t keys = job->scorer == HYS_OCL_SCORE_REF ? 64 : job->tiles.tile_keys;
	struct hys_ocl_args args = begin(job, "score_keys");
	score_args(&args, job);
	hys_ocl_arg_array(&args, &job->call->batch.coarse_base);
	means_arg(&args, job, job->call->op != HYS_OP_SELECT);
	lines_arg(&args, job);
	return launch(&args, hys_ocl_divide_up(job->layout.row_keys, keys), job->rows * job->groups,
		      64, error);
}

/* Calls `pick` for each run of groups that want the same number. */
static hys_status for_topk(const struct job *job,
			   hys_status (*pick)(const struct job *job, int64_t group_first,
					      int64_t group_count, struct hys_error *error),
			   struct hys_error *error)
{
	const int32_t *topk = job->call->topk;
	hys_status status = HYS_OK;
	for (int64_t first = 0, next; first < job->groups; first = next) {
		for (next = first + 1; next < job->groups && topk[next] == topk[first];)
			next++;
		HYS_TRY(pick(job, first, next - first, error));
	}
cleanup:
	return status;
}

static hys_status pick_entries(const struct job *job, int64_t group_first, int64_t group_count,
			       struct hys_error *error)
{
	const bool blocks = job->call->problem->scoring.block > 1;
	struct hys_ocl_args args = begin(job, "pick_entries");
	row_args(&args, job);
	work_arg(&args, job, blocks ? job->layout.blocks : job->layout.lines);
	hys_ocl_arg_i64(&args, blocks ? job->layout.block_line_size : job->layout.line_size);
	work_arg(&args, job, job->layout.flags);
	hys_ocl_arg_i32(&args, group_first);
	hys_ocl_arg_i32(&args, job->call->topk[group_first]);
	output_args(&args, job);
	return launch(&args, group_count, job->rows, job->tiles.pick, error);
}

static hys_status score_blocks(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, "score_blocks");
	row_args(&args, job);
	lines_arg(&args, job);
	work_arg(&args, job, job->layout.blocks);
	hys_ocl_arg_i64(&args, job->layout.block_line_size);
	work_arg(&args, job, job->layout.flags);
	return launch(&args, hys_ocl_divide_up(job->layout.block_line_size, 64),
		      job->rows * job->groups, 64, error);
}

static hys_status run_exact(const struct job *job, struct hys_error *error)
{
	hys_status status = HYS_OK;
	HYS_TRY(score_keys(job, error));
	if (job->call->problem->scoring.block > 1)
		HYS_TRY(score_blocks(job, error));
	HYS_TRY(for_topk(job, pick_entries, error));
cleanup:
	return status;
}

static hys_status pick_coarse(const struct job *job, int64_t group_first, int64_t group_count,
			      struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, "pick_coarse");
	row_args(&args, job);
	hys_ocl_arg_array(&args, &job->call->batch.coarse_base);
	lines_arg(&args, job);
	work_arg(&args, job, job->layout.flags);
	hys_ocl_arg_i32(&args, group_first);
	hys_ocl_arg_i32(&args, job->call->topk[group_first]);
	output_args(&args, job);
	return launch(&args, group_count, job->rows, job->tiles.pick, error);
}

static hys_status score_edges(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, "score_edges");
	score_args(&args, job);
	work_arg(&args, job, job->layout.edges);
	hys_ocl_arg_tensor(&args, &job->args->indices);
	hys_ocl_arg_tensor(&args, &job->args->scores);
	hys_ocl_arg_i32(&args, job->call->size.topk);
	return launch(&args, 2, job->rows, 64, error);
}

static hys_status run_coarse(const struct job *job, struct hys_error *error)
{
	hys_status status = HYS_OK;
	HYS_TRY(score_keys(job, error));
	HYS_TRY(for_topk(job, pick_coarse, error));
	if (hys_present(&job->args->scores))
		HYS_TRY(score_edges(job, error));
cleanup:
	return status;
}

static hys_status keep_coarse(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, "keep_coarse");
	row_args(&args, job);
	hys_ocl_arg_array(&args, &job->call->batch.coarse_base);
	lines_arg(&args, job);
	work_arg(&args, job, job->layout.flags);
	lists_arg(&args, job);
	return launch(&args, job->groups, job->rows, job->tiles.pick, error);
}

static hys_status score_kept(const struct job *job, struct hys_error *error)
{
	const int64_t entries = job->layout.slots * job->call->problem->choosing.coarse_block;
	const int64_t keys = job->scorer == HYS_OCL_SCORE_REF ? 64 : job->tiles.tile_keys;
	struct hys_ocl_args args = begin(job, "score_kept");
	if (job->scorer == HYS_OCL_SCORE_CPU) {
		row_args(&args, job);
		key_args(&args, job);
		hys_ocl_arg_tensor(&args, &job->args->index_w);
		work_arg(&args, job, job->layout.packed);
		work_arg(&args, job, job->layout.panels);
		work_arg(&args, job, job->layout.entries);
		hys_ocl_arg_i32(&args, job->layout.pack_entries);
	} else {
		score_args(&args, job);
	}
	lists_arg(&args, job);
	work_arg(&args, job, job->layout.fine);
	if (job->scorer == HYS_OCL_SCORE_CPU)
		return launch(&args, job->groups, job->rows, 1, error);
	if (job->scorer == HYS_OCL_SCORE_WGMMA)
		return launch_pairs(&args, job, error);
	if (job->scorer == HYS_OCL_SCORE_MATRIX_FINE)
		return launch(&args, hys_ocl_divide_up(entries, job->tiles.matrix_keys),
			      job->rows * job->groups,
			      hys_ocl_unit_group(job->stream->device->unit), error);
	return launch(&args, hys_ocl_divide_up(entries, keys), job->rows * job->groups, 64, error);
}

static hys_status score_kept_blocks(const struct job *job, struct hys_error *error)
{
	const struct hys_problem *problem = job->call->problem;
	const int64_t each = problem->choosing.coarse_block / problem->scoring.block;
	struct hys_ocl_args args = begin(job, "score_kept_blocks");
	row_args(&args, job);
	lists_arg(&args, job);
	work_arg(&args, job, job->layout.fine);
	work_arg(&args, job, job->layout.blocks);
	work_arg(&args, job, job->layout.flags);
	return launch(&args, hys_ocl_divide_up(job->layout.slots * each, 64),
		      job->rows * job->groups, 64, error);
}

/* Whether the entries of a line's kept blocks fit into the registers of one work-group. */
static bool held_at_once(const struct job *job)
{
	return job->scorer == HYS_OCL_SCORE_WGMMA && job->call->problem->scoring.block == 1 &&
	       job->layout.slots * job->call->problem->choosing.coarse_block <= WGMMA_HELD;
}

static hys_status pick_kept(const struct job *job, int64_t group_first, int64_t group_count,
			    struct hys_error *error)
{
	const bool blocks = job->call->problem->scoring.block > 1;
	const bool held = held_at_once(job);
	struct hys_ocl_args args = begin(job, held ? "choose_kept" : "pick_kept");
	row_args(&args, job);
	lists_arg(&args, job);
	work_arg(&args, job, blocks ? job->layout.blocks : job->layout.fine);
	work_arg(&args, job, job->layout.flags);
	hys_ocl_arg_i32(&args, group_first);
	hys_ocl_arg_i32(&args, job->call->topk[group_first]);
	output_args(&args, job);
	return launch(&args, group_count, job->rows, held ? WGMMA_ORDER_ITEMS : job->tiles.pick,
		      error);
}

static hys_status run_coarse_to_fine(const struct job *job, struct hys_error *error)
{
	hys_status status = HYS_OK;
	HYS_TRY(score_keys(job, error));
	HYS_TRY(keep_coarse(job, error));
	if (job->layout.pack_entries && job->row_first == 0)
		HYS_TRY(pack_keys(job, false, 0, job->call->size.entries, job->layout.entries,
				  error));
	HYS_TRY(score_kept(job, error));
	if (job->call->problem->scoring.block > 1)
		HYS_TRY(score_kept_blocks(job, error));
	HYS_TRY(for_topk(job, pick_kept, error));
cleanup:
	return status;
}

static hys_status count_nan_rows(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, "count_nan_rows");
	work_arg(&args, job, job->layout.flags);
	hys_ocl_arg_i64(&args, job->call->size.rows);
	hys_ocl_arg_tensor(&args, &job->args->nan_rows);
	return launch(&args, 1, 1, 64, error);
}

hys_status hys_ocl_select_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error)
{
	const struct hys_ocl_select *select = kernel->detail;
	const struct hys_ocl_device *device = stream->device;
	struct job job = {.stream = stream,
			  .instance = instance,
			  .call = call,
			  .args = &call->args.select,
			  .scorer = select->scorer,
			  .tiles = hys_ocl_select_tiles(select, device, call->problem),
			  .groups = call->problem->scoring.groups};
	hys_status status = HYS_OK;
	hys_ocl_select_lay_out(select, device, call->op, &call->size, &job.layout);
	HYS_TRY(clear_flags(&job, error));
	if (call->op != HYS_OP_SELECT)
		HYS_TRY(coarse_means(&job, error));
	if (job.scorer == HYS_OCL_SCORE_WGMMA)
		HYS_TRY(split_means(&job, error));
	for (; job.row_first < call->size.rows; job.row_first += job.layout.rows) {
		job.rows = hys_min64(job.layout.rows, call->size.rows - job.row_first);
		if (call->op == HYS_OP_SELECT)
			HYS_TRY(run_exact(&job, error));
		else if (call->op == HYS_OP_SELECT_COARSE)
			HYS_TRY(run_coarse(&job, error));
		else
			HYS_TRY(run_coarse_to_fine(&job, error));
	}
	if (hys_present(&job.args->nan_rows))
		HYS_TRY(count_nan_rows(&job, error));
cleanup:
	return status;
}
