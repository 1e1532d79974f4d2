#include "demo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int load_tensor(struct hys_tensor *tensor, const struct st_file *file, const char *layer,
		       const char *suffix, const char *path)
{
	char name[32];
	snprintf(name, sizeof name, "%s.%s", layer, suffix);
	const struct st_tensor *t = st_find(file, name);
	if (!t || t->rank != 3 || t->shape[0] < 1 || t->shape[1] < 1 || t->shape[2] < 1 ||
	    t->shape[0] > INT32_MAX || t->shape[1] > 1024 || t->shape[2] > 4096)
		return tool_complain("%s: '%s' is missing or not [tokens, heads, dim]", path, name);
	if (t->dtype != HYS_BF16 && t->dtype != HYS_F16 && t->dtype != HYS_F32)
		return tool_complain("%s: '%s' is %s, expected BF16, F16 or F32", path, name,
				     t->dtype_name);
	*tensor = hys_host(t->data, t->dtype, 3, t->shape[0], t->shape[1], t->shape[2]);
	return TOOL_OK;
}

static void build_index_row(struct demo_layer *layer, int64_t row)
{
	int64_t width = (int64_t)layer->kv_heads * layer->dim;
	int32_t group = layer->heads / layer->kv_heads;
	for (int32_t u = 0; u < layer->kv_heads; u++) {
		for (int32_t d = 0; d < layer->dim; d++) {
			double sum = 0;
			for (int32_t h = u * group; h < (u + 1) * group; h++)
				sum += tool_get(layer->q.dtype, layer->q.host,
						(row * layer->heads + h) * layer->dim + d);
			tool_put(HYS_BF16, layer->index_q.host,
				 (row * layer->kv_heads + u) * width + (int64_t)u * layer->dim + d,
				 sum / group);
		}
	}
	for (int64_t i = 0; i < width; i++)
		tool_put(HYS_BF16, layer->index_k.host, row * width + i,
			 tool_get(layer->k.dtype, layer->k.host, row * width + i));
}

static int build_index(struct demo_layer *layer)
{
	int64_t width = (int64_t)layer->kv_heads * layer->dim;
	void *q = calloc((size_t)((int64_t)layer->rows * layer->kv_heads * width), 2);
	void *k = calloc((size_t)(layer->rows * width), 2);
	layer->index_q = hys_host(q, HYS_BF16, 3, layer->rows, layer->kv_heads, width);
	layer->index_k = hys_host(k, HYS_BF16, 2, layer->rows, width, 0);
	if (!q || !k)
		return tool_complain("out of memory");
	for (int64_t row = 0; row < layer->rows; row++)
		build_index_row(layer, row);
	return TOOL_OK;
}

int demo_layer_load(struct demo_layer *layer, const struct st_file *file, const char *name,
		    const char *path)
{
	*layer = (struct demo_layer){0};
	snprintf(layer->name, sizeof layer->name, "%s", name);
	if (load_tensor(&layer->q, file, name, "q", path) != TOOL_OK ||
	    load_tensor(&layer->k, file, name, "k", path) != TOOL_OK ||
	    load_tensor(&layer->v, file, name, "v", path) != TOOL_OK)
		return TOOL_USAGE;
	layer->rows = (int32_t)layer->q.shape[0];
	layer->heads = (int32_t)layer->q.shape[1];
	layer->kv_heads = (int32_t)layer->k.shape[1];
	layer->dim = (int32_t)layer->q.shape[2];
	layer->scale = 1 / sqrt((double)layer->dim);
	if (layer->k.shape[0] != layer->rows || layer->v.shape[0] != layer->rows ||
	    layer->k.shape[2] != layer->dim || layer->v.shape[1] != layer->kv_heads ||
	    layer->heads % layer->kv_heads != 0)
		return tool_complain("%s: shapes of %s.q, .k and .v do not fit together", path,
				     name);
	return build_index(layer);
}

void demo_layer_free(struct demo_layer *layer)
{
	free(layer->index_q.host);
	free(layer->index_k.host);
	*layer = (struct demo_layer){0};
}

int demo_each_layer(const struct st_file *file, int (*visit)(void *user, const char *name),
		    void *user)
{
	int found = 0;
	for (int32_t i = 0; i < file->count; i++) {
		const char *tensor = file->tensors[i].name;
		size_t length = strlen(tensor);
		char name[16];
		if (length < 3 || length - 2 >= sizeof name ||
		    strcmp(tensor + length - 2, ".q") != 0)
			continue;
		snprintf(name, sizeof name, "%.*s", (int)(length - 2), tensor);
		found++;
		int result = visit(user, name);
		if (result != TOOL_OK)
			return result;
	}
	return found ? TOOL_OK : tool_complain("no tensor called LAYER.q in the file");
}
