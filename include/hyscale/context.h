/* hyscale/context.h - devices and their memory.
 *
 * A context lives as long as the process needs the library. It finds the
 * devices once, knows where they lie in the machine, and owns the program
 * cache. All functions on a const context are thread safe; create and destroy
 * are not meant to race with its use. A context used in a forked child
 * answers HYS_FORKED. */
#ifndef HYSCALE_CONTEXT_H
#define HYSCALE_CONTEXT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hys_context;

typedef enum hys_device_kind {
	HYS_DEVICE_CPU,
	HYS_DEVICE_GPU,
	HYS_DEVICE_ACCELERATOR
} hys_device_kind;

typedef enum hys_log_level { HYS_LOG_ERROR, HYS_LOG_WARNING, HYS_LOG_INFO } hys_log_level;

/* A device of the caller's own: backend "opencl", a cl_context and one of its
 * cl_device_ids (see opencl.h). Both must outlive the hys_context. */
struct hys_native_device {
	const char *backend;
	void *context;
	void *device;
};

struct hys_context_options {
	size_t struct_size; /* sizeof(struct hys_context_options) */
	/* Comma list of BACKEND or BACKEND:N, in the order wanted, for example
	 * "opencl:0,openmp". NULL = all that are found, GPUs first; "" =
	 * none but the natives. */
	const char *devices;
	/* Where built programs are kept. NULL = $HYS_CACHE_DIR, else
	 * $XDG_CACHE_HOME/hyscale, else ~/.cache/hyscale. "" = nowhere. */
	const char *cache_dir;
	/* Comma list of capabilities to pretend away ("avx2", "f16c", "mma"),
	 * so that slower paths can be reached. "defects" takes devices on too
	 * whose driver is known to compute wrong results, for tests. A name
	 * that no backend has is HYS_INVALID_ARGUMENT. NULL = $HYS_DISABLE. */
	const char *disable;
	/* Threads of the CPU backend; 0 = what OpenMP would use, cut to the
	 * CPUs this process may run on. */
	int32_t threads;
	/* Allocator for all host memory that the library takes for itself.
	 * Both or neither. `align` is a power of two. Called from any thread. */
	void *(*allocate)(void *user, size_t bytes, size_t align);
	void (*release)(void *user, void *pointer);
	void *allocate_user;
	/* Called while contexts and plans are made, never by operations; from threads of the
	 * library, too, but by one at a time. Must not make contexts or plans itself. */
	void (*log)(void *user, hys_log_level level, const char *message);
	void *log_user;
	const struct hys_native_device *natives; /* used before those found */
	int32_t native_count;
};

/* What is known of a device. For a rejected one `reason` says why it is not
 * used; for a used one it is empty. */
struct hys_device_info {
	char backend[16];
	char name[96];
	char vendor[64];
	char driver[96];
	char id[64]; /* UUID or PCI address; empty when unknown */
	hys_device_kind kind;
	int32_t compute_units;
	int32_t numa_node; /* -1 when unknown */
	int64_t memory_bytes;
	int64_t max_allocation_bytes;
	int64_t local_memory_bytes; /* per work-group; 0 on a CPU backend */
	double nominal_flops_per_s; /* f32, from units and clock */
	char cpus[64];		    /* near CPUs, hwloc list syntax */
	char capabilities[256];	    /* names, blank separated */
	char reason[192];
};

/* Finds devices. `options` may be NULL. *context is set only on success.
 * HYS_OK; HYS_INVALID_ARGUMENT (bad options, or a device list that cannot be
 * read); HYS_NO_PLATFORM (OpenCL was asked for and none is installed);
 * HYS_NO_DEVICE (nothing matches; the message gives the first reason);
 * HYS_OUT_OF_MEMORY. A backend that fails otherwise only adds rejected
 * entries. */
HYS_API hys_status hys_context_create(const struct hys_context_options *options,
				      struct hys_context **context, struct hys_error *error);
/* NULL is fine. Plans, buffers and execs hold a reference: memory goes with
 * the last of them. */
HYS_API void hys_context_destroy(struct hys_context *context);

HYS_API int32_t hys_context_device_count(const struct hys_context *context);
HYS_API int32_t hys_context_rejected_count(const struct hys_context *context);
/* Device or rejected device i. HYS_OK, HYS_INVALID_ARGUMENT or HYS_FORKED. */
HYS_API hys_status hys_context_device_info(const struct hys_context *context, int32_t i,
					   struct hys_device_info *info, struct hys_error *error);
HYS_API hys_status hys_context_rejected(const struct hys_context *context, int32_t i,
					struct hys_device_info *info, struct hys_error *error);

/* Measured speed of a device: an f32 multiply-add loop without memory
 * traffic, and a large copy (bytes read plus written per second). */
struct hys_device_speed {
	double flops_per_s;
	double bytes_per_s;
};

/* Takes about 0.2 s on device i, once per context; later calls answer what
 * was measured. HYS_OK, HYS_INVALID_ARGUMENT, or what the device answered.
 * Thread safe. */
HYS_API hys_status hys_context_measure(struct hys_context *context, int32_t i,
				       struct hys_device_speed *speed, struct hys_error *error);

/* Device memory of `bytes` on device i, touched so that a lack of memory shows
 * here; contents undefined. The caller destroys it after all work that uses it
 * is finished. HYS_OK, HYS_INVALID_ARGUMENT, HYS_OUT_OF_MEMORY,
 * HYS_DEVICE_FAILED. */
HYS_API hys_status hys_buffer_create(struct hys_context *context, int32_t i, int64_t bytes,
				     struct hys_buffer **buffer, struct hys_error *error);
/* Wraps memory that the caller owns: a cl_mem on an OpenCL device, a host
 * pointer on the CPU backend. */
HYS_API hys_status hys_buffer_wrap(struct hys_context *context, int32_t i, void *native,
				   int64_t bytes, struct hys_buffer **buffer,
				   struct hys_error *error);
HYS_API void hys_buffer_destroy(struct hys_buffer *buffer);
HYS_API int64_t hys_buffer_bytes(const struct hys_buffer *buffer);

/* Wisdom: which kernel was fastest for which problem on which device, learnt
 * by plans made with HYS_EFFORT_MEASURE and by self-tests. A text file, signed
 * with the kernel list, device and driver. Import takes all lines or none.
 * HYS_OK, HYS_IO, HYS_FORMAT (a damaged file; the message names the line),
 * HYS_VERSION_MISMATCH (another library version), HYS_OUT_OF_MEMORY. Lines of
 * devices that this context lacks are kept. Thread safe. */
HYS_API hys_status hys_wisdom_import(struct hys_context *context, const char *path,
				     struct hys_error *error);
HYS_API hys_status hys_wisdom_export(struct hys_context *context, const char *path,
				     struct hys_error *error);
HYS_API void hys_wisdom_forget(struct hys_context *context);

#ifdef __cplusplus
}
#endif
#endif
