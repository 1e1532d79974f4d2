/* ocl_loss_parts.h - what the files of the indexer loss share. */
#ifndef HYS_OCL_LOSS_PARTS_H
#define HYS_OCL_LOSS_PARTS_H

#include "ocl_attention.h"
#include "ocl_gradient.h"

/* The structs of indexer_loss.cl and indexer_loss_sets.clh, field by field. */
struct ocl_set_regions {
	int64_t sets, slots, index, list, count;
};

struct ocl_loss_regions {
	int64_t w, dw, part, score, teacher, best, most, loss, factor;
};

struct ocl_totals {
	int64_t most, sum, whole;
};

struct ocl_scoring {
	float scale;
	int32_t relu;
};

struct ocl_teacher_from {
	int32_t heads, kv_heads, channels, type;
	float scale, softcap;
};

/* What a list of positions names: LIST_* of indexer_loss_sets.clh. */
enum ocl_list { OCL_LIST_ENTRIES, OCL_LIST_KEYS, OCL_LIST_BEST };

/* Sizes of a call that do not depend on the tile. */
struct ocl_loss_reach {
	struct hys_ocl_rules rules;
	struct hys_ocl_blocks blocks;
	/* rows is left 0; both have the same capacity */
	struct hys_ocl_tile scores, teacher;
	int64_t entries, keys, units; /* most that a (row, group) has */
};

struct ocl_loss_layout {
	struct ocl_set_regions sets;
	struct ocl_loss_regions at;
	struct ocl_totals totals;
	struct hys_ocl_operands scores;	 /* over index_k and index_q */
	struct hys_ocl_operands teacher; /* over k and q */
};

/* A tile at work. */
struct ocl_loss {
	struct hys_ocl_job job;
	const struct hys_call *call;
	const struct hys_loss_args *args;
	struct ocl_loss_reach reach;
	struct ocl_loss_layout layout;
	struct hys_ocl_row_map map; /* of the sampled rows */
	int64_t rows;		    /* sampled */
	struct hys_ocl_logit logit;
	struct ocl_scoring scoring;
	struct hys_ocl_gradient dk;
	bool accumulate, wants_gradients;
};

/* ---- ocl_loss.c: what all ways to run it share ---- */

#define OCL_LOSS_ENTRIES                                                                     \
	HYS_OCL_PRODUCT_ENTRIES, HYS_OCL_GRADIENT_ENTRIES, "find_sets", "count_sets",        \
		"list_units", "set_factor", "clear_counter", "pack_weights", "entry_scores", \
		"unit_scores", "take_units", "normalise", "set_totals", "key_shares",        \
		"unit_shares", "store_teacher", "judge", "add_loss", "store_loss", "spread", \
		"finish_rows", "clear_rows"

void ocl_loss_define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		     const struct hys_problem *problem, struct hys_ocl_options *options);
struct ocl_loss_reach ocl_loss_reach_of(const struct hys_kernel *kernel,
					const struct hys_device *device,
					const struct hys_size *size, bool dense);
struct ocl_loss ocl_loss_make(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error);
/* The gradient of the keys and the factor, ahead of the tiles. */
int64_t ocl_loss_fixed_bytes(const struct hys_size *size);
/* Everything that is not by tile, ahead of the tiles. dk_at: of the workspace. */
hys_status ocl_loss_open(struct ocl_loss *loss, int64_t dk_at);

/* ---- ocl_loss_launch.c: one kernel each, over the tile unless said otherwise ---- */

/* Counts the sets that are not empty, of all rows. */
hys_status ocl_loss_count(const struct ocl_loss *loss);
/* factor = number, or number / what was counted. */
hys_status ocl_loss_set_factor(const struct ocl_loss *loss, double number, bool counted);
hys_status ocl_loss_find_sets(const struct ocl_loss *loss);
hys_status ocl_loss_list(const struct ocl_loss *loss, enum ocl_list what, int64_t first);
hys_status ocl_loss_pack_weights(const struct ocl_loss *loss);
/* Of the chunk at position `first` of the entries. */
hys_status ocl_loss_unit_scores(const struct ocl_loss *loss, int64_t first);
/* given: f32 [rows,U,K], to a region of units. */
hys_status ocl_loss_take(const struct ocl_loss *loss, const struct hys_tensor *given, int64_t to);
hys_status ocl_loss_normalise(const struct ocl_loss *loss, bool start);
hys_status ocl_loss_set_totals(const struct ocl_loss *loss);
/* Of the chunk at position `first` of the key rows. */
hys_status ocl_loss_unit_shares(const struct ocl_loss *loss, int64_t first);
hys_status ocl_loss_store_teacher(const struct ocl_loss *loss);
/* Losses and d score of the tile; its losses join the sum. */
hys_status ocl_loss_judge(const struct ocl_loss *loss);
hys_status ocl_loss_store(const struct ocl_loss *loss);
hys_status ocl_loss_spread(const struct ocl_loss *loss, int64_t first);
hys_status ocl_loss_finish_rows(const struct ocl_loss *loss);
/* Rows that are not sampled, of all rows. */
hys_status ocl_loss_clear_rows(const struct ocl_loss *loss, const struct hys_tensor *out);

#endif
