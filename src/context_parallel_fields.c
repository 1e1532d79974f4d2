/* Which tensors of an operation are of keys, and where they go. */
#include "context_parallel.h"

#define FIELD(args, tensor, part, use)                                               \
	{                                                                            \
		offsetof(struct args, tensor), HYS_CUT_##part, HYS_CP_##use, #tensor \
	}

static const struct hys_cp_field select_fields[] = {
	FIELD(hys_select_args, index_k, ENTRIES, IN),
	FIELD(hys_select_args, index_k_scale, ENTRIES, IN),
};

static const struct hys_cp_field forward_fields[] = {
	FIELD(hys_attention_args, k, KEYS, IN),
	FIELD(hys_attention_args, v, KEYS, IN),
	FIELD(hys_attention_args, window_k, WINDOW_KEYS, IN),
	FIELD(hys_attention_args, window_v, WINDOW_KEYS, IN),
};

static const struct hys_cp_field backward_fields[] = {
	FIELD(hys_attention_grad_args, k, KEYS, IN),
	FIELD(hys_attention_grad_args, v, KEYS, IN),
	FIELD(hys_attention_grad_args, window_k, WINDOW_KEYS, IN),
	FIELD(hys_attention_grad_args, window_v, WINDOW_KEYS, IN),
	FIELD(hys_attention_grad_args, dk, KEYS, SUM),
	FIELD(hys_attention_grad_args, dv, KEYS, SUM),
	FIELD(hys_attention_grad_args, dwindow_k, WINDOW_KEYS, SUM),
	FIELD(hys_attention_grad_args, dwindow_v, WINDOW_KEYS, SUM),
	FIELD(hys_attention_grad_args, dsink, ROWS, TOTAL),
};

static const struct hys_cp_field loss_fields[] = {
	FIELD(hys_loss_args, index_k, ENTRIES, IN),
	FIELD(hys_loss_args, k, KEYS, IN),
	FIELD(hys_loss_args, d_index_k, ENTRIES, SUM),
	FIELD(hys_loss_args, loss, ROWS, TOTAL),
};

static const struct hys_cp_field fidelity_fields[] = {
	FIELD(hys_fidelity_args, k, KEYS, IN),
};

static hys_status call_select(struct hys_exec *exec, struct hys_batch *batch, const void *args,
			      struct hys_error *error)
{
	return hys_select(exec, batch, args, error);
}

static hys_status call_forward(struct hys_exec *exec, struct hys_batch *batch, const void *args,
			       struct hys_error *error)
{
	return hys_attention_forward(exec, batch, args, error);
}

static hys_status call_backward(struct hys_exec *exec, struct hys_batch *batch, const void *args,
				struct hys_error *error)
{
	return hys_attention_backward(exec, batch, args, error);
}

static hys_status call_loss(struct hys_exec *exec, struct hys_batch *batch, const void *args,
			    struct hys_error *error)
{
	return hys_indexer_loss(exec, batch, args, error);
}

static hys_status call_fidelity(struct hys_exec *exec, struct hys_batch *batch, const void *args,
				struct hys_error *error)
{
	return hys_fidelity(exec, batch, args, error);
}

#define OP(name, op, args, fields, call, by_slices)                                              \
	{                                                                                        \
		name, op, sizeof(struct args), fields, sizeof(fields) / sizeof(fields[0]), call, \
			by_slices                                                                \
	}

static const struct hys_cp_op ops[] = {
	OP("select", HYS_OP_SELECT, hys_select_args, select_fields, call_select, true),
	OP("attention_forward", HYS_OP_ATTENTION_FORWARD, hys_attention_args, forward_fields,
	   call_forward, true),
	OP("attention_backward", HYS_OP_ATTENTION_BACKWARD, hys_attention_grad_args,
	   backward_fields, call_backward, false),
	OP("indexer_loss", HYS_OP_INDEXER_LOSS, hys_loss_args, loss_fields, call_loss, false),
	OP("fidelity", HYS_OP_FIDELITY, hys_fidelity_args, fidelity_fields, call_fidelity, false),
};

const struct hys_cp_op *hys_cp_op_of(hys_op op)
{
	if (op == HYS_OP_SELECT_COARSE || op == HYS_OP_SELECT_COARSE_TO_FINE)
		op = HYS_OP_SELECT;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (ops[i].op == op)
			return &ops[i];
	return NULL;
}
