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

/* What one thread works with. */
struct omp_select_scratch {
	float *q;		 /* [tile][heads][dim] */
	float *w;		 /* [tile][heads] */
	float *strip;		 /* [tile][groups][OMP_STRIP] */
	struct omp_pick *picks;	 /* [tile][groups] */
	struct omp_pick *finals; /* [1], coarse_to_fine */
	float *rows;		 /* [panel][dim], keys before packing */
	double *sums;		 /* [dim] */
	float *key;		 /* [dim] */
	float *partial;		 /* [dim][panel], a partly visible block's mean */
	int32_t nan_rows;
};

struct omp_select {
	const struct hys_call *call;
	const struct omp_isa *isa;
	int32_t threads;
	int64_t heads, dim, groups, tile;
	float *entries;			    /* packed index_k: [panels][dim][panel] */
	float *means;			    /* packed means of coarse blocks, the same */
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
	const float *packed;
	struct omp_select_row *rows;
	int64_t row_count;
	bool units; /* keys are units: means of coarse blocks */
};

/* Scores what each row wants and hands it to its picks. */
void omp_scan_tile(const struct omp_select *select, struct omp_select_scratch *scratch,
		   const struct omp_scan *scan);

/* Scores entries [begin, end) for the heads of one group and hands them to
 * `pick`. */
void omp_scan_run(const struct omp_select *select, const struct omp_query *query, int64_t begin,
		  int64_t end, float *strip, struct omp_pick *pick, bool *nan);

/* Reads the row's heads into the scratch's slot r. */
void omp_load_query(const struct omp_select *select, struct omp_select_scratch *scratch, int64_t r,
		    struct omp_select_row *row);

/* One row of index_k as f32, scale applied. */
void omp_load_key(const struct omp_select *select, int64_t entry, float *key);

/* packed[dim][panel] of `count` rows of keys, the rest 0. */
void omp_pack(const float *keys, int64_t count, int64_t dim, int64_t panel, float *packed);

/* The choice among all units of the kind that `wanted` speaks of. */
struct omp_wanted omp_wanted(const struct hys_call *call, int64_t u);

/* omp_select_coarse.c: fills select->means, and one tile of rows. */
void omp_select_means(struct omp_select *select);
void omp_select_coarse_tile(const struct omp_select *select, struct omp_select_scratch *scratch,
			    struct omp_select_row *rows, int64_t row_count);

#endif
