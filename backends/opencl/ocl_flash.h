/* ocl_flash.h - attention on NVIDIA's tensor cores: tiles of rows against tiles of keys. */
#ifndef HYS_OCL_FLASH_H
#define HYS_OCL_FLASH_H

#include "ocl_products.h"

extern const struct hys_ocl_source hys_ocl_flash_forward_wgmma;

bool hys_ocl_flash_dense_applicable(const struct hys_kernel *kernel,
				    const struct hys_device *device,
				    const struct hys_problem *problem,
				    char reason[HYS_REASON_SIZE]);
int64_t hys_ocl_flash_forward_workspace(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_size *size);
hys_status hys_ocl_flash_forward(const struct hys_kernel *kernel, struct hys_stream *stream,
				 void *instance, const struct hys_call *call,
				 struct hys_error *error);

/* ---- ocl_flash_pack.c: what all passes share ---- */

#define HYS_OCL_PANEL_COLUMNS 64
#define HYS_OCL_PANEL_BYTES 128 /* of a row */
#define HYS_OCL_PACK_ENTRIES "clear_reach", "mark_reach", "scan_reach", "pack_keys"

static inline int32_t hys_ocl_panels(int64_t columns)
{
	return (int32_t)hys_ocl_divide_up(columns, HYS_OCL_PANEL_COLUMNS);
}

/* A source of keys: its tensors, which rows see which keys, and where its panels go. */
struct hys_ocl_flash_source {
	struct hys_tensor k, v; /* v: k's first channels when shared */
	struct hys_tensor begin, end;
	int64_t count;		     /* keys */
	int64_t reach, keys, values; /* bytes behind the start of the workspace */
	int64_t pitch;		     /* rows of a panel */
};

/* Lays the panels of `count` keys out from byte `next` on; answers the end. */
int64_t hys_ocl_flash_layout(int64_t next, const struct hys_problem *problem, int64_t count,
			     struct hys_ocl_flash_source *source);
/* Whether a row's eight elements at multiples of 8 can be read at once. */
bool hys_ocl_flash_wide(const struct hys_tensor *tensor);
/* Whether two elements at multiples of 2 can be written at once. */
bool hys_ocl_flash_pairs(const struct hys_tensor *tensor);
/* Fills the panels. `indices`: absent for the second source. */
hys_status hys_ocl_flash_pack(const struct hys_ocl_job *job, const struct hys_call *call,
			      const struct hys_ocl_rules *rules, const struct hys_tensor *indices,
			      const struct hys_ocl_flash_source *source);
/* How rows choose their keys. */
struct hys_ocl_rules hys_ocl_flash_rules(const struct hys_size *size);

#endif
