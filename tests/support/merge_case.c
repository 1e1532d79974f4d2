#include "merge_case.h"

#include "oracle.h"
#include "oracle_internal.h"

struct merge_data {
	const struct merge_case *about;
	struct hys_problem problem;
	struct visible visible;
	int64_t row_first, row_count, lanes; /* lanes: T * H */
	double *o_a, *o_b, *lse_a, *lse_b, *o, *lse;
};

static double *draw(struct rng *rng, int64_t count, double scale, hys_dtype dtype)
{
	double *values = ora_doubles(count);

	rng_fill_normal(rng, values, count, scale);
	for (int64_t i = 0; i < count; i++)
		values[i] = element_round(dtype, values[i]);
	return values;
}

/* Where one side has nothing, its o is 0 by contract. */
static void empty_lane(struct merge_data *data, double *o, double *lse, int64_t lane)
{
	const int64_t dim = data->problem.attending.value_dim;

	lse[lane] = -(double)INFINITY;
	ora_zero(o + lane * dim, dim);
}

static void make_data(struct merge_data *data, const struct merge_case *about)
{
	const hys_dtype dtype = about->dtype ? about->dtype : HYS_F32;
	const int32_t heads = about->heads ? about->heads : 4;
	const int32_t dim = about->value_dim ? about->value_dim : 16;
	const double scale = about->features & MERGE_APART ? 300 : 1;
	struct rng rng;

	rng_seed(&rng, suite_seed(&about->about));
	*data = (struct merge_data){.about = about};
	data->problem = (struct hys_problem){
		.struct_size = sizeof(data->problem),
		.attending = {.heads = heads, .head_dim = dim, .dtype = dtype},
	};
	data->problem.attending.value_dim = dim;
	visible_make(&data->visible, &about->visible, 1, &rng);
	data->row_count = data->visible.rows;
	if (about->features & (MERGE_RANGE | MERGE_RANGE_CUT)) {
		data->row_first = data->visible.rows / 3;
		data->row_count = data->visible.rows / 3;
	}
	data->lanes = data->visible.rows * heads;
	data->o_a = draw(&rng, data->lanes * dim, 1, dtype);
	data->o_b = draw(&rng, data->lanes * dim, 1, dtype);
	data->lse_a = draw(&rng, data->lanes, scale, HYS_F32);
	data->lse_b = draw(&rng, data->lanes, scale, HYS_F32);
	for (int64_t i = 0; i < data->lanes; i++) {
		const bool nothing = about->features & MERGE_NOTHING;

		if ((about->features & MERGE_BOTH_NOTHING) || (nothing && i % 3 != 0))
			empty_lane(data, data->o_a, data->lse_a, i);
		if ((about->features & MERGE_BOTH_NOTHING) || (nothing && i % 3 != 1))
			empty_lane(data, data->o_b, data->lse_b, i);
	}
	data->o = ora_doubles(data->lanes * dim);
	data->lse = ora_doubles(data->lanes);
	ora_merge(data->lanes, dim, data->o_a, data->lse_a, data->o_b, data->lse_b, data->o,
		  data->lse);
}

static void free_data(struct merge_data *data)
{
	free(data->o_a);
	free(data->o_b);
	free(data->lse_a);
	free(data->lse_b);
	free(data->o);
	free(data->lse);
	visible_free(&data->visible);
}

static hys_status call(const struct merge_data *data, struct place *place, struct hys_batch *batch,
		       struct hys_error *error)
{
	const struct hys_attending *a = &data->problem.attending;
	const bool cut = data->about->features & MERGE_RANGE_CUT;
	const int64_t rows = cut ? data->row_count : data->visible.rows;
	const int64_t skip = cut ? data->row_first * a->heads : 0, dim = a->value_dim;
	struct hys_merge_args args = {.struct_size = sizeof(args)};

	if (data->about->features & (MERGE_RANGE | MERGE_RANGE_CUT)) {
		args.row_first = data->row_first;
		args.row_count = data->row_count;
	}
	args.o_a = place_in(place, "o_a", a->dtype, data->o_a + skip * dim, 3, rows, a->heads, dim);
	args.o_b = place_in(place, "o_b", a->dtype, data->o_b + skip * dim, 3, rows, a->heads, dim);
	args.lse_a = place_in(place, "lse_a", HYS_F32, data->lse_a + skip, 2, rows, a->heads, 0);
	args.lse_b = place_in(place, "lse_b", HYS_F32, data->lse_b + skip, 2, rows, a->heads, 0);
	args.o = place_out(place, "o", a->dtype, NULL, 3, rows, a->heads, dim);
	if (!cut)
		place_only_rows(place, data->row_first, data->row_count);
	if (!(data->about->features & MERGE_ONLY_O)) {
		args.lse = place_out(place, "lse", HYS_F32, NULL, 2, rows, a->heads, 0);
		if (!cut)
			place_only_rows(place, data->row_first, data->row_count);
	}
	if (place->status != HYS_OK) {
		*error = place->error;
		return place->status;
	}
	return hys_merge(place->exec, batch, &args, error);
}

/* The range's part of an output. */
static double *take_range(const struct merge_data *data, const struct place *place,
			  const char *name, int64_t per_row)
{
	const int64_t skip = data->about->features & MERGE_RANGE_CUT ? 0 : data->row_first * per_row;
	double *all = place_values(place, name), *range;

	if (!all)
		return NULL;
	range = ora_doubles(data->row_count * per_row);
	memcpy(range, all + skip, (size_t)(data->row_count * per_row) * sizeof(double));
	free(all);
	return range;
}

static void judge(const struct merge_data *data, const struct suite_run *run,
		  const struct place *place)
{
	const struct hys_attending *a = &data->problem.attending;
	const int64_t lanes = data->row_count * a->heads, skip = data->row_first * a->heads;
	const double lse_tolerance = a->dtype == HYS_F32 ? 1e-5 : 1e-3;
	const double tolerance = a->dtype == HYS_F16 ? 2e-3 : a->dtype == HYS_BF16 ? 6e-3 : 1e-5;
	double *o = take_range(data, place, "o", (int64_t)a->heads * a->value_dim);
	double *lse = take_range(data, place, "lse", a->heads);

	suite_close(run, "o", o, data->o + skip * a->value_dim, lanes, a->value_dim, tolerance);
	if (lse)
		suite_each(run, "lse", lse, data->lse + skip, lanes,
			   (struct suite_tolerance){0, lse_tolerance, 1});
}

void merge_run(void **state)
{
	struct suite_run run = {0};
	struct merge_data data;
	struct hys_error error;

	make_data(&data, *state);
	const struct suite_want want = {.about = &data.about->about,
					.problem = &data.problem,
					.op = HYS_OP_MERGE,
					.rows = data.row_count,
					.keys = data.visible.keys,
					.desc = &data.visible.desc};

	while (suite_next(&run, &want))
		for (int32_t i = 0; i < suite_placements.count; i++) {
			struct place place = suite_place(&run, suite_placements.flags[i]);
			hys_status status = call(&data, &place, run.batch, &error);

			if (status != HYS_OK)
				suite_fail(&run, "%s: %s", hys_status_name(status), error.message);
			else if (suite_collect(&run, &place))
				judge(&data, &run, &place);
			place_clear(&place);
		}
	free_data(&data);
}
