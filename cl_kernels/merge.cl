/* merge.cl - attention over two disjoint key sets becomes that over both.
 * Options: O_TYPE, HEADS, VALUE_DIM. */
#include "common.clh"

/* Of two parts with lse -inf each, neither counts: then both shares are 0. */
static inline float share_of(float part, float whole)
{
	return part == NEGATIVE_INFINITY ? 0.0f : exp(part - whole);
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
merge(const __global void *o_a, long4 o_a_at, const __global void *o_b, long4 o_b_at,
      const __global float *lse_a, long4 lse_a_at, const __global float *lse_b, long4 lse_b_at,
      __global void *o, long4 o_at, __global float *lse, long4 lse_at)
{
	long row = (long)get_group_id(0) / HEADS, head = (long)get_group_id(0) % HEADS;
	float a = lse_a[lse_a_at.s0 + row * lse_a_at.s1 + head * lse_a_at.s2];
	float b = lse_b[lse_b_at.s0 + row * lse_b_at.s1 + head * lse_b_at.s2];
	float both = log_add_exp(a, b);
	float share_a = share_of(a, both), share_b = share_of(b, both);
	long from_a = o_a_at.s0 + row * o_a_at.s1 + head * o_a_at.s2;
	long from_b = o_b_at.s0 + row * o_b_at.s1 + head * o_b_at.s2;
	long to = o_at.s0 + row * o_at.s1 + head * o_at.s2;
	for (int c = (int)get_local_id(0); c < VALUE_DIM; c += 64) {
		/* A part without keys may hold anything, NaN included; a share that is NaN
		 * counts. */
		float value = 0.0f;
		if (share_a != 0.0f)
			value = share_a * load(o_a, from_a + c, O_TYPE);
		if (share_b != 0.0f)
			value = FMA(share_b, load(o_b, from_b + c, O_TYPE), value);
		store(o, to + c, O_TYPE, value);
	}
	if (PRESENT(lse_at) && get_local_id(0) == 0)
		lse[lse_at.s0 + row * lse_at.s1 + head * lse_at.s2] = both;
}
