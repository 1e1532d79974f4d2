/* Select at 65,536 rows and keys: no matrix of rows times keys, and the price told beforehand is
 * what the process then takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/resource.h>

#include "hyscale/hyscale.h"

enum { ROWS = 65536, HEADS = 4, DIM = 64, TOPK = 256 };

/* Values from a multiplicative sequence; what they are does not matter. */
static float *make(int64_t n)
{
	float *values = malloc((size_t)n * sizeof *values);
	uint32_t state = 1;
	assert_non_null(values);
	for (int64_t i = 0; i < n; i++) {
		state = state * 1664525u + 1013904223u;
		values[i] = (float)(state >> 8) / 16777216.0f - 0.5f;
	}
	return values;
}

static double peak_memory(void)
{
	struct rusage usage;
	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return (double)usage.ru_maxrss * 1024.0;
}

static void select_65536(void **state)
{
	struct hys_context_options context_options = {.struct_size = sizeof context_options,
						      .devices = "openmp"};
	struct hys_problem problem = {.struct_size = sizeof problem,
				      .scoring = {.heads = HEADS, .dim = DIM},
				      .choosing = {.topk_max = TOPK}};
	struct hys_plan_options options = {
		.struct_size = sizeof options, .rows_max = ROWS, .keys_max = ROWS};
	struct hys_batch_desc desc = {
		.struct_size = sizeof desc, .rows = ROWS, .keys = ROWS, .flags = HYS_BATCH_CAUSAL};
	struct hys_context *context = NULL;
	struct hys_plan *plan = NULL;
	struct hys_batch *batch = NULL;
	struct hys_exec *exec = NULL;
	struct hys_cost cost;
	struct hys_error error;
	(void)state;
	assert_int_equal(hys_context_create(&context_options, &context, &error), HYS_OK);
	assert_int_equal(hys_plan_create(context, &problem, &options, &plan, &error), HYS_OK);
	assert_int_equal(hys_plan_cost(plan, HYS_OP_SELECT, NULL, &cost, &error), HYS_OK);
	assert_true(cost.peak_bytes < INT64_C(1) << 30);

	float *q = make((int64_t)ROWS * HEADS * DIM), *k = make((int64_t)ROWS * DIM);
	float *w = make((int64_t)ROWS * HEADS);
	int32_t *picks = malloc((size_t)ROWS * TOPK * 4), *counts = malloc((size_t)ROWS * 4);
	assert_non_null(picks);
	assert_non_null(counts);
	struct hys_select_args args = {.struct_size = sizeof args,
				       .index_q = hys_host(q, HYS_F32, 3, ROWS, HEADS, DIM),
				       .index_k = hys_host(k, HYS_F32, 2, ROWS, DIM, 0),
				       .index_w = hys_host(w, HYS_F32, 2, ROWS, HEADS, 0),
				       .indices = hys_host(picks, HYS_I32, 3, ROWS, 1, TOPK),
				       .counts = hys_host(counts, HYS_I32, 2, ROWS, 1, 0)};
	assert_int_equal(hys_batch_create(plan, &desc, &batch, &error), HYS_OK);
	assert_int_equal(hys_exec_create(plan, NULL, &exec, &error), HYS_OK);
	assert_int_equal(hys_select(exec, batch, &args, &error), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, &error), HYS_OK);
	assert_int_equal(counts[0], 1);
	assert_int_equal(counts[ROWS - 1], TOPK);

	double measured = peak_memory(), predicted = (double)cost.peak_bytes;
	print_message("predicted %.0f MiB, measured %.0f MiB\n", predicted / (1 << 20),
		      measured / (1 << 20));
	assert_true(measured < 1073741824.0);
	assert_true(measured > 0.9 * predicted && measured < 1.1 * predicted);

	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
	hys_plan_destroy(plan);
	hys_context_destroy(context);
	free(q);
	free(k);
	free(w);
	free(picks);
	free(counts);
}

int main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	/* Sanitizers keep shadows of memory: there is nothing to measure. */
	return 77;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
	return 77;
#endif
#endif
	const struct CMUnitTest tests[] = {cmocka_unit_test(select_65536)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
