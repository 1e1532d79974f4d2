/* Gradients of keys: what each rank found goes to the keys' owner, who adds it
 * up in the order of ranks. */
#include "context_parallel.h"

#include "number.h"

static hys_status check_target(const struct hys_cp_batch *batch, hys_cut_part part,
			       const struct hys_tensor *target, struct hys_error *error)
{
	const int64_t count = hys_cut_count(batch->cut, part, batch->cp->rank);

	if (target->rank < 1 || target->rank > 3 || target->shape[0] != count)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"gradients of keys have %lld rows, expected the %lld that this "
				"rank owns",
				(long long)target->shape[0], (long long)count);
	return HYS_OK;
}

static hys_status take(struct hys_cp_sum *sum, struct hys_cp_block **block, bool on_device,
		       int64_t rows, struct hys_error *error)
{
	*block = hys_cp_take(sum->batch->cp, sum->batch->plan, on_device,
			     hys_mul64(rows, sum->row_elements * 4), error);
	return *block ? HYS_OK : error->status;
}

hys_status hys_cp_sum_prepare(struct hys_cp_batch *batch, struct hys_exec *exec, hys_cut_part part,
			      const struct hys_tensor *target, bool accumulate,
			      struct hys_cp_sum *sum, struct hys_error *error)
{
	const int64_t rows = hys_cut_size(batch->cut, part);
	const int32_t slices = hys_cut_slices(batch->cut);
	struct hys_tensor whole;
	int64_t own;
	hys_status status;

	*sum = (struct hys_cp_sum){.batch = batch, .part = part, .target = target};
	HYS_TRY(check_target(batch, part, target, error));
	own = target->shape[0];
	sum->row_elements = hys_cp_row_bytes(target) / (int64_t)hys_dtype_size(target->dtype);
	HYS_TRY(take(sum, &sum->partial, batch->on_device, rows, error));
	if (batch->on_device)
		HYS_TRY(take(sum, &sum->host, false, rows, error));
	HYS_TRY(take(sum, &sum->total, false, own, error));
	HYS_TRY(take(sum, &sum->received[0], false, own, error));
	HYS_TRY(take(sum, &sum->received[1], false, own, error));
	HYS_TRY(hys_cp_messages_make(batch, part, sum->row_elements * 4, slices, false, &sum->out,
				     error));
	HYS_TRY(hys_cp_messages_make(batch, part, sum->row_elements * 4, slices, true, &sum->in,
				     error));
	sum->requests = hys_alloc_array(&hys_allocator_default, (int64_t)sum->out.count + 2,
					sizeof(*sum->requests));
	sum->fetched = hys_alloc_array(&hys_allocator_default, slices, sizeof(*sum->fetched));
	if (!sum->requests || !sum->fetched)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for requests"));
	whole = hys_cp_tensor(sum->partial, target, HYS_F32, rows);
	if (accumulate)
		HYS_TRY(hys_cp_zero(exec, &whole, error));
cleanup:
	return status;
}

/* ---- slices ---- */

static int64_t slice_first(const struct hys_cp_sum *sum, int32_t slice)
{
	return hys_cut_size(sum->batch->cut, sum->part) * slice / hys_cut_slices(sum->batch->cut);
}

/* Starts bringing a slice of the partial sums to the host. */
static hys_status start_fetch(struct hys_cp_sum *sum, struct hys_exec *exec, int32_t slice,
			      struct hys_event **event, struct hys_error *error)
{
	const int64_t row_bytes = sum->row_elements * 4;
	const int64_t first = slice_first(sum, slice) * row_bytes;
	const int64_t bytes = slice_first(sum, slice + 1) * row_bytes - first;
	hys_status status = HYS_OK;

	if (bytes > 0)
		HYS_TRY(hys_buffer_read(exec, sum->partial->buffer, first, sum->host->host + first,
					bytes, error));
	HYS_TRY(hys_exec_record(exec, event, error));
cleanup:
	return status;
}

/* All slices come one after the other; the first failure ends that. */
static hys_status start_fetches(struct hys_cp_sum *sum, struct hys_exec *exec,
				struct hys_error *error)
{
	const int32_t slices = hys_cut_slices(sum->batch->cut);
	hys_status status = HYS_OK;

	for (int32_t slice = 0; sum->host && slice < slices; slice++)
		HYS_TRY(start_fetch(sum, exec, slice, &sum->fetched[slice], error));
cleanup:
	return status;
}

/* Adds what `rank` found of this rank's rows in a slice: packed one after the
 * other, or where they are among all rows. */
static void add(const struct hys_cp_sum *sum, int32_t slice, int32_t rank, const float *from,
		bool packed)
{
	const int64_t row = sum->row_elements;
	float *total = (float *)(void *)sum->total->host;
	struct hys_cp_pieces pieces =
		hys_cp_pieces_of(sum->batch->cut, sum->part, sum->batch->cp->rank, rank, true);

	pieces.begin = slice_first(sum, slice);
	pieces.end = slice_first(sum, slice + 1);
	while (hys_cp_piece_next(&pieces)) {
		const int64_t count = pieces.count * row;
		const float *part = packed ? from : from + pieces.first * row;
		float *to = total + pieces.place * row;

#pragma omp parallel for schedule(static) if (count > 65536)
		for (int64_t i = 0; i < count; i++)
			to[i] += part[i];
		from += packed ? count : 0;
	}
}

/* The rank's own rows of a slice, before anything is added. */
static void zero(const struct hys_cp_sum *sum, int32_t slice)
{
	const int64_t row = sum->row_elements;
	float *total = (float *)(void *)sum->total->host;
	struct hys_cp_pieces pieces = {.begin = slice_first(sum, slice),
				       .end = slice_first(sum, slice + 1)};

	pieces.a_count = hys_cut_owned(sum->batch->cut, sum->part, sum->batch->cp->rank, &pieces.a);
	pieces.b = pieces.a;
	pieces.b_count = pieces.a_count;
	while (hys_cp_piece_next(&pieces)) {
		const int64_t count = pieces.count * row;
		float *to = total + pieces.place * row;

#pragma omp parallel for schedule(static) if (count > 65536)
		for (int64_t i = 0; i < count; i++)
			to[i] = 0;
	}
}

/* The message comes as rows one after the other. */
static hys_status expect(struct hys_cp_sum *sum, int32_t i, struct hys_error *error)
{
	struct hys_cp_message message = {0};

	if (i >= sum->in.count)
		return HYS_OK;
	message.peer = sum->in.list[i].peer;
	message.type = sum->in.row;
	message.count = (int)sum->in.list[i].rows;
	return hys_cp_receive(sum->batch->cp, &message, sum->received[i % 2]->host,
			      &sum->requests[sum->out.count + i % 2], error);
}

static hys_status send_slice(struct hys_cp_sum *sum, int32_t slice, const float *partial,
			     int32_t *posted, struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (; *posted < sum->out.count && sum->out.list[*posted].slice == slice; ++*posted)
		HYS_TRY(hys_cp_send(sum->batch->cp, &sum->out.list[*posted], sum->row_elements * 4,
				    (const char *)partial, &sum->requests[*posted], error));
cleanup:
	return status;
}

/* In the order of ranks, so that the sum is the same every time. */
static hys_status add_slice(struct hys_cp_sum *sum, int32_t slice, const float *partial,
			    int32_t *next, struct hys_error *error)
{
	struct hys_cp *cp = sum->batch->cp;
	hys_status status = HYS_OK;

	for (int32_t rank = 0; rank < cp->ranks; rank++) {
		if (rank == cp->rank)
			add(sum, slice, rank, partial, false);
		if (*next >= sum->in.count || sum->in.list[*next].peer != rank ||
		    sum->in.list[*next].slice != slice)
			continue;
		HYS_TRY(hys_cp_wait_receives(cp, 1, &sum->requests[sum->out.count + *next % 2],
					     error));
		add(sum, slice, rank, (const float *)(const void *)sum->received[*next % 2]->host,
		    true);
		HYS_TRY(expect(sum, *next + 2, error));
		++*next;
	}
cleanup:
	return status;
}

hys_status hys_cp_finish_sum(struct hys_cp *cp, const struct hys_plan *plan, struct hys_exec *exec,
			     const struct hys_tensor *target, char *total, bool accumulate,
			     struct hys_error *error)
{
	const int64_t bytes = target->shape[0] * hys_cp_row_bytes(target);
	const int64_t count = bytes / (int64_t)hys_dtype_size(target->dtype);
	struct hys_cp_block *typed = NULL;
	hys_status status = HYS_OK;

	if (target->dtype == HYS_F32 && !accumulate)
		return hys_cp_store(exec, target, total, error);
	typed = hys_cp_take(cp, plan, false, bytes, error);
	if (!typed)
		return error->status;
	if (accumulate)
		HYS_TRY(hys_cp_fetch(exec, target, typed->host, error));
	for (int64_t i = 0; i < count; i++) {
		const double before =
			accumulate ? hys_number_load(typed->host, target->dtype, i) : 0;

		hys_number_store(typed->host, target->dtype, i,
				 before + hys_number_load(total, HYS_F32, i));
	}
	HYS_TRY(hys_cp_store(exec, target, typed->host, error));
cleanup:
	hys_cp_give(typed);
	return status;
}

hys_status hys_cp_sum_run(struct hys_cp_sum *sum, struct hys_exec *exec, bool accumulate,
			  struct hys_error *error)
{
	struct hys_cp *cp = sum->batch->cp;
	const struct hys_cp_block *host = sum->host ? sum->host : sum->partial;
	const float *partial = (const float *)(const void *)host->host;
	const double start = MPI_Wtime();
	struct hys_error own = {0};
	hys_status status, fetched;
	int32_t posted = 0, next = 0;

	sum->requests[sum->out.count] = sum->requests[sum->out.count + 1] = MPI_REQUEST_NULL;
	/* What could not be read is sent all the same: others count on it. */
	fetched = start_fetches(sum, exec, &own);
	HYS_TRY(expect(sum, 0, error));
	HYS_TRY(expect(sum, 1, error));
	for (int32_t slice = 0; slice < hys_cut_slices(sum->batch->cut); slice++) {
		zero(sum, slice);
		if (fetched == HYS_OK && sum->host)
			fetched = hys_event_wait(sum->fetched[slice], &own);
		HYS_TRY(send_slice(sum, slice, partial, &posted, error));
		HYS_TRY(add_slice(sum, slice, partial, &next, error));
	}
	HYS_TRY(hys_cp_wait_sends(cp, posted, sum->requests, error));
	hys_cp_trace(cp, start, "gradients of keys to their owners");
	if (fetched != HYS_OK)
		*error = own;
	HYS_TRY(fetched);
	HYS_TRY(hys_cp_finish_sum(cp, sum->batch->plan, exec, sum->target, sum->total->host,
				  accumulate, error));
	hys_cp_trace(cp, start, "and to the owner's tensor");
cleanup:
	return status;
}

void hys_cp_sum_clear(struct hys_cp_sum *sum)
{
	hys_cp_give(sum->partial);
	hys_cp_give(sum->host);
	hys_cp_give(sum->total);
	hys_cp_give(sum->received[0]);
	hys_cp_give(sum->received[1]);
	hys_cp_messages_clear(&sum->in);
	hys_cp_messages_clear(&sum->out);
	for (int32_t slice = 0; sum->fetched && slice < hys_cut_slices(sum->batch->cut); slice++)
		hys_event_destroy(sum->fetched[slice]);
	hys_free(&hys_allocator_default, sum->fetched);
	hys_free(&hys_allocator_default, sum->requests);
}
