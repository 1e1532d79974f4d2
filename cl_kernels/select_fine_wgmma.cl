/* select_fine_wgmma.cl - coarse_to_fine by wgmma (sm_90), for bf16: scores of coarse blocks' means and of
 * the entries of kept blocks, and the choice among these.
 *
 * A work-group scores for one line, a (row, group): its heads stay in local memory, 64 keys after another
 * pass through a ring of tiles there, which one warpgroup fills and the other multiplies. Several
 * work-groups share a compute unit. Means are f32: each is scored as the sum of two bf16, the second what
 * the first leaves.
 * Options besides those of select_pick.clh: GROUP_HEADS, DIM, COARSE (entries of a coarse block),
 * ACTIVATION, LOCAL_BYTES. */
#include "select_pick.clh"

#define ORDER_ITEMS 512
#define HELD 17 /* 64 blocks of 128 entries and one at the end */
#include "select_order.clh"

#define ELEMENT_TYPE INDEX_TYPE
#include "select_heads.clh"

#define ITEMS 256 /* one warpgroup multiplies, the other copies */
#define TILE_KEYS 64
#define TILE_BYTES (TILE_KEYS * ROW_BYTES)
#define SLOTS (ROW_BYTES == 256 ? 6 : 8) /* 4 that are multiplied and PENDING */
#define PENDING 2 /* tiles that are copied ahead of the one that is handed over */
#define TILES_AT_ONCE 4 /* with all products of these in straight line; scores come in whole ones */

/* ---- means ---- */

#define SMALL 0x1p-64f /* means that are smaller are multiplied by its inverse, for bf16's sake */

/* The largest of 64 numbers that are not negative. */
INLINE float most_of_64(float own, __local uint *most)
{
	const uint item = (uint)get_local_id(0), bits = most_of_warp(as_uint(own));
	if (item % 32u == 0)
		most[item / 32u] = bits;
	barrier(CLK_LOCAL_MEM_FENCE);
	return as_float(max(most[0], most[1]));
}

/* Splits means: `parts` [2][keys][DIM], then f32 [keys], which their scores are multiplied by.
 * Work-groups: means. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
split_means(const __global uchar *means, long means_at, __global uchar *parts, long parts_at)
{
	__local uint most[2];
	const long mean = (long)get_group_id(0), count = (long)get_num_groups(0) * DIM;
	const __global float *from = WORK(const float, means) + mean * DIM;
	__global ushort *high = WORK(ushort, parts) + mean * DIM, *low = high + count;
	float own = 0.0f;
	for (int d = (int)get_local_id(0); d < DIM; d += 64)
		own = fmax(own, fabs(from[d])); /* not of NaN */
	const float scale = most_of_64(own, most) < SMALL ? 1.0f / SMALL : 1.0f;
	for (int d = (int)get_local_id(0); d < DIM; d += 64) {
		const float x = from[d] * scale;
		ushort bits = round_bf16(x);
		/* what rounds to infinity, but is none, is cut instead */
		if (isfinite(x) && (bits & 0x7f80u) == 0x7f80u)
			bits = (ushort)(as_uint(x) >> 16);
		high[d] = bits;
		low[d] = isfinite(x) ? round_bf16(x - as_float((uint)bits << 16)) : 0;
	}
	if (get_local_id(0) == 0)
		((__global float *)(WORK(ushort, parts) + 2 * count))[mean] = 1.0f / scale;
}

/* ---- scoring ---- */

struct ring {
	uint tiles, heads, full, empty; /* addresses */
};

INLINE struct ring lay_out(__local uchar *memory)
{
	const uint at = local_address(memory);
	const uint barriers = at + SLOTS * TILE_BYTES + PACKED_BYTES;
	const struct ring ring = {at, at + SLOTS * TILE_BYTES, barriers, barriers + SLOTS * 8u};
	if (get_local_id(0) == 0) {
		for (uint i = 0; i < SLOTS; i++) {
			barrier_init(ring.full + i * 8u, 128);
			barrier_init(ring.empty + i * 8u, 4);
		}
		ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	return ring;
}

/* Where the keys are that a line scores: bytes, bytes apart. Place p of `count` is row p of them, or, with
 * a list, entry p % COARSE of the block that starts at list[p / COARSE]; `least` and `most` are the first
 * and the last that may be read. With `parts` 2, what is added to a key's row lies `part_bytes` behind, and
 * scores are multiplied by scales[p]. */
struct source {
	const __global uchar *first;
	long pitch, part_bytes;
	const __global int *list;
	int count, parts, least, most;
	const __global float *scales;
};

static inline int tiles_of(const struct source *from)
{
	return divide_up(from->count, TILE_KEYS * TILES_AT_ONCE) * TILES_AT_ONCE;
}

/* The key at row `own` of the tile that begins with place `place`, where key `first` is; past the last
 * place it is another, which nobody asks for. */
INLINE int key_of(const struct source *from, int place, int first, int own)
{
	int key = first + own;
	if (from->list && COARSE % TILE_KEYS != 0) { /* entries of several blocks */
		const int p = min(place + own, from->count - 1);
		key = from->list[p / COARSE] + p % COARSE;
	}
	return clamp(key, from->least, from->most);
}

/* Copies 64 keys. */
INLINE void copy_tile(uint tile, const struct source *from, int place, int part)
{
	const uint item = (uint)get_local_id(0) & 127u, chunk = item % CHUNKS;
	const int bytes = clamp(DIM * 2 - (int)chunk * 16, 0, 16), row = (int)(item / CHUNKS);
	const __global uchar *keys =
		from->first + part * from->part_bytes + (bytes ? chunk * 16u : 0u);
	const uint to = tile + chunk / 8u * (TILE_KEYS * 128) +
			swizzled((uint)row, chunk % 8u * 16u); /* the same every 8 rows */
	const int pitch = (int)from->pitch;
	const int first = from->list ? from->list[min(place, from->count - 1) / COARSE] +
					       place % COARSE
				     : place;
	if ((((long)from->first | from->pitch | from->part_bytes) & 15) == 0 &&
	    from->pitch == pitch) {
		UNROLL for (int i = 0; i < TILE_KEYS; i += 128 / CHUNKS)
			copy16(to + (uint)i * 128u,
			       keys + (long)key_of(from, place, first, row + i) * pitch,
			       (uint)bytes);
		return;
	}
	ROLLED for (int i = 0; i < TILE_KEYS; i += 128 / CHUNKS)
	{
		const uint4 x = load_chunk(
			keys + key_of(from, place, first, row + i) * from->pitch, bytes);
		const uint words[4] = {x.x, x.y, x.z, x.w};
		store_local_4(to + (uint)i * 128u, words);
	}
}

/* The next tile that was copied. */
INLINE void hand_over(const struct ring *ring, struct turn *handed)
{
	fence_async();
	barrier_arrive(ring->full + handed->at * 8u);
	next_turn(handed, SLOTS);
}

INLINE void produce(const struct ring *ring, const struct source *from)
{
	const int tiles = tiles_of(from) * from->parts;
	struct turn issued = {0, 1}, handed = {0, 0};
	for (int i = 0; i < tiles; i++) {
		barrier_wait(ring->empty + issued.at * 8u, issued.parity);
		copy_tile(ring->tiles + issued.at * TILE_BYTES, from, i / from->parts * TILE_KEYS,
			  i % from->parts);
		next_turn(&issued, SLOTS);
		copy_commit();
		COPY_WAIT(PENDING);
		if (i >= PENDING)
			hand_over(ring, &handed);
	}
	COPY_WAIT(0);
	for (int i = max(tiles - PENDING, 0); i < tiles; i++)
		hand_over(ring, &handed);
}

/* A line's heads, as products read them, by 128 work-items. */
INLINE void stage_heads(uint to, const __global uchar *heads, long pitch)
{
	for (uint i = (uint)get_local_id(0); i < COLUMNS * CHUNKS; i += 128) {
		const uint head = i / CHUNKS, chunk = i % CHUNKS;
		const int bytes = head < GROUP_HEADS ? clamp(DIM * 2 - (int)chunk * 16, 0, 16) : 0;
		const uint4 x = load_chunk(heads + (bytes ? head * pitch + chunk * 16u : 0), bytes);
		const uint words[4] = {x.x, x.y, x.z, x.w};
		store_local_4(to + chunk / 8u * COLUMN_HALF + swizzled(head, chunk % 8u * 16u),
			      words);
	}
	fence_async();
	GROUP_SYNC("1");
}

#define DECLARE_SUMS DECLARE_REGISTERS(REGISTERS_32("sa") ", " REGISTERS_32("sb"))

#define PRODUCTS(set, tile, heads, s, keep)                                                   \
	WGMMA_LOCAL(SHAPE "k16", SUMS(set),                                                   \
		    operand_at(tile, 0) + (s) / 4 * (TILE_KEYS * 8) + (s) % 4 * 2,            \
		    operand_at(heads, 0) + (s) / 4 * (COLUMN_HALF / 16) + (s) % 4 * 2, keep, "0", "0")

/* Starts the products of the next tile, of `parts` tiles. */
#define START(set, parts)                                                                \
	{                                                                                \
		uint tile_ = wait_tile(&ring, &taken);                                   \
		WGMMA_FENCE;                                                             \
		PRODUCTS(set, tile_, ring.heads, 0, "0");                                \
		UNROLL for (int s_ = 1; s_ < STEPS; s_++)                                \
			PRODUCTS(set, tile_, ring.heads, s_, "1");                       \
		if (parts > 1) {                                                         \
			tile_ = wait_tile(&ring, &taken);                                \
			WGMMA_FENCE;                                                     \
			UNROLL for (int s_ = 0; s_ < STEPS; s_++)                        \
				PRODUCTS(set, tile_, ring.heads, s_, "1");               \
		}                                                                        \
		WGMMA_COMMIT;                                                            \
	}

INLINE uint wait_tile(const struct ring *ring, struct turn *taken)
{
	const uint slot = taken->at;
	barrier_wait(ring->full + slot * 8u, taken->parity);
	next_turn(taken, SLOTS);
	return ring->tiles + slot * TILE_BYTES;
}

INLINE void release_tiles(const struct ring *ring, struct turn *released, int count, uint lane)
{
	for (int i = 0; i < count; i++) {
		warp_arrive(ring->empty + released->at * 8u, lane);
		next_turn(released, SLOTS);
	}
}

/* Weights of heads 8j + 2c and 8j + 2c + 1, times the scale. */
INLINE void weigh(struct scoring sc, const __global float *w, long4 w_at, long row, int group,
		  uint lane, float weights[16])
{
	UNROLL for (int i = 0; i < 16; i++)
	{
		const int j = i / 2 * 8 + (int)(lane & 3u) * 2 + i % 2;
		weights[i] =
			j < GROUP_HEADS
				? load_w(w, w_at, row, group * GROUP_HEADS + j) * sc.scale
				: 0.0f;
	}
}

/* Writes the scores of all places to `line`, whose length is a multiple of 64. */
#define CONSUME(parts)                                                                    \
	for (int tile = 0; tile < tiles; tile += TILES_AT_ONCE) {                         \
		float sums[2];                                                            \
		START("sa", parts)                                                        \
		UNROLL for (int t = 0; t < TILES_AT_ONCE; t += 2)                         \
		{                                                                         \
			START("sb", parts)                                                \
			WGMMA_WAIT(1);                                                    \
			release_tiles(&ring, &released, parts, lane);                     \
			SUM_HEADS("sa", sums[0])                                          \
			if (t + 2 < TILES_AT_ONCE) {                                      \
				START("sa", parts)                                        \
				WGMMA_WAIT(1);                                            \
			} else {                                                          \
				WGMMA_WAIT(0);                                            \
			}                                                                 \
			release_tiles(&ring, &released, parts, lane);                     \
			SUM_HEADS("sb", sums[1])                                          \
			const float score = sum_pairs(sums[0], sums[1], lane);            \
			const int place = (tile + t) * TILE_KEYS + own;                   \
			if (place < from.count)                                           \
				to[place] = parts > 1 ? score * from.scales[place] : score; \
		}                                                                         \
	}

/* The scores of a line's places, to `to`. */
#define SCORE_LINE(parts)                                                                       \
	LARGE_LOCAL(memory, LOCAL_BYTES)                                                        \
	const struct ring ring = lay_out(memory);                                               \
	const uint item = (uint)get_local_id(0), lane = item & 31u;                             \
	const int tiles = tiles_of(&from);                                                      \
	if (from.count <= 0)                                                                    \
		return;                                                                         \
	if (item >= 128u) {                                                                     \
		produce(&ring, &from);                                                          \
		return;                                                                         \
	}                                                                                       \
	/* of this work-item's score among those of two tiles */                                \
	const int own = (int)((lane >> 1 & 1u) * 64u + item / 32u * 16u + (lane & 1u) * 8u +     \
			      lane / 4u);                                                       \
	const int group = (int)(line % sc.groups);                                              \
	float weights[16];                                                                      \
	struct turn taken = {0, 0}, released = {0, 0};                                          \
	DECLARE_SUMS;                                                                           \
	stage_heads(ring.heads,                                                                 \
		    (const __global uchar *)q +                                                 \
			    2 * (q_at.s0 + row * q_at.s1 + (long)group * GROUP_HEADS * q_at.s2), \
		    2 * q_at.s2);                                                               \
	weigh(sc, w, w_at, row, group, lane, weights);                                          \
	CONSUME(parts)

/* As score_keys of select_tile.clh for means. Work-groups: 1, rows * groups. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
score_means(SCORE_ARGS, const __global int *coarse_base, long coarse_base_at,
	    const __global uchar *parts, long parts_at, long part_bytes, __global uchar *lines,
	    long lines_at, long line_size)
{
	GROUPS_A_UNIT(2);
	const long line = (long)get_group_id(1), row = row_first + line / sc.groups;
	const int2 seen = key_interval(TILE_ROW(row, sc.coarse), coarse_base + coarse_base_at + row);
	const struct source from = {parts + parts_at + (long)seen.x * (DIM * 2), DIM * 2, part_bytes, 0,
				    seen.y - seen.x, 2, 0, seen.y - seen.x - 1,
				    (const __global float *)(parts + parts_at + 2 * part_bytes) +
					    seen.x};
	__global float *to = WORK(float, lines) + line * line_size;
	SCORE_LINE(2)
}

/* As score_kept of select_tile.cl. Work-groups: 1, rows * groups. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
score_kept(SCORE_ARGS, const __global uchar *lists, long lists_at, int slots, __global uchar *lines,
	   long lines_at)
{
	GROUPS_A_UNIT(2);
	const long line = (long)get_group_id(1), row = row_first + line / sc.groups;
	const __global int *list = WORK(const int, lists) + line * (slots + 1);
	const struct tiling t = TILE_ROW(row, 1);
	const struct source from = {(const __global uchar *)k + 2 * k_at.s0, 2 * k_at.s1, 0, list + 1,
				    list[0] * COARSE, 1, t.begin, t.end - 1, 0};
	__global float *to = WORK(float, lines) + line * slots * COARSE;
	SCORE_LINE(1)
}

/* ---- the choice ---- */

#define HELD_ITEMS (HELD * ORDER_ITEMS)

/* Scores at positions [begin, end) of a line, whose positions are entries to choose from. */
INLINE void hold_line(const __global float *scores, int begin, int end, struct held *held)
{
	UNROLL for (int j = 0; j < HELD; j++)
	{
		const int p = begin + j * ORDER_ITEMS + (int)get_local_id(0);
		held->order[j] = load_word_now(scores + min(p, end - 1));
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	UNROLL for (int j = 0; j < HELD; j++)
	{
		const int p = begin + j * ORDER_ITEMS + (int)get_local_id(0);
		held->order[j] = order_of(as_float(held->order[j]));
		held->entry[j] = p < end ? p : -1;
	}
	limit_items(held);
}

static inline int entry_at(const __global int *list, int position)
{
	return list[position / COARSE] + position % COARSE;
}

/* Coarse to fine, last step, for entries (blocks of one): as pick_kept. */
__kernel __attribute__((reqd_work_group_size(ORDER_ITEMS, 1, 1))) void
choose_kept(ROW_ARGS, const __global uchar *lists, long lists_at, int slots,
	    const __global uchar *lines, long lines_at, __global uchar *flags, long flags_at,
	    int group_first, int topk, OUTPUT_ARGS)
{
	ORDER_LOCAL(scratch)
	const int group = group_first + (int)get_group_id(0), item = (int)get_local_id(0);
	const long line = (long)get_group_id(1) * sc.groups + group;
	const long row = row_first + (long)get_group_id(1);
	const __global int *list = WORK(const int, lists) + line * (slots + 1) + 1;
	const int kept = list[-1];
	const struct tiling t = TILE_ROW(row, 1);
	/* only the first and the last listed block can be partly visible */
	const int begin = kept ? max(0, t.begin - list[0]) : 0;
	const int end = kept ? (kept - 1) * COARSE + (int)min((long)t.end - list[kept - 1], (long)COARSE) : 0;
	const int count = max(end - begin, 0), want = min(topk, count);
	__global int *to = indices + indices_at.s0 + row * indices_at.s1 + group * indices_at.s2;
	__global float *to_scores =
		PRESENT(scores_at)
			? scores + scores_at.s0 + row * scores_at.s1 + group * scores_at.s2
			: 0;
	float lowest = NEGATIVE_INFINITY;
	if (want > 0) {
		const struct lists held_lists = {0, 0, 0, 1, count, true};
		struct held held;
		hold_line(WORK(const float, lines) + line * slots * COARSE, begin, end, &held);
		const struct order_stats stats = order_limits(&held_lists, &held, &scratch);
		const struct winners winners = {
			&held_lists, &held,
			find_last(&held_lists, &held, stats, want, begin, count, &scratch), begin,
			count};
		const uint chosen = map_winners(&winners, false, 0u, &scratch);
		for (uint first = 0; first < chosen; first += STAGED) {
			stage_ranks((uint)divide_up(count, 32), begin, first, &scratch);
			for (uint i = (uint)item; i < min(chosen - first, (uint)STAGED);
			     i += ORDER_ITEMS)
				to[first + i] = entry_at(list, scratch.staged[i]);
			barrier(CLK_LOCAL_MEM_FENCE);
		}
		if (to_scores)
			write_scores(&winners, 0u, to_scores, &scratch);
		if (stats.least == 0u && item == 0)
			atomic_or(&WORK(int, flags)[row], 1);
		lowest = score_of(winners.last.order);
	}
	for (int i = want + item; i < room; i += ORDER_ITEMS) {
		to[i] = -1;
		if (to_scores)
			to_scores[i] = 0.0f;
	}
	if (item == 0 && PRESENT(counts_at))
		counts[counts_at.s0 + row * counts_at.s1 + group] = want;
	if (item == 0 && PRESENT(kth_at))
		kth[kth_at.s0 + row * kth_at.s1 + group] = want < topk ? NEGATIVE_INFINITY : lowest;
}
