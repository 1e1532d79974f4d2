/* planner.h - what a plan is made from, by a caller or from a file. */
#ifndef HYS_PLANNER_H
#define HYS_PLANNER_H

#include "core.h"

#define HYS_PLAN_DEVICES_MAX 64
#define HYS_KERNEL_NAME_MAX 64

/* Everything but the kernels' programs. */
struct hys_wish {
	struct hys_problem problem; /* completed */
	uint32_t operations, flags;
	int64_t rows_max, keys_max, window_keys_max;
	int64_t memory_limit_bytes;
	hys_effort effort;
	int32_t device_count;
	int32_t devices[HYS_PLAN_DEVICES_MAX];	 /* the context's numbers */
	int64_t rows_most[HYS_PLAN_DEVICES_MAX]; /* from a file */
	/* Comma list of kernels to use, or NULL. */
	const char *kernels;
	/* From a file: exactly these, [device_count][HYS_OP_COUNT]; or NULL. */
	const char (*names)[HYS_OP_COUNT][HYS_KERNEL_NAME_MAX];
	const struct hys_pace (*paces)[HYS_OP_COUNT]; /* [device_count], or NULL */
	hys_progress *progress;
	void *progress_user;
};

hys_status hys_plan_make(struct hys_context *context, const struct hys_wish *wish,
			 struct hys_plan **plan, struct hys_error *error);

/* The operations that a completed problem has the parts for; why_not of one
 * that it has not, else NULL. */
uint32_t hys_problem_operations(const struct hys_problem *problem);
const char *hys_problem_lacks(const struct hys_problem *problem, hys_op op);

/* pick.c: chooses, builds and tries the kernel of one operation on the plan's
 * device i. */
struct hys_picker {
	struct hys_context *context;
	struct hys_plan *plan; /* being made */
	const struct hys_wish *wish;
	uint64_t problem_hash;
	struct hys_context *reference_context; /* made when it is needed */
	struct hys_device *reference;	       /* of the CPU backend; NULL = none */
	bool reference_sought;
	struct hys_build *builds; /* [device][op]; NULL = none */
	/* What wish->progress is told. */
	int32_t step, steps;
	char doing[160];
};

/* Tells the plan's caller what comes next, or that it is still under way. HYS_CANCELLED when it
 * is to stop. */
hys_status hys_picker_next(struct hys_picker *picker, struct hys_error *error, const char *format,
			   ...) __attribute__((format(printf, 3, 4)));
hys_status hys_picker_go_on(const struct hys_picker *picker, struct hys_error *error);

/* pace.c: what each operation takes on each of several devices: from wisdom or
 * measured, by a few small calls; then everybody's share. Tells of pace_steps
 * steps. */
hys_status hys_plan_pace_devices(struct hys_picker *picker, struct hys_error *error);
int32_t hys_plan_pace_steps(const struct hys_plan *plan, const struct hys_wish *wish);

hys_status hys_pick_kernel(struct hys_picker *picker, hys_op op, int32_t device,
			   struct hys_error *error);
void hys_picker_clear(struct hys_picker *picker);
/* The kernel that is taken if nothing goes wrong that only shows later; NULL = none. */
const struct hys_kernel *hys_pick_likely(struct hys_picker *picker, hys_op op, int32_t device);

/* build.c: their programs, in threads where that takes long; what nobody took ends with clear. */
void hys_builds_start(struct hys_picker *picker);
hys_status hys_builds_take(struct hys_picker *picker, hys_op op, int32_t device,
			   const struct hys_kernel *kernel, void **program,
			   struct hys_error *error);
void hys_builds_clear(struct hys_picker *picker);

#endif
