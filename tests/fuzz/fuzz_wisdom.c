/* Any bytes as a wisdom file: a status, and what was known stays known. */
#include <stdlib.h>

#include "wisdom.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hys_wisdom *wisdom = hys_wisdom_create(&hys_allocator_default);
	int64_t bytes = 0;
	char *text;

	if (!wisdom)
		return 0;
	if (hys_wisdom_trust(wisdom, 1, 2, "kept", NULL) != HYS_OK)
		abort();
	hys_wisdom_parse(wisdom, (const char *)data, (int64_t)size, NULL);
	if (!hys_wisdom_trusts(wisdom, 1, 2, "kept"))
		abort();
	/* What was accepted can be written and read again. */
	text = hys_wisdom_print(wisdom, &bytes);
	if (text && hys_wisdom_parse(wisdom, text, bytes, NULL) != HYS_OK)
		abort();
	hys_free(&hys_allocator_default, text);
	hys_wisdom_destroy(wisdom);
	return 0;
}
