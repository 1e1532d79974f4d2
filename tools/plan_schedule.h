/* plan_schedule.h - `hyscale plan --schedule`: what the phases of a training run cost. */
#ifndef HYS_TOOLS_PLAN_SCHEDULE_H
#define HYS_TOOLS_PLAN_SCHEDULE_H

#include "tool.h"

struct plan_schedule {
	const char *name; /* progressive, exact or dense */
	int64_t steps, layers, rows, tokens;
	bool json;
};

/* Whether it is one of the names. */
bool plan_schedule_known(const char *name);
/* Gives the problem a coarse pass where the model has none. */
void plan_schedule_problem(struct hys_problem *problem);
/* Prints the phases of the run on the plan's devices; answers a tool_exit. */
int plan_schedule_print(const struct plan_schedule *wanted, const struct hys_plan *plan);

#endif
