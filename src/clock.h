/* clock.h - seconds since some moment, never set back. */
#ifndef HYS_CLOCK_H
#define HYS_CLOCK_H

#include <time.h>

static inline double hys_now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
