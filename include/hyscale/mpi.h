/* hyscale/mpi.h - one step on the ranks of a job, by MPI.
 *
 * The only header that names MPI, in a library of its own: hyscale_mpi. Each
 * rank owns some rows, keys and entries of the documents (ranks.h); select,
 * attention and the loss then run on its rows, over all keys. Only index keys
 * and keys and values travel, to ranks whose rows see them, and gradients of
 * them back to their owners. A rank's picks, o and row gradients are those that
 * one rank would find for the same rows.
 *
 * Collective: every rank of the communicator calls the same functions in the
 * same order, with its own tensors. When one rank cannot do its part (a wrong
 * argument, no memory, a device lost), all ranks get its status, and a message
 * that begins "rank N: "; nothing hangs, and the next call works. What outputs
 * hold after that is undefined. Only NULL for the job or batch itself answers
 * HYS_INVALID_ARGUMENT at once and alone.
 *
 * MPI is called by the calling thread only, so MPI_THREAD_FUNNELED will do; one
 * thread at a time for everything that belongs to a job. */
#ifndef HYSCALE_MPI_H
#define HYSCALE_MPI_H

#include <mpi.h>

#include "operations.h"
#include "ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hys_cp;	     /* a job: communicator, memory, counters */
struct hys_cp_batch; /* one step: which rows see which keys, and whose they are */
struct hys_cp_keys;  /* keys of all ranks, arriving */

typedef enum hys_cp_mode {
	/* Each rank gets all the keys that its rows see. They come in slices,
	 * and rows begin when theirs are there. */
	HYS_CP_GATHER = 0,
	/* Keys go round in a ring, the memory of two ranks' keys is enough;
	 * picks and softmax partials of each are merged, on the host. Select
	 * exact, attention forward and backward. */
	HYS_CP_RING,
	HYS_CP_MODE_COUNT
} hys_cp_mode;

struct hys_cp_options {
	size_t struct_size; /* sizeof(struct hys_cp_options) */
	hys_cut_way way;
	int32_t slices; /* of a gather; 0 = 8 */
	hys_cp_mode mode;
	/* Memory of what travels, kept until the job is destroyed: page-locked
	 * memory serves devices best. Both or neither. */
	void *(*allocate)(void *user, size_t bytes, size_t align);
	void (*release)(void *user, void *pointer);
	void *allocate_user;
	/* Called when a call has waited for, given or moved something; seconds
	 * of MPI_Wtime. NULL = nothing is traced. */
	void (*trace)(void *user, double start_s, double end_s, const char *what);
	void *trace_user;
};

/* Collective. Works on a duplicate of `comm`, which it frees at the end; MPI
 * must be initialised until then. `options` NULL = zeros; must be the same on
 * all ranks. HYS_OK, HYS_INVALID_ARGUMENT, HYS_OUT_OF_MEMORY, HYS_IO (MPI
 * failed; error->native is its code). */
HYS_API hys_status hys_cp_create(MPI_Comm comm, const struct hys_cp_options *options,
				 struct hys_cp **cp, struct hys_error *error);
/* Collective; after its batches and keys. NULL is fine. */
HYS_API void hys_cp_destroy(struct hys_cp *cp);
HYS_API int32_t hys_cp_rank(const struct hys_cp *cp);
HYS_API int32_t hys_cp_ranks(const struct hys_cp *cp);

/* Bytes of tensors that went to and came from other ranks. */
struct hys_cp_traffic {
	int64_t sent_bytes, received_bytes;
	int64_t messages_sent, messages_received;
};

/* Counted since the job was made: what was given to MPI, and what MPI said
 * arrived. Agreements of the ranks, some bytes each, are not in it. */
HYS_API struct hys_cp_traffic hys_cp_counted(const struct hys_cp *cp);
/* Seconds that this rank waited: for keys, and for other ranks. */
HYS_API double hys_cp_waited_s(const struct hys_cp *cp);

/* Collective. `desc` describes all rows and keys, as for hys_batch_create, the
 * same on every rank; `plan` is the rank's own, of the same problem, with room
 * for its rows (hys_cut_count) and all keys (ring: keys_max too). Statuses of
 * hys_batch_create, HYS_INVALID_ARGUMENT where ranks differ. The batch holds on
 * to its plan; destroying it is not collective. */
HYS_API hys_status hys_cp_batch_create(struct hys_cp *cp, struct hys_plan *plan,
				       const struct hys_batch_desc *desc,
				       struct hys_cp_batch **batch, struct hys_error *error);
HYS_API void hys_cp_batch_destroy(struct hys_cp_batch *batch);
/* Whose is what; lives as long as the batch. */
HYS_API const struct hys_cut *hys_cp_batch_cut(const struct hys_cp_batch *batch);
/* The rank's rows over all keys, for other operations than those below. */
HYS_API struct hys_batch *hys_cp_batch_local(const struct hys_cp_batch *batch);

/* Collective, and returns at once: keys set out to those who need them and may
 * travel while other operations run. `part` is HYS_CUT_KEYS, HYS_CUT_ENTRIES or
 * HYS_CUT_WINDOW_KEYS; `local` is what this rank owns, [count, ...], and must
 * stay as it is until the keys are destroyed. `exec` copies to and from the
 * device; it may be of any plan on the same device. Statuses of hys_cp_create,
 * HYS_DEVICE_FAILED. */
HYS_API hys_status hys_cp_gather(struct hys_cp_batch *batch, struct hys_exec *exec,
				 hys_cut_part part, const struct hys_tensor *local,
				 struct hys_cp_keys **keys, struct hys_error *error);
/* Keys of all ranks, for the operations below in place of the rank's own: once
 * gathered they serve as many as wished. What the rank does not need of them is
 * undefined. */
HYS_API struct hys_tensor hys_cp_keys_tensor(const struct hys_cp_keys *keys);
/* Collective, for it sends what nobody has waited for yet; waits for messages on
 * their way; before the batch. NULL is fine. */
HYS_API void hys_cp_keys_destroy(struct hys_cp_keys *keys);

/* The operations: arguments as in operations.h, rows numbered among the rank's
 * own. Tensors of keys, entries and second source, inputs and gradients, hold
 * what the rank owns, in the order of hys_cut_owned; inputs may be gathered
 * ones. Collective; they return when the outputs are there. Results:
 * - gradients of keys come to their owner, added up in the order of ranks, in
 *   f32; so the same bits every time;
 * - dsink, loss: of all ranks, the same on each, added in the order of ranks;
 * - `mean` without a divisor divides by the non-empty (row, group) of all ranks;
 * - row_stride and row_offset count in rows of all ranks;
 * - nan_rows: among the rank's own rows.
 * Statuses of operations.h, HYS_OUT_OF_MEMORY, HYS_DEVICE_FAILED, HYS_IO.
 * In a ring, HYS_UNSUPPORTED: coarse methods, first and local blocks, nan_rows,
 * attention over a window, first rows or indices of granularity above 1, a
 * range of rows. Gathered keys serve there, too; the loss and fidelity take no
 * others. Merged in f32, o differs from one rank's within the tolerance. */
HYS_API hys_status hys_cp_select(struct hys_cp_batch *batch, struct hys_exec *exec,
				 const struct hys_select_args *args, struct hys_error *error);
HYS_API hys_status hys_cp_attention_forward(struct hys_cp_batch *batch, struct hys_exec *exec,
					    const struct hys_attention_args *args,
					    struct hys_error *error);
HYS_API hys_status hys_cp_attention_backward(struct hys_cp_batch *batch, struct hys_exec *exec,
					     const struct hys_attention_grad_args *args,
					     struct hys_error *error);
HYS_API hys_status hys_cp_indexer_loss(struct hys_cp_batch *batch, struct hys_exec *exec,
				       const struct hys_loss_args *args, struct hys_error *error);
HYS_API hys_status hys_cp_fidelity(struct hys_cp_batch *batch, struct hys_exec *exec,
				   const struct hys_fidelity_args *args, struct hys_error *error);

/* What a call with these arguments will move, on this rank: of one of the
 * operations above, `args` its struct. Not collective. HYS_OK,
 * HYS_INVALID_ARGUMENT. */
HYS_API hys_status hys_cp_plan(const struct hys_cp_batch *batch, hys_op op, const void *args,
			       struct hys_cp_traffic *traffic, struct hys_error *error);

/* A table for people: what each rank owns, sees and receives. Like snprintf,
 * answers the length needed without the terminator. */
HYS_API size_t hys_cp_describe(const struct hys_cp_batch *batch, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
