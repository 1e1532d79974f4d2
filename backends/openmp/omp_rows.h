/* omp_rows.h - which key rows a row attends to, as ascending disjoint ranges.
 *
 * Key rows of the second source are numbered behind the first source's: row i
 * of window_k is row `keys` + i here. */
#ifndef HYS_OMP_ROWS_H
#define HYS_OMP_ROWS_H

#include "omp_internal.h"

struct omp_range {
	int64_t begin, end; /* empty if begin >= end */
};

/* What decides it for all rows of a call. */
struct omp_rows {
	const struct hys_problem *problem;
	const struct hys_batch_view *batch;
	const struct hys_tensor *indices; /* i32 [rows,U,K]; may be absent */
	int64_t keys, entries;
	int64_t window_keys; /* 0 = leave the second source out */
};

/* Both intervals are cut to the arrays. */
struct omp_range omp_visible_keys(const struct omp_rows *rows, int64_t t);
struct omp_range omp_visible_entries(const struct omp_rows *rows, int64_t t);

/* An index that counts. */
struct omp_slot {
	int64_t slot, index;
	struct omp_range keys; /* what it stands for, cut to the row's interval */
};

/* The indices of one (row, group) that count, in order: not negative, with a
 * visible key row, and not below the previous one that counts plus g (plus 1
 * when an index stands for a pool). */
struct omp_slots {
	const int32_t *indices;
	int64_t count, next;
	int64_t least; /* the next index must not be below */
	int64_t step, span;
	int64_t key_origin, entry_origin, ratio;
	struct omp_range visible;
};

void omp_slots_start(struct omp_slots *slots, const struct omp_rows *rows, int64_t t, int64_t u);
bool omp_slots_next(struct omp_slots *slots, struct omp_slot *slot);
/* The key rows that index i stands for, were it there. */
struct omp_range omp_slots_keys(const struct omp_slots *slots, int64_t index);

/* The set A of one (row, group): the first rows, the indices' rows between, the
 * window (everything when dense), then the second source's interval. */
struct omp_walk {
	struct omp_slots slots;
	struct omp_range first, window, second;
	struct omp_range rest; /* of the range that omp_walk_keys is in */
};

void omp_walk_start(struct omp_walk *walk, const struct omp_rows *rows, int64_t t, int64_t u);
/* The next range, never empty; false at the end. */
bool omp_walk_next(struct omp_walk *walk, struct omp_range *range);
/* The next key rows, at most `most`; answers how many. Not to be mixed with
 * omp_walk_next. */
int64_t omp_walk_keys(struct omp_walk *walk, int64_t *keys, int64_t most);
/* No more key rows than this in any set of a call. */
int64_t omp_walk_most(const struct hys_size *size);

#endif
