/* trace.h - when a lane did what, kept on request. */
#ifndef HYS_TRACE_H
#define HYS_TRACE_H

#include "clock.h"
#include "core.h"

/* NULL when the exec keeps none: everything below then does nothing. */
struct hys_trace;

/* Behind stream_create, before any work. */
hys_status hys_trace_create(struct hys_exec *exec, int32_t lane, struct hys_error *error);
void hys_trace_destroy(struct hys_exec *exec, int32_t lane);

/* When what follows was begun, for hys_trace_note. */
static inline double hys_trace_begin(const struct hys_exec *exec, int32_t lane)
{
	return exec->lanes[lane].trace ? hys_now_s() : 0;
}

/* What the lane was given since `begun_s` ends here in its stream; `call` NULL
 * when it is no operation. A trace that is full keeps what it has. */
void hys_trace_note(struct hys_exec *exec, int32_t lane, const char *what,
		    const struct hys_call *call, double begun_s);

#endif
