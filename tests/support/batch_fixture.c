#include "batch_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

int batch_set_up(void **state)
{
	struct batch_fixture *f = calloc(1, sizeof(*f));
	struct hys_context_options options = {.struct_size = sizeof(options)};

	assert_non_null(f);
	options.devices = "openmp";
	failing_allocator_use(&f->memory, &options);
	assert_int_equal(hys_context_create(&options, &f->context, NULL), HYS_OK);
	fake_device_init(&f->device, &f->context->host, "fake");
	fake_plan_init(&f->plan, f->context, &f->device, 1);
	f->plan.devices[1] = f->context->devices[0];
	f->plan.plan.device_count = 2;
	f->plan.plan.problem.choosing.coarse_block = 0;
	*state = f;
	return 0;
}

int batch_tear_down(void **state)
{
	struct batch_fixture *f = *state;

	assert_int_equal(fake_plan_references(&f->plan), 0);
	assert_int_equal(f->device.buffers, 0);
	assert_int_equal(f->device.streams, 0);
	fake_device_clear(&f->device);
	hys_context_destroy(f->context);
	assert_int_equal(f->memory.live, 0);
	free(f);
	return 0;
}

struct hys_batch_desc batch_describe(int64_t rows, int64_t keys)
{
	struct hys_batch_desc desc = {.struct_size = sizeof(desc)};

	desc.rows = rows;
	desc.keys = keys;
	return desc;
}

struct hys_batch *batch_make(struct batch_fixture *f, const struct hys_batch_desc *desc)
{
	struct hys_batch *batch = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	if (hys_batch_create(&f->plan.plan, desc, &batch, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return batch;
}
