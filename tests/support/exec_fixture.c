#include "exec_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

int exec_set_up(void **state)
{
	struct exec_fixture *f = calloc(1, sizeof(*f));
	struct hys_context_options options = {.struct_size = sizeof(options)};
	static const char *const names[DEVICES] = {"fake 0", "fake 1", "fake 2"};

	assert_non_null(f);
	options.devices = "openmp";
	failing_allocator_use(&f->memory, &options);
	assert_int_equal(hys_context_create(&options, &f->context, NULL), HYS_OK);
	for (int i = 0; i < DEVICES; i++) {
		fake_device_init(&f->devices[i], &f->context->host, names[i]);
		assert_int_equal(hys_buffer_make(f->context, &f->devices[i].base, BYTES,
						 &f->buffers[i], NULL),
				 HYS_OK);
	}
	fake_plan_init(&f->one, f->context, f->devices, 1);
	fake_plan_init(&f->two, f->context, f->devices + 1, 1);
	fake_plan_init(&f->all, f->context, f->devices, DEVICES);
	fake_plan_init(&f->cpu, f->context, f->devices, 1);
	f->cpu.devices[0] = f->context->devices[0];
	*state = f;
	return 0;
}

int exec_tear_down(void **state)
{
	struct exec_fixture *f = *state;

	for (int i = 0; i < DEVICES; i++) {
		hys_buffer_destroy(f->buffers[i]);
		assert_int_equal(f->devices[i].buffers, 0);
		assert_int_equal(f->devices[i].streams, 0);
		assert_int_equal(f->devices[i].events, 0);
		fake_device_clear(&f->devices[i]);
	}
	assert_int_equal(fake_plan_references(&f->one), 0);
	assert_int_equal(fake_plan_references(&f->two), 0);
	assert_int_equal(fake_plan_references(&f->all), 0);
	assert_int_equal(fake_plan_references(&f->cpu), 0);
	hys_context_destroy(f->context);
	assert_int_equal(f->memory.live, 0);
	free(f);
	return 0;
}

struct hys_exec *exec_make(struct fake_plan *plan, uint32_t flags)
{
	struct hys_exec_options options = {.struct_size = sizeof(options), .flags = flags};
	struct hys_exec *exec = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	if (hys_exec_create(&plan->plan, &options, &exec, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return exec;
}

void exec_wait_a_little(void)
{
	const struct timespec time = {0, 20000000};

	nanosleep(&time, NULL);
}
