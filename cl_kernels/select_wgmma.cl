/* select_wgmma.cl - select's scan by wgmma, for sm_90 with large local memory.
 *
 * A work-group scans the keys for a tile of 64 lines. Two warpgroups hold 256 keys each, as A
 * fragments in registers; the heads of one line after another are the columns of B. A third
 * warpgroup copies keys and heads to a ring in local memory, by 16 bytes, swizzled as wgmma reads
 * them; no tensor is laid out anew. Heads of a line are summed in the work-items that hold them,
 * then over four lanes.
 * Options besides those of select_scan.clh: LOCAL_BYTES, ACTIVATION (0 = none, 1 = relu, 2 = relu with a
 * negative scale). */
#include "select_scan.clh"

#define COLUMNS ((GROUP_HEADS + 7) / 8 * 8)
#define ROW_BYTES (DIM * 2 <= 128 ? 128 : 256) /* of a key, of a head: zeroes behind the last */
#define HALVES (ROW_BYTES / 128)
#define STEPS (ROW_BYTES / 32) /* of 16 channels */
#define TILE_BYTES (64 * ROW_BYTES)
#define COLUMN_HALF (COLUMNS * 128)
#define SLOTS (131072 / TILE_BYTES)
#define PENDING 4 /* tiles that are copied ahead of the one that is handed over */
#define KEY_TILES (BLOCK_KEYS / 64)
#define LINES_AT_ONCE 4
#define CONSUMERS 256
#define PRODUCERS 128
#define NO_LINE TILE_LINES

#if INDEX_TYPE == TYPE_F16
#define OPERANDS "f16.f16"
#else
#define OPERANDS "bf16.bf16"
#endif

/* ---- accumulators ---- */

/* Two sets, "a" and "b", which the compiler does not know: it would copy them. */
#define DECLARE_ACCUMULATORS ASM(".reg .f32 acc_a<32>, acc_b<32>;")

#define NAMES4(set, i, j, k, l) "acc_" set #i ", acc_" set #j ", acc_" set #k ", acc_" set #l
#if COLUMNS > 8
#define NAMES1(set) ", " NAMES4(set, 4, 5, 6, 7)
#else
#define NAMES1(set)
#endif
#if COLUMNS > 16
#define NAMES2(set) ", " NAMES4(set, 8, 9, 10, 11)
#else
#define NAMES2(set)
#endif
#if COLUMNS > 24
#define NAMES3(set) ", " NAMES4(set, 12, 13, 14, 15)
#else
#define NAMES3(set)
#endif
#if COLUMNS > 32
#define NAMES5(set) ", " NAMES4(set, 16, 17, 18, 19)
#else
#define NAMES5(set)
#endif
#if COLUMNS > 40
#define NAMES6(set) ", " NAMES4(set, 20, 21, 22, 23)
#else
#define NAMES6(set)
#endif
#if COLUMNS > 48
#define NAMES7(set) ", " NAMES4(set, 24, 25, 26, 27)
#else
#define NAMES7(set)
#endif
#if COLUMNS > 56
#define NAMES8(set) ", " NAMES4(set, 28, 29, 30, 31)
#else
#define NAMES8(set)
#endif
#define NAMES(set)                                                                           \
	NAMES4(set, 0, 1, 2, 3) NAMES1(set) NAMES2(set) NAMES3(set) NAMES5(set) NAMES6(set) \
		NAMES7(set) NAMES8(set)

#if COLUMNS == 8
#define SHAPE "m64n8k16"
#elif COLUMNS == 16
#define SHAPE "m64n16k16"
#elif COLUMNS == 24
#define SHAPE "m64n24k16"
#elif COLUMNS == 32
#define SHAPE "m64n32k16"
#elif COLUMNS == 40
#define SHAPE "m64n40k16"
#elif COLUMNS == 48
#define SHAPE "m64n48k16"
#elif COLUMNS == 56
#define SHAPE "m64n56k16"
#else
#define SHAPE "m64n64k16"
#endif

/* set = a * b, or plus what it was when `add` is "1"; the low half of b's descriptor. */
#define WGMMA(set, a, b, add)                                                                   \
	ASM("{.reg .b64 b;\nmov.b64 b, {%4, %5};\n"                                             \
	    "//@wgmma.mma_async.sync.aligned." SHAPE ".f32." OPERANDS " {" NAMES(set)           \
	    "}, {%0, %1, %2, %3}, b, " add ", 1, 1, 0;\n}" ::"r"((a).x),                        \
	    "r"((a).y), "r"((a).z), "r"((a).w), "r"(b), "n"(DESCRIPTOR_HIGH)                    \
	    : "memory")

/* Starts the products of 64 keys with a line's heads at address `at`. */
#define START(set, keys, at)                                                             \
	{                                                                                \
		const uint low_ = descriptor_low(at);                                    \
		WGMMA_FENCE;                                                             \
		WGMMA(set, (keys)[0], low_, "0");                                        \
		UNROLL for (int s_ = 1; s_ < STEPS; s_++)                                \
			WGMMA(set, (keys)[s_],                                           \
			      low_ + s_ / 4 * (COLUMN_HALF / 16) + s_ % 4 * 2, "1");     \
		WGMMA_COMMIT;                                                            \
	}

#if ACTIVATION == 1
#define ACTIVATE(set, i) "max.NaN.f32 x, acc_" set #i ", 0f00000000;\n"
#elif ACTIVATION == 2
#define ACTIVATE(set, i) "min.NaN.f32 x, acc_" set #i ", 0f00000000;\n"
#else
#define ACTIVATE(set, i) "mov.f32 x, acc_" set #i ";\n"
#endif

/* sum += weight * activation of accumulator i */
#define ADD_HEAD(set, i, sum, weight)                                                   \
	ASM("{.reg .f32 x;\n" ACTIVATE(set, i) "fma.rn.f32 %0, x, %1, %0;}" : "+f"(sum) \
	    : "f"(weight))

/* Accumulators i .. i + 3: two heads of key g, the same two of key g + 8. */
#define ADD_HEADS(set, i, j, k, l, group)                                   \
	if (COLUMNS > 8 * group) {                                          \
		float old_[4] = {sum_[0], sum_[1], sum_[2], sum_[3]};       \
		ADD_HEAD(set, i, sum_[0], weights[2 * group]);              \
		ADD_HEAD(set, j, sum_[1], weights[2 * group + 1]);          \
		ADD_HEAD(set, k, sum_[2], weights[2 * group]);              \
		ADD_HEAD(set, l, sum_[3], weights[2 * group + 1]);          \
		if (GROUP_HEADS < 8 * group + 8) {                          \
			sum_[0] = first_head_ ? sum_[0] : old_[0];          \
			sum_[1] = second_head_ ? sum_[1] : old_[1];         \
			sum_[2] = first_head_ ? sum_[2] : old_[2];          \
			sum_[3] = second_head_ ? sum_[3] : old_[3];         \
		}                                                           \
	}

/* *score = the score of key g (even lanes) or g + 8 (odd ones), added over two of four lanes.
 * Columns without a head are left out: they may be zero times infinity. */
#define SUM_HEADS(set, score)                                                               \
	{                                                                                   \
		float sum_[4] = {0.0f, 0.0f, 0.0f, 0.0f};                                   \
		const bool first_head_ = COLUMNS - 8 + (lane & 3u) * 2u < GROUP_HEADS;      \
		const bool second_head_ = COLUMNS - 7 + (lane & 3u) * 2u < GROUP_HEADS;     \
		ADD_HEADS(set, 0, 1, 2, 3, 0)                                               \
		ADD_HEADS(set, 4, 5, 6, 7, 1)                                               \
		ADD_HEADS(set, 8, 9, 10, 11, 2)                                             \
		ADD_HEADS(set, 12, 13, 14, 15, 3)                                           \
		ADD_HEADS(set, 16, 17, 18, 19, 4)                                           \
		ADD_HEADS(set, 20, 21, 22, 23, 5)                                           \
		ADD_HEADS(set, 24, 25, 26, 27, 6)                                           \
		ADD_HEADS(set, 28, 29, 30, 31, 7)                                           \
		const float first_ = sum_[0] + sum_[1], second_ = sum_[2] + sum_[3];        \
		const bool odd_ = lane & 1u;                                                \
		score = (odd_ ? second_ : first_) + shuffle_xor(odd_ ? first_ : second_, 1); \
	}

/* The sum over the other two lanes: of x in lanes 0 and 1 of four, of y in lanes 2 and 3. */
static inline float sum_lanes(float x, float y, uint lane)
{
	const bool high = lane & 2u;
	return (high ? y : x) + shuffle_xor(high ? x : y, 2);
}

/* ---- local memory ---- */

struct slot {
	int line;  /* of the tile; for the first tile of a block: how many lines follow, -1 = the end */
	int block; /* for the first tile of a block: its number */
};

struct shared {
	__local uchar *ring;	    /* [SLOTS][TILE_BYTES] */
	__local float *weights;	    /* [SLOTS][80]: of lane c at 20 c */
	__local struct line *lines; /* [TILE_LINES + 1] */
	__local float *thresholds;  /* [TILE_LINES + 1] */
	__local int *counts;	    /* [TILE_LINES + 1][WARPS] */
	__local struct slot *slots; /* [SLOTS] */
	uint full, empty;	    /* addresses of [SLOTS] barriers */
};

#define SLOT_WEIGHTS 80

INLINE struct shared lay_out(__local uchar *at)
{
	struct shared s;
	s.ring = at;
	at += SLOTS * TILE_BYTES;
	s.weights = (__local float *)at;
	at += SLOTS * SLOT_WEIGHTS * 4;
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

/* ---- the producer ---- */

/* A tensor's rows as the producer copies them: of `bytes` bytes each. */
struct rows {
	const __global uchar *first;
	long pitch; /* bytes */
};

#define CHUNKS (ROW_BYTES / 16)
#define ROWS_AT_ONCE (PRODUCERS / CHUNKS)

/* 16 bytes, of which `bytes` are there; where they are not aligned, two at a time. */
INLINE void copy_chunk(uint to, const __global uchar *from, int bytes, bool aligned)
{
	if (aligned) {
		copy16(to, from, (uint)bytes);
		return;
	}
	uint words[4] = {0, 0, 0, 0};
	for (int i = 0; i < 8; i++)
		if (2 * i < bytes)
			words[i / 2] |= (uint)((const __global ushort *)from)[i] << i % 2 * 16;
	ASM("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
	    "r"(words[2]), "r"(words[3])
	    : "memory");
}

struct producer {
	uint item;
	uint issued, handed; /* slots */
	bool aligned;
};

/* Waits for the next slot to be free. */
INLINE uint take_slot(const struct shared *s, const struct producer *p)
{
	const uint slot = p->issued % SLOTS;
	barrier_wait(s->empty + slot * 8u, (p->issued / SLOTS & 1u) ^ 1u);
	return slot;
}

INLINE void hand_over(const struct shared *s, struct producer *p)
{
	fence_async();
	barrier_arrive(s->full + p->handed % SLOTS * 8u);
	p->handed++;
}

/* The copies of one slot are all given; the one PENDING before it is complete. */
INLINE void give_slot(const struct shared *s, struct producer *p)
{
	copy_commit();
	p->issued++;
	if (p->issued - p->handed > PENDING) {
		COPY_WAIT(PENDING);
		hand_over(s, p);
	}
}

INLINE void give_all(const struct shared *s, struct producer *p)
{
	COPY_WAIT(0);
	while (p->handed < p->issued)
		hand_over(s, p);
}

/* Chunk `c` of rows first, first + ROWS_AT_ONCE, ... of a tile. */
INLINE void copy_keys(const struct shared *s, const struct producer *p, uint slot, struct rows keys,
		      struct range range, int position)
{
	const uint chunk = p->item % CHUNKS, row = p->item / CHUNKS;
	const int bytes = clamp(DIM * 2 - (int)chunk * 16, 0, 16);
	const uint to = local_address(s->ring) + slot * TILE_BYTES + chunk / 8u * (64 * 128) +
			swizzled(row, chunk % 8u * 16u);
	UNROLL for (int i = 0; i < 64 / ROWS_AT_ONCE; i++) {
		const int at = min(position + (int)row + i * ROWS_AT_ONCE, range.count - 1);
		const long key = range.first + (long)at * range.step;
		copy_chunk(to + i * (ROWS_AT_ONCE * 128),
			   keys.first + key * keys.pitch + (bytes ? chunk * 16u : 0u), bytes,
			   p->aligned);
	}
}

INLINE void copy_heads(const struct shared *s, const struct producer *p, uint slot,
		       struct rows heads)
{
	const uint chunk = p->item % CHUNKS, row = p->item / CHUNKS;
	const int bytes = clamp(DIM * 2 - (int)chunk * 16, 0, 16);
	const uint to = local_address(s->ring) + slot * TILE_BYTES + chunk / 8u * COLUMN_HALF +
			swizzled(row, chunk % 8u * 16u);
	UNROLL for (int i = 0; i < (COLUMNS + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE; i++) {
		const int head = (int)row + i * ROWS_AT_ONCE;
		const bool there = head < GROUP_HEADS && bytes;
		if (COLUMNS % ROWS_AT_ONCE == 0 || head < COLUMNS)
			copy_chunk(to + i * (ROWS_AT_ONCE * 128),
				   there ? heads.first + head * heads.pitch + chunk * 16u
					 : heads.first,
				   there ? bytes : 0, p->aligned);
	}
}

/* A bit for each line of the tile that has entries in a block; this lane asks for two. */
INLINE ulong lines_of_block(const struct shared *s, struct range range, int block, uint lane)
{
	const int from = block * BLOCK_KEYS, to = from + BLOCK_KEYS;
	const uint low = ballot(meets(s->lines[lane], range, from, to));
	const uint high = ballot(meets(s->lines[lane + 32u], range, from, to));
	return (ulong)high << 32 | low;
}

INLINE void produce_line(const struct scan *sc, const struct shared *s, struct producer *p,
			 const struct operands *in, const __global float *weights, long tile,
			 int line)
{
	const uint slot = take_slot(s, p);
	if (line != NO_LINE) {
		const long own = tile * TILE_LINES + line, number = sc->line_first + own;
		const struct rows heads = {
			in->q + number / sc->groups * in->q_pitch +
				number % sc->groups * GROUP_HEADS * in->q_head_pitch,
			in->q_head_pitch};
		copy_heads(s, p, slot, heads);
		if (p->item < 16) /* four floats each */
			copy16(local_address(s->weights) + slot * (SLOT_WEIGHTS * 4u) +
				       p->item / 4u * 80u + p->item % 4u * 16u,
			       (const __global uchar *)(weights + own * 64 + p->item * 4), 16);
	}
	if (p->item == 0)
		s->slots[slot].line = line;
	give_slot(s, p);
}

/* Copies block after block: the keys, then the lines that want them. */
INLINE void produce(const struct scan *sc, const struct shared *s, const struct operands *in,
		    const __global float *weights, struct range range, long tile, int split,
		    int splits)
{
	struct producer p = {(uint)get_local_id(0) - CONSUMERS, 0, 0, in->aligned};
	const struct rows keys = {in->k, in->k_pitch};
	for (int block = split; block * BLOCK_KEYS < range.count; block += splits) {
		ulong wanted = lines_of_block(s, range, block, p.item & 31u);
		const int count = (int)popcount(wanted);
		if (count == 0)
			continue;
		for (int t = 0; t < KEY_TILES; t++) {
			const uint slot = take_slot(s, &p);
			copy_keys(s, &p, slot, keys, range, block * BLOCK_KEYS + t * 64);
			if (p.item == 0) {
				s->slots[slot].line = count;
				s->slots[slot].block = block;
			}
			give_slot(s, &p);
		}
		for (int i = 0; i < count; i++) {
			const int line = 63 - (int)clz(wanted & -wanted);
			produce_line(sc, s, &p, in, weights, tile, line);
			wanted &= wanted - 1;
		}
		for (int i = count; i % LINES_AT_ONCE; i++)
			produce_line(sc, s, &p, in, weights, tile, NO_LINE);
	}
	const uint slot = take_slot(s, &p);
	if (p.item == 0)
		s->slots[slot].line = -1;
	give_slot(s, &p);
	give_all(s, &p);
}

/* ---- the consumers ---- */

/* Where scores go: to lists, what exceeds a line's threshold, or all of them to the sample. */
struct sink {
	bool sample;
	__global float *samples; /* of the tile's first line */
	long samples_pitch;
	__global uint2 *lists; /* of the tile's first line and this warp */
	long lists_pitch;      /* of a line */
	int capacity;
};

INLINE void put_sample(const struct sink *sink, int line, struct range range, int position,
		       float x, float y)
{
	__global float *to = sink->samples + line * sink->samples_pitch + position;
	if (line == NO_LINE)
		return;
	if (position < range.count)
		to[0] = x;
	if (position + 128 < range.count)
		to[128] = y;
}

/* Scores of entries `key` and `key` + 128. */
INLINE void put_listed(const struct sink *sink, const struct shared *s, int line, int key, float x,
		       float y, uint lane, uint warp)
{
	const float threshold = s->thresholds[line];
	const struct line own = s->lines[line];
	const bool x_in = !(x <= threshold) && (uint)(key - own.begin) < (uint)own.length;
	const bool y_in = !(y <= threshold) && (uint)(key + 128 - own.begin) < (uint)own.length;
	const uint xs = ballot(x_in), ys = ballot(y_in);
	if ((xs | ys) == 0u)
		return;
	__local int *count = &s->counts[line * WARPS + (int)warp];
	__global uint2 *list = sink->lists + line * sink->lists_pitch;
	const uint before = lanes_below(lane);
	const int x_at = *count + (int)popcount(xs & before);
	const int y_first = *count + (int)popcount(xs);
	const int y_at = y_first + (int)popcount(ys & before);
	if (x_in && x_at < sink->capacity)
		list[x_at] = (uint2)((uint)key, as_uint(x));
	if (y_in && y_at < sink->capacity)
		list[y_at] = (uint2)((uint)key + 128u, as_uint(y));
	warp_sync();
	if (lane == 0)
		*count = y_first + (int)popcount(ys);
	warp_sync();
}

INLINE void wait_slot(const struct shared *s, uint number)
{
	barrier_wait(s->full + number % SLOTS * 8u, number / SLOTS & 1u);
}

/* One lane of each warp says that the warp has read a slot. */
INLINE void release_slot(const struct shared *s, uint number, uint lane)
{
	if (lane == 0)
		barrier_arrive(s->empty + number % SLOTS * 8u);
	warp_sync();
}

/* A fragments of 64 keys: rows of this warp are 16 of them. */
INLINE void load_fragments(uint4 fragments[STEPS], uint tile, uint warp, uint lane)
{
	const uint row = warp * 16u + (lane & 15u), right = lane >> 4;
	UNROLL for (int s = 0; s < STEPS; s++)
		fragments[s] = load_matrices(tile + s / 4 * (64 * 128) +
					     swizzled(row, (uint)s % 4u * 32u + right * 16u));
}

INLINE void load_weights(float weights[16], const __local float *slot, uint lane)
{
	const __local float4 *from = (const __local float4 *)(slot + (lane & 3u) * 20u);
	UNROLL for (int i = 0; i < 4; i++) {
		const float4 x = from[i];
		weights[4 * i] = x.x;
		weights[4 * i + 1] = x.y;
		weights[4 * i + 2] = x.z;
		weights[4 * i + 3] = x.w;
	}
}

INLINE void consume(const struct shared *s, const struct sink *sink, struct range range)
{
	const uint item = (uint)get_local_id(0), lane = item & 31u, warp = item / 32u;
	const uint group = warp / 4u;
	/* of this work-item's first score in its warpgroup's 256 keys */
	const int own = (int)(group * 256u + (lane >> 1 & 1u) * 64u + warp % 4u * 16u +
			      (lane & 1u) * 8u + lane / 4u);
	const uint ring = local_address(s->ring);
	DECLARE_ACCUMULATORS;
	uint at = 0;
	while (true) {
		wait_slot(s, at);
		const int count = s->slots[at % SLOTS].line, block = s->slots[at % SLOTS].block;
		if (count < 0)
			break;
		uint4 keys[4][STEPS];
		UNROLL for (uint t = 0; t < KEY_TILES; t++, at++) {
			wait_slot(s, at);
			if (t / 4u == group)
				load_fragments(keys[t % 4u], ring + at % SLOTS * TILE_BYTES,
					       warp % 4u, lane);
			/* one by one: the producer has not handed over the last of them */
			release_slot(s, at, lane);
		}
		const int position = block * BLOCK_KEYS + own;
		const int key = range.first + position * range.step;
		for (int i = 0; i < count; i += LINES_AT_ONCE) {
			wait_slot(s, at);
			START("a", keys[0], ring + at % SLOTS * TILE_BYTES)
			UNROLL for (int l = 0; l < LINES_AT_ONCE; l++, at++) {
				const uint slot = at % SLOTS, tile = ring + slot * TILE_BYTES;
				const int line = s->slots[slot].line;
				float weights[16], scores[4];
				START("b", keys[1], tile)
				load_weights(weights, s->weights + slot * SLOT_WEIGHTS, lane);
				WGMMA_WAIT(1);
				SUM_HEADS("a", scores[0])
				START("a", keys[2], tile)
				WGMMA_WAIT(1);
				SUM_HEADS("b", scores[1])
				START("b", keys[3], tile)
				WGMMA_WAIT(1);
				SUM_HEADS("a", scores[2])
				if (l + 1 < LINES_AT_ONCE) {
					wait_slot(s, at + 1);
					START("a", keys[0],
					      ring + (at + 1) % SLOTS * TILE_BYTES)
					WGMMA_WAIT(1);
				} else {
					WGMMA_WAIT(0);
				}
				release_slot(s, at, lane);
				SUM_HEADS("b", scores[3])
				const float x = sum_lanes(scores[0], scores[1], lane);
				const float y = sum_lanes(scores[2], scores[3], lane);
				if (sink->sample)
					put_sample(sink, line, range, position, x, y);
				else
					put_listed(sink, s, line, key, x, y, lane, warp);
			}
		}
	}
}

/* ---- kernels ---- */

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
	for (int i = item; i < TILE_LINES * WARPS; i += CONSUMERS + PRODUCERS)
		s->counts[i] = 0;
}

/* Scores a sample of each line's entries. Work-groups: tiles of lines. */
__kernel __attribute__((reqd_work_group_size(CONSUMERS + PRODUCERS, 1, 1))) void
score_sample(SCAN_ARGS, TENSOR_ARGS)
{
	LARGE_LOCAL(memory, LOCAL_BYTES)
	__local int ends[2];
	const struct shared s = lay_out(memory);
	const struct operands in = operands_of(q, q_at, k, k_at);
	const long tile = (long)(get_num_groups(0) - 1 - get_group_id(0));
	load_tile(AT(const struct line, table), AT(const float, thresholds), sc.lines, tile,
		  CONSUMERS + PRODUCERS, s.lines, s.thresholds);
	prepare_shared(&s);
	barrier(CLK_LOCAL_MEM_FENCE);
	/* Lines that choose all they see need no threshold. */
	const int item = (int)get_local_id(0);
	if (item < TILE_LINES && s.lines[item].length <= s.lines[item].want)
		s.lines[item].length = 0;
	const struct range range = sample_range(tile_interval(s.lines, ends), sc.samples_room);
	if (item == 0)
		AT(struct range, tiles)[tile] = range;
	if (item >= CONSUMERS) {
		GIVE_REGISTERS(56);
		produce(&sc, &s, &in, AT(const float, weights), range, tile, 0, 1);
	} else {
		TAKE_REGISTERS(224);
		const struct sink sink = {
			true, AT(float, samples) + tile * TILE_LINES * sc.samples_room,
			sc.samples_room, 0, 0, 0};
		consume(&s, &sink, range);
	}
}

/* Scores all entries and lists those above the threshold. Work-groups: tiles of lines times
 * sc.splits; later rows, which tend to see more, come first. */
__kernel __attribute__((reqd_work_group_size(CONSUMERS + PRODUCERS, 1, 1))) void
scan_keys(SCAN_ARGS, TENSOR_ARGS)
{
	LARGE_LOCAL(memory, LOCAL_BYTES)
	__local int ends[2];
	const struct shared s = lay_out(memory);
	const struct operands in = operands_of(q, q_at, k, k_at);
	const int number = (int)(get_num_groups(0) - 1 - get_group_id(0));
	const long tile = number / sc.splits;
	const int split = number % sc.splits;
	load_tile(AT(const struct line, table), AT(const float, thresholds), sc.lines, tile,
		  CONSUMERS + PRODUCERS, s.lines, s.thresholds);
	prepare_shared(&s);
	barrier(CLK_LOCAL_MEM_FENCE);
	const int2 interval = tile_interval(s.lines, ends);
	const struct range range = {interval.x, 1, interval.y - interval.x, 0};
	if ((int)get_local_id(0) >= CONSUMERS) {
		GIVE_REGISTERS(56);
		produce(&sc, &s, &in, AT(const float, weights), range, tile, split, sc.splits);
	} else {
		TAKE_REGISTERS(224);
		const uint lane = (uint)get_local_id(0) & 31u, warp = (uint)get_local_id(0) / 32u;
		const long lists = (long)sc.splits * WARPS;
		const long first = (tile * TILE_LINES * sc.splits + split) * WARPS + warp;
		const struct sink sink = {false, 0, 0, AT(uint2, lists) + first * sc.capacity,
					  lists * sc.capacity, sc.capacity};
		consume(&s, &sink, range);
		warp_sync();
		for (long i = lane; i < TILE_LINES && tile * TILE_LINES + i < sc.lines; i += 32)
			AT(int, counts)[first + i * lists] = s.counts[i * WARPS + warp];
	}
}

/* ---- repair ---- */

/* The scores of 16 keys a warp, of which a warpgroup has 64: key g in even lanes, g + 8 in odd ones,
 * added over two of four lanes. */
INLINE float score_fragments(const uint4 keys[STEPS], uint heads, const float weights[16],
			     uint lane)
{
	float score;
	START("a", keys, heads)
	WGMMA_WAIT(0);
	SUM_HEADS("a", score)
	return score;
}

#include "select_repair.clh"
