/* omp_loss.h - what the files of the indexer loss share.
 *
 * The unit of work is a set: one sampled row and group. Its units are the
 * indices that count, or, dense, the visible entries. Sets go in tiles. */
#ifndef HYS_OMP_LOSS_H
#define HYS_OMP_LOSS_H

#include "omp_lanes.h"

struct omp_loss_set {
	int64_t row, group;
	int64_t count;		  /* units; 0 when the set is empty */
	struct omp_slots slots;	  /* tells the key rows of an entry */
	struct omp_range entries; /* visible ones */
	double teacher_sum;
	double loss; /* without factor */
};

/* Scratch of one thread; M heads share a key/value head and are columns, as in
 * omp_lanes.h; J = HI / U. */
struct omp_loss_scratch {
	float *index_q, *weights; /* [J][DI], [J] */
	float *index_k;		  /* [OMP_TILE][DI] */
	float *product, *spare;	  /* [OMP_TILE][DI], [DI] */
	float *q, *k;		  /* [D][M], [OMP_TILE][D] */
	float *dots;		  /* [OMP_TILE][M] or [J][OMP_TILE] */
	float *column;		  /* [OMP_TILE] */
	float *totals;		  /* [M] logarithms of denominators */
	struct omp_soften soften; /* [M] of a tile */
	double *sums;		  /* [M] of all tiles so far */
	int64_t *places, *units;  /* [OMP_TILE] key rows or entries, whose */
};

struct omp_loss_layout {
	int64_t tile_sets;
	int64_t most; /* units of a set */
	int64_t index_pitch, head_pitch, lanes_pitch, dots_pitch, chunk_pitch;
	struct omp_loss_set *sets; /* [tile_sets] */
	/* [tile_sets][most]; the first two not when dense */
	int32_t *entries; /* the index, after scoring the entry with its score */
	int32_t *slots;	  /* where it stands in indices */
	float *teacher;	  /* not normalised, then d score */
	float *scores;
	/* gradients of a tile */
	float *d_dots; /* [tile_sets][J][OMP_LOSS_CHUNK] */
	float *dq;     /* [tile_sets][J][DI] */
	double *dw;    /* [tile_sets][J] */
	float *dk;     /* [E][DI] of all tiles */
	char *scratch;
	int64_t scratch_bytes;
};

/* Units whose d dots are in memory at one time. */
#define OMP_LOSS_CHUNK 512

struct omp_loss {
	const struct hys_call *call;
	const struct hys_loss_args *args;
	const struct omp_isa *isa;
	struct omp_rows rows;
	struct omp_source keys, index_keys;
	bool dense, add;
	bool wants_scores, wants_gradients;
	int64_t groups, set_heads; /* U, J */
	int64_t dim, head_dim;	   /* DI, D */
	float scale;
	bool relu;
	double factor; /* of loss and gradients */
	int32_t threads;
	struct omp_loss_layout at;
	int64_t first_row, set_count; /* sampled */
	/* the tile and chunk at work */
	int64_t tile, tile_sets, chunk;
	int64_t low, range_entries, ranges; /* entries [low + i * range_entries, ...) */
};

/* Where set i of the tile keeps its units. */
static inline int64_t omp_loss_unit(const struct omp_loss *l, int64_t i, int64_t unit)
{
	return i * l->at.most + unit;
}

/* The unit's index; after scoring the entry that has its score. */
static inline int64_t omp_loss_entry(const struct omp_loss *l, int64_t i, int64_t unit)
{
	return l->dense ? l->at.sets[i].entries.begin + unit
			: l->at.entries[omp_loss_unit(l, i, unit)];
}

/* ---- omp_loss_teacher.c ---- */

/* Makes set i of the tile that of sampled (row, group) number `set`: its units
 * and what they stand for. */
void omp_loss_collect(const struct omp_loss *l, int64_t i, int64_t set);
/* Walks the key rows (or entries) of all units of set i, a tile at a time:
 * fills places and units, answers how many. Start from zeros. */
struct omp_loss_walk {
	int64_t unit;
	struct omp_range rest;
};
int64_t omp_loss_next(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i,
		      bool keys, struct omp_loss_walk *walk);
/* Fills teacher and teacher_sum; a set whose teacher sums to 0 becomes empty. */
void omp_loss_teach(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i);
/* Whether it would not become empty, found by the same arithmetic but no more
 * of it than needed. */
bool omp_loss_teachable(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i);

/* ---- omp_loss_gradient.c ---- */

/* Adds set i's gradients into dq, dw and, through all sets of the tile, dk. */
void omp_loss_gradients(struct omp_loss *l);
/* This thread's scratch. */
struct omp_loss_scratch omp_loss_scratch(const struct omp_loss *l, int32_t thread);
/* Loads index_q and weights of set i. */
void omp_loss_load(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i);
/* dots[J][n] = <index_q, index_k[places]>, after omp_loss_load; answers where
 * these rows of index_k are. */
struct omp_matrix omp_loss_dots(const struct omp_loss *l, const struct omp_loss_scratch *s,
				int64_t n, float *dots, int64_t pitch);

#endif
