/* Planted: guards with a typo, so that the plain loop is compiled where the matrix unit is meant, and no compiler minds. With -DRIGHT the
 * guards are right. */
#ifdef RIGHT
#if __has_builtin(__builtin_amdgcn_mfma_f32_32x32x8bf16_1k)
#define HAS_MFMA 1
#endif
#ifdef __NV_CL_C_VERSION
#define HAS_MMA 1
#endif
#ifdef cl_intel_subgroup_matrix_multiply_accumulate
#define HAS_DPAS 1
#endif
#else
#if __has_builtin(__builtin_amdgcn_mfma_f32_32x32x8_bf16_1k)
#define HAS_MFMA 1
#endif
#ifdef __NV_CL_VERSION
#define HAS_MMA 1
#endif
#ifdef cl_intel_sub_group_matrix_multiply_accumulate
#define HAS_DPAS 1
#endif
#endif

#ifdef HAS_DPAS
__attribute__((intel_reqd_sub_group_size(16)))
#endif
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
guarded(const __global short *a, const __global short *b, __global float *c)
{
	const int item = (int)get_local_id(0);
#if defined(HAS_MFMA)
	vstore16(__builtin_amdgcn_mfma_f32_32x32x8bf16_1k(vload4(item, a), vload4(item, b), (float16)(0.0f), 0, 0, 0), item, c);
#elif defined(HAS_MMA)
	float4 sum = 0.0f;
	const uint4 x = vload4(item, (const __global uint *)a);
	const uint2 y = vload2(item, (const __global uint *)b);
	__asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
			 : "+f"(sum.x), "+f"(sum.y), "+f"(sum.z), "+f"(sum.w)
			 : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(y.x), "r"(y.y));
	vstore4(sum, item, c);
#elif defined(HAS_DPAS)
	vstore8(intel_sub_group_bf16_bf16_matrix_mad_k16(vload8(item, a), vload8(item, (const __global int *)b), (float8)(0.0f)), item, c);
#else
	float sum = 0.0f;
	for (int d = 0; d < 16; d++)
		sum += (float)a[item * 16 + d] * (float)b[item * 16 + d];
	c[item] = sum;
#endif
}
