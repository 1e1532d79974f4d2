/* hyscale/opencl.h without the backend: an OpenCL stream's events are cl_events
 * and pass through the seam as pointers. */
#ifdef HYS_WITH_OPENCL
#include "hyscale/opencl.h"
#else
/* Without OpenCL's headers: the same functions by the same calling convention. */
#include "hyscale/exec.h"
typedef uint32_t cl_uint;
typedef void *cl_event;
HYS_API hys_status hys_opencl_wait(struct hys_exec *exec, cl_uint count, const cl_event *events,
				   struct hys_error *error);
HYS_API hys_status hys_opencl_record(struct hys_exec *exec, cl_event *event,
				     struct hys_error *error);
#endif

#include <string.h>

#include "lane.h"

static hys_status check(const struct hys_exec *exec, const void *events, struct hys_error *error)
{
	const struct hys_plan *plan;
	hys_status status;

	if (!exec || !events)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				exec ? "the event's pointer" : "exec");
	plan = exec->plan;
	status = hys_context_check(plan->context, error);
	if (status != HYS_OK)
		return status;
	if (plan->device_count > 1 || strcmp(plan->devices[0]->backend->name, "opencl") != 0)
		return hys_fail(
			error, HYS_UNSUPPORTED, 0,
			"OpenCL events with a plan of %d devices, the first of %s: expected "
			"one device, of opencl",
			plan->device_count, plan->devices[0]->backend->name);
	return hys_exec_failure(exec, error);
}

/* Runs it in the lane's order, and returns when it has run: what the task
 * points to is the caller's. Enqueueing is all that there is to wait for. */
static hys_status run_now(struct hys_exec *exec, const struct hys_task *task,
			  struct hys_error *error)
{
	hys_status status = hys_exec_submit(exec, 0, task, error);

	hys_lane_drain(&exec->lanes[0]);
	return status == HYS_OK ? hys_exec_failure(exec, error) : status;
}

/* The event is in task->copy.host. */
static hys_status run_wait(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			   struct hys_error *error)
{
	return exec->plan->devices[lane]->backend->wait(exec->lanes[lane].stream, task->copy.host,
							error);
}

/* task->copy.host is where the event goes. */
static hys_status run_record(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			     struct hys_error *error)
{
	return exec->plan->devices[lane]->backend->record(exec->lanes[lane].stream,
							  (void **)task->copy.host, error);
}

hys_status hys_opencl_wait(struct hys_exec *exec, cl_uint count, const cl_event *events,
			   struct hys_error *error)
{
	hys_status status = check(exec, count ? (const void *)events : exec, error);

	for (cl_uint i = 0; status == HYS_OK && i < count; i++)
		if (!events[i])
			status = hys_fail(error, HYS_INVALID_ARGUMENT, 0, "events[%u] is NULL", i);
	for (cl_uint i = 0; status == HYS_OK && i < count; i++) {
		const struct hys_task task = {.run = run_wait, .copy = {.host = events[i]}};

		status = run_now(exec, &task, error);
	}
	return status;
}

hys_status hys_opencl_record(struct hys_exec *exec, cl_event *event, struct hys_error *error)
{
	void *made = NULL;
	const struct hys_task task = {.run = run_record, .copy = {.host = &made}};
	hys_status status = check(exec, event, error);

	if (status == HYS_OK)
		status = run_now(exec, &task, error);
	if (status == HYS_OK)
		*event = made;
	else if (made)
		exec->plan->devices[0]->backend->event_destroy(exec->plan->devices[0], made);
	return status;
}
