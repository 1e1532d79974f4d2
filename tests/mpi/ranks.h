/* What the programs under mpirun share: a step of one layer as data, on one rank and on all. */
#ifndef HYS_TEST_RANKS_H
#define HYS_TEST_RANKS_H

#include <stdbool.h>

#include "hyscale/hyscale.h"
#include "hyscale/mpi.h"
#include "rng.h"

struct step_case {
	const char *name;
	const int32_t *lengths; /* of documents, then -1; NULL = one */
	const int32_t *key_lengths;
	int32_t rows, keys;			      /* without lengths; keys 0 = rows */
	int32_t heads, kv_heads, head_dim, value_dim; /* 0: 4, 1, 16, head_dim */
	int32_t index_heads, index_dim, groups, block, pool, topk; /* 0: 4, 16, 1, 1, 1, 6 */
	int32_t window, first, first_blocks, local_blocks, coarse_block;
	int32_t window_keys; /* S2 */
	int32_t row_stride;  /* of the loss and fidelity */
	hys_dtype dtype, index_dtype;
	hys_method method;
	bool dense, shared, sink, positions;
	double divisor;
	bool sum;   /* reduction */
	bool exact; /* small integers: every sum is exact in f32 */
};

/* One array of all rows of a part. */
struct array {
	const char *name;
	hys_cut_part part;
	hys_dtype dtype;
	int32_t rank;
	int64_t rows, n1, n2;
	char *data; /* [rows] */
	bool input;
};

enum step_array {
	INDEX_Q,
	INDEX_K,
	INDEX_W,
	INDEX_Q_SCALE,
	INDEX_K_SCALE,
	Q,
	K,
	V,
	WINDOW_K,
	WINDOW_V,
	SINK,
	GRAD_O,
	INDICES,
	COUNTS,
	SCORES,
	KTH,
	NAN_ROWS,
	O,
	LSE,
	DQ,
	DK,
	DV,
	DSINK,
	DWINDOW_K,
	DWINDOW_V,
	LOSS,
	D_INDEX_Q,
	D_INDEX_K,
	D_INDEX_W,
	TEACHER,
	MASS,
	RECALL,
	STEP_ARRAYS
};

/* All rows, or (cut) what a rank owns. */
struct step {
	const struct step_case *about;
	struct hys_problem problem;
	struct hys_batch_desc desc;
	int32_t *cu_q, *cu_k, *window_begin, *window_end, *positions;
	struct array arrays[STEP_ARRAYS];
};

void step_make(struct step *step, const struct step_case *about);
/* The rank's rows of inputs, room for its outputs. */
void step_cut(struct step *own, const struct step *whole, const struct hys_cut *cut, int32_t rank);
void step_free(struct step *step);
struct hys_tensor step_tensor(const struct step *step, enum step_array which);

struct hys_select_args step_select(const struct step *step);
struct hys_attention_args step_forward(const struct step *step);
struct hys_attention_grad_args step_backward(const struct step *step);
struct hys_loss_args step_loss(const struct step *step);
struct hys_fidelity_args step_fidelity(const struct step *step);

struct hys_plan *step_plan(struct hys_context *context, const struct step *step, int64_t rows);

/* Counts and prints what is wrong, with the rank. */
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern int wrong_count, this_rank;

#endif
