/* omp_lanes.h - tiles whose columns are lanes, for attention.
 *
 * A lane is one query head of one row. The heads that share a key/value head,
 * of a few neighbouring rows, are the columns of q[D][lanes], of
 * logits[keys][lanes] and of o[V][lanes]: key rows are then read as they lie,
 * each of their numbers times a vector of lanes, and a softmax never adds up
 * within a vector. Columns are filled up with zeros to a multiple of OMP_LANES. */
#ifndef HYS_OMP_LANES_H
#define HYS_OMP_LANES_H

#include "omp_tile.h"

/* Up to this many lanes read each key row about once, where it lies. */
#define OMP_DIRECT_LANES_MOST 32
/* So few heads do not fill vectors: lanes of one row are rows then. */
#define OMP_NARROW_LANES_MOST 7
static inline bool omp_is_narrow(const struct hys_problem *problem)
{
	return omp_heads_most(problem) <= OMP_NARROW_LANES_MOST;
}

/* Most rows of one item. */
#define OMP_ROWS_MOST 128

struct omp_lanes {
	struct omp_heads heads;
	int64_t row, rows; /* of the call */
	int64_t per_row;   /* heads */
	int64_t count;	   /* rows * per_row */
	int64_t padded;
	int64_t pitch; /* of tiles */
};

static inline int64_t omp_pad_lanes(int64_t lanes)
{
	return hys_round_up(lanes, OMP_LANES);
}

struct omp_lanes omp_lanes(const struct omp_heads *heads, int64_t row, int64_t rows, int64_t pitch);

/* x[dim][lanes] of tensor x[rows,heads,dim], the columns behind the last lane
 * 0. `spare` holds OMP_LANES rows of `spare_pitch` floats. */
void omp_lanes_load(const struct omp_isa *isa, const struct hys_tensor *x,
		    const struct omp_lanes *lanes, int64_t dim, float *columns, float *spare,
		    int64_t spare_pitch);
/* Column `lane` as a row. */
void omp_lanes_row(const float *columns, int64_t pitch, int64_t lane, int64_t dim, float *row);

/* ---- rows that attend to one range of key rows each ---- */

/* What rows may share: every visible row, or the window alone. */
static inline bool omp_is_shared(const struct omp_rows *rows)
{
	const struct hys_attending *attending = &rows->problem->attending;
	return (attending->flags & HYS_ATTENDING_DENSE) ||
	       (!hys_present(rows->indices) && attending->first == 0);
}

/* Rows of one item: as many as make `wanted` lanes, where they share. */
int64_t omp_shared_rows(const struct hys_problem *problem, int64_t wanted);

/* The ranges of the rows of one item in both sources. */
struct omp_shared {
	struct omp_range first[OMP_ROWS_MOST], second[OMP_ROWS_MOST];
};
void omp_shared_start(struct omp_shared *shared, const struct omp_rows *rows,
		      const struct omp_lanes *lanes);
/* From the first to the last key row of all ranges; empty if there is none. */
struct omp_range omp_shared_all(const struct omp_range *ranges, int64_t rows);

/* What of a tile of key rows which rows of the item look at. Lanes
 * [lane_begin, lane_end) are whole groups of OMP_LANES around them. */
struct omp_view {
	const struct omp_range *ranges; /* of the item's rows */
	struct omp_range keys;		/* union of what is seen */
	int64_t lane_begin, lane_end;
	int64_t row_begin, row_end; /* rows with a lane among these */
	bool whole;		    /* all of them see all of the keys */
};
/* False if no row sees anything of the tile. */
bool omp_view_tile(struct omp_view *view, const struct omp_lanes *lanes,
		   const struct omp_range *ranges, struct omp_range tile);
/* The key rows of the view that row i sees, counted from the view's first. */
struct omp_range omp_view_row(const struct omp_view *view, int64_t i);
/* Sets what is hidden of x[keys][lanes] to `value`. */
void omp_view_hide(const struct omp_view *view, const struct omp_lanes *lanes, float *x,
		   float value);

/* Whether all of x[rows][dim] are numbers that 0 can be multiplied with. */
bool omp_is_finite(const float *x, int64_t rows, int64_t dim, int64_t pitch);

#endif
