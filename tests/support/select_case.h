/* A case of select: sizes and features as data, made into operands and the oracle's question. */
#ifndef HYS_TEST_SELECT_CASE_H
#define HYS_TEST_SELECT_CASE_H

#include "oracle.h"
#include "suite.h"
#include "visible.h"

enum score_values {
	SCORES_NORMAL = 0,
	SCORES_INTEGERS, /* small ones, scale 1: exact in f32, many ties */
	SCORES_SPREAD,	 /* the same times powers of two, log-normal, alike for 40 keys */
	SCORES_FEW,	 /* one of three values: next to nothing but ties */
	SCORES_EQUAL,	 /* all keys the same: equal scores by equal arithmetic */
	SCORES_ZERO,	 /* q, k and w of both signs and zero: +0 and -0 */
	SCORES_RISING,	 /* the best come last */
	SCORES_FALLING,	 /* the best come first */
	SCORES_HUGE,	 /* up to 1e30, or the type's largest */
	SCORES_TINY,	 /* products of 1e-30 */
	SCORES_DENORMAL, /* keys that are denormal numbers of the type */
	SCORES_INFINITE, /* infinities of both signs among the keys */
	SCORES_NAN,	 /* NaN among the keys */
	SCORES_ALL_NAN,	 /* in every key of some rows and in some weights */
	SCORES_MIXED	 /* infinities, NaN and huge values */
};

#define SELECT_ONLY_INDICES 1u /* no optional output */
#define SELECT_RANGE 2u	       /* rows [rows/3, 2 rows/3) of whole tensors */
#define SELECT_RANGE_CUT 4u    /* the same with tensors of just these rows */
#define SELECT_SLOTS 8u	       /* indices have one slot more than the largest topk, not topk_max */
#define SELECT_EXACT 16u       /* ask for the method in the call, not in the problem */

struct select_case {
	struct suite_case about; /* first */
	struct visible_spec visible;
	int32_t heads, dim, groups, block, pool; /* 0: 4, 16, 1, 1, 1 */
	hys_dtype dtype;
	hys_activation activation;
	bool unweighted;
	double scale;
	int32_t topk, first, local; /* topk 0: 8 */
	const int32_t *group_topk;  /* [groups] or NULL */
	hys_method method;
	int32_t coarse_block, coarse_keep;
	enum score_values values;
	unsigned features; /* SELECT_* */
};

struct select_data {
	const struct select_case *about;
	struct hys_problem problem;
	struct visible visible;
	hys_op op;
	int64_t row_first, row_count; /* as in the args */
	int64_t slots;		      /* K of the outputs */
	double *q, *k, *w;	      /* rounded to the type */
	double *q_scale, *k_scale;    /* f8 only */
	double *q_whole, *k_whole;    /* what the scores are made of: scales multiplied in */
	bool exact;		      /* picks must be the oracle's own */
	int32_t topk[HYS_GROUPS_MAX]; /* of each group */
	struct ora_select oracle;
};

/* What a call gave, contiguous, for the rows of the range. */
struct select_answer {
	int32_t *indices, *counts, *nan_rows;
	double *scores, *kth;
};

void select_make(struct select_data *data, const struct select_case *about);
void select_free(struct select_data *data);
struct suite_want select_want(const struct select_data *data);

/* Places all tensors and calls hys_select. */
hys_status select_call(const struct select_data *data, struct place *place, struct hys_batch *batch,
		       struct hys_error *error);
void select_answer_take(struct select_answer *answer, const struct place *place);
void select_answer_free(struct select_answer *answer);
/* By the oracle. False with the first violation in message. */
bool select_judge(const struct select_data *data, const struct select_answer *answer, char *message,
		  size_t size);

/* Calls, collects, and judges. */
void select_try(const struct select_data *data, const struct suite_run *run, unsigned flags);
/* For suite_main: every kernel row of the case's method, every placement. */
void select_run(void **state);

#endif
