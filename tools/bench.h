/* bench.h - what the files of `bench` share. */
#ifndef HYS_TOOLS_BENCH_H
#define HYS_TOOLS_BENCH_H

#include "bench_data.h"

/* What the command line asks for; the problem is complete before anything runs. */
struct bench {
	const char *op, *model, *device, *kernels, *speeds, *trace;
	const char *wisdom; /* a file of it, to which `tune` adds */
	int64_t rows, keys, repeat;
	int64_t topk;
	int64_t key_spread; /* tenths of the logarithm of key norms */
	bool positive_weights;
	int64_t pause_ms;  /* before each run */
	int64_t share;	   /* percent of a row's choices that the row before has made, too */
	int64_t documents; /* packed, of Zipf lengths; 0 = one */
	int split;	   /* 0 static, 1 equal, 2 guided */
	hys_dtype dtype;
	bool full, json, explain, rows_given, repeat_given, twice, sweep, tune;
	double context_s; /* what the context took */
	struct hys_problem problem;
};

union arguments {
	size_t struct_size;
	struct hys_select_args select;
	struct hys_attention_args forward;
	struct hys_attention_grad_args backward;
	struct hys_loss_args loss;
	struct hys_pool_args pool;
};

/* Makes the operands of `op` for b's shape; a backward pass first runs a forward one. False with
 * d->error filled. */
bool bench_operands(struct bench_data *d, const struct bench *b, hys_op op, struct hys_batch *batch,
		    union arguments *args);
/* Prints what bounds the operation, and how near `seconds` came. */
void bench_explain(const struct hys_device_info *info, const struct hys_cost *cost,
		   const struct hys_device_speed *peak, double seconds);

/* What came before the first result, but for making its data, in seconds. */
struct bench_first {
	double context, plan, call; /* plan: with its programs, batch and exec */
};
struct bench_timing {
	double median, min, max, first;
};

struct bench_result {
	const char *kernel;
	struct hys_device_info info;
	struct bench_timing timing;
	struct hys_cost cost;
	struct hys_device_speed peak;
	struct bench_first before;
	int64_t memory;
	int64_t unscored; /* select: rows that keep all they see, whose work is not counted */
	hys_dtype dtype;
};

/* Times call(what), which fills d->error when it fails: some runs to warm up, then b->repeat, each
 * after a rest and, with `flush`, with caches flushed. */
bool bench_time(const struct bench *b, struct bench_data *d, bool flush,
		hys_status (*call)(void *what), void *what, struct bench_timing *timing);
/* Prints it, below a head if it is the first. */
void bench_report(const struct bench *b, hys_op op, const struct bench_result *r, bool first);
void bench_explain_first(const struct bench_first *first);
void bench_add_first(cJSON *line, const struct bench_first *first);
/* Runs the operation and waits for it. */
hys_status bench_call(hys_op op, struct hys_exec *exec, struct hys_batch *batch,
		      const union arguments *args, struct hys_error *error);

#endif
