/* omp_backward.h - what the files of attention's backward pass share.
 *
 * Rows go in tiles, and a tile's rows in blocks: one row, or, where rows attend
 * to one range of key rows each, a few neighbouring rows. A unit is a block and
 * the heads of one key/value head (and group); its lanes are the columns of its
 * matrices. The key rows of each block's set go in chunks. */
#ifndef HYS_OMP_BACKWARD_H
#define HYS_OMP_BACKWARD_H

#include "omp_lanes.h"

/* Key rows of a chunk, at most; a bit of struct omp_unit's hides for each tile. */
#define OMP_CHUNK_MOST 512

/* The heads of one key/value head (and group) of a block, and what is known of
 * the chunk of key rows at work. */
struct omp_unit {
	struct omp_lanes lanes;
	int64_t set;   /* whose key rows it attends to */
	uint8_t hides; /* bit i: a lane does not see all of the chunk's tile i */
	float *shares; /* [chunk][lanes] */
	float *d_logits;
	float *dq;     /* [D][lanes] */
	float *totals; /* [lanes] logarithms of the denominators */
	float *means;  /* [lanes] sums of o * grad_o */
};

/* Scratch of one thread. */
struct omp_backward_scratch {
	struct omp_shared *shared;
	float *q, *grad_o;		/* [parts][D][lanes], [parts][V][lanes]; parts of a set */
	float *q_rows, *grad_o_rows;	/* [lanes][D], [lanes][V] */
	float *k, *v;			/* [OMP_TILE][D], [OMP_TILE][V] */
	const float **k_rows, **v_rows; /* [OMP_TILE]; narrow */
	float *slope;			/* [OMP_TILE][lanes] derivative of a logit by its dot */
	float *product;			/* [OMP_TILE][max(D, V)] */
	float *spare;			/* [OMP_LANES][max(D, V)] */
	struct omp_unit *own;		/* with a chunk of one tile; where heads are owned */
};

/* What depends on the call's size alone, and where it lies. */
struct omp_backward_layout {
	int64_t groups, segments; /* sets, units of a block */
	int64_t chunk, block_rows, tile_blocks;
	int64_t pitch, q_pitch, v_pitch, product_pitch, chunk_pitch;
	struct omp_walk *walks; /* [tile_blocks][groups] */
	int64_t *keys;		/* [tile_blocks][groups][chunk] */
	int64_t *counts;	/* [tile_blocks][groups] */
	struct omp_unit *units; /* [tile_blocks][segments] */
	double *dsink;		/* [H] */
	float *dk, *dv;		/* [G][S + S2][D], [G][S + S2][V] */
	char *scratch;
	int64_t scratch_bytes;
};

struct omp_backward {
	const struct hys_call *call;
	const struct hys_attention_grad_args *args;
	const struct omp_isa *isa;
	struct omp_rows rows;
	struct omp_source keys, values;
	bool shared;			  /* rows of a block share tiles */
	bool narrow;			  /* lanes are rows */
	bool v_is_k;			  /* all v = first V channels of k */
	bool first_shared, second_shared; /* v is k, of that source */
	bool add, add_sums;		  /* to dq; to what is summed over rows */
	bool wants_dk, wants_dv;
	int64_t heads, kv_heads, head_dim, value_dim;
	float scale, softcap;
	int32_t threads;
	struct omp_backward_layout at;
	/* the tile and chunk at work */
	int64_t tile, blocks; /* first row, number of blocks */
	struct omp_range chunk;
	int64_t low, range_keys, ranges; /* key rows [low + i * range_keys, ...) */
};

/* ---- omp_attention_backward.c ---- */

/* This thread's scratch. */
struct omp_backward_scratch omp_backward_scratch(const struct omp_backward *b, int32_t thread);

/* Key rows of both sources. */
static inline int64_t omp_key_rows_of(const struct omp_backward *b)
{
	return b->call->size.keys + b->call->size.window_keys;
}

/* The ranges of a unit's rows in the source that key row `key` belongs to. */
static inline const struct omp_range *omp_unit_ranges(const struct omp_backward *b,
						      const struct omp_unit *unit,
						      struct omp_shared *shared, int64_t key)
{
	omp_shared_start(shared, &b->rows, &unit->lanes);
	return key >= b->rows.keys ? shared->second : shared->first;
}

/* ---- omp_backward_rows.c: threads own rows ---- */

/* The denominator's logarithm, -inf where nothing was attended. */
float omp_unit_total(const struct omp_backward *b, int64_t row, int64_t head);
/* Totals, means and dq = 0 of a unit whose lanes are named. */
void omp_unit_start(const struct omp_backward *b, const struct omp_backward_scratch *s,
		    struct omp_unit *unit);
/* The unit's q and grad_o as columns, part `part` of the scratch. */
void omp_unit_load(const struct omp_backward *b, const struct omp_backward_scratch *s,
		   const struct omp_unit *unit, int64_t part);
/* Shares, d logits and dq of the view's keys, whose shares and d logits begin at
 * element `from`. */
void omp_unit_share(const struct omp_backward *b, const struct omp_backward_scratch *s,
		    const struct omp_unit *unit, int64_t part, const struct omp_view *view,
		    const int64_t *keys, int64_t from);
void omp_unit_store_dq(const struct omp_backward *b, const struct omp_backward_scratch *s,
		       const struct omp_unit *unit);
void omp_unit_add_dsink(const struct omp_backward *b, const struct omp_unit *unit);

/* ---- omp_backward_narrow.c: the same where few heads share a key/value head ----
 *
 * Lanes are rows here: q[lanes][D], shares[lanes][chunk], dq[lanes][D]. */

void omp_narrow_start(const struct omp_backward *b, const struct omp_backward_scratch *s,
		      struct omp_unit *unit);
void omp_narrow_load(const struct omp_backward *b, const struct omp_backward_scratch *s,
		     const struct omp_unit *unit, int64_t part);
/* Of keys[n], n <= OMP_TILE, at position `at` of the chunk. */
void omp_narrow_share(const struct omp_backward *b, const struct omp_backward_scratch *s,
		      const struct omp_unit *unit, int64_t part, const int64_t *keys, int64_t n,
		      int64_t at);
void omp_narrow_store_dq(const struct omp_backward *b, const struct omp_backward_scratch *s,
			 const struct omp_unit *unit);

/* ---- omp_backward_keys.c: threads own key rows ---- */

void omp_backward_zero(struct omp_backward *b);
/* Adds what the chunk's shares and d logits say to dk and dv. */
void omp_backward_collect(struct omp_backward *b);
/* The same of one unit, key rows keys[begin, end) of its chunk. */
void omp_unit_collect(const struct omp_backward *b, const struct omp_backward_scratch *s,
		      const struct omp_unit *unit, const int64_t *keys, int64_t begin, int64_t end);
/* Writes dk, dv and those of the second source. */
void omp_backward_store(struct omp_backward *b);

#endif
