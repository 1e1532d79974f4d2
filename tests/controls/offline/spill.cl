/* Planted: more accumulators than any device has registers for, in work-groups of 1024. */
#define N 16
#define UNROLL _Pragma("unroll")

__kernel __attribute__((reqd_work_group_size(1024, 1, 1))) void
spills(const __global float *a, const __global float *b, __global float *c, int steps)
{
	float sums[N][N];
	const int item = (int)get_global_id(0);
	UNROLL for (int i = 0; i < N; i++)
		UNROLL for (int j = 0; j < N; j++)
			sums[i][j] = 0.0f;
	for (int s = 0; s < steps; s++)
		UNROLL for (int i = 0; i < N; i++)
			UNROLL for (int j = 0; j < N; j++)
				sums[i][j] = fma(a[(s + i) * 1024 + item], b[(s + j) * 1024 + item], sums[i][j]);
	UNROLL for (int i = 0; i < N; i++)
		UNROLL for (int j = 0; j < N; j++)
			c[(i * N + j) * 1024 + item] = sums[i][j];
}
