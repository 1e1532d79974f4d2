#include "slow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOWEST 1000

void hys_slow_read(struct hys_context *context)
{
	const char *at = getenv("HYS_SLOW");

	for (int32_t i = 0; at && *at && i < context->device_count; i++) {
		char *end;
		const long factor = strtol(at, &end, 10);

		if (factor > 1 && factor <= SLOWEST && (*end == ',' || !*end))
			context->devices[i]->slow = (int32_t)factor;
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
}

void hys_slow_down(const struct hys_device *device, double seconds)
{
	const double rest = seconds * (device->slow - 1);
	struct timespec time;

	if (!hys_is_slowed(device) || !(rest > 0))
		return;
	time.tv_sec = (time_t)rest;
	time.tv_nsec = (long)((rest - (double)time.tv_sec) * 1e9);
	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
}
