/* ocl_flash_backward.h - what the files of attention backward on NVIDIA's tensor cores share. */
#ifndef HYS_OCL_FLASH_BACKWARD_H
#define HYS_OCL_FLASH_BACKWARD_H

#include "ocl_flash.h"

#define HYS_OCL_LISTED_KEYS 64 /* of a tile that lists go by */

/* `struct packed_rows` of the kernels. */
struct hys_ocl_packed_rows {
	int64_t q, grad_o, info[3], reach[3], pitch, most;
	int32_t rows, bundle, pad, bundles, kv_heads, groups;
};

/* Sets of intervals, and the bit of lists beside them. */
enum { SET_WINDOW, SET_OTHER, SET_FIRST, SETS, LISTED = SETS };

/* `struct gradient` of the kernels. */
struct hys_ocl_put {
	int32_t type, columns, add, pairs;
};

struct hys_ocl_backward {
	struct hys_ocl_job job;
	const struct hys_ocl_flash_way *way;
	const struct hys_call *call;
	struct hys_ocl_flash_source sources[2];
	struct hys_ocl_gradient dk[2], dv[2];
	int64_t sums[2][2]; /* of dk, of dv: where they are summed */
	struct hys_ocl_packed_rows packed;
	struct hys_ocl_key_lists lists;
	uint32_t sets;	       /* bits of those that see the first source */
	struct hys_call chunk; /* the call, cut to a chunk's rows */
	struct hys_ocl_flash flash;
	int64_t slopes;		  /* where they may be kept; -1 = nowhere */
	bool accumulate, several; /* what is summed over rows */
};

struct hys_ocl_packed_rows hys_ocl_backward_packed(const struct hys_problem *problem);
struct hys_ocl_put hys_ocl_backward_gradient(const struct hys_tensor *tensor, bool add);

/* ---- ocl_flash_slopes.c: dq of slopes that the key pass keeps ---- */

/* Whether rows may read by lists alone, of which each bundle has its own. */
bool hys_ocl_keeps_slopes(const struct hys_problem *problem);
/* Slopes of `rows` rows of up to `topk` indices. */
int64_t hys_ocl_slopes_bytes(const struct hys_problem *problem, int64_t rows, int64_t topk);
/* Local memory of the pass over them. */
int64_t hys_ocl_slopes_local(const struct hys_problem *problem);
/* Where the key pass is to keep slopes for the row pass: -1 = nowhere. */
int64_t hys_ocl_slopes_of(const struct hys_ocl_backward *backward);
/* dq of the slopes that the key pass has kept. */
hys_status hys_ocl_sum_slopes(const struct hys_ocl_backward *backward);

#endif
