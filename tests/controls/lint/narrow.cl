/* Planted: an int in a char [implicit conversion loses integer precision] */
__kernel void narrow(__global float *x, __global char *c, int n)
{
	const int item = (int)get_global_id(0);
	c[item] = n + (int)x[item];
}
