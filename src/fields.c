/* What the tensors of each operation look like, as tables. */
#include "core.h"

#define OUT HYS_FIELD_OUT
#define OPT HYS_FIELD_OPTIONAL
#define PART HYS_FIELD_PARTIAL
#define USUAL HYS_FIELD_USUAL

#define ROWS HYS_DIM_ROWS
#define H HYS_DIM_HEADS
#define G HYS_DIM_KV_HEADS
#define D HYS_DIM_HEAD_DIM
#define V HYS_DIM_VALUE_DIM
#define HI HYS_DIM_INDEX_HEADS
#define DI HYS_DIM_INDEX_DIM
#define U HYS_DIM_GROUPS
#define K HYS_DIM_TOPK
#define S HYS_DIM_KEYS
#define S2 HYS_DIM_WINDOW_KEYS
#define E HYS_DIM_ENTRIES
#define C HYS_DIM_CHANNELS
#define C2 HYS_DIM_CHANNELS2

/* clang-format off */
#define ROW(args, name, flags, type, rank, ...) \
	{#name, offsetof(struct args, name), flags, HYS_TYPE_##type, {__VA_ARGS__}, rank}
#define TABLE(name, args) \
	{name##_fields, sizeof(name##_fields) / sizeof(name##_fields[0]), sizeof(struct args)}
/* clang-format on */

static const struct hys_field select_fields[] = {
#define F(...) ROW(hys_select_args, __VA_ARGS__)
	F(index_q, 0, INDEX, 3, ROWS, HI, DI),
	F(index_k, 0, INDEX, 2, E, DI),
	F(index_w, OPT | USUAL, F32, 2, ROWS, HI),
	F(index_q_scale, OPT, F32, 2, ROWS, HI),
	F(index_k_scale, OPT, F32, 1, E),
	F(indices, OUT, I32, 3, ROWS, U, K),
	F(counts, OUT | OPT | USUAL, I32, 2, ROWS, U),
	F(scores, OUT | OPT, F32, 3, ROWS, U, K),
	F(kth, OUT | OPT, F32, 2, ROWS, U),
	F(nan_rows, OUT | OPT | PART, I32, 1, HYS_DIM_ONE),
#undef F
};

static const struct hys_field attention_fields[] = {
#define F(...) ROW(hys_attention_args, __VA_ARGS__)
	F(q, 0, ATTEND, 3, ROWS, H, D),
	F(k, 0, ATTEND, 3, S, G, D),
	F(v, OPT | USUAL, ATTEND, 3, S, G, V),
	F(indices, OPT | USUAL, I32, 3, ROWS, U, K),
	F(sink, OPT, F32, 1, H),
	F(window_k, OPT | USUAL, ATTEND, 3, S2, G, D),
	F(window_v, OPT | USUAL, ATTEND, 3, S2, G, V),
	F(o, OUT, ATTEND, 3, ROWS, H, V),
	F(lse, OUT | OPT | USUAL, F32, 2, ROWS, H),
#undef F
};

static const struct hys_field attention_grad_fields[] = {
#define F(...) ROW(hys_attention_grad_args, __VA_ARGS__)
	F(q, 0, ATTEND, 3, ROWS, H, D),
	F(k, 0, ATTEND, 3, S, G, D),
	F(v, OPT | USUAL, ATTEND, 3, S, G, V),
	F(indices, OPT | USUAL, I32, 3, ROWS, U, K),
	F(sink, OPT, F32, 1, H),
	F(window_k, OPT | USUAL, ATTEND, 3, S2, G, D),
	F(window_v, OPT | USUAL, ATTEND, 3, S2, G, V),
	F(o, 0, ATTEND, 3, ROWS, H, V),
	F(lse, 0, F32, 2, ROWS, H),
	F(grad_o, 0, ATTEND, 3, ROWS, H, V),
	F(dq, OUT | OPT | USUAL, ATTEND_GRAD, 3, ROWS, H, D),
	F(dk, OUT | OPT | PART | USUAL, ATTEND_GRAD, 3, S, G, D),
	F(dv, OUT | OPT | PART | USUAL, ATTEND_GRAD, 3, S, G, V),
	F(dsink, OUT | OPT | PART, F32, 1, H),
	F(dwindow_k, OUT | OPT | PART | USUAL, ATTEND_GRAD, 3, S2, G, D),
	F(dwindow_v, OUT | OPT | PART | USUAL, ATTEND_GRAD, 3, S2, G, V),
#undef F
};

static const struct hys_field loss_fields[] = {
#define F(...) ROW(hys_loss_args, __VA_ARGS__)
	F(index_q, 0, INDEX, 3, ROWS, HI, DI),
	F(index_k, 0, INDEX, 2, E, DI),
	F(index_w, OPT | USUAL, F32, 2, ROWS, HI),
	F(indices, OPT | USUAL, I32, 3, ROWS, U, K),
	F(q, OPT | USUAL, ATTEND, 3, ROWS, H, D),
	F(k, OPT | USUAL, ATTEND, 3, S, G, D),
	F(lse, OPT | USUAL, F32, 2, ROWS, H),
	F(sink, OPT, F32, 1, H),
	F(scores, OPT, F32, 3, ROWS, U, K),
	F(teacher_in, OPT, F32, 3, ROWS, U, K),
	F(loss, OUT | OPT | PART | USUAL, F32, 1, HYS_DIM_ONE),
	F(d_index_q, OUT | OPT | USUAL, INDEX_GRAD, 3, ROWS, HI, DI),
	F(d_index_k, OUT | OPT | PART | USUAL, INDEX_GRAD, 2, E, DI),
	F(d_index_w, OUT | OPT | USUAL, F32, 2, ROWS, HI),
	F(teacher_out, OUT | OPT, F32, 3, ROWS, U, K),
#undef F
};

static const struct hys_field pool_fields[] = {
#define F(...) ROW(hys_pool_args, __VA_ARGS__)
	F(x, 0, POOL, 2, HYS_DIM_POOL_ROWS, C2),
	F(gate, OPT, POOL, 2, HYS_DIM_POOL_ROWS, C2),
	F(bias, OPT, F32, 2, HYS_DIM_POOL_SIZE, C2),
	F(y, OUT | OPT | USUAL, POOL_OUT, 2, ROWS, C),
	F(norm, OUT | OPT, F32, 1, ROWS),
	F(radius, OUT | OPT, F32, 1, ROWS),
	F(lowest, OUT | OPT, F32, 2, ROWS, C),
	F(highest, OUT | OPT, F32, 2, ROWS, C),
#undef F
};

static const struct hys_field pool_grad_fields[] = {
#define F(...) ROW(hys_pool_grad_args, __VA_ARGS__)
	F(x, 0, POOL, 2, HYS_DIM_POOL_ROWS, C2),
	F(gate, OPT, POOL, 2, HYS_DIM_POOL_ROWS, C2),
	F(bias, OPT, F32, 2, HYS_DIM_POOL_SIZE, C2),
	F(grad_y, 0, POOL_OUT, 2, HYS_DIM_UNITS, C),
	F(dx, OUT, POOL_OUT, 2, ROWS, C2),
	F(dgate, OUT | OPT, POOL_OUT, 2, ROWS, C2),
	F(dbias, OUT | OPT | PART, F32, 2, HYS_DIM_POOL_SIZE, C2),
#undef F
};

static const struct hys_field merge_fields[] = {
#define F(...) ROW(hys_merge_args, __VA_ARGS__)
	F(o_a, 0, ATTEND, 3, ROWS, H, V), F(o_b, 0, ATTEND, 3, ROWS, H, V),
	F(lse_a, 0, F32, 2, ROWS, H),	  F(lse_b, 0, F32, 2, ROWS, H),
	F(o, OUT, ATTEND, 3, ROWS, H, V), F(lse, OUT | OPT | USUAL, F32, 2, ROWS, H),
#undef F
};

static const struct hys_field fidelity_fields[] = {
#define F(...) ROW(hys_fidelity_args, __VA_ARGS__)
	F(q, 0, ATTEND, 3, ROWS, H, D),
	F(k, 0, ATTEND, 3, S, G, D),
	F(indices, OPT | USUAL, I32, 3, ROWS, U, K),
	F(reference, OPT | USUAL, I32, 3, ROWS, U, HYS_DIM_REFERENCE),
	F(mass, OUT | OPT | USUAL, F32, 2, ROWS, U),
	F(recall, OUT | OPT | USUAL, F32, 2, ROWS, U),
	F(topk_needed, OUT | OPT | USUAL, I32, 2, ROWS, U),
#undef F
};

static const struct hys_fields op_fields[HYS_OP_COUNT] = {
	[HYS_OP_SELECT] = TABLE(select, hys_select_args),
	[HYS_OP_SELECT_COARSE] = TABLE(select, hys_select_args),
	[HYS_OP_SELECT_COARSE_TO_FINE] = TABLE(select, hys_select_args),
	[HYS_OP_ATTENTION_FORWARD] = TABLE(attention, hys_attention_args),
	[HYS_OP_ATTENTION_BACKWARD] = TABLE(attention_grad, hys_attention_grad_args),
	[HYS_OP_INDEXER_LOSS] = TABLE(loss, hys_loss_args),
	[HYS_OP_POOL] = TABLE(pool, hys_pool_args),
	[HYS_OP_POOL_BACKWARD] = TABLE(pool_grad, hys_pool_grad_args),
	[HYS_OP_MERGE] = TABLE(merge, hys_merge_args),
	[HYS_OP_FIDELITY] = TABLE(fidelity, hys_fidelity_args),
};

bool hys_is_pooling(hys_op op)
{
	return op == HYS_OP_POOL || op == HYS_OP_POOL_BACKWARD;
}

bool hys_is_select(hys_op op)
{
	return op == HYS_OP_SELECT || op == HYS_OP_SELECT_COARSE ||
	       op == HYS_OP_SELECT_COARSE_TO_FINE;
}

const struct hys_fields *hys_op_fields(hys_op op)
{
	return &op_fields[op];
}

struct hys_dims hys_dims_of(const struct hys_size *size)
{
	const struct hys_problem *problem = size->problem;
	struct hys_dims dims = {{
		[ROWS] = size->rows,
		[S] = size->keys,
		[E] = size->entries,
		[S2] = size->window_keys,
		[H] = problem->attending.heads,
		[G] = problem->attending.kv_heads,
		[D] = problem->attending.head_dim,
		[V] = problem->attending.value_dim,
		[HI] = problem->scoring.heads,
		[DI] = problem->scoring.dim,
		[U] = problem->scoring.groups,
		[K] = -1,
		[HYS_DIM_REFERENCE] = -1,
		[HYS_DIM_ONE] = 1,
		[C2] = -1,
		[C] = -1,
		[HYS_DIM_UNITS] = -1,
		[HYS_DIM_POOL_ROWS] = -1,
		[HYS_DIM_POOL_SIZE] = -1,
	}};

	return dims;
}

/* Pooling takes any number of channels; room is kept for those of keys, the
 * widest of the problem, doubled where two series overlap. */
static int64_t channels_max(const struct hys_problem *problem)
{
	const struct hys_attending *attending = &problem->attending;
	const int64_t wide = hys_max64(attending->head_dim, attending->value_dim);

	return hys_max64(problem->scoring.dim, attending->kv_heads * wide);
}

struct hys_dims hys_dims_max(const struct hys_plan *plan, const struct hys_size *size)
{
	struct hys_dims dims = hys_dims_of(size);

	dims.size[K] = size->topk;
	dims.size[HYS_DIM_REFERENCE] = size->topk;
	dims.size[C] = channels_max(&plan->problem);
	dims.size[C2] = 2 * dims.size[C];
	dims.size[HYS_DIM_UNITS] = hys_plan_rows_max(plan, HYS_OP_POOL);
	dims.size[HYS_DIM_POOL_ROWS] = size->keys;
	dims.size[HYS_DIM_POOL_SIZE] =
		hys_max64(plan->problem.scoring.pool, plan->problem.choosing.coarse_block);
	return dims;
}

int64_t hys_field_elements(const struct hys_field *field, const struct hys_dims *dims)
{
	int64_t count = 1;

	for (int32_t d = 0; d < field->rank; d++)
		count = hys_mul64(count, hys_max64(dims->size[field->dims[d]], 0));
	return count;
}

hys_dtype hys_field_dtype(const struct hys_field *field, const struct hys_problem *problem)
{
	switch (field->type) {
	case HYS_TYPE_I32:
		return HYS_I32;
	case HYS_TYPE_INDEX:
	case HYS_TYPE_INDEX_GRAD:
		return problem->scoring.dtype;
	case HYS_TYPE_ATTEND:
	case HYS_TYPE_ATTEND_GRAD:
		return problem->attending.dtype;
	case HYS_TYPE_F8:
		return HYS_F8E4M3;
	default:
		return HYS_F32;
	}
}
