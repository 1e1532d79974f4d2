/* omp_pool_bounds.c - what exact skipping may rely on: norms, radii and channel
 * ranges of a unit's rows. Norms and radii are sums of squares in f64, enlarged
 * by more than the rounding errors of these and rounded up to f32, so that they
 * are never below the true ones. NaN anywhere makes the bound NaN. */
#include <math.h>

#include "omp_pool.h"

#define BATCH 64 /* rows whose squares are summed together */

/* The smallest f32 that is surely not below sqrt(squares), a sum of n terms. */
static float bound_of(double squares, int64_t n)
{
	const double root = sqrt(squares) * (1.0 + (double)(n + 4) * 0x1p-52);
	const float rounded = (float)root;
	return (double)rounded < root ? nextafterf(rounded, INFINITY) : rounded;
}

/* Keeps NaN, whichever of the two it is. */
static float larger(float a, float b)
{
	return a != a || b <= a ? a : b;
}

static float smaller(float a, float b)
{
	return a != a || b >= a ? a : b;
}

/* Adds the squares of channels [channel, channel + n) of rows [first, first +
 * rows) of the unit, and of their distances from `mean`. */
static void add_squares(const struct omp_pool *pool, const struct omp_pool_unit *unit,
			int64_t first, int64_t rows, int64_t channel, int64_t n, const float *mean,
			double *norms, double *distances)
{
	float x[OMP_POOL_TILE];
	for (int64_t i = 0; i < rows; i++) {
		const struct omp_pool_slot slot = {unit->own + first + i, first + i, 0};
		omp_pool_load(pool, &slot, channel, n, x);
		for (int64_t c = 0; c < n; c++) {
			const double difference = (double)x[c] - (double)mean[c];
			norms[i] += (double)x[c] * (double)x[c];
			distances[i] += difference * difference;
		}
	}
}

/* Norm and radius of the unit; the centre is y as it is stored. */
static void measure_rows(const struct omp_pool *pool, const struct hys_pool_args *args,
			 const struct omp_pool_unit *unit, float *norm, float *radius)
{
	*norm = *radius = 0.0f;
	for (int64_t first = 0; first < pool->size; first += BATCH) {
		const int64_t rows = hys_min64(BATCH, pool->size - first);
		double norms[BATCH] = {0}, distances[BATCH] = {0};
		for (int64_t c = 0; c < pool->channels; c += OMP_POOL_TILE) {
			const int64_t n = hys_min64(OMP_POOL_TILE, pool->channels - c);
			float mean[OMP_POOL_TILE];
			omp_pool_mean(pool, unit, c, n, &args->y, mean);
			add_squares(pool, unit, first, rows, c, n, mean, norms, distances);
		}
		for (int64_t i = 0; i < rows; i++) {
			*norm = larger(*norm, bound_of(norms[i], pool->channels));
			*radius = larger(*radius, bound_of(distances[i], pool->channels));
		}
	}
}

static void measure_channels(const struct omp_pool *pool, const struct omp_pool_unit *unit,
			     int64_t channel, int64_t n, float *lowest, float *highest)
{
	float x[OMP_POOL_TILE];
	for (int64_t c = 0; c < n; c++) {
		lowest[c] = INFINITY;
		highest[c] = -INFINITY;
	}
	for (int64_t i = 0; i < pool->size; i++) {
		const struct omp_pool_slot slot = {unit->own + i, i, 0};
		omp_pool_load(pool, &slot, channel, n, x);
		for (int64_t c = 0; c < n; c++) {
			lowest[c] = smaller(lowest[c], x[c]);
			highest[c] = larger(highest[c], x[c]);
		}
	}
}

static void write_channels(const struct omp_pool *pool, const struct hys_tensor *tensor,
			   int64_t row, int64_t channel, int64_t n, const float *values)
{
	if (hys_present(tensor))
		pool->isa->from_f32(tensor->dtype, values, omp_at(tensor, row, channel, 0), n);
}

void omp_pool_bounds(const struct omp_pool *pool, const struct hys_pool_args *args,
		     const struct omp_pool_unit *unit, int64_t row)
{
	float norm, radius;
	if (hys_present(&args->norm) || hys_present(&args->radius)) {
		measure_rows(pool, args, unit, &norm, &radius);
		write_channels(pool, &args->norm, row, 0, 1, &norm);
		write_channels(pool, &args->radius, row, 0, 1, &radius);
	}
	for (int64_t c = 0; c < pool->channels; c += OMP_POOL_TILE) {
		const int64_t n = hys_min64(OMP_POOL_TILE, pool->channels - c);
		float mean[OMP_POOL_TILE], lowest[OMP_POOL_TILE], highest[OMP_POOL_TILE];
		if (hys_present(&args->y))
			omp_pool_mean(pool, unit, c, n, &args->y, mean);
		if (hys_present(&args->lowest) || hys_present(&args->highest))
			measure_channels(pool, unit, c, n, lowest, highest);
		write_channels(pool, &args->y, row, c, n, mean);
		write_channels(pool, &args->lowest, row, c, n, lowest);
		write_channels(pool, &args->highest, row, c, n, highest);
	}
}
