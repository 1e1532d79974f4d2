/* Any text as an NVIDIA driver's program binary: a status, and what is made of it stays in its room. */
#include <stdlib.h>
#include <string.h>

#include "../../backends/opencl/ocl_ptx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t lines(const char *text, size_t size)
{
	size_t count = 0;

	for (size_t i = 0; i < size; i++)
		count += text[i] == '\n';
	return count;
}

static void rewrite(const char *text, size_t size, const char *target)
{
	char *out = NULL;
	size_t bytes = 0;

	if (hys_ptx_rewrite(&hys_allocator_default, text, size, target, &out, &bytes, NULL) !=
	    HYS_OK)
		return;
	/* text, closed, line by line */
	if (!out || bytes == 0 || strlen(out) != bytes - 1 ||
	    lines(out, bytes) != lines(text, size))
		abort();
	hys_free(&hys_allocator_default, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	rewrite((const char *)data, size, "sm_90a");
	rewrite((const char *)data, size, "");
	return 0;
}
