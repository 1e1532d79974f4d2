/* plan_ranks.c - what each of many ranks computes, moves, holds and waits for. */
#include "plan_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool plan_ranks_rate(struct plan_ranks *wanted, const char *text)
{
	const char *equals = strchr(text, '=');
	char *end;
	for (int op = 0; equals && op < HYS_OP_COUNT; op++) {
		const char *name = hys_op_name((hys_op)op);
		if (strlen(name) != (size_t)(equals - text) ||
		    strncmp(name, text, strlen(name)) != 0)
			continue;
		const char *rest = equals + 1;
		wanted->rates[op] = strtod(rest, &end);
		if (end == rest || !(wanted->rates[op] > 0) || !isfinite(wanted->rates[op]))
			return false;
		if (*end == ',') {
			rest = end + 1;
			wanted->row_s[op] = strtod(rest, &end) * 1e-9;
		}
		return end != rest && *end == '\0' && wanted->row_s[op] >= 0 &&
		       isfinite(wanted->row_s[op]);
	}
	return false;
}

static bool read_network(const char *text, struct hys_network *network)
{
	char *end;
	double gigabits = strtod(text, &end);
	if (end == text || *end != ',' || !(gigabits > 0) || !isfinite(gigabits))
		return false;
	const char *rest = end + 1;
	double microseconds = strtod(rest, &end);
	if (end == rest || *end != '\0' || !(microseconds >= 0) || !isfinite(microseconds))
		return false;
	network->bytes_per_s = gigabits * 1e9 / 8;
	network->latency_s = microseconds * 1e-6;
	return true;
}

/* Documents' first rows, lengths falling as 1 / (i + 1), the longest first. */
static int32_t *zipf(int64_t tokens, int64_t documents)
{
	int32_t *cu = calloc((size_t)documents + 1, sizeof *cu);
	double sum = 0, at = 0;
	for (int64_t i = 0; i < documents; i++)
		sum += 1 / (double)(i + 1);
	for (int64_t i = 0; cu && i < documents; i++) {
		at += 1 / (double)(i + 1);
		cu[i + 1] = (int32_t)(at / sum * (double)tokens);
	}
	if (cu)
		cu[documents] = (int32_t)tokens;
	return cu;
}

/* ---- the table ---- */

struct column {
	const char *name;
	double least, mean, most;
	enum { NUMBER, SECONDS, BYTES, FLOPS } kind;
};

static void add(struct column *column, double value, int64_t ranks, bool first)
{
	column->least = first ? value : fmin(column->least, value);
	column->most = first ? value : fmax(column->most, value);
	column->mean = (first ? 0 : column->mean) + value / (double)ranks;
}

static const char *shown(const struct column *column, double value)
{
	static char numbers[3][32];
	static int next;
	switch (column->kind) {
	case SECONDS:
		return tool_time(value);
	case BYTES:
		return tool_bytes(value);
	case FLOPS:
		return tool_rate(value, "FLOP");
	default:
		next = (next + 1) % 3;
		snprintf(numbers[next], sizeof numbers[0], "%.0f", value);
		return numbers[next];
	}
}

enum {
	ROWS,
	PAIRS,
	WORK,
	COMPUTE,
	WAIT,
	REDUCE,
	AGREE,
	IDLE,
	SENT,
	RECEIVED,
	OWNED,
	GATHERED,
	WORKSPACE,
	COLUMNS
};

static void fill(struct column columns[COLUMNS], const struct hys_cut *cut,
		 const struct hys_rank_cost *costs)
{
	static const struct column empty[COLUMNS] = {
		{"rows", 0, 0, 0, NUMBER},
		{"visible pairs", 0, 0, 0, NUMBER},
		{"useful work", 0, 0, 0, FLOPS},
		{"compute", 0, 0, 0, SECONDS},
		{"wait for keys", 0, 0, 0, SECONDS},
		{"move gradients", 0, 0, 0, SECONDS},
		{"agree", 0, 0, 0, SECONDS},
		{"idle", 0, 0, 0, SECONDS},
		{"sent", 0, 0, 0, BYTES},
		{"received", 0, 0, 0, BYTES},
		{"own tensors", 0, 0, 0, BYTES},
		{"gathered", 0, 0, 0, BYTES},
		{"workspace", 0, 0, 0, BYTES},
	};
	const int32_t ranks = hys_cut_ranks(cut);
	memcpy(columns, empty, sizeof empty);
	for (int32_t rank = 0; rank < ranks; rank++) {
		const struct hys_rank_cost *c = &costs[rank];
		const double values[COLUMNS] = {(double)hys_cut_count(cut, HYS_CUT_ROWS, rank),
						(double)hys_cut_key_pairs(cut, rank),
						c->flops,
						c->compute_s,
						c->wait_s,
						c->reduce_s,
						c->agree_s,
						c->idle_s,
						(double)c->sent_bytes,
						(double)c->received_bytes,
						(double)c->owned_bytes,
						(double)c->gathered_bytes,
						(double)c->workspace_bytes};
		for (int i = 0; i < COLUMNS; i++)
			add(&columns[i], values[i], ranks, rank == 0);
	}
}

static void print_json(const struct hys_cut *cut, const struct hys_rank_cost *costs)
{
	for (int32_t rank = 0; rank < hys_cut_ranks(cut); rank++) {
		const struct hys_rank_cost *c = &costs[rank];
		cJSON *line = cJSON_CreateObject();
		cJSON_AddNumberToObject(line, "rank", rank);
		cJSON_AddNumberToObject(line, "rows",
					(double)hys_cut_count(cut, HYS_CUT_ROWS, rank));
		cJSON_AddNumberToObject(line, "key_pairs", (double)hys_cut_key_pairs(cut, rank));
		cJSON_AddNumberToObject(line, "useful_flops", c->flops);
		cJSON_AddNumberToObject(line, "compute_s", c->compute_s);
		cJSON_AddNumberToObject(line, "wait_s", c->wait_s);
		cJSON_AddNumberToObject(line, "reduce_s", c->reduce_s);
		cJSON_AddNumberToObject(line, "agree_s", c->agree_s);
		cJSON_AddNumberToObject(line, "idle_s", c->idle_s);
		cJSON_AddNumberToObject(line, "step_s", c->step_s);
		cJSON_AddNumberToObject(line, "sent_bytes", (double)c->sent_bytes);
		cJSON_AddNumberToObject(line, "received_bytes", (double)c->received_bytes);
		cJSON_AddNumberToObject(line, "owned_bytes", (double)c->owned_bytes);
		cJSON_AddNumberToObject(line, "gathered_bytes", (double)c->gathered_bytes);
		cJSON_AddNumberToObject(line, "workspace_bytes", (double)c->workspace_bytes);
		tool_json_line(line);
	}
}

static void print_table(const struct plan_ranks *wanted, const struct hys_cut *cut,
			const struct hys_plan *plan, const struct hys_network *network,
			const struct hys_rank_cost *costs)
{
	struct column columns[COLUMNS];
	fill(columns, cut, costs);
	printf("One step of one layer (select, attention forward and backward, loss as planned), "
	       "%lld tokens in %lld document%s over %d ranks, %s cut,\n"
	       "each rank as one device of this machine, %.4g Gbit/s and %.4g us a message, keys "
	       "in %d slices\n\n",
	       (long long)hys_cut_size(cut, HYS_CUT_ROWS),
	       (long long)(wanted->documents > 1 ? wanted->documents : 1),
	       wanted->documents > 1 ? "s" : "", hys_cut_ranks(cut), wanted->cut,
	       network->bytes_per_s * 8e-9, network->latency_s * 1e6, hys_cut_slices(cut));
	printf("%-20s %-36s %14s\n", "operation", "kernel", "slowest rank");
	for (int op = 0; op < HYS_OP_COUNT; op++) {
		double slowest = 0;
		for (int32_t rank = 0; rank < hys_cut_ranks(cut); rank++)
			slowest = fmax(slowest, costs[rank].op_s[op]);
		if (slowest > 0)
			printf("%-20s %-36s %14s\n", hys_op_name((hys_op)op),
			       hys_plan_kernel(plan, (hys_op)op, 0), tool_time(slowest));
	}
	printf("\n%-16s %14s %14s %14s %10s\n", "per rank", "least", "mean", "most", "most/mean");
	for (int i = 0; i < COLUMNS; i++)
		printf("%-16s %14s %14s %14s %10.4f\n", columns[i].name,
		       shown(&columns[i], columns[i].least), shown(&columns[i], columns[i].mean),
		       shown(&columns[i], columns[i].most),
		       columns[i].mean > 0 ? columns[i].most / columns[i].mean : 1);
	printf("\nstep %s; ranks compute %.1f%% of it on average\n", tool_time(costs[0].step_s),
	       100 * columns[COMPUTE].mean / costs[0].step_s);
}

/* ---- the command ---- */

static hys_cut_way way_of(const char *name)
{
	int way = 0;
	while (way < HYS_CUT_WAY_COUNT && strcmp(name, hys_cut_way_name((hys_cut_way)way)) != 0)
		way++;
	return (hys_cut_way)way;
}

static hys_status price(const struct plan_ranks *wanted, struct hys_context *context,
			int32_t device, const struct hys_problem *problem,
			const struct hys_batch_desc *desc, const struct hys_network *network,
			struct hys_error *error)
{
	const struct hys_cut_options options = {.struct_size = sizeof options,
						.ranks = (int32_t)wanted->ranks,
						.way = way_of(wanted->cut)};
	struct hys_plan_options plan_options = {.struct_size = sizeof plan_options,
						.flags = HYS_PLAN_BUFFERS_ONLY,
						.devices = &device,
						.device_count = 1,
						.keys_max = desc->keys,
						.progress = tool_plan_progress};
	struct hys_rank_cost *costs = calloc((size_t)wanted->ranks, sizeof *costs);
	struct hys_cut *cut = NULL;
	struct hys_plan *plan = NULL;
	hys_status status = costs ? HYS_OK : HYS_OUT_OF_MEMORY;
	if (status == HYS_OK)
		status = hys_cut_create(problem, desc, &options, &cut, error);
	for (int32_t rank = 0; status == HYS_OK && rank < options.ranks; rank++) {
		const int64_t rows = hys_cut_count(cut, HYS_CUT_ROWS, rank);
		plan_options.rows_max = rows > plan_options.rows_max ? rows : plan_options.rows_max;
	}
	if (status == HYS_OK)
		status = hys_plan_create(context, problem, &plan_options, &plan, error);
	if (status == HYS_OK)
		status = hys_cut_price(cut, plan, network, costs, error);
	if (status == HYS_OK && wanted->json)
		print_json(cut, costs);
	else if (status == HYS_OK)
		print_table(wanted, cut, plan, network, costs);
	hys_plan_destroy(plan);
	hys_cut_destroy(cut);
	free(costs);
	return status;
}

int plan_ranks_print(const struct plan_ranks *wanted, struct hys_context *context, int32_t device,
		     const struct hys_problem *problem, int64_t tokens)
{
	struct hys_network network = {.struct_size = sizeof network};
	int32_t *cu = wanted->documents > 1 ? zipf(tokens, wanted->documents) : NULL;
	const struct hys_batch_desc desc = {.struct_size = sizeof desc,
					    .rows = tokens,
					    .keys = tokens,
					    .flags = HYS_BATCH_CAUSAL,
					    .documents = cu ? (int32_t)wanted->documents : 0,
					    .cu_seqlens_q = cu};
	struct hys_error error = {0};
	int result = TOOL_OK;
	memcpy(network.flops_per_s, wanted->rates, sizeof network.flops_per_s);
	memcpy(network.row_s, wanted->row_s, sizeof network.row_s);
	if (!read_network(wanted->network, &network))
		result =
			tool_complain("--network '%s' is not GBITS,MICROSECONDS, for example 400,2",
				      wanted->network);
	else if (way_of(wanted->cut) == HYS_CUT_WAY_COUNT)
		result = tool_complain("--cut '%s' is not one of balanced, contiguous, zigzag",
				       wanted->cut);
	else if (price(wanted, context, device, problem, &desc, &network, &error) != HYS_OK)
		result = tool_failed("--ranks", &error);
	free(cu);
	return result;
}
