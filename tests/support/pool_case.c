/* Operands of pooling cases and the oracle's question. */
#include "pool_case.h"

#include "oracle_internal.h"

static int32_t or_else(int32_t value, int32_t otherwise)
{
	return value != 0 ? value : otherwise;
}

/* The index dimension says how many channels a plan keeps room for. */
static void complete_case(struct hys_problem *problem, const struct pool_case *about)
{
	const int32_t size = or_else(about->size, 4);

	*problem = (struct hys_problem){
		.struct_size = sizeof(*problem),
		.scoring = {.heads = 1,
			    .dim = or_else(about->channels, 16),
			    .pool = about->blocks ? or_else(about->pool, 1) : size},
		.choosing = {.coarse_block = about->blocks ? size : 0},
	};
}

/* Where each document's rows of x begin: its keys, or the entries of its keys. */
static void find_documents(struct pool_data *data)
{
	const struct visible *v = &data->visible;
	const int64_t count = ora_max(v->documents, 1);
	const int32_t size = data->problem.choosing.coarse_block;

	data->documents = ora_alloc(count + 1, sizeof(int32_t));
	for (int64_t d = 0; d < count; d++) {
		const int32_t keys = v->cu_k[d + 1] - v->cu_k[d];
		const int32_t rows = size > 0 ? keys / v->pool : keys;

		data->documents[d + 1] = data->documents[d] + rows;
		data->units += rows / (size > 0 ? size : v->pool);
	}
	data->inputs = data->documents[count];
}

static double *new_values(struct rng *rng, int64_t count, double scale, hys_dtype dtype)
{
	double *values = ora_doubles(count);

	rng_fill_normal(rng, values, count, scale);
	for (int64_t i = 0; i < count; i++)
		values[i] = element_round(dtype, values[i]);
	return values;
}

static void fill_values(struct pool_data *data, struct rng *rng)
{
	const hys_dtype dtype = or_else((int32_t)data->about->dtype, HYS_F32);
	const int64_t count = data->inputs * data->width;
	const int64_t bias_count = (int64_t)or_else(data->about->size, 4) * data->width;
	const double inf = (double)INFINITY, special[] = {(double)NAN, inf, -inf};
	const bool steep = data->about->values == POOL_STEEP;
	double x = 1;

	if (data->about->values == POOL_HUGE)
		x = dtype == HYS_F16 ? 10000 : 1e30;
	data->x = new_values(rng, count, x, dtype);
	if (data->about->pooling == HYS_POOL_GATED || data->about->pooling == HYS_POOL_OVERLAPPED)
		data->gate = new_values(rng, count, steep ? 100 : 1, dtype);
	if (data->about->features & POOL_BIAS)
		data->bias = new_values(rng, bias_count, 1, HYS_F32);
	data->grad_y = new_values(rng, data->units * data->channels, 1,
				  data->about->features & POOL_F32_OUT ? HYS_F32 : dtype);
	for (int64_t i = 0; i < count; i++) {
		if (data->about->values == POOL_SPECIAL && rng_range(rng, 0, 9) == 0)
			data->x[i] = special[rng_range(rng, 0, 3)];
		if (data->gate && steep && i / data->width % 3 == 1)
			data->gate[i] = -inf;
		else if (data->gate)
			data->steepest = fmax(data->steepest, fabs(data->gate[i]) + 3);
	}
}

static void ask_oracle(struct pool_data *data)
{
	const int32_t documents = (int32_t)ora_max(data->visible.documents, 1);
	const int32_t size = or_else(data->about->size, 4);

	data->oracle = (struct ora_pool){
		.rows = data->inputs,
		.documents = documents,
		.channels = data->channels,
		.ratio = size,
		.overlap = data->about->pooling == HYS_POOL_OVERLAPPED,
		.cu_seqlens = data->documents,
		.x = data->x,
		.gate = data->gate,
		.bias = data->bias,
		.grad_out = data->grad_y,
	};
	data->bounds = (struct ora_bounds){
		.rows = data->inputs,
		.documents = documents,
		.channels = data->channels,
		.ratio = size,
		.cu_seqlens = data->documents,
		.x = data->x,
	};
}

void pool_make(struct pool_data *data, const struct pool_case *about, bool backward)
{
	struct rng rng;
	int64_t rows;

	rng_seed(&rng, suite_seed(&about->about));
	*data = (struct pool_data){.about = about};
	complete_case(&data->problem, about);
	data->channels = data->problem.scoring.dim;
	data->width = about->pooling == HYS_POOL_OVERLAPPED ? 2 * data->channels : data->channels;
	visible_make(&data->visible, &about->visible, data->problem.scoring.pool, &rng);
	find_documents(data);
	rows = backward ? data->inputs : data->units;
	data->row_count = rows;
	if (about->features & (POOL_RANGE | POOL_RANGE_CUT)) {
		data->row_first = rows / 3;
		data->row_count = ora_max(rows / 3, 1);
	}
	fill_values(data, &rng);
	ask_oracle(data);
}

void pool_free(struct pool_data *data)
{
	free(data->documents);
	free(data->x);
	free(data->gate);
	free(data->bias);
	free(data->grad_y);
	visible_free(&data->visible);
}

struct suite_want pool_want(const struct pool_data *data, hys_op op)
{
	return (struct suite_want){.about = &data->about->about,
				   .problem = &data->problem,
				   .op = op,
				   .rows = data->visible.rows,
				   .keys = data->visible.keys,
				   .desc = &data->visible.desc};
}

double pool_tolerance(const struct pool_data *data, bool gradient)
{
	const double steep = fmax(1.0, data->steepest / 16.0);

	switch (data->about->dtype) {
	case HYS_F16:
		return steep * (gradient ? 4e-3 : 2e-3);
	case HYS_BF16:
		return steep * (gradient ? 1e-2 : 6e-3);
	default:
		return steep * (gradient ? 1e-4 : 1e-5);
	}
}
