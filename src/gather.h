/* gather.h - how the lanes of several devices meet: what merge_partials.c and
 * turns.c share. */
#ifndef HYS_GATHER_H
#define HYS_GATHER_H

#include "partition.h"

/* Rows of the operation at hand, and how far they are. */
struct hys_turn {
	struct hys_range range; /* counted from the call's first row; gaps left out */
	struct hys_gap gaps[HYS_GAPS_MAX];
	int32_t gap_count;
	bool taken, done;
};

struct hys_gather_lane {
	char *slot;	/* host memory for its sums; twice as much on the host */
	void *native;	/* of a backend's host_create; NULL = the allocator's */
	bool delivered; /* all that it has summed lies in the slot */
	bool working;	/* has begun something of this operation */
	int32_t parts;	/* ranges that it has summed, or tried to */
	double begun_s; /* when it began */
	double ended_s; /* when it delivered */
	double foretold_s;
	double weight, flops; /* as in struct hys_tally */
	int64_t rows;
	/* guided: foretold and real seconds so far */
	double guided_foretold_s, guided_real_s;
};

struct hys_gather {
	const struct hys_plan *plan;
	const struct hys_allocator *allocator;
	int64_t slot_bytes;
	int64_t tickets; /* given out; the exec's thread only */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	_Atomic unsigned changes; /* counted under the lock, looked at without it */
	int64_t current;	  /* the operation that lanes may do */
	/* of that operation, under the lock but for what is said */
	bool preparing, prepared; /* one lane cuts, without the lock */
	bool skip;		  /* something has failed since the last finish */
	int32_t counted;	  /* lanes that know their non-empty groups */
	int64_t nonempty;	  /* of those */
	int32_t arrived, merged;  /* lanes that are done with computing, with merging */
	bool failed;
	struct hys_turn *turns;
	int32_t turn_count, turns_most;
	int64_t next_tile; /* guided: the first that nobody has */
	bool guided;
	struct hys_tiles tiles;
	struct hys_lane_cost costs[HYS_LANES_MAX];
	struct hys_gather_lane *lanes;
};

/* deal.c: turns before anybody has begun. The batch's ranges, as far as the call
 * has them; or runs of rows for each lane, such that all take as long. */
void hys_gather_deal_ranges(struct hys_exec *exec, const struct hys_task *task);
void hys_gather_deal_by_cost(struct hys_gather *gather);
/* Rows of one lane, or, -1, of whoever is free. */
void hys_gather_add_turn(struct hys_gather *gather, int64_t first, int64_t count, int32_t lane);

/* Whether the lane has sums of this operation that count. */
bool hys_gather_contributes(const struct hys_exec *exec, int32_t lane);
/* merge_partials.c: this lane's part of adding up what all have summed; all
 * have delivered. */
hys_status hys_gather_merge(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			    struct hys_error *error);

#endif
