/* Events between lanes, devices and threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "exec_fixture.h"

static void test_an_event_on_one_device(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *a = exec_make(&f->one, 0), *b = exec_make(&f->one, 0);
	struct hys_event *event = NULL;

	assert_int_equal(hys_exec_record(a, &event, NULL), HYS_OK);
	assert_int_equal(hys_exec_wait(b, event, NULL), HYS_OK);
	hys_event_destroy(event);
	/* The device waits, nobody blocks. */
	assert_string_equal(f->devices[0].log, "rw");
	assert_int_equal(hys_exec_finish(b, NULL), HYS_OK);
	hys_exec_destroy(a);
	hys_exec_destroy(b);
}

static void test_an_event_is_asked(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *all = exec_make(&f->all, HYS_EXEC_ASYNC);
	struct hys_event *event = NULL;

	assert_int_equal(hys_event_reached(NULL), 0);
	f->devices[1].hold = true;
	assert_int_equal(hys_buffer_fill(all, f->buffers[1], 0, 1, 1, NULL), HYS_OK);
	assert_int_equal(hys_exec_record(all, &event, NULL), HYS_OK);
	exec_wait_a_little();
	assert_int_equal(hys_event_reached(event), 0);
	fake_device_open(&f->devices[1], 1);
	assert_int_equal(hys_event_wait(event, NULL), HYS_OK);
	assert_int_equal(hys_event_reached(event), 1);
	assert_int_equal(hys_event_reached(event), 1);
	hys_event_destroy(event);
	hys_exec_destroy(all);
}

static void test_an_event_of_another_device(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *a = exec_make(&f->one, 0), *b = exec_make(&f->two, 0);
	struct hys_event *event = NULL;

	assert_int_equal(hys_exec_record(a, &event, NULL), HYS_OK);
	assert_int_equal(hys_exec_wait(b, event, NULL), HYS_OK);
	hys_event_destroy(event);
	assert_string_equal(f->devices[0].log, "r");
	assert_string_equal(f->devices[1].log, "w");
	hys_exec_destroy(a);
	hys_exec_destroy(b);
}

static void test_an_event_of_work_that_has_not_begun(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *a = exec_make(&f->one, HYS_EXEC_ASYNC),
			*b = exec_make(&f->two, HYS_EXEC_ASYNC);
	struct hys_event *event = NULL;
	char source[BYTES] = "from a", target[BYTES] = "", other[BYTES] = "";

	f->devices[0].hold = true;
	assert_int_equal(hys_buffer_write(a, f->buffers[0], 0, source, BYTES, NULL), HYS_OK);
	assert_int_equal(hys_buffer_read(a, f->buffers[0], 0, target, BYTES, NULL), HYS_OK);
	assert_int_equal(hys_exec_record(a, &event, NULL), HYS_OK);
	assert_int_equal(hys_exec_wait(b, event, NULL), HYS_OK);
	hys_event_destroy(event);
	/* b copies on what a has read: it must come later. */
	assert_int_equal(hys_buffer_write(b, f->buffers[1], 0, target, BYTES, NULL), HYS_OK);
	assert_int_equal(hys_buffer_read(b, f->buffers[1], 0, other, BYTES, NULL), HYS_OK);
	exec_wait_a_little();
	assert_int_equal(f->devices[1].length, 0);
	fake_device_open(&f->devices[0], 2);
	assert_int_equal(hys_exec_finish(b, NULL), HYS_OK);
	assert_string_equal(other, "from a");
	assert_int_equal(hys_exec_finish(a, NULL), HYS_OK);
	hys_exec_destroy(a);
	hys_exec_destroy(b);
}

static void *wait_for(void *event)
{
	return hys_event_wait(event, NULL) == HYS_OK ? event : NULL;
}

static void test_many_wait_for_one_event(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, HYS_EXEC_ASYNC);
	struct hys_event *event = NULL;
	pthread_t threads[4];
	void *answer;

	f->devices[0].hold = true;
	assert_int_equal(hys_buffer_fill(exec, f->buffers[0], 0, 1, 1, NULL), HYS_OK);
	assert_int_equal(hys_exec_record(exec, &event, NULL), HYS_OK);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, wait_for, event), 0);
	exec_wait_a_little();
	fake_device_open(&f->devices[0], 1);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &answer);
		assert_ptr_equal(answer, event);
	}
	assert_int_equal(hys_event_wait(event, NULL), HYS_OK);
	hys_event_destroy(event);
	hys_exec_destroy(exec);
}

static void test_events_of_several_devices(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *all = exec_make(&f->all, 0), *one = exec_make(&f->one, 0);
	struct hys_event *event = NULL;

	assert_int_equal(hys_exec_record(all, &event, NULL), HYS_OK);
	assert_int_equal(hys_exec_wait(one, event, NULL), HYS_OK);
	hys_event_destroy(event);
	assert_int_equal(hys_exec_finish(one, NULL), HYS_OK);
	assert_string_equal(f->devices[0].log, "rwwwF");
	assert_string_equal(f->devices[1].log, "r");
	assert_string_equal(f->devices[2].log, "r");
	assert_int_equal(hys_exec_record(one, &event, NULL), HYS_OK);
	assert_int_equal(hys_exec_wait(all, event, NULL), HYS_OK);
	hys_event_destroy(event);
	assert_int_equal(hys_exec_finish(all, NULL), HYS_OK);
	hys_exec_destroy(one);
	hys_exec_destroy(all);
}

static void test_an_event_outlives_its_exec(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, HYS_EXEC_ASYNC);
	struct hys_event *event = NULL;

	assert_int_equal(hys_exec_record(exec, &event, NULL), HYS_OK);
	hys_exec_destroy(exec);
	assert_int_equal(hys_event_wait(event, NULL), HYS_OK);
	hys_event_destroy(event);
	hys_event_destroy(NULL);
}

/* Others may be waiting: an event is reached even when its lane failed. */
static void test_events_behind_a_failure(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *a = exec_make(&f->one, HYS_EXEC_ASYNC),
			*b = exec_make(&f->two, HYS_EXEC_ASYNC);
	struct hys_event *event = NULL;

	f->devices[0].hold = true;
	f->devices[0].fail = 'f';
	assert_int_equal(hys_buffer_fill(a, f->buffers[0], 0, 1, 1, NULL), HYS_OK);
	assert_int_equal(hys_exec_record(a, &event, NULL), HYS_OK);
	assert_int_equal(hys_exec_wait(b, event, NULL), HYS_OK);
	fake_device_open(&f->devices[0], 1);
	assert_int_equal(hys_exec_finish(b, NULL), HYS_OK);
	assert_int_equal(hys_event_wait(event, NULL), HYS_OK);
	hys_event_destroy(event);
	assert_int_equal(hys_exec_finish(a, NULL), HYS_DEVICE_FAILED);
	hys_exec_destroy(a);
	hys_exec_destroy(b);
}

static void test_events_that_fail(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *a = exec_make(&f->one, 0), *b = exec_make(&f->one, 0),
			*c = exec_make(&f->cpu, 0);
	struct hys_event *event = NULL;

	f->devices[0].fail = 'r';
	assert_int_equal(hys_exec_record(a, &event, NULL), HYS_DEVICE_FAILED);
	assert_null(event);
	assert_int_equal(hys_exec_finish(a, NULL), HYS_DEVICE_FAILED);
	assert_int_equal(hys_exec_record(a, &event, NULL), HYS_OK);
	f->devices[0].fail = 'w';
	assert_int_equal(hys_exec_wait(b, event, NULL), HYS_DEVICE_FAILED);
	assert_int_equal(hys_exec_finish(b, NULL), HYS_DEVICE_FAILED);
	f->devices[0].fail = 'e';
	assert_int_equal(hys_exec_wait(c, event, NULL), HYS_DEVICE_FAILED);
	assert_int_equal(hys_exec_finish(c, NULL), HYS_DEVICE_FAILED);
	f->devices[0].fail = 'e';
	assert_int_equal(hys_event_wait(event, NULL), HYS_DEVICE_FAILED);
	assert_int_equal(hys_event_wait(event, NULL), HYS_OK);
	hys_event_destroy(event);
	hys_exec_destroy(a);
	hys_exec_destroy(b);
	hys_exec_destroy(c);
}

static void test_events_without_arguments(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *exec = exec_make(&f->one, 0);
	struct hys_event *event = NULL;

	assert_int_equal(hys_exec_record(NULL, &event, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_exec_record(exec, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_exec_wait(exec, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_event_wait(NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_exec_record(exec, &event, NULL), HYS_OK);
	assert_int_equal(hys_exec_wait(NULL, event, NULL), HYS_INVALID_ARGUMENT);
	hys_event_destroy(event);
	hys_exec_destroy(exec);
}

/* The processor does its work as it is given: its events are nothing. */
static void test_events_of_the_processor(void **state)
{
	struct exec_fixture *f = *state;
	struct hys_exec *cpu = exec_make(&f->cpu, 0), *fake = exec_make(&f->one, 0);
	struct hys_event *event = NULL;

	assert_int_equal(hys_exec_record(cpu, &event, NULL), HYS_OK);
	assert_int_equal(hys_exec_wait(fake, event, NULL), HYS_OK);
	assert_int_equal(hys_event_wait(event, NULL), HYS_OK);
	hys_event_destroy(event);
	assert_string_equal(f->devices[0].log, "");
	assert_int_equal(hys_exec_record(fake, &event, NULL), HYS_OK);
	assert_int_equal(hys_exec_wait(cpu, event, NULL), HYS_OK);
	hys_event_destroy(event);
	assert_string_equal(f->devices[0].log, "re");
	hys_exec_destroy(cpu);
	hys_exec_destroy(fake);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, exec_set_up, exec_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_an_event_on_one_device),
		TEST(test_an_event_is_asked),
		TEST(test_an_event_of_another_device),
		TEST(test_an_event_of_work_that_has_not_begun),
		TEST(test_many_wait_for_one_event),
		TEST(test_events_of_several_devices),
		TEST(test_an_event_outlives_its_exec),
		TEST(test_events_behind_a_failure),
		TEST(test_events_that_fail),
		TEST(test_events_without_arguments),
		TEST(test_events_of_the_processor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
