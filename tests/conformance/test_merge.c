/* merge: every kernel row against the oracle. */
#include "merge_case.h"

/* clang-format off */
static const struct merge_case table[] = {
	{CORE("plain"), SEE(20, 10)},
	{CORE("f16"), SEE(20, 10), .dtype = HYS_F16},
	{CORE("bf16"), SEE(20, 10), .dtype = HYS_BF16},
	{CORE("without lse"), SEE(20, 10), .features = MERGE_ONLY_O},
	{CORE("one side has nothing"), SEE(20, 10), .features = MERGE_NOTHING},
	{FULL("one side has nothing, bf16"), SEE(20, 10), .dtype = HYS_BF16, .features = MERGE_NOTHING},
	{CORE("both have nothing"), SEE(20, 10), .features = MERGE_BOTH_NOTHING},
	{CORE("far apart"), SEE(20, 10), .features = MERGE_APART},
	{FULL("far apart f16"), SEE(20, 10), .dtype = HYS_F16, .features = MERGE_APART},
	{CORE("no rows"), SEE(0, 10)},
	{FULL("one row"), SEE(1, 10)},
	{FULL("one of each"), SEE(1, 10), .heads = 1, .value_dim = 1},
	{FULL("128 heads of 512"), SEE(5, 10), .heads = 128, .value_dim = 512},
	{CORE("range"), SEE(20, 10), .features = MERGE_RANGE},
	{FULL("range of its own tensors"), SEE(20, 10), .features = MERGE_RANGE_CUT},
};
/* clang-format on */

int main(void)
{
	const struct merge_case base = {SEE(9, 10)};
	struct suite_list list = {.size = sizeof(struct merge_case)};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(&list, &table[i]);
	suite_sweep(&list, &base, "rows", offsetof(struct merge_case, visible.rows), suite_edges,
		    SUITE_EDGES);
	suite_sweep(&list, &base, "heads", offsetof(struct merge_case, heads), suite_edges,
		    SUITE_EDGES);
	suite_sweep(&list, &base, "value_dim", offsetof(struct merge_case, value_dim), suite_edges,
		    SUITE_EDGES);
	return suite_main("merge", HYS_OP_BIT(HYS_OP_MERGE), &list, merge_run);
}
