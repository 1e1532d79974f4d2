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

static void open_machine(struct machine *machine, const int32_t *devices, int32_t count,
			 uint32_t flags)
{
	const struct hys_problem problem = call_case_problem();
	struct hys_plan_options options = {
		.struct_size = sizeof(options),
		.flags = flags,
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

static void compare_devices(const int32_t *devices, int32_t count, bool same_device, uint32_t flags)
{
	const int32_t first = devices[0];
	struct machine one, several;

	open_machine(&one, &first, 1, 0);
	open_machine(&several, devices, count, flags);
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
		if (!(flags & HYS_PLAN_GUIDED))
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
	compare_devices(devices, 2, true, 0);
	compare_devices(devices, 3, true, HYS_PLAN_EQUAL);
	compare_devices(devices, 3, true, HYS_PLAN_GUIDED);
}

static void test_processor_and_opencl(void **state)
{
	const int32_t devices[] = {find(true), find(false)};

	(void)state;
	if (devices[1] < 0)
		skip();
	compare_devices(devices, 2, false, 0);
	compare_devices(devices, 2, false, HYS_PLAN_EQUAL);
	compare_devices(devices, 2, false, HYS_PLAN_GUIDED);
}

/* ---- buffers on all devices ---- */

/* Inputs into replicated buffers, outputs out of them, around one call. */
static void run_replicated(const struct machine *machine, struct call_case *made)
{
	struct hys_buffer *buffers[HYS_FIELDS_MAX] = {NULL};
	struct hys_tensor host[HYS_FIELDS_MAX];

	for (int32_t f = 0; f < made->fields->count; f++) {
		struct hys_tensor *tensor =
			hys_field_tensor(&made->fields->fields[f], &made->call.args);

		host[f] = *tensor;
		if (!hys_present(tensor))
			continue;
		assert_int_equal(
			hys_buffer_replicate(machine->plan, made->bytes[f], &buffers[f], NULL),
			HYS_OK);
		hys_buffer_write(machine->exec, buffers[f], 0, tensor->host, made->bytes[f], NULL);
		*tensor = hys_device(buffers[f], 0, tensor->dtype, tensor->rank, tensor->shape[0],
				     tensor->shape[1], tensor->shape[2]);
	}
	run_on(machine, made, 0);
	for (int32_t f = 0; f < made->fields->count; f++) {
		const struct hys_field *field = &made->fields->fields[f];
		struct hys_tensor *tensor = hys_field_tensor(field, &made->call.args);

		if (buffers[f] && (field->flags & HYS_FIELD_PARTIAL))
			hys_buffer_read(machine->exec, buffers[f], 0, host[f].host, made->bytes[f],
					NULL);
		else if (buffers[f] && (field->flags & HYS_FIELD_OUT))
			hys_rows_read(machine->exec, machine->batch, tensor, 0, CASE_ROWS,
				      host[f].host, NULL);
		assert_int_equal(hys_exec_finish(machine->exec, NULL), HYS_OK);
		*tensor = host[f];
		hys_buffer_destroy(buffers[f]);
	}
}

static void compare_replicated(const int32_t *devices, int32_t count, bool same_device)
{
	static const hys_op ops[] = {HYS_OP_SELECT, HYS_OP_ATTENTION_FORWARD,
				     HYS_OP_ATTENTION_BACKWARD, HYS_OP_INDEXER_LOSS};
	struct machine one, several;

	open_machine(&one, devices, 1, 0);
	open_machine(&several, devices, count, 0);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct call_case want, got, again;

		call_case_make(&want, one.batch, ops[i]);
		call_case_make(&got, one.batch, ops[i]);
		call_case_make(&again, one.batch, ops[i]);
		fill(&want);
		fill(&got);
		fill(&again);
		if (ops[i] == HYS_OP_INDEXER_LOSS)
			want.call.args.loss.divisor = got.call.args.loss.divisor =
				again.call.args.loss.divisor = 2 * CASE_ROWS;
		run_on(&one, &want, 0);
		run_replicated(&several, &got);
		run_replicated(&several, &again);
		compare(&got, &want, same_device);
		assert_true(call_case_hash(&got) == call_case_hash(&again));
		call_case_clear(&want);
		call_case_clear(&got);
		call_case_clear(&again);
	}
	close_machine(&several);
	close_machine(&one);
}

static void test_replicated(void **state)
{
	const int32_t cpu = find(true), other = find(false);
	const int32_t twice[] = {cpu, cpu, cpu}, both[] = {cpu, other}, gpus[] = {other, other};

	(void)state;
	compare_replicated(twice, 3, true);
	if (other < 0)
		skip();
	compare_replicated(both, 2, false);
	compare_replicated(gpus, 2, true);
}

/* ---- what calls took ---- */

static void test_rebalance(void **state)
{
	const int32_t cpu = find(true);
	const int32_t devices[] = {cpu, cpu};
	struct hys_exec_report report = {.struct_size = sizeof(report)};
	struct hys_plan *plan = NULL;
	struct machine machine;
	struct call_case made;
	double first;

	(void)state;
	open_machine(&machine, devices, 2, 0);
	for (int32_t i = 0; i < 2; i++)
		*hys_plan_pace(machine.plan, HYS_OP_MERGE, i) = (struct hys_pace){.row_s = 1};
	call_case_make(&made, machine.batch, HYS_OP_MERGE);
	run_on(&machine, &made, 0);
	assert_int_equal(hys_exec_report(machine.exec, HYS_OP_MERGE, 0, &report, NULL), HYS_OK);
	assert_int_equal(report.calls, 1);
	assert_true(report.rows > 0 && report.rows < CASE_ROWS && !report.dropped);
	assert_true(report.busy_s > 0 && report.foretold_s == (double)report.rows);
	assert_true(machine.exec->lanes[0].tallies[HYS_OP_MERGE].weight == (double)report.rows);
	/* The second took three times as long as the first. */
	for (int32_t i = 0; i < 2; i++) {
		machine.exec->lanes[i].tallies[HYS_OP_MERGE].busy_s = 1 + 2 * i;
		machine.exec->lanes[i].tallies[HYS_OP_MERGE].foretold_s = 1;
	}
	assert_int_equal(hys_plan_rebalance(machine.exec, &plan, NULL), HYS_OK);
	first = hys_plan_pace(plan, HYS_OP_MERGE, 0)->row_s;
	assert_true(hys_plan_pace(plan, HYS_OP_MERGE, 1)->row_s == 3 * first);
	assert_true(hys_plan_share(plan, HYS_OP_MERGE, 0) > hys_plan_share(plan, HYS_OP_MERGE, 1));
	assert_string_equal(hys_plan_kernel(plan, HYS_OP_MERGE, 1),
			    hys_plan_kernel(machine.plan, HYS_OP_MERGE, 1));
	hys_plan_destroy(plan);
	call_case_clear(&made);
	close_machine(&machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_processor_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_processor_and_opencl, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_replicated, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_rebalance, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
