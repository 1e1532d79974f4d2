/* softmax_avx2.c - exponentials and the steps of a softmax with AVX2 and FMA:
 * eight lanes, all keys of them, then the next eight. */
#include <float.h>
#include <immintrin.h>
#include <math.h>

#include "isa_functions.h"

/* As exp_one in softmax_portable.c, with fused products. */
static inline __m256 exp_eight(__m256 x)
{
	const __m256 least = _mm256_set1_ps(-87.3365402f);
	const __m256 clamped = _mm256_min_ps(_mm256_max_ps(x, least), _mm256_set1_ps(89.0f));
	const __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(1.44269504f)),
					 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	__m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62ep-1f), clamped);
	r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.0bfbe8p-15f), r);
	__m256 p = _mm256_set1_ps(0.000198910799f);
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.00139337312f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.00833331048f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.041666463f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.166666672f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
	__m256 y = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, r);
	y = _mm256_add_ps(y, _mm256_set1_ps(1.0f));
	const __m256i whole = _mm256_cvtps_epi32(n);
	const __m256i half = _mm256_srai_epi32(whole, 1);
	const __m256i bias = _mm256_set1_epi32(127);
	const __m256i low = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
	const __m256i high =
		_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
	y = _mm256_mul_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(low)), _mm256_castsi256_ps(high));
	y = _mm256_andnot_ps(_mm256_cmp_ps(x, least, _CMP_LT_OQ), y);
	return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* The same for x <= 0 (inf stays inf, though), with 2^n from the bits of the sum that
 * rounds. */
static inline __m256 exp_below(__m256 x)
{
	const __m256 least = _mm256_set1_ps(-87.3365402f);
	const __m256 magic = _mm256_set1_ps(12582912.0f); /* 1.5 * 2^23 */
	const __m256 clamped = _mm256_min_ps(_mm256_set1_ps(89.0f), _mm256_max_ps(least, x));
	const __m256 rounded = _mm256_fmadd_ps(clamped, _mm256_set1_ps(1.44269504f), magic);
	const __m256 n = _mm256_sub_ps(rounded, magic);
	__m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62ep-1f), clamped);
	r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.0bfbe8p-15f), r);
	__m256 p = _mm256_set1_ps(0.000198910799f);
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.00139337312f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.00833331048f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.041666463f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.166666672f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
	const __m256 y =
		_mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(p, r), r, r), _mm256_set1_ps(1.0f));
	const __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(rounded), 23),
					       _mm256_set1_epi32(127 << 23));
	return _mm256_andnot_ps(_mm256_cmp_ps(x, least, _CMP_LT_OQ),
				_mm256_mul_ps(y, _mm256_castsi256_ps(power)));
}

/* Lanes i < count for masked loads and stores. */
static inline __m256i first_lanes(int64_t count)
{
	const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)count), lane);
}

static void exp_row(float *x, int64_t n)
{
	int64_t i = 0;
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(x + i, exp_eight(_mm256_loadu_ps(x + i)));
	if (i < n) {
		const __m256i lanes = first_lanes(n - i);
		_mm256_maskstore_ps(x + i, lanes, exp_eight(_mm256_maskload_ps(x + i, lanes)));
	}
}

/* A maximum with x first leaves a NaN in x out. */
static inline __m256 find_largest(const float *x, int64_t pitch, int64_t keys, __m256 scale,
				  __m256 largest)
{
	for (int64_t key = 0; key < keys; key++)
		largest = _mm256_max_ps(_mm256_mul_ps(scale, _mm256_loadu_ps(x + key * pitch)),
					largest);
	return _mm256_min_ps(largest, _mm256_set1_ps(FLT_MAX));
}

static void soften(float *x, int64_t pitch, int64_t keys, int64_t lanes, float scale,
		   const struct omp_soften *state)
{
	const __m256 factor = _mm256_set1_ps(scale);
	for (int64_t lane = 0; lane < lanes; lane += 8, x += 8) {
		const __m256 before = _mm256_loadu_ps(state->largest + lane);
		const __m256 largest = find_largest(x, pitch, keys, factor, before);
		__m256 sum = _mm256_setzero_ps();
		for (int64_t key = 0; key < keys; key++) {
			const __m256 logit =
				_mm256_mul_ps(factor, _mm256_loadu_ps(x + key * pitch));
			const __m256 y = exp_below(_mm256_sub_ps(logit, largest));
			_mm256_storeu_ps(x + key * pitch, y);
			sum = _mm256_add_ps(sum, y);
		}
		_mm256_storeu_ps(state->largest + lane, largest);
		_mm256_storeu_ps(state->shrink + lane, exp_below(_mm256_sub_ps(before, largest)));
		_mm256_storeu_ps(state->sums + lane, sum);
	}
}

static inline float fold(__m256 x)
{
	__m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
	sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
	sum = _mm_add_ss(sum, _mm_movehdup_ps(sum));
	return _mm_cvtss_f32(sum);
}

static float soften_row(float *x, int64_t n, float scale, float *largest, float *shrink)
{
	const __m256 factor = _mm256_set1_ps(scale), before = _mm256_set1_ps(*largest);
	const int64_t whole = n / 8 * 8, rest = n - whole;
	__m256 top = before, sum = _mm256_setzero_ps();
	for (int64_t i = 0; i < whole; i += 8)
		top = _mm256_max_ps(_mm256_mul_ps(factor, _mm256_loadu_ps(x + i)), top);
	if (rest > 0)
		top = _mm256_max_ps(
			_mm256_blendv_ps(
				before,
				_mm256_mul_ps(factor,
					      _mm256_maskload_ps(x + whole, first_lanes(rest))),
				_mm256_castsi256_ps(first_lanes(rest))),
			top);
	top = _mm256_max_ps(top, _mm256_permute2f128_ps(top, top, 1));
	top = _mm256_max_ps(top, _mm256_permute_ps(top, 0x4e));
	top = _mm256_max_ps(top, _mm256_permute_ps(top, 0xb1));
	top = _mm256_min_ps(top, _mm256_set1_ps(FLT_MAX));
	for (int64_t i = 0; i < whole; i += 8) {
		const __m256 logit = _mm256_mul_ps(factor, _mm256_loadu_ps(x + i));
		const __m256 y = exp_below(_mm256_sub_ps(logit, top));
		_mm256_storeu_ps(x + i, y);
		sum = _mm256_add_ps(sum, y);
	}
	if (rest > 0) {
		const __m256i lanes = first_lanes(rest);
		const __m256 logit = _mm256_mul_ps(factor, _mm256_maskload_ps(x + whole, lanes));
		const __m256 y = exp_below(_mm256_sub_ps(logit, top));
		_mm256_maskstore_ps(x + whole, lanes, y);
		sum = _mm256_add_ps(sum, _mm256_and_ps(y, _mm256_castsi256_ps(lanes)));
	}
	*largest = _mm256_cvtss_f32(top);
	*shrink = _mm256_cvtss_f32(exp_below(_mm256_sub_ps(before, top)));
	return fold(sum);
}

static void share(float *x, float *y, int64_t pitch, int64_t keys, int64_t lanes, float scale,
		  const float *totals, const float *means)
{
	const __m256 factor = _mm256_set1_ps(scale), none = _mm256_set1_ps(-INFINITY);
	for (int64_t lane = 0; lane < lanes; lane += 8) {
		const __m256 total = _mm256_loadu_ps(totals + lane);
		const __m256 mean = y ? _mm256_loadu_ps(means + lane) : total;
		const __m256 dead = _mm256_cmp_ps(total, none, _CMP_EQ_OQ);
		for (int64_t key = 0; key < keys; key++) {
			const int64_t at = key * pitch + lane;
			const __m256 logit = _mm256_mul_ps(factor, _mm256_loadu_ps(x + at));
			const __m256 p =
				_mm256_andnot_ps(dead, exp_eight(_mm256_sub_ps(logit, total)));
			_mm256_storeu_ps(x + at, p);
			if (!y)
				continue;
			const __m256 d = _mm256_mul_ps(
				_mm256_mul_ps(p, _mm256_sub_ps(_mm256_loadu_ps(y + at), mean)),
				factor);
			_mm256_storeu_ps(y + at, _mm256_andnot_ps(dead, d));
		}
	}
}

static void scale_lanes(float *x, int64_t pitch, int64_t rows, int64_t lanes, const float *factors)
{
	for (int64_t row = 0; row < rows; row++, x += pitch)
		for (int64_t lane = 0; lane < lanes; lane += 8)
			_mm256_storeu_ps(x + lane, _mm256_mul_ps(_mm256_loadu_ps(x + lane),
								 _mm256_loadu_ps(factors + lane)));
}

static void add_lanes(const float *x, int64_t pitch, int64_t keys, int64_t lanes, float *column)
{
	for (int64_t key = 0; key < keys; key++, x += pitch) {
		__m256 sum = _mm256_setzero_ps();
		for (int64_t lane = 0; lane < lanes; lane += 8)
			sum = _mm256_add_ps(sum, _mm256_loadu_ps(x + lane));
		column[key] += fold(sum);
	}
}

void omp_fill_softmax_avx2(struct omp_isa *isa)
{
	isa->exp = exp_row;
	isa->soften = soften;
	isa->soften_row = soften_row;
	isa->share = share;
	isa->scale_lanes = scale_lanes;
	isa->add_lanes = add_lanes;
}
