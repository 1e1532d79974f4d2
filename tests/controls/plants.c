/* Planted for the analyzers, one finding each; tools/ci/analyze.sh asks every one of them for its own. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int64_t gcc_double_free(int64_t count);
int64_t tidy_product_of_sizes(int32_t rows, int32_t keys);
int cppcheck_beyond_the_array(void);

int64_t gcc_double_free(int64_t count)
{
	char *memory = malloc((size_t)count);

	if (!memory)
		return 0;
	memset(memory, 0, (size_t)count);
	free(memory);
	if (count > 8)
		free(memory);
	return count;
}

int64_t tidy_product_of_sizes(int32_t rows, int32_t keys)
{
	const int64_t bytes = rows * keys;

	return bytes;
}

int cppcheck_beyond_the_array(void)
{
	int32_t counts[4] = {0};

	for (int i = 0; i <= 4; i++)
		counts[i] = i;
	return counts[0];
}
