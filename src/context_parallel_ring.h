/* context_parallel_ring.h - keys in a ring: how they go round, and what is made
 * of each rank's. */
#ifndef HYS_CONTEXT_PARALLEL_RING_H
#define HYS_CONTEXT_PARALLEL_RING_H

#include "context_parallel.h"

/* One tensor of keys on its way: this turn's and the next one's. */
struct hys_cp_carried {
	const struct hys_cp_field *field;
	struct hys_tensor local; /* the caller's */
	int64_t row_bytes;
	struct hys_cp_block *host[2], *buffer;
};

/* Gradients of keys, on their way to their owner. */
struct hys_cp_returned {
	const struct hys_cp_field *field;
	struct hys_tensor local;
	int64_t row_elements;
	struct hys_cp_block *partial; /* where the operation writes */
	struct hys_cp_block *host;    /* the same on the host, then the sum to send */
	struct hys_cp_block *arrived; /* what ranks before this one found */
};

#define HYS_CP_CARRIED_MAX 4

struct hys_cp_ring {
	const struct hys_cp_op *op;
	struct hys_cp_batch *batch;
	struct hys_exec *exec;
	union hys_cp_arguments args; /* the caller's, then of the turn */
	const union hys_cp_arguments *given;
	bool accumulate;
	struct hys_cp_carried carried[HYS_CP_CARRIED_MAX];
	int32_t carried_count;
	struct hys_cp_returned returned[HYS_CP_CARRIED_MAX];
	int32_t returned_count;
	int32_t shard; /* whose keys are here */
	int64_t rows;
	/* the rank's rows: what the turn gave, and what all turns gave so far */
	struct hys_cp_block *turn[3], *turn_host[3], *sum[3];
	struct hys_cp_block *lists; /* the caller's indices on the host */
	struct hys_cp_total total;  /* dsink */
	uint64_t what;
};

/* ---- context_parallel_ring_ops.c: what turns do ---- */

struct hys_cp_turns {
	/* Memory of the rows, and what cannot be done. */
	hys_status (*begin)(struct hys_cp_ring *ring, struct hys_error *error);
	/* Done when it returns. */
	hys_status (*turn)(struct hys_cp_ring *ring, struct hys_batch *shard,
			   struct hys_error *error);
	/* Results to the caller's tensors. */
	hys_status (*end)(struct hys_cp_ring *ring, struct hys_error *error);
};

/* NULL = not in a ring. */
const struct hys_cp_turns *hys_cp_turns_of(hys_op op);

#endif
