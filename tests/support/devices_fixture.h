/* A context of the devices that the tests run on, made once for all tests of a program. */
#ifndef HYS_TEST_DEVICES_FIXTURE_H
#define HYS_TEST_DEVICES_FIXTURE_H

#include <stdlib.h>

#include "hyscale/hyscale.h"

static struct hys_context *context;

static inline int set_up(void **state)
{
	const struct hys_context_options options = {.struct_size = sizeof(options),
						    .devices = getenv("HYS_TEST_DEVICES")};

	(void)state;
	return hys_context_create(&options, &context, NULL) == HYS_OK ? 0 : -1;
}

static inline int tear_down(void **state)
{
	(void)state;
	hys_context_destroy(context);
	return 0;
}

#endif
