/* bench_data.h - operands for `bench`: device buffers with random content. */
#ifndef HYS_TOOLS_BENCH_DATA_H
#define HYS_TOOLS_BENCH_DATA_H

#include "tool.h"

#define BENCH_BUFFERS_MAX 32

struct bench_data {
	struct hys_context *context;
	struct hys_exec *exec;
	int32_t device;
	struct hys_buffer *buffers[BENCH_BUFFERS_MAX];
	struct hys_buffer *flushed; /* one of them, or NULL */
	int32_t count;
	int64_t bytes;
	uint64_t seed;
	struct hys_error error; /* of the first failure; all later calls do nothing */
	bool failed;
};

/* A contiguous tensor in a buffer of its own. `spread` > 0: normal values of that standard
 * deviation; 0: undefined content, for outputs. */
struct hys_tensor bench_tensor(struct bench_data *data, hys_dtype dtype, int32_t rank, int64_t n0,
			       int64_t n1, int64_t n2, double spread);
/* i32 [rows, groups, topk]: distinct random multiples of `step` that the row can see, of a document
 * of `keys` keys whose last `rows` rows these are (causal), or all of it (full). Ascending. */
struct hys_tensor bench_indices(struct bench_data *data, int64_t rows, int64_t groups, int64_t topk,
				int64_t keys, int64_t step, bool causal);
/* Writes a large buffer, so that caches hold none of the operands. */
void bench_flush(struct bench_data *data);
void bench_data_free(struct bench_data *data);

#endif
