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

/* Turns dot products into shares. Work-group: heads_item_of. */
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void
softmax(int start, struct logit logit, __global uchar *work, struct operands at, struct running run,
	struct tile tile)
{
	SLICE_PARTS;
	const struct heads_item item = heads_item_of(&tile);
	const int count = item.real ? WORK(int, at.count)[list_of(&tile, item.cell)] : 0;
	const long place = (long)item.cell * tile.pitch + (item.real ? item.h : 0);
	__global float *weights = WORK(float, at.weights) + cell_weights(&tile, item.cell) + item.h;
	const bool fresh = start || !writes(&item);
	const heads_t before =
		fresh ? (heads_t)(NEGATIVE_INFINITY) : LOAD_HEADS(WORK(float, run.most) + place);
	const heads_t sum_before =
		fresh ? (heads_t)(0.0f) : LOAD_HEADS(WORK(float, run.sum) + place);
	heads_t most = largest_logit(&logit, weights, tile.pitch, count, item.slice, true), sum;
	most = fmax(before, most);
	most = LARGEST_OF_SLICES(most);
	sum = sum_shares(&logit, weights, tile.pitch, count, item.slice, true, most);
	sum = SUM_OF_SLICES(sum);
	if (writes(&item)) {
		const heads_t factor = share_of(before, most);
		STORE_HEADS(most, WORK(float, run.most) + place);
		STORE_HEADS(sum_before * factor + sum, WORK(float, run.sum) + place);
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
