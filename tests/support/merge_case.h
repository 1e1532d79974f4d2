/* A case of merge: sizes and features as data. */
#ifndef HYS_TEST_MERGE_CASE_H
#define HYS_TEST_MERGE_CASE_H

#include "suite.h"
#include "visible.h"

#define MERGE_ONLY_O 1u	 /* no lse */
#define MERGE_RANGE 2u	 /* rows [rows/3, 2 rows/3) of whole tensors */
#define MERGE_RANGE_CUT 4u	 /* the same with tensors of just these rows */
#define MERGE_NOTHING 8u	 /* lse of -inf and o of 0 on one side, or on both */
#define MERGE_APART 16u	 /* lse of some hundreds, far from each other */
#define MERGE_BOTH_NOTHING 32u /* on both sides everywhere */

struct merge_case {
	struct suite_case about;
	struct visible_spec visible;
	int32_t heads, value_dim; /* 0: 4, 16 */
	hys_dtype dtype;
	unsigned features;
};

/* For suite_main: every kernel row, every placement, against the oracle. */
void merge_run(void **state);

#endif
