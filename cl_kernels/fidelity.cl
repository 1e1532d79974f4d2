/* fidelity.cl - how much of dense attention a selection captures.
 *
 * Sampled row i of a tile is row first + i * step of the call; a line holds the dense
 * mass of each key that one (sampled row, group) sees, from its first on.
 * Options: Q_TYPE, HEADS, KV_HEADS, HEAD_DIM, GROUPS, SCALE, SOFTCAP (0 = none), SPAN and
 * STEP (key rows of an index, least distance of two), POOLED (indices are entries),
 * WINDOW, FIRST. */
#include "common.clh"

#define GROUP_HEADS (HEADS / GROUPS)

/* ---- over a work-group of 64 ---- */

INLINE float group_sum(float value, __local float *scratch)
{
	int item = (int)get_local_id(0);
	scratch[item] = value;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int step = 32; step > 0; step /= 2) {
		if (item < step)
			scratch[item] += scratch[item + step];
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	float sum = scratch[0];
	barrier(CLK_LOCAL_MEM_FENCE);
	return sum;
}

/* NaN if one is. */
INLINE float group_max(float value, __local float *scratch)
{
	int item = (int)get_local_id(0);
	scratch[item] = value;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int step = 32; step > 0; step /= 2) {
		if (item < step && !(scratch[item] >= scratch[item + step]) &&
		    !isnan(scratch[item]))
			scratch[item] = scratch[item + step];
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	float high = scratch[0];
	barrier(CLK_LOCAL_MEM_FENCE);
	return high;
}

static inline float logit(const __global void *q, long q_from, const __global void *k, long k_from)
{
	float dot = 0.0f;
	for (int d = 0; d < HEAD_DIM; d++)
		dot = FMA(load(q, q_from + d, Q_TYPE), load(k, k_from + d, Q_TYPE), dot);
	float l = SCALE * dot;
	return SOFTCAP > 0.0f ? SOFTCAP * tanh(l / (SOFTCAP > 0.0f ? SOFTCAP : 1.0f)) : l;
}

/* Mean over the heads of a group of the dense softmax. Work-groups: groups, sampled rows. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
dense_mass(const __global void *q, long4 q_at, const __global void *k, long4 k_at,
	   const __global int *row_begin, long row_begin_at, const __global int *row_end,
	   long row_end_at, long first, long step, __global uchar *lines, long lines_at,
	   __global uchar *logits, long logits_at, long line_size)
{
	__local float scratch[64];
	int item = (int)get_local_id(0), group = (int)get_group_id(0);
	long row = first + (long)get_group_id(1) * step;
	long line = (long)get_group_id(1) * GROUPS + group;
	__global float *mass = (__global float *)(lines + lines_at) + line * line_size;
	__global float *l = (__global float *)(logits + logits_at) + line * line_size;
	long begin = row_begin[row_begin_at + row];
	long count = row_end[row_end_at + row] - begin;
	for (long p = item; p < count; p += 64)
		mass[p] = 0.0f;
	for (int h = group * GROUP_HEADS; h < (group + 1) * GROUP_HEADS; h++) {
		long q_from = q_at.s0 + row * q_at.s1 + h * q_at.s2;
		long k_from = k_at.s0 + begin * k_at.s1 + h / (HEADS / KV_HEADS) * k_at.s2;
		float high = NEGATIVE_INFINITY, sum = 0.0f;
		for (long p = item; p < count; p += 64) {
			l[p] = logit(q, q_from, k, k_from + p * k_at.s1);
			high = l[p] > high || isnan(l[p]) ? l[p] : high;
		}
		high = group_max(high, scratch);
		for (long p = item; p < count; p += 64)
			sum += high == NEGATIVE_INFINITY ? 0.0f : exp(l[p] - high);
		sum = group_sum(sum, scratch) * (float)GROUP_HEADS;
		for (long p = item; p < count; p += 64)
			mass[p] += high == NEGATIVE_INFINITY ? 0.0f : exp(l[p] - high) / sum;
	}
}

/* ---- what of it a selection has ---- */

/* What one (row, group) sees and selected. */
struct row {
	const __global float *mass; /* [end - begin] */
	const __global int *indices;
	int topk;
	int begin, first_end, window_begin, end;
	int key_origin, entry_origin;
};

static inline float sum_between(const struct row *r, long from, long to)
{
	float sum = 0.0f;
	for (long s = from; s < to; s++)
		sum += r->mass[s - r->begin];
	return sum;
}

/* Of the rows that indices stand for, without those of the first and window segments. An
 * index counts unless it is below the last that did plus STEP. */
static inline float indexed_mass(const struct row *r)
{
	float sum = 0.0f;
	long least = 0;
	for (int slot = 0; slot < r->topk; slot++) {
		long i = r->indices[slot];
		long from = POOLED ? r->key_origin + (i - r->entry_origin) * SPAN : i;
		if (i < least || max(from, (long)r->begin) >= min(from + SPAN, (long)r->end))
			continue;
		least = i + STEP;
		sum += sum_between(r, max(from, (long)r->first_end),
				   min(from + SPAN, (long)r->window_begin));
	}
	return sum;
}

INLINE float captured_mass(const struct row *r, __local float *scratch)
{
	int item = (int)get_local_id(0);
	float sum = 0.0f;
	for (int s = r->begin + item; s < r->first_end; s += 64)
		sum += r->mass[s - r->begin];
	for (int s = r->window_begin + item; s < r->end; s += 64)
		sum += r->mass[s - r->begin];
	if (item == 0)
		sum += indexed_mass(r);
	return group_sum(sum, scratch);
}

/* Sum of the masses whose bits are at least `least`; *count = how many they are. */
INLINE float mass_from(const struct row *r, uint least, int *count, __local float *scratch)
{
	int number = 0;
	float sum = 0.0f;
	for (int p = (int)get_local_id(0); p < r->end - r->begin; p += 64) {
		bool counts = as_uint(r->mass[p]) >= least;
		sum += counts ? r->mass[p] : 0.0f;
		number += counts;
	}
	/* exact: fewer than 2^24 keys in each half */
	float low = group_sum((float)(number & 4095), scratch);
	float high = group_sum((float)(number >> 12), scratch);
	*count = (int)high * 4096 + (int)low;
	return group_sum(sum, scratch);
}

/* Fewest keys whose masses, largest first, reach `target`; all if they do not. Masses are
 * not negative, so that their bits are ordered as they are. */
INLINE int keys_needed(const struct row *r, float target, __local float *scratch)
{
	int count = 0, all = 0;
	uint least = 0;
	if (!(mass_from(r, 0, &count, scratch) >= target))
		return r->end - r->begin;
	for (uint bit = 0x40000000u; bit > 0; bit >>= 1)
		if (mass_from(r, least | bit, &count, scratch) >= target)
			least |= bit;
	mass_from(r, least, &all, scratch);
	float above = mass_from(r, least + 1, &count, scratch);
	/* Of those that have the least mass; sums are rounded, so that it may seem to take more
	 * than there are. */
	float equal = ceil((target - above) / as_float(least));
	return count + (int)clamp(equal, 1.0f, (float)(all - count));
}

/* A walk over the slots that count, by the rule of indexed_mass. */
struct walk {
	const __global int *slots;
	int count, slot;
	long least;
	long index; /* -1 at the end */
};

static inline void walk_on(const struct row *r, struct walk *walk)
{
	walk->index = -1;
	while (walk->index < 0 && walk->slot < walk->count) {
		long i = walk->slots[walk->slot++];
		long from = POOLED ? r->key_origin + (i - r->entry_origin) * SPAN : i;
		bool seen = max(from, (long)r->begin) < min(from + SPAN, (long)r->end);
		walk->index = i >= walk->least && seen ? i : -1;
	}
	walk->least = walk->index + STEP;
}

/* Both lists ascend: one pass, for one item of the work-group. */
static inline float recall_of(const struct row *r, const __global int *reference, int count)
{
	struct walk have = {r->indices, r->topk, 0, 0, 0}, want = {reference, count, 0, 0, 0};
	int wanted = 0, found = 0;
	walk_on(r, &have);
	for (walk_on(r, &want); want.index >= 0; walk_on(r, &want)) {
		while (have.index >= 0 && have.index < want.index)
			walk_on(r, &have);
		wanted++;
		found += have.index == want.index;
	}
	return wanted > 0 ? (float)found / (float)wanted : 1.0f;
}

/* Work-groups: groups, sampled rows. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
judge(const __global int *indices, long4 indices_at, int topk, const __global int *reference,
      long4 reference_at, int reference_topk, const __global int *row_begin, long row_begin_at,
      const __global int *row_end, long row_end_at, const __global int *key_origin,
      long key_origin_at, const __global int *entry_origin, long entry_origin_at, long first,
      long step, const __global uchar *lines, long lines_at, long line_size, float target,
      __global float *mass, long4 mass_at, __global float *recall, long4 recall_at,
      __global int *needed, long4 needed_at)
{
	__local float scratch[64];
	int group = (int)get_group_id(0);
	long row = first + (long)get_group_id(1) * step;
	long line = (long)get_group_id(1) * GROUPS + group;
	struct row r;
	r.mass = (const __global float *)(lines + lines_at) + line * line_size;
	r.indices = indices + indices_at.s0 + row * indices_at.s1 + group * indices_at.s2;
	r.topk = topk;
	r.begin = row_begin[row_begin_at + row];
	r.end = max(row_end[row_end_at + row], r.begin);
	r.first_end = (int)min((long)r.begin + FIRST, (long)r.end);
	r.window_begin = (int)max((long)r.end - WINDOW, (long)r.first_end);
	r.key_origin = key_origin[key_origin_at + row];
	r.entry_origin = entry_origin[entry_origin_at + row];

	float captured = PRESENT(mass_at) ? captured_mass(&r, scratch) : 0.0f;
	int keys = PRESENT(needed_at) ? keys_needed(&r, target, scratch) : 0;
	if (get_local_id(0) != 0)
		return;
	if (PRESENT(mass_at))
		mass[mass_at.s0 + row * mass_at.s1 + group] = r.end > r.begin ? captured : 1.0f;
	if (PRESENT(recall_at))
		recall[recall_at.s0 + row * recall_at.s1 + group] =
			recall_of(&r,
				  reference + reference_at.s0 + row * reference_at.s1 +
					  group * reference_at.s2,
				  reference_topk);
	if (PRESENT(needed_at))
		needed[needed_at.s0 + row * needed_at.s1 + group] = keys;
}
