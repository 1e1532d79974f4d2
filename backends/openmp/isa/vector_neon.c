/* vector_neon.c - products and number formats with NEON. */
#include <arm_neon.h>
#include <math.h>

#include "isa_functions.h"

static float dot(const float *a, const float *b, int64_t n)
{
	float32x4_t sum[4];
	int64_t i = 0;
	for (int32_t j = 0; j < 4; j++)
		sum[j] = vdupq_n_f32(0.0f);
	for (; i + 16 <= n; i += 16)
		for (int32_t j = 0; j < 4; j++)
			sum[j] = vfmaq_f32(sum[j], vld1q_f32(a + i + 4 * j),
					   vld1q_f32(b + i + 4 * j));
	for (; i + 4 <= n; i += 4)
		sum[0] = vfmaq_f32(sum[0], vld1q_f32(a + i), vld1q_f32(b + i));
	float all = vaddvq_f32(vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3])));
	for (; i < n; i++)
		all = fmaf(a[i], b[i], all);
	return all;
}

static void axpy(float a, const float *x, float *y, int64_t n)
{
	int64_t i = 0;
	for (; i + 4 <= n; i += 4)
		vst1q_f32(y + i, vfmaq_n_f32(vld1q_f32(y + i), vld1q_f32(x + i), a));
	for (; i < n; i++)
		y[i] = fmaf(a, x[i], y[i]);
}

/* f8 is left to plain C. */
static void to_f32(hys_dtype dtype, const void *source, float *target, int64_t n)
{
	const uint16_t *half = source;
	const uint8_t *byte = source;
	int64_t i = 0;
	for (; dtype == HYS_F16 && i + 4 <= n; i += 4)
		vst1q_f32(target + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(half + i))));
	for (; dtype == HYS_BF16 && i + 4 <= n; i += 4)
		vst1q_f32(target + i, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(half + i), 16)));
	omp_to_f32_portable(dtype, byte + i * (int64_t)hys_dtype_size(dtype), target + i, n - i);
}

static void from_f32(hys_dtype dtype, const float *source, void *target, int64_t n)
{
	uint16_t *half = target;
	uint8_t *byte = target;
	int64_t i = 0;
	for (; dtype == HYS_F16 && i + 4 <= n; i += 4)
		vst1_u16(half + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(source + i))));
	omp_from_f32_portable(dtype, source + i, byte + i * (int64_t)hys_dtype_size(dtype), n - i);
}

void omp_fill_vector_neon(struct omp_isa *isa)
{
	isa->dot = dot;
	isa->axpy = axpy;
	isa->to_f32 = to_f32;
	isa->from_f32 = from_f32;
}
