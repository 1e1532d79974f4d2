/* hyscale/plan.h - how a problem will be computed.
 *
 * A plan says which kernel runs each operation on which device, how rows are
 * shared between devices and how much memory that takes. Making one compiles
 * and self-tests kernels; it is the only slow step. A plan is immutable and
 * may be used by any number of threads. */
#ifndef HYSCALE_PLAN_H
#define HYSCALE_PLAN_H

#include "context.h"
#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hys_plan;
struct hys_batch;

/* The operations, with the names used in files and on the command line. */
#define HYS_OP_MAP(X)                                     \
	X(SELECT, "select")                               \
	X(SELECT_COARSE, "select_coarse")                 \
	X(SELECT_COARSE_TO_FINE, "select_coarse_to_fine") \
	X(ATTENTION_FORWARD, "attention_forward")         \
	X(ATTENTION_BACKWARD, "attention_backward")       \
	X(INDEXER_LOSS, "indexer_loss")                   \
	X(POOL, "pool")                                   \
	X(POOL_BACKWARD, "pool_backward")                 \
	X(MERGE, "merge")                                 \
	X(FIDELITY, "fidelity")

typedef enum hys_op {
#define HYS_OP_ENUM(name, text) HYS_OP_##name,
	HYS_OP_MAP(HYS_OP_ENUM)
#undef HYS_OP_ENUM
		HYS_OP_COUNT
} hys_op;

#define HYS_OP_BIT(op) (1u << (op))

/* "select", ...; "unknown" for any other number. */
HYS_API const char *hys_op_name(hys_op op);

typedef enum hys_effort {
	HYS_EFFORT_ESTIMATE = 0, /* wisdom if there is any, else the tables */
	HYS_EFFORT_WISDOM,	 /* wisdom or HYS_UNSUPPORTED */
	HYS_EFFORT_MEASURE	 /* time the candidates, keep it as wisdom */
} hys_effort;

/* All tensors of every call will be buffers on the device that runs it, so
 * workspaces hold no room to stage host tensors. */
#define HYS_PLAN_BUFFERS_ONLY 1u
/* Trust kernels without trying them on this device and driver first. */
#define HYS_PLAN_NO_SELF_TEST 2u
/* How several devices share the rows of a call, tile by tile, by what tiles
 * cost: what their rows see, and how many of their indices are used. By
 * default shares go by speeds that are frozen in the plan and saved with it,
 * measured on one or two percent of the work when the plan is made, or known
 * from wisdom: the same bits every run. Where tensors lie in host memory, short
 * calls on all devices together correct what each took alone, and leave to one
 * what it does faster than all: for some seconds, for about twelve where others
 * use the processors, too. */
/* Devices take shrinking pieces when they are free, corrected as it runs: sums
 * over rows (dk, dv, d_index_k, ...) are rounded in another order every run. */
#define HYS_PLAN_GUIDED 4u
/* As many rows for each device, and nothing is measured: for comparison. */
#define HYS_PLAN_EQUAL 8u

/* step of steps, and what it does now: a kernel is built and tried, or timed. While several
 * devices are timed together the same step is told many times. Non-zero stops with
 * HYS_CANCELLED. */
typedef int hys_progress(void *user, int32_t step, int32_t steps, const char *what);

struct hys_plan_options {
	size_t struct_size;	/* sizeof(struct hys_plan_options) */
	uint32_t operations;	/* HYS_OP_BIT of each; 0 = all that the problem has
				the parts for */
	uint32_t flags;		/* HYS_PLAN_* */
	const int32_t *devices; /* device numbers of the context; NULL = its
				   first. More than one: rows are shared */
	int32_t device_count;
	int64_t rows_max;	 /* most rows of one call; sizes workspaces */
	int64_t keys_max;	 /* most key rows (S) of one batch */
	int64_t window_keys_max; /* the same of the second source */
	hys_effort effort;
	int64_t memory_limit_bytes; /* of workspace per device; 0 = none */
	/* Kernels to use if they can run, comma list of their names; NULL =
	 * the planner's choice. An unknown name is HYS_INVALID_ARGUMENT; one
	 * that cannot run is HYS_UNSUPPORTED with the reason. */
	const char *kernels;
	hys_progress *progress;
	void *progress_user;
};

/* HYS_OK, HYS_INVALID_ARGUMENT, HYS_UNSUPPORTED (no kernel can do it; the
 * message gives the reason of the last), HYS_OUT_OF_MEMORY (memory limit
 * included), HYS_BUILD_FAILED, HYS_DEVICE_FAILED, HYS_CANCELLED, HYS_FORKED. */
HYS_API hys_status hys_plan_create(struct hys_context *context, const struct hys_problem *problem,
				   const struct hys_plan_options *options, struct hys_plan **plan,
				   struct hys_error *error);
HYS_API void hys_plan_destroy(struct hys_plan *plan);

/* The context that it was made from; lives as long as the plan. */
HYS_API struct hys_context *hys_plan_context(const struct hys_plan *plan);
/* The completed problem, owned by the plan. */
HYS_API const struct hys_problem *hys_plan_problem(const struct hys_plan *plan);
HYS_API int32_t hys_plan_device_count(const struct hys_plan *plan);
/* The context's number of the plan's device i; -1 past the end. */
HYS_API int32_t hys_plan_device(const struct hys_plan *plan, int32_t i);
/* Name of the kernel that runs `op` on the plan's device i; NULL when the op is
 * not planned. Static storage. */
HYS_API const char *hys_plan_kernel(const struct hys_plan *plan, hys_op op, int32_t i);

/* The part of the rows of the plan's largest causal call that its device i
 * computes, 0 to 1; calls are cut by what they really see and read. 0 when the
 * op is not planned or the plan does better without the device, which
 * hys_plan_describe explains. */
HYS_API double hys_plan_share(const struct hys_plan *plan, hys_op op, int32_t i);

/* A text file: version, problem, devices, speeds, kernels. Loading needs the
 * same devices and drivers (HYS_VERSION_MISMATCH otherwise) and answers the
 * same bits. HYS_IO, HYS_FORMAT, and hys_plan_create's statuses. */
HYS_API hys_status hys_plan_save(const struct hys_plan *plan, const char *path,
				 struct hys_error *error);
HYS_API hys_status hys_plan_load(struct hys_context *context, const char *path,
				 struct hys_plan **plan, struct hys_error *error);

/* What one call over all rows of a batch costs. */
struct hys_cost {
	double flops;		 /* useful: of visible or chosen pairs only */
	double bytes;		 /* compulsory memory traffic */
	double time_s;		 /* predicted, slowest device */
	int64_t tensor_bytes;	 /* inputs and outputs of the caller */
	int64_t workspace_bytes; /* of execs, all devices together */
	int64_t peak_bytes;	 /* the two together, batch arrays included */
};

/* Prices `op` for `batch`, or, when `batch` is NULL, for one causal document
 * of the plan's rows_max last rows and keys_max keys. No device is used.
 * HYS_OK, HYS_INVALID_ARGUMENT (op not planned), HYS_FORKED. Thread safe. */
HYS_API hys_status hys_plan_cost(const struct hys_plan *plan, hys_op op,
				 const struct hys_batch *batch, struct hys_cost *cost,
				 struct hys_error *error);

/* Workspace bytes that an exec needs on the plan's device i to run `op` over
 * `rows` rows, staging included. HYS_OK, HYS_INVALID_ARGUMENT, HYS_FORKED. */
HYS_API hys_status hys_plan_workspace(const struct hys_plan *plan, hys_op op, int64_t rows,
				      int32_t i, int64_t *bytes, struct hys_error *error);

/* Writes a table for people: per operation and device the kernel, why, and why
 * not those preferred to it; workspaces; shares. Like snprintf, answers the
 * length needed without the terminator; `text` may be NULL when size is 0. */
HYS_API size_t hys_plan_describe(const struct hys_plan *plan, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
