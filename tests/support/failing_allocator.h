/* failing_allocator.h - host memory that is counted and can run out. */
#ifndef HYS_TEST_FAILING_ALLOCATOR_H
#define HYS_TEST_FAILING_ALLOCATOR_H

#include <stdatomic.h>

#include "hyscale/hyscale.h"

struct failing_allocator {
	atomic_long made;    /* allocations asked for */
	atomic_long live;    /* not yet released */
	atomic_long fail_at; /* the number, from 1, of the one that fails; 0 = none */
};

/* Sets the three hooks of the options. */
void failing_allocator_use(struct failing_allocator *allocator,
			   struct hys_context_options *options);
/* Lets allocation `number` from now on fail, once. */
void failing_allocator_arm(struct failing_allocator *allocator, long number);

#endif
