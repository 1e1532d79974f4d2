/* bench_report.c - a line of `hyscale bench`, as text or JSON. */
#include <string.h>

#include "bench.h"

static void add_shape(cJSON *line, const struct bench *b, hys_op op)
{
	const struct hys_scoring *s = &b->problem.scoring;
	const struct hys_attending *a = &b->problem.attending;
	static const char *const methods[] = {"default", "exact", "coarse", "coarse_to_fine"};
	if (s->heads) {
		cJSON_AddNumberToObject(line, "index_heads", s->heads);
		cJSON_AddNumberToObject(line, "index_dim", s->dim);
	}
	if (op == HYS_OP_SELECT)
		cJSON_AddStringToObject(line, "method", methods[b->problem.choosing.method]);
	cJSON_AddNumberToObject(line, "groups", s->groups);
	cJSON_AddNumberToObject(line, "block", s->block);
	cJSON_AddNumberToObject(line, "pool", s->pool);
	cJSON_AddNumberToObject(line, "topk", (double)b->topk);
	if (a->heads) {
		cJSON_AddNumberToObject(line, "heads", a->heads);
		cJSON_AddNumberToObject(line, "kv_heads", a->kv_heads);
		cJSON_AddNumberToObject(line, "head_dim", a->head_dim);
		cJSON_AddNumberToObject(line, "value_dim", a->value_dim);
		cJSON_AddNumberToObject(line, "granularity", a->granularity);
		cJSON_AddNumberToObject(line, "window", a->window);
		cJSON_AddNumberToObject(line, "share", (double)b->share);
	}
	cJSON_AddStringToObject(line, "mask", b->full ? "full" : "causal");
}

/* What a processor cannot do; types that other units multiply are held against the f32 peak, too. */
static bool is_above_peak(const struct bench_result *r)
{
	return r->info.kind == HYS_DEVICE_CPU && r->dtype == HYS_F32 &&
	       r->cost.flops > r->peak.flops_per_s * r->timing.median;
}

static void print_unscored(const struct bench *b, const struct bench_result *r)
{
	if (r->unscored == b->rows)
		printf("  every row keeps all that it sees, with K %lld: nothing is scored, and the "
		       "rate is that of the traffic\n",
		       (long long)b->topk);
	else if (r->unscored > 0)
		printf("  %lld of %lld rows keep all that they see, with K %lld: they are not "
		       "scored, and not counted as work\n",
		       (long long)r->unscored, (long long)b->rows, (long long)b->topk);
}

void bench_report(const struct bench *b, hys_op op, const struct bench_result *r, bool first)
{
	double rate = r->cost.flops / r->timing.median;
	double fraction = r->peak.flops_per_s > 0 ? rate / r->peak.flops_per_s : 0;
	double traffic = r->cost.bytes / r->timing.median;
	/* Work without multiply-adds (pooling) is measured by the bytes it moves. */
	bool moves = r->cost.flops <= 0;
	if (!b->json) {
		double shown = moves ? traffic : rate;
		double peak = moves ? r->peak.bytes_per_s : r->peak.flops_per_s;
		const char *unit = moves ? "B/s" : "FLOP/s";
		char range[64], share[64];
		snprintf(range, sizeof range, "(%s to %s)", tool_time(r->timing.min),
			 tool_time(r->timing.max));
		snprintf(share, sizeof share, "%5.1f%% of %s", peak > 0 ? 100 * shown / peak : 0,
			 tool_rate(peak, unit));
		if (first)
			printf("%-18s %-8s %-34s %-5s %19s %10s  %-22s  %14s  %-22s  %11s\n",
			       "operation", "backend", "kernel", "type", "rows x keys    ",
			       "median", "(fastest to slowest)", "useful", "of the measured peak",
			       "peak memory");
		printf("%-18s %-8s %-34s %-5s %8lld x %-8lld %10s  %-22s  %14s  %-22s  %11s\n",
		       b->op, r->info.backend, r->kernel, hys_dtype_name(r->dtype),
		       (long long)b->rows, (long long)b->keys, tool_time(r->timing.median), range,
		       tool_rate(shown, unit), share, tool_bytes((double)r->memory));
		print_unscored(b, r);
		if (is_above_peak(r))
			tool_complain("more than the peak: the machine was probably busy while the "
				      "peak was measured");
		if (b->explain) {
			bench_explain(&r->info, &r->cost, &r->peak, r->timing.median);
			bench_explain_first(&r->before);
		}
		return;
	}
	cJSON *line = cJSON_CreateObject();
	cJSON_AddStringToObject(line, "op", b->op);
	cJSON_AddStringToObject(line, "backend", r->info.backend);
	cJSON_AddStringToObject(line, "device", r->info.name);
	cJSON_AddStringToObject(line, "kernel", r->kernel);
	cJSON_AddStringToObject(line, "dtype", hys_dtype_name(r->dtype));
	cJSON_AddNumberToObject(line, "rows", (double)b->rows);
	cJSON_AddNumberToObject(line, "keys", (double)b->keys);
	cJSON_AddNumberToObject(line, "median_s", r->timing.median);
	cJSON_AddNumberToObject(line, "min_s", r->timing.min);
	cJSON_AddNumberToObject(line, "max_s", r->timing.max);
	cJSON_AddNumberToObject(line, "useful_flops", r->cost.flops);
	cJSON_AddNumberToObject(line, "flops_per_s", rate);
	cJSON_AddNumberToObject(line, "peak_flops_per_s", r->peak.flops_per_s);
	cJSON_AddNumberToObject(line, "fraction_of_peak", fraction);
	cJSON_AddBoolToObject(line, "above_peak", is_above_peak(r));
	if (op == HYS_OP_SELECT)
		cJSON_AddNumberToObject(line, "unscored_rows", (double)r->unscored);
	cJSON_AddNumberToObject(line, "bytes", r->cost.bytes);
	cJSON_AddNumberToObject(line, "bytes_per_s", traffic);
	cJSON_AddNumberToObject(line, "peak_bytes_per_s", r->peak.bytes_per_s);
	cJSON_AddNumberToObject(line, "peak_memory_bytes", (double)r->memory);
	bench_add_first(line, &r->before);
	add_shape(line, b, op);
	tool_json_line(line);
}
