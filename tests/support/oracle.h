/*
 * The f64 oracle: every operation of the library as plain loops over doubles.
 *
 * It knows nothing of the library.  Inputs are contiguous row-major arrays,
 * already rounded to the number format under test by the caller; all
 * arithmetic is in double.  Structs are filled with designated initialisers:
 * zero or NULL means "absent", and `groups`, `block`, `granularity`, `pool`,
 * `row_count` and `row_stride` that are zero mean 1, 1, 1, 1, all rows and 1.
 * Scales and the loss coefficient are taken literally.
 *
 * Symbols as in the specification: T rows of q, S key rows, E entries, H query
 * heads, G key/value heads, D and V their dims, HI and DI index heads and dim,
 * U groups, K indices per (row, group), C channels.
 *
 * Row t is counted from the start of the arrays.  `row_first` and `row_count`
 * restrict an operation to a range of rows: what other rows would have written
 * is left alone, and sums over rows (dk, d_index_k, loss...) cover the range.
 */
#ifndef HYS_TEST_ORACLE_H
#define HYS_TEST_ORACLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ora_activation { ORA_RELU, ORA_IDENTITY };
enum ora_method { ORA_EXACT, ORA_COARSE_TO_FINE, ORA_COARSE };

/* ---------------------------------------------------------------- scoring */

/* What select and the indexer loss share: the score of an entry. */
struct ora_scoring {
	int64_t rows, entries;	    /* T, E */
	int32_t heads, dim, groups; /* HI, DI, U */
	enum ora_activation activation;
	double scale;
	const double *index_q;	     /* [T,HI,DI] */
	const double *index_k;	     /* [E,DI] */
	const double *index_w;	     /* [T,HI]; absent: 1 */
	const int32_t *index_begin;  /* [T]; absent: 0 */
	const int32_t *index_end;    /* [T]; absent: E */
	const int32_t *entry_origin; /* [T] first entry of the row's document; absent: 0 */
};

/* Score of the index key `key` ([DI]) for row t and group u. */
double ora_score(const struct ora_scoring *scoring, int64_t t, int32_t u, const double *key);

/* sum_j |w_j * scale| * sum_d |q_jd * key_d| over the index heads of group u. */
double ora_score_magnitude(const struct ora_scoring *scoring, int64_t t, int32_t u,
			   const double *key);

/* The row's visible entries, cut to the array and to the document's start. */
void ora_entry_interval(const struct ora_scoring *scoring, int64_t t, int64_t *begin, int64_t *end);

/* ----------------------------------------------------------------- select */

/* Scores and rankings that were worked out before; see ora_memo_make. */
struct ora_memo;

/* Readings of the specification are listed at the top of oracle_select.c. */
struct ora_select {
	struct ora_scoring scoring;
	int32_t block;	     /* B */
	int32_t topk_max;    /* K: slots per (row, group) in the arrays below */
	const int32_t *topk; /* [U] wanted per group, at most K; absent: K */
	int32_t first_blocks, local_blocks;
	enum ora_method method;
	int32_t coarse_block, coarse_keep;
	const int32_t *given_blocks; /* [T,U,given_max] first entries, then -1: the blocks of the
					coarse step; forced ones are still added */
	int32_t given_max;
	int64_t row_first, row_count;
	struct ora_memo *memo; /* absent: all is worked out anew each time */

	int32_t *indices; /* out [T,U,K] ascending, then -1 */
	int32_t *counts;  /* out [T,U]; absent: not wanted, as for the rest */
	double *scores;	  /* out [T,U,K] of the chosen, then 0 */
	double *kth;	  /* out [T,U] lowest score chosen without force; -inf if none was, or if
			     there were fewer candidates than wanted */
	int64_t nan_rows; /* out: rows of the range with a NaN among the scores taken part in */
};

void ora_select(struct ora_select *select);

/*
 * Sets select->memo, in which the functions below keep what they work out: for who
 * asks again and again about the same operands and the same choice.  `given_blocks`,
 * `coarse_keep`, rows and outputs may differ between the questions; nothing else.
 */
void ora_memo_make(struct ora_select *select);
void ora_memo_free(struct ora_memo *memo);

/* One thing to choose: an entry or a block, named by its first entry. */
struct ora_candidate {
	int32_t index;
	int32_t forced; /* 0: by score; n > 0: n-th in the order of forced ones */
	double score;
};

/*
 * All candidates of (t, u) in rank order, so that the choice of any K is a
 * prefix.  `ranking` has room for E of them.  Returns their number.
 */
int64_t ora_select_rank(const struct ora_select *select, int64_t t, int32_t u,
			struct ora_candidate *ranking);

/*
 * The coarse step alone: the complete, wholly visible coarse blocks in rank
 * order of their mean's score.  Room for E / coarse_block.  Returns their number.
 */
int64_t ora_coarse_rank(const struct ora_select *select, int64_t t, int32_t u,
			struct ora_candidate *ranking);

/*
 * The blocks that coarse_to_fine keeps for (t, u): the best `coarse_keep`, the
 * forced ones and the one of the last visible entry; first entries, ascending.
 * Room for E / coarse_block + 2.  Returns their number.
 */
int64_t ora_coarse_kept(const struct ora_select *select, int64_t t, int32_t u, int32_t *kept);

/* max over visible s of ora_score_magnitude; terms that are not finite are left out. */
double ora_select_scale_of_row(const struct ora_select *select, int64_t t, int32_t u);

/* An implementation's answer for rows [row_first, row_first + row_count) of the
   struct ora_select: row 0 of these arrays is row `row_first`. */
struct ora_picks {
	const int32_t *indices; /* [rows,U,K] */
	const int32_t *counts;	/* [rows,U]; absent: not judged, as for the rest */
	const double *scores;	/* [rows,U,K] */
	const double *kth;	/* [rows,U] */
};

/*
 * Judges picks with tolerance eps * scale_of_row (1e-5; f8: 1e-3).  eps = 0
 * demands the oracle's own set, ties included.  For coarse_to_fine without
 * `given_blocks` the implementation's blocks are inferred: a block whose mean
 * lies within the tolerance of the last one kept counts as kept if it holds a
 * pick.  Returns 1 when all is well, else 0 with the first violation in message.
 */
int ora_select_judge(const struct ora_select *select, const struct ora_picks *picks, double eps,
		     char *message, size_t message_size);

/*
 * Judges the blocks that an implementation kept in coarse_to_fine, in the
 * layout of `given_blocks` with row 0 = row `row_first`: ascending, forced ones
 * present, the others best by mean score within the tolerance.
 */
int ora_coarse_judge(const struct ora_select *select, const int32_t *blocks, int32_t blocks_max,
		     double eps, char *message, size_t message_size);

/* -------------------------------------------------------------- attention */

struct ora_attention {
	int64_t rows, keys, window_keys; /* T, S, S2 */
	int32_t heads, kv_heads;	 /* H, G */
	int32_t head_dim, value_dim;	 /* D, V */
	int32_t groups, topk;		 /* U, K of indices */
	int32_t granularity, pool;	 /* g, r; one of them is 1 */
	int32_t window, first;
	int32_t dense; /* all visible rows */
	double scale, softcap;
	const double *q;	     /* [T,H,D] */
	const double *k;	     /* [S,G,D] */
	const double *v;	     /* [S,G,V]; absent: k[..., :V] */
	const double *sink;	     /* [H] */
	const double *window_k;	     /* [S2,G,D] second source */
	const double *window_v;	     /* [S2,G,V]; absent: window_k[..., :V] */
	const int32_t *indices;	     /* [T,U,K]; absent: none */
	const int32_t *row_begin;    /* [T]; absent: 0 */
	const int32_t *row_end;	     /* [T]; absent: S */
	const int32_t *key_origin;   /* [T] first key row of the row's document; absent: 0 */
	const int32_t *entry_origin; /* [T] first entry of it; absent: 0; read when pool > 1 */
	const int32_t *window_begin; /* [T]; absent: 0 */
	const int32_t *window_end;   /* [T]; absent: S2 */
	int64_t row_first, row_count;

	double *o;	      /* out [T,H,V]; absent: not wanted, as for the rest */
	double *lse;	      /* out [T,H], without the sink */
	double largest_logit; /* out: largest finite |l|, for tolerances */

	const double *grad_o;	      /* [T,H,V], backward only */
	const double *given_o;	      /* [T,H,V] output for rowsum(o * grad_o); absent: own */
	double *dq, *dk, *dv, *dsink; /* out, shapes of their tensors */
	double *dwindow_k, *dwindow_v;
};

void ora_attention_forward(struct ora_attention *attention);

/* Recomputes the forward in f64.  Writes dq of the range, and all of the other gradients. */
void ora_attention_backward(struct ora_attention *attention);

/* The key rows A of (t, u), ascending.  Room for S.  Returns their number. */
int64_t ora_attended_keys(const struct ora_attention *attention, int64_t t, int32_t u,
			  int32_t *keys);

/* The key rows that index i stands for in row t, cut to the row's interval; empty if begin >= end. */
void ora_index_keys(const struct ora_attention *attention, int64_t t, int64_t i, int64_t *begin,
		    int64_t *end);

/* valid[k] = 1 if slot k of (t, u) counts, 0 if it is absent. */
void ora_valid_slots(const struct ora_attention *attention, int64_t t, int32_t u,
		     unsigned char *valid);

/* The row's visible key rows, cut to the array. */
void ora_key_interval(const struct ora_attention *attention, int64_t t, int64_t *begin,
		      int64_t *end);

/* ----------------------------------------------------------- indexer loss */

/*
 * Of `attention` the loss reads q, k, sink, indices, intervals, sizes, scale,
 * softcap, granularity (the block size of the scores) and pool; U is
 * `scoring.groups`.  Its `dense` means every visible entry.  Without index
 * intervals and with pool 1 the entries follow row_begin and row_end.
 */
struct ora_loss {
	struct ora_scoring scoring;
	struct ora_attention attention;
	double coefficient;
	int32_t sum;			/* 0: mean; 1: sum */
	double divisor;			/* of mean; 0: the number of non-empty (t, u) */
	const double *lse;		/* [T,H]; absent: softmax over the set */
	const double *teacher;		/* [T,U,K] unnormalised; replaces q and k */
	int64_t row_stride, row_offset; /* rows with t % stride == offset */
	int64_t row_first, row_count;

	double loss;	     /* out */
	int64_t non_empty;   /* out: (t, u) that counted */
	double *teacher_out; /* out [T,U,K] unnormalised, 0 in absent slots; sampled rows only */
	double *d_index_q, *d_index_k, *d_index_w; /* out, written */
};

void ora_indexer_loss(struct ora_loss *loss);

/* ---------------------------------------------------------------- pooling */

/*
 * Pools of r rows that tile each document from its first row; what is left at
 * a document's end belongs to no pool.  Pools of all documents are packed.
 *
 * Without a gate: out = mean of x.  With one: out[e,c] = sum over slots of
 * softmax(gate + bias) * x, the softmax running over the slots, per channel.
 *
 * With `overlap` x, gate and bias have 2C channels.  A pool uses the r rows of
 * the document's previous pool in channels [0,C) and its own r rows in [C,2C),
 * one softmax over the 2r slots, the layout of DeepSeek-V4 weights; a document's
 * first pool has only its own.
 */
struct ora_pool {
	int64_t rows, documents; /* S; 0 documents: all rows are one */
	int32_t channels, ratio; /* C, r */
	int32_t overlap;
	const int32_t *cu_seqlens; /* [documents+1] */
	const double *x;	   /* [S,C], overlap: [S,2C] */
	const double *gate;	   /* [S,C], overlap: [S,2C]; absent: mean */
	const double *bias;	   /* [r,C], overlap: [r,2C]; absent: 0 */
	double *out;		   /* out [pools,C] */

	const double *grad_out;	    /* [pools,C], backward only */
	double *dx, *dgate, *dbias; /* out, written; absent: not wanted */
};

int64_t ora_pool_count(const struct ora_pool *pool);
void ora_pool_forward(struct ora_pool *pool);
void ora_pool_backward(struct ora_pool *pool);

/*
 * Bounds of the same units: r rows each, document by document.  NaN propagates
 * into every bound it touches.  The centre is the mean.
 */
struct ora_bounds {
	int64_t rows, documents;
	int32_t channels, ratio;
	const int32_t *cu_seqlens;
	const double *x;	 /* [S,C] */
	double *max_norm;	 /* out [units] largest 2-norm */
	double *centre, *radius; /* out [units,C], [units] */
	double *low, *high;	 /* out [units,C] per channel */
};

void ora_bounds(struct ora_bounds *bounds);

/* ------------------------------------------------------- merge, fidelity */

/* Combines attention over two disjoint key sets: `vectors` times o [V] and lse.  o may be o_a, lse may be lse_a. */
void ora_merge(int64_t vectors, int32_t value_dim, const double *o_a, const double *lse_a,
	       const double *o_b, const double *lse_b, double *o, double *lse);

/*
 * The dense softmax mass (mean over the heads of group u, no sink, no second
 * source) that A of (t, u) captures; 1 if the row sees nothing.
 */
double ora_row_mass(const struct ora_attention *attention, int64_t t, int32_t u);

/* The fewest key rows, by that mass, whose sum reaches `target`; all visible ones if none does. */
int32_t ora_row_keys_needed(const struct ora_attention *attention, int64_t t, int32_t u,
			    double target);

/* |picks in exact| / |exact|, both with -1 behind; 1 if exact is empty. */
double ora_row_recall(const int32_t *picks, int32_t picks_max, const int32_t *exact,
		      int32_t exact_max);

/*
 * mass[u] = mean of ora_row_mass over rows t of the range with t % row_stride ==
 * row_offset that see a key row; 1 if there is none.
 */
void ora_fidelity_mass(const struct ora_attention *attention, int64_t row_stride,
		       int64_t row_offset, double *mass);

/* ------------------------------------------------------------- comparison */

/* |got - want| / |want|, 2-norms; |got - want| when want is zero; NaN where only one is NaN or infinite. */
double ora_relative_error(const double *got, const double *want, int64_t count);

/*
 * The worst of `vectors` vectors: largest |got - want| of its elements over
 * max(largest |want| of the same vector, floor).  0/0 counts as 0.
 */
double ora_worst_vector_error(const double *got, const double *want, int64_t vectors,
			      int64_t length, double floor);

#ifdef __cplusplus
}
#endif

#endif
