/* number.h - single elements of any type, for what the core computes itself:
 * merged outputs and self-tests. Not for hot loops. */
#ifndef HYS_NUMBER_H
#define HYS_NUMBER_H

#include "hyscale/base.h"

/* Element i of contiguous memory. */
double hys_number_load(const void *memory, hys_dtype dtype, int64_t i);
/* Rounds to nearest, ties to even; too large becomes infinite, in f8 the
 * largest finite number. */
void hys_number_store(void *memory, hys_dtype dtype, int64_t i, double value);

#endif
