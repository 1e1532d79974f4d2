/* The AMX kernel on tiles in plain C, for processors that have none (it needs
 * AVX-512 besides), and the same tiles against the real ones where they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "amx_emulated.h"
#include "half_score.h"
#include "isas.h"
#include "rng.h"

#ifdef HYS_ISA_AMX

static bool has(uint64_t needs)
{
	return (omp_cpu_capabilities() & needs) == needs;
}

static void test_emulated(void **state)
{
	struct omp_isa isa;
	(void)state;
	if (!has(OMP_NEEDS_AVX512))
		skip();
	omp_isa_fill(&isa, OMP_SET_AVX512);
	amx_emulated_fill(&isa);
	half_score_check(&isa);
}

enum { TILES_DIM = 96, TILES_HEADS = 48, KEYS = 32 };

/* Random bit patterns within +-2^4 or so, zeros and signs included. */
static void fill_halves(struct rng *rng, uint16_t *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = (uint16_t)((rng_u64(rng) & 0x87ff) | 0x3c00);
}

static void test_real_against_emulated(void **state)
{
	static uint16_t q[(TILES_HEADS + OMP_HALF_SLACK) * TILES_DIM], packed[3 * KEYS * TILES_DIM];
	static float w[TILES_HEADS], scores[2][3 * KEYS];
	struct omp_query query = {.half = q,
				  .half_dim = TILES_DIM,
				  .w = w,
				  .scale = 0.25f,
				  .heads = TILES_HEADS,
				  .group_heads = TILES_HEADS,
				  .dim = TILES_DIM};
	struct omp_isa isas[2];
	struct rng rng;
	(void)state;
	if (!has(OMP_NEEDS_AMX) || !omp_cpu_permit_tiles())
		skip();
	rng_seed(&rng, 13);
	omp_isa_fill(isas, OMP_SET_AMX);
	omp_isa_fill(isas + 1, OMP_SET_AMX);
	amx_emulated_fill(isas + 1);
	for (int32_t turn = 0; turn < 50; turn++) {
		fill_halves(&rng, q, sizeof q / sizeof *q);
		fill_halves(&rng, packed, sizeof packed / sizeof *packed);
		for (int32_t j = 0; j < TILES_HEADS; j++)
			w[j] = (float)rng_normal(&rng);
		query.relu = turn % 2 != 0;
		for (int32_t i = 0; i < 2; i++) {
			isas[i].half_begin();
			isas[i].score_half(&query, packed, 3, scores[i], 3 * KEYS);
			isas[i].half_end();
		}
		assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
	}
}

#else

static void test_emulated(void **state)
{
	(void)state;
	skip();
}

static void test_real_against_emulated(void **state)
{
	(void)state;
	skip();
}

#endif

/* Where the processor has no tiles, the system must refuse them, and asking
 * twice must not change the answer. */
static void test_permission(void **state)
{
	const bool first = omp_cpu_permit_tiles();
	(void)state;
	assert_int_equal(omp_cpu_permit_tiles(), first);
	if (!(omp_cpu_capabilities() & OMP_CAN_AMX))
		assert_false(first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_emulated),
		cmocka_unit_test(test_real_against_emulated),
		cmocka_unit_test(test_permission),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
