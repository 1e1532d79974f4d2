/* attention_forward_gather.cl - attention over gathered key rows, which the 16 or more heads of
 * a bundle share, by wgmma.
 *
 * A work-group takes one item after the other, 64 heads of a row, and goes over the row's list
 * in tiles of TILE_KEYS key rows. Its groups of four warps each do one thing:
 *   scores  S = q k^T, the softmax's running maximum and sums; hands shares to
 *   values  (two groups, half of the channels each) o += P v;
 *   gather  copies key rows into a ring of tiles.
 * The products of the next tile's scores are put before those of this tile's values, so that
 * the tensor cores have work while shares are computed. Sums are rescaled only when the maximum
 * has grown by more than 2^GROWTH: shares stay below that, and f32 has room.
 *
 * Options: those of attention_forward.cl, whose kernels do the calls that this cannot; ELEMENT_TYPE,
 * SCALE and SOFTCAP of logits, KEY_CHUNKS and VALUE_CHUNKS (64 channels each), Q_REGISTERS (chunks of
 * q that are kept in registers); for v in the keys' rows and for v of its own STAGES_ (tiles in
 * flight, 0 = not possible) and LOCAL_ (bytes). */
#include "attention_forward.cl"
#include "gather_lists.clh"

#define TILE_KEYS 48u
#define CHUNK_BYTES (TILE_KEYS * 128u)
#define Q_CHUNK_BYTES (ITEM_HEADS * 128u)
#define Q_LOCAL (KEY_CHUNKS - Q_REGISTERS)
#define SHARE_BYTES (TILE_KEYS * ITEM_HEADS * 2u)
#define GROWTH 8.0f
#define LOWEST -3.0e38f

/* What a group of values does: columns of one instruction, and how many of those. */
#if VALUE_CHUNKS % 4 == 0
#define VALUE_SHAPE "m64n128k16"
#define VALUE_REGISTERS REGISTERS_64
#define PIECE_CHUNKS 2
#else
#define VALUE_SHAPE "m64n64k16"
#define VALUE_REGISTERS REGISTERS_32
#define PIECE_CHUNKS 1
#endif
#define PIECES (VALUE_CHUNKS / 2 / PIECE_CHUNKS)

/* Bytes of local memory. */
struct places {
	uint tile_bytes, stages;
	uint ring, q, shares, factors, inverse, barriers;
};

static inline struct places places_of(uint at, bool separate)
{
	struct places places;
	places.tile_bytes = (KEY_CHUNKS + (separate ? VALUE_CHUNKS : 0)) * CHUNK_BYTES;
	places.stages = separate ? STAGES_SEPARATE : STAGES_SHARED;
	places.ring = at;
	places.q = at + places.stages * places.tile_bytes;
	places.shares = places.q + Q_LOCAL * Q_CHUNK_BYTES;
	places.factors = places.shares + 2u * SHARE_BYTES;
	places.inverse = places.factors + 2u * ITEM_HEADS * 4u;
	places.barriers = places.inverse + ITEM_HEADS * 4u;
	return places;
}

/* The scores' group may be two tiles ahead of a group of values, too far for one barrier's parity. */
#define SCORED_TURNS 4u

/* Barriers: a tile is there, or free (for each stage); shares are there, or free (two); the
 * scores' product has ended (SCORED_TURNS); the inverse sums are there, or free. */
#define TILE_FULL(stage) (places.barriers + (stage)*8u)
#define TILE_FREE(stage) (places.barriers + 64u + (stage)*8u)
#define SHARES_FULL(slot) (places.barriers + 128u + (slot)*8u)
#define SHARES_FREE(slot) (places.barriers + 144u + (slot)*8u)
#define SCORED(turn) (places.barriers + 160u + (turn)*8u)
#define INVERSE_FULL (places.barriers + 192u)
#define INVERSE_FREE (places.barriers + 200u)

INLINE void init_barriers(const struct places places)
{
	for (uint stage = 0; stage < places.stages; stage++) {
		barrier_init(TILE_FULL(stage), 4);
		barrier_init(TILE_FREE(stage), 8);
	}
	for (uint slot = 0; slot < 2; slot++) {
		barrier_init(SHARES_FULL(slot), 4);
		barrier_init(SHARES_FREE(slot), 8);
	}
	for (uint turn = 0; turn < SCORED_TURNS; turn++)
		barrier_init(SCORED(turn), 4);
	barrier_init(INVERSE_FULL, 128);
	barrier_init(INVERSE_FREE, 8);
}

/* ---- scores ---- */

/* The item's heads in q. */
static inline const __global uchar *q_of(const struct item *item, const __global uchar *q,
					 long4 q_at)
{
	return q + 2 * (q_at.s0 + item->row * q_at.s1 + item->head * q_at.s2);
}

/* Bytes between heads. Hides from the compiler that they are always the same, lest it keeps what
 * follows of them in registers. */
static inline long q_pitch(long4 q_at)
{
	long same;
	ASM("mov.u64 %0, %1;" : "=l"(same) : "l"(2 * q_at.s2));
	return same;
}

/* What of the heads' q does not lie in registers: into local memory when all of the group have
 * come here, done by take_q(). */
INLINE void copy_q(const struct places places, const __global uchar *q, long4 q_at,
		   const struct item *item)
{
	const uint thread = (uint)get_local_id(0);
	const long pitch = q_pitch(q_at);
	const __global uchar *from = q_of(item, q, q_at);
	GROUP_SYNC("1");
#pragma unroll
	for (uint i = 0; i < 4u * Q_LOCAL; i++) {
		const uint column = thread & 7u, row = thread / 8u + i % 4u * 16u, chunk = i / 4u;
		const bool real = (int)row < item->heads;
		copy_16(places.q + chunk * Q_CHUNK_BYTES + swizzled(row, column * 16u),
			from + (real ? row * pitch : 0) + (Q_REGISTERS + chunk) * 128u +
				column * 16u,
			real);
	}
}

/* The rest, for take_q(). */
INLINE void read_q(const __global uchar *q, long4 q_at, const struct item *item, uint *operands)
{
	read_fragments(q_of(item, q, q_at), q_pitch(q_at), item->heads, Q_REGISTERS, operands);
}

/* Waits for all of q. */
INLINE void take_q(uint *operands)
{
	arrange_fragments(Q_REGISTERS, operands);
	copies_wait();
	fence_async();
	GROUP_SYNC("1");
}

#define SCORE_SHAPE "m64n48k16"
#define SCORE_REGISTERS REGISTERS_24("s")

/* S of the tile at `keys`, an operand. */
INLINE void score_tile(uint keys, uint q_local, const uint *operands)
{
	WGMMA_FENCE;
#pragma unroll
	for (uint k = 0; k < 4u * Q_REGISTERS; k++) {
		const uint b = keys + k / 4u * (CHUNK_BYTES >> 4) + k % 4u * 2u;
		if (k == 0)
			WGMMA_REGISTERS(SCORE_SHAPE, SCORE_REGISTERS, operands, b, "0", "0");
		else
			WGMMA_REGISTERS(SCORE_SHAPE, SCORE_REGISTERS, operands + 4u * k, b, "1",
					"0");
	}
#pragma unroll
	for (uint k = 0; k < 4u * Q_LOCAL; k++) {
		const uint b = keys + (Q_REGISTERS + k / 4u) * (CHUNK_BYTES >> 4) + k % 4u * 2u;
		WGMMA_LOCAL(SCORE_SHAPE, SCORE_REGISTERS,
			    q_local + k / 4u * (Q_CHUNK_BYTES >> 4) + k % 4u * 2u, b, "1", "0",
			    "0");
	}
	WGMMA_COMMIT;
}

/* What dot products are multiplied by to be logits in powers of two. */
#ifdef SOFTCAP
#define LOGIT_SCALE LOG2_E
static inline float logit_part(float dot_product)
{
	return SOFTCAP * tanh(SCALE * dot_product / SOFTCAP);
}
#elif defined(SCALE_NEGATIVE)
#define LOGIT_SCALE (-SCALE * LOG2_E)
static inline float logit_part(float dot_product)
{
	return -dot_product;
}
#else
#define LOGIT_SCALE (SCALE * LOG2_E)
static inline float logit_part(float dot_product)
{
	return dot_product;
}
#endif

/* A thread's two heads: lane / 4 of its warp, and 8 further. */
struct running_pair {
	float most[2], sum[2];
};

/* Turns the tile's dot products x into shares; factors: what sums so far are multiplied by. */
INLINE void share_tile(float *x, struct running_pair *run, float *factors)
{
	float most[2] = {LOWEST, LOWEST};
#pragma unroll
	for (int i = 0; i < 24; i++)
		most[i / 2 % 2] = fmax(most[i / 2 % 2], x[i]);
#pragma unroll
	for (int side = 0; side < 2; side++) {
		float own = most[side];
		own = fmax(own, shuffle_xor(own, 1));
		own = fmax(own, shuffle_xor(own, 2)) * LOGIT_SCALE;
		own = own > run->most[side] + GROWTH ? own : run->most[side];
		factors[side] = exp2_fast(run->most[side] - own);
		run->most[side] = own;
		run->sum[side] *= factors[side];
	}
#pragma unroll
	for (int i = 0; i < 24; i++) {
		x[i] = exp2_fast(fma(x[i], LOGIT_SCALE, -run->most[i / 2 % 2]));
		run->sum[i / 2 % 2] += x[i];
	}
}

INLINE void store_shares(const struct places places, const float *x, const float *factors,
			 uint slot)
{
	const uint thread = (uint)get_local_id(0), lane = thread & 31u;
	const uint head = thread / 32u * 16u + lane / 4u;
#pragma unroll
	for (uint k = 0; k < 3u; k++) {
		uint packed[4];
#pragma unroll
		for (uint i = 0; i < 4u; i++)
			packed[i] = pack_elements(x[8u * k + 2u * i], x[8u * k + 2u * i + 1u]);
		store_local_4(places.shares + slot * SHARE_BYTES + k * 2048u + thread * 16u,
			      packed);
	}
	if ((lane & 3u) == 0) {
		const uint at = places.factors + slot * ITEM_HEADS * 4u + head * 4u;
		store_local_f32(at, factors[0]);
		store_local_f32(at + 32u, factors[1]);
	}
}

/* The logarithm of the sums to lse, their inverses to the groups of values. */
INLINE void finish_scores(const struct places places, struct running_pair *run,
			  const struct item *item, __global float *lse, long4 lse_at,
			  const __global float *sink, long4 sink_at)
{
	const uint thread = (uint)get_local_id(0), lane = thread & 31u;
	const uint head = thread / 32u * 16u + lane / 4u;
#pragma unroll
	for (uint side = 0; side < 2u; side++) {
		const int own = (int)(head + side * 8u);
		const float most = run->most[side];
		float sum = run->sum[side], whole;
		sum += shuffle_xor(sum, 1);
		sum += shuffle_xor(sum, 2);
		if ((lane & 3u) == 0 && own < item->heads) {
			const long place = item->row * lse_at.s1 + (item->head + own) * lse_at.s2;
			whole = sum;
			if (PRESENT(sink_at))
				whole += exp2_fast(
					fma(sink[sink_at.s0 + item->head + own], LOG2_E, -most));
			if (PRESENT(lse_at))
				lse[lse_at.s0 + place] =
					sum == 0.0f ? NEGATIVE_INFINITY : (most + log2(sum)) * LN_2;
			store_local_f32(places.inverse + (uint)own * 4u,
					sum == 0.0f ? 0.0f : 1.0f / whole);
		}
	}
}

/* Reads the next item's q while the shares of this one's last tile are computed. */
INLINE void score_items(const struct places places, const __global uchar *q, long4 q_at,
			__global float *lse, long4 lse_at, const __global float *sink,
			long4 sink_at, struct row_map map, const __global uchar *work,
			struct gather_lists lists, struct tile tile)
{
	const uint lane = (uint)get_local_id(0) & 31u, items = item_count(&tile);
	const uint keys = operand_at(places.ring, 0), q_local = operand_at(places.q, 0);
	struct turn ring = {0, 0}, slot = {0, 0}, scored = {0, 0};
	uint parity = 0, i = (uint)get_group_id(0), operands[16u * Q_REGISTERS];
	if (i < items) {
		const struct item item = item_at(i, &tile, &map, work, &lists);
		copy_q(places, q, q_at, &item);
		read_q(q, q_at, &item, operands);
	}
	for (; i < items; parity ^= 1u) {
		const struct item own = item_at(i, &tile, &map, work, &lists);
		struct running_pair run = {{LOWEST, LOWEST}, {0.0f, 0.0f}};
		take_q(operands);
		i += (uint)get_num_groups(0);
		for (int first = 0; first < own.count; first += (int)TILE_KEYS) {
			const int left = own.count - first - 2 * (int)(lane & 3u);
			float x[24], factors[2];
			barrier_wait(TILE_FULL(ring.at), ring.parity);
			score_tile(keys + ring.at * (places.tile_bytes >> 4), q_local, operands);
			next_turn(&ring, places.stages);
			WGMMA_WAIT(0);
			if (lane == 0)
				barrier_arrive(SCORED(scored.at));
			next_turn(&scored, SCORED_TURNS);
			if (i < items && own.count - first <= (int)TILE_KEYS) {
				const struct item next = item_at(i, &tile, &map, work, &lists);
				copy_q(places, q, q_at, &next);
			}
			READ_8("s0", x);
			READ_8("s1", x + 8);
			READ_8("s2", x + 16);
#pragma unroll
			for (int e = 0; e < 24; e++)
				x[e] = logit_part(x[e]);
			if (own.count - first < (int)TILE_KEYS) {
#pragma unroll
				for (int e = 0; e < 24; e++)
					x[e] = e / 4 * 8 + e % 2 < left ? x[e] : NEGATIVE_INFINITY;
			}
			share_tile(x, &run, factors);
			barrier_wait(SHARES_FREE(slot.at), slot.parity ^ 1u);
			store_shares(places, x, factors, slot.at);
			warp_arrive(SHARES_FULL(slot.at), lane);
			next_turn(&slot, 2);
		}
		if (lane == 0)
			barrier_arrive(SCORED(scored.at));
		next_turn(&scored, SCORED_TURNS);
		if (i < items) {
			const struct item next = item_at(i, &tile, &map, work, &lists);
			if (own.count == 0)
				copy_q(places, q, q_at, &next);
			read_q(q, q_at, &next, operands);
		}
		barrier_wait(INVERSE_FREE, parity ^ 1u);
		finish_scores(places, &run, &own, lse, lse_at, sink, sink_at);
		barrier_arrive(INVERSE_FULL);
	}
}

/* ---- values ---- */

#define EACH_PIECE_8(f, p)       \
	f(p "0");                \
	f(p "1");                \
	f(p "2");                \
	f(p "3");                \
	if (PIECE_CHUNKS == 2) { \
		f(p "4");        \
		f(p "5");        \
		f(p "6");        \
		f(p "7");        \
	}
#if PIECES == 1
#define EACH_PIECE(f) f("o0", 0u)
#elif PIECES == 2
#define EACH_PIECE(f) f("o0", 0u) f("o1", 1u)
#else
#define EACH_PIECE(f) f("o0", 0u) f("o1", 1u) f("o2", 2u)
#endif

#define CLEAR_PIECE(p, piece) EACH_PIECE_8(CLEAR_8, p)
#define SCALE_ROWS_8(p) SCALE_8(p, factors[0], factors[1])
#define SCALE_PIECE(p, piece) EACH_PIECE_8(SCALE_ROWS_8, p)
#define DECLARE_PIECE(p, piece) DECLARE_REGISTERS(VALUE_REGISTERS(p));
#define MULTIPLY_PIECE(p, piece)                                          \
	WGMMA_REGISTERS(VALUE_SHAPE, VALUE_REGISTERS(p), shares + 4u * k, \
			values + piece * PIECE_CHUNKS * (CHUNK_BYTES >> 4) + k * 128u, "1", "1");

/* 32 columns of a thread's two heads, x as read from registers; NULL = no such head. */
static inline void store_columns(const float *x, const float *inverse, __global uchar *const *rows,
				 uint column, uint lane)
{
#pragma unroll
	for (uint side = 0; side < 2u; side++) {
		uint packed[4];
#pragma unroll
		for (uint i = 0; i < 4u; i++)
			packed[i] = pack_elements(x[4u * i + 2u * side] * inverse[side],
						  x[4u * i + 2u * side + 1u] * inverse[side]);
		swap_lanes(packed, lane);
		if (rows[side])
			*(__global uint4 *)(rows[side] + 2u * column + 16u * (lane & 3u)) =
				(uint4)(packed[0], packed[1], packed[2], packed[3]);
	}
}

#define STORE_32(low, high, column)                            \
	{                                                      \
		float x[16];                                   \
		READ_8(low, x);                                \
		READ_8(high, x + 8);                           \
		store_columns(x, factors, rows, column, lane); \
	}
#define STORE_PIECE(p, piece)                                           \
	STORE_32(p "0", p "1", piece *PIECE_CHUNKS * 64u)               \
	STORE_32(p "2", p "3", piece *PIECE_CHUNKS * 64u + 32u)         \
	if (PIECE_CHUNKS == 2) {                                        \
		STORE_32(p "4", p "5", piece *PIECE_CHUNKS * 64u + 64u) \
		STORE_32(p "6", p "7", piece *PIECE_CHUNKS * 64u + 96u) \
	}

/* o += P v over the tile whose values are at the operand `values`. */
INLINE void add_values(const struct places places, uint values, const struct turn *slot,
		       struct turn *scored)
{
	const uint thread = (uint)get_local_id(0) & 127u, lane = thread & 31u;
	const uint head = thread / 32u * 16u + lane / 4u;
	const uint factors_at = places.factors + slot->at * ITEM_HEADS * 4u + head * 4u;
	const uint shares_at = places.shares + slot->at * SHARE_BYTES + thread * 16u;
	uint shares[12];
	float factors[2];
	barrier_wait(SHARES_FULL(slot->at), slot->parity);
	factors[0] = load_local_f32(factors_at);
	factors[1] = load_local_f32(factors_at + 32u);
#pragma unroll
	for (uint k = 0; k < 3u; k++)
		load_local_4(shares_at + k * 2048u, shares + 4u * k);
	if (any_of_warp(factors[0] != 1.0f || factors[1] != 1.0f)) {
		EACH_PIECE(SCALE_PIECE)
	}
	barrier_wait(SCORED(scored->at), scored->parity);
	next_turn(scored, SCORED_TURNS);
	WGMMA_FENCE;
#pragma unroll
	for (uint k = 0; k < 3u; k++) {
		EACH_PIECE(MULTIPLY_PIECE)
	}
	WGMMA_COMMIT;
	WGMMA_WAIT(0);
}

INLINE void value_items(const struct places places, bool separate, __global uchar *o, long4 o_at,
			struct row_map map, const __global uchar *work, struct gather_lists lists,
			struct tile tile)
{
	const uint thread = (uint)get_local_id(0) & 127u, lane = thread & 31u;
	const uint head = thread / 32u * 16u + lane / 4u, items = item_count(&tile);
	const uint side = (uint)get_local_id(0) / 128u - 1u;
	const uint chunk = (separate ? KEY_CHUNKS : 0u) + side * (VALUE_CHUNKS / 2u);
	const uint values = operand_at(places.ring + chunk * CHUNK_BYTES, CHUNK_BYTES);
	struct turn ring = {0, 0}, slot = {0, 0}, scored = {0, 0};
	uint parity = 0;
	for (uint i = (uint)get_group_id(0); i < items;
	     i += (uint)get_num_groups(0), parity ^= 1u) {
		const struct item item = item_at(i, &tile, &map, work, &lists);
		__global uchar *rows[2];
		float factors[2];
		EACH_PIECE(CLEAR_PIECE)
		barrier_wait(SCORED(scored.at), scored.parity);
		next_turn(&scored, SCORED_TURNS);
		for (int first = 0; first < item.count; first += (int)TILE_KEYS) {
			add_values(places, values + ring.at * (places.tile_bytes >> 4), &slot,
				   &scored);
			if (lane == 0) {
				barrier_arrive(TILE_FREE(ring.at));
				barrier_arrive(SHARES_FREE(slot.at));
			}
			warp_sync();
			next_turn(&ring, places.stages);
			next_turn(&slot, 2);
		}
		barrier_wait(INVERSE_FULL, parity);
		factors[0] = load_local_f32(places.inverse + head * 4u);
		factors[1] = load_local_f32(places.inverse + head * 4u + 32u);
		warp_arrive(INVERSE_FREE, lane);
#pragma unroll
		for (uint h = 0; h < 2u; h++)
			rows[h] = (int)(head + 8u * h) < item.heads
					  ? o + 2 * (o_at.s0 + item.row * o_at.s1 +
						     (item.head + (int)(head + 8u * h)) * o_at.s2 +
						     side * (VALUE_CHUNKS * 32u))
					  : 0;
		EACH_PIECE(STORE_PIECE)
	}
}

/* ---- gather ---- */

/* The q of item i into the second cache, a row for each of 64 threads. */
INLINE void prefetch_q(uint i, const __global uchar *q, long4 q_at, const struct row_map *map,
		       const __global uchar *work, const struct gather_lists *lists,
		       const struct tile *tile)
{
	const struct item item = item_at(i, tile, map, work, lists);
	const int thread = (int)get_local_id(0) & 127;
	if (thread < item.heads)
		prefetch_bulk(q_of(&item, q, q_at) + thread * 2 * q_at.s2, KEY_CHUNKS * 128u);
}

INLINE void gather_items(const struct places places, bool separate, const __global uchar *q,
			 long4 q_at, const __global uchar *k, long4 k_at, const __global uchar *v,
			 long4 v_at, const __global uchar *window_k, long4 window_k_at,
			 const __global uchar *window_v, long4 window_v_at, struct row_map map,
			 const __global uchar *work, struct gather_lists lists, struct tile tile)
{
	const uint thread = (uint)get_local_id(0) & 127u, lane = thread & 31u;
	const uint column = thread & 7u, row = thread / 8u, items = item_count(&tile);
	const uint place = places.ring + swizzled(row, column * 16u);
	struct turn ring = {0, 1};
	for (uint i = (uint)get_group_id(0); i < items; i += (uint)get_num_groups(0)) {
		const struct item item = item_at(i, &tile, &map, work, &lists);
		const __global int *list = list_at(&item, work, &lists) + row;
		if (i + (uint)get_num_groups(0) < items)
			prefetch_q(i + (uint)get_num_groups(0), q, q_at, &map, work, &lists, &tile);
		const struct key_source keys =
			key_source_at(k, k_at, window_k, window_k_at, item.kv_head);
		const struct key_source values =
			key_source_at(v, v_at, window_v, window_v_at, item.kv_head);
		int left = item.count - (int)row, entries[3];
#pragma unroll
		for (int e = 0; e < 3; e++)
			entries[e] = 16 * e < left ? list[16 * e] : 0;
		for (; left > -(int)row; left -= (int)TILE_KEYS) {
			const uint to = place + ring.at * places.tile_bytes;
			int next[3];
			list += TILE_KEYS;
#pragma unroll
			for (int e = 0; e < 3; e++)
				next[e] = 16 * e + (int)TILE_KEYS < left ? list[16 * e] : 0;
			barrier_wait(TILE_FREE(ring.at), ring.parity);
#pragma unroll
			for (int e = 0; e < 3; e++) {
				const bool wanted = 16 * e < left;
				gather_row(to + (uint)e * 2048u,
					   key_source_row(&keys, entries[e]) + column * 16u,
					   KEY_CHUNKS, CHUNK_BYTES, wanted);
				if (separate)
					gather_row(to + KEY_CHUNKS * CHUNK_BYTES + (uint)e * 2048u,
						   key_source_row(&values, entries[e]) +
							   column * 16u,
						   VALUE_CHUNKS, CHUNK_BYTES, wanted);
				entries[e] = next[e];
			}
			copies_wait();
			fence_async();
			warp_arrive(TILE_FULL(ring.at), lane);
			next_turn(&ring, places.stages);
		}
	}
}

/* ---- kernels ---- */

#define PARAMETERS                                                                                 \
	const __global uchar *q, long4 q_at, const __global uchar *k, long4 k_at,                  \
		const __global uchar *v, long4 v_at, const __global uchar *window_k,               \
		long4 window_k_at, const __global uchar *window_v, long4 window_v_at,              \
		const __global float *sink, long4 sink_at, __global uchar *o, long4 o_at,          \
		__global float *lse, long4 lse_at, struct row_map map, const __global uchar *work, \
		struct gather_lists lists, struct tile tile

/* separate: v has rows of its own. An entry that is not possible is empty, as programs must have it. */
#define ATTEND(name, separate, bytes)                                                              \
	__kernel __attribute__((reqd_work_group_size(512, 1, 1))) void name(PARAMETERS)            \
	{                                                                                          \
		LARGE_LOCAL(space, bytes);                                                         \
		const struct places places = places_of(local_address(space), separate);            \
		const uint group = (uint)get_local_id(0) / 128u;                                   \
		DECLARE_REGISTERS(SCORE_REGISTERS);                                                \
		EACH_PIECE(DECLARE_PIECE)                                                          \
		if (get_local_id(0) == 0)                                                          \
			init_barriers(places);                                                     \
		barrier(CLK_LOCAL_MEM_FENCE);                                                      \
		if (group == 0) {                                                                  \
			TAKE_REGISTERS(144);                                                       \
			score_items(places, q, q_at, lse, lse_at, sink, sink_at, map, work, lists, \
				    tile);                                                         \
		} else if (group < 3) {                                                            \
			TAKE_REGISTERS(168);                                                       \
			value_items(places, separate, o, o_at, map, work, lists, tile);            \
		} else {                                                                           \
			GIVE_REGISTERS(32);                                                        \
			gather_items(places, separate, q, q_at, k, k_at, v, v_at, window_k,        \
				     window_k_at, window_v, window_v_at, map, work, lists, tile);  \
		}                                                                                  \
	}
#define IMPOSSIBLE(name)                                                                \
	__kernel __attribute__((reqd_work_group_size(512, 1, 1))) void name(PARAMETERS) \
	{                                                                               \
	}

#if STAGES_SHARED
ATTEND(attend_shared, false, LOCAL_SHARED)
#else
IMPOSSIBLE(attend_shared)
#endif

#if STAGES_SEPARATE
ATTEND(attend_separate, true, LOCAL_SEPARATE)
#else
IMPOSSIBLE(attend_separate)
#endif
