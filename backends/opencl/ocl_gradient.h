/* ocl_gradient.h - gradients that are sums over rows: those of keys. Host side of
 * cl_kernels/gradient.clh. */
#ifndef HYS_OCL_GRADIENT_H
#define HYS_OCL_GRADIENT_H

#include "ocl_products.h"

#define HYS_OCL_GRADIENT_ENTRIES "clear_keys", "finish_keys"

/* Summed in f32: in place when that is the tensor's type, else in the workspace. */
struct hys_ocl_gradient {
	struct hys_tensor out;	/* absent = not wanted */
	struct hys_tensor sums; /* f32, the same shape */
	bool accumulate;
};

/* Bytes of the workspace that [keys, heads, channels] may take; 0 when gradients of
 * `dtype` tensors are always f32. */
int64_t hys_ocl_gradient_bytes(hys_dtype dtype, int64_t keys, int64_t heads, int64_t channels);
/* `at`: where in the workspace. */
hys_status hys_ocl_gradient_open(const struct hys_ocl_job *job, const struct hys_tensor *out,
				 bool accumulate, int64_t at, struct hys_ocl_gradient *gradient);
hys_status hys_ocl_gradient_close(const struct hys_ocl_job *job,
				  const struct hys_ocl_gradient *gradient);

#endif
