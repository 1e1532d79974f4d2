/*
 * Tensors of tests, placed in memory in the ways that callers do.
 *
 * Inputs are given as contiguous doubles, already rounded to their type;
 * outputs start as 0xff everywhere. What lies between and around the elements
 * is 0xff too (NaN, -1), and must still be afterwards, as inputs must be what
 * they were.
 */
#ifndef HYS_TEST_PLACE_H
#define HYS_TEST_PLACE_H

#include <stdbool.h>

#include "hyscale/hyscale.h"

#define PLACE_PITCHED 1u /* odd strides and an offset */
#define PLACE_SWAPPED 2u /* the second dimension is the outermost in memory */
#define PLACE_BUFFER 4u	 /* in a buffer of the device, else host memory */

#define PLACE_MAX 24

struct placed {
	struct hys_tensor tensor; /* as given to the library, which may cut its copy */
	const char *name;
	unsigned char *image; /* what lies in memory, read back after the run */
	unsigned char *before;
	int64_t bytes;
	bool output;
	int64_t written_first, written_count; /* of dimension 0: what an output may write */
};

struct place {
	struct hys_context *context;
	struct hys_exec *exec; /* NULL = nothing runs: host memory only */
	int32_t device;	       /* of the context */
	unsigned flags;
	struct placed items[PLACE_MAX];
	int32_t count;
	hys_status status; /* first failure of the library */
	struct hys_error error;
};

/* Three sizes; those that `rank` does not reach are ignored. */
struct hys_tensor place_in(struct place *place, const char *name, hys_dtype dtype,
			   const double *values, int32_t rank, int64_t n0, int64_t n1, int64_t n2);
struct hys_tensor place_in_i32(struct place *place, const char *name, const int32_t *values,
			       int32_t rank, int64_t n0, int64_t n1, int64_t n2);
/* `values`: what it holds before, for outputs that are added to; NULL = 0xff. */
struct hys_tensor place_out(struct place *place, const char *name, hys_dtype dtype,
			    const double *values, int32_t rank, int64_t n0, int64_t n1, int64_t n2);
/* The last output placed may be written in these rows only. */
void place_only_rows(struct place *place, int64_t first, int64_t count);

/* Reads back what lies in buffers. False, with what is wrong in `message`, when an
 * input or what surrounds an element has changed, or the library failed. */
bool place_collect(struct place *place, char *message, size_t size);
/* Whether the output of that name is as it was before the run, every byte. */
bool place_untouched(const struct place *place, const char *name);
/* The output of that name, contiguous, freed by the caller. NULL when not placed. */
double *place_values(const struct place *place, const char *name);
int32_t *place_values_i32(const struct place *place, const char *name);
/* The bytes of the elements, contiguous; freed by the caller. */
void *place_bytes(const struct place *place, const char *name, int64_t *bytes);
void place_clear(struct place *place);

/* Elements of a type as doubles. */
double element_get(hys_dtype dtype, const void *memory, int64_t i);
void element_put(hys_dtype dtype, void *memory, int64_t i, double value);
/* round_f32 and its kind; the identity for others. */
double element_round(hys_dtype dtype, double value);

#endif
