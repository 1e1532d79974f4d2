/* The library's attention on the operands of a case, judged by the oracle. */
#include "attention_case.h"

#include "oracle_internal.h"

/* Tensors of rows hold all rows, or those of the range. */
struct row_view {
	int64_t count, skip;
	bool cut;
};

static struct row_view view_rows(const struct attention_data *data)
{
	const bool cut = data->about->features & ATTENTION_RANGE_CUT;

	return (struct row_view){cut ? data->row_count : data->visible.rows,
				 cut ? data->row_first : 0, cut};
}

static bool is_range(const struct attention_data *data)
{
	return data->about->features & (ATTENTION_RANGE | ATTENTION_RANGE_CUT);
}

static struct hys_tensor rows_in(struct place *place, const struct attention_data *data,
				 const char *name, hys_dtype dtype, const double *values,
				 int64_t n1, int64_t n2)
{
	const struct row_view rows = view_rows(data);

	return place_in(place, name, dtype, values + rows.skip * n1 * ora_max(n2, 1),
			n2 > 0 ? 3 : 2, rows.count, n1, n2);
}

static struct hys_tensor rows_out(struct place *place, const struct attention_data *data,
				  const char *name, hys_dtype dtype, const double *before,
				  int64_t n1, int64_t n2)
{
	const struct row_view rows = view_rows(data);
	const double *from = before ? before + rows.skip * n1 * ora_max(n2, 1) : NULL;
	struct hys_tensor tensor =
		place_out(place, name, dtype, from, n2 > 0 ? 3 : 2, rows.count, n1, n2);

	if (!rows.cut)
		place_only_rows(place, data->row_first, data->row_count);
	return tensor;
}

static struct hys_tensor keys_in(struct place *place, const struct attention_data *data,
				 const char *name, const double *values, int64_t rows, int64_t dim)
{
	const struct hys_attending *a = &data->problem.attending;

	if (!values)
		return (struct hys_tensor){0};
	return place_in(place, name, a->dtype, values, 3, rows, a->kv_heads, dim);
}

static struct hys_tensor indices_in(struct place *place, const struct attention_data *data)
{
	const struct row_view rows = view_rows(data);
	const int64_t groups = data->problem.scoring.groups;

	if (!data->indices)
		return (struct hys_tensor){0};
	return place_in_i32(place, "indices", data->indices + rows.skip * groups * data->topk, 3,
			    rows.count, groups, data->topk);
}

hys_status attention_forward_call(const struct attention_data *data, struct place *place,
				  struct hys_batch *batch, struct hys_error *error)
{
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *v = &data->visible;
	struct hys_attention_args args = {.struct_size = sizeof(args)};

	if (is_range(data)) {
		args.row_first = data->row_first;
		args.row_count = data->row_count;
	}
	args.q = rows_in(place, data, "q", a->dtype, data->q, a->heads, a->head_dim);
	args.k = keys_in(place, data, "k", data->k, v->keys, a->head_dim);
	args.v = keys_in(place, data, "v", data->v, v->keys, a->value_dim);
	args.indices = indices_in(place, data);
	if (data->sink)
		args.sink = place_in(place, "sink", HYS_F32, data->sink, 1, a->heads, 0, 0);
	args.window_k =
		keys_in(place, data, "window_k", data->window_k, v->window_keys, a->head_dim);
	args.window_v =
		keys_in(place, data, "window_v", data->window_v, v->window_keys, a->value_dim);
	args.o = rows_out(place, data, "o", a->dtype, NULL, a->heads, a->value_dim);
	if (!(data->about->features & ATTENTION_NO_LSE))
		args.lse = rows_out(place, data, "lse", HYS_F32, NULL, a->heads, 0);
	if (place->status != HYS_OK) {
		*error = place->error;
		return place->status;
	}
	return hys_attention_forward(place->exec, batch, &args, error);
}

/* The range's part of an output [rows, per_row], in an array of its own; frees `values`. */
static double *take_range(const struct attention_data *data, double *values, int64_t per_row)
{
	const int64_t skip = view_rows(data).cut ? 0 : data->row_first;
	double *range = ora_doubles(data->row_count * per_row);

	memcpy(range, values + skip * per_row,
	       (size_t)(data->row_count * per_row) * sizeof(double));
	free(values);
	return range;
}

static void judge_forward(const struct attention_data *data, const struct suite_run *run,
			  const struct place *place)
{
	const struct hys_attending *a = &data->problem.attending;
	const int64_t heads = data->row_count * a->heads, skip = data->row_first * a->heads;
	const double lse_tolerance = a->dtype == HYS_F32 ? 1e-5 : 1e-3;
	double *o = take_range(data, place_values(place, "o"), (int64_t)a->heads * a->value_dim);
	double *lse = place_values(place, "lse");

	suite_same(run, "o", o, data->o + skip * a->value_dim, heads * a->value_dim,
		   data->nothing + skip, a->value_dim);
	suite_close(run, "o", o, data->o + skip * a->value_dim, heads, a->value_dim,
		    attention_tolerance(data, false));
	if (lse)
		suite_each(run, "lse", take_range(data, lse, a->heads), data->lse + skip, heads,
			   (struct suite_tolerance){0, lse_tolerance, 1});
}

void attention_forward_try(const struct attention_data *data, const struct suite_run *run,
			   unsigned flags)
{
	struct place place = suite_place(run, flags);
	struct hys_error error;
	hys_status status = attention_forward_call(data, &place, run->batch, &error);

	if (status != HYS_OK)
		suite_fail(run, "%s: %s", hys_status_name(status), error.message);
	else if (suite_collect(run, &place))
		judge_forward(data, run, &place);
	place_clear(&place);
}

/* ---- backward ---- */

struct grad_sizes {
	int64_t dq, dk, dv, dsink, dwindow_k, dwindow_v;
};

static struct grad_sizes sizes_of(const struct attention_data *data)
{
	const struct hys_attending *a = &data->problem.attending;
	const int64_t k_width = (int64_t)a->kv_heads * a->head_dim;
	const int64_t v_width = (int64_t)a->kv_heads * a->value_dim;

	return (struct grad_sizes){
		.dq = data->visible.rows * a->heads * a->head_dim,
		.dk = data->visible.keys * k_width,
		.dv = data->visible.keys * v_width,
		.dsink = a->heads,
		.dwindow_k = data->visible.window_keys * k_width,
		.dwindow_v = data->visible.window_keys * v_width,
	};
}

void attention_grads_zero(struct attention_grads *grads, const struct attention_data *data)
{
	const struct grad_sizes sizes = sizes_of(data);
	const unsigned only = data->about->features & (ATTENTION_ONLY_DQ | ATTENTION_ONLY_DK);

	*grads = (struct attention_grads){0};
	if (only != ATTENTION_ONLY_DK)
		grads->dq = ora_doubles(sizes.dq);
	if (only != ATTENTION_ONLY_DQ)
		grads->dk = ora_doubles(sizes.dk);
	if (only)
		return;
	grads->dv = data->v ? ora_doubles(sizes.dv) : NULL;
	grads->dsink = data->sink ? ora_doubles(sizes.dsink) : NULL;
	grads->dwindow_k = data->window_k ? ora_doubles(sizes.dwindow_k) : NULL;
	grads->dwindow_v = data->window_v ? ora_doubles(sizes.dwindow_v) : NULL;
}

void attention_grads_make(struct attention_grads *want, const struct attention_data *data)
{
	struct ora_attention oracle = data->oracle;

	attention_grads_zero(want, data);
	oracle.o = NULL;
	oracle.lse = NULL;
	oracle.grad_o = data->grad_o;
	oracle.given_o = data->given_o;
	oracle.dq = want->dq;
	oracle.dk = want->dk;
	oracle.dv = want->dv;
	oracle.dsink = want->dsink;
	oracle.dwindow_k = want->dwindow_k;
	oracle.dwindow_v = want->dwindow_v;
	ora_attention_backward(&oracle);
}

void attention_grads_free(struct attention_grads *grads)
{
	free(grads->dq);
	free(grads->dk);
	free(grads->dv);
	free(grads->dsink);
	free(grads->dwindow_k);
	free(grads->dwindow_v);
}

static struct hys_tensor keys_out(struct place *place, const struct attention_data *data,
				  const char *name, hys_dtype dtype, const double *wanted,
				  const double *before, int64_t rows, int64_t dim)
{
	if (!wanted)
		return (struct hys_tensor){0};
	return place_out(place, name, dtype,
			 data->about->features & ATTENTION_ACCUMULATE ? before : NULL, 3, rows,
			 data->problem.attending.kv_heads, dim);
}

static void place_grads(struct hys_attention_grad_args *args, const struct attention_data *data,
			const struct attention_grads *before, struct place *place)
{
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *v = &data->visible;
	const hys_dtype dtype = data->about->features & ATTENTION_F32_GRADS ? HYS_F32 : a->dtype;
	const bool adds = data->about->features & ATTENTION_ACCUMULATE;

	if (before->dq)
		args->dq = rows_out(
			place, data, "dq", dtype,
			adds && !(data->about->features & ATTENTION_WRITE_DQ) ? before->dq : NULL,
			a->heads, a->head_dim);
	args->dk = keys_out(place, data, "dk", dtype, before->dk, before->dk, v->keys, a->head_dim);
	args->dv =
		keys_out(place, data, "dv", dtype, before->dv, before->dv, v->keys, a->value_dim);
	if (before->dsink)
		args->dsink = place_out(place, "dsink", HYS_F32, adds ? before->dsink : NULL, 1,
					a->heads, 0, 0);
	args->dwindow_k = keys_out(place, data, "dwindow_k", dtype, before->dwindow_k,
				   before->dwindow_k, v->window_keys, a->head_dim);
	args->dwindow_v = keys_out(place, data, "dwindow_v", dtype, before->dwindow_v,
				   before->dwindow_v, v->window_keys, a->value_dim);
}

hys_status attention_backward_call(const struct attention_data *data,
				   const struct attention_grads *before, struct place *place,
				   struct hys_batch *batch, struct hys_error *error)
{
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *v = &data->visible;
	struct hys_attention_grad_args args = {.struct_size = sizeof(args)};

	if (is_range(data)) {
		args.row_first = data->row_first;
		args.row_count = data->row_count;
	}
	if (data->about->features & ATTENTION_ACCUMULATE)
		args.flags = data->about->features & ATTENTION_WRITE_DQ ? HYS_GRAD_ACCUMULATE_KEYS
									: HYS_GRAD_ACCUMULATE;
	args.q = rows_in(place, data, "q", a->dtype, data->q, a->heads, a->head_dim);
	args.k = keys_in(place, data, "k", data->k, v->keys, a->head_dim);
	args.v = keys_in(place, data, "v", data->v, v->keys, a->value_dim);
	args.indices = indices_in(place, data);
	if (data->sink)
		args.sink = place_in(place, "sink", HYS_F32, data->sink, 1, a->heads, 0, 0);
	args.window_k =
		keys_in(place, data, "window_k", data->window_k, v->window_keys, a->head_dim);
	args.window_v =
		keys_in(place, data, "window_v", data->window_v, v->window_keys, a->value_dim);
	args.o = rows_in(place, data, "o", a->dtype, data->given_o, a->heads, a->value_dim);
	args.lse = rows_in(place, data, "lse", HYS_F32, data->given_lse, a->heads, 0);
	args.grad_o =
		rows_in(place, data, "grad_o", a->dtype, data->grad_o, a->heads, a->value_dim);
	place_grads(&args, data, before, place);
	if (place->status != HYS_OK) {
		*error = place->error;
		return place->status;
	}
	return hys_attention_backward(place->exec, batch, &args, error);
}

/* One gradient of key rows: exactly what it was where nothing was read. */
static void judge_keys(const struct attention_data *data, const struct suite_run *run,
		       const struct place *place, const char *name, const double *want,
		       int64_t rows, int64_t dim, const unsigned char *read)
{
	const int64_t kv_heads = data->problem.attending.kv_heads;
	unsigned char *unread = ora_alloc(rows, 1);
	double *got = place_values(place, name);

	for (int64_t s = 0; s < rows; s++)
		unread[s] = !read[s];
	if (got) {
		suite_same(run, name, got, want, rows * kv_heads * dim, unread, kv_heads * dim);
		suite_close(run, name, got, want, rows * kv_heads, dim,
			    attention_tolerance(data, true));
	}
	free(unread);
}

static void judge_backward(const struct attention_data *data, const struct attention_grads *want,
			   const struct suite_run *run, const struct place *place)
{
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *v = &data->visible;
	const int64_t heads = data->row_count * a->heads, skip = data->row_first * a->heads;
	double *dq = place_values(place, "dq"), *dsink = place_values(place, "dsink");

	if (dq) {
		dq = take_range(data, dq, (int64_t)a->heads * a->head_dim);
		suite_same(run, "dq", dq, want->dq + skip * a->head_dim, heads * a->head_dim,
			   data->nothing + skip, a->head_dim);
		suite_close(run, "dq", dq, want->dq + skip * a->head_dim, heads, a->head_dim,
			    attention_tolerance(data, true));
	}
	if (dsink)
		suite_close(run, "dsink", dsink, want->dsink, 1, a->heads,
			    attention_tolerance(data, true));
	judge_keys(data, run, place, "dk", want->dk, v->keys, a->head_dim, data->read);
	judge_keys(data, run, place, "dv", want->dv, v->keys, a->value_dim, data->read);
	judge_keys(data, run, place, "dwindow_k", want->dwindow_k, v->window_keys, a->head_dim,
		   data->window_read);
	judge_keys(data, run, place, "dwindow_v", want->dwindow_v, v->window_keys, a->value_dim,
		   data->window_read);
}

/* Something to add to, in the type of the gradients. */
static void fill_before(double *before, int64_t count, const struct attention_data *data,
			hys_dtype dtype, struct rng *rng)
{
	if (!before)
		return;
	rng_fill_normal(rng, before, count, 0.5);
	for (int64_t i = 0; i < count; i++)
		before[i] = element_round(
			data->about->features & ATTENTION_F32_GRADS ? HYS_F32 : dtype, before[i]);
}

static void make_before(struct attention_grads *before, const struct attention_data *data)
{
	const struct grad_sizes sizes = sizes_of(data);
	const hys_dtype dtype = data->problem.attending.dtype;
	struct rng rng;

	rng_seed(&rng, 5);
	attention_grads_zero(before, data);
	if (!(data->about->features & ATTENTION_ACCUMULATE))
		return;
	if (!(data->about->features & ATTENTION_WRITE_DQ))
		fill_before(before->dq, sizes.dq, data, dtype, &rng);
	fill_before(before->dk, sizes.dk, data, dtype, &rng);
	fill_before(before->dv, sizes.dv, data, dtype, &rng);
	fill_before(before->dsink, sizes.dsink, data, HYS_F32, &rng);
	fill_before(before->dwindow_k, sizes.dwindow_k, data, dtype, &rng);
	fill_before(before->dwindow_v, sizes.dwindow_v, data, dtype, &rng);
}

static void add_to(double **sum, const double *values, const double *before, int64_t count)
{
	*sum = values ? ora_doubles(count) : NULL;
	for (int64_t i = 0; values && i < count; i++)
		(*sum)[i] = values[i] + before[i];
}

static void add_before(struct attention_grads *sum, const struct attention_data *data,
		       const struct attention_grads *want, const struct attention_grads *before)
{
	const struct grad_sizes sizes = sizes_of(data);

	add_to(&sum->dq, want->dq, before->dq, sizes.dq);
	add_to(&sum->dk, want->dk, before->dk, sizes.dk);
	add_to(&sum->dv, want->dv, before->dv, sizes.dv);
	add_to(&sum->dsink, want->dsink, before->dsink, sizes.dsink);
	add_to(&sum->dwindow_k, want->dwindow_k, before->dwindow_k, sizes.dwindow_k);
	add_to(&sum->dwindow_v, want->dwindow_v, before->dwindow_v, sizes.dwindow_v);
}

void attention_backward_try(const struct attention_data *data, const struct attention_grads *want,
			    const struct suite_run *run, unsigned flags)
{
	struct place place = suite_place(run, flags);
	struct attention_grads before, sum;
	struct hys_error error;
	hys_status status;

	make_before(&before, data);
	add_before(&sum, data, want, &before);
	status = attention_backward_call(data, &before, &place, run->batch, &error);
	if (status != HYS_OK)
		suite_fail(run, "%s: %s", hys_status_name(status), error.message);
	else if (suite_collect(run, &place))
		judge_backward(data, &sum, run, &place);
	attention_grads_free(&before);
	attention_grads_free(&sum);
	place_clear(&place);
}

void attention_forward_run(void **state)
{
	struct suite_run run = {0};
	struct attention_data data;
	struct suite_want want;

	attention_make(&data, *state);
	want = attention_want(&data, HYS_OP_ATTENTION_FORWARD);
	while (suite_next(&run, &want))
		for (int32_t i = 0; i < suite_placements.count; i++)
			attention_forward_try(&data, &run, suite_placements.flags[i]);
	attention_free(&data);
}

void attention_backward_run(void **state)
{
	struct suite_run run = {0};
	struct attention_data data;
	struct attention_grads grads;
	struct suite_want want;

	attention_make(&data, *state);
	attention_grads_make(&grads, &data);
	want = attention_want(&data, HYS_OP_ATTENTION_BACKWARD);
	while (suite_next(&run, &want))
		for (int32_t i = 0; i < suite_placements.count; i++)
			attention_backward_try(&data, &grads, &run, suite_placements.flags[i]);
	attention_grads_free(&grads);
	attention_free(&data);
}
