#include "lane.h"
#include "trace.h"

static void destroy_natives(struct hys_event *event)
{
	for (int32_t i = 0; i < event->count; i++) {
		struct hys_event_lane *lane = &event->lanes[i];

		if (lane->native)
			lane->device->backend->event_destroy(lane->device, lane->native);
	}
}

static void release_event(struct hys_event *event)
{
	struct hys_plan *plan = event->plan;
	const struct hys_allocator *allocator = &plan->context->host.allocator;

	if (atomic_fetch_sub_explicit(&event->references, 1, memory_order_acq_rel) != 1)
		return;
	if (hys_context_check(plan->context, NULL) == HYS_OK)
		destroy_natives(event);
	for (int32_t i = 0; i < event->count; i++)
		sem_destroy(&event->lanes[i].recorded);
	hys_free(allocator, event->lanes);
	hys_free(allocator, event);
	hys_plan_release(plan);
}

static void retain_event(struct hys_event *event)
{
	atomic_fetch_add_explicit(&event->references, 1, memory_order_relaxed);
}

static struct hys_event *make_event(struct hys_plan *plan)
{
	const struct hys_allocator *allocator = &plan->context->host.allocator;
	struct hys_event *event = hys_alloc(allocator, sizeof(*event));
	struct hys_event_lane *lanes =
		hys_alloc_array(allocator, plan->device_count, sizeof(*lanes));

	if (!event || !lanes) {
		hys_free(allocator, event);
		hys_free(allocator, lanes);
		return NULL;
	}
	hys_plan_retain(plan);
	event->plan = plan;
	event->lanes = lanes;
	atomic_init(&event->references, 1);
	for (; event->count < plan->device_count; event->count++) {
		lanes[event->count].device = plan->devices[event->count];
		if (sem_init(&lanes[event->count].recorded, 0, 0) != 0) {
			release_event(event);
			return NULL;
		}
	}
	return event;
}

/* ---- record ---- */

/* Others wait for this: it always ends in `recorded`. */
static hys_status run_record(struct hys_exec *exec, int32_t index, const struct hys_task *task,
			     struct hys_error *error)
{
	struct hys_event_lane *lane = &task->event->lanes[index];
	const struct hys_backend *backend = lane->device->backend;
	struct hys_stream *stream = exec->lanes[index].stream;
	hys_status status = HYS_OK;

	/* What a dropped device had to do was done by others. */
	if (!atomic_load(&exec->lanes[index].dropped))
		status = backend->record(stream, &lane->native, error);

	sem_post(&lane->recorded);
	release_event(task->event);
	return status;
}

static hys_status check_exec(const struct hys_exec *exec, const void *event,
			     struct hys_error *error)
{
	hys_status status;

	if (!exec || !event)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				exec ? "event" : "exec");
	status = hys_context_check(exec->plan->context, error);
	return status == HYS_OK ? hys_exec_failure(exec, error) : status;
}

hys_status hys_exec_record(struct hys_exec *exec, struct hys_event **event, struct hys_error *error)
{
	struct hys_task task = {.run = run_record, .always = true};
	hys_status status = check_exec(exec, event, error);

	if (status != HYS_OK)
		return status;
	task.event = make_event(exec->plan);
	if (!task.event)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for an event");
	for (int32_t i = 0; i < task.event->count; i++) {
		hys_status submitted;

		retain_event(task.event);
		submitted = hys_exec_submit(exec, i, &task, error);
		status = status == HYS_OK ? submitted : status;
	}
	if (status == HYS_OK)
		*event = task.event;
	else
		release_event(task.event);
	return status;
}

/* ---- wait ---- */

static void await_record(struct hys_event_lane *lane)
{
	hys_semaphore_wait(&lane->recorded);
	sem_post(&lane->recorded); /* for the next who waits */
}

static hys_status wait_here(struct hys_event_lane *lane, struct hys_error *error)
{
	await_record(lane);
	if (!lane->native)
		return HYS_OK;
	return lane->device->backend->event_wait(lane->device, lane->native, error);
}

/* A stream waits for an event of its own backend; for another backend's this
 * lane's thread does, or the caller's when the lane has none. */
static hys_status run_wait(struct hys_exec *exec, int32_t index, const struct hys_task *task,
			   struct hys_error *error)
{
	const struct hys_backend *backend = exec->plan->devices[index]->backend;
	const double begun = hys_trace_begin(exec, index);
	bool skip = hys_exec_failure(exec, NULL) != HYS_OK;
	hys_status status = HYS_OK;

	for (int32_t i = 0; !skip && status == HYS_OK && i < task->event->count; i++) {
		struct hys_event_lane *lane = &task->event->lanes[i];

		if (lane->device->backend != backend) {
			status = wait_here(lane, error);
			continue;
		}
		await_record(lane);
		if (lane->native)
			status = backend->wait(exec->lanes[index].stream, lane->native, error);
	}
	if (status == HYS_OK)
		hys_trace_note(exec, index, "wait", NULL, begun);
	release_event(task->event);
	return status;
}

hys_status hys_exec_wait(struct hys_exec *exec, struct hys_event *event, struct hys_error *error)
{
	struct hys_task task = {.run = run_wait, .always = true, .event = event};
	hys_status status = check_exec(exec, event, error);

	if (status != HYS_OK)
		return status;
	for (int32_t i = 0; i < exec->plan->device_count; i++) {
		hys_status submitted;

		retain_event(event);
		submitted = hys_exec_submit(exec, i, &task, error);
		status = status == HYS_OK ? submitted : status;
	}
	return status;
}

hys_status hys_event_wait(struct hys_event *event, struct hys_error *error)
{
	hys_status status;

	if (!event)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "event is NULL");
	status = hys_context_check(event->plan->context, error);
	for (int32_t i = 0; status == HYS_OK && i < event->count; i++)
		status = wait_here(&event->lanes[i], error);
	return status;
}

int hys_event_reached(const struct hys_event *event)
{
	if (!event || hys_context_check(event->plan->context, NULL) != HYS_OK)
		return 0;
	for (int32_t i = 0; i < event->count; i++) {
		struct hys_event_lane *lane = &event->lanes[i];
		const struct hys_backend *backend = lane->device->backend;

		if (sem_trywait(&lane->recorded) != 0)
			return 0;
		sem_post(&lane->recorded);
		if (lane->native && backend->event_reached &&
		    !backend->event_reached(lane->device, lane->native))
			return 0;
	}
	return 1;
}

void hys_event_destroy(struct hys_event *event)
{
	if (event)
		release_event(event);
}
