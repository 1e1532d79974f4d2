/* ocl_attention_gather.c - attention forward over gathered key rows, by wgmma. */
#include "ocl_gather.h"
#include "ocl_ptx.h"

#define THREADS 512
#define TILE_KEYS 48
#define STAGES_MAX 4
#define Q_REGISTERS_MAX 5
#define ROW_BYTES 128 /* of an operand's row: HYS_OCL_CHUNK elements */
#define Q_CHUNK_BYTES ((int64_t)HYS_OCL_ITEM_HEADS * ROW_BYTES)
/* shares, factors, inverse sums and barriers of `struct places` */
#define SMALL_BYTES (2 * TILE_KEYS * HYS_OCL_ITEM_HEADS * 2 + 3 * HYS_OCL_ITEM_HEADS * 4 + 208)

static const char *const entries[] = {
	HYS_OCL_PRODUCT_ENTRIES, HYS_OCL_ROW_ENTRIES, "softmax", "finish", "list_rows",
	"attend_shared",	 "attend_separate",   NULL};

/* Tiles in flight and bytes of local memory of a program. */
struct shape {
	int64_t q_registers, stages, bytes;
};

static struct shape shape_of(const struct hys_problem *problem, bool separate)
{
	const int64_t keys = problem->attending.head_dim / HYS_OCL_CHUNK;
	const int64_t values = problem->attending.value_dim / HYS_OCL_CHUNK;
	const int64_t tile = (keys + (separate ? values : 0)) * TILE_KEYS * ROW_BYTES;
	struct shape shape = {.q_registers = hys_min64(keys, Q_REGISTERS_MAX)};
	const int64_t others = (keys - shape.q_registers) * Q_CHUNK_BYTES + SMALL_BYTES;
	shape.stages = hys_min64(STAGES_MAX, (HYS_PTX_LOCAL_MAX - others) / tile);
	if (shape.stages < 2 || (!separate && values > keys))
		shape.stages = 0;
	shape.bytes = others + shape.stages * tile;
	return shape;
}

static void define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct shape shared = shape_of(problem, false), separate = shape_of(problem, true);
	hys_ocl_attention_define(source, device, problem, options);
	hys_ocl_gather_define(problem, options);
	hys_ocl_define(options, "Q_REGISTERS", shared.q_registers);
	hys_ocl_define(options, "STAGES_SHARED", shared.stages);
	hys_ocl_define(options, "LOCAL_SHARED", shared.bytes);
	hys_ocl_define(options, "STAGES_SEPARATE", separate.stages);
	hys_ocl_define(options, "LOCAL_SEPARATE", separate.bytes);
}

const struct hys_ocl_products hys_ocl_forward_gather = {
	{"attention_forward_gather.cl", entries, define, NULL, "sm_90a"}, HYS_OCL_TILE};

/* Lays the workspace of space.rows rows out; answers the end. */
static int64_t lay_out(struct hys_ocl_space space, const struct hys_ocl_reach *reach,
		       struct hys_ocl_lists *lists)
{
	*lists = hys_ocl_take_lists(&space, reach);
	return space.next;
}

static int64_t row_bytes(const struct hys_ocl_reach *reach)
{
	const struct hys_ocl_space one = {.rows = 1};
	struct hys_ocl_lists scratch;
	return lay_out(one, reach, &scratch);
}

int64_t hys_ocl_forward_gather_workspace(const struct hys_kernel *kernel,
					 const struct hys_device *device,
					 const struct hys_size *size)
{
	const struct hys_ocl_reach reach = hys_ocl_reach_of(kernel, device, size);
	const int64_t bytes = row_bytes(&reach);
	return hys_max64(hys_ocl_forward_workspace(kernel, device, size),
			 hys_mul64(hys_ocl_gather_rows(size->rows, bytes), bytes));
}

/* Whether this call's tensors are such that key rows can be gathered. */
static bool fits(const struct hys_call *call, bool separate)
{
	const struct hys_attention_args *tensors = &call->args.attention;
	return shape_of(call->problem, separate).stages > 0 && hys_ocl_rows_aligned(&tensors->q) &&
	       hys_ocl_rows_aligned(&tensors->k) && hys_ocl_rows_aligned(&tensors->v) &&
	       hys_ocl_rows_aligned(&tensors->window_k) &&
	       hys_ocl_rows_aligned(&tensors->window_v) && hys_ocl_rows_aligned(&tensors->o);
}

static hys_status attend(const struct hys_ocl_attention *attention,
			 const struct hys_ocl_lists *lists, bool separate)
{
	const struct hys_attention_args *tensors = &attention->call->args.attention;
	const struct hys_ocl_tile *tile = &attention->reach.tile;
	const struct hys_tensor *v = &tensors->v, *window_v = &tensors->window_v;
	const int64_t groups[1] = {hys_ocl_persistent(&attention->job, hys_ocl_items(tile))};
	const int64_t local[1] = {THREADS};
	struct hys_ocl_args args =
		hys_ocl_begin_named(attention->job.stream, attention->job.instance,
				    separate ? "attend_separate" : "attend_shared");
	hys_ocl_arg_tensor(&args, &tensors->q);
	hys_ocl_arg_tensor(&args, &tensors->k);
	hys_ocl_arg_tensor(&args, hys_present(v) ? v : &tensors->k);
	hys_ocl_arg_tensor(&args, &tensors->window_k);
	hys_ocl_arg_tensor(&args, hys_present(window_v) ? window_v : &tensors->window_k);
	hys_ocl_arg_tensor(&args, &tensors->sink);
	hys_ocl_arg_tensor(&args, &tensors->o);
	hys_ocl_arg_tensor(&args, &tensors->lse);
	hys_ocl_arg(&args, &attention->map, sizeof(attention->map));
	hys_ocl_arg_work(&args, &attention->job);
	hys_ocl_arg(&args, lists, sizeof(*lists));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, attention->job.error);
}

hys_status hys_ocl_forward_gather_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				      void *instance, const struct hys_call *call,
				      struct hys_error *error)
{
	const bool separate =
		hys_present(&call->args.attention.v) || hys_present(&call->args.attention.window_v);
	struct hys_ocl_attention attention = {0};
	struct hys_ocl_space space = {.next = call->workspace.offset_bytes};
	struct hys_ocl_lists lists;
	hys_status status = HYS_OK;

	if (!fits(call, separate))
		return hys_ocl_forward(kernel, stream, instance, call, error);
	hys_ocl_attention_open(&attention, kernel, stream, instance, call, error);
	attention.indices = &call->args.attention.indices;
	space.rows = hys_ocl_gather_rows(call->size.rows, row_bytes(&attention.reach));
	lay_out(space, &attention.reach, &lists);
	for (int64_t row = 0; row < call->size.rows; row += space.rows) {
		attention.map.first = row;
		attention.reach.tile.rows = (int32_t)hys_min64(space.rows, call->size.rows - row);
		HYS_TRY(hys_ocl_list_rows(&attention, &lists));
		HYS_TRY(attend(&attention, &lists, separate));
	}
cleanup:
	return status;
}
