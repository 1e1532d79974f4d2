/* flash_forward_mma.cl - attention forward with mma.sync over tiles of keys: dense, windows,
 * blocks. See flash_tiles.clh. A warp has 16 packed rows; work-groups go from item to item, the
 * fetching warp ahead of the others.
 *
 * With twelve warps more rows share a tile, and each has fewer registers: what stays the same from tile to
 * tile, q and the rows' intervals, lies in local memory (Q_AT).
 * Options: ELEMENT_TYPE, HEAD_DIM, VALUE_DIM, SOFTCAP, TILE_KEYS, PLACES, LOCAL_BYTES, HAND_OVER, WARPS, Q_AT. */
#define HEAD_PANELS ((HEAD_DIM + 63) / 64)
#define VALUE_PANELS ((VALUE_DIM + 63) / 64)
#ifdef HAND_OVER
#define FETCHERS 2
#endif
#include "flash_tiles.clh"
#include "flash_softmax.clh"

#define HEAD_STEPS ((HEAD_DIM + 15) / 16)
#define VALUE_STEPS ((VALUE_DIM + 15) / 16)

#ifdef Q_AT
/* Of a work-item's q: 16 bytes of each step. */
#define OWN_Q(k) (local_at + Q_AT + ((k)*WARPS * 32 + (uint)get_local_id(0)) * 16)
/* Of a slot, whose packed rows are one row's: its intervals. */
#define OWN_INTERVALS(slot) (local_at + Q_AT + HEAD_STEPS * WARPS * 32 * 16 + (slot)*32)

INLINE void keep_intervals(uint at, const struct intervals *row)
{
	const uint first[4] = {(uint)row->begin, (uint)row->first_end, (uint)row->window_begin,
			       (uint)row->end};
	const uint second[4] = {(uint)row->other_begin, (uint)row->other_end, 0, 0};
	store_local_4(at, first);
	store_local_4(at + 16, second);
}

INLINE struct intervals kept_intervals(uint at)
{
	uint first[4], second[4];
	load_local_4(at, first);
	load_local_4(at + 16, second);
	const struct intervals row = {(int)first[0], (int)first[1],  (int)first[2],
				      (int)first[3], (int)second[0], (int)second[1]};
	return row;
}

/* What stays the same from tile to tile. */
INLINE void keep_rows(const uint *q, const struct intervals *own, uint local_at)
{
	const uint warp = (uint)get_local_id(0) / 32;
#pragma unroll
	for (int k = 0; k < HEAD_STEPS; k++)
		store_local_4(OWN_Q(k), q + 4 * k);
	warp_sync();
	if (get_local_id(0) % 32 == 0) {
		keep_intervals(OWN_INTERVALS(2 * warp), &own[0]);
		keep_intervals(OWN_INTERVALS(2 * warp + 1), &own[1]);
	}
	warp_sync();
}
#endif

/* Rows of a tensor as operand a: two rows of a thread, `steps` * 16 channels. */
INLINE void load_rows(uint *a, int steps, const __global ushort *x, long4 at, int pairs,
		      int columns, const struct flash *call, int bundle, int first)
{
	const int column = (int)(get_local_id(0) % 4) * 2;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int m = first + 8 * r, row = m / call->pad, h = m % call->pad;
		const bool real = row < call->rows && h < call->bundle;
		const __global ushort *from =
			x + at.s0 + (real ? row * at.s1 + (bundle * call->bundle + h) * at.s2 : 0);
#pragma unroll
		for (int i = 0; i < 2 * steps; i++) {
			const int c = column + 8 * i;
			uint two = 0;
			if (real && pairs && c + 2 <= columns) {
				two = *(const __global uint *)(from + c);
			} else if (real) {
				two = c < columns ? from[c] : 0;
				two |= c + 1 < columns ? (uint)from[c + 1] << 16 : 0;
			}
			a[i / 2 * 4 + i % 2 * 2 + r] = two;
		}
	}
}

/* x = q times the tile's keys. */
INLINE void find_scores(float *x, const uint *q, const struct operand *keys, uint local_at)
{
#ifdef Q_AT
#pragma unroll
	for (int i = 0; i < TILE_KEYS / 2; i++)
		x[i] = 0.0f;
#pragma unroll
	for (int k = 0; k < HEAD_STEPS; k++) {
		uint a[4];
		load_local_4(OWN_Q(k), a);
		multiply_step(x, a, keys, k, 0, TILE_KEYS / 16);
	}
#else
	multiply_part(x, q, HEAD_STEPS, keys, 0, TILE_KEYS / 16);
#endif
}

/* One tile for the warp's rows. */
INLINE void attend(const struct tile_of_keys *tile, const uint *q, float *o,
		   const struct intervals *own, struct softmax *rows, const struct flash *call,
		   uint local_at)
{
	const struct operand keys = keys_operand(TILE_KEYS_AT(tile->place), tile->start);
	const struct operand values = values_operand(TILE_VALUES_AT(tile->place), tile->start);
	const int column = tile->start + (int)(get_local_id(0) % 4) * 2;
	float x[TILE_KEYS / 2];
	uint shares[TILE_KEYS / 4];
	int begin[2], end[2];
	find_scores(x, q, &keys, local_at);
	if (SOFTCAP)
		cap_all(x, TILE_KEYS / 2, call);
#ifdef Q_AT
	const uint slot = (uint)get_local_id(0) / 32 * 2;
	const struct intervals kept[2] = {kept_intervals(OWN_INTERVALS(slot)),
					  kept_intervals(OWN_INTERVALS(slot + 1))};
	own = kept;
#endif
	if (!see_tile(tile, own, begin, end))
		mask(x, TILE_KEYS / 2, column, begin, end);
	soften(x, TILE_KEYS / 2, rows, SOFTCAP ? 1.0f : call->scale * LOG2_E);
	if (must_rescale(rows)) {
#pragma unroll
		for (int i = 0; i < VALUE_STEPS * 8; i++)
			o[i] *= rows->factor[ROW_OF(i)];
	}
	pack_all(x, shares, TILE_KEYS / 4);
	add_part(o, shares, VALUE_STEPS, &values, 0, TILE_KEYS / 16);
}

/* Work-groups take items number id, id + count, ...: TILE_ROWS packed rows of a bundle. */
__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
forward(const __global ushort *q, long4 q_at, int q_pairs, __global ushort *o, long4 o_at,
	int o_pairs, __global float *lse, long4 lse_at, const __global float *sink, long4 sink_at,
	const __global int *indices, long4 indices_at, const __global int *row_begin,
	long row_begin_at, const __global int *row_end, long row_end_at,
	const __global int *other_begin, long other_begin_at, const __global int *other_end,
	long other_end_at, struct rules rules, const __global uchar *work, struct flash call)
{
#ifdef HAND_OVER
	LARGE_LOCAL(local_memory, LOCAL_BYTES)
#else
	__local uchar local_memory[LOCAL_BYTES] __attribute__((aligned(1024)));
#endif
	const uint local_at = local_address(local_memory);
	const int warp = (int)get_local_id(0) / 32, lane = (int)get_local_id(0) % 32;
	const int items = call.tiles * call.bundles;
	const uint flip = call.scale < 0.0f ? 0x80008000u : 0u;
	const struct reading reading = {.indices = indices,
					.row_begin = row_begin,
					.row_end = row_end,
					.other_begin = other_begin,
					.other_end = other_end,
					.indices_at = indices_at,
					.row_begin_at = row_begin_at,
					.row_end_at = row_end_at,
					.other_begin_at = other_begin_at,
					.other_end_at = other_end_at};
	struct turn turn = {0, 0};

	if (get_local_id(0) == 0)
		init_places(local_at);
	fence_async();
	barrier(CLK_LOCAL_MEM_FENCE);
	call.scale = fabs(call.scale);
	if (warp >= WARPS) {
		GIVE_AWAY;
		if (warp < WARPS + FETCHERS)
			fetch_items(&reading, &rules, work, &call, local_at);
		return;
	}
	TAKE_OVER;
	for (int item = (int)get_group_id(0); item < items; item += (int)get_num_groups(0)) {
		const int bundle = item / call.tiles;
		const int m =
			(call.tiles - 1 - item % call.tiles) * TILE_ROWS + warp * 16 + lane / 4;
		struct intervals own[2];
		struct softmax rows;
		uint a[HEAD_STEPS * 4];
		float sums[VALUE_STEPS * 8];
		load_rows(a, HEAD_STEPS, q, q_at, q_pairs, HEAD_DIM, &call, bundle, m);
#pragma unroll
		for (int i = 0; i < HEAD_STEPS * 4; i++)
			a[i] ^= flip;
#pragma unroll
		for (int r = 0; r < 2; r++)
			own[r] = intervals_of(&reading, &rules,
					      min((m + 8 * r) / call.pad, call.rows - 1));
#pragma unroll
		for (int i = 0; i < VALUE_STEPS * 8; i++)
			sums[i] = 0.0f;
#ifdef Q_AT
		keep_rows(a, own, local_at);
#endif
		start_softmax(&rows);
		for (;;) {
			const struct tile_of_keys tile = hear(&turn, local_at);
			if (tile.kind != DONE)
				attend(&tile, a, sums, own, &rows, &call, local_at);
			let_go(&turn, local_at);
			if (tile.kind == DONE)
				break;
		}
		const struct results results = finish_rows(o, o_at, o_pairs, VALUE_DIM, lse, lse_at,
							   sink, sink_at, &call, bundle, m, &rows);
#pragma unroll
		for (int i = 0; i < VALUE_STEPS * 8; i += 2)
			put_outputs(&results, 0, i, sums[i], sums[i + 1]);
	}
}
