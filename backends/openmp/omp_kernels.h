/* omp_kernels.h - the functions that the kernel table names. What a row of the
 * table stands for is in kernel->detail, a struct omp_isa. */
#ifndef HYS_OMP_KERNELS_H
#define HYS_OMP_KERNELS_H

#include "backend.h"

/* omp_select.c, omp_select_coarse.c: panels of packed keys. */
int64_t omp_select_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
			     const struct hys_size *size);
hys_status omp_select_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			  void *instance, const struct hys_call *call, struct hys_error *error);

/* omp_select_ref.c: plain loops, all methods. */
int64_t omp_select_ref_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				 const struct hys_size *size);
hys_status omp_select_ref_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error);

#endif
