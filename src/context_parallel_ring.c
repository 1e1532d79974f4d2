/* Keys in a ring: each rank hands on what it had, turn by turn, until all have
 * seen all; gradients travel with their keys and end at the owner. */
#include "context_parallel_ring.h"

#include <string.h>

#define TAG_KEYS 2
#define TAG_GRADIENTS 3

bool hys_cp_in_ring(hys_op op)
{
	return hys_cp_turns_of(op) != NULL;
}

bool hys_cp_goes_round(const struct hys_cp_batch *batch, const struct hys_cp_op *op,
		       const void *args)
{
	bool own = false;

	if (batch->cp->mode != HYS_CP_RING || batch->cp->ranks == 1 || !hys_cp_in_ring(op->op))
		return false;
	for (int32_t i = 0; i < op->count; i++) {
		const struct hys_tensor *tensor =
			hys_cp_field_tensor(&op->fields[i], (void *)(uintptr_t)args);

		if (op->fields[i].use == HYS_CP_IN && hys_cp_is_present(tensor))
			own |= !hys_cp_keys_of(batch->cp, tensor);
	}
	return own;
}

static int32_t neighbour(const struct hys_cp *cp, int32_t step)
{
	return (cp->rank + step % cp->ranks + cp->ranks) % cp->ranks;
}

static int64_t rows_of(const struct hys_cp_ring *ring, const struct hys_cp_field *field,
		       int32_t shard)
{
	return hys_cut_count(ring->batch->cut, field->part, shard);
}

static int64_t most_rows(const struct hys_cp_ring *ring, const struct hys_cp_field *field)
{
	int64_t most = 0;

	for (int32_t rank = 0; rank < ring->batch->cp->ranks; rank++)
		most = hys_max64(most, rows_of(ring, field, rank));
	return most;
}

/* ---- memory ---- */

static hys_status take(struct hys_cp_ring *ring, struct hys_cp_block **block, bool on_device,
		       int64_t bytes, struct hys_error *error)
{
	*block = hys_cp_take(ring->batch->cp, ring->batch->plan, on_device, bytes, error);
	return *block ? HYS_OK : error->status;
}

static hys_status check_rows(const struct hys_cp_ring *ring, const struct hys_cp_field *field,
			     const struct hys_tensor *tensor, struct hys_error *error)
{
	const int64_t own = rows_of(ring, field, ring->batch->cp->rank);

	if (tensor->rank >= 1 && tensor->rank <= 3 && tensor->shape[0] == own)
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
			"%s: %s has %lld rows, expected the %lld that this rank owns",
			ring->op->name, field->name, (long long)tensor->shape[0], (long long)own);
}

static hys_status carry(struct hys_cp_ring *ring, const struct hys_cp_field *field,
			const struct hys_tensor *tensor, struct hys_error *error)
{
	struct hys_cp_carried *carried = &ring->carried[ring->carried_count++];
	int64_t bytes;
	hys_status status;

	*carried = (struct hys_cp_carried){.field = field, .local = *tensor};
	HYS_TRY(check_rows(ring, field, tensor, error));
	carried->row_bytes = hys_cp_row_bytes(tensor);
	bytes = hys_mul64(most_rows(ring, field), carried->row_bytes);
	HYS_TRY(take(ring, &carried->host[0], false, bytes, error));
	HYS_TRY(take(ring, &carried->host[1], false, bytes, error));
	if (ring->batch->on_device)
		HYS_TRY(take(ring, &carried->buffer, true, bytes, error));
	HYS_TRY(hys_cp_fetch(ring->exec, tensor, carried->host[0]->host, error));
cleanup:
	return status;
}

static hys_status give_back(struct hys_cp_ring *ring, const struct hys_cp_field *field,
			    const struct hys_tensor *tensor, struct hys_error *error)
{
	struct hys_cp_returned *returned = &ring->returned[ring->returned_count++];
	int64_t bytes;
	hys_status status;

	*returned = (struct hys_cp_returned){.field = field, .local = *tensor};
	HYS_TRY(check_rows(ring, field, tensor, error));
	returned->row_elements = hys_cp_row_bytes(tensor) / (int64_t)hys_dtype_size(tensor->dtype);
	bytes = hys_mul64(most_rows(ring, field), returned->row_elements * 4);
	HYS_TRY(take(ring, &returned->partial, ring->batch->on_device, bytes, error));
	HYS_TRY(take(ring, &returned->host, false, bytes, error));
	HYS_TRY(take(ring, &returned->arrived, false, bytes, error));
cleanup:
	return status;
}

static void clear(struct hys_cp_ring *ring)
{
	for (int32_t i = 0; i < ring->carried_count; i++) {
		hys_cp_give(ring->carried[i].host[0]);
		hys_cp_give(ring->carried[i].host[1]);
		hys_cp_give(ring->carried[i].buffer);
	}
	for (int32_t i = 0; i < ring->returned_count; i++) {
		hys_cp_give(ring->returned[i].partial);
		hys_cp_give(ring->returned[i].host);
		hys_cp_give(ring->returned[i].arrived);
	}
	for (int32_t i = 0; i < 3; i++) {
		hys_cp_give(ring->turn[i]);
		hys_cp_give(ring->turn_host[i]);
		hys_cp_give(ring->sum[i]);
	}
	hys_cp_give(ring->lists);
	hys_cp_give(ring->total.block);
	hys_cp_give(ring->total.host);
}

/* ---- messages ---- */

struct requests {
	MPI_Request list[4 * HYS_CP_CARRIED_MAX];
	int32_t sends, receives; /* receives begin in the middle */
};

#define RECEIVES ((int64_t)2 * HYS_CP_CARRIED_MAX)

static hys_status post(struct hys_cp_ring *ring, const char *out, int64_t out_rows, char *in,
		       int64_t in_rows, int64_t row_bytes, int tag, MPI_Datatype row,
		       struct requests *requests, struct hys_error *error)
{
	struct hys_cp *cp = ring->batch->cp;
	hys_status status = HYS_OK;

	if (in && in_rows > 0)
		HYS_TRY(hys_cp_mpi(MPI_Irecv(in, (int)in_rows, row, neighbour(cp, -1), tag,
					     cp->comm,
					     &requests->list[RECEIVES + requests->receives++]),
				   "MPI_Irecv", error));
	if (out && out_rows > 0) {
		HYS_TRY(hys_cp_mpi(MPI_Isend(out, (int)out_rows, row, neighbour(cp, 1), tag,
					     cp->comm, &requests->list[requests->sends++]),
				   "MPI_Isend", error));
		cp->traffic.sent_bytes += out_rows * row_bytes;
		cp->traffic.messages_sent++;
	}
cleanup:
	return status;
}

static hys_status wait(struct hys_cp_ring *ring, struct requests *requests, struct hys_error *error)
{
	struct hys_cp *cp = ring->batch->cp;
	const double start = MPI_Wtime();
	hys_status status;

	HYS_TRY(hys_cp_wait_receives(cp, requests->receives, &requests->list[RECEIVES], error));
	HYS_TRY(hys_cp_wait_sends(cp, requests->sends, requests->list, error));
	hys_cp_trace(cp, start, "wait for the ring, after the keys of rank %d", ring->shard);
cleanup:
	requests->sends = requests->receives = 0;
	return status;
}

/* A type of one row, so that counts stay small. */
static hys_status row_type(int64_t row_bytes, MPI_Datatype *type, struct hys_error *error)
{
	hys_status status;

	HYS_TRY(hys_cp_mpi(MPI_Type_contiguous((int)row_bytes, MPI_BYTE, type),
			   "MPI_Type_contiguous", error));
	HYS_TRY(hys_cp_mpi(MPI_Type_commit(type), "MPI_Type_commit", error));
cleanup:
	return status;
}

/* Keys of this turn go on while they are used. */
static hys_status hand_on(struct hys_cp_ring *ring, int32_t turn, struct requests *requests,
			  struct hys_error *error)
{
	const int32_t next = neighbour(ring->batch->cp, -turn - 1);
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < ring->carried_count; i++) {
		struct hys_cp_carried *carried = &ring->carried[i];
		MPI_Datatype row;

		HYS_TRY(row_type(carried->row_bytes, &row, error));
		/* All ranks agree that they have memory. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
		status = post(ring, carried->host[turn % 2]->host,
			      rows_of(ring, carried->field, ring->shard),
			      carried->host[(turn + 1) % 2]->host,
			      rows_of(ring, carried->field, next), carried->row_bytes, TAG_KEYS,
			      row, requests, error);
		(void)MPI_Type_free(&row);
		HYS_TRY(status);
	}
cleanup:
	return status;
}

/* What the ranks before found of this turn's keys, plus what this one did, goes
 * on; the last turn's goes to the owner. */
static hys_status pass_gradients(struct hys_cp_ring *ring, int32_t turn, bool computed,
				 struct hys_error *error)
{
	struct hys_cp *cp = ring->batch->cp;
	struct requests requests = {.sends = 0};
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < ring->returned_count; i++) {
		struct hys_cp_returned *back = &ring->returned[i];
		const int64_t rows = rows_of(ring, back->field, ring->shard);
		float *own = (float *)(void *)back->host->host;
		const float *before = (const float *)(const void *)back->arrived->host;

		if (!computed)
			memset(back->host->host, 0, (size_t)(rows * back->row_elements * 4));
		for (int64_t e = 0; turn > 0 && e < rows * back->row_elements; e++)
			own[e] = before[e] + own[e];
	}
	for (int32_t i = 0; i < ring->returned_count; i++) {
		struct hys_cp_returned *back = &ring->returned[i];
		const int32_t next = neighbour(cp, -turn - 1);
		MPI_Datatype row;

		HYS_TRY(row_type(back->row_elements * 4, &row, error));
		status = post(ring, back->host->host, rows_of(ring, back->field, ring->shard),
			      back->arrived->host, rows_of(ring, back->field, next),
			      back->row_elements * 4, TAG_GRADIENTS, row, &requests, error);
		(void)MPI_Type_free(&row);
		HYS_TRY(status);
	}
	HYS_TRY(wait(ring, &requests, error));
cleanup:
	return status;
}

/* ---- turns ---- */

static hys_status place_keys(struct hys_cp_ring *ring, int32_t turn, struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < ring->carried_count; i++) {
		struct hys_cp_carried *carried = &ring->carried[i];
		const struct hys_cp_block *host = carried->host[turn % 2];
		const int64_t rows = rows_of(ring, carried->field, ring->shard);

		if (carried->buffer && rows > 0)
			HYS_TRY(hys_buffer_write(ring->exec, carried->buffer->buffer, 0, host->host,
						 rows * carried->row_bytes, error));
		*hys_cp_field_tensor(carried->field, &ring->args) =
			hys_cp_tensor(carried->buffer ? carried->buffer : host, &carried->local,
				      carried->local.dtype, rows);
	}
	for (int32_t i = 0; i < ring->returned_count; i++) {
		struct hys_cp_returned *back = &ring->returned[i];

		*hys_cp_field_tensor(back->field, &ring->args) =
			hys_cp_tensor(back->partial, &back->local, HYS_F32,
				      rows_of(ring, back->field, ring->shard));
		if (rows_of(ring, back->field, ring->shard) > 0)
			HYS_TRY(hys_cp_zero(ring->exec,
					    hys_cp_field_tensor(back->field, &ring->args), error));
	}
cleanup:
	return status;
}

static hys_status compute(struct hys_cp_ring *ring, int32_t turn, struct hys_error *error)
{
	const double start = MPI_Wtime();
	struct hys_batch *shard = NULL;
	hys_status status;

	HYS_TRY(place_keys(ring, turn, error));
	HYS_TRY(hys_cut_shard(ring->batch->cut, ring->batch->cp->rank, ring->shard,
			      ring->batch->plan, &shard, error));
	HYS_TRY(hys_cp_turns_of(ring->op->op)->turn(ring, shard, error));
	for (int32_t i = 0; i < ring->returned_count; i++) {
		struct hys_cp_returned *back = &ring->returned[i];

		HYS_TRY(hys_cp_fetch(ring->exec, hys_cp_field_tensor(back->field, &ring->args),
				     back->host->host, error));
	}
	hys_cp_trace(ring->batch->cp, start, "%s: keys of rank %d", ring->op->name, ring->shard);
cleanup:
	(void)hys_exec_finish(ring->exec, NULL);
	hys_batch_destroy(shard);
	return status;
}

/* All turns, computed or not: the others count on what goes round. */
static hys_status go_round(struct hys_cp_ring *ring, struct hys_error *error)
{
	struct hys_cp *cp = ring->batch->cp;
	struct requests requests = {.sends = 0};
	struct hys_error other = {0};
	hys_status computed = HYS_OK, status = HYS_OK;

	for (int32_t turn = 0; turn < cp->ranks; turn++) {
		ring->shard = neighbour(cp, -turn);
		if (turn < cp->ranks - 1)
			HYS_TRY(hand_on(ring, turn, &requests, error));
		if (computed == HYS_OK)
			computed = compute(ring, turn, &other);
		HYS_TRY(pass_gradients(ring, turn, computed == HYS_OK, error));
		HYS_TRY(wait(ring, &requests, error));
	}
	if (computed != HYS_OK)
		*error = other;
	HYS_TRY(computed);
cleanup:
	return status;
}

/* ---- the operation ---- */

static hys_status prepare(struct hys_cp_ring *ring, struct hys_error *error)
{
	const struct hys_cp_head *head = &ring->args.head;
	hys_status status;

	if (head->row_first != 0 || (head->row_count != 0 && head->row_count != ring->rows))
		HYS_TRY(hys_fail(error, HYS_UNSUPPORTED, 0,
				 "%s: a range of rows in a ring, expected all of the rank's",
				 ring->op->name));
	for (int32_t i = 0; i < ring->op->count; i++) {
		const struct hys_cp_field *field = &ring->op->fields[i];
		struct hys_tensor *tensor = hys_cp_field_tensor(field, &ring->args);

		ring->what = ring->what * 2 + hys_cp_is_present(tensor);
		if (!hys_cp_is_present(tensor))
			continue;
		if (field->use == HYS_CP_TOTAL) {
			HYS_TRY(hys_cp_total_prepare(
				ring->batch, ring->exec,
				hys_cp_field_tensor(field, (void *)(uintptr_t)ring->given),
				&ring->total, error));
			*tensor = ring->total.own;
			continue;
		}
		HYS_TRY(field->use == HYS_CP_IN ? carry(ring, field, tensor, error)
						: give_back(ring, field, tensor, error));
	}
	HYS_TRY(hys_cp_turns_of(ring->op->op)->begin(ring, error));
cleanup:
	return status;
}

static hys_status end(struct hys_cp_ring *ring, struct hys_error *error)
{
	struct hys_cp *cp = ring->batch->cp;
	struct hys_error other = {0};
	hys_status status, totalled = HYS_OK;

	/* First what takes all ranks. */
	if (ring->total.block)
		totalled = hys_cp_total_run(ring->batch, ring->exec, &ring->total, ring->accumulate,
					    &other);
	HYS_TRY(hys_cp_turns_of(ring->op->op)->end(ring, error));
	for (int32_t i = 0; i < ring->returned_count; i++) {
		struct hys_cp_returned *back = &ring->returned[i];

		HYS_TRY(hys_cp_finish_sum(cp, ring->batch->plan, ring->exec, &back->local,
					  back->arrived->host, ring->accumulate, error));
	}
	if (totalled != HYS_OK)
		*error = other;
	HYS_TRY(totalled);
cleanup:
	return status;
}

hys_status hys_cp_run_in_ring(const struct hys_cp_op *op, struct hys_cp_batch *batch,
			      struct hys_exec *exec, const union hys_cp_arguments *args,
			      bool accumulate, struct hys_error *error)
{
	struct hys_cp_ring ring = {.op = op,
				   .batch = batch,
				   .exec = exec,
				   .given = args,
				   .args = *args,
				   .accumulate = accumulate,
				   .what = 500 + (uint64_t)op->op * 2 + accumulate};
	struct hys_error own = {0};
	hys_status status;

	ring.rows = hys_cut_count(batch->cut, HYS_CUT_ROWS, batch->cp->rank);
	status = prepare(&ring, &own);
	HYS_TRY(hys_cp_agree(batch->cp, status, ring.what * 2, &own, error));
	status = go_round(&ring, &own);
	HYS_TRY(hys_cp_agree(batch->cp, status, 5, &own, error));
	status = end(&ring, &own);
	HYS_TRY(hys_cp_agree(batch->cp, status, 7, &own, error));
cleanup:
	clear(&ring);
	return status;
}
