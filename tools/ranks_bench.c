/* ranks_bench.c - hyscale-ranks: a step of one layer on the ranks of a job, beside the same on one. */
#include "ranks_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char doc[] =
	"Time a step of one layer on all ranks of a job, started by mpirun: select, attention "
	"forward and backward. Each rank takes a device of its own (the rank's number on its "
	"host), "
	"keys travel through page-locked host memory. With --alone the first rank does the whole "
	"step by itself before.\v"
	"Examples:\n"
	"  mpirun -n 2 hyscale-ranks --tokens 131072 --dtype bf16 --alone --trace\n"
	"  mpirun -n 2 hyscale-ranks --device openmp --tokens 2048 --documents 20\n";

enum {
	KEY_INDEX = 0x100,
	KEY_DOCUMENTS,
	KEY_CUT,
	KEY_MODE,
	KEY_SLICES,
	KEY_REPEAT,
	KEY_ALONE,
	KEY_TRACE,
	KEY_METHOD,
	KEY_DTYPE,
	KEY_TOPK,
	KEY_FORWARD,
	KEY_PROBE
};

static const struct argp_option argp_options[] = {
	{"model", 'm', "NAME", 0, "A published model's shapes (default dsv32)", 0},
	{"tokens", 'n', "N", 0, "Tokens of all ranks together (default 32768)", 0},
	{"documents", KEY_DOCUMENTS, "N", 0, "So many packed documents, lengths by Zipf's law", 0},
	{"device", 'd', "NAME", 0, "opencl (default) or openmp", 0},
	{"dtype", KEY_DTYPE, "TYPE", 0, "Of keys and queries: f32, f16 or bf16 (default)", 0},
	{"index-dtype", KEY_INDEX, "TYPE", 0, "Of the indexer: f32, f16, bf16 (default) or f8", 0},
	{"method", KEY_METHOD, "NAME", 0, "exact (default), coarse or coarse_to_fine", 0},
	{"topk", KEY_TOPK, "N", 0, "Indices per row (default: the model's)", 0},
	{"cut", KEY_CUT, "NAME", 0, "balanced (default), contiguous or zigzag", 0},
	{"mode", KEY_MODE, "NAME", 0, "gather (default) or ring", 0},
	{"slices", KEY_SLICES, "N", 0, "Slices of gathered keys (default 8)", 0},
	{"repeat", KEY_REPEAT, "N", 0, "Timed steps (default 3)", 0},
	{"forward-only", KEY_FORWARD, 0, 0, "No backward pass", 0},
	{"probe", KEY_PROBE, "N", 0,
	 "Measure each rank on a document of N tokens, with --documents on N in several, too, and "
	 "predict "
	 "the step from that",
	 0},
	{"alone", KEY_ALONE, 0, 0, "Time the first rank alone, too", 0},
	{"trace", KEY_TRACE, 0, 0, "Print what each rank did in the last step", 0},
	{0},
};

static error_t parse_number(int key, const char *argument, struct ranks_options *o)
{
	int64_t *const numbers[] = {&o->tokens, &o->documents, &o->slices,
				    &o->repeat, &o->topk,      &o->probe};
	const int keys[] = {'n', KEY_DOCUMENTS, KEY_SLICES, KEY_REPEAT, KEY_TOPK, KEY_PROBE};
	for (int i = 0; i < 6; i++)
		if (keys[i] == key)
			return tool_integer(argument, 1, key == KEY_SLICES ? 1024 : INT32_MAX,
					    numbers[i])
				       ? 0
				       : EINVAL;
	return ARGP_ERR_UNKNOWN;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	static const char *const dtypes[] = {"f32", "f16", "bf16", "f8"};
	static const char *const methods[] = {"exact", "coarse", "coarse_to_fine"};
	struct ranks_options *o = state->input;
	error_t number;
	switch (key) {
	case 'm':
		o->model = argument;
		break;
	case 'd':
		o->device = argument;
		break;
	case KEY_DTYPE:
		o->dtype =
			(hys_dtype)(HYS_F32 + tool_choice(state, "--dtype", argument, dtypes, 3));
		break;
	case KEY_INDEX:
		o->index_dtype = (hys_dtype)(HYS_F32 + tool_choice(state, "--index-dtype", argument,
								   dtypes, 4));
		break;
	case KEY_METHOD:
		o->method = (hys_method)(HYS_METHOD_EXACT +
					 tool_choice(state, "--method", argument, methods, 3));
		break;
	case KEY_CUT:
		o->way = argument;
		break;
	case KEY_MODE:
		o->mode = argument;
		break;
	case KEY_ALONE:
		o->alone = true;
		break;
	case KEY_TRACE:
		o->trace = true;
		break;
	case KEY_FORWARD:
		o->no_backward = true;
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", argument);
		break;
	default:
		number = argument ? parse_number(key, argument, o) : ARGP_ERR_UNKNOWN;
		if (number == EINVAL)
			argp_error(state, "'%s' is not a number from 1 on", argument);
		return number;
	}
	return 0;
}

/* ---- the step ---- */

enum { SELECT, FORWARD, BACKWARD, STEP = RANKS_OPS, TIMES };
static const char *const time_names[TIMES] = {"select", "attention_forward", "attention_backward",
					      "whole step"};

struct bench_run {
	const struct ranks_options *options;
	struct ranks_device *device;
	MPI_Comm comm;
	struct hys_plan *plan, *copies;
	struct hys_exec *exec, *copying;
	struct ranks_data data;
	struct ranks_step step;
	struct hys_cp *cp;
	struct hys_cp_batch *batch; /* on ranks */
	struct hys_batch *whole;    /* alone */
	struct ranks_trace trace;
	double seconds[TIMES], fastest[TIMES];
	struct hys_error error;
};

static bool ok(struct bench_run *run, hys_status status)
{
	return status == HYS_OK && !run->data.failed;
}

static hys_op select_op(const struct ranks_options *options)
{
	return options->method == HYS_METHOD_COARSE	      ? HYS_OP_SELECT_COARSE
	       : options->method == HYS_METHOD_COARSE_TO_FINE ? HYS_OP_SELECT_COARSE_TO_FINE
							      : HYS_OP_SELECT;
}

static bool make_plans(struct bench_run *run, int64_t rows)
{
	const struct ranks_options *o = run->options;
	const struct hys_exec_options async = {
		.struct_size = sizeof async, .flags = run->device->on_device ? 0 : HYS_EXEC_ASYNC};
	struct hys_plan_options wanted = {
		.struct_size = sizeof wanted,
		.operations = HYS_OP_BIT(select_op(o)) | HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD),
		.flags = run->device->on_device ? HYS_PLAN_BUFFERS_ONLY : 0,
		.devices = &run->device->number,
		.device_count = 1,
		.rows_max = rows > 0 ? rows : 1,
		.keys_max = o->tokens};
	if (!o->no_backward)
		wanted.operations |= HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD);
	if (!ok(run, hys_plan_create(run->device->context, &o->problem, &wanted, &run->plan,
				     &run->error)))
		return false;
	/* Copies of keys go on beside the kernels, on a queue of their own. */
	wanted.operations = HYS_OP_BIT(HYS_OP_MERGE);
	wanted.rows_max = wanted.keys_max = 1;
	return ok(run, hys_plan_create(run->device->context, &o->problem, &wanted, &run->copies,
				       &run->error)) &&
	       ok(run, hys_exec_create(run->plan, &async, &run->exec, &run->error)) &&
	       ok(run, hys_exec_create(run->copies, &async, &run->copying, &run->error));
}

static hys_status step_alone(struct bench_run *run, double *at)
{
	struct ranks_step *s = &run->step;
	hys_status status = hys_select(run->exec, run->whole, &s->select, &run->error);
	if (status == HYS_OK)
		status = hys_exec_finish(run->exec, &run->error);
	at[SELECT + 1] = MPI_Wtime();
	if (status == HYS_OK)
		status = hys_attention_forward(run->exec, run->whole, &s->forward, &run->error);
	if (status == HYS_OK)
		status = hys_exec_finish(run->exec, &run->error);
	at[FORWARD + 1] = MPI_Wtime();
	if (status == HYS_OK && !run->options->no_backward)
		status = hys_attention_backward(run->exec, run->whole, &s->backward, &run->error);
	if (status == HYS_OK)
		status = hys_exec_finish(run->exec, &run->error);
	at[BACKWARD + 1] = MPI_Wtime();
	return status;
}

static hys_status step_on_ranks(struct bench_run *run, double *at)
{
	struct ranks_step s = run->step;
	const bool ring = strcmp(run->options->mode, "ring") == 0;
	enum { INDEX, SCALES, KEYS, VALUES, COUNT };
	struct hys_tensor *const tensors[COUNT] = {&s.select.index_k, &s.select.index_k_scale,
						   &s.forward.k, &s.forward.v};
	struct hys_cp_keys *keys[COUNT] = {NULL};
	hys_status status = HYS_OK;
	/* What the indexer reads sets out first; keys travel while it scores, on a queue of
	 * their own. */
	for (int i = 0; i < COUNT && status == HYS_OK && !ring; i++)
		if (tensors[i]->dtype)
			status = hys_cp_gather(run->batch, i < KEYS ? run->exec : run->copying,
					       i < KEYS ? HYS_CUT_ENTRIES : HYS_CUT_KEYS,
					       tensors[i], &keys[i], &run->error);
	for (int i = 0; i < COUNT; i++)
		if (keys[i])
			*tensors[i] = hys_cp_keys_tensor(keys[i]);
	s.backward.k = s.forward.k;
	s.backward.v = s.forward.v;
	if (status == HYS_OK)
		status = hys_cp_select(run->batch, run->exec, &s.select, &run->error);
	at[SELECT + 1] = MPI_Wtime();
	if (status == HYS_OK)
		status = hys_cp_attention_forward(run->batch, run->exec, &s.forward, &run->error);
	at[FORWARD + 1] = MPI_Wtime();
	if (status == HYS_OK && !run->options->no_backward)
		status = hys_cp_attention_backward(run->batch, run->exec, &s.backward, &run->error);
	at[BACKWARD + 1] = MPI_Wtime();
	for (int i = 0; i < COUNT; i++)
		hys_cp_keys_destroy(keys[i]);
	return status;
}

/* Medians of the slowest rank's times. */
static bool time_steps(struct bench_run *run, hys_status (*step)(struct bench_run *run, double *at))
{
	const int64_t repeat = run->options->repeat;
	double *times = calloc((size_t)repeat * TIMES, sizeof *times);
	bool fine = times;
	for (int64_t i = -1; fine && i < repeat; i++) {
		double at[STEP + 1], own[TIMES], all[TIMES];
		MPI_Barrier(run->comm);
		run->trace.count = 0;
		run->trace.zero_s = at[0] = MPI_Wtime();
		fine = step(run, at) == HYS_OK;
		for (int t = 0; t < STEP; t++)
			own[t] = at[t + 1] - at[t];
		own[STEP] = at[STEP] - at[0];
		MPI_Allreduce(own, all, TIMES, MPI_DOUBLE, MPI_MAX, run->comm);
		for (int t = 0; i >= 0 && t < TIMES; t++)
			times[t * repeat + i] = all[t];
	}
	for (int t = 0; fine && t < TIMES; t++) {
		run->seconds[t] = tool_median(times + t * repeat, (int)repeat);
		run->fastest[t] = times[t * repeat]; /* sorted by now */
	}
	free(times);
	return fine;
}

static void close_run(struct bench_run *run)
{
	hys_exec_destroy(run->exec);
	hys_exec_destroy(run->copying);
	hys_batch_destroy(run->whole);
	hys_cp_batch_destroy(run->batch);
	hys_cp_destroy(run->cp);
	ranks_data_free(&run->data);
	hys_plan_destroy(run->plan);
	hys_plan_destroy(run->copies);
}

static bool run_alone(struct bench_run *run, const struct hys_batch_desc *desc)
{
	run->comm = MPI_COMM_SELF;
	if (!make_plans(run, desc->rows) ||
	    !ok(run, hys_batch_create(run->plan, desc, &run->whole, &run->error)))
		return false;
	run->data = (struct ranks_data){.device = run->device, .exec = run->exec, .seed = 1};
	if (!ranks_step_make(&run->data, run->options, desc->rows, hys_batch_entries(run->whole),
			     desc->keys, &run->step)) {
		run->error = run->data.error;
		return false;
	}
	return time_steps(run, step_alone);
}

static int named(const char *text, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(text, names[i]) == 0)
			return i;
	return -1;
}

static bool run_on_ranks(struct bench_run *run, const struct hys_batch_desc *desc)
{
	static const char *const ways[] = {"balanced", "contiguous", "zigzag"};
	static const char *const modes[] = {"gather", "ring"};
	const int way = named(run->options->way, ways, 3),
		  mode = named(run->options->mode, modes, 2);
	struct hys_cp_options options = {.struct_size = sizeof options,
					 .way = (hys_cut_way)way,
					 .mode = (hys_cp_mode)mode,
					 .slices = (int32_t)run->options->slices,
					 .trace = ranks_trace_add,
					 .trace_user = &run->trace};
	run->comm = MPI_COMM_WORLD;
	ranks_device_memory(run->device, &options);
	/* Rows differ by a few between ranks. */
	int ranks;
	MPI_Comm_size(run->comm, &ranks);
	const int64_t rows = (desc->rows + ranks - 1) / ranks;
	if (way < 0 || mode < 0) {
		snprintf(run->error.message, sizeof run->error.message,
			 "--cut is balanced, contiguous or zigzag, --mode gather or ring");
		return false;
	}
	if (!make_plans(run, rows + rows / 16 + 1024) ||
	    !ok(run, hys_cp_create(run->comm, &options, &run->cp, &run->error)) ||
	    !ok(run, hys_cp_batch_create(run->cp, run->plan, desc, &run->batch, &run->error)))
		return false;
	const struct hys_cut *cut = hys_cp_batch_cut(run->batch);
	const int32_t own = hys_cp_rank(run->cp);
	run->data = (struct ranks_data){
		.device = run->device, .exec = run->exec, .seed = 2 + (uint64_t)own};
	if (!ranks_step_make(&run->data, run->options, hys_cut_count(cut, HYS_CUT_ROWS, own),
			     hys_cut_count(cut, HYS_CUT_ENTRIES, own),
			     hys_cut_count(cut, HYS_CUT_KEYS, own), &run->step)) {
		run->error = run->data.error;
		return false;
	}
	return time_steps(run, step_on_ranks);
}

static struct ranks_ops ops_of(const struct ranks_options *options)
{
	return (struct ranks_ops){
		{select_op(options), HYS_OP_ATTENTION_FORWARD,
		 options->no_backward ? HYS_OP_COUNT : HYS_OP_ATTENTION_BACKWARD}};
}

static bool measure(struct bench_run *run, const struct hys_batch_desc *desc,
		    struct ranks_measured *measured)
{
	const struct ranks_ops ops = ops_of(run->options);
	bool fine = run_alone(run, desc);
	for (int t = 0; fine && t < STEP; t++) {
		struct hys_cost cost = {0};
		if (ops.of[t] == HYS_OP_COUNT)
			continue;
		fine = ok(run, hys_plan_cost(run->plan, ops.of[t], run->whole, &cost, &run->error));
		measured->flops[t] = cost.flops;
		measured->seconds[t] = run->fastest[t];
	}
	return fine;
}

/* ---- reporting ---- */

static void print_cut(const struct bench_run *run)
{
	size_t size = hys_cp_describe(run->batch, NULL, 0) + 1;
	char *text = malloc(size);
	if (text) {
		hys_cp_describe(run->batch, text, size);
		fputs(text, stdout);
	}
	free(text);
}

/* What a step moves, planned and counted. */
static void print_bytes(struct bench_run *run, const struct hys_cp_traffic *counted)
{
	struct hys_cp_traffic planned[3] = {{0}};
	int64_t mine[4], *all;
	int rank, ranks;
	MPI_Comm_rank(run->comm, &rank);
	MPI_Comm_size(run->comm, &ranks);
	hys_cp_plan(run->batch, HYS_OP_SELECT, &run->step.select, &planned[0], NULL);
	hys_cp_plan(run->batch, HYS_OP_ATTENTION_FORWARD, &run->step.forward, &planned[1], NULL);
	if (!run->options->no_backward) {
		struct hys_attention_grad_args back = run->step.backward;
		back.k = back.v = (struct hys_tensor){0}; /* gathered before */
		hys_cp_plan(run->batch, HYS_OP_ATTENTION_BACKWARD, &back, &planned[2], NULL);
	}
	mine[0] = mine[2] = 0;
	for (int i = 0; i < 3; i++) {
		mine[0] += planned[i].sent_bytes;
		mine[2] += planned[i].received_bytes;
	}
	mine[1] = counted->sent_bytes / (run->options->repeat + 1);
	mine[3] = counted->received_bytes / (run->options->repeat + 1);
	all = calloc((size_t)ranks * 4, sizeof *all);
	if (!all)
		return;
	MPI_Gather(mine, 4, MPI_INT64_T, all, 4, MPI_INT64_T, 0, run->comm);
	for (int i = 0; rank == 0 && i < ranks; i++) {
		const int64_t *own = all + (size_t)i * 4;
		printf("rank %d: %s sent in a step (planned %s), %s received (planned %s)\n", i,
		       tool_bytes((double)own[1]), tool_bytes((double)own[0]),
		       tool_bytes((double)own[3]), tool_bytes((double)own[2]));
	}
	free(all);
}

static void print_times(const struct bench_run *alone, const struct bench_run *run, int ranks)
{
	printf("%-20s %-36s %12s %12s %9s\n", "operation", "kernel", "one rank",
	       ranks == 1 ? "as a job" : "all ranks", "faster");
	for (int t = 0; t < TIMES; t++) {
		static const hys_op ops[] = {HYS_OP_SELECT, HYS_OP_ATTENTION_FORWARD,
					     HYS_OP_ATTENTION_BACKWARD};
		const hys_op op = t == SELECT ? select_op(run->options) : ops[t < STEP ? t : 0];
		const char *kernel = t < STEP ? hys_plan_kernel(run->plan, op, 0) : "";
		char one[32] = "", faster[32] = "";
		if (alone->seconds[t] > 0) {
			snprintf(one, sizeof one, "%s", tool_time(alone->seconds[t]));
			snprintf(faster, sizeof faster, "%.2fx",
				 alone->seconds[t] / run->seconds[t]);
		}
		if (t != BACKWARD || !run->options->no_backward)
			printf("%-20s %-36s %12s %12s %9s\n", time_names[t], kernel ? kernel : "",
			       one, tool_time(run->seconds[t]), faster);
	}
}

/* ---- the program ---- */

static int finish_options(struct ranks_options *o)
{
	struct hys_error error;
	if (hys_problem_named(o->model, &o->problem, &error) != HYS_OK)
		return tool_failed("--model", &error);
	o->problem.attending.dtype = o->dtype;
	o->problem.scoring.dtype = o->index_dtype;
	o->problem.choosing.method = o->method;
	if (o->topk > 0)
		o->problem.choosing.topk_max = (int32_t)o->topk;
	if (o->method > HYS_METHOD_EXACT && o->problem.choosing.coarse_block == 0)
		o->problem.choosing.coarse_block = 128;
	return hys_problem_complete(&o->problem, &error) == HYS_OK ? TOOL_OK
								   : tool_failed("shape", &error);
}

/* Documents' first rows, lengths falling as 1 / (i + 1), in an order that repeats. */
static int32_t *zipf(int64_t tokens, int64_t documents)
{
	int32_t *cu = calloc((size_t)documents + 1, sizeof *cu);
	/* A prime goes through all of them, unless it divides their number. */
	const int64_t step = documents % 7919 != 0 ? 7919 : 1;
	double sum = 0, at = 0;
	for (int64_t i = 0; i < documents; i++)
		sum += 1 / (double)(i + 1);
	for (int64_t i = 0; cu && i < documents; i++) {
		at += 1 / (double)(i * step % documents + 1);
		cu[i + 1] = (int32_t)(at / sum * (double)tokens);
	}
	if (cu)
		cu[documents] = (int32_t)tokens;
	return cu;
}

/* Measures this rank by itself: on one document, and, where the job has several, on as
 * many tokens of documents like those. */
static bool probe_rank(struct bench_run *run, struct hys_network *network)
{
	const struct ranks_options *o = run->options;
	const struct bench_run fresh = *run;
	const int64_t documents = o->documents * o->probe / o->tokens;
	struct hys_batch_desc desc = {.struct_size = sizeof desc,
				      .rows = o->probe,
				      .keys = o->probe,
				      .flags = HYS_BATCH_CAUSAL};
	const struct ranks_ops ops = ops_of(o);
	struct ranks_measured long_one = {{0}, {0}}, short_ones;
	int32_t *cu = documents > 1 ? zipf(o->probe, documents) : NULL;
	bool fine = measure(run, &desc, &long_one);
	short_ones = long_one;
	if (fine && cu) {
		close_run(run);
		*run = fresh;
		desc.documents = (int32_t)documents;
		desc.cu_seqlens_q = cu;
		fine = measure(run, &desc, &short_ones);
	}
	if (fine)
		ranks_find_rates(&ops, &long_one, &short_ones, (double)o->probe, network);
	close_run(run);
	free(cu);
	return fine;
}

static int bench(const struct ranks_options *o, int rank, int ranks)
{
	struct bench_run *alone = calloc(1, sizeof *alone), *together = calloc(1, sizeof *together),
			 *probe = calloc(1, sizeof *probe);
	struct hys_network network = {.struct_size = sizeof network};
	int32_t *cu = o->documents > 1 ? zipf(o->tokens, o->documents) : NULL;
	const struct hys_batch_desc desc = {.struct_size = sizeof desc,
					    .rows = o->tokens,
					    .keys = o->tokens,
					    .flags = HYS_BATCH_CAUSAL,
					    .documents = cu ? (int32_t)o->documents : 0,
					    .cu_seqlens_q = cu};
	struct ranks_device device = {0};
	struct hys_error error = {.status = HYS_OUT_OF_MEMORY, .message = "no memory"};
	MPI_Comm host;
	int local, fine = 1, all = 0;
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
	MPI_Comm_rank(host, &local);
	MPI_Comm_free(&host);
	if (!alone || !together || !probe || !ranks_device_open(&device, o->device, local, &error))
		fine = 0;
	MPI_Allreduce(&fine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (!all || !alone || !together || !probe) { /* the latter are why, then */
		free(cu);
		free(alone);
		free(together);
		free(probe);
		return fine ? TOOL_USAGE : tool_failed("device", &error);
	}
	alone->options = together->options = probe->options = o;
	alone->device = together->device = probe->device = &device;
	/* Where one device has no room for all of it, the ranks are still timed. */
	if (o->alone && rank == 0 && !run_alone(alone, &desc))
		tool_failed("alone", &alone->error);
	close_run(alone);
	MPI_Allreduce(&fine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (all && o->probe && !probe_rank(probe, &network))
		fine = tool_failed("probe", &probe->error) == TOOL_OK;
	MPI_Allreduce(&fine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (all && !run_on_ranks(together, &desc))
		fine = tool_failed("on ranks", &together->error) == TOOL_OK;
	MPI_Allreduce(&fine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (all) {
		const struct hys_cp_traffic counted = hys_cp_counted(together->cp);
		if (rank == 0) {
			print_cut(together);
			print_times(alone, together, ranks);
		}
		print_bytes(together, &counted);
		if (o->probe) {
			const struct ranks_ops ops = ops_of(o);
			if (!ranks_predict(together->comm, hys_cp_batch_cut(together->batch),
					   together->plan, &ops, &network, together->fastest,
					   o->probe, &together->error))
				tool_failed("prediction", &together->error);
		}
		if (o->trace)
			ranks_trace_print(&together->trace, MPI_COMM_WORLD);
	}
	close_run(together);
	ranks_device_close(&device);
	free(cu);
	free(alone);
	free(together);
	free(probe);
	return all ? TOOL_OK : TOOL_WRONG;
}

int main(int argc, char **argv)
{
	const struct argp argp = {argp_options, parse, NULL, doc, NULL, NULL, NULL};
	struct ranks_options o = {.model = "dsv32",
				  .device = "opencl",
				  .way = "balanced",
				  .mode = "gather",
				  .tokens = 32768,
				  .repeat = 3,
				  .dtype = HYS_BF16,
				  .index_dtype = HYS_BF16,
				  .method = HYS_METHOD_EXACT};
	int rank, ranks, level, result;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	argp_err_exit_status = TOOL_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	result = finish_options(&o);
	if (result == TOOL_OK)
		result = bench(&o, rank, ranks);
	MPI_Finalize();
	return result;
}
