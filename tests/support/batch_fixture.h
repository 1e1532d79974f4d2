/* batch_fixture.h - what the tests of batches start from. */
#ifndef HYS_TEST_BATCH_FIXTURE_H
#define HYS_TEST_BATCH_FIXTURE_H

#include "failing_allocator.h"
#include "fake_backend.h"

/* A plan over this machine's processor and a fake device with memory of its
 * own; the tests set the problem and the operations. */
struct batch_fixture {
	struct failing_allocator memory;
	struct hys_context *context;
	struct fake_device device;
	struct fake_plan plan;
};

/* For cmocka; leaks of any kind fail the test. */
int batch_set_up(void **state);
int batch_tear_down(void **state);

struct hys_batch_desc batch_describe(int64_t rows, int64_t keys);
/* Fails the test when the batch cannot be made. */
struct hys_batch *batch_make(struct batch_fixture *f, const struct hys_batch_desc *desc);

#endif
