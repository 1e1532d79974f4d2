/* omp_internal.h - what the files of the CPU backend share. */
#ifndef HYS_OMP_INTERNAL_H
#define HYS_OMP_INTERNAL_H

#include "backend.h"
#include "isa/isa.h"

/* Bits of struct hys_device.capabilities, in the order of capability_names. */
#define OMP_CAN_AVX2 1u
#define OMP_CAN_FMA 2u
#define OMP_CAN_F16C 4u
#define OMP_CAN_AVX512 8u /* F, BW, DQ and VL */
#define OMP_CAN_AVX512BF16 16u
#define OMP_CAN_AMX 32u /* TILE and BF16 */
#define OMP_CAN_NEON 64u
/* AVX512-BF16 that pays: Intel's multiply as many bf16 a cycle by VDPBF16PS as f32 by two FMAs, or
 * fewer: 0.6 of select.avx512's speed on a Xeon, 1.5 to 2 times it on Zen 4. */
#define OMP_CAN_FASTBF16 128u
#define OMP_NEEDS_NEON OMP_CAN_NEON
#define OMP_NEEDS_AVX2 (OMP_CAN_AVX2 | OMP_CAN_FMA | OMP_CAN_F16C)
#define OMP_NEEDS_AVX512 (OMP_NEEDS_AVX2 | OMP_CAN_AVX512)
#define OMP_NEEDS_AVX512BF16 (OMP_NEEDS_AVX512 | OMP_CAN_AVX512BF16)
#define OMP_NEEDS_AMX (OMP_NEEDS_AVX512 | OMP_CAN_AMX)

struct omp_device {
	struct hys_device base;
	int32_t threads; /* of every parallel region, >= 1 */
	struct omp_isa isas[OMP_SETS];
};

/* Work is done as it is given: a stream only knows its device. */
struct omp_stream {
	struct omp_device *device;
};

static inline const struct omp_device *omp_device(const struct hys_device *device)
{
	return (const struct omp_device *)(const void *)device;
}

static inline int32_t omp_threads(const struct hys_stream *stream)
{
	return ((const struct omp_stream *)(const void *)stream)->device->threads;
}

/* The functions of the instruction set that a row of the kernel table stands
 * for; the row's detail is an enum omp_set. */
static inline const struct omp_isa *omp_isa(const struct hys_kernel *kernel,
					    const struct hys_device *device)
{
	return omp_device(device)->isas + *(const enum omp_set *)kernel->detail;
}

static inline const struct omp_isa *omp_isa_of_stream(const struct hys_kernel *kernel,
						      const struct hys_stream *stream)
{
	return omp_isa(kernel, &((const struct omp_stream *)(const void *)stream)->device->base);
}

/* ---- omp_parallel.c ---- */

/* One item of work; `thread` is below the number of threads asked for and no
 * two items run on one thread at the same time. */
typedef void omp_body(void *context, int64_t item, int32_t thread);

/* Calls body for items [0, count), in any order, on up to `threads` threads.
 * Serial where there is no OpenMP. What an item writes must not depend on its
 * thread. */
void omp_for(int32_t threads, int64_t count, omp_body *body, void *context);
/* The same for rows in their order: the last ones, which see most in a causal
 * document, come first, so that nobody has a long one left at the end. */
void omp_for_rows(int32_t threads, int64_t count, omp_body *body, void *context);

/* ---- omp_quantize.c ---- */

hys_status omp_quantize(struct hys_stream *stream, const struct hys_quantize_args *args,
			struct hys_error *error);

/* ---- memory ---- */

/* First byte of element (i0, i1, i2) of a tensor whose strides are filled in;
 * indices past the rank must be 0. */
static inline void *omp_at(const struct hys_tensor *tensor, int64_t i0, int64_t i1, int64_t i2)
{
	char *base = tensor->buffer ? tensor->buffer->native : tensor->host;
	const int64_t index = tensor->offset + i0 * tensor->stride[0] + i1 * tensor->stride[1] +
			      i2 * tensor->stride[2];
	/* As a number: an array without elements may have no address at all, to which C adds nothing. */
	return (void *)((uintptr_t)base +
			(uintptr_t)(index * (int64_t)hys_dtype_size(tensor->dtype)));
}

/* The i-th of the batch's numbers; `otherwise` when the array is absent. */
static inline int64_t omp_number(const struct hys_tensor *tensor, int64_t i, int64_t otherwise)
{
	return hys_present(tensor) ? *(const int32_t *)omp_at(tensor, i, 0, 0) : otherwise;
}

/* A workspace handed out piece by piece. With base NULL nothing is handed out
 * and only `used` counts, so that one function lays the pieces out and, before
 * that, says how much they take. */
struct omp_arena {
	char *base;
	int64_t used;
};

static inline struct omp_arena omp_arena(const struct hys_region *region)
{
	struct omp_arena arena = {0};
	if (region->buffer)
		arena.base = (char *)region->buffer->native + region->offset_bytes;
	else if (region->host)
		arena.base = (char *)region->host + region->offset_bytes;
	return arena;
}

/* Room for count elements, at a multiple of 64 bytes; saturates. */
static inline void *omp_take(struct omp_arena *arena, int64_t count, size_t size)
{
	const int64_t at = arena->used;
	arena->used = hys_add64(at, hys_round_up(hys_mul64(count, (int64_t)size), 64));
#ifdef __clang_analyzer__ /* which would follow what is only laid out into the kernels */
	return arena->base + at;
#endif
	return arena->base ? arena->base + at : NULL;
}

static inline int64_t omp_ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

#endif
