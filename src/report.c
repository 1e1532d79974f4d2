/* What calls of several devices took, and plans that learn from it. */
#include <string.h>

#include "planner.h"

static hys_status check_report(const struct hys_exec *exec, hys_op op, int32_t i,
			       const struct hys_exec_report *report, struct hys_error *error)
{
	hys_status status;

	if (!exec)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "exec is NULL");
	HYS_TRY(hys_plan_check(exec->plan, op, error));
	HYS_TRY(hys_check_range(error, "device", i, 0, exec->plan->device_count - 1));
	if (!report || report->struct_size < sizeof(*report))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"report is NULL or its struct_size below %zu", sizeof(*report));
cleanup:
	return status;
}

hys_status hys_exec_report(const struct hys_exec *exec, hys_op op, int32_t i,
			   struct hys_exec_report *report, struct hys_error *error)
{
	const struct hys_tally *tally;
	const struct hys_lane *lane;
	hys_status status = check_report(exec, op, i, report, error);

	if (status != HYS_OK)
		return status;
	lane = &exec->lanes[i];
	tally = &lane->tallies[op];
	report->calls = tally->calls;
	report->rows = tally->rows;
	report->busy_s = tally->busy_s;
	report->foretold_s = tally->foretold_s;
	report->dropped = atomic_load(&lane->dropped) != 0;
	report->reason[0] = '\0';
	if (report->dropped)
		memcpy(report->reason, lane->drop.message, sizeof(report->reason));
	return HYS_OK;
}

/* ---- another plan ---- */

struct rebalance {
	struct hys_wish wish;
	struct hys_pace paces[HYS_PLAN_DEVICES_MAX][HYS_OP_COUNT];
	char names[HYS_PLAN_DEVICES_MAX][HYS_OP_COUNT][HYS_KERNEL_NAME_MAX];
};

static void correct(const struct hys_exec *exec, struct rebalance *made, int32_t i, hys_op op)
{
	const struct hys_tally *tally = &exec->lanes[i].tallies[op];
	const char *name = hys_plan_kernel(exec->plan, op, i);
	struct hys_pace *pace = &made->paces[i][op];
	double factor;

	*pace = *hys_plan_pace(exec->plan, op, i);
	if (name)
		strncpy(made->names[i][op], name, HYS_KERNEL_NAME_MAX - 1);
	if (!(tally->foretold_s > 0) || !(tally->busy_s > 0))
		return;
	factor = tally->busy_s / tally->foretold_s;
	pace->call_s *= factor;
	pace->row_s *= factor;
	pace->flop_s *= factor;
	pace->byte_s *= factor;
}

static void take(const struct hys_exec *exec, struct rebalance *made)
{
	const struct hys_plan *plan = exec->plan;
	struct hys_wish *wish = &made->wish;

	wish->problem = plan->problem;
	wish->operations = plan->operations;
	wish->flags = plan->flags | HYS_PLAN_NO_SELF_TEST;
	wish->rows_max = plan->rows_max;
	wish->keys_max = plan->keys_max;
	wish->window_keys_max = plan->window_keys_max;
	wish->memory_limit_bytes = plan->memory_limit_bytes;
	wish->effort = plan->effort;
	wish->device_count = plan->device_count;
	for (int32_t i = 0; i < plan->device_count; i++) {
		wish->devices[i] = plan->device_numbers[i];
		wish->rows_most[i] = plan->rows_most[i];
		for (int32_t op = 0; op < HYS_OP_COUNT; op++)
			correct(exec, made, i, (hys_op)op);
	}
	wish->paces = (const struct hys_pace(*)[HYS_OP_COUNT])made->paces;
	wish->names = (const char(*)[HYS_OP_COUNT][HYS_KERNEL_NAME_MAX])made->names;
}

hys_status hys_plan_rebalance(const struct hys_exec *exec, struct hys_plan **plan,
			      struct hys_error *error)
{
	struct rebalance *made;
	hys_status status;

	if (!exec || !plan)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				exec ? "plan" : "exec");
	status = hys_context_check(exec->plan->context, error);
	if (status != HYS_OK)
		return status;
	if (exec->plan->device_count < 2 || exec->plan->split == HYS_SPLIT_EQUAL)
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"the exec's plan has %d devices%s, expected several and shares by "
				"speed",
				exec->plan->device_count,
				exec->plan->device_count > 1 ? " and HYS_PLAN_EQUAL" : "");
	made = hys_alloc(&exec->plan->context->host.allocator, sizeof(*made));
	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a plan");
	take(exec, made);
	status = hys_plan_make(exec->plan->context, &made->wish, plan, error);
	if (status == HYS_OK)
		(*plan)->flags = exec->plan->flags;
	hys_free(&exec->plan->context->host.allocator, made);
	return status;
}
