/* Planted: an int in a float, which may round it [implicit conversion from .*int. to .float. may lose precision] */
__kernel void rounding(__global float *x, __global char *c, int n)
{
	const int item = (int)get_global_id(0);
	x[item] = n;
}
