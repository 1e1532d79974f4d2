/* Outputs that all ranks have the sum of. */
#include "context_parallel.h"

hys_status hys_cp_total_prepare(struct hys_cp_batch *batch, struct hys_exec *exec,
				const struct hys_tensor *target, struct hys_cp_total *total,
				struct hys_error *error)
{
	const int64_t bytes = target->shape[0] * 4;

	*total = (struct hys_cp_total){.target = target};
	if (target->rank != 1 || target->shape[0] < 0 || target->shape[0] > INT32_MAX)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"expected one dimension, of a number of elements");
	total->block = hys_cp_take(batch->cp, batch->plan, batch->on_device, bytes, error);
	if (!total->block)
		return error->status;
	total->host =
		hys_cp_take(batch->cp, batch->plan, false, bytes * (batch->cp->ranks + 1), error);
	if (!total->host)
		return error->status;
	total->own = hys_cp_tensor(total->block, target, HYS_F32, target->shape[0]);
	return hys_cp_zero(exec, &total->own, error);
}

hys_status hys_cp_total_run(struct hys_cp_batch *batch, struct hys_exec *exec,
			    struct hys_cp_total *total, bool accumulate, struct hys_error *error)
{
	struct hys_cp *cp = batch->cp;
	const int count = (int)total->own.shape[0];
	float *own = (float *)(void *)total->host->host, *all = own + count;
	struct hys_error fetch_error = {0};
	hys_status fetched, status;

	fetched = hys_cp_fetch(exec, &total->own, (char *)own, &fetch_error);
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
	HYS_TRY(hys_cp_finish_sum(cp, batch->plan, exec, total->target, (char *)own, accumulate,
				  error));
cleanup:
	return status;
}
