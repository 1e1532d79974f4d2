/* exec_fixture.h - what the tests of execs and events start from. */
#ifndef HYS_TEST_EXEC_FIXTURE_H
#define HYS_TEST_EXEC_FIXTURE_H

#include "failing_allocator.h"
#include "fake_backend.h"

#define DEVICES 3
#define BYTES 64

struct exec_fixture {
	struct failing_allocator memory;
	struct hys_context *context;
	struct fake_device devices[DEVICES];
	struct fake_plan one, two, all, cpu;
	struct hys_buffer *buffers[DEVICES];
};

/* For cmocka; leaks of any kind fail the test. */
int exec_set_up(void **state);
int exec_tear_down(void **state);

/* Fails the test when the exec cannot be made. */
struct hys_exec *exec_make(struct fake_plan *plan, uint32_t flags);
/* Long enough for a thread to do what it must not do. */
void exec_wait_a_little(void);

#endif
