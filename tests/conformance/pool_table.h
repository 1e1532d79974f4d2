/* Cases that pooling and its backward share. */
#ifndef HYS_TEST_POOL_TABLE_H
#define HYS_TEST_POOL_TABLE_H

#include "pool_case.h"

#define MEAN .pooling = HYS_POOL_MEAN
#define GATED .pooling = HYS_POOL_GATED
#define OVERLAPPED .pooling = HYS_POOL_OVERLAPPED
#define BOUNDS .pooling = HYS_POOL_BOUNDS
#define BLOCKS .blocks = true
#define DOCUMENTS .visible = {.q_lengths = LENGTHS(9, 3, 0, 1, 30, 4, 17)}
#define F16 HYS_F16
#define BF16 HYS_BF16

/* clang-format off */
static const struct pool_case table[] = {
	{CORE("mean"), SEE(0, 70), MEAN},
	{CORE("gated"), SEE(0, 70), GATED},
	{CORE("overlapped"), SEE(0, 70), OVERLAPPED},
	{CORE("gated with bias"), SEE(0, 70), GATED, .features = POOL_BIAS},
	{CORE("overlapped with bias"), SEE(0, 70), OVERLAPPED, .features = POOL_BIAS},
	{CORE("mean in documents"), DOCUMENTS, MEAN},
	{FULL("gated in documents"), DOCUMENTS, GATED, .features = POOL_BIAS},
	{CORE("overlapped in documents"), DOCUMENTS, OVERLAPPED, .features = POOL_BIAS},
	{CORE("mean of blocks"), SEE(0, 70), MEAN, BLOCKS, .size = 8},
	{FULL("gated blocks"), DOCUMENTS, GATED, BLOCKS, .size = 3, .features = POOL_BIAS},
	{FULL("overlapped blocks"), DOCUMENTS, OVERLAPPED, BLOCKS, .size = 5, .features = POOL_BIAS},
	{FULL("mean of blocks of pools"), DOCUMENTS, MEAN, BLOCKS, .size = 3, .pool = 2},
	{FULL("blocks of one"), SEE(0, 20), MEAN, BLOCKS, .size = 1},
	{FULL("gated blocks of one"), SEE(0, 20), GATED, BLOCKS, .size = 1, .features = POOL_BIAS},
	{FULL("overlapped blocks of one"), SEE(0, 20), OVERLAPPED, BLOCKS, .size = 1, .features = POOL_BIAS},
	{CORE("mean f16"), SEE(0, 70), MEAN, .dtype = F16},
	{FULL("mean bf16 in f32"), SEE(0, 70), MEAN, .dtype = BF16, .features = POOL_F32_OUT},
	{CORE("gated bf16"), SEE(0, 70), GATED, .dtype = BF16, .features = POOL_BIAS},
	{FULL("gated f16 in f32"), SEE(0, 70), GATED, .dtype = F16, .features = POOL_F32_OUT},
	{FULL("overlapped f16"), DOCUMENTS, OVERLAPPED, .dtype = F16, .features = POOL_BIAS},
	{FULL("overlapped bf16 in f32"), DOCUMENTS, OVERLAPPED, .dtype = BF16, .features = POOL_BIAS | POOL_F32_OUT},
	{CORE("steep gates"), SEE(0, 70), GATED, .values = POOL_STEEP},
	{FULL("steep gates, overlapped"), DOCUMENTS, OVERLAPPED, .values = POOL_STEEP, .features = POOL_BIAS},
	{FULL("huge"), SEE(0, 70), MEAN, .values = POOL_HUGE},
	{FULL("huge f16"), SEE(0, 70), MEAN, .dtype = F16, .values = POOL_HUGE},
	{FULL("no keys"), SEE(0, 0), MEAN},
	{CORE("too few keys"), SEE(0, 3), GATED},
	{FULL("too few keys, overlapped"), SEE(0, 3), OVERLAPPED},
	{FULL("one unit"), SEE(0, 4), OVERLAPPED, .features = POOL_BIAS},
	{FULL("one channel"), DOCUMENTS, GATED, .channels = 1},
	{FULL("large"), SEE(0, 300), GATED, .size = 128, .channels = 128, .features = POOL_BIAS},
	{CORE("range"), DOCUMENTS, OVERLAPPED, .features = POOL_BIAS | POOL_RANGE},
	{FULL("range of means"), DOCUMENTS, MEAN, .features = POOL_RANGE},
	{FULL("range of its own tensors"), DOCUMENTS, GATED, .features = POOL_BIAS | POOL_RANGE_CUT},
};

/* Bases of sweeps. */
static const struct pool_case mean = {SEE(0, 150), MEAN};
static const struct pool_case gated = {DOCUMENTS, GATED, .features = POOL_BIAS};
static const struct pool_case overlapped = {DOCUMENTS, OVERLAPPED, .features = POOL_BIAS};
static const struct pool_case blocks = {SEE(0, 150), MEAN, BLOCKS};
/* clang-format on */

static inline void add_pool_cases(struct suite_list *list)
{
	const int32_t sizes[] = {2, 3, 5, 7, 8, 15, 16, 17, 33, 64};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(list, &table[i]);
#define SWEEP(base, field, values, count) \
	suite_sweep(list, &base, #base " " #field, offsetof(struct pool_case, field), values, count)
	SWEEP(mean, visible.keys, suite_edges, SUITE_EDGES);
	SWEEP(gated, channels, suite_edges, SUITE_EDGES);
	SWEEP(overlapped, channels, suite_edges, SUITE_EDGES);
	SWEEP(mean, size, sizes, 10);
	SWEEP(gated, size, sizes, 10);
	SWEEP(overlapped, size, sizes, 10);
	SWEEP(blocks, size, sizes, 10);
#undef SWEEP
}

#endif
