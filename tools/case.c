#include "case.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct st_tensor *case_tensor(const struct tool_case *c, const char *name)
{
	return st_find(&c->file, name);
}

double case_number(const struct tool_case *c, const char *key, double otherwise)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(c->settings, key);
	if (cJSON_IsBool(item))
		return cJSON_IsTrue(item) ? 1 : 0;
	return cJSON_IsNumber(item) ? item->valuedouble : otherwise;
}

static int32_t number32(const struct tool_case *c, const char *key, int64_t otherwise)
{
	double value = case_number(c, key, (double)otherwise);
	if (!(value >= INT32_MIN && value <= INT32_MAX))
		return -1; /* refused later, by name */
	return (int32_t)value;
}

static const char *text(const struct tool_case *c, const char *key)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(c->settings, key));
}

/* Size d of tensor `name`, 0 when it is absent. */
static int64_t size_of(const struct tool_case *c, const char *name, int32_t d)
{
	const struct st_tensor *t = case_tensor(c, name);
	return t && d < t->rank ? t->shape[d] : 0;
}

static hys_dtype dtype_of(const struct tool_case *c, const char *name)
{
	const struct st_tensor *t = case_tensor(c, name);
	return t ? t->dtype : HYS_DTYPE_DEFAULT;
}

static bool read_method(struct tool_case *c, const char *path)
{
	static const char *const names[] = {"default", "exact", "coarse", "coarse_to_fine"};
	const char *name = text(c, "method");
	for (int i = 0; name && i < 4; i++) {
		if (strcmp(name, names[i]) == 0) {
			c->problem.choosing.method = (hys_method)i;
			return true;
		}
	}
	if (name)
		tool_complain("%s: method '%s' is none of exact, coarse, coarse_to_fine", path,
			      name);
	return !name;
}

static bool read_scoring(struct tool_case *c, const char *path)
{
	struct hys_scoring *s = &c->problem.scoring;
	struct hys_choosing *choose = &c->problem.choosing;
	const char *activation = text(c, "activation");
	s->heads = number32(c, "index_heads", size_of(c, "index_q", 1));
	s->dim = number32(c, "index_dim", size_of(c, "index_k", 1));
	s->block = number32(c, "score_block", 0);
	s->dtype = dtype_of(c, "index_k");
	s->scale = case_number(c, "index_scale",
			       c->op == HYS_OP_SELECT ? case_number(c, "scale", 0) : 0);
	if (activation && strcmp(activation, "none") == 0)
		s->activation = HYS_ACTIVATION_NONE;
	else if (activation && strcmp(activation, "relu") != 0)
		return tool_complain("%s: activation '%s' is neither relu nor none", path,
				     activation) == TOOL_OK;
	choose->first_blocks = number32(c, "first_blocks", 0);
	choose->local_blocks = number32(c, "local_blocks", 0);
	choose->coarse_block = number32(c, "coarse_block", 0);
	choose->coarse_keep = number32(c, "coarse_keep", 0);
	return read_method(c, path);
}

static void read_attending(struct tool_case *c)
{
	struct hys_attending *a = &c->problem.attending;
	bool merge = c->op == HYS_OP_MERGE;
	const char *value = case_tensor(c, "v") ? "v" : "window_v";
	const char *output = merge ? "o_a" : case_tensor(c, "o") ? "o" : "grad_o";
	a->heads = number32(c, "heads", size_of(c, merge ? "o_a" : "q", 1));
	a->kv_heads = number32(c, "kv_heads", merge ? 1 : size_of(c, "k", 1));
	a->value_dim =
		number32(c, "value_dim",
			 size_of(c, value, 2) ? size_of(c, value, 2) : size_of(c, output, 2));
	a->head_dim = number32(c, "head_dim", merge ? size_of(c, "o_a", 2) : size_of(c, "k", 2));
	a->granularity = number32(c, "granularity", 0);
	a->window = number32(c, "window", 0);
	a->first = number32(c, "first", 0);
	a->dtype = dtype_of(c, merge ? "o_a" : "k");
	a->scale = case_number(c, "scale", 0);
	a->softcap = case_number(c, "softcap", 0);
	if (case_number(c, "dense", 0) != 0 && c->op != HYS_OP_INDEXER_LOSS)
		a->flags |= HYS_ATTENDING_DENSE;
}

static void read_sizes(struct tool_case *c)
{
	static const char *const row_tensors[] = {"index_q", "q", "o_a", "row_begin"};
	for (int i = 0; i < 4 && !c->rows; i++)
		c->rows = size_of(c, row_tensors[i], 0);
	int32_t pool = c->problem.scoring.pool ? c->problem.scoring.pool : 1;
	c->entries = size_of(c, "index_k", 0);
	c->keys = size_of(c, "k", 0);
	if (!c->keys)
		c->keys = number32(c, "keys", c->entries * pool);
	if (!c->keys && (c->op == HYS_OP_POOL || c->op == HYS_OP_POOL_BACKWARD))
		c->keys = size_of(c, "x", 0);
	c->window_keys = size_of(c, "window_k", 0);
	if (!c->entries)
		c->entries = c->keys / pool;
}

static bool read_problem(struct tool_case *c, const char *path)
{
	bool scoring = case_tensor(c, "index_q") || case_tensor(c, "index_k");
	bool attending = case_tensor(c, "q") || case_tensor(c, "o_a");
	c->problem.struct_size = sizeof c->problem;
	c->problem.scoring.groups =
		number32(c, "groups", case_tensor(c, "indices") ? size_of(c, "indices", 1) : 1);
	c->problem.scoring.pool = number32(c, "pool", 0);
	if (scoring && !read_scoring(c, path))
		return false;
	if (!scoring) {
		c->problem.choosing.coarse_block = number32(c, "coarse_block", 0);
		c->problem.scoring.block = number32(c, "score_block", 0);
	}
	if (attending)
		read_attending(c);
	c->topk = number32(c, "topk", size_of(c, "indices", 2));
	if (!c->topk)
		c->topk = number32(c, "topk", size_of(c, "expect.indices", 2));
	if (!c->topk && c->op == HYS_OP_SELECT)
		return tool_complain("%s: topk, how many to select, is in neither the metadata's "
				     "'problem' nor --set",
				     path) == TOOL_OK;
	c->problem.choosing.topk_max = c->topk;
	read_sizes(c);
	return true;
}

static bool read_op(struct tool_case *c, const char *path, const char *op)
{
	const char *name = op ? op : st_metadata(&c->file, "op");
	if (!name)
		return tool_complain("%s: no operation: the metadata has no 'op'", path) == TOOL_OK;
	if (strcmp(name, "attention") == 0)
		name = case_tensor(c, "grad_o") ? "attention_backward" : "attention_forward";
	for (int i = 0; i < HYS_OP_COUNT; i++) {
		if (strcmp(name, hys_op_name((hys_op)i)) == 0) {
			c->op = (hys_op)i;
			return true;
		}
	}
	return tool_complain("%s: unknown operation '%s'", path, name) == TOOL_OK;
}

static bool is_known_key(const char *key)
{
	static const char *const known[] = {
		"topk",		"index_heads", "index_dim",    "groups",       "activation",
		"scale",	"score_block", "first_blocks", "local_blocks", "method",
		"coarse_block", "coarse_keep", "pool",	       "heads",	       "kv_heads",
		"head_dim",	"value_dim",   "granularity",  "window",       "first",
		"dense",	"softcap",     "index_scale",  "coefficient",  "reduction",
		"row_stride",	"row_offset",  "causal",       "blocks",       "overlapped",
		"target_mass",	"keys"};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strcmp(key, known[i]) == 0)
			return true;
	return false;
}

static bool apply_set(struct tool_case *c, const char *set)
{
	const char *equals = strchr(set, '=');
	char key[64];
	if (!equals || equals == set || equals - set >= (ptrdiff_t)sizeof key)
		return tool_complain("--set %s: expected key=value", set) == TOOL_OK;
	snprintf(key, sizeof key, "%.*s", (int)(equals - set), set);
	if (!is_known_key(key))
		return tool_complain("--set %s: unknown key; 'hyscale run --help' lists them",
				     set) == TOOL_OK;
	cJSON *value = cJSON_Parse(equals + 1);
	if (!value)
		value = cJSON_CreateString(equals + 1);
	cJSON_DeleteItemFromObjectCaseSensitive(c->settings, key);
	return cJSON_AddItemToObject(c->settings, key, value);
}

static bool read_settings(struct tool_case *c, const char *path, char *const *sets, int count)
{
	const char *problem = st_metadata(&c->file, "problem");
	c->settings = problem ? cJSON_Parse(problem) : cJSON_CreateObject();
	if (!cJSON_IsObject(c->settings))
		return tool_complain("%s: the metadata's 'problem' is not a JSON object", path) ==
		       TOOL_OK;
	for (int i = 0; i < count; i++)
		if (!apply_set(c, sets[i]))
			return false;
	return true;
}

int case_load(struct tool_case *c, const char *path, const char *op, char *const *sets, int count)
{
	char message[ST_MESSAGE];
	*c = (struct tool_case){0};
	if (!st_read(&c->file, path, message))
		return tool_complain("%s: %s", path, message);
	const char *format = st_metadata(&c->file, "format");
	if (format && strncmp(format, "hyscale-case-", 13) == 0 &&
	    strcmp(format, "hyscale-case-1") != 0) {
		tool_complain("%s: format '%s', this version reads hyscale-case-1", path, format);
	} else if (read_op(c, path, op) && read_settings(c, path, sets, count) &&
		   read_problem(c, path)) {
		return TOOL_OK;
	}
	case_free(c);
	return TOOL_USAGE;
}

void case_free(struct tool_case *c)
{
	cJSON_Delete(c->settings);
	st_free(&c->file);
	*c = (struct tool_case){0};
}
