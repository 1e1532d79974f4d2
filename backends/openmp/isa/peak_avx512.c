/* peak_avx512.c - multiply-adds without memory traffic. Two pipes of four cycles
 * latency need 8 independent chains; 16 leave room for more, and are as many as
 * compilers unroll. */
#include <immintrin.h>

#include "isa_functions.h"

#define CHAINS 16

static double peak(int64_t rounds, float *sink)
{
	volatile float factor_source = 0.999f, term_source = 0.001f;
	const __m512 factor = _mm512_set1_ps(factor_source);
	const __m512 term = _mm512_set1_ps(term_source);
	__m512 chain[CHAINS];
	for (int32_t j = 0; j < CHAINS; j++)
		chain[j] = _mm512_setzero_ps();
	for (int64_t i = 0; i < rounds; i++)
		for (int32_t j = 0; j < CHAINS; j++)
			chain[j] = _mm512_fmadd_ps(chain[j], factor, term);
	for (int32_t j = 1; j < CHAINS; j++)
		chain[0] = _mm512_add_ps(chain[0], chain[j]);
	*sink += _mm512_cvtss_f32(chain[0]);
	return 2.0 * 16.0 * CHAINS * (double)rounds;
}

void omp_fill_peak_avx512(struct omp_isa *isa)
{
	isa->peak = peak;
}
