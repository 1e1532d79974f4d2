#include "rng.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t x, int bits)
{
	return (x << bits) | (x >> (64 - bits));
}

void rng_seed(struct rng *rng, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		rng->state[i] = splitmix64(&seed);
}

uint64_t rng_u64(struct rng *rng)
{
	uint64_t *s = rng->state;
	const uint64_t result = rotate_left(s[1] * 5, 7) * 9;
	const uint64_t t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate_left(s[3], 45);
	return result;
}

double rng_uniform(struct rng *rng)
{
	return (double)(rng_u64(rng) >> 11) * 0x1p-53;
}

int64_t rng_range(struct rng *rng, int64_t low, int64_t high)
{
	if (high <= low)
		return low;
	const uint64_t span = (uint64_t)high - (uint64_t)low;
	const uint64_t reject_below = (0 - span) % span; /* 2^64 mod span */
	uint64_t x;
	do
		x = rng_u64(rng);
	while (x < reject_below);
	return (int64_t)((uint64_t)low + x % span);
}

double rng_normal(struct rng *rng)
{
	const double two_pi = 6.283185307179586476925;
	const double u = 1.0 - rng_uniform(rng); /* (0, 1] */
	return sqrt(-2.0 * log(u)) * cos(two_pi * rng_uniform(rng));
}

double rng_log_normal(struct rng *rng, double mu, double sigma)
{
	return exp(mu + sigma * rng_normal(rng));
}

void rng_shuffle_i32(struct rng *rng, int32_t *values, int64_t count)
{
	for (int64_t i = count - 1; i > 0; i--) {
		const int64_t j = rng_range(rng, 0, i + 1);
		const int32_t swapped = values[i];
		values[i] = values[j];
		values[j] = swapped;
	}
}

void rng_fill_normal(struct rng *rng, double *values, int64_t count, double scale)
{
	for (int64_t i = 0; i < count; i++)
		values[i] = scale * rng_normal(rng);
}

void rng_fill_integers(struct rng *rng, double *values, int64_t count, int64_t low, int64_t high)
{
	for (int64_t i = 0; i < count; i++)
		values[i] = (double)rng_range(rng, low, high);
}

/* Walks the range once and takes each integer with the chance that leaves every subset equally likely. */
void rng_sample_sorted(struct rng *rng, int32_t *values, int64_t count, int32_t low, int32_t high)
{
	int64_t wanted = count;
	for (int32_t i = low; i < high && wanted > 0; i++)
		if (rng_range(rng, 0, (int64_t)high - i) < wanted) {
			*values++ = i;
			wanted--;
		}
}

/* A binary format: fraction bits, exponents of the smallest normal, largest finite value. */
struct format {
	int fraction_bits;
	int smallest_exponent;
	double largest;
	int saturates;
	unsigned sign_bit, infinity, nan;
};

static const struct format f16 = {10, -14, 65504.0, 0, 0x8000u, 0x7c00u, 0x7e00u};
static const struct format bf16 = {7, -126, 0x1.fep127, 0, 0x8000u, 0x7f80u, 0x7fc0u};
static const struct format e4m3 = {3, -6, 448.0, 1, 0x80u, 0, 0x7fu};

/* A double's fields. */
#define FRACTION_BITS 52
#define EXPONENT_BIAS 1023

/* Whether x is a normal number of the format already, as most are; its fields then. */
static int is_normal_of(const struct format *f, double x, int *exponent, uint64_t *fraction)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	*exponent = (int)(bits >> FRACTION_BITS & 0x7ff) - EXPONENT_BIAS;
	*fraction = bits & ((UINT64_C(1) << FRACTION_BITS) - 1);
	return *exponent >= f->smallest_exponent && fabs(x) <= f->largest &&
	       (*fraction & ((UINT64_C(1) << (FRACTION_BITS - f->fraction_bits)) - 1)) == 0;
}

static double round_to_format(const struct format *f, double x)
{
	uint64_t fraction;
	int exponent;
	if (isnan(x) || x == 0.0 || is_normal_of(f, x, &exponent, &fraction))
		return x;
	const double magnitude = fabs(x);
	if (isinf(x))
		return copysign(f->saturates ? f->largest : magnitude, x);
	frexp(magnitude, &exponent); /* magnitude in [2^(exponent-1), 2^exponent) */
	exponent = exponent - 1 < f->smallest_exponent ? f->smallest_exponent : exponent - 1;
	const int shift = f->fraction_bits - exponent;
	const double rounded =
		ldexp(rint(ldexp(magnitude, shift)), -shift); /* rint: ties to even */
	if (rounded > f->largest)
		return copysign(f->saturates ? f->largest : (double)INFINITY, x);
	return copysign(rounded, x);
}

static unsigned encode(const struct format *f, double x)
{
	const unsigned sign = signbit(x) ? f->sign_bit : 0;
	int exponent;
	uint64_t fraction;
	if (is_normal_of(f, x, &exponent, &fraction))
		return sign | (unsigned)(exponent - f->smallest_exponent + 1) << f->fraction_bits |
		       (unsigned)(fraction >> (FRACTION_BITS - f->fraction_bits));
	const double rounded = fabs(round_to_format(f, x));
	if (isnan(rounded))
		return sign | f->nan;
	if (isinf(rounded))
		return sign | f->infinity;
	/* Consecutive values have consecutive patterns: count steps from the start of the binade. */
	const double smallest = ldexp(1.0, f->smallest_exponent);
	exponent = f->smallest_exponent;
	if (rounded >= smallest) {
		frexp(rounded, &exponent);
		exponent--;
	}
	const double steps = ldexp(rounded, f->fraction_bits - exponent);
	const unsigned binade = (unsigned)(exponent - f->smallest_exponent) << f->fraction_bits;
	return sign | (binade + (unsigned)steps);
}

static double normal_of(const struct format *f, int field, unsigned fraction)
{
	const uint64_t exponent = (uint64_t)(f->smallest_exponent + field - 1 + EXPONENT_BIAS);
	const uint64_t bits = exponent << FRACTION_BITS |
			      (uint64_t)fraction << (FRACTION_BITS - f->fraction_bits);
	double value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static double decode(const struct format *f, unsigned bits)
{
	const unsigned pattern = bits & (f->sign_bit - 1);
	const unsigned fraction_mask = (1u << f->fraction_bits) - 1;
	const int field = (int)(pattern >> f->fraction_bits);
	const unsigned fraction = pattern & fraction_mask;
	double value;
	if (f->saturates ? pattern == f->nan : pattern > f->infinity)
		value = (double)NAN;
	else if (!f->saturates && pattern == f->infinity)
		value = (double)INFINITY;
	else if (field == 0)
		value = ldexp((double)fraction, f->smallest_exponent - f->fraction_bits);
	else
		value = normal_of(f, field, fraction);
	return bits & f->sign_bit ? -value : value;
}

double round_f32(double x)
{
	return (double)(float)x;
}

double round_f16(double x)
{
	return round_to_format(&f16, x);
}

double round_bf16(double x)
{
	return round_to_format(&bf16, x);
}

double round_e4m3(double x)
{
	return round_to_format(&e4m3, x);
}

uint16_t encode_f16(double x)
{
	return (uint16_t)encode(&f16, x);
}

uint16_t encode_bf16(double x)
{
	return (uint16_t)encode(&bf16, x);
}

uint8_t encode_e4m3(double x)
{
	return (uint8_t)encode(&e4m3, x);
}

double decode_f16(uint16_t bits)
{
	return decode(&f16, bits);
}

double decode_bf16(uint16_t bits)
{
	return decode(&bf16, bits);
}

double decode_e4m3(uint8_t bits)
{
	return decode(&e4m3, bits);
}

void round_array(double (*round_to)(double), double *values, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		values[i] = round_to(values[i]);
}
