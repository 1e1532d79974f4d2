/* core.h - the core's own structures. Backends never see this. */
#ifndef HYS_CORE_H
#define HYS_CORE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "backend.h"

struct hys_topology;

/* context.c. Reference counted: plans, buffers hold one each. */
struct hys_context {
	struct hys_host host;
	char *cache_dir, *disable;
	atomic_int references;
	int64_t process; /* getpid() of the maker */
	struct hys_topology *topology;
	struct hys_device **devices;
	int32_t device_count;
	struct hys_device_info *rejected;
	int32_t rejected_count;
	struct hys_device_speed *speeds; /* [device_count], 0 = not measured */
	struct hys_wisdom *wisdom;
	pthread_mutex_t lock; /* speeds, wisdom; never taken by operations */
};

void hys_context_retain(struct hys_context *context);
void hys_context_release(struct hys_context *context);
/* HYS_FORKED in a child of the maker. */
hys_status hys_context_check(const struct hys_context *context, struct hys_error *error);

/* registry.c: the backends that were built in, GPUs' first. NULL past the
 * end. */
const struct hys_backend *hys_backend_at(int32_t i);
const struct hys_backend *hys_backend_named(const char *name);

/* topology.c: the only user of hwloc. Every lookup may fail without harm. */
struct hys_topology *hys_topology_create(const struct hys_allocator *allocator);
void hys_topology_destroy(struct hys_topology *topology);
int32_t hys_topology_cpus_allowed(const struct hys_topology *topology);
/* CPUs that control groups give this process time on; 0 = no limit. */
int32_t hys_topology_cpus_quota(const struct hys_topology *topology);
/* True when hwloc was given a description of a machine (HWLOC_XMLFILE,
 * HWLOC_SYNTHETIC) and places are that machine's. */
bool hys_topology_is_described(const struct hys_topology *topology);
/* Fills numa_node and cpus of a device from its PCI address (info->id) or, for
 * CPUs, from what this process may use; cuts a CPU's memory to what control
 * groups leave. One thread at a time. */
void hys_topology_locate(struct hys_topology *topology, struct hys_device_info *info);
/* Places the calling thread near the device; never outside the allowed set. */
void hys_topology_bind(const struct hys_topology *topology, const struct hys_device_info *info);

/* HYS_PLAN_EQUAL, HYS_PLAN_GUIDED, or neither. */
enum hys_split { HYS_SPLIT_STATIC, HYS_SPLIT_GUIDED, HYS_SPLIT_EQUAL };

/* A call on a device that is no help beside the others: as long as wisdom can say. */
#define HYS_NEVER_S 9

/* What one operation takes on one device of several, frozen in the plan. The
 * bytes are those that are copied between the host and the device. */
struct hys_pace {
	double call_s, row_s, flop_s, byte_s;
	bool idle; /* better without this device */
};

/* wisdom.c. Keys are (op, problem, device signature). */
struct hys_wisdom;
struct hys_wisdom *hys_wisdom_create(const struct hys_allocator *allocator);
void hys_wisdom_destroy(struct hys_wisdom *wisdom);
/* Signature of a device: backend, name, driver, units and the backend's kernel
 * list. */
uint64_t hys_device_signature(const struct hys_device *device);
/* Kernel name that wisdom knows, or NULL. Under the context's lock. */
const char *hys_wisdom_find(const struct hys_wisdom *wisdom, hys_op op, uint64_t problem,
			    uint64_t device);
hys_status hys_wisdom_learn(struct hys_wisdom *wisdom, hys_op op, uint64_t problem, uint64_t device,
			    const char *kernel, double seconds, struct hys_error *error);
/* What the kernel takes for an operation there. False when it was never
 * measured. Times are kept to 18 digits behind the point of the second, those of
 * a FLOP to 24. */
bool hys_wisdom_pace(const struct hys_wisdom *wisdom, hys_op op, uint64_t problem, uint64_t device,
		     const char *kernel, struct hys_pace *pace);
hys_status hys_wisdom_learn_pace(struct hys_wisdom *wisdom, hys_op op, uint64_t problem,
				 uint64_t device, const char *kernel, const struct hys_pace *pace,
				 struct hys_error *error);
/* Whether a kernel passed its self-test here before. */
bool hys_wisdom_trusts(const struct hys_wisdom *wisdom, uint64_t problem, uint64_t device,
		       const char *kernel);
hys_status hys_wisdom_trust(struct hys_wisdom *wisdom, uint64_t problem, uint64_t device,
			    const char *kernel, struct hys_error *error);

/* problem.c */
uint64_t hys_problem_hash(const struct hys_problem *problem);

/* buffer.c: what hys_buffer_create does once its arguments are checked. */
hys_status hys_buffer_make(struct hys_context *context, struct hys_device *device, int64_t bytes,
			   struct hys_buffer **buffer, struct hys_error *error);

/* plan.c. One choice per op and device. */
struct hys_choice {
	const struct hys_kernel *kernel; /* NULL = not planned */
	void *program;
	char why[HYS_REASON_SIZE];
	char why_not[512]; /* preferred kernels, each with its reason */
};

struct hys_plan {
	struct hys_context *context; /* holds a reference */
	atomic_int references;
	struct hys_problem problem; /* completed */
	uint32_t operations, flags;
	int64_t rows_max, keys_max, window_keys_max;
	int64_t memory_limit_bytes;
	hys_effort effort;
	struct hys_device **devices; /* the context's */
	int32_t *device_numbers;
	int32_t device_count;
	struct hys_choice *choices; /* [device_count][HYS_OP_COUNT] */
	enum hys_split split;
	/* several devices; [device_count][HYS_OP_COUNT] */
	struct hys_pace *paces;
	double *shares; /* of the rows of the largest causal call, sum 1 */
	const char *pace_source;
	int64_t *rows_most; /* [device_count], of one call on the device */
};

void hys_plan_retain(struct hys_plan *plan);
void hys_plan_release(struct hys_plan *plan);
/* A plan that may be asked about `op`: HYS_INVALID_ARGUMENT, HYS_FORKED. */
hys_status hys_plan_check(const struct hys_plan *plan, hys_op op, struct hys_error *error);
const struct hys_choice *hys_plan_choice(const struct hys_plan *plan, hys_op op, int32_t device);
struct hys_pace *hys_plan_pace(const struct hys_plan *plan, hys_op op, int32_t device);

/* batch.c. Host arrays, and one packed copy per device. */
struct hys_batch_arrays {
	int32_t *row_begin, *row_end, *index_begin, *index_end; /* [rows] */
	int32_t *key_origin, *entry_origin;			/* [rows] */
	int32_t *window_begin, *window_end;			/* [rows] or NULL */
	int32_t *coarse_base;					/* [rows] or NULL */
	int32_t *coarse_entry, *coarse_doc;			/* [coarse_blocks] or NULL */
	int32_t *entry_key, *entry_doc;				/* [entries] or NULL */
	int32_t *key_entry;					/* [keys] or NULL */
	int32_t *entry_block;					/* [entries] or NULL */
};

/* Rows that one lane computes. */
struct hys_range {
	int64_t first, count;
	int32_t lane; /* -1 = nobody's yet */
};

#define HYS_BATCH_RANGES 128

struct hys_batch {
	struct hys_plan *plan; /* holds a reference */
	int64_t rows, keys, entries, window_keys, coarse_blocks;
	struct hys_batch_arrays host;
	int64_t *key_pairs_before;   /* [rows + 1] prefix sums of visible keys */
	int64_t *entry_pairs_before; /* [rows + 1] */
	/* most that any one row sees, at least 1 */
	int64_t row_keys, row_entries, row_window_keys;
	struct hys_buffer **buffers;  /* [plan->device_count]; NULL entries on
					devices with host_memory */
	struct hys_batch_view *views; /* [plan->device_count], all rows */
	void *packed;		      /* all of `host`, as it lies in the buffers too */
	int64_t packed_bytes;
	/* several devices: whose rows of replicated buffers are whose, all
	 * operations alike; ascending, without gaps */
	struct hys_range *ranges;
	int32_t range_count;
	/* [tiles + 1], useful work of rows before each tile of partition.h; of
	 * the operations that are shared by rows, else NULL */
	double *flops_before[HYS_OP_COUNT];
	/* the same of the rows themselves; within flops_before's memory */
	double *rows_before[HYS_OP_COUNT];
};

/* The device's view, cut to rows [first, first + count). */
struct hys_batch_view hys_batch_slice(const struct hys_batch *batch, int32_t device, int64_t first,
				      int64_t count);
int64_t hys_batch_bytes(const struct hys_batch *batch); /* per device */

/* exec.c. A lane is one device's stream, worked by the caller's thread or by
 * one of its own. */
#define HYS_LANE_TASKS 64 /* a power of two; more than a call has copies, most often */

/* A resolved operation plus what has to be staged around it (stage.c), or
 * something else that a lane does in order: a copy, a fill, an event. */
struct hys_task;
typedef hys_status hys_task_run(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
				struct hys_error *error);

/* What a lane's calls of one operation took since the exec was made. */
struct hys_tally {
	int64_t calls, rows;
	double busy_s, foretold_s;
	double weight, flops; /* what the rows count for beside their work, and that */
};

struct hys_lane {
	struct hys_stream *stream;
	struct hys_buffer *workspace; /* NULL when 0 bytes are needed */
	bool workspace_owned;
	void *instances[HYS_OP_COUNT];
	struct hys_exec *exec;
	/* own thread */
	bool threaded;
	pthread_t thread;
	struct hys_task *tasks; /* [HYS_LANE_TASKS], ring, one producer */
	uint32_t head, tail;
	sem_t filled, empty;
	/* first failure since the last finish */
	_Atomic int failed;
	struct hys_error error;
	bool idle; /* its stream was finished, and nothing enqueued since; its thread's */
	/* several devices: failed in the middle of a call, and why */
	_Atomic int dropped;
	struct hys_error drop;
	struct hys_tally tallies[HYS_OP_COUNT];
	struct hys_trace *trace; /* NULL = not kept */
};

struct hys_exec {
	struct hys_plan *plan;	   /* holds a reference */
	struct hys_lane *lanes;	   /* [plan->device_count] */
	bool native;		   /* queues of the caller's: never flushed */
	bool looks;		   /* threads look a while for what they wait for, then sleep */
	bool quantizes;		   /* HYS_EXEC_QUANTIZE */
	struct hys_gather *gather; /* NULL with one device */
	_Atomic int first_failed;  /* 1 + the lane that failed first, 0 = none */
};

/* Gives a copy of the task to a lane: runs it now, or hands it to the lane's
 * thread. After a failure on any lane, answers that failure and does nothing. */
hys_status hys_exec_submit(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			   struct hys_error *error);

/* What hys_exec_submit would answer: HYS_OK or the failure since the last
 * finish. */
hys_status hys_exec_failure(const struct hys_exec *exec, struct hys_error *error);

struct hys_event {
	struct hys_plan *plan; /* holds a reference */
	int32_t count;	       /* lanes */
	struct hys_event_lane {
		struct hys_device *device;
		void *native;	/* set once recorded */
		sem_t recorded; /* posted once `native` is set, ever after */
	} * lanes;
	atomic_int references;
};

/* fields.c: what the tensors of each operation must look like. One table per
 * op drives checking, slicing, staging, merging and byte counts. */
enum hys_dim {
	HYS_DIM_NONE,
	HYS_DIM_ROWS,	     /* of the call: the range, or all of which it is one */
	HYS_DIM_KEYS,	     /* S */
	HYS_DIM_ENTRIES,     /* E */
	HYS_DIM_WINDOW_KEYS, /* S2 */
	HYS_DIM_HEADS,
	HYS_DIM_KV_HEADS,
	HYS_DIM_HEAD_DIM,
	HYS_DIM_VALUE_DIM,
	HYS_DIM_INDEX_HEADS,
	HYS_DIM_INDEX_DIM,
	HYS_DIM_GROUPS,
	HYS_DIM_TOPK,	   /* K, bound by the first tensor that has it */
	HYS_DIM_REFERENCE, /* K2, bound by its tensor */
	HYS_DIM_ONE,
	HYS_DIM_CHANNELS2, /* C or 2C of pooling inputs, bound by x */
	HYS_DIM_CHANNELS,  /* C of pooling */
	HYS_DIM_UNITS,	   /* pooling outputs of the batch */
	HYS_DIM_POOL_ROWS, /* N: S or E */
	HYS_DIM_POOL_SIZE, /* rows per unit */
	HYS_DIM_COUNT
};

enum hys_type_rule {
	HYS_TYPE_F32,
	HYS_TYPE_I32,
	HYS_TYPE_INDEX,	      /* scoring.dtype */
	HYS_TYPE_ATTEND,      /* attending.dtype */
	HYS_TYPE_INDEX_GRAD,  /* scoring.dtype or f32 */
	HYS_TYPE_ATTEND_GRAD, /* attending.dtype or f32 */
	HYS_TYPE_POOL,	      /* any of f32 f16 bf16, the same as x */
	HYS_TYPE_POOL_OUT,    /* that of x, or f32 */
	HYS_TYPE_F8
};

#define HYS_FIELD_OUT 1u      /* written; else read */
#define HYS_FIELD_OPTIONAL 2u /* by itself; the op's own rules may need it */
#define HYS_FIELD_PARTIAL 4u  /* output summed over rows: merged over devices */
#define HYS_FIELD_USUAL 8u    /* optional, but counted in costs */

struct hys_field {
	const char *name;
	size_t offset; /* of the tensor in the args struct */
	uint32_t flags;
	enum hys_type_rule type;
	enum hys_dim dims[3];
	int32_t rank;
};

struct hys_fields {
	const struct hys_field *fields;
	int32_t count;
	size_t args_bytes; /* sizeof of the args struct */
};

const struct hys_fields *hys_op_fields(hys_op op);
bool hys_is_pooling(hys_op op);
bool hys_is_select(hys_op op);
#define HYS_FIELDS_MAX 24

/* Sizes by enum hys_dim; -1 = not bound yet. */
struct hys_dims {
	int64_t size[HYS_DIM_COUNT];
};

static inline struct hys_tensor *hys_field_tensor(const struct hys_field *field, void *args)
{
	return (struct hys_tensor *)(void *)((char *)args + field->offset);
}

static inline int32_t hys_count_operations(uint32_t operations)
{
	int32_t count = 0;

	for (; operations; operations &= operations - 1)
		count++;
	return count;
}

static inline int64_t hys_tensor_elements(const struct hys_tensor *tensor)
{
	int64_t count = 1;

	for (int32_t d = 0; d < tensor->rank; d++)
		count *= tensor->shape[d];
	return count;
}

/* The sizes that a problem and a call fix; the others -1. */
struct hys_dims hys_dims_of(const struct hys_size *size);
/* Upper bounds of all sizes, for a plan's largest calls. */
struct hys_dims hys_dims_max(const struct hys_plan *plan, const struct hys_size *size);
/* Elements of a field; INT64_MAX when they do not fit. */
int64_t hys_field_elements(const struct hys_field *field, const struct hys_dims *dims);
/* The type of the field's own tensor, f32 where any is legal. */
hys_dtype hys_field_dtype(const struct hys_field *field, const struct hys_problem *problem);

struct hys_task {
	hys_task_run *run;
	struct hys_call call; /* tensors the caller's, cut to the lane's rows */
	/* where in the lane's workspace tensors are staged, -1 = not */
	int64_t stage_offset[HYS_FIELDS_MAX];
	int64_t workspace_offset; /* of the kernel's own scratch */
	/* several devices: where in the lane's gather slot, and at the start of
	 * a device's workspace, partial outputs lie, contiguous, f32 or i32; -1
	 * = written in place */
	int64_t slot_offset[HYS_FIELDS_MAX];
	int64_t sums_bytes; /* of them all */
	/* number of this piece among the lane's of the operation: later ones
	 * are summed apart, then added */
	int32_t part;
	bool spread; /* has replicated buffers: rows stay where they are made */
	bool keeps;  /* not all of the outputs is written: staged ones go in first */
	/* several devices: number of the operation among all of the exec's,
	 * and whether `mean` needs the non-empty groups of all lanes */
	int64_t ticket;
	bool counts;
	bool accumulate;	       /* merged outputs are added to */
	const struct hys_batch *batch; /* whole, for counting on the host */
	/* for tasks that are no operation */
	struct hys_copy copy;
	struct hys_region region;
	uint8_t value;
	bool lingers; /* its device need not begin before there is more to do, or somebody waits */
	struct hys_event *event;
	const struct hys_exec_options *options; /* while the exec is made */
	bool always;				/* runs after a failure too: others wait for it */
	bool finishes;				/* enqueues nothing */
};

/* stage.c: runs an operation on a lane, host tensors staged where the device
 * has no host memory. */
hys_task_run hys_stage_run;
/* Lays out the workspace for task->call; bytes of workspace it takes. */
int64_t hys_stage_layout(const struct hys_plan *plan, int32_t lane, struct hys_task *task);
/* Several devices: what the lane has summed goes to its slot. */
hys_status hys_stage_sums_out(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			      struct hys_error *error);

/* merge_partials.c and turns.c: how the lanes of several devices meet. One
 * operation runs at a time: a lane begins the next when all lanes have done the
 * last and their partial outputs are merged. NULL with one device. exec.c makes
 * it with the exec and destroys it when the lanes' threads are gone. */
struct hys_gather;
hys_status hys_gather_create(const struct hys_plan *plan, struct hys_gather **gather,
			     struct hys_error *error);
void hys_gather_destroy(struct hys_gather *gather);
/* Host memory that one takes; 0 with one device. */
int64_t hys_gather_bytes(const struct hys_plan *plan);
/* The number of the next operation; for the exec's one thread. */
int64_t hys_gather_ticket(struct hys_gather *gather);
/* Host memory of a lane for its partial outputs, made by the lane's thread. */
hys_status hys_gather_make_slot(struct hys_exec *exec, int32_t lane, struct hys_error *error);
/* While the lane still has its stream. */
void hys_gather_free_slot(struct hys_exec *exec, int32_t lane);
char *hys_gather_slot(const struct hys_gather *gather, int32_t lane);
/* Lays partial outputs out in the slots; HYS_WORKSPACE_TOO_SMALL. */
hys_status hys_gather_layout(const struct hys_gather *gather, struct hys_task *task,
			     const char *name, struct hys_error *error);
/* A whole call, shared by the lanes. Every lane must get its task of a ticket,
 * and runs it (task->always) after a failure too. */
hys_task_run hys_gather_run;
/* Goes on after a failure, once it was answered and no lane works. */
void hys_gather_forgive(struct hys_gather *gather);

/* submit.c: cuts a task of a whole call to rows [first, first + count) on a
 * lane, laid out in its workspace; answers the bytes that it needs there. */
int64_t hys_task_cut(const struct hys_exec *exec, int32_t lane, struct hys_task *task,
		     int64_t first, int64_t count);
/* Of a task that is cut: between its rows lie others. */
void hys_task_set_gaps(struct hys_task *task, const struct hys_gap *gaps, int32_t count);

/* buffer.c: where a tensor in a replicated buffer lies on the plan's device i. */
struct hys_region hys_replica_region(const struct hys_tensor *tensor, int32_t i);

/* count_nonempty.c: the (row, group) of a loss task that have a set. A teacher
 * computed from q and k counts as non-zero. */
int64_t hys_count_nonempty(const struct hys_task *task);

/* workspace.c: bytes of a lane's workspace for `op` over `size`: kernel
 * scratch and, unless buffers only, every tensor that may be staged. */
int64_t hys_workspace_bytes(const struct hys_plan *plan, hys_op op, int32_t device,
			    const struct hys_size *size);
/* The same for any planned operation at its largest: what an exec allocates
 * for the plan's device i. */
int64_t hys_workspace_max(const struct hys_plan *plan, int32_t device);
/* Most rows of one call on the plan's device i: all, unless its memory is too
 * small for them. */
int64_t hys_plan_rows_most(const struct hys_plan *plan, hys_op op, int32_t device);
/* Most rows of one call: rows_max, or what pooling counts in. */
int64_t hys_plan_rows_max(const struct hys_plan *plan, hys_op op);
/* The largest call of that many rows that the plan allows. */
struct hys_size hys_plan_size_max(const struct hys_plan *plan, hys_op op, int64_t rows);

/* cost.c: what an operation has to do, summed over the rows of a call. */
struct hys_work {
	double rows;	       /* that take part */
	double key_pairs;      /* visible (row, key) */
	double entry_pairs;    /* visible (row, entry) */
	double attended_pairs; /* (row, key) that attention reads */
	double set_keys;       /* (row, key) behind the chosen indices */
	double set_entries;    /* (row, entry) behind them */
	double coarse_pairs;   /* (row, complete coarse block) */
	double kept_pairs;     /* (row, entry) behind the coarse step */
};

/* How much of what it sees a row works on at most. */
struct hys_limits {
	double read, topk_keys, topk_entries, kept;
	int32_t coarse_block;
	bool dense;
};

struct hys_limits hys_limits_of(const struct hys_problem *problem);
/* The same for a row that uses so many of its slots. */
void hys_limits_of_slots(struct hys_limits *limits, const struct hys_problem *problem,
			 double slots);
/* Adds a row that sees so many keys and entries. */
void hys_work_add_row(struct hys_work *work, const struct hys_limits *limits, int64_t keys,
		      int64_t entries);

/* `batch` NULL: one causal document, its last `rows` rows. */
struct hys_work hys_work_of(const struct hys_problem *problem, const struct hys_batch *batch,
			    int64_t rows, int64_t keys);
double hys_cost_flops(hys_op op, const struct hys_problem *problem, const struct hys_work *work);
/* Bytes of the usual tensors of a call that are not on a device yet: per row of
 * rows_max, and whatever the rows. */
void hys_cost_copies(const struct hys_plan *plan, hys_op op, double *per_row, double *fixed);
/* Seconds that the plan's devices take for so much useful work, memory traffic
 * aside; NaN when `op` is not planned. */
double hys_cost_time_s(const struct hys_plan *plan, hys_op op, double flops);

/* selftest.c: runs a tiny problem through `kernel` and through the reference
 * kernel on a device of the CPU backend. HYS_OK, or what differs in `reason`. */
struct hys_site;
/* The backend's kernel "<op>.ref"; NULL when it has none. */
const struct hys_kernel *hys_reference_kernel(const struct hys_backend *backend, hys_op op);
hys_status hys_self_test(const struct hys_site *site, const struct hys_site *reference,
			 const struct hys_problem *problem, const struct hys_kernel *kernel,
			 void *program, char reason[HYS_REASON_SIZE]);

/* check_args.c. The part that all args structs begin with. */
struct hys_args_head {
	size_t struct_size;
	int64_t row_first, row_count;
};

/* One operation while it is checked. */
struct hys_request {
	const char *name; /* of the public function, in messages */
	struct hys_exec *exec;
	struct hys_batch *batch;
	const struct hys_plan *plan;
	hys_op op;
	const struct hys_fields *fields;
	struct hys_dims dims;
	int64_t rows_total; /* of which the range is one */
	int64_t row_first, row_count;
	bool keeps, counts, accumulate, spread; /* as in struct hys_task */
	int32_t series;				/* of pooling: 2 when overlapped */
	hys_dtype pool_dtype;			/* of x, once it is checked */
	struct hys_call call;			/* args: the caller's, then cut to the range */
};

/* Exec, batch, struct_size; copies the args. */
hys_status hys_request_open(struct hys_request *request, const char *name, struct hys_exec *exec,
			    struct hys_batch *batch, const void *args, size_t args_bytes,
			    struct hys_error *error);
/* Whether the plan has request->op; the row range out of `rows_total`. */
hys_status hys_request_rows(struct hys_request *request, hys_op op, int64_t rows_total,
			    struct hys_error *error);
/* Every tensor: presence, type, shape, memory, overlap. Cuts them to the
 * range and fills in strides. */
hys_status hys_request_tensors(struct hys_request *request, struct hys_error *error);

/* submit.c: gives the checked call to the lanes. */
hys_status hys_request_submit(struct hys_request *request, struct hys_error *error);

#endif
