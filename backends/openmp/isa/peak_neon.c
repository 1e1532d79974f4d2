/* peak_neon.c - multiply-adds without memory traffic. Four pipes of four cycles
 * latency need 16 independent chains. */
#include <arm_neon.h>

#include "isa_functions.h"

#define CHAINS 16

static double peak(int64_t rounds, float *sink)
{
	volatile float factor_source = 0.999f, term_source = 0.001f;
	const float32x4_t factor = vdupq_n_f32(factor_source);
	const float32x4_t term = vdupq_n_f32(term_source);
	float32x4_t chain[CHAINS];
	for (int32_t j = 0; j < CHAINS; j++)
		chain[j] = vdupq_n_f32(0.0f);
	for (int64_t i = 0; i < rounds; i++)
		for (int32_t j = 0; j < CHAINS; j++)
			chain[j] = vfmaq_f32(term, chain[j], factor);
	for (int32_t j = 1; j < CHAINS; j++)
		chain[0] = vaddq_f32(chain[0], chain[j]);
	*sink += vgetq_lane_f32(chain[0], 0);
	return 2.0 * 4.0 * CHAINS * (double)rounds;
}

void omp_fill_peak_neon(struct omp_isa *isa)
{
	isa->peak = peak;
}
