/* call_case.h - one legal call of every operation, for tests that spoil it or
 * look at how it reaches a device. */
#ifndef HYS_TEST_CALL_CASE_H
#define HYS_TEST_CALL_CASE_H

#include "core.h"
#include "fake_backend.h"

/* Sizes that all differ where they may. */
#define CASE_ROWS 37
#define CASE_KEYS 41
#define CASE_WINDOW_KEYS 5
#define CASE_TOPK 3

/* A problem that allows every operation, complete. */
struct hys_problem call_case_problem(void);
/* Causal rows with a second source. */
struct hys_batch *call_case_batch(struct hys_plan *plan);
/* Makes all operations of a fake plan run `run`; kernels[HYS_OP_COUNT] are the
 * caller's. */
void call_case_kernels(struct fake_plan *plan, struct hys_kernel *kernels,
		       hys_status (*run)(const struct hys_kernel *kernel, struct hys_stream *stream,
					 void *instance, const struct hys_call *call,
					 struct hys_error *error));

/* Every tensor that the operation takes at once, contiguous, in memory of its
 * own between guards. Inputs hold small numbers, outputs 0x5a bytes. */
struct call_case {
	hys_op op;
	const char *name; /* of the public function */
	const struct hys_fields *fields;
	struct hys_call call; /* its args are the call's */
	char *memory[HYS_FIELDS_MAX];
	int64_t bytes[HYS_FIELDS_MAX];
	int32_t topk[HYS_GROUPS_MAX];
};

void call_case_make(struct call_case *made, const struct hys_batch *batch, hys_op op);
void call_case_clear(struct call_case *made);
hys_status call_case_run(const struct call_case *made, struct hys_exec *exec,
			 struct hys_batch *batch, struct hys_error *error);
struct hys_tensor *call_case_tensor(struct call_case *made, const char *field);
int32_t call_case_field(const struct call_case *made, const char *field);
/* Hash of all memory, guards included. */
uint64_t call_case_hash(const struct call_case *made);

#endif
