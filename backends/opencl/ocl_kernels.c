/* ocl_kernels.c - the OpenCL backend's kernels, per op the preferred one first. */
#include "ocl_internal.h"
#include "ocl_merge.h"

const struct hys_kernel hys_ocl_kernels[] = {
	{.name = "merge.ref",
	 .op = HYS_OP_MERGE,
	 .efficiency = 0.01,
	 .run = hys_ocl_merge,
	 .detail = &hys_ocl_merge_source},
};

_Static_assert(sizeof(hys_ocl_kernels) / sizeof(hys_ocl_kernels[0]) == HYS_OCL_KERNEL_COUNT,
	       "HYS_OCL_KERNEL_COUNT is not the number of rows");
