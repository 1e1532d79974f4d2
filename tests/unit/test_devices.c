/* Real kernels on several devices: the processor taken two and three times, and
 * with an OpenCL device where there is one, must compute what one device does. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_case.h"
#include "number.h"

#define DEVICES_MAX 3

static struct hys_context *context;

static int set_up(void **state)
{
	(void)state;
	return hys_context_create(NULL, &context, NULL) == HYS_OK ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	hys_context_destroy(context);
	return 0;
}

/* Uneven numbers: random ones would do, but these need no seed. */
static void fill(struct call_case *made)
{
	for (int32_t f = 0; f < made->fields->count; f++) {
		const struct hys_field *field = &made->fields->fields[f];
		struct hys_tensor *tensor = hys_field_tensor(field, &made->call.args);

		if (!hys_present(tensor) || (field->flags & HYS_FIELD_OUT) ||
		    tensor->dtype != HYS_F32)
			continue;
		for (int64_t i = 0; i < made->bytes[f] / 4; i++)
			((float *)tensor->host)[i] = sinf((float)(i * 37 + f * 11) * 0.7f);
	}
}

struct machine {
	struct hys_plan *plan;
	struct hys_exec *exec;
	struct hys_batch *batch;
};

static void open_machine(struct machine *machine, const int32_t *devices, int32_t count)
{
	const struct hys_problem problem = call_case_problem();
	struct hys_plan_options options = {
		.struct_size = sizeof(options),
		.devices = devices,
		.device_count = count,
		.rows_max = CASE_ROWS,
		.keys_max = CASE_KEYS,
		.window_keys_max = CASE_WINDOW_KEYS,
	};
	struct hys_error error = {HYS_OK, 0, ""};

	memset(machine, 0, sizeof(*machine));
	if (hys_plan_create(context, &problem, &options, &machine->plan, &error) != HYS_OK ||
	    hys_exec_create(machine->plan, NULL, &machine->exec, &error) != HYS_OK)
		fail_msg("%s", error.message);
	machine->batch = call_case_batch(machine->plan);
	assert_non_null(machine->batch);
}

static void close_machine(struct machine *machine)
{
	hys_batch_destroy(machine->batch);
	hys_exec_destroy(machine->exec);
	hys_plan_destroy(machine->plan);
}

static void run_on(const struct machine *machine, struct call_case *made, uint32_t flags)
{
	struct hys_error error = {HYS_OK, 0, ""};

	if (made->op == HYS_OP_ATTENTION_BACKWARD)
		made->call.args.attention_grad.flags = flags;
	if (made->op == HYS_OP_INDEXER_LOSS)
		made->call.args.loss.flags = flags;
	if (made->op == HYS_OP_POOL_BACKWARD)
		made->call.args.pool_grad.flags = flags;
	if (call_case_run(made, machine->exec, machine->batch, &error) != HYS_OK ||
	    hys_exec_finish(machine->exec, &error) != HYS_OK)
		fail_msg("%s: %s", hys_op_name(made->op), error.message);
}

/* Row outputs are the same bits when the device is; sums differ by rounding. */
static void compare(struct call_case *got, struct call_case *want, bool same_device)
{
	for (int32_t f = 0; f < got->fields->count; f++) {
		const struct hys_field *field = &got->fields->fields[f];
		const struct hys_tensor *a = hys_field_tensor(field, &got->call.args);
		const struct hys_tensor *b = hys_field_tensor(field, &want->call.args);
		const bool part = field->flags & HYS_FIELD_PARTIAL;

		if (!hys_present(a) || !(field->flags & HYS_FIELD_OUT))
			continue;
		for (int64_t i = 0; i < got->bytes[f] / 4; i++) {
			const double x = hys_number_load(a->host, a->dtype, i);
			const double y = hys_number_load(b->host, b->dtype, i);
			const double slack = same_device && !part ? 0 : 2e-5 * fmax(1, fabs(y));

			if (x != y && !(fabs(x - y) <= slack))
				fail_msg("%s: %s[%d] is %.9g, on one device %.9g",
					 hys_op_name(got->op), field->name, (int)i, x, y);
		}
	}
}

static void compare_devices(const int32_t *devices, int32_t count, bool same_device)
{
	const int32_t first = devices[0];
	struct machine one, several;

	open_machine(&one, &first, 1);
	open_machine(&several, devices, count);
	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		struct call_case want, got, again;

		call_case_make(&want, one.batch, (hys_op)op);
		call_case_make(&got, one.batch, (hys_op)op);
		call_case_make(&again, one.batch, (hys_op)op);
		fill(&want);
		fill(&got);
		fill(&again);
		run_on(&one, &want, 0);
		run_on(&several, &got, 0);
		compare(&got, &want, same_device);
		run_on(&several, &again, 0);
		assert_true(call_case_hash(&got) == call_case_hash(&again));
		if (op == HYS_OP_ATTENTION_BACKWARD || op == HYS_OP_INDEXER_LOSS ||
		    op == HYS_OP_POOL_BACKWARD) {
			run_on(&one, &want, HYS_GRAD_ACCUMULATE);
			run_on(&several, &got, HYS_GRAD_ACCUMULATE);
			compare(&got, &want, same_device);
		}
		call_case_clear(&want);
		call_case_clear(&got);
		call_case_clear(&again);
	}
	close_machine(&several);
	close_machine(&one);
}

static int32_t find(bool host_memory)
{
	for (int32_t i = 0; i < context->device_count; i++)
		if (context->devices[i]->host_memory == host_memory)
			return i;
	return -1;
}

static void test_processor_twice(void **state)
{
	const int32_t cpu = find(true);
	const int32_t devices[] = {cpu, cpu, cpu};

	(void)state;
	compare_devices(devices, 2, true);
	compare_devices(devices, 3, true);
}

static void test_processor_and_opencl(void **state)
{
	const int32_t devices[] = {find(true), find(false)};

	(void)state;
	if (devices[1] < 0)
		skip();
	compare_devices(devices, 2, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_processor_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_processor_and_opencl, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
