/* pick.h - what pick.c and pick_fastest.c share: kernels that are tried for one
 * operation on one device. */
#ifndef HYS_PICK_H
#define HYS_PICK_H

#include "planner.h"

#define HYS_CANDIDATES_MAX 64

struct hys_attempt {
	struct hys_picker *picker;
	hys_op op;
	int32_t index; /* of the device in the plan */
	struct hys_device *device;
	struct hys_choice *choice;
	bool named;	   /* the candidates were asked for by name */
	hys_status status; /* why the last one cannot run */
	const char *last;  /* its name */
	char reason[HYS_REASON_SIZE];
};

struct hys_candidates {
	const struct hys_kernel *kernels[HYS_CANDIDATES_MAX];
	int32_t count;
	const char *why; /* the first is first */
	bool only;	 /* no other will do */
	bool named;	 /* asked for by name */
};

/* Whether the kernel can run, with its program; why not is left in the attempt. */
bool hys_attempt_try(struct hys_attempt *attempt, const struct hys_kernel *kernel, void **program);
/* Adds a line to why others were not chosen. */
void hys_attempt_note(struct hys_attempt *attempt, const char *name, const char *reason);
/* Makes it the choice, which owns the program from then on. */
void hys_attempt_choose(struct hys_attempt *attempt, const struct hys_kernel *kernel, void *program,
			const char *why);
/* None can run. */
hys_status hys_attempt_fail(const struct hys_attempt *attempt, struct hys_error *error);

/* Tries and times all candidates, and keeps the fastest, in wisdom, too. */
hys_status hys_choose_fastest(struct hys_attempt *attempt, const struct hys_candidates *candidates,
			      struct hys_error *error);

#endif
