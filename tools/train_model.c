/* train_model.c - the indexer's projections, their backward, and AdamW (Loshchilov and Hutter, 2019). */
#include "train.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

#define BETA1 0.9
#define BETA2 0.99
#define EPSILON 1e-8

/* Where the parts of the parameters lie. */
struct parts {
	int64_t q, k, w, b, count;
};

static struct parts parts_of(const struct train_shape *shape)
{
	const int64_t c = shape->channels, q = (int64_t)shape->heads * shape->dim * c;
	const int64_t k = shape->dim * c, w = shape->heads * c;
	return (struct parts){0, q, q + k, q + k + w, q + k + w + shape->heads};
}

int64_t train_parameters(const struct train_shape *shape)
{
	return parts_of(shape).count;
}

/* splitmix64 (Steele, Lea and Flood, 2014), as a number in [0, 1). */
static double uniform(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static double normal(uint64_t *state)
{
	const double radius = sqrt(-2 * log(1 - uniform(state)));
	return radius * cos(6.283185307179586 * uniform(state));
}

/* Products of about unit size, and head weights of about the same. */
void train_start(const struct train_shape *shape, struct train_layer_state *state, uint64_t seed)
{
	const struct parts parts = parts_of(shape);
	const double spread = 1 / sqrt((double)shape->channels);
	memset(state->moment, 0, (size_t)parts.count * sizeof(float));
	memset(state->square, 0, (size_t)parts.count * sizeof(float));
	for (int64_t i = 0; i < parts.w; i++)
		state->weights[i] = (float)(spread * normal(&seed));
	for (int64_t i = parts.w; i < parts.b; i++)
		state->weights[i] = (float)(0.1 * spread * normal(&seed));
	for (int64_t i = parts.b; i < parts.count; i++)
		state->weights[i] = 1;
}

/* Turns channel i with channel i + rotary / 2 of each head, forward or back. */
static void rotate(const struct train_shape *shape, float *x, int32_t rows, int32_t heads,
		   double direction)
{
	const int32_t half = shape->rotary / 2;
	for (int32_t i = 0; i < half; i++) {
		const double turn = direction * pow(shape->theta, -(double)i / half);
		for (int32_t t = 0; t < rows; t++) {
			const float c = (float)cos(t * turn), s = (float)sin(t * turn);
			for (int32_t h = 0; h < heads; h++) {
				float *at = x + ((int64_t)t * heads + h) * shape->dim + i;
				const float a = at[0], b = at[half];
				at[0] = a * c - b * s;
				at[half] = b * c + a * s;
			}
		}
	}
}

/* y [rows,n] = x [rows,c] w^T, w [n,c]. */
static void project(const float *x, const float *w, float *y, int32_t rows, int32_t c, int32_t n)
{
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, n, c, 1, x, c, w, c, 0, y, n);
}

/* dw [n,c] = dy^T x. */
static void project_backward(const float *x, const float *dy, float *dw, int32_t rows, int32_t c,
			     int32_t n)
{
	cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, c, rows, 1, dy, n, x, c, 0, dw, c);
}

void train_project(const struct train_shape *shape, const float *weights, const float *hidden,
		   int32_t rows, struct train_index *index)
{
	const struct parts parts = parts_of(shape);
	const int32_t c = shape->channels;
	project(hidden, weights + parts.q, index->q, rows, c, shape->heads * shape->dim);
	project(hidden, weights + parts.k, index->k, rows, c, shape->dim);
	project(hidden, weights + parts.w, index->w, rows, c, shape->heads);
	for (int64_t i = 0; i < (int64_t)rows * shape->heads; i++)
		index->w[i] += weights[parts.b + i % shape->heads];
	rotate(shape, index->q, rows, shape->heads, 1);
	rotate(shape, index->k, rows, 1, 1);
}

void train_project_backward(const struct train_shape *shape, const float *hidden, int32_t rows,
			    struct train_index *gradient, float *weights_gradient)
{
	const struct parts parts = parts_of(shape);
	const int32_t c = shape->channels;
	rotate(shape, gradient->q, rows, shape->heads, -1);
	rotate(shape, gradient->k, rows, 1, -1);
	project_backward(hidden, gradient->q, weights_gradient + parts.q, rows, c,
			 shape->heads * shape->dim);
	project_backward(hidden, gradient->k, weights_gradient + parts.k, rows, c, shape->dim);
	project_backward(hidden, gradient->w, weights_gradient + parts.w, rows, c, shape->heads);
	for (int32_t h = 0; h < shape->heads; h++) {
		double sum = 0;
		for (int32_t t = 0; t < rows; t++)
			sum += (double)gradient->w[(int64_t)t * shape->heads + h];
		weights_gradient[parts.b + h] = (float)sum;
	}
}

double train_update(const struct train_shape *shape, struct train_layer_state *state,
		    float *gradient, int64_t step, double rate, double decay, double clip)
{
	const struct parts parts = parts_of(shape);
	const double first = 1 - pow(BETA1, (double)step), second = 1 - pow(BETA2, (double)step);
	double sum = 0;
	for (int64_t i = 0; i < parts.count; i++)
		sum += (double)gradient[i] * (double)gradient[i];
	const double norm = sqrt(sum), factor = norm > clip ? clip / norm : 1;
	for (int64_t i = 0; i < parts.count; i++) {
		const double g = (double)gradient[i] * factor;
		const double m = BETA1 * (double)state->moment[i] + (1 - BETA1) * g;
		const double v = BETA2 * (double)state->square[i] + (1 - BETA2) * g * g;
		const double w = (double)state->weights[i];
		state->moment[i] = (float)m;
		state->square[i] = (float)v;
		state->weights[i] = (float)(w - rate * (m / first / (sqrt(v / second) + EPSILON) +
							(i < parts.b ? decay * w : 0)));
	}
	return norm;
}
