/* omp_attention_ref.c - attention forward and backward as plain loops over
 * doubles: one row, head and key row after the other. */
#include <math.h>
#include <string.h>

#include "omp_kernels.h"
#include "omp_tile.h"

/* f32 copies of what one (row, head) works on, and its own sums. */
struct scratch {
	float *q, *k, *v, *grad_o; /* [D], [D], [V], [V] */
	double *sum;		   /* [max(D, V)] */
	float *out, *spare;	   /* [max(D, V)] */
};

struct ref {
	const struct hys_call *call;
	const struct omp_isa *isa;
	struct omp_rows rows;
	const struct hys_tensor *q, *sink;
	struct omp_source keys, values;
	int64_t heads, kv_heads, head_dim, value_dim;
	char *scratch;
	int64_t scratch_bytes;
	/* backward: gradients of all key rows of both sources */
	double *dk, *dv, *dsink; /* [S+S2,G,D], [S+S2,G,V], [H] */
};

static struct scratch lay_out(struct omp_arena *arena, const struct hys_problem *problem)
{
	const int64_t head_dim = problem->attending.head_dim;
	const int64_t value_dim = problem->attending.value_dim;
	const int64_t larger = hys_max64(head_dim, value_dim);

	return (struct scratch){
		.q = omp_take(arena, head_dim, sizeof(float)),
		.k = omp_take(arena, head_dim, sizeof(float)),
		.v = omp_take(arena, value_dim, sizeof(float)),
		.grad_o = omp_take(arena, value_dim, sizeof(float)),
		.sum = omp_take(arena, larger, sizeof(double)),
		.out = omp_take(arena, larger, sizeof(float)),
		.spare = omp_take(arena, larger, sizeof(float)),
	};
}

static int64_t scratch_bytes(const struct hys_problem *problem)
{
	struct omp_arena arena = {0};

	lay_out(&arena, problem);
	return arena.used;
}

static double dot(const float *a, const float *b, int64_t n)
{
	double sum = 0.0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)a[i] * (double)b[i];
	return sum;
}

/* Fills *factor, if wanted, with the derivative by the dot product. */
static double logit(const struct ref *r, double product, double *factor)
{
	const double scale = r->call->problem->attending.scale;
	const double cap = r->call->problem->attending.softcap;
	const double bent = cap > 0.0 ? tanh(scale * product / cap) : 0.0;

	if (factor)
		*factor = scale * (1.0 - bent * bent);
	return cap > 0.0 ? cap * bent : scale * product;
}

static void walk_head(const struct ref *r, int64_t row, int64_t head, struct omp_walk *walk)
{
	const int64_t groups = r->call->problem->scoring.groups;

	omp_walk_start(walk, &r->rows, row, head / (r->heads / groups));
}

static void load_key(const struct ref *r, const struct scratch *s, int64_t head, int64_t key)
{
	const int64_t kv_head = head / (r->heads / r->kv_heads);

	omp_gather(r->isa, &r->keys, kv_head, &key, 1, r->head_dim, s->k, 0);
	omp_gather(r->isa, &r->values, kv_head, &key, 1, r->value_dim, s->v, 0);
}

static double sink_of(const struct ref *r, int64_t head)
{
	const double none = -(double)INFINITY;

	return hys_present(r->sink) ? (double)*(const float *)omp_at(r->sink, head, 0, 0) : none;
}

static double log_sum_exp(const struct ref *r, const struct scratch *s, int64_t row, int64_t head)
{
	double lse = -(double)INFINITY;
	struct omp_walk walk;
	int64_t key;

	walk_head(r, row, head, &walk);
	while (omp_walk_keys(&walk, &key, 1) > 0) {
		load_key(r, s, head, key);
		lse = omp_log_add(lse, logit(r, dot(s->q, s->k, r->head_dim), NULL));
	}
	return lse;
}

static void store(const struct ref *r, const struct scratch *s, const struct hys_tensor *x,
		  int64_t i0, int64_t i1, const double *values, int64_t n, bool add)
{
	for (int64_t i = 0; i < n; i++)
		s->out[i] = (float)values[i];
	omp_store(r->isa, x, i0, i1, s->out, n, add, s->spare);
}

static void forward_head(const struct ref *r, const struct scratch *s, int64_t row, int64_t head)
{
	const struct hys_attention_args *args = &r->call->args.attention;
	struct omp_walk walk;
	int64_t key;

	omp_load(r->isa, r->q, row, head, 1, r->head_dim, s->q, 0);
	memset(s->sum, 0, (size_t)r->value_dim * sizeof(double));
	const double lse = log_sum_exp(r, s, row, head);
	const double total = omp_log_add(lse, sink_of(r, head));

	walk_head(r, row, head, &walk);
	while (lse != -(double)INFINITY && omp_walk_keys(&walk, &key, 1) > 0) {
		load_key(r, s, head, key);
		const double share = exp(logit(r, dot(s->q, s->k, r->head_dim), NULL) - total);

		for (int64_t i = 0; i < r->value_dim; i++)
			s->sum[i] += share * (double)s->v[i];
	}
	store(r, s, &args->o, row, head, s->sum, r->value_dim, false);
	if (hys_present(&args->lse))
		*(float *)omp_at(&args->lse, row, head, 0) = (float)lse;
}

static void forward_row(void *context, int64_t row, int32_t thread)
{
	const struct ref *r = context;
	struct omp_arena arena = {r->scratch + thread * r->scratch_bytes, 0};
	const struct scratch s = lay_out(&arena, r->call->problem);

	for (int64_t head = 0; head < r->heads; head++)
		forward_head(r, &s, row, head);
}

/* What both passes share; second: whether the call has a second source. */
static struct ref make(const struct hys_kernel *kernel, const struct hys_stream *stream,
		       const struct hys_call *call, bool second)
{
	const struct hys_attending *attending = &call->problem->attending;

	return (struct ref){
		.call = call,
		.isa = omp_isa_of_stream(kernel, stream),
		.rows = {call->problem, &call->batch, NULL, call->size.keys, call->size.entries,
			 second ? call->size.window_keys : 0},
		.heads = attending->heads,
		.kv_heads = attending->kv_heads,
		.head_dim = attending->head_dim,
		.value_dim = attending->value_dim,
		.scratch = omp_arena(&call->workspace).base,
		.scratch_bytes = scratch_bytes(call->problem),
	};
}

int64_t omp_attention_forward_ref_workspace(const struct hys_kernel *kernel,
					    const struct hys_device *device,
					    const struct hys_size *size)
{
	(void)kernel;
	return hys_mul64(scratch_bytes(size->problem), omp_device(device)->threads);
}

hys_status omp_attention_forward_ref_run(const struct hys_kernel *kernel, struct hys_stream *stream,
					 void *instance, const struct hys_call *call,
					 struct hys_error *error)
{
	const struct hys_attention_args *args = &call->args.attention;
	struct ref r = make(kernel, stream, call, hys_present(&args->window_k));

	(void)instance, (void)error;
	r.rows.indices = &args->indices;
	r.q = &args->q;
	r.sink = &args->sink;
	r.keys = (struct omp_source){&args->k, &args->window_k, call->size.keys};
	r.values = omp_values(&r.keys, &args->v, &args->window_v);
	omp_for(omp_threads(stream), call->size.rows, forward_row, &r);
	return HYS_OK;
}

/* ---- backward ---- */

static void add_scaled(double *sum, double factor, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] += factor * (double)x[i];
}

/* One (row, head, key row): s->sum is dq, s->out the forward output. */
static void backward_key(const struct ref *r, const struct scratch *s, int64_t head, int64_t key,
			 double total, double mean)
{
	const int64_t at = key * r->kv_heads + head / (r->heads / r->kv_heads);
	const bool second = key >= r->keys.split;
	const bool shared =
		second ? r->values.second == r->keys.second : r->values.first == r->keys.first;
	double *dv = shared ? r->dk + at * r->head_dim : r->dv + at * r->value_dim;
	double factor;

	load_key(r, s, head, key);
	const double l = logit(r, dot(s->q, s->k, r->head_dim), &factor);
	const double share = exp(l - total);
	const double d_dot = share * (dot(s->grad_o, s->v, r->value_dim) - mean) * factor;

	add_scaled(s->sum, d_dot, s->k, r->head_dim);
	add_scaled(r->dk + at * r->head_dim, d_dot, s->q, r->head_dim);
	add_scaled(dv, share, s->grad_o, r->value_dim);
}

static void backward_head(const struct ref *r, const struct scratch *s, int64_t row, int64_t head)
{
	const struct hys_attention_grad_args *args = &r->call->args.attention_grad;
	const double lse = (double)*(const float *)omp_at(&args->lse, row, head, 0);
	const double total = omp_log_add(lse, sink_of(r, head));
	struct omp_walk walk;
	int64_t key;

	omp_load(r->isa, r->q, row, head, 1, r->head_dim, s->q, 0);
	omp_load(r->isa, &args->grad_o, row, head, 1, r->value_dim, s->grad_o, 0);
	omp_load(r->isa, &args->o, row, head, 1, r->value_dim, s->out, 0);
	memset(s->sum, 0, (size_t)r->head_dim * sizeof(double));
	const double mean = dot(s->grad_o, s->out, r->value_dim);

	walk_head(r, row, head, &walk);
	if (lse != -(double)INFINITY) {
		while (omp_walk_keys(&walk, &key, 1) > 0)
			backward_key(r, s, head, key, total, mean);
		r->dsink[head] -= exp(sink_of(r, head) - total) * mean;
	}
	if (hys_present(&args->dq))
		store(r, s, &args->dq, row, head, s->sum, r->head_dim,
		      args->flags & HYS_GRAD_ACCUMULATE);
}

/* Rows [first, first + count) of sums[*,G,dim] go to x[count,G,dim]. */
static void store_rows(const struct ref *r, const struct scratch *s, const struct hys_tensor *x,
		       const double *sums, int64_t first, int64_t dim)
{
	const bool add = hys_adds_sums(r->call->args.attention_grad.flags);

	if (!hys_present(x))
		return;
	for (int64_t i = 0; i < x->shape[0]; i++)
		for (int64_t g = 0; g < r->kv_heads; g++)
			store(r, s, x, i, g, sums + ((first + i) * r->kv_heads + g) * dim, dim,
			      add);
}

static struct scratch lay_out_backward(struct omp_arena *arena, const struct hys_size *size,
				       struct ref *r)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t rows = hys_add64(size->keys, size->window_keys);
	const int64_t elements = hys_mul64(rows, attending->kv_heads);

	r->dk = omp_take(arena, hys_mul64(elements, attending->head_dim), sizeof(double));
	r->dv = omp_take(arena, hys_mul64(elements, attending->value_dim), sizeof(double));
	r->dsink = omp_take(arena, attending->heads, sizeof(double));
	return lay_out(arena, size->problem);
}

int64_t omp_attention_backward_ref_workspace(const struct hys_kernel *kernel,
					     const struct hys_device *device,
					     const struct hys_size *size)
{
	struct omp_arena arena = {0};
	struct ref r;

	(void)kernel, (void)device;
	lay_out_backward(&arena, size, &r);
	return arena.used;
}

hys_status omp_attention_backward_ref_run(const struct hys_kernel *kernel,
					  struct hys_stream *stream, void *instance,
					  const struct hys_call *call, struct hys_error *error)
{
	const struct hys_attention_grad_args *args = &call->args.attention_grad;
	struct ref r = make(kernel, stream, call, hys_present(&args->window_k));
	struct omp_arena arena = omp_arena(&call->workspace);
	const struct scratch s = lay_out_backward(&arena, &call->size, &r);

	(void)stream, (void)instance, (void)error;
	r.rows.indices = &args->indices;
	r.q = &args->q;
	r.sink = &args->sink;
	r.keys = (struct omp_source){&args->k, &args->window_k, call->size.keys};
	r.values = omp_values(&r.keys, &args->v, &args->window_v);
	memset(r.dk, 0, (size_t)((char *)s.q - (char *)r.dk));
	for (int64_t row = 0; row < call->size.rows; row++)
		for (int64_t head = 0; head < r.heads; head++)
			backward_head(&r, &s, row, head);
	store_rows(&r, &s, &args->dk, r.dk, 0, r.head_dim);
	store_rows(&r, &s, &args->dv, r.dv, 0, r.value_dim);
	store_rows(&r, &s, &args->dwindow_k, r.dk, call->size.keys, r.head_dim);
	store_rows(&r, &s, &args->dwindow_v, r.dv, call->size.keys, r.value_dim);
	for (int64_t h = 0; hys_present(&args->dsink) && h < r.heads; h++) {
		float *out = omp_at(&args->dsink, h, 0, 0);
		const bool add = hys_adds_sums(args->flags);

		*out = (float)(r.dsink[h] + (add ? (double)*out : 0.0));
	}
	return HYS_OK;
}
