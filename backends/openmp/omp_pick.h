/* omp_pick.h - the choice of one (row, group): forced units, the best of the
 * others, and how that becomes the outputs. A unit is an entry, a block of
 * entries or a coarse block; units are numbered from the document's first. */
#ifndef HYS_OMP_PICK_H
#define HYS_OMP_PICK_H

#include "omp_topk.h"

/* How units of `size` entries tile what a row sees: entries [begin, end) of a
 * document that starts at `origin`; units [first, first + count). */
struct omp_tiling {
	int64_t origin, begin, end, size;
	int64_t first, count;
};

struct omp_tiling omp_tiling(int64_t origin, int64_t begin, int64_t end, int64_t size);

/* What row t of the call sees: its document's first entry and its interval,
 * tiled by `size`. */
struct omp_tiling omp_tiling_of_row(const struct hys_call *call, int64_t t, int64_t size);

/* Units that lie wholly in the interval: [*begin, *end), may be empty. */
void omp_tiling_whole(const struct omp_tiling *tiling, int64_t *begin, int64_t *end);

/* How many are wanted, and which of them in any case. */
struct omp_wanted {
	int64_t k, first_blocks, local_blocks;
};

/* The units of a row in three parts: forced first ones, candidates, forced
 * local ones. When all forced ones are more than K, the newest local ones win,
 * then first ones ascending; nothing else is chosen then. */
struct omp_parts {
	int64_t first_end;		  /* forced: [tiling.first, first_end) */
	int64_t middle_begin, middle_end; /* candidates */
	int64_t local_begin, local_end;	  /* forced */
	int64_t free;			  /* K less the forced ones */
};

#define OMP_PENDING 32

struct omp_pick {
	struct omp_tiling tiling;
	struct omp_parts parts;
	struct omp_topk topk; /* its indices are numbers of units */
	const struct omp_isa *isa;
	int64_t k;
	float *scores; /* the output's slots, or NULL */
	/* The maximum of unit `unit` so far, and finished units before it. */
	int64_t unit;
	float best;
	int64_t pending_first, pending_count;
	float pending[OMP_PENDING];
};

/* Starts a choice. topk's memory, isa and `scores` stay as they are set. */
void omp_pick_start(struct omp_pick *pick, const struct omp_tiling *tiling,
		    const struct omp_wanted *wanted);

/* The scores of units first, first + 1, ...; ascending from call to call. */
void omp_pick_units(struct omp_pick *pick, const float *scores, int64_t n, int64_t first);

/* The scores of entries first, first + 1, ...; ascending. A unit's score is
 * the maximum over those that came, NaN only when all are. */
void omp_pick_entries(struct omp_pick *pick, const float *scores, int64_t n, int64_t first);

/* Outputs of one (row, group), [slots] and single numbers; all but indices may
 * be NULL. */
struct omp_picked {
	int32_t *indices;
	float *scores;
	int32_t *count;
	float *kth;
	int64_t slots;
};

/* The outputs of (t, u). */
struct omp_picked omp_picked(const struct hys_select_args *args, int64_t t, int64_t u);

/* Ends the choice and writes the outputs; picked->scores is pick->scores. */
void omp_pick_finish(struct omp_pick *pick, const struct omp_picked *picked);

/* Writes the outputs of a row whose visible units are all chosen unseen. */
void omp_pick_all(const struct omp_tiling *tiling, const struct omp_picked *picked);

#endif
