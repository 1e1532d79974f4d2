/* cmd_devices.c - what there is to run on. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

static const char doc[] = "List the devices that can be used, why others are not, and where they "
			  "lie in the machine.\v"
			  "Examples:\n"
			  "  hyscale devices\n"
			  "  HYS_DISABLE=avx2 hyscale devices --json\n"
			  "  OCL_ICD_VENDORS=/nonexistent hyscale devices    # as without OpenCL\n";

static const struct argp_option options[] = {
	{"json", 'j', 0, 0, "One JSON object a line", 0},
	{0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
	bool *json = state->input;
	(void)argument;
	if (key == 'j')
		*json = true;
	else if (key == ARGP_KEY_ARG)
		argp_error(state, "no arguments are expected");
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

static const char *const kinds[] = {"cpu", "gpu", "accelerator"};

static void print_json(int32_t number, const struct hys_device_info *info)
{
	cJSON *line = cJSON_CreateObject();
	if (number >= 0)
		cJSON_AddNumberToObject(line, "device", number);
	cJSON_AddBoolToObject(line, "usable", number >= 0);
	cJSON_AddStringToObject(line, "backend", info->backend);
	cJSON_AddStringToObject(line, "name", info->name);
	cJSON_AddStringToObject(line, "vendor", info->vendor);
	cJSON_AddStringToObject(line, "driver", info->driver);
	cJSON_AddStringToObject(line, "id", info->id);
	cJSON_AddStringToObject(line, "kind", kinds[info->kind]);
	cJSON_AddNumberToObject(line, "compute_units", info->compute_units);
	cJSON_AddNumberToObject(line, "memory_bytes", (double)info->memory_bytes);
	cJSON_AddNumberToObject(line, "max_allocation_bytes", (double)info->max_allocation_bytes);
	cJSON_AddNumberToObject(line, "local_memory_bytes", (double)info->local_memory_bytes);
	cJSON_AddNumberToObject(line, "nominal_flops_per_s", info->nominal_flops_per_s);
	cJSON_AddNumberToObject(line, "numa_node", info->numa_node);
	cJSON_AddStringToObject(line, "cpus", info->cpus);
	cJSON_AddStringToObject(line, "capabilities", info->capabilities);
	cJSON_AddStringToObject(line, "reason", info->reason);
	tool_json_line(line);
}

static void print_device(int32_t number, const struct hys_device_info *info)
{
	const struct tool_colours *c = tool_colours();
	printf("%s%d  %-8s%s %s\n", c->bold, number, info->backend, c->off, info->name);
	printf("     driver        %s\n", info->driver[0] ? info->driver : "-");
	printf("     kind          %s, %d compute units, %s nominal\n", kinds[info->kind],
	       info->compute_units, tool_rate(info->nominal_flops_per_s, "FLOP/s"));
	printf("     memory        %s", tool_bytes((double)info->memory_bytes));
	if (info->local_memory_bytes > 0)
		printf(", %s local to a work-group", tool_bytes((double)info->local_memory_bytes));
	printf("\n     capabilities  %s\n", info->capabilities[0] ? info->capabilities : "-");
	if (info->numa_node >= 0)
		printf("     place         NUMA node %d, cpus %s\n", info->numa_node, info->cpus);
	else
		printf("     place         cpus %s\n", info->cpus[0] ? info->cpus : "unknown");
}

static void print_rejected(const struct hys_device_info *info)
{
	const struct tool_colours *c = tool_colours();
	printf("%s-  %-8s %s%s\n     not used      %s\n", c->dim, info->backend,
	       info->name[0] ? info->name : "(no device)", c->off, info->reason);
}

/* ---- the tree ---- */

static void print_leaf(int32_t number, const struct hys_device_info *info, bool last)
{
	printf("   %s %d  %s, %s%s%s%s%s\n", last ? "`-" : "|-", number, info->backend, info->name,
	       info->id[0] ? ", " : "", info->id, info->cpus[0] ? ", near cpus " : "", info->cpus);
}

/* The devices of a NUMA node; -1: those that are near no one node. */
static void print_node(const struct hys_device_info *infos, int32_t count, int32_t node)
{
	int32_t left = 0;
	for (int32_t i = 0; i < count; i++)
		left += infos[i].numa_node == node;
	if (left == 0)
		return;
	if (node >= 0)
		printf("|- NUMA node %d\n", node);
	else
		printf("|- of no one node, or unknown\n");
	for (int32_t i = 0; i < count; i++)
		if (infos[i].numa_node == node)
			print_leaf(i, &infos[i], --left == 0);
}

/* Where the devices lie; their host threads and staging memory are placed near them. */
static int print_tree(struct hys_context *context)
{
	const int32_t count = hys_context_device_count(context);
	struct hys_device_info *infos = calloc((size_t)count + 1, sizeof *infos);
	struct hys_error error;
	int32_t most = -1;
	int result = TOOL_OK;
	if (!infos)
		return tool_complain("no memory");
	for (int32_t i = 0; result == TOOL_OK && i < count; i++) {
		if (hys_context_device_info(context, i, &infos[i], &error) != HYS_OK)
			result = tool_failed("device", &error);
		most = infos[i].numa_node > most ? infos[i].numa_node : most;
	}
	if (result == TOOL_OK) {
		printf("\nmachine\n");
		for (int32_t node = 0; node <= most; node++)
			print_node(infos, count, node);
		print_node(infos, count, -1);
	}
	free(infos);
	return result;
}

static int list(struct hys_context *context, bool json)
{
	struct hys_error error;
	struct hys_device_info info;
	for (int32_t i = 0; i < hys_context_device_count(context); i++) {
		if (hys_context_device_info(context, i, &info, &error) != HYS_OK)
			return tool_failed("device", &error);
		if (json)
			print_json(i, &info);
		else
			print_device(i, &info);
	}
	for (int32_t i = 0; i < hys_context_rejected_count(context); i++) {
		if (hys_context_rejected(context, i, &info, &error) != HYS_OK)
			return tool_failed("device", &error);
		if (json)
			print_json(-1, &info);
		else
			print_rejected(&info);
	}
	return json ? TOOL_OK : print_tree(context);
}

static int run(int argc, char **argv)
{
	const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
	struct hys_context *context;
	int32_t *numbers, count;
	bool json = false;
	argp_parse(&argp, argc, argv, 0, NULL, &json);
	int result = tool_open(NULL, &context, &numbers, &count);
	if (result == TOOL_OK) {
		result = list(context, json);
		free(numbers);
		hys_context_destroy(context);
	}
	return result;
}

const struct tool_command tool_devices = {"devices", "list devices, and why others are not used",
					  run};
