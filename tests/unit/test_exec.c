/* Lanes and buffers, on fake devices that can be held up and told to fail, and
 * on this machine's processor. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* ---- inline lanes ---- */

static void test_copies_in_order(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, 0);
	char source[BYTES], target[BYTES] = "";

	for (int i = 0; i < BYTES; i++)
		source[i] = (char)i;
	assert_int_equal(hys_buffer_write(exec, f->buffers[0], 0, source, BYTES, NULL), HYS_OK);
	assert_int_equal(hys_buffer_fill(exec, f->buffers[0], 8, 4, 0xff, NULL), HYS_OK);
	assert_int_equal(hys_buffer_write(exec, f->buffers[0], 60, source, 4, NULL), HYS_OK);
	assert_int_equal(hys_buffer_read(exec, f->buffers[0], 4, target, 60, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	assert_string_equal(f->devices[0].log, "ifioF");
	memset(source + 8, 0xff, 4);
	memcpy(source + 60, (char[]){0, 1, 2, 3}, 4);
	assert_memory_equal(target, source + 4, 60);
	assert_true(pthread_equal(f->devices[0].thread, pthread_self()));
	/* There is nothing to wait for. */
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	assert_string_equal(f->devices[0].log, "ifioF");
	assert_int_equal(hys_buffer_write(exec, f->buffers[0], 0, source, 4, NULL), HYS_OK);
	hys_exec_destroy(exec);
	/* Destroying finishes too. */
	assert_string_equal(f->devices[0].log, "ifioFiF");
}

static void test_copies_between_buffers(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, 0);
	struct hys_buffer *a = f->buffers[0];
	char source[BYTES], target[BYTES] = "";
	struct hys_error error = {HYS_OK, 0, ""};

	for (int i = 0; i < BYTES; i++)
		source[i] = (char)(i + 1);
	assert_int_equal(hys_buffer_write(exec, a, 0, source, BYTES, NULL), HYS_OK);
	assert_int_equal(hys_buffer_copy(exec, a, 40, a, 8, 16, NULL), HYS_OK);
	assert_int_equal(hys_buffer_read(exec, a, 0, target, BYTES, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	assert_string_equal(f->devices[0].log, "icoF");
	memcpy(source + 40, source + 8, 16);
	assert_memory_equal(target, source, BYTES);
	/* Onto itself, to another device, beyond an end: nothing is done. */
	assert_int_equal(hys_buffer_copy(exec, a, 8, a, 0, 9, &error), HYS_INVALID_ARGUMENT);
	assert_non_null(strstr(error.message, "overlap"));
	assert_int_equal(hys_buffer_copy(exec, f->buffers[1], 0, a, 0, 1, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_copy(exec, a, 0, f->buffers[1], 0, 1, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_copy(exec, a, BYTES - 1, a, 0, 2, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_copy(exec, a, 0, a, BYTES - 1, 2, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_copy(exec, a, 8, a, 0, 0, NULL), HYS_OK);
	assert_string_equal(f->devices[0].log, "icoF");
	f->devices[0].fail = 'c';
	assert_int_equal(hys_buffer_copy(exec, a, 8, a, 0, 8, NULL), HYS_DEVICE_FAILED);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_DEVICE_FAILED);
	hys_exec_destroy(exec);
}

static void test_wrong_copies(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, 0);
	struct hys_buffer *b = f->buffers[0];
	char host[BYTES];
	const struct {
		struct hys_exec *exec;
		struct hys_buffer *buffer;
		int64_t offset;
		void *host;
		int64_t bytes;
	} cases[] = {
		{NULL, b, 0, host, 1},
		{exec, NULL, 0, host, 1},
		{exec, f->buffers[1], 0, host, 1},
		{exec, b, -1, host, 1},
		{exec, b, 0, host, -1},
		{exec, b, 0, host, BYTES + 1},
		{exec, b, BYTES, host, 1},
		{exec, b, INT64_MAX, host, 1},
		{exec, b, 1, host, INT64_MAX},
		{exec, b, 0, NULL, 1},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct hys_error error = {HYS_OK, 0, ""};

		assert_int_equal(hys_buffer_write(cases[i].exec, cases[i].buffer, cases[i].offset,
						  cases[i].host, cases[i].bytes, &error),
				 HYS_INVALID_ARGUMENT);
		assert_true(error.message[0]);
		assert_int_equal(hys_buffer_read(cases[i].exec, cases[i].buffer, cases[i].offset,
						 cases[i].host, cases[i].bytes, NULL),
				 HYS_INVALID_ARGUMENT);
		if (cases[i].host)
			assert_int_equal(hys_buffer_fill(cases[i].exec, cases[i].buffer,
							 cases[i].offset, cases[i].bytes, 1, NULL),
					 HYS_INVALID_ARGUMENT);
	}
	/* Nothing is fine anywhere in the buffer, its end included. */
	assert_int_equal(hys_buffer_write(exec, b, BYTES, NULL, 0, NULL), HYS_OK);
	assert_int_equal(hys_buffer_read(exec, b, 0, NULL, 0, NULL), HYS_OK);
	assert_int_equal(hys_buffer_fill(exec, b, 3, 0, 1, NULL), HYS_OK);
	/* A wrong argument is no failure of the exec. */
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	assert_string_equal(f->devices[0].log, "F");
	hys_exec_destroy(exec);
}

static void test_the_first_failure_stays(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, 0);
	struct hys_event *event = NULL;
	struct hys_error error;
	char host[BYTES] = "";

	f->devices[0].fail = 'f';
	assert_int_equal(hys_buffer_fill(exec, f->buffers[0], 0, 8, 1, &error), HYS_DEVICE_FAILED);
	assert_int_equal(error.native, -5);
	assert_non_null(strstr(error.message, "fake 0 was told to fail at f"));
	memset(&error, 0, sizeof(error));
	assert_int_equal(hys_buffer_write(exec, f->buffers[0], 0, host, 8, &error),
			 HYS_DEVICE_FAILED);
	assert_non_null(strstr(error.message, "told to fail at f"));
	assert_int_equal(hys_exec_record(exec, &event, NULL), HYS_DEVICE_FAILED);
	assert_null(event);
	/* Nothing was done since. */
	assert_string_equal(f->devices[0].log, "f");
	memset(&error, 0, sizeof(error));
	assert_int_equal(hys_exec_finish(exec, &error), HYS_DEVICE_FAILED);
	assert_int_equal(error.native, -5);
	/* And then it goes on. */
	assert_int_equal(hys_buffer_write(exec, f->buffers[0], 0, host, 8, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	hys_exec_destroy(exec);
}

static void test_finish_may_fail(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, 0);

	f->devices[0].fail = 'F';
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_DEVICE_FAILED);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(NULL, NULL), HYS_INVALID_ARGUMENT);
	hys_exec_destroy(exec);
	hys_exec_destroy(NULL);
}

/* ---- threads ---- */

static void test_asynchronous(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, HYS_EXEC_ASYNC);
	char source[BYTES] = "text", target[BYTES] = "";

	f->devices[0].hold = true;
	assert_int_equal(hys_buffer_write(exec, f->buffers[0], 0, source, BYTES, NULL), HYS_OK);
	assert_int_equal(hys_buffer_read(exec, f->buffers[0], 0, target, BYTES, NULL), HYS_OK);
	exec_wait_a_little();
	assert_string_equal(target, "");
	fake_device_open(&f->devices[0], 2);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	assert_string_equal(target, "text");
	assert_false(pthread_equal(f->devices[0].thread, pthread_self()));
	hys_exec_destroy(exec);
}

/* Many more than the ring holds, through every place of it. */
static void test_more_tasks_than_places(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, HYS_EXEC_ASYNC);
	static int32_t values[10000];
	int32_t last = -1;

	for (int32_t i = 0; i < (int32_t)COUNT(values); i++) {
		values[i] = i;
		assert_int_equal(
			hys_buffer_write(exec, f->buffers[0], 4 * (i % 2), &values[i], 4, NULL),
			HYS_OK);
		if (i % 1000 == 999) {
			assert_int_equal(
				hys_buffer_read(exec, f->buffers[0], 4 * (i % 2), &last, 4, NULL),
				HYS_OK);
			assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
			assert_int_equal(last, i);
		}
	}
	hys_exec_destroy(exec);
}

static void test_a_failure_behind_the_callers_back(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, HYS_EXEC_ASYNC);
	struct hys_error error = {HYS_OK, 0, ""};
	hys_status status = HYS_OK;

	f->devices[0].fail = 'f';
	for (int i = 0; status == HYS_OK && i < 100000; i++)
		status = hys_buffer_fill(exec, f->buffers[0], 0, 8, 1, &error);
	assert_int_equal(status, HYS_DEVICE_FAILED);
	assert_non_null(strstr(error.message, "told to fail"));
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_DEVICE_FAILED);
	/* What had been given after it was not done. */
	assert_string_equal(f->devices[0].log, "fF");
	assert_int_equal(hys_buffer_fill(exec, f->buffers[0], 0, 8, 1, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	hys_exec_destroy(exec);
}

static void test_several_devices(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->all, 0);
	char target[DEVICES][BYTES];

	for (int i = 0; i < DEVICES; i++) {
		assert_int_equal(
			hys_buffer_fill(exec, f->buffers[i], 0, BYTES, (uint8_t)(i + 1), NULL),
			HYS_OK);
		assert_int_equal(hys_buffer_read(exec, f->buffers[i], 0, target[i], BYTES, NULL),
				 HYS_OK);
	}
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	for (int i = 0; i < DEVICES; i++) {
		assert_int_equal(target[i][0], i + 1);
		assert_int_equal(target[i][BYTES - 1], i + 1);
		assert_string_equal(f->devices[i].log, "foF");
		assert_false(pthread_equal(f->devices[i].thread, pthread_self()));
	}
	assert_false(pthread_equal(f->devices[0].thread, f->devices[1].thread));
	hys_exec_destroy(exec);
}

/* A failure on one lane stops all others. */
static void test_a_failure_on_one_of_several(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->all, 0);
	struct hys_error error = {HYS_OK, 0, ""};
	hys_status status = HYS_OK;

	f->devices[1].fail = 'f';
	assert_int_equal(hys_buffer_fill(exec, f->buffers[1], 0, 8, 1, NULL), HYS_OK);
	for (int i = 0; status == HYS_OK && i < 100000; i++)
		status = hys_buffer_fill(exec, f->buffers[2], 0, 8, 1, &error);
	assert_int_equal(status, HYS_DEVICE_FAILED);
	assert_non_null(strstr(error.message, "fake 1"));
	assert_int_equal(hys_exec_finish(exec, &error), HYS_DEVICE_FAILED);
	assert_non_null(strstr(error.message, "fake 1"));
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	hys_exec_destroy(exec);
}

static void test_destroying_waits(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, HYS_EXEC_ASYNC);
	static char source[200][BYTES];

	for (int i = 0; i < 200; i++)
		assert_int_equal(hys_buffer_write(exec, f->buffers[0], 0, source[i], BYTES, NULL),
				 HYS_OK);
	hys_exec_destroy(exec);
	assert_int_equal(f->devices[0].length, 201);
}

static void ignore_signal(int number)
{
	(void)number;
}

static void *disturb(void *argument)
{
	for (int i = 0; i < 200; i++) {
		const struct timespec time = {0, 200000};

		pthread_kill(*(pthread_t *)argument, SIGUSR1);
		nanosleep(&time, NULL);
	}
	return NULL;
}

/* Signals interrupt the semaphores that the caller waits at. */
static void test_signals(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, HYS_EXEC_ASYNC);
	struct sigaction quiet = {0}, before;
	pthread_t self = pthread_self(), thread;
	int32_t value = 0;

	quiet.sa_handler = ignore_signal; /* and no SA_RESTART */
	sigaction(SIGUSR1, &quiet, &before);
	f->devices[0].hold = true;
	assert_int_equal(pthread_create(&thread, NULL, disturb, &self), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(hys_buffer_read(exec, f->buffers[0], 0, &value, 4, NULL), HYS_OK);
	fake_device_open(&f->devices[0], 10);
	for (int i = 0; i < 300; i++) {
		fake_device_open(&f->devices[0], 1);
		assert_int_equal(hys_buffer_read(exec, f->buffers[0], 0, &value, 4, NULL), HYS_OK);
	}
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	assert_int_equal(value, (int32_t)0xeeeeeeee);
	pthread_join(thread, NULL);
	sigaction(SIGUSR1, &before, NULL);
	hys_exec_destroy(exec);
}

/* ---- the caller's queues and workspaces ---- */

static void test_native_queue(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec_options options = {.struct_size = sizeof(options)};
	struct hys_exec *exec = NULL;
	int queue;
	void *queues[] = {&queue};
	char host[BYTES] = "";

	options.native_queues = queues;
	assert_int_equal(hys_exec_create(&f->one.plan, &options, &exec, NULL), HYS_OK);
	assert_int_equal(hys_buffer_write(exec, f->buffers[0], 0, host, BYTES, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	/* Waits at a marker; the queue itself is never finished. */
	assert_string_equal(f->devices[0].log, "ire");
	f->devices[0].fail = 'e';
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_DEVICE_FAILED);
	hys_exec_destroy(exec);
	assert_null(strchr(f->devices[0].log, 'F'));
}

static void test_wrong_options(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec_options options = {.struct_size = sizeof(options)};
	struct hys_exec *exec = NULL;
	int queue;
	void *queues[] = {&queue, &queue, &queue}, *none[] = {NULL};
	struct hys_buffer *wrong[] = {f->buffers[1]}, *missing[] = {NULL};
	struct hys_plan *one = &f->one.plan;

	assert_int_equal(hys_exec_create(NULL, &options, &exec, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_exec_create(one, &options, NULL, NULL), HYS_INVALID_ARGUMENT);
	options.struct_size = 4;
	assert_int_equal(hys_exec_create(one, &options, &exec, NULL), HYS_INVALID_ARGUMENT);
	options.struct_size = sizeof(options);
	options.flags = 8;
	assert_int_equal(hys_exec_create(one, &options, &exec, NULL), HYS_INVALID_ARGUMENT);
	options.flags = HYS_EXEC_ASYNC;
	options.native_queues = queues;
	assert_int_equal(hys_exec_create(one, &options, &exec, NULL), HYS_INVALID_ARGUMENT);
	options.flags = HYS_EXEC_TRACE;
	assert_int_equal(hys_exec_create(one, &options, &exec, NULL), HYS_INVALID_ARGUMENT);
	options.flags = 0;
	assert_int_equal(hys_exec_create(&f->all.plan, &options, &exec, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_exec_create(&f->cpu.plan, &options, &exec, NULL),
			 HYS_INVALID_ARGUMENT);
	options.native_queues = none;
	assert_int_equal(hys_exec_create(one, &options, &exec, NULL), HYS_INVALID_ARGUMENT);
	options.native_queues = NULL;
	options.workspaces = wrong;
	assert_int_equal(hys_exec_create(one, &options, &exec, NULL), HYS_INVALID_ARGUMENT);
	options.workspaces = missing;
	assert_int_equal(hys_exec_create(one, &options, &exec, NULL), HYS_INVALID_ARGUMENT);
	assert_null(exec);
}

/* ---- failing to be made ---- */

static void test_devices_that_fail(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = NULL;

	f->devices[2].fail_stream = true;
	assert_int_equal(hys_exec_create(&f->all.plan, NULL, &exec, NULL), HYS_DEVICE_FAILED);
	assert_null(exec);
}

static hys_status make_and_use(struct exec_fixture *f, struct fake_plan *plan)
{
	struct hys_exec_options options = {.struct_size = sizeof(options), .flags = HYS_EXEC_ASYNC};
	struct hys_exec *exec = NULL;
	struct hys_event *event = NULL;
	hys_status status = hys_exec_create(&plan->plan, &options, &exec, NULL);

	(void)f;
	if (status == HYS_OK)
		status = hys_exec_record(exec, &event, NULL);
	if (status == HYS_OK)
		status = hys_exec_wait(exec, event, NULL);
	hys_event_destroy(event);
	hys_exec_destroy(exec);
	return status;
}

static void test_every_allocation_failing(void **state)
{
	struct exec_fixture *f = *state;
	struct fake_plan *plans[] = {&f->one, &f->all, &f->cpu};
	const long live = f->memory.live;

	for (size_t p = 0; p < COUNT(plans); p++) {
		hys_status status = HYS_OUT_OF_MEMORY;

		for (long n = 1; status != HYS_OK; n++) {
			failing_allocator_arm(&f->memory, n);
			status = make_and_use(f, plans[p]);
			assert_true(status == HYS_OK || status == HYS_OUT_OF_MEMORY);
			assert_int_equal(f->memory.live, live);
			assert_int_equal(fake_plan_references(plans[p]), 0);
			assert_true(n < 100);
		}
	}
}

static void test_fork(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->all, 0), *other = NULL;
	struct hys_event *event = NULL, *second = NULL;
	pid_t child;
	int how = 0;
	char host[BYTES] = "";

	assert_int_equal(hys_exec_record(exec, &event, NULL), HYS_OK);
	assert_int_equal(hys_event_wait(event, NULL), HYS_OK);
	child = fork();
	if (child == 0) {
		const bool fine =
			hys_exec_finish(exec, NULL) == HYS_FORKED &&
			hys_exec_record(exec, &second, NULL) == HYS_FORKED &&
			hys_exec_wait(exec, event, NULL) == HYS_FORKED &&
			hys_event_wait(event, NULL) == HYS_FORKED &&
			hys_buffer_write(exec, f->buffers[0], 0, host, 8, NULL) == HYS_FORKED &&
			hys_exec_create(&f->one.plan, NULL, &other, NULL) == HYS_FORKED;

		hys_event_destroy(event);
		hys_exec_destroy(exec); /* and does not wait for threads that are not there */
		_exit(fine && f->devices[0].streams == 1 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &how, 0), child);
	assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
	hys_event_destroy(event);
	hys_exec_destroy(exec);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, exec_set_up, exec_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_copies_in_order),
		TEST(test_copies_between_buffers),
		TEST(test_wrong_copies),
		TEST(test_the_first_failure_stays),
		TEST(test_finish_may_fail),
		TEST(test_asynchronous),
		TEST(test_more_tasks_than_places),
		TEST(test_a_failure_behind_the_callers_back),
		TEST(test_several_devices),
		TEST(test_a_failure_on_one_of_several),
		TEST(test_destroying_waits),
		TEST(test_signals),
		TEST(test_native_queue),
		TEST(test_wrong_options),
		TEST(test_devices_that_fail),
		TEST(test_every_allocation_failing),
		TEST(test_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
