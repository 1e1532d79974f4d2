#include "failing_allocator.h"

#include <stdlib.h>

static void *allocate(void *user, size_t bytes, size_t align)
{
	struct failing_allocator *allocator = user;
	void *pointer = NULL;

	if (atomic_fetch_add(&allocator->made, 1) + 1 == atomic_load(&allocator->fail_at))
		return NULL;
	if (posix_memalign(&pointer, align, bytes) != 0)
		return NULL;
	atomic_fetch_add(&allocator->live, 1);
	return pointer;
}

static void release(void *user, void *pointer)
{
	struct failing_allocator *allocator = user;

	atomic_fetch_sub(&allocator->live, 1);
	free(pointer);
}

void failing_allocator_use(struct failing_allocator *allocator, struct hys_context_options *options)
{
	options->allocate = allocate;
	options->release = release;
	options->allocate_user = allocator;
}

void failing_allocator_arm(struct failing_allocator *allocator, long number)
{
	atomic_store(&allocator->made, 0);
	atomic_store(&allocator->fail_at, number);
}
