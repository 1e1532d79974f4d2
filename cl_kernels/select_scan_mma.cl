/* select_scan_mma.cl - select's scan by mma.sync, for sm_80 and newer, within 48 KiB of local memory.
 *
 * A work-group scans the keys for eight lines, one a warp, which keeps the line's heads as B fragments in
 * registers. Keys pass through a ring of tiles in local memory, to which all warps copy their part; what 16 keys
 * made is added up while the next 16 are multiplied, and scores are listed meanwhile, without branches. Units
 * multiply all the time only if a warp that does not multiply has little else to do: there are two a scheduler.
 * Options: those of select_scan.clh, KEY_SETS (1), ACTIVATION (0 = none, 1 = relu, 2 = relu with a negative
 * scale). */
#define LINE_LISTS 1
#define BLOCK_KEYS 128
#include "select_scan.clh"

#define WARPS 8
#define ITEMS (WARPS * 32)
#define TILE_KEYS 32
#define TILE_BYTES (TILE_KEYS * ROW_BYTES)
#define SLOTS 5
#define AHEAD 2 /* tiles that are copied ahead: at most SLOTS / 2, see copy_tile() */

#define HEAD_TILES (COLUMNS / 8)

#define EXACT_STEPS (DIM <= 64 ? 4 : 8)
#define FENCE_HEADS
#define DECLARE_SUMS

/* ---- products ---- */

#if INDEX_TYPE == TYPE_F16
#define MMA_TYPES "f32.f16.f16.f32"
#else
#define MMA_TYPES "f32.bf16.bf16.f32"
#endif

/* sums += 16 keys times 8 heads, 16 channels of them. */
static inline void multiply(float sums[4], const uint keys[4], uint low, uint high)
{
	__asm__("mma.sync.aligned.m16n8k16.row.col." MMA_TYPES
		" {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
		: "r"(keys[0]), "r"(keys[1]), "r"(keys[2]), "r"(keys[3]), "r"(low), "r"(high));
}

/* Keeps NaN. */
static inline float activate_sum(float sum)
{
#if ACTIVATION == 1
	__asm__("max.NaN.f32 %0, %0, 0f00000000;" : "+f"(sum));
#elif ACTIVATION == 2
	__asm__("min.NaN.f32 %0, %0, 0f00000000;" : "+f"(sum));
#endif
	return sum;
}

/* Adds what heads 8 tile + 2c and + 2c + 1 score, of key g and of key g + 8. Columns without a head are
 * left out: they may be zero times infinity. */
INLINE void add_heads(float totals[4], const float sums[4], float first, float second, int tile,
		      uint lane)
{
	UNROLL for (int i = 0; i < 4; i++)
	{
		const float more = fma(activate_sum(sums[i]), i % 2 ? second : first, totals[i]);
		const bool there = GROUP_HEADS >= 8 * tile + 8 ||
				   8 * tile + (int)(lane & 3u) * 2 + i % 2 < GROUP_HEADS;
		totals[i] = there ? more : totals[i];
	}
}

/* The sum over a pair of lanes: of key g in the even one, of key g + 8 in the odd one. */
static inline float sum_totals(const float totals[4], uint lane)
{
	const float x = totals[0] + totals[1], y = totals[2] + totals[3];
	const bool odd = lane & 1u;
	return (odd ? y : x) + shuffle_xor(odd ? x : y, 1);
}

/* Where a B fragment of 8 heads and 16 channels lies among a line's packed heads: the low half of it for
 * this lane; the high half is 16 bytes further, before the swap. */
static inline uint head_at(int tile, int step, uint half_, uint lane)
{
	return (uint)step / 4u * COLUMN_HALF +
	       swizzled((uint)tile * 8u + lane / 4u, (uint)step % 4u * 32u + half_ * 16u) +
	       (lane & 3u) * 4u;
}

/* As select_sums.clh has it. */
INLINE float score_fragments(const struct fragment keys[EXACT_STEPS], const __local uchar *heads,
			     const float weights[16], uint lane)
{
	float totals[4] = {0.0f, 0.0f, 0.0f, 0.0f};
	UNROLL for (int tile = 0; tile < HEAD_TILES; tile++)
	{
		float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
		UNROLL for (int s = 0; s < EXACT_STEPS; s++)
			multiply(sums, keys[s].x_,
				 *(const __local uint *)(heads + head_at(tile, s, 0, lane)),
				 *(const __local uint *)(heads + head_at(tile, s, 1, lane)));
		add_heads(totals, sums, weights[2 * tile], weights[2 * tile + 1], tile, lane);
	}
	return sum_totals(totals, lane);
}

#include "select_fragments.clh"

/* ---- the ring ---- */

/* Whether the phase of this parity of a barrier, 0 for the first, is complete; as barrier_wait has it, for sm_80. */
static inline bool is_complete(uint at, uint parity)
{
	uint done;
	ASM("{.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
	    "selp.u32 %0, 1, 0, p;}"
	    : "=r"(done)
	    : "r"(at), "r"(parity)
	    : "memory");
	return done != 0u;
}

/* A place in the ring, and the parity of its use. */
struct place {
	uint slot, parity;
};

static inline void next_place(struct place *place)
{
	if (++place->slot == SLOTS) {
		place->slot = 0;
		place->parity ^= 1u;
	}
}

/* What a work-item copies of each tile: a chunk of a few rows. */
struct copies {
	const __global uchar *from; /* of position 0 */
	long row_bytes;		    /* from one position to the next */
	int count;		    /* of positions */
	int bytes;		    /* of a chunk */
	uint to, full; /* addresses: of the first row in the first slot; of the barriers */
	bool aligned;
};

#define COPY_ROWS (ITEMS / CHUNKS) /* that are copied together */

INLINE struct copies begin_copies(const struct keys *keys, struct range range, uint ring, uint full)
{
	const uint item = (uint)get_local_id(0), chunk = item % CHUNKS;
	const int bytes = clamp(DIM * UNIT_BYTES - (int)chunk * 16, 0, 16);
	struct copies copies = {
		keys->first + range.first * keys->pitch + (bytes ? chunk * 16u : 0u),
		range.step * keys->pitch,
		range.count,
		bytes,
		ring + chunk / 8u * (TILE_KEYS * 128) + swizzled(item / CHUNKS, chunk % 8u * 16u),
		full,
		(((long)keys->first | keys->pitch) & 15) == 0};
	/* kept: compilers would reckon them for each tile */
	ASM("" : "+r"(copies.to), "+l"(copies.row_bytes));
	return copies;
}

/* This work-item's part of 32 keys from a position on, to a slot; zeros behind the last position. No warp reads the
 * slot any more: who goes on to a tile knows that all have copied to its slot, before which they had read the
 * AHEAD + 1-th tile before it. */
INLINE void copy_tile(const struct copies *c, int position, uint slot)
{
	const int first = position + (int)get_local_id(0) / CHUNKS;
	const uint to = c->to + slot * TILE_BYTES, full = c->full + slot * 8u;
	const __global uchar *from = c->from + first * c->row_bytes;
	if (c->aligned) {
		UNROLL for (int i = 0; i < TILE_KEYS; i += COPY_ROWS)
			copy16(to + (uint)i * 128u, from + i * c->row_bytes,
			       first + i < c->count ? (uint)c->bytes : 0u);
		ASM("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(full) : "memory");
		return;
	}
	UNROLL for (int i = 0; i < TILE_KEYS; i += COPY_ROWS)
	{
		const uint4 x =
			load_chunk(from + i * c->row_bytes, first + i < c->count ? c->bytes : 0);
		ASM("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + (uint)i * 128u), "r"(x.x),
		    "r"(x.y), "r"(x.z), "r"(x.w)
		    : "memory");
	}
	barrier_arrive(full);
}

/* ---- a warp's line ---- */

struct heads_held {
	uint x[HEAD_TILES][STEPS][2];
};

INLINE void hold_heads(struct heads_held *held, const __global uchar *packed, uint lane)
{
	UNROLL for (int tile = 0; tile < HEAD_TILES; tile++) UNROLL for (int s = 0; s < STEPS; s++)
		UNROLL for (uint half_ = 0; half_ < 2; half_++) held->x[tile][s][half_] =
		*(const __global uint *)(packed + head_at(tile, s, half_, lane));
}

/* What 16 keys and each head make. */
struct sums {
	float x[HEAD_TILES][4];
};

/* Adds heads [from, to) of `weights`, which are this lane's. */
INLINE void add_some(float totals[4], const struct sums *sums, int from, int to,
		     const __local float2 *weights, uint lane)
{
	UNROLL for (int j = from; j < to; j++)
	{
		const float2 weight = weights[j];
		add_heads(totals, sums->x[j], weight.x, weight.y, j, lane);
	}
}

/* Multiplies step s of 16 keys of a tile, and adds up some of what others made before, so that neither waits for
 * the other. */
INLINE void multiply_step(uint tile, int m, int s, const struct heads_held *held, struct sums *sums,
			  float totals[4], const struct sums *before, const __local float2 *weights,
			  uint lane)
{
	const uint row = (uint)m * 16u + (lane & 15u), right = lane >> 4;
	const uint4 x = load_matrices(tile + (uint)s / 4u * (TILE_KEYS * 128) +
				      swizzled(row, (uint)s % 4u * 32u + right * 16u));
	const uint keys[4] = {x.x, x.y, x.z, x.w};
	UNROLL for (int j = 0; j < HEAD_TILES; j++)
	{
		if (s == 0)
			UNROLL for (int i = 0; i < 4; i++) sums->x[j][i] = 0.0f;
		multiply(sums->x[j], keys, held->x[j][s][0], held->x[j][s][1]);
	}
	add_some(totals, before, s * HEAD_TILES / STEPS, (s + 1) * HEAD_TILES / STEPS, weights,
		 lane);
}

/* Where a line's scores go: what exceeds the threshold to a list, or all to the sample. */
struct sink {
	bool sample;
	__global uchar *to;
	int capacity, count;
	float threshold;     /* NaN in a sample */
	int from, positions; /* that are the line's */
	int first, step;     /* keys of positions */
};

/* The sum over two pairs of lanes: of x in lanes 0 and 1 of four, of y in lanes 2 and 3. */
static inline float sum_pairs(float x, float y, uint lane)
{
	const bool high = lane & 2u;
	return (high ? y : x) + shuffle_xor(high ? x : y, 2);
}

/* The score of a position, without branches. */
INLINE void put_score(struct sink *sink, int position, float score, uint lane)
{
	const bool in = !(score <= sink->threshold) &&
			(uint)position - (uint)sink->from < (uint)sink->positions;
	const uint lanes = ballot(in);
	const int at = sink->count + (int)popcount(lanes & lanes_below(lane));
	const bool put = in && (sink->sample || at < sink->capacity);
	const __global uchar *to = sink->to + (sink->sample ? (long)position * 4 : (long)at * 8);
	ASM("{.reg .pred pair, one;\nsetp.ne.u32 pair, %0, 0;\nsetp.ne.u32 one, %1, 0;\n"
	    "@pair st.global.v2.u32 [%2], {%3, %4};\n@one st.global.u32 [%2], %4;}" ::"r"(
		    (uint)(put && !sink->sample)),
	    "r"((uint)(put && sink->sample)), "l"(to),
	    "r"((uint)(sink->first + position * sink->step)), "r"(as_uint(score))
	    : "memory");
	sink->count += (int)popcount(lanes);
}

/* The first position whose key is not before `key`. */
static inline int position_of(struct range range, long key)
{
	const long behind = clamp(key - range.first, 0L, (long)range.count * range.step);
	return divide_up((int)behind, max(range.step, 1));
}

/* ---- the kernel ---- */

/* As scan_keys of select_wgmma.cl. Work-groups: eights of lines times sc.splits (of a sample: 1), all of
 * the costliest tile first; of a sample later rows, which tend to see more. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void scan_keys(SCAN_ARGS, KEY_ARGS,
									   int sampled)
{
	__local uchar ring[SLOTS * TILE_BYTES] __attribute__((aligned(1024)));
	__local struct line lines[TILE_LINES];
	__local float thresholds[TILE_LINES];
	__local float weights[WARPS * PACKED_WEIGHTS] __attribute__((aligned(16)));
	__local ulong barriers[SLOTS];
	__local int ends[2];
	const struct keys keys = KEYS;
	const uint item = (uint)get_local_id(0), lane = item & 31u, warp = item / 32u;
	const int splits = sampled ? 1 : sc.splits;
	const int number = (int)get_group_id(0) / splits, split = (int)get_group_id(0) % splits;
	const int parts = TILE_LINES / WARPS, place = number / parts;
	const int last = (int)get_num_groups(0) / splits / parts - 1;
	const long of = sampled ? last - place : AT(const int, order)[place]; /* tile of lines */
	const uint tiles_at = local_address(ring), full = local_address(barriers);
	load_tile(AT(const struct line, table), AT(const float, thresholds), sc.lines, of, ITEMS,
		  sampled, lines, thresholds);
	if (item < SLOTS)
		barrier_init(full + item * 8u, ITEMS);
	barrier(CLK_LOCAL_MEM_FENCE);
	const struct range range =
		range_of(tile_interval(lines, ends), sampled ? sc.samples_room : 0);
	if (sampled && item == 0)
		AT(struct range, tiles)[of] = range;
	const int own_line = number % parts * WARPS + (int)warp;
	const long own = of * TILE_LINES + own_line;
	const struct line line = lines[own_line];
	const int tiles = divide_up(max(divide_up(range.count, TILE_KEYS) - split, 0), splits);
	struct sink sink = {sampled != 0,
			    sampled ? AT(uchar, samples) + own * sc.samples_room * 4
				    : AT(uchar, lists) + (own * splits + split) * sc.capacity * 8,
			    sc.capacity,
			    0,
			    sampled ? NAN : thresholds[own_line],
			    position_of(range, line.begin),
			    0,
			    range.first,
			    range.step};
	sink.positions = line.length > 0
				 ? position_of(range, (long)line.begin + line.length) - sink.from
				 : 0;
	struct heads_held held;
	for (uint i = lane; i < PACKED_WEIGHTS; i += 32)
		weights[warp * PACKED_WEIGHTS + i] =
			AT(const float, weights)[min(own, sc.lines - 1) * PACKED_WEIGHTS + i];
	warp_sync();
	const __local float2 *weight = (const __local float2 *)(weights + warp * PACKED_WEIGHTS +
								(lane & 3u) * LANE_WEIGHTS);
	hold_heads(&held, AT(const uchar, packed) + min(own, sc.lines - 1) * PACKED_BYTES, lane);
	/* of the lower and the upper keys of a tile; the upper ones are added up while the next tile's are multiplied */
	struct sums low = {{{0}}}, high = {{{0}}};
	float low_score = 0.0f;
	int pending = INT_MIN; /* where this work-item's score of that tile goes */
	const int own_key = (int)((lane >> 1 & 1u) * 16u + (lane & 1u) * 8u + lane / 4u);
	const struct copies copies = begin_copies(&keys, range, tiles_at, full);
	const int next = splits * TILE_KEYS; /* from one tile to the next */
	struct place at = {0, 0};
	bool ready = false; /* the tile at `at` is known to be there */
	for (int i = 0; i < min(AHEAD, tiles); i++)
		copy_tile(&copies, split * TILE_KEYS + i * next, (uint)i);
	ROLLED for (int i = 0; i < tiles; i++)
	{
		const int position = split * TILE_KEYS + i * next;
		const uint tile = tiles_at + at.slot * TILE_BYTES;
		while (!ready)
			ready = is_complete(full + at.slot * 8u, at.parity);
		warp_sync();
		if (i + AHEAD < tiles)
			copy_tile(&copies, position + AHEAD * next,
				  at.slot + AHEAD - (at.slot + AHEAD >= SLOTS ? SLOTS : 0));
		next_place(&at);
		ready = false;
		if (position >= sink.from + sink.positions || position + TILE_KEYS <= sink.from)
			continue;
		float totals[4] = {0.0f, 0.0f, 0.0f, 0.0f}, more[4] = {0.0f, 0.0f, 0.0f, 0.0f};
		UNROLL for (int s = 0; s < STEPS; s++)
			multiply_step(tile, 0, s, &held, &low, totals, &high, weight, lane);
		const float high_score = sum_totals(totals, lane);
		UNROLL for (int s = 0; s < STEPS; s++)
		{
			multiply_step(tile, 1, s, &held, &high, more, &low, weight, lane);
			if (s == 1)
				put_score(&sink, pending, sum_pairs(low_score, high_score, lane),
					  lane);
			if (s == 2)
				ready = is_complete(full + at.slot * 8u, at.parity);
		}
		low_score = sum_totals(more, lane);
		pending = position + own_key;
	}
	float totals[4] = {0.0f, 0.0f, 0.0f, 0.0f};
	add_some(totals, &high, 0, HEAD_TILES, weight, lane);
	put_score(&sink, pending, sum_pairs(low_score, sum_totals(totals, lane), lane), lane);
	if (!sampled && lane == 0 && own < sc.lines)
		AT(int, counts)[own * splits + split] = sink.count;
}

#include "select_choose.clh"
