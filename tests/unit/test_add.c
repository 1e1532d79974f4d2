/* The sums of several devices: target += part, on every device that can. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core.h"
#include "devices_fixture.h"

#define COUNT_MAX 131
#define AT 3 /* elements in front of the target, which must stay */

union word {
	float real;
	int32_t whole;
};

/* Small integers, whose sums are exact as f32, too. */
static union word word_of(hys_dtype dtype, int64_t value)
{
	if (dtype == HYS_I32)
		return (union word){.whole = (int32_t)value};
	return (union word){.real = (float)value};
}

static void copy(struct hys_stream *stream, const struct hys_backend *backend, bool in,
		 struct hys_buffer *buffer, union word *host)
{
	const int64_t bytes = COUNT_MAX * (int64_t)sizeof(*host);
	const struct hys_copy whole = {.host = host,
				       .device = {.buffer = buffer, .bytes = bytes},
				       .bytes = bytes,
				       .count = {1, 1}};

	assert_int_equal((in ? backend->copy_in : backend->copy_out)(stream, &whole, NULL), HYS_OK);
	assert_int_equal(backend->finish(stream, NULL), HYS_OK);
}

static void check_count(struct hys_stream *stream, const struct hys_backend *backend,
			struct hys_buffer *const buffers[2], hys_dtype dtype, int64_t count)
{
	const struct hys_region target = {
		.buffer = buffers[0], .offset_bytes = AT * 4, .bytes = count * 4};
	const struct hys_region part = {.buffer = buffers[1], .bytes = count * 4};
	union word sums[COUNT_MAX], parts[COUNT_MAX];

	for (int64_t i = 0; i < COUNT_MAX; i++) {
		sums[i] = word_of(dtype, 7 * i - 100);
		parts[i] = word_of(dtype, 1000 - 3 * i);
	}
	copy(stream, backend, true, buffers[0], sums);
	copy(stream, backend, true, buffers[1], parts);
	assert_int_equal(backend->add(stream, &target, &part, dtype, NULL), HYS_OK);
	copy(stream, backend, false, buffers[0], sums);
	for (int64_t i = 0; i < COUNT_MAX; i++) {
		const int64_t added = i >= AT && i < AT + count ? 1000 - 3 * (i - AT) : 0;
		const union word expected = word_of(dtype, 7 * i - 100 + added);

		assert_memory_equal(&sums[i], &expected, sizeof(expected));
	}
}

static void test_sums(void **state)
{
	static const int64_t counts[] = {1, 63, 64, 65, COUNT_MAX - AT};
	int32_t tried = 0;

	(void)state;
	for (int32_t d = 0; d < context->device_count; d++) {
		struct hys_device *device = context->devices[d];
		const struct hys_backend *backend = device->backend;
		struct hys_buffer *buffers[2];
		struct hys_stream *stream;

		if (!backend->add)
			continue;
		assert_int_equal(backend->stream_create(device, NULL, &stream, NULL), HYS_OK);
		if (backend->add_prepare)
			assert_int_equal(backend->add_prepare(stream, NULL), HYS_OK);
		for (int32_t i = 0; i < 2; i++)
			assert_int_equal(
				hys_buffer_make(context, device, COUNT_MAX * 4, &buffers[i], NULL),
				HYS_OK);
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			check_count(stream, backend, buffers, HYS_F32, counts[i]);
			check_count(stream, backend, buffers, HYS_I32, counts[i]);
		}
		hys_buffer_destroy(buffers[0]);
		hys_buffer_destroy(buffers[1]);
		backend->stream_destroy(stream);
		print_message("2 x add on %s\n", device->info.name);
		tried++;
	}
	if (tried == 0)
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums)};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
