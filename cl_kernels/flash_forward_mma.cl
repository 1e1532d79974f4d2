/* flash_forward_mma.cl - attention forward with mma.sync over tiles of keys: dense, windows,
 * blocks. See flash_tiles.clh. A warp has 16 packed rows; work-groups go from item to item, the
 * fetching warp ahead of the others.
 * Options: ELEMENT_TYPE, HEAD_DIM, VALUE_DIM, SOFTCAP, TILE_KEYS, PLACES, LOCAL_BYTES, HAND_OVER. */
#define HEAD_PANELS ((HEAD_DIM + 63) / 64)
#define VALUE_PANELS ((VALUE_DIM + 63) / 64)
#include "flash_tiles.clh"
#include "flash_softmax.clh"

#define HEAD_STEPS ((HEAD_DIM + 15) / 16)
#define VALUE_STEPS ((VALUE_DIM + 15) / 16)

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
	multiply_part(x, q, HEAD_STEPS, &keys, 0, TILE_KEYS / 16);
	if (SOFTCAP)
		cap_all(x, TILE_KEYS / 2, call);
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
#ifdef HAND_OVER
		GIVE_REGISTERS(72);
#endif
		if (warp == WARPS)
			fetch_items(&reading, &rules, work, &call, local_at);
		return;
	}
#ifdef HAND_OVER
	TAKE_REGISTERS(216);
#endif
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
