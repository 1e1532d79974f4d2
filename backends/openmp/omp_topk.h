/* omp_topk.h - the K best of a stream of scores, exactly.
 *
 * Order: higher score first, +0 equal to -0, NaN below -inf, equal scores by
 * the smaller index. Scores come with ascending indices, so that "seen first"
 * is "smaller index": candidates that are not below a running threshold are
 * appended, and when there is no room the K best stay, in order. Each score is
 * moved O(1) times; nothing depends on how the stream was cut. */
#ifndef HYS_OMP_TOPK_H
#define HYS_OMP_TOPK_H

#include "omp_internal.h"

struct omp_topk {
	int64_t k;	  /* wanted, >= 0 */
	int64_t capacity; /* of scores and indices */
	int64_t count;	  /* candidates held */
	float least;	  /* what a newcomer must not be below; NaN = all */
	float *scores;	  /* [capacity + OMP_FILTER_SLACK] */
	int32_t *indices; /* the same */
	uint32_t *keys;	  /* scratch, [capacity], may be shared */
};

/* An unsigned number that orders scores: greater is better. */
uint32_t omp_topk_key(float score);

/* Candidates worth holding for K of `n` scores that come in pieces of at most
 * `piece`. */
int64_t omp_topk_capacity(int64_t k, int64_t n, int64_t piece);

void omp_topk_start(struct omp_topk *topk, int64_t k);

/* The next n <= piece scores, with indices first, first + 1, ...; ascending
 * from call to call. */
void omp_topk_push(struct omp_topk *topk, const struct omp_isa *isa, const float *scores, int64_t n,
		   int32_t first);

/* Leaves the min(K, pushed) best, in ascending order of index; answers how
 * many. *lowest is the worst of them, -inf when there are none. */
int64_t omp_topk_finish(struct omp_topk *topk, const struct omp_isa *isa, float *lowest);

#endif
