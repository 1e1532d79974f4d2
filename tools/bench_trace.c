#include "bench_trace.h"

#include <stdlib.h>
#include <string.h>

static void add_span(struct bench_trace *trace, const struct hys_trace_span *span, const char *name)
{
	cJSON *event = cJSON_CreateObject(), *about;
	char text[96];
	if (span->op == HYS_OP_COUNT)
		snprintf(text, sizeof text, "%s", span->what);
	else
		snprintf(text, sizeof text, "%s: %s", hys_op_name(span->op), span->what);
	cJSON_AddStringToObject(event, "name", text);
	cJSON_AddStringToObject(event, "cat", span->what);
	cJSON_AddStringToObject(event, "ph", "X");
	cJSON_AddNumberToObject(event, "ts", 1e6 * (span->begin_s - trace->start_s));
	cJSON_AddNumberToObject(event, "dur", 1e6 * (span->end_s - span->begin_s));
	cJSON_AddNumberToObject(event, "pid", span->device);
	cJSON_AddStringToObject(event, "tid", name);
	about = cJSON_AddObjectToObject(event, "args");
	cJSON_AddNumberToObject(about, "row_first", (double)span->row_first);
	cJSON_AddNumberToObject(about, "row_count", (double)span->row_count);
	cJSON_AddItemToArray(trace->events, event);
}

bool bench_trace_add(struct bench_trace *trace, const struct hys_exec *exec, const char *name,
		     double from_s, struct hys_error *error)
{
	struct hys_trace_span span = {.struct_size = sizeof span};
	if (!trace->events)
		trace->events = cJSON_CreateArray();
	if (trace->start_s == 0)
		trace->start_s = from_s;
	for (int64_t n = 0; n < hys_exec_span_count(exec); n++) {
		if (hys_exec_span(exec, n, &span, error) != HYS_OK)
			return false;
		if (span.begin_s >= from_s)
			add_span(trace, &span, name);
	}
	return true;
}

int bench_trace_write(struct bench_trace *trace, const char *path)
{
	cJSON *whole = cJSON_CreateObject();
	FILE *file = fopen(path, "w");
	char *text;
	bool fine;
	cJSON_AddItemToObject(whole, "traceEvents", trace->events);
	cJSON_AddStringToObject(whole, "displayTimeUnit", "ms");
	trace->events = NULL;
	text = cJSON_Print(whole);
	fine = file && text && fputs(text, file) >= 0;
	if (file && fclose(file) != 0)
		fine = false;
	cJSON_free(text);
	cJSON_Delete(whole);
	return fine ? TOOL_OK : tool_complain("%s cannot be written", path);
}

double bench_trace_overlap(const struct hys_exec *exec, const char *what,
			   const struct hys_exec *other, const char *other_what, double from_s)
{
	struct hys_trace_span a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
	double sum = 0;
	for (int64_t i = 0; i < hys_exec_span_count(exec); i++) {
		if (hys_exec_span(exec, i, &a, NULL) != HYS_OK || strcmp(a.what, what) != 0 ||
		    a.begin_s < from_s)
			continue;
		for (int64_t j = 0; j < hys_exec_span_count(other); j++) {
			if (hys_exec_span(other, j, &b, NULL) != HYS_OK ||
			    strcmp(b.what, other_what) != 0)
				continue;
			const double begin = a.begin_s > b.begin_s ? a.begin_s : b.begin_s;
			const double end = a.end_s < b.end_s ? a.end_s : b.end_s;
			sum += end > begin ? end - begin : 0;
		}
	}
	return sum;
}

/* What a device did for some of the rows, of all calls side by side, the shortest first. */
static int compare_spans(const void *a, const void *b)
{
	const struct hys_trace_span *x = a, *y = b;
	const double x_s = x->end_s - x->begin_s, y_s = y->end_s - y->begin_s;
	const int what = strcmp(x->what, y->what);
	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (x->row_first != y->row_first)
		return x->row_first < y->row_first ? -1 : 1;
	if (x->row_count != y->row_count)
		return x->row_count < y->row_count ? -1 : 1;
	return what ? what : (x_s > y_s) - (x_s < y_s);
}

static bool same_piece(const struct hys_trace_span *a, const struct hys_trace_span *b)
{
	return a->device == b->device && a->row_first == b->row_first &&
	       a->row_count == b->row_count && strcmp(a->what, b->what) == 0;
}

/* Of sorted spans. */
static double part_of_least(const struct hys_trace_span *spans, int64_t count, int32_t device)
{
	double least = 0, least_sum = 0, sum = 0;
	for (int64_t n = 0; n < count; n++) {
		const double seconds = spans[n].end_s - spans[n].begin_s;
		if (spans[n].device != device)
			continue;
		if (n == 0 || !same_piece(&spans[n - 1], &spans[n]))
			least = seconds;
		least_sum += least;
		sum += seconds;
	}
	return sum > 0 ? least_sum / sum : 1;
}

bool bench_trace_least(const struct hys_exec *exec, double from_s, int32_t devices, double *parts,
		       struct hys_error *error)
{
	const int64_t count = hys_exec_span_count(exec);
	struct hys_trace_span *spans = calloc((size_t)count + 1, sizeof *spans);
	int64_t used = 0;
	bool ok = spans != NULL;
	if (!ok)
		*error = (struct hys_error){HYS_OUT_OF_MEMORY, 0, "no memory for spans"};
	for (int64_t n = 0; ok && n < count; n++) {
		spans[used].struct_size = sizeof spans[used];
		ok = hys_exec_span(exec, n, &spans[used], error) == HYS_OK;
		used += spans[used].begin_s >= from_s && spans[used].op != HYS_OP_COUNT;
	}
	if (ok)
		qsort(spans, (size_t)used, sizeof *spans, compare_spans);
	for (int32_t i = 0; ok && i < devices; i++)
		parts[i] = part_of_least(spans, used, i);
	free(spans);
	return ok;
}
