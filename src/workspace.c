/* How much memory a lane needs, before anything is allocated. */
#include "core.h"

/* One tensor of a staged call: gradients may always be f32. */
static int64_t stage_bytes(const struct hys_field *field, const struct hys_dims *dims,
			   const struct hys_problem *problem)
{
	const bool free_type = field->type != HYS_TYPE_INDEX && field->type != HYS_TYPE_ATTEND;
	const hys_dtype dtype = free_type ? HYS_F32 : hys_field_dtype(field, problem);
	const int64_t elements = hys_field_elements(field, dims);

	return hys_round_up(hys_mul64(elements, (int64_t)hys_dtype_size(dtype)), HYS_ALIGN);
}

static int64_t kernel_bytes(const struct hys_plan *plan, hys_op op, int32_t device,
			    const struct hys_size *size)
{
	const struct hys_kernel *kernel = hys_plan_choice(plan, op, device)->kernel;

	if (!kernel || !kernel->workspace)
		return 0;
	return hys_round_up(kernel->workspace(kernel, plan->devices[device], size), HYS_ALIGN);
}

int64_t hys_workspace_bytes(const struct hys_plan *plan, hys_op op, int32_t device,
			    const struct hys_size *size)
{
	const struct hys_fields *fields = hys_op_fields(op);
	const struct hys_dims dims = hys_dims_max(plan, size);
	int64_t bytes = kernel_bytes(plan, op, device, size);

	if (plan->devices[device]->host_memory)
		return bytes;
	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		const int64_t one = stage_bytes(field, &dims, &plan->problem);

		/* What a lane has summed so far, and what it adds next. */
		if (plan->device_count > 1 && (field->flags & HYS_FIELD_PARTIAL))
			bytes = hys_add64(bytes, hys_mul64(2, one));
		else if (!(plan->flags & HYS_PLAN_BUFFERS_ONLY))
			bytes = hys_add64(bytes, one);
	}
	return bytes;
}

int64_t hys_workspace_max(const struct hys_plan *plan, int32_t device)
{
	int64_t most = 0;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		struct hys_size size;

		if (!(plan->operations & HYS_OP_BIT(op)))
			continue;
		size = hys_plan_size_max(plan, (hys_op)op,
					 hys_plan_rows_most(plan, (hys_op)op, device));
		most = hys_max64(most, hys_workspace_bytes(plan, (hys_op)op, device, &size));
	}
	return most;
}

static int64_t entries_max(const struct hys_plan *plan)
{
	return plan->keys_max / plan->problem.scoring.pool;
}

static int64_t coarse_blocks_max(const struct hys_plan *plan)
{
	const int32_t block = plan->problem.choosing.coarse_block;

	return block > 0 ? entries_max(plan) / block : 0;
}

int64_t hys_plan_rows_max(const struct hys_plan *plan, hys_op op)
{
	if (op == HYS_OP_POOL_BACKWARD)
		return plan->keys_max;
	if (op != HYS_OP_POOL)
		return plan->rows_max;
	return plan->problem.scoring.pool > 1 ? entries_max(plan) : coarse_blocks_max(plan);
}

int64_t hys_plan_rows_most(const struct hys_plan *plan, hys_op op, int32_t device)
{
	const int64_t rows = hys_plan_rows_max(plan, op);

	if (!plan->rows_most || plan->rows_most[device] >= plan->rows_max)
		return rows;
	return (int64_t)((double)rows * (double)plan->rows_most[device] / (double)plan->rows_max);
}

struct hys_size hys_plan_size_max(const struct hys_plan *plan, hys_op op, int64_t rows)
{
	const double d_rows = (double)rows;
	struct hys_size size = {
		.problem = &plan->problem,
		.rows = rows,
		.keys = plan->keys_max,
		.entries = entries_max(plan),
		.window_keys = plan->window_keys_max,
		.coarse_blocks = coarse_blocks_max(plan),
	};

	if (op != HYS_OP_POOL && op != HYS_OP_POOL_BACKWARD && op != HYS_OP_MERGE)
		size.topk = plan->problem.choosing.topk_max;
	size.key_pairs = d_rows * (double)size.keys;
	size.entry_pairs = d_rows * (double)size.entries;
	return size;
}

hys_status hys_plan_workspace(const struct hys_plan *plan, hys_op op, int64_t rows, int32_t i,
			      int64_t *bytes, struct hys_error *error)
{
	struct hys_size size;
	hys_status status = hys_plan_check(plan, op, error);

	if (status != HYS_OK)
		return status;
	if (!bytes)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "bytes is NULL");
	if (i < 0 || i >= plan->device_count)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "device is %d, expected 0 to %d", i,
				plan->device_count - 1);
	if (rows < 0 || rows > hys_plan_rows_max(plan, op))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "rows is %lld, expected 0 to %lld",
				(long long)rows, (long long)hys_plan_rows_max(plan, op));
	size = hys_plan_size_max(plan, op, rows);
	*bytes = hys_workspace_bytes(plan, op, i, &size);
	return HYS_OK;
}
