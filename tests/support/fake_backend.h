/* fake_backend.h - devices made of nothing, for what the core does with
 * devices: several at once, slow ones, failing ones.
 *
 * Buffers are host memory that the core may not look into (host_memory is
 * false). Every call that a lane makes is logged and may be held up or fail.
 * Events are reached when they are recorded. */
#ifndef HYS_TEST_FAKE_BACKEND_H
#define HYS_TEST_FAKE_BACKEND_H

#include "core.h"

#define FAKE_LOG_SIZE 256

struct fake_device {
	struct hys_device base;
	pthread_mutex_t lock;
	/* i = copy_in, o = copy_out, f = fill, a = add, r = record, w = wait, e = event_wait,
	 * F = finish */
	char log[FAKE_LOG_SIZE];
	int32_t length;
	char fail; /* the letter of the call that fails, once */
	bool hold; /* copies and fills wait for fake_device_open */
	sem_t gate;
	int32_t buffers, streams, events; /* alive */
	bool fail_buffer, fail_stream;
	pthread_t thread; /* that made the last call */
};

extern const struct hys_backend fake_backend;

void fake_device_init(struct fake_device *device, const struct hys_host *host, const char *name);
void fake_device_clear(struct fake_device *device);
/* Lets `count` calls of a device that holds go on. */
void fake_device_open(struct fake_device *device, int32_t count);

/* A plan without operations over these devices. Its references are counted but
 * never run out. */
struct fake_plan {
	struct hys_plan plan;
	struct hys_device *devices[8];
	int32_t numbers[8];
	struct hys_pace paces[8 * HYS_OP_COUNT]; /* 1 s a row */
	double shares[8 * HYS_OP_COUNT];
	int64_t rows_most[8];
	struct hys_choice choices[8 * HYS_OP_COUNT];
};

void fake_plan_init(struct fake_plan *plan, struct hys_context *context,
		    struct fake_device *devices, int32_t count);
/* How many references are held beside the test's own. */
int fake_plan_references(const struct fake_plan *plan);

#endif
