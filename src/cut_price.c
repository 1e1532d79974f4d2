/* What a step costs each rank: its work, its messages, its memory, and how long
 * it waits for the others. */
#include <math.h>

#include "cut.h"

static const struct hys_allocator *const allocator = &hys_allocator_default;

#define HOST_BYTES_PER_S 5e9

/* One cut and network while it is priced. */
struct price {
	const struct hys_cut *cut;
	const struct hys_plan *plan;
	struct hys_network network;
	struct hys_flow *keys, *entries; /* [ranks] */
	int64_t *received;		 /* what the flows' slices are of */
	struct hys_work *slices;	 /* [slices] of one rank's rows */
	hys_op select;
	int64_t key_bytes, entry_bytes; /* of one row that travels */
	int64_t key_gradient, entry_gradient;
	struct hys_rank_cost *costs;
};

/* ---- bytes ---- */

static int64_t size_of(hys_dtype dtype)
{
	return (int64_t)hys_dtype_size(dtype);
}

/* One narrower value head is how a shared latent looks. */
static bool has_values(const struct hys_attending *attending)
{
	return attending->kv_heads > 1 || attending->value_dim >= attending->head_dim;
}

static bool planned(const struct price *price, hys_op op)
{
	return price->plan->operations & HYS_OP_BIT(op);
}

static void find_rows(struct price *price)
{
	const struct hys_problem *problem = &price->plan->problem;
	const struct hys_attending *attending = &problem->attending;
	const struct hys_scoring *scoring = &problem->scoring;
	const int64_t channels =
		(int64_t)attending->kv_heads *
		(attending->head_dim + (has_values(attending) ? attending->value_dim : 0));

	if (scoring->heads > 0)
		price->entry_bytes = scoring->dim * size_of(scoring->dtype) +
				     (scoring->dtype == HYS_F8E4M3 ? 4 : 0);
	price->key_bytes = channels * size_of(attending->dtype);
	if (planned(price, HYS_OP_ATTENTION_BACKWARD))
		price->key_gradient = 4 * channels;
	if (planned(price, HYS_OP_INDEXER_LOSS))
		price->entry_gradient = (int64_t)4 * scoring->dim;
}

/* Tensors of a row: queries, outputs, picks, and gradients of what is learnt. */
static int64_t row_bytes(const struct price *price)
{
	const struct hys_problem *problem = &price->plan->problem;
	const struct hys_attending *attending = &problem->attending;
	const struct hys_scoring *scoring = &problem->scoring;
	const int64_t index_q = (int64_t)scoring->heads * scoring->dim * size_of(scoring->dtype);
	const int64_t heads = (int64_t)attending->heads * size_of(attending->dtype);
	const bool backward = planned(price, HYS_OP_ATTENTION_BACKWARD);
	const bool loss = planned(price, HYS_OP_INDEXER_LOSS);

	return index_q * (1 + loss) + 4 * (int64_t)scoring->heads * (1 + loss) +
	       4 * (int64_t)scoring->groups * problem->choosing.topk_max +
	       heads * (attending->head_dim + attending->value_dim) * (1 + backward) +
	       4 * (int64_t)attending->heads;
}

static hys_status find_memory(struct price *price, int32_t rank, struct hys_error *error)
{
	const struct hys_cut *cut = price->cut;
	struct hys_rank_cost *cost = &price->costs[rank];
	const int64_t rows = hys_cut_count(cut, HYS_CUT_ROWS, rank);
	const int64_t keys = hys_cut_count(cut, HYS_CUT_KEYS, rank);
	const int64_t entries = hys_cut_count(cut, HYS_CUT_ENTRIES, rank);
	const hys_op ops[] = {price->select, HYS_OP_ATTENTION_FORWARD, HYS_OP_ATTENTION_BACKWARD,
			      HYS_OP_INDEXER_LOSS};
	hys_status status = HYS_OK;

	cost->owned_bytes = rows * row_bytes(price) +
			    keys * (price->key_bytes + price->key_gradient) +
			    entries * (price->entry_bytes + price->entry_gradient);
	/* All keys, all of their gradients, and three times the rank's own while
	 * they are added. */
	cost->gathered_bytes =
		cut->size[HYS_CUT_KEYS] * (price->key_bytes + price->key_gradient) +
		cut->size[HYS_CUT_ENTRIES] * (price->entry_bytes + price->entry_gradient) +
		3 * (keys * price->key_gradient + entries * price->entry_gradient);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]) && rows > 0; i++) {
		int64_t bytes = 0;

		if (!planned(price, ops[i]))
			continue;
		HYS_TRY(hys_plan_workspace(price->plan, ops[i],
					   hys_min64(rows, price->plan->rows_max), 0, &bytes,
					   error));
		cost->workspace_bytes = hys_max64(cost->workspace_bytes, bytes);
	}
cleanup:
	return status;
}

/* ---- time ---- */

static double op_time_s(const struct price *price, hys_op op, const struct hys_work *work)
{
	const double flops = hys_cost_flops(op, &price->plan->problem, work);
	const double rate = price->network.flops_per_s[op];

	if (!planned(price, op) || !(flops > 0))
		return 0;
	if (!(rate > 0))
		return hys_cost_time_s(price->plan, op, flops);
	return flops / rate + price->network.row_s[op] * work->rows;
}

static double transfer_s(const struct price *price, int64_t bytes, int64_t messages)
{
	return (double)bytes / price->network.bytes_per_s +
	       (double)messages * price->network.latency_s;
}

/* The slice that completes what ends at `end`. */
static int32_t slice_of(int64_t end, int64_t size, int32_t slices)
{
	int32_t slice = size > 0 ? (int32_t)((end * slices + size - 1) / size) - 1 : 0;

	while (slice > 0 && size * slice / slices >= end)
		slice--;
	while (slice < slices - 1 && size * (slice + 1) / slices < end)
		slice++;
	return slice < 0 ? 0 : slice;
}

/* The work of a rank's rows by the slice of entries, or of keys, that lets them
 * begin. */
static struct hys_work find_work(struct price *price, int32_t rank, hys_cut_part part)
{
	const struct hys_cut *cut = price->cut;
	const struct hys_batch *batch = &cut->batch;
	const struct hys_limits limits = hys_limits_of(&price->plan->problem);
	const int32_t *ends = part == HYS_CUT_ENTRIES ? batch->host.index_end : batch->host.row_end;
	const struct hys_span *runs;
	const int32_t count = hys_cut_owned(cut, HYS_CUT_ROWS, rank, &runs);
	struct hys_work all = {0};
	int32_t slice = 0;

	for (int32_t s = 0; s < cut->slices; s++)
		price->slices[s] = (struct hys_work){0};
	for (int32_t i = 0; i < count; i++)
		for (int64_t t = runs[i].first; t < runs[i].first + runs[i].count; t++) {
			const int64_t k =
				batch->key_pairs_before[t + 1] - batch->key_pairs_before[t];
			const int64_t e =
				batch->entry_pairs_before[t + 1] - batch->entry_pairs_before[t];

			if ((part == HYS_CUT_ENTRIES ? e : k) > 0)
				slice = (int32_t)hys_max64(
					slice, slice_of(ends[t], cut->size[part], cut->slices));
			hys_work_add_row(&price->slices[slice], &limits, k, e);
			hys_work_add_row(&all, &limits, k, e);
		}
	return all;
}

/* Rows begin as their slices come in, which begin to at `*arrived`. Answers when
 * the last one is done that began at `now` or later. */
static double run_slices(const struct price *price, hys_op op, const struct hys_flow *flow,
			 int64_t row_bytes, double now, double *arrived, double *compute_s)
{
	const int32_t slices = price->cut->slices;
	const double per_slice = price->network.latency_s * (double)flow->messages_in / slices;
	const double begun = *arrived;

	for (int32_t s = 0; s < slices; s++) {
		const double took = op_time_s(price, op, &price->slices[s]);

		*arrived += (double)(flow->received[s] * row_bytes) / price->network.bytes_per_s +
			    (flow->received[s] > 0 ? per_slice : 0);
		if (flow->received[s] > 0)
			now = fmax(now, *arrived);
		now += took;
		*compute_s += took;
	}
	*arrived = fmax(*arrived,
			begun + transfer_s(price, flow->sent * row_bytes, flow->messages_out));
	return now;
}

/* Gradients go the other way: a rank receives what it sent, and adds it up. */
static double reduce_time_s(const struct price *price, const struct hys_flow *flow,
			    int64_t gradient)
{
	int64_t in = 0;

	if (gradient == 0)
		return 0;
	for (int32_t s = 0; s < price->cut->slices; s++)
		in += flow->received[s];
	return fmax(transfer_s(price, in * gradient, 0),
		    transfer_s(price, flow->sent * gradient, 0)) +
	       (double)(hys_min64(flow->messages_in, price->cut->ranks - 1)) *
		       price->network.latency_s +
	       (double)(flow->sent * gradient) * 3 / price->network.host_bytes_per_s;
}

/* Backward has its last rows first, in parts: what other rows do not see
 * travels while they are computed, and only the last part is waited for. */
static double left_to_reduce_s(hys_op op, double reduce_s, double compute_s)
{
	if (op != HYS_OP_ATTENTION_BACKWARD)
		return reduce_s;
	return fmax(reduce_s / HYS_CUT_PARTS,
		    reduce_s - compute_s * (HYS_CUT_PARTS - 1) / HYS_CUT_PARTS);
}

/* Index keys come first, for select; keys behind them, while it runs and while
 * attention does. */
static void price_rows(struct price *price, int32_t rank)
{
	struct hys_rank_cost *cost = &price->costs[rank];
	const struct hys_work work = find_work(price, rank, HYS_CUT_ENTRIES);
	double arrived = 0, compute_s = 0, selected, attended;

	selected = run_slices(price, price->select, &price->entries[rank], price->entry_bytes, 0,
			      &arrived, &compute_s);
	cost->op_s[price->select] = selected;
	cost->flops = hys_cost_flops(price->select, &price->plan->problem, &work);
	if (planned(price, HYS_OP_ATTENTION_FORWARD)) {
		find_work(price, rank, HYS_CUT_KEYS);
		attended = run_slices(price, HYS_OP_ATTENTION_FORWARD, &price->keys[rank],
				      price->key_bytes, selected, &arrived, &compute_s);
		cost->op_s[HYS_OP_ATTENTION_FORWARD] = attended - selected;
		cost->flops +=
			hys_cost_flops(HYS_OP_ATTENTION_FORWARD, &price->plan->problem, &work);
		selected = attended;
	}
	cost->compute_s = compute_s;
	cost->wait_s = selected - compute_s;
}

static void price_rank(struct price *price, int32_t rank)
{
	struct hys_rank_cost *cost = &price->costs[rank];
	const struct hys_work work = find_work(price, rank, HYS_CUT_ENTRIES);
	const hys_op rest[] = {HYS_OP_ATTENTION_BACKWARD, HYS_OP_INDEXER_LOSS};
	const double reduce[] = {
		reduce_time_s(price, &price->keys[rank], price->key_gradient),
		reduce_time_s(price, &price->entries[rank], price->entry_gradient)};

	price_rows(price, rank);
	for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++) {
		const double took = op_time_s(price, rest[i], &work);
		const double left = left_to_reduce_s(rest[i], reduce[i], took);

		if (!planned(price, rest[i]))
			continue;
		cost->op_s[rest[i]] = took + left;
		cost->compute_s += took;
		cost->reduce_s += left;
		cost->flops += hys_cost_flops(rest[i], &price->plan->problem, &work);
	}
}

static void add_bytes(struct price *price, int32_t rank)
{
	struct hys_rank_cost *cost = &price->costs[rank];
	const struct hys_flow *keys = &price->keys[rank], *entries = &price->entries[rank];
	int64_t keys_in = 0, entries_in = 0;

	for (int32_t s = 0; s < price->cut->slices; s++) {
		keys_in += keys->received[s];
		entries_in += entries->received[s];
	}
	cost->received_bytes = keys_in * price->key_bytes + keys->sent * price->key_gradient +
			       entries_in * price->entry_bytes +
			       entries->sent * price->entry_gradient;
	cost->sent_bytes = keys->sent * price->key_bytes + keys_in * price->key_gradient +
			   entries->sent * price->entry_bytes + entries_in * price->entry_gradient;
}

/* Operations end together: the slowest rank's time is everybody's. Two
 * agreements each, there and back in a tree. */
static void wait_for_slowest(struct price *price)
{
	const int32_t ranks = price->cut->ranks;
	const double agree = ranks > 1 ? 4 * ceil(log2(ranks)) * price->network.latency_s : 0;
	double step_s = 0;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		double slowest = 0;

		for (int32_t rank = 0; rank < ranks; rank++)
			slowest = fmax(slowest, price->costs[rank].op_s[op]);
		if (slowest <= 0)
			continue;
		for (int32_t rank = 0; rank < ranks; rank++) {
			price->costs[rank].idle_s += slowest - price->costs[rank].op_s[op];
			price->costs[rank].agree_s += agree;
		}
		step_s += slowest + agree;
	}
	for (int32_t rank = 0; rank < ranks; rank++)
		price->costs[rank].step_s = step_s;
}

/* ---- all ---- */

static hys_status check(const struct hys_cut *cut, const struct hys_plan *plan,
			const struct hys_network *network, const struct hys_rank_cost *costs,
			struct hys_error *error)
{
	hys_status status;

	if (!cut || !plan || !costs)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				!cut	? "cut"
				: !plan ? "plan"
					: "costs");
	HYS_TRY(hys_context_check(plan->context, error));
	HYS_TRY(hys_check_struct(network, sizeof(*network), "network", error));
	if (!(network->bytes_per_s > 0) || !(network->latency_s >= 0))
		HYS_TRY(hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				 "network.bytes_per_s and latency_s: expected more than 0, and 0 "
				 "or more"));
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		if (!(network->row_s[op] >= 0))
			HYS_TRY(hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					 "network.row_s[%d] is %g, expected 0 or more", op,
					 network->row_s[op]));
cleanup:
	return status;
}

static hys_status allocate(struct price *price, struct hys_error *error)
{
	const int64_t ranks = price->cut->ranks, slices = price->cut->slices;

	price->keys = hys_alloc_array(allocator, ranks, sizeof(*price->keys));
	price->entries = hys_alloc_array(allocator, ranks, sizeof(*price->entries));
	price->received = hys_alloc_array(allocator, 2 * ranks * slices, sizeof(int64_t));
	price->slices = hys_alloc_array(allocator, slices, sizeof(*price->slices));
	if (!price->keys || !price->entries || !price->received || !price->slices)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory to price %lld ranks",
				(long long)ranks);
	for (int64_t rank = 0; rank < ranks; rank++) {
		price->keys[rank].received = price->received + 2 * rank * slices;
		price->entries[rank].received = price->received + (2 * rank + 1) * slices;
	}
	return HYS_OK;
}

static hys_op select_of(const struct hys_plan *plan)
{
	const hys_op wanted = plan->problem.choosing.method == HYS_METHOD_COARSE
				      ? HYS_OP_SELECT_COARSE
			      : plan->problem.choosing.method == HYS_METHOD_COARSE_TO_FINE
				      ? HYS_OP_SELECT_COARSE_TO_FINE
				      : HYS_OP_SELECT;

	return wanted;
}

hys_status hys_cut_price(const struct hys_cut *cut, const struct hys_plan *plan,
			 const struct hys_network *network, struct hys_rank_cost *costs,
			 struct hys_error *error)
{
	struct price price = {.cut = cut, .plan = plan, .costs = costs};
	hys_status status;

	HYS_TRY(check(cut, plan, network, costs, error));
	price.network = *network;
	if (!(price.network.host_bytes_per_s > 0))
		price.network.host_bytes_per_s = HOST_BYTES_PER_S;
	price.select = select_of(plan);
	find_rows(&price);
	HYS_TRY(allocate(&price, error));
	HYS_TRY(hys_cut_flows(cut, HYS_CUT_KEYS, price.keys, error));
	HYS_TRY(hys_cut_flows(cut, HYS_CUT_ENTRIES, price.entries, error));
	for (int32_t rank = 0; rank < cut->ranks; rank++) {
		costs[rank] = (struct hys_rank_cost){0};
		price_rank(&price, rank);
		add_bytes(&price, rank);
		HYS_TRY(find_memory(&price, rank, error));
	}
	wait_for_slowest(&price);
cleanup:
	hys_free(allocator, price.keys);
	hys_free(allocator, price.entries);
	hys_free(allocator, price.received);
	hys_free(allocator, price.slices);
	return status;
}
