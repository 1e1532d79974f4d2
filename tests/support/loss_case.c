/* Operands of loss cases and the oracle's answer. */
#include "loss_case.h"

#include "oracle_internal.h"

static int32_t or_else(int32_t value, int32_t otherwise)
{
	return value != 0 ? value : otherwise;
}

static void complete_case(struct hys_problem *problem, const struct loss_case *about)
{
	const int32_t index_dim = or_else(about->index_dim, 16);
	const int32_t head_dim = or_else(about->head_dim, 16);

	*problem = (struct hys_problem){
		.struct_size = sizeof(*problem),
		.scoring = {.heads = or_else(about->index_heads, 4),
			    .dim = index_dim,
			    .groups = or_else(about->groups, 1),
			    .block = or_else(about->block, 1),
			    .pool = or_else(about->pool, 1),
			    .dtype = or_else((int32_t)about->index_dtype, HYS_F32),
			    .activation = about->activation,
			    .scale = about->index_scale != 0 ? about->index_scale
							     : 1 / sqrt(index_dim)},
		.choosing = {.topk_max = or_else(about->topk, 6)},
		.attending = {.heads = or_else(about->heads, 4),
			      .kv_heads = or_else(about->kv_heads, 1),
			      .head_dim = head_dim,
			      .value_dim = head_dim,
			      .granularity = about->pool > 1 ? 1 : or_else(about->block, 1),
			      .dtype = or_else((int32_t)about->dtype, HYS_F32),
			      .scale = about->scale != 0 ? about->scale : 1 / sqrt(head_dim),
			      .softcap = about->softcap},
	};
}

/* ---- operands ---- */

static double *new_values(struct rng *rng, int64_t count, double scale, hys_dtype dtype)
{
	double *values = ora_doubles(count);

	rng_fill_normal(rng, values, count, scale);
	for (int64_t i = 0; i < count; i++)
		values[i] = element_round(dtype, values[i]);
	return values;
}

static void fill_values(struct loss_data *data, struct rng *rng)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *v = &data->visible;
	const int64_t lanes = v->rows * s->heads;
	const double size = data->about->values == LOSS_SHARP ? 8 : 1;

	data->index_q = new_values(rng, lanes * s->dim, size, s->dtype);
	data->index_k = new_values(rng, v->entries * s->dim, size, s->dtype);
	data->index_w = new_values(rng, lanes, 1, HYS_F32);
	data->q = new_values(rng, v->rows * a->heads * a->head_dim, size, a->dtype);
	data->k = new_values(rng, v->keys * a->kv_heads * a->head_dim, size, a->dtype);
	if (data->about->values == LOSS_INTEGERS) {
		rng_fill_integers(rng, data->index_q, lanes * s->dim, -1, 2);
		rng_fill_integers(rng, data->index_k, v->entries * s->dim, -1, 2);
		rng_fill_integers(rng, data->index_w, lanes, -1, 2);
	}
	if (data->about->features & LOSS_SINK)
		data->sink = new_values(rng, a->heads, 1, HYS_F32);
}

/* Positive numbers, also in slots that are absent; every fifth row zeros. */
static void fill_teacher(struct loss_data *data, struct rng *rng)
{
	const int64_t per_row = (int64_t)data->problem.scoring.groups * data->topk;
	const int64_t count = data->visible.rows * per_row;

	data->teacher = ora_doubles(count);
	for (int64_t i = 0; i < count; i++)
		data->teacher[i] = i / per_row % 5 == 2 ? 0 : round_f32(rng_uniform(rng) + 0.01);
}

static struct ora_attention attention_of(const struct loss_data *data)
{
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *v = &data->visible;

	return (struct ora_attention){
		.rows = v->rows,
		.keys = v->keys,
		.heads = a->heads,
		.kv_heads = a->kv_heads,
		.head_dim = a->head_dim,
		.value_dim = a->value_dim,
		.groups = data->problem.scoring.groups,
		.topk = data->topk,
		.granularity = a->granularity,
		.pool = data->problem.scoring.pool,
		.dense = (data->about->features & LOSS_DENSE) != 0,
		.scale = a->scale,
		.softcap = a->softcap,
		.q = data->q,
		.k = data->k,
		.sink = data->sink,
		.indices = data->indices,
		.row_begin = v->row_begin,
		.row_end = v->row_end,
		.key_origin = v->key_origin,
		.entry_origin = v->entry_origin,
	};
}

/* lse of dense attention that has a second source besides; also finds the largest logit. */
static void attend(struct loss_data *data, struct rng *rng)
{
	const struct hys_attending *a = &data->problem.attending;
	const int64_t extra = 5, count = data->visible.rows * a->heads;
	double *more = new_values(rng, extra * a->kv_heads * a->head_dim, 1, a->dtype);
	double *lse = ora_doubles(count);
	struct ora_attention attention = attention_of(data);

	attention.dense = 1;
	attention.window_k = more;
	attention.window_keys = extra;
	attention.lse = lse;
	ora_attention_forward(&attention);
	data->sharpest = fmax(data->sharpest, attention.largest_logit);
	for (int64_t i = 0; i < count; i++)
		lse[i] = round_f32(lse[i]);
	if (data->about->features & LOSS_LSE)
		data->lse = lse;
	else
		free(lse);
	free(more);
}

static void ask_oracle(struct loss_data *data)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const struct visible *v = &data->visible;
	const unsigned features = data->about->features;

	data->oracle = (struct ora_loss){
		.scoring = {.rows = v->rows,
			    .entries = v->entries,
			    .heads = s->heads,
			    .dim = s->dim,
			    .groups = s->groups,
			    .activation =
				    s->activation == HYS_ACTIVATION_RELU ? ORA_RELU : ORA_IDENTITY,
			    .scale = s->scale,
			    .index_q = data->index_q,
			    .index_k = data->index_k,
			    .index_w = features & LOSS_UNWEIGHTED ? NULL : data->index_w,
			    .index_begin = v->index_begin,
			    .index_end = v->index_end,
			    .entry_origin = v->entry_origin},
		.attention = attention_of(data),
		.coefficient = data->about->coefficient != 0 ? data->about->coefficient : 1,
		.sum = (features & LOSS_SUM) != 0,
		.divisor = data->about->divisor,
		.lse = data->lse,
		.teacher = data->teacher,
		.row_stride = features & LOSS_SAMPLED ? 3 : 1,
		.row_offset = features & LOSS_SAMPLED ? 1 : 0,
		.row_first = data->row_first,
		.row_count = data->row_count,
	};
}

/* Scores as select gives them: of a block the largest, NaN left out. */
static double block_score(const struct loss_data *data, int64_t t, int32_t u, int64_t index)
{
	const struct ora_scoring *s = &data->oracle.scoring;
	const int64_t step = data->problem.scoring.block;
	double best = (double)NAN;
	int64_t begin, end;

	ora_entry_interval(s, t, &begin, &end);
	for (int64_t e = ora_max(index, begin); e < ora_min(index + step, end); e++)
		best = fmax(best, ora_score(s, t, u, s->index_k + e * s->dim));
	return best;
}

static void fill_scores(struct loss_data *data)
{
	const int32_t groups = data->problem.scoring.groups;
	const int64_t count = data->visible.rows * groups * data->topk;

	data->scores = ora_doubles(count);
	for (int64_t i = 0; i < count; i++) {
		const int64_t place = i / data->topk;
		const double score = block_score(data, place / groups, (int32_t)(place % groups),
						 data->indices[i]);

		data->scores[i] = data->indices[i] < 0 || isnan(score) ? 0 : round_f32(score);
	}
}

static void find_sharpest(struct loss_data *data)
{
	const struct ora_scoring *s = &data->oracle.scoring;

	for (int64_t t = 0; t < s->rows; t++)
		for (int64_t e = data->visible.index_begin[t]; e < data->visible.index_end[t]; e++)
			for (int32_t u = 0; u < s->groups; u++) {
				const double score = ora_score(s, t, u, s->index_k + e * s->dim);

				data->sharpest = fmax(data->sharpest, fabs(score));
			}
}

void loss_grads_make(struct loss_grads *grads, const struct loss_data *data)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const unsigned features = data->about->features;
	const int64_t lanes = data->visible.rows * s->heads;

	*grads = (struct loss_grads){0};
	if (features & LOSS_TEACHER_OUT)
		grads->teacher_out = ora_doubles(data->visible.rows * s->groups * data->topk);
	if (features & LOSS_ONLY_LOSS)
		return;
	grads->d_index_k = ora_doubles(data->visible.entries * s->dim);
	if (features & LOSS_ONLY_KEYS)
		return;
	grads->d_index_q = ora_doubles(lanes * s->dim);
	grads->d_index_w = features & LOSS_UNWEIGHTED ? NULL : ora_doubles(lanes);
}

void loss_grads_free(struct loss_grads *grads)
{
	free(grads->d_index_q);
	free(grads->d_index_k);
	free(grads->d_index_w);
	free(grads->teacher_out);
}

static void answer(struct loss_data *data)
{
	loss_grads_make(&data->want, data);
	data->oracle.d_index_q = data->want.d_index_q;
	data->oracle.d_index_k = data->want.d_index_k;
	data->oracle.d_index_w = data->want.d_index_w;
	data->oracle.teacher_out = data->want.teacher_out;
	ora_indexer_loss(&data->oracle);
	data->want.loss = data->oracle.loss;
}

void loss_make(struct loss_data *data, const struct loss_case *about)
{
	struct indices_want want = {.pattern = about->indices};
	struct rng rng;

	rng_seed(&rng, suite_seed(&about->about));
	*data = (struct loss_data){.about = about};
	complete_case(&data->problem, about);
	visible_make(&data->visible, &about->visible, data->problem.scoring.pool, &rng);
	data->row_count = data->visible.rows;
	if (about->features & (LOSS_RANGE | LOSS_RANGE_CUT)) {
		data->row_first = data->visible.rows / 3;
		data->row_count = ora_max(data->visible.rows / 3, 1);
	}
	want.visible = &data->visible;
	want.groups = data->problem.scoring.groups;
	want.topk = data->problem.choosing.topk_max;
	want.granularity = data->problem.attending.granularity;
	if (!(about->features & LOSS_DENSE)) {
		data->indices = indices_make(&want, &rng);
		data->topk = want.topk;
	}
	fill_values(data, &rng);
	attend(data, &rng);
	if (about->features & LOSS_TEACHER_IN)
		fill_teacher(data, &rng);
	ask_oracle(data);
	if (about->features & LOSS_SCORES)
		fill_scores(data);
	find_sharpest(data);
	answer(data);
}

void loss_free(struct loss_data *data)
{
	void *arrays[] = {data->indices, data->index_q, data->index_k, data->index_w,
			  data->q,	 data->k,	data->lse,     data->sink,
			  data->scores,	 data->teacher};

	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
		free(arrays[i]);
	loss_grads_free(&data->want);
	visible_free(&data->visible);
}

struct suite_want loss_want(const struct loss_data *data)
{
	return (struct suite_want){.about = &data->about->about,
				   .problem = &data->problem,
				   .op = HYS_OP_INDEXER_LOSS,
				   .rows = data->row_count,
				   .keys = data->visible.keys,
				   .window_keys = data->visible.window_keys,
				   .desc = &data->visible.desc};
}

double loss_tolerance(const struct loss_data *data)
{
	const double sharp = fmax(1.0, data->sharpest / 16.0);
	const hys_dtype worse = data->problem.scoring.dtype > data->problem.attending.dtype
					? data->problem.scoring.dtype
					: data->problem.attending.dtype;

	return sharp * (worse == HYS_F16 ? 4e-3 : worse == HYS_BF16 ? 1e-2 : 1e-4);
}
