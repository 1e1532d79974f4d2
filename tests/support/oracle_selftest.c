/* Checks the oracle itself: gradients by differences, examples by hand, formats by enumeration. */
#include "selftest.h"

#include "oracle.h"
#include "oracle_internal.h"
#include "rng.h"

static int passed, failed;

void selftest_check(int holds, const char *text, const char *file, int line)
{
	passed += holds;
	failed += !holds;
	if (!holds)
		printf("%s:%d: failed: %s\n", file, line, text);
}

void selftest_gradient(double (*value)(void *context), void *context, double *x,
		       const double *gradient, int64_t count, const char *name)
{
	double *numeric = ora_doubles(count), *analytic = ora_doubles(count);
	memcpy(analytic, gradient, (size_t)count * sizeof *analytic);
	for (int64_t i = 0; i < count; i++) {
		const double kept = x[i], step = 1e-5;
		x[i] = kept + step;
		const double above = value(context);
		x[i] = kept - step;
		numeric[i] = (above - value(context)) / (2.0 * step);
		x[i] = kept;
	}
	double norm = 0.0;
	for (int64_t i = 0; i < count; i++)
		norm += numeric[i] * numeric[i];
	const double error = ora_relative_error(analytic, numeric, count);
	if (!(error < 1e-6 && norm > 0.0))
		printf("gradient of %s: error %.3g, norm %.3g\n", name, error, sqrt(norm));
	CHECK(error < 1e-6 && norm > 0.0);
	free(numeric);
	free(analytic);
}

int main(void)
{
	selftest_rng();
	selftest_select();
	selftest_judge();
	selftest_coarse();
	selftest_attention();
	selftest_loss();
	selftest_pool();
	selftest_fidelity();
	printf("%d passed, %d failed\n", passed, failed);
	return failed != 0;
}
