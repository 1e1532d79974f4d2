/* The placing of tensors in tests: what is put in comes out, and what is touched is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "place.h"

enum { N0 = 3, N1 = 4, N2 = 5, COUNT = N0 * N1 * N2 };

static const unsigned placements[] = {0, PLACE_PITCHED, PLACE_SWAPPED,
				      PLACE_PITCHED | PLACE_SWAPPED};
#define PLACEMENTS (sizeof(placements) / sizeof(placements[0]))

static char message[200];

static bool collect(struct place *place)
{
	message[0] = '\0';
	return place_collect(place, message, sizeof(message));
}

static float *element(const struct hys_tensor *tensor, int64_t i0, int64_t i1, int64_t i2)
{
	const int64_t s1 = tensor->stride[1] > 0 ? tensor->stride[1] : N2;
	const int64_t s0 = tensor->stride[0] > 0 ? tensor->stride[0] : N1 * N2;

	return (float *)tensor->host + tensor->offset + i0 * s0 + i1 * s1 + i2;
}

static void test_round_trip(void **state)
{
	double values[COUNT];

	(void)state;
	for (int i = 0; i < COUNT; i++)
		values[i] = i;
	for (size_t p = 0; p < PLACEMENTS; p++) {
		struct place place = {.flags = placements[p]};
		const struct hys_tensor in = place_in(&place, "in", HYS_F32, values, 3, N0, N1, N2);
		const struct hys_tensor out =
			place_out(&place, "out", HYS_F32, NULL, 3, N0, N1, N2);
		double *got;

		for (int i = 0; i < COUNT; i++) {
			const int i0 = i / (N1 * N2), i1 = i / N2 % N1, i2 = i % N2;

			assert_true(*element(&in, i0, i1, i2) == (float)i);
			*element(&out, i0, i1, i2) = (float)i;
		}
		assert_true(collect(&place));
		got = place_values(&place, "out");
		assert_memory_equal(got, values, sizeof(values));
		assert_null(place_values(&place, "other"));
		free(got);
		place_clear(&place);
	}
}

/* Runs `spoil` on a placed output; what it does must be seen, or not. */
static void check_seen(unsigned flags, void (*spoil)(const struct hys_tensor *tensor), bool seen)
{
	struct place place = {.flags = flags};
	const struct hys_tensor out = place_out(&place, "out", HYS_F32, NULL, 3, N0, N1, N2);

	place_only_rows(&place, 1, 1);
	spoil(&out);
	if (collect(&place) == seen)
		fail_msg("a change was %s: %s", seen ? "not seen" : "seen", message);
	place_clear(&place);
}

static void write_row(const struct hys_tensor *tensor)
{
	*element(tensor, 1, N1 - 1, N2 - 1) = 0;
}

static void write_other_row(const struct hys_tensor *tensor)
{
	*element(tensor, 2, 0, 0) = 0;
}

static void write_before(const struct hys_tensor *tensor)
{
	((float *)tensor->host)[0] = 0;
}

static void write_between(const struct hys_tensor *tensor)
{
	element(tensor, 1, 1, N2 - 1)[1] = 0;
}

static void test_surroundings(void **state)
{
	(void)state;
	for (size_t p = 0; p < PLACEMENTS; p++) {
		check_seen(placements[p], write_row, false);
		check_seen(placements[p], write_other_row, true);
	}
	check_seen(PLACE_PITCHED, write_before, true);
	check_seen(PLACE_PITCHED, write_between, true);
	check_seen(PLACE_PITCHED | PLACE_SWAPPED, write_between, true);
}

static void test_inputs(void **state)
{
	const double values[COUNT] = {0};
	struct place place = {.flags = PLACE_PITCHED};
	struct hys_tensor in;

	(void)state;
	in = place_in(&place, "in", HYS_F32, values, 3, N0, N1, N2);
	assert_true(collect(&place));
	*element(&in, 0, 0, 0) = 1;
	assert_false(collect(&place));
	assert_non_null(strstr(message, "in"));
	place_clear(&place);
}

static void test_untouched(void **state)
{
	struct place place = {.flags = 0};
	struct hys_tensor out;

	(void)state;
	out = place_out(&place, "out", HYS_F32, NULL, 3, N0, N1, N2);
	assert_true(place_untouched(&place, "out"));
	*element(&out, 0, 0, 0) = 1;
	assert_false(place_untouched(&place, "out"));
	place_clear(&place);
}

static void test_elements(void **state)
{
	static const hys_dtype dtypes[] = {HYS_F32, HYS_F16, HYS_BF16, HYS_F8E4M3, HYS_I32};

	(void)state;
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		uint64_t memory = 0;

		element_put(dtypes[i], &memory, 0, -3);
		assert_true(element_get(dtypes[i], &memory, 0) == -3);
		assert_true(element_round(dtypes[i], -3) == -3);
	}
	assert_true(element_round(HYS_BF16, 1.001) == 1.0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_surroundings),
		cmocka_unit_test(test_inputs),	   cmocka_unit_test(test_untouched),
		cmocka_unit_test(test_elements),
	};

	return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}
