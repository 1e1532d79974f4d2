/* ocl_matrix.h - matrix units: which there are, and what programs built on
 * cl_kernels/matrix.clh are told of them. */
#ifndef HYS_OCL_MATRIX_H
#define HYS_OCL_MATRIX_H

#include "ocl_internal.h"

/* UNIT_... of matrix.clh. */
enum hys_ocl_unit_kind {
	HYS_OCL_UNIT_MMA = 1,
	HYS_OCL_UNIT_MFMA,
	HYS_OCL_UNIT_WMMA,
	HYS_OCL_UNIT_WMMA_GFX12,
	HYS_OCL_UNIT_DPAS
};

#define HYS_OCL_UNIT_DEPTH 16

/* A unit multiplies rows x 16 by 16 x columns; the right operands of select's keys stay in the
 * registers of `subgroups` x `lanes` work-items. */
struct hys_ocl_unit {
	const char *name;
	enum hys_ocl_unit_kind kind;
	uint64_t capability;
	bool f16;
	int32_t lanes, subgroups, rows, columns;
	int32_t depths_max; /* tiles of 16 channels of a key that registers hold */
	int32_t key_tiles;  /* tiles of keys of a subgroup */
	int32_t head_tiles; /* tiles of heads multiplied side by side */
	int32_t row_tiles;  /* of a subgroup where both operands come from local memory, at most */
};

extern const struct hys_ocl_unit hys_ocl_units[];
extern const int32_t hys_ocl_unit_count;

/* The device's; NULL = it has none that is known here. */
const struct hys_ocl_unit *hys_ocl_find_unit(const struct hys_ocl_device *device);

/* Work-items of a work-group. */
static inline int64_t hys_ocl_unit_group(const struct hys_ocl_unit *unit)
{
	return (int64_t)unit->subgroups * unit->lanes;
}

/* Options of matrix.clh, for numbers of `dtype` (f8 is multiplied as bf16). */
void hys_ocl_define_unit(struct hys_ocl_options *options, const struct hys_ocl_unit *unit,
			 hys_dtype dtype);

/* Whether the device's unit multiplies `what` of that type; fills `reason` if not. */
bool hys_ocl_unit_multiplies(const struct hys_ocl_device *device, const char *what, hys_dtype dtype,
			     char reason[HYS_REASON_SIZE]);

/* The same for gradients: their weights are of any magnitude, for which f16 has no room. */
bool hys_ocl_unit_multiplies_weights(const struct hys_ocl_device *device, const char *what,
				     hys_dtype dtype, char reason[HYS_REASON_SIZE]);

#endif
