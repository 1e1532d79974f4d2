/* cmd_demo.c - the main job on layers of a real model. */
#include "demo.h"

#include <stdlib.h>
#include <string.h>

static const char doc[] =
	"Select, attend and learn on the layers of FILE, tensors q, k and v of a real "
	"model: what each step takes on each device, and how much of dense attention the "
	"selection keeps.\v"
	"FILE is a safetensors file with LAYER.q [tokens, heads, dim], LAYER.k and LAYER.v "
	"[tokens, kv heads, dim]; tools/python/extract_activations.py makes one. An "
	"untrained index made of the model's own q and k (mean over the heads of a group) "
	"serves as indexer.\n\n"
	"Examples:\n"
	"  hyscale demo tools/models/smollm2_layers.safetensors\n"
	"  hyscale demo --topk 512 -d opencl tools/models/smollm2_layers.safetensors\n";

static const struct argp_option options[] = {
	{"topk", 'k', "N", 0, "Indices per row and group (default 256)", 0},
	{"coarse-block", 'b', "N", 0, "Entries per coarse block (default 32)", 0},
	{"coarse-keep", 'c', "N", 0, "Coarse blocks kept (default 24)", 0},
	{"repeat", 'r', "N", 0, "Timed runs of each step (default 5)", 0},
	{"device", 'd', "DEVICE", 0, "A backend, a device's name or number, or all (default)", 0},
	{"json", 'j', 0, 0, "One JSON object a line", 0},
	{0},
};

struct demo {
	struct demo_options options;
	const char *device, *path;
	struct hys_context *context;
	int32_t number;
	bool first;
	const struct st_file *file;
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct demo *demo = state->input;
	struct demo_options *o = &demo->options;
	int32_t *const numbers[] = {&o->topk, &o->coarse_block, &o->coarse_keep, &o->repeat};
	const char *keys = "kbcr", *found = key > 0 && key < 128 ? strchr(keys, key) : NULL;
	if (found) {
		*numbers[found - keys] = (int32_t)tool_number(state, options, key, argument, 1,
							      key == 'r' ? 64 : 1 << 20);
	} else if (key == 'd') {
		demo->device = argument;
	} else if (key == 'j') {
		o->json = true;
	} else if (key == ARGP_KEY_ARG && !demo->path) {
		demo->path = argument;
	} else if (key == ARGP_KEY_ARG) {
		argp_error(state, "one file at a time, got '%s' too", argument);
	} else if (key == ARGP_KEY_END && !demo->path) {
		argp_error(state, "no file given");
	} else if (key != ARGP_KEY_END) {
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static int run_layer(void *user, const char *name)
{
	struct demo *demo = user;
	struct demo_layer layer;
	int result = demo_layer_load(&layer, demo->file, name, demo->path);
	if (result == TOOL_OK && demo->options.topk > layer.rows)
		result = tool_complain("--topk %d is more than the %d tokens of the file",
				       demo->options.topk, layer.rows);
	if (result == TOOL_OK)
		result = demo_run_layer(&layer, demo->context, demo->number, &demo->options,
					demo->first);
	demo->first = false;
	demo_layer_free(&layer);
	return result;
}

static void print_devices(struct hys_context *context)
{
	struct hys_device_info info;
	printf("Devices\n");
	for (int32_t i = 0; i < hys_context_device_count(context); i++)
		if (hys_context_device_info(context, i, &info, NULL) == HYS_OK)
			printf("  %d  %-7s %s, %d units, %s\n", i, info.backend, info.name,
			       info.compute_units, tool_bytes((double)info.memory_bytes));
	for (int32_t i = 0; i < hys_context_rejected_count(context); i++)
		if (hys_context_rejected(context, i, &info, NULL) == HYS_OK)
			printf("  -  %-7s %s not used: %s\n", info.backend, info.name, info.reason);
}

static void print_source(const struct demo *demo)
{
	const char *model = st_metadata(demo->file, "model"),
		   *text = st_metadata(demo->file, "text");
	printf("%s: %s on %s\n\n", demo->path, model ? model : "a model",
	       text ? text : "some text");
}

static int run_devices(struct demo *demo)
{
	int32_t *numbers, count;
	int result = tool_open(demo->device, &demo->context, &numbers, &count);
	if (result != TOOL_OK)
		return result;
	if (!demo->options.json) {
		print_source(demo);
		print_devices(demo->context);
	}
	for (int32_t i = 0; result == TOOL_OK && i < count; i++) {
		demo->number = numbers[i];
		demo->first = true;
		result = demo_each_layer(demo->file, run_layer, demo);
	}
	free(numbers);
	hys_context_destroy(demo->context);
	return result;
}

static int run(int argc, char **argv)
{
	const struct argp argp = {options, parse, "FILE", doc, NULL, NULL, NULL};
	struct demo demo = {
		.options = {.topk = 256, .coarse_block = 32, .coarse_keep = 24, .repeat = 5}};
	struct st_file file;
	char message[ST_MESSAGE];
	argp_parse(&argp, argc, argv, 0, NULL, &demo);
	if (!st_read(&file, demo.path, message))
		return tool_complain("%s: %s", demo.path, message);
	demo.file = &file;
	int result = run_devices(&demo);
	st_free(&file);
	return result;
}

const struct tool_command tool_demo = {"demo", "the main job on layers of a real model", run};
