/* Cases whose rows several devices share. */
#ifndef HYS_TEST_SHARED_TABLE_H
#define HYS_TEST_SHARED_TABLE_H

#include "op_case.h"

#define DOCUMENTS \
	.visible = {.q_lengths = LENGTHS(50, 0, 1, 40), .k_lengths = LENGTHS(90, 2, 1, 70)}

/* clang-format off */
static const struct op_case table[] = {
	{CORE("select"), SELECT = {DOCUMENTS}},
	{CORE("select, NaN"), SELECT = {DOCUMENTS, .values = SCORES_NAN}},
	{FULL("select, blocks in groups"), SELECT = {DOCUMENTS, .block = 4, .groups = 2}},
	{FULL("select, range"), SELECT = {DOCUMENTS, .features = SELECT_RANGE}},
	{FULL("select, one row"), SELECT = {SEE(1, 40)}},
	{FULL("select, no rows"), SELECT = {SEE(0, 40)}},
	{CORE("forward"), FORWARD = {DOCUMENTS, .window = 5, .features = ATTENTION_SINK}},
	{FULL("forward, MLA bf16"), FORWARD = {DOCUMENTS, .dtype = HYS_BF16, .head_dim = 40, .value_dim = 32, .features = ATTENTION_SHARED}},
	{FULL("forward, range of its own tensors"), FORWARD = {DOCUMENTS, .features = ATTENTION_RANGE_CUT}},
	{CORE("backward"), BACKWARD = {SEE(60, 90, .window_keys = 20), .kv_heads = 2, .features = ATTENTION_SINK}},
	{FULL("backward, accumulate"), BACKWARD = {DOCUMENTS, .features = ATTENTION_ACCUMULATE}},
	{FULL("backward, accumulate but dq"), BACKWARD = {DOCUMENTS, .features = ATTENTION_ACCUMULATE | ATTENTION_WRITE_DQ}},
	{FULL("backward, accumulate bf16"), BACKWARD = {DOCUMENTS, .dtype = HYS_BF16, .features = ATTENTION_ACCUMULATE}},
	{FULL("backward, shared f16"), BACKWARD = {DOCUMENTS, .dtype = HYS_F16, .features = ATTENTION_SHARED}},
	{FULL("backward, range"), BACKWARD = {DOCUMENTS, .features = ATTENTION_RANGE}},
	{FULL("backward, one row"), BACKWARD = {SEE(1, 40)}},
	{CORE("loss, mean"), LOSS = {DOCUMENTS}},
	{CORE("loss, sum, accumulate"), LOSS = {DOCUMENTS, .features = LOSS_SUM | LOSS_ACCUMULATE}},
	{FULL("loss, sampled"), LOSS = {DOCUMENTS, .features = LOSS_SAMPLED | LOSS_TEACHER_OUT}},
	{FULL("loss, dense"), LOSS = {DOCUMENTS, .features = LOSS_DENSE}},
	{FULL("loss, dense, sampled range"), LOSS = {DOCUMENTS, .features = LOSS_DENSE | LOSS_SAMPLED | LOSS_RANGE}},
	{FULL("loss, teacher in, divisor"), LOSS = {DOCUMENTS, .divisor = 9, .features = LOSS_TEACHER_IN}},
	{FULL("loss, bf16"), LOSS = {DOCUMENTS, .index_dtype = HYS_BF16, .features = LOSS_ACCUMULATE}},
	{FULL("loss, no rows"), LOSS = {SEE(0, 40)}},
};
/* clang-format on */

/* Several devices take no buffers. */
static const unsigned placements[] = {0, PLACE_PITCHED | PLACE_SWAPPED};

static inline int run_shared(enum suite_over over, const char *name)
{
	struct suite_list list = {.size = sizeof(struct op_case)};

	suite_placements = (struct suite_placements){placements, 2};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(&list, &table[i]);
	return suite_main_over(over, name, 0, &list, op_case_run);
}

#endif
