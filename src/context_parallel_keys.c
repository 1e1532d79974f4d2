/* Keys of all ranks, gathered slice after slice. */
#include "context_parallel.h"

#include <sched.h>
#include <string.h>

/* Keys of one gather are told from those of another by their tag: what comes to the
 * host first is sent first, on each rank as it happens to. */
#define FIRST_TAG 16
#define TAGS 4096u /* more than gathers are alive at once; MPI has 32767 at least */
/* What a rank waits at most for others to take what it sends. */
#define HELP_S 0.5e-3

/* ---- the local half ---- */

static hys_status check_local(const struct hys_cp_batch *batch, hys_cut_part part,
			      const struct hys_tensor *local, struct hys_error *error)
{
	const int64_t count = hys_cut_count(batch->cut, part, batch->cp->rank);

	if (!hys_cp_is_present(local) || local->rank < 1 || local->rank > 3)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"keys of rank %d dimensions, expected a tensor of 1 to 3",
				hys_cp_is_present(local) ? local->rank : 0);
	if (local->shape[0] != count)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"keys have %lld rows, expected the %lld that this rank owns, or "
				"gathered ones",
				(long long)local->shape[0], (long long)count);
	for (int32_t d = 1; d < local->rank; d++)
		if (local->shape[d] < 0)
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"keys have %lld in dimension %d, expected 0 or more",
					(long long)local->shape[d], d);
	if (!local->host && !local->buffer && count > 0 && hys_cp_row_bytes(local) > 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"keys have neither host memory nor a buffer");
	return HYS_OK;
}

/* What some other rank needs of the rank's own rows sets out for the host. Marks
 * tell which, so that what many need goes once. */
static hys_status fetch_wanted(struct hys_cp_keys *keys, struct hys_error *error)
{
	const struct hys_cp *cp = keys->batch->cp;
	const struct hys_tensor *local = &keys->local;
	const int64_t rows = local->shape[0];
	const int64_t begin = local->offset * (int64_t)hys_dtype_size(local->dtype);
	char *wanted = hys_alloc(&hys_allocator_default, rows + 1);
	hys_status status = HYS_OK;

	if (!wanted)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for marks of %lld keys",
				(long long)rows);
	for (int32_t other = 0; other < cp->ranks; other++) {
		struct hys_cp_pieces pieces =
			hys_cp_pieces_of(keys->batch->cut, keys->part, cp->rank, other, true);

		while (other != cp->rank && hys_cp_piece_next(&pieces))
			memset(wanted + pieces.place, 1, (size_t)pieces.count);
	}
	for (int64_t first = 0, end; first < rows; first = end) {
		for (end = first; end < rows && wanted[end] == wanted[first];)
			end++;
		if (wanted[first])
			HYS_TRY(hys_buffer_read(keys->exec, local->buffer,
						begin + first * keys->row_bytes,
						keys->staged->host + first * keys->row_bytes,
						(end - first) * keys->row_bytes, error));
	}
	HYS_TRY(hys_exec_record(keys->exec, &keys->fetched, error));
cleanup:
	hys_free(&hys_allocator_default, wanted);
	return status;
}

/* Own rows as contiguous host memory: where they are, or a copy. */
static hys_status find_source(struct hys_cp_keys *keys, const struct hys_tensor *local,
			      struct hys_error *error)
{
	struct hys_cp_batch *batch = keys->batch;
	const int64_t bytes = hys_mul64(local->shape[0], keys->row_bytes);

	keys->source = hys_cp_in_place(local);
	if (keys->source)
		return HYS_OK;
	keys->staged = hys_cp_take(batch->cp, batch->plan, false, bytes, error);
	if (!keys->staged)
		return error->status;
	keys->source = keys->staged->host;
	if (!batch->on_device || !hys_cp_is_contiguous(local))
		return hys_cp_fetch(keys->exec, local, keys->staged->host, error);
	keys->local = *local;
	return fetch_wanted(keys, error);
}

hys_status hys_cp_keys_copy_own(struct hys_cp_keys *keys, struct hys_error *error)
{
	const struct hys_tensor *local = &keys->local;
	const struct hys_span *runs;
	const int32_t count =
		hys_cut_owned(keys->batch->cut, keys->part, keys->batch->cp->rank, &runs);
	int64_t from = local->offset * (int64_t)hys_dtype_size(local->dtype);
	hys_status status = HYS_OK;

	if (!keys->buffer || !local->buffer || keys->copied)
		return HYS_OK;
	for (int32_t i = 0; i < count; i++) {
		const int64_t bytes = runs[i].count * keys->row_bytes;

		HYS_TRY(hys_buffer_copy(keys->exec, keys->buffer->buffer,
					runs[i].first * keys->row_bytes, local->buffer, from, bytes,
					error));
		from += bytes;
	}
	keys->copied = true;
cleanup:
	return status;
}

static hys_status prepare(struct hys_cp_keys *keys, const struct hys_tensor *local,
			  struct hys_error *error)
{
	struct hys_cp_batch *batch = keys->batch;
	const int64_t rows = hys_cut_size(batch->cut, keys->part);
	const int32_t slices = hys_cut_slices(batch->cut);
	const int64_t bytes = hys_mul64(rows, hys_cp_row_bytes(local));
	struct hys_cp_way way;
	hys_status status;

	keys->row_bytes = hys_cp_row_bytes(local);
	HYS_TRY(find_source(keys, local, error));
	keys->host = hys_cp_take(batch->cp, batch->plan, false, bytes, error);
	if (!keys->host)
		HYS_TRY(error->status);
	if (batch->on_device)
		keys->buffer = hys_cp_take(batch->cp, batch->plan, true, bytes, error);
	if (batch->on_device && !keys->buffer)
		HYS_TRY(error->status);
	keys->tensor =
		hys_cp_tensor(keys->buffer ? keys->buffer : keys->host, local, local->dtype, rows);
	way = (struct hys_cp_way){
		.part = keys->part, .row_bytes = keys->row_bytes, .slices = slices};
	HYS_TRY(hys_cp_messages_make(batch, &way, &keys->in, error));
	way.mine = true;
	HYS_TRY(hys_cp_messages_make(batch, &way, &keys->out, error));
	keys->requests =
		hys_alloc_array(&hys_allocator_default, (int64_t)keys->in.count + keys->out.count,
				sizeof(*keys->requests));
	if (!keys->requests)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for requests"));
cleanup:
	return status;
}

hys_status hys_cp_keys_prepare(struct hys_cp_batch *batch, struct hys_exec *exec, hys_cut_part part,
			       const struct hys_tensor *local, struct hys_cp_keys **keys,
			       struct hys_error *error)
{
	struct hys_cp_keys *made = NULL;
	hys_status status;

	HYS_TRY(check_local(batch, part, local, error));
	made = hys_alloc(&hys_allocator_default, sizeof(*made));
	if (!made)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for gathered keys"));
	made->batch = batch;
	made->exec = exec;
	made->part = part;
	made->next = batch->cp->keys;
	batch->cp->keys = made;
	made->alone = batch->cp->ranks == 1;
	made->tensor = *local;
	if (!made->alone)
		HYS_TRY(prepare(made, local, error));
	*keys = made;
	made = NULL;
cleanup:
	hys_cp_keys_destroy(made);
	return status;
}

/* ---- on their way ---- */

/* The rank's own keys among all, slice by slice: copying them must not keep the
 * first rows waiting. */
static void place_own(const struct hys_cp_keys *keys, int32_t slice)
{
	const struct hys_cut *cut = keys->batch->cut;
	const int64_t size = hys_cut_size(cut, keys->part), slices = hys_cut_slices(cut);
	const int64_t begin = size * slice / slices, end = size * (slice + 1) / slices;
	const struct hys_span *runs;
	const int32_t count = hys_cut_owned(cut, keys->part, keys->batch->cp->rank, &runs);
	const char *from = keys->source;

	for (int32_t i = 0; i < count && !keys->local.buffer; i++) {
		const int64_t first = hys_max64(begin, runs[i].first);
		const int64_t last = hys_min64(end, runs[i].first + runs[i].count);

		if (first < last)
			memcpy(keys->host->host + first * keys->row_bytes,
			       from + (first - runs[i].first) * keys->row_bytes,
			       (size_t)((last - first) * keys->row_bytes));
		from += runs[i].count * keys->row_bytes;
	}
}

static hys_status wait_for_host(const struct hys_cp_keys *keys, struct hys_error *error)
{
	struct hys_event *probe = NULL;
	hys_status status;

	HYS_TRY(hys_event_wait(keys->fetched, error));
	/* An event is reached even behind a failure; this is not. */
	HYS_TRY(hys_exec_record(keys->exec, &probe, error));
cleanup:
	hys_event_destroy(probe);
	return status;
}

/* They go even when what they send could not be had, for others count on them. */
hys_status hys_cp_keys_send(struct hys_cp_keys *keys, struct hys_error *error)
{
	struct hys_error own = {0};
	hys_status fetched = HYS_OK, status = HYS_OK;

	if (!keys->set_out || keys->posted_out == keys->out.count)
		return HYS_OK;
	if (keys->fetched)
		fetched = wait_for_host(keys, &own);
	for (int32_t i = keys->posted_out; i < keys->out.count; i++) {
		HYS_TRY(hys_cp_send(keys->batch->cp, &keys->out.list[i], keys->row_bytes,
				    keys->source, &keys->requests[keys->in.count + i], error));
		keys->posted_out++;
	}
	if (fetched != HYS_OK && error)
		*error = own;
	status = fetched;
cleanup:
	return status;
}

static void tag_messages(struct hys_cp_messages *messages, int tag)
{
	for (int32_t i = 0; i < messages->count; i++)
		messages->list[i].tag = tag;
}

hys_status hys_cp_keys_post(struct hys_cp_keys *keys, struct hys_error *error)
{
	/* All agree only where it is. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	struct hys_cp *cp = keys->batch->cp;
	const int tag = FIRST_TAG + (int)(cp->gathers++ % TAGS);
	hys_status status = HYS_OK;

	if (keys->alone)
		return HYS_OK;
	tag_messages(&keys->in, tag);
	tag_messages(&keys->out, tag);
	for (int32_t i = 0; i < keys->in.count; i++) {
		HYS_TRY(hys_cp_receive(cp, &keys->in.list[i], keys->host->host,
				       &keys->requests[keys->posted_in], error));
		keys->posted_in++;
	}
	keys->set_out = true;
	if (!keys->fetched)
		HYS_TRY(hys_cp_keys_send(keys, error));
	/* Of a failure the call that reads them tells. */
	for (struct hys_cp_keys *each = cp->keys; each; each = each->next)
		if (each->fetched && hys_event_reached(each->fetched))
			(void)hys_cp_keys_send(each, NULL);
cleanup:
	return status;
}

/* Rows [first, last) go to the device, but for those that were copied there. */
static hys_status write_rows(struct hys_cp_keys *keys, int64_t first, int64_t last,
			     struct hys_error *error)
{
	const struct hys_span *runs;
	const int32_t count =
		hys_cut_owned(keys->batch->cut, keys->part, keys->batch->cp->rank, &runs);
	hys_status status = HYS_OK;

	for (int32_t i = 0; first < last; i++) {
		const bool own = keys->local.buffer && i < count;
		const int64_t stop = own ? hys_min64(last, runs[i].first) : last;

		if (first < stop)
			HYS_TRY(hys_buffer_write(keys->exec, keys->buffer->buffer,
						 first * keys->row_bytes,
						 keys->host->host + first * keys->row_bytes,
						 (stop - first) * keys->row_bytes, error));
		first = own ? hys_max64(first, runs[i].first + runs[i].count) : last;
	}
cleanup:
	return status;
}

/* What the rank needs of a slice goes to the device. */
static hys_status write_slice(struct hys_cp_keys *keys, int32_t slice, struct hys_error *error)
{
	const struct hys_cut *cut = keys->batch->cut;
	const int64_t size = hys_cut_size(cut, keys->part), slices = hys_cut_slices(cut);
	const int64_t begin = size * slice / slices, end = size * (slice + 1) / slices;
	const struct hys_span *runs;
	const int32_t count = hys_cut_needed(cut, keys->part, keys->batch->cp->rank, &runs);
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < count; i++) {
		const int64_t first = hys_max64(begin, runs[i].first);
		const int64_t last = hys_min64(end, runs[i].first + runs[i].count);

		if (first < last)
			HYS_TRY(write_rows(keys, first, last, error));
	}
cleanup:
	return status;
}

static hys_status take_slice(struct hys_cp_keys *keys, struct hys_error *error)
{
	static const char *const parts[HYS_CUT_PART_COUNT] = {"rows", "keys", "entries",
							      "window keys"};
	const int32_t slice = keys->arrived;
	const double start = MPI_Wtime();
	int32_t first = 0, end;
	hys_status status;

	HYS_TRY(hys_cp_keys_send(keys, error));
	while (first < keys->in.count && keys->in.list[first].slice < slice)
		first++;
	for (end = first; end < keys->in.count && keys->in.list[end].slice == slice;)
		end++;
	HYS_TRY(hys_cp_wait_receives(keys->batch->cp, end - first, keys->requests + first, error));
	place_own(keys, slice);
	keys->arrived++;
	hys_cp_trace(keys->batch->cp, start, "wait for %s, slice %d of %d", parts[keys->part],
		     slice + 1, hys_cut_slices(keys->batch->cut));
	if (keys->buffer)
		HYS_TRY(write_slice(keys, slice, error));
cleanup:
	return status;
}

/* Work of `exec` waits for the copies that the keys' own exec was given. */
static hys_status follow(struct hys_cp_keys *keys, struct hys_exec *exec, struct hys_error *error)
{
	struct hys_event *event = NULL;
	hys_status status = HYS_OK;

	if (!keys->buffer || keys->exec == exec)
		return HYS_OK;
	HYS_TRY(hys_exec_record(keys->exec, &event, error));
	HYS_TRY(hys_exec_wait(exec, event, error));
cleanup:
	hys_event_destroy(event);
	return status;
}

/* Whether messages are through, without waiting; MPI gets on with all. */
static hys_status are_through(int32_t count, MPI_Request *requests, bool *through,
			      struct hys_error *error)
{
	int came = 1;
	hys_status status = HYS_OK;

	for (int32_t i = 0; came && i < count; i++)
		HYS_TRY(hys_cp_mpi(MPI_Request_get_status(requests[i], &came, MPI_STATUS_IGNORE),
				   "MPI_Request_get_status", error));
	*through = came;
cleanup:
	return status;
}

hys_status hys_cp_keys_have(struct hys_cp_keys *keys, int32_t slice, bool *have,
			    struct hys_error *error)
{
	int32_t first = 0, end;

	*have = keys->alone || keys->arrived > slice;
	if (*have)
		return HYS_OK;
	while (first < keys->in.count && keys->in.list[first].slice < slice)
		first++;
	for (end = first; end < keys->in.count && keys->in.list[end].slice == slice;)
		end++;
	return are_through(end - first, keys->requests + first, have, error);
}

/* MPI may need this rank for what it sends, too: without, others would wait until it
 * comes back from telling the device what to do. */
static hys_status help_sends(const struct hys_cp_keys *keys, struct hys_error *error)
{
	const double end = MPI_Wtime() + HELP_S;
	bool through = false;
	hys_status status = HYS_OK;

	while (!through && MPI_Wtime() < end) {
		HYS_TRY(are_through(keys->posted_out, keys->requests + keys->in.count, &through,
				    error));
		(void)sched_yield();
	}
cleanup:
	return status;
}

hys_status hys_cp_keys_await(struct hys_cp_keys *keys, struct hys_exec *exec, int32_t slices,
			     struct hys_error *error)
{
	hys_status status = HYS_OK;

	if (keys->alone)
		return HYS_OK;
	HYS_TRY(hys_cp_keys_copy_own(keys, error));
	while (keys->arrived < slices)
		HYS_TRY(take_slice(keys, error));
	if (slices == hys_cut_slices(keys->batch->cut))
		HYS_TRY(help_sends(keys, error));
	HYS_TRY(follow(keys, exec, error));
cleanup:
	return status;
}

/* Once everything of this rank has gone, too, its keys may change. */
static hys_status finish_sends(struct hys_cp_keys *keys, struct hys_error *error)
{
	if (keys->posted_out == 0)
		return HYS_OK;
	return hys_cp_wait_sends(keys->batch->cp, keys->posted_out, keys->requests + keys->in.count,
				 error);
}

/* Looks after messages; *more: some are on their way, in or out. */
static hys_status progress(struct hys_cp *cp, bool *more, struct hys_error *error)
{
	hys_status status = HYS_OK;

	*more = false;
	for (struct hys_cp_keys *keys = cp->keys; keys; keys = keys->next) {
		bool through = true, here = false;

		if (keys->alone || !keys->set_out)
			continue;
		HYS_TRY(are_through(keys->posted_out, keys->requests + keys->in.count, &through,
				    error));
		*more = *more || !through;
		if (keys->posted_in < keys->in.count ||
		    keys->arrived == hys_cut_slices(keys->batch->cut))
			continue;
		HYS_TRY(hys_cp_keys_have(keys, keys->arrived, &here, error));
		if (here)
			HYS_TRY(take_slice(keys, error));
		*more = true;
	}
cleanup:
	return status;
}

hys_status hys_cp_drive(struct hys_cp *cp, struct hys_exec *exec, struct hys_error *error)
{
	struct hys_event *computed = NULL;
	bool more = true;
	hys_status status = HYS_OK;

	for (struct hys_cp_keys *keys = cp->keys; keys; keys = keys->next)
		HYS_TRY(hys_cp_keys_send(keys, error));
	if (exec)
		HYS_TRY(hys_exec_record(exec, &computed, error));
	for (struct hys_cp_keys *keys = cp->keys; exec && keys; keys = keys->next)
		(void)hys_cp_keys_copy_own(keys, NULL); /* who reads them tries again */
	while (exec && more && !hys_event_reached(computed)) {
		HYS_TRY(progress(cp, &more, error));
		(void)sched_yield();
	}
cleanup:
	hys_event_destroy(computed);
	return status;
}

struct hys_cp_keys *hys_cp_keys_of(const struct hys_cp *cp, const struct hys_tensor *tensor)
{
	for (struct hys_cp_keys *keys = cp->keys; keys; keys = keys->next)
		if (hys_cp_is_present(tensor) && keys->tensor.host == tensor->host &&
		    keys->tensor.buffer == tensor->buffer &&
		    keys->tensor.shape[0] == tensor->shape[0])
			return keys;
	return NULL;
}

/* ---- for callers ---- */

hys_status hys_cp_gather(struct hys_cp_batch *batch, struct hys_exec *exec, hys_cut_part part,
			 const struct hys_tensor *local, struct hys_cp_keys **keys,
			 struct hys_error *error)
{
	struct hys_error own = {0};
	struct hys_cp_keys *made = NULL;
	hys_status status = HYS_OK;

	if (!batch)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "batch is NULL");
	if (!exec || !local || !keys)
		status = hys_fail(&own, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				  !exec	   ? "exec"
				  : !local ? "local"
					   : "keys");
	else if (part <= HYS_CUT_ROWS || part >= HYS_CUT_PART_COUNT)
		status = hys_fail(&own, HYS_INVALID_ARGUMENT, 0,
				  "part is %d, expected keys, entries or window keys", part);
	if (status == HYS_OK)
		status = hys_cp_keys_prepare(batch, exec, part, local, &made, &own);
	const uint64_t row = made ? (uint64_t)hys_cp_row_bytes(local) : 0;

	HYS_TRY(hys_cp_agree(batch->cp, status, row * 64 + (uint64_t)part * 2 + 32, &own, error));
	HYS_TRY(hys_cp_keys_post(made, error));
	*keys = made;
	made = NULL;
cleanup:
	hys_cp_keys_destroy(made);
	return status;
}

struct hys_tensor hys_cp_keys_tensor(const struct hys_cp_keys *keys)
{
	return keys ? keys->tensor : (struct hys_tensor){0};
}

void hys_cp_keys_destroy(struct hys_cp_keys *keys)
{
	struct hys_cp_keys **link;

	if (!keys)
		return;
	(void)hys_cp_keys_send(keys, NULL);
	(void)hys_cp_wait_receives(keys->batch->cp, keys->posted_in, keys->requests, NULL);
	(void)finish_sends(keys, NULL);
	hys_event_destroy(keys->fetched);
	for (link = &keys->batch->cp->keys; *link && *link != keys;)
		link = &(*link)->next;
	if (*link)
		*link = keys->next;
	hys_cp_messages_clear(&keys->in);
	hys_cp_messages_clear(&keys->out);
	hys_cp_give(keys->host);
	hys_cp_give(keys->buffer);
	hys_cp_give(keys->staged);
	hys_free(&hys_allocator_default, keys->requests);
	hys_free(&hys_allocator_default, keys);
}
