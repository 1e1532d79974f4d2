/* Pooling and bounds. */
#include "selftest.h"

#include "oracle.h"
#include "oracle_internal.h"
#include "rng.h"

enum { S = 17, C = 3, R = 4, DOCUMENTS = 4, POOLS = 3 };

/* Documents of 9, 3, 0 and 5 rows: 2, 0, 0 and 1 pools. */
static const int32_t cu_seqlens[DOCUMENTS + 1] = {0, 9, 12, 12, 17};

struct arena {
	double x[S * 2 * C], gate[S * 2 * C], bias[R * 2 * C], out[POOLS * C], grad_out[POOLS * C];
	double dx[S * 2 * C], dgate[S * 2 * C], dbias[R * 2 * C];
};

static struct ora_pool problem(struct arena *m)
{
	return (struct ora_pool){.rows = S,
				 .documents = DOCUMENTS,
				 .channels = C,
				 .ratio = R,
				 .cu_seqlens = cu_seqlens,
				 .x = m->x,
				 .gate = m->gate,
				 .bias = m->bias,
				 .out = m->out,
				 .grad_out = m->grad_out,
				 .dx = m->dx,
				 .dgate = m->dgate,
				 .dbias = m->dbias};
}

static double projected_output(void *context)
{
	struct ora_pool *p = context;
	ora_pool_forward(p);
	return ora_dot(p->out, p->grad_out, ora_pool_count(p) * p->channels);
}

static void check_gradients(struct arena *m, struct ora_pool p)
{
	const int64_t width = p.overlap ? 2 * C : C;
	ora_pool_backward(&p);
	selftest_gradient(projected_output, &p, m->x, m->dx, S * width, "x");
	if (p.gate == NULL)
		return;
	selftest_gradient(projected_output, &p, m->gate, m->dgate, S * width, "gate");
	if (p.bias != NULL)
		selftest_gradient(projected_output, &p, m->bias, m->dbias, R * width, "bias");
}

static void check_all_gradients(struct arena *m)
{
	struct ora_pool p = problem(m);
	CHECK(ora_pool_count(&p) == POOLS);
	check_gradients(m, p);
	p.bias = NULL;
	check_gradients(m, p);
	p.gate = NULL;
	check_gradients(m, p);
	CHECK(m->dx[8 * C] == 0.0 && m->dx[9 * C] == 0.0 && m->dx[16 * C] == 0.0);
	p = problem(m);
	p.overlap = 1;
	check_gradients(m, p);
	for (int64_t i = 8 * 2 * C; i < 12 * 2 * C; i++) /* no leak into the last document */
		CHECK(m->dx[i] == 0.0);
}

static void check_by_hand(void)
{
	const double third = log(3.0);
	const double x[] = {1, 5, 9, 1}, gate[] = {0, third, third, 0};
	double out[2];
	struct ora_pool p = {.rows = 4, .channels = 1, .ratio = 2, .x = x, .out = out};
	ora_pool_forward(&p);
	CHECK(ora_pool_count(&p) == 2 && out[0] == 3.0 && out[1] == 5.0);
	p.gate = gate;
	ora_pool_forward(&p);
	CHECK(fabs(out[0] - 4.0) < 1e-14 && fabs(out[1] - 7.0) < 1e-14);
	const double bias[] = {third, 0};
	p.bias = bias;
	ora_pool_forward(&p);
	CHECK(fabs(out[0] - 3.0) < 1e-14 && fabs(out[1] - 8.2) < 1e-14);
	/* Channels [0,C): 1, 5 | 9, 1; [C,2C): 2, 4 | 0, 0; gates 0 but log 3 for a 4 and a 5. */
	const double two[] = {1, 2, 5, 4, 9, 0, 1, 0};
	const double two_gates[] = {0, 0, third, third, 0, 0, 0, 0};
	p = (struct ora_pool){.rows = 4,
			      .channels = 1,
			      .ratio = 2,
			      .overlap = 1,
			      .x = two,
			      .gate = two_gates,
			      .out = out};
	ora_pool_forward(&p);
	CHECK(fabs(out[0] - (2.0 + 3.0 * 4.0) / 4.0) < 1e-14 &&
	      fabs(out[1] - (1.0 + 3.0 * 5.0) / 6.0) < 1e-14);
}

static void check_bounds(void)
{
	/* Documents of 3, 4 and 0 rows in units of 2; row 2 belongs to none. */
	const double nan = (double)NAN;
	const double x[] = {3, 4, 1, 0, 99, 99, 0, -2, 6, 8, nan, 0, 1, 1};
	const int32_t cu[] = {0, 3, 7, 7};
	double max_norm[3], centre[6], radius[3], low[6], high[6];
	struct ora_bounds b = {.rows = 7,
			       .documents = 3,
			       .channels = 2,
			       .ratio = 2,
			       .cu_seqlens = cu,
			       .x = x,
			       .max_norm = max_norm,
			       .centre = centre,
			       .radius = radius,
			       .low = low,
			       .high = high};
	ora_bounds(&b);
	CHECK(max_norm[0] == 5.0 && max_norm[1] == 10.0 && isnan(max_norm[2]));
	CHECK(centre[0] == 2.0 && centre[1] == 2.0);
	CHECK(fabs(radius[0] - sqrt(5.0)) < 1e-15 && isnan(radius[2]));
	CHECK(low[0] == 1.0 && high[0] == 3.0 && low[3] == -2.0 && high[3] == 8.0);
	CHECK(isnan(low[4]) && isnan(high[4]) && low[5] == 0.0 && high[5] == 1.0);
	const double mixed[] = {nan, 1, 1, nan, 5};
	b = (struct ora_bounds){.rows = 5,
				.channels = 1,
				.ratio = 2,
				.x = mixed,
				.max_norm = max_norm,
				.low = low,
				.high = high};
	ora_bounds(&b);
	CHECK(isnan(max_norm[0]) && isnan(low[0]) && isnan(high[0]));
	CHECK(isnan(max_norm[1]) && isnan(low[1]) && isnan(high[1]));
}

void selftest_pool(void)
{
	struct arena *m = ora_alloc(1, sizeof *m);
	struct rng rng;
	rng_seed(&rng, 21);
	rng_fill_normal(&rng, m->x, S * 2 * C, 1.0);
	rng_fill_normal(&rng, m->gate, S * 2 * C, 1.0);
	rng_fill_normal(&rng, m->bias, R * 2 * C, 1.0);
	rng_fill_normal(&rng, m->grad_out, POOLS * C, 1.0);
	check_all_gradients(m);
	check_by_hand();
	check_bounds();
	free(m);
}
