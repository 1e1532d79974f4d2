/* isa.h - what an instruction set offers: the hot loops, as a table of
 * functions.
 *
 * isa/<part>_<set>.c holds the functions of one set, compiled for it, the same
 * ones in the same order. A table is filled with the portable functions first,
 * then overwritten by what each set up to its own has. Everything outside isa/
 * is baseline code. All arrays are f32, row-major, need no alignment and do not
 * overlap; sizes may be 0. An element's bits depend on its own operands and on
 * the length that is summed over, never on its place in a tile or on the other
 * sizes. */
#ifndef HYS_OMP_ISA_H
#define HYS_OMP_ISA_H

#include <stdbool.h>
#include <stdint.h>

#include "hyscale/base.h"

/* Index heads of one row, ready to be scored against panels of keys. */
struct omp_query {
	const float *q; /* [heads][dim] */
	const float *w; /* [heads] */
	int64_t heads, dim;
	int64_t group_heads; /* heads / groups */
	float scale;
	bool relu;
	const uint16_t *half; /* the same as bf16 [heads][half_dim], 0 behind dim */
	int64_t half_dim;     /* a multiple of OMP_HALF_STEP */
	int32_t lowest;	      /* omp_half.c's: of their exponents */
};

/* Of each lane. */
struct omp_soften {
	float *largest, *shrink, *sums;
};

struct omp_isa {
	/* vector_<set>.c */
	float (*dot)(const float *a, const float *b, int64_t n);
	/* y += a * x */
	void (*axpy)(float a, const float *x, float *y, int64_t n);
	/* x = exp(x) within 2 ulp; exp(-inf) = 0, exp(inf) = inf, NaN stays;
	 * what would be below FLT_MIN is 0. */
	void (*exp)(float *x, int64_t n);
	/* Rows of f32 f16 bf16 f8 to f32, exact; and back, ties to even, f16
	 * and bf16 overflow to inf, f8 saturates. NaN stays NaN. */
	void (*to_f32)(hys_dtype dtype, const void *source, float *target, int64_t n);
	void (*from_f32)(hys_dtype dtype, const float *source, void *target, int64_t n);

	/* softmax_<set>.c: tiles x[keys][pitch] of dot products, a column for
	 * each of `lanes` lanes, which are a multiple of OMP_LANES.
	 * One step of an online softmax: logits are scale * x, `largest` grows to
	 * the largest one (NaN left out, at most FLT_MAX), x becomes
	 * exp(logit - largest); shrink = exp(old largest - new), sums[lane] = sum
	 * of x over the keys. */
	void (*soften)(float *x, int64_t pitch, int64_t keys, int64_t lanes, float scale,
		       const struct omp_soften *state);
	/* x becomes the shares exp(scale * x - total), 0 in lanes whose total is
	 * -inf; y, if there is one, from d shares shares * (y - mean) * scale. */
	void (*share)(float *x, float *y, int64_t pitch, int64_t keys, int64_t lanes, float scale,
		      const float *totals, const float *means);
	/* x[rows][lane] *= factors[lane] */
	void (*scale_lanes)(float *x, int64_t pitch, int64_t rows, int64_t lanes,
			    const float *factors);
	/* column[key] += sum over lanes of x */
	void (*add_lanes)(const float *x, int64_t pitch, int64_t keys, int64_t lanes,
			  float *column);

	/* gemm_<set>.c, for modest sizes (128 x 64 x 576). lda is the distance
	 * of rows. c = or, when `accumulate`, c += the product. */
	/* c[m,n] of a[m,k] * b[n,k]^T */
	void (*gemm_nt)(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
			const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate);
	/* c[m,n] of a[m,k] * b[k,n] */
	void (*gemm_nn)(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
			const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate);
	/* c[m,n] of a[k,m]^T * b[k,n] */
	void (*gemm_tn)(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
			const float *b, int64_t ldb, float *c, int64_t ldc, bool accumulate);

	/* rows_<set>.c: the same for few lanes (n < 8) and rows anywhere.
	 * x[lane][i] = <q_lane, rows[i]> */
	void (*dot_rows)(int64_t lanes, int64_t count, int64_t dim, const float *q, int64_t q_pitch,
			 const float *const *rows, float *x, int64_t pitch);
	/* o_lane += sum of x[lane][i] * rows[i] */
	void (*add_rows)(int64_t lanes, int64_t count, int64_t dim, const float *x, int64_t pitch,
			 const float *const *rows, float *o, int64_t o_pitch);
	/* As soften, for one lane whose dot products are x[n]; answers the sum. */
	float (*soften_row)(float *x, int64_t n, float scale, float *largest, float *shrink);

	/* select_<set>.c */
	int64_t panel; /* keys of one panel, at most OMP_PANEL_MAX */
	/* scores[g * stride + i] = sum over heads j of group g, ascending, of
	 * w_j * act(scale * <q_j, key_i>), for the keys i of
	 * packed[panels][dim][panel]. */
	void (*score)(const struct omp_query *query, const float *packed, int64_t panels,
		      float *scores, int64_t stride);
	/* Appends the scores that are not below `least`, ascending, with their
	 * index first + i; answers how many. With least = NaN all, NaN too. May
	 * write up to OMP_FILTER_SLACK elements behind the last one. */
	int64_t (*filter)(const float *scores, int64_t n, float least, int32_t first,
			  float *out_scores, int32_t *out_indices);
	/* Moves the scores that are not below `least`, NaN too, with their
	 * indices to the front, in their order; answers how many. */
	int64_t (*keep)(float *scores, int32_t *indices, int64_t n, float least);
	bool (*has_nan)(const float *x, int64_t n);
	/* Largest of x, NaN left out; NaN if there is nothing else. */
	float (*maximum)(const float *x, int64_t n);

	/* half_<set>.c, NULL where the set has nothing for it: the same for bf16
	 * keys packed[panels][half_dim / 2][panel][2] and query->half, 16 rows of
	 * which may be read behind the last head. Sums are f32, but numbers below
	 * FLT_MIN may count as 0 on the way. */
	void (*score_half)(const struct omp_query *query, const uint16_t *packed, int64_t panels,
			   float *scores, int64_t stride);
	/* A thread calls these before and after it scores. */
	void (*half_begin)(void);
	void (*half_end)(void);

	/* peak_<set>.c: `rounds` rounds of independent multiply-adds; answers
	 * the floating point operations that were done. *sink keeps them. */
	double (*peak)(int64_t rounds, float *sink);
};

#define OMP_LANES 8
#define OMP_PANEL_MAX 64
#define OMP_FILTER_SLACK 16
#define OMP_HALF_STEP 32
#define OMP_HALF_SLACK 16 /* rows */

/* Instruction sets, each with all that the ones before it on the same kind of
 * processor have. */
enum omp_set {
	OMP_SET_PORTABLE,
	OMP_SET_NEON,
	OMP_SET_AVX2,
	OMP_SET_AVX512,
	OMP_SET_AVX512BF16,
	OMP_SET_AMX,
	OMP_SETS
};

/* The table of a set, without what the build left out. */
void omp_isa_fill(struct omp_isa *isa, enum omp_set set);

#endif
