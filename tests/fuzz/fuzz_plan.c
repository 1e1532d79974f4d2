/* Any bytes as a plan's file: a status, and what was accepted is in bounds. */
#include <math.h>
#include <stdlib.h>

#include "plan_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct hys_plan_text plan;

	if (hys_plan_parse(&plan, (const char *)data, (int64_t)size, NULL) != HYS_OK)
		return 0;
	if (plan.wish.device_count < 1 || plan.wish.device_count > HYS_PLAN_DEVICES_MAX)
		abort();
	for (int32_t i = 0; i < plan.wish.device_count; i++)
		if (plan.wish.devices[i] < 0 || !isfinite(plan.wish.shares[i]))
			abort();
	return 0;
}
