/* select_cpu.cl - select with vectors of keys, for processors.
 *
 * Keys are packed as panels of LANES keys, [panel][DIM][LANES] in f32, index_q as
 * [row][group][block of heads][DIM][BLOCK_HEADS]. One work-item, a work-group of its own,
 * holds the products of BLOCK_HEADS heads and VECTORS x 16 keys in registers.
 * Options besides those of select_common.clh: BLOCK_HEADS, VECTORS; KEY_ALIGN is LANES. */
#include "select_pick.clh"

#define LANES (16 * VECTORS)
#define HEAD_BLOCKS ((sc.group_heads + BLOCK_HEADS - 1) / BLOCK_HEADS)
#define Q_SIZE (HEAD_BLOCKS * sc.dim * BLOCK_HEADS) /* of a row and group */
#define PANEL_SIZE (sc.dim * LANES)

#define UNROLL _Pragma("unroll")
#define ROWS 8 /* of a work-item: its panel stays in the cache */

/* Keys [first, ...) up to `end`; lanes behind that are 0. */
static inline void pack_panel(struct scoring sc, const struct keys *keys, long first, long end,
			      __global float *panel)
{
	for (int lane = 0; lane < LANES; lane++)
		for (int d = 0; d < sc.dim; d++)
			panel[d * LANES + lane] =
				first + lane < end ? load_k(keys, first + lane, d) : 0.0f;
}

/* Work-items: panels of keys [key_first, key_end). */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
pack_keys(struct scoring sc, const __global void *k, long4 k_at, const __global float *k_scale,
	  long4 k_scale_at, const __global uchar *means, long means_at, long key_first,
	  long key_end, __global uchar *panels, long panels_at)
{
	struct keys keys = keys_of(sc, k, k_at, k_scale, k_scale_at, means, means_at);
	long panel = (long)get_group_id(0);
	pack_panel(sc, &keys, key_first + panel * LANES, key_end,
		   WORK(float, panels) + panel * PANEL_SIZE);
}

/* Work-items: blocks of heads of all groups, rows. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
pack_q(struct scoring sc, const __global void *q, long4 q_at, const __global float *q_scale,
       long4 q_scale_at, long row_first, __global uchar *packed, long packed_at)
{
	long row = (long)get_group_id(1), block = (long)get_group_id(0);
	int group = (int)block / HEAD_BLOCKS, first = (int)block % HEAD_BLOCKS * BLOCK_HEADS;
	__global float *to = WORK(float, packed) +
			     (row * sc.groups * HEAD_BLOCKS + block) * (sc.dim * BLOCK_HEADS);
	for (int h = 0; h < BLOCK_HEADS; h++)
		for (int d = 0; d < sc.dim; d++)
			to[d * BLOCK_HEADS + h] =
				first + h < sc.group_heads
					? load_q(q, q_at, q_scale, q_scale_at, row_first + row,
						 group * sc.group_heads + first + h, d)
					: 0.0f;
}

static inline float16 activate16(struct scoring sc, float16 x)
{
	return sc.relu ? select(x, (float16)(0.0f), x < (float16)(0.0f)) : x;
}

/* Scores of a panel for one row and group: sums[VECTORS]. */
static inline void score_panel(struct scoring sc, const __global float *q,
			       const __global float *panel, const __global float *w, long4 w_at,
			       long row, int group, float16 *sums)
{
	UNROLL
	for (uint v = 0; v < VECTORS; v++)
		sums[v] = (float16)(0.0f);
	for (int block = 0; block < HEAD_BLOCKS; block++) {
		float16 dots[BLOCK_HEADS][VECTORS];
		UNROLL
		for (int h = 0; h < BLOCK_HEADS; h++)
			UNROLL
		for (uint v = 0; v < VECTORS; v++)
			dots[h][v] = (float16)(0.0f);
		for (int d = 0; d < sc.dim; d++) {
			float16 key[VECTORS];
			UNROLL
			for (uint v = 0; v < VECTORS; v++)
				key[v] = vload16((uint)d * VECTORS + v, panel);
			UNROLL
			for (int h = 0; h < BLOCK_HEADS; h++)
				UNROLL
			for (uint v = 0; v < VECTORS; v++)
				dots[h][v] =
					FMA((float16)(q[(block * sc.dim + d) * BLOCK_HEADS + h]),
					    key[v], dots[h][v]);
		}
		UNROLL
		for (int h = 0; h < BLOCK_HEADS; h++) {
			int j = block * BLOCK_HEADS + h;
			if (j >= sc.group_heads)
				break;
			float16 weight =
				(float16)(load_w(w, w_at, row, group * sc.group_heads + j));
			UNROLL
			for (uint v = 0; v < VECTORS; v++)
				sums[v] =
					FMA(weight, activate16(sc, sc.scale * dots[h][v]), sums[v]);
		}
	}
}

/* Scores what lies in the packed keys [key_first, key_end). Work-items: panels counted
 * from a row's first, ROWS rows each of `rows`. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
score_panels(ROW_ARGS, const __global int *coarse_base, long coarse_base_at, long means_at,
	     const __global float *w, long4 w_at, const __global uchar *packed, long packed_at,
	     const __global uchar *panels, long panels_at, long key_first, long key_end, long rows,
	     __global uchar *lines, long lines_at, long line_size)
{
	long place = (long)get_group_id(0) * LANES;
	long r = (long)get_group_id(1) * ROWS, last = min(r + ROWS, rows);
	for (; r < last; r++) {
		int2 seen = KEY_INTERVAL(row_first + r);
		long key = line_first(seen.x) + place;
		if (key >= seen.y || key < key_first || key >= key_end)
			continue;
		for (int group = 0; group < sc.groups; group++) {
			long line = r * sc.groups + group;
			float16 sums[VECTORS];
			score_panel(sc, WORK(const float, packed) + line * Q_SIZE,
				    WORK(const float, panels) + (key - key_first) * sc.dim, w, w_at,
				    row_first + r, group, sums);
			for (uint v = 0; v < VECTORS; v++)
				vstore16(sums[v], v, WORK(float, lines) + line * line_size + place);
		}
	}
}

/* The entries of listed blocks, of panels that hold all entries or, without those, of one that
 * is packed here. Work-items: groups, rows; each has room to pack a panel. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
score_kept(ROW_ARGS, const __global void *k, long4 k_at, const __global float *k_scale,
	   long4 k_scale_at, const __global float *w, long4 w_at, const __global uchar *packed,
	   long packed_at, __global uchar *panels, long panels_at, const __global uchar *entries,
	   long entries_at, int all_packed, const __global uchar *lists, long lists_at, int slots,
	   __global uchar *lines, long lines_at)
{
	struct keys keys = {k, k_scale, k_at, k_scale_at, sc.dim, 0};
	int group = (int)get_group_id(0);
	long line = (long)get_group_id(1) * sc.groups + group;
	long row = row_first + (long)get_group_id(1);
	const __global int *list = WORK(const int, lists) + line * (slots + 1);
	long end = TILE_ROW(row, 1).end;
	__global float *own = WORK(float, panels) + line * PANEL_SIZE;
	for (int slot = 0; slot < list[0]; slot++) {
		long first = list[1 + slot], last = first + sc.coarse;
		__global float *to = WORK(float, lines) + (line * slots + slot) * sc.coarse;
		for (long key = all_packed ? first / LANES * LANES : first; key < min(last, end);
		     key += LANES) {
			const __global float *panel = own;
			if (all_packed)
				panel = WORK(const float, entries) + key * sc.dim;
			else
				pack_panel(sc, &keys, key, min(last, end), own);
			float16 sums[VECTORS];
			score_panel(sc, WORK(const float, packed) + line * Q_SIZE, panel, w, w_at,
				    row, group, sums);
			float scores[LANES];
			for (uint v = 0; v < VECTORS; v++)
				vstore16(sums[v], v, scores);
			for (long lane = max(0L, first - key); lane < min((long)LANES, last - key);
			     lane++)
				to[key + lane - first] = scores[lane];
		}
	}
}
