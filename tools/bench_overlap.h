/* bench_overlap.h - `bench overlap`. */
#ifndef HYS_TOOLS_BENCH_OVERLAP_H
#define HYS_TOOLS_BENCH_OVERLAP_H

#include "bench.h"

/* Answers an exit code. */
int bench_overlap(const struct bench *bench);

#endif
