/* cmd_tune.c - measure which kernels are the fastest for a model's shapes here, and keep it as wisdom. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

static const char doc[] =
	"Time every kernel that can run a published model's operations on the devices, say what "
	"each "
	"took, and add the fastest of each to a file of wisdom, which programs import before they "
	"plan "
	"(hys_wisdom_import). What the file knows of other devices and problems stays. It is "
	"written "
	"after each operation, so that what was found stays when the rest is interrupted.\v"
	"Examples:\n"
	"  hyscale tune --model dsv32 --wisdom wisdom.txt\n"
	"  hyscale tune --model nsa --dtype bf16 --tokens 65536 --device opencl \\\n"
	"      --wisdom wisdom.txt\n"
	"  hyscale tune --model msa --wisdom wisdom.txt \\\n"
	"      --operations attention_forward,attention_backward\n"
	"  hyscale bench attention_forward --model msa --rows 4096 --keys 32768 \\\n"
	"      --wisdom wisdom.txt\n";

static const struct argp_option options[] = {
	{"model", 'm', "NAME", 0, "dsv32, glm5, hyv4, msa, nsa, moba, qsa, dsv4-csa or smollm2", 0},
	{"wisdom", 'w', "FILE", 0, "Where wisdom is kept; made when it is not there", 0},
	{"tokens", 'n', "N", 0, "Tokens of a causal document (default 32768)", 0},
	{"rows", 'r', "R", 0, "Rows of a call (default 4096)", 0},
	{"dtype", 't', "TYPE", 0, "f32, f16 or bf16 (default: the model's)", 0},
	{"operations", 'o', "LIST", 0,
	 "Only these, as select,attention_forward (default: all that the model has)", 0},
	{"device", 'd', "DEVICE", 0, "A backend, a device's name or number (default: all)", 0},
	{"json", 'j', 0, 0, "One JSON object an operation", 0},
	{0},
};

struct tune {
	const char *model, *wisdom, *device;
	int64_t tokens, rows;
	hys_dtype dtype;
	uint32_t operations; /* HYS_OP_BIT of each; 0 = all */
	struct hys_context *context;
	double start;
	bool json;
};

static void parse_operations(struct tune *tune, const char *list, struct argp_state *state)
{
	for (const char *at = list; *at; at += *at == ',') {
		const size_t length = strcspn(at, ",");
		int op = 0;
		while (op < HYS_OP_COUNT && (strlen(hys_op_name((hys_op)op)) != length ||
					     memcmp(at, hys_op_name((hys_op)op), length) != 0))
			op++;
		if (op == HYS_OP_COUNT)
			argp_error(state, "--operations: unknown operation '%.*s'", (int)length,
				   at);
		tune->operations |= HYS_OP_BIT(op);
		at += length;
	}
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	static const char *const dtypes[] = {"f32", "f16", "bf16"};
	struct tune *tune = state->input;
	switch (key) {
	case 'm':
		tune->model = argument;
		break;
	case 'w':
		tune->wisdom = argument;
		break;
	case 'n':
		tune->tokens = tool_number(state, options, key, argument, 1, INT32_MAX);
		break;
	case 'r':
		tune->rows = tool_number(state, options, key, argument, 1, INT32_MAX);
		break;
	case 't':
		tune->dtype =
			(hys_dtype)(HYS_F32 + tool_choice(state, "--dtype", argument, dtypes, 3));
		break;
	case 'o':
		parse_operations(tune, argument, state);
		break;
	case 'j':
		tune->json = true;
		break;
	case 'd':
		tune->device = argument;
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", argument);
		break;
	case ARGP_KEY_END:
		if (!tune->model || !tune->wisdom)
			argp_error(state, "--model and --wisdom are needed");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static int find_problem(const struct tune *tune, struct hys_problem *problem)
{
	struct hys_error error;
	problem->struct_size = sizeof *problem;
	if (hys_problem_named(tune->model, problem, &error) != HYS_OK)
		return tool_failed("--model", &error);
	if (tune->dtype) {
		problem->scoring.dtype = tune->dtype;
		problem->attending.dtype = tune->dtype;
	}
	return TOOL_OK;
}

/* Before each operation: says which, and keeps what the one before has found. */
static int show_progress(void *user, int32_t step, int32_t steps, const char *what)
{
	const struct tune *tune = user;
	struct hys_error error;
	if (step > 0 && hys_wisdom_export(tune->context, tune->wisdom, &error) != HYS_OK)
		return tool_failed("wisdom", &error);
	if (step < steps)
		fprintf(stderr, "%s after %s: %d of %d, %s\n", tune->model,
			tool_time(tool_now() - tune->start), step + 1, steps, what);
	return 0;
}

static int print_json(const struct tune *tune, const struct hys_plan *plan, int32_t device)
{
	struct hys_device_info info;
	struct hys_error error;
	if (hys_context_device_info(tune->context, device, &info, &error) != HYS_OK)
		return tool_failed("device", &error);
	for (int op = 0; op < HYS_OP_COUNT; op++) {
		const char *kernel = hys_plan_kernel(plan, (hys_op)op, 0);
		cJSON *line;
		if (!kernel)
			continue;
		line = cJSON_CreateObject();
		cJSON_AddStringToObject(line, "model", tune->model);
		cJSON_AddStringToObject(line, "backend", info.backend);
		cJSON_AddStringToObject(line, "device", info.name);
		cJSON_AddStringToObject(line, "op", hys_op_name((hys_op)op));
		cJSON_AddStringToObject(line, "kernel", kernel);
		tool_json_line(line);
	}
	return TOOL_OK;
}

/* Measures on one device and says what was chosen. */
static int tune_device(struct tune *tune, int32_t device, const struct hys_problem *problem)
{
	struct hys_context *context = tune->context;
	const struct hys_plan_options wanted = {
		.struct_size = sizeof wanted,
		.operations = tune->operations,
		.flags = HYS_PLAN_BUFFERS_ONLY,
		.devices = &device,
		.device_count = 1,
		.rows_max = tune->rows < tune->tokens ? tune->rows : tune->tokens,
		.keys_max = tune->tokens,
		.effort = HYS_EFFORT_MEASURE,
		.progress = show_progress,
		.progress_user = tune};
	struct hys_plan *plan = NULL;
	struct hys_error error;
	if (hys_plan_create(context, problem, &wanted, &plan, &error) != HYS_OK)
		return tool_failed(tune->model, &error);
	int exit = tune->json ? print_json(tune, plan, device) : tool_describe(plan);
	hys_plan_destroy(plan);
	return exit;
}

static int run(int argc, char **argv)
{
	const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
	struct tune tune = {.tokens = 32768, .rows = 4096};
	struct hys_problem problem = {0};
	int32_t *numbers, count;
	tune.start = tool_now();
	argp_parse(&argp, argc, argv, 0, NULL, &tune);
	int exit = find_problem(&tune, &problem);
	if (exit == TOOL_OK)
		exit = tool_open(tune.device, &tune.context, &numbers, &count);
	if (exit != TOOL_OK)
		return exit;
	if (access(tune.wisdom, F_OK) == 0)
		exit = tool_wisdom(tune.context, tune.wisdom);
	if (exit == TOOL_OK)
		exit = tool_can_write_wisdom(tune.context, tune.wisdom);
	for (int32_t i = 0; exit == TOOL_OK && i < count; i++)
		exit = tune_device(&tune, numbers[i], &problem);
	free(numbers);
	hys_context_destroy(tune.context);
	return exit;
}

const struct tool_command tool_tune = {"tune", "find the fastest kernels here and keep them", run};
