/* Batches that cannot be made, and their copies on devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "batch_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- wrong descriptions ---- */

static const int32_t cu_fine[] = {0, 2, 4}, cu_start[] = {1, 2, 4}, cu_falls[] = {0, 3, 2},
		     cu_short[] = {0, 2, 3}, cu_long[] = {0, 2, 5}, cu_negative[] = {0, -1, 4};
static const int32_t zeros[] = {0, 0, 0, 0}, fours[] = {4, 4, 4, 4}, fives[] = {4, 4, 5, 4},
		     minus[] = {0, -1, 0, 0}, large[] = {0, 0, 4, 0}, ones[] = {1, 1, 1, 1};

struct wrong {
	const char *message; /* part of it */
	struct hys_batch_desc desc;
	int32_t pool;
};

#define DESC(...)                                                                               \
	{                                                                                       \
		.struct_size = sizeof(struct hys_batch_desc), .rows = 4, .keys = 4, __VA_ARGS__ \
	}
#define DOCS(q) .documents = 2, .cu_seqlens_q = q
#define ROWS(b, e) .row_begin = b, .row_end = e
#define INDICES(b, e) .index_begin = b, .index_end = e

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const struct wrong wrongs[] = {
	{"struct_size", {.struct_size = 8, .rows = 4, .keys = 4}, 1},
	{"desc.rows is -1", DESC(.rows = -1), 1},
	{"desc.rows is 2147483648", DESC(.rows = INT64_C(2147483648)), 1},
	{"desc.keys is -1", DESC(.keys = -1), 1},
	{"desc.keys is 1025", DESC(.keys = 1025), 1},
	{"desc.keys is 2147483648", DESC(.keys = INT64_C(2147483648)), 1},
	{"desc.flags is 0x2", DESC(.flags = 2), 1},
	{"desc.window is -3", DESC(.window = -3), 1},
	{"desc.documents is -1", DESC(.documents = -1), 1},
	{"desc.entries is -1", DESC(.entries = -1), 1},
	{"desc.entries is 3", DESC(.entries = 3), 1},
	{"desc.window_keys is -1", DESC(.window_keys = -1), 1},
	{"desc.window_keys is 9999", DESC(.window_keys = 9999), 1},
	{"window_begin is NULL", DESC(.window_keys = 4), 1},
	{"cu_seqlens_q is NULL", DESC(.documents = 2), 1},
	{"desc.documents is 0", DESC(.cu_seqlens_q = cu_fine), 1},
	{"cu_seqlens_k", DESC(.cu_seqlens_k = cu_fine), 1},
	{"cu_seqlens_q[0] is 1", DESC(DOCS(cu_start)), 1},
	{"cu_seqlens_q[2] is 2", DESC(DOCS(cu_falls)), 1},
	{"cu_seqlens_q[2], the last, is 3", DESC(DOCS(cu_short)), 1},
	{"cu_seqlens_q[2], the last, is 5", DESC(DOCS(cu_long)), 1},
	{"cu_seqlens_q[1] is -1", DESC(DOCS(cu_negative)), 1},
	{"cu_seqlens_k[2], the last, is 5", DESC(DOCS(cu_fine), .cu_seqlens_k = cu_long), 1},
	{"cu_seqlens_k[1] is -1", DESC(DOCS(cu_fine), .cu_seqlens_k = cu_negative), 1},
	{"cu_seqlens_q (for keys too)", DESC(DOCS(cu_fine), .keys = 9), 1},
	{"positions[1] is -1", DESC(.positions = minus), 1},
	{"positions[2] is 4", DESC(.positions = large), 1},
	{"row_begin and row_end", DESC(.row_begin = zeros), 1},
	{"row_begin and row_end", DESC(.row_end = fours), 1},
	{"index_begin and index_end", DESC(ROWS(zeros, fours), .index_begin = zeros), 1},
	{"index_begin is set", DESC(INDICES(zeros, fours)), 1},
	{"window_begin and window_end", DESC(.window_end = fours), 1},
	{"CAUSAL", DESC(ROWS(zeros, fours), .flags = HYS_BATCH_CAUSAL), 1},
	{"desc.window", DESC(ROWS(zeros, fours), .window = 3), 1},
	{"desc.positions", DESC(ROWS(zeros, fours), .positions = zeros), 1},
	{"row_begin[1] is -1", DESC(ROWS(minus, fours)), 1},
	{"row_end[2] is 5", DESC(ROWS(zeros, fives)), 1},
	{"row_end[0] is 0", DESC(ROWS(ones, zeros)), 1},
	{"row_begin[0] and row_end are 0 and 4", DESC(DOCS(cu_fine), ROWS(zeros, fours)), 1},
	{"index_begin is NULL", DESC(ROWS(zeros, fours)), 2},
	{"index_end[0] is 4", DESC(ROWS(zeros, fours), INDICES(zeros, fours)), 2},
	{"index_begin[1] is -1", DESC(ROWS(zeros, fours), INDICES(minus, ones)), 2},
	{"desc.entries is 3", DESC(ROWS(zeros, fours), INDICES(zeros, ones), .entries = 3), 2},
	{"desc.entries is 1",
	 DESC(DOCS(cu_fine), ROWS(zeros, zeros), INDICES(zeros, zeros), .entries = 1), 2},
	{"window_begin[1] is -1",
	 DESC(.window_begin = minus, .window_end = fours, .window_keys = 4), 1},
	{"window_end[0] is 4", DESC(.window_begin = zeros, .window_end = fours, .window_keys = 3),
	 1},
};
#pragma GCC diagnostic pop

static void test_wrong_descriptions(void **state)
{
	struct batch_fixture *f = *state;

	for (size_t i = 0; i < COUNT(wrongs); i++) {
		struct hys_batch *batch = NULL;
		struct hys_error error = {HYS_OK, 0, ""};

		f->plan.plan.problem.scoring.pool = wrongs[i].pool;
		if (hys_batch_create(&f->plan.plan, &wrongs[i].desc, &batch, &error) !=
		    HYS_INVALID_ARGUMENT)
			fail_msg("accepted: %s", wrongs[i].message);
		if (!strstr(error.message, wrongs[i].message))
			fail_msg("%s, expected %s", error.message, wrongs[i].message);
		assert_null(batch);
	}
}

static void test_null_arguments(void **state)
{
	struct batch_fixture *f = *state;
	const struct hys_batch_desc desc = batch_describe(1, 1);
	struct hys_batch *batch = NULL;

	assert_int_equal(hys_batch_create(NULL, &desc, &batch, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_batch_create(&f->plan.plan, NULL, &batch, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_batch_create(&f->plan.plan, &desc, NULL, NULL), HYS_INVALID_ARGUMENT);
	hys_batch_destroy(NULL);
	assert_int_equal(hys_batch_rows(NULL), 0);
	assert_int_equal(hys_batch_key_pairs(NULL), 0);
}

/* rows_max bounds calls, not batches. */
static void test_more_rows_than_the_plans_calls(void **state)
{
	struct hys_batch_desc desc = batch_describe(5000, 1000);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	b = batch_make(*state, &desc);
	assert_int_equal(hys_batch_rows(b), 5000);
	hys_batch_destroy(b);
}

/* ---- devices ---- */

static const int32_t *in_memory(const struct hys_tensor *tensor)
{
	const char *start = tensor->buffer ? tensor->buffer->native : tensor->host;

	assert_int_equal(tensor->dtype, HYS_I32);
	assert_int_equal(tensor->rank, 1);
	assert_int_equal(tensor->stride[0], 1);
	return (const int32_t *)(const void *)start + tensor->offset;
}

static void compare(const struct hys_tensor *tensor, const int32_t *array, int64_t first,
		    int64_t count)
{
	assert_int_equal(tensor->shape[0], count);
	if (count > 0)
		assert_memory_equal(in_memory(tensor), array + first, (size_t)count * 4);
}

static void test_copies_on_devices(void **state)
{
	const int32_t q[] = {0, 7, 20};
	struct batch_fixture *f = *state;
	struct hys_batch_desc desc = batch_describe(20, 20);
	struct hys_batch *b;

	f->plan.plan.problem.scoring.pool = 2;
	f->plan.plan.problem.choosing.coarse_block = 2;
	f->plan.plan.operations = HYS_OP_BIT(HYS_OP_POOL);
	desc.flags = HYS_BATCH_CAUSAL;
	desc.documents = 2;
	desc.cu_seqlens_q = q;
	b = batch_make(f, &desc);
	assert_string_equal(f->device.log, "iF");
	assert_non_null(b->buffers[0]);
	assert_null(b->buffers[1]);
	assert_int_equal(hys_batch_bytes(b), b->buffers[0]->bytes);
	for (int32_t d = 0; d < 2; d++) {
		const struct hys_batch_view all = b->views[d];
		const struct hys_batch_view part = hys_batch_slice(b, d, 5, 9);
		const struct hys_batch_view none = hys_batch_slice(b, d, 20, 0);

		compare(&all.row_end, b->host.row_end, 0, 20);
		compare(&part.row_begin, b->host.row_begin, 5, 9);
		compare(&part.row_end, b->host.row_end, 5, 9);
		compare(&part.index_begin, b->host.index_begin, 5, 9);
		compare(&part.index_end, b->host.index_end, 5, 9);
		compare(&part.key_origin, b->host.key_origin, 5, 9);
		compare(&part.entry_origin, b->host.entry_origin, 5, 9);
		compare(&part.coarse_base, b->host.coarse_base, 5, 9);
		compare(&part.coarse_entry, b->host.coarse_entry, 0, b->coarse_blocks);
		compare(&part.coarse_doc, b->host.coarse_doc, 0, b->coarse_blocks);
		compare(&part.entry_key, b->host.entry_key, 0, b->entries);
		compare(&part.entry_doc, b->host.entry_doc, 0, b->entries);
		compare(&part.key_entry, b->host.key_entry, 0, b->keys);
		compare(&part.entry_block, b->host.entry_block, 0, b->entries);
		assert_false(hys_present(&part.window_begin));
		compare(&none.row_begin, b->host.row_begin, 20, 0);
	}
	assert_true((uintptr_t)in_memory(&b->views[1].row_end) % 64 == 0);
	assert_int_equal(b->views[0].row_end.offset * 4 % HYS_ALIGN, 0);
	hys_batch_destroy(b);
}

static void test_devices_that_fail(void **state)
{
	struct batch_fixture *f = *state;
	const struct hys_batch_desc desc = batch_describe(3, 3);
	struct hys_batch *batch = NULL;
	const char *letters = "iF";

	for (const char *letter = letters; *letter; letter++) {
		f->device.fail = *letter;
		assert_int_equal(hys_batch_create(&f->plan.plan, &desc, &batch, NULL),
				 HYS_DEVICE_FAILED);
	}
	f->device.fail_stream = true;
	assert_int_equal(hys_batch_create(&f->plan.plan, &desc, &batch, NULL), HYS_DEVICE_FAILED);
	f->device.fail_buffer = true;
	assert_int_equal(hys_batch_create(&f->plan.plan, &desc, &batch, NULL), HYS_OUT_OF_MEMORY);
	assert_null(batch);
}

static void test_every_allocation_failing(void **state)
{
	const int32_t q[] = {0, 7, 20};
	struct batch_fixture *f = *state;
	struct hys_batch_desc desc = batch_describe(20, 20);
	hys_status status = HYS_OUT_OF_MEMORY;
	const long live = f->memory.live;

	f->plan.plan.problem.choosing.coarse_block = 2;
	desc.documents = 2;
	desc.cu_seqlens_q = q;
	for (long n = 1; status != HYS_OK; n++) {
		struct hys_batch *batch = NULL;

		failing_allocator_arm(&f->memory, n);
		status = hys_batch_create(&f->plan.plan, &desc, &batch, NULL);
		assert_true(status == HYS_OK || status == HYS_OUT_OF_MEMORY);
		assert_int_equal(batch != NULL, status == HYS_OK);
		hys_batch_destroy(batch);
		assert_int_equal(f->memory.live, live);
		assert_true(n < 100);
	}
	failing_allocator_arm(&f->memory, 0);
}

static void test_a_batch_holds_its_plan(void **state)
{
	struct batch_fixture *f = *state;
	const struct hys_batch_desc desc = batch_describe(3, 3);
	struct hys_batch *b = batch_make(f, &desc);

	assert_int_equal(fake_plan_references(&f->plan), 1);
	hys_batch_destroy(b);
	assert_int_equal(fake_plan_references(&f->plan), 0);
}

static void test_fork(void **state)
{
	struct batch_fixture *f = *state;
	const struct hys_batch_desc desc = batch_describe(3, 3);
	struct hys_batch *b = batch_make(f, &desc), *other = NULL;
	const pid_t child = fork();
	int how = 0;

	if (child == 0) {
		const bool fine =
			hys_batch_create(&f->plan.plan, &desc, &other, NULL) == HYS_FORKED &&
			!other;

		hys_batch_destroy(b);
		_exit(fine && f->device.buffers == 1 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &how, 0), child);
	assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
	hys_batch_destroy(b);
}

/* A million rows of a million keys: pairs do not fit in 32 bits. */
static void test_a_million_rows(void **state)
{
	struct batch_fixture *f = *state;
	struct hys_batch_desc desc = batch_describe(1 << 20, 1 << 20);
	struct hys_batch *b;

	f->plan.plan.keys_max = desc.keys;
	f->plan.plan.problem.choosing.coarse_block = 128;
	desc.flags = HYS_BATCH_CAUSAL;
	b = batch_make(f, &desc);
	assert_int_equal(hys_batch_key_pairs(b), ((INT64_C(1) << 40) + (1 << 20)) / 2);
	assert_int_equal(hys_batch_coarse_blocks(b), 8192);
	assert_int_equal(b->host.row_end[(1 << 20) - 1], 1 << 20);
	hys_batch_destroy(b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, batch_set_up, batch_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_wrong_descriptions),
		TEST(test_null_arguments),
		TEST(test_more_rows_than_the_plans_calls),
		TEST(test_copies_on_devices),
		TEST(test_devices_that_fail),
		TEST(test_every_allocation_failing),
		TEST(test_a_batch_holds_its_plan),
		TEST(test_fork),
		TEST(test_a_million_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
