/* Pooling of rows into entries, and bounds of blocks. */
#include "oracle.h"
#include "oracle_internal.h"

/* One pool: its own rows [begin, begin + r), and those of the document's previous pool or -1. */
struct place {
	int64_t begin, previous;
};

static int64_t document_pools(const struct ora_pool *p, int64_t document, int64_t *begin)
{
	const int one = p->documents == 0;
	*begin = one ? 0 : p->cu_seqlens[document];
	const int64_t end = one ? p->rows : p->cu_seqlens[document + 1];
	return (end - *begin) / p->ratio;
}

int64_t ora_pool_count(const struct ora_pool *p)
{
	int64_t count = 0, begin;
	for (int64_t document = 0; document < ora_max(p->documents, 1); document++)
		count += document_pools(p, document, &begin);
	return count;
}

static struct place *places(const struct ora_pool *p)
{
	struct place *list = ora_alloc(ora_pool_count(p), sizeof *list);
	struct place *next = list;
	for (int64_t document = 0; document < ora_max(p->documents, 1); document++) {
		int64_t begin;
		const int64_t pools = document_pools(p, document, &begin);
		for (int64_t e = 0; e < pools; e++) {
			next->begin = begin + e * p->ratio;
			next->previous = e > 0 && p->overlap ? next->begin - p->ratio : -1;
			next++;
		}
	}
	return list;
}

/*
 * The slots of channel c of a pool as offsets into x and gate and, for the bias,
 * into [r, width].  Room for 2r.  Returns their number.
 */
static int32_t slots_of(const struct ora_pool *p, const struct place *place, int32_t c, int64_t *at,
			int64_t *bias_at)
{
	const int64_t width = p->overlap ? 2 * (int64_t)p->channels : p->channels;
	const int64_t own_channel = p->overlap ? p->channels + c : c;
	int32_t count = 0;
	for (int32_t i = 0; place->previous >= 0 && i < p->ratio; i++, count++) {
		at[count] = (place->previous + i) * width + c;
		bias_at[count] = i * width + c;
	}
	for (int32_t i = 0; i < p->ratio; i++, count++) {
		at[count] = (place->begin + i) * width + own_channel;
		bias_at[count] = i * width + own_channel;
	}
	return count;
}

/* Weights of the slots: 1/count without a gate, else the softmax of gate + bias; 0 if all are -inf. */
static void weigh(const struct ora_pool *p, int32_t count, const int64_t *at,
		  const int64_t *bias_at, double *weights)
{
	if (p->gate == NULL) {
		for (int32_t i = 0; i < count; i++)
			weights[i] = 1.0 / (double)count;
		return;
	}
	for (int32_t i = 0; i < count; i++)
		weights[i] = p->gate[at[i]] + (p->bias != NULL ? p->bias[bias_at[i]] : 0.0);
	const double total = ora_log_sum_exp(weights, count);
	for (int32_t i = 0; i < count; i++)
		weights[i] = ora_share(weights[i], total);
}

/* Room for one channel's slots. */
struct slots {
	int64_t *at, *bias_at;
	double *weights;
};

static struct slots new_slots(const struct ora_pool *p)
{
	const int64_t room = 2 * (int64_t)p->ratio;
	return (struct slots){ora_alloc(room, sizeof(int64_t)), ora_alloc(room, sizeof(int64_t)),
			      ora_doubles(room)};
}

static void free_slots(struct slots *slots)
{
	free(slots->at);
	free(slots->bias_at);
	free(slots->weights);
}

void ora_pool_forward(struct ora_pool *p)
{
	const int64_t pools = ora_pool_count(p);
	struct place *list = places(p);
	struct slots slots = new_slots(p);
	for (int64_t e = 0; e < pools; e++)
		for (int32_t c = 0; c < p->channels; c++) {
			const int32_t count = slots_of(p, list + e, c, slots.at, slots.bias_at);
			weigh(p, count, slots.at, slots.bias_at, slots.weights);
			double sum = 0.0;
			for (int32_t i = 0; i < count; i++)
				sum += slots.weights[i] * p->x[slots.at[i]];
			p->out[e * p->channels + c] = sum;
		}
	free_slots(&slots);
	free(list);
}

/* Gradients of one output through its slots: d gate = weight * (x - out) * grad. */
static void differentiate(struct ora_pool *p, const struct slots *slots, int32_t count, double grad)
{
	double out = 0.0;
	for (int32_t i = 0; p->gate != NULL && i < count; i++)
		out += slots->weights[i] * p->x[slots->at[i]];
	for (int32_t i = 0; i < count; i++) {
		if (p->dx != NULL)
			p->dx[slots->at[i]] += slots->weights[i] * grad;
		if (p->gate == NULL)
			continue;
		const double d_gate = slots->weights[i] * (p->x[slots->at[i]] - out) * grad;
		if (p->dgate != NULL)
			p->dgate[slots->at[i]] += d_gate;
		if (p->dbias != NULL)
			p->dbias[slots->bias_at[i]] += d_gate;
	}
}

void ora_pool_backward(struct ora_pool *p)
{
	const int64_t width = p->overlap ? 2 * (int64_t)p->channels : p->channels;
	const int64_t pools = ora_pool_count(p);
	struct place *list = places(p);
	struct slots slots = new_slots(p);
	ora_zero(p->dx, p->rows * width);
	ora_zero(p->dgate, p->rows * width);
	ora_zero(p->dbias, p->ratio * width);
	for (int64_t e = 0; e < pools; e++)
		for (int32_t c = 0; c < p->channels; c++) {
			const int32_t count = slots_of(p, list + e, c, slots.at, slots.bias_at);
			weigh(p, count, slots.at, slots.bias_at, slots.weights);
			differentiate(p, &slots, count, p->grad_out[e * p->channels + c]);
		}
	free_slots(&slots);
	free(list);
}

/* The larger (smaller), NaN if either is. */
static double larger(double a, double b)
{
	return isnan(a) || a > b ? a : b;
}

static double smaller(double a, double b)
{
	return isnan(a) || a < b ? a : b;
}

/* Mean and extremes of the unit whose rows start at `begin`. */
static void bound_channels(const struct ora_bounds *b, int64_t unit, int64_t begin, double *centre)
{
	for (int32_t c = 0; c < b->channels; c++) {
		double sum = 0.0, low = (double)INFINITY, high = -(double)INFINITY;
		for (int64_t row = begin; row < begin + b->ratio; row++) {
			const double x = b->x[row * b->channels + c];
			sum += x;
			low = smaller(low, x);
			high = larger(high, x);
		}
		centre[c] = sum / (double)b->ratio;
		if (b->centre != NULL)
			b->centre[unit * b->channels + c] = centre[c];
		if (b->low != NULL)
			b->low[unit * b->channels + c] = low;
		if (b->high != NULL)
			b->high[unit * b->channels + c] = high;
	}
}

static void bound_norms(const struct ora_bounds *b, int64_t unit, int64_t begin,
			const double *centre)
{
	double max_norm = 0.0, radius = 0.0;
	for (int64_t row = begin; row < begin + b->ratio; row++) {
		const double *x = b->x + row * b->channels;
		double distance = 0.0;
		for (int32_t c = 0; c < b->channels; c++)
			distance += (x[c] - centre[c]) * (x[c] - centre[c]);
		max_norm = larger(max_norm, sqrt(ora_dot(x, x, b->channels)));
		radius = larger(radius, sqrt(distance));
	}
	if (b->max_norm != NULL)
		b->max_norm[unit] = max_norm;
	if (b->radius != NULL)
		b->radius[unit] = radius;
}

void ora_bounds(struct ora_bounds *b)
{
	const struct ora_pool units = {.rows = b->rows,
				       .documents = b->documents,
				       .ratio = b->ratio,
				       .cu_seqlens = b->cu_seqlens};
	struct place *list = places(&units);
	double *centre = ora_doubles(b->channels);
	for (int64_t unit = 0; unit < ora_pool_count(&units); unit++) {
		bound_channels(b, unit, list[unit].begin, centre);
		bound_norms(b, unit, list[unit].begin, centre);
	}
	free(centre);
	free(list);
}
