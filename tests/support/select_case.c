#include "select_case.h"

#include <float.h>

#include "oracle_internal.h"

/* ---- operands ---- */

static int32_t or_else(int32_t value, int32_t otherwise)
{
	return value != 0 ? value : otherwise;
}

static void complete_case(struct hys_problem *problem, const struct select_case *about)
{
	const bool exact = about->values == SCORES_INTEGERS || about->values == SCORES_FEW ||
			   about->values == SCORES_SPREAD;

	*problem = (struct hys_problem){
		.struct_size = sizeof(*problem),
		.scoring = {.heads = or_else(about->heads, 4),
			    .dim = or_else(about->dim, 16),
			    .groups = or_else(about->groups, 1),
			    .block = or_else(about->block, 1),
			    .pool = or_else(about->pool, 1),
			    .dtype = or_else((int32_t)about->dtype, HYS_F32),
			    .activation = about->activation,
			    .scale = about->scale},
		.choosing = {.topk_max = or_else(about->topk, 8),
			     .first_blocks = about->first,
			     .local_blocks = about->local,
			     .method = about->features & SELECT_EXACT ? HYS_METHOD_DEFAULT
								      : about->method,
			     .coarse_block = about->coarse_block,
			     .coarse_keep = or_else(about->coarse_keep, 64)},
	};
	if (problem->scoring.scale == 0)
		problem->scoring.scale = exact ? 1.0 : 1.0 / sqrt(problem->scoring.dim);
}

static double largest_of(hys_dtype dtype)
{
	return dtype == HYS_F16 ? 65504.0 : dtype == HYS_F8E4M3 ? 448.0 : 1e30;
}

/* Times the normal numbers that q and k start as. */
static void scale_values(struct select_data *data, int64_t q_count, int64_t k_count)
{
	const hys_dtype dtype = data->problem.scoring.dtype;
	double q = 1, k = 1;

	if (data->about->values == SCORES_HUGE || data->about->values == SCORES_MIXED)
		k = largest_of(dtype) / 8;
	if (data->about->values == SCORES_TINY)
		q = k = 1e-15;
	if (data->about->values == SCORES_DENORMAL)
		k = dtype == HYS_F16 ? 1e-7 : dtype == HYS_F8E4M3 ? 1.0 / 256 : 1e-39;
	for (int64_t i = 0; i < q_count; i++)
		data->q[i] *= q;
	for (int64_t i = 0; i < k_count; i++)
		data->k[i] *= k;
}

/* Keys that are a multiple of one another, so that scores follow their order. */
static void order_keys(struct select_data *data, bool rising)
{
	const int64_t entries = data->visible.entries;
	const int32_t dim = data->problem.scoring.dim;

	for (int64_t e = 0; e < entries; e++)
		for (int32_t d = 0; d < dim; d++)
			data->k[e * dim + d] = (double)(rising ? e + 1 : entries - e) /
					       (double)(entries + 1) * fabs(data->k[d]);
	for (int64_t i = 0; i < data->visible.rows * data->problem.scoring.heads; i++)
		data->w[i] = fabs(data->w[i]);
	for (int64_t i = 0; i < data->visible.rows * data->problem.scoring.heads * dim; i++)
		data->q[i] = fabs(data->q[i]);
}

static void spread(double *values, int64_t count, double special, int64_t every, struct rng *rng)
{
	for (int64_t i = 0; i < count; i++)
		if (rng_range(rng, 0, every) == 0)
			values[i] = special;
}

static void make_special(struct select_data *data, struct rng *rng)
{
	const int32_t dim = data->problem.scoring.dim;
	const int64_t k_count = data->visible.entries * dim;
	const double inf = (double)INFINITY, nan = (double)NAN;

	switch (data->about->values) {
	case SCORES_EQUAL:
		for (int64_t i = dim; i < k_count; i++)
			data->k[i] = data->k[i % dim];
		break;
	case SCORES_RISING:
	case SCORES_FALLING:
		order_keys(data, data->about->values == SCORES_RISING);
		break;
	case SCORES_MIXED:
		spread(data->k, k_count, nan, 8 * dim, rng);
		spread(data->k, k_count, inf, 8 * dim, rng);
		spread(data->k, k_count, -inf, 8 * dim, rng);
		break;
	case SCORES_INFINITE:
		spread(data->k, k_count, inf, 4 * dim, rng);
		spread(data->k, k_count, -inf, 4 * dim, rng);
		break;
	case SCORES_NAN:
		spread(data->k, k_count, nan, 4 * dim, rng);
		break;
	case SCORES_ALL_NAN:
		spread(data->w, data->visible.rows * data->problem.scoring.heads, nan, 8, rng);
		spread(data->q, data->visible.rows * data->problem.scoring.heads * dim, nan,
		       8 * dim, rng);
		break;
	default:
		break;
	}
}

static void spread_norms(double *k, int64_t entries, int32_t dim, struct rng *rng)
{
	int32_t power = 0;

	for (int64_t e = 0; e < entries; e++) {
		if (e % 40 == 0)
			power = (int32_t)fmin(fmax(2.0 * rng_normal(rng) + 6.0, 0.0), 12.0);
		for (int32_t d = 0; d < dim; d++)
			k[e * dim + d] = ldexp(k[e * dim + d], power);
	}
}

/* Pairs of opposite heads with opposite weights score alike: to a bound that forgets the weights' signs they would
 * cancel. */
static void oppose_heads(struct select_data *data)
{
	const struct hys_scoring *s = &data->problem.scoring;

	for (int64_t i = 0; i < data->visible.rows * s->heads; i++) {
		if (i % s->heads % 2 == 0)
			continue;
		for (int32_t d = 0; d < s->dim; d++)
			data->q[i * s->dim + d] = -data->q[(i - 1) * s->dim + d];
		data->w[i] = -data->w[i - 1];
	}
}

static void fill_values(struct select_data *data, struct rng *rng)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const int64_t w_count = data->visible.rows * s->heads;
	const int64_t q_count = w_count * s->dim, k_count = data->visible.entries * s->dim;

	if (data->about->values == SCORES_INTEGERS || data->about->values == SCORES_SPREAD) {
		rng_fill_integers(rng, data->q, q_count, -3, 4);
		rng_fill_integers(rng, data->k, k_count, -3, 4);
		rng_fill_integers(rng, data->w, w_count, -2, 3);
		if (data->about->values == SCORES_SPREAD)
			spread_norms(data->k, data->visible.entries, s->dim, rng);
		if (data->about->values == SCORES_SPREAD &&
		    data->about->activation == HYS_ACTIVATION_NONE)
			oppose_heads(data);
	} else if (data->about->values == SCORES_FEW || data->about->values == SCORES_ZERO) {
		const int64_t high = data->about->values == SCORES_FEW ? 2 : 1;

		rng_fill_integers(rng, data->q, q_count, 0, high);
		rng_fill_integers(rng, data->k, k_count, 0, high);
		rng_fill_integers(rng, data->w, w_count, -1, 2);
		for (int64_t i = 0; i < k_count; i += 3)
			data->k[i] = data->k[i] == 0 ? -0.0 : data->k[i];
	} else {
		rng_fill_normal(rng, data->q, q_count, 1.0);
		rng_fill_normal(rng, data->k, k_count, 1.0);
		rng_fill_normal(rng, data->w, w_count, 1.0);
		scale_values(data, q_count, k_count);
		make_special(data, rng);
	}
}

/* A scale per row that is a power of two where scores must stay exact. */
static double *make_scales(struct rng *rng, int64_t count, bool exact)
{
	double *scales = ora_doubles(count);

	for (int64_t i = 0; i < count; i++)
		scales[i] = exact ? ldexp(1.0, (int)rng_range(rng, -1, 2))
				  : round_f32(rng_log_normal(rng, 0.0, 0.5));
	return scales;
}

/* `values` [count] times the scale of their row of `length`. */
static double *apply_scales(const double *values, int64_t count, const double *scales,
			    int64_t length)
{
	double *whole = ora_doubles(count);

	for (int64_t i = 0; i < count; i++)
		whole[i] = values[i] * (scales ? scales[i / length] : 1.0);
	return whole;
}

static void round_all(double *values, int64_t count, hys_dtype dtype)
{
	for (int64_t i = 0; i < count; i++)
		values[i] = element_round(dtype, values[i]);
}

static void make_operands(struct select_data *data, struct rng *rng)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const int64_t w_count = data->visible.rows * s->heads, entries = data->visible.entries;

	data->q = ora_doubles(w_count * s->dim);
	data->k = ora_doubles(entries * s->dim);
	data->w = ora_doubles(w_count);
	fill_values(data, rng);
	round_all(data->q, w_count * s->dim, s->dtype);
	round_all(data->k, entries * s->dim, s->dtype);
	round_all(data->w, w_count, HYS_F32);
	if (s->dtype == HYS_F8E4M3) {
		data->q_scale = make_scales(rng, w_count, data->exact);
		data->k_scale = make_scales(rng, entries, data->exact);
		if (data->about->values == SCORES_EQUAL)
			for (int64_t e = 1; e < entries; e++)
				data->k_scale[e] = data->k_scale[0];
	}
	data->q_whole = apply_scales(data->q, w_count * s->dim, data->q_scale, s->dim);
	data->k_whole = apply_scales(data->k, entries * s->dim, data->k_scale, s->dim);
}

static bool is_exact(const struct select_case *about)
{
	switch (about->values) {
	case SCORES_INTEGERS:
	case SCORES_SPREAD:
	case SCORES_FEW:
	case SCORES_EQUAL:
	case SCORES_ZERO:
		return true;
	default:
		return false;
	}
}

static void ask_oracle(struct select_data *data)
{
	static const enum ora_method methods[] = {
		[HYS_METHOD_DEFAULT] = ORA_EXACT,
		[HYS_METHOD_EXACT] = ORA_EXACT,
		[HYS_METHOD_COARSE] = ORA_COARSE,
		[HYS_METHOD_COARSE_TO_FINE] = ORA_COARSE_TO_FINE,
	};
	const struct hys_scoring *s = &data->problem.scoring;
	const struct hys_choosing *c = &data->problem.choosing;
	const struct visible *v = &data->visible;

	data->oracle = (struct ora_select){
		.scoring = {.rows = v->rows,
			    .entries = v->entries,
			    .heads = s->heads,
			    .dim = s->dim,
			    .groups = s->groups,
			    .activation =
				    s->activation == HYS_ACTIVATION_RELU ? ORA_RELU : ORA_IDENTITY,
			    .scale = s->scale,
			    .index_q = data->q_whole,
			    .index_k = data->k_whole,
			    .index_w = data->about->unweighted ? NULL : data->w,
			    .index_begin = v->index_begin,
			    .index_end = v->index_end,
			    .entry_origin = v->entry_origin},
		.block = s->block,
		.topk_max = (int32_t)data->slots,
		.topk = data->topk,
		.first_blocks = c->first_blocks,
		.local_blocks = c->local_blocks,
		.method = methods[data->about->method],
		.coarse_block = c->coarse_block,
		.coarse_keep = c->coarse_keep,
		.row_first = data->row_first,
		.row_count = data->row_count,
	};
}

static void choose_topk(struct select_data *data)
{
	const int32_t most = data->problem.choosing.topk_max;

	data->slots = data->about->features & SELECT_SLOTS ? 0 : most;
	for (int32_t u = 0; u < data->problem.scoring.groups; u++) {
		data->topk[u] = data->about->group_topk ? data->about->group_topk[u] : most;
		if (data->about->features & SELECT_SLOTS)
			data->slots = ora_max(data->slots, data->topk[u] + 1);
	}
}

void select_make(struct select_data *data, const struct select_case *about)
{
	static const hys_op ops[] = {
		[HYS_METHOD_DEFAULT] = HYS_OP_SELECT,
		[HYS_METHOD_EXACT] = HYS_OP_SELECT,
		[HYS_METHOD_COARSE] = HYS_OP_SELECT_COARSE,
		[HYS_METHOD_COARSE_TO_FINE] = HYS_OP_SELECT_COARSE_TO_FINE,
	};
	struct rng rng;

	rng_seed(&rng, suite_seed(&about->about));
	*data = (struct select_data){.about = about, .op = ops[about->method]};
	complete_case(&data->problem, about);
	visible_make(&data->visible, &about->visible, data->problem.scoring.pool, &rng);
	data->row_count = data->visible.rows;
	if (about->features & (SELECT_RANGE | SELECT_RANGE_CUT)) {
		data->row_first = data->visible.rows / 3;
		data->row_count = ora_max(data->visible.rows / 3, 1);
	}
	data->exact = is_exact(about);
	choose_topk(data);
	make_operands(data, &rng);
	ask_oracle(data);
	ora_memo_make(&data->oracle);
}

void select_free(struct select_data *data)
{
	double *arrays[] = {data->q,	   data->k,	  data->w,	data->q_scale,
			    data->k_scale, data->q_whole, data->k_whole};

	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
		free(arrays[i]);
	ora_memo_free(data->oracle.memo);
	visible_free(&data->visible);
}

struct suite_want select_want(const struct select_data *data)
{
	return (struct suite_want){.about = &data->about->about,
				   .problem = &data->problem,
				   .op = data->op,
				   .rows = data->row_count,
				   .keys = data->visible.keys,
				   .window_keys = data->visible.window_keys,
				   .desc = &data->visible.desc};
}

/* ---- the call ---- */

/* What differs between tensors of all rows and tensors of the range. */
struct rows_of {
	int64_t count, skip;
	bool cut;
};

static struct hys_tensor rows_out(struct place *place, const struct select_data *data,
				  const struct rows_of *rows, const char *name, hys_dtype dtype,
				  int32_t rank, int64_t n1, int64_t n2)
{
	struct hys_tensor tensor = place_out(place, name, dtype, NULL, rank, rows->count, n1, n2);

	if (!rows->cut)
		place_only_rows(place, data->row_first, data->row_count);
	return tensor;
}

static void place_outputs(struct hys_select_args *args, const struct select_data *data,
			  const struct rows_of *rows, struct place *place)
{
	const int32_t groups = data->problem.scoring.groups;

	args->indices = rows_out(place, data, rows, "indices", HYS_I32, 3, groups, data->slots);
	if (data->about->features & SELECT_ONLY_INDICES)
		return;
	args->counts = rows_out(place, data, rows, "counts", HYS_I32, 2, groups, 0);
	args->scores = rows_out(place, data, rows, "scores", HYS_F32, 3, groups, data->slots);
	args->kth = rows_out(place, data, rows, "kth", HYS_F32, 2, groups, 0);
	args->nan_rows = place_out(place, "nan_rows", HYS_I32, NULL, 1, 1, 0, 0);
}

hys_status select_call(const struct select_data *data, struct place *place, struct hys_batch *batch,
		       struct hys_error *error)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const bool cut = data->about->features & SELECT_RANGE_CUT;
	const struct rows_of rows = {cut ? data->row_count : data->visible.rows,
				     cut ? data->row_first : 0, cut};
	const int64_t heads = s->heads, dim = s->dim, entries = data->visible.entries;
	struct hys_select_args args = {.struct_size = sizeof(args)};

	if (data->about->features & (SELECT_RANGE | SELECT_RANGE_CUT)) {
		args.row_first = data->row_first;
		args.row_count = data->row_count;
	}
	if (data->about->features & SELECT_EXACT)
		args.method = data->about->method;
	args.topk = data->about->group_topk;
	args.index_q = place_in(place, "index_q", s->dtype, data->q + rows.skip * heads * dim, 3,
				rows.count, heads, dim);
	args.index_k = place_in(place, "index_k", s->dtype, data->k, 2, entries, dim, 0);
	if (!data->about->unweighted)
		args.index_w = place_in(place, "index_w", HYS_F32, data->w + rows.skip * heads, 2,
					rows.count, heads, 0);
	if (data->q_scale) {
		args.index_q_scale =
			place_in(place, "index_q_scale", HYS_F32, data->q_scale + rows.skip * heads,
				 2, rows.count, heads, 0);
		args.index_k_scale =
			place_in(place, "index_k_scale", HYS_F32, data->k_scale, 1, entries, 0, 0);
	}
	place_outputs(&args, data, &rows, place);
	if (place->status != HYS_OK) {
		*error = place->error;
		return place->status;
	}
	return hys_select(place->exec, batch, &args, error);
}

/* ---- the answer ---- */

void select_answer_take(struct select_answer *answer, const struct place *place)
{
	answer->indices = place_values_i32(place, "indices");
	answer->counts = place_values_i32(place, "counts");
	answer->nan_rows = place_values_i32(place, "nan_rows");
	answer->scores = place_values(place, "scores");
	answer->kth = place_values(place, "kth");
}

void select_answer_free(struct select_answer *answer)
{
	free(answer->indices);
	free(answer->counts);
	free(answer->nan_rows);
	free(answer->scores);
	free(answer->kth);
}

static bool judge_behind(const struct select_data *data, const struct ora_picks *picks,
			 char *message, size_t size)
{
	const int64_t count = data->row_count * data->problem.scoring.groups * data->slots;

	for (int64_t i = 0; picks->scores && i < count; i++)
		if (picks->indices[i] < 0 && picks->scores[i] != 0) {
			snprintf(message, size, "score %.9g behind the picks of place %lld",
				 picks->scores[i], (long long)(i / data->slots));
			return false;
		}
	return true;
}

static bool judge_nan_rows(const struct select_data *data, const int32_t *nan_rows, char *message,
			   size_t size)
{
	struct ora_select own = data->oracle;

	if (!nan_rows)
		return true;
	ora_select(&own);
	if (*nan_rows == own.nan_rows)
		return true;
	snprintf(message, size, "nan_rows is %d, expected %lld", *nan_rows,
		 (long long)own.nan_rows);
	return false;
}

bool select_judge(const struct select_data *data, const struct select_answer *answer, char *message,
		  size_t size)
{
	const bool cut = data->about->features & SELECT_RANGE_CUT;
	const int64_t groups = data->problem.scoring.groups;
	const int64_t skip = cut ? 0 : data->row_first * groups;
	const double eps = data->problem.scoring.dtype == HYS_F8E4M3 ? 1e-3 : 1e-5;
	const struct ora_picks picks = {
		.indices = answer->indices + skip * data->slots,
		.counts = answer->counts ? answer->counts + skip : NULL,
		.scores = answer->scores ? answer->scores + skip * data->slots : NULL,
		.kth = answer->kth ? answer->kth + skip : NULL,
	};
	const struct ora_picks set = {.indices = picks.indices, .counts = picks.counts};

	return (!data->exact || ora_select_judge(&data->oracle, &set, 0.0, message, size)) &&
	       ora_select_judge(&data->oracle, &picks, eps, message, size) &&
	       judge_behind(data, &picks, message, size) &&
	       judge_nan_rows(data, answer->nan_rows, message, size);
}

void select_try(const struct select_data *data, const struct suite_run *run, unsigned flags)
{
	struct place place = suite_place(run, flags);
	struct select_answer answer = {0};
	struct hys_error error;
	char message[300];
	hys_status status = select_call(data, &place, run->batch, &error);

	if (status != HYS_OK) {
		suite_fail(run, "%s: %s", hys_status_name(status), error.message);
	} else if (suite_collect(run, &place)) {
		select_answer_take(&answer, &place);
		if (!select_judge(data, &answer, message, sizeof(message)))
			suite_fail(run, "%s", message);
		select_answer_free(&answer);
	}
	place_clear(&place);
}

void select_run(void **state)
{
	struct suite_run run = {0};
	struct select_data data;
	struct suite_want want;

	select_make(&data, *state);
	want = select_want(&data);
	while (suite_next(&run, &want))
		for (int32_t i = 0; i < suite_placements.count; i++)
			select_try(&data, &run, suite_placements.flags[i]);
	select_free(&data);
}
