/* cmd_plan.c - price a model's attention before a byte is allocated. */
#include "plan_ranks.h"
#include "plan_schedule.h"

#include <stdlib.h>
#include <string.h>

static const char doc[] =
	"Show what would run for a published model, how much memory and how many FLOPs it "
	"takes, and how long it is predicted to take, per layer. None of the tensors is made. "
	"Kernels that are new to a device are built and tested on small data, and several devices "
	"are measured to share rows by their speed, which takes a minute or two where kernels are "
	"compiled for a processor, and varies from run to run on a busy machine.\v"
	"Examples:\n"
	"  hyscale plan --model dsv32 --tokens 131072\n"
	"  hyscale plan --model msa --tokens 1048576 --rows 65536 --json\n"
	"  hyscale plan --model dsv32 --tokens 1048576 --schedule progressive \\\n"
	"      --layers 61 --devices openmp,opencl\n"
	"  hyscale plan --model dsv32 --tokens 16777216 --ranks 1024 --network 400,2\n";

enum { OPT_DEVICES = 256, OPT_RANKS, OPT_NETWORK, OPT_CUT, OPT_DOCUMENTS, OPT_RATE };

static const struct argp_option options[] = {
	{"model", 'm', "NAME", 0, "dsv32, glm5, hyv4, msa, nsa, moba, qsa, dsv4-csa or smollm2", 0},
	{"tokens", 'n', "N", 0, "Tokens of the one causal document (default 32768)", 0},
	{"rows", 'r', "R", 0, "Price its last R rows only, streamed against all keys", 0},
	{"device", 'd', "DEVICE", 0, "A backend, a device's name or number (default: the first)",
	 0},
	{"devices", OPT_DEVICES, "LIST", 0,
	 "Devices that share the rows, as openmp,opencl or 0,1 or all", 0},
	{"schedule", 's', "NAME", 0,
	 "Price the phases of a training run: progressive, exact or dense", 0},
	{"steps", 't', "N", 0, "Steps of that run (default 1000)", 0},
	{"layers", 'l', "N", 0, "Layers of the model (default 1)", 0},
	{"ranks", OPT_RANKS, "N", 0, "Price one step on so many ranks of a job", 0},
	{"network", OPT_NETWORK, "GBITS,US", 0,
	 "Gbit/s of each rank and microseconds a message (default 400,2)", 0},
	{"cut", OPT_CUT, "NAME", 0, "balanced (default), contiguous or zigzag", 0},
	{"documents", OPT_DOCUMENTS, "N", 0, "So many packed documents, lengths by Zipf's law", 0},
	{"rate", OPT_RATE, "OP=FLOPS[,NS]", 0,
	 "Useful FLOP/s of an operation on a rank, and nanoseconds of each row beside, as hyscale "
	 "bench or hyscale-ranks measured",
	 0},
	{"json", 'j', 0, 0, "One JSON object per operation, or rank", 0},
	{0},
};

struct plan_command {
	const char *model, *device;
	int64_t tokens, rows;
	struct plan_schedule schedule;
	struct plan_ranks ranks;
	bool json, several;
};

/* What is wrong, or would be ignored, is told before anything is planned. */
static void check_options(const struct plan_command *plan, struct argp_state *state)
{
	const struct plan_ranks *ranks = &plan->ranks;
	if (!plan->model)
		argp_error(state, "--model is needed");
	if (plan->rows > plan->tokens)
		argp_error(state, "--rows is %lld, expected at most the %lld of --tokens",
			   (long long)plan->rows, (long long)plan->tokens);
	if (plan->schedule.name && !plan_schedule_known(plan->schedule.name))
		argp_error(state,
			   "--schedule '%s' is not known; it is one of progressive, exact, dense",
			   plan->schedule.name);
	bool of_ranks = ranks->network || ranks->cut || ranks->documents;
	for (int op = 0; op < HYS_OP_COUNT; op++)
		of_ranks = of_ranks || ranks->rates[op] > 0;
	if (of_ranks && !ranks->ranks)
		argp_error(state,
			   "--network, --cut, --documents and --rate are of a job: --ranks is "
			   "needed");
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct plan_command *plan = state->input;
	switch (key) {
	case 'm':
		plan->model = argument;
		break;
	case 'n':
		plan->tokens = tool_number(state, options, key, argument, 1, INT32_MAX);
		break;
	case 'r':
		plan->rows = tool_number(state, options, key, argument, 1, INT32_MAX);
		break;
	case 'd':
		plan->device = argument;
		break;
	case OPT_DEVICES:
		plan->device = argument;
		plan->several = true;
		break;
	case 's':
		plan->schedule.name = argument;
		break;
	case 't':
		plan->schedule.steps = tool_number(state, options, key, argument, 1, INT32_MAX);
		break;
	case 'l':
		plan->schedule.layers = tool_number(state, options, key, argument, 1, 65536);
		break;
	case OPT_RANKS:
		plan->ranks.ranks = tool_number(state, options, key, argument, 1, 1 << 20);
		break;
	case OPT_DOCUMENTS:
		plan->ranks.documents =
			tool_number(state, options, key, argument, 1, INT32_MAX - 1);
		break;
	case OPT_NETWORK:
		plan->ranks.network = argument;
		break;
	case OPT_CUT:
		plan->ranks.cut = argument;
		break;
	case OPT_RATE:
		if (!plan_ranks_rate(&plan->ranks, argument))
			argp_error(state,
				   "'%s' is not OPERATION=FLOPS or OPERATION=FLOPS,NANOSECONDS",
				   argument);
		break;
	case 'j':
		plan->json = plan->schedule.json = plan->ranks.json = true;
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", argument);
		break;
	case ARGP_KEY_END:
		check_options(plan, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static void print_cost(const struct plan_command *command, const struct hys_plan *plan, hys_op op,
		       const struct hys_cost *cost)
{
	const char *kernel = hys_plan_kernel(plan, op, 0);
	if (!command->json) {
		printf("%-24s %-34s %12s %11s %11s %11s %10s\n", hys_op_name(op), kernel,
		       tool_rate(cost->flops, "FLOP"), tool_bytes((double)cost->tensor_bytes),
		       tool_bytes((double)cost->workspace_bytes),
		       tool_bytes((double)cost->peak_bytes), tool_time(cost->time_s));
		return;
	}
	cJSON *line = cJSON_CreateObject();
	cJSON_AddStringToObject(line, "model", command->model);
	cJSON_AddNumberToObject(line, "tokens", (double)command->tokens);
	cJSON_AddNumberToObject(line, "rows", (double)command->rows);
	cJSON_AddStringToObject(line, "op", hys_op_name(op));
	cJSON_AddStringToObject(line, "kernel", kernel);
	cJSON_AddNumberToObject(line, "useful_flops", cost->flops);
	cJSON_AddNumberToObject(line, "bytes", cost->bytes);
	cJSON_AddNumberToObject(line, "time_s", cost->time_s);
	cJSON_AddNumberToObject(line, "tensor_bytes", (double)cost->tensor_bytes);
	cJSON_AddNumberToObject(line, "workspace_bytes", (double)cost->workspace_bytes);
	cJSON_AddNumberToObject(line, "peak_bytes", (double)cost->peak_bytes);
	tool_json_line(line);
}

/* Says so when an operation takes more than there is, and what helps. */
static void print_lack(const struct hys_device_info *info, int64_t peak_bytes)
{
	struct hys_error lack;
	if (!tool_fits(peak_bytes, info,
		       "price fewer --rows, which are streamed against all keys, or share them by "
		       "--devices or --ranks",
		       &lack))
		printf("the largest %s\n", lack.message);
}

static int print_plan(const struct plan_command *command, const struct hys_plan *plan,
		      const struct hys_device_info *info)
{
	struct hys_error error;
	int64_t peak_bytes = 0;
	int result = command->json ? TOOL_OK : tool_describe(plan);
	if (!command->json)
		printf("\n%s, one layer, rows %lld of a causal document of %lld tokens, operands "
		       "on the %s\n"
		       "%-24s %-34s %12s %11s %11s %11s %10s\n",
		       command->model, (long long)command->rows, (long long)command->tokens,
		       hys_plan_device_count(plan) > 1 ? "host" : "device", "operation", "kernel",
		       "useful", "tensors", "workspace", "peak", "predicted");
	for (int op = 0; result == TOOL_OK && op < HYS_OP_COUNT; op++) {
		struct hys_cost cost;
		if (!hys_plan_kernel(plan, (hys_op)op, 0))
			continue;
		if (hys_plan_cost(plan, (hys_op)op, NULL, &cost, &error) != HYS_OK)
			return tool_failed(hys_op_name((hys_op)op), &error);
		print_cost(command, plan, (hys_op)op, &cost);
		peak_bytes = cost.peak_bytes > peak_bytes ? cost.peak_bytes : peak_bytes;
	}
	if (result == TOOL_OK && !command->json && hys_plan_device_count(plan) == 1)
		print_lack(info, peak_bytes);
	return result;
}

static int run(int argc, char **argv)
{
	const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
	struct plan_command command = {.tokens = 32768, .schedule = {.steps = 1000, .layers = 1}};
	struct hys_problem problem;
	struct hys_context *context;
	struct hys_plan *plan = NULL;
	struct hys_device_info info;
	struct hys_error error;
	int32_t *numbers, count;
	argp_parse(&argp, argc, argv, 0, NULL, &command);
	if (!command.rows)
		command.rows = command.tokens;
	if (!command.ranks.network)
		command.ranks.network = "400,2";
	if (!command.ranks.cut)
		command.ranks.cut = "balanced";
	command.schedule.rows = command.rows;
	command.schedule.tokens = command.tokens;
	if (hys_problem_named(command.model, &problem, &error) != HYS_OK)
		return tool_failed("--model", &error);
	if (command.schedule.name)
		plan_schedule_problem(&problem);
	int result = tool_open(command.device, &context, &numbers, &count);
	if (result != TOOL_OK)
		return result;
	if (command.ranks.ranks) {
		result = plan_ranks_print(&command.ranks, context, numbers[0], &problem,
					  command.tokens);
		free(numbers);
		hys_context_destroy(context);
		return result;
	}
	struct hys_plan_options plan_options = {.struct_size = sizeof plan_options,
						.devices = numbers,
						.device_count = command.several ? count : 1,
						.rows_max = command.rows,
						.keys_max = command.tokens,
						.progress = tool_plan_progress};
	/* Devices that share rows take tensors of the host. */
	if (plan_options.device_count == 1)
		plan_options.flags = HYS_PLAN_BUFFERS_ONLY;
	if (hys_plan_create(context, &problem, &plan_options, &plan, &error) == HYS_OK &&
	    hys_context_device_info(context, numbers[0], &info, &error) == HYS_OK) {
		result = print_plan(&command, plan, &info);
		if (result == TOOL_OK && command.schedule.name)
			result = plan_schedule_print(&command.schedule, plan);
	} else
		result = tool_failed("plan", &error);
	hys_plan_destroy(plan);
	free(numbers);
	hys_context_destroy(context);
	return result;
}

const struct tool_command tool_plan = {"plan", "what would run for a model, and what it costs",
				       run};
