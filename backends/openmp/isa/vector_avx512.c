/* vector_avx512.c - products and number formats with AVX-512. What does not fill
 * a register is masked. */
#include <immintrin.h>

#include "isa_functions.h"

/* The first n of sixteen lanes. */
static inline __mmask16 first_lanes(int64_t n)
{
	return (__mmask16)(n >= 16 ? 0xffff : (1 << n) - 1);
}

static float dot(const float *a, const float *b, int64_t n)
{
	__m512 acc[4];
	int64_t i = 0;
	for (int32_t j = 0; j < 4; j++)
		acc[j] = _mm512_setzero_ps();
	for (; i + 64 <= n; i += 64)
		for (int32_t j = 0; j < 4; j++)
			acc[j] = _mm512_fmadd_ps(_mm512_loadu_ps(a + i + 16 * j),
						 _mm512_loadu_ps(b + i + 16 * j), acc[j]);
	for (; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		acc[0] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(lanes, a + i),
					 _mm512_maskz_loadu_ps(lanes, b + i), acc[0]);
	}
	return _mm512_reduce_add_ps(
		_mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3])));
}

static void axpy(float a, const float *x, float *y, int64_t n)
{
	const __m512 factor = _mm512_set1_ps(a);
	int64_t i = 0;
	for (; i + 16 <= n; i += 16)
		_mm512_storeu_ps(y + i, _mm512_fmadd_ps(factor, _mm512_loadu_ps(x + i),
							_mm512_loadu_ps(y + i)));
	if (i < n) {
		const __mmask16 lanes = first_lanes(n - i);
		_mm512_mask_storeu_ps(y + i, lanes,
				      _mm512_fmadd_ps(factor, _mm512_maskz_loadu_ps(lanes, x + i),
						      _mm512_maskz_loadu_ps(lanes, y + i)));
	}
}

static inline __m512i splat(int32_t value)
{
	return _mm512_set1_epi32(value);
}

static inline __m512 from_bf16(__m256i words)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

static inline __m512 from_f8(__m128i bytes)
{
	const __m512i wide = _mm512_cvtepu8_epi32(bytes);
	const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(wide, splat(0x80)), 24);
	const __m512i rest = _mm512_and_si512(wide, splat(0x7f));
	const __m512i tiny = _mm512_castps_si512(
		_mm512_mul_ps(_mm512_cvtepi32_ps(rest), _mm512_set1_ps(0x1p-9f)));
	__m512i bits = _mm512_add_epi32(_mm512_slli_epi32(rest, 20), splat(120 << 23));
	bits = _mm512_mask_mov_epi32(bits, _mm512_cmplt_epi32_mask(rest, splat(8)), tiny);
	bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(rest, splat(0x7f)),
				     splat(0x7fc00000));
	return _mm512_castsi512_ps(_mm512_or_si512(bits, sign));
}

static inline __m512i round_bits(__m512i bits, uint32_t drop)
{
	const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, drop), splat(1));
	return _mm512_add_epi32(_mm512_add_epi32(bits, splat((1 << (drop - 1)) - 1)), odd);
}

static inline __m256i to_bf16(__m512 x)
{
	const __m512i bits = _mm512_castps_si512(x);
	const __m512i nan = _mm512_or_si512(_mm512_srli_epi32(bits, 16), splat(0x40));
	const __m512i near = _mm512_srli_epi32(round_bits(bits, 16), 16);
	return _mm512_cvtepi32_epi16(
		_mm512_mask_mov_epi32(near, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan));
}

static inline __m128i to_f8(__m512 x)
{
	const __m512i bits = _mm512_castps_si512(x);
	const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), splat(0x80));
	const __m512i rest = _mm512_and_si512(bits, splat(0x7fffffff));
	const __m512 magic = _mm512_set1_ps(0x1p14f);
	const __m512i tiny = _mm512_sub_epi32(
		_mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(rest), magic)),
		_mm512_castps_si512(magic));
	__m512i byte =
		_mm512_srli_epi32(_mm512_sub_epi32(round_bits(rest, 20), splat(120 << 23)), 20);
	byte = _mm512_mask_mov_epi32(byte, _mm512_cmplt_epi32_mask(rest, splat(0x3c800000)), tiny);
	byte = _mm512_mask_mov_epi32(byte, _mm512_cmpgt_epi32_mask(rest, splat(0x43dfffff)),
				     splat(0x7e));
	byte = _mm512_mask_mov_epi32(byte, _mm512_cmpgt_epi32_mask(rest, splat(0x7f800000)),
				     splat(0x7f));
	return _mm512_cvtepi32_epi8(_mm512_or_si512(byte, sign));
}

static void to_f32(hys_dtype dtype, const void *source, float *target, int64_t n)
{
	const uint16_t *half = source;
	const uint8_t *byte = source;
	int64_t i = 0;
	for (; dtype == HYS_F16 && i + 16 <= n; i += 16)
		_mm512_storeu_ps(target + i,
				 _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(half + i))));
	for (; dtype == HYS_BF16 && i + 16 <= n; i += 16)
		_mm512_storeu_ps(target + i,
				 from_bf16(_mm256_loadu_si256((const void *)(half + i))));
	for (; dtype == HYS_F8E4M3 && i + 16 <= n; i += 16)
		_mm512_storeu_ps(target + i, from_f8(_mm_loadu_si128((const void *)(byte + i))));
	omp_to_f32_portable(dtype, byte + i * (int64_t)hys_dtype_size(dtype), target + i, n - i);
}

static void from_f32(hys_dtype dtype, const float *source, void *target, int64_t n)
{
	uint16_t *half = target;
	uint8_t *byte = target;
	int64_t i = 0;
	for (; dtype == HYS_F16 && i + 16 <= n; i += 16)
		_mm256_storeu_si256((void *)(half + i),
				    _mm512_cvtps_ph(_mm512_loadu_ps(source + i),
						    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
	for (; dtype == HYS_BF16 && i + 16 <= n; i += 16)
		_mm256_storeu_si256((void *)(half + i), to_bf16(_mm512_loadu_ps(source + i)));
	for (; dtype == HYS_F8E4M3 && i + 16 <= n; i += 16)
		_mm_storeu_si128((void *)(byte + i), to_f8(_mm512_loadu_ps(source + i)));
	omp_from_f32_portable(dtype, source + i, byte + i * (int64_t)hys_dtype_size(dtype), n - i);
}

void omp_fill_vector_avx512(struct omp_isa *isa)
{
	isa->dot = dot;
	isa->axpy = axpy;
	isa->to_f32 = to_f32;
	isa->from_f32 = from_f32;
}
