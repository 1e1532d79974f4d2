/* A case of the indexer loss: features as data, made into operands and the oracle's answer. */
#ifndef HYS_TEST_LOSS_CASE_H
#define HYS_TEST_LOSS_CASE_H

#include "indices.h"
#include "oracle.h"
#include "suite.h"

enum loss_values {
	LOSS_NORMAL = 0,
	LOSS_INTEGERS, /* products of exactly zero, equal scores in a block */
	LOSS_SHARP     /* scores and logits of some hundreds */
};

#define LOSS_DENSE 1u
#define LOSS_LSE 2u /* given, over all visible keys and a second source */
#define LOSS_SINK 4u
#define LOSS_TEACHER_IN 8u /* some rows of zeros */
#define LOSS_TEACHER_OUT 16u
#define LOSS_SCORES 32u /* given, as select answers them */
#define LOSS_SUM 64u
#define LOSS_SAMPLED 128u   /* every third row from the second on */
#define LOSS_RANGE 256u	    /* rows [rows/3, 2 rows/3) of whole tensors */
#define LOSS_RANGE_CUT 512u /* the same with tensors of just these rows */
#define LOSS_ACCUMULATE 1024u
#define LOSS_F32_GRADS 2048u
#define LOSS_ONLY_LOSS 4096u
#define LOSS_ONLY_KEYS 8192u /* d_index_k alone */
#define LOSS_UNWEIGHTED 16384u

struct loss_case {
	struct suite_case about; /* first */
	struct visible_spec visible;
	int32_t index_heads, index_dim, groups, block, pool; /* 0: 4, 16, 1, 1, 1 */
	int32_t heads, kv_heads, head_dim;		     /* 0: 4, 1, 16 */
	int32_t topk;					     /* 0: 6 */
	hys_dtype index_dtype, dtype;
	hys_activation activation;
	double scale, index_scale, softcap, coefficient, divisor;
	enum index_pattern indices;
	enum loss_values values;
	unsigned features; /* LOSS_* */
};

/* Gradients, and what they are added to; NULL = not asked for. */
struct loss_grads {
	double loss;
	double *d_index_q, *d_index_k, *d_index_w, *teacher_out;
};

struct loss_data {
	const struct loss_case *about;
	struct hys_problem problem;
	struct visible visible;
	int64_t row_first, row_count;
	int32_t topk;
	int32_t *indices;
	double *index_q, *index_k, *index_w, *q, *k; /* rounded */
	double *lse, *sink, *scores, *teacher;	     /* rounded, NULL = absent */
	double sharpest;			     /* largest |logit| or |score| */
	struct ora_loss oracle;
	struct loss_grads want;
};

void loss_make(struct loss_data *data, const struct loss_case *about);
void loss_free(struct loss_data *data);
struct suite_want loss_want(const struct loss_data *data);
/* Of gradients. */
double loss_tolerance(const struct loss_data *data);

/* `before`: what outputs hold when accumulating; else only which are asked for. */
hys_status loss_call(const struct loss_data *data, const struct loss_grads *before,
		     struct place *place, struct hys_batch *batch, struct hys_error *error);
void loss_try(const struct loss_data *data, const struct suite_run *run, unsigned flags);
void loss_grads_free(struct loss_grads *grads);
/* Zeroed arrays for what the case asks for. */
void loss_grads_make(struct loss_grads *grads, const struct loss_data *data);

/* For suite_main: every kernel row, every placement. */
void loss_run(void **state);

#endif
