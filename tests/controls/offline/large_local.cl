/* Planted: more local memory than a device has. */
#define BYTES 160000

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
takes_much_local(const __global float *a, __global float *b)
{
	__local float all[BYTES / 4];
	const int item = (int)get_local_id(0);
	for (int i = item; i < BYTES / 4; i += 64)
		all[i] = a[i];
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int i = item; i < BYTES / 4; i += 64)
		b[i] = all[BYTES / 4 - 1 - i];
}
