/* bench_devices.c - the same calls on one device and on several, tensors
 * resident on all of them. */
#include "bench_devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_documents.h"
#include "bench_samples.h"

#define BUFFERS_MAX 24
#define DEVICES_MAX 64
/* Rows that are read back and compared: some here and there. */
#define SAMPLES INT64_C(64)
#define SAMPLE_ROWS INT64_C(16)
#define BLOCK_BYTES ((int64_t)64 << 20)
#define SHAPES_MAX 4
/* Devices whose busy times differ by no more share evenly. */
#define EVEN 1.02

enum { COARSE_TO_FINE, EXACT, FORWARD, BACKWARD, STEPS };
static const hys_op step_ops[STEPS] = {HYS_OP_SELECT_COARSE_TO_FINE, HYS_OP_SELECT,
				       HYS_OP_ATTENTION_FORWARD, HYS_OP_ATTENTION_BACKWARD};

struct result {
	double seconds, imbalance;
	double busy[DEVICES_MAX]; /* of a call, in the mean */
	bool same_bits;
	struct sample samples[2]; /* of rows, of keys */
};

/* Rows of a batch, in packed documents of Zipf lengths or, 0, one. */
struct shape {
	int64_t rows;
	int32_t documents;
};

/* One plan: on the first device, or on all. */
struct side {
	int32_t count;
	struct hys_plan *plan;
	struct hys_exec *exec;
	struct hys_batch *batch;
	struct hys_buffer *buffers[BUFFERS_MAX];
	int32_t buffer_count;
	struct hys_select_args select;
	struct hys_attention_args forward;
	struct hys_attention_grad_args backward;
	struct result results[SHAPES_MAX][STEPS];
};

struct run {
	const struct bench *bench;
	struct hys_problem problem;
	struct hys_context *context;
	int32_t devices[DEVICES_MAX];
	bool attends;				/* f8 is for selecting only */
	int64_t rows;				/* of the largest shape */
	struct shape shapes[SHAPES_MAX], shape; /* all of them, the one at hand */
	int shape_count;
	char *blocks[BUFFERS_MAX]; /* of tensors that are random */
	uint64_t seed;
	struct hys_error error;
	bool failed;
};

/* ---- tensors ---- */

static bool check(struct run *run, hys_status status)
{
	run->failed = run->failed || status != HYS_OK;
	return !run->failed;
}

/* The same block again and again where a tensor is larger than one; tensors of both
 * sides have the same. */
static void write_random(struct run *run, struct side *side, int32_t number, hys_dtype dtype,
			 int64_t bytes)
{
	struct hys_buffer *buffer = side->buffers[number];
	const int64_t block = bytes < BLOCK_BYTES ? bytes : BLOCK_BYTES;
	char *host = run->blocks[number] ? run->blocks[number] : malloc((size_t)block);
	if (!host) {
		run->error = (struct hys_error){HYS_OUT_OF_MEMORY, 0, "no memory for operands"};
		run->failed = true;
		return;
	}
	if (!run->blocks[number])
		bench_fill(host, dtype, block / (int64_t)hys_dtype_size(dtype), 1, &run->seed);
	run->blocks[number] = host;
	for (int64_t at = 0; !run->failed && at < bytes; at += block)
		check(run, hys_buffer_write(side->exec, buffer, at, host,
					    bytes - at < block ? bytes - at : block, &run->error));
	check(run, hys_exec_finish(side->exec, &run->error));
}

static struct hys_tensor make_tensor(struct run *run, struct side *side, hys_dtype dtype,
				     int32_t rank, const int64_t shape[3], bool random)
{
	struct hys_buffer **buffer = &side->buffers[side->buffer_count];
	int64_t bytes = (int64_t)hys_dtype_size(dtype);
	if (run->failed)
		return (struct hys_tensor){0};
	for (int32_t d = 0; d < rank; d++)
		bytes *= shape[d];
	if (check(run, side->count > 1
			       ? hys_buffer_replicate(side->plan, bytes, buffer, &run->error)
			       : hys_buffer_create(run->context, run->devices[0], bytes, buffer,
						   &run->error)))
		side->buffer_count++;
	if (!run->failed && random)
		write_random(run, side, side->buffer_count - 1, dtype, bytes);
	return hys_device(*buffer, 0, dtype, rank, shape[0], shape[1], shape[2]);
}

#define TENSOR(dtype, rank, random, ...) \
	make_tensor(run, side, dtype, rank, (const int64_t[3]){__VA_ARGS__}, random)

static void make_select(struct run *run, struct side *side)
{
	const struct hys_scoring *s = &run->problem.scoring;
	const int64_t rows = run->rows, topk = run->problem.choosing.topk_max;
	struct hys_select_args *args = &side->select;
	args->struct_size = sizeof *args;
	args->index_q = TENSOR(s->dtype, 3, true, rows, s->heads, s->dim);
	args->index_k = TENSOR(s->dtype, 2, true, rows, s->dim);
	args->index_w = TENSOR(HYS_F32, 2, true, rows, s->heads);
	args->indices = TENSOR(HYS_I32, 3, false, rows, 1, topk);
	if (s->dtype == HYS_F8E4M3) {
		args->index_q_scale = TENSOR(HYS_F32, 2, false, rows, s->heads);
		args->index_k_scale = TENSOR(HYS_F32, 1, false, rows);
		for (int32_t i = side->buffer_count - 2; !run->failed && i < side->buffer_count;
		     i++)
			check(run, hys_buffer_fill(side->exec, side->buffers[i], 0,
						   hys_buffer_bytes(side->buffers[i]), 0x3f,
						   &run->error));
	}
}

static void make_attention(struct run *run, struct side *side)
{
	const struct hys_attending *a = &run->problem.attending;
	const int64_t rows = run->rows, h = a->heads, g = a->kv_heads;
	const bool shared = g == 1 && a->value_dim < a->head_dim;
	struct hys_attention_args *f = &side->forward;
	struct hys_attention_grad_args *b = &side->backward;
	f->struct_size = sizeof *f;
	b->struct_size = sizeof *b;
	f->q = b->q = TENSOR(a->dtype, 3, true, rows, h, a->head_dim);
	f->k = b->k = TENSOR(a->dtype, 3, true, rows, g, a->head_dim);
	if (!shared)
		f->v = b->v = TENSOR(a->dtype, 3, true, rows, g, a->value_dim);
	f->indices = b->indices = side->select.indices;
	f->o = b->o = TENSOR(a->dtype, 3, false, rows, h, a->value_dim);
	f->lse = b->lse = TENSOR(HYS_F32, 2, false, rows, h);
	b->grad_o = TENSOR(a->dtype, 3, true, rows, h, a->value_dim);
	b->dq = TENSOR(a->dtype, 3, false, rows, h, a->head_dim);
	b->dk = TENSOR(HYS_F32, 3, false, rows, g, a->head_dim);
	if (!shared)
		b->dv = TENSOR(HYS_F32, 3, false, rows, g, a->value_dim);
}

/* All tensors have the rows of the shape, keys too. */
static void cut_tensors(struct side *side, int64_t rows)
{
	struct hys_select_args *s = &side->select;
	struct hys_attention_args *f = &side->forward;
	struct hys_attention_grad_args *b = &side->backward;
	struct hys_tensor *tensors[] = {&s->index_q,
					&s->index_k,
					&s->index_w,
					&s->indices,
					&s->index_q_scale,
					&s->index_k_scale,
					&f->q,
					&f->k,
					&f->v,
					&f->indices,
					&f->o,
					&f->lse,
					&b->q,
					&b->k,
					&b->v,
					&b->indices,
					&b->o,
					&b->lse,
					&b->grad_o,
					&b->dq,
					&b->dk,
					&b->dv};
	for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
		if (tensors[i]->buffer)
			tensors[i]->shape[0] = rows;
}

/* ---- steps ---- */

static hys_status call(struct run *run, struct side *side, int step)
{
	hys_status status;
	if (step == FORWARD) {
		status =
			hys_attention_forward(side->exec, side->batch, &side->forward, &run->error);
	} else if (step == BACKWARD) {
		status = hys_attention_backward(side->exec, side->batch, &side->backward,
						&run->error);
	} else {
		side->select.method = step == EXACT ? HYS_METHOD_EXACT : HYS_METHOD_COARSE_TO_FINE;
		status = hys_select(side->exec, side->batch, &side->select, &run->error);
	}
	return status == HYS_OK ? hys_exec_finish(side->exec, &run->error) : status;
}

static void read_rows(struct run *run, struct side *side, const struct hys_tensor *tensor,
		      struct sample *sample)
{
	const int64_t row_bytes = hys_buffer_bytes(tensor->buffer) / run->rows;
	const int64_t rows = run->shape.rows;
	const int64_t each = rows < SAMPLES * SAMPLE_ROWS ? rows : SAMPLE_ROWS;
	const int64_t count = each == rows ? 1 : SAMPLES;
	sample->dtype = tensor->dtype;
	sample->size = count * each * row_bytes;
	sample->bytes = malloc((size_t)sample->size);
	for (int64_t i = 0; sample->bytes && !run->failed && i < count; i++) {
		const int64_t first = (rows - each) * i / (count > 1 ? count - 1 : 1);
		char *target = sample->bytes + i * each * row_bytes;
		check(run, side->count > 1
				   ? hys_rows_read(side->exec, side->batch, tensor, first, each,
						   target, &run->error)
				   : hys_buffer_read(side->exec, tensor->buffer, first * row_bytes,
						     target, each * row_bytes, &run->error));
	}
	check(run, hys_exec_finish(side->exec, &run->error));
}

static void read_all(struct run *run, struct side *side, const struct hys_tensor *tensor,
		     struct sample *sample)
{
	sample->dtype = tensor->dtype;
	sample->size = hys_buffer_bytes(tensor->buffer) / run->rows * run->shape.rows;
	sample->bytes = malloc((size_t)sample->size);
	if (sample->bytes)
		check(run, hys_buffer_read(side->exec, tensor->buffer, 0, sample->bytes,
					   sample->size, &run->error));
	check(run, hys_exec_finish(side->exec, &run->error));
}

static void read_results(struct run *run, struct side *side, int step, struct sample samples[2])
{
	const struct hys_tensor *rows = step == FORWARD	   ? &side->forward.o
					: step == BACKWARD ? &side->backward.dq
							   : &side->select.indices;
	memset(samples, 0, 2 * sizeof *samples);
	if (!run->failed)
		read_rows(run, side, rows, &samples[0]);
	if (!run->failed && step == BACKWARD)
		read_all(run, side, &side->backward.dk, &samples[1]);
}

static void busy_times(struct run *run, const struct side *side, int step, double *busy)
{
	struct hys_exec_report report = {.struct_size = sizeof report};
	for (int32_t i = 0; i < side->count; i++) {
		check(run, hys_exec_report(side->exec, step_ops[step], i, &report, &run->error));
		busy[i] = report.busy_s;
	}
}

/* The longest busy time over the mean. */
static double imbalance_of(const double *busy, int32_t count)
{
	double most = 0, sum = 0;
	for (int32_t i = 0; i < count; i++) {
		most = fmax(most, busy[i]);
		sum += busy[i];
	}
	return sum > 0 ? most / (sum / count) : 1;
}

/* Once to warm up, whose results are kept; then so many times. */
static void run_step(struct run *run, struct side *side, struct result *result, int step)
{
	const int repeat = (int)run->bench->repeat;
	double times[64], before[DEVICES_MAX] = {0}, after[DEVICES_MAX] = {0};
	struct sample last[2];
	check(run, call(run, side, step));
	read_results(run, side, step, result->samples);
	if (run->failed)
		return;
	busy_times(run, side, step, before);
	for (int i = 0; i < repeat && !run->failed; i++) {
		const double start = tool_now();
		check(run, call(run, side, step));
		times[i] = tool_now() - start;
	}
	busy_times(run, side, step, after);
	result->seconds = run->failed ? 0 : tool_median(times, repeat);
	for (int32_t i = 0; i < side->count; i++)
		result->busy[i] = (after[i] - before[i]) / repeat;
	result->imbalance = imbalance_of(result->busy, side->count);
	read_results(run, side, step, last);
	result->same_bits = bench_same(result->samples, last);
	bench_free_samples(last);
}

/* ---- sides ---- */

static bool open_plan(struct run *run, struct side *side)
{
	static const uint32_t splits[] = {0, HYS_PLAN_EQUAL, HYS_PLAN_GUIDED};
	const struct hys_plan_options wanted = {
		.struct_size = sizeof wanted,
		.operations = HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_SELECT_COARSE_TO_FINE) |
			      (run->attends ? HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD) |
						      HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD)
					    : 0),
		.flags = HYS_PLAN_BUFFERS_ONLY | splits[run->bench->split],
		.devices = run->devices,
		.device_count = side->count,
		.rows_max = run->rows,
		.keys_max = run->rows,
		.kernels = run->bench->kernels,
		.progress = tool_plan_progress};
	return check(run, hys_plan_create(run->context, &run->problem, &wanted, &side->plan,
					  &run->error));
}

static void make_batch(struct run *run, struct side *side)
{
	struct hys_batch_desc desc = {.struct_size = sizeof desc,
				      .rows = run->shape.rows,
				      .keys = run->shape.rows,
				      .flags = HYS_BATCH_CAUSAL,
				      .documents = run->shape.documents};
	int32_t *starts = calloc((size_t)desc.documents + 2, sizeof *starts);
	if (starts && desc.documents > 0) {
		bench_zipf((int32_t)desc.rows, desc.documents, starts);
		desc.cu_seqlens_q = starts;
	}
	check(run, starts ? hys_batch_create(side->plan, &desc, &side->batch, &run->error)
			  : HYS_OUT_OF_MEMORY);
	free(starts);
}

static bool open_exec(struct run *run, struct side *side)
{
	return check(run, hys_exec_create(side->plan, NULL, &side->exec, &run->error));
}

static void close_exec(struct side *side)
{
	hys_exec_destroy(side->exec);
	hys_batch_destroy(side->batch);
	side->exec = NULL;
	side->batch = NULL;
}

static void warm_up(struct run *run, struct side *side, int64_t repeat)
{
	for (int step = 0; step < (run->attends ? STEPS : FORWARD); step++)
		for (int64_t i = 0; !run->failed && i < repeat; i++)
			check(run, call(run, side, step));
}

/* Of the step where that is worst. */
static double worst_imbalance(struct run *run, const struct side *side)
{
	double busy[DEVICES_MAX], worst = 1;
	for (int step = 0; !run->failed && step < (run->attends ? STEPS : FORWARD); step++) {
		busy_times(run, side, step, busy);
		worst = fmax(worst, imbalance_of(busy, side->count));
	}
	return worst;
}

/* Devices of one name need not be as fast: where calls say so, as many as are timed later (fast
 * devices slow down while they work) but for the first of each, which loads programs, a plan
 * that has learnt from them. */
static void rebalance(struct run *run, struct side *side)
{
	struct hys_plan *learnt = NULL;
	warm_up(run, side, 1);
	hys_exec_destroy(side->exec);
	side->exec = NULL;
	if (!run->failed && open_exec(run, side))
		warm_up(run, side, run->bench->repeat + 1);
	if (run->failed || worst_imbalance(run, side) < EVEN ||
	    !check(run, hys_plan_rebalance(side->exec, &learnt, &run->error)))
		return;
	close_exec(side);
	hys_plan_destroy(side->plan);
	side->plan = learnt;
	if (open_exec(run, side))
		make_batch(run, side);
}

static void close_side(struct side *side)
{
	close_exec(side);
	while (side->buffer_count > 0)
		hys_buffer_destroy(side->buffers[--side->buffer_count]);
	hys_plan_destroy(side->plan);
}

/* ---- printing ---- */

static void print_step(const struct run *run, const struct side *ones, const struct side *alls,
		       int shape, int step)
{
	const struct result *one = &ones->results[shape][step], *all = &alls->results[shape][step];
	const char *kernel = hys_plan_kernel(alls->plan, step_ops[step], 0);
	const double rows = bench_difference(&one->samples[0], &all->samples[0]);
	const double keys =
		one->samples[1].size ? bench_difference(&one->samples[1], &all->samples[1]) : 0;
	if (run->bench->json) {
		cJSON *line = cJSON_CreateObject();
		cJSON_AddStringToObject(line, "op", hys_op_name(step_ops[step]));
		cJSON_AddStringToObject(line, "kernel", kernel);
		cJSON_AddNumberToObject(line, "rows", (double)run->shapes[shape].rows);
		cJSON_AddNumberToObject(line, "documents", run->shapes[shape].documents);
		cJSON_AddNumberToObject(line, "devices", alls->count);
		cJSON_AddNumberToObject(line, "one_s", one->seconds);
		cJSON_AddNumberToObject(line, "all_s", all->seconds);
		cJSON_AddNumberToObject(line, "gain", one->seconds / all->seconds);
		cJSON_AddNumberToObject(line, "imbalance", all->imbalance);
		cJSON *busy = cJSON_AddArrayToObject(line, "busy_s");
		for (int32_t i = 0; i < alls->count; i++)
			cJSON_AddItemToArray(busy, cJSON_CreateNumber(all->busy[i]));
		cJSON_AddBoolToObject(line, "same_bits", all->same_bits);
		cJSON_AddNumberToObject(line, "rows_differ", rows);
		cJSON_AddNumberToObject(line, "sums_differ", keys);
		tool_json_line(line);
		return;
	}
	printf("%-22s %-34s %10s %10s %5.2fx  %9.3f  %-9s  %11.2e %11.2e  ",
	       hys_op_name(step_ops[step]), kernel, tool_time(one->seconds),
	       tool_time(all->seconds), one->seconds / all->seconds, all->imbalance,
	       all->same_bits ? "yes" : "NO", rows, keys);
	for (int32_t i = 0; i < alls->count; i++)
		printf(" %s", tool_time(all->busy[i]));
	printf("\n");
}

static void print_head(const struct run *run, const struct side *all, const struct shape *shape)
{
	if (run->bench->json)
		return;
	static const char *const shares[] = {"re-balanced where calls said so", "equal", "guided"};
	printf("%lld rows and keys, %s; %d devices against the first of them, shares %s\n",
	       (long long)shape->rows, shape->documents ? "packed Zipf documents" : "causal",
	       all->count, shares[run->bench->split]);
	printf("%-22s %-34s %10s %10s %6s  %9s  %-9s  %11s %11s   %s\n", "operation", "kernel",
	       "one", "all", "gain", "imbalance", "same bits", "rows differ", "sums differ",
	       "busy, by device");
}

/* Against what one device took, if that is known, shape by shape. */
static void run_side(struct run *run, struct side *side, const struct side *one)
{
	const int steps = run->attends ? STEPS : FORWARD;
	if (open_plan(run, side) && open_exec(run, side))
		make_select(run, side);
	if (!run->failed && run->attends)
		make_attention(run, side);
	for (int i = 0; !run->failed && i < run->shape_count; i++) {
		run->shape = run->shapes[i];
		cut_tensors(side, run->shape.rows);
		make_batch(run, side);
		if (!run->failed && side->count > 1 && run->bench->split == 0)
			rebalance(run, side);
		for (int step = 0; !run->failed && step < steps; step++) {
			run_step(run, side, &side->results[i][step], step);
			if (getenv("HYS_VERBOSE"))
				fprintf(stderr, "%s, %d devices: %s\n", hys_op_name(step_ops[step]),
					side->count, tool_time(side->results[i][step].seconds));
		}
		hys_batch_destroy(side->batch);
		side->batch = NULL;
		if (run->failed || !one)
			continue;
		print_head(run, side, &run->shape);
		for (int step = 0; step < steps; step++)
			print_step(run, one, side, i, step);
		fflush(stdout);
	}
}

static void free_results(struct side *side)
{
	for (int i = 0; i < SHAPES_MAX; i++)
		for (int step = 0; step < STEPS; step++)
			bench_free_samples(side->results[i][step].samples);
}

static int compare(struct run *run, int32_t count)
{
	struct side *one = calloc(2, sizeof *one), *all = one + 1;
	if (!one)
		return tool_complain("no memory");
	one->count = 1;
	all->count = count;
	run_side(run, one, NULL);
	close_side(one);
	if (!run->failed)
		run_side(run, all, one);
	close_side(all);
	for (int i = 0; i < BUFFERS_MAX; i++)
		free(run->blocks[i]);
	free_results(one);
	free_results(all);
	free(one);
	return run->failed ? tool_failed("devices", &run->error) : TOOL_OK;
}

/* What was asked for; or that and a quarter of the rows, each in one document and in
 * several. */
static void find_shapes(struct run *run)
{
	const int32_t documents = (int32_t)run->bench->documents;
	for (int64_t rows = run->rows / (run->bench->sweep ? 4 : 1); rows <= run->rows; rows *= 4)
		for (int i = 0; i < (run->bench->sweep ? 2 : 1); i++)
			run->shapes[run->shape_count++] =
				(struct shape){rows, run->bench->sweep && i == 0 ? 0 : documents};
}

static int complete_problem(struct run *run)
{
	struct hys_problem *p = &run->problem;
	if (run->bench->dtype)
		p->scoring.dtype = p->attending.dtype = run->bench->dtype;
	run->attends = p->scoring.dtype != HYS_F8E4M3;
	if (!run->attends)
		p->attending = (struct hys_attending){0};
	p->scoring.groups = p->scoring.pool = 1;
	if (!p->choosing.coarse_block) {
		p->choosing.coarse_block = 128;
		p->choosing.coarse_keep = 64;
	}
	return hys_problem_complete(p, &run->error) == HYS_OK ? TOOL_OK
							      : tool_failed("shape", &run->error);
}

int bench_devices(const struct bench *bench)
{
	struct run run = {
		.bench = bench, .problem = bench->problem, .rows = bench->rows, .seed = 1};
	int32_t *numbers, count;
	int result = complete_problem(&run);
	if (bench->repeat > 64)
		return tool_complain("--repeat is %lld, expected 64 or less",
				     (long long)bench->repeat);
	if (bench->sweep && (bench->rows < 4 || bench->rows % 4 || bench->documents < 1))
		return tool_complain("--sweep takes --rows in fours, and --documents");
	find_shapes(&run);
	if (result == TOOL_OK)
		result = tool_open(bench->device, &run.context, &numbers, &count);
	if (result != TOOL_OK)
		return result;
	const int32_t taken = bench->twice ? 2 * count : count;
	if (taken < 2 || taken > DEVICES_MAX)
		result = tool_complain("%d devices match, expected 2 to %d", count, DEVICES_MAX);
	for (int32_t i = 0; result == TOOL_OK && i < taken; i++)
		run.devices[i] = numbers[i % count];
	if (result == TOOL_OK)
		result = compare(&run, taken);
	free(numbers);
	hys_context_destroy(run.context);
	return result;
}
