/* ocl_flash.h - attention on NVIDIA's tensor cores: tiles of rows against tiles of keys. */
#ifndef HYS_OCL_FLASH_H
#define HYS_OCL_FLASH_H

#include "ocl_gradient.h"
#include "ocl_products.h"

/* hys_kernel.detail: one way to go through tiles. */
struct hys_ocl_flash_way {
	struct hys_ocl_source source; /* first: what ocl_program.c reads */
	bool large;		      /* local memory past 48 KiB */
	bool lists;		      /* not only dense */
	bool shares;		      /* with lists, twelve warps' rows share a tile */
};

extern const struct hys_ocl_source hys_ocl_flash_forward_wgmma;
extern const struct hys_ocl_flash_way hys_ocl_flash_forward_sm90, hys_ocl_flash_forward_twelve;
extern const struct hys_ocl_flash_way hys_ocl_flash_forward_mma;
extern const struct hys_ocl_flash_way hys_ocl_flash_backward_dense, hys_ocl_flash_backward_blocks;

bool hys_ocl_flash_tiles_applicable(const struct hys_kernel *kernel,
				    const struct hys_device *device,
				    const struct hys_problem *problem,
				    char reason[HYS_REASON_SIZE]);
hys_status hys_ocl_flash_forward_tiles(const struct hys_kernel *kernel, struct hys_stream *stream,
				       void *instance, const struct hys_call *call,
				       struct hys_error *error);
bool hys_ocl_flash_forward_applicable(const struct hys_kernel *kernel,
				      const struct hys_device *device,
				      const struct hys_problem *problem,
				      char reason[HYS_REASON_SIZE]);
int64_t hys_ocl_flash_forward_workspace(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_size *size);
hys_status hys_ocl_flash_forward(const struct hys_kernel *kernel, struct hys_stream *stream,
				 void *instance, const struct hys_call *call,
				 struct hys_error *error);
bool hys_ocl_flash_backward_applicable(const struct hys_kernel *kernel,
				       const struct hys_device *device,
				       const struct hys_problem *problem,
				       char reason[HYS_REASON_SIZE]);
int64_t hys_ocl_flash_backward_workspace(const struct hys_kernel *kernel,
					 const struct hys_device *device,
					 const struct hys_size *size);
hys_status hys_ocl_flash_backward(const struct hys_kernel *kernel, struct hys_stream *stream,
				  void *instance, const struct hys_call *call,
				  struct hys_error *error);

/* ---- ocl_flash_lists.c: which rows read a tile of keys ---- */

#define HYS_OCL_LIST_ENTRIES "clear_marks", "mark_lists", "count_lists", "start_lists", "fill_lists"

/* `struct key_lists` of the kernels. */
struct hys_ocl_key_lists {
	int64_t marks, before, starts, rows, keys, counts, reached, entries, slopes;
	int32_t words, tiles, groups, most;
};

/* Most tiles that a row reaches in a group. */
int64_t hys_ocl_flash_reached(const struct hys_problem *problem, int64_t topk);

/* Of up to `rows` rows, from byte `next` on; answers the end. */
int64_t hys_ocl_flash_lay_out_lists(int64_t next, const struct hys_size *size, int64_t rows,
				    struct hys_ocl_key_lists *lists);
/* Makes the lists of the call's rows. */
hys_status hys_ocl_flash_make_lists(const struct hys_ocl_job *job, const struct hys_call *call,
				    const struct hys_tensor *indices,
				    const struct hys_ocl_key_lists *lists);

/* ---- ocl_flash_pack.c: what all passes share ---- */

#define HYS_OCL_FLASH_TILE_ROWS 128 /* packed rows of a work-group */
#define HYS_OCL_FLASH_TILE_KEYS 128
#define HYS_OCL_FLASH_THREADS 384
#define HYS_OCL_PANEL_COLUMNS 64
#define HYS_OCL_PANEL_BYTES 128 /* of a row */
#define HYS_OCL_PACK_ENTRIES "clear_reach", "mark_reach", "scan_reach", "join_reach", "pack_keys"

static inline int32_t hys_ocl_panels(int64_t columns)
{
	return (int32_t)hys_ocl_divide_up(columns, HYS_OCL_PANEL_COLUMNS);
}

/* `struct flash` of the kernels. */
struct hys_ocl_flash {
	int64_t keys[2], values[2], pitch[2];
	int32_t rows, heads, kv_heads, bundle, bundles, pad, tiles, groups;
	float scale, softcap;
};

/* A source of keys: its tensors, which rows see which keys, and where its panels go. */
struct hys_ocl_flash_source {
	struct hys_tensor k, v; /* v: k's first channels when shared */
	struct hys_tensor begin, end;
	int64_t count;		     /* keys */
	int64_t reach, keys, values; /* bytes behind the start of the workspace */
	int64_t pitch;		     /* rows of a panel */
	bool shared;
};

/* Whether the tensor cores can do the problem at all; most channels of q and k, of v. */
bool hys_ocl_flash_can(const struct hys_problem *problem, int32_t head_dim_max,
		       int32_t value_dim_max, char reason[HYS_REASON_SIZE]);
static inline bool hys_ocl_flash_is_dense(const struct hys_problem *problem)
{
	return (problem->attending.flags & HYS_ATTENDING_DENSE) != 0;
}
/* Packed rows of a row. */
int32_t hys_ocl_flash_pad(const struct hys_problem *problem);
struct hys_ocl_rules hys_ocl_flash_rules(const struct hys_size *size);
/* Options that all passes have. */
void hys_ocl_flash_define(const struct hys_problem *problem, struct hys_ocl_options *options);
/* Lays the panels of both sources out from byte `next` on; answers the end. */
int64_t hys_ocl_flash_layout(int64_t next, const struct hys_size *size,
			     struct hys_ocl_flash_source sources[2]);
/* Absent ones are left as they are. */
void hys_ocl_flash_open_source(struct hys_ocl_flash_source *source,
			       const struct hys_problem *problem, const struct hys_tensor *k,
			       const struct hys_tensor *v, const struct hys_tensor *begin,
			       const struct hys_tensor *end);
struct hys_ocl_flash hys_ocl_flash_of(const struct hys_call *call,
				      const struct hys_ocl_flash_source sources[2]);
/* Whether a row's eight elements at multiples of 8 can be read at once. */
bool hys_ocl_flash_wide(const struct hys_tensor *tensor);
/* Whether two elements at multiples of 2 can be written at once. */
bool hys_ocl_flash_pairs(const struct hys_tensor *tensor);
/* Fills the panels of those that are there. */
hys_status hys_ocl_flash_pack(const struct hys_ocl_job *job, const struct hys_call *call,
			      const struct hys_tensor *indices,
			      const struct hys_ocl_flash_source sources[2]);
/* Sizes of flash_tiles.clh on one problem. */
struct hys_ocl_flash_tiles {
	int64_t tile_keys, places, local_bytes, threads, warps;
	int64_t kept; /* where q and intervals are kept, if there are more warps than usual */
};
struct hys_ocl_flash_tiles hys_ocl_flash_tiles_of(const struct hys_ocl_flash_way *way,
						  const struct hys_problem *problem);
/* Options of programs that have them, but for the local memory. */
void hys_ocl_flash_define_tiles(const struct hys_ocl_flash_way *way,
				const struct hys_problem *problem, struct hys_ocl_options *options);
/* The arguments of `struct reading`. */
void hys_ocl_flash_arg_reading(struct hys_ocl_args *args, const struct hys_tensor *indices,
			       const struct hys_batch_view *batch, bool second);
/* Enqueues as many work-groups of `local` work-items as have `items`. */
hys_status hys_ocl_flash_launch(struct hys_ocl_args *args, int64_t items, int64_t local,
				struct hys_error *error);

#endif
