/* ranks_bench.h - what the files of hyscale-ranks share. */
#ifndef HYS_TOOLS_RANKS_BENCH_H
#define HYS_TOOLS_RANKS_BENCH_H

#include "tool.h"

#include "hyscale/mpi.h"

#define RANKS_BUFFERS_MAX 40
#define RANKS_EVENTS_MAX 512

/* What the command line asks for. */
struct ranks_options {
	const char *model, *device, *way, *mode;
	int64_t tokens, documents, repeat, slices, topk, probe;
	hys_dtype dtype, index_dtype;
	hys_method method;
	bool alone, trace, no_backward;
	struct hys_problem problem;
};

/* A device of this rank, and page-locked memory for it where there is such. */
struct ranks_device {
	struct hys_context *context;
	int32_t number;
	bool on_device; /* tensors lie in buffers */
	void *native_context, *native_queue;
	struct {
		void *host, *memory;
	} pinned[RANKS_BUFFERS_MAX];
};

bool ranks_device_open(struct ranks_device *device, const char *name, int local_rank,
		       struct hys_error *error);
void ranks_device_close(struct ranks_device *device);
/* For hys_cp_options; NULL functions where there is no page-locked memory. */
void ranks_device_memory(struct ranks_device *device, struct hys_cp_options *options);

/* Tensors of one rank, in buffers or host memory. */
struct ranks_data {
	struct ranks_device *device;
	struct hys_exec *exec;
	struct hys_buffer *buffers[RANKS_BUFFERS_MAX];
	void *hosts[RANKS_BUFFERS_MAX];
	int32_t count;
	void *chunks[HYS_DTYPE_COUNT]; /* random values that fill tensors, again and again */
	uint64_t seed;
	bool failed;
	struct hys_error error;
};

/* Random values, else undefined content. */
struct hys_tensor ranks_tensor(struct ranks_data *data, hys_dtype dtype, int32_t rank, int64_t n0,
			       int64_t n1, int64_t n2, bool random);
void ranks_data_free(struct ranks_data *data);

/* The arguments of a step of one layer for so many rows, entries and keys. */
struct ranks_step {
	struct hys_select_args select;
	struct hys_attention_args forward;
	struct hys_attention_grad_args backward;
};
bool ranks_step_make(struct ranks_data *data, const struct ranks_options *options, int64_t rows,
		     int64_t entries, int64_t keys, struct ranks_step *step);

/* What a rank's device does of an operation in a second, and what the ranks' network is measured
 * to do: of which the step's times are predicted. Collective. */
void ranks_network(MPI_Comm comm, struct hys_network *network);

/* The operations of a step in their order; HYS_OP_COUNT = left out. */
#define RANKS_OPS 3
struct ranks_ops {
	hys_op of[RANKS_OPS];
};
/* What they took on one rank, for how much useful work. */
struct ranks_measured {
	double seconds[RANKS_OPS], flops[RANKS_OPS];
};
/* From one document and from several of as many tokens, or twice the same: what work takes, and
 * what rows do whatever they see. Where documents make no difference to the work, all is work. */
void ranks_find_rates(const struct ranks_ops *ops, const struct ranks_measured *long_one,
		      const struct ranks_measured *short_ones, double tokens,
		      struct hys_network *network);
/* Collective: prints what the slowest rank's rates and the network between ranks predict beside
 * what operations and step took, fastest[RANKS_OPS + 1]. False with *error filled. */
bool ranks_predict(MPI_Comm comm, const struct hys_cut *cut, const struct hys_plan *plan,
		   const struct ranks_ops *ops, struct hys_network *network, const double *fastest,
		   int64_t tokens, struct hys_error *error);

/* What a job told of itself. */
struct ranks_trace {
	double zero_s;
	int32_t count;
	struct {
		double start_s, end_s;
		char what[112];
	} events[RANKS_EVENTS_MAX];
};
void ranks_trace_add(void *user, double start_s, double end_s, const char *what);
/* Collective: rank after rank, as text. */
void ranks_trace_print(const struct ranks_trace *trace, MPI_Comm comm);

#endif
