/* bench_devices.c - the same calls on one device and on several, tensors
 * resident on all of them. */
#include "bench_devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_documents.h"

#define BUFFERS_MAX 24
#define DEVICES_MAX 64
/* Rows that are read back and compared: some here and there. */
#define SAMPLES INT64_C(64)
#define SAMPLE_ROWS INT64_C(16)
#define BLOCK_BYTES ((int64_t)64 << 20)

enum { COARSE_TO_FINE, EXACT, FORWARD, BACKWARD, STEPS };
static const hys_op step_ops[STEPS] = {HYS_OP_SELECT_COARSE_TO_FINE, HYS_OP_SELECT,
				       HYS_OP_ATTENTION_FORWARD, HYS_OP_ATTENTION_BACKWARD};

/* What a step has written, as far as it is looked at. */
struct sample {
	char *bytes;
	int64_t size;
	hys_dtype dtype;
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
	/* results */
	double seconds[STEPS], imbalance[STEPS];
	double busy[STEPS][DEVICES_MAX]; /* of a call, in the mean */
	bool same_bits[STEPS];
	struct sample samples[STEPS][2]; /* of rows, of keys */
};

struct run {
	const struct bench *bench;
	struct hys_problem problem;
	struct hys_context *context;
	int32_t devices[DEVICES_MAX];
	bool attends; /* f8 is for selecting only */
	int64_t rows;
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

/* The same block again and again where a tensor is larger than one. */
static void write_random(struct run *run, struct side *side, struct hys_buffer *buffer,
			 hys_dtype dtype, int64_t bytes)
{
	const int64_t block = bytes < BLOCK_BYTES ? bytes : BLOCK_BYTES;
	char *host = malloc((size_t)block);
	if (!host) {
		run->error = (struct hys_error){HYS_OUT_OF_MEMORY, 0, "no memory for operands"};
		run->failed = true;
		return;
	}
	bench_fill(host, dtype, block / (int64_t)hys_dtype_size(dtype), 1, &run->seed);
	for (int64_t at = 0; !run->failed && at < bytes; at += block)
		check(run, hys_buffer_write(side->exec, buffer, at, host,
					    bytes - at < block ? bytes - at : block, &run->error));
	check(run, hys_exec_finish(side->exec, &run->error));
	free(host);
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
		write_random(run, side, *buffer, dtype, bytes);
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
	const int64_t each = run->rows < SAMPLES * SAMPLE_ROWS ? run->rows : SAMPLE_ROWS;
	const int64_t count = each == run->rows ? 1 : SAMPLES;
	sample->dtype = tensor->dtype;
	sample->size = count * each * row_bytes;
	sample->bytes = malloc((size_t)sample->size);
	for (int64_t i = 0; sample->bytes && !run->failed && i < count; i++) {
		const int64_t first = (run->rows - each) * i / (count > 1 ? count - 1 : 1);
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
	sample->size = hys_buffer_bytes(tensor->buffer);
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

static bool same(const struct sample a[2], const struct sample b[2])
{
	for (int i = 0; i < 2; i++)
		if (a[i].size != b[i].size ||
		    (a[i].size && (!a[i].bytes || !b[i].bytes ||
				   memcmp(a[i].bytes, b[i].bytes, (size_t)a[i].size) != 0)))
			return false;
	return true;
}

static void free_samples(struct sample samples[2])
{
	free(samples[0].bytes);
	free(samples[1].bytes);
	memset(samples, 0, 2 * sizeof *samples);
}

static void busy_times(struct run *run, const struct side *side, int step, double *busy)
{
	struct hys_exec_report report = {.struct_size = sizeof report};
	for (int32_t i = 0; i < side->count; i++) {
		check(run, hys_exec_report(side->exec, step_ops[step], i, &report, &run->error));
		busy[i] = report.busy_s;
	}
}

/* Once to warm up, whose results are kept; then so many times. */
static void run_step(struct run *run, struct side *side, int step)
{
	const int repeat = (int)run->bench->repeat;
	double times[64], before[DEVICES_MAX] = {0}, after[DEVICES_MAX] = {0}, most = 0, sum = 0;
	struct sample last[2];
	check(run, call(run, side, step));
	read_results(run, side, step, side->samples[step]);
	if (run->failed)
		return;
	busy_times(run, side, step, before);
	for (int i = 0; i < repeat && !run->failed; i++) {
		const double start = tool_now();
		check(run, call(run, side, step));
		times[i] = tool_now() - start;
	}
	busy_times(run, side, step, after);
	side->seconds[step] = run->failed ? 0 : tool_median(times, repeat);
	for (int32_t i = 0; i < side->count; i++) {
		const double busy = after[i] - before[i];
		side->busy[step][i] = busy / repeat;
		most = busy > most ? busy : most;
		sum += busy;
	}
	side->imbalance[step] = sum > 0 ? most / (sum / side->count) : 1;
	read_results(run, side, step, last);
	side->same_bits[step] = same(side->samples[step], last);
	free_samples(last);
}

/* ---- sides ---- */

static bool open_side(struct run *run, struct side *side)
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
	struct hys_batch_desc desc = {.struct_size = sizeof desc,
				      .rows = run->rows,
				      .keys = run->rows,
				      .flags = HYS_BATCH_CAUSAL,
				      .documents = (int32_t)run->bench->documents};
	int32_t *starts = calloc((size_t)run->bench->documents + 2, sizeof *starts);
	if (starts && desc.documents > 0) {
		bench_zipf((int32_t)run->rows, desc.documents, starts);
		desc.cu_seqlens_q = starts;
	}
	check(run, starts ? hys_plan_create(run->context, &run->problem, &wanted, &side->plan,
					    &run->error)
			  : HYS_OUT_OF_MEMORY);
	if (!run->failed)
		check(run, hys_batch_create(side->plan, &desc, &side->batch, &run->error));
	if (!run->failed)
		check(run, hys_exec_create(side->plan, NULL, &side->exec, &run->error));
	free(starts);
	return !run->failed;
}

static void close_side(struct side *side)
{
	hys_exec_destroy(side->exec);
	hys_batch_destroy(side->batch);
	while (side->buffer_count > 0)
		hys_buffer_destroy(side->buffers[--side->buffer_count]);
	hys_plan_destroy(side->plan);
}

static void run_side(struct run *run, struct side *side)
{
	run->seed = 1;
	if (open_side(run, side))
		make_select(run, side);
	if (!run->failed && run->attends)
		make_attention(run, side);
	for (int step = 0; !run->failed && step < (run->attends ? STEPS : FORWARD); step++)
		run_step(run, side, step);
}

/* ---- comparing ---- */

/* Picks: the share that differs. Else the relative Frobenius norm of the difference. */
static double difference(const struct sample *a, const struct sample *b)
{
	const int64_t n = a->size / (int64_t)hys_dtype_size(a->dtype);
	double sum = 0, all = 0;
	if (a->size != b->size || !a->bytes || !b->bytes)
		return (double)NAN;
	for (int64_t i = 0; i < n; i++) {
		if (a->dtype == HYS_I32) {
			sum += ((int32_t *)(void *)a->bytes)[i] != ((int32_t *)(void *)b->bytes)[i];
			all += 1;
		} else {
			const double x = tool_get(a->dtype, a->bytes, i);
			const double y = tool_get(b->dtype, b->bytes, i);
			sum += (x - y) * (x - y);
			all += x * x;
		}
	}
	if (a->dtype == HYS_I32)
		return sum / (all > 0 ? all : 1);
	return all > 0 ? sqrt(sum / all) : sqrt(sum);
}

static void print_step(const struct run *run, const struct side *one, const struct side *all,
		       int step)
{
	const char *kernel = hys_plan_kernel(all->plan, step_ops[step], 0);
	const double rows = difference(&one->samples[step][0], &all->samples[step][0]);
	const double keys = one->samples[step][1].size
				    ? difference(&one->samples[step][1], &all->samples[step][1])
				    : 0;
	if (run->bench->json) {
		cJSON *line = cJSON_CreateObject();
		cJSON_AddStringToObject(line, "op", hys_op_name(step_ops[step]));
		cJSON_AddStringToObject(line, "kernel", kernel);
		cJSON_AddNumberToObject(line, "rows", (double)run->rows);
		cJSON_AddNumberToObject(line, "documents", (double)run->bench->documents);
		cJSON_AddNumberToObject(line, "devices", all->count);
		cJSON_AddNumberToObject(line, "one_s", one->seconds[step]);
		cJSON_AddNumberToObject(line, "all_s", all->seconds[step]);
		cJSON_AddNumberToObject(line, "gain", one->seconds[step] / all->seconds[step]);
		cJSON_AddNumberToObject(line, "imbalance", all->imbalance[step]);
		cJSON *busy = cJSON_AddArrayToObject(line, "busy_s");
		for (int32_t i = 0; i < all->count; i++)
			cJSON_AddItemToArray(busy, cJSON_CreateNumber(all->busy[step][i]));
		cJSON_AddBoolToObject(line, "same_bits", all->same_bits[step]);
		cJSON_AddNumberToObject(line, "rows_differ", rows);
		cJSON_AddNumberToObject(line, "sums_differ", keys);
		tool_json_line(line);
		return;
	}
	printf("%-22s %-34s %10s %10s %5.2fx  %9.3f  %-9s  %11.2e %11.2e  ",
	       hys_op_name(step_ops[step]), kernel, tool_time(one->seconds[step]),
	       tool_time(all->seconds[step]), one->seconds[step] / all->seconds[step],
	       all->imbalance[step], all->same_bits[step] ? "yes" : "NO", rows, keys);
	for (int32_t i = 0; i < all->count; i++)
		printf(" %s", tool_time(all->busy[step][i]));
	printf("\n");
}

static void print_head(const struct run *run, const struct side *all)
{
	if (run->bench->json)
		return;
	printf("%lld rows and keys, %s; %d devices against the first of them\n",
	       (long long)run->rows, run->bench->documents ? "packed Zipf documents" : "causal",
	       all->count);
	printf("%-22s %-34s %10s %10s %6s  %9s  %-9s  %11s %11s   %s\n", "operation", "kernel",
	       "one", "all", "gain", "imbalance", "same bits", "rows differ", "sums differ",
	       "busy, by device");
}

static int compare(struct run *run, int32_t count)
{
	struct side one = {.count = 1}, all = {.count = count};
	run_side(run, &one);
	close_side(&one);
	if (!run->failed)
		run_side(run, &all);
	if (!run->failed) {
		print_head(run, &all);
		for (int step = 0; step < (run->attends ? STEPS : FORWARD); step++)
			print_step(run, &one, &all, step);
	}
	close_side(&all);
	for (int step = 0; step < STEPS; step++) {
		free_samples(one.samples[step]);
		free_samples(all.samples[step]);
	}
	return run->failed ? tool_failed("devices", &run->error) : TOOL_OK;
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
	struct run run = {.bench = bench, .problem = bench->problem, .rows = bench->rows};
	int32_t *numbers, count;
	int result = complete_problem(&run);
	if (bench->repeat > 64)
		return tool_complain("--repeat is %lld, expected 64 or less",
				     (long long)bench->repeat);
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
