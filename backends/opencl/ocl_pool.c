/* ocl_pool.c - pooling and its backward. */
#include "ocl_pool.h"

enum { POOL, POOL_BOUNDS, POOL_NORMS, POOL_BACKWARD, POOL_BIAS_BACKWARD };

static const char *const entries[] = {"pool",	       "pool_bounds",	     "pool_norms",
				      "pool_backward", "pool_bias_backward", NULL};
const struct hys_ocl_source hys_ocl_pool_source = {"pool.cl", entries, NULL, NULL, NULL};

/* What forward and backward have in common; POOLING_ARGS of pool.cl. */
struct pooling {
	const struct hys_call *call;
	const struct hys_tensor *x, *gate, *bias;
	hys_pooling kind;
	bool blocks; /* units are coarse blocks */
	int64_t channels;
};

static int64_t size_of(const struct pooling *p)
{
	const struct hys_problem *problem = p->call->problem;
	return p->blocks ? problem->choosing.coarse_block : problem->scoring.pool;
}

static void pooling_args(struct hys_ocl_args *args, const struct pooling *p)
{
	const struct hys_batch_view *batch = &p->call->batch;
	hys_ocl_arg_tensor(args, p->x);
	hys_ocl_arg_tensor(args, p->gate);
	hys_ocl_arg_tensor(args, p->bias);
	hys_ocl_arg_array(args, p->blocks ? &batch->coarse_entry : &batch->entry_key);
	hys_ocl_arg_array(args, p->blocks ? &batch->coarse_doc : &batch->entry_doc);
	hys_ocl_arg_i32(args, p->x->dtype);
	hys_ocl_arg_i32(args, size_of(p));
	hys_ocl_arg_i32(args, p->kind == HYS_POOL_BOUNDS ? HYS_POOL_MEAN : p->kind);
	hys_ocl_arg_i32(args, p->channels);
}

static void output_args(struct hys_ocl_args *args, const struct hys_tensor *tensor)
{
	hys_ocl_arg_tensor(args, tensor);
	hys_ocl_arg_i32(args, tensor->dtype);
}

/* `count` things of `width` channels each, `each` channels to a work-group. */
static hys_status launch(struct hys_ocl_args *args, int64_t count, int64_t width, int64_t each,
			 struct hys_error *error)
{
	const int64_t groups = count * hys_ocl_divide_up(width, each), local = 64;
	return hys_ocl_launch(args, 1, &groups, &local, error);
}

static hys_status pool_units(struct hys_stream *stream, void *instance, const struct pooling *p,
			     const struct hys_pool_args *pool, struct hys_error *error)
{
	struct hys_ocl_args args = hys_ocl_begin(stream, instance, POOL);
	pooling_args(&args, p);
	hys_ocl_arg_i64(&args, p->call->row_first);
	output_args(&args, &pool->y);
	return launch(&args, p->call->size.rows, p->channels, 64, error);
}

static hys_status pool_bounds(struct hys_stream *stream, void *instance, const struct pooling *p,
			      const struct hys_pool_args *pool, struct hys_error *error)
{
	struct hys_ocl_args args = hys_ocl_begin(stream, instance, POOL_BOUNDS);
	pooling_args(&args, p);
	hys_ocl_arg_i64(&args, p->call->row_first);
	output_args(&args, &pool->y);
	hys_ocl_arg_tensor(&args, &pool->lowest);
	hys_ocl_arg_tensor(&args, &pool->highest);
	hys_status status = launch(&args, p->call->size.rows, p->channels, 64, error);
	if (status != HYS_OK || (!hys_present(&pool->norm) && !hys_present(&pool->radius)))
		return status;

	args = hys_ocl_begin(stream, instance, POOL_NORMS);
	pooling_args(&args, p);
	hys_ocl_arg_i64(&args, p->call->row_first);
	hys_ocl_arg_i32(&args, pool->y.dtype);
	hys_ocl_arg_tensor(&args, &pool->norm);
	hys_ocl_arg_tensor(&args, &pool->radius);
	return launch(&args, p->call->size.rows, 1, 1, error);
}

hys_status hys_ocl_pool(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			const struct hys_call *call, struct hys_error *error)
{
	const struct hys_pool_args *pool = &call->args.pool;
	struct pooling p = {.call = call,
			    .x = &pool->x,
			    .gate = &pool->gate,
			    .bias = &pool->bias,
			    .kind = pool->pooling,
			    .blocks = pool->unit == HYS_POOL_BLOCKS,
			    .channels = pool->x.shape[1]};
	(void)kernel;
	if (p.kind == HYS_POOL_OVERLAPPED)
		p.channels /= 2;
	if (p.kind == HYS_POOL_BOUNDS)
		return pool_bounds(stream, instance, &p, pool, error);
	return pool_units(stream, instance, &p, pool, error);
}

/* BACKWARD_ARGS of pool.cl */
static void backward_args(struct hys_ocl_args *args, const struct pooling *p,
			  const struct hys_pool_grad_args *grad)
{
	const struct hys_call *call = p->call;
	pooling_args(args, p);
	hys_ocl_arg_i64(args, call->row_first);
	hys_ocl_arg_array(args, p->blocks ? &call->batch.entry_block : &call->batch.key_entry);
	hys_ocl_arg_i32(args, grad->grad_y.shape[0]);
	output_args(args, &grad->grad_y);
	hys_ocl_arg_i32(args, p->x->shape[1]);
	hys_ocl_arg_i32(args, (grad->flags & HYS_GRAD_ACCUMULATE) != 0);
}

hys_status hys_ocl_pool_backward(const struct hys_kernel *kernel, struct hys_stream *stream,
				 void *instance, const struct hys_call *call,
				 struct hys_error *error)
{
	const struct hys_pool_grad_args *grad = &call->args.pool_grad;
	const int64_t width = grad->x.shape[1];
	struct pooling p = {.call = call,
			    .x = &grad->x,
			    .gate = &grad->gate,
			    .bias = &grad->bias,
			    .kind = grad->pooling,
			    .blocks = grad->unit == HYS_POOL_BLOCKS,
			    .channels = width};
	(void)kernel;
	if (p.kind == HYS_POOL_OVERLAPPED)
		p.channels /= 2;
	struct hys_ocl_args args = hys_ocl_begin(stream, instance, POOL_BACKWARD);
	backward_args(&args, &p, grad);
	output_args(&args, &grad->dx);
	output_args(&args, &grad->dgate);
	hys_status status = launch(&args, call->size.rows, width, 64, error);
	if (status != HYS_OK || !hys_present(&grad->dbias))
		return status;

	args = hys_ocl_begin(stream, instance, POOL_BIAS_BACKWARD);
	backward_args(&args, &p, grad);
	hys_ocl_arg_i64(&args, call->size.rows);
	hys_ocl_arg_tensor(&args, &grad->dbias);
	return launch(&args, size_of(&p), width, 16, error);
}
