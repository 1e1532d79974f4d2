/* hyscale/exec.h - a stream of work.
 *
 * An exec holds queues, kernel instances and workspace for one plan. It is
 * used by one thread at a time; operations given to it run in order. Two execs
 * of a plan may run at once, ordered by events. */
#ifndef HYSCALE_EXEC_H
#define HYSCALE_EXEC_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hys_exec;
struct hys_event;

/* Run operations on threads of the exec's own and return at once, on CPU
 * devices too. Plans of several devices always do. Without it a CPU device
 * computes inside the call; an OpenCL device always returns after enqueueing. */
#define HYS_EXEC_ASYNC 1u

struct hys_exec_options {
	size_t struct_size; /* sizeof(struct hys_exec_options) */
	uint32_t flags;	    /* HYS_EXEC_* */
	/* Queues of the caller's, one per device of the plan (cl_command_queue,
	 * in order), NULL for the exec's own. With one, operations are enqueued
	 * before they return and the library never flushes or finishes it. Not
	 * with HYS_EXEC_ASYNC or several devices. */
	void *const *native_queues;
	/* Workspace of the caller's, one buffer per device of the plan; NULL =
	 * the exec allocates. */
	struct hys_buffer *const *workspaces;
};

/* `options` may be NULL. HYS_OK, HYS_INVALID_ARGUMENT,
 * HYS_WORKSPACE_TOO_SMALL, HYS_OUT_OF_MEMORY, HYS_DEVICE_FAILED, HYS_FORKED. */
HYS_API hys_status hys_exec_create(struct hys_plan *plan, const struct hys_exec_options *options,
				   struct hys_exec **exec, struct hys_error *error);
/* Waits for its work first. NULL is fine. */
HYS_API void hys_exec_destroy(struct hys_exec *exec);

/* Waits for all work and answers the first failure since the last finish;
 * after a failure operations do nothing and answer it, until finish. */
HYS_API hys_status hys_exec_finish(struct hys_exec *exec, struct hys_error *error);

/* An event that is reached when everything given to `exec` so far is done.
 * The caller destroys it. */
HYS_API hys_status hys_exec_record(struct hys_exec *exec, struct hys_event **event,
				   struct hys_error *error);
/* Work given to `exec` from now on waits for `event`; the caller may destroy
 * the event right after. The event may be of another exec or plan; when it is
 * of another backend the wait blocks the calling thread. */
HYS_API hys_status hys_exec_wait(struct hys_exec *exec, struct hys_event *event,
				 struct hys_error *error);
/* Blocks the calling thread until the event is reached. */
HYS_API hys_status hys_event_wait(struct hys_event *event, struct hys_error *error);
HYS_API void hys_event_destroy(struct hys_event *event);

/* Copies between host memory and a buffer, and fills with a byte, in the
 * exec's order. Host memory must stay until the work is finished. Offsets and
 * sizes in bytes. HYS_OK, HYS_INVALID_ARGUMENT (range, or a buffer on a device
 * that is not the plan's), HYS_DEVICE_FAILED. */
HYS_API hys_status hys_buffer_write(struct hys_exec *exec, struct hys_buffer *buffer,
				    int64_t offset_bytes, const void *source, int64_t bytes,
				    struct hys_error *error);
HYS_API hys_status hys_buffer_read(struct hys_exec *exec, struct hys_buffer *buffer,
				   int64_t offset_bytes, void *target, int64_t bytes,
				   struct hys_error *error);
HYS_API hys_status hys_buffer_fill(struct hys_exec *exec, struct hys_buffer *buffer,
				   int64_t offset_bytes, int64_t bytes, uint8_t value,
				   struct hys_error *error);

#ifdef __cplusplus
}
#endif
#endif
