/* fidelity: every kernel row against the oracle. */
#include "fidelity_case.h"

/* clang-format off */
static const struct fidelity_case table[] = {
	{CORE("plain"), SEE(20, 40)},
	{CORE("window and first"), SEE(20, 40), .window = 5, .first = 2},
	{CORE("groups"), SEE(20, 40), .groups = 2},
	{FULL("GQA"), SEE(20, 40), .heads = 6, .kv_heads = 3, .groups = 3},
	{FULL("groups of one head"), SEE(20, 40), .heads = 4, .kv_heads = 2, .groups = 4},
	{CORE("blocks"), SEE(20, 60), .granularity = 4},
	{CORE("pools"), SEE(20, 60), .pool = 4, .window = 3},
	{CORE("f16"), SEE(20, 40), .dtype = HYS_F16},
	{CORE("bf16"), SEE(20, 40), .dtype = HYS_BF16},
	{FULL("softcap"), SEE(20, 40), .softcap = 2.0},
	{FULL("sharp"), SEE(20, 40), .scale = 8.0},
	{FULL("flat"), SEE(20, 40), .scale = 0.001, .target = 0.5},
	{CORE("target"), SEE(20, 40), .target = 0.3},
	{FULL("target of all"), SEE(20, 40), .target = 1.0},
	{CORE("the same"), SEE(20, 40), .features = FIDELITY_SAME},
	{FULL("all"), SEE(20, 40), .topk = 60, .indices = INDICES_ALL},
	{CORE("nothing chosen"), SEE(20, 40), .indices = INDICES_EMPTY},
	{CORE("junk"), SEE(40, 50), .topk = 20, .indices = INDICES_JUNK},
	{FULL("junk of blocks"), SEE(40, 50), .topk = 20, .indices = INDICES_JUNK, .granularity = 3},
	{FULL("junk of blocks of explicit intervals"), SEE(200, 60, .how = VISIBLE_EXPLICIT), .topk = 30, .indices = INDICES_JUNK, .granularity = 4},
	{FULL("junk of pools"), SEE(40, 50), .topk = 20, .indices = INDICES_JUNK, .pool = 3},
	{CORE("sampled"), SEE(40, 60), .features = FIDELITY_SAMPLED},
	{CORE("range"), SEE(40, 60), .features = FIDELITY_RANGE},
	{FULL("sampled range"), SEE(40, 60), .features = FIDELITY_RANGE | FIDELITY_SAMPLED},
	{FULL("range of its own tensors"), SEE(40, 60), .features = FIDELITY_RANGE_CUT},
	{CORE("only needed"), SEE(20, 40), .features = FIDELITY_ONLY_NEEDED},
	{FULL("only mass"), SEE(20, 40), .features = FIDELITY_ONLY_MASS},
	{CORE("documents"), .visible = {.q_lengths = LENGTHS(1, 0, 33, 1, 1, 20)}},
	{FULL("window of the batch"), SEE(20, 40, .window = 9)},
	{FULL("explicit intervals"), SEE(60, 90, .how = VISIBLE_EXPLICIT)},
	{CORE("no rows"), SEE(0, 40)},
	{FULL("no keys"), SEE(5, 0)},
	{FULL("one key"), SEE(5, 1)},
	{FULL("long"), SEE(5, 2000, .full = true), .topk = 300},
};
/* clang-format on */

int main(void)
{
	const struct fidelity_case base = {SEE(9, 70)};
	struct suite_list list = {.size = sizeof(struct fidelity_case)};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(&list, &table[i]);
	suite_sweep(&list, &base, "keys", offsetof(struct fidelity_case, visible.keys), suite_edges,
		    SUITE_EDGES);
	suite_sweep(&list, &base, "heads", offsetof(struct fidelity_case, heads), suite_edges,
		    SUITE_EDGES);
	suite_sweep(&list, &base, "head_dim", offsetof(struct fidelity_case, head_dim), suite_edges,
		    SUITE_EDGES);
	suite_sweep(&list, &base, "topk", offsetof(struct fidelity_case, topk), suite_edges,
		    SUITE_EDGES);
	return suite_main("fidelity", HYS_OP_BIT(HYS_OP_FIDELITY), &list, fidelity_run);
}
