#include "lane.h"
#include "trace.h"

/* ---- arguments ---- */

static hys_status check_queues(const struct hys_plan *plan, const struct hys_exec_options *options,
			       struct hys_error *error)
{
	if (!options->native_queues)
		return HYS_OK;
	if (plan->device_count > 1 || options->flags & HYS_EXEC_ASYNC)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"options.native_queues: expected NULL with %s",
				plan->device_count > 1 ? "a plan of several devices"
						       : "HYS_EXEC_ASYNC");
	if (!options->native_queues[0] || plan->devices[0]->host_memory)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"options.native_queues: expected a queue for %s",
				options->native_queues[0] ? "a device that has queues"
							  : plan->devices[0]->info.name);
	return HYS_OK;
}

static hys_status check_workspaces(const struct hys_plan *plan,
				   const struct hys_exec_options *options, struct hys_error *error)
{
	for (int32_t i = 0; options->workspaces && i < plan->device_count; i++) {
		const struct hys_buffer *buffer = options->workspaces[i];

		if (!buffer || buffer->device != plan->devices[i])
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"options.workspaces[%d] is %s, expected a buffer on %s", i,
					buffer ? "on another device" : "NULL",
					plan->devices[i]->info.name);
	}
	return HYS_OK;
}

static hys_status check_options(const struct hys_plan *plan, const struct hys_exec_options *options,
				struct hys_error *error)
{
	hys_status status;

	HYS_TRY(hys_check_struct(options, sizeof(*options), "options", error));
	if (options->flags & ~(HYS_EXEC_ASYNC | HYS_EXEC_TRACE | HYS_EXEC_QUANTIZE) ||
	    (options->native_queues && options->flags & HYS_EXEC_TRACE))
		return hys_fail(
			error, HYS_INVALID_ARGUMENT, 0,
			"options.flags is 0x%x, expected HYS_EXEC_ASYNC, HYS_EXEC_QUANTIZE, "
			"or HYS_EXEC_TRACE without native_queues",
			options->flags);
	HYS_TRY(check_queues(plan, options, error));
	HYS_TRY(check_workspaces(plan, options, error));
cleanup:
	return status;
}

/* ---- lanes ---- */

static hys_status make_workspace(struct hys_exec *exec, int32_t index, struct hys_buffer *given,
				 struct hys_error *error)
{
	struct hys_lane *lane = &exec->lanes[index];
	struct hys_plan *plan = exec->plan;
	int64_t bytes = hys_workspace_max(plan, index);
	hys_status status;

	if (given && given->bytes < bytes)
		return hys_fail(error, HYS_WORKSPACE_TOO_SMALL, 0,
				"options.workspaces[%d] has %lld bytes, expected %lld or more",
				index, (long long)given->bytes, (long long)bytes);
	lane->workspace = given;
	if (given || bytes == 0)
		return HYS_OK;
	status = hys_buffer_make(plan->context, plan->devices[index], bytes, &lane->workspace,
				 error);
	lane->workspace_owned = status == HYS_OK;
	return status;
}

static hys_status make_instances(struct hys_exec *exec, int32_t index, struct hys_error *error)
{
	struct hys_lane *lane = &exec->lanes[index];
	const struct hys_backend *backend = exec->plan->devices[index]->backend;
	hys_status status = HYS_OK;

	for (int op = 0; status == HYS_OK && op < HYS_OP_COUNT; op++) {
		const struct hys_choice *choice = hys_plan_choice(exec->plan, (hys_op)op, index);

		if (choice && choice->kernel)
			status = backend->instance_create(lane->stream, choice->kernel,
							  choice->program, &lane->instances[op],
							  error);
	}
	return status;
}

/* By the thread that will work the lane, so that memory lies near it. */
static hys_status furnish(struct hys_exec *exec, int32_t index, const struct hys_task *task,
			  struct hys_error *error)
{
	const struct hys_exec_options *options = task->options;
	struct hys_lane *lane = &exec->lanes[index];
	struct hys_device *device = exec->plan->devices[index];
	void *queue = options->native_queues ? options->native_queues[index] : NULL;
	struct hys_buffer *given = options->workspaces ? options->workspaces[index] : NULL;
	hys_status status;

	HYS_TRY(device->backend->stream_create(device, queue, &lane->stream, error));
	if (options->flags & HYS_EXEC_TRACE)
		HYS_TRY(hys_trace_create(exec, index, error));
	HYS_TRY(make_workspace(exec, index, given, error));
	HYS_TRY(make_instances(exec, index, error));
	if (exec->gather)
		HYS_TRY(hys_gather_make_slot(exec, index, error));
	if (exec->gather && device->backend->add_prepare)
		HYS_TRY(device->backend->add_prepare(lane->stream, error));
	if (exec->quantizes && device->backend->quantize_prepare)
		HYS_TRY(device->backend->quantize_prepare(lane->stream, error));
cleanup:
	return status;
}

static hys_status make_lane(struct hys_exec *exec, int32_t index,
			    const struct hys_exec_options *options, struct hys_error *error)
{
	const struct hys_task task = {.run = furnish, .options = options};
	struct hys_lane *lane = &exec->lanes[index];
	hys_status status;

	lane->exec = exec;
	if (exec->plan->device_count > 1 || options->flags & HYS_EXEC_ASYNC)
		HYS_TRY(hys_lane_start(lane, error));
	HYS_TRY(hys_exec_submit(exec, index, &task, error));
	hys_lane_drain(lane);
	HYS_TRY(hys_exec_failure(exec, error));
cleanup:
	return status;
}

static void destroy_lane(struct hys_exec *exec, int32_t index)
{
	struct hys_lane *lane = &exec->lanes[index];
	const struct hys_backend *backend = exec->plan->devices[index]->backend;

	hys_lane_stop(lane);
	for (int op = 0; op < HYS_OP_COUNT; op++)
		if (lane->instances[op])
			backend->instance_destroy(lane->stream, lane->instances[op]);
	hys_trace_destroy(exec, index);
	if (lane->workspace_owned)
		hys_buffer_destroy(lane->workspace);
	hys_gather_free_slot(exec, index);
	if (lane->stream)
		backend->stream_destroy(lane->stream);
}

/* ---- life ---- */

static hys_status make_exec(struct hys_plan *plan, const struct hys_exec_options *options,
			    struct hys_exec **exec, struct hys_error *error)
{
	const struct hys_allocator *allocator = &plan->context->host.allocator;
	struct hys_exec *made = hys_alloc(allocator, sizeof(*made));
	struct hys_lane *lanes = hys_alloc_array(allocator, plan->device_count, sizeof(*lanes));

	if (!made || !lanes) {
		hys_free(allocator, made);
		hys_free(allocator, lanes);
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for an exec");
	}
	hys_plan_retain(plan);
	made->plan = plan;
	made->native = options->native_queues != NULL;
	made->looks = hys_exec_may_look(plan);
	made->quantizes = options->flags & HYS_EXEC_QUANTIZE;
	made->lanes = lanes;
	*exec = made;
	return HYS_OK;
}

hys_status hys_exec_create(struct hys_plan *plan, const struct hys_exec_options *options,
			   struct hys_exec **exec, struct hys_error *error)
{
	struct hys_exec_options defaults = {.struct_size = sizeof(defaults)};
	struct hys_exec *made = NULL;
	hys_status status;

	if (!plan || !exec)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				plan ? "exec" : "plan");
	options = options ? options : &defaults;
	HYS_TRY(hys_context_check(plan->context, error));
	HYS_TRY(check_options(plan, options, error));
	HYS_TRY(make_exec(plan, options, &made, error));
	if (plan->device_count > 1)
		HYS_TRY(hys_gather_create(plan, &made->gather, error));
	for (int32_t i = 0; i < plan->device_count; i++)
		HYS_TRY(make_lane(made, i, options, error));
	*exec = made;
	made = NULL;
cleanup:
	hys_exec_destroy(made);
	return status;
}

/* In a forked child the threads and the driver are the parent's. */
void hys_exec_destroy(struct hys_exec *exec)
{
	struct hys_plan *plan;

	if (!exec)
		return;
	plan = exec->plan;
	if (hys_context_check(plan->context, NULL) == HYS_OK) {
		hys_exec_finish(exec, NULL);
		for (int32_t i = 0; i < plan->device_count; i++)
			destroy_lane(exec, i);
		hys_gather_destroy(exec->gather);
	}
	hys_free(&plan->context->host.allocator, exec->lanes);
	hys_free(&plan->context->host.allocator, exec);
	hys_plan_release(plan);
}

/* ---- finish ---- */

/* The caller's queue is not to be finished: others may have put work behind
 * ours. An event is as far as we go. */
static hys_status finish_native(struct hys_device *device, struct hys_stream *stream,
				struct hys_error *error)
{
	void *event = NULL;
	hys_status status = device->backend->record(stream, &event, error);

	if (status != HYS_OK || !event)
		return status;
	status = device->backend->event_wait(device, event, error);
	device->backend->event_destroy(device, event);
	return status;
}

static hys_status run_finish(struct hys_exec *exec, int32_t index, const struct hys_task *task,
			     struct hys_error *error)
{
	struct hys_lane *lane = &exec->lanes[index];

	(void)task;
	if (lane->idle || atomic_load(&lane->dropped))
		return HYS_OK; /* nothing is to be waited for, or to be had from it */
	return exec->native ? finish_native(exec->plan->devices[index], lane->stream, error)
			    : hys_lane_finish(exec, index, error);
}

/* A call that succeeded though a device was lost says so, once. */
static void note_drops(struct hys_exec *exec, struct hys_error *error)
{
	for (int32_t i = 0; i < exec->plan->device_count; i++) {
		const struct hys_lane *lane = &exec->lanes[i];

		if (atomic_load(&exec->lanes[i].dropped) != 1)
			continue;
		atomic_store(&exec->lanes[i].dropped, 2);
		hys_report(error, HYS_OK, lane->drop.native,
			   "%s was dropped, others did its rows, and bits may differ from other "
			   "runs: %.120s",
			   exec->plan->devices[i]->info.name, lane->drop.message);
	}
}

static void forgive(struct hys_exec *exec)
{
	for (int32_t i = 0; i < exec->plan->device_count; i++) {
		atomic_store(&exec->lanes[i].failed, 0);
		atomic_store(&exec->lanes[i].dropped, 0);
	}
	atomic_store(&exec->first_failed, 0);
	hys_gather_forgive(exec->gather);
}

hys_status hys_exec_finish(struct hys_exec *exec, struct hys_error *error)
{
	const struct hys_task task = {.run = run_finish, .always = true, .finishes = true};
	hys_status status;

	if (!exec)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "exec is NULL");
	status = hys_context_check(exec->plan->context, error);
	if (status != HYS_OK)
		return status;
	for (int32_t i = 0; i < exec->plan->device_count; i++)
		if (exec->lanes[i].stream) /* else it was never complete */
			hys_exec_submit(exec, i, &task, NULL);
	for (int32_t i = 0; i < exec->plan->device_count; i++)
		hys_lane_drain(&exec->lanes[i]);
	status = hys_exec_failure(exec, error);
	if (status == HYS_OK)
		note_drops(exec, error);
	else
		forgive(exec);
	return status;
}
