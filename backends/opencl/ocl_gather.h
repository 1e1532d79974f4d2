/* ocl_gather.h - attention by kernels that gather each row's keys once for the heads of a bundle:
 * NVIDIA's wgmma. What they cannot do, in a call, the generic kernels of the same program do.
 * Host side of cl_kernels/gather_lists.clh. */
#ifndef HYS_OCL_GATHER_H
#define HYS_OCL_GATHER_H

#include "ocl_attention.h"

extern const struct hys_ocl_products hys_ocl_forward_gather, hys_ocl_backward_gather;
/* Sums of keys' gradients in no fixed order. */
extern const struct hys_ocl_products hys_ocl_backward_gather_atomic;

bool hys_ocl_gather_applicable(const struct hys_kernel *kernel, const struct hys_device *device,
			       const struct hys_problem *problem, char reason[HYS_REASON_SIZE]);
int64_t hys_ocl_forward_gather_workspace(const struct hys_kernel *kernel,
					 const struct hys_device *device,
					 const struct hys_size *size);
hys_status hys_ocl_forward_gather_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				      void *instance, const struct hys_call *call,
				      struct hys_error *error);
int64_t hys_ocl_backward_gather_workspace(const struct hys_kernel *kernel,
					  const struct hys_device *device,
					  const struct hys_size *size);
hys_status hys_ocl_backward_gather_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				       void *instance, const struct hys_call *call,
				       struct hys_error *error);

/* ---- what the passes share ---- */

#define HYS_OCL_CHUNK 64			/* channels of a row of an operand: 128 bytes */
#define HYS_OCL_ITEM_HEADS 64			/* heads of a row that are worked at once */
#define HYS_OCL_CHUNK_BYTES (INT64_C(64) * 128) /* a chunk of 64 rows of an operand */

/* `struct gather_lists` of the kernels. */
struct hys_ocl_lists {
	int64_t list, count, pitch;
};

/* Those of gather_sums.clh. */
struct hys_ocl_pair_regions {
	int64_t pairs, tiles, bounds, value_bounds, counts, value_counts, keys, sink;
};

struct hys_ocl_sum_regions {
	int64_t sums;
	int32_t pitch, separate, parts, unused;
};

/* Lays the lists of space->rows rows out. */
struct hys_ocl_lists hys_ocl_take_lists(struct hys_ocl_space *space,
					const struct hys_ocl_reach *reach);
/* Rows of one launch when each needs row_bytes, and the bytes to ask for. */
int64_t hys_ocl_gather_rows(int64_t rows, int64_t row_bytes);
/* Lists the key rows of the tile's rows. In ocl_attention_rows.c. */
hys_status hys_ocl_list_rows(const struct hys_ocl_attention *attention,
			     const struct hys_ocl_lists *lists);
/* Whether rows of the tensor can be copied 16 bytes at a time; also when it is absent. */
bool hys_ocl_rows_aligned(const struct hys_tensor *tensor);
/* Items of the attention's tile: 64 heads of a row each. */
int64_t hys_ocl_items(const struct hys_ocl_tile *tile);
/* Work-groups that take items in turn: one a unit. */
int64_t hys_ocl_persistent(const struct hys_ocl_job *job, int64_t items);
/* ELEMENT_TYPE, SCALE, SOFTCAP and the chunks of a program for this problem. */
void hys_ocl_gather_define(const struct hys_problem *problem, struct hys_ocl_options *options);

#endif
