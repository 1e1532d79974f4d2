/* demo.h - what the files of `demo` share: one layer of a real model. */
#ifndef HYS_TOOLS_DEMO_H
#define HYS_TOOLS_DEMO_H

#include "safetensors.h"
#include "tool.h"

/* Tensors of one layer. q, k, v lie in the file; the index is built from them. */
struct demo_layer {
	char name[16]; /* "layer02" */
	int32_t rows, heads, kv_heads, dim;
	double scale;
	struct hys_tensor q, k, v;
	/* An untrained indexer: group u's one index head is the mean of its query heads, and a key's
	 * index is its key heads side by side, so that the score of group u is
	 * <mean of q over the heads of u, k of u>. */
	struct hys_tensor index_q; /* bf16 [rows, kv_heads, kv_heads * dim] */
	struct hys_tensor index_k; /* bf16 [rows, kv_heads * dim] */
};

/* The layer whose tensors are called NAME.q, NAME.k, NAME.v. TOOL_OK, or complains. */
int demo_layer_load(struct demo_layer *layer, const struct st_file *file, const char *name,
		    const char *path);
void demo_layer_free(struct demo_layer *layer);
/* Calls `visit` with each layer's name, in the file's order, until it answers other than TOOL_OK. */
int demo_each_layer(const struct st_file *file, int (*visit)(void *user, const char *name),
		    void *user);

/* demo_steps.c: everything the demo does with one layer on one device. */
struct demo_options {
	int32_t topk, coarse_block, coarse_keep, repeat;
	bool json;
};
int demo_run_layer(const struct demo_layer *layer, struct hys_context *context, int32_t device,
		   const struct demo_options *options, bool describe);

#endif
