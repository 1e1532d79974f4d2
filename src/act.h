/* act.h - the calls of a rehearsal, of rows that are alike. */
#ifndef HYS_ACT_H
#define HYS_ACT_H

#include "partition.h"
#include "trial.h"

struct hys_act {
	struct hys_trial_size size; /* the caller's */
	/* Of a call, the caller's: fewer than there are if they take longer than was thought. */
	int64_t rows;
	struct hys_plan *whole;
	struct hys_plan plan; /* that, cut to one operation and few rows */
	struct hys_trial trial;
	struct hys_batch *batch;
	struct hys_exec *exec;
};

/* Of an act whose size is filled in and all else zero. What is open is to be closed after a
 * failure, too. */
hys_status hys_act_open(struct hys_act *act, struct hys_plan *whole, hys_op op,
			struct hys_error *error);
void hys_act_close(struct hys_act *act);
/* Of so many rows, the last; on all devices, or on one. */
hys_status hys_act_call(struct hys_act *act, int64_t rows, double *seconds,
			struct hys_error *error);
hys_status hys_act_call_alone(struct hys_act *act, int32_t alone, int64_t rows, double *seconds,
			      struct hys_error *error);
/* What device i has done so far. */
const struct hys_tally *hys_act_tally(const struct hys_act *act, int32_t i);

#endif
