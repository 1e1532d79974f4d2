/* peak_portable.c - multiply-adds without memory traffic, in plain C. */
#include "isa_functions.h"

#define CHAINS 32

static double peak(int64_t rounds, float *sink)
{
	/* Read back from memory, so that nothing is known of them. */
	volatile float factor_source = 0.999f, term_source = 0.001f;
	const float factor = factor_source, term = term_source;
	float chain[CHAINS] = {0};
	for (int64_t i = 0; i < rounds; i++)
		for (int32_t j = 0; j < CHAINS; j++)
			chain[j] = chain[j] * factor + term;
	for (int32_t j = 0; j < CHAINS; j++)
		*sink += chain[j];
	return 2.0 * CHAINS * (double)rounds;
}

void omp_fill_peak_portable(struct omp_isa *isa)
{
	isa->peak = peak;
}
