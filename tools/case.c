#include "case.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A macro, so that analyzers see which way its callers go. */
#define refuse(...) (tool_complain(__VA_ARGS__), false)

/* In the order of the library's own constants. */
static const char *const activations[] = {"relu", "none", NULL};
static const char *const methods[] = {"default", "exact", "coarse", "coarse_to_fine", NULL};
static const char *const reductions[] = {"mean", "sum", NULL};

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

/* Which of the words a setting is, 0 when it is absent. */
static int32_t word(const struct tool_case *c, const char *key, const char *const *words)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(c->settings, key);
	const char *text = cJSON_GetStringValue(item);
	for (int32_t i = 0; text && words[i]; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	return 0;
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

static void read_scoring(struct tool_case *c)
{
	struct hys_scoring *s = &c->problem.scoring;
	struct hys_choosing *choose = &c->problem.choosing;
	s->heads = number32(c, "index_heads", size_of(c, "index_q", 1));
	s->dim = number32(c, "index_dim", size_of(c, "index_k", 1));
	s->block = number32(c, "score_block", 0);
	s->dtype = dtype_of(c, "index_k");
	s->scale = case_number(c, "index_scale",
			       c->op == HYS_OP_SELECT ? case_number(c, "scale", 0) : 0);
	s->activation = (hys_activation)word(c, "activation", activations);
	choose->method = (hys_method)word(c, "method", methods);
	choose->first_blocks = number32(c, "first_blocks", 0);
	choose->local_blocks = number32(c, "local_blocks", 0);
	choose->coarse_block = number32(c, "coarse_block", 0);
	choose->coarse_keep = number32(c, "coarse_keep", 0);
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
	if (scoring) {
		read_scoring(c);
	} else {
		c->problem.choosing.coarse_block = number32(c, "coarse_block", 0);
		c->problem.scoring.block = number32(c, "score_block", 0);
	}
	if (attending)
		read_attending(c);
	if (cJSON_HasObjectItem(c->settings, "topk") && number32(c, "topk", 0) < 1)
		return refuse("%s: topk is %g, expected a whole number from 1 on", path,
			      case_number(c, "topk", 0));
	c->topk = number32(c, "topk", size_of(c, "indices", 2));
	if (!c->topk)
		c->topk = number32(c, "topk", size_of(c, "expect.indices", 2));
	if (!c->topk && c->op == HYS_OP_SELECT)
		return refuse("%s: topk, how many to select, is in neither the metadata's "
			      "'problem' nor --set",
			      path);
	c->problem.choosing.topk_max = c->topk;
	read_sizes(c);
	return true;
}

static bool read_op(struct tool_case *c, const char *path, const char *op)
{
	const char *name = op ? op : st_metadata(&c->file, "op");
	if (!name)
		return refuse("%s: no operation: the metadata has no 'op'", path);
	if (strcmp(name, "attention") == 0)
		name = case_tensor(c, "grad_o") ? "attention_backward" : "attention_forward";
	for (int i = 0; i < HYS_OP_COUNT; i++) {
		if (strcmp(name, hys_op_name((hys_op)i)) == 0) {
			c->op = (hys_op)i;
			return true;
		}
	}
	return refuse("%s: unknown operation '%.60s'", path, name);
}

/* ---- the problem's keys ---- */

enum kind { WHOLE, REAL, SWITCH, WORD };

struct key {
	const char *name;
	enum kind kind;
	const char *const *words; /* that a WORD may be */
};

static const struct key keys[] = {
	{"topk", WHOLE, NULL},
	{"groups", WHOLE, NULL},
	{"pool", WHOLE, NULL},
	{"keys", WHOLE, NULL},
	{"index_heads", WHOLE, NULL},
	{"index_dim", WHOLE, NULL},
	{"index_scale", REAL, NULL},
	{"score_block", WHOLE, NULL},
	{"activation", WORD, activations},
	{"method", WORD, methods},
	{"first_blocks", WHOLE, NULL},
	{"local_blocks", WHOLE, NULL},
	{"coarse_block", WHOLE, NULL},
	{"coarse_keep", WHOLE, NULL},
	{"heads", WHOLE, NULL},
	{"kv_heads", WHOLE, NULL},
	{"head_dim", WHOLE, NULL},
	{"value_dim", WHOLE, NULL},
	{"granularity", WHOLE, NULL},
	{"window", WHOLE, NULL},
	{"first", WHOLE, NULL},
	{"scale", REAL, NULL},
	{"softcap", REAL, NULL},
	{"dense", SWITCH, NULL},
	{"causal", SWITCH, NULL},
	{"coefficient", REAL, NULL},
	{"reduction", WORD, reductions},
	{"row_stride", WHOLE, NULL},
	{"row_offset", WHOLE, NULL},
	{"blocks", SWITCH, NULL},
	{"overlapped", SWITCH, NULL},
	{"target_mass", REAL, NULL},
};

static const struct key *find_key(const char *name)
{
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (strcmp(name, keys[i].name) == 0)
			return &keys[i];
	return NULL;
}

static bool is_one_of(const char *text, const char *const *words)
{
	for (; text && *words; words++)
		if (strcmp(text, *words) == 0)
			return true;
	return false;
}

static bool fits(const struct key *key, const cJSON *item)
{
	double value = item->valuedouble;
	switch (key->kind) {
	case WHOLE:
		return cJSON_IsNumber(item) && value >= INT32_MIN && value <= INT32_MAX &&
		       value == trunc(value);
	case REAL:
		return cJSON_IsNumber(item) && isfinite(value);
	case SWITCH:
		return cJSON_IsBool(item) || (cJSON_IsNumber(item) && (value == 0 || value == 1));
	default:
		return is_one_of(cJSON_GetStringValue(item), key->words);
	}
}

static const char *expectation(const struct key *key, char text[80])
{
	static const char *const kinds[] = {"a whole number", "a finite number", "true or false"};
	if (key->kind != WORD)
		return kinds[key->kind];
	snprintf(text, 80, "one of");
	for (int i = 0; key->words[i]; i++) {
		size_t length = strlen(text);
		snprintf(text + length, 80 - length, "%s %s", i > 0 ? "," : "", key->words[i]);
	}
	return text;
}

/* `where` is what the user gave, for the complaint. */
static bool check_setting(const char *where, const cJSON *item)
{
	const struct key *key = find_key(item->string);
	char words[80];
	if (!key)
		return refuse("%s: unknown key '%.60s'; 'hyscale run --help' lists them", where,
			      item->string);
	if (fits(key, item))
		return true;
	char *value = cJSON_PrintUnformatted(item);
	tool_complain("%s: %s is %.60s, expected %s", where, key->name, value ? value : "?",
		      expectation(key, words));
	cJSON_free(value);
	return false;
}

static bool apply_set(struct tool_case *c, const char *set)
{
	const char *equals = strchr(set, '=');
	char key[64], where[128];
	snprintf(where, sizeof where, "--set %.100s", set);
	if (!equals || equals == set || equals - set >= (ptrdiff_t)sizeof key)
		return refuse("%s: expected key=value", where);
	snprintf(key, sizeof key, "%.*s", (int)(equals - set), set);
	cJSON *value = cJSON_ParseWithOpts(equals + 1, NULL, true);
	if (!value)
		value = cJSON_CreateString(equals + 1);
	cJSON_DeleteItemFromObjectCaseSensitive(c->settings, key);
	if (!value || !cJSON_AddItemToObject(c->settings, key, value)) {
		cJSON_Delete(value);
		return refuse("out of memory");
	}
	return check_setting(where, value);
}

static bool read_settings(struct tool_case *c, const char *path, char *const *sets, int count)
{
	const char *problem = st_metadata(&c->file, "problem");
	char where[300];
	const cJSON *item;
	c->settings = problem ? cJSON_ParseWithOpts(problem, NULL, true) : cJSON_CreateObject();
	if (!cJSON_IsObject(c->settings))
		return refuse("%s: the metadata's 'problem' is not a JSON object", path);
	snprintf(where, sizeof where, "%.200s: the metadata's 'problem'", path);
	cJSON_ArrayForEach(item, c->settings)
	{
		if (!check_setting(where, item))
			return false;
		if (cJSON_GetObjectItemCaseSensitive(c->settings, item->string) != item)
			return refuse("%s has '%s' twice", where, item->string);
	}
	for (int i = 0; i < count; i++)
		if (!apply_set(c, sets[i]))
			return false;
	return true;
}

/* ---- the whole ---- */

/* What nobody reads in a case was meant for something: a name is misspelt. */
static bool check_names(const struct tool_case *c, const char *path)
{
	for (int32_t i = 0; i < c->file.count; i++) {
		const char *name = c->file.tensors[i].name;
		if (strncmp(name, "expect.", 7) != 0 && !case_reads(c, name))
			return refuse("%s: tensor '%.60s' is none that %s reads", path, name,
				      hys_op_name(c->op));
	}
	return true;
}

static bool read_case(struct tool_case *c, const char *path, const char *op, char *const *sets,
		      int count)
{
	const char *format = st_metadata(&c->file, "format");
	bool is_case = format && strncmp(format, "hyscale-case-", 13) == 0;
	if (is_case && strcmp(format, "hyscale-case-1") != 0)
		return refuse("%s: format '%.60s', this version reads hyscale-case-1", path,
			      format);
	return read_op(c, path, op) && (!is_case || op || check_names(c, path)) &&
	       read_settings(c, path, sets, count) && read_problem(c, path);
}

int case_take(struct tool_case *c, const char *path, const char *op, char *const *sets, int count)
{
	if (read_case(c, path, op, sets, count))
		return TOOL_OK;
	case_free(c);
	return TOOL_USAGE;
}

int case_load(struct tool_case *c, const char *path, const char *op, char *const *sets, int count)
{
	char message[ST_MESSAGE];
	*c = (struct tool_case){0};
	if (!st_read(&c->file, path, message))
		return tool_complain("%s: %s", path, message);
	return case_take(c, path, op, sets, count);
}

void case_free(struct tool_case *c)
{
	cJSON_Delete(c->settings);
	st_free(&c->file);
	*c = (struct tool_case){0};
}
