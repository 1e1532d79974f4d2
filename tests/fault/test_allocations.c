/* Each allocation of host memory failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "failing_allocator.h"
#include "fault_life.h"

static struct failing_allocator allocator;
static long armed;

static void arm(long number)
{
	armed = number;
	failing_allocator_arm(&allocator, number);
}

static bool fired(void)
{
	return armed > 0 && atomic_load(&allocator.made) >= armed;
}

static long live(void)
{
	return atomic_load(&allocator.live);
}

static bool may_answer(hys_status status)
{
	return status == HYS_OUT_OF_MEMORY;
}

static void prepare(struct hys_context_options *options)
{
	failing_allocator_use(&allocator, options);
}

static const struct fault fault = {arm, fired, live, may_answer, prepare, false, NULL};

/* One test per device: its name is the state. */
static void test_context(void **state)
{
	fault_context(&fault, *state);
}

/* One operation where each plan compiles its programs again. */
static void test_plan(void **state)
{
	const bool compiles = strcmp(*state, "opencl") == 0;

	fault_plan(&fault, *state, compiles ? HYS_OP_BIT(HYS_OP_MERGE) : 0);
}

static void test_exec(void **state)
{
	fault_exec(&fault, *state);
}

static void test_operations(void **state)
{
	fault_operations(&fault, *state);
}

static void test_copies(void **state)
{
	fault_copies(&fault, *state);
}

static void test_wisdom(void **state)
{
	fault_wisdom(&fault, *state);
}

#define TESTS(devices)                                                            \
	{"context on " devices, test_context, NULL, NULL, devices},               \
		{"plan on " devices, test_plan, NULL, NULL, devices},             \
		{"exec on " devices, test_exec, NULL, NULL, devices},             \
		{"operations on " devices, test_operations, NULL, NULL, devices}, \
		{"copies on " devices, test_copies, NULL, NULL, devices},         \
		{"wisdom on " devices, test_wisdom, NULL, NULL, devices},

int main(void)
{
	const struct CMUnitTest processor[] = {TESTS("openmp")};
	const struct CMUnitTest opencl[] = {TESTS("opencl")};
	const struct hys_context_options options = {.struct_size = sizeof(options),
						    .devices = "opencl"};
	struct hys_context *context = NULL;
	struct hys_error error;
	int status = cmocka_run_group_tests_name("allocations, processor", processor, NULL, NULL);

	if (hys_context_create(&options, &context, &error) != HYS_OK) {
		print_message("no OpenCL device here: skipped: %s\n", error.message);
		return status;
	}
	hys_context_destroy(context);
	return status + cmocka_run_group_tests_name("allocations, OpenCL", opencl, NULL, NULL);
}
