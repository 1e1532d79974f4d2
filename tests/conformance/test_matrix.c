/* Rows that need a matrix unit, with the unit emulated from its vendor's document: index
 * arithmetic, tails and layouts against the oracle, on any OpenCL device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_case.h"
#include "emulated_units.h"
#include "select_case.h"

#define NONE HYS_ACTIVATION_NONE
#define BF16 HYS_BF16
#define F16 HYS_F16
#define F8 HYS_F8E4M3

/* Core cases run with the first unit and "bf16" with the others, placed in two ways; with
 * HYS_TEST_FULL all with the first and core cases with the others, placed in all ways. */
/* clang-format off */
static const struct select_case select_table[] = {
	{CORE("bf16"), SEE(20, 70), .dtype = BF16},
	{CORE("f16"), SEE(20, 70), .dtype = F16},
	{FULL("f8"), SEE(20, 70), .dtype = F8},
	{FULL("f32 is refused"), SEE(20, 70)},
	{FULL("dim 257 is refused"), SEE(9, 33), .dim = 257, .dtype = BF16},
	{CORE("64 heads of 128"), SEE(5, 140, .full = true), .heads = 64, .dim = 128, .dtype = BF16, .topk = 32},
	{FULL("70 heads of 37"), SEE(5, 70), .heads = 70, .dim = 37, .dtype = BF16},
	{FULL("without activation, 13 channels"), SEE(20, 70), .dim = 13, .activation = NONE, .unweighted = true, .dtype = BF16},
	{FULL("groups"), SEE(9, 70), .groups = 2, .heads = 6, .dtype = BF16, .group_topk = NUMBERS(9, 4), .topk = 9},
	{FULL("no rows"), SEE(0, 40), .dtype = BF16},
	{FULL("no keys"), SEE(5, 0), .dtype = BF16},
	{FULL("documents"), .visible = {.q_lengths = LENGTHS(3, 0, 1, 9, 2), .k_lengths = LENGTHS(130, 4, 1, 140, 0)}, .dtype = BF16},
	{FULL("window"), SEE(40, 260, .window = 13), .dtype = BF16},
	{FULL("explicit intervals"), SEE(40, 290, .how = VISIBLE_EXPLICIT), .dtype = BF16},
	{FULL("blocks of pools"), SEE(30, 190), .pool = 2, .block = 4, .first = 1, .local = 2, .dtype = BF16},
	{FULL("integers"), SEE(20, 300, .full = true), .values = SCORES_INTEGERS, .dtype = BF16, .topk = 40},
	{FULL("integers f8"), SEE(20, 200, .full = true), .values = SCORES_INTEGERS, .dtype = F8, .topk = 40},
	{FULL("infinities and NaN"), SEE(20, 80), .values = SCORES_MIXED, .dtype = BF16, .topk = 40},
	{FULL("range"), SEE(30, 60), .features = SELECT_RANGE_CUT, .dtype = BF16},
	{CORE("coarse to fine"), SEE(20, 300), .dtype = BF16, .method = HYS_METHOD_COARSE_TO_FINE, .coarse_block = 16, .coarse_keep = 5, .topk = 20},
	{FULL("coarse to fine in groups of blocks"), SEE(20, 200), .dtype = F8, .method = HYS_METHOD_COARSE_TO_FINE, .coarse_block = 64, .coarse_keep = 2, .topk = 9, .block = 4, .groups = 2},
};

static const struct attention_case attention_table[] = {
	{CORE("bf16"), SEE(20, 70), .dtype = BF16, .topk = 40},
	{CORE("f16"), SEE(20, 70), .dtype = F16, .topk = 40},
	{FULL("f32 is refused"), SEE(20, 40)},
	{CORE("MLA"), SEE(5, 150), .heads = 70, .head_dim = 72, .value_dim = 64, .topk = 140, .dtype = BF16, .features = ATTENTION_SHARED | ATTENTION_SINK},
	{FULL("odd sizes"), SEE(9, 90), .heads = 3, .head_dim = 19, .value_dim = 13, .topk = 67, .dtype = BF16},
	{FULL("MLA of 144 channels, f16"), SEE(5, 70), .heads = 17, .head_dim = 144, .value_dim = 128, .topk = 33, .dtype = F16, .features = ATTENTION_SHARED},
	{FULL("GQA, groups, window and first"), SEE(20, 90), .heads = 8, .kv_heads = 4, .groups = 2, .window = 7, .first = 3, .dtype = BF16},
	{FULL("dense documents"), .visible = {.q_lengths = LENGTHS(5, 0, 1, 20, 0, 7)}, .heads = 6, .kv_heads = 3, .dtype = BF16, .features = ATTENTION_DENSE},
	{FULL("second source of pools"), SEE(20, 70, .window_keys = 40), .pool = 4, .heads = 8, .dtype = BF16, .features = ATTENTION_SINK},
	{FULL("junk of blocks"), SEE(40, 50), .topk = 20, .indices = INDICES_JUNK, .granularity = 4, .dtype = BF16},
	{FULL("no rows"), SEE(0, 40), .dtype = BF16},
	{FULL("no keys"), SEE(5, 0), .dtype = BF16},
	{FULL("unread rows are NaN"), SEE(9, 90), .values = ATTENTION_UNREAD_NAN, .topk = 3, .dtype = BF16},
	{FULL("huge"), SEE(20, 40), .values = ATTENTION_HUGE, .dtype = BF16},
	{FULL("range"), SEE(40, 60), .window = 3, .dtype = BF16, .features = ATTENTION_RANGE},
	{FULL("one key"), SEE(5, 1, .full = true), .dtype = BF16},
	{FULL("K = 1"), SEE(20, 40), .topk = 1, .dtype = BF16},
	{FULL("tiny"), SEE(20, 40), .values = ATTENTION_TINY, .dtype = BF16},
	{FULL("many rows on few keys"), SEE(150, 12, .full = true), .topk = 5, .dtype = BF16},
	{FULL("accumulate in f32"), SEE(20, 40), .dtype = BF16, .features = ATTENTION_ACCUMULATE | ATTENTION_F32_GRADS},
};
/* clang-format on */

static const struct hys_ocl_unit *unit;

static void prepare(struct hys_context *context)
{
	emulate_unit(context, unit, 0);
}

static int run(uint32_t ops, const void *table, size_t count, size_t size, void (*try)(void **))
{
	struct suite_list list = {.size = size};

	for (size_t i = 0; i < count; i++)
		suite_add(&list, (const char *)table + i * size);
	return suite_main(unit->name, ops, &list, try);
}

#define RUN(ops, table, try) \
	run(ops, table, sizeof(table) / sizeof((table)[0]), sizeof((table)[0]), try)

/* The emulated units need a device of the OpenCL backend. */
static bool have_opencl(void)
{
	const struct hys_context_options options = {.struct_size = sizeof(options),
						    .devices = "opencl"};
	struct hys_context *context;

	if (hys_context_create(&options, &context, NULL) != HYS_OK)
		return false;
	hys_context_destroy(context);
	return true;
}

int main(void)
{
	const uint32_t selects =
		HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_SELECT_COARSE_TO_FINE);
	static const unsigned two_ways[] = {0, PLACE_PITCHED | PLACE_SWAPPED | PLACE_BUFFER};
	const char *only = getenv("HYS_TEST_UNIT");
	const bool full = getenv("HYS_TEST_FULL");
	int status = 0;

	if (!have_opencl()) {
		puts("skipped: no OpenCL device here to emulate the units on");
		return 77;
	}
	setenv("HYS_TEST_DEVICES", "opencl", 1);
	suite_prepare = prepare;
	if (!full)
		suite_placements = (struct suite_placements){two_ways, 2};
	for (int32_t i = 0; i < hys_ocl_unit_count; i++) {
		unit = &hys_ocl_units[i];
		if (!unit->f16 || (only && strcmp(only, unit->name) != 0))
			continue; /* gfx90a's differs in what is refused alone */
		if (i > 0 && !only && !full)
			setenv("HYS_TEST_FILTER", "bf16", 0);
		if (i > 0 && !only)
			unsetenv("HYS_TEST_FULL");
		status |= RUN(selects, select_table, select_run);
		status |= RUN(HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD), attention_table,
			      attention_forward_run);
		status |= RUN(HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD), attention_table,
			      attention_backward_run);
	}
	return status;
}
