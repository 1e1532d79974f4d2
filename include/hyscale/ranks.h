/* hyscale/ranks.h - packed documents cut over the ranks of a job.
 *
 * A cut says which rows, keys and entries each rank owns and which it needs of
 * the others. Any number of ranks and any lengths will do: a rank may own
 * nothing. It uses no device and no network; hyscale/mpi.h moves what a cut
 * says, and `hyscale plan --ranks` predicts from it. A cut is immutable and
 * thread safe. */
#ifndef HYSCALE_RANKS_H
#define HYSCALE_RANKS_H

#include "batch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hys_cut;

typedef enum hys_cut_way {
	HYS_CUT_BALANCED = 0, /* the same rows and the same visible pairs for all,
				 from heavy and light rows of every kind */
	HYS_CUT_CONTIGUOUS,   /* one range of equally many rows each */
	HYS_CUT_ZIGZAG,	      /* range r of 2 ranks and its mirror image */
	HYS_CUT_WAY_COUNT
} hys_cut_way;

/* "balanced", "contiguous", "zigzag"; "unknown" otherwise. */
HYS_API const char *hys_cut_way_name(hys_cut_way way);

/* What is cut. Keys follow their rows where there are as many of each and
 * documents have no cu_seqlens_k of their own; else they are cut into equal
 * ranges. An entry belongs to the owner of its first key; documents are cut
 * between pools and blocks. The second source follows the rows when it is as
 * long, and is cut into equal ranges otherwise. */
typedef enum hys_cut_part {
	HYS_CUT_ROWS = 0,
	HYS_CUT_KEYS,
	HYS_CUT_ENTRIES,
	HYS_CUT_WINDOW_KEYS,
	HYS_CUT_PART_COUNT
} hys_cut_part;

struct hys_cut_options {
	size_t struct_size; /* sizeof(struct hys_cut_options) */
	int32_t ranks;	    /* 1 or more */
	hys_cut_way way;
	int32_t slices; /* equal ranges of keys that travel one after the other; 0 = 8 */
};

/* [first, first + count) of the whole. */
struct hys_span {
	int64_t first, count;
};

/* Cuts what `desc` describes, the whole of it, as hys_batch_create takes it
 * (nothing of it is kept). HYS_OK, HYS_INVALID_ARGUMENT, HYS_UNSUPPORTED (a
 * problem that hys_problem_complete refuses), HYS_OUT_OF_MEMORY. The same
 * arguments give the same cut everywhere. */
HYS_API hys_status hys_cut_create(const struct hys_problem *problem,
				  const struct hys_batch_desc *desc,
				  const struct hys_cut_options *options, struct hys_cut **cut,
				  struct hys_error *error);
/* NULL is fine. */
HYS_API void hys_cut_destroy(struct hys_cut *cut);

HYS_API int32_t hys_cut_ranks(const struct hys_cut *cut);
HYS_API int32_t hys_cut_slices(const struct hys_cut *cut);
/* Of all ranks together. */
HYS_API int64_t hys_cut_size(const struct hys_cut *cut, hys_cut_part part);
/* What a rank owns, ascending: it numbers its own in this order. Answers how
 * many runs; *runs lives as long as the cut. */
HYS_API int32_t hys_cut_owned(const struct hys_cut *cut, hys_cut_part part, int32_t rank,
			      const struct hys_span **runs);
/* Elements of them. */
HYS_API int64_t hys_cut_count(const struct hys_cut *cut, hys_cut_part part, int32_t rank);
/* What some row of the rank sees, ascending; nothing for HYS_CUT_ROWS. */
HYS_API int32_t hys_cut_needed(const struct hys_cut *cut, hys_cut_part part, int32_t rank,
			       const struct hys_span **runs);
/* How many of the rank's rows, from its first on, see nothing behind the first
 * `slices` slices of the part, what the rank owns included. */
HYS_API int64_t hys_cut_ready(const struct hys_cut *cut, hys_cut_part part, int32_t rank,
			      int32_t slices);
/* Visible pairs of a rank's rows. */
HYS_API int64_t hys_cut_key_pairs(const struct hys_cut *cut, int32_t rank);
HYS_API int64_t hys_cut_entry_pairs(const struct hys_cut *cut, int32_t rank);

/* Elements of a part that a rank sends to and receives from others when all
 * get what they need. A reduction moves the same the other way. */
struct hys_cut_traffic {
	int64_t sent, received;
	int64_t messages_sent, messages_received;
};
HYS_API struct hys_cut_traffic hys_cut_traffic(const struct hys_cut *cut, hys_cut_part part,
					       int32_t rank);

/* The rank's rows, numbered from 0, over all keys. Statuses of
 * hys_batch_create. */
HYS_API hys_status hys_cut_batch(const struct hys_cut *cut, int32_t rank, struct hys_plan *plan,
				 struct hys_batch **batch, struct hys_error *error);

/* The same over the keys, entries and second source that `shard`, a rank, owns:
 * numbered from 0, rows see what they see of them. */
HYS_API hys_status hys_cut_shard(const struct hys_cut *cut, int32_t rank, int32_t shard,
				 struct hys_plan *plan, struct hys_batch **batch,
				 struct hys_error *error);

/* What a step is priced with: a network as a rank sees it, both directions at
 * once, and measured rates where there are some. */
struct hys_network {
	size_t struct_size;		  /* sizeof(struct hys_network) */
	double bytes_per_s;		  /* of one rank */
	double latency_s;		  /* of one message */
	double host_bytes_per_s;	  /* adding gradients up on the host; 0 = 5e9 */
	double flops_per_s[HYS_OP_COUNT]; /* useful work of one rank; 0 = what the plan
					     predicts */
	double row_s[HYS_OP_COUNT];	  /* what a row takes beside, where there is a rate:
					     short documents have many rows and little work */
};

/* One step of one layer, as far as it is planned: index keys and keys set out,
 * select by slices, attention forward and backward, loss, gradients of keys to
 * their owners; every operation ends on all ranks together. */
struct hys_rank_cost {
	double flops;
	double compute_s; /* the rank's operations */
	double wait_s;	  /* for keys that had not arrived */
	double reduce_s;  /* moving and adding gradients of keys, as far as that is waited for */
	double agree_s;	  /* messages of all ranks at the ends of operations */
	double idle_s;	  /* for slower ranks */
	double op_s[HYS_OP_COUNT]; /* of each operation, keys and gradients included */
	double step_s;		   /* all of it: the same for every rank */
	int64_t sent_bytes, received_bytes;
	int64_t owned_bytes;	 /* the rank's own tensors */
	int64_t gathered_bytes;	 /* keys of others and gradients of them */
	int64_t workspace_bytes; /* of the plan's devices */
};

/* Predicts costs[ranks] of a plan of the same problem, whose devices stand for
 * every rank's. HYS_OK, HYS_INVALID_ARGUMENT, HYS_OUT_OF_MEMORY, HYS_FORKED. */
HYS_API hys_status hys_cut_price(const struct hys_cut *cut, const struct hys_plan *plan,
				 const struct hys_network *network, struct hys_rank_cost *costs,
				 struct hys_error *error);

#ifdef __cplusplus
}
#endif
#endif
