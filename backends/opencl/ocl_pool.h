/* ocl_pool.h - pooling and its backward. */
#ifndef HYS_OCL_POOL_H
#define HYS_OCL_POOL_H

#include "ocl_internal.h"

extern const struct hys_ocl_source hys_ocl_pool_source;
hys_status hys_ocl_pool(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			const struct hys_call *call, struct hys_error *error);
hys_status hys_ocl_pool_backward(const struct hys_kernel *kernel, struct hys_stream *stream,
				 void *instance, const struct hys_call *call,
				 struct hys_error *error);

#endif
