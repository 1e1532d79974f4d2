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
/* Keep when copies and kernels ran, for hys_exec_span. Not with queues of the
 * caller's. */
#define HYS_EXEC_TRACE 2u
/* hys_quantize will be called: what it runs is built with the exec. */
#define HYS_EXEC_QUANTIZE 4u

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
 * after a failure operations do nothing and answer it, until finish.
 *
 * With several devices, one that fails in the middle of a call is dropped for
 * the exec's life, and the others redo its rows: the call succeeds, and the
 * next finish, HYS_OK, says in error->message which device was dropped, why,
 * and that bits may differ from other runs. The call fails when nobody is
 * left, when rows may have been added to twice (accumulating into outputs of
 * rows), and with replicated buffers. */
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
/* Whether it is, without waiting: 1 or 0. */
HYS_API int hys_event_reached(const struct hys_event *event);
HYS_API void hys_event_destroy(struct hys_event *event);

/* Copies between host memory and a buffer, or between two buffers, and fills
 * with a byte, in the exec's order. Host memory must stay until the work is
 * finished. Offsets and sizes in bytes. HYS_OK, HYS_INVALID_ARGUMENT (range, a
 * buffer on a device that is not the plan's, buffers of unlike devices, a copy
 * onto itself), HYS_DEVICE_FAILED. */
HYS_API hys_status hys_buffer_write(struct hys_exec *exec, struct hys_buffer *buffer,
				    int64_t offset_bytes, const void *source, int64_t bytes,
				    struct hys_error *error);
HYS_API hys_status hys_buffer_read(struct hys_exec *exec, struct hys_buffer *buffer,
				   int64_t offset_bytes, void *target, int64_t bytes,
				   struct hys_error *error);
HYS_API hys_status hys_buffer_fill(struct hys_exec *exec, struct hys_buffer *buffer,
				   int64_t offset_bytes, int64_t bytes, uint8_t value,
				   struct hys_error *error);
HYS_API hys_status hys_buffer_copy(struct hys_exec *exec, struct hys_buffer *target,
				   int64_t target_offset_bytes, struct hys_buffer *source,
				   int64_t source_offset_bytes, int64_t bytes,
				   struct hys_error *error);

/* A buffer for plans of several devices: as many bytes on each of them.
 *
 * hys_buffer_write, _copy and _fill reach all copies. Operations whose tensors lie in
 * such buffers read and write the copies of the device that computes: each
 * always computes the same rows of a batch, so that what one operation has
 * written the next finds in place, and nothing is copied. Sums over rows (dk,
 * dv, d_index_k, loss, ...) are added up in the plan's order and lie in every
 * copy; they must be f32 (or i32) and contiguous. hys_buffer_read reads the
 * first device's copy, hys_rows_read rows from where they were computed.
 * Pooling does not take them. When a device fails its rows are lost, and calls
 * fail until the exec and its data are made anew.
 *
 * HYS_OK, HYS_INVALID_ARGUMENT, HYS_OUT_OF_MEMORY, HYS_DEVICE_FAILED. */
HYS_API hys_status hys_buffer_replicate(struct hys_plan *plan, int64_t bytes,
					struct hys_buffer **buffer, struct hys_error *error);
/* `row_count` rows from `row_first` on of a contiguous tensor in a replicated
 * buffer (dimension 0: all rows of the batch), each from the device that
 * computes it, to `target`, contiguous. In the exec's order, as
 * hys_buffer_read. */
HYS_API hys_status hys_rows_read(struct hys_exec *exec, struct hys_batch *batch,
				 const struct hys_tensor *tensor, int64_t row_first,
				 int64_t row_count, void *target, struct hys_error *error);

/* What the calls of one operation took on the plan's device i since the exec
 * was made; to be asked when no work is under way. */
struct hys_exec_report {
	size_t struct_size; /* set by the caller */
	int64_t calls, rows;
	double busy_s;	   /* computing, copies included, waiting for others not */
	double foretold_s; /* by the plan */
	int32_t dropped;   /* 1 = failed in the middle of a call; bits may differ */
	char reason[256];  /* why */
};

HYS_API hys_status hys_exec_report(const struct hys_exec *exec, hys_op op, int32_t i,
				   struct hys_exec_report *report, struct hys_error *error);

/* Something that ran on the plan's device i, in seconds of CLOCK_MONOTONIC, by
 * the device's own events. */
struct hys_trace_span {
	size_t struct_size; /* set by the caller */
	const char *what;   /* "copy in", "kernel", "copy out", "merge", "wait"; static */
	hys_op op;	    /* HYS_OP_COUNT of a wait */
	int32_t device;
	int64_t row_first, row_count;
	double begin_s, end_s;
};

/* Spans of an exec with HYS_EXEC_TRACE, the first 4,096 of each device, device
 * after device; to be asked when no work is under way. */
HYS_API int64_t hys_exec_span_count(const struct hys_exec *exec);
HYS_API hys_status hys_exec_span(const struct hys_exec *exec, int64_t n, struct hys_trace_span *span,
				 struct hys_error *error);

/* A plan like the exec's, the speeds of its devices corrected by what the
 * exec's calls took. Nothing is measured or tested again. HYS_UNSUPPORTED with
 * one device, or HYS_PLAN_EQUAL; hys_plan_create's statuses. */
HYS_API hys_status hys_plan_rebalance(const struct hys_exec *exec, struct hys_plan **plan,
				      struct hys_error *error);

#ifdef __cplusplus
}
#endif
#endif
