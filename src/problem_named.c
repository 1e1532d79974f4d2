/* Published models' shapes. Numbers are those of the models' own configuration
 * files or papers; "assumed" marks what was not published. Latent attention
 * (MLA) is in its absorbed form: one kv head of latent plus rotary channels,
 * v = the first value_dim of k, scale from the head's own dimension. All
 * tensors bf16, the type these models train in. */
#include <string.h>

#include "core.h"

struct named {
	const char *name;
	struct hys_problem problem;
};

#define SIZE sizeof(struct hys_problem)

static const struct named models[] = {
	/* DeepSeek-V3.2. Scale 192^-0.5 * (0.1 ln 40 + 1)^2: rotary scaling. */
	{"dsv32",
	 {SIZE,
	  {.heads = 64, .dim = 128, .dtype = HYS_BF16},
	  {.topk_max = 2048},
	  {.heads = 128,
	   .kv_heads = 1,
	   .head_dim = 576,
	   .value_dim = 512,
	   .dtype = HYS_BF16,
	   .scale = 0.13523377}}},
	/* GLM-5, latent heads of 192 + 64. */
	{"glm5",
	 {SIZE,
	  {.heads = 32, .dim = 128, .dtype = HYS_BF16},
	  {.topk_max = 2048},
	  {.heads = 64,
	   .kv_heads = 1,
	   .head_dim = 576,
	   .value_dim = 512,
	   .dtype = HYS_BF16,
	   .scale = 0.0625}}},
	/* HY V4, latent heads of 192 + 64. */
	{"hyv4",
	 {SIZE,
	  {.heads = 16, .dim = 128, .dtype = HYS_BF16},
	  {.topk_max = 2048},
	  {.heads = 32,
	   .kv_heads = 1,
	   .head_dim = 576,
	   .value_dim = 512,
	   .dtype = HYS_BF16,
	   .scale = 0.0625}}},
	/* MiniMax-M3: one index head per kv head, raw dot products, blocks of
	 * 128 by their largest score. */
	{"msa",
	 {SIZE,
	  {.heads = 4,
	   .dim = 128,
	   .groups = 4,
	   .block = 128,
	   .dtype = HYS_BF16,
	   .activation = HYS_ACTIVATION_NONE,
	   .scale = 1},
	  {.topk_max = 16, .local_blocks = 1},
	  {.heads = 64, .kv_heads = 4, .head_dim = 128, .dtype = HYS_BF16}}},
	/* NSA, its selection branch: 16 blocks of 64, the first and the last
	 * two always. Assumed: the model's own 16 query heads of a group score
	 * (NSA adds their softmax over compressed keys) and q, k are 128 wide
	 * like v. The branch of the window of 512 is a call of its own. */
	{"nsa",
	 {SIZE,
	  {.heads = 64,
	   .dim = 128,
	   .groups = 4,
	   .block = 64,
	   .dtype = HYS_BF16,
	   .activation = HYS_ACTIVATION_NONE},
	  {.topk_max = 16, .first_blocks = 1, .local_blocks = 2},
	  {.heads = 64, .kv_heads = 4, .head_dim = 128, .dtype = HYS_BF16}}},
	/* MoBA, scaling-law setting: each head picks 3 blocks of 512 by the
	 * mean key, its own block included. Assumed: 16 heads of 128, and index
	 * keys that the heads share (their mean). */
	{"moba",
	 {SIZE,
	  {.heads = 16,
	   .dim = 128,
	   .groups = 16,
	   .block = 512,
	   .dtype = HYS_BF16,
	   .activation = HYS_ACTIVATION_NONE},
	  {.topk_max = 3,
	   .local_blocks = 1,
	   .method = HYS_METHOD_COARSE,
	   .coarse_block = 512,
	   .coarse_keep = 3},
	  {.heads = 16, .kv_heads = 16, .head_dim = 128, .dtype = HYS_BF16}}},
	/* Qwen4-Exp QSA: means of 4 keys, and the up to 3 keys behind the last
	 * whole pool. Assumed: 4 index heads of 128 and a budget of 2048 keys;
	 * its configuration has no defaults for them. */
	{"qsa",
	 {SIZE,
	  {.heads = 4, .dim = 128, .pool = 4, .dtype = HYS_BF16},
	  {.topk_max = 512},
	  {.heads = 16, .kv_heads = 2, .head_dim = 256, .window = 3, .dtype = HYS_BF16}}},
	/* DeepSeek-V4 (flash), a compressed sparse layer: keys pooled 4 to 1
	 * (overlapping, gated), v = k, beside a window of 128 raw keys that
	 * callers pass as the second source. */
	{"dsv4-csa",
	 {SIZE,
	  {.heads = 64, .dim = 128, .pool = 4, .dtype = HYS_BF16},
	  {.topk_max = 512},
	  {.heads = 64, .kv_heads = 1, .head_dim = 512, .dtype = HYS_BF16}}},
	/* SmolLM2-135M, which has no indexer: index heads are the means of q
	 * over the heads of a group, index keys the mean of k. */
	{"smollm2",
	 {SIZE,
	  /* no indexer of its own: one index head per group, the mean of its query heads, against
	     the three key heads side by side */
	  {.heads = 3,
	   .dim = 192,
	   .groups = 3,
	   .dtype = HYS_BF16,
	   .activation = HYS_ACTIVATION_NONE,
	   .scale = 0.125},
	  {.topk_max = 256, .coarse_block = 32, .coarse_keep = 24},
	  {.heads = 9, .kv_heads = 3, .head_dim = 64, .dtype = HYS_BF16}}},
};

#define MODEL_COUNT ((int32_t)(sizeof(models) / sizeof(models[0])))

const char *hys_problem_name(int32_t i)
{
	return i >= 0 && i < MODEL_COUNT ? models[i].name : NULL;
}

static hys_status unknown(const char *name, struct hys_error *error)
{
	char known[160] = "";

	for (int32_t i = 0; i < MODEL_COUNT; i++) {
		strncat(known, i ? ", " : "", sizeof(known) - strlen(known) - 1);
		strncat(known, models[i].name, sizeof(known) - strlen(known) - 1);
	}
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "name is %.40s, expected one of %s",
			name ? name : "NULL", known);
}

hys_status hys_problem_named(const char *name, struct hys_problem *problem, struct hys_error *error)
{
	if (!problem)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "problem is NULL");
	for (int32_t i = 0; name && i < MODEL_COUNT; i++) {
		if (strcmp(models[i].name, name) == 0) {
			*problem = models[i].problem;
			return HYS_OK;
		}
	}
	return unknown(name, error);
}
