/* train_run.c - the training steps: what the schedule says, loss, gradient, update. */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE_END 0.1
#define KEY_PERIOD 10
#define HEADS_PER_GROUP 4

/* ---- opening ---- */

static hys_status make_plan(struct train_run *run, bool coarse, struct hys_plan **plan,
			    struct hys_exec **exec, struct hys_error *error)
{
	const struct train_options *options = run->options;
	const struct train_data *data = &run->data;
	const int32_t block = coarse ? (int32_t)options->coarse_block : 1;
	const struct hys_problem problem = {
		.struct_size = sizeof problem,
		.scoring = {.heads = run->shape.heads,
			    .dim = run->shape.dim,
			    .groups = data->kv_heads,
			    .block = block},
		.choosing = {.topk_max = (int32_t)((options->topk + block - 1) / block),
			     .coarse_block = (int32_t)options->coarse_block,
			     .coarse_keep = (int32_t)options->coarse_keep},
		.attending = {.heads = data->heads,
			      .kv_heads = data->kv_heads,
			      .head_dim = data->head_dim,
			      .dtype = data->dtype}};
	const struct hys_plan_options wanted = {
		.struct_size = sizeof wanted,
		.operations =
			coarse ? HYS_OP_BIT(HYS_OP_SELECT_COARSE) | HYS_OP_BIT(HYS_OP_INDEXER_LOSS)
			       : HYS_OP_BIT(HYS_OP_SELECT) |
					 HYS_OP_BIT(HYS_OP_SELECT_COARSE_TO_FINE) |
					 HYS_OP_BIT(HYS_OP_INDEXER_LOSS) |
					 HYS_OP_BIT(HYS_OP_FIDELITY),
		.rows_max = data->longest,
		.keys_max = data->longest,
		.progress = tool_plan_progress};
	hys_status status = hys_plan_create(run->context, &problem, &wanted, plan, error);
	return status == HYS_OK ? hys_exec_create(*plan, NULL, exec, error) : status;
}

/* On the line from --topk where the sparse steps begin to --topk-end where they end. */
static int32_t topk_at(const struct train_options *options, int64_t step)
{
	const double into = (double)(step - options->warmup_steps);
	const double steps = fmax(1, (double)(options->steps - options->warmup_steps));
	return (int32_t)lround((double)options->topk +
			       (double)(options->topk_end - options->topk) * into / steps);
}

static hys_status make_schedule(struct train_run *run, struct hys_error *error)
{
	const struct train_options *options = run->options;
	const bool exact = strcmp(options->schedule, "exact") == 0;
	const int64_t warm = options->warmup_steps;
	const int64_t fine = warm + (options->steps - warm) * 3 / 10;
	struct hys_schedule_piece pieces[3];
	struct hys_schedule_options wanted = {.struct_size = sizeof wanted,
					      .steps = options->steps,
					      .layers = run->data.layer_count,
					      .groups = run->data.kv_heads,
					      .topk_max = (int32_t)options->topk,
					      .coarse_block = (int32_t)options->coarse_block,
					      .pieces = pieces,
					      .key_period = exact ? 0 : KEY_PERIOD,
					      .recall_floor = options->recall_floor,
					      .feedback_period = options->eval_period};
	int32_t count = 0;
	if (warm > 0)
		pieces[count++] = (struct hys_schedule_piece){
			.phase = HYS_PHASE_DENSE, .loss_row_stride = (int32_t)options->loss_rows};
	if (!exact && fine > warm)
		pieces[count++] = (struct hys_schedule_piece){.step = warm,
							      .phase = HYS_PHASE_COARSE,
							      .topk = wanted.topk_max,
							      .topk_end = topk_at(options, fine)};
	if (options->steps > (exact ? warm : fine))
		pieces[count++] = (struct hys_schedule_piece){
			.step = exact ? warm : fine,
			.phase = exact ? HYS_PHASE_EXACT : HYS_PHASE_COARSE_TO_FINE,
			.topk = topk_at(options, exact ? warm : fine),
			.topk_end = (int32_t)options->topk_end};
	wanted.piece_count = count;
	return hys_schedule_create(&wanted, &run->schedule, error);
}

static int take_memory(struct train_run *run)
{
	const size_t rows = (size_t)run->data.longest,
		     count = (size_t)train_parameters(&run->shape);
	const size_t heads = (size_t)run->shape.heads, dim = (size_t)run->shape.dim;
	const size_t index = rows * (heads * dim + dim + heads);
	float *memory = calloc(2 * index, sizeof *memory);
	bool whole = memory != NULL;
	run->index = (struct train_index){memory, NULL, NULL};
	run->hidden = calloc(rows * (size_t)run->data.channels, sizeof(float));
	run->gradient = calloc(count, sizeof(float));
	run->indices =
		calloc(rows * (size_t)(run->data.kv_heads * run->options->topk), sizeof(int32_t));
	run->log = calloc((size_t)run->options->steps, sizeof *run->log);
	whole = whole && run->hidden && run->gradient && run->indices && run->log;
	for (int l = 0; l < run->data.layer_count; l++) {
		float *weights = calloc(count, 3 * sizeof(float));
		run->states[l].weights = weights;
		whole = whole && weights;
		if (!weights)
			continue;
		run->states[l].moment = weights + count;
		run->states[l].square = weights + 2 * count;
		train_start(&run->shape, &run->states[l], (uint64_t)(run->options->seed + l));
	}
	if (!whole)
		return tool_complain("out of memory");
	run->index.k = memory + rows * heads * dim;
	run->index.w = run->index.k + rows * dim;
	run->index_gradient.q = memory + index;
	run->index_gradient.k = run->index_gradient.q + rows * heads * dim;
	run->index_gradient.w = run->index_gradient.k + rows * dim;
	return TOOL_OK;
}

int train_run_open(struct train_run *run, const struct train_options *options)
{
	struct hys_error error;
	int32_t *numbers = NULL, count;
	run->options = options;
	int result = train_data_open(&run->data, options);
	if (result != TOOL_OK)
		return result;
	run->shape = (struct train_shape){.channels = run->data.channels,
					  .heads = (int32_t)options->index_heads,
					  .dim = (int32_t)options->index_dim,
					  .rotary = (int32_t)options->index_dim / 4 * 2,
					  .theta = run->data.theta};
	if (run->shape.heads == 0)
		run->shape.heads = HEADS_PER_GROUP * run->data.kv_heads;
	if (run->shape.heads % run->data.kv_heads != 0)
		return tool_complain(
			"--index-heads is %d, expected a multiple of the %d key heads: "
			"each has a choice of its own",
			run->shape.heads, run->data.kv_heads);
	result = tool_open(options->device, &run->context, &numbers, &count);
	free(numbers);
	if (result == TOOL_OK)
		result = take_memory(run);
	if (result != TOOL_OK)
		return result;
	if (make_plan(run, false, &run->plan, &run->exec, &error) != HYS_OK ||
	    make_plan(run, true, &run->coarse_plan, &run->coarse_exec, &error) != HYS_OK)
		return tool_failed("plan", &error);
	if (make_schedule(run, &error) != HYS_OK)
		return tool_failed("schedule", &error);
	return options->resume ? train_load(run, options->out) : TOOL_OK;
}

void train_run_close(struct train_run *run)
{
	hys_schedule_destroy(run->schedule);
	hys_exec_destroy(run->exec);
	hys_exec_destroy(run->coarse_exec);
	hys_plan_destroy(run->plan);
	hys_plan_destroy(run->coarse_plan);
	hys_context_destroy(run->context);
	for (int l = 0; l < run->data.layer_count; l++)
		free(run->states[l].weights);
	free(run->index.q);
	free(run->hidden);
	free(run->gradient);
	free(run->indices);
	free(run->log);
	train_data_close(&run->data);
}

/* ---- one layer's step ---- */

static hys_op op_of(hys_phase phase)
{
	return phase == HYS_PHASE_COARSE	   ? HYS_OP_SELECT_COARSE
	       : phase == HYS_PHASE_COARSE_TO_FINE ? HYS_OP_SELECT_COARSE_TO_FINE
						   : HYS_OP_SELECT;
}

/* Useful work of the step: what the layer's selection and loss take. */
static void count_flops(struct train_run *run, const struct hys_decision *decision,
			const struct hys_plan *plan, const struct hys_batch *batch)
{
	const double pair = 2.0 * run->data.heads * run->data.head_dim +
			    6.0 * run->shape.heads * run->shape.dim;
	struct hys_cost cost = {0};
	if (decision->phase == HYS_PHASE_DENSE) {
		run->flops += pair * (double)hys_batch_key_pairs(batch) / decision->row_stride;
		return;
	}
	if (hys_plan_cost(plan, op_of(decision->phase), batch, &cost, NULL) == HYS_OK) {
		run->select_flops += cost.flops;
		run->flops += cost.flops;
	}
	if (hys_plan_cost(plan, HYS_OP_INDEXER_LOSS, batch, &cost, NULL) == HYS_OK)
		run->flops += cost.flops;
}

static struct hys_tensor index_tensor(const struct train_run *run, float *at, int32_t rows,
				      int part)
{
	const int32_t heads = run->shape.heads, dim = run->shape.dim;
	return part == 0   ? hys_host(at, HYS_F32, 3, rows, heads, dim)
	       : part == 1 ? hys_host(at, HYS_F32, 2, rows, dim, 0)
			   : hys_host(at, HYS_F32, 2, rows, heads, 0);
}

static hys_status select_keys(struct train_run *run, const struct hys_decision *decision,
			      struct hys_exec *exec, struct hys_batch *batch, int32_t rows,
			      struct hys_tensor *indices, struct hys_error *error)
{
	*indices = hys_host(run->indices, HYS_I32, 3, rows, run->data.kv_heads, decision->topk[0]);
	const struct hys_select_args args = {.struct_size = sizeof args,
					     .method = decision->method,
					     .topk = decision->topk,
					     .index_q = index_tensor(run, run->index.q, rows, 0),
					     .index_k = index_tensor(run, run->index.k, rows, 1),
					     .index_w = index_tensor(run, run->index.w, rows, 2),
					     .indices = *indices};
	return hys_select(exec, batch, &args, error);
}

/* Loss and the gradients of the index. */
static hys_status learn(struct train_run *run, int layer, int document,
			const struct hys_decision *decision, float *loss, struct hys_error *error)
{
	const struct train_data *data = &run->data;
	const bool coarse = decision->phase == HYS_PHASE_COARSE;
	const int32_t rows = train_document_rows(data, document);
	struct hys_plan *plan = coarse ? run->coarse_plan : run->plan;
	struct hys_exec *exec = coarse ? run->coarse_exec : run->exec;
	const struct hys_batch_desc desc = {
		.struct_size = sizeof desc, .rows = rows, .keys = rows, .flags = HYS_BATCH_CAUSAL};
	struct hys_batch *batch = NULL;
	struct hys_loss_args args = {.struct_size = sizeof args,
				     .flags = decision->loss_flags,
				     .row_stride = decision->row_stride,
				     .row_offset = decision->row_offset,
				     .index_q = index_tensor(run, run->index.q, rows, 0),
				     .index_k = index_tensor(run, run->index.k, rows, 1),
				     .index_w = index_tensor(run, run->index.w, rows, 2),
				     .q = train_view(data->layers[layer].q, data, document),
				     .k = train_view(data->layers[layer].k, data, document),
				     .loss = hys_host(loss, HYS_F32, 1, 1, 0, 0),
				     .d_index_q = index_tensor(run, run->index_gradient.q, rows, 0),
				     .d_index_k = index_tensor(run, run->index_gradient.k, rows, 1),
				     .d_index_w =
					     index_tensor(run, run->index_gradient.w, rows, 2)};
	hys_status status = hys_batch_create(plan, &desc, &batch, error);
	if (status == HYS_OK && decision->phase != HYS_PHASE_DENSE)
		status = select_keys(run, decision, exec, batch, rows, &args.indices, error);
	if (status == HYS_OK)
		status = hys_indexer_loss(exec, batch, &args, error);
	if (status == HYS_OK)
		status = hys_exec_finish(exec, error);
	if (status == HYS_OK)
		count_flops(run, decision, plan, batch);
	hys_batch_destroy(batch);
	return status;
}

/* Up over the first twentieth of the run, then down along a cosine. */
static double rate_at(const struct train_options *options, int64_t step)
{
	const double up = fmax(1, (double)options->steps / 20), at = (double)step + 1;
	const double way = fmin(1, fmax(0, (at - up) / fmax(1, (double)options->steps - up)));
	const double cosine = RATE_END + (1 - RATE_END) * (1 + cos(3.141592653589793 * way)) / 2;
	return options->rate * fmin(1, at / up) * cosine;
}

static int step_layer(struct train_run *run, int layer, int document,
		      const struct hys_decision *decision, double *loss)
{
	const struct train_options *options = run->options;
	const int32_t rows = train_document_rows(&run->data, document);
	struct hys_error error;
	float seen = 0;
	train_hidden(&run->data, layer, document, run->hidden);
	train_project(&run->shape, run->states[layer].weights, run->hidden, rows, &run->index);
	if (learn(run, layer, document, decision, &seen, &error) != HYS_OK)
		return tool_failed(run->data.layers[layer].name, &error);
	if (!isfinite(seen))
		return tool_complain(
			"the loss of %s is not finite at step %lld; the last checkpoint "
			"is as it was, a smaller --rate may help",
			run->data.layers[layer].name, (long long)run->step);
	train_project_backward(&run->shape, run->hidden, rows, &run->index_gradient, run->gradient);
	train_update(&run->shape, &run->states[layer], run->gradient, run->step + 1,
		     rate_at(options, run->step), options->decay, options->clip);
	*loss = (double)seen;
	return TOOL_OK;
}

/* ---- steps ---- */

int32_t train_topk(const struct train_run *run, int layer, int64_t step)
{
	const struct hys_schedule_question question = {
		.struct_size = sizeof question,
		.step = step < run->options->warmup_steps ? run->options->warmup_steps : step,
		.keys = run->data.longest,
		.layer = layer};
	struct hys_decision decision;
	if (question.step >= run->options->steps ||
	    hys_schedule_decide(run->schedule, &question, &decision, NULL) != HYS_OK)
		return (int32_t)run->options->topk;
	const int32_t entries = decision.topk[0] * decision.granularity;
	return entries < run->options->topk ? entries : (int32_t)run->options->topk;
}

/* Of the layer's K on one held-out document, of what the best K capture. */
static int measure_layer(struct train_run *run, int layer, double *recall)
{
	const int32_t topk = train_topk(run, layer, run->step);
	double share;
	int result = TOOL_OK;
	if (run->oracle_topk[layer] != topk)
		result = train_oracle_share(run, layer, topk, 1, &run->oracle[layer]);
	if (result == TOOL_OK)
		result = train_trained_share(run, layer, topk, run->states[layer].weights, 1,
					     &share);
	if (result != TOOL_OK)
		return result;
	run->oracle_topk[layer] = topk;
	*recall = share / run->oracle[layer];
	return TOOL_OK;
}

/* The mean over layers; the schedule is told of each, and may change K after a sparse step. */
static int measure(struct train_run *run, double *recall)
{
	double sum = 0;
	for (int l = 0; l < run->data.layer_count; l++) {
		double part;
		struct hys_error error;
		int result = measure_layer(run, l, &part);
		if (result != TOOL_OK)
			return result;
		const struct hys_schedule_feedback feedback = {.struct_size = sizeof feedback,
							       .step = run->step,
							       .keys = run->data.longest,
							       .layer = l,
							       .group = -1,
							       .recall = fmin(part, 1),
							       .overlap = -1,
							       .loss = -1};
		if (run->step >= run->options->warmup_steps &&
		    hys_schedule_feedback(run->schedule, &feedback, &error) != HYS_OK)
			return tool_failed("schedule", &error);
		sum += part;
	}
	*recall = sum / run->data.layer_count;
	return TOOL_OK;
}

static void show_step(const struct train_run *run, const struct train_log *log, double rows,
		      double seconds)
{
	const double *f = log->field;
	char text[64];
	snprintf(text, sizeof text, "%s K %.0f loss %.4f recall %.3f %.0f tokens/s",
		 hys_phase_name((hys_phase)f[1]), f[6], f[2], f[3], rows / seconds);
	tool_progress(run->step + 1, run->options->steps, text);
	if (!run->options->json || f[3] < 0)
		return;
	cJSON *line = cJSON_CreateObject();
	cJSON_AddNumberToObject(line, "step", f[0]);
	cJSON_AddStringToObject(line, "phase", hys_phase_name((hys_phase)f[1]));
	cJSON_AddNumberToObject(line, "loss", f[2]);
	cJSON_AddNumberToObject(line, "recall", f[3]);
	cJSON_AddNumberToObject(line, "topk", f[6]);
	cJSON_AddNumberToObject(line, "select_flops", f[4]);
	cJSON_AddNumberToObject(line, "flops", f[5]);
	cJSON_AddNumberToObject(line, "tokens_per_s", rows / seconds);
	tool_json_line(line);
	fflush(stdout); /* the next may be minutes away */
}

static int do_step(struct train_run *run)
{
	const struct train_options *options = run->options;
	const int document = (int)(run->step % run->data.train_documents);
	const double begin = tool_now();
	struct train_log *log = &run->log[run->step];
	double sum = 0, topk = 0;
	hys_phase phase = HYS_PHASE_DENSE;
	for (int l = 0; l < run->data.layer_count; l++) {
		const struct hys_schedule_question question = {.struct_size = sizeof question,
							       .step = run->step,
							       .data = document,
							       .keys = run->data.longest,
							       .layer = l};
		struct hys_decision decision;
		struct hys_error error;
		double loss = 0;
		if (hys_schedule_decide(run->schedule, &question, &decision, &error) != HYS_OK)
			return tool_failed("schedule", &error);
		int result = step_layer(run, l, document, &decision, &loss);
		if (result != TOOL_OK)
			return result;
		phase = decision.phase;
		topk += train_topk(run, l, run->step);
		sum += loss;
	}
	const double seconds = tool_now() - begin;
	*log = (struct train_log){{(double)run->step, phase, sum / run->data.layer_count, -1,
				   run->select_flops, run->flops, topk / run->data.layer_count}};
	if ((run->step + 1) % options->eval_period == 0 || run->step + 1 == options->steps) {
		int result = measure(run, &log->field[3]);
		if (result != TOOL_OK)
			return result;
	}
	show_step(run, log, (double)train_document_rows(&run->data, document), seconds);
	return TOOL_OK;
}

int train_run_steps(struct train_run *run)
{
	const struct train_options *options = run->options;
	int64_t end = options->steps;
	/* A place that cannot be written to shows now, not after hours. */
	int result = train_save(run, options->out);
	if (options->stop_after > 0 && run->step + options->stop_after < end)
		end = run->step + options->stop_after;
	while (result == TOOL_OK && run->step < end) {
		result = do_step(run);
		if (result != TOOL_OK)
			break;
		run->step++;
		if (run->step % options->save_period == 0 || run->step == end)
			result = train_save(run, options->out);
	}
	return result;
}
