#include "bench_documents.h"

/* A step that has no factor in common with the count visits all ranks. */
static int32_t step_of(int32_t count)
{
	int32_t step = count / 2 + 1;
	for (;; step++) {
		int32_t a = step, b = count;
		while (b) {
			int32_t rest = a % b;
			a = b;
			b = rest;
		}
		if (a == 1)
			return step;
	}
}

void bench_zipf(int32_t rows, int32_t count, int32_t *starts)
{
	const int32_t step = step_of(count);
	double all = 0, before = 0;
	for (int32_t d = 0; d < count; d++)
		all += 1.0 / (d + 1);
	starts[0] = 0;
	for (int32_t d = 0; d < count; d++) {
		before += 1.0 / (double)((int64_t)d * step % count + 1);
		starts[d + 1] = d + 1 + (int32_t)((rows - count) * (before / all));
	}
	starts[count] = rows;
}
