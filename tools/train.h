/* train.h - what the files of `train-indexer` share.
 *
 * One indexer per layer: index_q = rope(X Wq^T), index_k = rope(X Wk^T), index_w = X Ww^T + b, X the
 * layer's normed input. It learns from the attention of the layer's own q and k. */
#ifndef HYS_TOOLS_TRAIN_H
#define HYS_TOOLS_TRAIN_H

#include "safetensors.h"
#include "tool.h"

#define TRAIN_LAYERS_MAX 256
#define TRAIN_NAME_MAX 32

/* What the command line says; part of every checkpoint. */
struct train_options {
	const char *data, *out, *plot, *beside, *schedule, *device;
	int64_t steps, warmup_steps, eval_period, save_period, stop_after;
	int64_t loss_rows, index_heads, index_dim, topk, topk_end, coarse_block, coarse_keep,
		held_out, context, seed;
	double rate, decay, clip, recall_floor;
	bool json, resume;
};

/* ---- train_data.c ---- */

struct train_layer {
	char name[TRAIN_NAME_MAX];
	const struct st_tensor *hidden, *q, *k; /* [T,C], [T,H,D], [T,G,D] */
};

struct train_data {
	struct st_file file;
	struct train_layer layers[TRAIN_LAYERS_MAX];
	int layer_count;
	int64_t tokens;
	int32_t channels, heads, kv_heads, head_dim;
	hys_dtype dtype; /* of q and k */
	double theta;
	int32_t *cuts; /* [documents + 1], without the empty ones */
	int documents, train_documents, dropped;
	int32_t longest;
};

int train_data_open(struct train_data *data, const struct train_options *options);
void train_data_close(struct train_data *data);
int32_t train_document_rows(const struct train_data *data, int document);
/* f32 copy of the document's rows of hidden, [rows, channels]. */
void train_hidden(const struct train_data *data, int layer, int document, float *hidden);
/* Views of the document's rows of q or k. */
struct hys_tensor train_view(const struct st_tensor *tensor, const struct train_data *data,
			     int document);

/* ---- train_model.c ---- */

struct train_shape {
	int32_t channels, heads, dim, rotary; /* of the indexer */
	double theta;
};

/* Wq [heads*dim][C], Wk [dim][C], Ww [heads][C], b [heads], one after the other. */
struct train_layer_state {
	float *weights, *moment, *square; /* [train_parameters()] */
};

struct train_index {
	float *q, *k, *w; /* [rows,heads,dim], [rows,dim], [rows,heads] */
};

int64_t train_parameters(const struct train_shape *shape);
void train_start(const struct train_shape *shape, struct train_layer_state *state, uint64_t seed);
void train_project(const struct train_shape *shape, const float *weights, const float *hidden,
		   int32_t rows, struct train_index *index);
/* Gradients of the weights from those of the index, which are rotated back in place. */
void train_project_backward(const struct train_shape *shape, const float *hidden, int32_t rows,
			    struct train_index *gradient, float *weights_gradient);
/* AdamW with the gradient clipped to `clip`; `step` counts from 1. Answers the gradient's norm. */
double train_update(const struct train_shape *shape, struct train_layer_state *state,
		    float *gradient, int64_t step, double rate, double decay, double clip);

/* ---- the run ---- */

#define TRAIN_LOG_FIELDS 7
/* step, phase, loss, recall of held-out text (-1 = not measured), selection FLOPs so far, all FLOPs so
 * far, entries that a row keeps (the mean over layers). */
struct train_log {
	double field[TRAIN_LOG_FIELDS];
};

struct train_run {
	const struct train_options *options;
	struct train_data data;
	struct train_shape shape;
	struct train_layer_state states[TRAIN_LAYERS_MAX];
	struct hys_context *context;
	struct hys_plan *plan, *coarse_plan;
	struct hys_exec *exec, *coarse_exec;
	struct hys_schedule *schedule;
	int64_t step; /* steps done */
	double select_flops, flops;
	struct train_log *log; /* [options->steps] */
	/* What the best oracle_topk entries capture of one held-out document; 0 = not computed yet. */
	double oracle[TRAIN_LAYERS_MAX];
	int32_t oracle_topk[TRAIN_LAYERS_MAX];
	/* for the longest document */
	float *hidden, *gradient;
	struct train_index index, index_gradient;
	int32_t *indices;
};

/* ---- train_run.c ---- */

int train_run_open(struct train_run *run, const struct train_options *options);
void train_run_close(struct train_run *run);
/* Goes on to options->steps, or stop_after more steps. */
int train_run_steps(struct train_run *run);
/* Entries that a row of the layer keeps in a step; of a dense one, what the first sparse one keeps. */
int32_t train_topk(const struct train_run *run, int layer, int64_t step);

/* ---- train_eval.c ---- */

/* What K entries of held-out rows capture of dense attention: mean over sampled rows that see more
 * than K, and over groups. */
struct train_shares {
	double trained, untrained, random, window, oracle;
};

/* Of the first so many held-out documents, with `topk` entries. */
int train_trained_share(struct train_run *run, int layer, int32_t topk, const float *weights,
			int documents, double *share);
int train_oracle_share(struct train_run *run, int layer, int32_t topk, int documents,
		       double *share);
/* All of them, on all held-out documents. */
int train_all_shares(struct train_run *run, int layer, int32_t topk, struct train_shares *shares);

/* ---- train_file.c ---- */
int train_save(const struct train_run *run, const char *path);
/* A checkpoint of the same options and data. */
int train_load(struct train_run *run, const char *path);
/* Only the log of any checkpoint; the caller frees it. */
int train_load_log(const char *path, struct train_log **log, int64_t *steps);

/* ---- train_plot.c ---- */
struct train_curve {
	const char *name;
	const struct train_log *log;
	int64_t steps;
};
bool train_can_plot(void);
int train_plot(const struct train_curve *curves, int count, const char *path);

#endif
