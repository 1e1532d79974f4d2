/* The operations: keys come in, the rank's rows are computed, gradients of keys
 * go back. */
#include "context_parallel.h"

#include <string.h>

#include "hash.h"

/* ---- one call ---- */

static bool accumulates(const struct hys_cp_call *call)
{
	if (call->op->op == HYS_OP_ATTENTION_BACKWARD)
		return call->args.backward.flags & (HYS_GRAD_ACCUMULATE | HYS_GRAD_ACCUMULATE_KEYS);
	return call->op->op == HYS_OP_INDEXER_LOSS && call->args.loss.flags & HYS_LOSS_ACCUMULATE;
}

static hys_status name_field(const struct hys_cp_call *call, const struct hys_cp_field *field,
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

static hys_status prepare_keys(struct hys_cp_call *call, const struct hys_cp_field *field,
			       struct hys_error *error)
{
	struct hys_tensor *tensor = hys_cp_field_tensor(field, &call->args);
	struct hys_cp_keys **keys = &call->keys[call->key_count];
	hys_status status = HYS_OK;

	*keys = hys_cp_keys_of(call->batch->cp, tensor);
	call->own[call->key_count] = !*keys;
	call->what = call->what * 4 + 2 + !*keys;
	if (!*keys && call->batch->cp->mode == HYS_CP_RING && !hys_cp_in_ring(call->op->op))
		status = hys_fail(error, HYS_UNSUPPORTED, 0,
				  "the rank's own keys in a ring, expected gathered ones");
	else if (!*keys)
		status = hys_cp_keys_prepare(call->batch, call->exec, field->part, tensor, keys,
					     error);
	if (status != HYS_OK)
		return name_field(call, field, status, error);
	*tensor = (*keys)->tensor;
	call->key_count++;
	return HYS_OK;
}

static hys_status prepare_sum(struct hys_cp_call *call, const struct hys_cp_field *field,
			      struct hys_error *error)
{
	struct hys_tensor *tensor = hys_cp_field_tensor(field, &call->args);
	const struct hys_tensor *target =
		(const struct hys_tensor *)(const void *)((const char *)call->given +
							  field->offset);
	const int tag = call->sum_count;
	struct hys_cp_sum *sum = &call->sums[call->sum_count++];
	hys_status status =
		hys_cp_sum_prepare(call->batch, call->exec, field->part, target,
				   call->accumulate || hys_cp_is_sampled(call), tag, sum, error);

	if (status != HYS_OK)
		return name_field(call, field, status, error);
	*tensor = hys_cp_tensor(sum->partial, target, HYS_F32,
				hys_cut_size(call->batch->cut, field->part));
	return HYS_OK;
}

static hys_status prepare_total(struct hys_cp_call *call, const struct hys_cp_field *field,
				struct hys_error *error)
{
	struct hys_tensor *tensor = hys_cp_field_tensor(field, &call->args);
	struct hys_cp_total *total = &call->totals[call->total_count++];
	const struct hys_tensor *target =
		(const struct hys_tensor *)(const void *)((const char *)call->given +
							  field->offset);
	const hys_status status =
		hys_cp_total_prepare(call->batch, call->exec, target, total, error);

	if (status == HYS_OK)
		*tensor = total->own;
	return name_field(call, field, status, error);
}

static hys_status check_args(const struct hys_cp_call *call, struct hys_error *error)
{
	hys_status status;

	if (!call->exec)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: exec is NULL", call->op->name);
	status = hys_check_struct(call->given, call->op->args_bytes, call->op->name, error);
	return status;
}

/* What ranks have to agree on beside tensors: `mean` needs a count of all. */
static uint64_t hash_numbers(const struct hys_cp_call *call)
{
	const struct hys_loss_args *loss = &call->args.loss;
	const double numbers[] = {loss->flags,	 loss->reduction,  loss->coefficient,
				  loss->divisor, loss->row_stride, loss->row_offset};

	if (call->op->op != HYS_OP_INDEXER_LOSS)
		return 0;
	return hys_hash(hys_hash_start, numbers, sizeof(numbers)) >> 8;
}

/* Memory, messages, and which tensors go where. Nothing has moved yet. */
static hys_status prepare(struct hys_cp_call *call, struct hys_error *error)
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

static void clear(struct hys_cp_call *call)
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

static hys_status await(struct hys_cp_call *call, int32_t slices, struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < call->key_count; i++)
		HYS_TRY(hys_cp_keys_await(call->keys[i], call->exec, slices, error));
cleanup:
	return status;
}

/* Rows from the first on whose keys are in the first slices. */
static int64_t ready_rows(const struct hys_cp_call *call, int32_t slices)
{
	const struct hys_cut *cut = call->batch->cut;
	const int32_t rank = call->batch->cp->rank;
	int64_t ready = hys_cut_count(cut, HYS_CUT_ROWS, rank);

	for (int32_t i = 0; i < call->key_count; i++)
		ready = hys_min64(ready, hys_cut_ready(cut, call->keys[i]->part, rank, slices));
	return ready;
}

static bool can_start_early(const struct hys_cp_call *call)
{
	const int32_t slices = hys_cut_slices(call->batch->cut);
	bool travelling = false;

	for (int32_t i = 0; i < call->key_count; i++)
		travelling |= !call->keys[i]->alone && call->keys[i]->arrived < slices;
	return travelling && call->op->by_slices && call->args.head.row_first == 0 &&
	       call->args.head.row_count == 0 &&
	       !(call->op->op == HYS_OP_SELECT && hys_cp_is_present(&call->args.select.nan_rows));
}

static hys_status run_rows(struct hys_cp_call *call, int64_t first, int64_t count,
			   struct hys_error *error)
{
	union hys_cp_arguments args = call->args;
	const double start = MPI_Wtime();
	hys_status status;

	if (count == 0 && hys_cut_count(call->batch->cut, HYS_CUT_ROWS, call->batch->cp->rank) > 0)
		return HYS_OK;
	args.head.row_first = first;
	args.head.row_count = count;
	status = call->op->call(call->exec, call->batch->local, &args, error);
	hys_cp_trace(call->batch->cp, start, "%s: rows %lld to %lld given", call->op->name,
		     (long long)first, (long long)first + (long long)count);
	return status;
}

/* Whether the call has all of a slice, and need not wait for it. */
static hys_status have(const struct hys_cp_call *call, int32_t slice, bool *all,
		       struct hys_error *error)
{
	hys_status status = HYS_OK;

	*all = true;
	for (int32_t i = 0; *all && i < call->key_count; i++)
		HYS_TRY(hys_cp_keys_have(call->keys[i], slice, all, error));
cleanup:
	return status;
}

/* Rows begin as slices of keys arrive. A few at a time are not worth a call, and
 * what comes without waiting makes no call of its own. */
static hys_status run_by_slices(struct hys_cp_call *call, struct hys_error *error)
{
	const int32_t slices = hys_cut_slices(call->batch->cut);
	const int64_t rows = hys_cut_count(call->batch->cut, HYS_CUT_ROWS, call->batch->cp->rank);
	int64_t done = 0;
	hys_status status = HYS_OK;

	for (int32_t slice = 1; slice <= slices; slice++) {
		int64_t ready = rows;
		bool more = false;

		HYS_TRY(await(call, slice, error));
		if (slice < slices)
			HYS_TRY(have(call, slice, &more, error));
		if (more)
			continue;
		if (slice < slices)
			ready = ready_rows(call, slice);
		if (slice < slices && ready - done < rows / ((int64_t)2 * slices) + 1)
			continue;
		HYS_TRY(run_rows(call, done, ready - done, error));
		done = ready;
	}
cleanup:
	return status;
}

/* ---- gradients of keys, complete part by part ---- */

/* Backward runs its last rows first, in so many calls or fewer: the gradients
 * of keys that no other row sees travel while it computes on. (The number is
 * HYS_CUT_PARTS of cut.h.) */
#define PARTS 4

static bool has_gradients_of_keys(const struct hys_cp_call *call)
{
	return call->op->op == HYS_OP_ATTENTION_BACKWARD && call->sum_count > 0;
}

static bool can_run_in_parts(const struct hys_cp_call *call)
{
	return call->args.head.row_first == 0 && call->args.head.row_count == 0;
}

/* Rows from the first on that see none of the slices from `slice` on. */
static int64_t rows_before(const struct hys_cp_call *call, int32_t slice)
{
	const struct hys_cut *cut = call->batch->cut;
	const int32_t rank = call->batch->cp->rank;
	int64_t rows = hys_cut_count(cut, HYS_CUT_ROWS, rank);

	for (int32_t i = 0; i < call->sum_count; i++)
		rows = hys_min64(rows, hys_cut_ready(cut, call->sums[i].part, rank, slice));
	return rows;
}

/* All calls but the first add to what there is of gradients of keys. */
static hys_status run_part(struct hys_cp_call *call, int64_t first, int64_t count,
			   struct hys_error *error)
{
	const uint32_t flags = call->args.backward.flags;
	const int64_t rows = hys_cut_count(call->batch->cut, HYS_CUT_ROWS, call->batch->cp->rank);
	hys_status status;

	if (first + count < rows)
		call->args.backward.flags |= HYS_GRAD_ACCUMULATE_KEYS;
	status = run_rows(call, first, count, error);
	call->args.backward.flags = flags;
	return status;
}

static hys_status fetch_sums(struct hys_cp_call *call, int32_t first, int32_t end,
			     struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < call->sum_count; i++)
		HYS_TRY(hys_cp_sum_fetch(&call->sums[i], call->exec, first, end, error));
cleanup:
	return status;
}

/* A few rows at a time are not worth a call. */
static hys_status run_in_parts(struct hys_cp_call *call, struct hys_error *error)
{
	const int64_t rows = hys_cut_count(call->batch->cut, HYS_CUT_ROWS, call->batch->cp->rank);
	int32_t complete = hys_cut_slices(call->batch->cut);
	int64_t left = rows;
	hys_status status = HYS_OK;

	for (int32_t slice = complete - 1; slice >= 0; slice--) {
		const int64_t first = slice > 0 ? rows_before(call, slice) : 0;

		if (slice > 0 && left - first < rows / PARTS)
			continue;
		HYS_TRY(run_part(call, first, left - first, error));
		HYS_TRY(fetch_sums(call, slice, complete, error));
		left = first;
		complete = slice;
	}
cleanup:
	return status;
}

static hys_status compute(struct hys_cp_call *call, struct hys_error *error)
{
	const int32_t slices = hys_cut_slices(call->batch->cut);
	hys_status status;

	for (int32_t i = 0; i < call->key_count; i++)
		HYS_TRY(hys_cp_keys_send(call->keys[i], error));
	for (int32_t i = 0; i < call->key_count; i++)
		HYS_TRY(hys_cp_keys_copy_own(call->keys[i], error));
	if (can_start_early(call))
		return run_by_slices(call, error);
	HYS_TRY(await(call, slices, error));
	if (hys_cp_is_sampled(call) && call->batch->cp->ranks > 1)
		HYS_TRY(hys_cp_run_sampled(call, error));
	else if (has_gradients_of_keys(call) && can_run_in_parts(call))
		return run_in_parts(call, error);
	else
		HYS_TRY(call->op->call(call->exec, call->batch->local, &call->args, error));
	HYS_TRY(fetch_sums(call, 0, slices, error));
cleanup:
	return status;
}

/* ---- all of it ---- */

/* Keeps the first failure. */
static void note(hys_status *status, struct hys_error *error, hys_status next,
		 const struct hys_error *next_error)
{
	if (*status != HYS_OK || next == HYS_OK)
		return;
	*status = next;
	*error = *next_error;
}

/* Gradients and totals, once all ranks have succeeded, to the caller's tensors. */
static hys_status store(struct hys_cp_call *call, struct hys_error *error)
{
	struct hys_error own = {0};
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < call->sum_count; i++)
		note(&status, error,
		     hys_cp_sum_store(&call->sums[i], call->exec, call->accumulate, &own), &own);
	for (int32_t i = 0; i < call->total_count; i++)
		note(&status, error,
		     hys_cp_total_run(call->batch, call->exec, &call->totals[i], call->accumulate,
				      &own),
		     &own);
	return status;
}

/* A failure in the middle does not keep the rank from its messages. */
static hys_status run_all(struct hys_cp_call *call, struct hys_error *error)
{
	struct hys_cp *cp = call->batch->cp;
	struct hys_error own = {0}, other = {0};
	hys_status status = HYS_OK;
	/* Gradients have something else to do while the device computes. */
	struct hys_exec *const waited = call->sum_count > 0 ? NULL : call->exec;
	double start;

	for (int32_t i = 0; i < call->key_count && status == HYS_OK; i++)
		if (call->own[i])
			status = hys_cp_keys_post(call->keys[i], &own);
	if (status == HYS_OK)
		status = hys_cp_agree_on_divisor(call, &own);
	if (status == HYS_OK)
		status = compute(call, &own);
	note(&status, &own, hys_cp_drive(cp, waited, &other), &other);
	note(&status, &own, hys_cp_sums_run(cp, call->sums, call->sum_count, &other), &other);
	start = MPI_Wtime();
	note(&status, &own, hys_exec_finish(call->exec, &other), &other);
	hys_cp_trace(cp, start, "%s: wait for the device", call->op->name);
	status = hys_cp_agree(cp, status, 1, &own, error);
	if (status != HYS_OK || call->sum_count + call->total_count == 0 || cp->ranks == 1)
		return status;
	status = store(call, &own);
	return hys_cp_agree(cp, status, 3, &own, error);
}

static hys_status run(struct hys_cp_batch *batch, struct hys_exec *exec, hys_op op,
		      const void *args, struct hys_error *error)
{
	struct hys_cp_call call = {
		.op = hys_cp_op_of(op), .batch = batch, .exec = exec, .given = args};
	struct hys_error own = {0};
	hys_status status;

	if (!batch)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "batch is NULL");
	if (check_args(&call, NULL) == HYS_OK && hys_cp_goes_round(batch, call.op, args)) {
		memcpy(&call.args, args, call.op->args_bytes);
		return hys_cp_run_in_ring(call.op, batch, exec, &call.args, accumulates(&call),
					  error);
	}
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
