/* bench_explain.c - what bounds an operation, and how near it came. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

/* Cycles of a dependent multiplication and addition on all x86-64 processors of the last years. */
#define CHAIN_CYCLES 4.0
#define CHAIN_ROUNDS 4000000

/* The clock while one processor works, in Hz; 0 where nobody knows how long an instruction takes. */
static double measure_clock(void)
{
#ifdef __x86_64__
	volatile uint64_t source = 6364136223846793005u, sink;
	double best = 0.0;
	for (int i = 0; i < 5; i++) {
		const uint64_t factor = source;
		uint64_t x = source;
		const double start = tool_now();
		for (int64_t j = 0; j < CHAIN_ROUNDS; j++)
			x = x * factor + 1;
		sink = x;
		const double rate = CHAIN_CYCLES * CHAIN_ROUNDS / (tool_now() - start);
		best = rate > best ? rate : best;
	}
	(void)sink;
	return best;
#else
	return 0.0;
#endif
}

void bench_explain(const struct hys_device_info *info, const struct hys_cost *cost,
		   const struct hys_device_speed *peak, double seconds)
{
	const double by_work = peak->flops_per_s > 0 ? cost->flops / peak->flops_per_s : 0;
	const double by_bytes = peak->bytes_per_s > 0 ? cost->bytes / peak->bytes_per_s : 0;
	const double roof = by_work > by_bytes ? by_work : by_bytes;
	const double clock = info->kind == HYS_DEVICE_CPU && info->compute_units > 0 &&
					     strcmp(info->backend, "openmp") == 0
				     ? measure_clock()
				     : 0;
	printf("  useful work        %s in multiplications and additions\n",
	       tool_rate(cost->flops, "FLOP"));
	printf("  traffic at least   %s\n", tool_bytes(cost->bytes));
	printf("  measured peak      %s, ", tool_rate(peak->flops_per_s, "FLOP/s"));
	printf("%s copied\n", tool_rate(peak->bytes_per_s, "B/s"));
	if (clock > 0)
		printf("  that is            %d threads x %.1f operations a cycle x %.2f GHz\n",
		       info->compute_units, peak->flops_per_s / info->compute_units / clock,
		       clock * 1e-9);
	printf("  roof               %s, by %s\n", tool_time(roof),
	       by_work >= by_bytes ? "the work" : "the traffic");
	printf("  reached            %s, %.1f%% of the roof\n", tool_time(seconds),
	       seconds > 0 ? 100 * roof / seconds : 0);
}

static double sum_of_first(const struct bench_first *first)
{
	return first->context + first->plan + first->call;
}

void bench_explain_first(const struct bench_first *first)
{
	printf("  first result       %s but for its data: ", tool_time(sum_of_first(first)));
	printf("context %s, ", tool_time(first->context));
	printf("plan %s, first call %s\n", tool_time(first->plan), tool_time(first->call));
}

void bench_add_first(cJSON *line, const struct bench_first *first)
{
	cJSON_AddNumberToObject(line, "first_result_s", sum_of_first(first));
	cJSON_AddNumberToObject(line, "context_s", first->context);
	cJSON_AddNumberToObject(line, "plan_s", first->plan);
	cJSON_AddNumberToObject(line, "first_call_s", first->call);
}
