/* Things that are made and destroyed a thousand times leave nothing: neither in the caller's allocator nor in
 * what libc, hwloc and OpenMP keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "failing_allocator.h"

enum { CYCLES = 1000, WARM_UP = 100 };

/* A page less a cycle than this would show. */
static const long growth_max_bytes = 1 << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

/* 0 where it is not known. Sanitizers keep what was released, and look for leaks themselves. */
static long resident_bytes(void)
{
	long pages = 0;
#ifndef SANITIZED
	FILE *file = fopen("/proc/self/statm", "r");

	if (file && fscanf(file, "%*d %ld", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
#endif
	return pages * sysconf(_SC_PAGESIZE);
}

static struct failing_allocator memory;
static struct hys_context_options options;
static struct hys_context *shared;

static void repeat(void (*life)(void))
{
	long before = 0, held;

	life(); /* a context knows more after its first plan */
	held = memory.live;
	for (int i = 0; i < CYCLES; i++) {
		if (i == WARM_UP)
			before = resident_bytes();
		life();
		assert_int_equal(memory.live, held);
	}
	print_message("%ld KiB more after %d cycles\n", (resident_bytes() - before) / 1024,
		      CYCLES - WARM_UP);
	assert_true(resident_bytes() - before < growth_max_bytes);
}

static void make_context(void)
{
	struct hys_context *context = NULL;

	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_OK);
	hys_context_destroy(context);
}

static void test_contexts(void **state)
{
	(void)state;
	options.devices = "openmp";
	repeat(make_context);
}

static void test_contexts_of_opencl(void **state)
{
	struct hys_context *context = NULL;

	(void)state;
	options.devices = "opencl";
	if (hys_context_create(&options, &context, NULL) != HYS_OK)
		skip();
	hys_context_destroy(context);
	repeat(make_context);
}

static void make_all_else(void)
{
	struct hys_problem problem = {.struct_size = sizeof(problem),
				      .scoring = {.heads = 2, .dim = 8},
				      .choosing = {.topk_max = 4}};
	struct hys_plan_options plan_options = {
		.struct_size = sizeof(plan_options), .rows_max = 8, .keys_max = 8};
	struct hys_batch_desc desc = {.struct_size = sizeof(desc), .rows = 8, .keys = 8};
	struct hys_plan *plan = NULL;
	struct hys_batch *batch = NULL;
	struct hys_exec *exec = NULL;

	assert_int_equal(hys_plan_create(shared, &problem, &plan_options, &plan, NULL), HYS_OK);
	assert_int_equal(hys_batch_create(plan, &desc, &batch, NULL), HYS_OK);
	assert_int_equal(hys_exec_create(plan, NULL, &exec, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
	hys_plan_destroy(plan);
}

static void test_plans_batches_and_execs(void **state)
{
	(void)state;
	options.devices = "openmp";
	assert_int_equal(hys_context_create(&options, &shared, NULL), HYS_OK);
	repeat(make_all_else);
	hys_context_destroy(shared);
	assert_int_equal(memory.live, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contexts),
		cmocka_unit_test(test_contexts_of_opencl),
		cmocka_unit_test(test_plans_batches_and_execs),
	};

	options.struct_size = sizeof(options);
	failing_allocator_use(&memory, &options);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
