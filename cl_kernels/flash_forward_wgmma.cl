/* flash_forward_wgmma.cl - dense attention forward with wgmma.
 *
 * The rows of a bundle of heads, (row, head) by (row, head), are cut in tiles of 128: a
 * work-group has one warpgroup for each 64 of them and one whose first thread fetches keys and
 * values, packed by flash_pack.clh, into rings of local memory. While the products of one tile
 * of keys with the values run, the next one's scores become shares. Tiles of keys start at multiples of
 * TILE_KEYS, so that a row's result does not depend on the rows beside it.
 * Options: ELEMENT_TYPE, HEAD_PANELS, VALUE_PANELS, SOFTCAP, LOCAL_BYTES. */
#define TILE_ROWS 128
#define KEY_STAGES 2
#define VALUE_STAGES 2
#define KEYS_AT (HEAD_PANELS * TILE_ROWS * PANEL_BYTES)
#define VALUES_AT (KEYS_AT + KEY_STAGES * KEYS_BYTES)
#define BARRIERS_AT (VALUES_AT + VALUE_STAGES * VALUES_BYTES)
#include "flash_rings.clh"
#include "flash_softmax.clh"

#define THREADS 384
/* The sums of 64 rows: scores of 128 keys, and of outputs. */
#define SCORES REGISTERS_64("s")
#if VALUE_PANELS == 2
#define OUTPUTS REGISTERS_64("o")
#define OUTPUT_SHAPE "m64n128k16"
#define EACH_OUTPUT_8(M) \
	M("o0", 0) M("o1", 1) M("o2", 2) M("o3", 3) M("o4", 4) M("o5", 5) M("o6", 6) M("o7", 7)
#else
#define OUTPUTS REGISTERS_32("o")
#define OUTPUT_SHAPE "m64n64k16"
#define EACH_OUTPUT_8(M) M("o0", 0) M("o1", 1) M("o2", 2) M("o3", 3)
#endif

/* Scores of the ring's tile: starts the products. */
INLINE void start_scores(uint rows_at, uint keys_at)
{
	const uint a = operand_at(rows_at, 0), b = operand_at(keys_at, 0);
	WGMMA_LOCAL("m64n128k16", SCORES, a, b, "0", "0", "0");
#pragma unroll
	for (int k = 1; k < HEAD_PANELS * 4; k++) {
		const uint panel = k / 4, step = k % 4 * 2;
		WGMMA_LOCAL("m64n128k16", SCORES, a + panel * (TILE_ROWS * PANEL_BYTES >> 4) + step,
			    b + panel * (TILE_KEYS * PANEL_BYTES >> 4) + step, "1", "0", "0");
	}
	WGMMA_COMMIT;
}

INLINE void start_outputs(const uint *shares, uint values_at)
{
	const uint b = operand_at(values_at, TILE_KEYS * PANEL_BYTES);
#pragma unroll
	for (int k = 0; k < TILE_KEYS / 16; k++)
		WGMMA_REGISTERS(OUTPUT_SHAPE, OUTPUTS, shares + 4 * k, b + k * 128, "1", "1");
	WGMMA_COMMIT;
}

INLINE void read_scores(float *x)
{
	READ_8("s0", x);
	READ_8("s1", x + 8);
	READ_8("s2", x + 16);
	READ_8("s3", x + 24);
	READ_8("s4", x + 32);
	READ_8("s5", x + 40);
	READ_8("s6", x + 48);
	READ_8("s7", x + 56);
}

/* Reads the finished scores of tile `i` and turns them into shares. */
INLINE void take_scores(const struct flash *call, const struct span *span, int i,
			const struct own_rows *own, struct softmax *rows, float *x)
{
	int source;
	const int key = tile_of(span, i, &source) * TILE_KEYS;
	const int column = key + (int)(get_local_id(0) % 4) * 2;
	int begin[2], end[2];
	read_scores(x);
	if (SOFTCAP)
		cap_all(x, 64, call);
	if (!sees_all(own, source, key, TILE_KEYS, begin, end))
		mask(x, 64, column, begin, end);
	soften(x, 64, rows, SOFTCAP ? 1.0f : call->scale * LOG2_E);
}

#define CLEAR_OUTPUT_8(p, n) CLEAR_8(p);
#define SCALE_OUTPUT_8(p, n) SCALE_8(p, rows->factor[0], rows->factor[1]);

INLINE void rescale(const struct softmax *rows)
{
	if (must_rescale(rows)) {
		EACH_OUTPUT_8(SCALE_OUTPUT_8)
	}
}

/* The warpgroups that compute. */
INLINE void consume(const struct flash *call, const struct span *span, const struct own_rows *own,
		    struct softmax *rows, uint rows_at, uint local_at)
{
	const int count = span->count[0] + span->count[1];
	const uint lane = get_local_id(0) % 32;
	struct turn keys = {0, 0}, values = {0, 0};
	float x[64];
	uint shares[32];
	EACH_OUTPUT_8(CLEAR_OUTPUT_8)
	if (count == 0)
		return;
	barrier_wait(FULL_KEYS(0), 0);
	WGMMA_FENCE;
	start_scores(rows_at, KEYS_PLACE(0));
	WGMMA_WAIT(0);
	warp_arrive(EMPTY_KEYS(0), lane);
	next_turn(&keys, KEY_STAGES);
	take_scores(call, span, 0, own, rows, x);
	pack_all(x, shares, 32);
	for (int i = 1; i < count; i++) {
		barrier_wait(FULL_KEYS(keys.at), keys.parity);
		barrier_wait(FULL_VALUES(values.at), values.parity);
		WGMMA_FENCE;
		start_scores(rows_at, KEYS_PLACE(keys.at));
		start_outputs(shares, VALUES_PLACE(values.at));
		WGMMA_WAIT(1);
		warp_arrive(EMPTY_KEYS(keys.at), lane);
		next_turn(&keys, KEY_STAGES);
		take_scores(call, span, i, own, rows, x);
		WGMMA_WAIT(0);
		warp_arrive(EMPTY_VALUES(values.at), lane);
		next_turn(&values, VALUE_STAGES);
		rescale(rows);
		pack_all(x, shares, 32);
	}
	barrier_wait(FULL_VALUES(values.at), values.parity);
	WGMMA_FENCE;
	start_outputs(shares, VALUES_PLACE(values.at));
	WGMMA_WAIT(0);
}

/* The rows of q into local memory, behind the last 0. A negative scale turns their signs. */
INLINE void load_rows(const __global ushort *q, long4 q_at, int wide, int columns,
		      const struct flash *call, int bundle, int first, __local uchar *to)
{
	const uint flip = call->scale < 0.0f ? 0x80008000u : 0u;
	for (int e = (int)get_local_id(0); e < TILE_ROWS * HEAD_PANELS * 8; e += THREADS) {
		const int r = e / (HEAD_PANELS * 8), part = e % (HEAD_PANELS * 8);
		const int row = (first + r) / call->bundle;
		const int head = bundle * call->bundle + (first + r) % call->bundle;
		uint4 eight = (uint4)(0);
		if (row < call->rows)
			eight = load_eight(q + q_at.s0 + row * q_at.s1 + head * q_at.s2, part * 8,
					   columns, wide);
		*(__local uint4 *)(to + part / 8 * (TILE_ROWS * PANEL_BYTES) +
				   swizzled((uint)r, (uint)part % 8 * 16u)) = eight ^ flip;
	}
}

#define PUT_OUTPUT_8(p, n)                                                  \
	{                                                                   \
		float y[8];                                                 \
		READ_8(p, y);                                               \
		_Pragma("unroll") for (int i = 0; i < 8; i += 2)            \
			put_outputs(&results, 16 * (n), i, y[i], y[i + 1]); \
	}

/* Work-group: TILE_ROWS (row, head) of a bundle, those that see most first. */
__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
forward(const __global ushort *q, long4 q_at, int q_wide, int head_dim, __global ushort *o,
	long4 o_at, int o_pairs, int value_dim, __global float *lse, long4 lse_at,
	const __global float *sink, long4 sink_at, const __global int *row_begin, long row_begin_at,
	const __global int *row_end, long row_end_at, const __global int *other_begin,
	long other_begin_at, const __global int *other_end, long other_end_at,
	const __global uchar *work, struct flash call)
{
	LARGE_LOCAL(local_memory, LOCAL_BYTES)
	__local int low[2], high[2];
	const uint local_at = local_address(local_memory);
	const int item = (int)get_local_id(0), group = item / 128;
	const int bundle = (int)get_group_id(0) / call.tiles;
	const int tile = call.tiles - 1 - (int)get_group_id(0) % call.tiles;
	const int kv_head = (int)((long)bundle * call.kv_heads / call.bundles);
	const int first = tile * TILE_ROWS;
	struct span span;
	DECLARE_REGISTERS(SCORES);
	DECLARE_REGISTERS(OUTPUTS);

	if (item == 0) {
		init_rings(local_at, 8);
		for (int i = 0; i < 2; i++) {
			low[i] = INT_MAX;
			high[i] = 0;
		}
	}
	load_rows(q, q_at, q_wide, head_dim, &call, bundle, first, local_memory);
	barrier(CLK_LOCAL_MEM_FENCE);
	if (item < TILE_ROWS && (first + item) / call.bundle < call.rows) {
		const int row = (first + item) / call.bundle;
		widen(low, high, row_begin[row_begin_at + row], row_end[row_end_at + row],
		      TILE_KEYS);
		if (other_begin_at >= 0)
			widen(low + 1, high + 1, other_begin[other_begin_at + row],
			      other_end[other_end_at + row], TILE_KEYS);
	}
	fence_async();
	barrier(CLK_LOCAL_MEM_FENCE);
	span = span_of(low, high);
	if (group == 2) {
		GIVE_REGISTERS(24);
		if (item == 256)
			feed_rings(work, &call, kv_head, &span, local_at);
		return;
	}
	TAKE_REGISTERS(240);
	{
		const int m = first + group * 64 + item % 128 / 32 * 16 + item % 32 / 4;
		struct own_rows own;
		struct softmax rows;
		for (int r = 0; r < 2; r++) {
			const int row = min((m + 8 * r) / call.bundle, call.rows - 1);
			own.begin[0][r] = row_begin[row_begin_at + row];
			own.end[0][r] = row_end[row_end_at + row];
			own.begin[1][r] = own.end[1][r] = 0;
			if (other_begin_at >= 0) {
				own.begin[1][r] = other_begin[other_begin_at + row];
				own.end[1][r] = other_end[other_end_at + row];
			}
		}
		start_softmax(&rows);
		call.scale = fabs(call.scale);
		consume(&call, &span, &own, &rows, local_at + group * 64 * PANEL_BYTES, local_at);
		const struct results results = finish_rows(o, o_at, o_pairs, value_dim, lse, lse_at,
							   sink, sink_at, &call, bundle, m, &rows);
		EACH_OUTPUT_8(PUT_OUTPUT_8)
	}
}
