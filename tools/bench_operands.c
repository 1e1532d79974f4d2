/* bench_operands.c - the arguments of each operation that `bench` times. */
#include "bench.h"

#include <string.h>

static bool shared_value(const struct hys_problem *p)
{
	return p->attending.kv_heads == 1 && p->attending.value_dim < p->attending.head_dim;
}

static void make_select(struct bench_data *d, const struct bench *b, struct hys_select_args *args)
{
	const struct hys_scoring *s = &b->problem.scoring;
	int64_t entries = b->keys / s->pool;
	bool f8 = s->dtype == HYS_F8E4M3;
	double share = (double)b->share / 100;
	args->struct_size = sizeof *args;
	args->method = b->problem.choosing.method;
	args->index_q = bench_rows(d, s->dtype, 3, b->rows, s->heads, s->dim, share);
	args->index_k = bench_keys(d, s->dtype, entries, s->dim, (double)b->key_spread / 10);
	args->index_w = bench_weights(d, b->rows, s->heads, share, b->positive_weights);
	args->indices = bench_tensor(d, HYS_I32, 3, b->rows, s->groups, b->topk, 0);
	args->counts = bench_tensor(d, HYS_I32, 2, b->rows, s->groups, 0, 0);
	if (f8) {
		args->index_q_scale = bench_tensor(d, HYS_F32, 2, b->rows, s->heads, 0, 0);
		args->index_k_scale = bench_tensor(d, HYS_F32, 1, entries, 0, 0, 0);
		/* 0x3f3f3f3f = 0.747: any positive scale will do. */
		for (int32_t i = d->count - 2; !d->failed && i < d->count; i++)
			d->failed = hys_buffer_fill(d->exec, d->buffers[i], 0,
						    hys_buffer_bytes(d->buffers[i]), 0x3f,
						    &d->error) != HYS_OK;
	}
}

static struct hys_tensor make_indices(struct bench_data *d, const struct bench *b)
{
	const struct bench_choice choice = {.rows = b->rows,
					    .groups = b->problem.scoring.groups,
					    .topk = b->topk,
					    .keys = b->keys / b->problem.scoring.pool,
					    .step = b->problem.attending.granularity,
					    .share = (double)b->share / 100,
					    .causal = !b->full};
	return bench_indices(d, &choice);
}

static void make_attention(struct bench_data *d, const struct bench *b,
			   struct hys_attention_args *args)
{
	const struct hys_attending *a = &b->problem.attending;
	args->struct_size = sizeof *args;
	args->q = bench_tensor(d, a->dtype, 3, b->rows, a->heads, a->head_dim, 1);
	args->k = bench_tensor(d, a->dtype, 3, b->keys, a->kv_heads, a->head_dim, 1);
	if (!shared_value(&b->problem))
		args->v = bench_tensor(d, a->dtype, 3, b->keys, a->kv_heads, a->value_dim, 1);
	if (!(a->flags & HYS_ATTENDING_DENSE))
		args->indices = make_indices(d, b);
	args->o = bench_tensor(d, a->dtype, 3, b->rows, a->heads, a->value_dim, 0);
	args->lse = bench_tensor(d, HYS_F32, 2, b->rows, a->heads, 0, 0);
}

static void make_backward(struct bench_data *d, const struct bench *b,
			  const struct hys_attention_args *forward,
			  struct hys_attention_grad_args *args)
{
	const struct hys_attending *a = &b->problem.attending;
	args->struct_size = sizeof *args;
	args->q = forward->q;
	args->k = forward->k;
	args->v = forward->v;
	args->indices = forward->indices;
	args->o = forward->o;
	args->lse = forward->lse;
	args->grad_o = bench_tensor(d, a->dtype, 3, b->rows, a->heads, a->value_dim, 1);
	args->dq = bench_tensor(d, a->dtype, 3, b->rows, a->heads, a->head_dim, 0);
	args->dk = bench_tensor(d, a->dtype, 3, b->keys, a->kv_heads, a->head_dim, 0);
	if (!shared_value(&b->problem))
		args->dv = bench_tensor(d, a->dtype, 3, b->keys, a->kv_heads, a->value_dim, 0);
}

static void make_loss(struct bench_data *d, const struct bench *b, struct hys_loss_args *args)
{
	const struct hys_scoring *s = &b->problem.scoring;
	const struct hys_attending *a = &b->problem.attending;
	int64_t entries = b->keys / s->pool;
	args->struct_size = sizeof *args;
	args->index_q = bench_tensor(d, s->dtype, 3, b->rows, s->heads, s->dim, 1);
	args->index_k = bench_tensor(d, s->dtype, 2, entries, s->dim, 0, 1);
	args->index_w = bench_tensor(d, HYS_F32, 2, b->rows, s->heads, 0, 1);
	args->indices = make_indices(d, b);
	args->q = bench_tensor(d, a->dtype, 3, b->rows, a->heads, a->head_dim, 1);
	args->k = bench_tensor(d, a->dtype, 3, b->keys, a->kv_heads, a->head_dim, 1);
	args->loss = bench_tensor(d, HYS_F32, 1, 1, 0, 0, 0);
	args->d_index_q = bench_tensor(d, s->dtype, 3, b->rows, s->heads, s->dim, 0);
	args->d_index_k = bench_tensor(d, s->dtype, 2, entries, s->dim, 0, 0);
	args->d_index_w = bench_tensor(d, HYS_F32, 2, b->rows, s->heads, 0, 0);
}

static void make_pool(struct bench_data *d, const struct bench *b, struct hys_pool_args *args)
{
	const struct hys_scoring *s = &b->problem.scoring;
	args->struct_size = sizeof *args;
	args->x = bench_tensor(d, s->dtype, 2, b->keys, s->dim, 0, 1);
	args->y = bench_tensor(d, s->dtype, 2, b->keys / s->pool, s->dim, 0, 0);
}

hys_status bench_call(hys_op op, struct hys_exec *exec, struct hys_batch *batch,
		      const union arguments *args, struct hys_error *error)
{
	hys_status status;
	switch (op) {
	case HYS_OP_ATTENTION_FORWARD:
		status = hys_attention_forward(exec, batch, &args->forward, error);
		break;
	case HYS_OP_ATTENTION_BACKWARD:
		status = hys_attention_backward(exec, batch, &args->backward, error);
		break;
	case HYS_OP_INDEXER_LOSS:
		status = hys_indexer_loss(exec, batch, &args->loss, error);
		break;
	case HYS_OP_POOL:
		status = hys_pool(exec, batch, &args->pool, error);
		break;
	default:
		status = hys_select(exec, batch, &args->select, error);
		break;
	}
	return status == HYS_OK ? hys_exec_finish(exec, error) : status;
}

bool bench_operands(struct bench_data *d, const struct bench *b, hys_op op, struct hys_batch *batch,
		    union arguments *args)
{
	union arguments forward;
	memset(args, 0, sizeof *args);
	memset(&forward, 0, sizeof forward);
	switch (op) {
	case HYS_OP_ATTENTION_FORWARD:
		make_attention(d, b, &args->forward);
		break;
	case HYS_OP_ATTENTION_BACKWARD:
		make_attention(d, b, &forward.forward);
		make_backward(d, b, &forward.forward, &args->backward);
		if (!d->failed)
			d->failed = bench_call(HYS_OP_ATTENTION_FORWARD, d->exec, batch, &forward,
					       &d->error) != HYS_OK;
		break;
	case HYS_OP_INDEXER_LOSS:
		make_loss(d, b, &args->loss);
		break;
	case HYS_OP_POOL:
		make_pool(d, b, &args->pool);
		break;
	default:
		make_select(d, b, &args->select);
		break;
	}
	return !d->failed;
}
