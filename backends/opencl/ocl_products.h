/* ocl_products.h - sums of products over gathered rows: what attention and the indexer
 * loss consist of. Host side of cl_kernels/products.clh and rows.clh, whose structs these
 * are, field by field.
 *
 * Rows are worked in tiles; a (row, bundle) is a cell. A bundle is the heads that read the
 * same rows of the same kv head. Positions are worked in chunks, so that workspaces stay
 * bounded whatever a row sees. */
#ifndef HYS_OCL_PRODUCTS_H
#define HYS_OCL_PRODUCTS_H

#include "ocl_matrix.h"

enum hys_ocl_variant { HYS_OCL_REF, HYS_OCL_TILE, HYS_OCL_CPU_VECTORS, HYS_OCL_MATRIX };

/* hys_kernel.detail of these operations. */
struct hys_ocl_products {
	struct hys_ocl_source source; /* first: what ocl_program.c reads */
	enum hys_ocl_variant variant;
};

struct hys_ocl_tile {
	int32_t rows, groups, heads, kv_heads, bundle, bundles, pitch, capacity;
};

struct hys_ocl_row_map {
	int64_t first, step;
};

struct hys_ocl_rules {
	int32_t topk, span, step, pool, window, first, dense, unused;
};

struct hys_ocl_operands {
	int64_t list, count, weights, y, y_turned, sums, factor;
};

struct hys_ocl_gathered {
	int64_t offset, row_stride, head_stride;
	int32_t type, channels, width, unused;
};

/* The tile sizes of a program: build options, and what the layout needs to know. */
struct hys_ocl_blocks {
	int32_t width;			 /* CPU: floats of a vector, else 1 */
	int32_t lanes, vectors;		 /* CPU: heads of a vector, vectors at once */
	int32_t tile_heads;		 /* TILE: heads of a work-group, a power of two */
	int32_t channels_each;		 /* TILE: channels of a work-item */
	const struct hys_ocl_unit *unit; /* MATRIX, else NULL */
	int32_t row_tiles, column_tiles; /* MATRIX: tiles of a unit that a subgroup works on */
};

/* Of a program for bundles of `bundle` heads and up to `channels` channels. */
struct hys_ocl_blocks hys_ocl_blocks_of(const struct hys_ocl_device *device,
					enum hys_ocl_variant variant, int64_t bundle,
					int64_t channels);
/* `dtype`: what MATRIX multiplies. */
void hys_ocl_define_blocks(struct hys_ocl_options *options, enum hys_ocl_variant variant,
			   const struct hys_ocl_blocks *blocks, hys_dtype dtype);

/* `heads` heads over `groups` lists and `kv_heads` heads of x; rows and capacity are left
 * to the caller. */
struct hys_ocl_tile hys_ocl_tile_of(const struct hys_ocl_blocks *blocks, int64_t heads,
				    int64_t groups, int64_t kv_heads);
/* Floats of a packed vector of `channels`. */
int64_t hys_ocl_padded(const struct hys_ocl_blocks *blocks, int64_t channels);
int64_t hys_ocl_bundle(int64_t heads, int64_t groups, int64_t kv_heads);

/* Hands out the workspace, region by region. */
struct hys_ocl_space {
	int64_t next; /* bytes */
	int64_t rows; /* of the tile */
};
/* `bytes` for each row of the tile. */
int64_t hys_ocl_take(struct hys_ocl_space *space, int64_t row_bytes);

/* Rows of a tile whose rows need row_bytes each, and the bytes to ask for: grows with
 * rows and row_bytes. */
int64_t hys_ocl_tile_rows(const struct hys_device *device, int64_t rows, int64_t row_bytes);
int64_t hys_ocl_tile_bytes(const struct hys_device *device, int64_t rows, int64_t row_bytes);
/* Positions of a chunk when a row has at most `positions` of them: the same whatever the
 * number of rows, so that sums are. `heads` counts with their padding. */
int64_t hys_ocl_capacity(const struct hys_device *device, int64_t heads, int64_t positions);

/* One operation that runs: what all its launches share. */
struct hys_ocl_job {
	struct hys_stream *stream;
	void *instance;
	enum hys_ocl_variant variant;
	struct hys_ocl_blocks blocks;
	struct hys_buffer *work;
	struct hys_error *error;
};

#define HYS_OCL_PRODUCT_ENTRIES "pack", "scores", "combine", "scatter"

/* The workspace's start: offsets of regions count from there. */
void hys_ocl_arg_work(struct hys_ocl_args *args, const struct hys_ocl_job *job);

/* [rows or keys, heads, channels] (or without heads) as kernels gather it. */
struct hys_ocl_gathered hys_ocl_gathered_of(const struct hys_ocl_job *job,
					    const struct hys_tensor *tensor);

/* Work-groups of kernels that go by head, and work-items of one: heads_item_of in
 * products.clh. */
int64_t hys_ocl_head_groups(const struct hys_ocl_job *job, const struct hys_ocl_tile *tile);
int64_t hys_ocl_local(const struct hys_ocl_job *job);

/* y: [rows, heads, channels]; lse may be absent. */
hys_status hys_ocl_pack(const struct hys_ocl_job *job, const struct hys_tensor *y,
			const struct hys_tensor *lse, struct hys_ocl_row_map map,
			const struct hys_ocl_operands *at, const struct hys_ocl_tile *tile);
/* Over the first `positions` of the chunk at most. */
hys_status hys_ocl_scores(const struct hys_ocl_job *job, const struct hys_tensor *x,
			  int64_t positions, const struct hys_ocl_operands *at,
			  const struct hys_ocl_tile *tile);
/* `start`: the sums begin at 0. */
hys_status hys_ocl_combine(const struct hys_ocl_job *job, const struct hys_tensor *x, bool start,
			   const struct hys_ocl_operands *at, const struct hys_ocl_tile *tile);
/* out: f32 [keys, heads, channels] (or without heads). */
hys_status hys_ocl_scatter(const struct hys_ocl_job *job, const struct hys_tensor *out,
			   const struct hys_ocl_operands *at, const struct hys_ocl_tile *tile);

#endif
