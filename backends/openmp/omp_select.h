/* omp_select.h - shared by the files of select with packed keys.
 *
 * Keys are converted to f32 and packed into panels once per call. Tiles of
 * rows run over threads; a row's scores pass through a small strip buffer into
 * its choice (omp_pick.h) and are never kept. Strips begin at multiples of
 * their length, and a score's arithmetic does not depend on its panel, so that
 * rows, tiles and threads may be cut in any way. */
#ifndef HYS_OMP_SELECT_H
#define HYS_OMP_SELECT_H

#include "omp_pick.h"

/* Keys of a strip: a multiple of every panel. */
#define OMP_STRIP 192
#define OMP_TILE_MAX 16

/* Keys packed for the set's score, or, if halves, for its score_half. */
struct omp_panels {
	float *floats;	  /* [panels][dim][panel] */
	uint16_t *halves; /* [panels][half_dim / 2][panel][2] */
	int32_t *lowest;  /* [panels] of their exponents, omp_half.c */
	float *norms;	  /* [panels] of their longest keys, omp_bound.c; or NULL */
};

/* A row's scores in one group are at most factor * |key| + least. */
struct omp_bound {
	double factor, least;
};

/* What one thread works with. */
struct omp_select_scratch {
	float *q;		  /* [tile][heads][dim] */
	uint16_t *half;		  /* [tile][heads][half_dim], and some rows of slack */
	float *w;		  /* [tile][heads] */
	float *strip;		  /* [tile][groups][OMP_STRIP] */
	struct omp_pick *picks;	  /* [tile][groups] */
	struct omp_bound *bounds; /* the same, if there are norms */
	struct omp_pick *finals;  /* [1], coarse_to_fine */
	float *rows;		  /* [panel][dim], keys before packing */
	double *sums;		  /* [dim] */
	float *key;		  /* [dim] */
	float *partial;		  /* [dim][panel], a partly visible block's mean */
	uint16_t *half_key;	  /* [dim] */
	float *careful_keys;	  /* [dim][panel], keys that want f32 */
	float *careful;		  /* [groups][panel], their scores */
	int32_t nan_rows;
};

struct omp_select {
	const struct hys_call *call;
	const struct omp_isa *isa;
	int32_t threads;
	int64_t heads, dim, groups, tile;
	int64_t half_dim;		    /* 0: entries are packed as f32 */
	struct omp_panels entries;	    /* index_k */
	struct omp_panels means;	    /* of coarse blocks, f32 */
	bool skip;			    /* what a bound shows to be needless */
	int32_t *order;			    /* of tiles */
	struct omp_select_scratch *scratch; /* [threads] */
};

/* A row of the tile at work. */
struct omp_select_row {
	int64_t t;
	struct omp_query query;
	int64_t begin, end; /* keys to score */
	int64_t origin;	    /* coarse: number of the document's unit 0 */
	bool nan;
};

/* Keys of packed panels and the tile's rows that look at them. */
struct omp_scan {
	const struct omp_panels *panels;
	struct omp_select_row *rows;
	int64_t row_count;
	bool units; /* keys are units: means of coarse blocks */
};

/* Scores what each row wants and hands it to its picks. */
void omp_scan_tile(const struct omp_select *select, struct omp_select_scratch *scratch,
		   const struct omp_scan *scan);

/* Scores `count` panels from p on, to scores[groups][OMP_STRIP]. */
void omp_score_panels(const struct omp_select *select, struct omp_select_scratch *scratch,
		      const struct omp_query *query, const struct omp_panels *packed, int64_t p,
		      int64_t count, float *scores);

/* Scores entries [begin, end) for the heads of one group and hands them to
 * `pick`. */
void omp_scan_run(const struct omp_select *select, struct omp_select_scratch *scratch,
		  const struct omp_query *query, int64_t begin, int64_t end, struct omp_pick *pick,
		  bool *nan);

/* The heads of group u alone. */
struct omp_query omp_query_group(const struct omp_query *query, int64_t u);

/* Reads the row's heads into the scratch's slot r. */
void omp_load_query(const struct omp_select *select, struct omp_select_scratch *scratch, int64_t r,
		    struct omp_select_row *row);

/* One row of index_k as f32, scale applied. */
void omp_load_key(const struct omp_select *select, int64_t entry, float *key);

/* packed[dim][panel] of `count` rows of keys, the rest 0. */
void omp_pack(const float *keys, int64_t count, int64_t dim, int64_t panel, float *packed);

/* The choice among all units of the kind that `wanted` speaks of. */
struct omp_wanted omp_wanted(const struct hys_call *call, int64_t u);

/* omp_half.c: the row's heads as they are; panel p of the entries; and scores of
 * `panels` of those from p on, to scores[groups][OMP_STRIP]. */
void omp_half_load_query(const struct omp_select *select, struct omp_select_scratch *scratch,
			 int64_t r, struct omp_select_row *row);
void omp_half_pack(const struct omp_select *select, struct omp_select_scratch *scratch, int64_t p);
void omp_half_score(const struct omp_select *select, struct omp_select_scratch *scratch,
		    const struct omp_query *query, int64_t p, int64_t panels, float *scores);

/* omp_bound.c: whether a call may leave keys out; an upper bound of |x|; that of
 * a row's scores in group u; whether entries of panels [first, end) cannot reach
 * any group's choice; and whether that will be so often, judged by a sample. */
bool omp_bound_applies(const struct hys_call *call);
double omp_bound_norm(const struct omp_isa *isa, const float *x, int64_t n);
struct omp_bound omp_bound_of_query(const struct omp_isa *isa, const struct omp_query *query,
				    int64_t u);
bool omp_bound_skips(const struct omp_select *select, const struct omp_bound *bounds,
		     const struct omp_pick *picks, int64_t first, int64_t end);
bool omp_bound_pays(const struct omp_select *select);

/* omp_select_coarse.c: fills select->means, and one tile of rows. */
void omp_select_means(struct omp_select *select);
void omp_select_coarse_tile(const struct omp_select *select, struct omp_select_scratch *scratch,
			    struct omp_select_row *rows, int64_t row_count);

#endif
