/* Errors of an implementation's output against the oracle's. */
#include "oracle.h"
#include "oracle_internal.h"

/* 0 where both agree in being NaN or the same infinity, NaN where one alone is not finite. */
static double difference(double got, double want)
{
	if (isfinite(got) && isfinite(want))
		return fabs(got - want);
	return got == want || (isnan(got) && isnan(want)) ? 0.0 : (double)NAN;
}

double ora_relative_error(const double *got, const double *want, int64_t count)
{
	double error = 0.0, norm = 0.0;
	for (int64_t i = 0; i < count; i++) {
		const double d = difference(got[i], want[i]);
		error += d * d;
		norm += isfinite(want[i]) ? want[i] * want[i] : 0.0;
	}
	return norm > 0.0 ? sqrt(error / norm) : sqrt(error);
}

static double vector_error(const double *got, const double *want, int64_t length, double floor)
{
	double error = 0.0, magnitude = floor;
	for (int64_t i = 0; i < length; i++) {
		const double d = difference(got[i], want[i]);
		if (isnan(d))
			return d;
		error = d > error ? d : error;
		magnitude =
			isfinite(want[i]) && fabs(want[i]) > magnitude ? fabs(want[i]) : magnitude;
	}
	return error == 0.0 ? 0.0 : error / magnitude;
}

double ora_worst_vector_error(const double *got, const double *want, int64_t vectors,
			      int64_t length, double floor)
{
	double worst = 0.0;
	for (int64_t i = 0; i < vectors; i++) {
		const double error =
			vector_error(got + i * length, want + i * length, length, floor);
		if (isnan(error))
			return error;
		worst = error > worst ? error : worst;
	}
	return worst;
}
