/* bench_trace.h - what execs did when, as a file in Chrome's trace format
 * (chrome://tracing, ui.perfetto.dev). */
#ifndef HYS_TOOLS_BENCH_TRACE_H
#define HYS_TOOLS_BENCH_TRACE_H

#include "tool.h"

struct bench_trace {
	cJSON *events;
	double start_s; /* of the first span; 0 = none yet */
};

/* Adds the spans of an exec, made with HYS_EXEC_TRACE, under this name. False
 * with *error filled. Spans that begin before `from_s` are left out. */
bool bench_trace_add(struct bench_trace *trace, const struct hys_exec *exec, const char *name,
		     double from_s, struct hys_error *error);
/* Writes and empties the trace; an exit code. */
int bench_trace_write(struct bench_trace *trace, const char *path);
/* Seconds in which one of the spans of `what` of an exec ran while one of the
 * other's `other_what` did. */
double bench_trace_overlap(const struct hys_exec *exec, const char *what,
			   const struct hys_exec *other, const char *other_what, double from_s);

/* parts[i]: what device i's spans since then would have taken, each piece of its rows always at the
 * least that it ever took, over what they took; of calls that share rows alike, and of the first
 * 4,096 spans of a device. False with *error filled. */
bool bench_trace_least(const struct hys_exec *exec, double from_s, int32_t devices, double *parts,
		       struct hys_error *error);

#endif
