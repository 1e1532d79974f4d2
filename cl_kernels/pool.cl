/* pool.cl - pooling of rows into units: entries of POOL key rows, or coarse blocks of
 * COARSE entries. Types are those of the tensors of each call, so they are arguments.
 *
 * Options: none. A unit is named by its number in the batch; unit_row[unit] is its first
 * row of x, unit_doc[unit] its document. Numbers of units are int: Mesa 22.3.6's llvmpipe
 * gets branches on comparisons of long wrong here. */
#include "common.clh"

#define POOL_MEAN 0
#define POOL_GATED 1
#define POOL_OVERLAPPED 2

struct pooling {
	const __global void *x, *gate;
	const __global float *bias;
	long4 x_at, gate_at, bias_at;
	const __global int *unit_row, *unit_doc;
	int type, size, kind, channels; /* channels of y */
};

#define POOLING_ARGS                                                                        \
	const __global void *x, long4 x_at, const __global void *gate, long4 gate_at,       \
		const __global float *bias, long4 bias_at, const __global int *unit_row,    \
		long unit_row_at, const __global int *unit_doc, long unit_doc_at, int type, \
		int size, int kind, int channels
#define POOLING                                                                \
	{                                                                      \
		x, gate, bias, x_at, gate_at, bias_at, unit_row + unit_row_at, \
			unit_doc + unit_doc_at, type, size, kind, channels     \
	}

static inline float x_of(const struct pooling *p, long row, int c)
{
	return load(p->x, p->x_at.s0 + row * p->x_at.s1 + c, p->type);
}

/* Gate and bias of slot `slot`, whose row of x is `row`. */
static inline float logit(const struct pooling *p, long row, int slot, int c)
{
	float z = load(p->gate, p->gate_at.s0 + row * p->gate_at.s1 + c, p->type);
	return PRESENT(p->bias_at) ? z + p->bias[p->bias_at.s0 + slot * p->bias_at.s1 + c] : z;
}

/* Slots of a unit: `count`, from row `begin` on. The first half of an overlapped unit's
 * is the document's previous unit, in channels [0, C); its own rows use [C, 2C). */
struct slots {
	long begin;
	int count, own; /* slot `own` is the first of the unit's own */
};

static inline struct slots slots_of(const struct pooling *p, int unit)
{
	struct slots s = {p->unit_row[unit], p->size, 0};
	if (p->kind == POOL_OVERLAPPED && unit > 0 && p->unit_doc[unit - 1] == p->unit_doc[unit]) {
		s.begin -= p->size;
		s.count += p->size;
		s.own = p->size;
	}
	return s;
}

static inline int channel_of(const struct pooling *p, const struct slots *s, int slot, int c)
{
	return p->kind == POOL_OVERLAPPED && slot >= s->own ? p->channels + c : c;
}

/* Maximum and sum of the softmax over a unit's slots; *high is -inf when no slot counts. */
static inline float softmax_sum(const struct pooling *p, const struct slots *s, int c, float *high)
{
	float sum = 0.0f;
	*high = NEGATIVE_INFINITY;
	for (int i = 0; i < s->count; i++) {
		float z = logit(p, s->begin + i, i % p->size, channel_of(p, s, i, c));
		*high = z > *high || isnan(z) ? z : *high;
	}
	for (int i = 0; i < s->count && *high != NEGATIVE_INFINITY; i++)
		sum += exp(logit(p, s->begin + i, i % p->size, channel_of(p, s, i, c)) - *high);
	return sum;
}

static inline float weight_of(const struct pooling *p, const struct slots *s, int slot, int c,
			      float high, float sum)
{
	if (p->kind == POOL_MEAN)
		return 1.0f / (float)p->size;
	if (high == NEGATIVE_INFINITY)
		return 0.0f;
	return exp(logit(p, s->begin + slot, slot % p->size, channel_of(p, s, slot, c)) - high) /
	       sum;
}

static inline float pooled(const struct pooling *p, const struct slots *s, int c, float high,
			   float sum)
{
	float y = 0.0f;
	if (p->kind == POOL_MEAN) {
		for (int i = 0; i < p->size; i++)
			y += x_of(p, s->begin + i, c);
		return mean_of(y, p->size);
	}
	for (int i = 0; i < s->count; i++)
		y = FMA(weight_of(p, s, i, c, high, sum),
			x_of(p, s->begin + i, channel_of(p, s, i, c)), y);
	return y;
}

/* Work-groups: (units [unit_first, ...)) * blocks of 64 channels. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
pool(POOLING_ARGS, long unit_first, __global void *y, long4 y_at, int y_type)
{
	struct pooling p = POOLING;
	int blocks = (channels + 63) / 64;
	long unit = (long)get_group_id(0) / blocks;
	int c = (int)((long)get_group_id(0) % blocks) * 64 + (int)get_local_id(0);
	if (c >= channels)
		return;
	struct slots s = slots_of(&p, (int)(unit_first + unit));
	float high = 0.0f;
	float sum = kind == POOL_MEAN ? 0.0f : softmax_sum(&p, &s, c, &high);
	store(y, y_at.s0 + unit * y_at.s1 + c, y_type, pooled(&p, &s, c, high, sum));
}

/* ---- bounds ---- */

/* The larger (smaller), NaN if either is. */
static inline float larger(float a, float b)
{
	return isnan(a) || a > b ? a : b;
}

static inline float smaller(float a, float b)
{
	return isnan(a) || a < b ? a : b;
}

/* Sum over the work-group's 64 values, to all. */
INLINE float sum_of_group(float value, __local float *scratch)
{
	int item = (int)get_local_id(0);
	scratch[item] = value;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int step = 32; step > 0; step /= 2) {
		if (item < step)
			scratch[item] += scratch[item + step];
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	float sum = scratch[0];
	barrier(CLK_LOCAL_MEM_FENCE);
	return sum;
}

/* Centre and extremes of channels. Work-groups as for pool. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
pool_bounds(POOLING_ARGS, long unit_first, __global void *y, long4 y_at, int y_type,
	    __global float *lowest, long4 lowest_at, __global float *highest, long4 highest_at)
{
	struct pooling p = POOLING;
	int blocks = (channels + 63) / 64;
	long unit = (long)get_group_id(0) / blocks;
	int c = (int)((long)get_group_id(0) % blocks) * 64 + (int)get_local_id(0);
	if (c >= channels)
		return;
	struct slots s = slots_of(&p, (int)(unit_first + unit));
	float low = INFINITY, high = NEGATIVE_INFINITY;
	for (int i = 0; i < size; i++) {
		float value = x_of(&p, s.begin + i, c);
		low = smaller(low, value);
		high = larger(high, value);
	}
	if (PRESENT(y_at))
		store(y, y_at.s0 + unit * y_at.s1 + c, y_type, pooled(&p, &s, c, 0.0f, 0.0f));
	if (PRESENT(lowest_at))
		lowest[lowest_at.s0 + unit * lowest_at.s1 + c] = low;
	if (PRESENT(highest_at))
		highest[highest_at.s0 + unit * highest_at.s1 + c] = high;
}

/* What a number of another type has become when it is read again. */
static inline float stored(float value, int type)
{
	ushort bits = 0;
	if (type == TYPE_BF16)
		return load_bf16(round_bf16(value));
	if (type != TYPE_F16)
		return value;
	vstore_half_rte(value, 0, (half *)&bits);
	return vload_half(0, (const half *)&bits);
}

/* Root of a sum of squares of `channels` numbers, rounded up: an upper bound. */
static inline float bound_of(float sum, int channels)
{
	float steps = (float)(channels / 64 + 16);
	return sqrt(sum) * (1.0f + steps * 0x1p-23f);
}

#define ROWS 8

/* Largest norm and largest distance from y as it is stored, or from the mean without y.
 * Work-groups: units. Means are worked out again for every ROWS rows: there is no room to
 * keep them. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
pool_norms(POOLING_ARGS, long unit_first, int y_type, __global float *norm, long4 norm_at,
	   __global float *radius, long4 radius_at)
{
	__local float scratch[64];
	struct pooling p = POOLING;
	long unit = (long)get_group_id(0);
	struct slots s = slots_of(&p, (int)(unit_first + unit));
	float largest = 0.0f, farthest = 0.0f;
	for (int first = 0; first < size; first += ROWS) {
		float squares[ROWS], distances[ROWS];
		for (int i = 0; i < ROWS; i++)
			squares[i] = distances[i] = 0.0f;
		for (int c = (int)get_local_id(0); c < channels; c += 64) {
			float mean = stored(pooled(&p, &s, c, 0.0f, 0.0f), y_type);
			for (int i = 0; i < ROWS && first + i < size; i++) {
				float value = x_of(&p, s.begin + first + i, c);
				squares[i] = FMA(value, value, squares[i]);
				distances[i] = FMA(value - mean, value - mean, distances[i]);
			}
		}
		for (int i = 0; i < ROWS; i++) {
			largest = larger(largest, sum_of_group(squares[i], scratch));
			farthest = larger(farthest, sum_of_group(distances[i], scratch));
		}
	}
	if (get_local_id(0) == 0 && PRESENT(norm_at))
		norm[norm_at.s0 + unit * norm_at.s1] = bound_of(largest, channels);
	if (get_local_id(0) == 0 && PRESENT(radius_at))
		radius[radius_at.s0 + unit * radius_at.s1] = bound_of(farthest, channels);
}

/* ---- backward ---- */

/* What a row of x gets from unit `unit` through slot `slot`, channel c of y. */
static inline void differentiate(const struct pooling *p, int unit, int slot, int c, float grad,
				 float *dx, float *dgate)
{
	struct slots s = slots_of(p, unit);
	float high = 0.0f;
	float sum = p->kind == POOL_MEAN ? 0.0f : softmax_sum(p, &s, c, &high);
	float weight = weight_of(p, &s, slot, c, high, sum);
	*dx = weight * grad;
	*dgate = 0.0f;
	if (p->kind != POOL_MEAN) {
		float value = x_of(p, s.begin + slot, channel_of(p, &s, slot, c));
		*dgate = weight * (value - pooled(p, &s, c, high, sum)) * grad;
	}
}

/* Gradients of element (row, channel) of x, channel of 2C when overlapped. row_unit names
 * the unit that a row belongs to, or -1. False when no unit reads it. */
static inline bool differentiate_row(const struct pooling *p, const __global int *row_unit,
				     int units, const __global void *grad_y, long4 grad_y_at,
				     int grad_y_type, long row, int channel, int *slot, float *dx,
				     float *dgate)
{
	int unit = row_unit[row];
	*dx = *dgate = 0.0f;
	if (unit < 0)
		return false;
	int c = channel, from = 0;
	*slot = (int)(row - p->unit_row[unit]);
	if (p->kind == POOL_OVERLAPPED && channel < p->channels) {
		/* the first half is read by the document's next unit */
		unit++;
		if (unit == units || p->unit_doc[unit] != p->unit_doc[unit - 1])
			return false;
	} else if (p->kind == POOL_OVERLAPPED) {
		c -= p->channels;
		struct slots s = slots_of(p, unit);
		from = s.own;
	}
	float grad = load(grad_y, grad_y_at.s0 + unit * grad_y_at.s1 + c, grad_y_type);
	differentiate(p, unit, from + *slot, c, grad, dx, dgate);
	return true;
}

#define BACKWARD_ARGS                                                                            \
	POOLING_ARGS, long row_first, const __global int *row_unit, long row_unit_at, int units, \
		const __global void *grad_y, long4 grad_y_at, int grad_y_type, int width,        \
		int accumulate

/* Work-groups: rows of x [row_first, ...) * blocks of 64 channels. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
pool_backward(BACKWARD_ARGS, __global void *dx, long4 dx_at, int dx_type, __global void *dgate,
	      long4 dgate_at, int dgate_type)
{
	struct pooling p = POOLING;
	int blocks = (width + 63) / 64;
	long row = (long)get_group_id(0) / blocks;
	int c = (int)((long)get_group_id(0) % blocks) * 64 + (int)get_local_id(0);
	if (c >= width)
		return;
	float x_part = 0.0f, gate_part = 0.0f;
	int slot = 0;
	differentiate_row(&p, row_unit + row_unit_at, units, grad_y, grad_y_at, grad_y_type,
			  row_first + row, c, &slot, &x_part, &gate_part);
	if (PRESENT(dx_at)) {
		long at = dx_at.s0 + row * dx_at.s1 + c;
		store(dx, at, dx_type, accumulate ? load(dx, at, dx_type) + x_part : x_part);
	}
	if (PRESENT(dgate_at)) {
		long at = dgate_at.s0 + row * dgate_at.s1 + c;
		store(dgate, at, dgate_type,
		      accumulate ? load(dgate, at, dgate_type) + gate_part : gate_part);
	}
}

/* What the bias of slot `wanted`, channel c, gets from rows item, item + 4, ... */
static inline float bias_part(const struct pooling *p, const __global int *row_unit, int units,
			      const __global void *grad_y, long4 grad_y_at, int grad_y_type,
			      long row_first, long rows, int item, int wanted, int c)
{
	float sum = 0.0f;
	for (long row = row_first + item; row < row_first + rows; row += 4) {
		float x_part = 0.0f, gate_part = 0.0f;
		int unit = row_unit[row];
		int slot = 0;
		if (unit >= 0 && row - p->unit_row[unit] == wanted)
			differentiate_row(p, row_unit, units, grad_y, grad_y_at, grad_y_type, row,
					  c, &slot, &x_part, &gate_part);
		sum += gate_part;
	}
	return sum;
}

/* The bias of slot i gets what the rows in slot i get: added up by 4 work-items that take
 * every 4th row, in this order always. Work-groups: slots * blocks of 16 channels. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
pool_bias_backward(BACKWARD_ARGS, long rows, __global float *dbias, long4 dbias_at)
{
	__local float sums[64];
	struct pooling p = POOLING;
	/* Unsigned: PoCL 5.0 loses what depends on a signed quotient of the work-item's number. */
	const uint item = (uint)get_local_id(0);
	int blocks = (width + 15) / 16, lane = (int)(item % 16);
	int wanted = (int)get_group_id(0) / blocks;
	int c = (int)get_group_id(0) % blocks * 16 + lane;
	float sum = 0.0f;
	if (c < width)
		sum = bias_part(&p, row_unit + row_unit_at, units, grad_y, grad_y_at, grad_y_type,
				row_first, rows, (int)(item / 16), wanted, c);
	sums[item] = sum;
	barrier(CLK_LOCAL_MEM_FENCE);
	if (item < 16 && c < width) {
		long at = dbias_at.s0 + wanted * dbias_at.s1 + c;
		sum = sums[item] + sums[item + 16] + sums[item + 32] + sums[item + 48];
		dbias[at] = accumulate ? dbias[at] + sum : sum;
	}
}
