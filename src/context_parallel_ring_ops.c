/* What turns of a ring make of one rank's keys: picks and softmax partials that
 * are merged, gradients that are added. */
#include "context_parallel_ring.h"

#include <math.h>
#include <string.h>

#include "number.h"

/* ---- rows of a turn ---- */

/* Memory for an output of a turn, where the operation writes and on the host. */
static hys_status take_rows(struct hys_cp_ring *ring, int32_t i, int64_t bytes,
			    struct hys_error *error)
{
	struct hys_cp_batch *batch = ring->batch;

	ring->turn[i] = hys_cp_take(batch->cp, batch->plan, batch->on_device, bytes, error);
	if (!ring->turn[i])
		return error->status;
	if (batch->on_device)
		ring->turn_host[i] = hys_cp_take(batch->cp, batch->plan, false, bytes, error);
	return batch->on_device && !ring->turn_host[i] ? error->status : HYS_OK;
}

static hys_status take_sum(struct hys_cp_ring *ring, int32_t i, int64_t bytes,
			   struct hys_error *error)
{
	ring->sum[i] = hys_cp_take(ring->batch->cp, ring->batch->plan, false, bytes, error);
	return ring->sum[i] ? HYS_OK : error->status;
}

static char *host_of(const struct hys_cp_ring *ring, int32_t i)
{
	return ring->turn_host[i] ? ring->turn_host[i]->host : ring->turn[i]->host;
}

static hys_status fetch_rows(struct hys_cp_ring *ring, int32_t i, const struct hys_tensor *tensor,
			     struct hys_error *error)
{
	return ring->turn_host[i] ? hys_cp_fetch(ring->exec, tensor, host_of(ring, i), error)
				  : HYS_OK;
}

static hys_status refuse(const struct hys_cp_ring *ring, bool refused, const char *what,
			 struct hys_error *error)
{
	if (!refused)
		return HYS_OK;
	return hys_fail(error, HYS_UNSUPPORTED, 0, "%s: %s in a ring, expected gathered keys",
			ring->op->name, what);
}

static const struct hys_problem *problem_of(const struct hys_cp_ring *ring)
{
	return hys_plan_problem(ring->batch->plan);
}

/* Row tensors that the host reads must be as they are said to be. */
static hys_status check_lists(const struct hys_cp_ring *ring, const struct hys_tensor *indices,
			      struct hys_error *error)
{
	if (indices->rank == 3 && indices->dtype == HYS_I32 && indices->shape[0] == ring->rows &&
	    indices->shape[1] == problem_of(ring)->scoring.groups && indices->shape[2] > 0 &&
	    (indices->host || indices->buffer || ring->rows == 0))
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
			"%s: indices has rank %d and %lld rows, expected i32 [%lld, %d, K]",
			ring->op->name, indices->rank, (long long)indices->shape[0],
			(long long)ring->rows, problem_of(ring)->scoring.groups);
}

/* ---- select: picks are merged ---- */

static hys_status begin_select(struct hys_cp_ring *ring, struct hys_error *error)
{
	const struct hys_select_args *args = &ring->args.select;
	const struct hys_choosing *choosing = &problem_of(ring)->choosing;
	const hys_method method =
		args->method != HYS_METHOD_DEFAULT ? args->method : choosing->method;
	int64_t slots;
	hys_status status;

	HYS_TRY(check_lists(ring, &args->indices, error));
	HYS_TRY(refuse(ring, method != HYS_METHOD_EXACT, "a coarse method", error));
	HYS_TRY(refuse(ring, choosing->first_blocks > 0 || choosing->local_blocks > 0,
		       "first or local blocks", error));
	HYS_TRY(refuse(ring, hys_cp_is_present(&args->nan_rows), "nan_rows", error));
	slots = ring->rows * args->indices.shape[1] * args->indices.shape[2];
	for (int32_t i = 0; i < 2; i++) {
		HYS_TRY(take_rows(ring, i, slots * 4, error));
		HYS_TRY(take_sum(ring, i, slots * 4, error));
	}
	HYS_TRY(take_sum(ring, 2, args->indices.shape[2] * 24, error));
	memset(ring->sum[0]->host, 0xff, (size_t)(slots * 4));
cleanup:
	return status;
}

/* Scores as numbers of the same order: NaN lowest, zeros alike. */
static uint32_t rank_of(float score)
{
	uint32_t bits;

	if (isnan(score))
		return 0;
	if (!(score < 0) && !(score > 0))
		return UINT32_C(0x80000000);
	memcpy(&bits, &score, sizeof(bits));
	return bits & UINT32_C(0x80000000) ? ~bits : bits | UINT32_C(0x80000000);
}

/* The kept-th largest of n ranks, digit by digit. */
static uint32_t find_threshold(const uint32_t *ranks, int64_t n, int64_t kept)
{
	uint32_t prefix = 0, mask = 0;

	for (int32_t shift = 24; shift >= 0; shift -= 8) {
		int64_t counts[256] = {0};
		int32_t digit = 255;

		for (int64_t i = 0; i < n; i++)
			counts[(ranks[i] >> shift) & 255] += (ranks[i] & mask) == prefix;
		for (; digit > 0 && kept > counts[digit]; digit--)
			kept -= counts[digit];
		prefix |= (uint32_t)digit << shift;
		mask |= UINT32_C(255) << shift;
	}
	return prefix;
}

/* Two ascending lists, left packed. */
struct picks {
	int32_t *indices;
	float *scores;
};

static int64_t length_of(const int32_t *indices, int64_t slots)
{
	int64_t n = 0;

	while (n < slots && indices[n] >= 0)
		n++;
	return n;
}

/* The best `topk` of both into `to`; equal scores: the smaller index. */
static void merge(struct picks to, struct picks with, int64_t slots, int64_t topk, struct picks all,
		  uint32_t *ranks)
{
	const int64_t a = length_of(to.indices, slots), b = length_of(with.indices, slots);
	const int64_t n = a + b, kept = hys_min64(n, topk);
	int64_t i = 0, j = 0, above = 0, k = 0;
	uint32_t threshold = 0;

	for (int64_t at = 0; at < n; at++) {
		const bool first = j == b || (i < a && to.indices[i] < with.indices[j]);

		all.indices[at] = first ? to.indices[i] : with.indices[j];
		all.scores[at] = first ? to.scores[i++] : with.scores[j++];
		ranks[at] = rank_of(all.scores[at]);
	}
	if (n > kept)
		threshold = find_threshold(ranks, n, kept);
	for (int64_t at = 0; at < n; at++)
		above += ranks[at] > threshold;
	if (n == kept)
		above = 0;
	for (int64_t at = 0, equal = kept - above; at < n && k < kept; at++) {
		if (n > kept && ranks[at] < threshold)
			continue;
		if (n > kept && ranks[at] == threshold && equal-- <= 0)
			continue;
		to.indices[k] = all.indices[at];
		to.scores[k++] = all.scores[at];
	}
	for (; k < slots; k++) {
		to.indices[k] = -1;
		to.scores[k] = 0;
	}
}

/* Numbers among all entries instead of the shard's. */
static void number_globally(const struct hys_cp_ring *ring, int32_t *indices, int64_t count)
{
	const struct hys_span *runs;
	const int32_t run_count =
		hys_cut_owned(ring->batch->cut, HYS_CUT_ENTRIES, ring->shard, &runs);
	int64_t before = 0;
	int32_t run = 0;

	for (int64_t i = 0; i < count && indices[i] >= 0; i++) {
		while (run < run_count && indices[i] - before >= runs[run].count)
			before += runs[run++].count;
		if (run < run_count)
			indices[i] = (int32_t)(runs[run].first + indices[i] - before);
	}
}

static int64_t topk_of(const struct hys_cp_ring *ring, int64_t group)
{
	const int32_t *topk = ring->given->select.topk;

	return topk ? topk[group] : problem_of(ring)->choosing.topk_max;
}

static hys_status turn_select(struct hys_cp_ring *ring, struct hys_batch *shard,
			      struct hys_error *error)
{
	struct hys_select_args *args = &ring->args.select;
	const struct hys_tensor *like = &ring->given->select.indices;
	const int64_t slots = like->shape[2], lists = ring->rows * like->shape[1];
	int32_t *indices = (int32_t *)(void *)host_of(ring, 0);
	float *scores = (float *)(void *)host_of(ring, 1);
	int32_t *spare = (int32_t *)(void *)ring->sum[2]->host;
	hys_status status;

	args->indices = hys_cp_tensor(ring->turn[0], like, HYS_I32, ring->rows);
	args->scores = hys_cp_tensor(ring->turn[1], like, HYS_F32, ring->rows);
	args->counts = args->kth = (struct hys_tensor){0};
	HYS_TRY(hys_select(ring->exec, shard, args, error));
	HYS_TRY(hys_exec_finish(ring->exec, error));
	HYS_TRY(fetch_rows(ring, 0, &args->indices, error));
	HYS_TRY(fetch_rows(ring, 1, &args->scores, error));
	for (int64_t list = 0; list < lists; list++) {
		const struct picks to = {(int32_t *)(void *)ring->sum[0]->host + list * slots,
					 (float *)(void *)ring->sum[1]->host + list * slots};
		const struct picks with = {indices + list * slots, scores + list * slots};
		const struct picks all = {spare, (float *)(void *)(spare + 2 * slots)};

		number_globally(ring, with.indices, slots);
		merge(to, with, slots, topk_of(ring, list % like->shape[1]), all,
		      (uint32_t *)(void *)(spare + 4 * slots));
	}
cleanup:
	return status;
}

/* Counts, and the lowest score of full lists, in place of turns' outputs. */
static void count_picks(struct hys_cp_ring *ring, int32_t *counts, float *kth)
{
	const struct hys_tensor *like = &ring->given->select.indices;
	const int64_t slots = like->shape[2], groups = like->shape[1];

	for (int64_t list = 0; list < ring->rows * groups; list++) {
		const int32_t *indices = (const int32_t *)(void *)ring->sum[0]->host + list * slots;
		const float *scores = (const float *)(void *)ring->sum[1]->host + list * slots;
		const int64_t n = length_of(indices, slots);
		int64_t lowest = 0;

		for (int64_t i = 1; i < n; i++)
			if (rank_of(scores[i]) < rank_of(scores[lowest]))
				lowest = i;
		counts[list] = (int32_t)n;
		kth[list] = n < topk_of(ring, list % groups) ? -INFINITY : scores[lowest];
	}
}

static hys_status end_select(struct hys_cp_ring *ring, struct hys_error *error)
{
	const struct hys_select_args *args = &ring->given->select;
	char *counts = host_of(ring, 0), *kth = host_of(ring, 1);
	hys_status status;

	count_picks(ring, (int32_t *)(void *)counts, (float *)(void *)kth);
	HYS_TRY(hys_cp_store(ring->exec, &args->indices, ring->sum[0]->host, error));
	if (hys_cp_is_present(&args->scores))
		HYS_TRY(hys_cp_store(ring->exec, &args->scores, ring->sum[1]->host, error));
	if (hys_cp_is_present(&args->counts))
		HYS_TRY(hys_cp_store(ring->exec, &args->counts, counts, error));
	if (hys_cp_is_present(&args->kth))
		HYS_TRY(hys_cp_store(ring->exec, &args->kth, kth, error));
cleanup:
	return status;
}

/* ---- attention: which indices are of this turn's keys ---- */

static hys_status begin_lists(struct hys_cp_ring *ring, const struct hys_tensor *indices,
			      struct hys_error *error)
{
	const struct hys_attending *attending = &problem_of(ring)->attending;
	const bool dense = attending->flags & HYS_ATTENDING_DENSE;
	int64_t bytes;
	hys_status status;

	HYS_TRY(refuse(ring, attending->window > 0 || attending->first > 0,
		       "a window or first rows", error));
	HYS_TRY(refuse(ring, !dense && attending->granularity > 1, "granularity above 1", error));
	if (dense || !hys_cp_is_present(indices))
		return HYS_OK;
	HYS_TRY(check_lists(ring, indices, error));
	bytes = ring->rows * hys_cp_row_bytes(indices);
	HYS_TRY(take_rows(ring, 2, bytes, error));
	ring->lists = hys_cp_take(ring->batch->cp, ring->batch->plan, false, bytes, error);
	if (!ring->lists)
		HYS_TRY(error->status);
	/* None: a status. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	HYS_TRY(hys_cp_fetch(ring->exec, indices, ring->lists->host, error));
cleanup:
	return status;
}

/* The shard's number of an entry, or -1. */
static int32_t number_locally(const struct hys_span *runs, int32_t run_count, const int64_t *before,
			      int32_t index)
{
	int32_t low = 0, high = run_count;

	while (low < high) {
		const int32_t middle = low + (high - low) / 2;

		if (runs[middle].first <= index)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || index >= runs[low - 1].first + runs[low - 1].count)
		return -1;
	return (int32_t)(before[low - 1] + index - runs[low - 1].first);
}

static void sort_out(const struct hys_span *runs, int32_t run_count, const int64_t *before,
		     const int32_t *from, int32_t *to, int64_t slots)
{
	int64_t kept = 0, least = 0;

	for (int64_t i = 0; i < slots; i++) {
		const int32_t local =
			from[i] < least ? -1 : number_locally(runs, run_count, before, from[i]);

		if (from[i] >= least)
			least = (int64_t)from[i] + 1;
		if (local >= 0)
			to[kept++] = local;
	}
	while (kept < slots)
		to[kept++] = -1;
}

/* Fills *indices with the lists of this turn's keys. */
static hys_status turn_lists(struct hys_cp_ring *ring, const struct hys_tensor *given,
			     struct hys_tensor *indices, struct hys_error *error)
{
	const struct hys_span *runs;
	const int32_t run_count =
		hys_cut_owned(ring->batch->cut, HYS_CUT_ENTRIES, ring->shard, &runs);
	const int64_t slots = given->shape[2];
	int64_t *before;

	if (!ring->lists)
		return HYS_OK;
	before = hys_alloc_array(&hys_allocator_default, (int64_t)run_count + 1, sizeof(*before));
	if (!before)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %d runs", run_count);
	for (int32_t i = 0; i < run_count; i++)
		before[i + 1] = before[i] + runs[i].count;
	for (int64_t list = 0; list < ring->rows * given->shape[1]; list++)
		sort_out(runs, run_count, before,
			 (const int32_t *)(void *)ring->lists->host + list * slots,
			 (int32_t *)(void *)host_of(ring, 2) + list * slots, slots);
	hys_free(&hys_allocator_default, before);
	*indices = hys_cp_tensor(ring->turn[2], given, HYS_I32, ring->rows);
	if (!ring->turn_host[2])
		return HYS_OK;
	return hys_cp_store(ring->exec, indices, host_of(ring, 2), error);
}

/* ---- attention forward: partials are merged ---- */

static hys_status check_o(const struct hys_cp_ring *ring, const struct hys_tensor *o,
			  struct hys_error *error)
{
	const struct hys_attending *attending = &problem_of(ring)->attending;

	if (o->rank == 3 && o->shape[0] == ring->rows && o->shape[1] == attending->heads &&
	    o->shape[2] == attending->value_dim && o->dtype == attending->dtype)
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
			"%s: o has rank %d and %lld rows, expected %s [%lld, %d, %d]",
			ring->op->name, o->rank, (long long)o->shape[0],
			hys_dtype_name(attending->dtype), (long long)ring->rows, attending->heads,
			attending->value_dim);
}

static hys_status begin_forward(struct hys_cp_ring *ring, struct hys_error *error)
{
	const struct hys_attention_args *args = &ring->args.forward;
	const int64_t heads = problem_of(ring)->attending.heads;
	const int64_t width = problem_of(ring)->attending.value_dim;
	float *lse;
	hys_status status;

	HYS_TRY(check_o(ring, &args->o, error));
	HYS_TRY(begin_lists(ring, &args->indices, error));
	HYS_TRY(take_rows(ring, 0, ring->rows * hys_cp_row_bytes(&args->o), error));
	HYS_TRY(take_rows(ring, 1, ring->rows * heads * 4, error));
	HYS_TRY(take_sum(ring, 0, ring->rows * heads * width * 4, error));
	HYS_TRY(take_sum(ring, 1, ring->rows * heads * 4, error));
	HYS_TRY(take_sum(ring, 2, heads * 4, error));
	memset(ring->sum[0]->host, 0, (size_t)(ring->rows * heads * width * 4));
	lse = (float *)(void *)ring->sum[1]->host;
	for (int64_t i = 0; i < ring->rows * heads; i++)
		lse[i] = -INFINITY;
	if (hys_cp_is_present(&args->sink)) {
		if (args->sink.rank != 1 || args->sink.shape[0] != heads ||
		    args->sink.dtype != HYS_F32)
			HYS_TRY(hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					 "%s: sink has %lld elements, expected f32 [%lld]",
					 ring->op->name, (long long)args->sink.shape[0],
					 (long long)heads));
		HYS_TRY(hys_cp_fetch(ring->exec, &args->sink, ring->sum[2]->host, error));
	}
cleanup:
	return status;
}

/* o = exp(lse_a - lse) o_a + exp(lse_b - lse) o_b, as hys_merge does. */
static void merge_row(float *o, float *lse, const char *part, hys_dtype dtype, int64_t at,
		      float part_lse, int64_t width)
{
	const double most = fmax((double)*lse, (double)part_lse);
	const double a = exp((double)*lse - most), b = exp((double)part_lse - most);

	if (isinf(part_lse) && part_lse < 0)
		return;
	for (int64_t i = 0; i < width; i++)
		o[i] = (float)((a * (double)o[i] + b * hys_number_load(part, dtype, at + i)) /
			       (a + b));
	*lse = (float)(most + log(a + b));
}

static hys_status turn_forward(struct hys_cp_ring *ring, struct hys_batch *shard,
			       struct hys_error *error)
{
	struct hys_attention_args *args = &ring->args.forward;
	const struct hys_attention_args *given = &ring->given->forward;
	const int64_t heads = given->o.shape[1], width = given->o.shape[2];
	float *o = (float *)(void *)ring->sum[0]->host, *lse = (float *)(void *)ring->sum[1]->host;
	const float *part_lse = (const float *)(void *)host_of(ring, 1);
	struct hys_tensor lse_like = {.rank = 2, .shape = {ring->rows, heads}};
	hys_status status;

	HYS_TRY(turn_lists(ring, &given->indices, &args->indices, error));
	args->o = hys_cp_tensor(ring->turn[0], &given->o, given->o.dtype, ring->rows);
	args->lse = hys_cp_tensor(ring->turn[1], &lse_like, HYS_F32, ring->rows);
	args->sink = (struct hys_tensor){0};
	HYS_TRY(hys_attention_forward(ring->exec, shard, args, error));
	HYS_TRY(hys_exec_finish(ring->exec, error));
	HYS_TRY(fetch_rows(ring, 0, &args->o, error));
	HYS_TRY(fetch_rows(ring, 1, &args->lse, error));
	for (int64_t i = 0; i < ring->rows * heads; i++)
		merge_row(o + i * width, &lse[i], host_of(ring, 0), given->o.dtype, i * width,
			  part_lse[i], width);
cleanup:
	return status;
}

/* The sink takes its share of every row. */
static void apply_sink(struct hys_cp_ring *ring, int64_t heads, int64_t width)
{
	const float *sink = (const float *)(void *)ring->sum[2]->host;
	const float *lse = (const float *)(void *)ring->sum[1]->host;
	float *o = (float *)(void *)ring->sum[0]->host;

	for (int64_t i = 0; i < ring->rows * heads; i++) {
		const double share = 1 / (1 + exp((double)sink[i % heads] - (double)lse[i]));

		for (int64_t c = 0; c < width && !isinf(lse[i]); c++)
			o[i * width + c] = (float)(share * (double)o[i * width + c]);
	}
}

static hys_status end_forward(struct hys_cp_ring *ring, struct hys_error *error)
{
	const struct hys_attention_args *given = &ring->given->forward;
	hys_status status;

	if (hys_cp_is_present(&given->sink))
		apply_sink(ring, given->o.shape[1], given->o.shape[2]);
	HYS_TRY(hys_cp_finish_sum(ring->batch->cp, ring->batch->plan, ring->exec, &given->o,
				  ring->sum[0]->host, false, error));
	if (hys_cp_is_present(&given->lse))
		HYS_TRY(hys_cp_store(ring->exec, &given->lse, ring->sum[1]->host, error));
cleanup:
	return status;
}

/* ---- attention backward: gradients of rows are added ---- */

static hys_status begin_backward(struct hys_cp_ring *ring, struct hys_error *error)
{
	struct hys_attention_grad_args *args = &ring->args.backward;
	const struct hys_attending *attending = &problem_of(ring)->attending;
	hys_status status;

	HYS_TRY(begin_lists(ring, &args->indices, error));
	args->flags |= HYS_GRAD_ACCUMULATE;
	if (!hys_cp_is_present(&args->dq))
		return HYS_OK;
	if (args->dq.rank != 3 || args->dq.shape[0] != ring->rows ||
	    args->dq.shape[1] != attending->heads || args->dq.shape[2] != attending->head_dim)
		HYS_TRY(hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				 "%s: dq has rank %d and %lld rows, expected [%lld, %d, %d]",
				 ring->op->name, args->dq.rank, (long long)args->dq.shape[0],
				 (long long)ring->rows, attending->heads, attending->head_dim));
	HYS_TRY(take_rows(ring, 0, ring->rows * attending->heads * attending->head_dim * 4, error));
	args->dq = hys_cp_tensor(ring->turn[0], &args->dq, HYS_F32, ring->rows);
	HYS_TRY(hys_cp_zero(ring->exec, &args->dq, error));
cleanup:
	return status;
}

static hys_status turn_backward(struct hys_cp_ring *ring, struct hys_batch *shard,
				struct hys_error *error)
{
	struct hys_attention_grad_args *args = &ring->args.backward;
	hys_status status;

	HYS_TRY(turn_lists(ring, &ring->given->backward.indices, &args->indices, error));
	HYS_TRY(hys_attention_backward(ring->exec, shard, args, error));
	HYS_TRY(hys_exec_finish(ring->exec, error));
	/* The sink's is the same whatever the keys. */
	args->dsink = (struct hys_tensor){0};
cleanup:
	return status;
}

static hys_status end_backward(struct hys_cp_ring *ring, struct hys_error *error)
{
	const struct hys_attention_grad_args *given = &ring->given->backward;
	hys_status status = HYS_OK;

	if (!hys_cp_is_present(&given->dq))
		return HYS_OK;
	HYS_TRY(fetch_rows(ring, 0, &ring->args.backward.dq, error));
	HYS_TRY(hys_cp_finish_sum(ring->batch->cp, ring->batch->plan, ring->exec, &given->dq,
				  host_of(ring, 0), ring->accumulate, error));
cleanup:
	return status;
}

const struct hys_cp_turns *hys_cp_turns_of(hys_op op)
{
	static const struct hys_cp_turns select = {begin_select, turn_select, end_select},
					 forward = {begin_forward, turn_forward, end_forward},
					 backward = {begin_backward, turn_backward, end_backward};

	return op == HYS_OP_SELECT		 ? &select
	       : op == HYS_OP_ATTENTION_FORWARD	 ? &forward
	       : op == HYS_OP_ATTENTION_BACKWARD ? &backward
						 : NULL;
}
