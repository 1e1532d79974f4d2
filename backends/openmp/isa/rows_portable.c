/* rows_portable.c - few lanes against key rows that lie anywhere, in plain C. */
#include "isa_functions.h"

#define LANES 8

static float dot_row(const float *a, const float *b, int64_t dim)
{
	float lane[LANES] = {0};
	int64_t d = 0;

	for (; d + LANES <= dim; d += LANES)
		for (int i = 0; i < LANES; i++)
			lane[i] += a[d + i] * b[d + i];
	for (int i = 0; d + i < dim; i++)
		lane[i] += a[d + i] * b[d + i];
	return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
	       ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static void dot_rows(int64_t lanes, int64_t count, int64_t dim, const float *q, int64_t q_pitch,
		     const float *const *rows, float *x, int64_t pitch)
{
	for (int64_t i = 0; i < count; i++)
		for (int64_t lane = 0; lane < lanes; lane++)
			x[lane * pitch + i] = dot_row(q + lane * q_pitch, rows[i], dim);
}

static void add_row(float a, const float *restrict x, float *restrict y, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] += a * x[i];
}

static void add_rows(int64_t lanes, int64_t count, int64_t dim, const float *x, int64_t pitch,
		     const float *const *rows, float *o, int64_t o_pitch)
{
	for (int64_t i = 0; i < count; i++)
		for (int64_t lane = 0; lane < lanes; lane++)
			add_row(x[lane * pitch + i], rows[i], o + lane * o_pitch, dim);
}

void omp_fill_rows_portable(struct omp_isa *isa)
{
	isa->dot_rows = dot_rows;
	isa->add_rows = add_rows;
}
