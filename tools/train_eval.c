/* train_eval.c - what a selection captures of dense attention on text that was not learned from. */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One row in so many is looked at. */
#define ROW_STRIDE 8

static int failed(const char *what, const struct hys_error *error)
{
	return tool_failed(what, error);
}

static hys_status make_batch(struct train_run *run, int32_t rows, struct hys_batch **batch,
			     struct hys_error *error)
{
	struct hys_batch_desc desc = {
		.struct_size = sizeof desc, .rows = rows, .keys = rows, .flags = HYS_BATCH_CAUSAL};
	return hys_batch_create(run->plan, &desc, batch, error);
}

/* Mean share over sampled rows that see more than K entries, and over groups. */
static double mean_share(const struct train_run *run, int32_t topk, const float *mass, int32_t rows)
{
	const int32_t groups = run->data.kv_heads;
	double sum = 0;
	int64_t count = 0;
	for (int32_t t = 0; t < rows; t += ROW_STRIDE) {
		if (t < topk)
			continue;
		for (int32_t u = 0; u < groups; u++)
			sum += (double)mass[(int64_t)t * groups + u];
		count += groups;
	}
	return count ? sum / (double)count : (double)NAN;
}

/* Share that run->indices capture of one document. */
static int captured(struct train_run *run, int layer, int32_t topk, int document, double *share)
{
	const struct train_data *data = &run->data;
	const int32_t rows = train_document_rows(data, document);
	const int32_t groups = data->kv_heads;
	struct hys_batch *batch = NULL;
	struct hys_error error;
	float *mass = calloc((size_t)rows * (size_t)groups, sizeof *mass);
	if (!mass)
		return tool_complain("out of memory");
	struct hys_fidelity_args args = {
		.struct_size = sizeof args,
		.row_stride = ROW_STRIDE,
		.q = train_view(data->layers[layer].q, data, document),
		.k = train_view(data->layers[layer].k, data, document),
		.indices = hys_host(run->indices, HYS_I32, 3, rows, groups, topk),
		.mass = hys_host(mass, HYS_F32, 2, rows, groups, 0)};
	hys_status status = make_batch(run, rows, &batch, &error);
	if (status == HYS_OK)
		status = hys_fidelity(run->exec, batch, &args, &error);
	if (status == HYS_OK)
		status = hys_exec_finish(run->exec, &error);
	*share = mean_share(run, topk, mass, rows);
	hys_batch_destroy(batch);
	free(mass);
	return status == HYS_OK ? TOOL_OK : failed("fidelity", &error);
}

/* Fills run->indices with what the weights choose, exactly. */
static int choose(struct train_run *run, int layer, int32_t topk, int document,
		  const float *weights)
{
	const struct train_data *data = &run->data;
	int32_t numbers[HYS_SCHEDULE_GROUPS_MAX];
	const int32_t rows = train_document_rows(data, document);
	struct hys_batch *batch = NULL;
	struct hys_error error;
	train_hidden(data, layer, document, run->hidden);
	train_project(&run->shape, weights, run->hidden, rows, &run->index);
	for (int32_t u = 0; u < data->kv_heads; u++)
		numbers[u] = topk;
	struct hys_select_args args = {
		.struct_size = sizeof args,
		.method = HYS_METHOD_EXACT,
		.topk = numbers,
		.index_q =
			hys_host(run->index.q, HYS_F32, 3, rows, run->shape.heads, run->shape.dim),
		.index_k = hys_host(run->index.k, HYS_F32, 2, rows, run->shape.dim, 0),
		.index_w = hys_host(run->index.w, HYS_F32, 2, rows, run->shape.heads, 0),
		.indices = hys_host(run->indices, HYS_I32, 3, rows, data->kv_heads, topk)};
	hys_status status = make_batch(run, rows, &batch, &error);
	if (status == HYS_OK)
		status = hys_select(run->exec, batch, &args, &error);
	if (status == HYS_OK)
		status = hys_exec_finish(run->exec, &error);
	hys_batch_destroy(batch);
	return status == HYS_OK ? TOOL_OK : failed("select", &error);
}

int train_trained_share(struct train_run *run, int layer, int32_t topk, const float *weights,
			int documents, double *share)
{
	double sum = 0;
	for (int d = 0; d < documents; d++) {
		double one = 0;
		int result = choose(run, layer, topk, run->data.train_documents + d, weights);
		if (result == TOOL_OK)
			result = captured(run, layer, topk, run->data.train_documents + d, &one);
		if (result != TOOL_OK)
			return result;
		sum += one;
	}
	*share = sum / documents;
	return TOOL_OK;
}

/* ---- choices without an indexer ---- */

static void choose_window(struct train_run *run, int32_t topk, int32_t rows)
{
	const int32_t groups = run->data.kv_heads;
	int32_t *at = run->indices;
	for (int32_t t = 0; t < rows; t++)
		for (int32_t u = 0; u < groups; u++)
			for (int32_t i = 0; i < topk; i++) {
				const int32_t key = t + 1 > topk ? t + 1 - topk + i : i;
				*at++ = key <= t ? key : -1;
			}
}

/* Each row's K of its keys, all sets as likely (Knuth, volume 2, algorithm S). */
static void choose_random(struct train_run *run, int32_t topk, int32_t rows)
{
	const int32_t groups = run->data.kv_heads;
	uint64_t state = (uint64_t)run->options->seed;
	for (int32_t t = 0; t < rows; t++)
		for (int32_t u = 0; u < groups; u++) {
			int32_t *set = run->indices + ((int64_t)t * groups + u) * topk;
			int32_t left = t + 1 < topk ? t + 1 : topk, taken = 0;
			for (int32_t key = 0; key <= t && left > 0; key++) {
				state = state * UINT64_C(6364136223846793005) +
					UINT64_C(1442695040888963407);
				if ((int64_t)(state >> 33) % (t + 1 - key) >= left)
					continue;
				set[taken++] = key;
				left--;
			}
			for (; taken < topk; taken++)
				set[taken] = -1;
		}
}

static int plain_share(struct train_run *run, int layer, int32_t topk,
		       void (*choose_rows)(struct train_run *, int32_t, int32_t), double *share)
{
	const int documents = run->data.documents - run->data.train_documents;
	double sum = 0;
	for (int d = 0; d < documents; d++) {
		const int document = run->data.train_documents + d;
		double one = 0;
		choose_rows(run, topk, train_document_rows(&run->data, document));
		int result = captured(run, layer, topk, document, &one);
		if (result != TOOL_OK)
			return result;
		sum += one;
	}
	*share = sum / documents;
	return TOOL_OK;
}

/* ---- the best that K entries can do ---- */

static int descending(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;
	return (x < y) - (x > y);
}

/* Adds head h's softmax of row t over keys 0..t to shares. */
static void add_head(const struct train_data *data, const float *q, const float *k, int32_t h,
		     int32_t t, float *logits, float *shares)
{
	const int32_t dim = data->head_dim, g = h / (data->heads / data->kv_heads);
	const float scale = 1 / sqrtf((float)dim);
	float most = -INFINITY;
	double sum = 0;
	for (int32_t s = 0; s <= t; s++) {
		const float *key = k + ((int64_t)s * data->kv_heads + g) * dim;
		float dot = 0;
		for (int32_t i = 0; i < dim; i++)
			dot += q[h * dim + i] * key[i];
		logits[s] = dot * scale;
		most = fmaxf(most, logits[s]);
	}
	for (int32_t s = 0; s <= t; s++)
		sum += (double)(logits[s] = expf(logits[s] - most));
	for (int32_t s = 0; s <= t; s++)
		shares[s] += (float)((double)logits[s] / sum);
}

/* Sum of the row's K largest shares, the mean over groups. */
static double best_of_row(const struct train_run *run, const float *q, const float *k, int32_t t,
			  int32_t topk, float *logits, float *shares)
{
	const struct train_data *data = &run->data;
	const int32_t per_group = data->heads / data->kv_heads;
	double sum = 0;
	for (int32_t u = 0; u < data->kv_heads; u++) {
		memset(shares, 0, (size_t)(t + 1) * sizeof *shares);
		for (int32_t h = u * per_group; h < (u + 1) * per_group; h++)
			add_head(data, q, k, h, t, logits, shares);
		qsort(shares, (size_t)t + 1, sizeof *shares, descending);
		for (int32_t i = 0; i < topk && i <= t; i++)
			sum += (double)shares[i] / per_group;
	}
	return sum / data->kv_heads;
}

static double oracle_of_document(const struct train_run *run, int layer, int32_t topk, int document,
				 float *scratch)
{
	const struct train_data *data = &run->data;
	const struct st_tensor *q = data->layers[layer].q, *k = data->layers[layer].k;
	const int32_t rows = train_document_rows(data, document);
	const int64_t first = data->cuts[2 * (int64_t)document];
	const int64_t key_width = (int64_t)data->kv_heads * data->head_dim;
	const int64_t row_width = (int64_t)data->heads * data->head_dim;
	float *keys = scratch, *row = keys + rows * key_width, *logits = row + row_width;
	double sum = 0;
	int64_t count = 0;
	for (int64_t i = 0; i < rows * key_width; i++)
		keys[i] = (float)tool_get(k->dtype, k->data, first * key_width + i);
	for (int32_t t = 0; t < rows; t += ROW_STRIDE) {
		if (t < topk)
			continue;
		for (int64_t i = 0; i < row_width; i++)
			row[i] = (float)tool_get(q->dtype, q->data, (first + t) * row_width + i);
		sum += best_of_row(run, row, keys, t, topk, logits, logits + rows);
		count++;
	}
	return count ? sum / (double)count : (double)NAN;
}

int train_oracle_share(struct train_run *run, int layer, int32_t topk, int documents, double *share)
{
	const struct train_data *data = &run->data;
	const int64_t floats =
		((int64_t)data->longest * data->kv_heads + data->heads) * data->head_dim +
		2 * (int64_t)data->longest;
	float *scratch = calloc((size_t)floats, sizeof *scratch);
	double sum = 0;
	if (!scratch)
		return tool_complain("out of memory");
	for (int d = 0; d < documents; d++)
		sum += oracle_of_document(run, layer, topk, data->train_documents + d, scratch);
	free(scratch);
	*share = sum / documents;
	return TOOL_OK;
}

int train_all_shares(struct train_run *run, int layer, int32_t topk, struct train_shares *shares)
{
	const int documents = run->data.documents - run->data.train_documents;
	struct train_layer_state *state = &run->states[layer];
	struct train_layer_state fresh = {0};
	const size_t count = (size_t)train_parameters(&run->shape);
	float *memory = calloc(count, 3 * sizeof *memory);
	if (!memory)
		return tool_complain("out of memory");
	fresh.weights = memory;
	fresh.moment = memory + count;
	fresh.square = memory + 2 * count;
	train_start(&run->shape, &fresh, (uint64_t)(run->options->seed + layer));
	int result =
		train_trained_share(run, layer, topk, state->weights, documents, &shares->trained);
	if (result == TOOL_OK)
		result = train_trained_share(run, layer, topk, fresh.weights, documents,
					     &shares->untrained);
	if (result == TOOL_OK)
		result = plain_share(run, layer, topk, choose_random, &shares->random);
	if (result == TOOL_OK)
		result = plain_share(run, layer, topk, choose_window, &shares->window);
	if (result == TOOL_OK)
		result = train_oracle_share(run, layer, topk, documents, &shares->oracle);
	free(memory);
	return result;
}
