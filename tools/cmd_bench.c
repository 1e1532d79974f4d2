/* cmd_bench.c - how fast an operation is on a device. */
#include "bench.h"
#include "bench_balance.h"
#include "bench_devices.h"
#include "bench_overlap.h"
#include "bench_quantize.h"
#include "bench_trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char doc[] =
	"Time operation OP: the median of several runs after warm-up, operands on the "
	"device. OP is select, topk (select by one head of one dimension: hardly more than "
	"the choice), attention_forward, attention_backward, indexer_loss, pool, "
	"dense_forward or dense_backward. Rows are the last ones of a causal document "
	"unless --mask full. Attention runs on K distinct visible rows chosen at random; "
	"the fraction is of the f32 multiply-add peak that is measured on the device in "
	"the same run. The caches of GPUs are flushed before each run. HYS_VERBOSE=1 shows "
	"registers, "
	"spills and local memory of NVIDIA's kernels, as the driver says when it builds what is "
	"not "
	"in its cache.\n"
	"OP may be balance, too: how evenly devices share rows of uneven cost, by number, by "
	"measured speed, by what its calls took, and piece by piece; on two halves of an OpenCL "
	"device, "
	"one of them slowed down, or on the devices that --device names. Or devices: select, and "
	"attention over what it picks, forward and backward, on one of the devices that --device "
	"names "
	"and on all of them, tensors resident: gain, imbalance, whether bits and results agree. Or "
	"overlap: selection of one "
	"micro-batch beside attention of another, on two execs, against one exec. Or quantize: f8 "
	"and scales made of index_q and index_k of --dtype, which an f8 selection takes ready. "
	"Default shapes "
	"are those of a GPU: on a processor attention, balance and overlap take minutes.\v"
	"Examples:\n"
	"  hyscale bench select --rows 512 --keys 8192 --index-heads 64 --topk 2048\n"
	"  hyscale bench dense_forward --rows 512 --keys 1024 --heads 16 \\\n"
	"      --head-dim 128 --value-dim 128 --repeat 3 --explain\n"
	"  hyscale bench attention_forward --model dsv32 --rows 256 --dtype bf16\n"
	"  hyscale bench select --model dsv32 --method coarse_to_fine --json\n"
	"  hyscale bench balance\n"
	"  hyscale bench balance --device all --dtype bf16\n"
	"  hyscale bench devices --device opencl --dtype bf16 --rows 32768 \\\n"
	"      --documents 8\n";

enum {
	KEY_INDEX_HEADS = 0x100,
	KEY_INDEX_DIM,
	KEY_TOPK,
	KEY_HEADS,
	KEY_KV_HEADS,
	KEY_HEAD_DIM,
	KEY_VALUE_DIM,
	KEY_GRANULARITY,
	KEY_WINDOW,
	KEY_COARSE_BLOCK,
	KEY_COARSE_KEEP,
	KEY_POOL,
	KEY_DTYPE,
	KEY_METHOD,
	KEY_MASK,
	KEY_GROUPS,
	KEY_SHARE,
	KEY_SPREAD,
	KEY_PAUSE,
	KEY_REPEAT,
	KEY_KERNELS,
	KEY_SPEEDS,
	KEY_DOCUMENTS,
	KEY_SPLIT,
	KEY_WEIGHTS,
	KEY_TWICE,
	KEY_SWEEP,
	KEY_TRACE,
	KEY_WISDOM,
	KEY_TUNE,
	KEY_ROWS,
	KEY_KEYS
};

static const struct argp_option options[] = {
	{"model", 'm', "NAME", 0, "Start from a published model's shapes", 0},
	{"rows", KEY_ROWS, "N", 0, "Query rows (default 512)", 0},
	{"keys", KEY_KEYS, "N", 0, "Key rows (default 8192)", 0},
	{"index-heads", KEY_INDEX_HEADS, "N", 0, "Index heads (default 64)", 0},
	{"index-dim", KEY_INDEX_DIM, "N", 0, "Index dimension (default 128)", 0},
	{"topk", KEY_TOPK, "N", 0, "Indices per row (default 2048)", 0},
	{"heads", KEY_HEADS, "N", 0, "Query heads (default 128)", 0},
	{"kv-heads", KEY_KV_HEADS, "N", 0, "Key/value heads (default 1)", 0},
	{"head-dim", KEY_HEAD_DIM, "N", 0, "Query-key dimension (default 576)", 0},
	{"value-dim", KEY_VALUE_DIM, "N", 0,
	 "Value dimension (default 512; v is shared when smaller than head-dim and there is one "
	 "key/value head)",
	 0},
	{"granularity", KEY_GRANULARITY, "N", 0, "Key rows per index (default 1)", 0},
	{"groups", KEY_GROUPS, "N", 0, "Groups of heads that choose for themselves (default 1)", 0},
	{"share", KEY_SHARE, "PERCENT", 0,
	 "Of a row's choices, how many the row before has made, too; of select's rows, how many "
	 "are "
	 "like the row before (default 0: at random)",
	 0},
	{"window", KEY_WINDOW, "N", 0, "Last rows that are always attended", 0},
	{"pool", KEY_POOL, "N", 0, "Key rows per entry (pool: default 4)", 0},
	{"coarse-block", KEY_COARSE_BLOCK, "N", 0,
	 "Entries per coarse block (coarse methods: default 128)", 0},
	{"coarse-keep", KEY_COARSE_KEEP, "N", 0, "Coarse blocks kept (default 64)", 0},
	{"dtype", KEY_DTYPE, "TYPE", 0, "f32 (default), f16, bf16, and for select f8", 0},
	{"method", KEY_METHOD, "NAME", 0, "exact (default), coarse or coarse_to_fine", 0},
	{"key-spread", KEY_SPREAD, "SIGMA", 0,
	 "Select: norms of keys are log-normal, in tenths, alike for 64 of them (default 0)", 0},
	{"weights", KEY_WEIGHTS, "NAME", 0,
	 "Select: weights of heads are both (default: of both signs) or positive", 0},
	{"mask", KEY_MASK, "NAME", 0, "causal (default) or full", 0},
	{"device", 'd', "DEVICE", 0,
	 "A backend, a device's name or number, or all (default: the first)", 0},
	{"kernels", KEY_KERNELS, "NAMES", 0, "Force kernels by name, comma list", 0},
	{"wisdom", KEY_WISDOM, "FILE", 0, "Take what was measured before: `hyscale tune`, --tune",
	 0},
	{"tune", KEY_TUNE, "FILE", 0,
	 "Measure which kernel is the fastest for this, take it, and add it to a file of wisdom",
	 0},
	{"documents", KEY_DOCUMENTS, "N", 0,
	 "devices: so many packed documents of Zipf lengths (default: one)", 0},
	{"split", KEY_SPLIT, "NAME", 0, "devices: static (default), equal or guided", 0},
	{"trace", KEY_TRACE, "FILE", 0,
	 "Write when copies and kernels ran, in Chrome's trace format (not balance, devices)", 0},
	{"sweep", KEY_SWEEP, 0, 0,
	 "devices: --rows and a quarter of them, each as one document and as --documents", 0},
	{"twice", KEY_TWICE, 0, 0,
	 "devices, balance: every device twice, as if there were another: what sharing costs", 0},
	{"speeds", KEY_SPEEDS, "A:B", 0, "balance: 1:1, 1:2 or 1:4 alone (default: all three)", 0},
	{"repeat", KEY_REPEAT, "N", 0,
	 "Timed runs (default 20; balance: so many times as many, default 1)", 0},
	{"pause", KEY_PAUSE, "MS", 0,
	 "Rest so long before each run, so that a GPU's power limit does not slow it (default 0)",
	 0},
	{"json", 'j', 0, 0, "One JSON object a line", 0},
	{"explain", 'x', 0, 0, "Print what bounds the operation, and how near it came", 0},
	{0},
};

static const struct {
	int key;
	size_t offset;
} problem_keys[] = {
	{KEY_INDEX_HEADS, offsetof(struct hys_problem, scoring.heads)},
	{KEY_INDEX_DIM, offsetof(struct hys_problem, scoring.dim)},
	{KEY_GROUPS, offsetof(struct hys_problem, scoring.groups)},
	{KEY_POOL, offsetof(struct hys_problem, scoring.pool)},
	{KEY_TOPK, offsetof(struct hys_problem, choosing.topk_max)},
	{KEY_COARSE_BLOCK, offsetof(struct hys_problem, choosing.coarse_block)},
	{KEY_COARSE_KEEP, offsetof(struct hys_problem, choosing.coarse_keep)},
	{KEY_HEADS, offsetof(struct hys_problem, attending.heads)},
	{KEY_KV_HEADS, offsetof(struct hys_problem, attending.kv_heads)},
	{KEY_HEAD_DIM, offsetof(struct hys_problem, attending.head_dim)},
	{KEY_VALUE_DIM, offsetof(struct hys_problem, attending.value_dim)},
	{KEY_GRANULARITY, offsetof(struct hys_problem, attending.granularity)},
	{KEY_WINDOW, offsetof(struct hys_problem, attending.window)},
};

static const struct {
	const char *name;
	hys_op op;
	bool dense;
} bench_ops[] = {
	{"select", HYS_OP_SELECT, false},
	{"topk", HYS_OP_SELECT, false},
	{"attention_forward", HYS_OP_ATTENTION_FORWARD, false},
	{"attention_backward", HYS_OP_ATTENTION_BACKWARD, false},
	{"indexer_loss", HYS_OP_INDEXER_LOSS, false},
	{"pool", HYS_OP_POOL, false},
	{"dense_forward", HYS_OP_ATTENTION_FORWARD, true},
	{"dense_backward", HYS_OP_ATTENTION_BACKWARD, true},
};
#define BENCH_OPS ((int)(sizeof bench_ops / sizeof bench_ops[0]))

static void set_number(int key, int64_t value, struct bench *bench)
{
	int64_t *sizes[] = {&bench->rows,	&bench->keys,	   &bench->repeat,  &bench->share,
			    &bench->key_spread, &bench->documents, &bench->pause_ms};
	int keys[] = {KEY_ROWS,	  KEY_KEYS,	 KEY_REPEAT, KEY_SHARE,
		      KEY_SPREAD, KEY_DOCUMENTS, KEY_PAUSE};
	for (int i = 0; i < 7; i++)
		if (key == keys[i])
			*sizes[i] = value;
	bench->rows_given = bench->rows_given || key == KEY_ROWS;
	bench->repeat_given = bench->repeat_given || key == KEY_REPEAT;
	for (size_t i = 0; i < sizeof problem_keys / sizeof problem_keys[0]; i++) {
		int32_t small = (int32_t)value;
		if (key == problem_keys[i].key)
			memcpy((char *)&bench->problem + problem_keys[i].offset, &small,
			       sizeof small);
	}
}

/* What is 0 unless it is given may be given as 0. */
static int64_t least_number(int key)
{
	return key == KEY_SHARE || key == KEY_SPREAD || key == KEY_PAUSE ? 0 : 1;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	static const char *const dtypes[] = {"f32", "f16", "bf16", "f8"};
	static const char *const methods[] = {"default", "exact", "coarse", "coarse_to_fine"};
	static const char *const splits[] = {"static", "equal", "guided"};
	static const char *const masks[] = {"causal", "full"};
	static const char *const weights[] = {"both", "positive"};
	struct bench *bench = state->input;
	switch (key) {
	case 'm':
		break; /* taken before the others, by first_pass() */
	case 'd':
		bench->device = argument;
		break;
	case 'j':
		bench->json = true;
		break;
	case 'x':
		bench->explain = true;
		break;
	case KEY_KERNELS:
		bench->kernels = argument;
		break;
	case KEY_TRACE:
		bench->trace = argument;
		break;
	case KEY_TUNE:
		bench->tune = true;
		/* fall through */
	case KEY_WISDOM:
		bench->wisdom = argument;
		break;
	case KEY_TWICE:
		bench->twice = true;
		break;
	case KEY_SWEEP:
		bench->sweep = true;
		break;
	case KEY_SPLIT:
		bench->split = tool_choice(state, "--split", argument, splits, 3);
		break;
	case KEY_SPEEDS:
		bench->speeds = argument;
		if (strcmp(argument, "1:1") != 0 && strcmp(argument, "1:2") != 0 &&
		    strcmp(argument, "1:4") != 0)
			argp_error(state, "--speeds '%s' is unknown; it is one of 1:1, 1:2, 1:4",
				   argument);
		break;
	case KEY_DTYPE:
		bench->dtype =
			(hys_dtype)(HYS_F32 + tool_choice(state, "--dtype", argument, dtypes, 4));
		break;
	case KEY_METHOD:
		bench->problem.choosing.method =
			(hys_method)tool_choice(state, "--method", argument, methods, 4);
		break;
	case KEY_MASK:
		bench->full = tool_choice(state, "--mask", argument, masks, 2) == 1;
		break;
	case KEY_WEIGHTS:
		bench->positive_weights =
			tool_choice(state, "--weights", argument, weights, 2) == 1;
		break;
	case ARGP_KEY_ARG:
		if (bench->op)
			argp_error(state, "one operation at a time, got '%s' too", argument);
		bench->op = argument;
		break;
	case ARGP_KEY_END:
		if (!bench->op)
			argp_error(state, "no operation given");
		break;
	default:
		if (key < KEY_INDEX_HEADS || key > KEY_KEYS)
			return ARGP_ERR_UNKNOWN;
		set_number(key,
			   tool_number(state, options, key, argument, least_number(key), INT32_MAX),
			   bench);
	}
	return 0;
}

/* --model first: the other options change what it sets. */
static int first_pass(int argc, char **argv, struct bench *bench)
{
	struct hys_error error;
	bench->model = tool_model(argc, argv, bench->model);
	bench->problem.struct_size = sizeof bench->problem;
	if (bench->model && hys_problem_named(bench->model, &bench->problem, &error) != HYS_OK)
		return tool_failed("--model", &error);
	if (!bench->model) {
		bench->problem.scoring = (struct hys_scoring){.heads = 64, .dim = 128};
		bench->problem.choosing.topk_max = 2048;
		bench->problem.attending = (struct hys_attending){
			.heads = 128, .kv_heads = 1, .head_dim = 576, .value_dim = 512};
	}
	return TOOL_OK;
}

/* What the operation does not use is left out, and types follow --dtype. */
static int finish_problem(struct bench *bench, int which)
{
	struct hys_problem *p = &bench->problem;
	struct hys_error error;
	hys_op op = bench_ops[which].op;
	bool coarse = p->choosing.method > HYS_METHOD_EXACT;
	if (strcmp(bench->op, "topk") == 0) {
		p->scoring.heads = p->scoring.dim = 1;
		p->scoring.activation = HYS_ACTIVATION_NONE;
	}
	if (bench->dtype) {
		p->scoring.dtype = bench->dtype;
		p->attending.dtype = bench->dtype;
	}
	if (op == HYS_OP_SELECT || op == HYS_OP_POOL)
		p->attending = (struct hys_attending){0};
	if (op == HYS_OP_POOL && !p->scoring.pool)
		p->scoring.pool = 4;
	if (op == HYS_OP_ATTENTION_FORWARD || op == HYS_OP_ATTENTION_BACKWARD)
		p->scoring = (struct hys_scoring){.groups = p->scoring.groups,
						  .block = p->scoring.block,
						  .pool = p->scoring.pool};
	if (coarse && !p->choosing.coarse_block)
		p->choosing.coarse_block = 128;
	if (bench_ops[which].dense)
		p->attending.flags |= HYS_ATTENDING_DENSE;
	if (hys_problem_complete(p, &error) != HYS_OK)
		return tool_failed("shape", &error);
	bench->topk = p->choosing.topk_max;
	return TOOL_OK;
}

/* ---- one run ---- */

/* Unless it is 0. */
static void rest(int64_t ms)
{
	const struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
	if (ms > 0)
		nanosleep(&time, NULL);
}

bool bench_time(const struct bench *b, struct bench_data *d, bool flush,
		hys_status (*call)(void *what), void *what, struct bench_timing *timing)
{
	const int64_t warm_up = b->repeat < 3 ? b->repeat : 3;
	double *times = calloc((size_t)b->repeat, sizeof *times);
	bool ok = times;
	for (int64_t i = -warm_up; ok && i < b->repeat; i++) {
		tool_progress(i + warm_up, b->repeat + warm_up, i < 0 ? "warming up" : "timing");
		if (flush)
			bench_flush(d);
		rest(b->pause_ms);
		double start = tool_now();
		ok = !d->failed && call(what) == HYS_OK;
		start = tool_now() - start;
		if (i == -warm_up)
			timing->first = start;
		if (i >= 0)
			times[i] = start;
	}
	tool_progress(1, 1, "");
	if (ok) {
		timing->median = tool_median(times, (int)b->repeat);
		timing->min = times[0];
		timing->max = times[b->repeat - 1];
	}
	free(times);
	return ok;
}

/* ---- driver ---- */

static hys_op planned_op(const struct bench *b, hys_op op)
{
	if (op != HYS_OP_SELECT)
		return op;
	return b->problem.choosing.method == HYS_METHOD_COARSE ? HYS_OP_SELECT_COARSE
	       : b->problem.choosing.method == HYS_METHOD_COARSE_TO_FINE
		       ? HYS_OP_SELECT_COARSE_TO_FINE
		       : HYS_OP_SELECT;
}

/* Rows of one call: pooling counts those that it makes. */
static int64_t call_rows(const struct bench *b, hys_op op)
{
	return op == HYS_OP_POOL ? b->keys / b->problem.scoring.pool : b->rows;
}

static bool make_plan(const struct bench *b, struct hys_context *context, int32_t device, hys_op op,
		      struct hys_plan **plan, struct hys_error *error)
{
	struct hys_plan_options wanted = {.struct_size = sizeof wanted,
					  .operations = HYS_OP_BIT(planned_op(b, op)),
					  .flags = HYS_PLAN_BUFFERS_ONLY,
					  .devices = &device,
					  .device_count = 1,
					  .rows_max = call_rows(b, op),
					  .keys_max = b->keys,
					  .kernels = b->kernels,
					  .effort = b->tune ? HYS_EFFORT_MEASURE
							    : HYS_EFFORT_ESTIMATE,
					  .progress = tool_plan_progress};
	if (op == HYS_OP_ATTENTION_BACKWARD)
		wanted.operations |= HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD);
	return hys_plan_create(context, &b->problem, &wanted, plan, error) == HYS_OK &&
	       (!b->tune || hys_wisdom_export(context, b->wisdom, error) == HYS_OK);
}

/* On a processor that others use too the peak of one moment may be far from that
 * of the next: it is measured before and after, and the higher one counts. */
static void measure_again(struct hys_device_speed *peak)
{
	struct hys_context_options wanted = {.struct_size = sizeof wanted, .devices = "openmp"};
	struct hys_device_speed again;
	struct hys_context *context = NULL;
	if (hys_context_create(&wanted, &context, NULL) == HYS_OK &&
	    hys_context_measure(context, 0, &again, NULL) == HYS_OK) {
		peak->flops_per_s = fmax(peak->flops_per_s, again.flops_per_s);
		peak->bytes_per_s = fmax(peak->bytes_per_s, again.bytes_per_s);
	}
	hys_context_destroy(context);
}

/* Exact select scores nothing for rows that see no more than they keep: that is no work. */
static void leave_out_unscored(const struct bench *b, struct bench_result *result)
{
	const struct hys_scoring *s = &b->problem.scoring;
	int64_t entries = 0;
	for (int64_t t = 0; t < b->rows; t++) {
		const int64_t keys = b->full ? b->keys : b->keys - b->rows + t + 1;
		const int64_t seen = keys > 0 ? keys / s->pool : 0;
		if (seen > b->topk * s->block)
			continue;
		result->unscored++;
		entries += seen;
	}
	result->cost.flops -= 2.0 * s->heads * s->dim * (double)entries;
}

struct op_call {
	hys_op op;
	struct bench_data *data;
	struct hys_batch *batch;
	union arguments args;
};

static hys_status call_op(void *what)
{
	struct op_call *c = what;
	return bench_call(c->op, c->data->exec, c->batch, &c->args, &c->data->error);
}

static bool measure(const struct bench *b, hys_op op, struct hys_plan *plan,
		    struct hys_batch *batch, struct bench_data *data, struct bench_result *result)
{
	struct op_call c = {.op = op, .data = data, .batch = batch};
	int64_t workspace = 0;
	if (hys_context_measure(data->context, data->device, &result->peak, &data->error) !=
		    HYS_OK ||
	    hys_plan_cost(plan, planned_op(b, op), batch, &result->cost, &data->error) != HYS_OK ||
	    hys_plan_workspace(plan, planned_op(b, op), call_rows(b, op), 0, &workspace,
			       &data->error) != HYS_OK ||
	    !bench_operands(data, b, op, batch, &c.args) ||
	    !bench_time(b, data, result->info.kind != HYS_DEVICE_CPU, call_op, &c, &result->timing))
		return false;
	if (planned_op(b, op) == HYS_OP_SELECT)
		leave_out_unscored(b, result);
	/* On a CPU the process is what counts, elsewhere what was put on the device. */
	result->memory =
		result->info.kind == HYS_DEVICE_CPU ? tool_peak_memory() : data->bytes + workspace;
	if (result->info.kind == HYS_DEVICE_CPU && strcmp(result->info.backend, "openmp") == 0)
		measure_again(&result->peak);
	return true;
}

/* What the plan says that it takes, before a batch or a tensor is made. */
static bool check_memory(const struct bench *b, const struct hys_plan *plan, hys_op op,
			 const struct hys_device_info *info, struct hys_error *error)
{
	struct hys_cost cost;
	return hys_plan_cost(plan, planned_op(b, op), NULL, &cost, error) == HYS_OK &&
	       tool_fits(cost.peak_bytes, info,
			 "take fewer --rows or --keys, or a --dtype of half the size", error);
}

static int bench_device(const struct bench *b, struct hys_context *context, int32_t device,
			int which, bool first)
{
	hys_op op = bench_ops[which].op;
	bool indexer = op == HYS_OP_SELECT || op == HYS_OP_POOL || op == HYS_OP_INDEXER_LOSS;
	struct bench_result result = {.dtype = indexer ? b->problem.scoring.dtype
						       : b->problem.attending.dtype};
	struct bench_data data = {.context = context, .device = device, .seed = 1};
	struct hys_batch_desc desc = {.struct_size = sizeof desc,
				      .rows = b->rows,
				      .keys = b->keys,
				      .flags = b->full ? 0 : HYS_BATCH_CAUSAL};
	const struct hys_exec_options traced = {.struct_size = sizeof traced,
						.flags = b->trace ? HYS_EXEC_TRACE : 0};
	const double start = tool_now();
	struct hys_plan *plan = NULL;
	struct hys_batch *batch = NULL;
	bool ok = hys_context_device_info(context, device, &result.info, &data.error) == HYS_OK &&
		  make_plan(b, context, device, op, &plan, &data.error) &&
		  check_memory(b, plan, op, &result.info, &data.error) &&
		  hys_batch_create(plan, &desc, &batch, &data.error) == HYS_OK &&
		  hys_exec_create(plan, &traced, &data.exec, &data.error) == HYS_OK;
	result.before = (struct bench_first){.context = b->context_s, .plan = tool_now() - start};
	ok = ok && measure(b, op, plan, batch, &data, &result);
	result.before.call = result.timing.first;
	if (ok) {
		result.kernel = hys_plan_kernel(plan, planned_op(b, op), 0);
		bench_report(b, op, &result, first);
	}
	struct bench_trace trace = {0};
	if (ok && b->trace)
		ok = bench_trace_add(&trace, data.exec, b->op, 0, &data.error);
	int exit = ok ? TOOL_OK : tool_failed(b->op, &data.error);
	if (ok && b->trace)
		exit = bench_trace_write(&trace, b->trace);
	hys_exec_destroy(data.exec);
	hys_batch_destroy(batch);
	bench_data_free(&data);
	hys_plan_destroy(plan);
	return exit;
}

static int run(int argc, char **argv)
{
	const struct argp argp = {options, parse, "OP", doc, NULL, NULL, NULL};
	struct bench bench = {.rows = 512, .keys = 8192, .repeat = 20};
	struct hys_context *context;
	int32_t *numbers, count;
	int which = 0, result = first_pass(argc, argv, &bench);
	if (result != TOOL_OK)
		return result;
	argp_parse(&argp, argc, argv, 0, NULL, &bench);
	if (strcmp(bench.op, "balance") == 0)
		return bench_balance(&bench);
	if (strcmp(bench.op, "overlap") == 0)
		return bench_overlap(&bench);
	if (strcmp(bench.op, "devices") == 0)
		return bench_devices(&bench);
	if (strcmp(bench.op, "quantize") == 0)
		return bench_quantize(&bench);
	while (which < BENCH_OPS && strcmp(bench.op, bench_ops[which].name) != 0)
		which++;
	if (which == BENCH_OPS)
		return tool_complain("unknown operation '%s'; --help lists them", bench.op);
	result = finish_problem(&bench, which);
	bench.context_s = tool_now();
	if (result == TOOL_OK)
		result = tool_open(bench.device, &context, &numbers, &count);
	if (result != TOOL_OK)
		return result;
	bench.context_s = tool_now() - bench.context_s;
	if (!bench.tune || access(bench.wisdom, F_OK) == 0)
		result = tool_wisdom(context, bench.wisdom);
	if (result == TOOL_OK && bench.tune)
		result = tool_can_write_wisdom(context, bench.wisdom);
	const bool ready = result == TOOL_OK;
	for (int32_t i = 0; ready && i < count && (i == 0 || bench.device); i++) {
		int one = bench_device(&bench, context, numbers[i], which, i == 0);
		result = one != TOOL_OK ? one : result;
	}
	free(numbers);
	hys_context_destroy(context);
	return result;
}

const struct tool_command tool_bench = {"bench", "time an operation and compare with the peak",
					run};
