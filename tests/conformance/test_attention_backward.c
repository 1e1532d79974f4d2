/* attention backward: every kernel row against the oracle. */
#include "attention_table.h"

#define ADD ATTENTION_ACCUMULATE
#define F32_GRADS ATTENTION_F32_GRADS

/* clang-format off */
static const struct attention_case backward_table[] = {
	{CORE("accumulate"), SEE(20, 40, .window_keys = 9), .features = ADD | SINK},
	{CORE("accumulate but dq"), SEE(20, 40, .window_keys = 9), .features = ADD | ATTENTION_WRITE_DQ | SINK},
	{FULL("accumulate but dq, bf16"), SEE(20, 40), .heads = 6, .kv_heads = 2, .head_dim = 64, .dtype = BF16, .features = ADD | ATTENTION_WRITE_DQ | ATTENTION_DENSE},
	{FULL("gather accumulate but dq"), SEE(20, 70), GATHER(16), .topk = 40, .features = ADD | ATTENTION_WRITE_DQ | F32_GRADS},
	{FULL("accumulate f16"), SEE(20, 40), .dtype = F16, .features = ADD},
	{FULL("accumulate bf16 in f32"), SEE(20, 40), .dtype = BF16, .features = ADD | F32_GRADS},
	{FULL("accumulate MLA"), SEE(20, 40), .heads = 8, .head_dim = 40, .value_dim = 32, .features = ADD | SHARED},
	{CORE("accumulate a range"), SEE(40, 60), .window = 3, .features = ADD | ATTENTION_RANGE},
	{CORE("f16, gradients in f32"), SEE(20, 40), .dtype = F16, .features = F32_GRADS},
	{FULL("bf16, gradients in f32"), SEE(20, 40, .window_keys = 9), .dtype = BF16, .features = F32_GRADS | SINK},
	{CORE("only dq"), SEE(20, 40, .window_keys = 9), .features = ATTENTION_ONLY_DQ | SINK},
	{CORE("only dk"), SEE(20, 40, .window_keys = 9), .features = ATTENTION_ONLY_DK | SINK},
	{FULL("only dk, shared v"), SEE(20, 40), .features = ATTENTION_ONLY_DK | SHARED},
	{FULL("gather accumulate"), SEE(20, 70, .window_keys = 9), GATHER_MLA(ADD | SINK | SHARED | ATTENTION_SHARED_WINDOW), .topk = 40},
	{FULL("gather accumulate in f32"), SEE(20, 70), GATHER(16), .topk = 40, .features = ADD | F32_GRADS},
	{FULL("gather, gradients in f32"), SEE(20, 70, .window_keys = 9), GATHER_MLA(F32_GRADS | SINK | SHARED), .topk = 40},
	{FULL("gather only dq"), SEE(20, 70, .window_keys = 9), GATHER(16), .topk = 40, .features = ATTENTION_ONLY_DQ | SINK},
	{FULL("gather only dk"), SEE(20, 70), GATHER_MLA(ATTENTION_ONLY_DK | SHARED), .topk = 40},
	{FULL("gather many rows on few keys"), SEE(300, 12, .full = true), GATHER_MLA(SHARED), .topk = 5},
	{FULL("gather several tiles of rows"), SEE(2200, 20, .full = true), GATHER(16), .topk = 4},
	{FULL("gather a long tile of rows"), SEE(1200, 130, .full = true), GATHER(16), .topk = 4},
	{FULL("many rows on few keys"), SEE(300, 12, .full = true), .topk = 5},
};
/* clang-format on */

int main(void)
{
	struct suite_list list = {.size = sizeof(struct attention_case)};

	add_attention_cases(&list);
	for (size_t i = 0; i < sizeof(backward_table) / sizeof(backward_table[0]); i++)
		suite_add(&list, &backward_table[i]);
	return suite_main("attention_backward", HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD), &list,
			  attention_backward_run);
}
