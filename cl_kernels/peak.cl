/* peak.cl - the multiply-add rate of a device, without memory traffic. */

/* 8 chains of 16 lanes: 256 floating-point operations of a work-item per step. The
 * result is stored only where it can never be, so that nothing is left out. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void peak_fma(__global float *sink,
								       int steps, float factor)
{
	float16 a = (float16)(factor) + (float)get_local_id(0);
	float16 b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
	float16 e = a + 4.0f, f = a + 5.0f, g = a + 6.0f, h = a + 7.0f;
	for (int i = 0; i < steps; i++) {
		a = fma(a, (float16)(factor), (float16)(factor));
		b = fma(b, (float16)(factor), (float16)(factor));
		c = fma(c, (float16)(factor), (float16)(factor));
		d = fma(d, (float16)(factor), (float16)(factor));
		e = fma(e, (float16)(factor), (float16)(factor));
		f = fma(f, (float16)(factor), (float16)(factor));
		g = fma(g, (float16)(factor), (float16)(factor));
		h = fma(h, (float16)(factor), (float16)(factor));
	}
	float16 sum = a + b + c + d + e + f + g + h;
	float total = dot(sum.lo.lo, (float4)(1.0f)) + dot(sum.lo.hi, (float4)(1.0f)) +
		      dot(sum.hi.lo, (float4)(1.0f)) + dot(sum.hi.hi, (float4)(1.0f));
	if (total == 12345.0f)
		sink[get_global_id(0)] = total;
}
