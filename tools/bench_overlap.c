/* bench_overlap.c - selection of one micro-batch while attention of another
 * runs: two execs, ordered by events, beside the same calls on one. */
#include "bench_overlap.h"

#include <stdlib.h>
#include <string.h>

#include "bench_trace.h"

#define MICRO_BATCHES 4
#define TENSORS_MAX 12

struct micro_batch {
	void *memory[TENSORS_MAX];
	int32_t count;
	struct hys_select_args select;
	struct hys_attention_args attention;
};

struct overlap {
	const struct bench *bench;
	struct hys_problem problem;
	struct hys_context *context;
	int32_t device;
	struct hys_plan *plan;
	struct hys_batch *batch;
	struct hys_exec *selecting, *attending; /* the first does all, when it is alone */
	struct micro_batch micro[MICRO_BATCHES];
	uint64_t seed;
	struct hys_error error;
	bool failed;
};

static bool check(struct overlap *o, hys_status status)
{
	o->failed = o->failed || status != HYS_OK;
	return !o->failed;
}

/* Host memory, so that there is something to copy. */
static struct hys_tensor host_tensor(struct overlap *o, struct micro_batch *micro, hys_dtype dtype,
				     int32_t rank, const int64_t shape[3], bool random)
{
	int64_t n = 1;
	char *memory;
	for (int32_t d = 0; d < rank; d++)
		n *= shape[d];
	memory = malloc((size_t)n * hys_dtype_size(dtype) + 1);
	if (!memory) {
		o->error = (struct hys_error){HYS_OUT_OF_MEMORY, 0, "no memory for operands"};
		o->failed = true;
		return (struct hys_tensor){0};
	}
	micro->memory[micro->count++] = memory;
	if (random)
		bench_fill(memory, dtype, n, 1, &o->seed);
	else
		memset(memory, 0, (size_t)n * hys_dtype_size(dtype));
	return hys_host(memory, dtype, rank, shape[0], shape[1], shape[2]);
}

#define TENSOR(dtype, rank, random, ...) \
	host_tensor(o, micro, dtype, rank, (const int64_t[3]){__VA_ARGS__}, random)

static void make_micro_batch(struct overlap *o, struct micro_batch *micro)
{
	const struct hys_scoring *s = &o->problem.scoring;
	const struct hys_attending *a = &o->problem.attending;
	const int64_t rows = o->bench->rows, keys = o->bench->keys;
	const bool shared = a->kv_heads == 1 && a->value_dim < a->head_dim;
	struct hys_select_args *select = &micro->select;
	struct hys_attention_args *attention = &micro->attention;
	select->struct_size = sizeof *select;
	attention->struct_size = sizeof *attention;
	select->index_q = TENSOR(s->dtype, 3, true, rows, s->heads, s->dim);
	select->index_k = TENSOR(s->dtype, 2, true, keys, s->dim);
	select->indices = TENSOR(HYS_I32, 3, false, rows, 1, o->problem.choosing.topk_max);
	attention->q = TENSOR(a->dtype, 3, true, rows, a->heads, a->head_dim);
	attention->k = TENSOR(a->dtype, 3, true, keys, a->kv_heads, a->head_dim);
	if (!shared)
		attention->v = TENSOR(a->dtype, 3, true, keys, a->kv_heads, a->value_dim);
	attention->indices = select->indices;
	attention->o = TENSOR(a->dtype, 3, false, rows, a->heads, a->value_dim);
}

/* ---- the two ways ---- */

static void run_in_turn(struct overlap *o)
{
	for (int i = 0; i < MICRO_BATCHES && !o->failed; i++) {
		struct micro_batch *micro = &o->micro[i];
		check(o, hys_select(o->selecting, o->batch, &micro->select, &o->error));
		if (!o->failed)
			check(o, hys_attention_forward(o->selecting, o->batch, &micro->attention,
						       &o->error));
	}
	if (!o->failed)
		check(o, hys_exec_finish(o->selecting, &o->error));
}

/* Attention of a micro-batch waits for its own selection, nothing else. */
static void run_overlapped(struct overlap *o)
{
	for (int i = 0; i < MICRO_BATCHES && !o->failed; i++) {
		struct micro_batch *micro = &o->micro[i];
		struct hys_event *selected = NULL;
		check(o, hys_select(o->selecting, o->batch, &micro->select, &o->error));
		if (!o->failed)
			check(o, hys_exec_record(o->selecting, &selected, &o->error));
		if (!o->failed)
			check(o, hys_exec_wait(o->attending, selected, &o->error));
		if (!o->failed)
			check(o, hys_attention_forward(o->attending, o->batch, &micro->attention,
						       &o->error));
		hys_event_destroy(selected);
	}
	if (!o->failed)
		check(o, hys_exec_finish(o->selecting, &o->error));
	if (!o->failed)
		check(o, hys_exec_finish(o->attending, &o->error));
}

/* Behind one run to warm up. *from_s is when the best began. */
static double time_runs(struct overlap *o, void (*run)(struct overlap *o), double *from_s)
{
	double best = 0;
	run(o);
	for (int64_t i = 0; i < o->bench->repeat && !o->failed; i++) {
		const double start = tool_now();
		run(o);
		const double seconds = tool_now() - start;
		if (i == 0 || seconds < best) {
			best = seconds;
			*from_s = start;
		}
	}
	return best;
}

/* ---- reporting ---- */

struct outcome {
	double in_turn_s, overlapped_s;
	double copies_s, kernels_s; /* that ran beside kernels of the other exec */
};

/* Of the best run alone: spans of later runs begin behind its end. */
static void find_overlap(const struct overlap *o, double from_s, struct outcome *outcome)
{
	const struct hys_exec *s = o->selecting, *a = o->attending;
	outcome->copies_s = bench_trace_overlap(s, "copy in", a, "kernel", from_s) +
			    bench_trace_overlap(a, "copy in", s, "kernel", from_s) +
			    bench_trace_overlap(a, "copy out", s, "kernel", from_s);
	outcome->kernels_s = bench_trace_overlap(s, "kernel", a, "kernel", from_s);
}

static int report(struct overlap *o, const struct outcome *outcome)
{
	struct hys_device_info info;
	if (!check(o, hys_context_device_info(o->context, o->device, &info, &o->error)))
		return tool_failed("overlap", &o->error);
	if (o->bench->json) {
		cJSON *line = cJSON_CreateObject();
		cJSON_AddStringToObject(line, "op", "overlap");
		cJSON_AddStringToObject(line, "device", info.name);
		cJSON_AddNumberToObject(line, "rows", (double)o->bench->rows);
		cJSON_AddNumberToObject(line, "keys", (double)o->bench->keys);
		cJSON_AddNumberToObject(line, "in_turn_s", outcome->in_turn_s);
		cJSON_AddNumberToObject(line, "overlapped_s", outcome->overlapped_s);
		cJSON_AddNumberToObject(line, "copies_beside_kernels_s", outcome->copies_s);
		cJSON_AddNumberToObject(line, "kernels_beside_kernels_s", outcome->kernels_s);
		tool_json_line(line);
		return TOOL_OK;
	}
	printf("%d micro-batches of %lld rows and %lld keys on %s, tensors in host memory: select, "
	       "then attention\n",
	       MICRO_BATCHES, (long long)o->bench->rows, (long long)o->bench->keys, info.name);
	printf("  one exec, in turn        %10s\n", tool_time(outcome->in_turn_s));
	printf("  two execs, overlapped    %10s  %.2fx\n", tool_time(outcome->overlapped_s),
	       outcome->in_turn_s / outcome->overlapped_s);
	printf("  copies beside kernels    %10s\n", tool_time(outcome->copies_s));
	printf("  kernels beside kernels   %10s\n", tool_time(outcome->kernels_s));
	return TOOL_OK;
}

/* ---- all ---- */

static void open_execs(struct overlap *o, int32_t count)
{
	const struct hys_exec_options options = {.struct_size = sizeof options,
						 .flags = HYS_EXEC_ASYNC | HYS_EXEC_TRACE};
	check(o, hys_exec_create(o->plan, &options, &o->selecting, &o->error));
	if (!o->failed && count > 1)
		check(o, hys_exec_create(o->plan, &options, &o->attending, &o->error));
}

static void close_execs(struct overlap *o)
{
	hys_exec_destroy(o->selecting);
	hys_exec_destroy(o->attending);
	o->selecting = o->attending = NULL;
}

static bool prepare(struct overlap *o)
{
	const struct hys_plan_options wanted = {.struct_size = sizeof wanted,
						.operations = HYS_OP_BIT(HYS_OP_SELECT) |
							      HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD),
						.devices = &o->device,
						.device_count = 1,
						.rows_max = o->bench->rows,
						.keys_max = o->bench->keys,
						.kernels = o->bench->kernels,
						.progress = tool_plan_progress};
	const struct hys_batch_desc desc = {.struct_size = sizeof desc,
					    .rows = o->bench->rows,
					    .keys = o->bench->keys,
					    .flags = HYS_BATCH_CAUSAL};
	check(o, hys_plan_create(o->context, &o->problem, &wanted, &o->plan, &o->error));
	if (!o->failed)
		check(o, hys_batch_create(o->plan, &desc, &o->batch, &o->error));
	for (int i = 0; i < MICRO_BATCHES && !o->failed; i++)
		make_micro_batch(o, &o->micro[i]);
	return !o->failed;
}

static int compare(struct overlap *o)
{
	struct bench_trace trace = {0};
	struct outcome outcome = {0};
	double from_s = 0;
	int result;
	open_execs(o, 1);
	outcome.in_turn_s = time_runs(o, run_in_turn, &from_s);
	close_execs(o);
	open_execs(o, 2);
	outcome.overlapped_s = time_runs(o, run_overlapped, &from_s);
	if (!o->failed && o->bench->trace) {
		bench_trace_add(&trace, o->selecting, "selecting", from_s, &o->error);
		bench_trace_add(&trace, o->attending, "attending", from_s, &o->error);
	}
	if (!o->failed)
		find_overlap(o, from_s, &outcome);
	close_execs(o);
	result = o->failed ? tool_failed("overlap", &o->error) : report(o, &outcome);
	if (result == TOOL_OK && o->bench->trace)
		result = bench_trace_write(&trace, o->bench->trace);
	return result;
}

int bench_overlap(const struct bench *bench)
{
	struct overlap o = {.bench = bench, .problem = bench->problem, .seed = 1};
	int32_t *numbers, count;
	int result;
	if (bench->dtype)
		o.problem.scoring.dtype = o.problem.attending.dtype = bench->dtype;
	o.problem.scoring.groups = o.problem.scoring.pool = 1;
	if (!check(&o, hys_problem_complete(&o.problem, &o.error)))
		return tool_failed("shape", &o.error);
	result = tool_open(bench->device, &o.context, &numbers, &count);
	if (result != TOOL_OK)
		return result;
	o.device = numbers[0];
	result = prepare(&o) ? compare(&o) : tool_failed("overlap", &o.error);
	for (int i = 0; i < MICRO_BATCHES; i++)
		while (o.micro[i].count > 0)
			free(o.micro[i].memory[--o.micro[i].count]);
	hys_batch_destroy(o.batch);
	hys_plan_destroy(o.plan);
	free(numbers);
	hys_context_destroy(o.context);
	return result;
}
