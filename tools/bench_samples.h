/* bench_samples.h - parts of what a step has written, for comparing. */
#ifndef HYS_TOOLS_BENCH_SAMPLES_H
#define HYS_TOOLS_BENCH_SAMPLES_H

#include "tool.h"

/* What a step has written, as far as it is looked at. */
struct sample {
	char *bytes;
	int64_t size;
	hys_dtype dtype;
};

/* The same bits, of rows and of keys. */
bool bench_same(const struct sample a[2], const struct sample b[2]);
void bench_free_samples(struct sample samples[2]);
/* Picks: the share that differs. Else the relative Frobenius norm of the difference. */
double bench_difference(const struct sample *a, const struct sample *b);

#endif
