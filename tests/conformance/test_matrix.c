/* Rows that need a matrix unit, with the unit emulated from its vendor's document: index
 * arithmetic, tails and layouts against the oracle, on any OpenCL device. */
#include <stdlib.h>

#include "emulated_units.h"
#include "select_case.h"

#define NONE HYS_ACTIVATION_NONE
#define BF16 HYS_BF16
#define F16 HYS_F16
#define F8 HYS_F8E4M3

/* clang-format off */
static const struct select_case select_table[] = {
	{CORE("bf16"), SEE(20, 70), .dtype = BF16},
	{CORE("f16"), SEE(20, 70), .dtype = F16},
	{CORE("f8"), SEE(20, 70), .dtype = F8},
	{CORE("f32 is refused"), SEE(20, 70)},
	{CORE("dim 257 is refused"), SEE(9, 33), .dim = 257, .dtype = BF16},
	{CORE("64 heads of 128"), SEE(5, 140, .full = true), .heads = 64, .dim = 128, .dtype = BF16, .topk = 32},
	{CORE("70 heads"), SEE(5, 70), .heads = 70, .dim = 16, .dtype = BF16},
	{CORE("three heads of 20"), SEE(9, 65), .heads = 3, .dim = 20, .dtype = BF16},
	{CORE("dim 1"), SEE(9, 65), .dim = 1, .dtype = F16},
	{CORE("dim 127, f8"), SEE(5, 65), .dim = 127, .dtype = F8},
	{CORE("without activation"), SEE(20, 70), .activation = NONE, .unweighted = true, .dtype = BF16},
	{CORE("groups"), SEE(9, 70), .groups = 2, .heads = 6, .dtype = F16, .group_topk = NUMBERS(9, 4), .topk = 9},
	{CORE("no rows"), SEE(0, 40), .dtype = BF16},
	{CORE("no keys"), SEE(5, 0), .dtype = BF16},
	{CORE("many keys"), SEE(3, 700, .full = true), .heads = 2, .topk = 100, .dtype = BF16},
	{CORE("documents"), .visible = {.q_lengths = LENGTHS(3, 0, 1, 9, 2), .k_lengths = LENGTHS(130, 4, 1, 140, 0)}, .dtype = BF16},
	{CORE("window"), SEE(40, 260, .window = 13), .dtype = BF16},
	{CORE("explicit intervals"), SEE(40, 290, .how = VISIBLE_EXPLICIT), .dtype = BF16},
	{CORE("blocks"), SEE(30, 150), .block = 4, .first = 1, .local = 2, .dtype = BF16},
	{CORE("pools"), SEE(40, 190), .pool = 2, .dtype = F16},
	{CORE("integers"), SEE(20, 300, .full = true), .values = SCORES_INTEGERS, .dtype = BF16, .topk = 40},
	{CORE("integers f8"), SEE(20, 200, .full = true), .values = SCORES_INTEGERS, .dtype = F8, .topk = 40},
	{CORE("infinities and NaN"), SEE(20, 80), .values = SCORES_MIXED, .dtype = BF16, .topk = 40},
	{CORE("range"), SEE(30, 60), .features = SELECT_RANGE_CUT, .dtype = BF16},
};
/* clang-format on */

static void add_selects(struct suite_list *list)
{
	const struct select_case coarse = {SEE(20, 300),
					   .dtype = BF16,
					   .method = HYS_METHOD_COARSE_TO_FINE,
					   .coarse_block = 8,
					   .coarse_keep = 5,
					   .topk = 20};
	const int32_t blocks[] = {3, 16, 64};

	for (size_t i = 0; i < sizeof(select_table) / sizeof(select_table[0]); i++)
		suite_add(list, &select_table[i]);
	suite_sweep(list, &coarse, "coarse blocks", offsetof(struct select_case, coarse_block),
		    blocks, 3);
}

static const struct hys_ocl_unit *unit;

static void prepare(struct hys_context *context)
{
	emulate_unit(context, unit, 0);
}

int main(void)
{
	const uint32_t selects =
		HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_SELECT_COARSE_TO_FINE);
	int status = 0;

	setenv("HYS_TEST_DEVICES", "opencl", 1);
	setenv("HYS_TEST_FULL", "1", 1);
	suite_prepare = prepare;
	for (int32_t i = 0; i < hys_ocl_unit_count; i++) {
		struct suite_list list = {.size = sizeof(struct select_case)};

		unit = &hys_ocl_units[i];
		add_selects(&list);
		status |= suite_main(unit->name, selects, &list, select_run);
	}
	return status;
}
