/*
 * Plans on one and on three fake devices, which must be left without a buffer or a stream.
 */
#ifndef HYS_TEST_STAGE_FIXTURE_H
#define HYS_TEST_STAGE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_case.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DEVICES 3

struct fixture {
	struct hys_context *context;
	struct fake_device devices[DEVICES];
	struct fake_plan one, all;
	struct hys_kernel kernels[HYS_OP_COUNT];
};

static inline int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct hys_context_options options = {.struct_size = sizeof(options), .devices = "openmp"};
	static const char *const names[DEVICES] = {"fake 0", "fake 1", "fake 2"};

	assert_non_null(f);
	assert_int_equal(hys_context_create(&options, &f->context, NULL), HYS_OK);
	for (int i = 0; i < DEVICES; i++)
		fake_device_init(&f->devices[i], &f->context->host, names[i]);
	fake_plan_init(&f->one, f->context, f->devices, 1);
	fake_plan_init(&f->all, f->context, f->devices, DEVICES);
	f->one.plan.problem = f->all.plan.problem = call_case_problem();
	*state = f;
	return 0;
}

static inline int tear_down(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < DEVICES; i++) {
		assert_int_equal(f->devices[i].buffers, 0);
		assert_int_equal(f->devices[i].streams, 0);
		fake_device_clear(&f->devices[i]);
	}
	hys_context_destroy(f->context);
	free(f);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
