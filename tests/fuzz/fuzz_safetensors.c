/* Any bytes as a safetensors file: what was accepted lies within them and can be read. */
#include <stdlib.h>
#include <string.h>

#include "../../tools/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensor(const struct st_file *file, const struct st_tensor *tensor,
			 const uint8_t *data, size_t size)
{
	const unsigned char *begin = tensor->data;
	int64_t elements = 1;
	unsigned sum = 0;

	if (tensor->rank < 0 || tensor->rank > ST_RANK_MAX || tensor->bytes < 0)
		abort();
	/* in the bytes given or, where those are not aligned, in a copy */
	if (tensor->bytes > 0 && begin != tensor->aligned &&
	    (begin < data || tensor->bytes > data + size - begin))
		abort();
	if (tensor->dtype != HYS_DTYPE_DEFAULT &&
	    (uintptr_t)begin % hys_dtype_size(tensor->dtype) != 0)
		abort();
	for (int32_t d = 0; d < tensor->rank; d++)
		elements = tensor->shape[d] > 0 && elements > INT64_MAX / tensor->shape[d]
				   ? INT64_MAX
				   : elements * tensor->shape[d];
	for (int32_t d = 0; d < tensor->rank; d++)
		elements = tensor->shape[d] == 0 ? 0 : elements;
	if (tensor->dtype != HYS_DTYPE_DEFAULT &&
	    elements != tensor->bytes / (int64_t)hys_dtype_size(tensor->dtype))
		abort();
	for (int64_t i = 0; i < tensor->bytes; i++)
		sum += begin[i];
	if (!st_find(file, tensor->name) || sum == UINT32_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char message[ST_MESSAGE] = "";
	struct st_file file;

	if (st_parse(&file, data, (int64_t)size, message)) {
		for (int32_t i = 0; i < file.count; i++)
			check_tensor(&file, &file.tensors[i], data, size);
		st_metadata(&file, "op");
	} else if (message[0] == '\0' || strchr(message, '\n')) {
		abort(); /* says what is wrong, in one line */
	}
	st_free(&file);
	return 0;
}
