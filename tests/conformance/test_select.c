/* select by exact scores: every kernel row against the oracle. */
#include "select_case.h"

#define NONE HYS_ACTIVATION_NONE

/* clang-format off */
static const struct select_case table[] = {
	{CORE("plain"), SEE(20, 40)},
	{CORE("unweighted"), SEE(20, 40), .unweighted = true},
	{CORE("without activation"), SEE(20, 40), .activation = NONE},
	{FULL("neither"), SEE(20, 40), .activation = NONE, .unweighted = true},
	{FULL("negative scale"), SEE(20, 40), .scale = -0.25},
	{FULL("one head"), SEE(20, 40), .heads = 1},
	{CORE("64 heads of 128"), SEE(17, 65), .heads = 64, .dim = 128, .topk = 32},
	{FULL("three heads of 20"), SEE(17, 65), .heads = 3, .dim = 20},
	{FULL("dim 1"), SEE(17, 65), .dim = 1},
	{FULL("dim 257"), SEE(9, 33), .dim = 257},

	{CORE("f16"), SEE(20, 70), .dtype = HYS_F16, .topk = 16},
	{CORE("bf16"), SEE(20, 70), .dtype = HYS_BF16, .topk = 16},
	{CORE("f8"), SEE(20, 70), .dtype = HYS_F8E4M3, .topk = 16},
	{FULL("f16 odd"), SEE(7, 33), .dtype = HYS_F16, .heads = 3, .dim = 13},
	{FULL("bf16 odd"), SEE(7, 33), .dtype = HYS_BF16, .heads = 3, .dim = 13},
	{FULL("f8 odd"), SEE(7, 33), .dtype = HYS_F8E4M3, .heads = 3, .dim = 13},
	{FULL("f8 groups of blocks"), SEE(20, 70), .dtype = HYS_F8E4M3, .groups = 2, .block = 4},

	/* what kernels for tensor cores do, over their tiles' edges */
	{CORE("bf16 heads in groups"), SEE(33, 90), .dtype = HYS_BF16, .heads = 16, .groups = 4, .dim = 24, .topk = 9, .group_topk = NUMBERS(9, 1, 4, 7)},
	{FULL("bf16 rows of several tiles"), SEE(150, 700), .dtype = HYS_BF16, .heads = 5, .dim = 64, .topk = 60},
	{FULL("bf16 keys of several blocks"), SEE(66, 1500, .full = true), .dtype = HYS_BF16, .heads = 3, .dim = 70, .topk = 100},
	{FULL("bf16 64 heads of 128"), SEE(9, 600), .dtype = HYS_BF16, .heads = 64, .dim = 128, .topk = 80},
	{FULL("f16 40 heads of 96"), SEE(17, 600), .dtype = HYS_F16, .heads = 40, .dim = 96, .topk = 50},
	{FULL("bf16 documents"), .visible = {.q_lengths = LENGTHS(5, 0, 121, 1, 30), .k_lengths = LENGTHS(900, 2, 733, 1, 31)}, .dtype = HYS_BF16, .heads = 8, .topk = 70},
	{FULL("bf16 explicit intervals"), SEE(90, 1200, .how = VISIBLE_EXPLICIT), .dtype = HYS_BF16, .heads = 8, .topk = 50},
	{FULL("bf16 window"), SEE(90, 1200, .window = 333), .dtype = HYS_BF16, .heads = 8, .topk = 40},
	{FULL("bf16 negative scale"), SEE(20, 600), .dtype = HYS_BF16, .heads = 12, .dim = 40, .scale = -0.25, .topk = 40},
	{FULL("bf16 without activation"), SEE(20, 600), .dtype = HYS_BF16, .heads = 12, .dim = 40, .activation = NONE, .unweighted = true, .topk = 40},
	{FULL("bf16 integers, long"), SEE(20, 2500, .full = true), .dtype = HYS_BF16, .values = SCORES_INTEGERS, .heads = 9, .topk = 300},
	{FULL("bf16 few scores, long"), SEE(9, 4000, .full = true), .dtype = HYS_BF16, .values = SCORES_FEW, .heads = 2, .dim = 2, .topk = 1000},
	{FULL("bf16 few scores of 20 heads, long"), SEE(9, 4000, .full = true), .dtype = HYS_BF16, .values = SCORES_FEW, .heads = 20, .dim = 1, .topk = 1000},
	{FULL("bf16 equal scores, long"), SEE(9, 4001, .full = true), .dtype = HYS_BF16, .values = SCORES_EQUAL, .topk = 700},
	{FULL("bf16 rising, long"), SEE(9, 3000, .full = true), .dtype = HYS_BF16, .values = SCORES_RISING, .topk = 64},
	{FULL("bf16 NaN, long"), SEE(30, 2000), .dtype = HYS_BF16, .values = SCORES_NAN, .topk = 64},
	{FULL("bf16 infinite, long"), SEE(30, 2000), .dtype = HYS_BF16, .values = SCORES_INFINITE, .heads = 9, .topk = 64},
	{FULL("bf16 NaN everywhere, long"), SEE(30, 2000), .dtype = HYS_BF16, .values = SCORES_ALL_NAN, .topk = 64},
	{FULL("bf16 range"), SEE(190, 900), .dtype = HYS_BF16, .heads = 8, .topk = 30, .features = SELECT_RANGE},
	{FULL("bf16 only indices"), SEE(90, 900), .dtype = HYS_BF16, .heads = 8, .topk = 30, .features = SELECT_ONLY_INDICES},
	/* the same of e4m3, of which scores near the K-th are made again */
	{CORE("f8 heads in groups"), SEE(33, 90), .dtype = HYS_F8E4M3, .heads = 16, .groups = 4, .dim = 24, .topk = 9, .group_topk = NUMBERS(9, 1, 4, 7)},
	{FULL("f8 rows of several tiles"), SEE(150, 700), .dtype = HYS_F8E4M3, .heads = 5, .dim = 64, .topk = 60},
	{FULL("f8 keys of several blocks"), SEE(66, 2700, .full = true), .dtype = HYS_F8E4M3, .heads = 3, .dim = 70, .topk = 100},
	{FULL("f8 64 heads of 128"), SEE(9, 1300), .dtype = HYS_F8E4M3, .heads = 64, .dim = 128, .topk = 80},
	{FULL("f8 40 heads of 96"), SEE(17, 600), .dtype = HYS_F8E4M3, .heads = 40, .dim = 96, .topk = 50},
	{FULL("f8 documents"), .visible = {.q_lengths = LENGTHS(5, 0, 121, 1, 30), .k_lengths = LENGTHS(900, 2, 733, 1, 31)}, .dtype = HYS_F8E4M3, .heads = 8, .topk = 70},
	{FULL("f8 explicit intervals"), SEE(90, 1200, .how = VISIBLE_EXPLICIT), .dtype = HYS_F8E4M3, .heads = 8, .topk = 50},
	{FULL("f8 negative scale"), SEE(20, 600), .dtype = HYS_F8E4M3, .heads = 12, .dim = 40, .scale = -0.25, .topk = 40},
	{FULL("f8 without activation"), SEE(20, 600), .dtype = HYS_F8E4M3, .heads = 12, .dim = 40, .activation = NONE, .unweighted = true, .topk = 40},
	{FULL("f8 integers, long"), SEE(20, 2500, .full = true), .dtype = HYS_F8E4M3, .values = SCORES_INTEGERS, .heads = 9, .topk = 300},
	{FULL("f8 few scores, long"), SEE(9, 4000, .full = true), .dtype = HYS_F8E4M3, .values = SCORES_FEW, .heads = 2, .dim = 2, .topk = 1000},
	{FULL("f8 few scores of 20 heads, long"), SEE(9, 4000, .full = true), .dtype = HYS_F8E4M3, .values = SCORES_FEW, .heads = 20, .dim = 1, .topk = 1000},
	{FULL("f8 equal scores, long"), SEE(9, 4001, .full = true), .dtype = HYS_F8E4M3, .values = SCORES_EQUAL, .topk = 700},
	{FULL("f8 rising, long"), SEE(9, 3000, .full = true), .dtype = HYS_F8E4M3, .values = SCORES_RISING, .topk = 64},
	{FULL("f8 NaN, long"), SEE(30, 2000), .dtype = HYS_F8E4M3, .values = SCORES_NAN, .topk = 64},
	{FULL("f8 NaN everywhere, long"), SEE(30, 2000), .dtype = HYS_F8E4M3, .values = SCORES_ALL_NAN, .topk = 64},
	{FULL("f8 only indices"), SEE(90, 900), .dtype = HYS_F8E4M3, .heads = 8, .topk = 30, .features = SELECT_ONLY_INDICES},

	{CORE("no rows"), SEE(0, 40)},
	{FULL("no keys"), SEE(5, 0)},
	{FULL("neither rows nor keys"), SEE(0, 0)},
	{FULL("one key"), SEE(5, 1, .full = true)},
	{FULL("one row"), SEE(1, 40), .topk = 40},
	{FULL("more rows than keys"), SEE(40, 12)},
	{FULL("K is S"), SEE(20, 40, .full = true), .topk = 40},
	{CORE("K over S"), SEE(20, 40, .full = true), .topk = 100},
	{CORE("K = 1"), SEE(20, 40), .topk = 1},
	{FULL("K nearly S"), SEE(20, 200, .full = true), .topk = 199},
	{FULL("large K"), SEE(9, 900, .full = true), .heads = 2, .topk = 511},
	{CORE("many keys"), SEE(9, 3000, .full = true), .heads = 2, .topk = 100},
	{FULL("many rows"), SEE(600, 60), .heads = 2, .dim = 8},

	{CORE("full documents"), .visible = {.q_lengths = LENGTHS(5, 0, 1, 20, 0, 7), .full = true}},
	{CORE("causal documents"), .visible = {.q_lengths = LENGTHS(1, 0, 33, 1, 1, 20)}},
	{FULL("documents with earlier keys"), .visible = {.q_lengths = LENGTHS(3, 0, 1, 9, 2), .k_lengths = LENGTHS(30, 4, 1, 9, 0)}},
	{FULL("hundred documents"), .visible = {.q_lengths = LENGTHS(1, 2, 3, 4, 0, 0, 1, 1, 1, 5, 6, 1, 2, 3, 1, 1, 1, 0, 9, 1)}},
	{CORE("window"), SEE(40, 60, .window = 13)},
	{FULL("window of one"), SEE(20, 30, .window = 1)},
	{FULL("positions"), SEE(30, 50, .how = VISIBLE_POSITIONS)},
	{FULL("positions in documents"), .visible = {.q_lengths = LENGTHS(9, 1, 12), .k_lengths = LENGTHS(20, 1, 30), .how = VISIBLE_POSITIONS}},
	{CORE("explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT)},
	{FULL("explicit intervals in documents"), .visible = {.q_lengths = LENGTHS(20, 0, 12), .k_lengths = LENGTHS(40, 3, 30), .how = VISIBLE_EXPLICIT}},

	{CORE("two groups"), SEE(20, 50), .groups = 2},
	{FULL("groups of one head"), SEE(20, 50), .heads = 6, .groups = 6},
	{CORE("K per group"), SEE(20, 50), .groups = 4, .topk = 9, .group_topk = NUMBERS(9, 1, 4, 7)},
	{CORE("slots between K and its largest"), SEE(20, 50), .groups = 2, .topk = 12, .group_topk = NUMBERS(3, 8), .features = SELECT_SLOTS},

	{FULL("blocks of 2"), SEE(40, 70), .block = 2},
	{FULL("blocks of 3"), SEE(40, 70), .block = 3},
	{CORE("blocks of 4"), SEE(40, 70), .block = 4},
	{FULL("blocks of 16"), SEE(40, 270), .block = 16},
	{FULL("blocks of 64"), SEE(40, 270), .block = 64, .topk = 3},
	{FULL("blocks over S"), SEE(20, 30), .block = 64, .topk = 3},
	{CORE("blocks in documents"), .visible = {.q_lengths = LENGTHS(5, 0, 21, 1, 30), .k_lengths = LENGTHS(9, 2, 33, 1, 31)}, .block = 4, .topk = 3},
	{FULL("blocks in a window"), SEE(40, 70, .window = 11), .block = 4},
	{FULL("blocks of explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT), .block = 5, .first = 1, .local = 1},
	{FULL("blocks in groups"), SEE(30, 70), .block = 8, .groups = 2, .topk = 4},
	{CORE("first and local tokens"), SEE(40, 60), .first = 2, .local = 3},
	{CORE("first and local blocks"), SEE(60, 90), .block = 4, .first = 1, .local = 2},
	{FULL("local blocks only"), SEE(60, 90), .block = 4, .local = 3},
	{FULL("first blocks only"), SEE(60, 90), .block = 4, .first = 3},
	{FULL("all are forced"), SEE(60, 90), .block = 4, .first = 4, .local = 4},
	{CORE("more forced than K"), SEE(60, 90), .block = 4, .first = 5, .local = 6, .topk = 7},
	{FULL("more local than K"), SEE(60, 90), .block = 2, .first = 5, .local = 9, .topk = 7},
	{FULL("forced tokens over K"), SEE(60, 90), .first = 20, .local = 3, .topk = 7},
	{FULL("forced in a window"), SEE(60, 90, .window = 20), .block = 4, .first = 2, .local = 2, .topk = 5},
	{FULL("forced in documents"), .visible = {.q_lengths = LENGTHS(9, 0, 30, 1)}, .block = 4, .first = 1, .local = 1, .topk = 3},

	{CORE("pooled keys"), SEE(40, 90), .pool = 4},
	{FULL("pools in documents"), .visible = {.q_lengths = LENGTHS(3, 9, 0, 30, 1), .k_lengths = LENGTHS(7, 9, 3, 43, 5)}, .pool = 4, .topk = 5},
	{FULL("pools in a window"), SEE(40, 90, .window = 21), .pool = 3},
	{FULL("pools at positions"), SEE(40, 90, .how = VISIBLE_POSITIONS), .pool = 3},
	{FULL("pools of explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT), .pool = 2},
	{FULL("blocks of pools"), SEE(40, 90), .pool = 2, .block = 4, .first = 1, .local = 1, .topk = 4},
	{FULL("pool over S"), SEE(10, 5), .pool = 8},

	{CORE("integers"), SEE(40, 200, .full = true), .values = SCORES_INTEGERS, .topk = 20},
	{FULL("integers f16"), SEE(40, 200, .full = true), .values = SCORES_INTEGERS, .dtype = HYS_F16, .topk = 20},
	{FULL("integers bf16"), SEE(40, 200, .full = true), .values = SCORES_INTEGERS, .dtype = HYS_BF16, .topk = 20},
	{CORE("integers f8"), SEE(40, 200, .full = true), .values = SCORES_INTEGERS, .dtype = HYS_F8E4M3, .topk = 20},
	{FULL("integers without activation"), SEE(40, 200), .values = SCORES_INTEGERS, .activation = NONE, .topk = 20},
	{FULL("integers in groups of blocks"), SEE(40, 200), .values = SCORES_INTEGERS, .groups = 2, .block = 4, .topk = 9, .first = 1, .local = 1},
	{FULL("integers, long"), SEE(20, 2500, .full = true), .values = SCORES_INTEGERS, .dim = 4, .topk = 300},
	{CORE("spread norms"), SEE(40, 4000, .full = true), .values = SCORES_SPREAD, .heads = 2, .topk = 50},
	{FULL("spread norms, causal"), SEE(300, 3300), .values = SCORES_SPREAD, .heads = 2, .dim = 8, .topk = 200},
	{FULL("spread norms without activation"), SEE(30, 4000, .full = true), .values = SCORES_SPREAD, .activation = NONE, .topk = 50},
	{FULL("spread norms in groups of blocks"), SEE(30, 9000, .full = true), .values = SCORES_SPREAD, .groups = 2, .block = 4, .topk = 90, .first = 1, .local = 1, .features = SELECT_ONLY_INDICES},
	{FULL("spread norms, bf16"), SEE(40, 4000, .full = true), .values = SCORES_SPREAD, .heads = 20, .dim = 24, .topk = 50, .dtype = HYS_BF16},
	/* longer than the segments in which keys are put in order */
	{FULL("spread norms, bf16, long"), SEE(70, 17500), .values = SCORES_SPREAD, .dtype = HYS_BF16, .heads = 20, .dim = 24, .topk = 50},
	{FULL("spread norms, f16, long, 64 heads"), SEE(5, 25000), .values = SCORES_SPREAD, .dtype = HYS_F16, .heads = 64, .dim = 64, .topk = 90},
	{FULL("spread norms, bf16, long, odd"), SEE(40, 17500), .values = SCORES_SPREAD, .dtype = HYS_BF16, .heads = 3, .dim = 13, .topk = 300},
	{FULL("spread norms, bf16, long, one channel"), SEE(40, 17500), .values = SCORES_SPREAD, .dtype = HYS_BF16, .heads = 8, .dim = 1, .topk = 2000},
	{FULL("spread norms, bf16, long documents"), .visible = {.q_lengths = LENGTHS(30, 0, 21, 40), .k_lengths = LENGTHS(9000, 2, 17000, 8300)}, .values = SCORES_SPREAD, .dtype = HYS_BF16, .heads = 8, .topk = 60},
	{FULL("spread norms, bf16, long intervals"), SEE(90, 20000, .how = VISIBLE_EXPLICIT), .values = SCORES_SPREAD, .dtype = HYS_BF16, .heads = 8, .topk = 60},
	{FULL("spread norms, bf16, long, groups"), SEE(40, 17500), .values = SCORES_SPREAD, .dtype = HYS_BF16, .heads = 16, .groups = 2, .topk = 60, .group_topk = NUMBERS(60, 9)},
	{FULL("spread norms, bf16, long, no activation"), SEE(40, 17500), .values = SCORES_SPREAD, .dtype = HYS_BF16, .activation = NONE, .topk = 60},
	{FULL("spread norms, bf16, long, negative scale"), SEE(40, 17500), .values = SCORES_SPREAD, .dtype = HYS_BF16, .heads = 12, .scale = -0.25, .topk = 60},
	{FULL("spread norms, f8, long"), SEE(70, 17500), .values = SCORES_SPREAD, .dtype = HYS_F8E4M3, .heads = 20, .dim = 24, .topk = 50},
	{FULL("spread norms, f8, long, one channel"), SEE(40, 17500), .values = SCORES_SPREAD, .dtype = HYS_F8E4M3, .heads = 8, .dim = 1, .topk = 2000},
	{FULL("spread norms, f8, long documents"), .visible = {.q_lengths = LENGTHS(30, 0, 21, 40), .k_lengths = LENGTHS(9000, 2, 17000, 8300)}, .values = SCORES_SPREAD, .dtype = HYS_F8E4M3, .heads = 8, .topk = 60},
	{FULL("spread norms, f8, long, groups"), SEE(40, 17500), .values = SCORES_SPREAD, .dtype = HYS_F8E4M3, .heads = 16, .groups = 2, .topk = 60, .group_topk = NUMBERS(60, 9)},
	{FULL("spread norms, f8"), SEE(40, 4000, .full = true), .values = SCORES_SPREAD, .topk = 50, .dtype = HYS_F8E4M3},
	{CORE("few scores"), SEE(40, 500, .full = true), .values = SCORES_FEW, .heads = 1, .dim = 1, .topk = 77},
	{FULL("few scores, long"), SEE(9, 4000, .full = true), .values = SCORES_FEW, .heads = 1, .dim = 1, .topk = 1000},
	{FULL("few scores of blocks"), SEE(40, 500), .values = SCORES_FEW, .heads = 1, .dim = 1, .block = 2, .topk = 31},
	{CORE("equal scores"), SEE(40, 300), .values = SCORES_EQUAL, .topk = 33},
	{FULL("equal scores f16"), SEE(40, 300), .values = SCORES_EQUAL, .dtype = HYS_F16, .topk = 33},
	{FULL("equal scores bf16"), SEE(40, 300), .values = SCORES_EQUAL, .dtype = HYS_BF16, .topk = 33},
	{FULL("equal scores f8"), SEE(40, 300), .values = SCORES_EQUAL, .dtype = HYS_F8E4M3, .topk = 33},
	{FULL("equal scores, odd"), SEE(19, 301, .full = true), .values = SCORES_EQUAL, .heads = 3, .dim = 37, .topk = 65},
	{FULL("equal scores, long"), SEE(9, 3001, .full = true), .values = SCORES_EQUAL, .heads = 2, .topk = 700},
	{CORE("zero and minus zero"), SEE(40, 90), .values = SCORES_ZERO, .topk = 33},
	{FULL("zero without activation"), SEE(40, 90), .values = SCORES_ZERO, .activation = NONE, .topk = 33},
	{CORE("rising"), SEE(9, 2000, .full = true), .values = SCORES_RISING, .topk = 64},
	{FULL("falling"), SEE(9, 2000, .full = true), .values = SCORES_FALLING, .topk = 64},
	{CORE("huge"), SEE(30, 80), .values = SCORES_HUGE},
	{FULL("huge f16"), SEE(30, 80), .values = SCORES_HUGE, .dtype = HYS_F16},
	{FULL("huge bf16"), SEE(30, 80), .values = SCORES_HUGE, .dtype = HYS_BF16},
	{FULL("huge f8"), SEE(30, 80), .values = SCORES_HUGE, .dtype = HYS_F8E4M3},
	{CORE("tiny"), SEE(30, 80), .values = SCORES_TINY},
	{FULL("denormal"), SEE(30, 80), .values = SCORES_DENORMAL},
	{CORE("denormal f16"), SEE(30, 80), .values = SCORES_DENORMAL, .dtype = HYS_F16},
	{FULL("tiny bf16"), SEE(30, 80), .values = SCORES_TINY, .dtype = HYS_BF16},
	{FULL("denormal bf16"), SEE(30, 80), .values = SCORES_DENORMAL, .dtype = HYS_BF16},
	{FULL("denormal f8"), SEE(30, 80), .values = SCORES_DENORMAL, .dtype = HYS_F8E4M3},
	{CORE("infinite"), SEE(30, 80), .values = SCORES_INFINITE},
	{FULL("infinite without activation"), SEE(30, 80), .values = SCORES_INFINITE, .activation = NONE, .unweighted = true},
	{FULL("infinite f16"), SEE(30, 80), .values = SCORES_INFINITE, .dtype = HYS_F16, .activation = NONE},
	{FULL("infinite bf16"), SEE(30, 80), .values = SCORES_INFINITE, .dtype = HYS_BF16},
	{FULL("infinite blocks"), SEE(30, 80), .values = SCORES_INFINITE, .activation = NONE, .block = 4},
	{CORE("NaN"), SEE(30, 80), .values = SCORES_NAN},
	{FULL("NaN f16"), SEE(30, 80), .values = SCORES_NAN, .dtype = HYS_F16},
	{FULL("NaN bf16"), SEE(30, 80), .values = SCORES_NAN, .dtype = HYS_BF16},
	{FULL("NaN f8"), SEE(30, 80), .values = SCORES_NAN, .dtype = HYS_F8E4M3},
	{FULL("NaN among few"), SEE(30, 80), .values = SCORES_NAN, .topk = 70},
	{CORE("NaN in blocks"), SEE(30, 80), .values = SCORES_NAN, .block = 4, .first = 1, .local = 1},
	{FULL("NaN in groups"), SEE(30, 80), .values = SCORES_NAN, .groups = 2},
	{CORE("NaN everywhere"), SEE(30, 80), .values = SCORES_ALL_NAN},
	{FULL("NaN everywhere in blocks"), SEE(30, 80), .values = SCORES_ALL_NAN, .block = 8, .groups = 2},
	{FULL("all that is not a number"), SEE(60, 300), .values = SCORES_MIXED, .activation = NONE, .topk = 40},

	{CORE("only indices"), SEE(20, 40), .features = SELECT_ONLY_INDICES},
	{FULL("method in the call"), SEE(20, 40), .method = HYS_METHOD_EXACT, .features = SELECT_EXACT},
	{CORE("range"), SEE(40, 60), .features = SELECT_RANGE},
	{FULL("range of blocks"), SEE(40, 60), .block = 4, .groups = 2, .features = SELECT_RANGE},
	{CORE("range of its own tensors"), SEE(40, 60), .features = SELECT_RANGE_CUT},
};
/* clang-format on */

/* Each size over tile edges, at shapes that make the others small. */
static void add_sweeps(struct suite_list *list)
{
	const struct select_case base = {SEE(21, 70), .topk = 5};
	const struct select_case full = {SEE(9, 70, .full = true), .topk = 20};
	const struct select_case blocks = {SEE(33, 150), .topk = 6, .first = 1, .local = 1};
	const struct select_case f16 = {SEE(9, 40), .dtype = HYS_F16};
	const int32_t sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

#define SWEEP(base, field)                                                              \
	suite_sweep(list, &base, #base " " #field, offsetof(struct select_case, field), \
		    suite_edges, SUITE_EDGES)
	SWEEP(base, visible.rows);
	SWEEP(base, visible.keys);
	SWEEP(base, heads);
	SWEEP(base, dim);
	SWEEP(full, topk);
	SWEEP(full, visible.keys);
	SWEEP(f16, dim);
#undef SWEEP
	suite_sweep(list, &blocks, "block", offsetof(struct select_case, block), sizes, 15);
	suite_sweep(list, &base, "pool", offsetof(struct select_case, pool), sizes, 15);
}

int main(void)
{
	struct suite_list list = {.size = sizeof(struct select_case)};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(&list, &table[i]);
	add_sweeps(&list);
	return suite_main("select", HYS_OP_BIT(HYS_OP_SELECT), &list, select_run);
}
