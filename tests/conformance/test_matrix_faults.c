/* Control: the self-test refuses kernels on matrix units that differ from their documents, and
 * takes those that do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "emulated_units.h"

/* Of matrix_emulation.clh: all of them, and those that other units, and attention with the first
 * one, are tried with unless HYS_TEST_FULL asks for all: operands, depth, sums. */
static const int32_t all[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0};
static const int32_t few[] = {1, 2, 8, 0};

static const struct hys_problem problem = {
	.struct_size = sizeof(problem),
	.scoring = {.heads = 16, .dim = 32, .dtype = HYS_BF16},
	.choosing = {.topk_max = 100},
	.attending = {.heads = 16, .kv_heads = 1, .head_dim = 32, .dtype = HYS_BF16},
};

/* Plans with the row of the unit alone; answers the status and the message. */
static hys_status plan(const struct hys_ocl_unit *unit, int32_t fault, hys_op op,
		       struct hys_error *error)
{
	const struct hys_context_options wanted = {.struct_size = sizeof(wanted),
						   .devices = "opencl"};
	const int32_t device = 0;
	struct hys_plan_options options = {.struct_size = sizeof(options),
					   .operations = HYS_OP_BIT(op),
					   .devices = &device,
					   .device_count = 1,
					   .rows_max = 100,
					   .keys_max = 1000};
	struct hys_context *context = NULL;
	struct hys_plan *made = NULL;
	hys_status status = hys_context_create(&wanted, &context, error);

	if (status == HYS_OK) {
		emulate_unit(context, unit, fault);
		for (int32_t i = 0; i < context->devices[0]->backend->kernel_count; i++)
			if (context->devices[0]->backend->kernels[i].op == op)
				options.kernels = context->devices[0]->backend->kernels[i].name;
		status = hys_plan_create(context, &problem, &options, &made, error);
	}
	hys_plan_destroy(made);
	hys_context_destroy(context);
	return status;
}

static void expect_refused(const struct hys_ocl_unit *unit, int32_t fault, hys_op op)
{
	struct hys_error error = {HYS_OK, 0, ""};

	if (plan(unit, fault, op, &error) == HYS_OK)
		fail_msg("%s of %s: fault %d is not noticed", hys_op_name(op), unit->name, fault);
	if (!strstr(error.message, "failed its self-test"))
		fail_msg("%s of %s, fault %d: %s", hys_op_name(op), unit->name, fault,
			 error.message);
}

static void try_faults(const struct hys_ocl_unit *unit, hys_op op)
{
	struct hys_error error = {HYS_OK, 0, ""};
	const bool every =
		getenv("HYS_TEST_FULL") || (unit == hys_ocl_units && op == HYS_OP_SELECT);

	if (plan(unit, 0, op, &error) != HYS_OK)
		fail_msg("%s: %s", unit->name, error.message);
	for (const int32_t *fault = every ? all : few; *fault; fault++)
		expect_refused(unit, *fault, op);
}

static void select_faults(void **state)
{
	try_faults(*state, HYS_OP_SELECT);
}

static void forward_faults(void **state)
{
	try_faults(*state, HYS_OP_ATTENTION_FORWARD);
}

static void backward_faults(void **state)
{
	try_faults(*state, HYS_OP_ATTENTION_BACKWARD);
}

static bool has_opencl(void)
{
	const struct hys_context_options wanted = {.struct_size = sizeof(wanted),
						   .devices = "opencl"};
	struct hys_context *context = NULL;
	const bool found = hys_context_create(&wanted, &context, NULL) == HYS_OK;

	hys_context_destroy(context);
	return found;
}

int main(void)
{
	struct CMUnitTest tests[16];
	size_t count = 0;

	if (!has_opencl()) {
		print_message("no OpenCL device here\n");
		return 77;
	}
	for (int32_t i = 0; i < hys_ocl_unit_count; i++) {
		void *unit = (void *)(uintptr_t)&hys_ocl_units[i];

		if (!hys_ocl_units[i].f16)
			continue; /* gfx90a's differs in what is refused alone */
		tests[count++] = (struct CMUnitTest){
			.name = "select", .test_func = select_faults, .initial_state = unit};
		if (i == 0 || getenv("HYS_TEST_FULL"))
			tests[count++] = (struct CMUnitTest){.name = "attention_forward",
							     .test_func = forward_faults,
							     .initial_state = unit};
		if (i == 0)
			tests[count++] = (struct CMUnitTest){.name = "attention_backward",
							     .test_func = backward_faults,
							     .initial_state = unit};
	}
	return _cmocka_run_group_tests("matrix_faults", tests, count, NULL, NULL);
}
