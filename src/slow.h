/* slow.h - devices that pretend to be slower than they are, by sleeping behind
 * what they compute: for benchmarks and tests of how work is shared. */
#ifndef HYS_SLOW_H
#define HYS_SLOW_H

#include "core.h"

/* Reads $HYS_SLOW, a comma list of factors by the context's numbers of devices:
 * "1,4" makes device 1 four times slower. Anything else is left out. */
void hys_slow_read(struct hys_context *context);

static inline bool hys_is_slowed(const struct hys_device *device)
{
	return device->slow > 1;
}

/* Sleeps as long as the device would have to compute on, when `seconds` went by
 * while it did: piece by piece, as a slow device would be busy throughout. */
void hys_slow_down(const struct hys_device *device, double seconds);

#endif
