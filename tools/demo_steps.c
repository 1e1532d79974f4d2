/* demo_steps.c - select, attend and learn on one layer, with times and quality. */
#include "demo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TARGET_MASS 0.95

struct steps {
	const struct demo_layer *layer;
	const struct demo_options *options;
	struct hys_device_info info;
	struct hys_problem problem;
	struct hys_plan *plan, *dense_plan;
	struct hys_batch *batch, *dense_batch;
	struct hys_exec *exec, *dense_exec;
	/* host memory, one allocation each */
	int32_t *exact, *fine, *window; /* [rows, U, topk] */
	int32_t *needed;		/* [rows, U] */
	float *mass, *recall;		/* [rows, U] */
	float *lse, *dense_lse;
	uint16_t *o, *dense_o, *grad_o, *dq, *dk, *dv, *d_index_q, *d_index_k;
	float loss;
	struct hys_error error;
};

static struct hys_tensor indices_of(const struct steps *s, const int32_t *list, int32_t topk)
{
	return hys_host(list, HYS_I32, 3, s->layer->rows, s->layer->kv_heads, topk);
}

/* ---- the operations ---- */

static hys_status select_into(struct steps *s, hys_method method, int32_t topk, int32_t *list)
{
	int32_t per_group[64];
	struct hys_select_args args = {.struct_size = sizeof args,
				       .method = method,
				       .topk = per_group,
				       .index_q = s->layer->index_q,
				       .index_k = s->layer->index_k,
				       .indices = indices_of(s, list, topk)};
	for (int32_t u = 0; u < s->layer->kv_heads; u++)
		per_group[u] = topk;
	return hys_select(s->exec, s->batch, &args, &s->error);
}

static hys_status select_exact(struct steps *s)
{
	return select_into(s, HYS_METHOD_EXACT, s->options->topk, s->exact);
}

static hys_status select_fine(struct steps *s)
{
	return select_into(s, HYS_METHOD_COARSE_TO_FINE, s->options->topk, s->fine);
}

/* The layer's q, k and v; the caller adds the indices, if any, and where the results go. */
static struct hys_attention_args attention_of(const struct steps *s, void *o, float *lse)
{
	const struct demo_layer *l = s->layer;
	return (struct hys_attention_args){
		.struct_size = sizeof(struct hys_attention_args),
		.q = l->q,
		.k = l->k,
		.v = l->v,
		.o = hys_host(o, HYS_BF16, 3, l->rows, l->heads, l->v.shape[2]),
		.lse = hys_host(lse, HYS_F32, 2, l->rows, l->heads, 0)};
}

static hys_status attend(struct steps *s, const int32_t *list, int32_t topk)
{
	struct hys_attention_args args = attention_of(s, s->o, s->lse);
	args.indices = indices_of(s, list, topk);
	return hys_attention_forward(s->exec, s->batch, &args, &s->error);
}

static hys_status attend_exact(struct steps *s)
{
	return attend(s, s->exact, s->options->topk);
}

static hys_status attend_dense(struct steps *s)
{
	const struct hys_attention_args args = attention_of(s, s->dense_o, s->dense_lse);
	return hys_attention_forward(s->dense_exec, s->dense_batch, &args, &s->error);
}

static hys_status backward(struct steps *s)
{
	const struct demo_layer *l = s->layer;
	int64_t width = l->v.shape[2];
	struct hys_attention_grad_args args = {
		.struct_size = sizeof args,
		.q = l->q,
		.k = l->k,
		.v = l->v,
		.indices = indices_of(s, s->exact, s->options->topk),
		.o = hys_host(s->o, HYS_BF16, 3, l->rows, l->heads, width),
		.lse = hys_host(s->lse, HYS_F32, 2, l->rows, l->heads, 0),
		.grad_o = hys_host(s->grad_o, HYS_BF16, 3, l->rows, l->heads, width),
		.dq = hys_host(s->dq, HYS_BF16, 3, l->rows, l->heads, l->dim),
		.dk = hys_host(s->dk, HYS_BF16, 3, l->rows, l->kv_heads, l->dim),
		.dv = hys_host(s->dv, HYS_BF16, 3, l->rows, l->kv_heads, width)};
	return hys_attention_backward(s->exec, s->batch, &args, &s->error);
}

static hys_status indexer_loss(struct steps *s)
{
	const struct demo_layer *l = s->layer;
	int64_t width = l->index_k.shape[1];
	struct hys_loss_args args = {
		.struct_size = sizeof args,
		.index_q = l->index_q,
		.index_k = l->index_k,
		.indices = indices_of(s, s->exact, s->options->topk),
		.q = l->q,
		.k = l->k,
		.lse = hys_host(s->lse, HYS_F32, 2, l->rows, l->heads, 0),
		.loss = hys_host(&s->loss, HYS_F32, 1, 1, 0, 0),
		.d_index_q = hys_host(s->d_index_q, HYS_BF16, 3, l->rows, l->kv_heads, width),
		.d_index_k = hys_host(s->d_index_k, HYS_BF16, 2, l->rows, width, 0)};
	return hys_indexer_loss(s->exec, s->batch, &args, &s->error);
}

static hys_status fidelity(struct steps *s, const int32_t *list, int32_t topk)
{
	const struct demo_layer *l = s->layer;
	struct hys_fidelity_args args = {
		.struct_size = sizeof args,
		.row_stride = 8,
		.row_offset = 7,
		.target_mass = TARGET_MASS,
		.q = l->q,
		.k = l->k,
		.indices = indices_of(s, list, topk),
		.reference = indices_of(s, s->exact, topk),
		.mass = hys_host(s->mass, HYS_F32, 2, l->rows, l->kv_heads, 0),
		.recall = hys_host(s->recall, HYS_F32, 2, l->rows, l->kv_heads, 0),
		.topk_needed = hys_host(s->needed, HYS_I32, 2, l->rows, l->kv_heads, 0)};
	hys_status status = hys_fidelity(s->exec, s->batch, &args, &s->error);
	return status == HYS_OK ? hys_exec_finish(s->exec, &s->error) : status;
}

/* ---- timing ---- */

static const struct step {
	const char *name;
	hys_op op;
	bool dense;
	hys_status (*run)(struct steps *s);
} all_steps[] = {
	{"select exact", HYS_OP_SELECT, false, select_exact},
	{"select coarse_to_fine", HYS_OP_SELECT_COARSE_TO_FINE, false, select_fine},
	{"sparse attention forward", HYS_OP_ATTENTION_FORWARD, false, attend_exact},
	{"sparse attention backward", HYS_OP_ATTENTION_BACKWARD, false, backward},
	{"indexer loss and gradients", HYS_OP_INDEXER_LOSS, false, indexer_loss},
	{"dense attention forward", HYS_OP_ATTENTION_FORWARD, true, attend_dense},
};
#define STEP_COUNT ((int)(sizeof all_steps / sizeof all_steps[0]))

static void report_step(const struct steps *s, const struct step *step, const struct hys_cost *cost,
			double seconds)
{
	const char *kernel = hys_plan_kernel(step->dense ? s->dense_plan : s->plan, step->op, 0);
	if (!s->options->json) {
		printf("  %-27s %-30s %10s %14s %11s\n", step->name, kernel, tool_time(seconds),
		       tool_rate(cost->flops / seconds, "FLOP/s"), tool_bytes(cost->bytes));
		fflush(stdout);
		return;
	}
	cJSON *line = cJSON_CreateObject();
	cJSON_AddStringToObject(line, "layer", s->layer->name);
	cJSON_AddStringToObject(line, "backend", s->info.backend);
	cJSON_AddStringToObject(line, "device", s->info.name);
	cJSON_AddStringToObject(line, "step", step->name);
	cJSON_AddStringToObject(line, "kernel", kernel);
	cJSON_AddNumberToObject(line, "median_s", seconds);
	cJSON_AddNumberToObject(line, "useful_flops", cost->flops);
	cJSON_AddNumberToObject(line, "flops_per_s", cost->flops / seconds);
	cJSON_AddNumberToObject(line, "bytes", cost->bytes);
	tool_json_line(line);
}

static bool time_step(struct steps *s, const struct step *step)
{
	double times[64];
	struct hys_cost cost;
	struct hys_exec *exec = step->dense ? s->dense_exec : s->exec;
	int repeat = s->options->repeat;
	for (int i = -1; i < repeat; i++) {
		double start = tool_now();
		if (step->run(s) != HYS_OK || hys_exec_finish(exec, &s->error) != HYS_OK)
			return false;
		if (i >= 0)
			times[i] = tool_now() - start;
	}
	if (hys_plan_cost(step->dense ? s->dense_plan : s->plan, step->op,
			  step->dense ? s->dense_batch : s->batch, &cost, &s->error) != HYS_OK)
		return false;
	report_step(s, step, &cost, tool_median(times, repeat));
	return true;
}

/* ---- quality ---- */

struct quality {
	double mass, recall, needed;
};

/* Means over the sampled rows that see at least `topk` keys. */
static struct quality mean_quality(const struct steps *s, int32_t topk)
{
	struct quality q = {0};
	int64_t groups = s->layer->kv_heads, n = 0;
	for (int64_t row = topk / 8 * 8 + 7; row < s->layer->rows; row += 8) {
		for (int64_t u = 0; u < groups; u++, n++) {
			q.mass += (double)s->mass[row * groups + u];
			q.recall += (double)s->recall[row * groups + u];
			q.needed += s->needed[row * groups + u];
		}
	}
	double count = n > 0 ? (double)n : 1;
	return (struct quality){q.mass / count, q.recall / count, q.needed / count};
}

static void fill_window(const struct steps *s, int32_t topk)
{
	for (int64_t i = 0; i < (int64_t)s->layer->rows * s->layer->kv_heads; i++) {
		int64_t row = i / s->layer->kv_heads, first = row + 1 > topk ? row + 1 - topk : 0;
		for (int64_t j = 0; j < topk; j++)
			s->window[i * topk + j] = first + j <= row ? (int32_t)(first + j) : -1;
	}
}

/* Relative Frobenius distance of the sparse from the dense output. */
static double output_error(const struct steps *s)
{
	int64_t n = (int64_t)s->layer->rows * s->layer->heads * s->layer->v.shape[2];
	double error = 0, size = 0;
	for (int64_t i = 0; i < n; i++) {
		double dense = tool_get(HYS_BF16, s->dense_o, i);
		double diff = tool_get(HYS_BF16, s->o, i) - dense;
		error += diff * diff;
		size += dense * dense;
	}
	return sqrt(error / size);
}

static void report_quality(const struct steps *s, int32_t topk, struct quality exact,
			   struct quality fine, struct quality window, double error)
{
	if (!s->options->json) {
		printf("  %6d %12.1f%% %14.1f%% %14.1f%% %14.1f%% %16.4f\n", topk, 100 * exact.mass,
		       100 * fine.mass, 100 * window.mass, 100 * fine.recall, error);
		fflush(stdout);
		return;
	}
	cJSON *line = cJSON_CreateObject();
	cJSON_AddStringToObject(line, "layer", s->layer->name);
	cJSON_AddStringToObject(line, "backend", s->info.backend);
	cJSON_AddNumberToObject(line, "topk", topk);
	cJSON_AddNumberToObject(line, "mass_exact", exact.mass);
	cJSON_AddNumberToObject(line, "mass_coarse_to_fine", fine.mass);
	cJSON_AddNumberToObject(line, "mass_window", window.mass);
	cJSON_AddNumberToObject(line, "coarse_to_fine_recall", fine.recall);
	cJSON_AddNumberToObject(line, "output_error", error);
	cJSON_AddNumberToObject(line, "topk_needed_for_95_percent", exact.needed);
	tool_json_line(line);
}

static bool judge(struct steps *s, int32_t topk)
{
	if (select_into(s, HYS_METHOD_EXACT, topk, s->exact) != HYS_OK ||
	    select_into(s, HYS_METHOD_COARSE_TO_FINE, topk, s->fine) != HYS_OK ||
	    attend(s, s->exact, topk) != HYS_OK || fidelity(s, s->exact, topk) != HYS_OK)
		return false;
	struct quality exact = mean_quality(s, topk);
	if (fidelity(s, s->fine, topk) != HYS_OK)
		return false;
	struct quality fine = mean_quality(s, topk);
	fill_window(s, topk);
	if (fidelity(s, s->window, topk) != HYS_OK)
		return false;
	report_quality(s, topk, exact, fine, mean_quality(s, topk), output_error(s));
	if (topk == s->options->topk && !s->options->json)
		printf("  An ideal choice needs %.0f keys a row, on average, for %.0f%% of the "
		       "mass.\n",
		       exact.needed, 100 * TARGET_MASS);
	return true;
}

static bool judge_all(struct steps *s)
{
	if (!s->options->json)
		printf("\n  Quality: the share of the dense attention mass that each choice of K "
		       "keys holds and the share\n"
		       "  of the exact picks that coarse_to_fine finds, on rows that see at least "
		       "K "
		       "keys; and the\n"
		       "  relative error of the exact choice's output against dense, over all "
		       "rows\n"
		       "  %6s %13s %15s %15s %15s %16s\n",
		       "K", "exact", "coarse_to_fine", "last K keys", "picks found",
		       "output error");
	for (int32_t topk = 32; topk <= s->options->topk; topk *= 2) {
		tool_progress(topk, s->options->topk + 1, "judging");
		if (!judge(s, topk))
			return false;
	}
	tool_progress(1, 1, "");
	return true;
}

/* ---- setting up ---- */

static void set_problem(struct steps *s)
{
	const struct demo_layer *l = s->layer;
	s->problem = (struct hys_problem){
		.struct_size = sizeof s->problem,
		.scoring = {.heads = l->kv_heads,
			    .dim = (int32_t)l->index_k.shape[1],
			    .groups = l->kv_heads,
			    .dtype = HYS_BF16,
			    .activation = HYS_ACTIVATION_NONE,
			    .scale = l->scale},
		.choosing = {.topk_max = s->options->topk,
			     .coarse_block = s->options->coarse_block,
			     .coarse_keep = s->options->coarse_keep},
		.attending = {.heads = l->heads,
			      .kv_heads = l->kv_heads,
			      .head_dim = l->dim,
			      .value_dim = (int32_t)l->v.shape[2],
			      .dtype = l->q.dtype,
			      .scale = l->scale},
	};
}

static bool make_plans(struct steps *s, struct hys_context *context, int32_t device)
{
	struct hys_plan_options options = {
		.struct_size = sizeof options,
		.operations = HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_SELECT_COARSE_TO_FINE) |
			      HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD) |
			      HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD) |
			      HYS_OP_BIT(HYS_OP_INDEXER_LOSS) | HYS_OP_BIT(HYS_OP_FIDELITY),
		.devices = &device,
		.device_count = 1,
		.rows_max = s->layer->rows,
		.keys_max = s->layer->rows,
		.progress = tool_plan_progress};
	struct hys_batch_desc desc = {.struct_size = sizeof desc,
				      .rows = s->layer->rows,
				      .keys = s->layer->rows,
				      .flags = HYS_BATCH_CAUSAL};
	struct hys_problem dense = s->problem;
	dense.attending.flags = HYS_ATTENDING_DENSE;
	if (hys_plan_create(context, &s->problem, &options, &s->plan, &s->error) != HYS_OK)
		return false;
	options.operations = HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD);
	return hys_plan_create(context, &dense, &options, &s->dense_plan, &s->error) == HYS_OK &&
	       hys_batch_create(s->plan, &desc, &s->batch, &s->error) == HYS_OK &&
	       hys_batch_create(s->dense_plan, &desc, &s->dense_batch, &s->error) == HYS_OK &&
	       hys_exec_create(s->plan, NULL, &s->exec, &s->error) == HYS_OK &&
	       hys_exec_create(s->dense_plan, NULL, &s->dense_exec, &s->error) == HYS_OK;
}

static bool allocate(struct steps *s)
{
	const struct demo_layer *l = s->layer;
	size_t rows = (size_t)l->rows, u = (size_t)l->kv_heads, h = (size_t)l->heads,
	       width = (size_t)l->v.shape[2], d = (size_t)l->dim,
	       index = (size_t)l->index_k.shape[1];
	const struct {
		void *pointer;
		size_t bytes;
	} blocks[] = {
		{&s->exact, rows * u * (size_t)s->options->topk * 4},
		{&s->fine, rows * u * (size_t)s->options->topk * 4},
		{&s->window, rows * u * (size_t)s->options->topk * 4},
		{&s->needed, rows * u * 4},
		{&s->mass, rows * u * 4},
		{&s->recall, rows * u * 4},
		{&s->lse, rows * h * 4},
		{&s->dense_lse, rows * h * 4},
		{&s->o, rows * h * width * 4},
		{&s->dense_o, rows * h * width * 4},
		{&s->grad_o, rows * h * width * 4},
		{&s->dq, rows * h * d * 4},
		{&s->dk, rows * u * d * 4},
		{&s->dv, rows * u * width * 4},
		{&s->d_index_q, rows * u * index * 2},
		{&s->d_index_k, rows * index * 2},
	};
	bool ok = true;
	for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
		void *memory = calloc(1, blocks[i].bytes);
		memcpy(blocks[i].pointer, &memory, sizeof memory);
		ok = ok && memory;
	}
	/* A fixed direction for the backward pass; its time does not depend on the values. */
	for (size_t i = 0; ok && i < rows * h * width; i++)
		tool_put(HYS_BF16, s->grad_o, (int64_t)i, sin(0.37 * (double)i));
	return ok;
}

static void free_steps(struct steps *s)
{
	void *blocks[] = {s->exact, s->fine,	  s->window,	s->needed,   s->mass,	s->recall,
			  s->lse,   s->dense_lse, s->o,		s->dense_o,  s->grad_o, s->dq,
			  s->dk,    s->dv,	  s->d_index_q, s->d_index_k};
	hys_exec_destroy(s->exec);
	hys_exec_destroy(s->dense_exec);
	hys_batch_destroy(s->batch);
	hys_batch_destroy(s->dense_batch);
	hys_plan_destroy(s->plan);
	hys_plan_destroy(s->dense_plan);
	for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
		free(blocks[i]);
}

static int print_plan(const struct steps *s)
{
	char text[8192];
	hys_plan_describe(s->plan, text, sizeof text);
	printf("\nPlan\n%s", text);
	return TOOL_OK;
}

int demo_run_layer(const struct demo_layer *layer, struct hys_context *context, int32_t device,
		   const struct demo_options *options, bool describe)
{
	const struct tool_colours *c = tool_colours();
	struct steps s = {.layer = layer, .options = options};
	set_problem(&s);
	bool ok = hys_context_device_info(context, device, &s.info, &s.error) == HYS_OK &&
		  make_plans(&s, context, device);
	if (ok && !allocate(&s)) {
		free_steps(&s);
		return tool_complain("out of memory");
	}
	if (ok && describe && !options->json)
		print_plan(&s);
	if (ok && !options->json)
		printf("\n%s%s on %s: %s%s\n"
		       "  %d tokens, %d query heads, %d key heads, dim %d; K = %d of %d keys; "
		       "coarse "
		       "blocks of %d, %d kept\n"
		       "  (time: median of %d; rate: useful work; traffic: bytes that must be "
		       "moved "
		       "at least)\n"
		       "  %-27s %-30s %10s %14s %11s\n",
		       c->bold, layer->name, s.info.backend, s.info.name, c->off, layer->rows,
		       layer->heads, layer->kv_heads, layer->dim, options->topk, layer->rows,
		       options->coarse_block, options->coarse_keep, options->repeat, "step",
		       "kernel", "time", "rate", "traffic");
	for (int i = 0; ok && i < STEP_COUNT; i++)
		ok = time_step(&s, &all_steps[i]);
	if (ok && !options->json)
		printf("  indexer loss: %.4f nats a row and group (the index is untrained)\n",
		       (double)s.loss);
	ok = ok && judge_all(&s);
	int result = ok ? TOOL_OK : tool_failed(layer->name, &s.error);
	free_steps(&s);
	return result;
}
