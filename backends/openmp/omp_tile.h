/* omp_tile.h - f32 tiles of heads and key rows, for attention and the loss. */
#ifndef HYS_OMP_TILE_H
#define HYS_OMP_TILE_H

#include "omp_rows.h"

/* Key rows of a tile. */
#define OMP_TILE 64

/* Distance of rows of n floats: whole cache lines, an odd number of them, so
 * that a column of a tile spreads over all sets of a cache. */
static inline int64_t omp_pitch(int64_t n)
{
	return (omp_ceil_div(n, 16) | 1) * 16;
}

/* Query heads that share a key/value head and a selection group. */
struct omp_heads {
	int64_t begin, end, kv_head, group;
};

/* The next such heads, ascending; start from zeros. With one_group the groups
 * are left out (a set that does not depend on indices). */
bool omp_heads_next(const struct hys_problem *problem, bool one_group, struct omp_heads *heads);
/* Most heads of one struct omp_heads. */
int64_t omp_heads_most(const struct hys_problem *problem);
/* Most of them in one group. */
int64_t omp_parts_most(const struct hys_problem *problem);

/* Where key rows lie: numbers from `split` on are the second array's. */
struct omp_source {
	const struct hys_tensor *first, *second; /* [S,G,*], [S2,G,*] */
	int64_t split;
};

/* Values of both sources: keys where they are absent. */
struct omp_source omp_values(const struct omp_source *keys, const struct hys_tensor *v,
			     const struct hys_tensor *window_v);
/* tile[i][dim] = row rows[i] of head kv_head, its first dim channels. */
void omp_gather(const struct omp_isa *isa, const struct omp_source *source, int64_t kv_head,
		const int64_t *rows, int64_t count, int64_t dim, float *tile, int64_t pitch);
/* The same rows in `tile`, which has room for count rows at distances of
 * omp_pitch(dim), or, unless `copy`, where they lie, if they are f32 and follow
 * each other. */
struct omp_matrix {
	const float *at;
	int64_t pitch;
};
struct omp_matrix omp_key_rows(const struct omp_isa *isa, const struct omp_source *source,
			       int64_t kv_head, const int64_t *rows, int64_t count, int64_t dim,
			       bool copy, float *tile);
/* Pointers to the rows, in `tile` or where they lie. */
void omp_key_pointers(const struct omp_isa *isa, const struct omp_source *source, int64_t kv_head,
		      const int64_t *rows, int64_t count, int64_t dim, float *tile,
		      const float **pointers);
/* Asks memory for such rows, of heads [kv_head, kv_head + kv_heads). */
void omp_prefetch(const struct omp_source *source, int64_t kv_head, int64_t kv_heads,
		  const int64_t *rows, int64_t count, int64_t dim);
/* tile[i][dim] = element (row, first + i) of x[rows,heads,dim]. */
void omp_load(const struct omp_isa *isa, const struct hys_tensor *x, int64_t row, int64_t first,
	      int64_t count, int64_t dim, float *tile, int64_t pitch);
/* Writes values to element (i0, i1) of x, or adds them to it; they are used
 * up. `spare` holds n floats. */
void omp_store(const struct omp_isa *isa, const struct hys_tensor *x, int64_t i0, int64_t i1,
	       float *values, int64_t n, bool add, float *spare);
/* x *= factor */
void omp_scale(float *x, int64_t n, float factor);
/* Sum of x, in an order that only n decides. */
float omp_sum(const float *x, int64_t n);
/* l = scale * dot, capped. */
void omp_logits(const struct hys_problem *problem, float *x, int64_t n);
/* log(exp(a) + exp(b)); -inf stays out of the way, inf and NaN win. */
double omp_log_add(double a, double b);

#endif
