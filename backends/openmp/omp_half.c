/* omp_half.c - select on bf16 as it is, for sets that multiply it (isa.h,
 * score_half).
 *
 * Those instructions take denormal operands as 0 and flush denormal results.
 * Where neither can happen, their sums are those of ordinary arithmetic: if
 * the smallest exponents of a row's heads and of a key, biased, are a and b, all
 * products and sums are multiples of 2^(a + b - 2 * (127 + 7)), which is not
 * below FLT_MIN = 2^-126 when a + b >= 142. Other pairs of a row and a key are
 * scored in f32. So a score depends on its row and key alone. */
#include <stdio.h>
#include <string.h>

#include "omp_kernels.h"
#include "omp_select.h"

#define SAFE_SUM 142
#define NO_EXPONENT 512 /* of what is all 0; more than any other */

bool omp_select_halves(const struct hys_kernel *kernel, const struct hys_device *device,
		       const struct hys_problem *problem, char reason[HYS_REASON_SIZE])
{
	(void)kernel, (void)device;
	if (problem->scoring.dtype == HYS_BF16)
		return true;
	snprintf(reason, HYS_REASON_SIZE, "multiplies bf16 only, index_q is %s",
		 hys_dtype_name(problem->scoring.dtype));
	return false;
}

/* Smallest biased exponent of what is not 0; 0 when something is denormal. */
static int32_t lowest_exponent(const uint16_t *x, int64_t n)
{
	/* 0 becomes the largest number, others keep their order. */
	uint16_t least = UINT16_MAX;
	for (int64_t i = 0; i < n; i++) {
		const uint16_t magnitude = (uint16_t)((x[i] & 0x7fff) - 1);
		least = magnitude < least ? magnitude : least;
	}
	return (least + 1) >> 7;
}

static bool is_safe(int32_t heads, int32_t keys)
{
	return heads > 0 && keys > 0 && heads + keys >= SAFE_SUM;
}

void omp_half_load_query(const struct omp_select *select, struct omp_select_scratch *scratch,
			 int64_t r, struct omp_select_row *row)
{
	const struct hys_tensor *from = &select->call->args.select.index_q;
	const size_t bytes = (size_t)select->dim * sizeof(uint16_t);
	uint16_t *half = scratch->half + r * select->heads * select->half_dim;
	for (int64_t j = 0; j < select->heads; j++) {
		uint16_t *head = half + j * select->half_dim;
		memcpy(head, omp_at(from, row->t, j, 0), bytes);
		memset(head + select->dim, 0,
		       (size_t)(select->half_dim - select->dim) * sizeof *head);
	}
	row->query.half = half;
	row->query.half_dim = select->half_dim;
	row->query.lowest = lowest_exponent(half, select->heads * select->half_dim);
}

/* Key i of a panel that has [pairs][panel][2]. */
static void pack_key(const uint16_t *key, int64_t i, int64_t pairs, int64_t panel, uint16_t *packed)
{
	for (int64_t d = 0; d < pairs; d++)
		memcpy(packed + (d * panel + i) * 2, key + d * 2, 2 * sizeof *key);
}

void omp_half_pack(const struct omp_select *select, struct omp_select_scratch *scratch, int64_t p)
{
	const int64_t panel = select->isa->panel, dim = select->dim, padded = select->half_dim;
	const int64_t count = hys_min64(panel, select->call->size.entries - p * panel);
	uint16_t *packed = select->entries.halves + p * panel * padded;
	uint16_t *key = scratch->half;
	int32_t lowest = NO_EXPONENT;
	memset(key, 0, (size_t)padded * sizeof *key);
	for (int64_t i = 0; i < count; i++) {
		const struct hys_tensor *from = &select->call->args.select.index_k;
		memcpy(key, omp_at(from, p * panel + i, 0, 0), (size_t)dim * sizeof *key);
		lowest = (int32_t)hys_min64(lowest, lowest_exponent(key, dim));
		pack_key(key, i, padded / 2, panel, packed);
	}
	memset(key, 0, (size_t)padded * sizeof *key);
	for (int64_t i = count; i < panel; i++)
		pack_key(key, i, padded / 2, panel, packed);
	select->entries.lowest[p] = lowest;
}

/* Scores again, in f32, those keys of a panel that need it. */
static void score_carefully(const struct omp_select *select, struct omp_select_scratch *scratch,
			    const struct omp_query *query, const uint16_t *packed, float *scores)
{
	const int64_t panel = select->isa->panel, dim = select->dim;
	float *keys = scratch->rows, *careful = scratch->careful;
	for (int64_t i = 0; i < panel; i++) {
		for (int64_t d = 0; d < dim; d++)
			scratch->half_key[d] = packed[(d / 2 * panel + i) * 2 + d % 2];
		select->isa->to_f32(HYS_BF16, scratch->half_key, keys + i * dim, dim);
	}
	omp_pack(keys, panel, dim, panel, scratch->careful_keys);
	select->isa->score(query, scratch->careful_keys, 1, careful, panel);
	for (int64_t i = 0; i < panel; i++) {
		for (int64_t d = 0; d < dim; d++)
			scratch->half_key[d] = packed[(d / 2 * panel + i) * 2 + d % 2];
		if (is_safe(query->lowest, lowest_exponent(scratch->half_key, dim)))
			continue;
		for (int64_t u = 0; u < query->heads / query->group_heads; u++)
			scores[u * OMP_STRIP + i] = careful[u * panel + i];
	}
}

void omp_half_score(const struct omp_select *select, struct omp_select_scratch *scratch,
		    const struct omp_query *query, int64_t p, int64_t panels, float *scores)
{
	const int64_t panel = select->isa->panel, size = panel * select->half_dim;
	const uint16_t *packed = select->entries.halves + p * size;
	select->isa->score_half(query, packed, panels, scores, OMP_STRIP);
	for (int64_t i = 0; i < panels; i++)
		if (!is_safe(query->lowest, select->entries.lowest[p + i]))
			score_carefully(select, scratch, query, packed + i * size,
					scores + i * panel);
}
