/* partition.h - how the rows of a call are shared between devices. */
#ifndef HYS_PARTITION_H
#define HYS_PARTITION_H

#include "planner.h"

#define HYS_LANES_MAX HYS_PLAN_DEVICES_MAX

/* Rows are cut at multiples of this many, counted from the call's first, so
 * that kernels' row tiles stay whole. */
#define HYS_ROW_TILE 16

/* Of a call that nobody waits for, compared with one by itself. */
#define HYS_CALL_BEHIND 0.5

/* The useful work of a call's tiles. */
struct hys_tiles {
	int64_t rows, count;
	double *flops_before; /* [count + 1] */
	double *rows_before;  /* the same of what rows cost beside; NULL = alike */
};

/* What a lane takes for rows that lie behind each other; for a further run of rows of the same
 * call, `again_s` in place of what is fixed. */
struct hys_lane_cost {
	double fixed_s, again_s, row_s, flop_s;
	int64_t rows_most;
	bool idle;
};

static inline int64_t hys_tile_row(const struct hys_tiles *tiles, int64_t tile)
{
	return hys_min64(tile * HYS_ROW_TILE, tiles->rows);
}

static inline int64_t hys_tiles_of(int64_t rows)
{
	return (rows + HYS_ROW_TILE - 1) / HYS_ROW_TILE;
}

/* Rows of tiles [begin, end), those counting less that cost less. */
static inline double hys_tiles_rows(const struct hys_tiles *tiles, int64_t begin, int64_t end)
{
	if (tiles->rows_before)
		return tiles->rows_before[end] - tiles->rows_before[begin];
	return (double)(hys_tile_row(tiles, end) - hys_tile_row(tiles, begin));
}

/* Weighs the rows of a whole call; tiles->flops_before has room. Indices that
 * lie in host memory are counted, the batch's intervals are the rest. */
void hys_tiles_weigh(struct hys_tiles *tiles, const struct hys_task *task);
/* The same of rows [first, first + rows) of a batch, whatever the tensors. */
void hys_tiles_weigh_batch(struct hys_tiles *tiles, const struct hys_batch *batch, hys_op op,
			   int64_t first);

/* Cuts the tiles into one run per lane, in the lanes' order, such that all take
 * the same time as nearly as whole tiles allow: lane i gets the tiles
 * [begin[i], begin[i + 1]). Answers that time. */
double hys_partition_cut(const struct hys_tiles *tiles, const struct hys_lane_cost *costs,
			 int32_t lanes, int64_t *begin);

/* The same in several runs a lane, from all over the call, where it takes long enough: what the
 * costs have wrong of some rows evens out then. Fills `ranges`, in the order of rows and none
 * empty, and answers how many there are. */
#define HYS_STRIPES_MOST 8
int32_t hys_partition_deal(const struct hys_tiles *tiles, const struct hys_lane_cost *costs,
			   int32_t lanes, struct hys_range *ranges);

/* What each lane of the plan takes for the call; `task` NULL for tensors that
 * lie on the devices already. */
void hys_partition_costs(const struct hys_plan *plan, const struct hys_task *task, hys_op op,
			 struct hys_lane_cost *costs);
double hys_lane_time_s(const struct hys_tiles *tiles, const struct hys_lane_cost *cost,
		       int64_t begin, int64_t end);

/* spread.c: fills a batch's ranges. False when there is no memory. */
bool hys_partition_batch(struct hys_batch *batch);
/* rehearse.c: corrects what devices take for an operation by what they take
 * together; whoever is no help then takes too long to be given any rows. Without
 * memory, or when a call fails, nothing changes. noise[i]: what calls of device i took
 * on average over the least; 1 when nothing disturbed it, or nothing was rehearsed.
 * HYS_CANCELLED. */
hys_status hys_plan_rehearse(struct hys_picker *picker, hys_op op, double *noise,
			     struct hys_error *error);
/* pace.c: those named as device `first` is get the mean of what they take, unless they
 * differ by more than chance, given the noise of each device of the plan, NULL = none. */
void hys_paces_even_out(struct hys_plan *plan, hys_op op, int32_t first, const double *noise);
/* Fills a plan's shares and, unless that is fixed, says which devices an
 * operation does as well without. HYS_OUT_OF_MEMORY. */
hys_status hys_partition_plan(struct hys_plan *plan, bool fixed, struct hys_error *error);

#endif
