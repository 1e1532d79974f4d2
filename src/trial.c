#include "trial.h"

#include <math.h>
#include <string.h>

#include "clock.h"
#include "number.h"
#include "slow.h"

#define CHANNELS 21
#define VALUES 1024
#define PICKS 6 /* of them by a random number */
/* No repetition behind this time. */
#define LONG_ENOUGH_S 0.3
/* No run counts before this time, unless one is longer than LONG_ENOUGH_S. */
#define WARM_S 0.02

/* ---- which tensors ---- */

static bool listed(const char *name, const char *const *names)
{
	for (; *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

/* All that the operation may have at once, or what is usual. */
static bool wanted(const struct hys_trial *trial, const struct hys_field *field)
{
	static const char *const scales[] = {"index_q_scale", "index_k_scale", NULL};
	static const char *const values[] = {"v", "window_v", "dv", "dwindow_v", NULL};
	static const char *const window[] = {"window_k", "window_v", "dwindow_k", "dwindow_v",
					     NULL};
	static const char *const never[] = {"teacher_in", "norm",    "radius",
					    "lowest",	  "highest", NULL};
	const uint32_t flags = field->flags & (HYS_FIELD_OPTIONAL | HYS_FIELD_USUAL);
	const struct hys_problem *problem = &trial->plan.problem;
	const struct hys_attending *attending = &problem->attending;
	const char *name = field->name;
	const bool shared = attending->kv_heads == 1 && attending->value_dim < attending->head_dim;

	if (listed(name, never) || (shared && listed(name, values)))
		return false;
	if (listed(name, scales))
		return problem->scoring.dtype == HYS_F8E4M3;
	if (listed(name, window))
		return trial->size.window_keys > 0;
	if (!trial->size.test && flags == HYS_FIELD_OPTIONAL && !hys_is_pooling(trial->op))
		return false;
	if (trial->op == HYS_OP_INDEXER_LOSS && strcmp(name, "scores") == 0)
		return false;
	return strcmp(name, "indices") != 0 || trial->op == HYS_OP_FIDELITY ||
	       !(attending->flags & HYS_ATTENDING_DENSE) || hys_is_select(trial->op) ||
	       trial->op == HYS_OP_INDEXER_LOSS;
}

/* ---- numbers ---- */

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static int64_t random_below(uint64_t *state, int64_t end)
{
	return (int64_t)(next_random(state) % (uint64_t)end);
}

static double random_between(uint64_t *state, double low, double high)
{
	return low + (high - low) * (double)(next_random(state) >> 11) * 0x1p-53;
}

/* Spread like a unit normal, but for small integers where they are to be exact. A
 * weight below 0 would leave a row of one head no score above that of half of its
 * keys, which is 0: so many equal ones take kernels their longest way. */
static double random_value(const struct hys_trial *trial, const char *name, uint64_t *state)
{
	if (strcmp(name, "index_q_scale") == 0 || strcmp(name, "index_k_scale") == 0)
		return ldexp(1, (int)random_below(state, 3) - 1);
	if (strncmp(name, "lse", 3) == 0)
		return log((double)trial->size.keys + 1) + random_between(state, -1, 1);
	if (hys_is_select(trial->op) && trial->size.test)
		return (double)(random_below(state, 7) - 3);
	if (hys_is_select(trial->op) && strcmp(name, "index_w") == 0)
		return random_between(state, 0.1, 1.7);
	return random_between(state, -1.7, 1.7);
}

/* The numbers of one row and group: ascending from the row's first, gaps such
 * that they span what it sees, a hole in some rows, then -1. */
static void make_slots(const struct hys_trial *trial, const struct hys_batch *batch, int64_t t,
		       int32_t *slots, int64_t count, uint64_t *state)
{
	const struct hys_problem *problem = &trial->plan.problem;
	const bool pooled = problem->scoring.pool > 1;
	const int64_t unit = hys_index_step(problem);
	const int64_t origin = pooled ? batch->host.entry_origin[t] : batch->host.key_origin[t];
	const int64_t begin = pooled ? batch->host.index_begin[t] : batch->host.row_begin[t];
	const int64_t end = pooled ? batch->host.index_end[t] : batch->host.row_end[t];
	const int64_t gap = hys_max64(1, 2 * ((end - begin) / unit) / (count + 1));
	int64_t next = (begin - origin) / unit;

	for (int64_t s = 0; s < count; s++) {
		next += random_below(state, gap);
		slots[s] = origin + next * unit < end ? (int32_t)(origin + next * unit) : -1;
		next++;
	}
	if (t % 3 == 0 && count > 2)
		slots[1] = -1;
}

/* Elements of `size` bytes, any of VALUES for each, several by one random number. */
static inline void pick(char *memory, const char *values, size_t size, int64_t elements,
			uint64_t *state)
{
	uint64_t bits = 0;

	for (int64_t e = 0; e < elements; e++) {
		bits = e % PICKS == 0 ? next_random(state) : bits / VALUES;
		memcpy(memory + e * (int64_t)size, values + bits % VALUES * size, size);
	}
}

/* Picks among values that were rounded once: rounding each would be most of a
 * test's time. */
static void fill_reals(const struct hys_trial *trial, const char *name, hys_dtype dtype,
		       char *memory, int64_t elements, uint64_t *state)
{
	float values[VALUES]; /* room for any type */

	for (int64_t i = 0; i < VALUES; i++)
		hys_number_store(values, dtype, i, random_value(trial, name, state));
	switch (hys_dtype_size(dtype)) {
	case 1:
		pick(memory, (char *)values, 1, elements, state);
		break;
	case 2:
		pick(memory, (char *)values, 2, elements, state);
		break;
	default:
		pick(memory, (char *)values, 4, elements, state);
	}
}

static void fill_field(struct hys_trial *trial, const struct hys_batch *batch, int32_t i)
{
	const struct hys_field *field = &hys_op_fields(trial->op)->fields[i];
	const struct hys_tensor *tensor = hys_field_tensor(field, &trial->call.args);
	const int64_t elements = hys_field_elements(field, &trial->dims);
	uint64_t state = hys_hash(hys_hash_start, field->name, strlen(field->name));
	char *memory = trial->input + trial->at[i];

	if (field->flags & HYS_FIELD_OUT) {
		memset(memory, 0xff, (size_t)elements * hys_dtype_size(tensor->dtype));
	} else if (field->type == HYS_TYPE_I32) {
		const int64_t slots = tensor->shape[2];

		for (int64_t r = 0; r < tensor->shape[0] * tensor->shape[1]; r++)
			make_slots(trial, batch, r / tensor->shape[1],
				   (int32_t *)(void *)memory + r * slots, slots, &state);
	} else {
		fill_reals(trial, field->name, tensor->dtype, memory, elements, &state);
	}
}

/* ---- shapes ---- */

static void set_dims(struct hys_trial *trial, const struct hys_batch *batch)
{
	const struct hys_problem *problem = &trial->plan.problem;
	const bool blocks = problem->scoring.pool == 1;
	struct hys_size *size = &trial->call.size;
	int64_t *dims = trial->dims.size;

	size->problem = problem;
	size->rows = batch->rows;
	size->keys = batch->keys;
	size->entries = batch->entries;
	size->window_keys = batch->window_keys;
	size->coarse_blocks = batch->coarse_blocks;
	size->topk = trial->size.topk;
	size->key_pairs = (double)batch->key_pairs_before[batch->rows];
	size->entry_pairs = (double)batch->entry_pairs_before[batch->rows];
	trial->dims = hys_dims_of(size);
	dims[HYS_DIM_TOPK] = dims[HYS_DIM_REFERENCE] = size->topk;
	dims[HYS_DIM_CHANNELS] = dims[HYS_DIM_CHANNELS2] = CHANNELS;
	dims[HYS_DIM_UNITS] = blocks ? batch->coarse_blocks : batch->entries;
	dims[HYS_DIM_POOL_ROWS] = blocks ? batch->entries : batch->keys;
	dims[HYS_DIM_POOL_SIZE] = blocks ? problem->choosing.coarse_block : problem->scoring.pool;
	if (trial->op == HYS_OP_POOL)
		size->rows = dims[HYS_DIM_ROWS] = dims[HYS_DIM_UNITS];
	if (trial->op == HYS_OP_POOL_BACKWARD)
		size->rows = dims[HYS_DIM_ROWS] = dims[HYS_DIM_POOL_ROWS];
}

static void set_args(struct hys_trial *trial)
{
	const hys_pool_unit unit =
		trial->plan.problem.scoring.pool > 1 ? HYS_POOL_ENTRIES : HYS_POOL_BLOCKS;
	struct hys_call *call = &trial->call;

	call->op = trial->op;
	call->problem = &trial->plan.problem;
	memcpy(&call->args, &hys_op_fields(trial->op)->args_bytes, sizeof(size_t));
	if (hys_is_select(trial->op))
		for (int32_t u = 0; u < trial->plan.problem.scoring.groups; u++)
			call->topk[u] = (int32_t)hys_max64(1, trial->size.topk - u % 2);
	if (trial->op == HYS_OP_INDEXER_LOSS) {
		call->args.loss.coefficient = 1;
		call->args.loss.row_stride = 1;
	}
	if (trial->op == HYS_OP_POOL) {
		call->args.pool.pooling = HYS_POOL_GATED;
		call->args.pool.unit = unit;
	}
	if (trial->op == HYS_OP_POOL_BACKWARD) {
		call->args.pool_grad.pooling = HYS_POOL_GATED;
		call->args.pool_grad.unit = unit;
	}
	if (trial->op == HYS_OP_FIDELITY) {
		call->args.fidelity.row_stride = 1;
		call->args.fidelity.target_mass = 0.9;
	}
}

static void lay_out(struct hys_trial *trial)
{
	const struct hys_fields *fields = hys_op_fields(trial->op);

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		struct hys_tensor *tensor = hys_field_tensor(field, &trial->call.args);
		const bool grad =
			field->type == HYS_TYPE_INDEX_GRAD || field->type == HYS_TYPE_ATTEND_GRAD;
		int64_t stride = 1;

		trial->at[i] = -1;
		if (!wanted(trial, field))
			continue;
		tensor->dtype = grad ? HYS_F32 : hys_field_dtype(field, &trial->plan.problem);
		tensor->rank = field->rank;
		for (int32_t d = field->rank - 1; d >= 0; d--) {
			tensor->shape[d] = trial->dims.size[field->dims[d]];
			tensor->stride[d] = stride;
			stride *= hys_max64(tensor->shape[d], 1);
		}
		trial->at[i] = trial->bytes;
		trial->bytes +=
			hys_round_up(stride * (int64_t)hys_dtype_size(tensor->dtype), HYS_ALIGN);
	}
}

/* ---- making ---- */

/* Rows of the second source move along with the rows. */
static hys_status make_batch(const struct hys_trial *trial, struct hys_plan *plan,
			     struct hys_batch **batch, struct hys_error *error)
{
	const struct hys_trial_size *size = &trial->size;
	const int32_t rows = (int32_t)size->rows, keys = (int32_t)size->keys;
	const int32_t q[] = {0, rows / 3, rows / 3 + 1, rows};
	const int32_t k[] = {0, keys / 3, keys / 3, keys};
	struct hys_batch_desc desc = {
		.struct_size = sizeof(desc),
		.rows = rows,
		.keys = keys,
		.flags = size->all_seen ? 0 : HYS_BATCH_CAUSAL,
		.window_keys = size->window_keys,
	};
	int32_t *window = hys_alloc_array(trial->allocator, 2 * (int64_t)rows, sizeof(*window));
	hys_status status;

	if (!window)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a trial");
	for (int32_t t = 0; t < rows && size->window_keys > 0; t++) {
		window[t] = (int32_t)(t % size->window_keys);
		window[rows + t] = (int32_t)hys_min64(window[t] + 1 + t, size->window_keys);
	}
	if (size->window_keys > 0) {
		desc.window_begin = window;
		desc.window_end = window + rows;
	}
	if (size->documents) {
		desc.documents = 3;
		desc.cu_seqlens_q = q;
		desc.cu_seqlens_k = k;
	}
	status = hys_batch_create(plan, &desc, batch, error);
	hys_free(trial->allocator, window);
	return status;
}

hys_status hys_trial_make(struct hys_trial *trial, struct hys_context *context,
			  const struct hys_problem *problem, hys_op op,
			  const struct hys_trial_size *size, struct hys_error *error)
{
	struct hys_batch *batch = NULL;
	hys_status status;

	memset(trial, 0, sizeof(*trial));
	trial->allocator = &context->host.allocator;
	trial->op = op;
	trial->size = *size;
	trial->plan.context = context;
	atomic_init(&trial->plan.references, 1);
	trial->plan.problem = *problem;
	trial->plan.operations = HYS_OP_BIT(op);
	trial->plan.rows_max = size->rows;
	trial->plan.keys_max = size->keys;
	trial->plan.window_keys_max = size->window_keys;
	HYS_TRY(make_batch(trial, &trial->plan, &batch, error));
	set_dims(trial, batch);
	set_args(trial);
	lay_out(trial);
	trial->input = hys_alloc(trial->allocator, trial->bytes);
	if (!trial->input)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a trial"));
	for (int32_t i = 0; i < hys_op_fields(op)->count; i++)
		if (trial->at[i] >= 0)
			fill_field(trial, batch, i);
cleanup:
	hys_batch_destroy(batch);
	return status;
}

void hys_trial_clear(struct hys_trial *trial)
{
	if (trial->allocator)
		hys_free(trial->allocator, trial->input);
	trial->input = NULL;
}

/* ---- running ---- */

struct run {
	const struct hys_trial *trial;
	const struct hys_site *site;
	const struct hys_backend *backend;
	struct hys_plan plan;
	struct hys_device *devices[1];
	struct hys_batch *batch;
	struct hys_buffer *buffer;
	struct hys_stream *stream;
	void *instance;
	struct hys_call call;
};

static hys_status open_run(struct run *run, const struct hys_kernel *kernel, void *program,
			   struct hys_error *error)
{
	struct hys_device *device = run->site->device;
	const struct hys_trial *trial = run->trial;
	hys_status status;

	run->plan.context = run->site->context;
	atomic_init(&run->plan.references, 1);
	run->plan.problem = trial->plan.problem;
	run->plan.operations = trial->plan.operations;
	run->plan.rows_max = trial->plan.rows_max;
	run->plan.keys_max = trial->plan.keys_max;
	run->plan.window_keys_max = trial->plan.window_keys_max;
	run->devices[0] = device;
	run->plan.devices = run->devices;
	run->plan.device_count = 1;
	run->call = trial->call;
	if (kernel->workspace)
		run->call.workspace.bytes = kernel->workspace(kernel, device, &run->call.size);
	HYS_TRY(make_batch(trial, &run->plan, &run->batch, error));
	HYS_TRY(hys_buffer_make(run->site->context, device,
				hys_add64(trial->bytes, run->call.workspace.bytes), &run->buffer,
				error));
	HYS_TRY(run->backend->stream_create(device, NULL, &run->stream, error));
	HYS_TRY(run->backend->instance_create(run->stream, kernel, program, &run->instance, error));
cleanup:
	return status;
}

static void close_run(struct run *run)
{
	if (run->instance)
		run->backend->instance_destroy(run->stream, run->instance);
	if (run->stream)
		run->backend->stream_destroy(run->stream);
	hys_buffer_destroy(run->buffer);
	hys_batch_destroy(run->batch);
}

/* Puts every tensor where it lies in the buffer. */
static void place(struct run *run)
{
	const struct hys_fields *fields = hys_op_fields(run->trial->op);
	const bool host = run->site->device->host_memory;

	run->call.batch = run->batch->views[0];
	for (int32_t i = 0; i < fields->count; i++) {
		struct hys_tensor *tensor = hys_field_tensor(&fields->fields[i], &run->call.args);
		const int64_t at = run->trial->at[i];

		if (at < 0)
			continue;
		if (host) {
			tensor->host = (char *)run->buffer->native + at;
		} else {
			tensor->buffer = run->buffer;
			tensor->offset = at / (int64_t)hys_dtype_size(tensor->dtype);
		}
	}
	if (host)
		run->call.workspace.host = (char *)run->buffer->native + run->trial->bytes;
	else
		run->call.workspace.buffer = run->buffer;
	run->call.workspace.offset_bytes = host ? 0 : run->trial->bytes;
}

static hys_status run_once(struct run *run, const struct hys_kernel *kernel, double *seconds,
			   struct hys_error *error)
{
	const double start = hys_now_s();
	hys_status status;

	HYS_TRY(kernel->run(kernel, run->stream, run->instance, &run->call, error));
	HYS_TRY(run->backend->finish(run->stream, error));
	hys_slow_down(run->site->device, hys_now_s() - start);
	*seconds = hys_now_s() - start;
cleanup:
	return status;
}

/* The shortest of the runs. More than one are preceded by some that do not count: clocks rise, threads find
 * their processors, pages are touched. */
static hys_status repeat(struct run *run, const struct hys_kernel *kernel, int32_t repeats,
			 double *seconds, struct hys_error *error)
{
	const double warm = hys_now_s();
	double begin, once = 0, best = (double)INFINITY;
	hys_status status;

	do
		HYS_TRY(run_once(run, kernel, &once, error));
	while (repeats > 1 && hys_now_s() - warm < WARM_S);
	*seconds = once;
	if (repeats == 1 || once > LONG_ENOUGH_S)
		return HYS_OK;
	begin = hys_now_s();
	for (int32_t i = 0; i < repeats && (i == 0 || hys_now_s() - begin < LONG_ENOUGH_S); i++) {
		HYS_TRY(run_once(run, kernel, &once, error));
		best = fmin(best, once);
	}
	*seconds = best;
cleanup:
	return status;
}

hys_status hys_trial_run(const struct hys_trial *trial, const struct hys_site *site,
			 const struct hys_kernel *kernel, void *program, int32_t repeats,
			 char *output, double *seconds, struct hys_error *error)
{
	struct run run = {.trial = trial, .site = site, .backend = site->device->backend};
	struct hys_copy copy = {.host = trial->input, .bytes = trial->bytes, .count = {1, 1}};
	double best = 0;
	hys_status status;

	HYS_TRY(open_run(&run, kernel, program, error));
	place(&run);
	copy.device = (struct hys_region){NULL, run.buffer, 0, trial->bytes};
	HYS_TRY(run.backend->copy_in(run.stream, &copy, error));
	HYS_TRY(repeat(&run, kernel, repeats, &best, error));
	copy.host = output;
	if (output)
		HYS_TRY(run.backend->copy_out(run.stream, &copy, error));
	HYS_TRY(run.backend->finish(run.stream, error));
	if (seconds)
		*seconds = best;
cleanup:
	close_run(&run);
	return status;
}
