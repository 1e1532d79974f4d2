/* The library's pooling on the operands of a case, judged by the oracle. */
#include "pool_case.h"

#include "oracle_internal.h"

static hys_dtype input_dtype(const struct pool_data *data)
{
	return data->about->dtype ? data->about->dtype : HYS_F32;
}

static hys_dtype output_dtype(const struct pool_data *data)
{
	return data->about->features & POOL_F32_OUT ? HYS_F32 : input_dtype(data);
}

static bool is_range(const struct pool_data *data)
{
	return data->about->features & (POOL_RANGE | POOL_RANGE_CUT);
}

/* An output of `rows` rows in all, of which the range is written. */
static struct hys_tensor rows_out(struct place *place, const struct pool_data *data,
				  const char *name, hys_dtype dtype, const double *before,
				  int64_t rows, int64_t width)
{
	const bool cut = data->about->features & POOL_RANGE_CUT;
	const int64_t skip = cut ? data->row_first * ora_max(width, 1) : 0;
	struct hys_tensor tensor =
		place_out(place, name, dtype, before ? before + skip : NULL, width > 0 ? 2 : 1,
			  cut ? data->row_count : rows, width, 0);

	if (!cut)
		place_only_rows(place, data->row_first, data->row_count);
	return tensor;
}

/* x, gate and bias of both passes. */
static void place_inputs(const struct pool_data *data, struct place *place, struct hys_tensor *x,
			 struct hys_tensor *gate, struct hys_tensor *bias)
{
	const hys_dtype dtype = input_dtype(data);

	*x = place_in(place, "x", dtype, data->x, 2, data->inputs, data->width, 0);
	if (data->gate)
		*gate = place_in(place, "gate", dtype, data->gate, 2, data->inputs, data->width, 0);
	if (data->bias)
		*bias = place_in(place, "bias", HYS_F32, data->bias, 2, data->oracle.ratio,
				 data->width, 0);
}

/* ---- forward ---- */

static hys_status call_forward(const struct pool_data *data, struct place *place,
			       struct hys_batch *batch, struct hys_error *error)
{
	const bool bounds = data->about->pooling == HYS_POOL_BOUNDS;
	const bool only_norm = data->about->features & POOL_ONLY_NORM;
	const int64_t units = data->units;
	struct hys_pool_args args = {.struct_size = sizeof(args)};

	if (is_range(data)) {
		args.row_first = data->row_first;
		args.row_count = data->row_count;
	}
	args.pooling = data->about->pooling;
	args.unit = data->about->blocks ? HYS_POOL_BLOCKS : HYS_POOL_ENTRIES;
	place_inputs(data, place, &args.x, &args.gate, &args.bias);
	if (!only_norm)
		args.y =
			rows_out(place, data, "y", output_dtype(data), NULL, units, data->channels);
	if (bounds)
		args.norm = rows_out(place, data, "norm", HYS_F32, NULL, units, 0);
	if (bounds && !only_norm) {
		args.radius = rows_out(place, data, "radius", HYS_F32, NULL, units, 0);
		args.lowest = rows_out(place, data, "lowest", HYS_F32, NULL, units, data->channels);
		args.highest =
			rows_out(place, data, "highest", HYS_F32, NULL, units, data->channels);
	}
	if (place->status != HYS_OK) {
		*error = place->error;
		return place->status;
	}
	return hys_pool(place->exec, batch, &args, error);
}

/* What the oracle says of all units. */
struct answer {
	double *y, *norm, *radius, *lowest, *highest;
};

/* Distance of row s of x from the centre as it is stored. */
static double distance_of(const struct pool_data *data, int64_t s, const double *centre)
{
	double sum = 0;

	for (int32_t c = 0; c < data->channels; c++) {
		const double away =
			data->x[s * data->width + c] - element_round(output_dtype(data), centre[c]);

		sum += away * away;
	}
	return sqrt(sum);
}

static void measure_radii(const struct pool_data *data, const struct answer *a)
{
	const int64_t ratio = data->oracle.ratio;
	int64_t unit = 0;

	for (int64_t d = 0; d < ora_max(data->visible.documents, 1); d++)
		for (int64_t s = data->documents[d]; s + ratio <= data->documents[d + 1];
		     s += ratio, unit++) {
			double largest = isnan(a->radius[unit]) ? (double)NAN : 0;

			for (int64_t i = 0; !isnan(largest) && i < ratio; i++)
				largest = fmax(largest, distance_of(data, s + i,
								    a->y + unit * data->channels));
			a->radius[unit] = largest;
		}
}

static struct answer new_answer(struct pool_data *data)
{
	const int64_t units = data->units, all = units * data->channels;
	struct answer a = {ora_doubles(all), ora_doubles(units), ora_doubles(units),
			   ora_doubles(all), ora_doubles(all)};

	if (data->about->pooling == HYS_POOL_BOUNDS) {
		data->bounds.centre = a.y;
		data->bounds.max_norm = a.norm;
		data->bounds.radius = a.radius;
		data->bounds.low = a.lowest;
		data->bounds.high = a.highest;
		ora_bounds(&data->bounds);
		measure_radii(data, &a);
	} else {
		data->oracle.out = a.y;
		ora_pool_forward(&data->oracle);
	}
	return a;
}

static void free_answer(struct answer *a)
{
	free(a->y);
	free(a->norm);
	free(a->radius);
	free(a->lowest);
	free(a->highest);
}

/* The range's rows of an output; NULL when it was not asked for. */
static double *take_rows(const struct pool_data *data, const struct place *place, const char *name,
			 int64_t width)
{
	const bool cut = data->about->features & POOL_RANGE_CUT;
	double *all = place_values(place, name), *rows;

	if (!all)
		return NULL;
	rows = ora_doubles(data->row_count * width);
	memcpy(rows, all + (cut ? 0 : data->row_first * width),
	       (size_t)(data->row_count * width) * sizeof(double));
	free(all);
	return rows;
}

static void judge_each(const struct pool_data *data, const struct suite_run *run,
		       const struct place *place, const char *name, const double *want,
		       int64_t width, double relative)
{
	double *got = take_rows(data, place, name, width);

	if (got)
		suite_each(run, name, got, want + data->row_first * width, data->row_count * width,
			   (struct suite_tolerance){0, relative, 1e-30});
}

static void judge_forward(const struct pool_data *data, const struct answer *want,
			  const struct suite_run *run, const struct place *place)
{
	double *y = take_rows(data, place, "y", data->channels);

	if (y && data->about->values == POOL_SPECIAL)
		suite_each(run, "y", y, want->y + data->row_first * data->channels,
			   data->row_count * data->channels,
			   (struct suite_tolerance){0, 10 * pool_tolerance(data, false), 1});
	else if (y)
		suite_close(run, "y", y, want->y + data->row_first * data->channels,
			    data->row_count, data->channels, pool_tolerance(data, false));
	judge_each(data, run, place, "norm", want->norm, 1, 1e-5);
	judge_each(data, run, place, "radius", want->radius, 1, 1e-5);
	judge_each(data, run, place, "lowest", want->lowest, data->channels, 0);
	judge_each(data, run, place, "highest", want->highest, data->channels, 0);
}

void pool_run(void **state)
{
	struct suite_run run = {0};
	struct pool_data data;
	struct suite_want want;
	struct answer answer;
	struct hys_error error;

	pool_make(&data, *state, false);
	answer = new_answer(&data);
	want = pool_want(&data, HYS_OP_POOL);
	while (suite_next(&run, &want))
		for (int32_t i = 0; i < suite_placements.count; i++) {
			struct place place = suite_place(&run, suite_placements.flags[i]);
			hys_status status = call_forward(&data, &place, run.batch, &error);

			if (status != HYS_OK)
				suite_fail(&run, "%s: %s", hys_status_name(status), error.message);
			else if (suite_collect(&run, &place))
				judge_forward(&data, &answer, &run, &place);
			place_clear(&place);
		}
	free_answer(&answer);
	pool_free(&data);
}

/* ---- backward ---- */

struct grads {
	double *dx, *dgate, *dbias;
};

static void free_grads(struct grads *grads)
{
	free(grads->dx);
	free(grads->dgate);
	free(grads->dbias);
}

static int64_t bias_count(const struct pool_data *data)
{
	return (int64_t)data->oracle.ratio * data->width;
}

/* The bias gets what the gates of the range's rows get, by their place in the unit. */
static void sum_bias(const struct pool_data *data, const struct grads *grads)
{
	const int64_t documents = ora_max(data->visible.documents, 1), ratio = data->oracle.ratio;

	for (int64_t d = 0; d < documents; d++)
		for (int64_t s = data->documents[d]; s < data->documents[d + 1]; s++) {
			const int64_t slot = (s - data->documents[d]) % ratio;

			if (s < data->row_first || s >= data->row_first + data->row_count)
				continue;
			for (int64_t c = 0; c < data->width; c++)
				grads->dbias[slot * data->width + c] +=
					grads->dgate[s * data->width + c];
		}
}

static void fill(double *values, int64_t count, hys_dtype dtype, struct rng *rng)
{
	rng_fill_normal(rng, values, count, 0.5);
	for (int64_t i = 0; i < count; i++)
		values[i] = element_round(dtype, values[i]);
}

/* What outputs hold before, and what they are to hold after. */
static void make_grads(struct pool_data *data, struct grads *before, struct grads *want)
{
	const int64_t count = data->inputs * data->width;
	struct rng rng;

	rng_seed(&rng, 11);
	*before = (struct grads){ora_doubles(count), ora_doubles(count),
				 ora_doubles(bias_count(data))};
	*want = (struct grads){ora_doubles(count), ora_doubles(count),
			       ora_doubles(bias_count(data))};
	data->oracle.dx = want->dx;
	data->oracle.dgate = want->dgate;
	ora_pool_backward(&data->oracle);
	sum_bias(data, want);
	if (!(data->about->features & POOL_ACCUMULATE))
		return;
	fill(before->dx, count, output_dtype(data), &rng);
	fill(before->dgate, count, output_dtype(data), &rng);
	fill(before->dbias, bias_count(data), HYS_F32, &rng);
	for (int64_t i = 0; i < count; i++) {
		want->dx[i] += before->dx[i];
		want->dgate[i] += before->dgate[i];
	}
	for (int64_t i = 0; i < bias_count(data); i++)
		want->dbias[i] += before->dbias[i];
}

static hys_status call_backward(const struct pool_data *data, const struct grads *before,
				struct place *place, struct hys_batch *batch,
				struct hys_error *error)
{
	const bool adds = data->about->features & POOL_ACCUMULATE;
	const bool only_dx = data->about->features & POOL_ONLY_DX;
	struct hys_pool_grad_args args = {.struct_size = sizeof(args)};

	if (is_range(data)) {
		args.row_first = data->row_first;
		args.row_count = data->row_count;
	}
	args.flags = adds ? HYS_GRAD_ACCUMULATE : 0;
	args.pooling = data->about->pooling;
	args.unit = data->about->blocks ? HYS_POOL_BLOCKS : HYS_POOL_ENTRIES;
	place_inputs(data, place, &args.x, &args.gate, &args.bias);
	args.grad_y = place_in(place, "grad_y", output_dtype(data), data->grad_y, 2, data->units,
			       data->channels, 0);
	args.dx = rows_out(place, data, "dx", output_dtype(data), adds ? before->dx : NULL,
			   data->inputs, data->width);
	if (data->gate && !only_dx)
		args.dgate = rows_out(place, data, "dgate", output_dtype(data),
				      adds ? before->dgate : NULL, data->inputs, data->width);
	if (data->bias && !only_dx)
		args.dbias = place_out(place, "dbias", HYS_F32, adds ? before->dbias : NULL, 2,
				       data->oracle.ratio, data->width, 0);
	if (place->status != HYS_OK) {
		*error = place->error;
		return place->status;
	}
	return hys_pool_backward(place->exec, batch, &args, error);
}

/* outside[s] = 1 for rows of x that no unit covers. */
static unsigned char *mark_outside(const struct pool_data *data)
{
	const int64_t documents = ora_max(data->visible.documents, 1), ratio = data->oracle.ratio;
	unsigned char *outside = ora_alloc(data->inputs, 1);

	for (int64_t d = 0; d < documents; d++)
		for (int64_t s = data->documents[d]; s < data->documents[d + 1]; s++)
			outside[s] = s - data->documents[d] >=
				     (data->documents[d + 1] - data->documents[d]) / ratio * ratio;
	return outside;
}

static void judge_backward(const struct pool_data *data, const struct grads *want,
			   const struct suite_run *run, const struct place *place)
{
	const double tolerance = pool_tolerance(data, true);
	const int64_t skip = data->row_first * data->width;
	double *dx = take_rows(data, place, "dx", data->width);
	double *dgate = take_rows(data, place, "dgate", data->width);
	double *dbias = place_values(place, "dbias");
	unsigned char *outside = mark_outside(data);

	suite_same(run, "dx", dx, want->dx + skip, data->row_count * data->width,
		   outside + data->row_first, data->width);
	suite_close(run, "dx", dx, want->dx + skip, data->row_count, data->width, tolerance);
	if (dgate) {
		suite_same(run, "dgate", dgate, want->dgate + skip, data->row_count * data->width,
			   outside + data->row_first, data->width);
		suite_close(run, "dgate", dgate, want->dgate + skip, data->row_count, data->width,
			    tolerance);
	}
	if (dbias)
		suite_close(run, "dbias", dbias, want->dbias, data->oracle.ratio, data->width,
			    tolerance);
	free(outside);
}

void pool_backward_run(void **state)
{
	struct suite_run run = {0};
	struct pool_data data;
	struct suite_want suite;
	struct grads before, want;
	struct hys_error error;

	pool_make(&data, *state, true);
	make_grads(&data, &before, &want);
	suite = pool_want(&data, HYS_OP_POOL_BACKWARD);
	while (suite_next(&run, &suite))
		for (int32_t i = 0; i < suite_placements.count; i++) {
			struct place place = suite_place(&run, suite_placements.flags[i]);
			hys_status status =
				call_backward(&data, &before, &place, run.batch, &error);

			if (status != HYS_OK)
				suite_fail(&run, "%s: %s", hys_status_name(status), error.message);
			else if (suite_collect(&run, &place))
				judge_backward(&data, &want, &run, &place);
			place_clear(&place);
		}
	free_grads(&before);
	free_grads(&want);
	pool_free(&data);
}
