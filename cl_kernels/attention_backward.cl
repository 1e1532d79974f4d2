/* attention_backward.cl - gradients of attention.
 *
 * With p the shares and dp = <v, grad_o>: ds = p * (dp - <o, grad_o>) * d logit / d dot,
 * dq = sum ds * k, dk = sum ds * q, dv = sum p * grad_o. Per chunk of positions p and ds are
 * recomputed into the workspace, then added up: per row for dq, per key and in the order
 * of rows for dk and dv. Options: VARIANT and those of its products. */
#include "attention_logit.clh"
#include "attention_rows.clh"
#include "gradient.clh"

/* Bytes behind the start of the workspace; f32 [rows][bundles][pitch] each. */
struct head_regions {
	long whole;  /* log of the softmax's denominator, +inf where nothing is attended to */
	long common; /* <o, grad_o> */
	long sink;   /* what the head adds to -dsink */
};

/* <o, grad_o> is summed exactly as `scores` sums <v, grad_o>: so a row that attends to one
 * key alone has gradients of exactly 0. */
#if VARIANT == VARIANT_MATRIX
/* By the unit, of which the diagonal is kept. Work-group: cell and tile of heads. */
UNIT_KERNEL void common_parts(const __global void *o, long4 o_at, int channels, int width,
			      struct row_map map, __global uchar *work, struct operands values,
			      struct head_regions at, struct tile tile)
{
	OPERAND_TILES;
	const int head_tiles = (tile.bundle + TILE_ROWS - 1) / TILE_ROWS;
	const int cell = (int)get_group_id(0) / head_tiles;
	const int h0 = (int)get_group_id(0) % head_tiles * TILE_ROWS, heads = tile.bundle - h0;
	const long row = row_of(&map, cell / tile.bundles);
	const long head = (long)(cell % tile.bundles) * tile.bundle + h0;
	const struct gathered from = {o_at.s0, o_at.s1, o_at.s2, UNIT_TYPE, channels, width, 0};
	const __global ushort *y =
		WORK(ushort, values.y) + cell_vectors(&tile, cell, width) + (long)h0 * width;
	for (int h = (int)get_local_id(0); h < TILE_COLUMNS; h += UNIT_GROUP)
		tiles.from[h] = h < min(heads, TILE_ROWS)
					? o_at.s0 + row * o_at.s1 + (head + h) * o_at.s2
					: -1;
	for (int c = 0; c < channels; c += CHUNK) {
		barrier(CLK_LOCAL_MEM_FENCE);
		put_vectors(&tiles, y, heads, width, c);
		put_gathered(&tiles, o, from, c);
		barrier(CLK_LOCAL_MEM_FENCE);
		multiply_tiles(unit, &tiles, ROW_TILES, sums);
	}
	UNIT_UNROLL
	for (int m = 0; m < ROW_TILES; m++)
		UNIT_UNROLL
	for (int n = 0; n < COLUMN_TILES; n++)
		UNIT_UNROLL
	for (int i = 0; i < UNIT_SUMS; i++) {
		const int h = m * UNIT_ROWS + sum_row(unit.lane, i);
		if (h < heads && h == first_column(unit, n) + sum_column(unit.lane, i))
			WORK(float, at.common)
		[(long)cell * tile.pitch + h0 + h] = SUM_OF(sums[m][n], i);
	}
}
#else
static inline float common_part(const __global void *o, long own, const __global void *grad_o,
				long grad, int type, int channels)
{
	float whole = 0.0f;
	for (int first = 0; first < channels; first += SCORE_DEPTH) {
		float sum = 0.0f;
		for (int c = first; c < min(channels, first + SCORE_DEPTH); c++)
			sum = FMA(load(o, own + c, type), load(grad_o, grad + c, type), sum);
		whole = first > 0 ? sum + whole : sum;
	}
	return whole;
}
#endif

/* What all positions of a head share. Work-item: one head, those of the padding too. */
__kernel void prepare(const __global void *o, long4 o_at, const __global void *grad_o,
		      long4 grad_o_at, int type, int channels, const __global float *lse,
		      long4 lse_at, const __global float *sink, long4 sink_at, struct row_map map,
		      __global uchar *work, struct head_regions at, struct tile tile)
{
	const int place = (int)get_global_id(0), h = place % tile.pitch, cell = place / tile.pitch;
	if (cell < tile.rows * tile.bundles) {
		const long row = row_of(&map, cell / tile.bundles);
		const int head = cell % tile.bundles * tile.bundle + h;
		const bool real = h < tile.bundle;
		const float own_lse = real ? lse[lse_at.s0 + row * lse_at.s1 + head * lse_at.s2]
					   : NEGATIVE_INFINITY;
		const float own_sink =
			real && PRESENT(sink_at) ? sink[sink_at.s0 + head] : NEGATIVE_INFINITY;
		const bool seen = own_lse != NEGATIVE_INFINITY;
		const float whole = seen ? log_add_exp(own_lse, own_sink) : INFINITY;
		float common = 0.0f;
#if VARIANT == VARIANT_MATRIX
		if (seen)
			common = WORK(float, at.common)[place];
#else
		if (seen)
			common =
				common_part(o, o_at.s0 + row * o_at.s1 + head * o_at.s2, grad_o,
					    grad_o_at.s0 + row * grad_o_at.s1 + head * grad_o_at.s2,
					    type, channels);
#endif
		WORK(float, at.whole)[place] = whole;
		WORK(float, at.common)[place] = common;
		WORK(float, at.sink)[place] = seen ? exp(own_sink - whole) * common : 0.0f;
	}
}

#define DIFFERENTIATE 128 /* positions of a work-group */

/* weights, scores: dot products to ds; weights, values: dp to p. Work-group: (cell,
 * DIFFERENTIATE positions). */
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void
differentiate(struct logit logit, __global uchar *work, struct operands scores_at,
	      struct operands values_at, struct head_regions at, struct tile tile)
{
	const long cell = (long)get_group_id(0);
	const int p0 = (int)get_group_id(1) * DIFFERENTIATE, vectors = tile.pitch / LANES;
	const int count = min(WORK(int, scores_at.count)[list_of(&tile, cell)] - p0, DIFFERENTIATE);
	const long start = cell_weights(&tile, cell) + (long)p0 * tile.pitch;
	__global float *dots = WORK(float, scores_at.weights) + start;
	__global float *shares = WORK(float, values_at.weights) + start;
	const __global float *wholes = WORK(float, at.whole) + cell * tile.pitch;
	const __global float *commons = WORK(float, at.common) + cell * tile.pitch;
	for (int e = (int)get_local_id(0); e < count * vectors; e += LOCAL) {
		const int h = e % vectors * LANES;
		const heads_t l = logit_of(&logit, LOAD_HEADS(dots + e * LANES));
		const heads_t share = exp(l - LOAD_HEADS(wholes + h));
		heads_t slope = share * (LOAD_HEADS(shares + e * LANES) - LOAD_HEADS(commons + h));
		if (logit.softcap > 0.0f)
			slope *= 1.0f - (l / logit.softcap) * (l / logit.softcap);
		STORE_HEADS(slope * logit.scale, dots + e * LANES);
		STORE_HEADS(share, shares + e * LANES);
	}
}

/* dq. Work-group: one head of a row. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
finish_rows(__global void *dq, long4 dq_at, int type, int channels, int width, int accumulate,
	    const __global float *lse, long4 lse_at, struct row_map map, __global uchar *work,
	    struct operands at, struct tile tile)
{
	const int head = (int)get_group_id(0) % tile.heads;
	const int r = (int)get_group_id(0) / tile.heads;
	const long row = row_of(&map, r);
	const long cell = (long)r * tile.bundles + head / tile.bundle;
	const __global float *from = WORK(float, at.sums) + cell_vectors(&tile, cell, width) +
				     (long)(head % tile.bundle) * width;
	const long to = dq_at.s0 + row * dq_at.s1 + head * dq_at.s2;
	const bool seen = lse[lse_at.s0 + row * lse_at.s1 + head * lse_at.s2] != NEGATIVE_INFINITY;
	for (int c = (int)get_local_id(0); c < channels; c += 64) {
		const float before = accumulate ? load(dq, to + c, type) : 0.0f;
		store(dq, to + c, type, before + (seen ? from[c] : 0.0f));
	}
}

/* Adds the tile's part to -dsink, as a pair of floats; `last` writes it out. Work-item: one
 * head. */
__kernel void add_sink(__global float *dsink, long4 dsink_at, int accumulate, int start, int last,
		       __global uchar *work, struct head_regions at, long sums_at, struct tile tile)
{
	const int head = (int)get_global_id(0);
	if (head < tile.heads) {
		__global float *pair = WORK(float, sums_at) + 2 * head;
		float sum = start ? 0.0f : pair[0], rest = start ? 0.0f : pair[1];
		for (int r = 0; r < tile.rows; r++) {
			const long cell = (long)r * tile.bundles + head / tile.bundle;
			add_to_pair(&sum, &rest,
				    WORK(float, at.sink)[cell * tile.pitch + head % tile.bundle]);
		}
		pair[0] = sum;
		pair[1] = rest;
		if (last) {
			const float before = accumulate ? dsink[dsink_at.s0 + head] : 0.0f;
			dsink[dsink_at.s0 + head] = before - (sum + rest);
		}
	}
}
