/* foretold.h - kernels that check what they are given and write what can be
 * foretold, for tests of what the core does between a call and its kernels. */
#ifndef HYS_TEST_FORETOLD_H
#define HYS_TEST_FORETOLD_H

#include "call_case.h"

#define FORETOLD_BASE 1000 /* what outputs hold before, when they are added to */

/* Row outputs get the row's number, sums over rows how many there were. */
hys_status foretold_run(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			const struct hys_call *call, struct hys_error *error);
/* Inputs that kernels have found to be wrong since it was set to 0. */
extern int foretold_wrong;

/* The call's tensors in wider memory, elements between rows; inputs hold a
 * pattern that kernels know, outputs FORETOLD_BASE. */
void foretold_widen(struct call_case *made);
/* Fails the test unless every output is as foretold, `base` more, and what lies
 * between is as it was. */
void foretold_check(struct call_case *made, int64_t rows, double base);

/* Element i of a tensor, wherever it lies. */
double foretold_value(const struct hys_tensor *tensor, int64_t i);
/* Input element i of field number `field` of a whole call. */
double foretold_pattern(int32_t field, int64_t i);

#endif
