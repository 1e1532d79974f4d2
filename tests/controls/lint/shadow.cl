/* Planted: a variable hides another [declaration shadows a local variable] */
__kernel void shadow(__global float *x, __global char *c, int n)
{
	const int item = (int)get_global_id(0);
	for (int item = 0; item < n; item++)
		x[item] = (float)c[item];
}
