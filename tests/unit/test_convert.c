/* Number formats, bit by bit, in every instruction set. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "isas.h"
#include "rng.h"

/* A small format and the oracle's view of it. */
struct format {
	hys_dtype dtype;
	int32_t codes;
	double (*decode)(int32_t code);
	int32_t (*encode)(double x);
};

static double decode_half(int32_t code)
{
	return decode_f16((uint16_t)code);
}

static int32_t encode_half(double x)
{
	return encode_f16(x);
}

static double decode_brain(int32_t code)
{
	return decode_bf16((uint16_t)code);
}

static int32_t encode_brain(double x)
{
	return encode_bf16(x);
}

static double decode_byte(int32_t code)
{
	return decode_e4m3((uint8_t)code);
}

static int32_t encode_byte(double x)
{
	return encode_e4m3(x);
}

static const struct format formats[] = {
	{HYS_F16, 65536, decode_half, encode_half},
	{HYS_BF16, 65536, decode_brain, encode_brain},
	{HYS_F8E4M3, 256, decode_byte, encode_byte},
};

static void put_code(const struct format *format, void *codes, int64_t i, int32_t code)
{
	if (hys_dtype_size(format->dtype) == 1)
		((uint8_t *)codes)[i] = (uint8_t)code;
	else
		((uint16_t *)codes)[i] = (uint16_t)code;
}

static int32_t get_code(const struct format *format, const void *codes, int64_t i)
{
	return hys_dtype_size(format->dtype) == 1 ? ((const uint8_t *)codes)[i]
						  : ((const uint16_t *)codes)[i];
}

static void assert_same_float(float got, double want)
{
	if (isnan(want)) {
		assert_true(isnan(got));
		return;
	}
	assert_true((double)got == want);
	assert_int_equal(signbit(got) != 0, signbit(want) != 0);
}

/* Every code, converted in one go. */
static void test_every_code_to_f32(void **state)
{
	uint16_t *codes = malloc(65536 * sizeof *codes);
	float *values = malloc(65536 * sizeof *values);
	(void)state;
	assert_true(codes && values);
	for (int32_t s = 0; isa_at(s); s++)
		for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
			for (int32_t i = 0; i < formats[f].codes; i++)
				put_code(&formats[f], codes, i, i);
			isa_at(s)->to_f32(formats[f].dtype, codes, values, formats[f].codes);
			for (int32_t i = 0; i < formats[f].codes; i++)
				assert_same_float(values[i], formats[f].decode(i));
		}
	free(codes);
	free(values);
}

static void assert_code(const struct format *format, int32_t got, float x)
{
	if (isnan(x))
		assert_true(isnan(format->decode(got)));
	else
		assert_int_equal(got, format->encode((double)x));
}

/* Converts `count` numbers in one go and compares each. */
static void check_from_f32(const struct format *format, const float *values, int64_t count,
			   uint16_t *codes)
{
	for (int32_t s = 0; isa_at(s); s++) {
		memset(codes, 0xa5, (size_t)count * sizeof *codes);
		isa_at(s)->from_f32(format->dtype, values, codes, count);
		for (int64_t i = 0; i < count; i++)
			assert_code(format, get_code(format, codes, i), values[i]);
	}
}

/* Around every code: itself, half way to the next, and a little to each side. */
static void test_around_every_code_from_f32(void **state)
{
	enum { AROUND = 7 };
	float *values = malloc(AROUND * 65536 * sizeof *values);
	uint16_t *codes = malloc(AROUND * 65536 * sizeof *codes);
	(void)state;
	assert_true(codes && values);
	for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
		int64_t count = 0;
		for (int32_t i = 0; i < formats[f].codes; i++) {
			const double here = formats[f].decode(i);
			const double next = formats[f].decode((i + 1) % formats[f].codes);
			const float middle = (float)(0.5 * (here + next));
			values[count++] = (float)here;
			values[count++] = nextafterf((float)here, INFINITY);
			values[count++] = nextafterf((float)here, -INFINITY);
			values[count++] = middle;
			values[count++] = nextafterf(middle, INFINITY);
			values[count++] = nextafterf(middle, -INFINITY);
			values[count++] = (float)(0.75 * here + 0.25 * next);
		}
		check_from_f32(&formats[f], values, count, codes);
	}
	free(codes);
	free(values);
}

/* Any 32 bits, NaN, infinities and subnormal numbers among them. */
static void test_random_bits_from_f32(void **state)
{
	enum { COUNT = 200000 };
	float *values = malloc(COUNT * sizeof *values);
	uint16_t *codes = malloc(COUNT * sizeof *codes);
	struct rng rng;
	(void)state;
	assert_true(codes && values);
	rng_seed(&rng, 5);
	for (int32_t i = 0; i < COUNT; i++) {
		const uint32_t bits = (uint32_t)rng_u64(&rng);
		memcpy(values + i, &bits, sizeof bits);
	}
	for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
		check_from_f32(&formats[f], values, COUNT, codes);
	free(codes);
	free(values);
}

/* Every length up to 40: what does not fill a register, and nothing behind. */
static void test_lengths(void **state)
{
	enum { LONGEST = 40 };
	float values[LONGEST + 1], back[LONGEST + 1];
	uint32_t codes[LONGEST + 1];
	(void)state;
	for (int32_t i = 0; i <= LONGEST; i++)
		values[i] = 0.25f * (float)(i % 15 - 7);
	for (int32_t s = 0; isa_at(s); s++)
		for (hys_dtype dtype = HYS_F32; dtype <= HYS_F8E4M3; dtype++)
			for (int64_t n = 0; n <= LONGEST; n++) {
				const size_t bytes = (size_t)n * hys_dtype_size(dtype);
				memset(codes, 0x5a, sizeof codes);
				memset(back, 0x5a, sizeof back);
				isa_at(s)->from_f32(dtype, values, codes, n);
				isa_at(s)->to_f32(dtype, codes, back, n);
				assert_int_equal(((const uint8_t *)codes)[bytes], 0x5a);
				assert_int_equal(((const uint8_t *)(back + n))[0], 0x5a);
				assert_true(n == 0 ||
					    memcmp(back, values, (size_t)n * sizeof *back) == 0);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_code_to_f32),
		cmocka_unit_test(test_around_every_code_from_f32),
		cmocka_unit_test(test_random_bits_from_f32),
		cmocka_unit_test(test_lengths),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
