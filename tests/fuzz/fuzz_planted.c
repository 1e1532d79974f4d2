/* Planted: a file whose length field is believed, for the fuzzer to find. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char *copy;
	unsigned sum = 0;

	if (size < 5 || memcmp(data, "HYS", 3) != 0)
		return 0;
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	for (size_t i = 0; i < copy[3]; i++)
		sum += copy[i];
	free(copy);
	return sum == UINT32_MAX ? -1 : 0;
}
