/* context_parallel.h - what the files of hyscale_mpi share. They are a library
 * of their own and see of the other one only its public headers; alloc.h,
 * check.h and number.h are built into both. */
#ifndef HYS_CONTEXT_PARALLEL_H
#define HYS_CONTEXT_PARALLEL_H

#include <stdbool.h>

#include "alloc.h"
#include "check.h"
#include "hyscale/hyscale.h"
#include "hyscale/mpi.h"

#define HYS_CP_BLOCKS 32

/* Memory that is kept for the next call. */
struct hys_cp_block {
	char *host;
	struct hys_buffer *buffer;
	struct hys_context *context; /* of the buffer, and its number there */
	int32_t device;
	int64_t bytes;
	bool taken;
};

struct hys_cp {
	MPI_Comm comm;
	int rank, ranks;
	hys_cut_way way;
	int32_t slices;
	hys_cp_mode mode;
	struct hys_allocator allocator;
	struct hys_cp_block blocks[HYS_CP_BLOCKS];
	struct hys_cp_traffic traffic;
	double waited_s;
	void (*trace)(void *user, double start_s, double end_s, const char *what);
	void *trace_user;
	struct hys_cp_keys *keys; /* list of all there are */
	uint32_t gathers;	  /* so far, the same number on all ranks */
};

struct hys_cp_batch {
	struct hys_cp *cp;
	struct hys_plan *plan; /* the local batch holds on to it */
	struct hys_cut *cut;
	struct hys_batch *local;
	bool on_device; /* gathered keys lie in a buffer */
};

/* ---- context_parallel.c ---- */

/* HYS_OK or HYS_IO for what an MPI function answered. */
hys_status hys_cp_mpi(int code, const char *what, struct hys_error *error);

/* Tells the caller's trace what was done since `start`. */
void hys_cp_trace(const struct hys_cp *cp, double start, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Collective. Every rank gives its status, with what `own` says of it; `what`
 * stands for the call that it is in. The lowest rank's failure, or
 * HYS_INVALID_ARGUMENT when ranks are in different calls, is everybody's
 * answer. */
hys_status hys_cp_agree(struct hys_cp *cp, hys_status status, uint64_t what,
			const struct hys_error *own, struct hys_error *error);

/* ---- context_parallel_memory.c ---- */

/* Host memory, or a buffer on the plan's device when `on_device`. NULL with the
 * error filled. Given back, it waits for the next taker. */
struct hys_cp_block *hys_cp_take(struct hys_cp *cp, const struct hys_plan *plan, bool on_device,
				 int64_t bytes, struct hys_error *error);
void hys_cp_give(struct hys_cp_block *block);
/* Frees what a block holds. */
void hys_cp_drop(struct hys_cp *cp, struct hys_cp_block *block);

/* Bytes of one element of dimension 0 of a tensor. */
int64_t hys_cp_row_bytes(const struct hys_tensor *tensor);
bool hys_cp_is_present(const struct hys_tensor *tensor);
/* A contiguous tensor of `rows` in a block, otherwise like `like`. */
struct hys_tensor hys_cp_tensor(const struct hys_cp_block *block, const struct hys_tensor *like,
				hys_dtype dtype, int64_t rows);
bool hys_cp_is_contiguous(const struct hys_tensor *tensor);
/* Where a tensor begins that is host memory and contiguous; else NULL. */
const char *hys_cp_in_place(const struct hys_tensor *tensor);
/* Copies all rows of a tensor to contiguous host memory, and back. Waits. */
hys_status hys_cp_fetch(struct hys_exec *exec, const struct hys_tensor *tensor, char *to,
			struct hys_error *error);
hys_status hys_cp_store(struct hys_exec *exec, const struct hys_tensor *tensor, const char *from,
			struct hys_error *error);
/* Zeros in all elements. */
hys_status hys_cp_zero(struct hys_exec *exec, const struct hys_tensor *tensor,
		       struct hys_error *error);

/* ---- context_parallel_messages.c: who sends what to whom ---- */

/* What two ascending lists of runs have in common, piece by piece. */
struct hys_cp_pieces {
	const struct hys_span *a, *b;
	int32_t a_count, b_count;
	int64_t begin, end; /* only within these */
	int32_t i, j;
	int64_t before;		     /* elements of `a` before run i */
	int64_t first, count, place; /* the piece; its place among the elements of `a` */
};
bool hys_cp_piece_next(struct hys_cp_pieces *pieces);
/* What `rank` owns of a part and `other` needs, or (mine false) the reverse. */
struct hys_cp_pieces hys_cp_pieces_of(const struct hys_cut *cut, hys_cut_part part, int32_t rank,
				      int32_t other, bool mine);

/* A message to or from another rank: rows of an array. */
struct hys_cp_message {
	int peer, tag;
	int32_t slice;
	int64_t rows;
	int64_t offset; /* bytes into the array */
	int count;	/* of the type */
	MPI_Datatype type;
	bool owned; /* the type is the message's own */
};

struct hys_cp_messages {
	const struct hys_allocator *allocator;
	struct hys_cp_message *list; /* slice after slice, in each rank after rank */
	int32_t count;
	MPI_Datatype row;
	bool made;
};

/* `mine`: rows that the rank owns and others need, out of an array of its own
 * rows. Else what it needs of others, into (or out of) one of all rows. What is
 * under way at the same time has tags of its own. */
struct hys_cp_way {
	hys_cut_part part;
	int64_t row_bytes;
	int32_t slices;
	int tag;
	bool mine;
	bool last_first; /* the last slice comes first */
};
hys_status hys_cp_messages_make(const struct hys_cp_batch *batch, const struct hys_cp_way *way,
				struct hys_cp_messages *messages, struct hys_error *error);
void hys_cp_messages_clear(struct hys_cp_messages *messages);
/* Bytes of all of them. */
int64_t hys_cp_messages_bytes(const struct hys_cp_messages *messages, int64_t row_bytes);
hys_status hys_cp_send(struct hys_cp *cp, const struct hys_cp_message *message, int64_t row_bytes,
		       const char *array, MPI_Request *request, struct hys_error *error);
hys_status hys_cp_receive(struct hys_cp *cp, const struct hys_cp_message *message, char *array,
			  MPI_Request *request, struct hys_error *error);
/* Wait for some; receives are counted. */
hys_status hys_cp_wait_receives(struct hys_cp *cp, int32_t count, MPI_Request *requests,
				struct hys_error *error);
hys_status hys_cp_wait_sends(struct hys_cp *cp, int32_t count, MPI_Request *requests,
			     struct hys_error *error);

/* ---- context_parallel_keys.c: gathering ---- */

struct hys_cp_keys {
	struct hys_cp_batch *batch;
	struct hys_exec *exec;
	hys_cut_part part;
	struct hys_tensor tensor; /* whole, where operations find it */
	struct hys_cp_block *host, *buffer, *staged;
	const char *source; /* own rows, contiguous, host */
	/* Own rows, in a buffer: they are copied there, and only what others need
	 * of them comes to the host, which `fetched` tells. */
	struct hys_tensor local;
	bool copied;
	struct hys_event *fetched;
	int64_t row_bytes;
	struct hys_cp_messages in, out;
	MPI_Request *requests; /* of in, then of out */
	int32_t posted_in, posted_out;
	int32_t arrived; /* slices */
	bool set_out;	 /* all ranks agreed that they travel */
	bool alone;	 /* one rank: the tensor is the caller's */
	struct hys_cp_keys *next;
};

/* The local half: memory and messages. Then the collective one. */
hys_status hys_cp_keys_prepare(struct hys_cp_batch *batch, struct hys_exec *exec, hys_cut_part part,
			       const struct hys_tensor *local, struct hys_cp_keys **keys,
			       struct hys_error *error);
hys_status hys_cp_keys_post(struct hys_cp_keys *keys, struct hys_error *error);
/* Sends what was not sent yet, once it is on the host. Every wait of a call comes
 * behind this, so that nobody waits for a rank that waits. */
hys_status hys_cp_keys_send(struct hys_cp_keys *keys, struct hys_error *error);
/* Whether a slice is here already. */
hys_status hys_cp_keys_have(struct hys_cp_keys *keys, int32_t slice, bool *have,
			    struct hys_error *error);
/* The rank's own rows to where they are among all: once, when somebody comes to read
 * them, or has nothing else to do. */
hys_status hys_cp_keys_copy_own(struct hys_cp_keys *keys, struct hys_error *error);
/* Waits until slices [0, slices) are there, and makes `exec` wait for their
 * copies. */
hys_status hys_cp_keys_await(struct hys_cp_keys *keys, struct hys_exec *exec, int32_t slices,
			     struct hys_error *error);
/* Everything sets out, and arrives while `exec` computes: as much of it as does.
 * NULL = nobody waits for what arrives. */
hys_status hys_cp_drive(struct hys_cp *cp, struct hys_exec *exec, struct hys_error *error);
/* The keys that a tensor is of; NULL = it is no gathered one. */
struct hys_cp_keys *hys_cp_keys_of(const struct hys_cp *cp, const struct hys_tensor *tensor);

/* ---- context_parallel_sum.c: gradients to their owners ---- */

#define HYS_CP_SUM_TAG 3 /* beside rings, below gathered keys */

struct hys_cp_sum {
	struct hys_cp_batch *batch;
	hys_cut_part part;
	const struct hys_tensor *target; /* own rows */
	struct hys_cp_block *partial;	 /* f32, whole, where operations write */
	struct hys_cp_block *host;	 /* the same on the host */
	struct hys_cp_block *total;	 /* own rows */
	struct hys_cp_block *received[2];
	struct hys_cp_block *packed; /* messages of several runs, one behind the other */
	int64_t packed_bytes;	     /* so far */
	struct hys_cp_messages in, out;
	struct hys_event **fetched; /* [slices] that are on the host */
	MPI_Request *requests;	    /* of out, then one for each of `received` */
	int64_t row_elements;
	int32_t posted, next; /* messages out, in */
};

hys_status hys_cp_sum_prepare(struct hys_cp_batch *batch, struct hys_exec *exec, hys_cut_part part,
			      const struct hys_tensor *target, bool accumulate, int tag,
			      struct hys_cp_sum *sum, struct hys_error *error);
/* Slices [first, end) of the partial sums are complete once `exec` comes to it:
 * they set out for the host then. */
hys_status hys_cp_sum_fetch(struct hys_cp_sum *sum, struct hys_exec *exec, int32_t first,
			    int32_t end, struct hys_error *error);
/* Collective: slices of all sums go to their owners, the last first, as soon as
 * they are on the host, and are added there. What was never fetched is sent all
 * the same, for others count on it, and fails in the end. */
hys_status hys_cp_sums_run(struct hys_cp *cp, struct hys_cp_sum *sums, int32_t count,
			   struct hys_error *error);
/* The total, to the caller's tensor. */
hys_status hys_cp_sum_store(struct hys_cp_sum *sum, struct hys_exec *exec, bool accumulate,
			    struct hys_error *error);
void hys_cp_sum_clear(struct hys_cp_sum *sum);
/* Writes contiguous f32 numbers to a tensor of any type, or adds them. */
hys_status hys_cp_finish_sum(struct hys_cp *cp, const struct hys_plan *plan, struct hys_exec *exec,
			     const struct hys_tensor *target, char *total, bool accumulate,
			     struct hys_error *error);

/* ---- context_parallel_fields.c: what each operation moves ---- */

enum hys_cp_use {
	HYS_CP_IN = 0, /* keys, gathered */
	HYS_CP_SUM,    /* gradients of keys, to their owners */
	HYS_CP_TOTAL   /* the same on all ranks, added up */
};

struct hys_cp_field {
	size_t offset;
	hys_cut_part part;
	enum hys_cp_use use;
	const char *name;
};

struct hys_cp_op {
	const char *name;
	hys_op op;
	size_t args_bytes;
	const struct hys_cp_field *fields;
	int32_t count;
	hys_status (*call)(struct hys_exec *exec, struct hys_batch *batch, const void *args,
			   struct hys_error *error);
	bool by_slices; /* rows may begin when their keys are there */
};

/* Whether the keys of such a call go round: some of them are the rank's own. */
bool hys_cp_goes_round(const struct hys_cp_batch *batch, const struct hys_cp_op *op,
		       const void *args);
/* Whether a ring does it; others take gathered keys there. */
bool hys_cp_in_ring(hys_op op);
/* NULL for one that has no keys to move. */
const struct hys_cp_op *hys_cp_op_of(hys_op op);

/* ---- context_parallel_ops.c ---- */

#define HYS_CP_TENSORS_MAX 6
#define HYS_CP_TOTALS_MAX 2

/* What all args structs begin with. */
struct hys_cp_head {
	size_t struct_size;
	int64_t row_first, row_count;
};

union hys_cp_arguments {
	struct hys_cp_head head;
	struct hys_select_args select;
	struct hys_attention_args forward;
	struct hys_attention_grad_args backward;
	struct hys_loss_args loss;
	struct hys_fidelity_args fidelity;
};

struct hys_cp_total {
	const struct hys_tensor *target; /* the caller's */
	struct hys_cp_block *block, *host;
	struct hys_tensor own;
};

struct hys_cp_call {
	const struct hys_cp_op *op;
	struct hys_cp_batch *batch;
	struct hys_exec *exec;
	const void *given;
	union hys_cp_arguments args; /* tensors of keys replaced */
	bool accumulate;
	struct hys_cp_keys *keys[HYS_CP_TENSORS_MAX]; /* that the call reads */
	bool own[HYS_CP_TENSORS_MAX];		      /* gathered by it */
	int32_t key_count;
	struct hys_cp_sum sums[HYS_CP_TENSORS_MAX];
	int32_t sum_count;
	struct hys_cp_total totals[HYS_CP_TOTALS_MAX];
	int32_t total_count;
	uint64_t what; /* for the ranks to compare */
};

/* Collective: adds the totals of all ranks up, in the order of ranks. */
hys_status hys_cp_total_prepare(struct hys_cp_batch *batch, struct hys_exec *exec,
				const struct hys_tensor *target, struct hys_cp_total *total,
				struct hys_error *error);
hys_status hys_cp_total_run(struct hys_cp_batch *batch, struct hys_exec *exec,
			    struct hys_cp_total *total, bool accumulate, struct hys_error *error);

/* context_parallel_ring.c: collective, the whole operation. */
hys_status hys_cp_run_in_ring(const struct hys_cp_op *op, struct hys_cp_batch *batch,
			      struct hys_exec *exec, const union hys_cp_arguments *args,
			      bool accumulate, struct hys_error *error);
/* ---- context_parallel_sampled.c: rows of all ranks that a loss counts ---- */

/* Whether only some rows count, numbered among those of all ranks. */
bool hys_cp_is_sampled(struct hys_cp_call *call);
/* Runs the operation on every run of the rank's rows, sampled as all rows are. */
hys_status hys_cp_run_sampled(struct hys_cp_call *call, struct hys_error *error);
/* Collective: what a loss's mean divides by on all ranks. */
hys_status hys_cp_agree_on_divisor(struct hys_cp_call *call, struct hys_error *error);

static inline struct hys_tensor *hys_cp_field_tensor(const struct hys_cp_field *field, void *args)
{
	return (struct hys_tensor *)(void *)((char *)args + field->offset);
}

#endif
