/* omp_pool.h - shared by the files of pooling.
 *
 * Channels are worked on OMP_POOL_TILE at a time, so that all scratch has a
 * fixed size whatever the number of channels. */
#ifndef HYS_OMP_POOL_H
#define HYS_OMP_POOL_H

#include "omp_internal.h"

#define OMP_POOL_TILE 64

/* What is pooled, forward and backward alike. */
struct omp_pool {
	const struct omp_isa *isa;
	const struct hys_batch_view *batch;
	hys_pooling pooling;
	hys_pool_unit kind;
	int64_t size; /* rows of x in a unit */
	int64_t units, channels;
	const struct hys_tensor *x, *gate, *bias;
};

/* First rows of x of a unit's own rows and, where two series overlap, of the
 * previous unit's in the same document; -1 when there is none. */
struct omp_pool_unit {
	int64_t own, previous;
};

/* The rows whose weights sum to 1 in one output: slots [0, count). In the first
 * series they are the previous unit's, behind them come its own. */
struct omp_pool_slot {
	int64_t row, bias_row;
	int64_t channel; /* of x for channel 0 of the output */
};

struct omp_pool_unit omp_pool_unit(const struct omp_pool *pool, int64_t unit);

/* x at a slot, channels [channel, channel + n), n <= OMP_POOL_TILE. */
void omp_pool_load(const struct omp_pool *pool, const struct omp_pool_slot *slot, int64_t channel,
		   int64_t n, float *x);

/* The softmax of some channels of a unit: a slot's weight is
 * exp(gate - largest) / total, or 0 where total is 0. */
struct omp_pool_soft {
	float largest[OMP_POOL_TILE];
	float y[OMP_POOL_TILE];
	double total[OMP_POOL_TILE];
};

/* Fills *soft for channels [channel, channel + n); y is the output. */
void omp_pool_soft(const struct omp_pool *pool, const struct omp_pool_unit *unit, int64_t channel,
		   int64_t n, struct omp_pool_soft *soft);
/* The weights of one slot. */
void omp_pool_weights(const struct omp_pool *pool, const struct omp_pool_soft *soft,
		      const struct omp_pool_slot *slot, int64_t channel, int64_t n, float *weights);

/* Means of x over a unit's own rows, rounded to y's type if y is present. */
void omp_pool_mean(const struct omp_pool *pool, const struct omp_pool_unit *unit, int64_t channel,
		   int64_t n, const struct hys_tensor *y, float *mean);

/* omp_pool_bounds.c: the outputs of HYS_POOL_BOUNDS for one unit, which is row
 * `row` of the outputs. */
void omp_pool_bounds(const struct omp_pool *pool, const struct hys_pool_args *args,
		     const struct omp_pool_unit *unit, int64_t row);

#endif
