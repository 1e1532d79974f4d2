/* rows_neon.c - few lanes against key rows that lie anywhere, with NEON. */
#include <arm_neon.h>
#include <math.h>

#include "isa_functions.h"

#define INLINE static inline __attribute__((always_inline))

/* Dot products of `lanes` queries with one row. */
INLINE void dot_lanes(const int lanes, int64_t dim, const float *q, int64_t q_pitch,
		      const float *row, float *x, int64_t pitch)
{
	float32x4_t sum[4][2];
	int64_t d = 0;

	for (int h = 0; h < lanes; h++)
		sum[h][0] = sum[h][1] = vdupq_n_f32(0.0f);
	for (; d + 8 <= dim; d += 8) {
		const float32x4_t r0 = vld1q_f32(row + d), r1 = vld1q_f32(row + d + 4);

		for (int h = 0; h < lanes; h++) {
			const float *left = q + h * q_pitch + d;

			sum[h][0] = vfmaq_f32(sum[h][0], vld1q_f32(left), r0);
			sum[h][1] = vfmaq_f32(sum[h][1], vld1q_f32(left + 4), r1);
		}
	}
	for (int h = 0; h < lanes; h++) {
		float all = vaddvq_f32(vaddq_f32(sum[h][0], sum[h][1]));

		for (int64_t rest = d; rest < dim; rest++)
			all = fmaf(q[h * q_pitch + rest], row[rest], all);
		x[h * pitch] = all;
	}
}

static void dot_rows(int64_t lanes, int64_t count, int64_t dim, const float *q, int64_t q_pitch,
		     const float *const *rows, float *x, int64_t pitch)
{
	for (; lanes >= 4; lanes -= 4, q += 4 * q_pitch, x += 4 * pitch)
		for (int64_t i = 0; i < count; i++)
			dot_lanes(4, dim, q, q_pitch, rows[i], x + i, pitch);
	for (; lanes > 0; lanes--, q += q_pitch, x += pitch)
		for (int64_t i = 0; i < count; i++)
			dot_lanes(1, dim, q, q_pitch, rows[i], x + i, pitch);
}

/* 32 channels of o, or `n` < 32 of them. */
static void add_channels(int64_t count, int64_t n, int64_t d, const float *x,
			 const float *const *rows, float *o)
{
	float32x4_t sum[8];

	if (n < 32) {
		for (int64_t i = 0; i < count; i++)
			for (int64_t j = 0; j < n; j++)
				o[j] = fmaf(x[i], rows[i][d + j], o[j]);
		return;
	}
	for (int j = 0; j < 8; j++)
		sum[j] = vld1q_f32(o + 4 * j);
	for (int64_t i = 0; i < count; i++)
		for (int j = 0; j < 8; j++)
			sum[j] = vfmaq_n_f32(sum[j], vld1q_f32(rows[i] + d + 4 * j), x[i]);
	for (int j = 0; j < 8; j++)
		vst1q_f32(o + 4 * j, sum[j]);
}

static void add_rows(int64_t lanes, int64_t count, int64_t dim, const float *x, int64_t pitch,
		     const float *const *rows, float *o, int64_t o_pitch)
{
	for (int64_t d = 0; d < dim; d += 32)
		for (int64_t h = 0; h < lanes; h++)
			add_channels(count, dim - d < 32 ? dim - d : 32, d, x + h * pitch, rows,
				     o + h * o_pitch + d);
}

void omp_fill_rows_neon(struct omp_isa *isa)
{
	isa->dot_rows = dot_rows;
	isa->add_rows = add_rows;
}
