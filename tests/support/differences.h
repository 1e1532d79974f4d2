/* Gradients by central differences of what the library itself computes in f32. */
#ifndef HYS_TEST_DIFFERENCES_H
#define HYS_TEST_DIFFERENCES_H

#include "suite.h"

/* The function that is differentiated, at what the case's arrays hold now. */
typedef double differences_value(void *context, const struct suite_run *run);

/* Compares the gradient of `value` by x [count] with differences along some random directions
 * of length `step`. x holds f32 numbers before and after. */
void differences_check(const struct suite_run *run, const char *name, differences_value *value,
		       void *context, double *x, const double *gradient, int64_t count,
		       double step);

#endif
