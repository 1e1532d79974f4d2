/* Planted: reads behind an allocation of the library's. */
#include "alloc.h"

int main(void)
{
	const struct hys_allocator *allocator = &hys_allocator_default;
	volatile int64_t count = 8;
	float *values = hys_alloc(allocator, count * (int64_t)sizeof(float));
	const float beyond = values ? values[count + 8] : 0;

	hys_free(allocator, values);
	return beyond > 1e38f;
}
