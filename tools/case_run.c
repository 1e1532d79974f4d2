/* case_run.c - plan, run and collect the outputs of one case on one device. */
#include "case.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An argument of an operation: a tensor of the file goes to the field of the same name. */
struct field {
	const char *name;
	size_t offset;
};

#define FIELD(type, name)                          \
	{                                          \
#name, offsetof(struct type, name) \
	}

/* An output: its shape in size letters (T rows, S keys, E entries, W second source's keys, H G heads,
 * D V dims, I index heads, J index dim, U groups, K top-k, C channels, X rows of x, N units, P rows
 * per unit, 1) and its type:
 * 'f' f32, 'i' i32, 'q' that of q or o_a, 'x' that of index_q, 'c' that of the tensor x. */
struct output {
	const char *name;
	size_t offset;
	const char *shape;
	char type;
	const char *needs; /* only when the file has this tensor; NULL = always */
};

#define OUTPUT(type, name, shape, dtype, needs)                         \
	{                                                               \
#name, offsetof(struct type, name), shape, dtype, needs \
	}

static const struct field select_inputs[] = {
	FIELD(hys_select_args, index_q),       FIELD(hys_select_args, index_k),
	FIELD(hys_select_args, index_w),       FIELD(hys_select_args, index_q_scale),
	FIELD(hys_select_args, index_k_scale), {0},
};
static const struct output select_outputs[] = {
	OUTPUT(hys_select_args, indices, "TUK", 'i', NULL),
	OUTPUT(hys_select_args, counts, "TU", 'i', NULL),
	OUTPUT(hys_select_args, scores, "TUK", 'f', NULL),
	OUTPUT(hys_select_args, kth, "TU", 'f', NULL),
	OUTPUT(hys_select_args, nan_rows, "1", 'i', NULL),
	{0},
};
static const struct field forward_inputs[] = {
	FIELD(hys_attention_args, q),	     FIELD(hys_attention_args, k),
	FIELD(hys_attention_args, v),	     FIELD(hys_attention_args, indices),
	FIELD(hys_attention_args, sink),     FIELD(hys_attention_args, window_k),
	FIELD(hys_attention_args, window_v), {0},
};
static const struct output forward_outputs[] = {
	OUTPUT(hys_attention_args, o, "THV", 'q', NULL),
	OUTPUT(hys_attention_args, lse, "TH", 'f', NULL),
	{0},
};
static const struct field backward_inputs[] = {
	FIELD(hys_attention_grad_args, q),
	FIELD(hys_attention_grad_args, k),
	FIELD(hys_attention_grad_args, v),
	FIELD(hys_attention_grad_args, indices),
	FIELD(hys_attention_grad_args, sink),
	FIELD(hys_attention_grad_args, window_k),
	FIELD(hys_attention_grad_args, window_v),
	FIELD(hys_attention_grad_args, o),
	FIELD(hys_attention_grad_args, lse),
	FIELD(hys_attention_grad_args, grad_o),
	{0},
};
static const struct output backward_outputs[] = {
	OUTPUT(hys_attention_grad_args, dq, "THD", 'q', NULL),
	OUTPUT(hys_attention_grad_args, dk, "SGD", 'q', NULL),
	OUTPUT(hys_attention_grad_args, dv, "SGV", 'q', "v"),
	OUTPUT(hys_attention_grad_args, dsink, "H", 'f', "sink"),
	OUTPUT(hys_attention_grad_args, dwindow_k, "WGD", 'q', "window_k"),
	OUTPUT(hys_attention_grad_args, dwindow_v, "WGV", 'q', "window_v"),
	{0},
};
static const struct field loss_inputs[] = {
	FIELD(hys_loss_args, index_q),
	FIELD(hys_loss_args, index_k),
	FIELD(hys_loss_args, index_w),
	FIELD(hys_loss_args, indices),
	FIELD(hys_loss_args, q),
	FIELD(hys_loss_args, k),
	FIELD(hys_loss_args, lse),
	FIELD(hys_loss_args, sink),
	FIELD(hys_loss_args, scores),
	FIELD(hys_loss_args, teacher_in),
	{0},
};
static const struct output loss_outputs[] = {
	OUTPUT(hys_loss_args, loss, "1", 'f', NULL),
	OUTPUT(hys_loss_args, d_index_q, "TIJ", 'x', NULL),
	OUTPUT(hys_loss_args, d_index_k, "EJ", 'x', NULL),
	OUTPUT(hys_loss_args, d_index_w, "TI", 'f', "index_w"),
	OUTPUT(hys_loss_args, teacher_out, "TUK", 'f', "indices"),
	{0},
};
static const struct field pool_inputs[] = {
	FIELD(hys_pool_args, x),
	FIELD(hys_pool_args, gate),
	FIELD(hys_pool_args, bias),
	{0},
};
static const struct output pool_outputs[] = {
	OUTPUT(hys_pool_args, y, "NC", 'c', NULL),
	{0},
};
static const struct field pool_grad_inputs[] = {
	FIELD(hys_pool_grad_args, x),
	FIELD(hys_pool_grad_args, gate),
	FIELD(hys_pool_grad_args, bias),
	FIELD(hys_pool_grad_args, grad_y),
	{0},
};
static const struct output pool_grad_outputs[] = {
	OUTPUT(hys_pool_grad_args, dx, "XY", 'c', NULL),
	OUTPUT(hys_pool_grad_args, dgate, "XY", 'c', "gate"),
	OUTPUT(hys_pool_grad_args, dbias, "PY", 'f', "bias"),
	{0},
};
static const struct field merge_inputs[] = {
	FIELD(hys_merge_args, o_a),
	FIELD(hys_merge_args, o_b),
	FIELD(hys_merge_args, lse_a),
	FIELD(hys_merge_args, lse_b),
	{0},
};
static const struct output merge_outputs[] = {
	OUTPUT(hys_merge_args, o, "THV", 'q', NULL),
	OUTPUT(hys_merge_args, lse, "TH", 'f', NULL),
	{0},
};
static const struct field fidelity_inputs[] = {
	FIELD(hys_fidelity_args, q),
	FIELD(hys_fidelity_args, k),
	FIELD(hys_fidelity_args, indices),
	FIELD(hys_fidelity_args, reference),
	{0},
};
static const struct output fidelity_outputs[] = {
	OUTPUT(hys_fidelity_args, mass, "TU", 'f', NULL),
	OUTPUT(hys_fidelity_args, recall, "TU", 'f', "reference"),
	OUTPUT(hys_fidelity_args, topk_needed, "TU", 'i', NULL),
	{0},
};

/* Arrays that say which rows see which keys: 'T' one number per row, 'd' per document and one more. */
static const struct {
	const char *name;
	size_t offset;
	char length;
} intervals[] = {
	{"row_begin", offsetof(struct hys_batch_desc, row_begin), 'T'},
	{"row_end", offsetof(struct hys_batch_desc, row_end), 'T'},
	{"index_begin", offsetof(struct hys_batch_desc, index_begin), 'T'},
	{"index_end", offsetof(struct hys_batch_desc, index_end), 'T'},
	{"window_begin", offsetof(struct hys_batch_desc, window_begin), 'T'},
	{"window_end", offsetof(struct hys_batch_desc, window_end), 'T'},
	{"positions", offsetof(struct hys_batch_desc, positions), 'T'},
	{"cu_seqlens_q", offsetof(struct hys_batch_desc, cu_seqlens_q), 'd'},
	{"cu_seqlens_k", offsetof(struct hys_batch_desc, cu_seqlens_k), 'd'},
};
#define INTERVALS ((int32_t)(sizeof intervals / sizeof intervals[0]))

static const struct {
	const struct field *inputs;
	const struct output *outputs;
	const char *needs[5]; /* inputs that it cannot do without */
} ops[HYS_OP_COUNT] = {
	[HYS_OP_SELECT] = {select_inputs, select_outputs, {"index_q", "index_k"}},
	[HYS_OP_SELECT_COARSE] = {select_inputs, select_outputs, {"index_q", "index_k"}},
	[HYS_OP_SELECT_COARSE_TO_FINE] = {select_inputs, select_outputs, {"index_q", "index_k"}},
	[HYS_OP_ATTENTION_FORWARD] = {forward_inputs, forward_outputs, {"q", "k"}},
	[HYS_OP_ATTENTION_BACKWARD] = {backward_inputs, backward_outputs, {"q", "k", "grad_o"}},
	[HYS_OP_INDEXER_LOSS] = {loss_inputs, loss_outputs, {"index_q", "index_k", "q", "k"}},
	[HYS_OP_POOL] = {pool_inputs, pool_outputs, {"x"}},
	[HYS_OP_POOL_BACKWARD] = {pool_grad_inputs, pool_grad_outputs, {"x", "grad_y"}},
	[HYS_OP_MERGE] = {merge_inputs, merge_outputs, {"o_a", "o_b", "lse_a", "lse_b"}},
	[HYS_OP_FIDELITY] = {fidelity_inputs, fidelity_outputs, {"q", "k", "indices"}},
};

union arguments {
	size_t struct_size;
	struct hys_select_args select;
	struct hys_attention_args forward;
	struct hys_attention_grad_args backward;
	struct hys_loss_args loss;
	struct hys_pool_args pool;
	struct hys_pool_grad_args pool_grad;
	struct hys_merge_args merge;
	struct hys_fidelity_args fidelity;
};

static struct hys_tensor file_tensor(const struct st_tensor *t)
{
	struct hys_tensor tensor =
		hys_host(t->data, t->dtype, t->rank, t->shape[0], t->shape[1], t->shape[2]);
	/* A type that the library lacks must not read as "absent". */
	if (t->dtype == HYS_DTYPE_DEFAULT)
		tensor.dtype = HYS_DTYPE_COUNT;
	return tensor;
}

static void set_tensor(union arguments *args, size_t offset, struct hys_tensor tensor)
{
	memcpy((char *)args + offset, &tensor, sizeof tensor);
}

static bool on(const struct tool_case *c, const char *key)
{
	return case_number(c, key, 0) != 0;
}

static int64_t x_rows(const struct tool_case *c)
{
	const struct st_tensor *x = case_tensor(c, "x");
	return x ? x->shape[0] : 0;
}

static int64_t x_width(const struct tool_case *c)
{
	const struct st_tensor *x = case_tensor(c, "x");
	return x && x->rank > 1 ? x->shape[1] : 0;
}

/* The size that a letter of an output's shape stands for. */
static int64_t letter_size(char letter, const struct tool_case *c, const struct case_run *run)
{
	const struct hys_problem *p = hys_plan_problem(run->plan);
	bool blocks = on(c, "blocks"), overlapped = on(c, "overlapped");
	switch (letter) {
	case 'T':
		return c->rows;
	case 'S':
		return c->keys;
	case 'E':
		return c->entries;
	case 'W':
		return c->window_keys;
	case 'H':
		return p->attending.heads;
	case 'G':
		return p->attending.kv_heads;
	case 'D':
		return p->attending.head_dim;
	case 'V':
		return p->attending.value_dim;
	case 'I':
		return p->scoring.heads;
	case 'J':
		return p->scoring.dim;
	case 'U':
		return p->scoring.groups;
	case 'K':
		return c->topk;
	case 'N':
		return blocks ? hys_batch_coarse_blocks(run->batch) : hys_batch_entries(run->batch);
	case 'P':
		return blocks ? p->choosing.coarse_block : p->scoring.pool;
	case 'X':
		return x_rows(c);
	case 'Y':
		return x_width(c);
	case 'C':
		return overlapped ? x_width(c) / 2 : x_width(c);
	default:
		return 1;
	}
}

static hys_dtype output_dtype(char type, const struct tool_case *c, const struct case_run *run)
{
	const struct hys_problem *p = hys_plan_problem(run->plan);
	const struct st_tensor *x = case_tensor(c, "x");
	switch (type) {
	case 'i':
		return HYS_I32;
	case 'q':
		return p->attending.dtype;
	case 'x':
		return p->scoring.dtype;
	case 'c':
		return x ? x->dtype : HYS_F32;
	default:
		return HYS_F32;
	}
}

static hys_status no_memory(struct hys_error *error, int64_t bytes)
{
	*error = (struct hys_error){.status = HYS_OUT_OF_MEMORY};
	snprintf(error->message, sizeof error->message,
		 "no memory for an output of %" PRId64 " bytes", bytes);
	return HYS_OUT_OF_MEMORY;
}

static hys_status add_output(const struct tool_case *c, const struct output *output,
			     union arguments *args, struct case_run *run, struct hys_error *error)
{
	struct case_output *slot = &run->outputs[run->output_count];
	int64_t shape[3] = {0}, elements = 1;
	int32_t rank = (int32_t)strlen(output->shape);
	for (int32_t d = 0; d < rank; d++) {
		shape[d] = letter_size(output->shape[d], c, run);
		if (shape[d] > 0 && elements > INT64_MAX / 8 / shape[d])
			return no_memory(error, INT64_MAX);
		elements *= shape[d];
	}
	hys_dtype dtype = output_dtype(output->type, c, run);
	int64_t bytes = elements * (int64_t)hys_dtype_size(dtype);
	void *data = malloc((size_t)bytes + 1);
	if (!data)
		return no_memory(error, bytes);
	memset(data, 0xff, (size_t)bytes); /* NaN: what is not written is seen */
	slot->tensor = hys_host(data, dtype, rank, shape[0], shape[1], shape[2]);
	snprintf(slot->name, sizeof slot->name, "%s", output->name);
	set_tensor(args, output->offset, slot->tensor);
	run->output_count++;
	return HYS_OK;
}

static void fill_inputs(const struct tool_case *c, union arguments *args)
{
	for (const struct field *f = ops[c->op].inputs; f->name; f++) {
		const struct st_tensor *t = case_tensor(c, f->name);
		bool dense_loss = c->op == HYS_OP_INDEXER_LOSS && on(c, "dense");
		if (t && !(dense_loss && strcmp(f->name, "indices") == 0))
			set_tensor(args, f->offset, file_tensor(t));
	}
}

static void fill_pooling(const struct tool_case *c, hys_pooling *pooling, hys_pool_unit *unit)
{
	*unit = on(c, "blocks") ? HYS_POOL_BLOCKS : HYS_POOL_ENTRIES;
	*pooling = !case_tensor(c, "gate") ? HYS_POOL_MEAN
		   : on(c, "overlapped")   ? HYS_POOL_OVERLAPPED
					   : HYS_POOL_GATED;
}

static void fill_loss(const struct tool_case *c, struct hys_loss_args *loss)
{
	const cJSON *reduction = cJSON_GetObjectItemCaseSensitive(c->settings, "reduction");
	const char *name = cJSON_GetStringValue(reduction);
	loss->coefficient = case_number(c, "coefficient", 1);
	loss->row_stride = (int32_t)case_number(c, "row_stride", 0);
	loss->row_offset = (int32_t)case_number(c, "row_offset", 0);
	loss->reduction = name && strcmp(name, "sum") == 0 ? HYS_REDUCTION_SUM : HYS_REDUCTION_MEAN;
	loss->flags = on(c, "dense") ? HYS_LOSS_DENSE : 0;
}

static void fill_settings(const struct tool_case *c, union arguments *args)
{
	switch (c->op) {
	case HYS_OP_INDEXER_LOSS:
		fill_loss(c, &args->loss);
		break;
	case HYS_OP_POOL:
		fill_pooling(c, &args->pool.pooling, &args->pool.unit);
		break;
	case HYS_OP_POOL_BACKWARD:
		fill_pooling(c, &args->pool_grad.pooling, &args->pool_grad.unit);
		break;
	case HYS_OP_FIDELITY:
		args->fidelity.target_mass = case_number(c, "target_mass", 0);
		args->fidelity.row_stride = (int32_t)case_number(c, "row_stride", 0);
		break;
	case HYS_OP_SELECT:
		args->select.method = c->problem.choosing.method;
		break;
	default:
		break;
	}
}

static hys_status call(hys_op op, struct case_run *run, union arguments *args,
		       struct hys_error *error)
{
	static const size_t sizes[HYS_OP_COUNT] = {
		[HYS_OP_SELECT] = sizeof args->select,
		[HYS_OP_SELECT_COARSE] = sizeof args->select,
		[HYS_OP_SELECT_COARSE_TO_FINE] = sizeof args->select,
		[HYS_OP_ATTENTION_FORWARD] = sizeof args->forward,
		[HYS_OP_ATTENTION_BACKWARD] = sizeof args->backward,
		[HYS_OP_INDEXER_LOSS] = sizeof args->loss,
		[HYS_OP_POOL] = sizeof args->pool,
		[HYS_OP_POOL_BACKWARD] = sizeof args->pool_grad,
		[HYS_OP_MERGE] = sizeof args->merge,
		[HYS_OP_FIDELITY] = sizeof args->fidelity,
	};
	args->struct_size = sizes[op];
	switch (op) {
	case HYS_OP_ATTENTION_FORWARD:
		return hys_attention_forward(run->exec, run->batch, &args->forward, error);
	case HYS_OP_ATTENTION_BACKWARD:
		return hys_attention_backward(run->exec, run->batch, &args->backward, error);
	case HYS_OP_INDEXER_LOSS:
		return hys_indexer_loss(run->exec, run->batch, &args->loss, error);
	case HYS_OP_POOL:
		return hys_pool(run->exec, run->batch, &args->pool, error);
	case HYS_OP_POOL_BACKWARD:
		return hys_pool_backward(run->exec, run->batch, &args->pool_grad, error);
	case HYS_OP_MERGE:
		return hys_merge(run->exec, run->batch, &args->merge, error);
	case HYS_OP_FIDELITY:
		return hys_fidelity(run->exec, run->batch, &args->fidelity, error);
	default:
		return hys_select(run->exec, run->batch, &args->select, error);
	}
}

/* Runs one operation; its outputs join run->outputs. */
static hys_status run_op(const struct tool_case *c, hys_op op, struct case_run *run,
			 struct hys_error *error)
{
	union arguments args;
	memset(&args, 0, sizeof args);
	struct tool_case view = *c;
	view.op = op;
	fill_inputs(&view, &args);
	fill_settings(&view, &args);
	if (op == HYS_OP_ATTENTION_BACKWARD && !hys_dtype_size(args.backward.o.dtype)) {
		/* The file has no forward results: use those just computed. */
		args.backward.o = run->outputs[0].tensor;
		args.backward.lse = run->outputs[1].tensor;
	}
	for (const struct output *o = ops[op].outputs; o->name; o++) {
		if (o->needs && !case_tensor(c, o->needs))
			continue;
		if (op == HYS_OP_INDEXER_LOSS && on(c, "dense") && o->needs &&
		    strcmp(o->needs, "indices") == 0)
			continue;
		hys_status status = add_output(c, o, &args, run, error);
		if (status != HYS_OK)
			return status;
	}
	hys_status status = call(op, run, &args, error);
	return status == HYS_OK ? hys_exec_finish(run->exec, error) : status;
}

static hys_status find_interval(const struct tool_case *c, const char *name, int64_t length,
				const int32_t **array, struct hys_error *error)
{
	const struct st_tensor *t = case_tensor(c, name);
	if (!t)
		return HYS_OK;
	if (t->dtype != HYS_I32 || t->rank != 1 || (length >= 0 && t->shape[0] != length)) {
		*error = (struct hys_error){.status = HYS_INVALID_ARGUMENT};
		snprintf(error->message, sizeof error->message,
			 "%s is %s of rank %d and size %" PRId64 ", expected I32 [%" PRId64 "]",
			 name, t->dtype_name, t->rank, t->shape[0], length);
		return HYS_INVALID_ARGUMENT;
	}
	*array = t->data;
	return HYS_OK;
}

static hys_status make_batch(const struct tool_case *c, struct case_run *run,
			     struct hys_error *error)
{
	struct hys_batch_desc desc = {.struct_size = sizeof desc,
				      .rows = c->rows,
				      .keys = c->keys,
				      .window_keys = c->window_keys};
	const struct st_tensor *cu = case_tensor(c, "cu_seqlens_q");
	for (int32_t i = 0; i < INTERVALS; i++) {
		const int32_t *array = NULL;
		int64_t length = intervals[i].length == 'T' ? c->rows : cu ? cu->shape[0] : -1;
		hys_status status = find_interval(c, intervals[i].name, length, &array, error);
		if (status != HYS_OK)
			return status;
		memcpy((char *)&desc + intervals[i].offset, &array, sizeof array);
	}
	desc.documents = cu ? (int32_t)cu->shape[0] - 1 : 0;
	if (desc.index_begin)
		desc.entries = c->entries;
	if (!desc.row_begin && case_number(c, "causal", 1) != 0)
		desc.flags |= HYS_BATCH_CAUSAL;
	return hys_batch_create(run->plan, &desc, &run->batch, error);
}

static hys_op planned_select(const struct tool_case *c)
{
	switch (c->problem.choosing.method) {
	case HYS_METHOD_COARSE:
		return HYS_OP_SELECT_COARSE;
	case HYS_METHOD_COARSE_TO_FINE:
		return HYS_OP_SELECT_COARSE_TO_FINE;
	default:
		return HYS_OP_SELECT;
	}
}

static hys_status make_plan(const struct tool_case *c, struct hys_context *context, int32_t device,
			    struct case_run *run, struct hys_error *error)
{
	hys_op op = c->op == HYS_OP_SELECT ? planned_select(c) : c->op;
	int64_t rows = c->rows > x_rows(c) ? c->rows : x_rows(c);
	struct hys_plan_options options = {
		.struct_size = sizeof options,
		.operations = HYS_OP_BIT(op),
		.devices = &device,
		.device_count = 1,
		.rows_max = rows > 0 ? rows : 1,
		.keys_max = c->keys > 0 ? c->keys : 1,
		.window_keys_max = c->window_keys,
	};
	if (op == HYS_OP_ATTENTION_BACKWARD && !case_tensor(c, "o"))
		options.operations |= HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD);
	return hys_plan_create(context, &c->problem, &options, &run->plan, error);
}

bool case_reads(const struct tool_case *c, const char *name)
{
	for (const struct field *f = ops[c->op].inputs; f->name; f++)
		if (strcmp(f->name, name) == 0)
			return true;
	for (int32_t i = 0; i < INTERVALS; i++)
		if (strcmp(intervals[i].name, name) == 0)
			return true;
	return false;
}

const char *case_missing(const struct tool_case *c)
{
	/* Its own teacher takes the place of the model's q and k. */
	const bool taught = c->op == HYS_OP_INDEXER_LOSS && case_tensor(c, "teacher_in");
	for (int i = 0; i < 5 && ops[c->op].needs[i] && !(taught && i == 2); i++)
		if (!case_tensor(c, ops[c->op].needs[i]))
			return ops[c->op].needs[i];
	return NULL;
}

bool case_execute(const struct tool_case *c, struct hys_context *context, int32_t device,
		  struct case_run *run, struct hys_error *error)
{
	*run = (struct case_run){0};
	*error = (struct hys_error){0};
	bool two = c->op == HYS_OP_ATTENTION_BACKWARD && !case_tensor(c, "o");
	return make_plan(c, context, device, run, error) == HYS_OK &&
	       make_batch(c, run, error) == HYS_OK &&
	       hys_exec_create(run->plan, NULL, &run->exec, error) == HYS_OK &&
	       (!two || run_op(c, HYS_OP_ATTENTION_FORWARD, run, error) == HYS_OK) &&
	       run_op(c, c->op, run, error) == HYS_OK;
}

void case_run_free(struct case_run *run)
{
	hys_exec_destroy(run->exec);
	hys_batch_destroy(run->batch);
	hys_plan_destroy(run->plan);
	for (int32_t i = 0; i < run->output_count; i++)
		free(run->outputs[i].tensor.host);
	*run = (struct case_run){0};
}

const struct case_output *case_find_output(const struct case_run *run, const char *name)
{
	for (int32_t i = 0; i < run->output_count; i++)
		if (strcmp(run->outputs[i].name, name) == 0)
			return &run->outputs[i];
	return NULL;
}
