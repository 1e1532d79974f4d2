/* Who sends what to whom: rows of one array, slice after slice. */
#include "context_parallel.h"

#define TAG 1

/* ---- pieces ---- */

bool hys_cp_piece_next(struct hys_cp_pieces *pieces)
{
	while (pieces->i < pieces->a_count && pieces->j < pieces->b_count) {
		const struct hys_span *a = &pieces->a[pieces->i], *b = &pieces->b[pieces->j];
		const int64_t a_end = a->first + a->count, b_end = b->first + b->count;
		const int64_t begin = hys_max64(pieces->begin, hys_max64(a->first, b->first));
		const int64_t end = hys_min64(pieces->end, hys_min64(a_end, b_end));

		pieces->first = begin;
		pieces->count = end - begin;
		pieces->place = pieces->before + begin - a->first;
		if (b_end <= a_end)
			pieces->j++;
		if (a_end <= b_end) {
			pieces->before += a->count;
			pieces->i++;
		}
		if (begin < end)
			return true;
	}
	return false;
}

struct hys_cp_pieces hys_cp_pieces_of(const struct hys_cut *cut, hys_cut_part part, int32_t rank,
				      int32_t other, bool mine)
{
	struct hys_cp_pieces pieces = {.end = INT64_MAX};

	if (mine) {
		pieces.a_count = hys_cut_owned(cut, part, rank, &pieces.a);
		pieces.b_count = hys_cut_needed(cut, part, other, &pieces.b);
	} else {
		pieces.a_count = hys_cut_needed(cut, part, rank, &pieces.a);
		pieces.b_count = hys_cut_owned(cut, part, other, &pieces.b);
	}
	return pieces;
}

/* ---- messages ---- */

/* Lengths and places of the pieces, at most so many. */
struct shape {
	int *lengths, *places;
	int count;
};

static hys_status give_type(struct hys_cp_messages *messages, struct hys_cp_message *message,
			    const struct shape *shape, int64_t row_bytes, struct hys_error *error)
{
	hys_status status = HYS_OK;

	if (shape->count == 1) {
		message->offset = shape->places[0] * row_bytes;
		message->count = shape->lengths[0];
		message->type = messages->row;
		return HYS_OK;
	}
	HYS_TRY(hys_cp_mpi(MPI_Type_indexed(shape->count, shape->lengths, shape->places,
					    messages->row, &message->type),
			   "MPI_Type_indexed", error));
	message->owned = true;
	message->count = 1;
	HYS_TRY(hys_cp_mpi(MPI_Type_commit(&message->type), "MPI_Type_commit", error));
cleanup:
	return status;
}

static hys_status add(struct hys_cp_messages *messages, struct hys_cp_pieces pieces, bool mine,
		      struct hys_cp_message about, int64_t row_bytes, struct shape *shape,
		      struct hys_error *error)
{
	shape->count = 0;
	while (hys_cp_piece_next(&pieces)) {
		shape->lengths[shape->count] = (int)pieces.count;
		shape->places[shape->count++] = (int)(mine ? pieces.place : pieces.first);
		about.rows += pieces.count;
	}
	if (shape->count == 0)
		return HYS_OK;
	messages->list[messages->count] = about;
	return give_type(messages, &messages->list[messages->count++], shape, row_bytes, error);
}

static hys_status add_slice(const struct hys_cp_batch *batch, const struct hys_cp_way *way,
			    int32_t slice, struct hys_cp_messages *messages, struct shape *shape,
			    struct hys_error *error)
{
	const struct hys_cp *cp = batch->cp;
	const int64_t size = hys_cut_size(batch->cut, way->part);
	hys_status status = HYS_OK;

	for (int32_t other = 0; other < cp->ranks; other++) {
		const struct hys_cp_message about = {
			.peer = other, .tag = way->tag, .slice = slice};
		struct hys_cp_pieces pieces =
			hys_cp_pieces_of(batch->cut, way->part, cp->rank, other, way->mine);

		pieces.begin = size * slice / way->slices;
		pieces.end = size * (slice + 1) / way->slices;
		if (other != cp->rank)
			HYS_TRY(add(messages, pieces, way->mine, about, way->row_bytes, shape,
				    error));
	}
cleanup:
	return status;
}

hys_status hys_cp_messages_make(const struct hys_cp_batch *batch, const struct hys_cp_way *way,
				struct hys_cp_messages *messages, struct hys_error *error)
{
	const struct hys_cp *cp = batch->cp;
	const struct hys_span *runs;
	int64_t most = hys_cut_owned(batch->cut, way->part, cp->rank, &runs) +
		       hys_cut_needed(batch->cut, way->part, cp->rank, &runs);
	struct shape shape = {0};
	hys_status status = HYS_OK;

	for (int32_t other = 0; other < cp->ranks; other++)
		most += way->mine ? hys_cut_needed(batch->cut, way->part, other, &runs)
				  : hys_cut_owned(batch->cut, way->part, other, &runs);
	messages->allocator = &hys_allocator_default;
	messages->list = hys_alloc_array(messages->allocator, (int64_t)way->slices * cp->ranks,
					 sizeof(*messages->list));
	shape.lengths = hys_alloc_array(messages->allocator, most + 1, sizeof(int));
	shape.places = hys_alloc_array(messages->allocator, most + 1, sizeof(int));
	if (!messages->list || !shape.lengths || !shape.places)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for messages to %d ranks",
				 cp->ranks));
	if (way->row_bytes > INT32_MAX)
		HYS_TRY(hys_fail(error, HYS_UNSUPPORTED, 0,
				 "a row of keys has %lld bytes, expected at most %d",
				 (long long)way->row_bytes, INT32_MAX));
	HYS_TRY(hys_cp_mpi(MPI_Type_contiguous((int)way->row_bytes, MPI_BYTE, &messages->row),
			   "MPI_Type_contiguous", error));
	messages->made = true;
	HYS_TRY(hys_cp_mpi(MPI_Type_commit(&messages->row), "MPI_Type_commit", error));
	for (int32_t i = 0; i < way->slices; i++)
		HYS_TRY(add_slice(batch, way, way->last_first ? way->slices - 1 - i : i, messages,
				  &shape, error));
cleanup:
	hys_free(&hys_allocator_default, shape.lengths);
	hys_free(&hys_allocator_default, shape.places);
	return status;
}

void hys_cp_messages_clear(struct hys_cp_messages *messages)
{
	for (int32_t i = 0; i < messages->count; i++)
		if (messages->list[i].owned)
			(void)MPI_Type_free(&messages->list[i].type);
	if (messages->made)
		(void)MPI_Type_free(&messages->row);
	hys_free(&hys_allocator_default, messages->list);
	*messages = (struct hys_cp_messages){0};
}

hys_status hys_cp_send(struct hys_cp *cp, const struct hys_cp_message *message, int64_t row_bytes,
		       const char *array, MPI_Request *request, struct hys_error *error)
{
	const int code = MPI_Isend(array + message->offset, message->count, message->type,
				   message->peer, TAG + message->tag, cp->comm, request);

	if (code == MPI_SUCCESS) {
		cp->traffic.sent_bytes += message->rows * row_bytes;
		cp->traffic.messages_sent++;
	}
	return hys_cp_mpi(code, "MPI_Isend", error);
}

hys_status hys_cp_receive(struct hys_cp *cp, const struct hys_cp_message *message, char *array,
			  MPI_Request *request, struct hys_error *error)
{
	return hys_cp_mpi(MPI_Irecv(array + message->offset, message->count, message->type,
				    message->peer, TAG + message->tag, cp->comm, request),
			  "MPI_Irecv", error);
}

static hys_status wait_all(struct hys_cp *cp, int32_t count, MPI_Request *requests, bool receives,
			   struct hys_error *error)
{
	const double start = MPI_Wtime();
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < count; i++) {
		const bool open = requests[i] != MPI_REQUEST_NULL;
		MPI_Status came;
		MPI_Count bytes = 0;

		HYS_TRY(hys_cp_mpi(MPI_Wait(&requests[i], &came), "MPI_Wait", error));
		if (!receives || !open)
			continue;
		HYS_TRY(hys_cp_mpi(MPI_Get_elements_x(&came, MPI_BYTE, &bytes),
				   "MPI_Get_elements_x", error));
		cp->traffic.received_bytes += (int64_t)bytes;
		cp->traffic.messages_received++;
	}
cleanup:
	cp->waited_s += MPI_Wtime() - start;
	return status;
}

hys_status hys_cp_wait_receives(struct hys_cp *cp, int32_t count, MPI_Request *requests,
				struct hys_error *error)
{
	return wait_all(cp, count, requests, true, error);
}

hys_status hys_cp_wait_sends(struct hys_cp *cp, int32_t count, MPI_Request *requests,
			     struct hys_error *error)
{
	return wait_all(cp, count, requests, false, error);
}
