/* attention_forward.cl - softmax attention over the rows of each (row, group).
 *
 * Per chunk of positions: scores, softmax against the running maximum, combine; at the end
 * the division. Options: VARIANT and those of its products. */
#include "attention_logit.clh"
#include "attention_rows.clh"

/* Bytes behind the start of the workspace; f32 [rows][bundles][pitch] each. */
struct running {
	long most;   /* largest logit so far */
	long sum;    /* of exp(logit - most) */
	long factor; /* what the sums so far are to be multiplied by */
};

#define SUM_BLOCK 64 /* shares summed before they join the total: keeps rounding small */

/* Turns dot products into shares. Work-item: (cell, LANES heads). */
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void
softmax(int start, struct logit logit, __global uchar *work, struct operands at, struct running run,
	struct tile tile)
{
	const int vectors = tile.pitch / LANES;
	const int item = (int)get_global_id(0);
	const int cell = item / vectors, h = item % vectors * LANES;
	if (cell < tile.rows * tile.bundles) {
		const int count = WORK(int, at.count)[list_of(&tile, cell)];
		const long place = (long)cell * tile.pitch + h;
		__global float *weights = WORK(float, at.weights) + cell_weights(&tile, cell) + h;
		__global float *most_at = WORK(float, run.most) + place;
		__global float *sum_at = WORK(float, run.sum) + place;
		const heads_t before = start ? (heads_t)(NEGATIVE_INFINITY) : LOAD_HEADS(most_at);
		heads_t most = before, sum = 0.0f, factor;
		for (int p = 0; p < count; p++) {
			__global float *weight = weights + (long)p * tile.pitch;
			const heads_t l = logit_of(&logit, LOAD_HEADS(weight));
			STORE_HEADS(l, weight);
			most = fmax(most, l);
		}
		factor = share_of(before, most);
		if (!start)
			sum = LOAD_HEADS(sum_at) * factor;
		for (int p0 = 0; p0 < count; p0 += SUM_BLOCK) {
			heads_t part = 0.0f;
			for (int p = p0; p < min(count, p0 + SUM_BLOCK); p++) {
				__global float *weight = weights + (long)p * tile.pitch;
				const heads_t share = share_of(LOAD_HEADS(weight), most);
				STORE_HEADS(share, weight);
				part += share;
			}
			sum += part;
		}
		STORE_HEADS(most, most_at);
		STORE_HEADS(sum, sum_at);
		STORE_HEADS(factor, WORK(float, run.factor) + place);
	}
}

/* Divides and stores. Work-group: one head of a row. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
finish(__global void *o, long4 o_at, int type, int channels, int width, __global float *lse,
       long4 lse_at, const __global float *sink, long4 sink_at, struct row_map map,
       __global uchar *work, struct operands at, struct running run, struct tile tile)
{
	const int head = (int)get_group_id(0) % tile.heads;
	const int r = (int)get_group_id(0) / tile.heads;
	const long row = row_of(&map, r);
	const long cell = (long)r * tile.bundles + head / tile.bundle;
	const int h = head % tile.bundle;
	const float most = WORK(float, run.most)[cell * tile.pitch + h];
	const float sum = WORK(float, run.sum)[cell * tile.pitch + h];
	const __global float *from =
		WORK(float, at.sums) + cell_vectors(&tile, cell, width) + (long)h * width;
	const long to = o_at.s0 + row * o_at.s1 + head * o_at.s2;
	float whole = sum;
	if (PRESENT(sink_at))
		whole += exp(sink[sink_at.s0 + head] - most);
	for (int c = (int)get_local_id(0); c < channels; c += 64)
		store(o, to + c, type, most == NEGATIVE_INFINITY ? 0.0f : from[c] / whole);
	if (get_local_id(0) == 0 && PRESENT(lse_at))
		lse[lse_at.s0 + row * lse_at.s1 + head * lse_at.s2] =
			fabs(most) == INFINITY ? most : most + log(sum);
}
