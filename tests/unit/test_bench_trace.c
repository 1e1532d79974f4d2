/* What a device's pieces would have taken, each always at its least, from spans that are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "bench_trace.h"

#define DEVICES 3
#define KERNEL HYS_OP_SELECT

static const struct hys_trace_span spans[] = {
	/* rows 0 to 31 take 1, 3 and 2 s, rows 32 to 47 always 2 s: 3 + 6 of 12 s */
	{0, "kernel", KERNEL, 0, 0, 32, 10, 11},
	{0, "kernel", KERNEL, 0, 32, 16, 11, 13},
	{0, "kernel", KERNEL, 0, 0, 32, 20, 23},
	{0, "kernel", KERNEL, 0, 32, 16, 23, 25},
	{0, "kernel", KERNEL, 0, 0, 32, 30, 32},
	{0, "kernel", KERNEL, 0, 32, 16, 32, 34},
	/* as many rows from elsewhere, fewer from there, and copies are pieces of their own; waits
	 * do not count, nor does what was before: 1 + 4 + 5 + 6 s, and copies twice 1 of 4 s */
	{0, "kernel", KERNEL, 1, 0, 32, 5, 5.5},
	{0, "kernel", KERNEL, 1, 0, 32, 10, 11},
	{0, "kernel", KERNEL, 1, 32, 32, 11, 15},
	{0, "kernel", KERNEL, 1, 0, 16, 20, 25},
	{0, "kernel", KERNEL, 1, 32, 16, 30, 36},
	{0, "copy in", KERNEL, 1, 0, 32, 40, 43},
	{0, "copy in", KERNEL, 1, 0, 32, 50, 51},
	{0, "wait", HYS_OP_COUNT, 1, 0, 32, 60, 90},
};

static int64_t fails_at = -1;

int64_t __wrap_hys_exec_span_count(const struct hys_exec *exec);
hys_status __wrap_hys_exec_span(const struct hys_exec *exec, int64_t n, struct hys_trace_span *span,
				struct hys_error *error);

int64_t __wrap_hys_exec_span_count(const struct hys_exec *exec)
{
	(void)exec;
	return sizeof(spans) / sizeof(spans[0]);
}

hys_status __wrap_hys_exec_span(const struct hys_exec *exec, int64_t n, struct hys_trace_span *span,
				struct hys_error *error)
{
	(void)exec;
	assert_int_equal(span->struct_size, sizeof(*span));
	if (n == fails_at) {
		strcpy(error->message, "no such span");
		return error->status = HYS_INVALID_ARGUMENT;
	}
	*span = spans[n];
	return HYS_OK;
}

static void test_least(void **state)
{
	struct hys_error error = {HYS_OK, 0, ""};
	double parts[DEVICES] = {0};

	(void)state;
	assert_true(bench_trace_least(NULL, 6, DEVICES, parts, &error));
	assert_true(parts[0] == 9.0 / 12);
	assert_true(parts[1] == 18.0 / 20);
	assert_true(parts[2] == 1); /* it had no rows */
}

static void test_failure(void **state)
{
	struct hys_error error = {HYS_OK, 0, ""};
	double parts[DEVICES] = {-1, -1, -1};

	(void)state;
	fails_at = 3;
	assert_false(bench_trace_least(NULL, 6, DEVICES, parts, &error));
	assert_string_equal(error.message, "no such span");
	assert_true(parts[0] == -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_least),
		cmocka_unit_test(test_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
