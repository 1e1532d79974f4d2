/* select by means of blocks, alone and as a first step: every kernel row against the oracle. */
#include "select_case.h"

#define NONE HYS_ACTIVATION_NONE
#define FINE .method = HYS_METHOD_COARSE_TO_FINE
#define ALONE .method = HYS_METHOD_COARSE

/* clang-format off */
static const struct select_case table[] = {
	{CORE("fine"), SEE(40, 150), FINE, .coarse_block = 8, .coarse_keep = 4, .topk = 12},
	{FULL("fine, full"), SEE(9, 150, .full = true), FINE, .coarse_block = 8, .coarse_keep = 4, .topk = 12},
	{CORE("fine, all kept"), SEE(20, 100), FINE, .coarse_block = 8, .coarse_keep = 64},
	{FULL("fine, one kept"), SEE(40, 100), FINE, .coarse_block = 16, .coarse_keep = 1},
	{FULL("fine, K over what is kept"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 2, .topk = 30},
	{FULL("fine, no complete block"), SEE(20, 30), FINE, .coarse_block = 64, .coarse_keep = 4, .topk = 5},
	{FULL("fine, blocks of one"), SEE(20, 60), FINE, .coarse_block = 1, .coarse_keep = 9},
	{CORE("fine, first and local"), SEE(60, 150), FINE, .coarse_block = 8, .coarse_keep = 2, .first = 1, .local = 2, .topk = 20},
	{FULL("fine, forced only"), SEE(60, 150), FINE, .coarse_block = 8, .coarse_keep = 1, .first = 9, .local = 9, .topk = 20},
	{CORE("fine choice of blocks"), SEE(60, 150), FINE, .coarse_block = 16, .coarse_keep = 3, .block = 4, .topk = 6},
	{FULL("fine choice of forced blocks"), SEE(60, 150), FINE, .coarse_block = 16, .coarse_keep = 2, .block = 4, .topk = 6, .first = 1, .local = 2},
	{FULL("fine, more forced than K"), SEE(60, 150), FINE, .coarse_block = 16, .coarse_keep = 2, .block = 4, .topk = 4, .first = 3, .local = 3},
	{FULL("fine, block is coarse_block"), SEE(60, 150), FINE, .coarse_block = 8, .coarse_keep = 5, .block = 8, .topk = 4},
	{CORE("fine in documents"), .visible = {.q_lengths = LENGTHS(3, 0, 1, 30, 2), .k_lengths = LENGTHS(43, 4, 1, 71, 0)}, FINE, .coarse_block = 8, .coarse_keep = 2, .topk = 9},
	{FULL("fine in a window"), SEE(60, 150, .window = 50), FINE, .coarse_block = 8, .coarse_keep = 2, .first = 1, .topk = 9},
	{CORE("fine of explicit intervals"), SEE(60, 150, .how = VISIBLE_EXPLICIT), FINE, .coarse_block = 8, .coarse_keep = 3, .local = 1},
	{FULL("fine at positions"), SEE(60, 150, .how = VISIBLE_POSITIONS), FINE, .coarse_block = 8, .coarse_keep = 3},
	{FULL("fine of pools"), SEE(60, 200), FINE, .pool = 4, .coarse_block = 4, .coarse_keep = 3},
	{CORE("fine in groups"), SEE(30, 150), FINE, .coarse_block = 8, .coarse_keep = 3, .groups = 2, .topk = 9, .group_topk = NUMBERS(9, 4)},
	{CORE("fine f16"), SEE(30, 150), FINE, .coarse_block = 8, .coarse_keep = 3, .dtype = HYS_F16},
	{FULL("fine bf16"), SEE(30, 150), FINE, .coarse_block = 8, .coarse_keep = 3, .dtype = HYS_BF16},
	{CORE("fine bf16 in groups"), SEE(30, 150), FINE, .coarse_block = 8, .coarse_keep = 3, .dtype = HYS_BF16, .heads = 20, .dim = 40, .groups = 4, .topk = 9, .group_topk = NUMBERS(9, 4, 7, 1)},
	{FULL("fine bf16, denormal"), SEE(30, 150), FINE, .coarse_block = 8, .coarse_keep = 3, .dtype = HYS_BF16, .values = SCORES_DENORMAL},
	{FULL("fine f8"), SEE(30, 150), FINE, .coarse_block = 8, .coarse_keep = 3, .dtype = HYS_F8E4M3},
	{FULL("fine without activation"), SEE(30, 150), FINE, .coarse_block = 8, .coarse_keep = 3, .activation = NONE, .unweighted = true},
	{FULL("fine, 64 heads of 128"), SEE(9, 150), FINE, .coarse_block = 8, .coarse_keep = 3, .heads = 64, .dim = 128},
	{CORE("fine, integers"), SEE(40, 300), FINE, .coarse_block = 8, .coarse_keep = 5, .values = SCORES_INTEGERS, .topk = 20},
	{FULL("fine, integers of blocks"), SEE(40, 300), FINE, .coarse_block = 16, .coarse_keep = 5, .values = SCORES_INTEGERS, .block = 4, .first = 1, .local = 1},
	{FULL("fine, integers f8"), SEE(40, 300), FINE, .coarse_block = 8, .coarse_keep = 5, .values = SCORES_INTEGERS, .dtype = HYS_F8E4M3, .topk = 20},
	{CORE("fine, equal scores"), SEE(40, 300), FINE, .coarse_block = 8, .coarse_keep = 5, .values = SCORES_EQUAL, .topk = 20},
	{FULL("fine, few scores"), SEE(40, 300), FINE, .coarse_block = 4, .coarse_keep = 9, .values = SCORES_FEW, .topk = 20},
	{FULL("fine, zeros"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 9, .values = SCORES_ZERO, .topk = 20},
	{FULL("fine, huge"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 9, .values = SCORES_HUGE},
	{FULL("fine, huge f16"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 9, .values = SCORES_HUGE, .dtype = HYS_F16},
	{FULL("fine, tiny"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 9, .values = SCORES_TINY},
	{FULL("fine, infinite"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 9, .values = SCORES_INFINITE},
	{CORE("fine, NaN"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 9, .values = SCORES_NAN},
	{FULL("fine, NaN everywhere"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 9, .values = SCORES_ALL_NAN, .block = 2},
	{CORE("fine, no rows"), SEE(0, 100), FINE, .coarse_block = 4, .coarse_keep = 9},
	{FULL("fine, no keys"), SEE(5, 0), FINE, .coarse_block = 4, .coarse_keep = 9},
	{FULL("fine, one key"), SEE(5, 1), FINE, .coarse_block = 4, .coarse_keep = 9},
	{FULL("fine, only indices"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 9, .features = SELECT_ONLY_INDICES},
	{CORE("fine, range, in the call"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 9, .features = SELECT_RANGE | SELECT_EXACT},
	{FULL("fine, range of its own tensors"), SEE(40, 100), FINE, .coarse_block = 4, .coarse_keep = 9, .groups = 2, .group_topk = NUMBERS(5, 3), .features = SELECT_RANGE_CUT | SELECT_SLOTS},
	{FULL("fine, long"), SEE(9, 4000, .full = true), FINE, .coarse_block = 64, .coarse_keep = 16, .heads = 2, .topk = 300},

	/* what kernels for tensor cores do, over their tiles' edges */
	{FULL("bf16 fine, 64 heads of 128"), SEE(9, 2500), FINE, .coarse_block = 128, .coarse_keep = 5, .dtype = HYS_BF16, .heads = 64, .dim = 128, .topk = 200},
	{FULL("bf16 fine, 40 heads of 96"), SEE(17, 600), FINE, .coarse_block = 16, .coarse_keep = 9, .dtype = HYS_BF16, .heads = 40, .dim = 96, .topk = 50},
	{FULL("bf16 fine, odd"), SEE(17, 600), FINE, .coarse_block = 7, .coarse_keep = 20, .dtype = HYS_BF16, .heads = 3, .dim = 13, .topk = 50},
	{FULL("bf16 fine, more than is held"), SEE(5, 12000, .full = true), FINE, .coarse_block = 128, .coarse_keep = 70, .dtype = HYS_BF16, .topk = 900},
	{FULL("bf16 fine in documents"), .visible = {.q_lengths = LENGTHS(5, 0, 121, 1, 30), .k_lengths = LENGTHS(900, 2, 733, 1, 31)}, FINE, .coarse_block = 32, .coarse_keep = 6, .dtype = HYS_BF16, .topk = 70},
	{FULL("bf16 fine of explicit intervals"), SEE(90, 1200, .how = VISIBLE_EXPLICIT), FINE, .coarse_block = 32, .coarse_keep = 6, .local = 1, .dtype = HYS_BF16, .topk = 50},
	{FULL("bf16 fine in a window, first and local"), SEE(90, 1200, .window = 333), FINE, .coarse_block = 16, .coarse_keep = 5, .first = 2, .local = 2, .dtype = HYS_BF16, .topk = 60},
	{FULL("bf16 fine, large blocks in documents"), .visible = {.q_lengths = LENGTHS(5, 0, 121, 1, 30), .k_lengths = LENGTHS(900, 2, 733, 1, 331)}, FINE, .coarse_block = 128, .coarse_keep = 3, .dtype = HYS_BF16, .topk = 70},
	{FULL("bf16 fine, large blocks in a window"), SEE(90, 1300, .window = 433), FINE, .coarse_block = 128, .coarse_keep = 2, .dtype = HYS_BF16, .topk = 60},
	{FULL("bf16 fine, large blocks in groups"), SEE(31, 1500), FINE, .coarse_block = 256, .coarse_keep = 3, .dtype = HYS_BF16, .heads = 20, .dim = 40, .groups = 4, .topk = 9, .group_topk = NUMBERS(9, 4, 7, 1)},
	{FULL("bf16 fine choice of blocks"), SEE(60, 900), FINE, .coarse_block = 32, .coarse_keep = 6, .block = 4, .first = 1, .local = 1, .dtype = HYS_BF16, .topk = 20},
	{FULL("bf16 fine, negative scale"), SEE(20, 600), FINE, .coarse_block = 16, .coarse_keep = 6, .dtype = HYS_BF16, .heads = 12, .dim = 40, .scale = -0.25, .topk = 40},
	{FULL("bf16 fine without activation"), SEE(20, 600), FINE, .coarse_block = 16, .coarse_keep = 6, .dtype = HYS_BF16, .heads = 12, .dim = 40, .activation = NONE, .unweighted = true, .topk = 40},
	{FULL("bf16 fine, integers"), SEE(20, 2500, .full = true), FINE, .coarse_block = 16, .coarse_keep = 50, .dtype = HYS_BF16, .values = SCORES_INTEGERS, .topk = 300},
	{FULL("bf16 fine, equal scores"), SEE(9, 2000, .full = true), FINE, .coarse_block = 16, .coarse_keep = 50, .dtype = HYS_BF16, .values = SCORES_EQUAL, .topk = 300},
	{FULL("bf16 fine, few scores"), SEE(9, 2000, .full = true), FINE, .coarse_block = 16, .coarse_keep = 50, .dtype = HYS_BF16, .values = SCORES_FEW, .topk = 300},
	{FULL("bf16 fine, NaN"), SEE(30, 900), FINE, .coarse_block = 16, .coarse_keep = 9, .dtype = HYS_BF16, .values = SCORES_NAN, .topk = 64},
	{FULL("bf16 fine, NaN everywhere"), SEE(30, 900), FINE, .coarse_block = 16, .coarse_keep = 9, .dtype = HYS_BF16, .values = SCORES_ALL_NAN, .topk = 64},
	{FULL("bf16 fine, infinite"), SEE(30, 300), FINE, .coarse_block = 8, .coarse_keep = 9, .dtype = HYS_BF16, .values = SCORES_INFINITE},
	{FULL("bf16 fine, huge"), SEE(40, 300), FINE, .coarse_block = 8, .coarse_keep = 9, .dtype = HYS_BF16, .values = SCORES_HUGE},
	{FULL("bf16 fine, tiny"), SEE(40, 300), FINE, .coarse_block = 8, .coarse_keep = 9, .dtype = HYS_BF16, .values = SCORES_TINY},
	{FULL("bf16 fine, range"), SEE(190, 900), FINE, .coarse_block = 16, .coarse_keep = 9, .dtype = HYS_BF16, .topk = 30, .features = SELECT_RANGE},
	{FULL("bf16 fine, only indices"), SEE(90, 900), FINE, .coarse_block = 16, .coarse_keep = 9, .dtype = HYS_BF16, .topk = 30, .features = SELECT_ONLY_INDICES},
	{FULL("bf16 alone, 64 heads of 128"), SEE(9, 9000), ALONE, .coarse_block = 16, .dtype = HYS_BF16, .heads = 64, .dim = 128, .topk = 40},
	{FULL("bf16 alone, first and local"), SEE(60, 900), ALONE, .coarse_block = 8, .first = 1, .local = 2, .dtype = HYS_BF16, .topk = 20},
	{FULL("bf16 alone in documents"), .visible = {.q_lengths = LENGTHS(5, 0, 121, 1, 30), .k_lengths = LENGTHS(900, 2, 733, 1, 31)}, ALONE, .coarse_block = 8, .dtype = HYS_BF16, .groups = 2, .topk = 9},
	{FULL("bf16 alone, NaN"), SEE(40, 300), ALONE, .coarse_block = 4, .dtype = HYS_BF16, .values = SCORES_NAN},

	{CORE("alone"), SEE(40, 150), ALONE, .coarse_block = 8, .topk = 5},
	{FULL("alone, full"), SEE(9, 150, .full = true), ALONE, .coarse_block = 8, .topk = 5},
	{FULL("alone, all"), SEE(40, 100), ALONE, .coarse_block = 8, .topk = 50},
	{FULL("alone, K = 1"), SEE(40, 100), ALONE, .coarse_block = 8, .topk = 1},
	{FULL("alone, no complete block"), SEE(20, 30), ALONE, .coarse_block = 64, .topk = 5},
	{FULL("alone, blocks of one"), SEE(20, 60), ALONE, .coarse_block = 1},
	{CORE("alone, first and local"), SEE(60, 150), ALONE, .coarse_block = 8, .first = 1, .local = 2, .topk = 6},
	{FULL("alone, more forced than K"), SEE(60, 150), ALONE, .coarse_block = 8, .first = 4, .local = 3, .topk = 5},
	{FULL("alone, more local than K"), SEE(60, 150), ALONE, .coarse_block = 8, .first = 4, .local = 9, .topk = 5},
	{FULL("alone in documents"), .visible = {.q_lengths = LENGTHS(3, 0, 1, 30, 2), .k_lengths = LENGTHS(43, 4, 1, 71, 0)}, ALONE, .coarse_block = 8, .topk = 4},
	{FULL("alone in a window"), SEE(60, 150, .window = 50), ALONE, .coarse_block = 8, .topk = 4, .first = 1},
	{CORE("alone of explicit intervals"), SEE(60, 150, .how = VISIBLE_EXPLICIT), ALONE, .coarse_block = 8, .topk = 4},
	{FULL("alone of pools"), SEE(60, 200), ALONE, .pool = 4, .coarse_block = 4, .topk = 4},
	{FULL("alone in groups"), SEE(30, 150), ALONE, .coarse_block = 8, .groups = 2, .topk = 6, .group_topk = NUMBERS(2, 6)},
	{FULL("alone f16"), SEE(30, 150), ALONE, .coarse_block = 8, .dtype = HYS_F16, .topk = 4},
	{CORE("alone bf16"), SEE(30, 150), ALONE, .coarse_block = 8, .dtype = HYS_BF16, .topk = 4},
	{FULL("alone f8"), SEE(30, 150), ALONE, .coarse_block = 8, .dtype = HYS_F8E4M3, .topk = 4},
	{CORE("alone, integers"), SEE(40, 300), ALONE, .coarse_block = 8, .values = SCORES_INTEGERS, .topk = 9},
	{FULL("alone, equal scores"), SEE(40, 300), ALONE, .coarse_block = 8, .values = SCORES_EQUAL, .topk = 9},
	{FULL("alone, few scores"), SEE(40, 300), ALONE, .coarse_block = 4, .values = SCORES_FEW, .topk = 20},
	{FULL("alone, infinite"), SEE(40, 100), ALONE, .coarse_block = 4, .values = SCORES_INFINITE},
	{CORE("alone, NaN"), SEE(40, 100), ALONE, .coarse_block = 4, .values = SCORES_NAN},
	{FULL("alone, NaN everywhere"), SEE(40, 100), ALONE, .coarse_block = 4, .values = SCORES_ALL_NAN, .groups = 2},
	{FULL("alone, huge bf16"), SEE(40, 100), ALONE, .coarse_block = 4, .values = SCORES_HUGE, .dtype = HYS_BF16},
	{FULL("alone, no rows"), SEE(0, 100), ALONE, .coarse_block = 4},
	{FULL("alone, no keys"), SEE(5, 0), ALONE, .coarse_block = 4},
	{FULL("alone, range, in the call"), SEE(40, 100), ALONE, .coarse_block = 4, .features = SELECT_RANGE | SELECT_EXACT},
};
/* clang-format on */

static void add_sweeps(struct suite_list *list)
{
	const struct select_case fine = {SEE(21, 150), FINE, .coarse_block = 8, .coarse_keep = 3};
	const struct select_case alone = {SEE(21, 150), ALONE, .coarse_block = 8, .topk = 4};
	const struct select_case fixed = {SEE(9, 150), FINE, .coarse_block = 16, .coarse_keep = 3};

#define SWEEP(base, field)                                                              \
	suite_sweep(list, &base, #base " " #field, offsetof(struct select_case, field), \
		    suite_edges, SUITE_EDGES)
	SWEEP(fine, visible.rows);
	SWEEP(fine, visible.keys);
	SWEEP(fine, coarse_block);
	SWEEP(fine, coarse_keep);
	SWEEP(fine, topk);
	SWEEP(alone, visible.keys);
	SWEEP(alone, coarse_block);
	SWEEP(alone, topk);
	SWEEP(fixed, heads);
	SWEEP(fixed, dim);
#undef SWEEP
}

int main(void)
{
	const uint32_t ops =
		HYS_OP_BIT(HYS_OP_SELECT_COARSE) | HYS_OP_BIT(HYS_OP_SELECT_COARSE_TO_FINE);
	struct suite_list list = {.size = sizeof(struct select_case)};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(&list, &table[i]);
	add_sweeps(&list);
	return suite_main("select_coarse", ops, &list, select_run);
}
