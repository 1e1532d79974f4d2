/* batch_build.h - what batch.c and its helpers share while a batch is made. */
#ifndef HYS_BATCH_BUILD_H
#define HYS_BATCH_BUILD_H

#include "core.h"

/* Packed documents, checked. One document without cu_seqlens. */
struct hys_documents {
	const struct hys_allocator *allocator;
	int32_t count;
	const int32_t *q, *k; /* [count + 1] row and key origins */
	int32_t whole_q[2], whole_k[2];
	int32_t *entry;	 /* [count + 1] entry origins */
	int32_t *coarse; /* [count + 1] numbers of the first coarse blocks */
};

/* batch_check.c: everything that can be said before the rows are looked at. */
hys_status hys_batch_check_desc(const struct hys_plan *plan, const struct hys_batch_desc *desc,
				struct hys_error *error);
hys_status hys_documents_make(const struct hys_plan *plan, const struct hys_batch_desc *desc,
			      struct hys_documents *documents, struct hys_error *error);
void hys_documents_clear(struct hys_documents *documents);

/* batch_rows.c: fills the row arrays from positions, or checks and copies the
 * caller's intervals; then the prefix sums. */
hys_status hys_batch_fill_rows(struct hys_batch *batch, const struct hys_batch_desc *desc,
			       const struct hys_documents *documents, struct hys_error *error);

/* batch_tables.c: lays all arrays out in one block of memory, as they will lie
 * in buffers too. False when there is no memory. */
bool hys_batch_layout(struct hys_batch *batch, bool window);
/* Coarse blocks and pools, document after document. */
void hys_batch_fill_tables(struct hys_batch *batch, const struct hys_documents *documents);
/* A view of all arrays in host memory (buffer NULL) or in a buffer. */
struct hys_batch_view hys_batch_view_of(const struct hys_batch *batch, struct hys_buffer *buffer);

#endif
