/* stream.h - what the files of `stream` share: one layer over a long document, rows in ranges. */
#ifndef HYS_TOOLS_STREAM_H
#define HYS_TOOLS_STREAM_H

#include "bench_data.h"

enum stream_step { STREAM_SELECT, STREAM_FORWARD, STREAM_LOSS, STREAM_BACKWARD, STREAM_STEPS };

/* What the command line asks for; the problem is complete before anything runs. */
struct stream {
	const char *model, *device, *kernels;
	int64_t tokens, range;
	int64_t ranges;		/* how many are run, evenly spaced; 0 = all */
	hys_dtype dtype;	/* of everything but the selection's indexer */
	hys_dtype select_dtype; /* of that */
	bool json;
	struct hys_problem problem;
};

/* What a run took. */
struct stream_result {
	const char *kernels[STREAM_STEPS];
	double seconds[STREAM_STEPS];
	double flops[STREAM_STEPS]; /* useful, of the rows that ran */
	int64_t rows;		    /* that ran */
	int64_t memory;		    /* of the device, at most */
	double loss;
	bool finite; /* the loss and the gradients that were looked at */
};

/* Bytes of all tensors of a run, and in *host those of its batches and of what operands are made
 * in. The kernels' workspace is not among them. */
int64_t stream_needs(const struct stream *stream, int64_t *host);
/* Runs the layer on the device. False with *error filled. */
bool stream_run(const struct stream *stream, struct hys_context *context, int32_t device,
		struct stream_result *result, struct hys_error *error);

#endif
