/* lane.h - one device's stream of tasks. */
#ifndef HYS_LANE_H
#define HYS_LANE_H

#include "core.h"

/* sem_wait that signals do not end. */
void hys_semaphore_wait(sem_t *semaphore);

/* Until when a thread looks again and again before it sleeps; 0 = not at all. */
struct hys_patience {
	double end_s;
};

/* Whether threads of such a plan's exec may look before they sleep: only where they
 * keep nobody from a core. */
bool hys_exec_may_look(const struct hys_plan *plan);
/* Of one who waits for others in the middle of a call. */
struct hys_patience hys_patience_of(const struct hys_exec *exec);
/* Whether to look again. */
bool hys_patience_is_left(const struct hys_patience *patience);

/* Gives the lane a thread of its own; nothing to undo on failure. */
hys_status hys_lane_start(struct hys_lane *lane, struct hys_error *error);
/* Ends the thread after what was given to it. Fine without one. */
void hys_lane_stop(struct hys_lane *lane);
/* Waits for what is enqueued on the lane's stream; not on a caller's queue. */
hys_status hys_lane_finish(struct hys_exec *exec, int32_t index, struct hys_error *error);
/* Returns when the thread has done what was given to it. */
void hys_lane_drain(struct hys_lane *lane);

#endif
