/* Gradients of keys: what each rank found goes to the keys' owner, who adds it
 * up in the order of ranks. Slice by slice, the last one first: a causal rank
 * that computes its last rows first has those complete while it computes on. */
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

/* Of messages that lie in several runs. */
static int64_t rows_in_runs(const struct hys_cp_messages *messages)
{
	int64_t rows = 0;

	for (int32_t i = 0; i < messages->count; i++)
		rows += messages->list[i].owned ? messages->list[i].rows : 0;
	return rows;
}

hys_status hys_cp_sum_prepare(struct hys_cp_batch *batch, struct hys_exec *exec, hys_cut_part part,
			      const struct hys_tensor *target, bool accumulate, int tag,
			      struct hys_cp_sum *sum, struct hys_error *error)
{
	const int64_t rows = hys_cut_size(batch->cut, part);
	const int32_t slices = hys_cut_slices(batch->cut);
	struct hys_cp_way way = {
		.part = part, .slices = slices, .tag = HYS_CP_SUM_TAG + tag, .last_first = true};
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
	way.row_bytes = sum->row_elements * 4;
	HYS_TRY(hys_cp_messages_make(batch, &way, &sum->out, error));
	way.mine = true;
	HYS_TRY(hys_cp_messages_make(batch, &way, &sum->in, error));
	HYS_TRY(take(sum, &sum->packed, false, rows_in_runs(&sum->out), error));
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
			      struct hys_error *error)
{
	const int64_t row_bytes = sum->row_elements * 4;
	const int64_t first = slice_first(sum, slice) * row_bytes;
	const int64_t bytes = slice_first(sum, slice + 1) * row_bytes - first;
	hys_status status = HYS_OK;

	if (sum->host && bytes > 0)
		HYS_TRY(hys_buffer_read(exec, sum->partial->buffer, first, sum->host->host + first,
					bytes, error));
	HYS_TRY(hys_exec_record(exec, &sum->fetched[slice], error));
cleanup:
	return status;
}

hys_status hys_cp_sum_fetch(struct hys_cp_sum *sum, struct hys_exec *exec, int32_t first,
			    int32_t end, struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int32_t slice = end - 1; slice >= first; slice--)
		HYS_TRY(start_fetch(sum, exec, slice, error));
cleanup:
	return status;
}

/* The rank's own rows of a slice. */
static struct hys_cp_pieces own_rows(const struct hys_cp_sum *sum, int32_t slice)
{
	struct hys_cp_pieces pieces = {.begin = slice_first(sum, slice),
				       .end = slice_first(sum, slice + 1)};

	pieces.a_count = hys_cut_owned(sum->batch->cut, sum->part, sum->batch->cp->rank, &pieces.a);
	pieces.b = pieces.a;
	pieces.b_count = pieces.a_count;
	return pieces;
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

/* Before anything is added, all of the rank's rows are nothing, or what the rank
 * itself found; where it sees none of them, that is nothing, too. */
static void start_rows(const struct hys_cp_sum *sum, int32_t slice, const float *partial)
{
	const int64_t row = sum->row_elements;
	float *total = (float *)(void *)sum->total->host;
	struct hys_cp_pieces pieces = own_rows(sum, slice);

	while (hys_cp_piece_next(&pieces)) {
		const int64_t count = pieces.count * row, first = pieces.first * row;
		float *to = total + pieces.place * row;

#pragma omp parallel for schedule(static) if (count > 65536)
		for (int64_t i = 0; i < count; i++)
			to[i] = partial ? 0 + partial[first + i] : 0;
	}
}

/* The message comes as rows one after the other. */
static hys_status expect(struct hys_cp_sum *sum, int32_t i, struct hys_error *error)
{
	struct hys_cp_message message = {0};

	if (i >= sum->in.count)
		return HYS_OK;
	message.peer = sum->in.list[i].peer;
	message.tag = sum->in.list[i].tag;
	message.type = sum->in.row;
	message.count = (int)sum->in.list[i].rows;
	return hys_cp_receive(sum->batch->cp, &message, sum->received[i % 2]->host,
			      &sum->requests[sum->out.count + i % 2], error);
}

/* What lies in several runs is packed by all threads: MPI would do that piece by
 * piece while it sends. */
static const char *pack(struct hys_cp_sum *sum, struct hys_cp_message *message,
			const float *partial)
{
	const int64_t row = sum->row_elements;
	struct hys_cp_pieces pieces = hys_cp_pieces_of(sum->batch->cut, sum->part,
						       sum->batch->cp->rank, message->peer, false);
	char *packed = sum->packed->host + sum->packed_bytes;
	float *to = (float *)(void *)packed;

	pieces.begin = slice_first(sum, message->slice);
	pieces.end = slice_first(sum, message->slice + 1);
	while (hys_cp_piece_next(&pieces)) {
		const int64_t count = pieces.count * row;
		const float *from = partial + pieces.first * row;

#pragma omp parallel for schedule(static) if (count > 65536)
		for (int64_t i = 0; i < count; i++)
			to[i] = from[i];
		to += count;
	}
	sum->packed_bytes += message->rows * row * 4;
	message->offset = 0;
	message->count = (int)message->rows;
	message->type = sum->out.row;
	return packed;
}

static hys_status send_slice(struct hys_cp_sum *sum, int32_t slice, const float *partial,
			     struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (; sum->posted < sum->out.count && sum->out.list[sum->posted].slice == slice;
	     sum->posted++) {
		struct hys_cp_message message = sum->out.list[sum->posted];
		const char *array = (const char *)partial;

		if (message.owned)
			array = pack(sum, &message, partial);
		HYS_TRY(hys_cp_send(sum->batch->cp, &message, sum->row_elements * 4, array,
				    &sum->requests[sum->posted], error));
	}
cleanup:
	return status;
}

/* In the order of ranks, so that the sum is the same every time. Of the first
 * two the order does not matter. */
static hys_status add_slice(struct hys_cp_sum *sum, int32_t slice, const float *partial,
			    struct hys_error *error)
{
	struct hys_cp *cp = sum->batch->cp;
	const bool own_first = cp->rank < 2;
	hys_status status = HYS_OK;

	start_rows(sum, slice, own_first ? partial : NULL);
	for (int32_t rank = 0; rank < cp->ranks; rank++) {
		const int32_t next = sum->next;

		if (rank == cp->rank && !own_first)
			add(sum, slice, rank, partial, false);
		if (next >= sum->in.count || sum->in.list[next].peer != rank ||
		    sum->in.list[next].slice != slice)
			continue;
		HYS_TRY(hys_cp_wait_receives(cp, 1, &sum->requests[sum->out.count + next % 2],
					     error));
		add(sum, slice, rank, (const float *)(const void *)sum->received[next % 2]->host,
		    true);
		HYS_TRY(expect(sum, next + 2, error));
		sum->next++;
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

/* One slice of one sum; *fetched is the first failure to read any. */
static hys_status run_slice(struct hys_cp_sum *sum, int32_t slice, hys_status *fetched,
			    struct hys_error *own, struct hys_error *error)
{
	const struct hys_cp_block *host = sum->host ? sum->host : sum->partial;
	const float *partial = (const float *)(const void *)host->host;
	hys_status status;

	if (*fetched == HYS_OK && !sum->fetched[slice])
		*fetched =
			hys_fail(own, HYS_DEVICE_FAILED, 0, "gradients of keys were not computed");
	/* While this waits for the device, nothing would push on what others wait for. */
	HYS_TRY(hys_cp_wait_sends(sum->batch->cp, sum->posted, sum->requests, error));
	if (*fetched == HYS_OK)
		*fetched = hys_event_wait(sum->fetched[slice], own);
	HYS_TRY(send_slice(sum, slice, partial, error));
	HYS_TRY(add_slice(sum, slice, partial, error));
cleanup:
	return status;
}

static hys_status begin(struct hys_cp_sum *sum, struct hys_error *error)
{
	hys_status status;

	sum->requests[sum->out.count] = sum->requests[sum->out.count + 1] = MPI_REQUEST_NULL;
	sum->posted = sum->next = 0;
	sum->packed_bytes = 0;
	HYS_TRY(expect(sum, 0, error));
	HYS_TRY(expect(sum, 1, error));
cleanup:
	return status;
}

hys_status hys_cp_sums_run(struct hys_cp *cp, struct hys_cp_sum *sums, int32_t count,
			   struct hys_error *error)
{
	const double start = MPI_Wtime();
	struct hys_error own = {0};
	hys_status status = HYS_OK, fetched = HYS_OK;

	for (int32_t i = 0; i < count; i++)
		HYS_TRY(begin(&sums[i], error));
	for (int32_t slice = count > 0 ? hys_cut_slices(sums->batch->cut) - 1 : -1; slice >= 0;
	     slice--) {
		const double slice_start = MPI_Wtime();

		for (int32_t i = 0; i < count; i++)
			HYS_TRY(run_slice(&sums[i], slice, &fetched, &own, error));
		hys_cp_trace(cp, slice_start, "gradients of keys, slice %d, to their owners",
			     (int)slice);
	}
	for (int32_t i = 0; i < count; i++)
		HYS_TRY(hys_cp_wait_sends(cp, sums[i].posted, sums[i].requests, error));
	hys_cp_trace(cp, start, "gradients of keys to their owners");
	if (fetched != HYS_OK)
		*error = own;
	status = fetched;
cleanup:
	return status;
}

hys_status hys_cp_sum_store(struct hys_cp_sum *sum, struct hys_exec *exec, bool accumulate,
			    struct hys_error *error)
{
	const double start = MPI_Wtime();
	const hys_status status =
		hys_cp_finish_sum(sum->batch->cp, sum->batch->plan, exec, sum->target,
				  sum->total->host, accumulate, error);

	hys_cp_trace(sum->batch->cp, start, "gradients of keys to the owner's tensor");
	return status;
}

void hys_cp_sum_clear(struct hys_cp_sum *sum)
{
	hys_cp_give(sum->partial);
	hys_cp_give(sum->host);
	hys_cp_give(sum->total);
	hys_cp_give(sum->packed);
	hys_cp_give(sum->received[0]);
	hys_cp_give(sum->received[1]);
	hys_cp_messages_clear(&sum->in);
	hys_cp_messages_clear(&sum->out);
	for (int32_t slice = 0; sum->fetched && slice < hys_cut_slices(sum->batch->cut); slice++)
		hys_event_destroy(sum->fetched[slice]);
	hys_free(&hys_allocator_default, sum->fetched);
	hys_free(&hys_allocator_default, sum->requests);
}
