/* ocl_select.h - select: what its two files share, and the rows of the kernel table. */
#ifndef HYS_OCL_SELECT_H
#define HYS_OCL_SELECT_H

#include "ocl_matrix.h"

/* Programs that score in different ways; everything else is the same. */
enum hys_ocl_scorer {
	HYS_OCL_SCORE_REF,
	HYS_OCL_SCORE_TILE,	  /* local memory */
	HYS_OCL_SCORE_CPU,	  /* packed keys, vectors */
	HYS_OCL_SCORE_CLBLAST,	  /* coarse scores by CLBlast, the rest as TILE */
	HYS_OCL_SCORE_MATRIX,	  /* entries by the device's matrix unit */
	HYS_OCL_SCORE_MATRIX_FINE, /* the same, coarse scores as TILE */
	HYS_OCL_SCORE_WGMMA	  /* coarse blocks and their entries by NVIDIA's wgmma */
};

/* detail of select's rows: `source` first. */
struct hys_ocl_select {
	struct hys_ocl_source source;
	enum hys_ocl_scorer scorer;
};

/* What kernels are told of the problem: struct scoring of select_common.clh. Programs are
 * compiled for types and tiles only, so that few are needed. */
struct hys_ocl_scoring {
	cl_int heads, group_heads, groups, dim, relu;
	cl_int block, first_blocks, local_blocks;
	cl_int coarse, keep;
	cl_float scale;
};

/* Sizes that a program is compiled for. */
struct hys_ocl_select_tiles {
	int32_t pick;			 /* work-items that choose for a row and group */
	int32_t key_align;		 /* of the first key of a line */
	int32_t item_heads, item_keys;	 /* TILE: of a work-item */
	int32_t head_items, tile_keys;	 /* TILE: of a work-group */
	int32_t block_heads, vectors;	 /* CPU: of a work-item, vectors of 16 keys */
	int32_t head_blocks, panel_keys; /* CPU: of a group, of a panel */
	int32_t depths, key_tiles;	 /* MATRIX: of a key, tiles of keys of a subgroup */
	int32_t matrix_keys;		 /* MATRIX: of a work-group */
};

struct hys_ocl_select_tiles hys_ocl_select_tiles(const struct hys_ocl_select *select,
						 const struct hys_ocl_device *device,
						 const struct hys_problem *problem);

/* Where everything lies in the workspace. Rows are done in tiles of `rows`. */
struct hys_ocl_select_layout {
	int64_t rows;		 /* of a tile */
	int64_t keys;		 /* scored: entries, or complete coarse blocks */
	int64_t row_keys;	 /* most that one row sees */
	int64_t line_size;	 /* floats of a line of scores, one per row and group */
	int64_t block_line_size; /* of a line of block scores */
	int64_t slots;		 /* coarse blocks that a row and group may keep */
	int64_t strip_keys;	 /* packed at a time */
	bool pack_entries;	 /* CPU, fine step: all entries are packed, once per call */
	/* offsets in bytes */
	int64_t flags, means, parts, strip, entries;
	int64_t lines, blocks, packed, edges, lists, fine, panels, products;
	int64_t bytes;
};

void hys_ocl_select_lay_out(const struct hys_ocl_select *select,
			    const struct hys_ocl_device *device, hys_op op,
			    const struct hys_size *size, struct hys_ocl_select_layout *layout);

int64_t hys_ocl_select_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				 const struct hys_size *size);
hys_status hys_ocl_select_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error);
/* bf16, and as many heads and channels as a tile of wgmma has. */
bool hys_ocl_select_fine_applicable(const struct hys_kernel *kernel,
				    const struct hys_device *device,
				    const struct hys_problem *problem,
				    char reason[HYS_REASON_SIZE]);
/* CLBlast multiplies f32 only. */
bool hys_ocl_select_clblast_applicable(const struct hys_kernel *kernel,
				       const struct hys_device *device,
				       const struct hys_problem *problem,
				       char reason[HYS_REASON_SIZE]);

/* What the device's matrix unit can score. */
bool hys_ocl_select_matrix_applicable(const struct hys_kernel *kernel,
				      const struct hys_device *device,
				      const struct hys_problem *problem,
				      char reason[HYS_REASON_SIZE]);

extern const struct hys_ocl_select hys_ocl_select_cpu, hys_ocl_select_tile, hys_ocl_select_ref;
extern const struct hys_ocl_select hys_ocl_select_matrix, hys_ocl_fine_matrix;
extern const struct hys_ocl_select hys_ocl_coarse_cpu, hys_ocl_coarse_tile, hys_ocl_coarse_ref;
extern const struct hys_ocl_select hys_ocl_fine_clblast, hys_ocl_fine_wgmma;

#endif
