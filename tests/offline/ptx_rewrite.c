/* ptx_rewrite TARGET < IN > OUT: what the OpenCL backend does to the text of a program before it
 * loads it, for checking kernels with ptxas where there is no device. */
#include <stdio.h>
#include <stdlib.h>

#include "ocl_ptx.h"

#define TEXT_MAX ((size_t)64 << 20)

static char *read_all(FILE *file, size_t *bytes)
{
	char *text = malloc(TEXT_MAX);
	if (text)
		*bytes = fread(text, 1, TEXT_MAX, file);
	return text;
}

int main(int argc, char **argv)
{
	struct hys_error error = {HYS_OK, 0, ""};
	size_t bytes = 0, out_bytes = 0;
	char *out = NULL, *text;
	int result = EXIT_FAILURE;

	if (argc != 2) {
		fprintf(stderr, "usage: ptx_rewrite TARGET < IN > OUT; \"\" keeps the target\n");
		return 2;
	}
	text = read_all(stdin, &bytes);
	if (!text || ferror(stdin) || bytes == TEXT_MAX)
		fprintf(stderr, "ptx_rewrite: the input cannot be read\n");
	else if (hys_ptx_rewrite(&hys_allocator_default, text, bytes, argv[1], &out, &out_bytes,
				 &error) != HYS_OK)
		fprintf(stderr, "ptx_rewrite: %s\n", error.message);
	else if (fwrite(out, 1, out_bytes - 1, stdout) == out_bytes - 1 && fflush(stdout) == 0)
		result = EXIT_SUCCESS;
	hys_free(&hys_allocator_default, out);
	free(text);
	return result;
}
