/* A case of fidelity: sizes and features as data. */
#ifndef HYS_TEST_FIDELITY_CASE_H
#define HYS_TEST_FIDELITY_CASE_H

#include "indices.h"
#include "suite.h"

#define FIDELITY_SAMPLED 1u   /* every third row from the second on */
#define FIDELITY_RANGE 2u     /* rows [rows/3, 2 rows/3) of whole tensors */
#define FIDELITY_RANGE_CUT 4u /* the same with tensors of just these rows */
#define FIDELITY_ONLY_MASS 8u
#define FIDELITY_ONLY_NEEDED 16u /* topk_needed alone, without indices */
#define FIDELITY_SAME 32u	/* the selection is the reference */

struct fidelity_case {
	struct suite_case about;
	struct visible_spec visible;
	int32_t heads, kv_heads, head_dim, groups, topk, granularity,
		pool; /* 0: 4, 1, 16, 1, 6, 1, 1 */
	int32_t window, first;
	hys_dtype dtype;
	double softcap, scale, target;
	enum index_pattern indices;
	unsigned features;
};

/* For suite_main: every kernel row, every placement, against the oracle. */
void fidelity_run(void **state);

#endif
