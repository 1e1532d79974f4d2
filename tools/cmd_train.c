/* cmd_train.c - learn what to select, from the attention of a real model. */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char doc[] =
	"Train an indexer for each layer of DATA.safetensors against that layer's attention: dense "
	"loss first, then the loss over what the indexer itself selects. The file holds "
	"LAYER.hidden, "
	"LAYER.q, LAYER.k and cu_seqlens, as tools/python/extract_activations.py --hidden writes "
	"them; its last documents are held out.\v"
	"OUT is a checkpoint and the result: LAYER.index_q, .index_k, .index_w, .index_b in "
	"safetensors.\n\nExamples:\n"
	"  hyscale train-indexer smollm2.safetensors --out indexer.safetensors \\\n"
	"      --plot training.png\n"
	"  hyscale train-indexer smollm2.safetensors --out indexer.safetensors \\\n"
	"      --resume\n"
	"  hyscale train-indexer smollm2.safetensors --out exact.safetensors \\\n"
	"      --schedule exact --beside indexer.safetensors --plot both.png\n";

enum {
	OPT_HEADS = 256,
	OPT_DIM,
	OPT_BLOCK,
	OPT_KEEP,
	OPT_HELD,
	OPT_CONTEXT,
	OPT_SEED,
	OPT_RATE,
	OPT_DECAY,
	OPT_CLIP,
	OPT_EVAL,
	OPT_SAVE,
	OPT_STOP,
	OPT_PLOT,
	OPT_BESIDE,
	OPT_RESUME,
	OPT_ROWS,
	OPT_END,
	OPT_FLOOR
};

static const struct argp_option options[] = {
	{"out", 'o', "FILE", 0, "Checkpoint and result (needed)", 0},
	{"resume", OPT_RESUME, 0, 0,
	 "Go on from the checkpoint OUT, to the same bits; with the options that it was made with",
	 0},
	{"steps", 's', "N", 0, "Steps, one document each (default 300)", 0},
	{"warmup", 'w', "N", 0, "Of which with the dense loss (default a third)", 0},
	{"loss-rows", OPT_ROWS, "N", 0, "One row in N enters the dense loss (default 4)", 0},
	{"topk", 'k', "K", 0, "Entries that a row keeps (default 256)", 0},
	{"topk-end", OPT_END, "K", 0, "Towards which K goes over the sparse steps (default --topk)",
	 0},
	{"recall-floor", OPT_FLOOR, "X", 0,
	 "K of a layer goes down only while it captures this share of what the best K capture, and "
	 "up again below it; seen on held-out text every --eval steps (default: not looked at)",
	 0},
	{"schedule", 'S', "NAME", 0,
	 "progressive: coarse, then coarse to fine with exact key steps; or exact (default "
	 "progressive)",
	 0},
	{"index-heads", OPT_HEADS, "N", 0, "Heads of the indexer (default 4 for each key head)", 0},
	{"index-dim", OPT_DIM, "N", 0, "Their dimension, a multiple of 4 (default 64)", 0},
	{"coarse-block", OPT_BLOCK, "N", 0, "Entries of a coarse block (default 32)", 0},
	{"coarse-keep", OPT_KEEP, "N", 0, "Coarse blocks kept before the fine pass (default 16)",
	 0},
	{"held-out", OPT_HELD, "N", 0, "Documents held out (default a fifth)", 0},
	{"context", OPT_CONTEXT, "N", 0, "Tokens of a document without cu_seqlens (default 2048)",
	 0},
	{"rate", OPT_RATE, "X", 0, "Highest learning rate (default 0.002)", 0},
	{"decay", OPT_DECAY, "X", 0, "Weight decay (default 0.01)", 0},
	{"clip", OPT_CLIP, "X", 0, "Largest norm of a layer's gradient (default 1)", 0},
	{"seed", OPT_SEED, "N", 0, "Of the first weights (default 1)", 0},
	{"eval", OPT_EVAL, "N", 0, "Steps between looks at held-out text (default 25)", 0},
	{"save", OPT_SAVE, "N", 0, "Steps between checkpoints (default 25)", 0},
	{"stop-after", OPT_STOP, "N", 0, "Stop after N steps of this call, to --resume later", 0},
	{"plot", OPT_PLOT, "FILE.png", 0, "Draw loss and recall with gnuplot", 0},
	{"beside", OPT_BESIDE, "FILE", 0, "Another run's checkpoint, shown beside this one", 0},
	{"device", 'd', "DEVICE", 0, "A backend, a device's name or number (default: the first)",
	 0},
	{"json", 'j', 0, 0, "One JSON object per look at held-out text and per layer", 0},
	{0},
};

/* Options that are whole numbers. */
static const struct number {
	int key;
	size_t offset;
	int64_t least, most;
	const char *name;
} numbers[] = {
#define NUMBER(key, field, least, most, name)                                 \
	{                                                                     \
		key, offsetof(struct train_options, field), least, most, name \
	}
	NUMBER('s', steps, 1, INT32_MAX, "steps"),
	NUMBER('w', warmup_steps, 0, INT32_MAX, "warmup"),
	NUMBER(OPT_ROWS, loss_rows, 1, 65536, "loss-rows"),
	NUMBER('k', topk, 1, INT32_MAX, "topk"),
	NUMBER(OPT_END, topk_end, 1, INT32_MAX, "topk-end"),
	NUMBER(OPT_HEADS, index_heads, 1, 4096, "index-heads"),
	NUMBER(OPT_DIM, index_dim, 4, 4096, "index-dim"),
	NUMBER(OPT_BLOCK, coarse_block, 1, INT32_MAX, "coarse-block"),
	NUMBER(OPT_KEEP, coarse_keep, 1, INT32_MAX, "coarse-keep"),
	NUMBER(OPT_HELD, held_out, 1, INT32_MAX, "held-out"),
	NUMBER(OPT_CONTEXT, context, 2, INT32_MAX, "context"),
	NUMBER(OPT_SEED, seed, 0, INT32_MAX, "seed"),
	NUMBER(OPT_EVAL, eval_period, 1, INT32_MAX, "eval"),
	NUMBER(OPT_SAVE, save_period, 1, INT32_MAX, "save"),
	NUMBER(OPT_STOP, stop_after, 1, INT32_MAX, "stop-after"),
#undef NUMBER
};

static void parse_real(struct argp_state *state, const char *name, const char *text, double *value)
{
	char *end;
	*value = strtod(text, &end);
	if (end == text || *end || !(*value >= 0 && *value <= 1e6))
		argp_error(state, "--%s is '%s', expected a number from 0 to 1e6", name, text);
}

static bool parse_number(int key, const char *text, struct argp_state *state,
			 struct train_options *train)
{
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		const struct number *n = &numbers[i];
		if (n->key != key)
			continue;
		if (!tool_integer(text, n->least, n->most,
				  (int64_t *)(void *)((char *)train + n->offset)))
			argp_error(state, "--%s is '%s', expected a whole number from %lld to %lld",
				   n->name, text, (long long)n->least, (long long)n->most);
		return true;
	}
	return false;
}

static void check_whole(struct train_options *train, struct argp_state *state)
{
	if (!train->data)
		argp_error(state, "a file of activations is needed");
	if (!train->out)
		argp_error(state, "--out is needed");
	if (train->warmup_steps < 0)
		train->warmup_steps = train->steps / 3;
	if (train->warmup_steps > train->steps)
		argp_error(state, "--warmup is %lld, expected at most the %lld steps",
			   (long long)train->warmup_steps, (long long)train->steps);
	if (train->topk_end == 0)
		train->topk_end = train->topk;
	if (train->topk_end > train->topk)
		argp_error(state, "--topk-end is %lld, expected at most --topk, %lld",
			   (long long)train->topk_end, (long long)train->topk);
	if (train->recall_floor > 1)
		argp_error(state, "--recall-floor is %g, expected a share up to 1",
			   train->recall_floor);
	if (train->index_dim % 4 != 0)
		argp_error(state, "--index-dim is %lld, expected a multiple of 4",
			   (long long)train->index_dim);
	if (strcmp(train->schedule, "progressive") != 0 && strcmp(train->schedule, "exact") != 0)
		argp_error(state, "--schedule is '%s', expected progressive or exact",
			   train->schedule);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct train_options *train = state->input;
	switch (key) {
	case 'o':
		train->out = argument;
		break;
	case 'S':
		train->schedule = argument;
		break;
	case 'd':
		train->device = argument;
		break;
	case 'j':
		train->json = true;
		break;
	case OPT_RESUME:
		train->resume = true;
		break;
	case OPT_PLOT:
		train->plot = argument;
		break;
	case OPT_BESIDE:
		train->beside = argument;
		break;
	case OPT_RATE:
		parse_real(state, "rate", argument, &train->rate);
		break;
	case OPT_DECAY:
		parse_real(state, "decay", argument, &train->decay);
		break;
	case OPT_FLOOR:
		parse_real(state, "recall-floor", argument, &train->recall_floor);
		break;
	case OPT_CLIP:
		parse_real(state, "clip", argument, &train->clip);
		break;
	case ARGP_KEY_ARG:
		if (train->data)
			argp_error(state, "unexpected argument '%s'", argument);
		train->data = argument;
		break;
	case ARGP_KEY_END:
		check_whole(train, state);
		break;
	default:
		return parse_number(key, argument, state, train) ? 0 : ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* ---- results ---- */

static void print_layer(const struct train_options *train, const char *name, double topk,
			const struct train_shares *shares)
{
	if (!train->json) {
		printf("%-12s %7.0f %9.4f %9.4f %9.4f %9.4f %9.4f %10.4f\n", name, topk,
		       shares->oracle, shares->trained, shares->untrained, shares->window,
		       shares->random, shares->trained / shares->oracle);
		return;
	}
	cJSON *line = cJSON_CreateObject();
	cJSON_AddStringToObject(line, "layer", name);
	cJSON_AddNumberToObject(line, "topk", topk);
	cJSON_AddNumberToObject(line, "oracle", shares->oracle);
	cJSON_AddNumberToObject(line, "trained", shares->trained);
	cJSON_AddNumberToObject(line, "untrained", shares->untrained);
	cJSON_AddNumberToObject(line, "window", shares->window);
	cJSON_AddNumberToObject(line, "random", shares->random);
	cJSON_AddNumberToObject(line, "trained_of_oracle", shares->trained / shares->oracle);
	tool_json_line(line);
}

static int print_shares(struct train_run *run)
{
	const struct train_options *train = run->options;
	struct train_shares mean = {0};
	const double layers = run->data.layer_count;
	double topk = 0;
	if (!train->json)
		printf("\nShare of dense attention that K keys capture, on held-out rows that see "
		       "more\n%-12s %7s %9s %9s %9s %9s %9s %10s\n",
		       "layer", "K", "oracle", "trained", "untrained", "window", "random",
		       "of oracle");
	for (int l = 0; l < run->data.layer_count; l++) {
		struct train_shares shares;
		const int32_t keys = train_topk(run, l, train->steps - 1);
		tool_progress(l, run->data.layer_count, "looking at held-out text");
		int result = train_all_shares(run, l, keys, &shares);
		tool_progress(run->data.layer_count, run->data.layer_count, "");
		if (result != TOOL_OK)
			return result;
		print_layer(train, run->data.layers[l].name, keys, &shares);
		topk += keys / layers;
		mean.oracle += shares.oracle / layers;
		mean.trained += shares.trained / layers;
		mean.untrained += shares.untrained / layers;
		mean.window += shares.window / layers;
		mean.random += shares.random / layers;
	}
	print_layer(train, "mean", topk, &mean);
	return TOOL_OK;
}

static void print_run(const struct train_options *train, const struct train_curve *curve)
{
	const struct train_log *last = curve->steps ? &curve->log[curve->steps - 1] : NULL;
	double recall = -1;
	for (int64_t s = 0; s < curve->steps; s++)
		if (curve->log[s].field[3] >= 0)
			recall = curve->log[s].field[3];
	if (!last || train->json)
		return;
	printf("%-28.28s %8lld %10.4f %8.4f %16s %16s\n", curve->name, (long long)curve->steps,
	       last->field[2], recall, tool_rate(last->field[4], "FLOP"),
	       tool_rate(last->field[5], "FLOP"));
}

static int show_results(struct train_run *run)
{
	const struct train_options *train = run->options;
	struct train_curve curves[2] = {{train->out, run->log, run->step}};
	struct train_log *other = NULL;
	int count = 1, result = TOOL_OK;
	if (train->beside) {
		result = train_load_log(train->beside, &other, &curves[1].steps);
		curves[1].name = train->beside;
		curves[1].log = other;
		count = 2;
	}
	if (result == TOOL_OK && !train->json)
		printf("\n%-28s %8s %10s %8s %16s %16s\n", "run", "steps", "last loss", "recall",
		       "selection", "all work");
	for (int i = 0; result == TOOL_OK && i < count; i++)
		print_run(train, &curves[i]);
	if (result == TOOL_OK && train->plot)
		result = train_plot(curves, count, train->plot);
	free(other);
	return result;
}

static int train(struct train_run *run, const struct train_options *train)
{
	int result = train_run_open(run, train);
	if (result != TOOL_OK)
		return result;
	if (run->data.dropped && !train->json)
		printf("%d documents without a second token are left out\n", run->data.dropped);
	result = train_run_steps(run);
	if (result == TOOL_OK && run->step == train->steps)
		result = print_shares(run);
	if (result == TOOL_OK && run->step < train->steps && !train->json)
		printf("stopped after step %lld of %lld; --resume goes on\n", (long long)run->step,
		       (long long)train->steps);
	return result == TOOL_OK ? show_results(run) : result;
}

static int run(int argc, char **argv)
{
	const struct argp argp = {options, parse, "DATA.safetensors", doc, NULL, NULL, NULL};
	struct train_options train_options = {.schedule = "progressive",
					      .steps = 300,
					      .warmup_steps = -1,
					      .loss_rows = 4,
					      .topk = 256,
					      .index_dim = 64,
					      .coarse_block = 32,
					      .coarse_keep = 16,
					      .context = 2048,
					      .rate = 0.002,
					      .decay = 0.01,
					      .clip = 1,
					      .seed = 1,
					      .eval_period = 25,
					      .save_period = 25};
	argp_parse(&argp, argc, argv, 0, NULL, &train_options);
	if (!train_options.resume && access(train_options.out, F_OK) == 0)
		return tool_complain("%s is there already; --resume goes on from it, another --out "
				     "starts anew",
				     train_options.out);
	if (train_options.plot && !train_can_plot())
		return tool_complain("--plot needs gnuplot; install gnuplot-nox, or leave it out");
	struct train_run *state = calloc(1, sizeof *state);
	if (!state)
		return tool_complain("out of memory");
	int result = train(state, &train_options);
	train_run_close(state);
	free(state);
	return result;
}

const struct tool_command tool_train = {"train-indexer",
					"learn what to select from a model's attention", run};
