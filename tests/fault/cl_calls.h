/* cl_calls.h - OpenCL as the backend calls it, where the n-th call fails.
 *
 * The linker sends the calls of the library here (--wrap); everything that was
 * created or retained and not released is counted. */
#ifndef HYS_TEST_CL_CALLS_H
#define HYS_TEST_CL_CALLS_H

#include <stdbool.h>

/* The number-th call from now on fails, once; 0: none does. */
void cl_calls_arm(long number);
/* Whether it did since. */
bool cl_calls_fired(void);
/* Contexts, queues, buffers, programs, kernels and events that are held. */
long cl_calls_live(void);
/* Name of the call that failed last. */
const char *cl_calls_failed(void);

#endif
