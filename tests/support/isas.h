/* The instruction sets of the CPU backend that this processor has. */
#ifndef HYS_TEST_ISAS_H
#define HYS_TEST_ISAS_H

#include "omp_cpu.h"
#include "omp_internal.h"

/* The i-th; NULL past the end. */
static inline const struct omp_isa *isa_at(int32_t i)
{
	static struct omp_isa isas[OMP_SETS];
	static const uint64_t needs[OMP_SETS] = {
		[OMP_SET_PORTABLE] = 0,
		[OMP_SET_NEON] = OMP_NEEDS_NEON,
		[OMP_SET_AVX2] = OMP_NEEDS_AVX2,
		[OMP_SET_AVX512] = OMP_NEEDS_AVX512,
		[OMP_SET_AVX512BF16] = OMP_NEEDS_AVX512BF16,
		[OMP_SET_AMX] = OMP_NEEDS_AMX,
	};
	const uint64_t tiles = omp_cpu_permit_tiles() ? 0 : OMP_CAN_AMX;
	const uint64_t has = omp_cpu_capabilities() & ~tiles;

	for (int32_t set = 0; set < OMP_SETS; set++)
		if ((has & needs[set]) == needs[set] && i-- == 0) {
			omp_isa_fill(isas + set, (enum omp_set)set);
			return isas + set;
		}
	return NULL;
}

#endif
