/* gemm_portable.c - small matrix products in plain C. Partial sums lie in
 * lanes of their own, so that a compiler can use whatever vectors there are
 * without reordering anything. */
#include "isa_functions.h"

#define LANES 8
#define COLUMNS 128

/* The order in which lanes are added is that of gemm_avx2.c. */
static float add_lanes(const float lane[LANES])
{
	const float low = (lane[0] + lane[1]) + (lane[2] + lane[3]);
	const float high = (lane[4] + lane[5]) + (lane[6] + lane[7]);

	return low + high;
}

static float dot_lanes(const float *a, const float *b, int64_t k)
{
	float lane[LANES] = {0};
	int64_t p = 0;

	for (; p + LANES <= k; p += LANES)
		for (int i = 0; i < LANES; i++)
			lane[i] += a[p + i] * b[p + i];
	for (int i = 0; p + i < k; i++)
		lane[i] += a[p + i] * b[p + i];
	return add_lanes(lane);
}

static void gemm_nt(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		    int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	for (int64_t j = 0; j < n; j++)
		for (int64_t i = 0; i < m; i++) {
			const float sum = dot_lanes(a + i * lda, b + j * ldb, k);

			c[i * ldc + j] = accumulate ? c[i * ldc + j] + sum : sum;
		}
}

/* sum[n] += four rows of b times a[0], a[step], ..., one after the other. */
static void add_four_rows(int64_t n, const float *a, int64_t step, const float *b, int64_t ldb,
			  float *restrict sum)
{
	const float a0 = a[0], a1 = a[step], a2 = a[2 * step], a3 = a[3 * step];
	const float *restrict b0 = b;
	const float *restrict b1 = b + ldb;
	const float *restrict b2 = b + 2 * ldb;
	const float *restrict b3 = b + 3 * ldb;

	for (int64_t j = 0; j < n; j++) {
		float s = sum[j] + a0 * b0[j];

		s += a1 * b1[j];
		s += a2 * b2[j];
		sum[j] = s + a3 * b3[j];
	}
}

static void add_row(int64_t n, float a, const float *restrict b, float *restrict sum)
{
	for (int64_t j = 0; j < n; j++)
		sum[j] += a * b[j];
}

/* Element (i, p) of the left matrix is a[i * row_step + p * sum_step]. */
struct left {
	const float *at;
	int64_t row_step, sum_step;
};

/* n <= COLUMNS elements of row i of c. */
static void outer_row(int64_t i, int64_t n, int64_t k, struct left a, const float *b, int64_t ldb,
		      float *c, bool accumulate)
{
	const float *left = a.at + i * a.row_step;
	float sum[COLUMNS] = {0};
	int64_t p = 0;

	for (; p + 4 <= k; p += 4)
		add_four_rows(n, left + p * a.sum_step, a.sum_step, b + p * ldb, ldb, sum);
	for (; p < k; p++)
		add_row(n, left[p * a.sum_step], b + p * ldb, sum);
	for (int64_t j = 0; j < n; j++)
		c[j] = accumulate ? c[j] + sum[j] : sum[j];
}

static void outer(int64_t m, int64_t n, int64_t k, struct left a, const float *b, int64_t ldb,
		  float *c, int64_t ldc, bool accumulate)
{
	for (int64_t j = 0; j < n; j += COLUMNS)
		for (int64_t i = 0; i < m; i++)
			outer_row(i, n - j < COLUMNS ? n - j : COLUMNS, k, a, b + j, ldb,
				  c + i * ldc + j, accumulate);
}

static void gemm_nn(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		    int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	outer(m, n, k, (struct left){a, lda, 1}, b, ldb, c, ldc, accumulate);
}

static void gemm_tn(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
		    int64_t ldb, float *c, int64_t ldc, bool accumulate)
{
	outer(m, n, k, (struct left){a, 1, lda}, b, ldb, c, ldc, accumulate);
}

void omp_fill_gemm_portable(struct omp_isa *isa)
{
	isa->gemm_nt = gemm_nt;
	isa->gemm_nn = gemm_nn;
	isa->gemm_tn = gemm_tn;
}
