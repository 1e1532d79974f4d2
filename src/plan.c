/* Plans: made by planner.c, immutable, shared by reference. */
#include "core.h"

void hys_plan_retain(struct hys_plan *plan)
{
	atomic_fetch_add(&plan->references, 1);
}

/* In a forked child the driver is not to be touched: only host memory goes. */
static void destroy_programs(struct hys_plan *plan)
{
	for (int32_t i = 0; i < plan->device_count; i++)
		for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
			void *program = plan->choices[i * HYS_OP_COUNT + op].program;

			if (program)
				plan->devices[i]->backend->program_destroy(plan->devices[i],
									   program);
		}
}

void hys_plan_release(struct hys_plan *plan)
{
	const struct hys_allocator *allocator;
	struct hys_context *context;

	if (!plan || atomic_fetch_sub(&plan->references, 1) != 1)
		return;
	context = plan->context;
	allocator = &context->host.allocator;
	if (plan->choices && plan->devices && hys_context_check(context, NULL) == HYS_OK)
		destroy_programs(plan);
	hys_free(allocator, plan->devices);
	hys_free(allocator, plan->device_numbers);
	hys_free(allocator, plan->paces);
	hys_free(allocator, plan->shares);
	hys_free(allocator, plan->rows_most);
	hys_free(allocator, plan->choices);
	hys_free(allocator, plan);
	hys_context_release(context);
}

void hys_plan_destroy(struct hys_plan *plan)
{
	hys_plan_release(plan);
}

hys_status hys_plan_check(const struct hys_plan *plan, hys_op op, struct hys_error *error)
{
	hys_status status;

	if (!plan)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "plan is NULL");
	status = hys_context_check(plan->context, error);
	if (status != HYS_OK)
		return status;
	if ((unsigned)op >= HYS_OP_COUNT || !(plan->operations & HYS_OP_BIT(op)))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "op is %s, which is not planned",
				hys_op_name(op));
	return HYS_OK;
}

const struct hys_choice *hys_plan_choice(const struct hys_plan *plan, hys_op op, int32_t device)
{
	return &plan->choices[device * HYS_OP_COUNT + (int32_t)op];
}

struct hys_context *hys_plan_context(const struct hys_plan *plan)
{
	return plan ? plan->context : NULL;
}

struct hys_pace *hys_plan_pace(const struct hys_plan *plan, hys_op op, int32_t device)
{
	return &plan->paces[device * HYS_OP_COUNT + (int32_t)op];
}

double hys_plan_share(const struct hys_plan *plan, hys_op op, int32_t i)
{
	if (!plan || (unsigned)op >= HYS_OP_COUNT || i < 0 || i >= plan->device_count ||
	    !(plan->operations & HYS_OP_BIT(op)))
		return 0;
	return plan->device_count == 1 ? 1 : plan->shares[i * HYS_OP_COUNT + (int32_t)op];
}

const struct hys_problem *hys_plan_problem(const struct hys_plan *plan)
{
	return plan ? &plan->problem : NULL;
}

int32_t hys_plan_device_count(const struct hys_plan *plan)
{
	return plan ? plan->device_count : 0;
}

int32_t hys_plan_device(const struct hys_plan *plan, int32_t i)
{
	return plan && i >= 0 && i < plan->device_count ? plan->device_numbers[i] : -1;
}

const char *hys_plan_kernel(const struct hys_plan *plan, hys_op op, int32_t i)
{
	const struct hys_kernel *kernel;

	if (!plan || (unsigned)op >= HYS_OP_COUNT || i < 0 || i >= plan->device_count)
		return NULL;
	kernel = hys_plan_choice(plan, op, i)->kernel;
	return kernel ? kernel->name : NULL;
}
