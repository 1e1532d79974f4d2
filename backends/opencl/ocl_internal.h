/* ocl_internal.h - what the files of the OpenCL backend share.
 *
 * How to add a kernel: write cl_kernels/<op>_<variant>.cl, a file ocl_<op>.c
 * with a run function and a struct hys_ocl_source, and a row in ocl_kernels.c.
 *
 * Conventions of kernels: a tensor is two arguments, a pointer and a long4
 * (offset, stride 0, stride 1, stride 2) in elements, offset -1 when absent; an
 * array of the batch and a region of the workspace are a pointer and a long.
 * Work-groups have at most 64 work-items, save those of one vendor's kernels. Everything else is
 * OpenCL C 1.2 without extensions. What compilers were seen to need: functions that take a __local
 * pointer are INLINE (common.clh), the work-item's number is divided unsigned,
 * no return before a barrier, no barrier in a work-group of one. */
#ifndef HYS_OCL_INTERNAL_H
#define HYS_OCL_INTERNAL_H

#include <CL/cl.h>

#include "backend.h"

/* Capabilities, in the order of capability_names. */
#define HYS_OCL_CPU (UINT64_C(1) << 0)	   /* a processor: tiles for vectors */
#define HYS_OCL_CLBLAST (UINT64_C(1) << 1) /* CLBlast was built in */
#define HYS_OCL_MMA (UINT64_C(1) << 2)	   /* NVIDIA's mma.sync of bf16: sm_80 and newer */
#define HYS_OCL_WGMMA (UINT64_C(1) << 3)   /* NVIDIA's wgmma and large local memory: sm_90 */
#define HYS_OCL_MFMA (UINT64_C(1) << 4)	   /* AMD's matrix units of CDNA2 and CDNA3 */
#define HYS_OCL_WMMA (UINT64_C(1) << 5)	   /* AMD's of RDNA3 and RDNA4 */
#define HYS_OCL_DPAS (UINT64_C(1) << 6)	   /* Intel's */

/* A table row of what is known of a platform; see ocl_device.c. */
struct hys_ocl_quirk {
	const char *platform;	 /* part of CL_PLATFORM_NAME */
	const char *device;	 /* part of CL_DEVICE_NAME; NULL = any */
	const char *defect;	 /* why it is not used, unless "defects" is disabled; or NULL */
	bool own_cache;		 /* keeps built programs itself: do not */
	bool finish_forgets;	 /* clFinish does not wait for what was flushed before it */
	int32_t flops_per_clock; /* f32, of one compute unit; 0 = ask for vector widths */
};

struct hys_ocl_device {
	struct hys_device base; /* first: backends hand out &base */
	cl_platform_id platform;
	cl_device_id id;
	cl_context context;	/* retained */
	cl_command_queue queue; /* for touching buffers and measuring */
	const struct hys_ocl_quirk *quirk;
	char platform_name[64];
	char platform_version[96];
	size_t work_group_max;
	bool fast_fma;		    /* else programs multiply and add: macro FMA of common.clh */
	int32_t vector_width;	    /* f32 lanes of its registers, 1 on most GPUs */
	int32_t compute_capability; /* NVIDIA's, 90 for 9.0; 0 = none */
	int32_t dpas_lanes;	    /* of Intel's matrix units; 0 = none */
	const struct hys_ocl_unit *unit; /* ocl_matrix.h; NULL = no matrix unit that is known */
};

static inline struct hys_ocl_device *hys_ocl_device(const struct hys_device *device)
{
	return (struct hys_ocl_device *)(uintptr_t)device;
}

struct hys_stream;

/* ---- ocl_error.c ---- */

/* "CL_OUT_OF_RESOURCES", ...; "unknown error" otherwise. */
const char *hys_ocl_error_name(cl_int code);
/* HYS_OK for CL_SUCCESS; else the status that `code` means, with the code as
 * error->native and a message that names `call`. */
hys_status hys_ocl_check(struct hys_error *error, cl_int code, const char *call);
/* The same for a call that asked for `bytes` of memory. */
hys_status hys_ocl_check_bytes(struct hys_error *error, cl_int code, const char *call,
			       int64_t bytes);

/* ---- ocl_device.c ---- */

hys_status hys_ocl_discover(struct hys_discovery *discovery, struct hys_error *error);
void hys_ocl_device_destroy(struct hys_device *device);
/* Fills capabilities, and info.capabilities, from the other fields; less what the host disables. */
void hys_ocl_find_capabilities(struct hys_ocl_device *device);

/* ---- ocl_program.c ---- */

/* Build options of a program, collected as text. */
struct hys_ocl_options {
	char text[2048];
	size_t length;
	bool overflow;
};

/* -D name=value */
void hys_ocl_define(struct hys_ocl_options *options, const char *name, int64_t value);
/* -D name=<f32 literal that reads back as the same bits>; value must be finite. */
void hys_ocl_define_f32(struct hys_ocl_options *options, const char *name, double value);

#define HYS_OCL_ENTRIES_MAX 40

/* struct hys_kernel.detail of this backend: one program. */
struct hys_ocl_source {
	const char *file;	    /* of cl_kernels/; what it #includes is found there */
	const char *const *entries; /* __kernel functions, NULL terminated */
	/* NULL = no options of its own. */
	void (*define)(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		       const struct hys_problem *problem, struct hys_ocl_options *options);
	/* What else would otherwise be compiled by the first call; NULL = nothing. */
	hys_status (*prepare)(struct hys_ocl_device *device, struct hys_error *error);
	/* NVIDIA: the target, as "sm_90a", that the compiled text is rewritten for (ocl_ptx.h) before
	 * it is loaded; "" = as compiled, for large local memory alone; NULL = not rewritten. */
	const char *rewrite;
};

/* hys_kernel instances: one cl_kernel per entry, in the order of `entries`. */
struct hys_ocl_instance {
	cl_kernel kernels[HYS_OCL_ENTRIES_MAX];
	const char *const *entries;
	int32_t count;
};

struct hys_stream {
	struct hys_ocl_device *device;
	cl_command_queue queue; /* retained, in order */
	bool native;		/* the caller's: never flushed or finished */
	double clock_s; /* what the host's clock is ahead of the queue's, when it is timed */
	struct hys_ocl_own {
		cl_program program;
		struct hys_ocl_instance instance;
	} add, quantize; /* ocl_add.c, ocl_quantize.c */
};

/* The text of a program as OpenCL takes it: pieces of the embedded files. */
#define HYS_OCL_PIECES_MAX 64
struct hys_ocl_text {
	const char *pieces[HYS_OCL_PIECES_MAX];
	size_t lengths[HYS_OCL_PIECES_MAX];
	cl_uint count;
	const char *included[HYS_OCL_PIECES_MAX]; /* each file once */
	int32_t included_count;
};

/* `file` with all that it includes. */
hys_status hys_ocl_program_text(const char *file, struct hys_ocl_text *text,
				struct hys_error *error);
/* Everything that a program of `source` is built with; calls nothing of OpenCL. */
hys_status hys_ocl_program_options(const struct hys_ocl_device *device,
				   const struct hys_ocl_source *source,
				   const struct hys_problem *problem,
				   struct hys_ocl_options *options, struct hys_error *error);
/* Builds `source`, or takes it from the disk cache. *program is a cl_program.
 * HYS_BUILD_FAILED with the head of the log. */
hys_status hys_ocl_program_build(struct hys_ocl_device *device, const struct hys_ocl_source *source,
				 const struct hys_problem *problem, cl_program *program,
				 struct hys_error *error);
hys_status hys_ocl_program_create(struct hys_device *device, const struct hys_kernel *kernel,
				  const struct hys_problem *problem, void **program,
				  struct hys_error *error);
void hys_ocl_program_destroy(struct hys_device *device, void *program);
/* The kernels of a program, into *made, which is zeroed; to be released also after a failure. */
hys_status hys_ocl_kernels_create(cl_program program, const struct hys_ocl_source *source,
				  struct hys_ocl_instance *made, struct hys_error *error);
void hys_ocl_kernels_release(struct hys_ocl_instance *kernels);
hys_status hys_ocl_instance_create(struct hys_stream *stream, const struct hys_kernel *kernel,
				   void *program, void **instance, struct hys_error *error);
void hys_ocl_instance_destroy(struct hys_stream *stream, void *instance);

/* ---- ocl_launch.c ---- */

/* Sets the arguments of one kernel from left to right; the first failure is
 * kept and answered by hys_ocl_launch. */
struct hys_ocl_args {
	struct hys_stream *stream;
	cl_kernel kernel;
	const char *name;
	cl_uint next;
	cl_uint failed_at;
	cl_int failed;
};

struct hys_ocl_args hys_ocl_begin(struct hys_stream *stream, void *instance, int32_t entry);
/* The same by the name of the __kernel function. */
struct hys_ocl_args hys_ocl_begin_named(struct hys_stream *stream, void *instance,
					const char *entry);
void hys_ocl_arg(struct hys_ocl_args *args, const void *value, size_t bytes);
void hys_ocl_arg_i32(struct hys_ocl_args *args, int64_t value);
void hys_ocl_arg_i64(struct hys_ocl_args *args, int64_t value);
void hys_ocl_arg_f32(struct hys_ocl_args *args, double value);
/* Pointer and long4; an absent tensor is a null pointer with offset -1. */
void hys_ocl_arg_tensor(struct hys_ocl_args *args, const struct hys_tensor *tensor);
/* Pointer and long: a contiguous array, such as those of the batch. */
void hys_ocl_arg_array(struct hys_ocl_args *args, const struct hys_tensor *array);
/* Pointer to the buffer's start and long: bytes from there. */
void hys_ocl_arg_region(struct hys_ocl_args *args, const struct hys_region *region, int64_t offset);
/* Enqueues groups[0] x groups[1] x groups[2] work-groups of local[0] x local[1]
 * x local[2] work-items; no group at all is fine. groups and local hold `dims`
 * numbers. Some devices take at most HYS_OCL_GROUPS_MAX groups in dimensions 1 and 2:
 * rows of a whole call belong in dimension 0. */
#define HYS_OCL_GROUPS_MAX 65535
hys_status hys_ocl_launch(struct hys_ocl_args *args, int32_t dims, const int64_t *groups,
			  const int64_t *local, struct hys_error *error);

static inline int64_t hys_ocl_divide_up(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

/* ---- ocl_cache.c: built programs on disk ---- */

/* What a binary depends on, as text. */
struct hys_ocl_key {
	char text[4096];
	size_t length;
};

/* *binary is allocated; false when there is none that can be trusted. */
bool hys_ocl_cache_load(const struct hys_host *host, const struct hys_ocl_key *key,
			unsigned char **binary, size_t *bytes);
/* Best effort: a cache that cannot be written is no error. */
void hys_ocl_cache_store(const struct hys_host *host, const struct hys_ocl_key *key,
			 const unsigned char *binary, size_t bytes);

/* ---- ocl_kernels.c ---- */

/* Rows per op, preferred first. Count them here when adding one. */
#define HYS_OCL_KERNEL_COUNT 54
extern const struct hys_kernel hys_ocl_kernels[];

/* ---- ocl_add.c ---- */

/* What a stream has of its own rather than of a plan: builds it, and releases it. */
hys_status hys_ocl_own_prepare(struct hys_stream *stream, const struct hys_ocl_source *source,
			       struct hys_ocl_own *own, struct hys_error *error);
void hys_ocl_own_clear(struct hys_ocl_own *own);
hys_status hys_ocl_add_prepare(struct hys_stream *stream, struct hys_error *error);
hys_status hys_ocl_add(struct hys_stream *stream, const struct hys_region *target,
		       const struct hys_region *part, hys_dtype dtype, struct hys_error *error);
extern const struct hys_ocl_source hys_ocl_add_source;

/* ---- ocl_quantize.c ---- */

hys_status hys_ocl_quantize_prepare(struct hys_stream *stream, struct hys_error *error);
hys_status hys_ocl_quantize(struct hys_stream *stream, const struct hys_quantize_args *quantize,
			    struct hys_error *error);
extern const struct hys_ocl_source hys_ocl_quantize_source;

/* ---- ocl_measure.c ---- */

hys_status hys_ocl_measure(struct hys_device *device, struct hys_device_speed *speed,
			   struct hys_error *error);
extern const struct hys_ocl_source hys_ocl_peak_source;

/* ---- ocl_gemm.c: the only user of CLBlast ---- */

/* c[m,n] = a[m,k] * b[n,k]^T, all f32, leading dimensions and offsets in elements.
 * Only with capability HYS_OCL_CLBLAST. Takes one lock of the process. */
struct hys_ocl_gemm {
	int64_t m, n, k;
	cl_mem a, b, c;
	int64_t a_offset, b_offset, c_offset;
	int64_t a_pitch, b_pitch, c_pitch;
};
hys_status hys_ocl_gemm(struct hys_stream *stream, const struct hys_ocl_gemm *gemm,
			struct hys_error *error);
/* CLBlast counts elements in 32 bits: whether that is enough. */
bool hys_ocl_gemm_fits(const struct hys_ocl_gemm *gemm);
/* Compiles CLBlast's product for the device. */
hys_status hys_ocl_gemm_prepare(struct hys_ocl_device *device, struct hys_error *error);
/* CLBlast keeps the programs, and so the contexts, that it has seen: drops them.
 * Called whenever a context goes. */
void hys_ocl_gemm_forget(void);

#endif
