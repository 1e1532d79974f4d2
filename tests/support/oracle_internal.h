/* Small helpers shared by the files of the oracle. */
#ifndef HYS_TEST_ORACLE_INTERNAL_H
#define HYS_TEST_ORACLE_INTERNAL_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

/* Zeroed memory; a test without memory has nothing more to say. */
static inline void *ora_alloc(int64_t count, size_t size)
{
	void *memory = calloc(count > 0 ? (size_t)count : 1, size);
	if (memory == NULL) {
		fputs("oracle: out of memory\n", stderr);
		abort();
	}
	return memory;
}

static inline double *ora_doubles(int64_t count)
{
	return ora_alloc(count, sizeof(double));
}

static inline void ora_zero(double *values, int64_t count)
{
	if (values != NULL)
		memset(values, 0, (size_t)count * sizeof(double));
}

static inline int64_t ora_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t ora_max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static inline int32_t ora_or_one(int32_t value)
{
	return value > 0 ? value : 1;
}

/* End of the range of rows that `row_first`, `row_count` describe. */
static inline int64_t ora_row_end(int64_t rows, int64_t row_first, int64_t row_count)
{
	return row_count > 0 ? ora_min(rows, row_first + row_count) : rows;
}

static inline double ora_dot(const double *a, const double *b, int64_t count)
{
	double sum = 0.0;
	for (int64_t i = 0; i < count; i++)
		sum += a[i] * b[i];
	return sum;
}

static inline double ora_log_add_exp(double a, double b)
{
	if (isnan(a) || isnan(b))
		return (double)NAN;
	const double larger = a > b ? a : b;
	if (isinf(larger))
		return larger;
	return larger + log1p(exp((a > b ? b : a) - larger));
}

/* log of the sum of exp; -inf for an empty list, NaN if any is NaN. */
static inline double ora_log_sum_exp(const double *values, int64_t count)
{
	double largest = -(double)INFINITY;
	for (int64_t i = 0; i < count; i++)
		if (values[i] > largest || isnan(values[i]))
			largest = values[i];
	if (isnan(largest) || isinf(largest))
		return largest;
	double sum = 0.0;
	for (int64_t i = 0; i < count; i++)
		sum += exp(values[i] - largest);
	return largest + log(sum);
}

/* exp(logit - total): a share of the softmax; 0 when there is nothing to share. */
static inline double ora_share(double logit, double total)
{
	return total == -(double)INFINITY ? 0.0 : exp(logit - total);
}

/* kth of the first `count` of a ranking, `wanted` being K. */
double ora_select_kth(const struct ora_candidate *ranking, int64_t count, int64_t wanted);

/* Scaled and capped logit. */
static inline double ora_logit(double dot, double scale, double softcap)
{
	const double logit = scale * dot;
	return softcap > 0.0 ? softcap * tanh(logit / softcap) : logit;
}

#endif
