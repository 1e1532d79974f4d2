/* softmax_portable.c - exponentials and the steps of a softmax in plain C. Eight
 * lanes at a time, which compilers turn into whatever vectors there are. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "isa_functions.h"

static inline float float_of(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

/* exp(x) = 2^n exp(r), |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 P(r) with P fitted
 * at the Chebyshev nodes (error below 1e-9). 2^n in two factors, since n may be
 * 128. */
static inline float exp_one(float x)
{
	const float least = -87.3365402f; /* ln FLT_MIN, rounded up */
	const float most = 89.0f;	  /* beyond ln FLT_MAX */
	const float magic = 12582912.0f;  /* 1.5 * 2^23: adding it rounds */
	float clamped = x > least ? x : least;
	clamped = clamped < most ? clamped : most;
	const float n = (clamped * 1.44269504f + magic) - magic;
	/* ln 2 = 0x1.62ep-1 + rest: n times the first part is exact. */
	const float r = (clamped - n * 0x1.62ep-1f) - n * 0x1.0bfbe8p-15f;
	float p = 0.000198910799f;
	p = p * r + 0.00139337312f;
	p = p * r + 0.00833331048f;
	p = p * r + 0.041666463f;
	p = p * r + 0.166666672f;
	p = p * r + 0.5f;
	const float y = (p * r * r + r) + 1.0f;
	const int32_t half = (int32_t)n >> 1;
	const float low = float_of((uint32_t)(half + 127) << 23);
	const float high = float_of((uint32_t)((int32_t)n - half + 127) << 23);
	const float result = x < least ? 0.0f : y * low * high;
	return x != x ? x : result;
}

static void exp_row(float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = exp_one(x[i]);
}

static inline float larger(float a, float b)
{
	return a > b ? a : b;
}

/* largest[lane] grows to the largest logit, at most FLT_MAX. */
static void find_largest(const float *x, int64_t pitch, int64_t keys, float scale, float *largest)
{
	float top[OMP_LANES];
	for (int32_t i = 0; i < OMP_LANES; i++)
		top[i] = largest[i];
	for (int64_t key = 0; key < keys; key++)
		for (int32_t i = 0; i < OMP_LANES; i++)
			top[i] = larger(scale * x[key * pitch + i], top[i]);
	for (int32_t i = 0; i < OMP_LANES; i++)
		largest[i] = top[i] < FLT_MAX ? top[i] : FLT_MAX;
}

static void soften_lanes(float *x, int64_t pitch, int64_t keys, float scale, float *largest,
			 float *shrink, float *sums)
{
	float sum[OMP_LANES] = {0}, before[OMP_LANES];
	memcpy(before, largest, sizeof before);
	find_largest(x, pitch, keys, scale, largest);
	for (int64_t key = 0; key < keys; key++)
		for (int32_t i = 0; i < OMP_LANES; i++) {
			float *at = x + key * pitch + i;
			*at = exp_one(scale * *at - largest[i]);
			sum[i] += *at;
		}
	for (int32_t i = 0; i < OMP_LANES; i++)
		shrink[i] = exp_one(before[i] - largest[i]);
	memcpy(sums, sum, sizeof sum);
}

static void soften(float *x, int64_t pitch, int64_t keys, int64_t lanes, float scale,
		   const struct omp_soften *state)
{
	for (int64_t lane = 0; lane < lanes; lane += OMP_LANES)
		soften_lanes(x + lane, pitch, keys, scale, state->largest + lane,
			     state->shrink + lane, state->sums + lane);
}

static float soften_row(float *x, int64_t n, float scale, float *largest, float *shrink)
{
	float sum[OMP_LANES] = {0}, before = *largest, top = before;
	for (int64_t i = 0; i < n; i++)
		top = larger(scale * x[i], top);
	top = top < FLT_MAX ? top : FLT_MAX;
	for (int64_t i = 0; i < n; i++)
		x[i] = exp_one(scale * x[i] - top);
	for (int64_t i = 0; i < n; i++)
		sum[i % OMP_LANES] += x[i];
	*largest = top;
	*shrink = exp_one(before - top);
	return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static void share(float *x, float *y, int64_t pitch, int64_t keys, int64_t lanes, float scale,
		  const float *totals, const float *means)
{
	for (int64_t key = 0; key < keys; key++, x += pitch) {
		for (int64_t i = 0; i < lanes; i++)
			x[i] = totals[i] == -INFINITY ? 0.0f : exp_one(scale * x[i] - totals[i]);
		if (!y)
			continue;
		for (int64_t i = 0; i < lanes; i++)
			y[i] = totals[i] == -INFINITY ? 0.0f : x[i] * (y[i] - means[i]) * scale;
		y += pitch;
	}
}

static void scale_lanes(float *x, int64_t pitch, int64_t rows, int64_t lanes, const float *factors)
{
	for (int64_t row = 0; row < rows; row++, x += pitch)
		for (int64_t i = 0; i < lanes; i++)
			x[i] *= factors[i];
}

static void add_lanes(const float *x, int64_t pitch, int64_t keys, int64_t lanes, float *column)
{
	for (int64_t key = 0; key < keys; key++, x += pitch) {
		float sum[OMP_LANES] = {0};
		for (int64_t lane = 0; lane < lanes; lane += OMP_LANES)
			for (int32_t i = 0; i < OMP_LANES; i++)
				sum[i] += x[lane + i];
		column[key] += ((sum[0] + sum[1]) + (sum[2] + sum[3])) +
			       ((sum[4] + sum[5]) + (sum[6] + sum[7]));
	}
}

void omp_fill_softmax_portable(struct omp_isa *isa)
{
	isa->exp = exp_row;
	isa->soften = soften;
	isa->soften_row = soften_row;
	isa->share = share;
	isa->scale_lanes = scale_lanes;
	isa->add_lanes = add_lanes;
}
