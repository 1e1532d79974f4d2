/* ocl_ptx.h - the text of NVIDIA's program binaries, changed before it is loaded.
 *
 * NVIDIA's OpenCL compiler targets the base of an architecture (sm_90) and stops at 48 KiB of
 * local memory. What CL_PROGRAM_BINARIES answers is PTX, which may be changed and given to
 * clCreateProgramWithBinary: the way to instructions of sm_90a and to large local memory.
 * Pure text: no device, no OpenCL. */
#ifndef HYS_OCL_PTX_H
#define HYS_OCL_PTX_H

#include "alloc.h"

/* Most bytes of local memory that a device of today takes in one work-group, all arrays. */
#define HYS_PTX_LOCAL_MAX 231424

/* What is done, line by line:
 *  - `.target sm_90` becomes `.target <target>`, when the target is the same with a letter
 *    behind it; target "" leaves it as it is;
 *  - "//@" becomes blanks, which opens what comments of inline assembly hide from the first
 *    compilation: "//@wgmma.fence.sync.aligned;";
 *  - "//@.minnctapersm <N>" becomes a directive of the function that it stands in: as many work-groups
 *    of it are to fit on a compute unit, which limits their registers;
 *  - a `.shared` array whose name ends in large_local_<BYTES> gets that many bytes. cl_kernels/nvidia.clh
 *    has the macros for all.
 * *out is allocated, *out_bytes counts its closing 0. HYS_UNSUPPORTED when the text is none of
 * that kind, HYS_OUT_OF_MEMORY. */
hys_status hys_ptx_rewrite(const struct hys_allocator *allocator, const char *text, size_t bytes,
			   const char *target, char **out, size_t *out_bytes,
			   struct hys_error *error);

#endif
