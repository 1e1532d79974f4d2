/* A job on several ranks: its communicator, its memory, how ranks agree. */
#include "context_parallel.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "hash.h"

/* ---- MPI ---- */

hys_status hys_cp_mpi(int code, const char *what, struct hys_error *error)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length = 0;

	if (code == MPI_SUCCESS)
		return HYS_OK;
	(void)MPI_Error_string(code, text, &length);
	return hys_fail(error, HYS_IO, code, "%s: %s", what, text);
}

void hys_cp_trace(const struct hys_cp *cp, double start, const char *format, ...)
{
	char what[160];
	va_list arguments;

	if (!cp->trace)
		return;
	va_start(arguments, format);
	if (vsnprintf(what, sizeof(what), format, arguments) < 0)
		what[0] = '\0';
	va_end(arguments);
	cp->trace(cp->trace_user, start, MPI_Wtime(), what);
}

/* What a failing rank has to say. */
struct verdict {
	int32_t native;
	char message[224];
};

static hys_status tell(struct hys_cp *cp, int64_t worst, const struct hys_error *own,
		       struct hys_error *error)
{
	const int rank = (int)(worst / HYS_STATUS_COUNT);
	const hys_status status = (hys_status)(worst % HYS_STATUS_COUNT);
	struct verdict verdict = {0};
	hys_status told;

	if (rank == cp->rank) {
		verdict.native = own->native;
		memcpy(verdict.message, own->message, sizeof(verdict.message) - 1);
	}
	told = hys_cp_mpi(MPI_Bcast(&verdict, sizeof(verdict), MPI_BYTE, rank, cp->comm),
			  "MPI_Bcast", error);
	if (told != HYS_OK)
		return told;
	return hys_fail(error, status, verdict.native, "rank %d: %s", rank, verdict.message);
}

hys_status hys_cp_agree(struct hys_cp *cp, hys_status status, uint64_t what,
			const struct hys_error *own, struct hys_error *error)
{
	const int64_t call = (int64_t)(what >> 1);
	int64_t mine[3] = {INT64_MAX, call, -call}, all[3] = {0};
	const double start = MPI_Wtime();
	hys_status agreed;

	if (status != HYS_OK)
		mine[0] = (int64_t)cp->rank * HYS_STATUS_COUNT + (int64_t)status;
	agreed = hys_cp_mpi(MPI_Allreduce(mine, all, 3, MPI_INT64_T, MPI_MIN, cp->comm),
			    "MPI_Allreduce", error);
	cp->waited_s += MPI_Wtime() - start;
	hys_cp_trace(cp, start, "agree");
	if (agreed != HYS_OK)
		return agreed;
	if (all[0] != INT64_MAX)
		return tell(cp, all[0], own, error);
	if (all[1] != -all[2])
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"the ranks are not in the same call, with the same tensors of "
				"keys, flags and sizes");
	return HYS_OK;
}

/* ---- the job ---- */

static hys_status take_options(struct hys_cp *cp, const struct hys_cp_options *options,
			       struct hys_error *error)
{
	hys_status status = HYS_OK;

	cp->allocator = hys_allocator_default;
	if (!options)
		return HYS_OK;
	HYS_TRY(hys_check_struct(options, sizeof(*options), "options", error));
	HYS_TRY(hys_check_range(error, "options.way", options->way, 0, HYS_CUT_WAY_COUNT - 1));
	HYS_TRY(hys_check_range(error, "options.slices", options->slices, 0, 1024));
	HYS_TRY(hys_check_range(error, "options.mode", options->mode, 0, HYS_CP_MODE_COUNT - 1));
	if (!options->allocate != !options->release)
		HYS_TRY(hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				 "options.allocate and options.release: expected both or neither"));
	cp->way = options->way;
	cp->slices = options->slices;
	cp->mode = options->mode;
	cp->trace = options->trace;
	cp->trace_user = options->trace_user;
	if (options->allocate)
		cp->allocator = (struct hys_allocator){options->allocate, options->release,
						       options->allocate_user};
cleanup:
	return status;
}

static hys_status open_communicator(struct hys_cp *cp, MPI_Comm comm, struct hys_error *error)
{
	hys_status status;

	HYS_TRY(hys_cp_mpi(MPI_Comm_dup(comm, &cp->comm), "MPI_Comm_dup", error));
	HYS_TRY(hys_cp_mpi(MPI_Comm_set_errhandler(cp->comm, MPI_ERRORS_RETURN),
			   "MPI_Comm_set_errhandler", error));
	HYS_TRY(hys_cp_mpi(MPI_Comm_rank(cp->comm, &cp->rank), "MPI_Comm_rank", error));
	HYS_TRY(hys_cp_mpi(MPI_Comm_size(cp->comm, &cp->ranks), "MPI_Comm_size", error));
cleanup:
	return status;
}

hys_status hys_cp_create(MPI_Comm comm, const struct hys_cp_options *options, struct hys_cp **cp,
			 struct hys_error *error)
{
	struct hys_error own = {0};
	struct hys_cp probe = {.comm = MPI_COMM_NULL}, *made = NULL;
	hys_status status;

	HYS_TRY(open_communicator(&probe, comm, error));
	status = take_options(&probe, options, &own);
	if (status == HYS_OK && !cp)
		status = hys_fail(&own, HYS_INVALID_ARGUMENT, 0, "cp is NULL");
	if (status == HYS_OK)
		made = hys_alloc(&hys_allocator_default, sizeof(*made));
	if (status == HYS_OK && !made)
		status = hys_fail(&own, HYS_OUT_OF_MEMORY, 0, "no memory for a job");
	const int32_t same[] = {(int32_t)probe.way, probe.slices, (int32_t)probe.mode};

	HYS_TRY(hys_cp_agree(&probe, status, hys_hash(hys_hash_start, same, sizeof(same)), &own,
			     error));
	/* All agree only where it is. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	*made = probe;
	*cp = made;
	made = NULL;
	probe.comm = MPI_COMM_NULL;
cleanup:
	hys_free(&hys_allocator_default, made);
	if (probe.comm != MPI_COMM_NULL)
		(void)MPI_Comm_free(&probe.comm);
	return status;
}

void hys_cp_destroy(struct hys_cp *cp)
{
	if (!cp)
		return;
	for (int32_t i = 0; i < HYS_CP_BLOCKS; i++)
		hys_cp_drop(cp, &cp->blocks[i]);
	(void)MPI_Comm_free(&cp->comm);
	hys_free(&hys_allocator_default, cp);
}

int32_t hys_cp_rank(const struct hys_cp *cp)
{
	return cp ? cp->rank : -1;
}

int32_t hys_cp_ranks(const struct hys_cp *cp)
{
	return cp ? cp->ranks : 0;
}

struct hys_cp_traffic hys_cp_counted(const struct hys_cp *cp)
{
	return cp ? cp->traffic : (struct hys_cp_traffic){0};
}

double hys_cp_waited_s(const struct hys_cp *cp)
{
	return cp ? cp->waited_s : 0;
}

/* ---- the batch ---- */

/* What ranks must have in common: the mathematics and who sees what. */
static uint64_t hash_of(const struct hys_problem *problem, const struct hys_batch_desc *desc)
{
	const int64_t numbers[] = {desc->rows,	  desc->keys,	   desc->flags,	     desc->window,
				   desc->entries, desc->documents, desc->window_keys};
	const int32_t *const rows[] = {desc->positions,	  desc->row_begin, desc->row_end,
				       desc->index_begin, desc->index_end, desc->window_begin,
				       desc->window_end};
	const int32_t *const cu[] = {desc->cu_seqlens_q, desc->cu_seqlens_k};
	const struct hys_scoring *scoring = &problem->scoring;
	const struct hys_choosing *choosing = &problem->choosing;
	const struct hys_attending *attending = &problem->attending;
	const double sizes[] = {
		scoring->heads,		scoring->dim,		scoring->groups,
		scoring->block,		scoring->pool,		scoring->dtype,
		scoring->activation,	scoring->scale,		choosing->topk_max,
		choosing->first_blocks, choosing->local_blocks, choosing->coarse_block,
		choosing->coarse_keep,	choosing->method,	attending->heads,
		attending->kv_heads,	attending->head_dim,	attending->value_dim,
		attending->granularity, attending->window,	attending->first,
		attending->dtype,	attending->scale,	attending->softcap,
		attending->flags};
	uint64_t hash = hys_hash(hys_hash_start, sizes, sizeof(sizes));

	hash = hys_hash(hash, numbers, sizeof(numbers));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i])
			hash = hys_hash(hash, rows[i], (size_t)desc->rows * sizeof(int32_t));
	for (size_t i = 0; i < sizeof(cu) / sizeof(cu[0]); i++)
		if (cu[i] && desc->documents > 0)
			hash = hys_hash(hash, cu[i],
					((size_t)desc->documents + 1) * sizeof(int32_t));
	return hash;
}

/* Buffers are for one device that has memory of its own. */
static hys_status find_place(struct hys_cp_batch *batch, struct hys_error *error)
{
	struct hys_device_info info;
	hys_status status = hys_context_device_info(hys_plan_context(batch->plan),
						    hys_plan_device(batch->plan, 0), &info, error);

	if (status == HYS_OK)
		batch->on_device = hys_plan_device_count(batch->plan) == 1 &&
				   strcmp(info.backend, "openmp") != 0;
	return status;
}

static hys_status make_batch(struct hys_cp_batch *batch, const struct hys_batch_desc *desc,
			     struct hys_error *error)
{
	const struct hys_cp *cp = batch->cp;
	const struct hys_cut_options options = {.struct_size = sizeof(options),
						.ranks = cp->ranks,
						.way = cp->way,
						.slices = cp->slices};
	hys_status status;

	HYS_TRY(hys_cut_create(hys_plan_problem(batch->plan), desc, &options, &batch->cut, error));
	HYS_TRY(hys_cut_batch(batch->cut, cp->rank, batch->plan, &batch->local, error));
	HYS_TRY(find_place(batch, error));
cleanup:
	return status;
}

hys_status hys_cp_batch_create(struct hys_cp *cp, struct hys_plan *plan,
			       const struct hys_batch_desc *desc, struct hys_cp_batch **batch,
			       struct hys_error *error)
{
	struct hys_error own = {0};
	struct hys_cp_batch *made = NULL;
	uint64_t hash = 0;
	hys_status status = HYS_OK;

	if (!cp)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "cp is NULL");
	if (!plan || !desc || !batch)
		status = hys_fail(&own, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				  !plan	  ? "plan"
				  : !desc ? "desc"
					  : "batch");
	if (status == HYS_OK)
		made = hys_alloc(&hys_allocator_default, sizeof(*made));
	if (status == HYS_OK && !made)
		status = hys_fail(&own, HYS_OUT_OF_MEMORY, 0, "no memory for a batch");
	if (status == HYS_OK) {
		made->cp = cp;
		made->plan = plan;
		status = make_batch(made, desc, &own);
	}
	if (status == HYS_OK)
		hash = hash_of(hys_plan_problem(plan), desc);
	HYS_TRY(hys_cp_agree(cp, status, hash, &own, error));
	/* All agree only where it is. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	*batch = made;
	made = NULL;
cleanup:
	hys_cp_batch_destroy(made);
	return status;
}

void hys_cp_batch_destroy(struct hys_cp_batch *batch)
{
	if (!batch)
		return;
	hys_batch_destroy(batch->local);
	hys_cut_destroy(batch->cut);
	hys_free(&hys_allocator_default, batch);
}

const struct hys_cut *hys_cp_batch_cut(const struct hys_cp_batch *batch)
{
	return batch ? batch->cut : NULL;
}

struct hys_batch *hys_cp_batch_local(const struct hys_cp_batch *batch)
{
	return batch ? batch->local : NULL;
}
