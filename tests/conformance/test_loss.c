/* indexer loss: every kernel row against the oracle. */
#include "loss_case.h"

#define NONE HYS_ACTIVATION_NONE
#define DENSE LOSS_DENSE
#define F16 HYS_F16
#define BF16 HYS_BF16
/* As matrix units take it. */
#define WIDE .index_dtype = BF16, .dtype = BF16

/* clang-format off */
static const struct loss_case table[] = {
	{CORE("sparse"), SEE(20, 40)},
	{CORE("dense"), SEE(20, 40), .features = DENSE},
	{FULL("dense, full"), SEE(9, 70, .full = true), .features = DENSE},
	{CORE("unweighted"), SEE(20, 40), .features = LOSS_UNWEIGHTED},
	{CORE("without activation"), SEE(20, 40), .activation = NONE},
	{FULL("neither, dense"), SEE(20, 40), .activation = NONE, .features = LOSS_UNWEIGHTED | DENSE},
	{FULL("one index head"), SEE(20, 40), .index_heads = 1},
	{FULL("64 index heads of 128"), SEE(9, 70), .index_heads = 64, .index_dim = 128, .topk = 40},
	{FULL("odd sizes"), SEE(9, 70), .index_heads = 3, .index_dim = 13, .heads = 5, .head_dim = 19, .topk = 17},
	{FULL("GQA"), SEE(20, 40), .heads = 6, .kv_heads = 3},
	{FULL("MLA sizes"), SEE(5, 90), .heads = 128, .head_dim = 576, .topk = 50},
	{FULL("scales"), SEE(20, 40), .scale = 0.5, .index_scale = -0.3},
	{FULL("softcap"), SEE(20, 40), .softcap = 2.0},

	{CORE("f16"), SEE(20, 40), .index_dtype = F16, .dtype = F16},
	{CORE("bf16"), SEE(20, 40), .index_dtype = BF16, .dtype = BF16},
	{FULL("f16, gradients in f32"), SEE(20, 40), .index_dtype = F16, .dtype = F16, .features = LOSS_F32_GRADS},
	{FULL("bf16, gradients in f32"), SEE(20, 40), .index_dtype = BF16, .dtype = BF16, .features = LOSS_F32_GRADS | DENSE},
	{FULL("f32 index, bf16 attention"), SEE(20, 40), .dtype = BF16},
	{FULL("bf16 index, f32 attention"), SEE(20, 40), .index_dtype = BF16},

	{CORE("lse"), SEE(20, 40), .features = LOSS_LSE},
	{CORE("sink"), SEE(20, 40), .features = LOSS_SINK},
	{FULL("lse and sink"), SEE(20, 40), .features = LOSS_LSE | LOSS_SINK},
	{CORE("lse and sink, dense"), SEE(20, 40), .features = LOSS_LSE | LOSS_SINK | DENSE},
	{FULL("lse bf16 in documents"), .visible = {.q_lengths = LENGTHS(3, 0, 1, 20, 2)}, .dtype = BF16, .index_dtype = BF16, .features = LOSS_LSE},
	{CORE("teacher out"), SEE(20, 40), .features = LOSS_TEACHER_OUT},
	{FULL("teacher out with lse and sink"), SEE(20, 40), .groups = 2, .features = LOSS_TEACHER_OUT | LOSS_LSE | LOSS_SINK},
	{CORE("teacher in"), SEE(20, 40), .features = LOSS_TEACHER_IN},
	{FULL("teacher in, groups of blocks"), SEE(20, 60), .groups = 2, .block = 4, .features = LOSS_TEACHER_IN},
	{FULL("teacher in, junk"), SEE(20, 60), .indices = INDICES_JUNK, .topk = 12, .features = LOSS_TEACHER_IN},
	{CORE("scores in"), SEE(20, 40), .features = LOSS_SCORES},
	{FULL("scores in, blocks"), SEE(20, 60), .block = 4, .features = LOSS_SCORES},
	{FULL("scores and teacher in"), SEE(20, 40), .features = LOSS_SCORES | LOSS_TEACHER_IN},

	{CORE("sum"), SEE(20, 40), .features = LOSS_SUM},
	{FULL("coefficient"), SEE(20, 40), .coefficient = -2.5},
	{CORE("divisor"), SEE(20, 40), .divisor = 123.0, .coefficient = 3.0},
	{CORE("sampled"), SEE(40, 60), .features = LOSS_SAMPLED | LOSS_TEACHER_OUT},
	{FULL("sampled sum"), SEE(40, 60), .features = LOSS_SAMPLED | LOSS_SUM},
	{FULL("sampled, dense"), SEE(40, 60), .features = LOSS_SAMPLED | DENSE},
	{FULL("sampled, accumulate"), SEE(40, 60), .features = LOSS_SAMPLED | LOSS_ACCUMULATE},
	{FULL("sampled range"), SEE(40, 60), .features = LOSS_SAMPLED | LOSS_RANGE | LOSS_TEACHER_OUT},
	{CORE("accumulate"), SEE(20, 40), .features = LOSS_ACCUMULATE},
	{FULL("accumulate bf16"), SEE(20, 40), .index_dtype = BF16, .features = LOSS_ACCUMULATE},
	{FULL("accumulate, dense, sum"), SEE(20, 40), .features = LOSS_ACCUMULATE | DENSE | LOSS_SUM},
	{CORE("range"), SEE(40, 60), .features = LOSS_RANGE},
	{FULL("range, dense"), SEE(40, 60), .features = LOSS_RANGE | DENSE},
	{CORE("range of its own tensors"), SEE(40, 60), .features = LOSS_RANGE_CUT | LOSS_TEACHER_OUT | LOSS_LSE},
	{CORE("only the loss"), SEE(20, 40), .features = LOSS_ONLY_LOSS},
	{FULL("only the loss, dense"), SEE(20, 40), .features = LOSS_ONLY_LOSS | DENSE},
	{FULL("only d_index_k"), SEE(20, 40), .features = LOSS_ONLY_KEYS},

	{CORE("no rows"), SEE(0, 40)},
	{FULL("no keys"), SEE(5, 0)},
	{FULL("no keys, dense"), SEE(5, 0), .features = DENSE},
	{FULL("one key"), SEE(5, 1, .full = true)},
	{FULL("one key, dense"), SEE(5, 1, .full = true), .features = DENSE},
	{FULL("more rows than keys"), SEE(40, 12)},
	{CORE("K = 1"), SEE(20, 40), .topk = 1},
	{FULL("all indices"), SEE(20, 40), .topk = 50, .indices = INDICES_ALL},
	{CORE("no index at all"), SEE(20, 40), .indices = INDICES_EMPTY, .features = LOSS_TEACHER_OUT},
	{CORE("junk"), SEE(40, 50), .topk = 20, .indices = INDICES_JUNK, .features = LOSS_TEACHER_OUT},
	{FULL("large K"), SEE(5, 700, .full = true), .topk = 600},
	{FULL("dense, long"), SEE(5, 1500, .full = true), .features = DENSE},
	{FULL("many rows"), SEE(400, 60), .index_heads = 2},

	{CORE("documents"), .visible = {.q_lengths = LENGTHS(1, 0, 33, 1, 1, 20)}},
	{FULL("documents, dense"), .visible = {.q_lengths = LENGTHS(1, 0, 33, 1, 1, 20)}, .features = DENSE},
	{FULL("window"), SEE(40, 60, .window = 9)},
	{FULL("positions, dense"), SEE(30, 50, .how = VISIBLE_POSITIONS), .features = DENSE},
	{FULL("explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT)},
	{FULL("explicit intervals, dense"), SEE(60, 90, .how = VISIBLE_EXPLICIT), .features = DENSE | LOSS_LSE},

	{CORE("groups"), SEE(20, 50), .groups = 2},
	{FULL("groups of one head"), SEE(20, 50), .index_heads = 6, .heads = 6, .kv_heads = 6, .groups = 6},
	{FULL("groups, dense"), SEE(20, 50), .groups = 4, .features = DENSE},
	{CORE("blocks of 4"), SEE(40, 70), .block = 4},
	{FULL("blocks of 16 in groups"), SEE(40, 170), .block = 16, .groups = 2},
	{FULL("all blocks"), SEE(40, 70), .block = 8, .indices = INDICES_ALL, .topk = 12},
	{FULL("blocks of explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT), .block = 5},
	{FULL("blocks, dense"), SEE(40, 70), .block = 4, .features = DENSE},
	{FULL("junk of blocks"), SEE(40, 50), .block = 4, .topk = 20, .indices = INDICES_JUNK},
	{FULL("junk of blocks of explicit intervals"), SEE(200, 60, .how = VISIBLE_EXPLICIT), .block = 4, .topk = 30, .indices = INDICES_JUNK, .features = LOSS_TEACHER_OUT},
	{CORE("pools"), SEE(40, 90), .pool = 4},
	{FULL("pools, dense"), SEE(40, 90), .pool = 4, .features = DENSE},
	{FULL("pools in documents"), .visible = {.q_lengths = LENGTHS(3, 9, 0, 30, 1), .k_lengths = LENGTHS(7, 9, 3, 43, 5)}, .pool = 4, .features = LOSS_LSE},
	{FULL("pools of explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT), .pool = 3},
	{FULL("pools of explicit intervals, dense"), SEE(60, 90, .how = VISIBLE_EXPLICIT), .pool = 3, .features = DENSE},
	{FULL("junk of pools"), SEE(40, 50), .pool = 4, .topk = 20, .indices = INDICES_JUNK},
	{FULL("junk of pools of explicit intervals"), SEE(200, 60, .how = VISIBLE_EXPLICIT), .pool = 3, .topk = 30, .indices = INDICES_JUNK, .features = LOSS_TEACHER_OUT},

	{FULL("wide"), SEE(20, 90), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 70},
	{FULL("wide, lse and scores"), SEE(40, 300), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 150, .features = LOSS_LSE | LOSS_SCORES},
	{FULL("wide, MLA sizes"), SEE(7, 200), WIDE, .index_dim = 128, .index_heads = 64, .heads = 128, .head_dim = 576, .topk = 130, .features = LOSS_LSE | LOSS_F32_GRADS},
	{FULL("wide, 100 heads, softcap, sink"), SEE(9, 90), WIDE, .index_heads = 5, .index_dim = 128, .heads = 100, .head_dim = 192, .topk = 64, .softcap = 2.0, .features = LOSS_SINK},
	{FULL("wide, without activation"), SEE(20, 90), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 65, .activation = NONE, .features = LOSS_UNWEIGHTED | LOSS_TEACHER_OUT},
	{FULL("wide, negative scales"), SEE(20, 90), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 65, .scale = -0.2, .index_scale = -0.3},
	{FULL("wide, 64 dimensions"), SEE(20, 90), WIDE, .index_heads = 5, .head_dim = 64, .index_dim = 64, .heads = 3, .topk = 33, .features = LOSS_TEACHER_IN},
	{FULL("wide, junk"), SEE(40, 90), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 80, .indices = INDICES_JUNK, .features = LOSS_TEACHER_OUT | LOSS_SCORES},
	{FULL("wide, no index at all"), SEE(20, 40), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .indices = INDICES_EMPTY, .features = LOSS_TEACHER_OUT},
	{FULL("wide, sampled, accumulate"), SEE(40, 60), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 20, .features = LOSS_SAMPLED | LOSS_ACCUMULATE},
	{FULL("wide, range"), SEE(40, 60), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 20, .features = LOSS_RANGE | LOSS_SUM},
	{FULL("wide, only d_index_k"), SEE(300, 60), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 30, .features = LOSS_ONLY_KEYS},
	{FULL("wide, only the loss"), SEE(20, 60), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 30, .features = LOSS_ONLY_LOSS},
	{FULL("wide, documents"), .visible = {.q_lengths = LENGTHS(1, 0, 70, 1, 1, 20)}, WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 40},
	{FULL("wide, explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .topk = 40, .features = LOSS_LSE},
	{FULL("wide, sharp"), SEE(20, 60), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .values = LOSS_SHARP},
	{FULL("wide, dense"), SEE(20, 60), WIDE, .index_heads = 5, .index_dim = 128, .heads = 20, .head_dim = 64, .features = DENSE},

	{CORE("integers"), SEE(20, 60), .values = LOSS_INTEGERS, .index_scale = 1.0},
	{CORE("integers in blocks"), SEE(20, 90), .values = LOSS_INTEGERS, .index_scale = 1.0, .block = 8},
	{FULL("integers, dense"), SEE(20, 60), .values = LOSS_INTEGERS, .index_scale = 1.0, .features = DENSE},
	{CORE("sharp"), SEE(20, 40), .values = LOSS_SHARP},
	{FULL("sharp, dense"), SEE(20, 40), .values = LOSS_SHARP, .features = DENSE},
	{FULL("steep with lse"), SEE(20, 40), .scale = 2.0, .features = LOSS_LSE},
};
/* clang-format on */

static void add_sweeps(struct suite_list *list)
{
	const struct loss_case base = {SEE(21, 70), .topk = 20};
	const struct loss_case dense = {SEE(9, 70), .features = DENSE};
	const struct loss_case blocks = {SEE(9, 70), .topk = 5};

#define SWEEP(base, field)                                                                         \
	suite_sweep(list, &base, #base " " #field, offsetof(struct loss_case, field), suite_edges, \
		    SUITE_EDGES)
	SWEEP(base, visible.rows);
	SWEEP(base, topk);
	SWEEP(base, index_heads);
	SWEEP(base, index_dim);
	SWEEP(base, heads);
	SWEEP(base, head_dim);
	SWEEP(dense, visible.keys);
	SWEEP(dense, index_dim);
	SWEEP(blocks, block);
	SWEEP(blocks, pool);
#undef SWEEP
}

int main(void)
{
	struct suite_list list = {.size = sizeof(struct loss_case)};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(&list, &table[i]);
	add_sweeps(&list);
	return suite_main("indexer_loss", HYS_OP_BIT(HYS_OP_INDEXER_LOSS), &list, loss_run);
}
