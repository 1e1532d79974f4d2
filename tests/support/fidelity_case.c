#include "fidelity_case.h"

#include "oracle.h"
#include "oracle_internal.h"

struct fidelity_data {
	const struct fidelity_case *about;
	struct hys_problem problem;
	struct visible visible;
	int64_t row_first, row_count;
	double *q, *k;
	int32_t *indices, *reference;
	struct ora_attention oracle;
};

static int32_t or_else(int32_t value, int32_t otherwise)
{
	return value != 0 ? value : otherwise;
}

static void complete_case(struct hys_problem *problem, const struct fidelity_case *about)
{
	const int32_t head_dim = or_else(about->head_dim, 16);

	*problem = (struct hys_problem){
		.struct_size = sizeof(*problem),
		.scoring = {.groups = or_else(about->groups, 1), .pool = or_else(about->pool, 1)},
		.choosing = {.topk_max = or_else(about->topk, 6)},
		.attending = {.heads = or_else(about->heads, 4),
			      .kv_heads = or_else(about->kv_heads, 1),
			      .head_dim = head_dim,
			      .value_dim = head_dim,
			      .granularity = or_else(about->granularity, 1),
			      .window = about->window,
			      .first = about->first,
			      .dtype = or_else((int32_t)about->dtype, HYS_F32),
			      .scale = about->scale != 0 ? about->scale : 1 / sqrt(head_dim),
			      .softcap = about->softcap},
	};
}

static double *draw(struct rng *rng, int64_t count, hys_dtype dtype)
{
	double *values = ora_doubles(count);

	rng_fill_normal(rng, values, count, 1);
	for (int64_t i = 0; i < count; i++)
		values[i] = element_round(dtype, values[i]);
	return values;
}

static void draw_selections(struct fidelity_data *data, struct rng *rng)
{
	struct indices_want want = {.visible = &data->visible,
				    .pattern = data->about->indices,
				    .groups = data->problem.scoring.groups,
				    .topk = data->problem.choosing.topk_max,
				    .granularity = data->problem.attending.granularity};
	struct rng again = *rng;

	data->indices = indices_make(&want, rng);
	want.pattern = INDICES_SOME;
	data->reference = indices_make(&want, data->about->features & FIDELITY_SAME ? &again : rng);
}

static void make_data(struct fidelity_data *data, const struct fidelity_case *about)
{
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *v = &data->visible;
	struct rng rng;

	rng_seed(&rng, suite_seed(&about->about));
	*data = (struct fidelity_data){.about = about};
	complete_case(&data->problem, about);
	visible_make(&data->visible, &about->visible, data->problem.scoring.pool, &rng);
	data->row_count = v->rows;
	if (about->features & (FIDELITY_RANGE | FIDELITY_RANGE_CUT)) {
		data->row_first = v->rows / 3;
		data->row_count = v->rows / 3;
	}
	data->q = draw(&rng, v->rows * a->heads * a->head_dim, a->dtype);
	data->k = draw(&rng, v->keys * a->kv_heads * a->head_dim, a->dtype);
	draw_selections(data, &rng);
	data->oracle = (struct ora_attention){
		.rows = v->rows,
		.keys = v->keys,
		.heads = a->heads,
		.kv_heads = a->kv_heads,
		.head_dim = a->head_dim,
		.value_dim = a->value_dim,
		.groups = data->problem.scoring.groups,
		.topk = data->problem.choosing.topk_max,
		.granularity = a->granularity,
		.pool = data->problem.scoring.pool,
		.window = a->window,
		.first = a->first,
		.scale = a->scale,
		.softcap = a->softcap,
		.q = data->q,
		.k = data->k,
		.indices = data->indices,
		.row_begin = v->row_begin,
		.row_end = v->row_end,
		.key_origin = v->key_origin,
		.entry_origin = v->entry_origin,
	};
}

static void free_data(struct fidelity_data *data)
{
	free(data->q);
	free(data->k);
	free(data->indices);
	free(data->reference);
	visible_free(&data->visible);
}

static bool is_sampled(const struct fidelity_data *data, int64_t t)
{
	return !(data->about->features & FIDELITY_SAMPLED) || t % 3 == 1;
}

static struct hys_tensor out(const struct fidelity_data *data, struct place *place,
			     const char *name, hys_dtype dtype, int64_t rows)
{
	const int32_t groups = data->problem.scoring.groups;
	struct hys_tensor tensor = place_out(place, name, dtype, NULL, 2, rows, groups, 0);

	if (!(data->about->features & FIDELITY_RANGE_CUT))
		place_only_rows(place, data->row_first, data->row_count);
	return tensor;
}

static hys_status call(const struct fidelity_data *data, struct place *place,
		       struct hys_batch *batch, struct hys_error *error)
{
	const struct hys_attending *a = &data->problem.attending;
	const unsigned features = data->about->features;
	const int64_t groups = data->problem.scoring.groups, topk = data->oracle.topk;
	const int64_t rows = features & FIDELITY_RANGE_CUT ? data->row_count : data->visible.rows;
	const int64_t skip = features & FIDELITY_RANGE_CUT ? data->row_first : 0;
	struct hys_fidelity_args args = {.struct_size = sizeof(args)};

	if (features & (FIDELITY_RANGE | FIDELITY_RANGE_CUT)) {
		args.row_first = data->row_first;
		args.row_count = data->row_count;
	}
	args.row_stride = features & FIDELITY_SAMPLED ? 3 : 0;
	args.row_offset = features & FIDELITY_SAMPLED ? 1 : 0;
	args.target_mass = data->about->target;
	args.q = place_in(place, "q", a->dtype, data->q + skip * a->heads * a->head_dim, 3, rows,
			  a->heads, a->head_dim);
	args.k = place_in(place, "k", a->dtype, data->k, 3, data->visible.keys, a->kv_heads,
			  a->head_dim);
	if (!(features & FIDELITY_ONLY_NEEDED)) {
		args.indices = place_in_i32(place, "indices", data->indices + skip * groups * topk,
					    3, rows, groups, topk);
		args.mass = out(data, place, "mass", HYS_F32, rows);
	}
	if (!(features & (FIDELITY_ONLY_NEEDED | FIDELITY_ONLY_MASS))) {
		args.reference =
			place_in_i32(place, "reference", data->reference + skip * groups * topk, 3,
				     rows, groups, topk);
		args.recall = out(data, place, "recall", HYS_F32, rows);
	}
	if (!(features & FIDELITY_ONLY_MASS))
		args.topk_needed = out(data, place, "topk_needed", HYS_I32, rows);
	if (place->status != HYS_OK) {
		*error = place->error;
		return place->status;
	}
	return hys_fidelity(place->exec, batch, &args, error);
}

/* ---- judging, one (row, group) at a time ---- */

struct outputs {
	double *mass, *recall;
	int32_t *needed;
};

/* The valid ones of a row's slots, then -1; freed by the caller. */
static int32_t *valid_only(const struct fidelity_data *data, const int32_t *all, int64_t t,
			   int32_t u)
{
	struct ora_attention oracle = data->oracle;
	const int32_t topk = oracle.topk;
	const int32_t *slots = all + (t * oracle.groups + u) * topk;
	int32_t *kept = ora_alloc(topk, sizeof(*kept)), count = 0;
	unsigned char *valid = ora_alloc(topk, 1);

	oracle.indices = all;
	ora_valid_slots(&oracle, t, u, valid);
	memset(kept, 0xff, (size_t)topk * sizeof(*kept));
	for (int32_t i = 0; i < topk; i++)
		if (valid[i])
			kept[count++] = slots[i];
	free(valid);
	return kept;
}

static void judge_recall(const struct fidelity_data *data, const struct suite_run *run, double got,
			 int64_t t, int32_t u)
{
	const int32_t topk = data->oracle.topk;
	int32_t *chosen = valid_only(data, data->indices, t, u);
	int32_t *reference = valid_only(data, data->reference, t, u);
	const double want = ora_row_recall(chosen, topk, reference, topk);

	if (!(fabs(got - want) <= 1e-6))
		suite_fail(run, "row %lld group %d: recall %.6g, expected %.6g", (long long)t, u,
			   got, want);
	free(chosen);
	free(reference);
}

static void judge_place(const struct fidelity_data *data, const struct suite_run *run,
			const struct outputs *got, int64_t t, int32_t u, int64_t place)
{
	const double slack = 1e-4, target = data->about->target > 0 ? data->about->target : 0.95;
	if (got->mass) {
		const double want = ora_row_mass(&data->oracle, t, u);

		if (!(fabs(got->mass[place] - want) <= slack))
			suite_fail(run, "row %lld group %d: mass %.6g, expected %.6g", (long long)t,
				   u, got->mass[place], want);
	}
	if (got->recall)
		judge_recall(data, run, got->recall[place], t, u);
	if (got->needed) {
		const int32_t least = ora_row_keys_needed(&data->oracle, t, u, target - 1e-5);
		const int32_t most = ora_row_keys_needed(&data->oracle, t, u, target + 1e-5);

		if (got->needed[place] < least || got->needed[place] > most)
			suite_fail(run, "row %lld group %d: topk_needed %d, expected %d to %d",
				   (long long)t, u, got->needed[place], least, most);
	}
}

/* Rows that are not sampled keep what they held: 0xff. */
static void judge_rest(const struct suite_run *run, const struct outputs *got, int64_t t,
		       int64_t place)
{
	const bool kept = (!got->mass || isnan(got->mass[place])) &&
			  (!got->recall || isnan(got->recall[place])) &&
			  (!got->needed || got->needed[place] == -1);

	if (!kept)
		suite_fail(run, "row %lld, which is not sampled, was written", (long long)t);
}

static void judge(const struct fidelity_data *data, const struct suite_run *run,
		  const struct place *place)
{
	const int32_t groups = data->problem.scoring.groups;
	const int64_t skip = data->about->features & FIDELITY_RANGE_CUT ? data->row_first : 0;
	struct outputs got = {place_values(place, "mass"), place_values(place, "recall"),
			      place_values_i32(place, "topk_needed")};

	for (int64_t t = data->row_first; t < data->row_first + data->row_count; t++)
		for (int32_t u = 0; u < groups; u++) {
			const int64_t at = (t - skip) * groups + u;

			if (is_sampled(data, t))
				judge_place(data, run, &got, t, u, at);
			else
				judge_rest(run, &got, t, at);
		}
	free(got.mass);
	free(got.recall);
	free(got.needed);
}

void fidelity_run(void **state)
{
	struct suite_run run = {0};
	struct fidelity_data data;
	struct hys_error error;

	make_data(&data, *state);
	const struct suite_want want = {.about = &data.about->about,
					.problem = &data.problem,
					.op = HYS_OP_FIDELITY,
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
