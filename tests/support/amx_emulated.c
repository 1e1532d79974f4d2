/* AMX tiles in plain C, and the kernel compiled on them. Needs AVX-512 besides,
 * so that nothing else is in this file. */
#ifdef HYS_ISA_AMX

#include "amx_emulated.h"

#include <immintrin.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Rows of 64 bytes, as Intel's manual (volume 2, TDPBF16PS) describes them. */
static uint8_t tiles[8][16][64];
static bool configured;

static float float_of(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float x;
	if ((bits & 0x7f800000) == 0)
		bits &= 0x80000000; /* denormals count as 0 */
	memcpy(&x, &bits, sizeof x);
	return x;
}

static float flush(float x)
{
	return x > -0x1p-126f && x < 0x1p-126f ? 0.0f * x : x;
}

static void tile_zero(int tile)
{
	assert_true(configured);
	memset(tiles[tile], 0, sizeof tiles[tile]);
}

static void tile_loadd(int tile, const void *from, int64_t pitch)
{
	for (int row = 0; row < 16; row++)
		memcpy(tiles[tile][row], (const char *)from + row * pitch, 64);
}

static void tile_stored(int tile, void *to, int64_t pitch)
{
	for (int row = 0; row < 16; row++)
		memcpy((char *)to + row * pitch, tiles[tile][row], 64);
}

static void tile_dpbf16ps(int sums, int left, int right)
{
	for (int m = 0; m < 16; m++)
		for (int n = 0; n < 16; n++) {
			float sum[2] = {0}, old;
			for (int k = 0; k < 32; k++) {
				uint16_t a, b;
				memcpy(&a, tiles[left][m] + k * 2, 2);
				memcpy(&b, tiles[right][k / 2] + n * 4 + k % 2 * 2, 2);
				sum[k % 2] = flush(fmaf(float_of(a), float_of(b), sum[k % 2]));
			}
			memcpy(&old, tiles[sums][m] + n * 4, 4);
			old = flush(old + flush(sum[0] + sum[1]));
			memcpy(tiles[sums][m] + n * 4, &old, 4);
		}
}

static void tile_loadconfig(const void *config)
{
	const uint8_t *bytes = config;
	assert_int_equal(bytes[0], 1);
	for (int tile = 0; tile < 8; tile++) {
		assert_int_equal(bytes[16 + 2 * tile], 64);
		assert_int_equal(bytes[48 + tile], 16);
	}
	configured = true;
}

static void tile_release(void)
{
	configured = false;
}

#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_zero tile_zero
#define _tile_loadd tile_loadd
#define _tile_stored tile_stored
#define _tile_dpbf16ps tile_dpbf16ps
#define _tile_loadconfig tile_loadconfig
#define _tile_release tile_release
#define omp_fill_half_amx amx_emulated_fill
#include "isa/half_amx.c"

#endif
