/* The instruction sets of the CPU backend that this processor has. */
#ifndef HYS_TEST_ISAS_H
#define HYS_TEST_ISAS_H

#include "omp_cpu.h"
#include "omp_internal.h"

/* The i-th; NULL past the end. */
static inline const struct omp_isa *isa_at(int32_t i)
{
	if (i == 0)
		return &omp_isa_portable;
#ifdef HYS_ISA_AVX2
	if (i == 1 && (omp_cpu_capabilities() & OMP_NEEDS_AVX2) == OMP_NEEDS_AVX2)
		return &omp_isa_avx2;
#endif
	return NULL;
}

#endif
