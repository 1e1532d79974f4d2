/* ocl_attention.h - attention over selected rows, forward and backward. */
#ifndef HYS_OCL_ATTENTION_H
#define HYS_OCL_ATTENTION_H

#include "ocl_products.h"

extern const struct hys_ocl_products hys_ocl_forward_cpu, hys_ocl_forward_tile, hys_ocl_forward_ref;
extern const struct hys_ocl_products hys_ocl_forward_matrix, hys_ocl_backward_matrix;
extern const struct hys_ocl_products hys_ocl_backward_cpu, hys_ocl_backward_tile,
	hys_ocl_backward_ref;

/* What the device's matrix unit multiplies. */
bool hys_ocl_forward_matrix_applicable(const struct hys_kernel *kernel,
				       const struct hys_device *device,
				       const struct hys_problem *problem,
				       char reason[HYS_REASON_SIZE]);
int64_t hys_ocl_forward_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				  const struct hys_size *size);
hys_status hys_ocl_forward(const struct hys_kernel *kernel, struct hys_stream *stream,
			   void *instance, const struct hys_call *call, struct hys_error *error);
bool hys_ocl_backward_matrix_applicable(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_problem *problem,
					char reason[HYS_REASON_SIZE]);
int64_t hys_ocl_backward_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				   const struct hys_size *size);
hys_status hys_ocl_backward(const struct hys_kernel *kernel, struct hys_stream *stream,
			    void *instance, const struct hys_call *call, struct hys_error *error);

/* ---- ocl_attention_rows.c: what both passes share ---- */

#define HYS_OCL_ROW_ENTRIES "clean", "expand"

/* The structs of attention_rows.clh and of `struct logit`. */
struct hys_ocl_row_regions {
	int64_t sets, starts, list, count;
};

struct hys_ocl_logit {
	float scale, softcap;
};

/* `struct head_regions` of attention_backward.cl. */
struct hys_ocl_head_regions {
	int64_t whole, common, sink;
};

/* Sizes of a call that do not depend on the tile. */
struct hys_ocl_reach {
	struct hys_ocl_rules rules;
	struct hys_ocl_blocks blocks;
	struct hys_ocl_tile tile; /* rows is left 0 */
	struct hys_ocl_logit logit;
	int64_t positions[2]; /* most that a row reads of k, of window_k */
};
struct hys_ocl_reach hys_ocl_reach_of(const struct hys_kernel *kernel,
				      const struct hys_device *device, const struct hys_size *size);
/* Build options of both passes. */
void hys_ocl_attention_define(const struct hys_ocl_source *source,
			      const struct hys_ocl_device *device,
			      const struct hys_problem *problem, struct hys_ocl_options *options);
void hys_ocl_rows_layout(struct hys_ocl_space *space, const struct hys_ocl_reach *reach,
			 struct hys_ocl_row_regions *rows, struct hys_ocl_operands *at);

/* A tile at work. */
struct hys_ocl_attention {
	struct hys_ocl_job job;
	const struct hys_call *call;
	const struct hys_tensor *indices;
	struct hys_ocl_reach reach;
	struct hys_ocl_row_map map;
	struct hys_ocl_row_regions rows;
	struct hys_ocl_operands at;
};
/* Fills what does not depend on the pass. */
void hys_ocl_attention_open(struct hys_ocl_attention *attention, const struct hys_kernel *kernel,
			    struct hys_stream *stream, void *instance, const struct hys_call *call,
			    struct hys_error *error);
/* The indices of the tile's rows. */
hys_status hys_ocl_clean(const struct hys_ocl_attention *attention);
/* Lists the chunk of source 0 or 1 that starts at position `first`. */
hys_status hys_ocl_expand(const struct hys_ocl_attention *attention, int32_t source, int64_t first);
/* Adds what a tile's heads have at heads->sink to sums of the whole call at sums_at; `last` writes dsink. */
hys_status hys_ocl_add_sink(const struct hys_ocl_attention *attention,
			    const struct hys_ocl_head_regions *heads, int64_t sums_at, bool start,
			    bool last);

#endif
