/* ocl_fidelity.h - how much of dense attention a selection captures. */
#ifndef HYS_OCL_FIDELITY_H
#define HYS_OCL_FIDELITY_H

#include "ocl_internal.h"

extern const struct hys_ocl_source hys_ocl_fidelity_source;
int64_t hys_ocl_fidelity_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				   const struct hys_size *size);
hys_status hys_ocl_fidelity(const struct hys_kernel *kernel, struct hys_stream *stream,
			    void *instance, const struct hys_call *call, struct hys_error *error);

#endif
