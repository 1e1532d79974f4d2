/* Each call of OpenCL failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cl_calls.h"
#include "fault_life.h"

/* No defect of the library, no wrong argument of the caller's. */
static bool may_answer(hys_status status)
{
	switch (status) {
	case HYS_OUT_OF_MEMORY:
	case HYS_DEVICE_FAILED:
	case HYS_BUILD_FAILED:
	case HYS_NO_DEVICE:
	case HYS_NO_PLATFORM:
		return true;
	default:
		return false;
	}
}

static const struct fault fault = {cl_calls_arm, cl_calls_fired, cl_calls_live,	 may_answer,
				   NULL,	 true,		 cl_calls_failed};

static void test_context(void **state)
{
	(void)state;
	fault_context(&fault, "opencl");
}

static void test_plan(void **state)
{
	(void)state;
	fault_plan(&fault, "opencl", HYS_OP_BIT(HYS_OP_MERGE));
}

static void test_exec(void **state)
{
	(void)state;
	fault_exec(&fault, "opencl");
}

static void test_operations(void **state)
{
	(void)state;
	fault_operations(&fault, "opencl");
}

static void test_copies(void **state)
{
	(void)state;
	fault_copies(&fault, "opencl");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_context), cmocka_unit_test(test_plan),
		cmocka_unit_test(test_exec),	cmocka_unit_test(test_operations),
		cmocka_unit_test(test_copies),
	};
	const struct hys_context_options options = {.struct_size = sizeof(options),
						    .devices = "opencl"};
	struct hys_context *context = NULL;
	struct hys_error error;

	if (hys_context_create(&options, &context, &error) != HYS_OK) {
		print_message("no OpenCL device here: skipped: %s\n", error.message);
		return 0;
	}
	hys_context_destroy(context);
	return cmocka_run_group_tests_name("OpenCL calls", tests, NULL, NULL);
}
