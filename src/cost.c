/* What an operation costs, from what its rows see and read: useful work only,
 * and memory that it cannot do without. */
#include <math.h>

#include "core.h"

/* Until a device has been measured. */
#define CPU_BYTES_PER_S 2e10
#define GPU_BYTES_PER_S 5e11
#define LEAST_FLOPS_PER_S 1e9

/* ---- work ---- */

void hys_limits_of_slots(struct hys_limits *limits, const struct hys_problem *problem, double slots)
{
	const struct hys_attending *attending = &problem->attending;
	const double keys = slots * (double)hys_index_span(problem);

	limits->read = keys + attending->window + attending->first;
	limits->topk_keys = keys;
	limits->topk_entries = slots * problem->scoring.block;
}

struct hys_limits hys_limits_of(const struct hys_problem *problem)
{
	const struct hys_choosing *choosing = &problem->choosing;
	struct hys_limits limits = {
		.kept = (double)choosing->coarse_keep * choosing->coarse_block,
		.coarse_block = choosing->coarse_block,
		.dense = problem->attending.flags & HYS_ATTENDING_DENSE,
	};

	hys_limits_of_slots(&limits, problem, choosing->topk_max);
	return limits;
}

void hys_work_add_row(struct hys_work *work, const struct hys_limits *limits, int64_t keys,
		      int64_t entries)
{
	const double k = (double)keys, e = (double)entries;
	const int64_t blocks = limits->coarse_block > 0 ? entries / limits->coarse_block : 0;

	work->rows += 1;
	work->key_pairs += k;
	work->entry_pairs += e;
	work->attended_pairs += limits->dense ? k : fmin(limits->read, k);
	work->set_keys += fmin(limits->topk_keys, k);
	work->set_entries += fmin(limits->topk_entries, e);
	work->coarse_pairs += (double)blocks;
	work->kept_pairs += fmin(limits->kept, e);
}

static struct hys_work batch_work(const struct hys_problem *problem, const struct hys_batch *batch)
{
	const struct hys_limits limits = hys_limits_of(problem);
	struct hys_work work = {0};

	for (int64_t t = 0; t < batch->rows; t++)
		hys_work_add_row(&work, &limits,
				 batch->key_pairs_before[t + 1] - batch->key_pairs_before[t],
				 batch->entry_pairs_before[t + 1] - batch->entry_pairs_before[t]);
	return work;
}

/* Sum over p < end of min(most, floor(p / unit)). */
static double sum_below(double end, double unit, double most)
{
	const double rising = fmin(end, most * unit);
	const double whole = floor(rising / unit);

	return unit * whole * (whole - 1) / 2 + (rising - whole * unit) * whole +
	       (end - rising) * most;
}

/* One document, rows at its end: row t sees keys - rows + t + 1 of its keys. */
static struct hys_work causal_work(const struct hys_problem *problem, double rows, double keys)
{
	const struct hys_limits limits = hys_limits_of(problem);
	const double pool = problem->scoring.pool, block = problem->choosing.coarse_block;
	const double end = keys + 1, begin = fmax(end - rows, 0);
	struct hys_work work = {.rows = rows};

#define SUM(unit, most) (sum_below(end, unit, most) - sum_below(begin, unit, most))
	work.key_pairs = SUM(1, keys);
	work.entry_pairs = SUM(pool, keys);
	work.attended_pairs = limits.dense ? work.key_pairs : SUM(1, limits.read);
	work.set_keys = SUM(1, limits.topk_keys);
	work.set_entries = SUM(pool, limits.topk_entries);
	work.coarse_pairs = block > 0 ? SUM(pool * block, keys) : 0;
	work.kept_pairs = SUM(pool, limits.kept);
#undef SUM
	return work;
}

struct hys_work hys_work_of(const struct hys_problem *problem, const struct hys_batch *batch,
			    int64_t rows, int64_t keys)
{
	return batch ? batch_work(problem, batch)
		     : causal_work(problem, (double)rows, (double)keys);
}

double hys_cost_flops(hys_op op, const struct hys_problem *problem, const struct hys_work *work)
{
	const struct hys_attending *attending = &problem->attending;
	const double score = 2.0 * problem->scoring.heads * problem->scoring.dim;
	const double h = attending->heads, d = attending->head_dim, v = attending->value_dim;

	switch (op) {
	case HYS_OP_SELECT:
		return score * work->entry_pairs;
	case HYS_OP_SELECT_COARSE:
		return score * work->coarse_pairs;
	case HYS_OP_SELECT_COARSE_TO_FINE:
		return score * (work->coarse_pairs + work->kept_pairs);
	case HYS_OP_ATTENTION_FORWARD:
		return 2 * h * (d + v) * work->attended_pairs;
	case HYS_OP_ATTENTION_BACKWARD:
		return 2 * h * (3 * d + 2 * v) * work->attended_pairs;
	case HYS_OP_INDEXER_LOSS:
		/* The teacher's scores, then the index scores forward and the
		 * two products of their backward. */
		return 2 * h * d * work->set_keys + 3 * score * work->set_entries;
	case HYS_OP_MERGE:
		return 3 * h * v * work->rows;
	case HYS_OP_FIDELITY:
		return 2 * h * d * work->key_pairs;
	default:
		return 0; /* pooling is all memory */
	}
}

/* ---- bytes ---- */

static struct hys_size size_of(const struct hys_plan *plan, hys_op op,
			       const struct hys_batch *batch)
{
	struct hys_size size = hys_plan_size_max(plan, op, hys_plan_rows_max(plan, op));
	const bool pooled = plan->problem.scoring.pool > 1;

	if (!batch)
		return size;
	size.rows = batch->rows;
	size.keys = batch->keys;
	size.entries = batch->entries;
	size.window_keys = batch->window_keys;
	size.coarse_blocks = batch->coarse_blocks;
	if (op == HYS_OP_POOL)
		size.rows = pooled ? batch->entries : batch->coarse_blocks;
	if (op == HYS_OP_POOL_BACKWARD)
		size.rows = pooled ? batch->keys : batch->entries;
	return size;
}

/* One series of the widest kind that the problem pools. */
static struct hys_dims dims_of(const struct hys_plan *plan, const struct hys_size *size)
{
	const bool pooled = plan->problem.scoring.pool > 1;
	struct hys_dims dims = hys_dims_max(plan, size);

	dims.size[HYS_DIM_CHANNELS2] = dims.size[HYS_DIM_CHANNELS];
	dims.size[HYS_DIM_POOL_ROWS] = pooled ? size->keys : size->entries;
	dims.size[HYS_DIM_UNITS] = pooled ? size->entries : size->coarse_blocks;
	return dims;
}

/* Whether a caller normally has this tensor. */
static bool is_usual(const struct hys_field *field, const struct hys_problem *problem, hys_op op)
{
	const struct hys_attending *attending = &problem->attending;
	const bool attends = op == HYS_OP_ATTENTION_FORWARD || op == HYS_OP_ATTENTION_BACKWARD;
	const bool values = field->dims[0] == HYS_DIM_KEYS && field->dims[2] == HYS_DIM_VALUE_DIM;

	if (!(field->flags & HYS_FIELD_OPTIONAL))
		return true;
	if (!(field->flags & HYS_FIELD_USUAL))
		return false;
	if (attends && field->dims[2] == HYS_DIM_TOPK)
		return !(attending->flags & HYS_ATTENDING_DENSE);
	/* One narrower value head is how a shared latent looks. */
	return !values || attending->kv_heads > 1 || attending->value_dim >= attending->head_dim;
}

static int64_t tensor_bytes(const struct hys_plan *plan, hys_op op, const struct hys_size *size)
{
	const struct hys_fields *fields = hys_op_fields(op);
	const struct hys_dims dims = dims_of(plan, size);
	int64_t bytes = 0;

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		const hys_dtype dtype = hys_field_dtype(field, &plan->problem);

		if (is_usual(field, &plan->problem, op))
			bytes = hys_add64(bytes, hys_mul64(hys_field_elements(field, &dims),
							   (int64_t)hys_dtype_size(dtype)));
	}
	return bytes;
}

void hys_cost_copies(const struct hys_plan *plan, hys_op op, double *per_row, double *fixed)
{
	const struct hys_fields *fields = hys_op_fields(op);
	const struct hys_size size = size_of(plan, op, NULL);
	const struct hys_dims dims = dims_of(plan, &size);

	*per_row = *fixed = 0;
	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		const double bytes = (double)hys_field_elements(field, &dims) *
				     (double)hys_dtype_size(hys_field_dtype(field, &plan->problem));

		if (!is_usual(field, &plan->problem, op) || (plan->flags & HYS_PLAN_BUFFERS_ONLY))
			continue;
		if (field->dims[0] == HYS_DIM_ROWS)
			*per_row += bytes / (double)hys_max64(size.rows, 1);
		else
			*fixed += bytes;
	}
}

static int64_t workspace_bytes(const struct hys_plan *plan)
{
	int64_t bytes = hys_gather_bytes(plan);

	for (int32_t i = 0; i < plan->device_count; i++)
		bytes = hys_add64(bytes, hys_workspace_max(plan, i));
	return bytes;
}

/* Arrays of int32 and two prefix sums, and a copy on each device that cannot
 * read the host's; with several devices, what tiles of rows cost. */
static int64_t batch_bytes(const struct hys_plan *plan, const struct hys_batch *batch)
{
	const bool coarse = plan->problem.choosing.coarse_block > 0;
	const bool pools =
		plan->operations & (HYS_OP_BIT(HYS_OP_POOL) | HYS_OP_BIT(HYS_OP_POOL_BACKWARD));
	const struct hys_size size = hys_plan_size_max(plan, HYS_OP_SELECT, plan->rows_max);
	const int64_t rows = batch ? batch->rows : plan->rows_max;
	int64_t words = (6 + coarse + 2 * (plan->window_keys_max > 0)) * rows;
	int64_t copies = 1;

	words += coarse ? 2 * size.coarse_blocks : 0;
	words += pools ? size.keys + (2 + coarse) * size.entries : 0;
	for (int32_t i = 0; i < plan->device_count; i++)
		copies += !plan->devices[i]->host_memory;
	return copies * (batch ? hys_batch_bytes(batch) : 4 * words) + 16 * (rows + 1) +
	       (plan->device_count > 1 ? hys_count_operations(plan->operations) * (rows / 2 + 16)
				       : 0);
}

/* ---- time ---- */

static double nominal_time_s(const struct hys_plan *plan, hys_op op, int32_t i,
			     const struct hys_cost *cost)
{
	struct hys_context *context = plan->context;
	const struct hys_device *device = plan->devices[i];
	const struct hys_kernel *kernel = hys_plan_choice(plan, op, i)->kernel;
	const double share = hys_plan_share(plan, op, i);
	struct hys_device_speed speed;

	pthread_mutex_lock(&context->lock);
	speed = context->speeds[plan->device_numbers[i]];
	pthread_mutex_unlock(&context->lock);
	if (!(speed.flops_per_s > 0))
		speed.flops_per_s = fmax(device->info.nominal_flops_per_s, LEAST_FLOPS_PER_S);
	if (!(speed.bytes_per_s > 0))
		speed.bytes_per_s =
			device->info.kind == HYS_DEVICE_CPU ? CPU_BYTES_PER_S : GPU_BYTES_PER_S;
	return fmax(share * cost->flops / (kernel->efficiency * speed.flops_per_s),
		    share * cost->bytes / speed.bytes_per_s);
}

/* Devices that share rows were measured when the plan was made. */
static double device_time_s(const struct hys_plan *plan, hys_op op, int32_t i,
			    const struct hys_cost *cost)
{
	const double share = hys_plan_share(plan, op, i);
	const struct hys_pace *pace;

	if (plan->device_count < 2 || plan->split == HYS_SPLIT_EQUAL)
		return nominal_time_s(plan, op, i, cost);
	pace = hys_plan_pace(plan, op, i);
	return share * (pace->row_s * (double)plan->rows_max + pace->flop_s * cost->flops) +
	       (share > 0 ? pace->call_s : 0);
}

double hys_cost_time_s(const struct hys_plan *plan, hys_op op, double flops)
{
	const struct hys_cost cost = {.flops = flops};
	double time_s = 0;

	for (int32_t i = 0; i < plan->device_count; i++) {
		if (!hys_plan_choice(plan, op, i)->kernel)
			return (double)NAN;
		time_s = fmax(time_s, device_time_s(plan, op, i, &cost));
	}
	return time_s;
}

hys_status hys_plan_cost(const struct hys_plan *plan, hys_op op, const struct hys_batch *batch,
			 struct hys_cost *cost, struct hys_error *error)
{
	struct hys_cost made = {0};
	struct hys_size size;
	struct hys_work work;
	hys_status status = hys_plan_check(plan, op, error);

	if (status != HYS_OK)
		return status;
	if (!cost)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "cost is NULL");
	if (batch && batch->plan != plan)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "batch is another plan's");
	size = size_of(plan, op, batch);
	work = hys_work_of(&plan->problem, batch, plan->rows_max, plan->keys_max);
	made.tensor_bytes = tensor_bytes(plan, op, &size);
	made.workspace_bytes = workspace_bytes(plan);
	made.peak_bytes = hys_add64(hys_add64(made.tensor_bytes, made.workspace_bytes),
				    batch_bytes(plan, batch));
	made.flops = hys_cost_flops(op, &plan->problem, &work);
	made.bytes = (double)made.tensor_bytes;
	for (int32_t i = 0; i < plan->device_count; i++)
		made.time_s = fmax(made.time_s, device_time_s(plan, op, i, &made));
	*cost = made;
	return HYS_OK;
}
