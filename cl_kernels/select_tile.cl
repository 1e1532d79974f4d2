/* select_tile.cl - select with tiles of heads x keys in local memory, for GPUs. */
#include "select_tile.clh"

/* Scores of complete coarse blocks from their products with index_q, [row][head][block].
 * Work-items: positions, rows * groups. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
score_products(ROW_ARGS, const __global int *coarse_base, long coarse_base_at,
	       const __global float *w, long4 w_at, const __global uchar *products,
	       long products_at, long blocks, __global uchar *lines, long lines_at, long line_size)
{
	const long means_at = 0;
	long line = (long)get_group_id(1), row = line / sc.groups, place = (long)get_global_id(0);
	int group = (int)(line % sc.groups);
	int2 seen = KEY_INTERVAL(row_first + row);
	long block = line_first(seen.x) + place;
	if (block >= seen.y)
		return;
	float sum = 0.0f;
	for (int j = group * sc.group_heads; j < (group + 1) * sc.group_heads; j++) {
		float dot = WORK(const float, products)[(row * sc.heads + j) * blocks + block];
		sum = FMA(load_w(w, w_at, row_first + row, j), activate(sc, sc.scale * dot), sum);
	}
	WORK(float, lines)[line * line_size + place] = sum;
}

/* Work-groups: tiles of entries of listed blocks, rows * groups. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
score_kept(SCORE_ARGS, const __global uchar *lists, long lists_at, int slots, __global uchar *lines,
	   long lines_at)
{
	TILE struct keys keys = {k, k_scale, k_at, k_scale_at, sc.dim, 0};
	long line = (long)get_group_id(1), row = row_first + line / sc.groups;
	const __global int *list = WORK(const int, lists) + line * (slots + 1);
	struct tiling t = TILE_ROW(row, 1);
	int first = (int)get_group_id(0) * TILE_KEYS, count = list[0] * sc.coarse;
	for (int n = (int)get_local_id(0); n < TILE_KEYS; n += 64) {
		int place = first + n;
		int entry = place < count ? list[1 + place / sc.coarse] + place % sc.coarse : -1;
		tile.key[n] = entry >= t.begin && entry < t.end ? entry : -1;
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	score_tile(&sc, &tile, first < count, q, q_at, q_scale, q_scale_at, w, w_at, &keys, row,
		   (int)(line % sc.groups));
	for (int n = (int)get_local_id(0); n < TILE_KEYS; n += 64)
		if (tile.key[n] >= 0)
			WORK(float, lines)[line * slots * sc.coarse + first + n] = tile.sums[n];
}
