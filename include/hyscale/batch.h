/* hyscale/batch.h - which rows see which keys.
 *
 * Row t sees key rows [row_begin[t], row_end[t]) and entries
 * [index_begin[t], index_end[t]); causal masks, packed documents, windows,
 * context-parallel shards, decoding offsets and pooled keys all come down to
 * these arrays. Described documents have floor(n_k / scoring.pool) entries
 * each, one after the other, and the keys left over are in none; a row sees the
 * entries that lie wholly within the keys it sees. Indices count from the start
 * of the batch, not of the document.
 *
 * A batch is immutable, holds a copy on each device of its plan, and may be
 * shared by execs and layers. */
#ifndef HYSCALE_BATCH_H
#define HYSCALE_BATCH_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HYS_BATCH_CAUSAL 1u /* aligned to each document's end */

/* Either explicit intervals (row_begin and row_end), or a description from
 * which they are built. All arrays are host memory, read during the call. */
struct hys_batch_desc {
	size_t struct_size; /* sizeof(struct hys_batch_desc) */
	int64_t rows;	    /* T */
	int64_t keys;	    /* S */
	uint32_t flags;	    /* HYS_BATCH_* */
	int32_t window;	    /* > 0: a row at position p sees (p - window, p] only */
	/* Packed documents: [documents + 1], from 0 to rows / keys, ascending.
	 * cu_seqlens_k NULL = cu_seqlens_q. documents 0 = one document. */
	int32_t documents;
	const int32_t *cu_seqlens_q;
	const int32_t *cu_seqlens_k;
	/* [rows], position of each row in its document's keys, for zigzag or
	 * striped shards and decoding; NULL = n_k - n_q + i for the i-th row. */
	const int32_t *positions;
	/* [rows] each. Given together; then causal, window and positions must
	 * be absent. Intervals must lie in the row's document. index_* are
	 * needed when the plan pools (scoring.pool > 1) and otherwise default
	 * to row_*. */
	const int32_t *row_begin, *row_end;
	const int32_t *index_begin, *index_end;
	int64_t entries; /* E with explicit index intervals; else computed */
	/* Second source: [rows] each, rows of window_k; NULL = none. */
	const int32_t *window_begin, *window_end;
	int64_t window_keys; /* S2 */
};

/* HYS_OK, HYS_INVALID_ARGUMENT (message names array, position and value),
 * HYS_OUT_OF_MEMORY, HYS_DEVICE_FAILED. The batch holds a reference on its
 * plan. Thread safe. */
HYS_API hys_status hys_batch_create(struct hys_plan *plan, const struct hys_batch_desc *desc,
				    struct hys_batch **batch, struct hys_error *error);
/* Only after the work that uses it is finished. NULL is fine. */
HYS_API void hys_batch_destroy(struct hys_batch *batch);

HYS_API int64_t hys_batch_rows(const struct hys_batch *batch);
HYS_API int64_t hys_batch_keys(const struct hys_batch *batch);
HYS_API int64_t hys_batch_entries(const struct hys_batch *batch); /* E */
/* Complete blocks of choosing.coarse_block entries, per document; 0 without. */
HYS_API int64_t hys_batch_coarse_blocks(const struct hys_batch *batch);
/* Visible (row, key) and (row, entry) pairs. */
HYS_API int64_t hys_batch_key_pairs(const struct hys_batch *batch);
HYS_API int64_t hys_batch_entry_pairs(const struct hys_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
