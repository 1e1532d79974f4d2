/* Planted: an array as long as an argument says [variable length arrays are not supported] */
__kernel void variable_array(__global float *x, __global char *c, int n)
{
	const int item = (int)get_global_id(0);
	float all[n];
	all[0] = x[item];
	c[item] = (char)all[0];
}
