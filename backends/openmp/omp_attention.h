/* omp_attention.h - what the files of the forward pass share. */
#ifndef HYS_OMP_ATTENTION_H
#define HYS_OMP_ATTENTION_H

#include "omp_lanes.h"

struct omp_forward {
	const struct hys_call *call;
	const struct hys_attention_args *args;
	const struct omp_isa *isa;
	struct omp_rows rows;
	struct omp_source keys, values;
	bool v_is_k; /* all v = first V channels of k */
	int64_t head_dim, value_dim;
	int64_t item_rows;
	int64_t pitch; /* of lanes */
	bool capped;   /* logits, by omp_logits */
	float scale;   /* of what the softmax gets */
	int32_t *order; /* of runs of item_rows rows */
	char *scratch;
	int64_t scratch_bytes;
};

/* Writes o and lse of one head: sums of v and of exp(logit - largest), which is
 * used up. */
void omp_forward_finish(const struct omp_forward *f, int64_t row, int64_t head, double largest,
			double sum, float *o);

/* ---- omp_attention_narrow.c: sets of one row whose key rows few heads share ---- */

int64_t omp_narrow_scratch(const struct hys_problem *problem);
/* Set item % groups of row order[item / groups]. */
void omp_narrow_item(void *context, int64_t item, int32_t thread);

#endif
