/* From a problem and options to a plan. */
#include "planner.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SPLIT_FLAGS (HYS_PLAN_GUIDED | HYS_PLAN_EQUAL)
#define KNOWN_FLAGS (HYS_PLAN_BUFFERS_ONLY | HYS_PLAN_NO_SELF_TEST | SPLIT_FLAGS)
#define KNOWN_OPERATIONS (HYS_OP_BIT(HYS_OP_COUNT) - 1)

/* ---- what a problem can do ---- */

/* What an index means must be the same to the scores and to the teacher. */
static const char *loss_lacks(const struct hys_problem *problem)
{
	if (problem->scoring.heads == 0)
		return "scoring.heads is 0";
	if (problem->attending.heads == 0)
		return "attending.heads is 0";
	if (problem->scoring.dtype == HYS_F8E4M3)
		return "scoring.dtype is f8e4m3";
	if (problem->scoring.pool == 1 && problem->scoring.block != problem->attending.granularity)
		return "attending.granularity differs from scoring.block";
	if (problem->scoring.pool > 1 && problem->scoring.block > 1)
		return "scoring.block is above 1 with pooled keys";
	return NULL;
}

const char *hys_problem_lacks(const struct hys_problem *problem, hys_op op)
{
	const bool scores = problem->scoring.heads > 0, coarse = problem->choosing.coarse_block > 0;

	switch (op) {
	case HYS_OP_SELECT:
		return scores ? NULL : "scoring.heads is 0";
	case HYS_OP_SELECT_COARSE:
	case HYS_OP_SELECT_COARSE_TO_FINE:
		if (!scores)
			return "scoring.heads is 0";
		return coarse ? NULL : "choosing.coarse_block is 0";
	case HYS_OP_INDEXER_LOSS:
		return loss_lacks(problem);
	case HYS_OP_POOL:
	case HYS_OP_POOL_BACKWARD:
		return problem->scoring.pool > 1 || coarse
			       ? NULL
			       : "scoring.pool is 1 and choosing.coarse_block is 0";
	default:
		return problem->attending.heads > 0 ? NULL : "attending.heads is 0";
	}
}

uint32_t hys_problem_operations(const struct hys_problem *problem)
{
	uint32_t operations = 0;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		if (!hys_problem_lacks(problem, (hys_op)op))
			operations |= HYS_OP_BIT(op);
	return operations;
}

/* ---- options ---- */

static hys_status check_operations(const struct hys_wish *wish, struct hys_error *error)
{
	if (wish->operations & ~KNOWN_OPERATIONS)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"options.operations is 0x%x, known are 0x%x", wish->operations,
				KNOWN_OPERATIONS);
	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		const char *lacks = hys_problem_lacks(&wish->problem, (hys_op)op);

		if ((wish->operations & HYS_OP_BIT(op)) && lacks)
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"options.operations has %s, which the problem does not "
					"allow: %s",
					hys_op_name((hys_op)op), lacks);
	}
	if (wish->operations == 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"the problem has no operation: scoring.heads and attending.heads "
				"are 0");
	return HYS_OK;
}

static hys_status check_wish(const struct hys_context *context, const struct hys_wish *wish,
			     struct hys_error *error)
{
	hys_status status;

	HYS_TRY(check_operations(wish, error));
	if (wish->flags & ~KNOWN_FLAGS)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"options.flags is 0x%x, known are 0x%x", wish->flags, KNOWN_FLAGS);
	/* Indices are int32. */
	HYS_TRY(hys_check_range(error, "options.rows_max", wish->rows_max, 1, INT32_MAX));
	HYS_TRY(hys_check_range(error, "options.keys_max", wish->keys_max, 1, INT32_MAX));
	HYS_TRY(hys_check_range(error, "options.window_keys_max", wish->window_keys_max, 0,
				INT32_MAX));
	HYS_TRY(hys_check_range(error, "options.effort", wish->effort, HYS_EFFORT_ESTIMATE,
				HYS_EFFORT_MEASURE));
	HYS_TRY(hys_check_range(error, "options.memory_limit_bytes", wish->memory_limit_bytes, 0,
				INT64_MAX));
	HYS_TRY(hys_check_range(error, "options.device_count", wish->device_count, 1,
				HYS_PLAN_DEVICES_MAX));
	for (int32_t i = 0; i < wish->device_count; i++)
		HYS_TRY(hys_check_range(error, "a number in options.devices", wish->devices[i], 0,
					context->device_count - 1));
	if ((wish->flags & SPLIT_FLAGS) == SPLIT_FLAGS)
		return hys_fail(
			error, HYS_INVALID_ARGUMENT, 0,
			"options.flags has HYS_PLAN_GUIDED and HYS_PLAN_EQUAL, expected one "
			"of them");
cleanup:
	return status;
}

static const struct hys_kernel *find_kernel(const struct hys_backend *backend, const char *name,
					    size_t length)
{
	for (int32_t i = 0; i < backend->kernel_count; i++) {
		const char *known = backend->kernels[i].name;

		if (strlen(known) == length && strncmp(known, name, length) == 0)
			return &backend->kernels[i];
	}
	return NULL;
}

/* What is asked for by name must exist, and when its operation is planned some device of the plan
 * must have it: it is used or refused. Names of other operations may stand in a list that serves
 * several plans. */
static hys_status check_name(const struct hys_plan *plan, const char *name, size_t length,
			     struct hys_error *error)
{
	const int shown = (int)hys_min64((int64_t)length, 80);
	const struct hys_kernel *kernel = NULL;
	const struct hys_backend *backend;

	for (int32_t b = 0; !kernel && (backend = hys_backend_at(b)); b++)
		kernel = find_kernel(backend, name, length);
	if (!kernel)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"options.kernels has \"%.*s\", which is no kernel's name; "
				"hys_plan_describe and hyscale plan list them",
				shown, name);
	if (!(plan->operations & HYS_OP_BIT(kernel->op)))
		return HYS_OK;
	for (int32_t d = 0; d < plan->device_count; d++)
		if (find_kernel(plan->devices[d]->backend, name, length))
			return HYS_OK;
	return hys_fail(error, HYS_UNSUPPORTED, 0,
			"options.kernels has \"%.*s\", which no device of the plan has", shown,
			name);
}

static hys_status check_kernels(const struct hys_plan *plan, const char *list,
				struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (const char *at = list; at && *at;) {
		const size_t length = strcspn(at, ",");

		HYS_TRY(check_name(plan, at, length, error));
		at += length;
		at += *at == ',';
	}
cleanup:
	return status;
}

static hys_status read_devices(struct hys_wish *wish, const struct hys_plan_options *options,
			       struct hys_error *error)
{
	const int32_t count = options->device_count;
	hys_status status;

	if (options->devices) {
		HYS_TRY(hys_check_range(error, "options.device_count", count, 1,
					HYS_PLAN_DEVICES_MAX));
		memcpy(wish->devices, options->devices, (size_t)count * sizeof(*wish->devices));
	} else {
		HYS_TRY(hys_check_range(error, "options.device_count (devices is NULL)", count, 0,
					1));
	}
	wish->device_count = count > 0 ? count : 1;
	status = HYS_OK;
cleanup:
	return status;
}

static hys_status read_options(struct hys_wish *wish, const struct hys_problem *problem,
			       const struct hys_plan_options *options, struct hys_error *error)
{
	hys_status status;

	HYS_TRY(hys_check_struct(problem, sizeof(*problem), "problem", error));
	HYS_TRY(hys_check_struct(options, sizeof(*options), "options", error));
	wish->problem = *problem;
	wish->problem.struct_size = sizeof(wish->problem);
	HYS_TRY(hys_problem_complete(&wish->problem, error));
	wish->operations =
		options->operations ? options->operations : hys_problem_operations(&wish->problem);
	wish->flags = options->flags;
	wish->rows_max = options->rows_max;
	wish->keys_max = options->keys_max;
	wish->window_keys_max = options->window_keys_max;
	wish->memory_limit_bytes = options->memory_limit_bytes;
	wish->effort = options->effort;
	wish->kernels = options->kernels;
	wish->progress = options->progress;
	wish->progress_user = options->progress_user;
	HYS_TRY(read_devices(wish, options, error));
cleanup:
	return status;
}

/* ---- making ---- */

static hys_status allocate(struct hys_context *context, const struct hys_wish *wish,
			   struct hys_plan **plan, struct hys_error *error)
{
	const struct hys_allocator *allocator = &context->host.allocator;
	const int64_t count = wish->device_count;
	struct hys_plan *made = hys_alloc(allocator, sizeof(*made));

	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a plan");
	hys_context_retain(context);
	made->context = context;
	atomic_init(&made->references, 1);
	made->devices = hys_alloc_array(allocator, count, sizeof(*made->devices));
	made->device_numbers = hys_alloc_array(allocator, count, sizeof(*made->device_numbers));
	made->paces = hys_alloc_array(allocator, count * HYS_OP_COUNT, sizeof(*made->paces));
	made->shares = hys_alloc_array(allocator, count * HYS_OP_COUNT, sizeof(*made->shares));
	made->rows_most = hys_alloc_array(allocator, count, sizeof(*made->rows_most));
	made->choices = hys_alloc_array(allocator, count * HYS_OP_COUNT, sizeof(*made->choices));
	if (!made->devices || !made->device_numbers || !made->paces || !made->shares ||
	    !made->rows_most || !made->choices) {
		hys_plan_release(made);
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a plan");
	}
	*plan = made;
	return HYS_OK;
}

static void take_over(struct hys_plan *plan, const struct hys_wish *wish)
{
	plan->problem = wish->problem;
	plan->operations = wish->operations;
	plan->flags = wish->flags;
	plan->rows_max = wish->rows_max;
	plan->keys_max = wish->keys_max;
	plan->window_keys_max = wish->window_keys_max;
	plan->memory_limit_bytes = wish->memory_limit_bytes;
	plan->effort = wish->effort;
	plan->split = wish->flags & HYS_PLAN_GUIDED  ? HYS_SPLIT_GUIDED
		      : wish->flags & HYS_PLAN_EQUAL ? HYS_SPLIT_EQUAL
						     : HYS_SPLIT_STATIC;
	plan->device_count = wish->device_count;
	plan->pace_source = "unknown";
	for (int32_t i = 0; i < wish->device_count; i++) {
		plan->device_numbers[i] = wish->devices[i];
		plan->devices[i] = plan->context->devices[wish->devices[i]];
		plan->rows_most[i] = plan->rows_max;
	}
}

static int32_t count_steps(const struct hys_plan *plan, const struct hys_wish *wish)
{
	return plan->device_count * hys_count_operations(plan->operations) +
	       hys_plan_pace_steps(plan, wish);
}

static hys_status report(const struct hys_picker *picker, int32_t step, const char *what,
			 struct hys_error *error)
{
	const struct hys_wish *wish = picker->wish;

	if (!wish->progress || wish->progress(wish->progress_user, step, picker->steps, what) == 0)
		return HYS_OK;
	return hys_fail(error, HYS_CANCELLED, 0, "stopped by options.progress at step %d of %d: %s",
			step, picker->steps, what);
}

hys_status hys_picker_next(struct hys_picker *picker, struct hys_error *error, const char *format,
			   ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(picker->doing, sizeof(picker->doing), format, arguments);
	va_end(arguments);
	return report(picker, picker->step++, picker->doing, error);
}

hys_status hys_picker_go_on(const struct hys_picker *picker, struct hys_error *error)
{
	return report(picker, picker->step - 1, picker->doing, error);
}

static hys_status pick_all(struct hys_picker *picker, struct hys_error *error)
{
	struct hys_plan *plan = picker->plan;
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < plan->device_count; i++)
		for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
			if (!(plan->operations & HYS_OP_BIT(op)))
				continue;
			HYS_TRY(hys_picker_next(picker, error, "%s on %s", hys_op_name((hys_op)op),
						plan->devices[i]->info.name));
			HYS_TRY(hys_pick_kernel(picker, (hys_op)op, i, error));
		}
cleanup:
	return status;
}

hys_status hys_plan_make(struct hys_context *context, const struct hys_wish *wish,
			 struct hys_plan **plan, struct hys_error *error)
{
	struct hys_picker picker = {.context = context, .wish = wish};
	struct hys_plan *made = NULL;
	hys_status status;

	HYS_TRY(check_wish(context, wish, error));
	HYS_TRY(allocate(context, wish, &made, error));
	take_over(made, wish);
	HYS_TRY(check_kernels(made, wish->kernels, error));
	picker.plan = made;
	picker.problem_hash = hys_problem_hash(&made->problem);
	picker.steps = count_steps(made, wish);
	hys_builds_start(&picker);
	HYS_TRY(pick_all(&picker, error));
	if (made->device_count > 1)
		HYS_TRY(hys_plan_pace_devices(&picker, error));
	HYS_TRY(report(&picker, picker.steps, "done", error));
	*plan = made;
	made = NULL;
cleanup:
	hys_builds_clear(&picker);
	hys_picker_clear(&picker);
	hys_plan_release(made);
	return status;
}

hys_status hys_plan_create(struct hys_context *context, const struct hys_problem *problem,
			   const struct hys_plan_options *options, struct hys_plan **plan,
			   struct hys_error *error)
{
	struct hys_wish wish = {.problem = {0}};
	hys_status status;

	if (!plan || !context)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				context ? "plan" : "context");
	HYS_TRY(hys_context_check(context, error));
	HYS_TRY(read_options(&wish, problem, options, error));
	HYS_TRY(hys_plan_make(context, &wish, plan, error));
cleanup:
	return status;
}
