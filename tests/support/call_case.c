#include "call_case.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 64
#define CHANNELS 6

struct hys_problem call_case_problem(void)
{
	struct hys_problem problem = {
		.struct_size = sizeof(problem),
		.scoring = {.heads = 4, .dim = 8, .groups = 2},
		.choosing = {.topk_max = CASE_TOPK, .coarse_block = 4, .coarse_keep = 2},
		.attending =
			{.heads = 6, .kv_heads = 2, .head_dim = 10, .value_dim = 7, .window = 2},
	};

	hys_problem_complete(&problem, NULL);
	return problem;
}

struct hys_batch *call_case_batch(struct hys_plan *plan)
{
	int32_t begin[CASE_ROWS], end[CASE_ROWS];
	struct hys_batch_desc desc = {
		.struct_size = sizeof(desc),
		.rows = CASE_ROWS,
		.keys = CASE_KEYS,
		.flags = HYS_BATCH_CAUSAL,
		.window_begin = begin,
		.window_end = end,
		.window_keys = CASE_WINDOW_KEYS,
	};
	struct hys_batch *batch = NULL;

	for (int32_t t = 0; t < CASE_ROWS; t++) {
		begin[t] = t % CASE_WINDOW_KEYS;
		end[t] = CASE_WINDOW_KEYS;
	}
	hys_batch_create(plan, &desc, &batch, NULL);
	return batch;
}

void call_case_kernels(struct fake_plan *plan, struct hys_kernel *kernels,
		       hys_status (*run)(const struct hys_kernel *kernel, struct hys_stream *stream,
					 void *instance, const struct hys_call *call,
					 struct hys_error *error))
{
	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		memset(&kernels[op], 0, sizeof(kernels[op]));
		kernels[op].name = "fake";
		kernels[op].op = (hys_op)op;
		kernels[op].efficiency = 1;
		kernels[op].run = run;
		plan->plan.operations |= HYS_OP_BIT(op);
		for (int32_t i = 0; i < plan->plan.device_count; i++)
			plan->choices[i * HYS_OP_COUNT + op].kernel = &kernels[op];
	}
}

static const char *function_name(hys_op op)
{
	return op <= HYS_OP_SELECT_COARSE_TO_FINE ? "select" : hys_op_name(op);
}

static bool never(const char *field)
{
	static const char *const names[] = {"index_q_scale", "index_k_scale", "teacher_in", "norm",
					    "radius",	     "lowest",	      "highest"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i], field) == 0)
			return true;
	return false;
}

static struct hys_dims dims_of(const struct hys_batch *batch, hys_op op)
{
	const struct hys_size size = {
		.problem = &batch->plan->problem,
		.rows = op == HYS_OP_POOL	     ? batch->coarse_blocks
			: op == HYS_OP_POOL_BACKWARD ? batch->entries
						     : batch->rows,
		.keys = batch->keys,
		.entries = batch->entries,
		.window_keys = batch->window_keys,
	};
	struct hys_dims dims = hys_dims_of(&size);

	dims.size[HYS_DIM_TOPK] = CASE_TOPK;
	dims.size[HYS_DIM_REFERENCE] = CASE_TOPK + 1;
	dims.size[HYS_DIM_CHANNELS] = dims.size[HYS_DIM_CHANNELS2] = CHANNELS;
	dims.size[HYS_DIM_UNITS] = batch->coarse_blocks;
	dims.size[HYS_DIM_POOL_ROWS] = batch->entries;
	dims.size[HYS_DIM_POOL_SIZE] = batch->plan->problem.choosing.coarse_block;
	return dims;
}

/* Ascending numbers from 0 in each slot, as indices are; reals like them. */
static void fill(char *memory, const struct hys_tensor *tensor, int64_t elements)
{
	for (int64_t i = 0; i < elements; i++) {
		const int32_t integer = (int32_t)(i % CASE_TOPK);
		const float real = (float)(i % 7) - 3;

		memcpy(memory + 4 * i,
		       tensor->dtype == HYS_I32 ? (const void *)&integer : (const void *)&real, 4);
	}
}

static void make_tensor(struct call_case *made, int32_t i, const struct hys_dims *dims,
			const struct hys_problem *problem)
{
	const struct hys_field *field = &made->fields->fields[i];
	struct hys_tensor *tensor = hys_field_tensor(field, &made->call.args);
	const int64_t elements = hys_field_elements(field, dims);

	tensor->dtype = hys_field_dtype(field, problem);
	tensor->rank = field->rank;
	for (int32_t d = 0; d < field->rank; d++)
		tensor->shape[d] = dims->size[field->dims[d]];
	made->bytes[i] = elements * 4;
	made->memory[i] = malloc((size_t)made->bytes[i] + 2 * GUARD);
	if (!made->memory[i])
		abort();
	memset(made->memory[i], 0x5a, (size_t)made->bytes[i] + 2 * GUARD);
	tensor->host = made->memory[i] + GUARD;
	if (!(field->flags & HYS_FIELD_OUT))
		fill(tensor->host, tensor, elements);
}

static void set_args(struct call_case *made)
{
	static const hys_method methods[] = {HYS_METHOD_EXACT, HYS_METHOD_COARSE,
					     HYS_METHOD_COARSE_TO_FINE};

	memcpy(&made->call.args, &made->fields->args_bytes, sizeof(size_t));
	if (made->op <= HYS_OP_SELECT_COARSE_TO_FINE)
		made->call.args.select.method = methods[made->op];
	if (made->op == HYS_OP_POOL) {
		made->call.args.pool.pooling = HYS_POOL_GATED;
		made->call.args.pool.unit = HYS_POOL_BLOCKS;
	}
	if (made->op == HYS_OP_POOL_BACKWARD) {
		made->call.args.pool_grad.pooling = HYS_POOL_GATED;
		made->call.args.pool_grad.unit = HYS_POOL_BLOCKS;
	}
}

void call_case_make(struct call_case *made, const struct hys_batch *batch, hys_op op)
{
	const struct hys_dims dims = dims_of(batch, op);

	memset(made, 0, sizeof(*made));
	made->op = op;
	made->name = function_name(op);
	made->fields = hys_op_fields(op);
	set_args(made);
	for (int32_t i = 0; i < made->fields->count; i++)
		if (!never(made->fields->fields[i].name))
			make_tensor(made, i, &dims, &batch->plan->problem);
}

void call_case_clear(struct call_case *made)
{
	for (int32_t i = 0; i < HYS_FIELDS_MAX; i++)
		free(made->memory[i]);
}

hys_status call_case_run(const struct call_case *made, struct hys_exec *exec,
			 struct hys_batch *batch, struct hys_error *error)
{
	switch (made->op) {
	case HYS_OP_ATTENTION_FORWARD:
		return hys_attention_forward(exec, batch, &made->call.args.attention, error);
	case HYS_OP_ATTENTION_BACKWARD:
		return hys_attention_backward(exec, batch, &made->call.args.attention_grad, error);
	case HYS_OP_INDEXER_LOSS:
		return hys_indexer_loss(exec, batch, &made->call.args.loss, error);
	case HYS_OP_POOL:
		return hys_pool(exec, batch, &made->call.args.pool, error);
	case HYS_OP_POOL_BACKWARD:
		return hys_pool_backward(exec, batch, &made->call.args.pool_grad, error);
	case HYS_OP_MERGE:
		return hys_merge(exec, batch, &made->call.args.merge, error);
	case HYS_OP_FIDELITY:
		return hys_fidelity(exec, batch, &made->call.args.fidelity, error);
	default:
		return hys_select(exec, batch, &made->call.args.select, error);
	}
}

int32_t call_case_field(const struct call_case *made, const char *field)
{
	for (int32_t i = 0; i < made->fields->count; i++)
		if (strcmp(made->fields->fields[i].name, field) == 0)
			return i;
	abort();
}

struct hys_tensor *call_case_tensor(struct call_case *made, const char *field)
{
	return hys_field_tensor(&made->fields->fields[call_case_field(made, field)],
				&made->call.args);
}

uint64_t call_case_hash(const struct call_case *made)
{
	uint64_t hash = hys_hash_start;

	for (int32_t i = 0; i < HYS_FIELDS_MAX; i++)
		if (made->memory[i])
			hash = hys_hash(hash, made->memory[i], (size_t)made->bytes[i] + 2 * GUARD);
	return hash;
}
