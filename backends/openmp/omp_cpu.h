/* omp_cpu.h - what processor this is. */
#ifndef HYS_OMP_CPU_H
#define HYS_OMP_CPU_H

#include "backend.h"

/* OMP_CAN_* bits of the processor and its operating system. */
uint64_t omp_cpu_capabilities(void);

/* Asks the operating system, once a process, for the tiles of AMX; false where
 * it refuses or nobody could grant them. */
bool omp_cpu_permit_tiles(void);

/* Fills name, vendor, memory_bytes and max_allocation_bytes. */
void omp_cpu_describe(struct hys_device_info *info);

/* Highest clock that the system tells, in Hz; a cautious guess otherwise. */
double omp_cpu_clock(void);

#endif
