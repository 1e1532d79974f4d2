/* The hot loops of every instruction set, against plain arithmetic. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "half_score.h"
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

/* In place, against copying one by one. */
static void test_keep(void **state)
{
	float x[100], scores[100], expected[100];
	int32_t indices[100];
	struct rng rng;
	(void)state;
	rng_seed(&rng, 14);
	fill(&rng, x, 100);
	x[17] = NAN;
	x[31] = -INFINITY;
	x[40] = -0.0f;
	for (int32_t s = 0; isa_at(s); s++)
		for (int64_t n = 0; n <= 100; n++)
			for (int32_t b = 0; b < 5; b++) {
				const float bounds[] = {-INFINITY, -0.5f, 0.0f, 1.0f, INFINITY};
				int64_t want = 0;
				for (int64_t i = 0; i < 100; i++) {
					scores[i] = expected[i] = x[i];
					indices[i] = (int32_t)(3 * i);
				}
				const int64_t count =
					isa_at(s)->keep(scores, indices, n, bounds[b]);
				for (int64_t i = 0; i < n; i++) {
					if (x[i] < bounds[b])
						continue;
					assert_true(want < count);
					assert_int_equal(indices[want], 3 * i);
					assert_memory_equal(scores + want, expected + i, sizeof *x);
					want++;
				}
				assert_int_equal(count, want);
				for (int64_t i = n; i < 100; i++)
					assert_int_equal(indices[i], 3 * i);
			}
}

/* Panels of one key in each place, other keys NaN: same bits, and right. */
static void check_score(const struct omp_isa *isa, const struct omp_query *query, const float *key)
{
	enum { PANELS = 3, STRIDE = PANELS * OMP_PANEL_MAX + 3 };
	const int64_t keys = PANELS * isa->panel;
	const int64_t groups = query->heads / query->group_heads;
	float *packed = malloc((size_t)(query->dim * keys) * sizeof *packed);
	float *scores = malloc((size_t)(groups * STRIDE) * sizeof *scores);
	float *first = malloc((size_t)groups * sizeof *first);
	assert_true(packed && scores && first);
	for (int64_t place = 0; place < keys; place++) {
		for (int64_t i = 0; i < query->dim * keys; i++)
			packed[i] = NAN;
		for (int64_t d = 0; d < query->dim; d++)
			packed[(place / isa->panel * query->dim + d) * isa->panel +
			       place % isa->panel] = key[d];
		isa->score(query, packed, PANELS, scores, STRIDE);
		for (int64_t g = 0; g < groups; g++) {
			if (place == 0)
				first[g] = scores[g * STRIDE];
			assert_memory_equal(first + g, scores + g * STRIDE + place, sizeof *first);
			assert_true(isnan(scores[g * STRIDE + (place + 1) % keys]));
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

static void test_score_half(void **state)
{
	(void)state;
	for (int32_t s = 0; isa_at(s); s++)
		if (isa_at(s)->score_half)
			half_score_check(isa_at(s));
}

/* ---- products of matrices ---- */

enum kind { NT, NN, TN, KINDS };

struct sizes {
	int64_t m, n, k;
};

static double element(enum kind kind, const float *a, int64_t lda, const float *b, int64_t ldb,
		      const struct sizes *size, int64_t i, int64_t j, double *magnitude)
{
	double sum = 0.0;
	*magnitude = 0.0;
	for (int64_t p = 0; p < size->k; p++) {
		const double left = (double)(kind == TN ? a[p * lda + i] : a[i * lda + p]);
		const double right = (double)(kind == NT ? b[j * ldb + p] : b[p * ldb + j]);
		sum += left * right;
		*magnitude += fabs(left * right);
	}
	return sum;
}

static void multiply(const struct omp_isa *isa, enum kind kind, const struct sizes *size,
		     const float *a, int64_t lda, const float *b, int64_t ldb, float *c,
		     int64_t ldc, bool accumulate)
{
	(kind == NT ? isa->gemm_nt
	 : kind == NN
		 ? isa->gemm_nn
		 : isa->gemm_tn)(size->m, size->n, size->k, a, lda, b, ldb, c, ldc, accumulate);
}

#define MATRIX 7000

/* Every element right, the same bits as alone, and nothing else written. */
static void check_gemm(const struct omp_isa *isa, enum kind kind, const struct sizes *size,
		       const float *a, const float *b, float *c)
{
	const int64_t lda = (kind == TN ? size->m : size->k) + 3;
	const int64_t ldb = (kind == NT ? size->k : size->n) + 1, ldc = size->n + 2;
	const struct sizes one = {1, 1, size->k};
	for (int32_t accumulate = 0; accumulate < 2; accumulate++) {
		for (int64_t i = 0; i < MATRIX; i++)
			c[i] = 0.5f;
		multiply(isa, kind, size, a, lda, b, ldb, c, ldc, accumulate != 0);
		for (int64_t i = 0; i < MATRIX; i++) {
			const int64_t row = i / ldc, column = i % ldc;
			double magnitude;
			float alone = 0.5f;
			if (row >= size->m || column >= size->n) {
				assert_true(c[i] == 0.5f);
				continue;
			}
			const double want =
				element(kind, a, lda, b, ldb, size, row, column, &magnitude);
			assert_true(fabs((double)c[i] - (accumulate ? 0.5 : 0.0) - want) <=
				    1e-6 * (magnitude + 0.5));
			multiply(isa, kind, &one, a + (kind == TN ? row : row * lda), lda,
				 b + (kind == NT ? column * ldb : column), ldb, &alone, 1,
				 accumulate != 0);
			assert_memory_equal(&alone, c + i, sizeof alone);
		}
	}
}

static void test_gemm(void **state)
{
	static const struct sizes sizes[] = {
		{0, 5, 3},   {5, 0, 3},	  {4, 4, 0},   {1, 1, 1},   {2, 3, 5},	 {3, 16, 8},
		{7, 8, 9},   {12, 32, 4}, {13, 33, 7}, {24, 16, 5}, {25, 15, 6}, {29, 17, 31},
		{3, 64, 16}, {2, 70, 3},  {5, 49, 2},  {64, 24, 8}, {6, 40, 17}, {31, 7, 40}};
	float *a = malloc(MATRIX * sizeof *a), *b = malloc(MATRIX * sizeof *b);
	float *c = malloc(MATRIX * sizeof *c);
	struct rng rng;
	(void)state;
	assert_true(a && b && c);
	rng_seed(&rng, 9);
	fill(&rng, a, MATRIX);
	fill(&rng, b, MATRIX);
	for (int32_t s = 0; isa_at(s); s++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
			for (int kind = 0; kind < KINDS; kind++)
				check_gemm(isa_at(s), (enum kind)kind, sizes + i, a, b, c);
	free(a);
	free(b);
	free(c);
}

static void test_rows(void **state)
{
	enum { ROWS = 9, DIM = 150 };
	static float q[7 * DIM], rows[ROWS][DIM], x[7 * ROWS], o[7 * DIM];
	const float *pointers[ROWS];
	struct rng rng;
	(void)state;
	rng_seed(&rng, 10);
	fill(&rng, q, 7 * DIM);
	fill(&rng, rows[0], (int64_t)ROWS * DIM);
	for (int32_t i = 0; i < ROWS; i++)
		pointers[i] = rows[i * 2 % ROWS];
	for (int32_t s = 0; isa_at(s); s++)
		for (int64_t lanes = 1; lanes <= 7; lanes++)
			for (int64_t dim = 1; dim <= DIM; dim += dim < 20 ? 1 : 26) {
				const int64_t count = 1 + (dim + lanes) % ROWS;
				memset(x, 0, sizeof x);
				memset(o, 0, sizeof o);
				isa_at(s)->dot_rows(lanes, count, dim, q, DIM, pointers, x, ROWS);
				isa_at(s)->add_rows(lanes, count, dim, x, ROWS, pointers, o, DIM);
				for (int64_t h = 0; h < lanes; h++)
					for (int64_t i = 0; i < count; i++) {
						double want = 0.0, magnitude = 0.0;
						for (int64_t d = 0; d < dim; d++) {
							const double z = (double)q[h * DIM + d] *
									 (double)pointers[i][d];
							want += z;
							magnitude += fabs(z);
						}
						assert_true(fabs((double)x[h * ROWS + i] - want) <=
							    1e-6 * magnitude);
					}
				for (int64_t h = 0; h < 7; h++)
					for (int64_t d = 0; d < DIM; d++) {
						double want = 0.0, magnitude = 0.0;
						for (int64_t i = 0; i < count && h < lanes; i++) {
							const double z = (double)x[h * ROWS + i] *
									 (double)pointers[i][d];
							want += z;
							magnitude += fabs(z);
						}
						if (d >= dim)
							want = magnitude = 0.0;
						assert_true(fabs((double)o[h * DIM + d] - want) <=
							    1e-6 * magnitude);
					}
			}
}

/* ---- softmax ---- */

enum { KEYS = 5, LANES = 40 };

static float special_logit(struct rng *rng, int64_t i)
{
	return i % 41 == 7    ? -INFINITY
	       : i % 53 == 11 ? NAN
	       : i % 83 == 17 ? INFINITY
			      : 20.0f * (float)rng_normal(rng);
}

/* Two steps, against doubles. */
static void test_soften(void **state)
{
	static float x[2][KEYS * LANES], y[KEYS * LANES], row[KEYS];
	float largest[LANES], shrink[LANES], sums[LANES];
	const float scale = -0.37f;
	struct rng rng;
	(void)state;
	rng_seed(&rng, 11);
	for (int64_t i = 0; i < 2 * KEYS * LANES; i++)
		x[i / (KEYS * LANES)][i % (KEYS * LANES)] = special_logit(&rng, i);
	for (int32_t s = 0; isa_at(s); s++)
		for (int64_t lanes = OMP_LANES; lanes <= LANES; lanes += OMP_LANES) {
			const struct omp_soften soften = {largest, shrink, sums};
			for (int64_t i = 0; i < LANES; i++)
				largest[i] = -FLT_MAX;
			for (int32_t step = 0; step < 2; step++) {
				float before[LANES];
				memcpy(before, largest, sizeof before);
				memcpy(y, x[step], sizeof y);
				isa_at(s)->soften(y, LANES, KEYS, lanes, scale, &soften);
				for (int64_t i = 0; i < LANES; i++) {
					float top = before[i], lane_top = before[i], lane_shrink;
					double sum = 0.0;
					for (int64_t key = 0; key < KEYS; key++) {
						row[key] = x[step][key * LANES + i];
						if (!isnan(row[key]))
							top = fmaxf(top, fminf(scale * row[key],
									       FLT_MAX));
					}
					if (i >= lanes) {
						assert_true(largest[i] == before[i]);
						continue;
					}
					assert_true(largest[i] == top);
					const double shrunk = exp((double)before[i] - (double)top);
					assert_true(fabs((double)shrink[i] - shrunk) <= 1e-6);
					for (int64_t key = 0; key < KEYS; key++) {
						const float logit = scale * row[key];
						const double want = exp((double)(logit - top));
						const double got = (double)y[key * LANES + i];
						assert_true(isnan(logit) ? isnan(got)
							    : isinf(want)
								    ? isinf(got)
								    : fabs(got - want) <= 1e-6);
						sum += (double)y[key * LANES + i];
					}
					assert_true(isnan(sum) ? isnan(sums[i])
						    : isinf(sum)
							    ? isinf(sums[i])
							    : fabs((double)sums[i] - sum) <= 1e-5);
					const float row_sum = isa_at(s)->soften_row(
						row, KEYS, scale, &lane_top, &lane_shrink);
					assert_true(lane_top == top);
					assert_true(isnan(sum) ? isnan(row_sum)
						    : isinf(sum)
							    ? isinf(row_sum)
							    : fabs((double)row_sum - sum) <= 1e-5);
				}
			}
		}
}

static void test_share(void **state)
{
	static float x[KEYS * LANES], y[KEYS * LANES], p[KEYS * LANES], d[KEYS * LANES];
	float totals[LANES], means[LANES], column[KEYS];
	const float scale = 0.25f;
	struct rng rng;
	(void)state;
	rng_seed(&rng, 12);
	fill(&rng, x, KEYS * LANES);
	fill(&rng, y, KEYS * LANES);
	fill(&rng, means, LANES);
	for (int64_t i = 0; i < LANES; i++)
		totals[i] = i % 7 == 3 ? -INFINITY : (float)rng_normal(&rng);
	x[3] = y[3 + LANES] = NAN; /* where the total is -inf */
	for (int32_t s = 0; isa_at(s); s++)
		for (int64_t lanes = OMP_LANES; lanes <= LANES; lanes += OMP_LANES) {
			memcpy(p, x, sizeof p);
			memcpy(d, y, sizeof d);
			isa_at(s)->share(p, d, LANES, KEYS, lanes, scale, totals, means);
			memset(column, 0, sizeof column);
			isa_at(s)->add_lanes(p, LANES, KEYS, lanes, column);
			for (int64_t key = 0; key < KEYS; key++) {
				double sum = 0.0;
				for (int64_t i = 0; i < lanes; i++) {
					const int64_t at = key * LANES + i;
					const bool dead = totals[i] == -INFINITY;
					const double want = dead ? 0.0
								 : exp((double)(scale * x[at]) -
								       (double)totals[i]);
					const double slope =
						dead ? 0.0
						     : want * ((double)y[at] - (double)means[i]) *
								(double)scale;
					assert_true(fabs((double)p[at] - want) <=
						    1e-6 * (1.0 + want));
					assert_true(fabs((double)d[at] - slope) <=
						    2e-6 * (1.0 + fabs(slope)));
					sum += (double)p[at];
				}
				assert_true(fabs((double)column[key] - sum) <= 1e-5 * (1.0 + sum));
				for (int64_t i = lanes; i < LANES; i++)
					assert_memory_equal(p + key * LANES + i,
							    x + key * LANES + i, sizeof *p);
			}
			isa_at(s)->scale_lanes(p, LANES, KEYS, lanes, means);
			for (int64_t i = 0; i < lanes; i++)
				assert_true(p[i] == 0.0f || fabs((double)p[i]) < 1e3);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exp),	     cmocka_unit_test(test_exp_special),
		cmocka_unit_test(test_dot_and_axpy), cmocka_unit_test(test_maximum_and_has_nan),
		cmocka_unit_test(test_filter),	     cmocka_unit_test(test_score),
		cmocka_unit_test(test_gemm),	     cmocka_unit_test(test_rows),
		cmocka_unit_test(test_soften),	     cmocka_unit_test(test_share),
		cmocka_unit_test(test_score_half),   cmocka_unit_test(test_keep),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
