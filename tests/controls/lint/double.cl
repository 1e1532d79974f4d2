/* Planted: a constant without its f makes the sum a double [double precision constant requires cl_khr_fp64] */
__kernel void in_double(__global float *x, __global char *c, int n)
{
	const int item = (int)get_global_id(0);
	x[item] = x[item] * 0.1 + (float)(c[item] + n);
}
