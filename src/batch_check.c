#include "batch_build.h"

static hys_status check_size(struct hys_error *error, const char *name, int64_t value, int64_t most,
			     const char *limit)
{
	if (value >= 0 && value <= most)
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is %lld, expected 0 to %lld (%s)", name,
			(long long)value, (long long)most, limit);
}

static hys_status check_sizes(const struct hys_plan *plan, const struct hys_batch_desc *desc,
			      struct hys_error *error)
{
	const char *types = "rows and keys are numbered in int32";
	hys_status status;

	HYS_TRY(check_size(error, "desc.rows", desc->rows, INT32_MAX, types));
	HYS_TRY(check_size(error, "desc.keys", desc->keys, INT32_MAX, types));
	HYS_TRY(check_size(error, "desc.keys", desc->keys, plan->keys_max, "the plan's keys_max"));
	HYS_TRY(check_size(error, "desc.window_keys", desc->window_keys,
			   hys_min64(INT32_MAX, plan->window_keys_max),
			   "the plan's window_keys_max"));
	HYS_TRY(check_size(error, "desc.window", desc->window, INT32_MAX, "rows"));
	HYS_TRY(check_size(error, "desc.documents", desc->documents, INT32_MAX - 1, "documents"));
	HYS_TRY(check_size(error, "desc.entries", desc->entries, INT32_MAX, types));
	if (desc->flags & ~HYS_BATCH_CAUSAL)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"desc.flags is 0x%x, expected HYS_BATCH_CAUSAL or 0", desc->flags);
cleanup:
	return status;
}

static hys_status check_together(struct hys_error *error, const void *a, const void *b,
				 const char *names)
{
	if (!a == !b)
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "desc.%s: expected both or neither", names);
}

static hys_status check_explicit(const struct hys_batch_desc *desc, bool pooled,
				 struct hys_error *error)
{
	const char *with = desc->flags & HYS_BATCH_CAUSAL ? "flags HYS_BATCH_CAUSAL"
			   : desc->window > 0		  ? "window"
			   : desc->positions		  ? "positions"
							  : NULL;

	if (with)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"desc.%s is set beside desc.row_begin, expected one way to say "
				"what rows see",
				with);
	if (pooled && !desc->index_begin)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"desc.index_begin is NULL, expected intervals of entries: the plan "
				"pools keys and desc.row_begin is given");
	return HYS_OK;
}

hys_status hys_batch_check_desc(const struct hys_plan *plan, const struct hys_batch_desc *desc,
				struct hys_error *error)
{
	hys_status status;

	HYS_TRY(hys_check_struct(desc, sizeof(*desc), "desc", error));
	HYS_TRY(check_sizes(plan, desc, error));
	HYS_TRY(check_together(error, desc->row_begin, desc->row_end, "row_begin and row_end"));
	HYS_TRY(check_together(error, desc->index_begin, desc->index_end,
			       "index_begin and index_end"));
	HYS_TRY(check_together(error, desc->window_begin, desc->window_end,
			       "window_begin and window_end"));
	if (desc->row_begin)
		HYS_TRY(check_explicit(desc, plan->problem.scoring.pool > 1, error));
	else if (desc->index_begin)
		HYS_TRY(hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				 "desc.index_begin is set and desc.row_begin is NULL"));
	if (desc->window_keys > 0 && !desc->window_begin)
		HYS_TRY(hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				 "desc.window_keys is %lld and desc.window_begin is NULL",
				 (long long)desc->window_keys));
cleanup:
	return status;
}

/* ---- documents ---- */

static hys_status check_cu(const int32_t *cu, int32_t documents, int64_t total, const char *name,
			   const char *total_name, struct hys_error *error)
{
	if (cu[0] != 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s[0] is %d, expected 0", name,
				cu[0]);
	for (int32_t i = 1; i <= documents; i++)
		if (cu[i] < cu[i - 1])
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"%s[%d] is %d, expected %d or more, the value before it",
					name, i, cu[i], cu[i - 1]);
	if (cu[documents] != total)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s[%d], the last, is %d, expected %s, %lld", name, documents,
				cu[documents], total_name, (long long)total);
	return HYS_OK;
}

static hys_status read_cu(const struct hys_batch_desc *desc, struct hys_documents *documents,
			  struct hys_error *error)
{
	hys_status status;

	if (!desc->cu_seqlens_q)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"desc.documents is %d and desc.cu_seqlens_q is NULL",
				desc->documents);
	documents->count = desc->documents;
	documents->q = desc->cu_seqlens_q;
	documents->k = desc->cu_seqlens_k ? desc->cu_seqlens_k : desc->cu_seqlens_q;
	status = check_cu(documents->q, documents->count, desc->rows, "desc.cu_seqlens_q",
			  "desc.rows", error);
	if (status != HYS_OK)
		return status;
	return check_cu(documents->k, documents->count, desc->keys,
			desc->cu_seqlens_k ? "desc.cu_seqlens_k"
					   : "desc.cu_seqlens_q (for keys too)",
			"desc.keys", error);
}

static hys_status read_documents(const struct hys_batch_desc *desc, struct hys_documents *documents,
				 struct hys_error *error)
{
	if (desc->documents > 0)
		return read_cu(desc, documents, error);
	if (desc->cu_seqlens_q || desc->cu_seqlens_k)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"desc.documents is 0 and desc.cu_seqlens_%s is set",
				desc->cu_seqlens_q ? "q" : "k");
	documents->count = 1;
	documents->whole_q[1] = (int32_t)desc->rows;
	documents->whole_k[1] = (int32_t)desc->keys;
	documents->q = documents->whole_q;
	documents->k = documents->whole_k;
	return HYS_OK;
}

static void place_entries(struct hys_documents *documents, int32_t pool)
{
	for (int32_t d = 0; d < documents->count; d++)
		documents->entry[d + 1] =
			documents->entry[d] + (documents->k[d + 1] - documents->k[d]) / pool;
}

static void place_coarse(struct hys_documents *documents, int32_t coarse_block)
{
	for (int32_t d = 0; coarse_block > 0 && d < documents->count; d++)
		documents->coarse[d + 1] =
			documents->coarse[d] +
			(documents->entry[d + 1] - documents->entry[d]) / coarse_block;
}

/* Explicit intervals without documents may be over fewer entries: several
 * documents, each pooled by itself, that the caller does not describe. */
static hys_status judge_entries(const struct hys_batch_desc *desc, struct hys_documents *documents,
				bool pooled, struct hys_error *error)
{
	int32_t *total = &documents->entry[documents->count];
	bool fewer = pooled && desc->row_begin && desc->documents == 0;

	if (desc->entries == 0 || desc->entries == *total)
		return HYS_OK;
	if (fewer && desc->entries < *total) {
		*total = (int32_t)desc->entries;
		return HYS_OK;
	}
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
			"desc.entries is %lld, expected 0 or %s%d, what the keys make",
			(long long)desc->entries, fewer ? "at most " : "", *total);
}

hys_status hys_documents_make(const struct hys_plan *plan, const struct hys_batch_desc *desc,
			      struct hys_documents *documents, struct hys_error *error)
{
	const struct hys_problem *problem = &plan->problem;
	const struct hys_allocator *allocator = &plan->context->host.allocator;
	hys_status status;

	documents->allocator = allocator;
	HYS_TRY(read_documents(desc, documents, error));
	documents->entry =
		hys_alloc_array(allocator, documents->count + 1, sizeof(*documents->entry));
	documents->coarse =
		hys_alloc_array(allocator, documents->count + 1, sizeof(*documents->coarse));
	if (!documents->entry || !documents->coarse)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %d documents",
				 documents->count));
	place_entries(documents, problem->scoring.pool);
	HYS_TRY(judge_entries(desc, documents, problem->scoring.pool > 1, error));
	place_coarse(documents, problem->choosing.coarse_block);
cleanup:
	return status;
}

void hys_documents_clear(struct hys_documents *documents)
{
	if (!documents->allocator)
		return;
	hys_free(documents->allocator, documents->entry);
	hys_free(documents->allocator, documents->coarse);
}
