/* add.cl - sums of several devices: target += part, element by element. */

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
add_f32(__global char *target, long target_at, const __global char *part, long part_at, long count)
{
	__global float *sums = (__global float *)(target + target_at);
	const __global float *values = (const __global float *)(part + part_at);
	for (long i = (long)get_global_id(0); i < count; i += (long)get_global_size(0))
		sums[i] += values[i];
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
add_i32(__global char *target, long target_at, const __global char *part, long part_at, long count)
{
	__global int *sums = (__global int *)(target + target_at);
	const __global int *values = (const __global int *)(part + part_at);
	for (long i = (long)get_global_id(0); i < count; i += (long)get_global_size(0))
		sums[i] += values[i];
}
