/* bench_halves.h - one OpenCL device as two of half its units each. */
#ifndef HYS_TOOLS_BENCH_HALVES_H
#define HYS_TOOLS_BENCH_HALVES_H

#include "tool.h"

/* Fills natives for a context, whose devices 0 and 1 they become. False when
 * there is no OpenCL device that divides. */
bool bench_halves_make(struct hys_native_device halves[2]);
/* Behind the context. */
void bench_halves_free(struct hys_native_device halves[2]);

#endif
