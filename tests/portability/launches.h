/* Which __kernel functions each kernel row has launched while the suite ran it. The linker
 * sends clEnqueueNDRangeKernel here. */
#ifndef HYS_TEST_LAUNCHES_H
#define HYS_TEST_LAUNCHES_H

#include <stdint.h>

/* Prints the functions in programs of OpenCL rows that ran which were never launched. Answers
 * how many. */
int32_t launches_missing(void);

#endif
