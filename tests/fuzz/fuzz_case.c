/* Any text as a case's problem and as values of --set: what was accepted is of its kind and in bounds.
 *
 * The bytes: one picks the operation, the next the tensors' sizes, then the metadata's "problem", and behind each zero byte
 * a --set. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/case.h"

#define SETS_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_tensor(cJSON *header, const char *name, const int (*shape)[3])
{
	cJSON *tensor = cJSON_AddObjectToObject(header, name);
	int empty[] = {0, 0};

	cJSON_AddStringToObject(tensor, "dtype", "F32");
	cJSON_AddItemToObject(tensor, "shape", cJSON_CreateIntArray(*shape, 3));
	cJSON_AddItemToObject(tensor, "data_offsets", cJSON_CreateIntArray(empty, 2));
}

/* A file without rows and so without data: what takes a case looks at names and shapes. */
static char *make_file(const char *problem, const char *op, int size, int64_t *bytes)
{
	static const char *const names[] = {"index_q", "index_k", "index_w", "q",   "k",  "v",
					    "grad_o",  "indices", "x",	     "o_a", "o_b"};
	const int shape[3] = {0, size & 15, size >> 4};
	cJSON *header = cJSON_CreateObject();
	cJSON *metadata = cJSON_AddObjectToObject(header, "__metadata__");
	char *text, *file = NULL;

	cJSON_AddStringToObject(metadata, "op", op);
	cJSON_AddStringToObject(metadata, "problem", problem);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		add_tensor(header, names[i], &shape);
	text = cJSON_PrintUnformatted(header);
	cJSON_Delete(header);
	*bytes = text ? 8 + (int64_t)strlen(text) : 0;
	file = text ? malloc((size_t)*bytes + 1) : NULL;
	if (file) {
		for (int i = 0; i < 8; i++)
			file[i] = (char)((uint64_t)(*bytes - 8) >> 8 * i);
		memcpy(file + 8, text, (size_t)*bytes - 7);
	}
	cJSON_free(text);
	return file;
}

static void check_case(const struct tool_case *c)
{
	const struct hys_problem *p = &c->problem;
	const cJSON *item;

	if (c->op < 0 || c->op >= HYS_OP_COUNT || p->struct_size != sizeof *p ||
	    !isfinite(p->scoring.scale) || !isfinite(p->attending.scale) ||
	    !isfinite(p->attending.softcap) || p->choosing.topk_max != c->topk)
		abort();
	cJSON_ArrayForEach(item, c->settings)
	{
		if (!cJSON_IsBool(item) && !cJSON_IsString(item) &&
		    !(cJSON_IsNumber(item) && isfinite(item->valuedouble)))
			abort();
		if (cJSON_IsNumber(item) && case_number(c, item->string, -0.5) != item->valuedouble)
			abort(); /* twice under a name */
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text, *file, *sets[SETS_MAX], message[ST_MESSAGE];
	struct tool_case c = {0};
	int64_t bytes = 0;
	int count = 0;

	if (size < 2 || !(text = malloc(size - 1)))
		return 0;
	memcpy(text, data + 2, size - 2);
	text[size - 2] = '\0';
	for (char *at = text + strlen(text) + 1; at < text + size - 1 && count < SETS_MAX;
	     at += strlen(at) + 1)
		sets[count++] = at;
	file = make_file(text, hys_op_name((hys_op)(data[0] % HYS_OP_COUNT)), data[1], &bytes);
	/* what JSON cannot carry, the reader refuses */
	if (file && st_parse(&c.file, file, bytes, message) &&
	    case_take(&c, "case", NULL, sets, count) == TOOL_OK) {
		check_case(&c);
		case_free(&c);
	}
	free(file);
	free(text);
	return 0;
}
