#define _POSIX_C_SOURCE 200809L
#include "alloc.h"

#include <stdlib.h>
#include <string.h>

#define HYS_HOST_ALIGN 64
/* More than any address space holds, and what saturated sums come to. */
#define HYS_HOST_MOST ((uint64_t)1 << 56)

static void *allocate_default(void *user, size_t bytes, size_t align)
{
	void *pointer = NULL;

	(void)user;
	return posix_memalign(&pointer, align, bytes) == 0 ? pointer : NULL;
}

static void release_default(void *user, void *pointer)
{
	(void)user;
	free(pointer);
}

const struct hys_allocator hys_allocator_default = {
	allocate_default,
	release_default,
	NULL,
};

void *hys_alloc(const struct hys_allocator *allocator, int64_t bytes)
{
	void *pointer;

	if (bytes < 0 || (uint64_t)bytes > HYS_HOST_MOST || (uint64_t)bytes > SIZE_MAX / 2)
		return NULL;
	if (bytes == 0)
		bytes = 1;
	pointer = allocator->allocate(allocator->user, (size_t)bytes, HYS_HOST_ALIGN);
	return pointer ? memset(pointer, 0, (size_t)bytes) : NULL;
}

void *hys_alloc_array(const struct hys_allocator *allocator, int64_t count, size_t size)
{
	if (count < 0 || (size != 0 && (uint64_t)count > (uint64_t)(INT64_MAX / (int64_t)size)))
		return NULL;
	return hys_alloc(allocator, count * (int64_t)size);
}

char *hys_alloc_string(const struct hys_allocator *allocator, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = hys_alloc(allocator, (int64_t)bytes);

	return copy ? memcpy(copy, text, bytes) : NULL;
}

void hys_free(const struct hys_allocator *allocator, void *pointer)
{
	if (pointer)
		allocator->release(allocator->user, pointer);
}
