/* What the files of the oracle's self-test share. */
#ifndef HYS_TEST_SELFTEST_H
#define HYS_TEST_SELFTEST_H

#include <stdint.h>

#define CHECK(condition) selftest_check((condition) != 0, #condition, __FILE__, __LINE__)

void selftest_check(int holds, const char *text, const char *file, int line);

/* Compares `gradient` with central differences of `value(context)` over x; checks 1e-6. */
void selftest_gradient(double (*value)(void *context), void *context, double *x,
		       const double *gradient, int64_t count, const char *name);

void selftest_rng(void);
void selftest_select(void);
void selftest_judge(void);
void selftest_coarse(void);
void selftest_attention(void);
void selftest_loss(void);
void selftest_pool(void);
void selftest_fidelity(void);

#endif
