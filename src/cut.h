/* cut.h - how a cut over ranks is held, and what its files share. */
#ifndef HYS_CUT_H
#define HYS_CUT_H

#include "batch_build.h"

#define HYS_CUT_SLICES 8
/* Calls of a backward pass on ranks, as context_parallel_ops.c makes them. */
#define HYS_CUT_PARTS 4

/* A growing list of runs. */
struct hys_run_list {
	struct hys_span *runs;
	int64_t count, room;
};

hys_status hys_run_push(struct hys_run_list *list, struct hys_span run, struct hys_error *error);
/* The same, but grows the last run when it ends where this one begins; nothing
 * for no elements. */
hys_status hys_run_add(struct hys_run_list *list, int64_t first, int64_t count,
		       struct hys_error *error);
void hys_run_clear(struct hys_run_list *list);
/* Ascending, without overlaps. */
void hys_run_sort(struct hys_run_list *list);

/* Runs of every rank, one rank after the other. */
struct hys_run_table {
	struct hys_run_list list;
	int64_t *first; /* [ranks + 1] into the list */
	int64_t *total; /* [ranks] elements */
};

hys_status hys_run_table_make(struct hys_run_table *table, int32_t ranks, struct hys_error *error);
/* Rank after rank; runs of one that meet are joined. */
hys_status hys_run_table_add(struct hys_run_table *table, int32_t rank, int64_t first,
			     int64_t count, struct hys_error *error);

struct hys_cut {
	int32_t ranks, slices;
	hys_cut_way way;
	/* What the batch of all rows is made of, on the host: it is no caller's
	 * batch and has no devices. */
	struct hys_context context;
	struct hys_plan plan;
	struct hys_batch batch;
	struct hys_batch_desc desc; /* cu_seqlens are the cut's own */
	struct hys_documents documents;
	int32_t *cu[2];
	int64_t unit;  /* rows that stay together, from a document's first on */
	bool together; /* keys follow rows */
	int64_t size[HYS_CUT_PART_COUNT];
	struct hys_run_table owned[HYS_CUT_PART_COUNT];
	struct hys_run_table needed[HYS_CUT_PART_COUNT];
};

/* cut_rows.c: fills owned[HYS_CUT_ROWS]. */
hys_status hys_cut_rows(struct hys_cut *cut, struct hys_error *error);

/* Rows of one document, the later ones heavier. */
struct hys_cut_tile {
	int64_t first, count, origin; /* of the document */
	double weight;		      /* visible keys a row */
};
/* The heaviest first; of the same weight, the first. */
void hys_cut_sort(struct hys_cut_tile *tiles, int64_t count);

/* What a rank gets of the rows that are dealt, in proportion to the others. */
struct hys_cut_share {
	int64_t rows;
	double pairs;
};
/* Deals the rows of some documents, of all where `dealt` is NULL, in so many
 * strata. */
hys_status hys_cut_deal(const struct hys_cut *cut, const bool *dealt,
			const struct hys_cut_share *shares, int32_t strata,
			struct hys_run_list *lists, struct hys_error *error);
/* cut_documents.c: gives whole documents to ranks, and deals as few as keep the
 * ranks even. Not `given`: no such way was found, the lists are empty.
 * shares[ranks] is scratch. */
hys_status hys_cut_documents(const struct hys_cut *cut, struct hys_cut_share *shares,
			     struct hys_run_list *lists, bool *given, struct hys_error *error);

/* cut_parts.c: the other parts, then what each rank needs. */
hys_status hys_cut_parts(struct hys_cut *cut, struct hys_error *error);

/* Elements that both have of [first, first + count). */
int64_t hys_run_common(const struct hys_span *a, int32_t a_count, const struct hys_span *b,
		       int32_t b_count, int64_t first, int64_t count);

/* cut_flow.c: elements that a rank gets in each slice and sends, and messages. */
struct hys_flow {
	int64_t *received; /* [slices], zeroed by the caller, as all of it */
	int64_t sent, messages_in, messages_out;
};
/* flows[ranks] */
hys_status hys_cut_flows(const struct hys_cut *cut, hys_cut_part part, struct hys_flow *flows,
			 struct hys_error *error);

#endif
