/* A case of pooling, forward and backward. */
#ifndef HYS_TEST_POOL_CASE_H
#define HYS_TEST_POOL_CASE_H

#include "oracle.h"
#include "suite.h"
#include "visible.h"

enum pool_values {
	POOL_NORMAL = 0,
	POOL_STEEP,  /* gates of some hundreds, some of minus infinity */
	POOL_HUGE,   /* x of 1e30, or the type's largest */
	POOL_SPECIAL /* NaN and infinities in x */
};

#define POOL_BIAS 1u
#define POOL_F32_OUT 2u	  /* outputs in f32 */
#define POOL_RANGE 4u	  /* a third of the units, or of the rows of x */
#define POOL_RANGE_CUT 8u /* the same with tensors of just these */
#define POOL_ACCUMULATE 16u
#define POOL_ONLY_DX 32u
#define POOL_ONLY_NORM 64u /* bounds: no other output */

struct pool_case {
	struct suite_case about; /* first */
	struct visible_spec visible;
	hys_pooling pooling;
	bool blocks;		/* coarse blocks of entries, else entries of keys */
	int32_t size, channels; /* r or coarse_block; 0: 4, 16 */
	int32_t pool;		/* with blocks: r of the entries; 0: 1 */
	hys_dtype dtype;
	enum pool_values values;
	unsigned features; /* POOL_* */
};

struct pool_data {
	const struct pool_case *about;
	struct hys_problem problem;
	struct visible visible;
	int64_t inputs, units;	      /* N, rows of y */
	int64_t row_first, row_count; /* of units, or backward of rows of x */
	int32_t channels, width;      /* C, and C or 2C */
	int32_t *documents;	      /* prefix sums of x's rows, one per document */
	double *x, *gate, *bias, *grad_y;
	double steepest; /* largest finite |gate + bias| */
	struct ora_pool oracle;
	struct ora_bounds bounds;
};

void pool_make(struct pool_data *data, const struct pool_case *about, bool backward);
void pool_free(struct pool_data *data);
struct suite_want pool_want(const struct pool_data *data, hys_op op);
double pool_tolerance(const struct pool_data *data, bool gradient);

/* For suite_main. */
void pool_run(void **state);
void pool_backward_run(void **state);

#endif
