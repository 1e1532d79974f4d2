/*
 * A plan whose kernels only count that they were run, on fake devices; calls that must fail, or must not.
 */
#ifndef HYS_TEST_ARGUMENT_FIXTURE_H
#define HYS_TEST_ARGUMENT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_case.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int runs; /* of kernels */
static struct hys_call last;

static inline hys_status count_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				   void *instance, const struct hys_call *call,
				   struct hys_error *error)
{
	(void)kernel;
	(void)stream;
	(void)instance;
	(void)error;
	runs++;
	last = *call;
	return HYS_OK;
}

struct fixture {
	struct hys_context *context;
	struct fake_device devices[2];
	struct fake_plan plan, other, pair, eighth;
	struct hys_kernel kernels[HYS_OP_COUNT];
	struct hys_exec *exec;
	struct hys_batch *batch;
	struct hys_buffer *here, *elsewhere;
};

static inline void init_plan(struct fixture *f, struct fake_plan *plan, int32_t devices)
{
	fake_plan_init(plan, f->context, f->devices, devices);
	plan->plan.problem = call_case_problem();
	call_case_kernels(plan, f->kernels, count_run);
}

static inline int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct hys_context_options options = {.struct_size = sizeof(options), .devices = "openmp"};

	assert_non_null(f);
	assert_int_equal(hys_context_create(&options, &f->context, NULL), HYS_OK);
	fake_device_init(&f->devices[0], &f->context->host, "fake 0");
	fake_device_init(&f->devices[1], &f->context->host, "fake 1");
	f->devices[0].base.host_memory = true;
	init_plan(f, &f->plan, 1);
	init_plan(f, &f->other, 1);
	init_plan(f, &f->pair, 2);
	init_plan(f, &f->eighth, 1);
	f->eighth.plan.problem.scoring.dtype = HYS_F8E4M3;
	assert_int_equal(hys_exec_create(&f->plan.plan, NULL, &f->exec, NULL), HYS_OK);
	f->batch = call_case_batch(&f->plan.plan);
	assert_non_null(f->batch);
	assert_int_equal(hys_buffer_make(f->context, &f->devices[0].base, 1 << 20, &f->here, NULL),
			 HYS_OK);
	assert_int_equal(
		hys_buffer_make(f->context, &f->devices[1].base, 1 << 20, &f->elsewhere, NULL),
		HYS_OK);
	*state = f;
	return 0;
}

static inline int tear_down(void **state)
{
	struct fixture *f = *state;

	hys_buffer_destroy(f->here);
	hys_buffer_destroy(f->elsewhere);
	hys_batch_destroy(f->batch);
	hys_exec_destroy(f->exec);
	fake_device_clear(&f->devices[0]);
	fake_device_clear(&f->devices[1]);
	hys_context_destroy(f->context);
	free(f);
	return 0;
}

/* Runs the case, which must fail so and leave no trace. */
static inline void expect(struct fixture *f, const struct call_case *made, hys_status status,
			  const char *word)
{
	struct hys_error error = {HYS_OK, 0, ""};
	const uint64_t before = call_case_hash(made);
	hys_status found;

	runs = 0;
	found = call_case_run(made, f->exec, f->batch, &error);
	if (found != status)
		fail_msg("%s, %s wrong: %s (%s), expected %s", hys_op_name(made->op), word,
			 hys_status_name(found), error.message, hys_status_name(status));
	assert_int_equal(error.status, status);
	if (!strstr(error.message, word) ||
	    strncmp(error.message, made->name, strlen(made->name)) != 0)
		fail_msg("%s: \"%s\" does not name %s", hys_op_name(made->op), error.message, word);
	assert_int_equal(runs, 0);
	assert_true(call_case_hash(made) == before);
	assert_int_equal(call_case_run(made, f->exec, f->batch, NULL), status);
	assert_int_equal(hys_exec_finish(f->exec, NULL), HYS_OK);
}

static inline void expect_fine(struct fixture *f, const struct call_case *made)
{
	struct hys_error error = {HYS_OK, 0, ""};

	runs = 0;
	if (call_case_run(made, f->exec, f->batch, &error) != HYS_OK)
		fail_msg("%s: %s", hys_op_name(made->op), error.message);
	assert_int_equal(runs, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
