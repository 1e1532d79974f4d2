#include "trace.h"

#include <math.h>

#define SPANS_MAX 4096

struct span {
	const char *what;
	hys_op op;
	int64_t row_first, row_count;
	double begun_s, ended_s; /* as the host saw it */
	void *event;		 /* as the device did; NULL = the host's is right */
};

struct hys_trace {
	struct span spans[SPANS_MAX];
	int32_t count;
};

hys_status hys_trace_create(struct hys_exec *exec, int32_t lane, struct hys_error *error)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;

	exec->lanes[lane].trace =
		hys_alloc(&exec->plan->context->host.allocator, sizeof(struct hys_trace));
	if (!exec->lanes[lane].trace)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a trace");
	return backend->time_events ? backend->time_events(exec->lanes[lane].stream, error)
				    : HYS_OK;
}

void hys_trace_destroy(struct hys_exec *exec, int32_t lane)
{
	struct hys_device *device = exec->plan->devices[lane];
	struct hys_trace *trace = exec->lanes[lane].trace;

	if (!trace)
		return;
	for (int32_t i = 0; i < trace->count; i++)
		if (trace->spans[i].event)
			device->backend->event_destroy(device, trace->spans[i].event);
	hys_free(&exec->plan->context->host.allocator, trace);
	exec->lanes[lane].trace = NULL;
}

void hys_trace_note(struct hys_exec *exec, int32_t lane, const char *what,
		    const struct hys_call *call, double begun_s)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	struct hys_trace *trace = exec->lanes[lane].trace;
	struct span span = {.what = what, .begun_s = begun_s};

	if (!trace || trace->count == SPANS_MAX)
		return;
	span.op = call ? call->op : HYS_OP_COUNT;
	span.row_first = call ? call->row_first : 0;
	span.row_count = call ? call->size.rows : 0;
	if (backend->event_time_s &&
	    backend->record(exec->lanes[lane].stream, &span.event, NULL) != HYS_OK)
		span.event = NULL;
	span.ended_s = hys_now_s();
	trace->spans[trace->count++] = span;
}

static double end_of(const struct hys_exec *exec, int32_t lane, int32_t i)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	const struct span *span = &exec->lanes[lane].trace->spans[i];
	double ended_s = (double)NAN;

	if (span->event)
		ended_s = backend->event_time_s(exec->lanes[lane].stream, span->event);
	return isnan(ended_s) ? span->ended_s : ended_s;
}

int64_t hys_exec_span_count(const struct hys_exec *exec)
{
	int64_t count = 0;

	for (int32_t i = 0; exec && i < exec->plan->device_count; i++)
		count += exec->lanes[i].trace ? exec->lanes[i].trace->count : 0;
	return count;
}

/* A stream works in order: nothing begins before what came before it ended. */
static void fill(const struct hys_exec *exec, int32_t lane, int32_t i, struct hys_trace_span *span)
{
	const struct span *kept = &exec->lanes[lane].trace->spans[i];

	span->what = kept->what;
	span->op = kept->op;
	span->device = lane;
	span->row_first = kept->row_first;
	span->row_count = kept->row_count;
	span->end_s = end_of(exec, lane, i);
	span->begin_s = kept->begun_s;
	if (i > 0)
		span->begin_s = fmax(span->begin_s, end_of(exec, lane, i - 1));
	span->begin_s = fmin(span->begin_s, span->end_s);
}

hys_status hys_exec_span(const struct hys_exec *exec, int64_t n, struct hys_trace_span *span,
			 struct hys_error *error)
{
	if (!exec || !span || span->struct_size < sizeof(*span))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"exec or span is NULL, or its struct_size below %zu",
				sizeof(*span));
	for (int32_t lane = 0; n >= 0 && lane < exec->plan->device_count; lane++) {
		const int64_t count = exec->lanes[lane].trace ? exec->lanes[lane].trace->count : 0;

		if (n < count) {
			fill(exec, lane, (int32_t)n, span);
			return HYS_OK;
		}
		n -= count;
	}
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "span is beyond the %lld that were kept",
			(long long)hys_exec_span_count(exec));
}
