/* train_data.c - a model's activations: layers, documents, and whether they can be learned from. */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int bad_tensor(const struct train_options *options, const char *name, const char *expected)
{
	return tool_complain("%s: '%s' is missing or not %s; extract_activations.py --hidden makes "
			     "such files",
			     options->data, name, expected);
}

static bool is_real(const struct st_tensor *tensor)
{
	return tensor->dtype == HYS_F32 || tensor->dtype == HYS_F16 || tensor->dtype == HYS_BF16;
}

static const struct st_tensor *find_part(const struct train_data *data, const char *layer,
					 const char *part, int rank, char name[48])
{
	snprintf(name, 48, "%s.%s", layer, part);
	const struct st_tensor *tensor = st_find(&data->file, name);
	return tensor && tensor->rank == rank && is_real(tensor) && tensor->shape[0] > 0 &&
			       tensor->shape[0] <= INT32_MAX
		       ? tensor
		       : NULL;
}

/* Takes the sizes of the first layer; later ones must have the same. */
static int check_sizes(struct train_data *data, const struct train_options *options,
		       const struct train_layer *layer)
{
	const struct st_tensor *h = layer->hidden, *q = layer->q, *k = layer->k;
	if (data->layer_count == 0) {
		data->tokens = h->shape[0];
		data->channels = (int32_t)h->shape[1];
		data->heads = (int32_t)q->shape[1];
		data->kv_heads = (int32_t)k->shape[1];
		data->head_dim = (int32_t)q->shape[2];
		data->dtype = q->dtype;
	}
	if (h->shape[0] != data->tokens || h->shape[1] != data->channels ||
	    q->shape[0] != data->tokens || k->shape[0] != data->tokens ||
	    q->shape[1] != data->heads || k->shape[1] != data->kv_heads ||
	    q->shape[2] != data->head_dim || k->shape[2] != data->head_dim ||
	    q->dtype != data->dtype || k->dtype != data->dtype || data->kv_heads < 1 ||
	    data->heads % data->kv_heads != 0)
		return tool_complain("%s: shapes or types of %s.hidden, .q and .k do not fit "
				     "together or to the first layer's",
				     options->data, layer->name);
	return TOOL_OK;
}

/* One NaN would spread into every weight: found here, with its place. */
static int check_numbers(const struct train_options *options, const struct st_tensor *tensor)
{
	int64_t width = 1, count;
	for (int32_t d = 1; d < tensor->rank; d++)
		width *= tensor->shape[d];
	count = width * tensor->shape[0];
	for (int64_t i = 0; i < count; i++)
		if (!isfinite(tool_get(tensor->dtype, tensor->data, i)))
			return tool_complain("%s: '%s' is not finite in row %lld; leave its "
					     "document out",
					     options->data, tensor->name, (long long)(i / width));
	return TOOL_OK;
}

static int open_layer(struct train_data *data, const struct train_options *options,
		      const char *name)
{
	struct train_layer *layer = &data->layers[data->layer_count];
	char part[48];
	if (data->layer_count == TRAIN_LAYERS_MAX)
		return tool_complain("%s: more than %d layers", options->data, TRAIN_LAYERS_MAX);
	snprintf(layer->name, sizeof layer->name, "%s", name);
	layer->hidden = find_part(data, name, "hidden", 2, part);
	if (!layer->hidden)
		return bad_tensor(options, part, "real [tokens, channels]");
	layer->q = find_part(data, name, "q", 3, part);
	if (!layer->q)
		return bad_tensor(options, part, "real [tokens, heads, dim]");
	layer->k = find_part(data, name, "k", 3, part);
	if (!layer->k)
		return bad_tensor(options, part, "real [tokens, kv heads, dim]");
	int result = check_sizes(data, options, layer);
	if (result == TOOL_OK)
		result = check_numbers(options, layer->hidden);
	if (result == TOOL_OK)
		result = check_numbers(options, layer->q);
	if (result == TOOL_OK)
		result = check_numbers(options, layer->k);
	data->layer_count += result == TOOL_OK;
	return result;
}

static int open_layers(struct train_data *data, const struct train_options *options)
{
	int result = TOOL_OK;
	for (int32_t i = 0; result == TOOL_OK && i < data->file.count; i++) {
		const char *name = data->file.tensors[i].name;
		size_t length = strlen(name);
		char layer[TRAIN_NAME_MAX];
		if (length < 8 || strcmp(name + length - 7, ".hidden") != 0)
			continue;
		if (length - 7 >= sizeof layer)
			return tool_complain("%s: the name '%s' is too long", options->data, name);
		snprintf(layer, sizeof layer, "%.*s", (int)(length - 7), name);
		result = open_layer(data, options, layer);
	}
	if (result == TOOL_OK && data->layer_count == 0)
		return bad_tensor(options, "LAYER.hidden", "real [tokens, channels]");
	return result;
}

static bool ascending(const struct st_tensor *cuts, int64_t tokens)
{
	const int64_t last = cuts->shape[0] - 1;
	if (tool_get(HYS_I32, cuts->data, 0) != 0 ||
	    tool_get(HYS_I32, cuts->data, last) != (double)tokens)
		return false;
	for (int64_t i = 0; i < last; i++)
		if (tool_get(HYS_I32, cuts->data, i) > tool_get(HYS_I32, cuts->data, i + 1))
			return false;
	return true;
}

/* Documents from cu_seqlens, or every so many tokens. Those without a second token, which could look
 * back on nothing, are dropped. */
static int cut_documents(struct train_data *data, const struct train_options *options)
{
	const struct st_tensor *cuts = st_find(&data->file, "cu_seqlens");
	int64_t count = cuts ? cuts->shape[0] - 1 : (data->tokens - 1) / options->context + 1;
	if (cuts && (cuts->rank != 1 || cuts->dtype != HYS_I32 || cuts->shape[0] < 2 ||
		     !ascending(cuts, data->tokens)))
		return tool_complain("%s: 'cu_seqlens' is not I32 ascending from 0 to %lld",
				     options->data, (long long)data->tokens);
	/* Pairs of first row and end: dropped documents leave gaps. */
	data->cuts = calloc((size_t)count, 2 * sizeof *data->cuts);
	if (!data->cuts)
		return tool_complain("out of memory");
	for (int64_t i = 0; i < count; i++) {
		int64_t begin =
			cuts ? (int64_t)tool_get(HYS_I32, cuts->data, i) : i * options->context;
		int64_t end = cuts ? (int64_t)tool_get(HYS_I32, cuts->data, i + 1)
				   : begin + options->context;
		end = end < data->tokens ? end : data->tokens;
		if (end - begin < 2) {
			data->dropped++;
			continue;
		}
		data->cuts[2 * (int64_t)data->documents] = (int32_t)begin;
		data->cuts[2 * (int64_t)data->documents + 1] = (int32_t)end;
		data->documents++;
		if (end - begin > data->longest)
			data->longest = (int32_t)(end - begin);
	}
	return TOOL_OK;
}

static int share_out(struct train_data *data, const struct train_options *options)
{
	int64_t held = options->held_out ? options->held_out : (data->documents + 4) / 5;
	if (data->documents - held < 1)
		return tool_complain("%s has %d documents of two tokens or more; %lld are held out "
				     "and one at least must be left to learn from (--held-out, "
				     "--context)",
				     options->data, data->documents, (long long)held);
	data->train_documents = data->documents - (int)held;
	if (options->topk >= data->longest)
		return tool_complain("--topk is %lld, expected less than the %d keys of the "
				     "longest document: there would be nothing to choose",
				     (long long)options->topk, data->longest);
	return TOOL_OK;
}

int train_data_open(struct train_data *data, const struct train_options *options)
{
	char message[ST_MESSAGE];
	*data = (struct train_data){.theta = 10000};
	if (!st_read(&data->file, options->data, message))
		return tool_complain("%s: %s", options->data, message);
	const char *theta = st_metadata(&data->file, "rope_theta");
	if (theta && strtod(theta, NULL) > 1)
		data->theta = strtod(theta, NULL);
	int result = open_layers(data, options);
	if (result == TOOL_OK)
		result = cut_documents(data, options);
	return result == TOOL_OK ? share_out(data, options) : result;
}

void train_data_close(struct train_data *data)
{
	free(data->cuts);
	st_free(&data->file);
}

int32_t train_document_rows(const struct train_data *data, int document)
{
	const int32_t *cut = data->cuts + 2 * (int64_t)document;
	return cut[1] - cut[0];
}

void train_hidden(const struct train_data *data, int layer, int document, float *hidden)
{
	const struct st_tensor *tensor = data->layers[layer].hidden;
	const int64_t first = (int64_t)data->cuts[2 * (int64_t)document] * data->channels;
	const int64_t count = (int64_t)train_document_rows(data, document) * data->channels;
	for (int64_t i = 0; i < count; i++)
		hidden[i] = (float)tool_get(tensor->dtype, tensor->data, first + i);
}

struct hys_tensor train_view(const struct st_tensor *tensor, const struct train_data *data,
			     int document)
{
	const int64_t width = tensor->shape[1] * tensor->shape[2];
	struct hys_tensor view =
		hys_host(tensor->data, tensor->dtype, 3, train_document_rows(data, document),
			 tensor->shape[1], tensor->shape[2]);
	view.offset = (int64_t)data->cuts[2 * (int64_t)document] * width;
	return view;
}
