/* train_file.c - checkpoints: one safetensors file with weights, optimizer, schedule, log and options,
 * replaced as a whole, so that a killed run leaves the one before. */
#include "train.h"

#include <stdlib.h>
#include <string.h>

#define FORMAT "hyscale-indexer-2"
#define PARTS 6 /* tensors of a layer */
#define SIGNATURE_MAX 512
#define STEP_MAX 24

/* All that must be the same for a run to go on. */
static void sign(const struct train_run *run, char text[SIGNATURE_MAX])
{
	const struct train_options *o = run->options;
	const struct train_data *d = &run->data;
	snprintf(text, SIGNATURE_MAX,
		 "steps %lld warmup %lld rows %lld schedule %s heads %d dim %lld topk %lld to "
		 "%lld, recall %.17g, coarse "
		 "%lld/%lld "
		 "eval %lld rate %.17g decay %.17g clip %.17g seed %lld data %d layers %lld tokens "
		 "%d channels %d/%d/%d theta %.17g documents %d of %d, longest %d",
		 (long long)o->steps, (long long)o->warmup_steps, (long long)o->loss_rows,
		 o->schedule, run->shape.heads, (long long)o->index_dim, (long long)o->topk,
		 (long long)o->topk_end, o->recall_floor, (long long)o->coarse_block,
		 (long long)o->coarse_keep, (long long)o->eval_period, o->rate, o->decay, o->clip,
		 (long long)o->seed, d->layer_count, (long long)d->tokens, d->channels, d->heads,
		 d->kv_heads, d->head_dim, d->theta, d->train_documents, d->documents, d->longest);
}

static struct st_tensor tensor_of(char *name, const char *type, const void *data, int64_t rows,
				  int64_t columns)
{
	struct st_tensor tensor = {.name = name, .rank = columns ? 2 : 1, .data = data};
	snprintf(tensor.dtype_name, sizeof tensor.dtype_name, "%s", type);
	tensor.dtype = strcmp(type, "F32") == 0 ? HYS_F32 : HYS_I32;
	tensor.shape[0] = rows;
	tensor.shape[1] = columns;
	tensor.bytes = rows * (columns ? columns : 1) * 4;
	return tensor;
}

/* The tensors of one layer; the first four are the weights, part by part. */
static void layer_tensors(const struct train_run *run, int layer, char names[PARTS][64],
			  struct st_tensor tensors[PARTS])
{
	static const char *const parts[PARTS] = {"index_q", "index_k", "index_w",
						 "index_b", "moment",  "square"};
	const struct train_shape *shape = &run->shape;
	const struct train_layer_state *state = &run->states[layer];
	const int64_t rows[4] = {(int64_t)shape->heads * shape->dim, shape->dim, shape->heads,
				 shape->heads};
	const float *at = state->weights;
	for (int i = 0; i < PARTS; i++)
		snprintf(names[i], 64, "%s.%s", run->data.layers[layer].name, parts[i]);
	for (int i = 0; i < 4; i++) {
		const int64_t columns = i == 3 ? 0 : shape->channels;
		tensors[i] = tensor_of(names[i], "F32", at, rows[i], columns);
		at += rows[i] * (columns ? columns : 1);
	}
	tensors[4] = tensor_of(names[4], "F32", state->moment, train_parameters(shape), 0);
	tensors[5] = tensor_of(names[5], "F32", state->square, train_parameters(shape), 0);
}

static int write_file(const struct train_run *run, const char *path, struct st_tensor *tensors,
		      char (*names)[64], unsigned char *schedule, size_t schedule_bytes)
{
	static char log_name[] = "log", schedule_name[] = "schedule";
	char signature[SIGNATURE_MAX], step[STEP_MAX], message[ST_MESSAGE];
	const char *metadata[] = {
		"format",  FORMAT, "library", hys_version_string(), "options",
		signature, "step", step,      "schedule",	    run->options->schedule};
	int32_t count = 0;
	sign(run, signature);
	snprintf(step, sizeof step, "%lld", (long long)run->step);
	for (int l = 0; l < run->data.layer_count; l++, count += PARTS)
		layer_tensors(run, l, names + count, tensors + count);
	hys_schedule_save(run->schedule, schedule, schedule_bytes);
	tensors[count++] =
		tensor_of(schedule_name, "I32", schedule, (int64_t)schedule_bytes / 4, 0);
	/* The bits of binary64, two words each. */
	tensors[count++] = tensor_of(log_name, "I32", run->log, run->step,
				     TRAIN_LOG_FIELDS * (int64_t)sizeof(double) / 4);
	if (st_write(path, tensors, count, metadata, 5, message))
		return TOOL_OK;
	return tool_complain(
		"%s could not be written: %s; nothing is lost up to the last checkpoint, "
		"make room and go on with --resume",
		path, message);
}

int train_save(const struct train_run *run, const char *path)
{
	const size_t count = (size_t)run->data.layer_count * PARTS + 2;
	const size_t schedule_bytes = hys_schedule_save(run->schedule, NULL, 0);
	struct st_tensor *tensors = calloc(count, sizeof *tensors);
	char(*names)[64] = calloc(count, sizeof *names);
	unsigned char *schedule = calloc(1, schedule_bytes);
	int result = tensors && names && schedule
			     ? write_file(run, path, tensors, names, schedule, schedule_bytes)
			     : tool_complain("out of memory");
	free(tensors);
	free(names);
	free(schedule);
	return result;
}

/* ---- reading ---- */

static int open_checkpoint(struct st_file *file, const char *path, int64_t *step)
{
	char message[ST_MESSAGE];
	if (!st_read(file, path, message))
		return tool_complain("%s: %s", path, message);
	const char *format = st_metadata(file, "format"), *at = st_metadata(file, "step");
	if (!format || strncmp(format, "hyscale-indexer-", 16) != 0 || !at)
		return tool_complain("%s is not a checkpoint of train-indexer", path);
	if (strcmp(format, FORMAT) != 0)
		return tool_complain(
			"%s has format %s, this program reads %s; train anew, or go on "
			"with the version that wrote it (%s)",
			path, format, FORMAT,
			st_metadata(file, "library") ? st_metadata(file, "library") : "unknown");
	if (!tool_integer(at, 0, INT32_MAX, step))
		return tool_complain("%s: the step '%s' is not a number", path, at);
	return TOOL_OK;
}

/* Copies a tensor of exactly these bytes. */
static int take(const struct st_file *file, const char *path, const struct st_tensor *like,
		void *target)
{
	const struct st_tensor *tensor = st_find(file, like->name);
	if (!tensor || tensor->dtype != like->dtype || tensor->bytes != like->bytes)
		return tool_complain("%s: '%s' is missing or not of the expected size", path,
				     like->name);
	memcpy(target, tensor->data, (size_t)tensor->bytes);
	return TOOL_OK;
}

static int take_layer(struct train_run *run, int layer, const struct st_file *file,
		      const char *path)
{
	char names[PARTS][64];
	struct st_tensor tensors[PARTS];
	int result = TOOL_OK;
	layer_tensors(run, layer, names, tensors);
	for (int i = 0; result == TOOL_OK && i < PARTS; i++)
		result = take(file, path, &tensors[i], (void *)(uintptr_t)tensors[i].data);
	return result;
}

static int take_schedule(struct train_run *run, const struct st_file *file, const char *path)
{
	const struct st_tensor *state = st_find(file, "schedule");
	struct hys_error error;
	if (!state)
		return tool_complain("%s: 'schedule' is missing", path);
	if (hys_schedule_load(run->schedule, state->data, (size_t)state->bytes, &error) != HYS_OK)
		return tool_failed(path, &error);
	return TOOL_OK;
}

static int take_all(struct train_run *run, const struct st_file *file, const char *path,
		    int64_t step)
{
	static char log_name[] = "log";
	const struct st_tensor log = tensor_of(log_name, "I32", NULL, step,
					       TRAIN_LOG_FIELDS * (int64_t)sizeof(double) / 4);
	char signature[SIGNATURE_MAX];
	const char *theirs = st_metadata(file, "options");
	sign(run, signature);
	if (!theirs || strcmp(theirs, signature) != 0)
		return tool_complain("%s is of another run and cannot go on with these options and "
				     "data:\n  its: %s\n  now: %s",
				     path, theirs ? theirs : "unknown", signature);
	if (step > run->options->steps)
		return tool_complain("%s is at step %lld of %lld", path, (long long)step,
				     (long long)run->options->steps);
	int result = take_schedule(run, file, path);
	for (int l = 0; result == TOOL_OK && l < run->data.layer_count; l++)
		result = take_layer(run, l, file, path);
	if (result == TOOL_OK && step > 0)
		result = take(file, path, &log, run->log);
	if (result != TOOL_OK || step == 0)
		return result;
	run->step = step;
	run->select_flops = run->log[step - 1].field[4];
	run->flops = run->log[step - 1].field[5];
	return TOOL_OK;
}

int train_load(struct train_run *run, const char *path)
{
	struct st_file file = {0};
	int64_t step = 0;
	int result = open_checkpoint(&file, path, &step);
	if (result == TOOL_OK)
		result = take_all(run, &file, path, step);
	st_free(&file);
	return result;
}

int train_load_log(const char *path, struct train_log **log, int64_t *steps)
{
	static char log_name[] = "log";
	struct st_file file = {0};
	*log = NULL;
	*steps = 0;
	int result = open_checkpoint(&file, path, steps);
	if (result == TOOL_OK) {
		const struct st_tensor like =
			tensor_of(log_name, "I32", NULL, *steps,
				  TRAIN_LOG_FIELDS * (int64_t)sizeof(double) / 4);
		*log = calloc((size_t)*steps + 1, sizeof **log);
		result = *log ? take(&file, path, &like, *log) : tool_complain("out of memory");
	}
	st_free(&file);
	return result;
}
