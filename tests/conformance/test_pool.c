/* pooling: every kernel row against the oracle. */
#include "pool_table.h"

/* clang-format off */
static const struct pool_case forward_table[] = {
	{CORE("bounds"), SEE(0, 70), BOUNDS},
	{CORE("bounds of blocks in documents"), DOCUMENTS, BOUNDS, BLOCKS, .size = 5},
	{FULL("bounds f16"), DOCUMENTS, BOUNDS, .dtype = F16},
	{FULL("bounds bf16, centre in f32"), DOCUMENTS, BOUNDS, .dtype = BF16, .features = POOL_F32_OUT},
	{CORE("bounds of NaN and infinities"), DOCUMENTS, BOUNDS, .values = POOL_SPECIAL},
	{FULL("bounds of NaN and infinities f16"), DOCUMENTS, BOUNDS, .dtype = F16, .values = POOL_SPECIAL},
	{FULL("mean of NaN and infinities"), DOCUMENTS, MEAN, .values = POOL_SPECIAL},
	{CORE("only norms"), DOCUMENTS, BOUNDS, .features = POOL_ONLY_NORM},
	{FULL("range of bounds"), DOCUMENTS, BOUNDS, .features = POOL_RANGE},
	{FULL("bounds of one channel"), DOCUMENTS, BOUNDS, .channels = 1},
	{FULL("bounds of 129 channels"), DOCUMENTS, BOUNDS, .channels = 129},
	{FULL("bounds of no keys"), SEE(0, 0), BOUNDS},
};
/* clang-format on */

int main(void)
{
	struct suite_list list = {.size = sizeof(struct pool_case)};

	add_pool_cases(&list);
	for (size_t i = 0; i < sizeof(forward_table) / sizeof(forward_table[0]); i++)
		suite_add(&list, &forward_table[i]);
	return suite_main("pool", HYS_OP_BIT(HYS_OP_POOL), &list, pool_run);
}
