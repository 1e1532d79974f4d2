/*
 * Attention over selected rows, forward and backward.
 *
 * Readings of the specification:
 *  - A slot is absent if its index is negative, if the rows it stands for, cut to
 *    the row's interval, are none, or if it lies below the last accepted index of
 *    the same (t, u) plus g (plus 1 when pool > 1).  Absent slots do not count as
 *    predecessors.
 *  - pool > 1: entry i stands for `pool` key rows from key_origin + (i -
 *    entry_origin) * pool on; pool 1: index i stands for rows [i, i+g).
 *  - Key rows of A are each attended once, in ascending order; the second source
 *    joins the same softmax.
 *  - A row with nothing to attend has o = 0, lse = -inf and no gradient, with a
 *    sink too.  So has one whose logits are all -inf.
 */
#include "oracle.h"
#include "oracle_internal.h"

void ora_key_interval(const struct ora_attention *a, int64_t t, int64_t *begin, int64_t *end)
{
	*begin = a->row_begin != NULL ? ora_max(a->row_begin[t], 0) : 0;
	*end = a->row_end != NULL ? ora_min(a->row_end[t], a->keys) : a->keys;
	*end = ora_max(*end, *begin);
}

static void window_interval(const struct ora_attention *a, int64_t t, int64_t *begin, int64_t *end)
{
	const int64_t rows = a->window_k != NULL ? a->window_keys : 0;
	*begin = a->window_begin != NULL ? ora_max(a->window_begin[t], 0) : 0;
	*end = a->window_end != NULL ? ora_min(a->window_end[t], rows) : rows;
	*end = ora_max(*end, *begin);
}

void ora_index_keys(const struct ora_attention *a, int64_t t, int64_t i, int64_t *begin,
		    int64_t *end)
{
	const int64_t pool = ora_or_one(a->pool);
	int64_t first = i, count = ora_or_one(a->granularity);
	if (pool > 1) {
		const int64_t key_origin = a->key_origin != NULL ? a->key_origin[t] : 0;
		const int64_t entry_origin = a->entry_origin != NULL ? a->entry_origin[t] : 0;
		first = key_origin + (i - entry_origin) * pool;
		count = pool;
	}
	int64_t row_begin, row_end;
	ora_key_interval(a, t, &row_begin, &row_end);
	*begin = ora_max(first, row_begin);
	*end = ora_min(first + count, row_end);
}

void ora_valid_slots(const struct ora_attention *a, int64_t t, int32_t u, unsigned char *valid)
{
	const int32_t *indices = a->indices + (t * ora_or_one(a->groups) + u) * a->topk;
	const int64_t step = ora_or_one(a->pool) > 1 ? 1 : ora_or_one(a->granularity);
	int64_t least = 0; /* the next index accepted */
	for (int32_t slot = 0; slot < a->topk; slot++) {
		int64_t begin, end;
		ora_index_keys(a, t, indices[slot], &begin, &end);
		valid[slot] = indices[slot] >= least && begin < end;
		if (valid[slot])
			least = indices[slot] + step;
	}
}

/* marks[s - row_begin] = 1 for s in [begin, end). */
static void mark(unsigned char *marks, int64_t row_begin, int64_t begin, int64_t end)
{
	for (int64_t s = begin; s < end; s++)
		marks[s - row_begin] = 1;
}

static void mark_indices(const struct ora_attention *a, int64_t t, int32_t u, int64_t row_begin,
			 unsigned char *marks)
{
	const int32_t *indices = a->indices + (t * ora_or_one(a->groups) + u) * a->topk;
	unsigned char *valid = ora_alloc(a->topk, 1);
	ora_valid_slots(a, t, u, valid);
	for (int32_t slot = 0; slot < a->topk; slot++) {
		int64_t begin, end;
		ora_index_keys(a, t, indices[slot], &begin, &end);
		if (valid[slot])
			mark(marks, row_begin, begin, end);
	}
	free(valid);
}

int64_t ora_attended_keys(const struct ora_attention *a, int64_t t, int32_t u, int32_t *keys)
{
	int64_t begin, end;
	ora_key_interval(a, t, &begin, &end);
	unsigned char *marks = ora_alloc(end - begin, 1);
	if (a->dense) {
		mark(marks, begin, begin, end);
	} else {
		if (a->indices != NULL)
			mark_indices(a, t, u, begin, marks);
		mark(marks, begin, ora_max(begin, end - a->window), end);
		mark(marks, begin, begin, ora_min(end, begin + a->first));
	}
	int64_t count = 0;
	for (int64_t s = begin; s < end; s++)
		if (marks[s - begin])
			keys[count++] = (int32_t)s;
	free(marks);
	return count;
}

/* What one (row, group) attends to, and room for one head's numbers. */
struct row {
	int64_t t;
	int64_t from_keys; /* places before this one are key rows, the rest rows of the second source */
	int64_t count;
	int32_t *places;	 /* [count] row numbers */
	double *logits, *shares; /* [count] */
	double lse, sink_share;
};

static struct row new_row(const struct ora_attention *a)
{
	const int64_t room = a->keys + (a->window_k != NULL ? a->window_keys : 0);
	return (struct row){.places = ora_alloc(room, sizeof(int32_t)),
			    .logits = ora_doubles(room),
			    .shares = ora_doubles(room)};
}

static void free_row(struct row *row)
{
	free(row->places);
	free(row->logits);
	free(row->shares);
}

static void gather(const struct ora_attention *a, int64_t t, int32_t u, struct row *row)
{
	int64_t begin, end;
	row->t = t;
	row->from_keys = ora_attended_keys(a, t, u, row->places);
	row->count = row->from_keys;
	window_interval(a, t, &begin, &end);
	for (int64_t s = begin; s < end; s++)
		row->places[row->count++] = (int32_t)s;
}

/* Offset of a row of [rows,G,dim] for kv head g. */
static int64_t offset(const struct ora_attention *a, int64_t row, int32_t g, int32_t dim)
{
	return (row * a->kv_heads + g) * dim;
}

/* The i-th attended row in the keys of its source. */
static const double *key_at(const struct ora_attention *a, const struct row *row, int64_t i,
			    int32_t g)
{
	const double *keys = i < row->from_keys ? a->k : a->window_k;
	return keys + offset(a, row->places[i], g, a->head_dim);
}

/* ... and in its values: the first channels of the key where there are none. */
static const double *value_at(const struct ora_attention *a, const struct row *row, int64_t i,
			      int32_t g)
{
	const double *values = i < row->from_keys ? a->v : a->window_v;
	return values != NULL ? values + offset(a, row->places[i], g, a->value_dim)
			      : key_at(a, row, i, g);
}

/* Logits, lse and shares of head h. */
static void attend(struct ora_attention *a, struct row *row, int32_t h)
{
	const int32_t g = h / (a->heads / a->kv_heads);
	const double *q = a->q + (row->t * a->heads + h) * a->head_dim;
	for (int64_t i = 0; i < row->count; i++) {
		const double dot = ora_dot(q, key_at(a, row, i, g), a->head_dim);
		row->logits[i] = ora_logit(dot, a->scale, a->softcap);
		if (isfinite(row->logits[i]) && fabs(row->logits[i]) > a->largest_logit)
			a->largest_logit = fabs(row->logits[i]);
	}
	row->lse = ora_log_sum_exp(row->logits, row->count);
	const double sink = a->sink != NULL ? a->sink[h] : -(double)INFINITY;
	const double total =
		row->lse == -(double)INFINITY ? row->lse : ora_log_add_exp(row->lse, sink);
	for (int64_t i = 0; i < row->count; i++)
		row->shares[i] = ora_share(row->logits[i], total);
	row->sink_share = ora_share(sink, total);
}

/* o = sum of share * value. */
static void mix(const struct ora_attention *a, const struct row *row, int32_t h, double *o)
{
	const int32_t g = h / (a->heads / a->kv_heads);
	ora_zero(o, a->value_dim);
	if (row->lse == -(double)INFINITY)
		return;
	for (int64_t i = 0; i < row->count; i++) {
		const double *v = value_at(a, row, i, g);
		for (int32_t d = 0; d < a->value_dim; d++)
			o[d] += row->shares[i] * v[d];
	}
}

void ora_attention_forward(struct ora_attention *a)
{
	const int32_t heads_per_group = a->heads / ora_or_one(a->groups);
	const int64_t end = ora_row_end(a->rows, a->row_first, a->row_count);
	struct row row = new_row(a);
	a->largest_logit = 0.0;
	for (int64_t t = a->row_first; t < end; t++)
		for (int32_t h = 0; h < a->heads; h++) {
			if (h % heads_per_group == 0)
				gather(a, t, h / heads_per_group, &row);
			attend(a, &row, h);
			if (a->o != NULL)
				mix(a, &row, h, a->o + (t * a->heads + h) * a->value_dim);
			if (a->lse != NULL)
				a->lse[t * a->heads + h] = row.lse;
		}
	free_row(&row);
}

static void add_scaled(double *sum, double factor, const double *values, int64_t count)
{
	if (sum != NULL)
		for (int64_t i = 0; i < count; i++)
			sum[i] += factor * values[i];
}

/* Where the gradients of the i-th attended row go; NULL if nobody wants them. */
static double *key_gradient(const struct ora_attention *a, const struct row *row, int64_t i,
			    int32_t g)
{
	double *keys = i < row->from_keys ? a->dk : a->dwindow_k;
	return keys != NULL ? keys + offset(a, row->places[i], g, a->head_dim) : NULL;
}

static double *value_gradient(const struct ora_attention *a, const struct row *row, int64_t i,
			      int32_t g)
{
	const int from_keys = i < row->from_keys;
	if ((from_keys ? a->v : a->window_v) == NULL)
		return key_gradient(a, row, i, g);
	double *values = from_keys ? a->dv : a->dwindow_v;
	return values != NULL ? values + offset(a, row->places[i], g, a->value_dim) : NULL;
}

/* Adds the gradients of head h; row holds its shares, `own_o` its output. */
static void differentiate(struct ora_attention *a, const struct row *row, int32_t h,
			  const double *own_o)
{
	const int32_t g = h / (a->heads / a->kv_heads);
	const int64_t head = row->t * a->heads + h;
	const double *q = a->q + head * a->head_dim;
	const double *grad_o = a->grad_o + head * a->value_dim;
	const double *o = a->given_o != NULL ? a->given_o + head * a->value_dim : own_o;
	const double total = ora_dot(o, grad_o, a->value_dim);
	double *dq = a->dq != NULL ? a->dq + head * a->head_dim : NULL;
	if (row->lse == -(double)INFINITY)
		return;
	for (int64_t i = 0; i < row->count; i++) {
		const double d_share = ora_dot(value_at(a, row, i, g), grad_o, a->value_dim);
		double d_dot = row->shares[i] * (d_share - total) * a->scale;
		if (a->softcap > 0.0)
			d_dot *=
				1.0 - (row->logits[i] / a->softcap) * (row->logits[i] / a->softcap);
		add_scaled(dq, d_dot, key_at(a, row, i, g), a->head_dim);
		add_scaled(key_gradient(a, row, i, g), d_dot, q, a->head_dim);
		add_scaled(value_gradient(a, row, i, g), row->shares[i], grad_o, a->value_dim);
	}
	if (a->dsink != NULL)
		a->dsink[h] -= row->sink_share * total;
}

static void zero_gradients(const struct ora_attention *a, int64_t end)
{
	const int64_t per_row = (int64_t)a->heads * a->head_dim;
	if (a->dq != NULL)
		ora_zero(a->dq + a->row_first * per_row, (end - a->row_first) * per_row);
	ora_zero(a->dk, a->keys * a->kv_heads * a->head_dim);
	ora_zero(a->dv, a->keys * a->kv_heads * a->value_dim);
	ora_zero(a->dwindow_k, a->window_keys * a->kv_heads * a->head_dim);
	ora_zero(a->dwindow_v, a->window_keys * a->kv_heads * a->value_dim);
	ora_zero(a->dsink, a->heads);
}

void ora_attention_backward(struct ora_attention *a)
{
	const int32_t heads_per_group = a->heads / ora_or_one(a->groups);
	const int64_t end = ora_row_end(a->rows, a->row_first, a->row_count);
	struct row row = new_row(a);
	double *o = ora_doubles(a->value_dim);
	a->largest_logit = 0.0;
	zero_gradients(a, end);
	for (int64_t t = a->row_first; t < end; t++)
		for (int32_t h = 0; h < a->heads; h++) {
			if (h % heads_per_group == 0)
				gather(a, t, h / heads_per_group, &row);
			attend(a, &row, h);
			mix(a, &row, h, o);
			differentiate(a, &row, h, o);
		}
	free(o);
	free_row(&row);
}
