/* softmax_avx512.c - exponentials and the steps of a softmax with AVX-512:
 * sixteen lanes, all keys of them, then the next sixteen. */
#include <float.h>
#include <immintrin.h>
#include <math.h>

#include "isa_functions.h"

/* The first n of sixteen lanes. */
static inline __mmask16 first_lanes(int64_t n)
{
	return (__mmask16)(n >= 16 ? 0xffff : (1 << n) - 1);
}

/* As exp_one in softmax_portable.c, with fused products; scalef makes inf of what
 * is too large. */
static inline __m512 exp_sixteen(__m512 x)
{
	const __m512 least = _mm512_set1_ps(-87.3365402f);
	const __m512 clamped = _mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(least, x));
	const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(clamped, _mm512_set1_ps(1.44269504f)),
					      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	__m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62ep-1f), clamped);
	r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.0bfbe8p-15f), r);
	__m512 p = _mm512_set1_ps(0.000198910799f);
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00139337312f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00833331048f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.041666463f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.166666672f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
	const __m512 y =
		_mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r), _mm512_set1_ps(1.0f));
	const __mmask16 normal = _mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ);
	return _mm512_maskz_scalef_ps(normal, y, n);
}

static void exp_row(float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		_mm512_mask_storeu_ps(x + i, lanes,
				      exp_sixteen(_mm512_maskz_loadu_ps(lanes, x + i)));
	}
}

/* Sixteen lanes, or the last eight; they are whole groups of OMP_LANES. A maximum
 * with x first leaves a NaN in x out. */
static void soften(float *x, int64_t pitch, int64_t keys, int64_t lanes, float scale,
		   const struct omp_soften *state)
{
	const __m512 factor = _mm512_set1_ps(scale);
	for (int64_t lane = 0; lane < lanes; lane += 16, x += 16) {
		const __mmask16 some = first_lanes(lanes - lane);
		const __m512 before = _mm512_maskz_loadu_ps(some, state->largest + lane);
		__m512 largest = before, sum = _mm512_setzero_ps();
		for (int64_t key = 0; key < keys; key++) {
			const __m512 dot = _mm512_maskz_loadu_ps(some, x + key * pitch);
			largest = _mm512_max_ps(_mm512_mul_ps(factor, dot), largest);
		}
		largest = _mm512_min_ps(largest, _mm512_set1_ps(FLT_MAX));
		for (int64_t key = 0; key < keys; key++) {
			const __m512 dot = _mm512_maskz_loadu_ps(some, x + key * pitch);
			const __m512 y =
				exp_sixteen(_mm512_sub_ps(_mm512_mul_ps(factor, dot), largest));
			_mm512_mask_storeu_ps(x + key * pitch, some, y);
			sum = _mm512_add_ps(sum, y);
		}
		_mm512_mask_storeu_ps(state->largest + lane, some, largest);
		_mm512_mask_storeu_ps(state->shrink + lane, some,
				      exp_sixteen(_mm512_sub_ps(before, largest)));
		_mm512_mask_storeu_ps(state->sums + lane, some, sum);
	}
}

static float soften_row(float *x, int64_t n, float scale, float *largest, float *shrink)
{
	const __m512 factor = _mm512_set1_ps(scale), before = _mm512_set1_ps(*largest);
	__m512 top = before, sum = _mm512_setzero_ps();
	for (int64_t i = 0; i < n; i += 16) {
		const __mmask16 some = first_lanes(n - i);
		const __m512 logit = _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(some, x + i));
		top = _mm512_mask_max_ps(top, some, logit, top);
	}
	top = _mm512_set1_ps(_mm512_reduce_max_ps(top));
	top = _mm512_min_ps(top, _mm512_set1_ps(FLT_MAX));
	for (int64_t i = 0; i < n; i += 16) {
		const __mmask16 some = first_lanes(n - i);
		const __m512 logit = _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(some, x + i));
		const __m512 y = exp_sixteen(_mm512_sub_ps(logit, top));
		_mm512_mask_storeu_ps(x + i, some, y);
		sum = _mm512_mask_add_ps(sum, some, sum, y);
	}
	*largest = _mm512_cvtss_f32(top);
	*shrink = _mm512_cvtss_f32(exp_sixteen(_mm512_sub_ps(before, top)));
	return _mm512_reduce_add_ps(sum);
}

static void share(float *x, float *y, int64_t pitch, int64_t keys, int64_t lanes, float scale,
		  const float *totals, const float *means)
{
	const __m512 factor = _mm512_set1_ps(scale), none = _mm512_set1_ps(-INFINITY);
	for (int64_t lane = 0; lane < lanes; lane += 16) {
		const __mmask16 some = first_lanes(lanes - lane);
		const __m512 total = _mm512_maskz_loadu_ps(some, totals + lane);
		const __m512 mean = y ? _mm512_maskz_loadu_ps(some, means + lane) : total;
		const __mmask16 live = _mm512_cmp_ps_mask(total, none, _CMP_NEQ_UQ);
		for (int64_t key = 0; key < keys; key++) {
			const int64_t at = key * pitch + lane;
			const __m512 logit =
				_mm512_mul_ps(factor, _mm512_maskz_loadu_ps(some, x + at));
			const __m512 p =
				_mm512_maskz_mov_ps(live, exp_sixteen(_mm512_sub_ps(logit, total)));
			_mm512_mask_storeu_ps(x + at, some, p);
			if (!y)
				continue;
			const __m512 d = _mm512_sub_ps(_mm512_maskz_loadu_ps(some, y + at), mean);
			_mm512_mask_storeu_ps(
				y + at, some,
				_mm512_maskz_mul_ps(live, _mm512_mul_ps(p, d), factor));
		}
	}
}

static void scale_lanes(float *x, int64_t pitch, int64_t rows, int64_t lanes, const float *factors)
{
	for (int64_t row = 0; row < rows; row++, x += pitch)
		for (int64_t lane = 0; lane < lanes; lane += 16) {
			const __mmask16 some = first_lanes(lanes - lane);
			_mm512_mask_storeu_ps(
				x + lane, some,
				_mm512_mul_ps(_mm512_maskz_loadu_ps(some, x + lane),
					      _mm512_maskz_loadu_ps(some, factors + lane)));
		}
}

static void add_lanes(const float *x, int64_t pitch, int64_t keys, int64_t lanes, float *column)
{
	for (int64_t key = 0; key < keys; key++, x += pitch) {
		__m512 sum = _mm512_setzero_ps();
		for (int64_t lane = 0; lane < lanes; lane += 16)
			sum = _mm512_add_ps(
				sum, _mm512_maskz_loadu_ps(first_lanes(lanes - lane), x + lane));
		column[key] += _mm512_reduce_add_ps(sum);
	}
}

void omp_fill_softmax_avx512(struct omp_isa *isa)
{
	isa->exp = exp_row;
	isa->soften = soften;
	isa->soften_row = soften_row;
	isa->share = share;
	isa->scale_lanes = scale_lanes;
	isa->add_lanes = add_lanes;
}
