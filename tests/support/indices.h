/* Indices as callers give them to attention, the indexer loss and fidelity. */
#ifndef HYS_TEST_INDICES_H
#define HYS_TEST_INDICES_H

#include "visible.h"

enum index_pattern {
	INDICES_SOME = 0, /* any number of valid ones, at any place */
	INDICES_ALL,	  /* every visible entry or block that fits */
	INDICES_JUNK,	  /* negative, repeated, unsorted, out of reach, INT32_MAX */
	INDICES_EMPTY,	  /* -1 everywhere */
	INDICES_ABSENT	  /* no tensor */
};

struct indices_want {
	const struct visible *visible;
	enum index_pattern pattern;
	int32_t groups, topk, granularity;
};

/* [rows,groups,topk], freed by the caller; NULL for INDICES_ABSENT. */
int32_t *indices_make(const struct indices_want *want, struct rng *rng);

#endif
