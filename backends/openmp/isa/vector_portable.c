/* vector_portable.c - products and number formats in plain C. */
#include <string.h>

#include "isa_functions.h"

#define LANES 8

static float dot(const float *a, const float *b, int64_t n)
{
	float lane[LANES] = {0};
	float sum = 0.0f;
	int64_t i = 0;
	for (; i + LANES <= n; i += LANES)
		for (int32_t j = 0; j < LANES; j++)
			lane[j] += a[i + j] * b[i + j];
	for (int32_t j = 0; j < LANES; j++)
		sum += lane[j];
	for (; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

static void axpy(float a, const float *x, float *y, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] += a * x[i];
}

static inline uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

static inline float float_of(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

/* Subnormals of the small formats are made by integer conversions, so that a
 * caller's flush-to-zero mode does not change them. */
static inline float from_f16(uint16_t h)
{
	const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	const uint32_t rest = h & 0x7fff;
	const uint32_t normal = (rest << 13) + (112u << 23);
	const uint32_t special = (rest << 13) | 0x7f800000u | (rest > 0x7c00 ? 0x400000u : 0);
	const uint32_t tiny = bits_of((float)(int32_t)rest * 0x1p-24f);
	const uint32_t bits = rest >= 0x7c00 ? special : rest < 0x400 ? tiny : normal;
	return float_of(bits | sign);
}

static inline float from_f8(uint8_t h)
{
	const uint32_t sign = (uint32_t)(h & 0x80) << 24;
	const uint32_t rest = h & 0x7f;
	const uint32_t normal = (rest << 20) + (120u << 23);
	const uint32_t tiny = bits_of((float)(int32_t)rest * 0x1p-9f);
	const uint32_t bits = rest == 0x7f ? 0x7fc00000u : rest < 8 ? tiny : normal;
	return float_of(bits | sign);
}

/* Rounds to nearest even at bit `drop` of the bits of a normal number. */
static inline uint32_t round_bits(uint32_t bits, int32_t drop)
{
	return bits + ((1u << (drop - 1)) - 1) + (bits >> drop & 1);
}

static inline uint16_t to_f16(float x)
{
	const uint32_t bits = bits_of(x);
	const uint32_t sign = bits >> 16 & 0x8000;
	const uint32_t rest = bits & 0x7fffffff;
	const uint32_t normal = (round_bits(rest, 13) - (112u << 23)) >> 13;
	/* Adding 0.5 leaves multiples of 2^-24 in the low bits. */
	const uint32_t tiny = bits_of(float_of(rest) + 0.5f) - bits_of(0.5f);
	const uint32_t nan = 0x7e00 | (rest >> 13 & 0x3ff);
	const uint32_t half = rest > 0x7f800000u    ? nan
			      : rest >= 0x477ff000u ? 0x7c00
			      : rest < 0x38800000u  ? tiny
						    : normal;
	return (uint16_t)(half | sign);
}

static inline uint16_t to_bf16(float x)
{
	const uint32_t bits = bits_of(x);
	const uint32_t nan = bits >> 16 | 0x40;
	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000u ? nan : round_bits(bits, 16) >> 16);
}

static inline uint8_t to_f8(float x)
{
	const uint32_t bits = bits_of(x);
	const uint32_t sign = bits >> 24 & 0x80;
	const uint32_t rest = bits & 0x7fffffff;
	const uint32_t normal = (round_bits(rest, 20) - (120u << 23)) >> 20;
	/* Adding 2^14 leaves multiples of 2^-9 in the low bits. */
	const uint32_t tiny = bits_of(float_of(rest) + 0x1p14f) - bits_of(0x1p14f);
	const uint32_t byte = rest > 0x7f800000u    ? 0x7f
			      : rest >= 0x43e00000u ? 0x7e
			      : rest < 0x3c800000u  ? tiny
						    : normal;
	return (uint8_t)(byte | sign);
}

void omp_to_f32_portable(hys_dtype dtype, const void *source, float *target, int64_t n)
{
	const uint16_t *half = source;
	const uint8_t *byte = source;
	if (dtype == HYS_F32 && n > 0)
		memcpy(target, source, (size_t)n * sizeof *target);
	for (int64_t i = 0; dtype == HYS_F16 && i < n; i++)
		target[i] = from_f16(half[i]);
	for (int64_t i = 0; dtype == HYS_BF16 && i < n; i++)
		target[i] = float_of((uint32_t)half[i] << 16);
	for (int64_t i = 0; dtype == HYS_F8E4M3 && i < n; i++)
		target[i] = from_f8(byte[i]);
}

void omp_from_f32_portable(hys_dtype dtype, const float *source, void *target, int64_t n)
{
	uint16_t *half = target;
	uint8_t *byte = target;
	if (dtype == HYS_F32 && n > 0)
		memcpy(target, source, (size_t)n * sizeof *source);
	for (int64_t i = 0; dtype == HYS_F16 && i < n; i++)
		half[i] = to_f16(source[i]);
	for (int64_t i = 0; dtype == HYS_BF16 && i < n; i++)
		half[i] = to_bf16(source[i]);
	for (int64_t i = 0; dtype == HYS_F8E4M3 && i < n; i++)
		byte[i] = to_f8(source[i]);
}

void omp_fill_vector_portable(struct omp_isa *isa)
{
	isa->dot = dot;
	isa->axpy = axpy;
	isa->to_f32 = omp_to_f32_portable;
	isa->from_f32 = omp_from_f32_portable;
}
