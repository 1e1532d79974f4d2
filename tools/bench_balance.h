/* bench_balance.h - `bench balance`. */
#ifndef HYS_TOOLS_BENCH_BALANCE_H
#define HYS_TOOLS_BENCH_BALANCE_H

#include "bench.h"

/* Answers an exit code. */
int bench_balance(const struct bench *bench);

#endif
