/* ranks_predict.c - what a rank measured alone means for a step on all of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ranks_bench.h"

/* Of the long document's work, that several leave out at least if the two are to be told apart. */
#define APART 0.25

void ranks_find_rates(const struct ranks_ops *ops, const struct ranks_measured *long_one,
		      const struct ranks_measured *short_ones, double tokens,
		      struct hys_network *network)
{
	for (int t = 0; t < RANKS_OPS; t++) {
		const double flops = long_one->flops[t] - short_ones->flops[t];
		const double flop_s = (long_one->seconds[t] - short_ones->seconds[t]) / flops;
		const double rows_s = short_ones->seconds[t] - flop_s * short_ones->flops[t];
		const bool apart = flops > APART * long_one->flops[t] && flop_s > 0 && rows_s > 0;
		if (ops->of[t] == HYS_OP_COUNT || !(short_ones->seconds[t] > 0))
			continue;
		network->flops_per_s[ops->of[t]] =
			apart ? 1 / flop_s : short_ones->flops[t] / short_ones->seconds[t];
		network->row_s[ops->of[t]] = apart ? rows_s / tokens : 0;
	}
}

static void take_slowest(MPI_Comm comm, struct hys_network *network)
{
	double all[HYS_OP_COUNT];
	MPI_Allreduce(network->flops_per_s, all, HYS_OP_COUNT, MPI_DOUBLE, MPI_MIN, comm);
	memcpy(network->flops_per_s, all, sizeof all);
	MPI_Allreduce(network->row_s, all, HYS_OP_COUNT, MPI_DOUBLE, MPI_MAX, comm);
	memcpy(network->row_s, all, sizeof all);
}

static void print(const char *name, double predicted, double took)
{
	printf("  %-20s %12s, fastest took %12s: %+.1f%%\n", name, tool_time(predicted),
	       tool_time(took), 100 * (predicted / took - 1));
}

static void print_all(const struct ranks_ops *ops, const struct hys_network *network,
		      const struct hys_rank_cost *costs, int32_t ranks, const double *fastest)
{
	for (int t = 0; t < RANKS_OPS; t++)
		if (ops->of[t] != HYS_OP_COUNT)
			printf("  %-20s %12s and %.3g ns a row\n", hys_op_name(ops->of[t]),
			       tool_rate(network->flops_per_s[ops->of[t]], "FLOP/s"),
			       1e9 * network->row_s[ops->of[t]]);
	for (int t = 0; t < RANKS_OPS; t++) {
		double slowest = 0;
		if (ops->of[t] == HYS_OP_COUNT)
			continue;
		for (int32_t rank = 0; rank < ranks; rank++)
			slowest = fmax(slowest, costs[rank].op_s[ops->of[t]]);
		print(hys_op_name(ops->of[t]), slowest, fastest[t]);
	}
	print("whole step", costs[0].step_s, fastest[RANKS_OPS]);
}

bool ranks_predict(MPI_Comm comm, const struct hys_cut *cut, const struct hys_plan *plan,
		   const struct ranks_ops *ops, struct hys_network *network, const double *fastest,
		   int64_t tokens, struct hys_error *error)
{
	const int32_t ranks = hys_cut_ranks(cut);
	struct hys_rank_cost *costs = calloc((size_t)ranks, sizeof *costs);
	int rank;
	hys_status status = HYS_OUT_OF_MEMORY;
	take_slowest(comm, network);
	ranks_network(comm, network);
	MPI_Comm_rank(comm, &rank);
	if (costs)
		status = hys_cut_price(cut, plan, network, costs, error);
	else
		*error = (struct hys_error){HYS_OUT_OF_MEMORY, 0, "no memory for costs"};
	if (status == HYS_OK && rank == 0) {
		printf("predicted from the fastest of %lld tokens a rank, %.3g Gbit/s, %.3g us a "
		       "message:\n",
		       (long long)tokens, network->bytes_per_s * 8e-9, network->latency_s * 1e6);
		print_all(ops, network, costs, ranks, fastest);
	}
	free(costs);
	return status == HYS_OK;
}
