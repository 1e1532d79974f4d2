/*
 * Which rows see which keys, for tests: a description as a test writes it, the
 * intervals that must come of it, and the batch that says so to the library.
 *
 * The intervals are found by asking of each key and entry in turn whether the
 * row may see it, so that nothing here resembles how the library finds them.
 */
#ifndef HYS_TEST_VISIBLE_H
#define HYS_TEST_VISIBLE_H

#include <stdbool.h>

#include "hyscale/hyscale.h"
#include "rng.h"

enum visible_how {
	VISIBLE_DESCRIBED = 0, /* rows are the last ones of their document */
	VISIBLE_POSITIONS,     /* rows lie anywhere in their document, in any order */
	VISIBLE_EXPLICIT       /* any interval of the row's document, every fourth one empty */
};

struct visible_spec {
	int32_t rows, keys;	  /* T, S of one document; ignored with lengths */
	const int32_t *q_lengths; /* rows of each document, then -1; NULL = one document */
	const int32_t *k_lengths; /* keys of each document; NULL = q_lengths */
	bool full;		  /* not causal: whole documents */
	int32_t window;		  /* of the batch: last keys that a row sees */
	enum visible_how how;
	int32_t window_keys; /* S2; each row sees any interval of them, some none */
};

/* The same in a row of a table of cases. */
#define SEE(t, s, ...) .visible = {.rows = (t), .keys = (s), __VA_ARGS__}

struct visible {
	int64_t rows, keys, entries, window_keys;
	int32_t documents; /* 0 = one, without cu_seqlens */
	int32_t pool;
	int32_t *cu_q, *cu_k;		    /* [documents + 1] */
	int32_t *positions;		    /* [rows] or NULL */
	int32_t *row_begin, *row_end;	    /* [rows] */
	int32_t *index_begin, *index_end;   /* [rows] */
	int32_t *key_origin, *entry_origin; /* [rows] of the row's document */
	int32_t *window_begin, *window_end; /* [rows] or NULL */
	bool explicit_intervals;
	struct hys_batch_desc desc;
};

/* `pool` is r. Ends the process when there is no memory. */
void visible_make(struct visible *visible, const struct visible_spec *spec, int32_t pool,
		  struct rng *rng);
void visible_free(struct visible *visible);

#endif
