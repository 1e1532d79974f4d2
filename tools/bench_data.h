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
	int64_t staged; /* host memory that the largest operand is made in */
	uint64_t seed;
	struct hys_error error; /* of the first failure; all later calls do nothing */
	bool failed;
	bool count_only; /* makes nothing, adds up `bytes` and `staged` */
};

/* A contiguous tensor in a buffer of its own. `spread` > 0: normal values of that standard
 * deviation; 0: undefined content, for outputs. */
struct hys_tensor bench_tensor(struct bench_data *data, hys_dtype dtype, int32_t rank, int64_t n0,
			       int64_t n1, int64_t n2, double spread);
/* Normal values [n0, n1] or [n0, n1, n2]; `share` of the rows are like the one before. */
struct hys_tensor bench_rows(struct bench_data *data, hys_dtype dtype, int32_t rank, int64_t n0,
			     int64_t n1, int64_t n2, double share);
/* f32 [rows, heads], the same, of both signs or positive. */
struct hys_tensor bench_weights(struct bench_data *data, int64_t rows, int64_t heads, double share,
				bool positive);
/* Normal values [keys, dim], whose rows have norms as --key-spread says. */
struct hys_tensor bench_keys(struct bench_data *data, hys_dtype dtype, int64_t keys, int64_t dim,
			     double sigma);
/* n normal values of that standard deviation. */
void bench_fill(char *host, hys_dtype dtype, int64_t n, double spread, uint64_t *seed);
/* Which lists of indices: of rows that are the last of a document of `keys` keys (causal), or see
 * all of it. `share` of a list is what the row before has chosen, 0: all at random. */
struct bench_choice {
	int64_t rows, groups, topk, keys;
	int64_t step; /* indices are multiples of it */
	double share;
	bool causal;
};

/* i32 [rows, groups, topk]: distinct, ascending, visible, then -1. */
struct hys_tensor bench_indices(struct bench_data *data, const struct bench_choice *choice);
/* Writes a large buffer, so that caches hold none of the operands. */
void bench_flush(struct bench_data *data);
void bench_data_free(struct bench_data *data);

#endif
