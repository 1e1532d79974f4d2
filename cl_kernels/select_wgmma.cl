/* select_wgmma.cl - select's scan by wgmma, for sm_90 with large local memory.
 *
 * A work-group scans the keys for a tile of 64 lines. Two warpgroups (of e4m3, four) hold 256 keys
 * each, as A fragments in registers; the heads of one line after another are the columns of B. One
 * more warpgroup copies keys and packed heads to a ring in local memory. The heads of a line are summed
 * in the work-items that hold them, then over four lanes. Two warpgroups have two sets of sums each,
 * so that one is made while the other is added up; four have one, and take turns.
 * Options besides those of select_scan.clh: KEY_GROUPS (warpgroups), KEY_SETS (64 keys each of one),
 * LOCAL_BYTES, ACTIVATION (0 = none, 1 = relu, 2 = relu with a negative scale). */
#define LINE_LISTS (4 * KEY_GROUPS) /* one for each warp that scores */
#define BLOCK_KEYS (KEY_GROUPS * KEY_SETS * 64)
#include "select_scan.clh"

#if INDEX_TYPE == TYPE_F8E4M3
#define ELEMENT_TYPE TYPE_F16 /* of exact products */
#else
#define ELEMENT_TYPE INDEX_TYPE
#endif
#include "wgmma.clh"

#define WARPS (4 * KEY_GROUPS)
#define CONSUMERS (WARPS * 32)
/* Warps that copy: all walk the same slots, each copies a part of a tile of keys, one copies lines. */
#define PRODUCERS 4
#define ITEMS (CONSUMERS + PRODUCERS * 32)
#define TILE_BYTES (64 * ROW_BYTES)
#define SLOTS (131072 / TILE_BYTES)
#define PENDING 3 /* tiles of keys that are copied ahead of the one that is handed over */
#define KEY_TILES (KEY_GROUPS * KEY_SETS)
#if KEY_GROUPS == 2
#define LINES_AT_ONCE (16 / KEY_SETS)
#define PRODUCER_REGISTERS 40
#define CONSUMER_REGISTERS 232
#else
#define LINES_AT_ONCE 1
#define PRODUCER_REGISTERS 32
#define CONSUMER_REGISTERS 112
#endif
#define NO_LINE TILE_LINES

#include "select_sums.clh"

/* By turns for each warp of each group. */
#define PLACE_IN_BLOCK(i)                                                                       \
	((i) / 4 % KEY_GROUPS * (KEY_SETS * 64) + (i) / (64 * KEY_GROUPS) * 64 + (i) % 4 * 16 + \
	 (i) / (4 * KEY_GROUPS) % 16)
#include "select_skip.clh"

/* ---- local memory ---- */

struct slot {
	int line; /* of the tile; for a tile of keys: how many lines follow, -1 = the end */
	int block; /* for a tile of keys: its block's number; less than 0: ~ that, in select_skip.clh's order */
};

struct shared {
	__local uchar *ring;	    /* [SLOTS][TILE_BYTES] */
	__local float *weights;	    /* [SLOTS][PACKED_WEIGHTS] */
	__local struct line *lines; /* [TILE_LINES + 1] */
	__local float *thresholds;  /* [TILE_LINES + 1] */
	__local int *counts;	    /* [TILE_LINES + 1][WARPS] */
	__local struct slot *slots; /* [SLOTS] */
	uint full, empty;	    /* addresses of [SLOTS] barriers */
};

INLINE struct shared lay_out(__local uchar *at)
{
	struct shared s;
	s.ring = at;
	at += SLOTS * TILE_BYTES;
	s.weights = (__local float *)at;
	at += SLOTS * PACKED_WEIGHTS * 4;
	s.lines = (__local struct line *)at;
	at += (TILE_LINES + 1) * sizeof(struct line);
	s.thresholds = (__local float *)at;
	at += (TILE_LINES + 4) * 4;
	s.counts = (__local int *)at;
	at += (TILE_LINES + 1) * WARPS * 4;
	s.slots = (__local struct slot *)at;
	at += SLOTS * sizeof(struct slot);
	s.full = local_address(at);
	s.empty = s.full + SLOTS * 8;
	return s;
}

INLINE void prepare_shared(const struct shared *s)
{
	const int item = (int)get_local_id(0);
	if (item == 0) {
		const struct line none = {0, 0, 0, 0};
		s->lines[NO_LINE] = none;
		s->thresholds[NO_LINE] = 0.0f;
		for (uint i = 0; i < SLOTS; i++) {
			barrier_init(s->full + i * 8u, PRODUCERS);
			barrier_init(s->empty + i * 8u, WARPS);
		}
		ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	for (int i = item; i < TILE_LINES * WARPS; i += ITEMS)
		s->counts[i] = 0;
}

#include "select_producers.clh"

/* ---- the consumers: KEY_GROUPS warpgroups ---- */

/* Where scores go: to lists, what exceeds a line's threshold, or all of them to the sample. */
struct sink {
	bool sample;
	__global uchar *first; /* samples or this warp's list of the tile's first line */
	long pitch;	       /* bytes of a line */
	int capacity;
};

INLINE void put_sample(const struct sink *sink, int line, struct range range, int position, float x,
		       float y)
{
	__global float *to = (__global float *)(sink->first + line * sink->pitch) + position;
	if (line == NO_LINE)
		return;
	if (position < range.count)
		to[0] = x;
	if (position + 128 < range.count)
		to[128] = y;
}

/* What a line's scores are compared with, and how many of this warp's are listed: loaded while the
 * products run. */
struct listing {
	float threshold;
	int count;
};

INLINE struct listing load_listing(const struct shared *s, int line, uint warp)
{
	const struct listing listing = {s->thresholds[line], s->counts[line * WARPS + (int)warp]};
	return listing;
}

/* Scores of entries `key` and `key` + 128. */
INLINE void put_listed(const struct sink *sink, const struct shared *s, int line,
		       struct listing *listing, int key, float x, float y, uint lane, uint warp)
{
	const struct line own = s->lines[line];
	const uint at = (uint)(key - own.begin), length = (uint)own.length;
	const bool x_in = !(x <= listing->threshold) && at < length;
	const bool y_in = !(y <= listing->threshold) && at + 128u < length;
	const uint xs = ballot(x_in), ys = ballot(y_in);
	if ((xs | ys) == 0u)
		return;
	__global uint2 *list = (__global uint2 *)(sink->first + line * sink->pitch);
	const uint before = lanes_below(lane);
	const int y_first = listing->count + (int)popcount(xs);
	const int x_at = listing->count + (int)popcount(xs & before);
	const int y_at = y_first + (int)popcount(ys & before);
	if (x_in && x_at < sink->capacity)
		list[x_at] = (uint2)((uint)key, as_uint(x));
	if (y_in && y_at < sink->capacity)
		list[y_at] = (uint2)((uint)key + 128u, as_uint(y));
	listing->count = y_first + (int)popcount(ys);
	if (lane == 0)
		s->counts[line * WARPS + (int)warp] = listing->count;
}

INLINE void wait_slot(const struct shared *s, uint number)
{
	barrier_wait(s->full + number % SLOTS * 8u, number / SLOTS & 1u);
}

/* One lane of each warp says that the warp has read a slot. */
INLINE void release_slot(const struct shared *s, uint number, uint lane)
{
	warp_arrive(s->empty + number % SLOTS * 8u, lane);
}

/* Releases the lines of a block, and what fills them up, unread. */
INLINE void pass_lines(const struct shared *s, uint *at, int count, uint lane)
{
	for (int i = 0; i < count || i % LINES_AT_ONCE; i++, (*at)++) {
		wait_slot(s, *at);
		release_slot(s, *at, lane);
	}
}

/* A fragments of 64 keys, of which 16 are this warp's. */
INLINE void load_fragments(struct fragment fragments[STEPS], uint tile, uint warp, uint lane)
{
	const uint row = warp * 16u + (lane & 15u), right = lane >> 4;
	UNROLL for (int s = 0; s < STEPS; s++)
	{
		const uint4 x = load_matrices(tile + s / 4 * (64 * 128) +
					      swizzled(row, (uint)s % 4u * 32u + right * 16u));
		fragments[s].x_[0] = x.x;
		fragments[s].x_[1] = x.y;
		fragments[s].x_[2] = x.z;
		fragments[s].x_[3] = x.w;
	}
}

/* Scales of the keys whose scores come to this work-item, from its first position on. */
INLINE void load_scales(const struct keys *keys, struct range range, const __global int *order,
			int position, float scales[KEY_SETS / 2])
{
	UNROLL for (int i = 0; i < KEY_SETS / 2; i++)
	{
		const int at = min(position + i * 128, range.count - 1);
		const long key = range.first + (long)at * range.step;
		scales[i] = key_scale(keys, order ? order[key] : key);
	}
}

/* Where a consumer is, and what it has of a block. */
struct consumer {
	uint lane, warp, ring;
	uint at;      /* slots */
	int position; /* of its first score */
	int key;
	float scales[KEY_SETS / 2];
};

/* Scores of the keys of sets `set` to `set` + 3. */
INLINE void put_scores(const struct shared *s, const struct sink *sink, const struct consumer *c,
		       struct range range, int line, int set, const float sums[2],
		       struct listing *listing)
{
	if (sink->sample)
		put_sample(sink, line, range, c->position + set * 64, sums[0], sums[1]);
	else
		put_listed(sink, s, line, listing, c->key + set * 64, sums[0], sums[1], c->lane,
			   c->warp);
}

#if KEY_GROUPS == 2
#define SCORE_LINES score_lines_by_turns
/* Of LINES_AT_ONCE lines: while one set of sums is made, the other is added up. */
INLINE void score_lines_by_turns(const struct shared *s, const struct sink *sink,
				 struct consumer *c, struct fragment keys[KEY_SETS][STEPS],
				 struct range range)
{
	const uint lane = c->lane;
	wait_slot(s, c->at);
	START(SET_A, keys[0], c->ring + c->at % SLOTS * TILE_BYTES)
	UNROLL for (int l = 0; l < LINES_AT_ONCE; l++, c->at++)
	{
		const uint slot = c->at % SLOTS, tile = c->ring + slot * TILE_BYTES;
		const int line = s->slots[slot].line;
		float line_scale = 1.0f, scores[2], sums[2];
		DECLARE_WEIGHTS;
		struct listing listing = {0};
		UNROLL for (int t = 0; t < KEY_SETS; t += 2)
		{
			START(SET_B, keys[t + 1], tile)
			if (t == 0) {
				LOAD_WEIGHTS(s->weights + slot * PACKED_WEIGHTS);
				listing = load_listing(s, line, c->warp);
			}
			WGMMA_WAIT(1);
			SUM_SCANNED(SET_A, scores[0])
			if (t + 2 < KEY_SETS) {
				START(SET_A, keys[(t + 2) % KEY_SETS], tile)
				WGMMA_WAIT(1);
			} else if (l + 1 < LINES_AT_ONCE) {
				wait_slot(s, c->at + 1);
				START(SET_A, keys[0], c->ring + (c->at + 1) % SLOTS * TILE_BYTES)
				WGMMA_WAIT(1);
			} else {
				WGMMA_WAIT(0);
			}
			if (t + 2 == KEY_SETS)
				release_slot(s, c->at, lane);
			SUM_SCANNED(SET_B, scores[1])
			sums[t / 2 % 2] = scale_score(sum_pairs(scores[0], scores[1], lane),
						      c->scales[t / 2] * line_scale);
			if (t % 4 == 2)
				put_scores(s, sink, c, range, line, t - 2, sums, &listing);
		}
	}
}
#else
#define SCORE_LINES score_line
/* Of one line, one set of sums after another, in the registers of one: other warpgroups multiply while
 * this one adds up. */
INLINE void score_line(const struct shared *s, const struct sink *sink, struct consumer *c,
		       struct fragment keys[KEY_SETS][STEPS], struct range range)
{
	const uint lane = c->lane, slot = c->at % SLOTS, tile = c->ring + slot * TILE_BYTES;
	wait_slot(s, c->at);
	warp_sync(); /* lanes may be apart, behind what one of them wrote */
	const int line = s->slots[slot].line;
	float line_scale = 1.0f, scores[2], sums[2];
	DECLARE_WEIGHTS;
	struct listing listing = {0};
	UNROLL for (int t = 0; t < KEY_SETS; t += 2)
	{
		START(SET_A, keys[t], tile)
		if (t == 0) {
			LOAD_WEIGHTS(s->weights + slot * PACKED_WEIGHTS);
			listing = load_listing(s, line, c->warp);
		}
		WGMMA_WAIT(0);
		SUM_SCANNED(SET_A, scores[0])
		START(SET_B, keys[t + 1], tile)
		WGMMA_WAIT(0);
		if (t + 2 == KEY_SETS)
			release_slot(s, c->at, lane);
		SUM_SCANNED(SET_B, scores[1])
		sums[t / 2 % 2] = scale_score(sum_pairs(scores[0], scores[1], lane),
					      c->scales[t / 2] * line_scale);
		if (t % 4 == 2)
			put_scores(s, sink, c, range, line, t - 2, sums, &listing);
	}
	c->at++;
}
#endif

/* `order`: select_skip.clh's, of the blocks that are ordered. */
INLINE void consume(const struct shared *s, const struct sink *sink, const struct keys *of,
		    struct range range, const __global int *order)
{
	const uint item = (uint)get_local_id(0);
	struct consumer c = {item & 31u, item / 32u, local_address(s->ring), 0};
	const uint lane = c.lane, group = c.warp / 4u;
	/* of this work-item's first score among the block's keys */
	const int own = (int)(group * (KEY_SETS * 64u) + (lane >> 1 & 1u) * 64u +
			      c.warp % 4u * 16u + (lane & 1u) * 8u + lane / 4u);
	DECLARE_SCAN_SUMS;
	while (true) {
		wait_slot(s, c.at);
		const int count = s->slots[c.at % SLOTS].line;
		const int coded = s->slots[c.at % SLOTS].block;
		const bool ordered = order && coded < 0;
		const int block = ordered ? ~coded : coded;
		if (count < 0)
			break;
		struct fragment keys[KEY_SETS][STEPS];
		UNROLL for (uint t = 0; t < KEY_TILES; t++, c.at++)
		{
			wait_slot(s, c.at);
			if (t / KEY_SETS == group)
				load_fragments(keys[t % KEY_SETS],
					       c.ring + c.at % SLOTS * TILE_BYTES, c.warp % 4u,
					       lane);
			/* one by one: the producer has not handed over the last of them */
			release_slot(s, c.at, lane);
		}
		/* not with 16 bits, whose loop then takes more registers than there are */
		if (UNIT_BYTES == 1 &&
		    block * BLOCK_KEYS + (int)group * (KEY_SETS * 64) >= range.count) {
			pass_lines(s, &c.at, count, lane);
			continue;
		}
		c.position = block * BLOCK_KEYS + own;
		c.key = range.first + c.position * range.step;
		load_scales(of, range, ordered ? order : 0, c.position, c.scales);
		for (int i = 0; i < count; i += LINES_AT_ONCE)
			SCORE_LINES(s, sink, &c, keys, range);
	}
}

/* ---- the kernel ---- */

/* Scores entries of a tile of lines and lists those above the threshold; or, sampled, scores a sample of each
 * line's. `skipping`: without reaches. `ends`: two numbers. */
INLINE void scan_tile(const struct scan *pass, __global uchar *work, long work_at, struct keys keys,
		      bool sampled, struct skipping skipping, __local uchar *memory,
		      __local int *ends)
{
	const struct scan sc = *pass;
	const struct shared s = lay_out(memory);
	const int item = (int)get_local_id(0), splits = sampled ? 1 : sc.splits;
	const int number = (int)get_group_id(0) / splits, split = (int)get_group_id(0) % splits;
	const long tile =
		sampled ? (int)get_num_groups(0) - 1 - number : AT(const int, order)[number];
	const long first = tile * TILE_LINES;
	load_tile(AT(const struct line, table), AT(const float, thresholds), sc.lines, tile, ITEMS,
		  sampled, s.lines, s.thresholds);
	prepare_shared(&s);
	barrier(CLK_LOCAL_MEM_FENCE);
	struct range range = range_of(tile_interval(s.lines, ends), sampled ? sc.samples_room : 0);
	if (skipping.order) { /* blocks lie in one segment each */
		const int before = range.first % BLOCK_KEYS;
		range.first -= before;
		range.count += before;
	}
	if (sampled && item == 0)
		AT(struct range, tiles)[tile] = range;
	if (item >= CONSUMERS) {
		GIVE_REGISTERS(PRODUCER_REGISTERS);
		const struct part part = {AT(const uchar, packed) + first * PACKED_BYTES,
					  AT(const float, weights) + first * PACKED_WEIGHTS, split,
					  splits};
		skipping.reaches = AT(const float, reaches) + first;
		produce(&s, keys, &part, range, &skipping,
			(int)min(sc.lines - first, (long)TILE_LINES));
		return;
	}
	TAKE_REGISTERS(CONSUMER_REGISTERS);
	const uint lane = (uint)item & 31u, warp = (uint)item / 32u;
	const long lists = (long)splits * LINE_LISTS;
	/* those of a warp next to each other: all parts of a line's lists have keys of all its splits */
	const long list = first * lists + (long)warp * splits + split;
	const struct sink sink = {sampled,
				  sampled ? AT(uchar, samples) + first * sc.samples_room * 4
					  : AT(uchar, lists) + list * sc.capacity * 8,
				  sampled ? (long)sc.samples_room * 4 : lists * sc.capacity * 8,
				  sc.capacity};
	consume(&s, &sink, &keys, range, skipping.order);
	if (sampled)
		return;
	warp_sync();
	for (long i = lane; i < TILE_LINES && first + i < sc.lines; i += 32)
		AT(int, counts)[list + i * lists] = s.counts[i * WARPS + warp];
}

/* All entries, unless scan_in_order() has them, or a sample. Work-groups: tiles of lines times sc.splits (of a
 * sample: 1), the costliest tiles first; of a sample later rows, which tend to see more. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void scan_keys(SCAN_ARGS, KEY_ARGS,
									   int sampled)
{
	LARGE_LOCAL(memory, LOCAL_BYTES)
	__local int ends[2];
	const struct keys keys = KEYS;
	const struct skipping none = {0, 0, 0, 0};
	if (!sampled && skips(&sc, work + work_at))
		return;
	scan_tile(&sc, work, work_at, keys, sampled != 0, none, memory, ends);
}

/* Where the pass skips: entries within reach. Work-groups as of scan_keys. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void scan_in_order(SCAN_ARGS, KEY_ARGS)
{
	LARGE_LOCAL(memory, LOCAL_BYTES)
	__local int ends[2];
	const struct keys keys = KEYS;
	const struct skipping skipping = {AT(const int, key_order), AT(const float, block_norms), 0,
					  sc.segments};
	if (!skips(&sc, work + work_at))
		return;
	scan_tile(&sc, work, work_at, keys, false, skipping, memory, ends);
}

#include "select_choose.clh"
