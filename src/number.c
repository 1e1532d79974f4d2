#include "number.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* A binary format of at most 16 bits: sign, exponent, mantissa. */
struct format {
	int32_t exponent_bits, mantissa_bits;
	bool infinite; /* has infinities; else only all ones is NaN */
};

static const struct format half = {5, 10, true};
static const struct format bfloat = {8, 7, true};
static const struct format eighth = {4, 3, false};

static double decode(const struct format *format, uint32_t bits)
{
	const int32_t m = format->mantissa_bits, e = format->exponent_bits;
	const int32_t bias = (1 << (e - 1)) - 1, top = (1 << e) - 1;
	const int32_t mantissa = (int32_t)(bits & ((1u << m) - 1));
	const int32_t exponent = (int32_t)(bits >> m) & top;
	const double sign = bits >> (m + e) ? -1 : 1;

	if (exponent == top && format->infinite)
		return mantissa ? (double)NAN : sign * (double)INFINITY;
	if (exponent == top && mantissa == (1 << m) - 1)
		return (double)NAN;
	if (exponent == 0)
		return sign * ldexp(mantissa, 1 - bias - m);
	return sign * ldexp(mantissa + (1 << m), exponent - bias - m);
}

static uint32_t encode(const struct format *format, double value)
{
	const int32_t m = format->mantissa_bits, e = format->exponent_bits;
	const int32_t bias = (1 << (e - 1)) - 1, top = (1 << e) - 1;
	const uint32_t sign = signbit(value) ? 1u << (m + e) : 0;
	const uint32_t nan = ((uint32_t)top << m) | ((1u << m) - 1);
	const uint32_t most = format->infinite ? (uint32_t)top << m : nan - 1;
	int32_t exponent;
	uint32_t bits;

	if (isnan(value))
		return sign | nan;
	if (isinf(value))
		return sign | most;
	if (value == 0)
		return sign;
	frexp(value, &exponent);
	exponent += bias - 1;
	if (exponent > top)
		return sign | most;
	if (exponent < 1)
		exponent = 1;
	/* The hidden bit, where there is one, carries into the exponent. */
	bits = (uint32_t)rint(ldexp(fabs(value), m + bias - exponent)) +
	       ((uint32_t)(exponent - 1) << m);
	return sign | (bits < most ? bits : most);
}

static uint16_t bits16(const void *memory, int64_t i)
{
	uint16_t bits;

	memcpy(&bits, (const char *)memory + i * (int64_t)sizeof(bits), sizeof(bits));
	return bits;
}

double hys_number_load(const void *memory, hys_dtype dtype, int64_t i)
{
	switch (dtype) {
	case HYS_F32:
		return (double)((const float *)memory)[i];
	case HYS_F16:
		return decode(&half, bits16(memory, i));
	case HYS_BF16:
		return decode(&bfloat, bits16(memory, i));
	case HYS_F8E4M3:
		return decode(&eighth, ((const uint8_t *)memory)[i]);
	case HYS_I32:
		return ((const int32_t *)memory)[i];
	default:
		return 0;
	}
}

void hys_number_store(void *memory, hys_dtype dtype, int64_t i, double value)
{
	switch (dtype) {
	case HYS_F32:
		((float *)memory)[i] = (float)value;
		break;
	case HYS_F16:
		((uint16_t *)memory)[i] = (uint16_t)encode(&half, value);
		break;
	case HYS_BF16:
		((uint16_t *)memory)[i] = (uint16_t)encode(&bfloat, value);
		break;
	case HYS_F8E4M3:
		((uint8_t *)memory)[i] = (uint8_t)encode(&eighth, value);
		break;
	case HYS_I32:
		((int32_t *)memory)[i] = (int32_t)value;
		break;
	default:
		break;
	}
}
