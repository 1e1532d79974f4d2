/* Any bytes as a plan's file: a status, and what was accepted is in bounds. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const char *text, int64_t bytes)
{
	static struct hys_plan_text plan;

	if (hys_plan_parse(&plan, text, bytes, NULL) != HYS_OK)
		return;
	if (plan.wish.device_count < 1 || plan.wish.device_count > HYS_PLAN_DEVICES_MAX)
		abort();
	for (int32_t i = 0; i < plan.wish.device_count; i++) {
		if (plan.wish.devices[i] < 0 || plan.wish.rows_most[i] < 0)
			abort();
		for (int32_t op = 0; op < HYS_OP_COUNT; op++)
			if (!isfinite(plan.paces[i][op].flop_s) || plan.paces[i][op].row_s < 0)
				abort();
	}
}

/* With the right checksum behind it, so that what is said is judged. */
static void parse_signed(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 64);
	int length;

	if (!text)
		return;
	memcpy(text, data, size);
	length = snprintf(text + size, 64, "checksum %016" PRIx64 "\n",
			  hys_hash(hys_hash_start, text, size));
	parse(text, (int64_t)size + length);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	parse((const char *)data, (int64_t)size);
	parse_signed(data, size);
	return 0;
}
