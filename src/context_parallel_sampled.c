/* Losses that only some rows count in, and the number that a mean divides by. */
#include "context_parallel.h"

static void sampling_of(union hys_cp_arguments *args, hys_op op, int32_t **stride, int32_t **offset)
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

bool hys_cp_is_sampled(struct hys_cp_call *call)
{
	int32_t *stride, *offset;

	sampling_of(&call->args, call->op->op, &stride, &offset);
	return stride && *stride > 1;
}

/* Calls `each` for every run of the rank's rows that the call's range has, with
 * the sampling among them. */
static hys_status for_runs(struct hys_cp_call *call,
			   hys_status (*each)(struct hys_cp_call *call,
					      const union hys_cp_arguments *args, void *user,
					      struct hys_error *error),
			   void *user, struct hys_error *error)
{
	const struct hys_span *runs;
	const int32_t count =
		hys_cut_owned(call->batch->cut, HYS_CUT_ROWS, call->batch->cp->rank, &runs);
	const struct hys_cp_head head = call->args.head;
	const int64_t end = head.row_count > 0 ? head.row_first + head.row_count : INT64_MAX;
	int64_t before = 0;
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < count; before += runs[i++].count) {
		const int64_t first = hys_max64(before, head.row_first);
		const int64_t last = hys_min64(before + runs[i].count, end);
		union hys_cp_arguments args = call->args;
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

static hys_status run_run(struct hys_cp_call *call, const union hys_cp_arguments *args, void *user,
			  struct hys_error *error)
{
	(void)user;
	return call->op->call(call->exec, call->batch->local, args, error);
}

/* Row gradients begin at zero, since pieces add. */
static hys_status begin_sampled(struct hys_cp_call *call, struct hys_error *error)
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

hys_status hys_cp_run_sampled(struct hys_cp_call *call, struct hys_error *error)
{
	hys_status status;

	HYS_TRY(begin_sampled(call, error));
	HYS_TRY(for_runs(call, run_run, NULL, error));
cleanup:
	return status;
}

/* ---- the loss's divisor ---- */

static hys_status count_run(struct hys_cp_call *call, const union hys_cp_arguments *args,
			    void *user, struct hys_error *error)
{
	int64_t groups = 0, *sum = user;
	const hys_status status =
		hys_loss_groups(call->exec, call->batch->local, &args->loss, &groups, error);

	*sum += groups;
	return status;
}

/* Tensors that are counted on the host. */
static hys_status fetch_counted(struct hys_cp_call *call, struct hys_tensor *tensor,
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

static hys_status count_groups(struct hys_cp_call *call, int64_t *groups, struct hys_error *error)
{
	const union hys_cp_arguments kept = call->args;
	struct hys_loss_args *args = &call->args.loss;
	struct hys_cp_block *blocks[2] = {NULL, NULL};
	hys_status status;

	HYS_TRY(fetch_counted(call, &args->indices, &blocks[0], error));
	HYS_TRY(fetch_counted(call, &args->teacher_in, &blocks[1], error));
	if (hys_cp_is_sampled(call))
		status = for_runs(call, count_run, groups, error);
	else
		status = count_run(call, &call->args, groups, error);
cleanup:
	hys_cp_give(blocks[0]);
	hys_cp_give(blocks[1]);
	call->args = kept;
	return status;
}

/* A rank that cannot count says so when all have computed. */
hys_status hys_cp_agree_on_divisor(struct hys_cp_call *call, struct hys_error *error)
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
