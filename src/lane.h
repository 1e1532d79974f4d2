/* lane.h - one device's stream of tasks. */
#ifndef HYS_LANE_H
#define HYS_LANE_H

#include "core.h"

/* sem_wait that signals do not end. */
void hys_semaphore_wait(sem_t *semaphore);

/* Gives the lane a thread of its own; nothing to undo on failure. */
hys_status hys_lane_start(struct hys_lane *lane, struct hys_error *error);
/* Ends the thread after what was given to it. Fine without one. */
void hys_lane_stop(struct hys_lane *lane);
/* Returns when the thread has done what was given to it. */
void hys_lane_drain(struct hys_lane *lane);

#endif
