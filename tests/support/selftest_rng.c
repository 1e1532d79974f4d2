/* Number formats by enumeration, and the random numbers. */
#include "selftest.h"

#include "oracle_internal.h"
#include "rng.h"

struct kind {
	double (*round_to)(double);
	unsigned (*encode)(double);
	double (*decode)(unsigned);
	unsigned patterns, sign_bit;
	double largest;
};

static unsigned bits_f16(double x)
{
	return encode_f16(x);
}

static unsigned bits_bf16(double x)
{
	return encode_bf16(x);
}

static unsigned bits_e4m3(double x)
{
	return encode_e4m3(x);
}

static double value_f16(unsigned bits)
{
	return decode_f16((uint16_t)bits);
}

static double value_bf16(unsigned bits)
{
	return decode_bf16((uint16_t)bits);
}

static double value_e4m3(unsigned bits)
{
	return decode_e4m3((uint8_t)bits);
}

/* Every pattern survives decode, round, encode. */
static int round_trips(const struct kind *kind)
{
	int wrong = 0;
	for (unsigned bits = 0; bits < kind->patterns; bits++) {
		const double value = kind->decode(bits);
		if (isnan(value))
			wrong += !isnan(kind->round_to(value)) ||
				 !isnan(kind->decode(kind->encode(value)));
		else
			wrong += kind->encode(value) != bits || kind->round_to(value) != value;
	}
	return wrong == 0;
}

/* Between each two neighbours: just below, at and just above the middle. */
static int rounds_to_even(const struct kind *kind)
{
	int wrong = 0;
	for (unsigned bits = 0; bits + 1 < kind->sign_bit; bits++) {
		const double low = kind->decode(bits), high = kind->decode(bits + 1);
		if (!isfinite(low) || !isfinite(high))
			continue;
		const double middle = (low + high) / 2.0;
		const double even = bits % 2 == 0 ? low : high;
		wrong += kind->round_to(middle) != even || kind->round_to(-middle) != -even;
		wrong += kind->round_to(nextafter(middle, 0.0)) != low ||
			 kind->round_to(nextafter(middle, 1e300)) != high;
		wrong += kind->encode(-middle) != (kind->encode(middle) | kind->sign_bit);
	}
	return wrong == 0;
}

static void check_formats(void)
{
	const struct kind kinds[] = {
		{round_f16, bits_f16, value_f16, 0x10000, 0x8000, 65504.0},
		{round_bf16, bits_bf16, value_bf16, 0x10000, 0x8000, 0x1.fep127},
		{round_e4m3, bits_e4m3, value_e4m3, 0x100, 0x80, 448.0},
	};
	for (int i = 0; i < 3; i++) {
		CHECK(round_trips(kinds + i));
		CHECK(rounds_to_even(kinds + i));
		CHECK(kinds[i].round_to(kinds[i].largest) == kinds[i].largest);
		CHECK(signbit(kinds[i].round_to(-0.0)) &&
		      kinds[i].encode(-0.0) == kinds[i].sign_bit);
	}
}

/* Known patterns, and what happens beyond the largest value. */
static void check_known_values(void)
{
	CHECK(encode_f16(1.0) == 0x3c00 && encode_f16(-2.0) == 0xc000 &&
	      encode_f16(0x1p-24) == 0x0001);
	CHECK(encode_f16(65519.99) == 0x7bff && encode_f16(65520.0) == 0x7c00 &&
	      isinf(round_f16(-1e6)));
	CHECK(encode_bf16(1.0) == 0x3f80 && encode_bf16(1.00390625) == 0x3f80 &&
	      encode_bf16(1.01171875) == 0x3f82);
	CHECK(encode_bf16(0x1.ffp127) == 0x7f80 && encode_bf16(0x1.fefp127) == 0x7f7f);
	CHECK(encode_e4m3(1.0) == 0x38 && encode_e4m3(448.0) == 0x7e &&
	      encode_e4m3(0x1p-9) == 0x01);
	CHECK(round_e4m3(1e9) == 448.0 && round_e4m3(-(double)INFINITY) == -448.0 &&
	      round_e4m3(465.0) == 448.0);
	CHECK(round_e4m3(0x1p-10) == 0.0 && round_e4m3(0x1.8p-10) == 0x1p-9 &&
	      isnan(round_e4m3((double)NAN)));
	CHECK(round_f32(1.0 + 0x1p-25) == 1.0 && isinf(round_f32(1e39)));
}

static void check_numbers(void)
{
	struct rng rng;
	rng_seed(&rng, 1234567);
	CHECK(rng.state[0] == UINT64_C(6457827717110365317) &&
	      rng.state[1] == UINT64_C(3203168211198807973));
	rng.state[0] = 1, rng.state[1] = 2, rng.state[2] = 3, rng.state[3] = 4;
	CHECK(rng_u64(&rng) == 11520 && rng_u64(&rng) == 0 && rng_u64(&rng) == 1509978240);
	double sum = 0.0, squares = 0.0;
	int inside = 1, ascending = 1;
	for (int i = 0; i < 20000; i++) {
		const double x = rng_normal(&rng);
		const int64_t n = rng_range(&rng, -3, 4);
		const double u = rng_uniform(&rng);
		sum += x;
		squares += x * x;
		inside &= n >= -3 && n < 4 && u >= 0.0 && u < 1.0 &&
			  rng_log_normal(&rng, 0.0, 1.0) > 0.0;
	}
	CHECK(inside && fabs(sum / 20000) < 0.03 && fabs(squares / 20000 - 1.0) < 0.05);
	int32_t values[10], total = 0;
	rng_sample_sorted(&rng, values, 10, 5, 20);
	for (int i = 0; i < 10; i++)
		ascending &=
			values[i] >= 5 && values[i] < 20 && (i == 0 || values[i] > values[i - 1]);
	CHECK(ascending);
	for (int i = 0; i < 10; i++)
		values[i] = i;
	rng_shuffle_i32(&rng, values, 10);
	for (int i = 0; i < 10; i++)
		total += 1 << values[i];
	CHECK(total == 1023);
}

void selftest_rng(void)
{
	check_formats();
	check_known_values();
	check_numbers();
}
