/* Planted: a sum over rows without a reduction, on the CPU backend's threads. */
#include "omp_internal.h"

static void add_rows(void *context, int64_t row, int32_t thread)
{
	float *sum = context;

	(void)thread;
	*sum += (float)row;
}

int main(void)
{
	float sum = 0;

	omp_for(4, 10000, add_rows, &sum);
	return sum == 1;
}
