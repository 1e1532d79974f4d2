/* The hot loops of every instruction set, against plain arithmetic. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "isas.h"
#include "rng.h"

static void fill(struct rng *rng, float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)rng_normal(rng);
}

/* Numbers that exp is tried on: a fine walk and what is special. */
static void test_exp(void **state)
{
	enum { COUNT = 40003 };
	float *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
	(void)state;
	assert_true(x && y);
	for (int32_t i = 0; i < COUNT; i++)
		x[i] = -90.0f + 180.0f * (float)i / COUNT;
	for (int32_t s = 0; isa_at(s); s++) {
		memcpy(y, x, COUNT * sizeof *y);
		isa_at(s)->exp(y, COUNT);
		for (int32_t i = 0; i < COUNT; i++) {
			const double want = exp((double)x[i]);
			if (want > (double)FLT_MAX)
				assert_true(isinf(y[i]));
			else if (want < (double)FLT_MIN)
				assert_true(y[i] == 0.0f || fabs((double)y[i] / want - 1.0) < 1e-6);
			else
				assert_true(fabs((double)y[i] / want - 1.0) <= 2.5 * 0x1p-24 * 2);
		}
	}
	free(x);
	free(y);
}

static void test_exp_special(void **state)
{
	(void)state;
	for (int32_t s = 0; isa_at(s); s++)
		for (int64_t n = 7; n <= 17; n++) {
			float x[18] = {0.0f,  -0.0f, -INFINITY, INFINITY, NAN,	     -1e30f,
				       1e30f, 1.0f,  -200.0f,	0.0f,	  -INFINITY, NAN,
				       0.0f,  0.0f,  0.0f,	0.0f,	  0.0f,	     7.0f};
			isa_at(s)->exp(x, n);
			assert_true(x[0] == 1.0f && x[1] == 1.0f);
			assert_true(x[2] == 0.0f && isinf(x[3]) && isnan(x[4]));
			assert_true(x[5] == 0.0f && isinf(x[6]));
			assert_true(x[17] == 7.0f);
		}
}

static void test_dot_and_axpy(void **state)
{
	float a[150], b[150], y[150];
	struct rng rng;
	(void)state;
	rng_seed(&rng, 6);
	fill(&rng, a, 150);
	fill(&rng, b, 150);
	for (int32_t s = 0; isa_at(s); s++)
		for (int64_t n = 0; n < 150; n++) {
			double want = 0.0, magnitude = 0.0;
			for (int64_t i = 0; i < n; i++) {
				want += (double)a[i] * (double)b[i];
				magnitude += fabs((double)a[i] * (double)b[i]);
			}
			assert_true(fabs((double)isa_at(s)->dot(a, b, n) - want) <=
				    1e-6 * magnitude);
			memcpy(y, b, sizeof y);
			isa_at(s)->axpy(1.5f, a, y, n);
			for (int64_t i = 0; i < n; i++)
				assert_true(fabs((double)y[i] -
						 (1.5 * (double)a[i] + (double)b[i])) < 1e-6);
			for (int64_t i = n; i < 150; i++)
				assert_true(y[i] == b[i]);
		}
}

static void test_maximum_and_has_nan(void **state)
{
	float x[40];
	(void)state;
	for (int32_t s = 0; isa_at(s); s++)
		for (int64_t n = 0; n <= 40; n++)
			for (int64_t at = 0; at < n; at++) {
				for (int64_t i = 0; i < 40; i++)
					x[i] = -(float)(i + 2);
				x[at] = -1.0f;
				assert_true(isa_at(s)->maximum(x, n) == -1.0f);
				assert_false(isa_at(s)->has_nan(x, n));
				x[at] = NAN;
				assert_true(isa_at(s)->has_nan(x, n));
				assert_false(isa_at(s)->has_nan(x, at));
				if (n > 1)
					assert_true(isa_at(s)->maximum(x, n) ==
						    (at == 0 ? -3.0f : -2.0f));
				else
					assert_true(isnan(isa_at(s)->maximum(x, n)));
			}
}

static void test_filter(void **state)
{
	float x[100], scores[100 + OMP_FILTER_SLACK];
	int32_t indices[100 + OMP_FILTER_SLACK];
	struct rng rng;
	(void)state;
	rng_seed(&rng, 7);
	fill(&rng, x, 100);
	x[17] = NAN;
	x[31] = -INFINITY;
	for (int32_t s = 0; isa_at(s); s++)
		for (int64_t n = 0; n <= 100; n++)
			for (int32_t b = 0; b < 5; b++) {
				const float bounds[] = {NAN, -INFINITY, -0.5f, 1.0f, INFINITY};
				const int64_t count =
					isa_at(s)->filter(x, n, bounds[b], 1000, scores, indices);
				int64_t want = 0;
				for (int64_t i = 0; i < n; i++) {
					if (x[i] < bounds[b])
						continue;
					assert_true(want < count);
					assert_int_equal(indices[want], 1000 + i);
					assert_memory_equal(scores + want, x + i, sizeof *x);
					want++;
				}
				assert_int_equal(count, want);
			}
}

/* Panels of one key in each place, other keys NaN: same bits, and right. */
static void check_score(const struct omp_isa *isa, const struct omp_query *query, const float *key)
{
	enum { STRIDE = OMP_PANEL_MAX + 3 };
	const int64_t groups = query->heads / query->group_heads;
	float *packed = malloc((size_t)(query->dim * isa->panel) * sizeof *packed);
	float *scores = malloc((size_t)(groups * STRIDE) * sizeof *scores);
	float *first = malloc((size_t)groups * sizeof *first);
	assert_true(packed && scores && first);
	for (int64_t place = 0; place < isa->panel; place++) {
		for (int64_t d = 0; d < query->dim; d++)
			for (int64_t i = 0; i < isa->panel; i++)
				packed[d * isa->panel + i] = i == place ? key[d] : NAN;
		isa->score(query, packed, scores, STRIDE);
		for (int64_t g = 0; g < groups; g++) {
			if (place == 0)
				first[g] = scores[g * STRIDE];
			assert_memory_equal(first + g, scores + g * STRIDE + place, sizeof *first);
			assert_true(isa->panel == 1 ||
				    isnan(scores[g * STRIDE + (place + 1) % isa->panel]));
		}
	}
	for (int64_t g = 0; g < groups; g++) {
		double want = 0.0, magnitude = 0.0;
		for (int64_t j = g * query->group_heads; j < (g + 1) * query->group_heads; j++) {
			double z = 0.0;
			for (int64_t d = 0; d < query->dim; d++) {
				z += (double)query->q[j * query->dim + d] * (double)key[d];
				magnitude +=
					fabs((double)query->w[j] *
					     (double)query->q[j * query->dim + d] * (double)key[d]);
			}
			z *= (double)query->scale;
			want += (double)query->w[j] * (query->relu && z < 0.0 ? 0.0 : z);
		}
		assert_true(fabs((double)first[g] - want) <= 1e-6 * magnitude);
	}
	free(packed);
	free(scores);
	free(first);
}

static void test_score(void **state)
{
	static const int64_t shapes[][3] = {/* heads, heads of a group, dim */
					    {1, 1, 1},	 {2, 1, 3},   {3, 3, 8},  {4, 4, 16},
					    {5, 5, 7},	 {6, 2, 9},   {7, 7, 33}, {8, 4, 5},
					    {12, 3, 11}, {12, 6, 24}, {9, 1, 13}, {64, 64, 128}};
	float *q = malloc(64 * 128 * sizeof *q);
	float w[64], key[128];
	struct rng rng;
	(void)state;
	assert_non_null(q);
	rng_seed(&rng, 8);
	fill(&rng, q, 64 * 128);
	fill(&rng, w, 64);
	fill(&rng, key, 128);
	for (int32_t s = 0; isa_at(s); s++)
		for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
			for (int32_t relu = 0; relu < 2; relu++) {
				const struct omp_query query = {.q = q,
								.w = w,
								.heads = shapes[i][0],
								.group_heads = shapes[i][1],
								.dim = shapes[i][2],
								.scale = 0.5f,
								.relu = relu != 0};
				check_score(isa_at(s), &query, key);
			}
	free(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exp),	     cmocka_unit_test(test_exp_special),
		cmocka_unit_test(test_dot_and_axpy), cmocka_unit_test(test_maximum_and_has_nan),
		cmocka_unit_test(test_filter),	     cmocka_unit_test(test_score),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
