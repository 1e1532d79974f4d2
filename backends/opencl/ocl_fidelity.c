/* ocl_fidelity.c - how much of dense attention a selection captures. */
#include "ocl_fidelity.h"

/* Of lines of masses, which limits the rows of a tile. */
#define TILE_BYTES ((int64_t)64 << 20)

enum { DENSE_MASS, JUDGE };

static void define(const struct hys_ocl_source *own, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_attending *attending = &problem->attending;
	(void)own;
	(void)device;
	hys_ocl_define(options, "Q_TYPE", attending->dtype);
	hys_ocl_define(options, "HEADS", attending->heads);
	hys_ocl_define(options, "KV_HEADS", attending->kv_heads);
	hys_ocl_define(options, "HEAD_DIM", attending->head_dim);
	hys_ocl_define(options, "GROUPS", problem->scoring.groups);
	hys_ocl_define_f32(options, "SCALE", attending->scale);
	hys_ocl_define_f32(options, "SOFTCAP", attending->softcap);
	hys_ocl_define(options, "SPAN", hys_index_span(problem));
	hys_ocl_define(options, "STEP", hys_index_step(problem));
	hys_ocl_define(options, "POOLED", problem->scoring.pool > 1);
	hys_ocl_define(options, "WINDOW", attending->window);
	hys_ocl_define(options, "FIRST", attending->first);
}

static const char *const entries[] = {"dense_mass", "judge", NULL};
const struct hys_ocl_source hys_ocl_fidelity_source = {"fidelity.cl", entries, define, NULL, NULL};

/* Two lines, of masses and of logits, for each sampled row and group of a tile. */
struct layout {
	int64_t line_size; /* floats */
	int64_t rows;
	int64_t logits; /* offset in bytes */
	int64_t bytes;
};

static struct layout lay_out(const struct hys_size *size)
{
	const int64_t groups = size->problem->scoring.groups;
	const int64_t most = size->row_keys ? size->row_keys : size->keys;
	struct layout layout = {.line_size = hys_round_up(most + 1, 64)};
	const int64_t each = groups * layout.line_size * (int64_t)sizeof(float);
	const int64_t limit = hys_max64(TILE_BYTES / 2, each);
	layout.rows = hys_min64(hys_max64(1, limit / each), hys_max64(1, size->rows));
	layout.rows = hys_min64(layout.rows, HYS_OCL_GROUPS_MAX);
	/* Fewer keys may allow more rows: never more than the limit. */
	layout.logits = hys_min64(limit, hys_mul64(hys_max64(1, size->rows), each));
	layout.logits = hys_round_up(layout.logits, HYS_ALIGN);
	layout.bytes = 2 * layout.logits;
	return layout;
}

int64_t hys_ocl_fidelity_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				   const struct hys_size *size)
{
	(void)kernel;
	(void)device;
	return lay_out(size).bytes;
}

/* Sampled rows [first, first + count * stride) of the call. */
struct tile {
	struct hys_stream *stream;
	void *instance;
	const struct hys_call *call;
	struct layout layout;
	int64_t first, stride, count;
};

static void row_args(struct hys_ocl_args *args, const struct tile *tile)
{
	hys_ocl_arg_array(args, &tile->call->batch.row_begin);
	hys_ocl_arg_array(args, &tile->call->batch.row_end);
}

static hys_status launch(struct hys_ocl_args *args, const struct tile *tile,
			 struct hys_error *error)
{
	const int64_t groups[2] = {tile->call->problem->scoring.groups, tile->count};
	const int64_t local[2] = {64, 1};
	return hys_ocl_launch(args, 2, groups, local, error);
}

static hys_status dense_mass(const struct tile *tile, struct hys_error *error)
{
	const struct hys_fidelity_args *fidelity = &tile->call->args.fidelity;
	struct hys_ocl_args args = hys_ocl_begin(tile->stream, tile->instance, DENSE_MASS);
	hys_ocl_arg_tensor(&args, &fidelity->q);
	hys_ocl_arg_tensor(&args, &fidelity->k);
	row_args(&args, tile);
	hys_ocl_arg_i64(&args, tile->first);
	hys_ocl_arg_i64(&args, tile->stride);
	hys_ocl_arg_region(&args, &tile->call->workspace, 0);
	hys_ocl_arg_region(&args, &tile->call->workspace, tile->layout.logits);
	hys_ocl_arg_i64(&args, tile->layout.line_size);
	return launch(&args, tile, error);
}

static hys_status judge(const struct tile *tile, struct hys_error *error)
{
	const struct hys_fidelity_args *fidelity = &tile->call->args.fidelity;
	struct hys_ocl_args args = hys_ocl_begin(tile->stream, tile->instance, JUDGE);
	hys_ocl_arg_tensor(&args, &fidelity->indices);
	hys_ocl_arg_i32(&args, hys_present(&fidelity->indices) ? fidelity->indices.shape[2] : 0);
	hys_ocl_arg_tensor(&args, &fidelity->reference);
	hys_ocl_arg_i32(&args,
			hys_present(&fidelity->reference) ? fidelity->reference.shape[2] : 0);
	row_args(&args, tile);
	hys_ocl_arg_array(&args, &tile->call->batch.key_origin);
	hys_ocl_arg_array(&args, &tile->call->batch.entry_origin);
	hys_ocl_arg_i64(&args, tile->first);
	hys_ocl_arg_i64(&args, tile->stride);
	hys_ocl_arg_region(&args, &tile->call->workspace, 0);
	hys_ocl_arg_i64(&args, tile->layout.line_size);
	hys_ocl_arg_f32(&args, fidelity->target_mass);
	hys_ocl_arg_tensor(&args, &fidelity->mass);
	hys_ocl_arg_tensor(&args, &fidelity->recall);
	hys_ocl_arg_tensor(&args, &fidelity->topk_needed);
	return launch(&args, tile, error);
}

hys_status hys_ocl_fidelity(const struct hys_kernel *kernel, struct hys_stream *stream,
			    void *instance, const struct hys_call *call, struct hys_error *error)
{
	const struct hys_fidelity_args *fidelity = &call->args.fidelity;
	const int64_t stride = hys_max64(1, fidelity->row_stride);
	const bool dense = hys_present(&fidelity->mass) || hys_present(&fidelity->topk_needed);
	struct tile tile = {.stream = stream,
			    .instance = instance,
			    .call = call,
			    .layout = lay_out(&call->size),
			    .stride = stride};
	hys_status status = HYS_OK;
	(void)kernel;
	/* Batch rows are sampled: the first of them in this call. */
	tile.first = fidelity->row_offset - call->row_first % stride;
	tile.first += tile.first < 0 ? stride : 0;
	while (tile.first < call->size.rows) {
		tile.count = hys_min64(tile.layout.rows,
				       hys_ocl_divide_up(call->size.rows - tile.first, stride));
		if (dense)
			HYS_TRY(dense_mass(&tile, error));
		HYS_TRY(judge(&tile, error));
		tile.first += tile.count * stride;
	}
cleanup:
	return status;
}
