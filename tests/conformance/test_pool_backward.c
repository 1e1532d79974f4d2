/* pooling backward: every kernel row against the oracle. */
#include "pool_table.h"

/* clang-format off */
static const struct pool_case backward_table[] = {
	{CORE("accumulate"), DOCUMENTS, OVERLAPPED, .features = POOL_BIAS | POOL_ACCUMULATE},
	{FULL("accumulate f16"), DOCUMENTS, GATED, .dtype = F16, .features = POOL_BIAS | POOL_ACCUMULATE},
	{FULL("accumulate a range"), DOCUMENTS, GATED, .features = POOL_BIAS | POOL_ACCUMULATE | POOL_RANGE},
	{FULL("accumulate means"), DOCUMENTS, MEAN, .features = POOL_ACCUMULATE},
	{CORE("only dx"), DOCUMENTS, GATED, .features = POOL_BIAS | POOL_ONLY_DX},
};
/* clang-format on */

int main(void)
{
	struct suite_list list = {.size = sizeof(struct pool_case)};

	add_pool_cases(&list);
	for (size_t i = 0; i < sizeof(backward_table) / sizeof(backward_table[0]); i++)
		suite_add(&list, &backward_table[i]);
	return suite_main("pool_backward", HYS_OP_BIT(HYS_OP_POOL_BACKWARD), &list,
			  pool_backward_run);
}
