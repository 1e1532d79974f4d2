/* omp_measure.h - how fast this machine really is. */
#ifndef HYS_OMP_MEASURE_H
#define HYS_OMP_MEASURE_H

#include "omp_internal.h"

/* On all threads of the device: multiply-adds in registers, about 0.1 s, and a
 * copy of arrays that no cache holds, the best of several. HYS_OK or
 * HYS_OUT_OF_MEMORY. */
hys_status omp_measure(const struct omp_device *device, const struct omp_isa *isa,
		       struct hys_device_speed *speed, struct hys_error *error);

#endif
