/* bench_quantize.h - `bench quantize`. */
#ifndef HYS_TOOLS_BENCH_QUANTIZE_H
#define HYS_TOOLS_BENCH_QUANTIZE_H

#include "bench.h"

/* Answers an exit code. */
int bench_quantize(const struct bench *bench);

#endif
