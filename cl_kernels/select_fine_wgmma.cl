/* select_fine_wgmma.cl - coarse_to_fine by wgmma (sm_90), for bf16: scores of coarse blocks' means and of
 * the entries of kept blocks, and the choice among these.
 *
 * A work-group scores for two lines, (row, group)s that follow each other: their heads stay in local memory, keys
 * pass through a ring of tiles there, which one warpgroup fills; each of two others multiplies what its line wants.
 * What both want is copied once. Two work-groups share a compute unit. Means are f32: each is scored as the sum of two bf16, the second what
 * the first leaves.
 * Options besides those of select_pick.clh: GROUP_HEADS, DIM, COARSE (entries of a coarse block),
 * ACTIVATION, LOCAL_BYTES. */
#include "select_pick.clh"

#define ORDER_ITEMS 512
#define HELD 17 /* 64 blocks of 128 entries and one at the end */
#include "select_order.clh"

#define ELEMENT_TYPE INDEX_TYPE
#include "select_heads.clh"

#define CONSUMERS 256 /* work-items of two warpgroups, each of which multiplies for a line */
#define ITEMS (CONSUMERS + 128)
#define TILE_KEYS 64
#define TILE_BYTES (TILE_KEYS * ROW_BYTES)
#define SLOTS (ROW_BYTES == 256 ? 5 : 8)
/* Tiles that are copied ahead of the one that is handed over: with those of a unit they must fit into the ring. */
#define PENDING(parts) ((parts) > 1 ? 1 : 2)
#define UNIT_KEYS (2 * TILE_KEYS) /* that are multiplied together */

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

/* Keys that are multiplied together, of which a slot holds a part: for which of the two lines (bits), -1 = the end;
 * of means, which the first of them is. */
struct unit {
	int lines, first;
};

struct ring {
	uint tiles, heads, full, empty; /* addresses */
	__local struct unit *units;	/* [SLOTS] */
};

INLINE struct ring lay_out(__local uchar *memory)
{
	const uint at = local_address(memory), heads = at + SLOTS * TILE_BYTES;
	const uint end = SLOTS * TILE_BYTES + 2 * PACKED_BYTES, full = at + end;
	const struct ring ring = {at, heads, full, full + SLOTS * 8u,
				  (__local struct unit *)(memory + end + 2 * SLOTS * 8)};
	if (get_local_id(0) == 0) {
		for (uint i = 0; i < SLOTS; i++) {
			barrier_init(ring.full + i * 8u, 128);
			barrier_init(ring.empty + i * 8u, CONSUMERS / 32);
		}
		ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	return ring;
}

/* Where the keys are that two lines score: bytes, bytes apart. Place p of `count` of a line is row begin + p, or, with
 * a list, entry p % COARSE of the block that starts at list[p / COARSE]; `least` and `most` are the first and the last
 * row that may be read. With `parts` 2, what is added to a key's row lies `part_bytes` behind. */
struct source {
	const __global uchar *first;
	long pitch, part_bytes;
	const __global int *list[2];
	int count[2], begin[2], parts, least, most;
};

/* The key at row `own` of the tile that begins with place `place`, where key `first` is; past the last
 * place it is another, which nobody asks for. */
INLINE int key_of(const struct source *from, const __global int *list, int count, int place,
		  int first, int own)
{
	int key = first + own;
	if (list && COARSE % TILE_KEYS != 0) { /* entries of several blocks */
		const int p = min(place + own, count - 1);
		key = list[p / COARSE] + p % COARSE;
	}
	return clamp(key, from->least, from->most);
}

/* Copies 64 keys: those from row `first` on, or, with a list of `count` entries, from a place on. */
INLINE void copy_tile(uint tile, const struct source *from, const __global int *list, int count,
		      int place, int first, int part)
{
	const uint item = (uint)get_local_id(0) & 127u, chunk = item % CHUNKS;
	const int bytes = clamp(DIM * 2 - (int)chunk * 16, 0, 16), row = (int)(item / CHUNKS);
	const __global uchar *keys =
		from->first + part * from->part_bytes + (bytes ? chunk * 16u : 0u);
	const uint to = tile + chunk / 8u * (TILE_KEYS * 128) +
			swizzled((uint)row, chunk % 8u * 16u); /* the same every 8 rows */
	const int pitch = (int)from->pitch;
	if (list)
		first = list[min(place, count - 1) / COARSE] + place % COARSE;
	if ((((long)from->first | from->pitch | from->part_bytes) & 15) == 0 &&
	    from->pitch == pitch) {
		UNROLL for (int i = 0; i < TILE_KEYS; i += 128 / CHUNKS) copy16(
			to + (uint)i * 128u,
			keys + (long)key_of(from, list, count, place, first, row + i) * pitch,
			(uint)bytes);
		return;
	}
	ROLLED for (int i = 0; i < TILE_KEYS; i += 128 / CHUNKS)
	{
		const uint4 x = load_chunk(
			keys + key_of(from, list, count, place, first, row + i) * from->pitch,
			bytes);
		const uint words[4] = {x.x, x.y, x.z, x.w};
		store_local_4(to + (uint)i * 128u, words);
	}
}

struct producer {
	struct turn issued, handed;
	int pending; /* issued, but not handed over */
};

/* The next tile that was copied. */
INLINE void hand_over(const struct ring *ring, struct producer *p)
{
	fence_async();
	barrier_arrive(ring->full + p->handed.at * 8u);
	next_turn(&p->handed, SLOTS);
	p->pending--;
}

/* Waits for the next slot, and says what it will hold. */
INLINE void begin_slot(const struct ring *ring, const struct producer *p, int lines, int first)
{
	barrier_wait(ring->empty + p->issued.at * 8u, p->issued.parity);
	if (((uint)get_local_id(0) & 127u) == 0) {
		ring->units[p->issued.at].lines = lines;
		ring->units[p->issued.at].first = first;
	}
}

INLINE void produce_unit(const struct ring *ring, struct producer *p, const struct source *from,
			 const __global int *list, int count, int place, int first, int lines)
{
	ROLLED for (int i = 0; i < 2 * from->parts; i++)
	{
		const int further = i / from->parts * TILE_KEYS;
		begin_slot(ring, p, lines, first);
		copy_tile(ring->tiles + p->issued.at * TILE_BYTES, from, list, count,
			  place + further, first + further, i % from->parts);
		next_turn(&p->issued, SLOTS);
		copy_commit();
		if (from->parts > 1)
			COPY_WAIT(1);
		else
			COPY_WAIT(2);
		if (++p->pending > PENDING(from->parts))
			hand_over(ring, p);
	}
}

INLINE void produce_end(const struct ring *ring, struct producer *p)
{
	COPY_WAIT(0);
	while (p->pending > 0)
		hand_over(ring, p);
	begin_slot(ring, p, -1, 0);
	p->pending++;
	hand_over(ring, p);
}

/* Rows of either line. */
INLINE void produce_rows(const struct ring *ring, const struct source *from)
{
	struct producer p = {{0, 1}, {0, 0}, 0};
	for (int first = from->least; first <= from->most; first += UNIT_KEYS) {
		int lines = 0;
		UNROLL for (int l = 0; l < 2; l++) if (first < from->begin[l] + from->count[l] &&
						       first + UNIT_KEYS > from->begin[l])
			lines |= 1 << l;
		if (lines)
			produce_unit(ring, &p, from, 0, 0, 0, first, lines);
	}
	produce_end(ring, &p);
}

/* Blocks in order, those that both lines list once. */
INLINE void produce_blocks(const struct ring *ring, const struct source *from)
{
	struct producer p = {{0, 1}, {0, 0}, 0};
	const int counts[2] = {from->count[0] / COARSE, from->count[1] / COARSE};
	int i = 0, j = 0;
	while (i < counts[0] || j < counts[1]) {
		const int a = i < counts[0] ? from->list[0][i] : INT_MAX;
		const int b = j < counts[1] ? from->list[1][j] : INT_MAX;
		const int block = min(a, b);
		for (int at = 0; at < COARSE; at += UNIT_KEYS)
			produce_unit(ring, &p, from, 0, 0, 0, block + at,
				     (a == block ? 1 : 0) | (b == block ? 2 : 0));
		i += a == block;
		j += b == block;
	}
	produce_end(ring, &p);
}

/* Places of one line and of the other, in turn. */
INLINE void produce_places(const struct ring *ring, const struct source *from)
{
	struct producer p = {{0, 1}, {0, 0}, 0};
	for (int place = 0; place < max(from->count[0], from->count[1]); place += UNIT_KEYS)
		for (int l = 0; l < 2; l++) {
			const int count = l ? from->count[1] : from->count[0];
			if (place < count)
				produce_unit(ring, &p, from, l ? from->list[1] : from->list[0],
					     count, place, 0, 1 << l);
		}
	produce_end(ring, &p);
}

/* A line's heads, as products read them, by the work-items of a warpgroup. */
INLINE void stage_heads(uint to, const __global uchar *heads, long pitch)
{
	const uint item = (uint)get_local_id(0);
	for (uint i = item & 127u; i < COLUMNS * CHUNKS; i += 128) {
		const uint head = i / CHUNKS, chunk = i % CHUNKS;
		const int bytes = head < GROUP_HEADS ? clamp(DIM * 2 - (int)chunk * 16, 0, 16) : 0;
		const uint4 x = load_chunk(heads + (bytes ? head * pitch + chunk * 16u : 0), bytes);
		const uint words[4] = {x.x, x.y, x.z, x.w};
		store_local_4(to + chunk / 8u * COLUMN_HALF + swizzled(head, chunk % 8u * 16u),
			      words);
	}
	fence_async();
	ASM("bar.sync %0, 128;" ::"r"(1u + item / 128u) : "memory");
}

#define DECLARE_SUMS DECLARE_REGISTERS(REGISTERS_32("sa") ", " REGISTERS_32("sb"))

#define PRODUCTS(set, tile, heads, s, keep)                                                   \
	WGMMA_LOCAL(SHAPE "k16", SUMS(set),                                                   \
		    operand_at(tile, 0) + (s) / 4 * (TILE_KEYS * 8) + (s) % 4 * 2,            \
		    operand_at(heads, 0) + (s) / 4 * (COLUMN_HALF / 16) + (s) % 4 * 2, keep, "0", "0")

/* Starts the products of the next tile, of `parts` tiles. */
#define START(set, parts)                                                               \
	{                                                                               \
		uint tile_ = wait_tile(ring, &taken);                                   \
		WGMMA_FENCE;                                                            \
		PRODUCTS(set, tile_, heads, 0, "0");                                    \
		UNROLL for (int s_ = 1; s_ < STEPS; s_++)                               \
			PRODUCTS(set, tile_, heads, s_, "1");                           \
		if (parts > 1) {                                                        \
			tile_ = wait_tile(ring, &taken);                                \
			WGMMA_FENCE;                                                    \
			UNROLL for (int s_ = 0; s_ < STEPS; s_++)                       \
				PRODUCTS(set, tile_, heads, s_, "1");                   \
		}                                                                       \
		WGMMA_COMMIT;                                                           \
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

/* Where the scores of a warpgroup's line go: `count` of them, of means from row `begin` on, which are multiplied by
 * scales[p]. */
struct scored {
	__global float *to;
	const __global float *scales;
	int count, begin;
};

INLINE void consume(const struct ring *ring, const struct scored *out, int parts,
		    const float weights[16])
{
	const uint item = (uint)get_local_id(0), lane = item & 31u, group = item / 128u;
	const uint heads = ring->heads + group * PACKED_BYTES;
	/* of this work-item's score among those of two tiles */
	const int own = (int)((lane >> 1 & 1u) * 64u + item / 32u % 4u * 16u + (lane & 1u) * 8u +
			      lane / 4u);
	struct turn taken = {0, 0}, released = {0, 0};
	int next = own;
	while (true) {
		barrier_wait(ring->full + taken.at * 8u, taken.parity);
		const struct unit unit = ring->units[taken.at];
		float sums[2];
		if (unit.lines < 0)
			break;
		if (!(unit.lines >> group & 1)) {
			ROLLED for (int i = 0; i < 2 * parts; i++)
			{
				(void)wait_tile(ring, &taken);
				release_tiles(ring, &released, 1, lane);
			}
			continue;
		}
		START("sa", parts)
		START("sb", parts)
		WGMMA_WAIT(1);
		release_tiles(ring, &released, parts, lane);
		SUM_HEADS("sa", sums[0])
		WGMMA_WAIT(0);
		release_tiles(ring, &released, parts, lane);
		SUM_HEADS("sb", sums[1])
		const float score = sum_pairs(sums[0], sums[1], lane);
		const int place = parts > 1 ? unit.first - out->begin + own : next;
		if (place >= 0 && place < out->count)
			out->to[place] = parts > 1 ? score * out->scales[place] : score;
		next += UNIT_KEYS;
	}
}

/* A warpgroup's part of the scores of its line; `line` is within the pass. */
#define SCORE_LINE(parts, line, out)                                                         \
	{                                                                                    \
		const long row_ = row_first + (line) / sc.groups;                            \
		const int group_ = (int)((line) % sc.groups);                                \
		float weights[16];                                                           \
		DECLARE_SUMS;                                                                \
		stage_heads(ring.heads + (uint)get_local_id(0) / 128u * PACKED_BYTES,        \
			    (const __global uchar *)q +                                      \
				    2 * (q_at.s0 + row_ * q_at.s1 +                          \
					 (long)group_ * GROUP_HEADS * q_at.s2),              \
			    2 * q_at.s2);                                                    \
		weigh(sc, w, w_at, row_, group_, (uint)get_local_id(0) & 31u, weights);      \
		consume(&ring, &out, parts, weights);                                        \
	}

/* As score_keys of select_tile.clh for means. Work-groups: 1, pairs of `line_count` lines, rows * groups. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
score_means(SCORE_ARGS, const __global int *coarse_base, long coarse_base_at,
	    const __global uchar *parts, long parts_at, long part_bytes, __global uchar *lines,
	    long lines_at, long line_size, int line_count)
{
	GROUPS_A_UNIT(2);
	LARGE_LOCAL(memory, LOCAL_BYTES)
	const long first = 2 * (long)get_group_id(1);
	struct source from = {parts + parts_at, DIM * 2, part_bytes, {0, 0}, {0, 0}, {0, 0}, 2,
			      INT_MAX, -1};
	UNROLL for (int l = 0; l < 2; l++)
	{
		const long row = row_first + min(first + l, (long)line_count - 1) / sc.groups;
		const int2 seen = key_interval(TILE_ROW(row, sc.coarse),
					       coarse_base + coarse_base_at + row);
		from.begin[l] = seen.x;
		from.count[l] = first + l < line_count ? max(seen.y - seen.x, 0) : 0;
		if (from.count[l] > 0) {
			from.least = min(from.least, seen.x);
			from.most = max(from.most, seen.y - 1);
		}
	}
	const struct ring ring = lay_out(memory);
	if (get_local_id(0) >= CONSUMERS) {
		GIVE_REGISTERS(40);
		produce_rows(&ring, &from);
		return;
	}
	TAKE_REGISTERS(96);
	const bool second = get_local_id(0) >= 128;
	const long line = min(first + (second ? 1 : 0), (long)line_count - 1);
	const int begin = second ? from.begin[1] : from.begin[0];
	const struct scored out = {
		WORK(float, lines) + line * line_size,
		(const __global float *)(parts + parts_at + 2 * part_bytes) + begin,
		second ? from.count[1] : from.count[0], begin};
	SCORE_LINE(2, line, out)
}

/* As score_kept of select_tile.cl. Work-groups: 1, pairs of `line_count` lines, rows * groups. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
score_kept(SCORE_ARGS, const __global uchar *lists, long lists_at, int slots, __global uchar *lines,
	   long lines_at, int line_count)
{
	GROUPS_A_UNIT(2);
	LARGE_LOCAL(memory, LOCAL_BYTES)
	const long first = 2 * (long)get_group_id(1);
	struct source from = {(const __global uchar *)k + 2 * k_at.s0, 2 * k_at.s1, 0, {0, 0},
			      {0, 0}, {0, 0}, 1, INT_MAX, -1};
	UNROLL for (int l = 0; l < 2; l++)
	{
		const long line = min(first + l, (long)line_count - 1);
		const struct tiling t = TILE_ROW(row_first + line / sc.groups, 1);
		const __global int *list = WORK(const int, lists) + line * (slots + 1);
		from.list[l] = list + 1;
		from.count[l] = first + l < line_count ? list[0] * COARSE : 0;
		if (from.count[l] > 0) {
			from.least = min(from.least, (int)t.begin);
			from.most = max(from.most, (int)t.end - 1);
		}
	}
	const struct ring ring = lay_out(memory);
	if (get_local_id(0) >= CONSUMERS) {
		GIVE_REGISTERS(40);
		if (COARSE % UNIT_KEYS == 0)
			produce_blocks(&ring, &from);
		else
			produce_places(&ring, &from);
		return;
	}
	TAKE_REGISTERS(96);
	const bool second = get_local_id(0) >= 128;
	const long line = min(first + (second ? 1 : 0), (long)line_count - 1);
	const struct scored out = {WORK(float, lines) + line * slots * COARSE, 0,
				   second ? from.count[1] : from.count[0], 0};
	SCORE_LINE(1, line, out)
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
	GROUPS_A_UNIT(2);
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
