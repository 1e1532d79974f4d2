/* hyscale/base.h - status, error, data types, tensors.
 *
 * Everything here is plain data; all functions are pure and thread safe. */
#ifndef HYSCALE_BASE_H
#define HYSCALE_BASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(HYS_STATIC) || !defined(__GNUC__)
#define HYS_API
#else
#define HYS_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Every status, with the sentence that hys_status_string() answers. Values are
 * part of the ABI: new ones are appended. */
#define HYS_STATUS_MAP(X)                                                  \
	X(OK, "success")                                                   \
	X(INVALID_ARGUMENT, "an argument is wrong")                        \
	X(UNSUPPORTED, "legal, but not supported here")                    \
	X(OUT_OF_MEMORY, "out of memory")                                  \
	X(WORKSPACE_TOO_SMALL, "the workspace is too small for this call") \
	X(NO_PLATFORM, "no OpenCL platform is installed")                  \
	X(NO_DEVICE, "no usable device")                                   \
	X(DEVICE_FAILED, "a device failed")                                \
	X(BUILD_FAILED, "a device program did not build")                  \
	X(IO, "a file could not be read or written")                       \
	X(FORMAT, "a file's content is not what it should be")             \
	X(VERSION_MISMATCH, "made by or for another version")              \
	X(CANCELLED, "stopped by the progress callback")                   \
	X(FORKED, "the context was made in the parent of this process")    \
	X(INTERNAL, "a defect in the library")

typedef enum hys_status {
#define HYS_STATUS_ENUM(name, text) HYS_##name,
	HYS_STATUS_MAP(HYS_STATUS_ENUM)
#undef HYS_STATUS_ENUM
		HYS_STATUS_COUNT
} hys_status;

/* What went wrong, in the caller's memory; every function takes NULL instead.
 * Written only on failure. `native` is the driver's own code (a cl_int, an
 * errno) or 0. `message` names the argument, its value and what was expected;
 * it is always terminated, without a newline. */
struct hys_error {
	hys_status status;
	int32_t native;
	char message[256];
};

/* "HYS_OK", "HYS_INVALID_ARGUMENT", ...; "HYS_UNKNOWN" for any other number. */
HYS_API const char *hys_status_name(hys_status status);
/* The sentence beside it in HYS_STATUS_MAP. Static storage. */
HYS_API const char *hys_status_string(hys_status status);

/* Element types. f16 is IEEE binary16, bf16 the upper half of binary32, f8 is
 * e4m3fn (no infinities, 0x7f and 0xff are NaN). */
typedef enum hys_dtype {
	HYS_DTYPE_DEFAULT = 0, /* f32 in a problem, "absent" in a tensor */
	HYS_F32,
	HYS_F16,
	HYS_BF16,
	HYS_F8E4M3,
	HYS_I32,
	HYS_DTYPE_COUNT
} hys_dtype;

/* Bytes of one element; 0 for anything that is not an element type. */
HYS_API size_t hys_dtype_size(hys_dtype dtype);
/* "f32", "f16", "bf16", "f8e4m3", "i32"; "none" otherwise. */
HYS_API const char *hys_dtype_name(hys_dtype dtype);

struct hys_buffer; /* device memory, see context.h */

/* A view of memory that the caller owns: either host memory or a buffer.
 *
 * Element (i0, i1, ...) lies at offset + sum(i_d * stride[d]) elements behind
 * the start. Strides are in elements; a stride of 0 means "contiguous behind
 * the next dimension" and the last dimension must be contiguous (stride 0 or
 * 1). A tensor of all zeros is absent; an array with no elements may have a
 * null pointer as long as its dtype is set. */
struct hys_tensor {
	void *host;
	struct hys_buffer *buffer;
	int64_t offset; /* elements */
	hys_dtype dtype;
	int32_t rank; /* 1 to 4 */
	int64_t shape[4];
	int64_t stride[4];
};

/* Contiguous tensor of `rank` dimensions in host memory; trailing sizes that
 * `rank` does not reach are ignored. Inputs are never written: the const is
 * cast away here so that callers need not. */
static inline struct hys_tensor hys_host(const void *host, hys_dtype dtype, int32_t rank,
					 int64_t n0, int64_t n1, int64_t n2)
{
	struct hys_tensor t = {0};
	t.host = (void *)(uintptr_t)host;
	t.dtype = dtype;
	t.rank = rank;
	t.shape[0] = n0;
	t.shape[1] = rank > 1 ? n1 : 0;
	t.shape[2] = rank > 2 ? n2 : 0;
	return t;
}

/* The same in device memory, `offset` elements behind the buffer's start. */
static inline struct hys_tensor hys_device(struct hys_buffer *buffer, int64_t offset,
					   hys_dtype dtype, int32_t rank, int64_t n0, int64_t n1,
					   int64_t n2)
{
	struct hys_tensor t = hys_host(NULL, dtype, rank, n0, n1, n2);
	t.buffer = buffer;
	t.offset = offset;
	return t;
}

#ifdef __cplusplus
}
#endif
#endif
