/* ocl_merge.h - merging partial attention. */
#ifndef HYS_OCL_MERGE_H
#define HYS_OCL_MERGE_H

#include "ocl_internal.h"

extern const struct hys_ocl_source hys_ocl_merge_source;
hys_status hys_ocl_merge(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			 const struct hys_call *call, struct hys_error *error);

#endif
