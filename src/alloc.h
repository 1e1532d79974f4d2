/* alloc.h - the only way to host memory. */
#ifndef HYS_ALLOC_H
#define HYS_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "hyscale/base.h"

struct hys_allocator {
	void *(*allocate)(void *user, size_t bytes, size_t align);
	void (*release)(void *user, void *pointer);
	void *user;
};

/* malloc and free behind the same interface. */
extern const struct hys_allocator hys_allocator_default;

/* Zeroed memory aligned to 64 bytes; NULL when there is none, when bytes is
 * negative or does not fit. bytes 0 answers a pointer that may be freed. */
void *hys_alloc(const struct hys_allocator *allocator, int64_t bytes);
/* The same not zeroed, so that whoever writes first decides where it lies. */
void *hys_alloc_untouched(const struct hys_allocator *allocator, int64_t bytes);
/* The same as hys_alloc for count elements, NULL on overflow of the product. */
void *hys_alloc_array(const struct hys_allocator *allocator, int64_t count, size_t size);
char *hys_alloc_string(const struct hys_allocator *allocator, const char *text);
/* NULL is fine. */
void hys_free(const struct hys_allocator *allocator, void *pointer);

#endif
