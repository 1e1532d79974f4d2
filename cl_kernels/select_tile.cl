/* select_tile.cl - select with tiles of heads x keys in local memory, for GPUs.
 *
 * A work-group of 64 scores TILE_KEYS keys for one row and group. Work-items form a grid
 * of HEAD_ITEMS x KEY_ITEMS; each holds the products of ITEM_HEADS heads and ITEM_KEYS
 * keys in registers, while DEPTH channels at a time lie in local memory.
 * Options besides those of select_common.clh: HEAD_ITEMS, ITEM_HEADS, ITEM_KEYS; KEY_ALIGN is 1. */
#include "select_pick.clh"

#define DEPTH 8
#define KEY_ITEMS (64 / HEAD_ITEMS)
#define TILE_KEYS (KEY_ITEMS * ITEM_KEYS)
#define TILE_HEADS (HEAD_ITEMS * ITEM_HEADS)

struct tile {
	__local float *q;    /* [DEPTH][TILE_HEADS] */
	__local float *k;    /* [DEPTH][TILE_KEYS] */
	__local float *sums; /* [HEAD_ITEMS][TILE_KEYS] */
	__local int *key;    /* [TILE_KEYS] which keys; -1 = none */
};

#define TILE                                                                 \
	__local float tile_q[DEPTH * TILE_HEADS], tile_k[DEPTH * TILE_KEYS]; \
	__local float tile_sums[HEAD_ITEMS * TILE_KEYS];                     \
	__local int tile_key[TILE_KEYS];                                     \
	struct tile tile = {tile_q, tile_k, tile_sums, tile_key};

/* Loads DEPTH channels of the tile's heads and keys; what is not there is 0. */
INLINE void load_tile(const struct scoring *sc, const struct tile *tile, const __global void *q,
		      long4 q_at, const __global float *q_scale, long4 q_scale_at,
		      const struct keys *keys, long row, int head, int head_end, int depth)
{
	int item = (int)get_local_id(0);
	for (int i = item; i < DEPTH * TILE_HEADS; i += 64) {
		int j = head + i / DEPTH, d = depth + i % DEPTH;
		bool there = j < head_end && d < sc->dim;
		tile->q[i % DEPTH * TILE_HEADS + i / DEPTH] =
			there ? load_q(q, q_at, q_scale, q_scale_at, row, j, d) : 0.0f;
	}
	for (int i = item; i < DEPTH * TILE_KEYS; i += 64) {
		int key = tile->key[i / DEPTH], d = depth + i % DEPTH;
		bool there = key >= 0 && d < sc->dim;
		tile->k[i % DEPTH * TILE_KEYS + i / DEPTH] = there ? load_k(keys, key, d) : 0.0f;
	}
}

/* Scores of the keys in tile->key, into tile->sums[0 .. TILE_KEYS). With `active` false
 * it does nothing but pass the barriers that all must pass. */
INLINE void score_tile(const struct scoring *sc, const struct tile *tile, bool active,
		       const __global void *q, long4 q_at, const __global float *q_scale,
		       long4 q_scale_at, const __global float *w, long4 w_at,
		       const struct keys *keys, long row, int group)
{
	/* Unsigned: PoCL 5.0 loses what depends on a signed quotient of the work-item's number. */
	const uint number = (uint)get_local_id(0);
	int item = (int)number;
	int head_item = (int)(number / KEY_ITEMS), key_item = (int)(number % KEY_ITEMS);
	int head_end = (group + 1) * sc->group_heads;
	float sums[ITEM_KEYS];
	for (int n = 0; n < ITEM_KEYS; n++)
		sums[n] = 0.0f;
	for (int head = group * sc->group_heads; head < (active ? head_end : 0);
	     head += TILE_HEADS) {
		float dots[ITEM_HEADS][ITEM_KEYS];
		for (int m = 0; m < ITEM_HEADS; m++)
			for (int n = 0; n < ITEM_KEYS; n++)
				dots[m][n] = 0.0f;
		for (int depth = 0; depth < sc->dim; depth += DEPTH) {
			load_tile(sc, tile, q, q_at, q_scale, q_scale_at, keys, row, head, head_end,
				  depth);
			barrier(CLK_LOCAL_MEM_FENCE);
			for (int d = 0; d < DEPTH; d++)
				for (int m = 0; m < ITEM_HEADS; m++)
					for (int n = 0; n < ITEM_KEYS; n++)
						dots[m][n] =
							FMA(tile->q[d * TILE_HEADS +
								    head_item * ITEM_HEADS + m],
							    tile->k[d * TILE_KEYS + key_item +
								    n * KEY_ITEMS],
							    dots[m][n]);
			barrier(CLK_LOCAL_MEM_FENCE);
		}
		for (int m = 0; m < ITEM_HEADS; m++) {
			int j = head + head_item * ITEM_HEADS + m;
			float weight = j < head_end ? load_w(w, w_at, row, j) : 0.0f;
			for (int n = 0; n < ITEM_KEYS; n++)
				sums[n] = j < head_end ? FMA(weight,
							     activate(*sc, sc->scale * dots[m][n]),
							     sums[n])
						       : sums[n];
		}
	}
	for (int n = 0; n < ITEM_KEYS; n++)
		tile->sums[head_item * TILE_KEYS + key_item + n * KEY_ITEMS] = sums[n];
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int n = item; n < TILE_KEYS; n += 64) {
		float sum = tile->sums[n];
		for (int m = 1; m < HEAD_ITEMS; m++)
			sum += tile->sums[m * TILE_KEYS + n];
		tile->sums[n] = sum;
	}
	barrier(CLK_LOCAL_MEM_FENCE);
}

/* Work-groups: tiles of keys, rows * groups. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
score_keys(SCORE_ARGS, KEY_ARGS, __global uchar *lines, long lines_at, long line_size)
{
	TILE struct keys keys = keys_of(sc, k, k_at, k_scale, k_scale_at, means, means_at);
	long line = (long)get_group_id(1), row = row_first + line / sc.groups;
	int2 seen = KEY_INTERVAL(row);
	int place = (int)get_group_id(0) * TILE_KEYS, first = line_first(seen.x) + place;
	for (int n = (int)get_local_id(0); n < TILE_KEYS; n += 64)
		tile.key[n] = first + n < seen.y ? first + n : -1;
	barrier(CLK_LOCAL_MEM_FENCE);
	score_tile(&sc, &tile, first < seen.y, q, q_at, q_scale, q_scale_at, w, w_at, &keys, row,
		   (int)(line % sc.groups));
	for (int n = (int)get_local_id(0); n < TILE_KEYS; n += 64)
		if (tile.key[n] >= 0)
			WORK(float, lines)[line * line_size + place + n] = tile.sums[n];
}

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
