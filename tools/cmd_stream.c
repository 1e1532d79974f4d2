/* cmd_stream.c - one layer over a long document, rows streamed in ranges: time and memory. */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

static const char doc[] =
	"Run one layer's select, attention forward, indexer loss and attention backward over a "
	"causal "
	"document of N tokens. Keys, their gradients and all indices stay on the device; rows come "
	"in ranges, whose operands are windows of random values that stay there, too. Times are "
	"sums over ranges of the clock around each operation.\v"
	"Examples:\n"
	"  hyscale stream --tokens 1048576 --dtype bf16\n"
	"  hyscale stream --tokens 1048576 --dtype bf16 --method coarse_to_fine \\\n"
	"      --ranges 16\n"
	"  hyscale stream --tokens 4096 --range 512 --topk 64 --heads 16 \\\n"
	"      --device openmp\n";

enum {
	KEY_TOKENS = 0x100,
	KEY_RANGE,
	KEY_RANGES,
	KEY_INDEX_HEADS,
	KEY_INDEX_DIM,
	KEY_TOPK,
	KEY_HEADS,
	KEY_KV_HEADS,
	KEY_HEAD_DIM,
	KEY_VALUE_DIM,
	KEY_COARSE_BLOCK,
	KEY_COARSE_KEEP,
	KEY_DTYPE,
	KEY_SELECT_DTYPE,
	KEY_METHOD,
	KEY_KERNELS
};

static const struct argp_option options[] = {
	{"tokens", KEY_TOKENS, "N", 0, "Rows and keys of the document (default 1048576)", 0},
	{"range", KEY_RANGE, "N", 0, "Rows of a range (default 4096)", 0},
	{"ranges", KEY_RANGES, "N", 0, "Run only N ranges, evenly spaced (default: all)", 0},
	{"model", 'm', "NAME", 0, "Start from a published model's shapes (default: dsv32)", 0},
	{"index-heads", KEY_INDEX_HEADS, "N", 0, "Index heads", 0},
	{"index-dim", KEY_INDEX_DIM, "N", 0, "Index dimension", 0},
	{"topk", KEY_TOPK, "N", 0, "Indices per row", 0},
	{"heads", KEY_HEADS, "N", 0, "Query heads", 0},
	{"kv-heads", KEY_KV_HEADS, "N", 0, "Key/value heads", 0},
	{"head-dim", KEY_HEAD_DIM, "N", 0, "Query-key dimension", 0},
	{"value-dim", KEY_VALUE_DIM, "N", 0, "Value dimension", 0},
	{"coarse-block", KEY_COARSE_BLOCK, "N", 0, "Entries per coarse block (default 128)", 0},
	{"coarse-keep", KEY_COARSE_KEEP, "N", 0, "Coarse blocks kept (default 64)", 0},
	{"dtype", KEY_DTYPE, "TYPE", 0, "f32 (default), f16 or bf16", 0},
	{"select-dtype", KEY_SELECT_DTYPE, "TYPE", 0,
	 "Of the selection's q and k, f8 too (default: as --dtype)", 0},
	{"method", KEY_METHOD, "NAME", 0, "exact (default) or coarse_to_fine", 0},
	{"device", 'd', "DEVICE", 0, "A backend, a device's name or number (default: the first)",
	 0},
	{"kernels", KEY_KERNELS, "NAMES", 0, "Force kernels by name, comma list", 0},
	{"json", 'j', 0, 0, "One JSON object a line", 0},
	{0},
};

static const struct {
	int key;
	size_t offset;
} problem_keys[] = {
	{KEY_INDEX_HEADS, offsetof(struct hys_problem, scoring.heads)},
	{KEY_INDEX_DIM, offsetof(struct hys_problem, scoring.dim)},
	{KEY_TOPK, offsetof(struct hys_problem, choosing.topk_max)},
	{KEY_COARSE_BLOCK, offsetof(struct hys_problem, choosing.coarse_block)},
	{KEY_COARSE_KEEP, offsetof(struct hys_problem, choosing.coarse_keep)},
	{KEY_HEADS, offsetof(struct hys_problem, attending.heads)},
	{KEY_KV_HEADS, offsetof(struct hys_problem, attending.kv_heads)},
	{KEY_HEAD_DIM, offsetof(struct hys_problem, attending.head_dim)},
	{KEY_VALUE_DIM, offsetof(struct hys_problem, attending.value_dim)},
};

static const char *const step_names[STREAM_STEPS] = {"select", "attention_forward", "indexer_loss",
						     "attention_backward"};

/* ---- options ---- */

static void set_number(int key, int64_t value, struct stream *stream)
{
	int64_t *sizes[] = {&stream->tokens, &stream->range, &stream->ranges};
	if (key <= KEY_RANGES)
		*sizes[key - KEY_TOKENS] = value;
	for (size_t i = 0; i < sizeof problem_keys / sizeof problem_keys[0]; i++) {
		int32_t small = (int32_t)value;
		if (key == problem_keys[i].key)
			memcpy((char *)&stream->problem + problem_keys[i].offset, &small,
			       sizeof small);
	}
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	static const char *const dtypes[] = {"f32", "f16", "bf16", "f8"};
	static const char *const methods[] = {"exact", "coarse", "coarse_to_fine"};
	struct stream *stream = state->input;
	switch (key) {
	case 'm':
		break; /* taken before the others, by first_pass() */
	case 'd':
		stream->device = argument;
		break;
	case 'j':
		stream->json = true;
		break;
	case KEY_KERNELS:
		stream->kernels = argument;
		break;
	case KEY_DTYPE:
		stream->dtype =
			(hys_dtype)(HYS_F32 + tool_choice(state, "--dtype", argument, dtypes, 3));
		break;
	case KEY_SELECT_DTYPE:
		stream->select_dtype = (hys_dtype)(HYS_F32 + tool_choice(state, "--select-dtype",
									 argument, dtypes, 4));
		break;
	case KEY_METHOD:
		stream->problem.choosing.method =
			(hys_method)(HYS_METHOD_EXACT +
				     tool_choice(state, "--method", argument, methods, 3));
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", argument);
		break;
	default:
		if (key < KEY_TOKENS || key > KEY_KERNELS)
			return ARGP_ERR_UNKNOWN;
		set_number(key, tool_number(state, options, key, argument, 1, INT32_MAX), stream);
	}
	return 0;
}

/* --model first: the other options change what it sets. */
static int first_pass(int argc, char **argv, struct stream *stream)
{
	struct hys_error error;
	stream->model = tool_model(argc, argv, "dsv32");
	stream->problem.struct_size = sizeof stream->problem;
	if (hys_problem_named(stream->model, &stream->problem, &error) != HYS_OK)
		return tool_failed("--model", &error);
	return TOOL_OK;
}

static int finish_problem(struct stream *stream)
{
	struct hys_problem *p = &stream->problem;
	struct hys_error error;
	if (!stream->dtype)
		stream->dtype = HYS_F32;
	if (!stream->select_dtype)
		stream->select_dtype = stream->dtype;
	p->scoring.dtype = stream->dtype;
	p->attending.dtype = stream->dtype;
	if (p->choosing.method > HYS_METHOD_EXACT && !p->choosing.coarse_block)
		p->choosing.coarse_block = 128;
	if (stream->range > stream->tokens)
		stream->range = stream->tokens;
	if (hys_problem_complete(p, &error) != HYS_OK)
		return tool_failed("shape", &error);
	if (p->scoring.pool > 1 || p->choosing.method == HYS_METHOD_COARSE)
		return tool_complain("pooled keys and the method coarse are not streamed");
	return TOOL_OK;
}

/* ---- reporting ---- */

static void print_json(const struct stream *stream, const struct hys_device_info *info,
		       const struct stream_result *result)
{
	static const char *const methods[] = {"default", "exact", "coarse", "coarse_to_fine"};
	double total = 0;
	cJSON *line = cJSON_CreateObject();
	cJSON_AddStringToObject(line, "device", info->name);
	cJSON_AddNumberToObject(line, "tokens", (double)stream->tokens);
	cJSON_AddNumberToObject(line, "rows", (double)result->rows);
	cJSON_AddNumberToObject(line, "range", (double)stream->range);
	cJSON_AddStringToObject(line, "method", methods[stream->problem.choosing.method]);
	cJSON_AddStringToObject(line, "dtype", hys_dtype_name(stream->dtype));
	cJSON_AddStringToObject(line, "select_dtype", hys_dtype_name(stream->select_dtype));
	for (int step = 0; step < STREAM_STEPS; step++) {
		cJSON *part = cJSON_AddObjectToObject(line, step_names[step]);
		cJSON_AddStringToObject(part, "kernel", result->kernels[step]);
		cJSON_AddNumberToObject(part, "seconds", result->seconds[step]);
		cJSON_AddNumberToObject(part, "useful_flops", result->flops[step]);
		total += result->seconds[step];
	}
	cJSON_AddNumberToObject(line, "seconds", total);
	cJSON_AddNumberToObject(line, "loss", result->loss);
	cJSON_AddNumberToObject(line, "peak_memory_bytes", (double)result->memory);
	tool_json_line(line);
}

static void print_row(const char *name, const char *kernel, double seconds, double flops,
		      int64_t rows)
{
	printf("%-20s  %-34s %10s  %14s  %10s\n", name, kernel, tool_time(seconds),
	       flops > 0 ? tool_rate(flops / seconds, "FLOP/s") : "",
	       tool_time(seconds / (double)rows));
}

static void print_table(const struct stream *stream, const struct hys_device_info *info,
			const struct stream_result *result)
{
	double total = 0;
	printf("%s: %lld of %lld rows, %lld at a time\n", info->name, (long long)result->rows,
	       (long long)stream->tokens, (long long)stream->range);
	printf("%-20s  %-34s %10s  %14s  %10s\n", "operation", "kernel", "time", "useful", "a row");
	for (int step = 0; step < STREAM_STEPS; step++) {
		print_row(step_names[step], result->kernels[step], result->seconds[step],
			  result->flops[step], result->rows);
		total += result->seconds[step];
	}
	print_row("all", "", total, 0, result->rows);
	printf("mean loss %.6g, peak memory %s\n", result->loss,
	       tool_bytes((double)result->memory));
}

static bool fits(const struct stream *stream, const struct hys_device_info *info)
{
	int64_t host, device = stream_needs(stream, &host);
	const int64_t left = tool_memory_left(info), host_left = tool_host_memory_left();
	if (info->kind == HYS_DEVICE_CPU)
		device += host;
	return (left == 0 || device <= left) && (host_left == 0 || host <= host_left);
}

/* The most tokens that fit, at least one range. */
static int64_t most_tokens(const struct stream *stream, const struct hys_device_info *info)
{
	struct stream less = *stream;
	int64_t most = 0, too_many = stream->tokens;
	while (most + 1 < too_many) {
		less.tokens = most + (too_many - most) / 2;
		*(fits(&less, info) ? &most : &too_many) = less.tokens;
	}
	return most < stream->range ? 0 : most;
}

/* Before anything is made: the system would grant it all, and kill a process once it is used. */
static int check_memory(const struct stream *stream, const struct hys_device_info *info)
{
	int64_t host, device = stream_needs(stream, &host), most;
	char advice[64] = "take a smaller --range or a --dtype of half the size";
	if (fits(stream, info))
		return TOOL_OK;
	most = most_tokens(stream, info);
	if (most > 0)
		snprintf(advice, sizeof advice, "at most --tokens %lld fits", (long long)most);
	return tool_complain("--tokens %lld needs %s on the device and %s of the host to make it, "
			     "%s has %s%s: %s (%s)",
			     (long long)stream->tokens, tool_bytes((double)device),
			     tool_bytes((double)host), info->name,
			     tool_bytes((double)tool_memory_left(info)),
			     info->kind == HYS_DEVICE_CPU ? " left" : "", advice,
			     hys_status_name(HYS_OUT_OF_MEMORY));
}

static int run(int argc, char **argv)
{
	const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
	struct stream stream = {.tokens = 1 << 20, .range = 4096};
	struct stream_result result;
	struct hys_context *context;
	struct hys_device_info info;
	struct hys_error error = {0};
	int32_t *numbers, count;
	int exit = first_pass(argc, argv, &stream);
	if (exit != TOOL_OK)
		return exit;
	argp_parse(&argp, argc, argv, 0, NULL, &stream);
	exit = finish_problem(&stream);
	if (exit == TOOL_OK)
		exit = tool_open(stream.device, &context, &numbers, &count);
	if (exit != TOOL_OK)
		return exit;
	if (hys_context_device_info(context, numbers[0], &info, &error) != HYS_OK) {
		exit = tool_failed("device", &error);
	} else if (check_memory(&stream, &info) != TOOL_OK) {
		exit = TOOL_USAGE;
	} else if (!stream_run(&stream, context, numbers[0], &result, &error)) {
		exit = tool_failed("stream", &error);
	} else {
		(stream.json ? print_json : print_table)(&stream, &info, &result);
		if (!result.finite)
			exit = TOOL_WRONG;
	}
	free(numbers);
	hys_context_destroy(context);
	return exit;
}

const struct tool_command tool_stream = {"stream", "run one layer over a long document", run};
