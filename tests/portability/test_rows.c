/* Every kernel row on shapes of one or two tiles, small enough for a simulator that watches
 * each access: small sizes just beside tile edges, every __kernel function launched, results
 * by the oracle.
 *
 *   portability_rows            all cases
 *   portability_rows single     those of one tile, for the slowest checks
 *
 * Tensors lie in buffers of exactly their size, so that a read behind one is seen. */
#include "launches.h"
#include "op_case.h"

#include <stdlib.h>
#include <string.h>

#define ONE SUITE_CORE | SUITE_SINGLE
#define SINGLE(text) .about = {.name = text, .flags = ONE}
#define FINE .coarse_block = 8, .coarse_keep = 2
#define DENSE ATTENTION_DENSE

/* clang-format off */
static const struct op_case table[] = {
	{SINGLE("select"), SELECT = {SEE(2, 19), .heads = 3, .dim = 7, .topk = 5}},
	{CORE("select, two tiles"), SELECT = {SEE(3, 65, .full = true), .heads = 5, .dim = 17, .topk = 33}},
	{CORE("select, ties"), SELECT = {SEE(2, 130, .full = true), .values = SCORES_FEW, .heads = 1, .dim = 1, .topk = 33}},
	{SINGLE("select, blocks"), SELECT = {SEE(3, 21), .heads = 2, .dim = 5, .block = 4, .first = 1, .local = 1, .topk = 3}},
	{CORE("select, f8 in groups"), SELECT = {SEE(2, 66), .dtype = HYS_F8E4M3, .groups = 2, .dim = 9}},
	{CORE("select, bf16"), SELECT = {SEE(3, 65, .full = true), .dtype = HYS_BF16, .heads = 5, .dim = 17, .topk = 9}},
	{CORE("select, NaN in f16"), SELECT = {SEE(4, 20), .dtype = HYS_F16, .values = SCORES_ALL_NAN, .dim = 4}},

	{SINGLE("coarse"), SELECT_COARSE = {SEE(3, 21), .heads = 2, .dim = 5, .coarse_block = 4, .topk = 3}},
	{CORE("coarse, two tiles"), SELECT_COARSE = {SEE(3, 133, .full = true), .coarse_block = 2, .dim = 9, .topk = 4}},

	{SINGLE("fine"), SELECT_FINE = {SEE(3, 37), .heads = 2, .dim = 5, .coarse_block = 4, .coarse_keep = 3, .topk = 5}},
	{SINGLE("fine, blocks"), SELECT_FINE = {SEE(3, 37), .heads = 2, .dim = 5, FINE, .block = 4, .topk = 3}},
	{CORE("fine, two tiles"), SELECT_FINE = {SEE(3, 150, .full = true), FINE, .groups = 2, .dim = 9, .topk = 9}},
	{CORE("fine, bf16"), SELECT_FINE = {SEE(3, 70, .full = true), FINE, .dtype = HYS_BF16, .dim = 9, .topk = 9}},
	{CORE("fine, integers in documents"), SELECT_FINE = {.visible = {.q_lengths = LENGTHS(2, 0, 1), .k_lengths = LENGTHS(33, 4, 17)}, FINE, .values = SCORES_INTEGERS, .dim = 4}},

	{SINGLE("forward"), FORWARD = {SEE(2, 11), .heads = 3, .head_dim = 7, .value_dim = 5, .topk = 4, .features = ATTENTION_SINK}},
	{CORE("forward, two tiles"), FORWARD = {SEE(2, 65, .full = true), .heads = 5, .head_dim = 17, .value_dim = 66, .features = DENSE}},
	{CORE("forward, second source, f16"), FORWARD = {SEE(3, 20, .window_keys = 9), .dtype = HYS_F16, .kv_heads = 2, .window = 3, .first = 2}},
	{CORE("forward, junk of pools, MLA"), FORWARD = {SEE(3, 40), .heads = 8, .head_dim = 20, .value_dim = 16, .pool = 3, .topk = 9, .indices = INDICES_JUNK, .features = ATTENTION_SHARED}},

	{SINGLE("backward"), BACKWARD = {SEE(2, 11), .heads = 3, .head_dim = 7, .value_dim = 5, .topk = 4, .features = ATTENTION_SINK}},
	{CORE("backward, two tiles"), BACKWARD = {SEE(2, 65, .full = true), .heads = 5, .head_dim = 17, .value_dim = 66, .features = DENSE}},
	{CORE("backward, second source, bf16"), BACKWARD = {SEE(3, 20, .window_keys = 9), .dtype = HYS_BF16, .kv_heads = 2, .window = 3, .features = ATTENTION_ACCUMULATE}},
	{CORE("backward, MLA"), BACKWARD = {SEE(2, 20), .heads = 8, .head_dim = 20, .value_dim = 16, .features = ATTENTION_SHARED}},

	{SINGLE("loss"), LOSS = {SEE(2, 11), .index_heads = 3, .index_dim = 5, .heads = 3, .head_dim = 7, .topk = 4, .features = LOSS_TEACHER_OUT}},
	{CORE("loss, two tiles"), LOSS = {SEE(2, 66, .full = true), .index_dim = 17, .head_dim = 9, .features = LOSS_DENSE}},
	{CORE("loss, two chunks"), LOSS = {SEE(1, 1030, .full = true), .index_heads = 1, .index_dim = 1, .heads = 1, .head_dim = 1, .features = LOSS_DENSE}},
	{CORE("loss, blocks in groups"), LOSS = {SEE(3, 40), .block = 4, .groups = 2, .dtype = HYS_F16, .index_dtype = HYS_BF16, .features = LOSS_ACCUMULATE | LOSS_SINK}},
	{CORE("loss, lse and scores"), LOSS = {SEE(3, 20), .features = LOSS_LSE | LOSS_SCORES | LOSS_SAMPLED}},
	{CORE("loss, teacher of pools"), LOSS = {SEE(3, 20), .pool = 3, .features = LOSS_TEACHER_IN | LOSS_UNWEIGHTED | LOSS_SUM}},

	{SINGLE("pool"), POOL = {SEE(0, 11), .pooling = HYS_POOL_OVERLAPPED, .channels = 5, .features = POOL_BIAS}},
	{SINGLE("pool, bounds"), POOL = {SEE(0, 11), .pooling = HYS_POOL_BOUNDS, .channels = 5}},
	{CORE("pool, two tiles"), POOL = {SEE(0, 21), .pooling = HYS_POOL_BOUNDS, .channels = 65, .size = 9, .dtype = HYS_F16}},
	{CORE("pool, means of blocks"), POOL = {SEE(0, 21), .pooling = HYS_POOL_MEAN, .blocks = true, .channels = 65}},
	{SINGLE("pool backward"), POOL_BACKWARD = {SEE(0, 11), .pooling = HYS_POOL_OVERLAPPED, .channels = 5, .features = POOL_BIAS}},
	{CORE("pool backward, two tiles"), POOL_BACKWARD = {.visible = {.q_lengths = LENGTHS(9, 3, 0, 6)}, .pooling = HYS_POOL_GATED, .channels = 65, .features = POOL_BIAS | POOL_ACCUMULATE}},

	{SINGLE("fidelity"), FIDELITY = {SEE(2, 11), .heads = 2, .head_dim = 5, .topk = 3}},
	{CORE("fidelity, two tiles"), FIDELITY = {SEE(2, 66), .groups = 2, .head_dim = 17, .pool = 3}},

	{SINGLE("merge"), MERGE = {SEE(2, 3), .heads = 2, .value_dim = 5}},
	{CORE("merge, two tiles"), MERGE = {SEE(2, 3), .value_dim = 65, .dtype = HYS_BF16, .features = MERGE_NOTHING}},
};
/* clang-format on */

static const unsigned placements[] = {PLACE_BUFFER};

int main(int argc, char **argv)
{
	const bool single = argc > 1 && strcmp(argv[1], "single") == 0;
	struct suite_list list = {.size = sizeof(struct op_case)};
	int status;

	suite_placements = (struct suite_placements){placements, 1};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!single || (table[i].about.flags & SUITE_SINGLE))
			suite_add(&list, &table[i]);
	status = suite_main("rows", HYS_OP_BIT(HYS_OP_COUNT) - 1, &list, op_case_run);
	/* A part of the cases need not launch everything. */
	if (!single && !getenv("HYS_TEST_FILTER") && launches_missing() > 0)
		status = 1;
	return status;
}
