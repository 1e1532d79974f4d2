/* Operands of attention cases and the oracle's answer. */
#include "attention_case.h"

#include "oracle_internal.h"

static int32_t or_else(int32_t value, int32_t otherwise)
{
	return value != 0 ? value : otherwise;
}

static void complete_case(struct hys_problem *problem, const struct attention_case *about)
{
	const int32_t head_dim = or_else(about->head_dim, 16);

	*problem = (struct hys_problem){
		.struct_size = sizeof(*problem),
		.scoring = {.groups = or_else(about->groups, 1), .pool = or_else(about->pool, 1)},
		.choosing = {.topk_max = or_else(about->topk, 6)},
		.attending = {.heads = or_else(about->heads, 4),
			      .kv_heads = or_else(about->kv_heads, 1),
			      .head_dim = head_dim,
			      .value_dim = or_else(about->value_dim, head_dim),
			      .granularity = or_else(about->granularity, 1),
			      .window = about->window,
			      .first = about->first,
			      .dtype = or_else((int32_t)about->dtype, HYS_F32),
			      .scale = about->scale != 0 ? about->scale : 1 / sqrt(head_dim),
			      .softcap = about->softcap,
			      .flags = about->features & ATTENTION_DENSE ? HYS_ATTENDING_DENSE : 0},
	};
}

static void draw_indices(struct attention_data *data, struct rng *rng)
{
	const struct indices_want want = {.visible = &data->visible,
					  .pattern = data->about->indices,
					  .groups = data->problem.scoring.groups,
					  .topk = data->problem.choosing.topk_max,
					  .granularity = data->problem.attending.granularity};

	data->indices = indices_make(&want, rng);
	data->topk = data->indices ? want.topk : 0;
}

/* ---- values ---- */

static double *new_values(struct rng *rng, int64_t count, double scale)
{
	double *values = ora_doubles(count);

	rng_fill_normal(rng, values, count, scale);
	return values;
}

static void round_all(double *values, int64_t count, hys_dtype dtype)
{
	for (int64_t i = 0; values && i < count; i++)
		values[i] = element_round(dtype, values[i]);
}

/* Factors of q and k, and of v. */
static void choose_scales(const struct attention_data *data, double *qk, double *v)
{
	const hys_dtype dtype = data->problem.attending.dtype;

	*qk = data->about->values == ATTENTION_SHARP ? 8 : 1;
	*v = 1;
	if (data->about->values == ATTENTION_HUGE)
		*v = dtype == HYS_F16 ? 10000 : 1e30;
	if (data->about->values == ATTENTION_TINY)
		*v = dtype == HYS_F16 ? 2e-4 : 1e-30;
}

static void fill_keys(double *k, int64_t rows, int64_t width, enum attention_values values)
{
	for (int64_t i = 0; i < rows * width; i++) {
		if (values == ATTENTION_EQUAL)
			k[i] = k[i % width];
		if (values == ATTENTION_MINUS && i / width % 3 != 1)
			k[i] = -(double)INFINITY;
	}
}

static void fill_values(struct attention_data *data, struct rng *rng)
{
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *visible = &data->visible;
	const unsigned features = data->about->features;
	const int64_t k_width = (int64_t)a->kv_heads * a->head_dim;
	const int64_t v_width = (int64_t)a->kv_heads * a->value_dim;
	const int64_t q_count = visible->rows * a->heads * a->head_dim;
	const bool window = visible->window_keys > 0;
	double qk, v;

	choose_scales(data, &qk, &v);
	data->q = new_values(rng, q_count, qk);
	data->k = new_values(rng, visible->keys * k_width, features & ATTENTION_SHARED ? v : qk);
	data->v = features & ATTENTION_SHARED ? NULL : new_values(rng, visible->keys * v_width, v);
	data->sink = features & ATTENTION_SINK ? new_values(rng, a->heads, 2.0) : NULL;
	data->window_k = window ? new_values(rng, visible->window_keys * k_width, qk) : NULL;
	data->window_v = window && !(features & ATTENTION_SHARED_WINDOW)
				 ? new_values(rng, visible->window_keys * v_width, v)
				 : NULL;
	fill_keys(data->k, visible->keys, k_width, data->about->values);
	for (int64_t i = 0; data->about->values == ATTENTION_MINUS && i < q_count; i++)
		data->q[i] = fabs(data->q[i]) + 0.01;
	if (data->sink && a->heads > 1)
		data->sink[1] = -(double)INFINITY;
	round_all(data->q, q_count, a->dtype);
	round_all(data->k, visible->keys * k_width, a->dtype);
	round_all(data->v, visible->keys * v_width, a->dtype);
	round_all(data->sink, a->heads, HYS_F32);
	round_all(data->window_k, visible->window_keys * k_width, a->dtype);
	round_all(data->window_v, visible->window_keys * v_width, a->dtype);
}

/* ---- the oracle ---- */

static void ask_oracle(struct attention_data *data)
{
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *v = &data->visible;

	data->oracle = (struct ora_attention){
		.rows = v->rows,
		.keys = v->keys,
		.window_keys = v->window_keys,
		.heads = a->heads,
		.kv_heads = a->kv_heads,
		.head_dim = a->head_dim,
		.value_dim = a->value_dim,
		.groups = data->problem.scoring.groups,
		.topk = data->topk,
		.granularity = a->granularity,
		.pool = data->problem.scoring.pool,
		.window = a->window,
		.first = a->first,
		.dense = (a->flags & HYS_ATTENDING_DENSE) != 0,
		.scale = a->scale,
		.softcap = a->softcap,
		.q = data->q,
		.k = data->k,
		.v = data->v,
		.sink = data->sink,
		.window_k = data->window_k,
		.window_v = data->window_v,
		.indices = data->indices,
		.row_begin = v->row_begin,
		.row_end = v->row_end,
		.key_origin = v->key_origin,
		.entry_origin = v->entry_origin,
		.window_begin = v->window_begin,
		.window_end = v->window_end,
		.row_first = data->row_first,
		.row_count = data->row_count,
		.o = data->o,
		.lse = data->lse,
	};
}

/* Which key rows any row of the range attends to. */
static void mark_read(struct attention_data *data)
{
	const struct visible *v = &data->visible;
	int32_t *keys = ora_alloc(v->keys, sizeof(*keys));

	data->read = ora_alloc(v->keys, 1);
	data->window_read = ora_alloc(v->window_keys, 1);
	for (int64_t t = data->row_first; t < data->row_first + data->row_count; t++) {
		for (int32_t u = 0; u < data->problem.scoring.groups; u++) {
			const int64_t count = ora_attended_keys(&data->oracle, t, u, keys);

			for (int64_t i = 0; i < count; i++)
				data->read[keys[i]] = 1;
		}
		for (int32_t s = v->window_begin ? v->window_begin[t] : 0;
		     v->window_end && s < v->window_end[t]; s++)
			data->window_read[s] = 1;
	}
	free(keys);
}

/* Key rows that no row attends to; with `late` the last five instead. */
static void poison(struct attention_data *data, bool late)
{
	const struct hys_attending *a = &data->problem.attending;

	for (int64_t s = 0; s < data->visible.keys; s++) {
		if (late ? s < data->visible.keys - 5 : data->read[s])
			continue;
		for (int64_t i = 0; i < (int64_t)a->kv_heads * a->head_dim; i++)
			data->k[s * a->kv_heads * a->head_dim + i] = (double)NAN;
		for (int64_t i = 0; data->v && i < (int64_t)a->kv_heads * a->value_dim; i++)
			data->v[s * a->kv_heads * a->value_dim + i] = (double)NAN;
	}
}

/* What the forward pass would have left for the backward pass. */
static void prepare_backward(struct attention_data *data, struct rng *rng)
{
	const struct hys_attending *a = &data->problem.attending;
	const int64_t heads = data->visible.rows * a->heads, count = heads * a->value_dim;

	data->given_o = ora_doubles(count);
	data->given_lse = ora_doubles(heads);
	data->nothing = ora_alloc(heads, 1);
	memcpy(data->given_o, data->o, (size_t)count * sizeof(double));
	memcpy(data->given_lse, data->lse, (size_t)heads * sizeof(double));
	round_all(data->given_o, count, a->dtype);
	round_all(data->given_lse, heads, HYS_F32);
	data->grad_o = new_values(rng, count, 1.0);
	round_all(data->grad_o, count, a->dtype);
	for (int64_t i = 0; i < heads; i++)
		data->nothing[i] = data->lse[i] == -(double)INFINITY;
}

void attention_make(struct attention_data *data, const struct attention_case *about)
{
	struct rng rng;

	rng_seed(&rng, suite_seed(&about->about));
	*data = (struct attention_data){.about = about};
	complete_case(&data->problem, about);
	visible_make(&data->visible, &about->visible, data->problem.scoring.pool, &rng);
	data->row_count = data->visible.rows;
	if (about->features & (ATTENTION_RANGE | ATTENTION_RANGE_CUT)) {
		data->row_first = data->visible.rows / 3;
		data->row_count = ora_max(data->visible.rows / 3, 1);
	}
	if (!(about->features & ATTENTION_DENSE) || (about->features & ATTENTION_IGNORED))
		draw_indices(data, &rng);
	fill_values(data, &rng);
	data->o = ora_doubles(data->visible.rows * data->problem.attending.heads *
			      data->problem.attending.value_dim);
	data->lse = ora_doubles(data->visible.rows * data->problem.attending.heads);
	ask_oracle(data);
	mark_read(data);
	if (about->values == ATTENTION_UNREAD_NAN || about->values == ATTENTION_LATE_NAN)
		poison(data, about->values == ATTENTION_LATE_NAN);
	ora_attention_forward(&data->oracle);
	prepare_backward(data, &rng);
}

void attention_free(struct attention_data *data)
{
	void *arrays[] = {data->indices, data->q,	    data->k,	     data->v,
			  data->sink,	 data->window_k,    data->window_v,  data->o,
			  data->lse,	 data->given_o,	    data->given_lse, data->grad_o,
			  data->read,	 data->window_read, data->nothing};

	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
		free(arrays[i]);
	visible_free(&data->visible);
}

struct suite_want attention_want(const struct attention_data *data, hys_op op)
{
	return (struct suite_want){.about = &data->about->about,
				   .problem = &data->problem,
				   .op = op,
				   .rows = data->row_count,
				   .keys = data->visible.keys,
				   .window_keys = data->visible.window_keys,
				   .desc = &data->visible.desc};
}

double attention_tolerance(const struct attention_data *data, bool gradient)
{
	const double sharp = fmax(1.0, data->oracle.largest_logit / 16.0);

	switch (data->problem.attending.dtype) {
	case HYS_F16:
		return sharp * (gradient ? 4e-3 : 2e-3);
	case HYS_BF16:
		return sharp * (gradient ? 1e-2 : 6e-3);
	default:
		return sharp * (gradient ? 1e-4 : 1e-5);
	}
}
