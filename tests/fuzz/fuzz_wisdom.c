/* Any bytes as a wisdom file: a status, and what was known stays known. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wisdom.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* With the right checksum behind it, so that the lines themselves are judged. */
static void parse_signed(struct hys_wisdom *wisdom, const uint8_t *data, size_t size)
{
	const char *first = "hyscale-wisdom-1 " HYS_VERSION_STRING "\n";
	const size_t before = strlen(first), lines = before + size;
	char *text = malloc(lines + 64);

	if (!text)
		return;
	memcpy(text, first, before);
	memcpy(text + before, data, size);
	snprintf(text + lines, 64, "checksum %016" PRIx64 "\n",
		 hys_hash(hys_hash_start, text, lines));
	hys_wisdom_parse(wisdom, text, (int64_t)(lines + 26), NULL);
	free(text);
}

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
	parse_signed(wisdom, data, size);
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
