/* Planted: an assignment where a comparison is meant [using the result of an assignment] */
__kernel void assignment(__global float *x, __global char *c, int n)
{
	const int item = (int)get_global_id(0);
	if (n = 3)
		x[item] = (float)c[item];
}
