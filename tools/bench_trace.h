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

/* Adds to busy_s[device] what each device did since, of calls that share rows alike: each piece
 * of its rows once, at the least that it took in any call. */
bool bench_trace_least(const struct hys_exec *exec, double from_s, double *busy_s,
		       struct hys_error *error);

#endif
