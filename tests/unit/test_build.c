/* Programs that take long are built beside each other, each once, and none is left behind. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core.h"

static struct hys_backend backend;
static struct hys_context *context;
static pthread_t planner;
static atomic_int made, made_elsewhere, ended;
static hys_op failing;

static const struct hys_problem problem = {.struct_size = sizeof(problem),
					   .scoring = {.heads = 1, .dim = 8},
					   .choosing = {.topk_max = 4},
					   .attending = {.heads = 2, .head_dim = 8}};

static hys_status create_program(struct hys_device *device, const struct hys_kernel *kernel,
				 const struct hys_problem *of, void **program,
				 struct hys_error *error)
{
	(void)device;
	(void)of;
	atomic_fetch_add(&made, 1);
	if (!pthread_equal(pthread_self(), planner))
		atomic_fetch_add(&made_elsewhere, 1);
	if (kernel->op == failing && !strstr(kernel->name, ".ref"))
		return hys_fail(error, HYS_BUILD_FAILED, 0, "does not build");
	*program = malloc(1);
	return *program ? HYS_OK : HYS_OUT_OF_MEMORY;
}

static void destroy_program(struct hys_device *device, void *program)
{
	(void)device;
	atomic_fetch_add(&ended, program != NULL);
	free(program);
}

static int set_up(void **state)
{
	const struct hys_context_options options = {.struct_size = sizeof(options),
						    .devices = "openmp"};

	(void)state;
	if (hys_context_create(&options, &context, NULL) != HYS_OK)
		return 1;
	backend = *context->devices[0]->backend;
	backend.program_create = create_program;
	backend.program_destroy = destroy_program;
	context->devices[0]->backend = &backend;
	planner = pthread_self();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	hys_context_destroy(context);
	return 0;
}

static hys_status make(uint32_t operations, hys_progress *progress, struct hys_plan **plan)
{
	const struct hys_plan_options options = {.struct_size = sizeof(options),
						 .operations = operations,
						 .flags = HYS_PLAN_NO_SELF_TEST,
						 .rows_max = 16,
						 .keys_max = 16,
						 .progress = progress};

	made = made_elsewhere = ended = 0;
	*plan = NULL;
	return hys_plan_create(context, &problem, &options, plan, NULL);
}

#define OPERATIONS                                                          \
	(HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD) | \
	 HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD))

static void test_beside(void **state)
{
	struct hys_plan *plan;

	(void)state;
	failing = HYS_OP_COUNT;
	context->devices[0]->builds_long = false;
	assert_int_equal(make(OPERATIONS, NULL, &plan), HYS_OK);
	assert_int_equal(made, 3);
	assert_int_equal(made_elsewhere, 0);
	hys_plan_destroy(plan);
	assert_int_equal(ended, 3);

	context->devices[0]->builds_long = true;
	assert_int_equal(make(OPERATIONS, NULL, &plan), HYS_OK);
	assert_int_equal(made, 3);
	assert_int_equal(made_elsewhere, 3);
	hys_plan_destroy(plan);
	assert_int_equal(ended, 3);
}

/* The next kernel is built when it is its turn. */
static void test_failure(void **state)
{
	struct hys_plan *plan;

	(void)state;
	failing = HYS_OP_ATTENTION_FORWARD;
	context->devices[0]->builds_long = true;
	assert_int_equal(make(OPERATIONS, NULL, &plan), HYS_OK);
	assert_string_equal(hys_plan_kernel(plan, HYS_OP_ATTENTION_FORWARD, 0),
			    "attention_forward.ref");
	assert_int_equal(made_elsewhere, 3);
	assert_true(made > 3);
	hys_plan_destroy(plan);
	assert_int_equal(ended, 3);
}

static int stop_at_second(void *user, int32_t step, int32_t steps, const char *what)
{
	(void)user;
	(void)steps;
	(void)what;
	return step == 1;
}

static void test_cancelled(void **state)
{
	struct hys_plan *plan;

	(void)state;
	failing = HYS_OP_COUNT;
	context->devices[0]->builds_long = true;
	assert_int_equal(make(OPERATIONS, stop_at_second, &plan), HYS_CANCELLED);
	assert_int_equal(made_elsewhere, 3);
	assert_int_equal(ended, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beside),
		cmocka_unit_test(test_failure),
		cmocka_unit_test(test_cancelled),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
