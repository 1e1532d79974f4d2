/* The library's indexer loss on the operands of a case, judged by the oracle. */
#include "loss_case.h"

#include "oracle_internal.h"

static int64_t rows_held(const struct loss_data *data)
{
	return data->about->features & LOSS_RANGE_CUT ? data->row_count : data->visible.rows;
}

static int64_t rows_skipped(const struct loss_data *data)
{
	return data->about->features & LOSS_RANGE_CUT ? data->row_first : 0;
}

static struct hys_tensor rows_in(struct place *place, const struct loss_data *data,
				 const char *name, hys_dtype dtype, const double *values,
				 int64_t n1, int64_t n2)
{
	if (!values)
		return (struct hys_tensor){0};
	return place_in(place, name, dtype, values + rows_skipped(data) * n1 * ora_max(n2, 1),
			n2 > 0 ? 3 : 2, rows_held(data), n1, n2);
}

static struct hys_tensor rows_out(struct place *place, const struct loss_data *data,
				  const char *name, hys_dtype dtype, const double *values,
				  bool adds, int64_t n1, int64_t n2)
{
	struct hys_tensor tensor;

	if (!values)
		return (struct hys_tensor){0};
	values += rows_skipped(data) * n1 * ora_max(n2, 1);
	tensor = place_out(place, name, dtype, adds ? values : NULL, n2 > 0 ? 3 : 2,
			   rows_held(data), n1, n2);
	if (!(data->about->features & LOSS_RANGE_CUT))
		place_only_rows(place, data->row_first, data->row_count);
	return tensor;
}

static hys_dtype grad_dtype(const struct loss_data *data)
{
	return data->about->features & LOSS_F32_GRADS ? HYS_F32 : data->problem.scoring.dtype;
}

static void place_outputs(struct hys_loss_args *args, const struct loss_data *data,
			  const struct loss_grads *before, struct place *place)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const bool adds = data->about->features & LOSS_ACCUMULATE;

	if (!(data->about->features & LOSS_ONLY_KEYS))
		args->loss =
			place_out(place, "loss", HYS_F32, adds ? &before->loss : NULL, 1, 1, 0, 0);
	args->d_index_q = rows_out(place, data, "d_index_q", grad_dtype(data), before->d_index_q,
				   adds, s->heads, s->dim);
	if (before->d_index_k)
		args->d_index_k = place_out(place, "d_index_k", grad_dtype(data),
					    adds ? before->d_index_k : NULL, 2,
					    data->visible.entries, s->dim, 0);
	args->d_index_w =
		rows_out(place, data, "d_index_w", HYS_F32, before->d_index_w, adds, s->heads, 0);
	args->teacher_out = rows_out(place, data, "teacher_out", HYS_F32, before->teacher_out,
				     false, s->groups, data->topk);
}

static void place_inputs(struct hys_loss_args *args, const struct loss_data *data,
			 struct place *place)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *v = &data->visible;

	args->index_q = rows_in(place, data, "index_q", s->dtype, data->index_q, s->heads, s->dim);
	args->index_k =
		place_in(place, "index_k", s->dtype, data->index_k, 2, v->entries, s->dim, 0);
	if (!(data->about->features & LOSS_UNWEIGHTED))
		args->index_w =
			rows_in(place, data, "index_w", HYS_F32, data->index_w, s->heads, 0);
	if (data->indices)
		args->indices =
			place_in_i32(place, "indices",
				     data->indices + rows_skipped(data) * s->groups * data->topk, 3,
				     rows_held(data), s->groups, data->topk);
	args->scores = rows_in(place, data, "scores", HYS_F32, data->scores, s->groups, data->topk);
	args->teacher_in =
		rows_in(place, data, "teacher_in", HYS_F32, data->teacher, s->groups, data->topk);
	if (data->teacher)
		return;
	args->q = rows_in(place, data, "q", a->dtype, data->q, a->heads, a->head_dim);
	args->k = place_in(place, "k", a->dtype, data->k, 3, v->keys, a->kv_heads, a->head_dim);
	args->lse = rows_in(place, data, "lse", HYS_F32, data->lse, a->heads, 0);
	if (data->sink)
		args->sink = place_in(place, "sink", HYS_F32, data->sink, 1, a->heads, 0, 0);
}

hys_status loss_call(const struct loss_data *data, const struct loss_grads *before,
		     struct place *place, struct hys_batch *batch, struct hys_error *error)
{
	const unsigned features = data->about->features;
	struct hys_loss_args args = {.struct_size = sizeof(args)};

	if (features & (LOSS_RANGE | LOSS_RANGE_CUT)) {
		args.row_first = data->row_first;
		args.row_count = data->row_count;
	}
	args.flags = (features & LOSS_ACCUMULATE ? HYS_LOSS_ACCUMULATE : 0) |
		     (features & LOSS_DENSE ? HYS_LOSS_DENSE : 0);
	args.reduction = features & LOSS_SUM ? HYS_REDUCTION_SUM : HYS_REDUCTION_MEAN;
	args.coefficient = data->about->coefficient;
	args.divisor = data->about->divisor;
	args.row_stride = features & LOSS_SAMPLED ? 3 : 0;
	args.row_offset = features & LOSS_SAMPLED ? 1 : 0;
	place_inputs(&args, data, place);
	place_outputs(&args, data, before, place);
	if (place->status != HYS_OK) {
		*error = place->error;
		return place->status;
	}
	return hys_indexer_loss(place->exec, batch, &args, error);
}

/* ---- judging ---- */

/* The range's rows of an output of rows; frees `values`. */
static double *take_range(const struct loss_data *data, double *values, int64_t per_row)
{
	const int64_t skip = data->row_first - rows_skipped(data);
	double *range = ora_doubles(data->row_count * per_row);

	memcpy(range, values + skip * per_row,
	       (size_t)(data->row_count * per_row) * sizeof(double));
	free(values);
	return range;
}

/* Vectors of `length`, `per_row` numbers a row. Rows that are not sampled must be exact. */
static void judge_rows(const struct loss_data *data, const struct suite_run *run,
		       const struct place *place, const char *name, const double *want,
		       int64_t per_row, int64_t length, double tolerance)
{
	double *got = place_values(place, name);
	unsigned char *exact;

	if (!got)
		return;
	got = take_range(data, got, per_row);
	exact = ora_alloc(data->row_count, 1);
	for (int64_t i = 0; i < data->row_count; i++)
		exact[i] = (data->about->features & LOSS_SAMPLED) && (data->row_first + i) % 3 != 1;
	want += data->row_first * per_row;
	suite_same(run, name, got, want, data->row_count * per_row, exact, per_row);
	suite_close(run, name, got, want, data->row_count * per_row / length, length, tolerance);
	free(exact);
}

static void judge(const struct loss_data *data, const struct loss_grads *want,
		  const struct suite_run *run, const struct place *place)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const double tolerance = loss_tolerance(data);
	const double sharp = fmax(1.0, data->sharpest / 16.0);
	double *loss = place_values(place, "loss"), *d_index_k = place_values(place, "d_index_k");

	if (loss)
		suite_each(run, "loss", loss, &want->loss, 1,
			   (struct suite_tolerance){1e-6, 1e-5, 0});
	judge_rows(data, run, place, "d_index_q", want->d_index_q, (int64_t)s->heads * s->dim,
		   s->dim, tolerance);
	judge_rows(data, run, place, "d_index_w", want->d_index_w, s->heads, s->heads, tolerance);
	judge_rows(data, run, place, "teacher_out", want->teacher_out,
		   (int64_t)s->groups * data->topk, ora_max(data->topk, 1), 1e-5 * sharp);
	if (d_index_k)
		suite_close(run, "d_index_k", d_index_k, want->d_index_k, data->visible.entries,
			    s->dim, tolerance);
}

static void fill_before(double *before, int64_t count, hys_dtype dtype, struct rng *rng)
{
	if (!before)
		return;
	rng_fill_normal(rng, before, count, 0.1);
	for (int64_t i = 0; i < count; i++)
		before[i] = element_round(dtype, before[i]);
}

/* want = before + the oracle's; arrays of before's own. */
static void add_up(const struct loss_data *data, const struct loss_grads *before,
		   struct loss_grads *want)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const int64_t lanes = data->visible.rows * s->heads;
	const struct {
		double *sum;
		const double *a, *b;
		int64_t count;
	} sums[] = {
		{want->d_index_q, data->want.d_index_q, before->d_index_q, lanes * s->dim},
		{want->d_index_k, data->want.d_index_k, before->d_index_k,
		 data->visible.entries * s->dim},
		{want->d_index_w, data->want.d_index_w, before->d_index_w, lanes},
		{want->teacher_out, data->want.teacher_out, before->teacher_out,
		 data->visible.rows * s->groups * data->topk},
	};

	want->loss = before->loss + data->want.loss;
	for (size_t n = 0; n < sizeof(sums) / sizeof(sums[0]); n++)
		for (int64_t i = 0; sums[n].sum && i < sums[n].count; i++)
			sums[n].sum[i] = sums[n].a[i] + sums[n].b[i];
}

void loss_try(const struct loss_data *data, const struct suite_run *run, unsigned flags)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const int64_t lanes = data->visible.rows * s->heads;
	struct place place = suite_place(run, flags);
	struct loss_grads before, want;
	struct hys_error error;
	hys_status status;
	struct rng rng;

	rng_seed(&rng, 7);
	loss_grads_make(&before, data);
	loss_grads_make(&want, data);
	if (data->about->features & LOSS_ACCUMULATE) {
		before.loss = 0.25;
		fill_before(before.d_index_q, lanes * s->dim, grad_dtype(data), &rng);
		fill_before(before.d_index_k, data->visible.entries * s->dim, grad_dtype(data),
			    &rng);
		fill_before(before.d_index_w, lanes, HYS_F32, &rng);
	}
	add_up(data, &before, &want);
	status = loss_call(data, &before, &place, run->batch, &error);
	if (status != HYS_OK)
		suite_fail(run, "%s: %s", hys_status_name(status), error.message);
	else if (suite_collect(run, &place))
		judge(data, &want, run, &place);
	loss_grads_free(&before);
	loss_grads_free(&want);
	place_clear(&place);
}

void loss_run(void **state)
{
	struct suite_run run = {0};
	struct loss_data data;
	struct suite_want want;

	loss_make(&data, *state);
	want = loss_want(&data);
	while (suite_next(&run, &want))
		for (int32_t i = 0; i < suite_placements.count; i++)
			loss_try(&data, &run, suite_placements.flags[i]);
	loss_free(&data);
}
