/* Programs of the kernels that a plan will probably take. Where building one takes seconds they are built beside each
 * other, while kernels are chosen and tested one by one. */
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "planner.h"

struct hys_build {
	const struct hys_kernel *kernel; /* NULL = none, or taken */
	struct hys_device *device;
	const struct hys_problem *problem;
	pthread_t thread;
	void *program;
	hys_status status;
	struct hys_error error;
};

static void *build_main(void *argument)
{
	struct hys_build *build = argument;

	build->status = build->device->backend->program_create(
		build->device, build->kernel, build->problem, &build->program, &build->error);
	return NULL;
}

/* The application's signals are the business of its own threads. */
static bool start(struct hys_build *build)
{
	sigset_t all, before;
	int code;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = pthread_create(&build->thread, NULL, build_main, build);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code == 0;
}

static bool is_long(const struct hys_plan *plan)
{
	for (int32_t i = 0; i < plan->device_count; i++)
		if (plan->devices[i]->builds_long)
			return true;
	return false;
}

void hys_builds_start(struct hys_picker *picker)
{
	struct hys_plan *plan = picker->plan;
	const int64_t count = (int64_t)plan->device_count * HYS_OP_COUNT;
	struct hys_build *builds;

	if (picker->wish->effort == HYS_EFFORT_MEASURE || !is_long(plan))
		return;
	builds = hys_alloc_array(&picker->context->host.allocator, count, sizeof(*builds));
	picker->builds = builds; /* NULL: each is built when it is its turn */
	for (int64_t i = 0; builds && i < count; i++) {
		const int32_t device = (int32_t)(i / HYS_OP_COUNT);
		const hys_op op = (hys_op)(i % HYS_OP_COUNT);

		if (!(plan->operations & HYS_OP_BIT(op)) || !plan->devices[device]->builds_long)
			continue;
		builds[i].kernel = hys_pick_likely(picker, op, device);
		builds[i].device = plan->devices[device];
		builds[i].problem = &plan->problem;
		if (builds[i].kernel && !start(&builds[i]))
			builds[i].kernel = NULL;
	}
}

hys_status hys_builds_take(struct hys_picker *picker, hys_op op, int32_t device,
			   const struct hys_kernel *kernel, void **program, struct hys_error *error)
{
	struct hys_device *own = picker->plan->devices[device];
	struct hys_build *build =
		picker->builds ? &picker->builds[device * HYS_OP_COUNT + (int32_t)op] : NULL;

	if (!build || build->kernel != kernel)
		return own->backend->program_create(own, kernel, &picker->plan->problem, program,
						    error);
	pthread_join(build->thread, NULL);
	build->kernel = NULL;
	*program = build->program;
	*error = build->error;
	return build->status;
}

void hys_builds_clear(struct hys_picker *picker)
{
	if (!picker->builds)
		return;
	for (int64_t i = 0; i < (int64_t)picker->plan->device_count * HYS_OP_COUNT; i++) {
		struct hys_build *build = &picker->builds[i];

		if (!build->kernel)
			continue;
		pthread_join(build->thread, NULL);
		if (build->program)
			build->device->backend->program_destroy(build->device, build->program);
	}
	hys_free(&picker->context->host.allocator, picker->builds);
	picker->builds = NULL;
}
