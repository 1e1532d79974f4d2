/* attention forward: every kernel row against the oracle. */
#include "attention_table.h"

/* clang-format off */
static const struct attention_case forward_table[] = {
	{CORE("without lse"), SEE(20, 40), .features = ATTENTION_NO_LSE},
	{FULL("equal keys"), SEE(20, 40), .values = ATTENTION_EQUAL, .features = DENSE},
	{FULL("huge f16 in f16"), SEE(20, 40), .values = ATTENTION_HUGE, .dtype = F16},
	{CORE("minus infinity"), SEE(20, 40), .values = ATTENTION_MINUS, .topk = 3},
	{FULL("minus infinity, dense"), SEE(20, 40), .values = ATTENTION_MINUS, .features = DENSE | SINK},
	{FULL("minus infinity, bf16 dense"), SEE(90, 200), .dtype = BF16, .head_dim = 64, .values = ATTENTION_MINUS, .features = DENSE},
	{FULL("minus infinity, f16 blocks"), SEE(20, 200), .dtype = F16, .heads = 16, .head_dim = 64, .values = ATTENTION_MINUS, .topk = 2, .granularity = 64},
	{FULL("gather minus infinity"), SEE(20, 40), GATHER(16), .values = ATTENTION_MINUS, .topk = 3},
	{FULL("gather without lse"), SEE(20, 40), GATHER(16), .features = ATTENTION_NO_LSE},
	{FULL("minus infinity, window"), SEE(20, 40), .values = ATTENTION_MINUS, .window = 2, .indices = INDICES_ABSENT},
};
/* clang-format on */

int main(void)
{
	struct suite_list list = {.size = sizeof(struct attention_case)};

	add_attention_cases(&list);
	for (size_t i = 0; i < sizeof(forward_table) / sizeof(forward_table[0]); i++)
		suite_add(&list, &forward_table[i]);
	return suite_main("attention_forward", HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD), &list,
			  attention_forward_run);
}
