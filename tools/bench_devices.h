/* bench_devices.h - `bench devices`. */
#ifndef HYS_TOOLS_BENCH_DEVICES_H
#define HYS_TOOLS_BENCH_DEVICES_H

#include "bench.h"

/* Answers an exit code. */
int bench_devices(const struct bench *bench);

#endif
