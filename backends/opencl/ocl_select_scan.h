/* ocl_select_scan.h - select by one pass over the keys on NVIDIA's tensor cores. */
#ifndef HYS_OCL_SELECT_SCAN_H
#define HYS_OCL_SELECT_SCAN_H

#include "ocl_internal.h"

/* What is enqueued, in this order, for each pass over some of the rows: select_scan.clh says
 * how it works. */
enum hys_ocl_scan_step {
	HYS_OCL_SCAN_PREPARE,
	HYS_OCL_SCAN_THRESHOLDS,
	HYS_OCL_SCAN_THRESHOLDS_MANY, /* where samples are larger */
	HYS_OCL_SCAN_KEYS,	      /* a sample, before the thresholds; then all */
	HYS_OCL_SCAN_CHOOSE,
	HYS_OCL_SCAN_CHOOSE_LONG,
	HYS_OCL_SCAN_REPAIR,
	HYS_OCL_SCAN_NAN_ROWS, /* once, at the end */
	/* by wgmma, behind the thresholds: select_skip.clh */
	HYS_OCL_SCAN_JUDGE,
	HYS_OCL_SCAN_ORDER,
	HYS_OCL_SCAN_REACHES,
	HYS_OCL_SCAN_IN_ORDER, /* behind the scan of all keys: one of the two has nothing to do */
	HYS_OCL_SCAN_NAME,
	HYS_OCL_SCAN_MEASURE /* e4m3: once, before all */
};

/* detail of the rows: `source` first. */
struct hys_ocl_scan {
	struct hys_ocl_source source;
	int32_t local_bytes; /* LARGE_LOCAL of the scan; 0 = none */
	int32_t items;	     /* of its work-groups */
	int32_t tile_lines;  /* that a work-group scans */
	int32_t line_lists;  /* that a work-group fills for each of them */
	int32_t key_groups;  /* warpgroups that score in a work-group of wgmma */
	int32_t key_sets;    /* of 64 keys, of each of them at a time */
	bool e4m3;
	bool skips; /* can skip keys by their norms */
};

/* struct scan of select_scan.clh. Offsets are bytes into the workspace. */
struct hys_ocl_scan_pass {
	struct {
		cl_long at, by;
	} gaps[HYS_GAPS_MAX];
	cl_long line_first, lines;
	cl_long rows, packed, weights, table, thresholds, floors, tiles, samples, lists, counts,
		flags;
	cl_long errors, longest;
	cl_long key_order, block_norms, reaches;
	cl_long done, order, repairs, longs, scratch;
	cl_int groups, scored;
	cl_int samples_room, capacity, splits;
	cl_int repair_slots, repair_chunk, repair_chunks, room;
	cl_int segments;
	cl_float scale;
};

bool hys_ocl_scan_applicable(const struct hys_kernel *kernel, const struct hys_device *device,
			     const struct hys_problem *problem, char reason[HYS_REASON_SIZE]);
int64_t hys_ocl_scan_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
			       const struct hys_size *size);
hys_status hys_ocl_scan_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			    void *instance, const struct hys_call *call, struct hys_error *error);

extern const struct hys_ocl_scan hys_ocl_scan_wgmma, hys_ocl_scan_mma;
extern const struct hys_ocl_scan hys_ocl_scan_wgmma_e4m3;

#endif
