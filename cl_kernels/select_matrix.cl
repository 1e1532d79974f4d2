/* select_matrix.cl - select by matrix units: the scores of entries in bf16 or f16, exact products
 * summed in f32. Means of coarse blocks are f32 and scored by select_tile.clh.
 *
 * A work-group scores TILE_KEYS keys. Its subgroups keep the keys as RIGHT operands, KEY_TILES
 * tiles of UNIT_COLUMNS keys each, and the heads of one row after the other pass through local
 * memory as LEFT, HEAD_TILES tiles of UNIT_ROWS at once. SUBGROUPS * UNIT_COLUMNS is PASS.
 * Options besides those of select_tile.clh and matrix.clh: KEY_TILES, HEAD_TILES, DEPTHS (steps of
 * UNIT_DEPTH channels). KEY_ALIGN is TILE_KEYS, or 1 where the tile's keys are listed. */
#include "matrix.clh"
#include "select_tile.clh"

#define PASS 64 /* keys, or heads, brought to local memory at once */
#define MATRIX_KEYS (PASS * KEY_TILES)
#define WORDS (DEPTHS * UNIT_WORDS)
#define PITCH (WORDS + UNIT_PAD)

struct matrix_tile {
	__local uint *words;	  /* [PASS][PITCH] heads, and keys before they are held */
	__local float *parts;	  /* [UNIT_SHARES][MATRIX_KEYS] */
	__local float *weight;	  /* [PASS] of the heads */
	__local float *scale;	  /* [PASS] of the heads, f8 */
	__local int *key;	  /* [MATRIX_KEYS] which keys; -1 = none */
	__local float *key_scale; /* [MATRIX_KEYS], f8 */
};

#define MATRIX_TILE                                            \
	__local uint4 tile_words[PASS * PITCH / 4 + 1];        \
	__local float tile_parts[UNIT_SHARES * MATRIX_KEYS];   \
	__local float tile_weight[PASS], tile_scale[PASS];     \
	__local int tile_key[MATRIX_KEYS];                     \
	__local float tile_key_scale[MATRIX_KEYS];             \
	struct matrix_tile tile = {(__local uint *)tile_words, \
				   tile_parts,                 \
				   tile_weight,                \
				   tile_scale,                 \
				   tile_key,                   \
				   tile_key_scale};

/* The keys in tile->key, as what each lane multiplies by. */
INLINE void hold_keys(struct unit unit, const struct matrix_tile *tile, const struct keys *keys,
		      bool any, right_t held[KEY_TILES][DEPTHS])
{
	const bool aligned = aligned_rows(keys->k_at.s0, keys->k_at.s1, 0);
	UNIT_UNROLL
	for (int n = 0; n < KEY_TILES; n++) {
		barrier(CLK_LOCAL_MEM_FENCE);
		for (int i = (int)get_local_id(0); i < PASS * (WORDS / 4); i += UNIT_GROUP) {
			const int column = i / (WORDS / 4), word = i % (WORDS / 4) * 4;
			const int key = tile->key[column / UNIT_COLUMNS * KEY_TILES * UNIT_COLUMNS +
						  n * UNIT_COLUMNS + column % UNIT_COLUMNS];
			const long from = keys->k_at.s0 + key * keys->k_at.s1 + 2 * word;
			put_words(tile->words + column * PITCH + word,
				  load_words(keys->k, from,
					     any && key >= 0 ? keys->dim - 2 * word : 0, INDEX_TYPE,
					     aligned));
		}
		barrier(CLK_LOCAL_MEM_FENCE);
		UNIT_UNROLL
		for (int step = 0; step < DEPTHS; step++)
			held[n][step] =
				load_right(tile->words + unit.subgroup * UNIT_COLUMNS * PITCH +
						   step * UNIT_WORDS,
					   PITCH, unit.lane);
	}
	for (int n = (int)get_local_id(0); INDEX_TYPE == TYPE_F8E4M3 && n < MATRIX_KEYS;
	     n += UNIT_GROUP)
		tile->key_scale[n] =
			tile->key[n] >= 0 ? keys->scale[keys->scale_at.s0 + tile->key[n]] : 0.0f;
}

/* Heads [head, head_end) of a row, at most PASS of them. */
INLINE void load_heads(const struct scoring *sc, const struct matrix_tile *tile,
		       const __global void *q, long4 q_at, const __global float *q_scale,
		       long4 q_scale_at, const __global float *w, long4 w_at, long row, int head,
		       int head_end)
{
	const bool aligned = aligned_rows(q_at.s0, q_at.s1, q_at.s2);
	for (int i = (int)get_local_id(0); i < PASS * (WORDS / 4); i += UNIT_GROUP) {
		const int h = i / (WORDS / 4), word = i % (WORDS / 4) * 4;
		const long from = q_at.s0 + row * q_at.s1 + (head + h) * q_at.s2 + 2 * word;
		put_words(tile->words + h * PITCH + word,
			  load_words(q, from, head + h < head_end ? sc->dim - 2 * word : 0,
				     INDEX_TYPE, aligned));
	}
	for (int h = (int)get_local_id(0); h < PASS; h += UNIT_GROUP) {
		const bool there = head + h < head_end;
		tile->weight[h] = there ? load_w(w, w_at, row, head + h) : 0.0f;
		if (INDEX_TYPE == TYPE_F8E4M3)
			tile->scale[h] =
				there ? q_scale[q_scale_at.s0 + row * q_scale_at.s1 + head + h]
				      : 0.0f;
	}
}

/* Adds what HEAD_TILES tiles of heads from `head` on score, to the sums of the lane's own columns. */
INLINE void score_heads(const struct scoring *sc, struct unit unit, const struct matrix_tile *tile,
			int head, int heads, right_t held[KEY_TILES][DEPTHS],
			float part[KEY_TILES][UNIT_OWN_COLUMNS])
{
	sums_t sums[HEAD_TILES][KEY_TILES];
	UNIT_UNROLL
	for (int m = 0; m < HEAD_TILES; m++)
		UNIT_UNROLL
	for (int n = 0; n < KEY_TILES; n++)
		sums[m][n] = 0.0f;
	UNIT_UNROLL
	for (int step = 0; step < DEPTHS; step++)
		UNIT_UNROLL
	for (int m = 0; m < HEAD_TILES; m++) {
		const left_t left =
			load_left(tile->words + (head + m * UNIT_ROWS) * PITCH + step * UNIT_WORDS,
				  PITCH, unit.lane);
		UNIT_UNROLL
		for (int n = 0; n < KEY_TILES; n++)
			sums[m][n] = multiply_add(unit, left, held[n][step], sums[m][n]);
	}
	UNIT_UNROLL
	for (int m = 0; m < HEAD_TILES; m++)
		UNIT_UNROLL
	for (int i = 0; i < UNIT_SUMS; i++) {
		const int h = head + m * UNIT_ROWS + sum_row(unit.lane, i);
		const float weight = tile->weight[h];
		UNIT_UNROLL
		for (int n = 0; n < KEY_TILES; n++) {
			float *sum = &part[n][own_column(i)];
			float dot = SUM_OF(sums[m][n], i);
			if (INDEX_TYPE == TYPE_F8E4M3)
				dot *= tile->scale[h] * tile->key_scale[(unit.subgroup * KEY_TILES +
									 n) * UNIT_COLUMNS +
									sum_column(unit.lane, i)];
			*sum = h < heads ? FMA(weight, activate(*sc, sc->scale * dot), *sum) : *sum;
		}
	}
}

/* Scores of the tile's keys for one row and group, into tile->parts[0 .. MATRIX_KEYS). */
INLINE void score_row(const struct scoring *sc, struct unit unit, const struct matrix_tile *tile,
		      const __global void *q, long4 q_at, const __global float *q_scale,
		      long4 q_scale_at, const __global float *w, long4 w_at, long row, int group,
		      right_t held[KEY_TILES][DEPTHS])
{
	const int head_end = (group + 1) * sc->group_heads;
	float part[KEY_TILES][UNIT_OWN_COLUMNS];
	UNIT_UNROLL
	for (int n = 0; n < KEY_TILES; n++)
		UNIT_UNROLL
	for (int own = 0; own < UNIT_OWN_COLUMNS; own++)
		part[n][own] = 0.0f;
	for (int head = group * sc->group_heads; head < head_end; head += PASS) {
		barrier(CLK_LOCAL_MEM_FENCE);
		load_heads(sc, tile, q, q_at, q_scale, q_scale_at, w, w_at, row, head, head_end);
		barrier(CLK_LOCAL_MEM_FENCE);
		for (int h = 0; h < min(head_end - head, PASS); h += HEAD_TILES * UNIT_ROWS)
			score_heads(sc, unit, tile, h, head_end - head, held, part);
	}
	UNIT_UNROLL
	for (int n = 0; n < KEY_TILES; n++)
		UNIT_UNROLL
	for (int i = 0; i < UNIT_SUMS; i++) {
		const int column =
			(unit.subgroup * KEY_TILES + n) * UNIT_COLUMNS + sum_column(unit.lane, i);
		tile->parts[sum_share(unit.lane) * MATRIX_KEYS + column] = part[n][own_column(i)];
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int n = (int)get_local_id(0); n < MATRIX_KEYS; n += UNIT_GROUP) {
		float sum = tile->parts[n];
		for (int share = 1; share < UNIT_SHARES; share++)
			sum += tile->parts[share * MATRIX_KEYS + n];
		tile->parts[n] = sum;
	}
	barrier(CLK_LOCAL_MEM_FENCE);
}

/* The first row from `r` on, of those of a work-group, that sees one of the keys. */
static inline long seeing_row(struct scoring sc, const __global int *index_begin,
			      const __global int *index_end, long row_first, long r, long end,
			      long key)
{
	while (r < end &&
	       (index_begin[row_first + r] >= key + MATRIX_KEYS || index_end[row_first + r] <= key))
		r++;
	return r;
}

/* Work-groups: tiles of entries, `rows_each` rows of `rows`. */
UNIT_KERNEL void score_entries(SCORE_ARGS, long entries, long rows, int rows_each,
			       __global uchar *lines, long lines_at, long line_size)
{
	MATRIX_TILE UNIT_OPEN;
	struct keys keys = {k, k_scale, k_at, k_scale_at, sc.dim, 0};
	right_t held[KEY_TILES][DEPTHS];
	const long key = (long)get_group_id(0) * MATRIX_KEYS;
	const long first = (long)get_group_id(1) * rows_each, end = min(first + rows_each, rows);
	long r = seeing_row(sc, index_begin + index_begin_at, index_end + index_end_at, row_first,
			    first, end, key);
	for (int n = (int)get_local_id(0); n < MATRIX_KEYS; n += UNIT_GROUP)
		tile.key[n] = key + n < entries ? (int)(key + n) : -1;
	barrier(CLK_LOCAL_MEM_FENCE);
	hold_keys(unit, &tile, &keys, r < end, held);
	for (; r < end; r = seeing_row(sc, index_begin + index_begin_at, index_end + index_end_at,
				       row_first, r + 1, end, key)) {
		const struct tiling t = TILE_ROW(row_first + r, 1);
		for (int group = 0; group < sc.groups; group++) {
			__global float *line = WORK(float, lines) +
					       (r * sc.groups + group) * line_size + key -
					       line_first(t.begin);
			score_row(&sc, unit, &tile, q, q_at, q_scale, q_scale_at, w, w_at,
				  row_first + r, group, held);
			for (int n = (int)get_local_id(0); n < MATRIX_KEYS; n += UNIT_GROUP)
				if (key + n < t.end)
					line[n] = tile.parts[n];
		}
	}
}

/* Work-groups: tiles of entries of listed blocks, rows * groups. */
UNIT_KERNEL void score_kept(SCORE_ARGS, const __global uchar *lists, long lists_at, int slots,
			    __global uchar *lines, long lines_at)
{
	MATRIX_TILE UNIT_OPEN;
	struct keys keys = {k, k_scale, k_at, k_scale_at, sc.dim, 0};
	right_t held[KEY_TILES][DEPTHS];
	const long line = (long)get_group_id(1), row = row_first + line / sc.groups;
	const __global int *list = WORK(const int, lists) + line * (slots + 1);
	const struct tiling t = TILE_ROW(row, 1);
	const int first = (int)get_group_id(0) * MATRIX_KEYS, count = list[0] * sc.coarse;
	for (int n = (int)get_local_id(0); n < MATRIX_KEYS; n += UNIT_GROUP) {
		const int place = first + n;
		const int entry =
			place < count ? list[1 + place / sc.coarse] + place % sc.coarse : -1;
		tile.key[n] = entry >= t.begin && entry < t.end ? entry : -1;
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	hold_keys(unit, &tile, &keys, first < count, held);
	for (int any = first < count; any; any = 0)
		score_row(&sc, unit, &tile, q, q_at, q_scale, q_scale_at, w, w_at, row,
			  (int)(line % sc.groups), held);
	for (int n = (int)get_local_id(0); n < MATRIX_KEYS; n += UNIT_GROUP)
		if (tile.key[n] >= 0)
			WORK(float, lines)[line * slots * sc.coarse + first + n] = tile.parts[n];
}
