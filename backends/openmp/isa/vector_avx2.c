/* vector_avx2.c - products and number formats with AVX2, FMA and F16C. What does not fill a register goes through scalar code with the same
 * arithmetic. */
#include <immintrin.h>
#include <math.h>

#include "isa_functions.h"

static inline float add_lanes(__m256 x)
{
	__m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
	sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
	sum = _mm_add_ss(sum, _mm_movehdup_ps(sum));
	return _mm_cvtss_f32(sum);
}

static float dot(const float *a, const float *b, int64_t n)
{
	__m256 acc[4];
	int64_t i = 0;
	for (int32_t j = 0; j < 4; j++)
		acc[j] = _mm256_setzero_ps();
	for (; i + 32 <= n; i += 32)
		for (int32_t j = 0; j < 4; j++)
			acc[j] = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 8 * j),
						 _mm256_loadu_ps(b + i + 8 * j), acc[j]);
	for (; i + 8 <= n; i += 8)
		acc[0] = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), acc[0]);
	float sum = add_lanes(
		_mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3])));
	for (; i < n; i++)
		sum = fmaf(a[i], b[i], sum);
	return sum;
}

static void axpy(float a, const float *x, float *y, int64_t n)
{
	const __m256 factor = _mm256_set1_ps(a);
	int64_t i = 0;
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(y + i, _mm256_fmadd_ps(factor, _mm256_loadu_ps(x + i),
							_mm256_loadu_ps(y + i)));
	for (; i < n; i++)
		y[i] = fmaf(a, x[i], y[i]);
}

static inline __m256i blend(__m256i otherwise, __m256i when, __m256i condition)
{
	return _mm256_blendv_epi8(otherwise, when, condition);
}

static inline __m256i splat(int32_t value)
{
	return _mm256_set1_epi32(value);
}

static inline __m256 from_f8(__m128i bytes)
{
	const __m256i wide = _mm256_cvtepu8_epi32(bytes);
	const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(wide, splat(0x80)), 24);
	const __m256i rest = _mm256_and_si256(wide, splat(0x7f));
	const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(rest, 20), splat(120 << 23));
	const __m256i tiny = _mm256_castps_si256(
		_mm256_mul_ps(_mm256_cvtepi32_ps(rest), _mm256_set1_ps(0x1p-9f)));
	__m256i bits = blend(normal, tiny, _mm256_cmpgt_epi32(splat(8), rest));
	bits = blend(bits, splat(0x7fc00000), _mm256_cmpeq_epi32(rest, splat(0x7f)));
	return _mm256_castsi256_ps(_mm256_or_si256(bits, sign));
}

static inline __m256i round_bits(__m256i bits, int32_t drop)
{
	const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, drop), splat(1));
	return _mm256_add_epi32(_mm256_add_epi32(bits, splat((1 << (drop - 1)) - 1)), odd);
}

/* Lanes of 32 bits that hold 16-bit numbers to eight 16-bit lanes. */
static inline __m128i narrow16(__m256i wide)
{
	return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}

static inline __m128i to_bf16(__m256 x)
{
	const __m256i bits = _mm256_castps_si256(x);
	const __m256i nan = _mm256_or_si256(_mm256_srli_epi32(bits, 16), splat(0x40));
	const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
	return narrow16(blend(_mm256_srli_epi32(round_bits(bits, 16), 16), nan, unordered));
}

static inline __m128i to_f8(__m256 x)
{
	const __m256i bits = _mm256_castps_si256(x);
	const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), splat(0x80));
	const __m256i rest = _mm256_and_si256(bits, splat(0x7fffffff));
	const __m256i normal =
		_mm256_srli_epi32(_mm256_sub_epi32(round_bits(rest, 20), splat(120 << 23)), 20);
	const __m256 magic = _mm256_set1_ps(0x1p14f);
	const __m256i tiny = _mm256_sub_epi32(
		_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(rest), magic)),
		_mm256_castps_si256(magic));
	__m256i byte = blend(normal, tiny, _mm256_cmpgt_epi32(splat(0x3c800000), rest));
	byte = blend(byte, splat(0x7e), _mm256_cmpgt_epi32(rest, splat(0x43dfffff)));
	byte = blend(byte, splat(0x7f), _mm256_cmpgt_epi32(rest, splat(0x7f800000)));
	const __m128i words = narrow16(_mm256_or_si256(byte, sign));
	return _mm_packus_epi16(words, words);
}

static void to_f32(hys_dtype dtype, const void *source, float *target, int64_t n)
{
	const uint16_t *half = source;
	const uint8_t *byte = source;
	int64_t i = 0;
	for (; dtype == HYS_F16 && i + 8 <= n; i += 8)
		_mm256_storeu_ps(target + i,
				 _mm256_cvtph_ps(_mm_loadu_si128((const void *)(half + i))));
	for (; dtype == HYS_BF16 && i + 8 <= n; i += 8) {
		const __m128i words = _mm_loadu_si128((const void *)(half + i));
		const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16);
		_mm256_storeu_ps(target + i, _mm256_castsi256_ps(bits));
	}
	for (; dtype == HYS_F8E4M3 && i + 8 <= n; i += 8)
		_mm256_storeu_ps(target + i, from_f8(_mm_loadl_epi64((const void *)(byte + i))));
	omp_to_f32_portable(dtype, byte + i * (int64_t)hys_dtype_size(dtype), target + i, n - i);
}

static void from_f32(hys_dtype dtype, const float *source, void *target, int64_t n)
{
	uint16_t *half = target;
	uint8_t *byte = target;
	int64_t i = 0;
	for (; dtype == HYS_F16 && i + 8 <= n; i += 8)
		_mm_storeu_si128((void *)(half + i),
				 _mm256_cvtps_ph(_mm256_loadu_ps(source + i),
						 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
	for (; dtype == HYS_BF16 && i + 8 <= n; i += 8)
		_mm_storeu_si128((void *)(half + i), to_bf16(_mm256_loadu_ps(source + i)));
	for (; dtype == HYS_F8E4M3 && i + 8 <= n; i += 8)
		_mm_storel_epi64((void *)(byte + i), to_f8(_mm256_loadu_ps(source + i)));
	omp_from_f32_portable(dtype, source + i, byte + i * (int64_t)hys_dtype_size(dtype), n - i);
}

void omp_fill_vector_avx2(struct omp_isa *isa)
{
	isa->dot = dot;
	isa->axpy = axpy;
	isa->to_f32 = to_f32;
	isa->from_f32 = from_f32;
}
