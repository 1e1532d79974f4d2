/* half_amx.c - scoring bf16 as it is with AMX tiles: 32 heads by 32 keys in
 * four tiles of sums, which the vector units turn into scores while the tile
 * unit multiplies the next ones. tests/unit/test_amx.c compiles this file with
 * tile instructions of its own. */
#include "heads_avx512.h"

#define ROWS 16	 /* of a tile */
#define CHUNK 32 /* channels that one instruction sums over */
#define BLOCK (2 * ROWS)

/* As LDTILECFG reads it: all eight tiles of 16 rows of 64 bytes. */
static const struct {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
} __attribute__((aligned(64))) shape = {
	.palette = 1,
	.row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
	.rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS},
};

/* Tiles 0 to 3 = heads [0, 16) and, if there are so many, [16, 32) by the keys
 * of a panel. Rows behind the last head are read and mean nothing. */
static inline void multiply(const uint16_t *q, int64_t half_dim, bool both, const uint16_t *packed)
{
	const int64_t pitch = half_dim * (int64_t)sizeof *q, pairs = PANEL * 4;
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	for (int64_t d = 0; d < half_dim; d += CHUNK, packed += CHUNK * PANEL) {
		_tile_loadd(4, q + d, pitch);
		_tile_loadd(6, packed, pairs);
		_tile_loadd(7, packed + CHUNK, pairs);
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 4, 7);
		if (!both)
			continue;
		_tile_loadd(5, q + ROWS * half_dim + d, pitch);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
	}
}

static inline void store(bool both, float dots[BLOCK][PANEL])
{
	const int64_t pitch = PANEL * sizeof(float);
	_tile_stored(0, dots[0], pitch);
	_tile_stored(1, dots[0] + 16, pitch);
	if (!both)
		return;
	_tile_stored(2, dots[ROWS], pitch);
	_tile_stored(3, dots[ROWS] + 16, pitch);
}

/* Adds heads [j, j + heads) to the scores of the panel's keys, which begin at
 * `at`. */
static inline void add_block(const struct omp_query *query, int64_t j, int64_t heads,
			     float dots[BLOCK][PANEL], struct cursor *cursor, int64_t at)
{
	for (int64_t h = 0; h < heads; h += HEADS) {
		const int32_t some = (int32_t)(heads - h < HEADS ? heads - h : HEADS);
		add_some(query, j + h, some, (__m512(*)[VECTORS])(void *)dots[h], cursor, at);
	}
}

static inline int64_t block_heads(const struct omp_query *query, int64_t j)
{
	return query->heads - j < BLOCK ? query->heads - j : BLOCK;
}

/* Of each (heads, panel) the products are started before the ones before it
 * are added, so that both units have work. */
static void score_half(const struct omp_query *query, const uint16_t *packed, int64_t panels,
		       float *scores, int64_t stride)
{
	float dots[BLOCK][PANEL] __attribute__((aligned(64)));
	struct cursor open = {.next = scores, .stride = stride}, cursor = open;
	int64_t last_j = -1, last_p = 0;
	for (int64_t j = 0; j < query->heads; j += BLOCK) {
		const bool both = block_heads(query, j) > ROWS;
		for (int64_t p = 0; p < panels; p++) {
			multiply(query->half + j * query->half_dim, query->half_dim, both,
				 packed + p * query->half_dim * PANEL);
			if (last_j >= 0) {
				cursor = open;
				add_block(query, last_j, block_heads(query, last_j), dots, &cursor,
					  last_p * PANEL);
			}
			if (p == 0)
				open = cursor;
			store(both, dots);
			last_j = j;
			last_p = p;
		}
	}
	if (last_j >= 0) {
		cursor = open;
		add_block(query, last_j, block_heads(query, last_j), dots, &cursor, last_p * PANEL);
	}
}

static void half_begin(void)
{
	_tile_loadconfig(&shape);
}

static void half_end(void)
{
	_tile_release();
}

void omp_fill_half_amx(struct omp_isa *isa)
{
	isa->score_half = score_half;
	isa->half_begin = half_begin;
	isa->half_end = half_end;
}
