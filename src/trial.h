/* trial.h - a kernel run by itself on made-up data, for self-tests and for
 * timing. The same seed makes the same data for every kernel. */
#ifndef HYS_TRIAL_H
#define HYS_TRIAL_H

#include "core.h"

struct hys_site {
	struct hys_context *context; /* the device's */
	struct hys_device *device;
};

struct hys_trial_size {
	int64_t rows, keys, window_keys;
	int64_t topk;
	bool documents; /* three, one of them without keys; else one */
	bool all_seen;	/* rows see all keys of their document; else causal ones */
	/* For a self-test: all that the operation may have, not only what is usual;
	 * and small integers for select, whose scores are exact in f32. Many of those
	 * are equal, which takes another time than scores of real calls. */
	bool test;
};

/* Inputs and outputs of one call, in one block of memory. */
struct hys_trial {
	const struct hys_allocator *allocator;
	struct hys_plan plan; /* only what a batch needs of one */
	hys_op op;
	struct hys_trial_size size;
	struct hys_dims dims;
	struct hys_call call;	    /* tensors without memory, contiguous */
	int64_t at[HYS_FIELDS_MAX]; /* of each field, -1 = absent */
	int64_t bytes;
	char *input; /* outputs are filled with 0xff */
};

/* `context` only lends its allocator. Clear it after a failure too. */
hys_status hys_trial_make(struct hys_trial *trial, struct hys_context *context,
			  const struct hys_problem *problem, hys_op op,
			  const struct hys_trial_size *size, struct hys_error *error);
void hys_trial_clear(struct hys_trial *trial);

/* Runs the kernel `repeats` times, fewer when that takes long, and before more than one some times
 * that do not count; `output`, when not NULL, gets
 * trial->bytes; `seconds`, when not NULL, the shortest time. */
hys_status hys_trial_run(const struct hys_trial *trial, const struct hys_site *site,
			 const struct hys_kernel *kernel, void *program, int32_t repeats,
			 char *output, double *seconds, struct hys_error *error);

#endif
