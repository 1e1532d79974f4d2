/* bench_samples.c - whether two samples of what was written are alike. */
#include "bench_samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool bench_same(const struct sample a[2], const struct sample b[2])
{
	for (int i = 0; i < 2; i++)
		if (a[i].size != b[i].size ||
		    (a[i].size && (!a[i].bytes || !b[i].bytes ||
				   memcmp(a[i].bytes, b[i].bytes, (size_t)a[i].size) != 0)))
			return false;
	return true;
}

void bench_free_samples(struct sample samples[2])
{
	free(samples[0].bytes);
	free(samples[1].bytes);
	memset(samples, 0, 2 * sizeof *samples);
}

double bench_difference(const struct sample *a, const struct sample *b)
{
	const int64_t n = a->size / (int64_t)hys_dtype_size(a->dtype);
	double sum = 0, all = 0;
	if (a->size != b->size || !a->bytes || !b->bytes)
		return (double)NAN;
	for (int64_t i = 0; i < n; i++) {
		if (a->dtype == HYS_I32) {
			sum += ((int32_t *)(void *)a->bytes)[i] != ((int32_t *)(void *)b->bytes)[i];
			all += 1;
		} else {
			const double x = tool_get(a->dtype, a->bytes, i);
			const double y = tool_get(b->dtype, b->bytes, i);
			sum += (x - y) * (x - y);
			all += x * x;
		}
	}
	if (a->dtype == HYS_I32)
		return sum / (all > 0 ? all : 1);
	return all > 0 ? sqrt(sum / all) : sqrt(sum);
}
