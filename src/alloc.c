#define _DEFAULT_SOURCE /* madvise */
#include "alloc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cgroup.h"

#define HYS_HOST_ALIGN 64
/* More than any address space holds, and what saturated sums come to. */
#define HYS_HOST_MOST ((uint64_t)1 << 56)

/* Large blocks lie in huge pages where the system has them on request: random
 * key rows otherwise miss in every table of addresses. */
#define HUGE_PAGE ((size_t)2 << 20)
#define HUGE_BYTES (4 * HUGE_PAGE)

/* Blocks from this size on are held against what the machine has left: the system grants them
 * without having them, and kills some process when they are touched. */
#define LARGE_BYTES ((int64_t)1 << 30)

static void *allocate_default(void *user, size_t bytes, size_t align)
{
	void *pointer = NULL;
	const bool huge = bytes >= HUGE_BYTES;

	(void)user;
	if (posix_memalign(&pointer, huge ? HUGE_PAGE : align, bytes) != 0)
		return NULL;
#ifdef MADV_HUGEPAGE
	if (huge)
		(void)madvise(pointer, bytes - bytes % HUGE_PAGE, MADV_HUGEPAGE);
#endif
	return pointer;
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

void *hys_alloc_untouched(const struct hys_allocator *allocator, int64_t bytes)
{
	if (bytes < 0 || (uint64_t)bytes > HYS_HOST_MOST || (uint64_t)bytes > SIZE_MAX / 2)
		return NULL;
	if (bytes == 0)
		bytes = 1;
	return allocator->allocate(allocator->user, (size_t)bytes, HYS_HOST_ALIGN);
}

void *hys_alloc(const struct hys_allocator *allocator, int64_t bytes)
{
	void *pointer;

	if (bytes >= LARGE_BYTES && allocator->allocate == allocate_default &&
	    bytes > hys_memory_left(NULL, hys_cgroup_read(NULL, NULL).memory_bytes))
		return NULL;
	pointer = hys_alloc_untouched(allocator, bytes);
	return pointer ? memset(pointer, 0, (size_t)(bytes > 0 ? bytes : 1)) : NULL;
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
