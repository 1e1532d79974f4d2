/* cmd_run.c - one operation on a user's own tensors. */
#include "case.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char doc[] =
	"Run operation OP on the tensors of IN and write the results to OUT.\v"
	"OP is select, attention_forward, attention_backward, indexer_loss, pool, "
	"pool_backward, merge or fidelity. Tensors carry the names of the operation's "
	"arguments (include/hyscale/operations.h); row_begin and row_end, or cu_seqlens_q "
	"and cu_seqlens_k, say which rows see which keys, else one causal document. Other "
	"tensors are ignored, and the report names them.\n\n"
	"Problem keys come from --set, else from the file's metadata 'problem', else from "
	"the tensors' shapes: topk index_heads index_dim groups activation scale "
	"score_block first_blocks local_blocks method coarse_block coarse_keep pool heads "
	"kv_heads head_dim value_dim granularity window first dense softcap index_scale "
	"coefficient reduction row_stride row_offset causal blocks overlapped "
	"target_mass.\n\n"
	"Examples:\n"
	"  hyscale run select in.safetensors out.safetensors --set topk=256\n"
	"  hyscale run attention_forward qkv.safetensors out.safetensors \\\n"
	"      --set window=128 --device opencl\n"
	"  hyscale run select in.safetensors out.safetensors --set topk=64 \\\n"
	"      --set method=coarse_to_fine --set coarse_block=64 --set coarse_keep=8\n";

static const struct argp_option options[] = {
	{"set", 's', "KEY=VALUE", 0, "Set a key of the problem; may be repeated", 0},
	{"device", 'd', "DEVICE", 0, "A backend, a device's name or number (default: the first)",
	 0},
	{"json", 'j', 0, 0, "Report as a JSON object", 0},
	{0},
};

#define SETS_MAX 64

struct run {
	const char *device;
	bool json;
	char *arguments[3]; /* OP IN OUT */
	char *sets[SETS_MAX];
	int set_count;
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct run *run = state->input;
	switch (key) {
	case 's':
		if (run->set_count == SETS_MAX)
			argp_error(state, "more than %d --set", SETS_MAX);
		run->sets[run->set_count++] = argument;
		break;
	case 'd':
		run->device = argument;
		break;
	case 'j':
		run->json = true;
		break;
	case ARGP_KEY_ARG:
		if (state->arg_num >= 3)
			argp_error(state, "expected OP IN OUT, got '%s' too", argument);
		run->arguments[state->arg_num] = argument;
		break;
	case ARGP_KEY_END:
		if (state->arg_num < 3)
			argp_error(state, "expected OP IN OUT");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static int write_outputs(const struct run *run, const struct tool_case *c,
			 const struct case_run *done)
{
	struct st_tensor tensors[CASE_OUTPUTS_MAX] = {0};
	char *problem = cJSON_PrintUnformatted(c->settings), message[ST_MESSAGE];
	const char *metadata[] = {"format",	      "hyscale-result-1", "op",
				  hys_op_name(c->op), "problem",	  problem ? problem : "{}"};
	for (int32_t i = 0; i < done->output_count; i++) {
		const struct hys_tensor *t = &done->outputs[i].tensor;
		tensors[i].name = (char *)(uintptr_t)done->outputs[i].name;
		tensors[i].dtype = t->dtype;
		tensors[i].rank = t->rank;
		tensors[i].bytes = (int64_t)hys_dtype_size(t->dtype);
		for (int32_t d = 0; d < t->rank; d++) {
			tensors[i].shape[d] = t->shape[d];
			tensors[i].bytes *= t->shape[d];
		}
		tensors[i].data = t->host;
	}
	bool ok = st_write(run->arguments[2], tensors, done->output_count, metadata, 3, message);
	cJSON_free(problem);
	return ok ? TOOL_OK : tool_complain("%s: %s", run->arguments[2], message);
}

/* The next tensor from number *i on that the operation does not read, or NULL. */
static const char *next_ignored(const struct tool_case *c, int32_t *i)
{
	while (*i < c->file.count) {
		const char *name = c->file.tensors[(*i)++].name;
		if (strncmp(name, "expect.", 7) != 0 && !case_reads(c, name))
			return name;
	}
	return NULL;
}

static void report_json(const struct run *run, const struct tool_case *c,
			const struct hys_device_info *info, double seconds)
{
	cJSON *line = cJSON_CreateObject();
	const char *name;
	int32_t i = 0;
	cJSON_AddStringToObject(line, "op", hys_op_name(c->op));
	cJSON_AddStringToObject(line, "backend", info->backend);
	cJSON_AddStringToObject(line, "device", info->name);
	cJSON_AddNumberToObject(line, "seconds", seconds);
	cJSON_AddStringToObject(line, "output", run->arguments[2]);
	cJSON *ignored = cJSON_AddArrayToObject(line, "ignored");
	while ((name = next_ignored(c, &i)))
		cJSON_AddItemToArray(ignored, cJSON_CreateString(name));
	tool_json_line(line);
}

static void report(const struct run *run, const struct tool_case *c, const struct case_run *done,
		   const struct hys_device_info *info, double seconds)
{
	if (run->json) {
		report_json(run, c, info, seconds);
		return;
	}
	const char *name;
	int32_t next = 0;
	printf("%s on %s (%s): %s, first call and planning included\n", hys_op_name(c->op),
	       info->name, info->backend, tool_time(seconds));
	for (int32_t i = 0; i < done->output_count; i++) {
		const struct hys_tensor *t = &done->outputs[i].tensor;
		printf("  %-12s %-6s [", done->outputs[i].name, hys_dtype_name(t->dtype));
		for (int32_t d = 0; d < t->rank; d++)
			printf("%s%lld", d ? ", " : "", (long long)t->shape[d]);
		printf("]\n");
	}
	while ((name = next_ignored(c, &next)))
		printf("  ignored: %s\n", name);
	printf("written to %s\n", run->arguments[2]);
}

/* Under two names, too: the results would take the place of what they were made from. */
static bool same_file(const char *a, const char *b)
{
	struct stat of_a, of_b;
	return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
	       of_a.st_ino == of_b.st_ino && S_ISREG(of_a.st_mode);
}

static int run_on(const struct run *run, const struct tool_case *c, struct hys_context *context,
		  int32_t device)
{
	struct hys_device_info info;
	struct hys_error error;
	struct case_run done;
	if (hys_context_device_info(context, device, &info, &error) != HYS_OK)
		return tool_failed("device", &error);
	double start = tool_now();
	int result = case_execute(c, context, device, &done, &error) ? TOOL_OK : TOOL_USAGE;
	double seconds = tool_now() - start;
	if (result == TOOL_OK)
		result = write_outputs(run, c, &done);
	else
		tool_failed(run->arguments[1], &error);
	if (result == TOOL_OK)
		report(run, c, &done, &info, seconds);
	case_run_free(&done);
	return result;
}

/* What the library would refuse in its own words, or do at great length. */
static int check_case(const struct run *run, const struct tool_case *c)
{
	const char *path = run->arguments[1], *missing = case_missing(c);
	const int64_t block = c->problem.scoring.block > 0 ? c->problem.scoring.block : 1;
	const int64_t choices = (c->entries + block - 1) / block;
	if (missing)
		return tool_complain("%s: no tensor '%s', which %s reads", path, missing,
				     hys_op_name(c->op));
	if ((c->op == HYS_OP_POOL || c->op == HYS_OP_POOL_BACKWARD) &&
	    c->problem.scoring.pool <= 1 && c->problem.choosing.coarse_block == 0)
		return tool_complain("%s: how many rows to pool is not said: --set pool=4, or "
				     "--set coarse_block=64 --set blocks=true",
				     path);
	if (c->op == HYS_OP_SELECT && c->topk > choices)
		return tool_complain("%s: topk is %lld, expected at most the %lld that there are "
				     "to choose from",
				     path, (long long)c->topk, (long long)choices);
	return TOOL_OK;
}

static int run_command(int argc, char **argv)
{
	const struct argp argp = {options, parse, "OP IN OUT", doc, NULL, NULL, NULL};
	struct run run = {0};
	struct tool_case c;
	struct hys_context *context;
	int32_t *numbers, count;
	argp_parse(&argp, argc, argv, 0, NULL, &run);
	if (same_file(run.arguments[1], run.arguments[2]))
		return tool_complain("%s is both the input and the output, which would take its "
				     "place: name another OUT",
				     run.arguments[2]);
	if (case_load(&c, run.arguments[1], run.arguments[0], run.sets, run.set_count) != TOOL_OK)
		return TOOL_USAGE;
	int result = check_case(&run, &c);
	if (result == TOOL_OK)
		result = tool_open(run.device, &context, &numbers, &count);
	else
		numbers = NULL;
	if (result == TOOL_OK) {
		result = run_on(&run, &c, context, numbers[0]);
		free(numbers);
		hys_context_destroy(context);
	}
	case_free(&c);
	return result;
}

const struct tool_command tool_run = {"run", "run one operation on tensors of a file", run_command};
