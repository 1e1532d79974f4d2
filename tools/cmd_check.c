/* cmd_check.c - judge the library by other implementations' results. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

static const char doc[] =
	"Run each case FILE on every device and compare with its expected tensors.\v"
	"A case file is a safetensors file. Its metadata, all strings: 'format', "
	"hyscale-case-1; 'op', an operation of 'hyscale run --help'; 'problem', a JSON "
	"object of the keys listed there, such as {\"topk\":8}, or {}. Its tensors: the "
	"operation's inputs under the names of its arguments in "
	"include/hyscale/operations.h (for select index_q, index_k, index_w and so on), "
	"the results of the other implementation as expect.NAME (expect.indices, or "
	"expect.o and expect.lse), and what says which rows see which keys: row_begin and "
	"row_end, or cu_seqlens_q and cu_seqlens_k, else one causal document. A key or a "
	"tensor that the operation does not know is an error.\n\n"
	"Examples:\n"
	"  hyscale check tests/cases/*.safetensors\n"
	"  hyscale check --device openmp --json my_layer.safetensors\n"
	"\nExit status: 0 only when every case passes on every device.\n";

static const struct argp_option options[] = {
	{"device", 'd', "DEVICE", 0, "A backend, a device's name or number, or all (default)", 0},
	{"json", 'j', 0, 0, "One JSON object a line", 0},
	{0},
};

struct check {
	const char *device;
	bool json;
	char **files;
	int file_count;
	int name_width;
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct check *check = state->input;
	switch (key) {
	case 'd':
		check->device = argument;
		break;
	case 'j':
		check->json = true;
		break;
	case ARGP_KEY_ARGS:
		check->files = state->argv + state->next;
		check->file_count = state->argc - state->next;
		break;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no case file given");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static void print_where(const struct case_verdict *verdict)
{
	if (verdict->rank == 0)
		return;
	printf("      %s [", verdict->what);
	for (int32_t d = 0; d < verdict->rank; d++)
		printf("%s%lld", d ? ", " : "", (long long)verdict->at[d]);
	printf("]: expected %.9g, got %.9g\n", verdict->expected, verdict->got);
}

static void report(const struct check *check, const char *path, const struct hys_device_info *info,
		   const char *kernel, const struct case_verdict *verdict, const char *message)
{
	const struct tool_colours *c = tool_colours();
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	if (check->json) {
		cJSON *line = cJSON_CreateObject();
		cJSON_AddStringToObject(line, "case", name);
		cJSON_AddStringToObject(line, "device", info->name);
		cJSON_AddStringToObject(line, "backend", info->backend);
		cJSON_AddStringToObject(line, "kernel", kernel);
		cJSON_AddBoolToObject(line, "pass", verdict->pass);
		cJSON_AddNumberToObject(line, "worst_error", verdict->worst);
		cJSON_AddNumberToObject(line, "tolerance", verdict->tolerance);
		cJSON_AddStringToObject(line, "worst_tensor", verdict->what);
		if (verdict->rank > 0) {
			cJSON *at = cJSON_AddArrayToObject(line, "at");
			for (int32_t d = 0; d < verdict->rank; d++)
				cJSON_AddItemToArray(at,
						     cJSON_CreateNumber((double)verdict->at[d]));
			cJSON_AddNumberToObject(line, "expected", verdict->expected);
			cJSON_AddNumberToObject(line, "got", verdict->got);
		}
		if (message[0])
			cJSON_AddStringToObject(line, "message", message);
		tool_json_line(line);
		return;
	}
	printf("%s%s%s  %-*s  %-6s  %-26s", verdict->pass ? c->good : c->bad,
	       verdict->pass ? "PASS" : "FAIL", c->off, check->name_width, name, info->backend,
	       kernel);
	if (message[0])
		printf("  %s\n", message);
	else
		printf("  %-9s  error %.1e  tolerance %.1e\n", verdict->what, verdict->worst,
		       verdict->tolerance);
	print_where(verdict);
	fflush(stdout);
}

/* One case on one device; answers whether it passed. */
static bool check_on(const struct check *check, const struct tool_case *c, const char *path,
		     struct hys_context *context, int32_t device)
{
	struct hys_device_info info;
	struct hys_error error;
	struct case_run run;
	struct case_verdict verdict = {0};
	char message[300] = "";
	const char *kernel = "-";
	if (hys_context_device_info(context, device, &info, &error) != HYS_OK)
		return tool_failed("device", &error) == TOOL_OK;
	if (case_execute(c, context, device, &run, &error))
		verdict = case_compare(c, &run);
	else
		snprintf(message, sizeof message, "%s: %s", hys_status_name(error.status),
			 error.message);
	for (int op = 0; run.plan && op < HYS_OP_COUNT; op++)
		if (hys_plan_kernel(run.plan, (hys_op)op, 0))
			kernel = hys_plan_kernel(run.plan, (hys_op)op, 0);
	report(check, path, &info, kernel, &verdict, message);
	case_run_free(&run);
	return verdict.pass;
}

static void measure_names(struct check *check)
{
	for (int i = 0; i < check->file_count; i++) {
		const char *slash = strrchr(check->files[i], '/');
		int width = (int)strlen(slash ? slash + 1 : check->files[i]);
		check->name_width = width > check->name_width ? width : check->name_width;
	}
}

static int check_all(const struct check *check, struct hys_context *context, const int32_t *numbers,
		     int32_t count)
{
	int passed = 0, failed = 0, unreadable = 0;
	for (int i = 0; i < check->file_count; i++) {
		struct tool_case c;
		if (case_load(&c, check->files[i], NULL, NULL, 0) != TOOL_OK) {
			unreadable++;
			continue;
		}
		for (int32_t d = 0; d < count; d++) {
			if (check_on(check, &c, check->files[i], context, numbers[d]))
				passed++;
			else
				failed++;
		}
		case_free(&c);
	}
	if (!check->json)
		printf("%d passed, %d failed\n", passed, failed + unreadable);
	return unreadable ? TOOL_USAGE : failed ? TOOL_WRONG : TOOL_OK;
}

static int run(int argc, char **argv)
{
	const struct argp argp = {options, parse, "FILE...", doc, NULL, NULL, NULL};
	struct check check = {0};
	struct hys_context *context;
	int32_t *numbers, count;
	argp_parse(&argp, argc, argv, 0, NULL, &check);
	int result = tool_open(check.device, &context, &numbers, &count);
	if (result != TOOL_OK)
		return result;
	measure_names(&check);
	result = check_all(&check, context, numbers, count);
	free(numbers);
	hys_context_destroy(context);
	return result;
}

const struct tool_command tool_check = {"check", "compare with results of other implementations",
					run};
