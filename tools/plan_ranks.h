/* plan_ranks.h - `hyscale plan --ranks`: a step of one layer on a job that is not here. */
#ifndef HYS_TOOLS_PLAN_RANKS_H
#define HYS_TOOLS_PLAN_RANKS_H

#include "tool.h"

struct plan_ranks {
	int64_t ranks; /* 0 = none are asked for */
	int64_t documents;
	const char *network, *cut;
	double rates[HYS_OP_COUNT]; /* useful FLOP/s of one rank; 0 = as the plan says */
	double row_s[HYS_OP_COUNT]; /* beside, for each row */
	bool json;
};

/* "OP=RATE" or "OP=RATE,NANOSECONDS"; false when it is no such thing. */
bool plan_ranks_rate(struct plan_ranks *wanted, const char *text);
int plan_ranks_print(const struct plan_ranks *wanted, struct hys_context *context, int32_t device,
		     const struct hys_problem *problem, int64_t tokens);

#endif
