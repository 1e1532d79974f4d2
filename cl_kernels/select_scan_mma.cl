/* select_scan_mma.cl - select's scan by mma.sync, for sm_80 and newer within 48 KiB of local memory.
 *
 * A warp scans the keys for one line, whose heads it holds as B fragments in registers. Eight lines
 * share tiles of 64 keys in local memory, of which one is copied while another is read.
 * Options besides those of select_scan.clh: KEY_SETS, ACTIVATION (0 = none, 1 = relu, 2 = relu with a
 * negative scale). */
#define LINE_LISTS 1
#define BLOCK_KEYS (KEY_SETS * 128)
#include "select_scan.clh"

#define LINES 8 /* of a work-group */
#define ITEMS (LINES * 32)
#define TILE_KEYS 64
#define TILE_BYTES (TILE_KEYS * ROW_BYTES)
#define EXACT_STEPS (ROW_BYTES / 32)
#define HEAD_TILES (COLUMNS / 8)

/* What select_repair.clh asks of wgmma. */
#define DECLARE_SUMS
#define FENCE_HEADS

/* ---- products ---- */

#if INDEX_TYPE == TYPE_F16
#define MMA_TYPES "f16.f16"
#else
#define MMA_TYPES "bf16.bf16"
#endif

/* The A fragment of 16 keys and 16 channels. */
struct fragment {
	uint x_[4];
};

/* sums = those of `to` or 0, and a of 16 keys times b of 8 heads, 16 channels of each. */
#define MULTIPLY(sums, a, b, to)                                                              \
	__asm__("mma.sync.aligned.m16n8k16.row.col.f32." MMA_TYPES ".f32 "                    \
		"{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"                   \
		: "=f"((sums)[0]), "=f"((sums)[1]), "=f"((sums)[2]), "=f"((sums)[3])          \
		: "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b).x), "r"((b).y), \
		  "f"((to)[0]), "f"((to)[1]), "f"((to)[2]), "f"((to)[3]))

INLINE void multiply(float sums[4], const uint a[4], uint2 b, bool first)
{
	const float none[4] = {0.0f, 0.0f, 0.0f, 0.0f};
	if (first)
		MULTIPLY(sums, a, b, none);
	else
		MULTIPLY(sums, a, b, sums);
}

static inline float activate(float x)
{
	float y = x;
	if (ACTIVATION == 1)
		__asm__("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
	else if (ACTIVATION == 2)
		__asm__("min.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
	return y;
}

/* Adds the sums of a tile of heads to the totals of keys g (heads 2c and 2c + 1) and g + 8. Columns
 * without a head are left out: they may be zero times infinity. */
INLINE void add_heads(float totals[4], const float sums[4], float even, float odd, int tile,
		      uint lane)
{
	UNROLL for (int i = 0; i < 4; i++)
	{
		const float total = fma(activate(sums[i]), i % 2 ? odd : even, totals[i]);
		const bool there = tile * 8 + (int)(lane & 3u) * 2 + i % 2 < GROUP_HEADS;
		totals[i] = tile * 8 + 8 <= GROUP_HEADS || there ? total : totals[i];
	}
}

/* The sum over a pair of lanes: of x in the even one, of y in the odd one. */
static inline float sum_pair(float x, float y, uint lane)
{
	const bool odd = lane & 1u;
	return (odd ? y : x) + shuffle_xor(odd ? x : y, 1);
}

/* The sum over two pairs: of x in lanes 0 and 1 of four, of y in lanes 2 and 3. */
static inline float sum_pairs(float x, float y, uint lane)
{
	const bool high = lane & 2u;
	return (high ? y : x) + shuffle_xor(high ? x : y, 2);
}

/* ---- repair ---- */

/* The B fragment of 8 heads and 16 channels, of packed heads. */
static inline uint head_at(int tile, int step, uint lane)
{
	return (uint)step / 4u * COLUMN_HALF +
	       swizzled((uint)tile * 8u + lane / 4u, (uint)step % 4u * 32u + (lane & 3u) * 4u);
}

/* The scores of 16 keys: key g in even lanes, g + 8 in odd ones, added over two of four lanes. */
INLINE float score_fragments(const struct fragment keys[EXACT_STEPS], const __local uchar *heads,
			     const float weights[16], uint lane)
{
	float totals[4] = {0.0f, 0.0f, 0.0f, 0.0f};
	UNROLL for (int j = 0; j < HEAD_TILES; j++)
	{
		float sums[4];
		UNROLL for (int s = 0; s < EXACT_STEPS; s++)
		{
			const uint at = head_at(j, s, lane);
			const uint2 b = (uint2)(*(const __local uint *)(heads + at),
						*(const __local uint *)(heads + (at ^ 16u)));
			multiply(sums, keys[s].x_, b, s == 0);
		}
		add_heads(totals, sums, weights[2 * j], weights[2 * j + 1], j, lane);
	}
	return sum_pair(totals[0] + totals[1], totals[2] + totals[3], lane);
}

#include "select_fragments.clh"

#include "select_choose.clh"

/* ---- the scan ---- */

/* A line's heads and weights, of a warp. */
struct heads {
	uint2 b[HEAD_TILES][EXACT_STEPS];
	float weights[16];
};

INLINE void load_heads(struct heads *to, const __global uchar *packed,
		       const __global float *weights, uint lane)
{
	UNROLL for (int j = 0; j < HEAD_TILES; j++) UNROLL for (int s = 0; s < EXACT_STEPS; s++)
	{
		const uint at = head_at(j, s, lane);
		to->b[j][s] = (uint2)(*(const __global uint *)(packed + at),
				      *(const __global uint *)(packed + (at ^ 16u)));
	}
	for (int j = 0; j < 16; j++)
		to->weights[j] = weights[(lane & 3u) * 20u + (uint)j];
}

/* 16 bytes of a key in a tile. */
static inline uint tile_at(uint row, uint chunk)
{
	return chunk / 8u * (TILE_KEYS * 128u) + swizzled(row, chunk % 8u * 16u);
}

/* Keys of a tile, from a position on; those past the last are the last, which nobody asks for. */
INLINE void copy_tile(__local uchar *tile, struct keys keys, struct range range, int position,
		      bool aligned)
{
	UNROLL for (int i = 0; i < TILE_KEYS * CHUNKS / ITEMS; i++)
	{
		const uint number = (uint)get_local_id(0) + (uint)i * ITEMS;
		const uint row = number / CHUNKS, chunk = number % CHUNKS;
		const int at = min(position + (int)row, range.count - 1);
		const int bytes = clamp(DIM * 2 - (int)chunk * 16, 0, 16);
		const __global uchar *from = keys.first +
					     (range.first + (long)at * range.step) * keys.pitch +
					     (bytes ? chunk * 16u : 0u);
		if (aligned)
			copy16(local_address(tile) + tile_at(row, chunk), from, (uint)bytes);
		else
			*(__local uint4 *)(tile + tile_at(row, chunk)) = load_chunk(from, bytes);
	}
	copy_commit();
}

/* Scores of 16 keys of a tile, added over two of four lanes. */
INLINE float score_rows(uint tile, uint row, const struct heads *heads, uint lane)
{
	float sums[HEAD_TILES][4], totals[4] = {0.0f, 0.0f, 0.0f, 0.0f};
	UNROLL for (int s = 0; s < EXACT_STEPS; s++)
	{
		const uint4 x = load_matrices(
			tile + tile_at(row + (lane & 15u), (uint)s * 2u + lane / 16u));
		const uint a[4] = {x.x, x.y, x.z, x.w};
		UNROLL for (int j = 0; j < HEAD_TILES; j++)
			multiply(sums[j], a, heads->b[j][s], s == 0);
	}
	UNROLL for (int j = 0; j < HEAD_TILES; j++) add_heads(
		totals, sums[j], heads->weights[2 * j], heads->weights[2 * j + 1], j, lane);
	return sum_pair(totals[0] + totals[1], totals[2] + totals[3], lane);
}

/* Where a line's scores go: to its list, what exceeds the threshold, or all of them to the sample. */
struct sink {
	__global float *samples; /* or null */
	__global uint2 *list;
	float threshold;
	int capacity, count;
};

INLINE void put_score(struct sink *sink, struct line line, struct range range, int position,
		      float score, uint lane)
{
	const int key = range.first + position * range.step;
	const bool there = position < range.count;
	if (sink->samples) {
		if (there)
			sink->samples[position] = score;
		return;
	}
	const bool listed = there && !(score <= sink->threshold) &&
			    (uint)(key - line.begin) < (uint)line.length;
	const uint lanes = ballot(listed);
	const int at = sink->count + (int)popcount(lanes & lanes_below(lane));
	if (listed && at < sink->capacity)
		sink->list[at] = (uint2)((uint)key, as_uint(score));
	sink->count += (int)popcount(lanes);
}

/* Scores tiles `split`, split + splits, ... of a range for each warp's line. */
INLINE void scan_tiles(__local uchar *tiles, struct keys keys, struct range range, struct line line,
		       const struct heads *heads, struct sink *sink, int split, int splits)
{
	const uint lane = (uint)get_local_id(0) & 31u;
	const bool aligned = (((long)keys.first | keys.pitch) & 15) == 0;
	const int step = splits * TILE_KEYS,
		  own = (int)((lane >> 1 & 1u) * 16u + (lane & 1u) * 8u + lane / 4u);
	int position = split * TILE_KEYS;
	uint side = 0;
	if (position < range.count)
		copy_tile(tiles, keys, range, position, aligned);
	for (; position < range.count; position += step, side ^= 1u) {
		const uint tile = local_address(tiles) + side * TILE_BYTES;
		COPY_WAIT(0);
		barrier(CLK_LOCAL_MEM_FENCE);
		if (position + step < range.count)
			copy_tile(tiles + (side ^ 1u) * TILE_BYTES, keys, range, position + step,
				  aligned);
		if (!meets(line, range, position, position + TILE_KEYS))
			continue;
		ROLLED for (uint row = 0; row < TILE_KEYS; row += 32u)
		{
			const float x = score_rows(tile, row, heads, lane);
			const float y = score_rows(tile, row + 16u, heads, lane);
			put_score(sink, line, range, position + (int)row + own,
				  sum_pairs(x, y, lane), lane);
		}
	}
}

/* Scores all entries and lists those above the threshold; or, sampled, scores a sample of each
 * line's. Work-groups: LINES lines times sc.splits (of a sample: 1); later rows, which tend to see
 * more, come first. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void scan_keys(SCAN_ARGS, KEY_ARGS,
									   int sampled)
{
	__local uchar tiles[2 * TILE_BYTES] __attribute__((aligned(1024)));
	__local struct line lines[TILE_LINES];
	__local float thresholds[TILE_LINES];
	__local int ends[2];
	const struct keys keys = KEYS;
	const int item = (int)get_local_id(0), splits = sampled ? 1 : sc.splits;
	const int number = (int)(get_num_groups(0) - 1 - get_group_id(0));
	const long line = (long)(number / splits) * LINES + item / 32, tile = line / TILE_LINES;
	const int split = number % splits;
	load_tile(AT(const struct line, table), AT(const float, thresholds), sc.lines, tile, ITEMS,
		  sampled, lines, thresholds);
	barrier(CLK_LOCAL_MEM_FENCE);
	const struct line own = lines[line % TILE_LINES];
	const float threshold = thresholds[line % TILE_LINES];
	/* A scan is about the work-group's own lines; samples are the same for a whole tile. */
	barrier(CLK_LOCAL_MEM_FENCE);
	if (!sampled && item < TILE_LINES && (item ^ (int)(line % TILE_LINES - item / 32)) / LINES)
		lines[item].length = 0;
	const struct range range =
		range_of(tile_interval(lines, ends), sampled ? sc.samples_room : 0);
	if (sampled && item == 0)
		AT(struct range, tiles)[tile] = range;
	struct heads heads;
	const long list = line * splits + split;
	struct sink sink = {sampled ? AT(float, samples) + line * sc.samples_room : 0,
			    AT(uint2, lists) + list * sc.capacity, threshold, sc.capacity, 0};
	if (own.length > 0)
		load_heads(&heads, AT(const uchar, packed) + line * PACKED_BYTES,
			   AT(const float, weights) + line * PACKED_WEIGHTS, (uint)item & 31u);
	scan_tiles(tiles, keys, range, own, &heads, &sink, split, splits);
	if (!sampled && line < sc.lines && item % 32 == 0)
		AT(int, counts)[list] = sink.count;
}
