/* The operations: keys come in, the rank's rows are computed, gradients of keys
 * go back. */
#include "context_parallel.h"

#include <string.h>

#include "hash.h"

#define TENSORS_MAX 6
#define TOTALS_MAX 2

/* ---- what each operation moves ---- */

#define FIELD(args, tensor, part, use)                                               \
	{                                                                            \
		offsetof(struct args, tensor), HYS_CUT_##part, HYS_CP_##use, #tensor \
	}

static const struct hys_cp_field select_fields[] = {
	FIELD(hys_select_args, index_k, ENTRIES, IN),
	FIELD(hys_select_args, index_k_scale, ENTRIES, IN),
};

static const struct hys_cp_field forward_fields[] = {
	FIELD(hys_attention_args, k, KEYS, IN),
	FIELD(hys_attention_args, v, KEYS, IN),
	FIELD(hys_attention_args, window_k, WINDOW_KEYS, IN),
	FIELD(hys_attention_args, window_v, WINDOW_KEYS, IN),
};

static const struct hys_cp_field backward_fields[] = {
	FIELD(hys_attention_grad_args, k, KEYS, IN),
	FIELD(hys_attention_grad_args, v, KEYS, IN),
	FIELD(hys_attention_grad_args, window_k, WINDOW_KEYS, IN),
	FIELD(hys_attention_grad_args, window_v, WINDOW_KEYS, IN),
	FIELD(hys_attention_grad_args, dk, KEYS, SUM),
	FIELD(hys_attention_grad_args, dv, KEYS, SUM),
	FIELD(hys_attention_grad_args, dwindow_k, WINDOW_KEYS, SUM),
	FIELD(hys_attention_grad_args, dwindow_v, WINDOW_KEYS, SUM),
	FIELD(hys_attention_grad_args, dsink, ROWS, TOTAL),
};

static const struct hys_cp_field loss_fields[] = {
	FIELD(hys_loss_args, index_k, ENTRIES, IN),
	FIELD(hys_loss_args, k, KEYS, IN),
	FIELD(hys_loss_args, d_index_k, ENTRIES, SUM),
	FIELD(hys_loss_args, loss, ROWS, TOTAL),
};

static const struct hys_cp_field fidelity_fields[] = {
	FIELD(hys_fidelity_args, k, KEYS, IN),
};

static hys_status call_select(struct hys_exec *exec, struct hys_batch *batch, const void *args,
			      struct hys_error *error)
{
	return hys_select(exec, batch, args, error);
}

static hys_status call_forward(struct hys_exec *exec, struct hys_batch *batch, const void *args,
			       struct hys_error *error)
{
	return hys_attention_forward(exec, batch, args, error);
}

static hys_status call_backward(struct hys_exec *exec, struct hys_batch *batch, const void *args,
				struct hys_error *error)
{
	return hys_attention_backward(exec, batch, args, error);
}

static hys_status call_loss(struct hys_exec *exec, struct hys_batch *batch, const void *args,
			    struct hys_error *error)
{
	return hys_indexer_loss(exec, batch, args, error);
}

static hys_status call_fidelity(struct hys_exec *exec, struct hys_batch *batch, const void *args,
				struct hys_error *error)
{
	return hys_fidelity(exec, batch, args, error);
}

#define OP(name, op, args, fields, call, by_slices)                                              \
	{                                                                                        \
		name, op, sizeof(struct args), fields, sizeof(fields) / sizeof(fields[0]), call, \
			by_slices                                                                \
	}

static const struct hys_cp_op ops[] = {
	OP("select", HYS_OP_SELECT, hys_select_args, select_fields, call_select, true),
	OP("attention_forward", HYS_OP_ATTENTION_FORWARD, hys_attention_args, forward_fields,
	   call_forward, true),
	OP("attention_backward", HYS_OP_ATTENTION_BACKWARD, hys_attention_grad_args,
	   backward_fields, call_backward, false),
	OP("indexer_loss", HYS_OP_INDEXER_LOSS, hys_loss_args, loss_fields, call_loss, false),
	OP("fidelity", HYS_OP_FIDELITY, hys_fidelity_args, fidelity_fields, call_fidelity, false),
};

const struct hys_cp_op *hys_cp_op_of(hys_op op)
{
	if (op == HYS_OP_SELECT_COARSE || op == HYS_OP_SELECT_COARSE_TO_FINE)
		op = HYS_OP_SELECT;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (ops[i].op == op)
			return &ops[i];
	return NULL;
}

/* ---- one call ---- */

/* What all args structs begin with. */
struct head {
	size_t struct_size;
	int64_t row_first, row_count;
};

union arguments {
	struct head head;
	struct hys_select_args select;
	struct hys_attention_args forward;
	struct hys_attention_grad_args backward;
	struct hys_loss_args loss;
	struct hys_fidelity_args fidelity;
};

struct total {
	const struct hys_tensor *target; /* the caller's */
	struct hys_cp_block *block, *host;
	struct hys_tensor own;
};

struct call {
	const struct hys_cp_op *op;
	struct hys_cp_batch *batch;
	struct hys_exec *exec;
	const void *given;
	union arguments args; /* tensors of keys replaced */
	bool accumulate;
	struct hys_cp_keys *keys[TENSORS_MAX]; /* that the call reads */
	bool own[TENSORS_MAX];		       /* gathered by it */
	int32_t key_count;
	struct hys_cp_sum sums[TENSORS_MAX];
	int32_t sum_count;
	struct total totals[TOTALS_MAX];
	int32_t total_count;
	uint64_t what; /* for the ranks to compare */
};

static bool accumulates(const struct call *call)
{
	if (call->op->op == HYS_OP_ATTENTION_BACKWARD)
		return call->args.backward.flags & HYS_GRAD_ACCUMULATE;
	return call->op->op == HYS_OP_INDEXER_LOSS && call->args.loss.flags & HYS_LOSS_ACCUMULATE;
}

static void sampling_of(union arguments *args, hys_op op, int32_t **stride, int32_t **offset)
{
	*stride = *offset = NULL;
	if (op == HYS_OP_INDEXER_LOSS) {
		*stride = &args->loss.row_stride;
		*offset = &args->loss.row_offset;
	} else if (op == HYS_OP_FIDELITY) {
		*stride = &args->fidelity.row_stride;
		*offset = &args->fidelity.row_offset;
	}
}

/* Every piece of a sampled loss adds to what the ones before left. */
static bool is_sampled(struct call *call)
{
	int32_t *stride, *offset;

	sampling_of(&call->args, call->op->op, &stride, &offset);
	return stride && *stride > 1;
}

static hys_status name_field(const struct call *call, const struct hys_cp_field *field,
			     hys_status status, struct hys_error *error)
{
	struct hys_error inner;

	if (status == HYS_OK || !error)
		return status;
	inner = *error;
	hys_report(error, status, inner.native, "%s: %s: %.200s", call->op->name, field->name,
		   inner.message);
	return status;
}

static hys_status prepare_keys(struct call *call, const struct hys_cp_field *field,
			       struct hys_error *error)
{
	struct hys_tensor *tensor = hys_cp_field_tensor(field, &call->args);
	struct hys_cp_keys **keys = &call->keys[call->key_count];
	hys_status status = HYS_OK;

	*keys = hys_cp_keys_of(call->batch->cp, tensor);
	call->own[call->key_count] = !*keys;
	call->what = call->what * 4 + 2 + !*keys;
	if (!*keys)
		status = hys_cp_keys_prepare(call->batch, call->exec, field->part, tensor, keys,
					     error);
	if (status != HYS_OK)
		return name_field(call, field, status, error);
	*tensor = (*keys)->tensor;
	call->key_count++;
	return HYS_OK;
}

static hys_status prepare_sum(struct call *call, const struct hys_cp_field *field,
			      struct hys_error *error)
{
	struct hys_tensor *tensor = hys_cp_field_tensor(field, &call->args);
	const struct hys_tensor *target =
		(const struct hys_tensor *)(const void *)((const char *)call->given +
							  field->offset);
	struct hys_cp_sum *sum = &call->sums[call->sum_count++];
	hys_status status = hys_cp_sum_prepare(call->batch, call->exec, field->part, target,
					       call->accumulate || is_sampled(call), sum, error);

	if (status != HYS_OK)
		return name_field(call, field, status, error);
	*tensor = hys_cp_tensor(sum->partial, target, HYS_F32,
				hys_cut_size(call->batch->cut, field->part));
	return HYS_OK;
}

static hys_status prepare_total(struct call *call, const struct hys_cp_field *field,
				struct hys_error *error)
{
	struct hys_tensor *tensor = hys_cp_field_tensor(field, &call->args);
	struct total *total = &call->totals[call->total_count++];
	struct hys_cp_batch *batch = call->batch;
	const int64_t bytes = tensor->shape[0] * 4;

	*total = (struct total){0};
	if (tensor->rank != 1 || tensor->shape[0] < 0 || tensor->shape[0] > INT32_MAX)
		return name_field(call, field,
				  hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					   "expected one dimension, of a number of elements"),
				  error);
	total->target = (const struct hys_tensor *)(const void *)((const char *)call->given +
								  field->offset);
	total->block = hys_cp_take(batch->cp, batch->plan, batch->on_device, bytes, error);
	if (!total->block)
		return error->status;
	total->host =
		hys_cp_take(batch->cp, batch->plan, false, bytes * (batch->cp->ranks + 1), error);
	if (!total->host)
		return error->status;
	total->own = hys_cp_tensor(total->block, tensor, HYS_F32, tensor->shape[0]);
	*tensor = total->own;
	return hys_cp_zero(call->exec, &total->own, error);
}

static hys_status check_args(const struct call *call, struct hys_error *error)
{
	hys_status status;

	if (!call->exec)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: exec is NULL", call->op->name);
	HYS_TRY(hys_check_struct(call->given, call->op->args_bytes, call->op->name, error));
	if (call->batch->cp->mode == HYS_CP_RING && !hys_cp_in_ring(call->op->op))
		HYS_TRY(hys_fail(error, HYS_UNSUPPORTED, 0,
				 "%s: not in a ring, expected a job made with HYS_CP_GATHER",
				 call->op->name));
cleanup:
	return status;
}

/* What ranks have to agree on beside tensors: `mean` needs a count of all. */
static uint64_t hash_numbers(const struct call *call)
{
	const struct hys_loss_args *loss = &call->args.loss;
	const double numbers[] = {loss->flags,	 loss->reduction,  loss->coefficient,
				  loss->divisor, loss->row_stride, loss->row_offset};

	if (call->op->op != HYS_OP_INDEXER_LOSS)
		return 0;
	return hys_hash(hys_hash_start, numbers, sizeof(numbers)) >> 8;
}

/* Memory, messages, and which tensors go where. Nothing has moved yet. */
static hys_status prepare(struct call *call, struct hys_error *error)
{
	hys_status status;

	HYS_TRY(check_args(call, error));
	memcpy(&call->args, call->given, call->op->args_bytes);
	call->args.head.struct_size = call->op->args_bytes;
	call->accumulate = accumulates(call);
	call->what = (uint64_t)call->op->op * 2 + call->accumulate + 1000;
	call->what ^= hash_numbers(call);
	for (int32_t i = 0; i < call->op->count; i++) {
		const struct hys_cp_field *field = &call->op->fields[i];

		call->what = call->what * 4 + 1;
		if (!hys_cp_is_present(hys_cp_field_tensor(field, &call->args)))
			continue;
		if (field->use == HYS_CP_IN)
			HYS_TRY(prepare_keys(call, field, error));
		else if (call->batch->cp->ranks == 1)
			continue;
		else if (field->use == HYS_CP_SUM)
			HYS_TRY(prepare_sum(call, field, error));
		else
			HYS_TRY(prepare_total(call, field, error));
		call->what = call->what * 4 + field->use;
	}
cleanup:
	return status;
}

static void clear(struct call *call)
{
	for (int32_t i = 0; i < call->key_count; i++)
		if (call->own[i])
			hys_cp_keys_destroy(call->keys[i]);
	for (int32_t i = 0; i < call->sum_count; i++)
		hys_cp_sum_clear(&call->sums[i]);
	for (int32_t i = 0; i < call->total_count; i++) {
		hys_cp_give(call->totals[i].block);
		hys_cp_give(call->totals[i].host);
	}
}

/* ---- computing ---- */

static hys_status await(struct call *call, int32_t slices, struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < call->key_count; i++)
		HYS_TRY(hys_cp_keys_await(call->keys[i], call->exec, slices, error));
cleanup:
	return status;
}

/* Rows from the first on whose keys are in the first slices. */
static int64_t ready_rows(const struct call *call, int32_t slices)
{
	const struct hys_cut *cut = call->batch->cut;
	const int32_t rank = call->batch->cp->rank;
	int64_t ready = hys_cut_count(cut, HYS_CUT_ROWS, rank);

	for (int32_t i = 0; i < call->key_count; i++)
		ready = hys_min64(ready, hys_cut_ready(cut, call->keys[i]->part, rank, slices));
	return ready;
}

static bool can_start_early(const struct call *call)
{
	const int32_t slices = hys_cut_slices(call->batch->cut);
	bool travelling = false;

	for (int32_t i = 0; i < call->key_count; i++)
		travelling |= !call->keys[i]->alone && call->keys[i]->arrived < slices;
	return travelling && call->op->by_slices && call->args.head.row_first == 0 &&
	       call->args.head.row_count == 0 &&
	       !(call->op->op == HYS_OP_SELECT && hys_cp_is_present(&call->args.select.nan_rows));
}

static hys_status run_rows(struct call *call, int64_t first, int64_t count, struct hys_error *error)
{
	union arguments args = call->args;

	if (count == 0 && hys_cut_count(call->batch->cut, HYS_CUT_ROWS, call->batch->cp->rank) > 0)
		return HYS_OK;
	args.head.row_first = first;
	args.head.row_count = count;
	return call->op->call(call->exec, call->batch->local, &args, error);
}

/* Rows begin as slices of keys arrive. A few at a time are not worth a call. */
static hys_status run_by_slices(struct call *call, struct hys_error *error)
{
	const int32_t slices = hys_cut_slices(call->batch->cut);
	const int64_t rows = hys_cut_count(call->batch->cut, HYS_CUT_ROWS, call->batch->cp->rank);
	int64_t done = 0;
	hys_status status = HYS_OK;

	for (int32_t slice = 1; slice <= slices; slice++) {
		const int64_t ready = slice < slices ? ready_rows(call, slice) : rows;

		HYS_TRY(await(call, slice, error));
		if (slice < slices && ready - done < rows / (2 * slices) + 1)
			continue;
		HYS_TRY(run_rows(call, done, ready - done, error));
		done = ready;
	}
cleanup:
	return status;
}

/* Calls `each` for every run of the rank's rows that the call's range has, with
 * the sampling among them. */
static hys_status for_runs(struct call *call,
			   hys_status (*each)(struct call *call, const union arguments *args,
					      void *user, struct hys_error *error),
			   void *user, struct hys_error *error)
{
	const struct hys_span *runs;
	const int32_t count =
		hys_cut_owned(call->batch->cut, HYS_CUT_ROWS, call->batch->cp->rank, &runs);
	const struct head head = call->args.head;
	const int64_t end = head.row_count > 0 ? head.row_first + head.row_count : INT64_MAX;
	int64_t before = 0;
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < count; before += runs[i++].count) {
		const int64_t first = hys_max64(before, head.row_first);
		const int64_t last = hys_min64(before + runs[i].count, end);
		union arguments args = call->args;
		int32_t *stride, *offset;

		if (first >= last)
			continue;
		sampling_of(&args, call->op->op, &stride, &offset);
		const int64_t shift = (runs[i].first - before) % *stride;

		*offset = (int32_t)((*offset - shift + *stride) % *stride);
		args.head.row_first = first;
		args.head.row_count = last - first;
		HYS_TRY(each(call, &args, user, error));
	}
cleanup:
	return status;
}

static hys_status run_run(struct call *call, const union arguments *args, void *user,
			  struct hys_error *error)
{
	(void)user;
	return call->op->call(call->exec, call->batch->local, args, error);
}

/* Row gradients begin at zero, since pieces add. */
static hys_status begin_sampled(struct call *call, struct hys_error *error)
{
	struct hys_loss_args *args = &call->args.loss;
	struct hys_tensor *const rows[] = {&args->d_index_q, &args->d_index_w, &args->teacher_out};
	hys_status status = HYS_OK;

	if (call->op->op != HYS_OP_INDEXER_LOSS || call->batch->cp->ranks == 1)
		return HYS_OK;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (hys_cp_is_present(rows[i]) && !call->accumulate)
			HYS_TRY(hys_cp_zero(call->exec, rows[i], error));
	args->flags |= HYS_LOSS_ACCUMULATE;
cleanup:
	return status;
}

static hys_status compute(struct call *call, struct hys_error *error)
{
	hys_status status;

	if (can_start_early(call))
		return run_by_slices(call, error);
	HYS_TRY(await(call, hys_cut_slices(call->batch->cut), error));
	if (is_sampled(call) && call->batch->cp->ranks > 1) {
		HYS_TRY(begin_sampled(call, error));
		return for_runs(call, run_run, NULL, error);
	}
	return call->op->call(call->exec, call->batch->local, &call->args, error);
cleanup:
	return status;
}

/* ---- the loss's divisor ---- */

static hys_status count_run(struct call *call, const union arguments *args, void *user,
			    struct hys_error *error)
{
	int64_t groups = 0, *sum = user;
	const hys_status status =
		hys_loss_groups(call->exec, call->batch->local, &args->loss, &groups, error);

	*sum += groups;
	return status;
}

/* Tensors that are counted on the host. */
static hys_status fetch_counted(struct call *call, struct hys_tensor *tensor,
				struct hys_cp_block **block, struct hys_error *error)
{
	struct hys_cp_batch *batch = call->batch;
	const int64_t bytes = tensor->shape[0] * hys_cp_row_bytes(tensor);
	hys_status status;

	if (!hys_cp_is_present(tensor) || !tensor->buffer)
		return HYS_OK;
	*block = hys_cp_take(batch->cp, batch->plan, false, bytes, error);
	if (!*block)
		return error->status;
	status = hys_cp_fetch(call->exec, tensor, (*block)->host, error);
	*tensor = hys_cp_tensor(*block, tensor, tensor->dtype, tensor->shape[0]);
	return status;
}

static hys_status count_groups(struct call *call, int64_t *groups, struct hys_error *error)
{
	const union arguments kept = call->args;
	struct hys_loss_args *args = &call->args.loss;
	struct hys_cp_block *blocks[2] = {NULL, NULL};
	hys_status status;

	HYS_TRY(fetch_counted(call, &args->indices, &blocks[0], error));
	HYS_TRY(fetch_counted(call, &args->teacher_in, &blocks[1], error));
	if (is_sampled(call))
		status = for_runs(call, count_run, groups, error);
	else
		status = count_run(call, &call->args, groups, error);
cleanup:
	hys_cp_give(blocks[0]);
	hys_cp_give(blocks[1]);
	call->args = kept;
	return status;
}

/* Collective: `mean` divides by what all ranks have. A rank that cannot count
 * says so when all have computed. */
static hys_status agree_on_divisor(struct call *call, struct hys_error *error)
{
	struct hys_cp *cp = call->batch->cp;
	struct hys_loss_args *args = &call->args.loss;
	int64_t groups = 0, all = 0;
	hys_status counted, status;

	if (call->op->op != HYS_OP_INDEXER_LOSS || cp->ranks == 1 ||
	    args->reduction != HYS_REDUCTION_MEAN || args->divisor != 0)
		return HYS_OK;
	counted = count_groups(call, &groups, error);
	status = hys_cp_mpi(MPI_Allreduce(&groups, &all, 1, MPI_INT64_T, MPI_SUM, cp->comm),
			    "MPI_Allreduce", error);
	args->divisor = (double)all;
	return counted != HYS_OK ? counted : status;
}

/* ---- totals ---- */

static hys_status add_total(struct call *call, struct total *total, struct hys_error *error)
{
	struct hys_cp *cp = call->batch->cp;
	const int count = (int)total->own.shape[0];
	float *own = (float *)(void *)total->host->host, *all = own + count;
	struct hys_error fetch_error = {0};
	hys_status fetched, status;

	fetched = hys_cp_fetch(call->exec, &total->own, (char *)own, &fetch_error);
	HYS_TRY(hys_cp_mpi(MPI_Allgather(own, count, MPI_FLOAT, all, count, MPI_FLOAT, cp->comm),
			   "MPI_Allgather", error));
	for (int i = 0; i < count; i++) {
		double sum = 0;

		for (int rank = 0; rank < cp->ranks; rank++)
			sum += (double)all[(int64_t)rank * count + i];
		own[i] = (float)sum;
	}
	if (fetched != HYS_OK)
		*error = fetch_error;
	HYS_TRY(fetched);
	HYS_TRY(hys_cp_finish_sum(cp, call->batch->plan, call->exec, total->target, (char *)own,
				  call->accumulate, error));
cleanup:
	return status;
}

static hys_status reduce(struct call *call, struct hys_error *error)
{
	struct hys_error own = {0};
	hys_status status = HYS_OK, one;

	for (int32_t i = 0; i < call->sum_count; i++) {
		one = hys_cp_sum_run(&call->sums[i], call->exec, call->accumulate, &own);
		if (one != HYS_OK && status == HYS_OK)
			*error = own;
		status = status == HYS_OK ? one : status;
	}
	for (int32_t i = 0; i < call->total_count; i++) {
		one = add_total(call, &call->totals[i], &own);
		if (one != HYS_OK && status == HYS_OK)
			*error = own;
		status = status == HYS_OK ? one : status;
	}
	return status;
}

/* ---- all of it ---- */

/* A failure in the middle does not keep the rank from its messages. */
static hys_status run_all(struct call *call, struct hys_error *error)
{
	struct hys_cp *cp = call->batch->cp;
	struct hys_error own = {0}, other = {0};
	hys_status status = HYS_OK, finished;

	for (int32_t i = 0; i < call->key_count && status == HYS_OK; i++)
		if (call->own[i])
			status = hys_cp_keys_post(call->keys[i], &own);
	if (status == HYS_OK)
		status = agree_on_divisor(call, &own);
	if (status == HYS_OK)
		status = compute(call, &own);
	finished = hys_cp_drive(cp, &other);
	if (status == HYS_OK && finished != HYS_OK) {
		status = finished;
		own = other;
	}
	finished = hys_exec_finish(call->exec, &other);
	if (status == HYS_OK && finished != HYS_OK) {
		status = finished;
		own = other;
	}
	status = hys_cp_agree(cp, status, 1, &own, error);
	if (status != HYS_OK || call->sum_count + call->total_count == 0 || cp->ranks == 1)
		return status;
	status = reduce(call, &own);
	return hys_cp_agree(cp, status, 3, &own, error);
}

static hys_status run(struct hys_cp_batch *batch, struct hys_exec *exec, hys_op op,
		      const void *args, struct hys_error *error)
{
	struct call call = {.op = hys_cp_op_of(op), .batch = batch, .exec = exec, .given = args};
	struct hys_error own = {0};
	hys_status status;

	if (!batch)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "batch is NULL");
	status = prepare(&call, &own);
	HYS_TRY(hys_cp_agree(batch->cp, status, call.what * 2, &own, error));
	HYS_TRY(run_all(&call, error));
cleanup:
	clear(&call);
	return status;
}

hys_status hys_cp_select(struct hys_cp_batch *batch, struct hys_exec *exec,
			 const struct hys_select_args *args, struct hys_error *error)
{
	return run(batch, exec, HYS_OP_SELECT, args, error);
}

hys_status hys_cp_attention_forward(struct hys_cp_batch *batch, struct hys_exec *exec,
				    const struct hys_attention_args *args, struct hys_error *error)
{
	return run(batch, exec, HYS_OP_ATTENTION_FORWARD, args, error);
}

hys_status hys_cp_attention_backward(struct hys_cp_batch *batch, struct hys_exec *exec,
				     const struct hys_attention_grad_args *args,
				     struct hys_error *error)
{
	return run(batch, exec, HYS_OP_ATTENTION_BACKWARD, args, error);
}

hys_status hys_cp_indexer_loss(struct hys_cp_batch *batch, struct hys_exec *exec,
			       const struct hys_loss_args *args, struct hys_error *error)
{
	return run(batch, exec, HYS_OP_INDEXER_LOSS, args, error);
}

hys_status hys_cp_fidelity(struct hys_cp_batch *batch, struct hys_exec *exec,
			   const struct hys_fidelity_args *args, struct hys_error *error)
{
	return run(batch, exec, HYS_OP_FIDELITY, args, error);
}
