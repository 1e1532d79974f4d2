/* Two sub-devices of an OpenCL device, which work at the same time and share nothing. */
#ifndef HYS_TEST_HALVES_H
#define HYS_TEST_HALVES_H

#include <stdbool.h>

#include "hyscale/hyscale.h"

/* Natives for a context, each with a cl_context of its own. False, with the reason in `why`,
 * when no device here can be divided. */
bool halves_make(struct hys_native_device halves[2], char *why, size_t size);
/* After the hys_context is destroyed. */
void halves_free(struct hys_native_device *halves);

#endif
