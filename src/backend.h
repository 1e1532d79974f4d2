/* backend.h - the one seam between the core and what executes.
 *
 * The core validates, plans, slices and stages; a backend finds devices, moves
 * bytes and runs kernels. A backend knows one device and one stream at a time
 * and nothing of plans, row ranges, several devices or training. It may
 * include this header, alloc.h, check.h and the public types only.
 *
 * Every kernel of a table must do every legal call of a problem that it calls
 * applicable: any row count from 0 up, empty intervals, absent optional
 * tensors, any strides. */
#ifndef HYS_BACKEND_H
#define HYS_BACKEND_H

#include <stdbool.h>

#include "alloc.h"
#include "check.h"
#include "hash.h"
#include "hyscale/hyscale.h"

#define HYS_GROUPS_MAX 256
#define HYS_REASON_SIZE 192
/* Every tensor and region of a workspace starts at a multiple of this. */
#define HYS_ALIGN 256

struct hys_backend;
struct hys_stream; /* backend's own: a queue */

/* What the context offers its backends; lives as long as the devices. */
struct hys_host {
	struct hys_allocator allocator;
	const char *cache_dir; /* NULL = no cache */
	const char *disable;   /* capability names, comma list, never NULL */
	int32_t threads;       /* wanted by the caller, 0 = default */
	int32_t cpus_allowed;  /* CPUs this process may run on, >= 1 */
	int32_t cpus_quota;    /* as many CPUs' time it gets; 0 = no limit */
	void (*log)(void *user, hys_log_level level, const char *message);
	void *log_user; /* log may be NULL */
};

/* Whether `name` is on the comma list host->disable. */
bool hys_host_disabled(const struct hys_host *host, const char *name);
/* printf to the caller's log hook, if there is one. */
void hys_host_log(const struct hys_host *host, hys_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A usable device. Backends embed it as the first member of their own. */
struct hys_device {
	const struct hys_backend *backend;
	const struct hys_host *host;
	struct hys_device_info info;
	uint64_t capabilities; /* bits of the backend's capability_names */
	bool host_memory;      /* kernels and buffers use host pointers */
	bool builds_long;      /* a program takes seconds, and several can be built at once */
	int32_t slow;	       /* the core's: how many times slower it is to be, 0 = it is not */
};

/* Where a backend reports what it found: first one report, add or reject, for
 * each of `natives` in order, then all others. */
struct hys_discovery {
	const struct hys_host *host;
	const struct hys_native_device *natives; /* only this backend's */
	int32_t native_count;
	void *sink; /* the core's */
};

/* Takes the device over, on failure too (it is then destroyed). */
hys_status hys_discovery_add(struct hys_discovery *discovery, struct hys_device *device,
			     struct hys_error *error);
/* Notes a device that will not be used; info->reason says why. */
hys_status hys_discovery_reject(struct hys_discovery *discovery, const struct hys_device_info *info,
				struct hys_error *error);

/* Device memory: `native` is a host pointer or a cl_mem. */
struct hys_buffer {
	struct hys_context *context;
	struct hys_device *device;
	void *native;
	int64_t bytes;
	bool wrapped; /* native belongs to the caller */
	/* one for each device of a plan; this one's device and native are the
	 * first one's. 0 and NULL = not replicated */
	struct hys_buffer **replicas;
	int32_t replica_count;
};

/* Part of a buffer, or of host memory on devices with host_memory. */
struct hys_region {
	void *host;
	struct hys_buffer *buffer;
	int64_t offset_bytes;
	int64_t bytes;
};

/* Sizes of a call, or of the largest one when a plan is made. */
struct hys_size {
	const struct hys_problem *problem;
	int64_t rows;	       /* T of this call (units or rows of x for pool) */
	int64_t keys;	       /* S */
	int64_t entries;       /* E */
	int64_t window_keys;   /* S2, 0 without second source */
	int64_t coarse_blocks; /* complete coarse blocks of the batch */
	int64_t topk;	       /* last size of indices, 0 when absent */
	double key_pairs;      /* visible (row, key) pairs; only for costs */
	double entry_pairs;    /* visible (row, entry) pairs; only for costs */
	/* most that any one row sees; 0 = unknown, so up to all of them */
	int64_t row_keys, row_entries, row_window_keys;
};

/* The batch's arrays on the device, all i32, already cut to the call's rows.
 * Absent ones have dtype 0. */
struct hys_batch_view {
	struct hys_tensor row_begin, row_end;	    /* [rows] key rows */
	struct hys_tensor index_begin, index_end;   /* [rows] entries */
	struct hys_tensor key_origin;		    /* [rows] first key row of the document */
	struct hys_tensor entry_origin;		    /* [rows] first entry of the document */
	struct hys_tensor window_begin, window_end; /* [rows], second source */
	/* coarse blocks, when the problem has a coarse_block: complete ones,
	 * document after document */
	struct hys_tensor coarse_base;	/* [rows] number of the document's first
					  coarse block */
	struct hys_tensor coarse_entry; /* [coarse_blocks] its first entry */
	struct hys_tensor coarse_doc;	/* [coarse_blocks] its document */
	/* pools, when pooling is planned */
	struct hys_tensor entry_key;   /* [E] its first key row */
	struct hys_tensor entry_doc;   /* [E] its document */
	struct hys_tensor key_entry;   /* [S] the entry that pools it, or -1 */
	struct hys_tensor entry_block; /* [E] its complete coarse block, or -1 */
};

/* From row `at` of a call on, rows lie `by` further than they are numbered, in
 * tensors and in the batch's arrays: those between are another device's. Gaps
 * ascend and add up. */
struct hys_gap {
	int64_t at, by;
};

#define HYS_GAPS_MAX 7

/* One operation on one device. All tensors are cut to the call's rows (their
 * first dimension is size.rows where the public header says "rows"), strides
 * are filled in, and lie either in host memory (device->host_memory; offset is
 * 0) or in a buffer of this device. Absent ones have dtype 0. Rows are
 * numbered from 0 here; row_first only serves row sampling and pooling: the
 * batch's [E], [S] and [coarse_blocks] arrays are never cut, so that unit (or
 * row of x, backward) i of a pooling call is number row_first + i in them. */
struct hys_call {
	hys_op op;
	const struct hys_problem *problem; /* completed: no defaults left */
	struct hys_size size;
	int64_t row_first; /* the batch's number of this call's row 0 */
	struct hys_gap gaps[HYS_GAPS_MAX];
	int32_t gap_count; /* 0 unless the kernel takes gaps */
	struct hys_batch_view batch;
	struct hys_region workspace;  /* what kernel->workspace asked for */
	int32_t topk[HYS_GROUPS_MAX]; /* select: per group, filled */
	union {
		struct hys_select_args select; /* ignore its topk, method */
		struct hys_attention_args attention;
		struct hys_attention_grad_args attention_grad;
		struct hys_loss_args loss; /* coefficient, row_stride filled in;
					      divisor 0 = count here */
		struct hys_pool_args pool;
		struct hys_pool_grad_args pool_grad;
		struct hys_merge_args merge;
		struct hys_fidelity_args fidelity; /* defaults filled in */
		struct hys_quantize_args quantize; /* no operation of a plan */
	} args;
};

/* Whether gradients that are sums over rows are added to; dq is with
 * HYS_GRAD_ACCUMULATE alone. */
static inline bool hys_adds_sums(uint32_t flags)
{
	return (flags & (HYS_GRAD_ACCUMULATE | HYS_GRAD_ACCUMULATE_KEYS)) != 0;
}

/* A kernel is a row of data. Tables list, per op, the preferred kernel first
 * and end in one named "<op>.ref" that is applicable to every legal problem.
 * Names are public and stable. */
struct hys_kernel {
	const char *name;
	hys_op op;
	uint64_t needs;	   /* capability bits; checked by the planner */
	double efficiency; /* expected share of the device's nominal f32 rate */
	/* NULL = always. False with a reason when the problem is not for it. */
	bool (*applicable)(const struct hys_kernel *kernel, const struct hys_device *device,
			   const struct hys_problem *problem, char reason[HYS_REASON_SIZE]);
	/* Scratch bytes for a call; NULL = none. Never of order rows * keys. A
	 * call with no more rows, keys, ... needs no more. */
	int64_t (*workspace)(const struct hys_kernel *kernel, const struct hys_device *device,
			     const struct hys_size *size);
	/* Enqueues or computes. Arguments are already valid; outputs are
	 * fully written (or added to, when the args say accumulate). */
	hys_status (*run)(const struct hys_kernel *kernel, struct hys_stream *stream,
			  void *instance, const struct hys_call *call, struct hys_error *error);
	const void *detail; /* the backend's own: sources, tiles, micro-kernels */
	/* Ran on no device that it is for, so it might hang there: only used
	 * when it is asked for by name. */
	bool unproven;
	/* Adds up in no fixed order, so its bits differ from run to run: only
	 * used when it is asked for by name. */
	bool order_free;
	/* Takes calls whose rows have gaps. */
	bool gaps;
	/* Exact select: neither scores rows that keep all they see, unless scores are wanted, nor
	 * chooses from them. */
	bool keeps_unscored;
	/* Another row's kernel with tiles of other sizes. Which are the faster on
	 * a device is for a plan that measures to find, and for wisdom to keep;
	 * other plans take it only by name. */
	bool resized;
};

/* A strided copy between host memory and a region: count[0] x count[1] runs of
 * `bytes`, pitches in bytes. Both sides' pitches of a count of 1 are ignored. */
struct hys_copy {
	void *host;
	struct hys_region device;
	int64_t bytes;
	int64_t count[2];
	int64_t host_pitch[2];
	int64_t device_pitch[2];
};

struct hys_backend {
	const char *name;
	const struct hys_kernel *kernels;
	int32_t kernel_count;
	const char *const *capability_names; /* bit i; NULL terminated */

	/* Adds devices, best first. A failure rejects the whole backend; its
	 * message becomes the reason. */
	hys_status (*discover)(struct hys_discovery *discovery, struct hys_error *error);
	void (*device_destroy)(struct hys_device *device);
	hys_status (*measure)(struct hys_device *device, struct hys_device_speed *speed,
			      struct hys_error *error);

	/* Fills buffer->native (device and bytes are set), memory touched. */
	hys_status (*buffer_create)(struct hys_buffer *buffer, struct hys_error *error);
	void (*buffer_destroy)(struct hys_buffer *buffer);

	/* What can be shared by execs: compiled programs. *program may stay
	 * NULL. Called once per plan, device and kernel; thread safe. */
	hys_status (*program_create)(struct hys_device *device, const struct hys_kernel *kernel,
				     const struct hys_problem *problem, void **program,
				     struct hys_error *error);
	void (*program_destroy)(struct hys_device *device, void *program);

	/* native_queue NULL = the stream's own, in order. */
	hys_status (*stream_create)(struct hys_device *device, void *native_queue,
				    struct hys_stream **stream, struct hys_error *error);
	void (*stream_destroy)(struct hys_stream *stream);
	/* What one stream needs of a program: cl_kernel objects. */
	hys_status (*instance_create)(struct hys_stream *stream, const struct hys_kernel *kernel,
				      void *program, void **instance, struct hys_error *error);
	void (*instance_destroy)(struct hys_stream *stream, void *instance);

	hys_status (*copy_in)(struct hys_stream *stream, const struct hys_copy *copy,
			      struct hys_error *error);
	hys_status (*copy_out)(struct hys_stream *stream, const struct hys_copy *copy,
			       struct hys_error *error);
	hys_status (*fill)(struct hys_stream *stream, const struct hys_region *region,
			   uint8_t value, struct hys_error *error);
	/* Between regions of buffers that have as many bytes and do not overlap. */
	hys_status (*copy)(struct hys_stream *stream, const struct hys_region *target,
			   const struct hys_region *source, struct hys_error *error);
	/* Host memory that the device copies from and to at its best speed
	 * (pinned), until host_destroy; NULL = any is as good. */
	hys_status (*host_create)(struct hys_stream *stream, int64_t bytes, void **host,
				  void **native, struct hys_error *error);
	void (*host_destroy)(struct hys_stream *stream, void *host, void *native);
	/* target += part, element by element; f32 or i32. Only on streams that
	 * were prepared for it, once; NULL = all are. */
	hys_status (*add_prepare)(struct hys_stream *stream, struct hys_error *error);
	hys_status (*add)(struct hys_stream *stream, const struct hys_region *target,
			  const struct hys_region *part, hys_dtype dtype, struct hys_error *error);

	/* hys_quantize; prepared and NULL as with `add`, but no `quantize` = none. */
	hys_status (*quantize_prepare)(struct hys_stream *stream, struct hys_error *error);
	hys_status (*quantize)(struct hys_stream *stream, const struct hys_quantize_args *args,
			       struct hys_error *error);

	/* Events. *event may be NULL when work is done as it is given. `record`
	 * makes that work start, as flush does, since others may wait for it;
	 * `wait` is given events of any device of the backend. */
	hys_status (*record)(struct hys_stream *stream, void **event, struct hys_error *error);
	hys_status (*wait)(struct hys_stream *stream, void *event, struct hys_error *error);
	hys_status (*event_wait)(struct hys_device *device, void *event, struct hys_error *error);
	/* NULL = all are reached when they are recorded. */
	bool (*event_reached)(struct hys_device *device, void *event);
	void (*event_destroy)(struct hys_device *device, void *event);
	/* Traces: makes the events of a stream that has had no work yet tell
	 * their time; when an event was reached, in seconds of CLOCK_MONOTONIC,
	 * NaN when that cannot be had. Both NULL = when they are recorded. */
	hys_status (*time_events)(struct hys_stream *stream, struct hys_error *error);
	double (*event_time_s)(struct hys_stream *stream, void *event);
	/* Makes given work start without waiting for it; NULL = it does. */
	hys_status (*flush)(struct hys_stream *stream, struct hys_error *error);
	hys_status (*finish)(struct hys_stream *stream, struct hys_error *error);
};

extern const struct hys_backend hys_backend_openmp;
#ifdef HYS_WITH_OPENCL
extern const struct hys_backend hys_backend_opencl;
#endif

/* ---- small helpers that both sides need ---- */

static inline bool hys_present(const struct hys_tensor *tensor)
{
	return tensor->dtype != HYS_DTYPE_DEFAULT;
}

/* How many slots of a left-packed list are used; as many as `guess`, perhaps, which saves the way
 * through memory. Of lists that are not packed it answers something between, which is all that a
 * cost needs. */
static inline int64_t hys_count_slots(const int32_t *slots, int64_t most, int64_t guess)
{
	int64_t low = 0, high = most;

	if (guess > 0 && guess < most && slots[guess - 1] >= 0 && slots[guess] < 0)
		return guess;
	if (most > 0 && slots[most - 1] >= 0)
		return most;
	while (low < high) {
		const int64_t middle = (low + high) / 2;

		if (slots[middle] >= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Key rows that one index stands for. */
static inline int64_t hys_index_span(const struct hys_problem *problem)
{
	return problem->scoring.pool > 1 ? problem->scoring.pool : problem->attending.granularity;
}

/* Least distance between two indices that are both present. */
static inline int64_t hys_index_step(const struct hys_problem *problem)
{
	return problem->scoring.pool > 1 ? 1 : problem->attending.granularity;
}

#endif
