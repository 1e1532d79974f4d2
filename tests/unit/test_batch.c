#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "failing_allocator.h"
#include "fake_backend.h"
#include "rng.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A plan over this machine's processor and a fake device with memory of its
 * own; the tests set the problem and the operations. */
struct fixture {
	struct failing_allocator memory;
	struct hys_context *context;
	struct fake_device device;
	struct fake_plan plan;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
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

static int tear_down(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(fake_plan_references(&f->plan), 0);
	assert_int_equal(f->device.buffers, 0);
	assert_int_equal(f->device.streams, 0);
	fake_device_clear(&f->device);
	hys_context_destroy(f->context);
	assert_int_equal(f->memory.live, 0);
	free(f);
	return 0;
}

static struct hys_batch_desc describe(int64_t rows, int64_t keys)
{
	struct hys_batch_desc desc = {.struct_size = sizeof(desc)};

	desc.rows = rows;
	desc.keys = keys;
	return desc;
}

static struct hys_batch *make(struct fixture *f, const struct hys_batch_desc *desc)
{
	struct hys_batch *batch = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	if (hys_batch_create(&f->plan.plan, desc, &batch, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return batch;
}

static void expect(const int32_t *array, const int32_t *expected, size_t count)
{
	assert_non_null(array);
	for (size_t i = 0; i < count; i++)
		if (array[i] != expected[i])
			fail_msg("element %zu is %d, expected %d", i, array[i], expected[i]);
}

#define EXPECT(array, ...)                                  \
	do {                                                \
		const int32_t expected_[] = {__VA_ARGS__};  \
		expect(array, expected_, COUNT(expected_)); \
	} while (0)

/* ---- descriptions ---- */

static void test_one_causal_document(void **state)
{
	struct hys_batch_desc desc = describe(4, 4);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	b = make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 0, 0, 0);
	EXPECT(b->host.row_end, 1, 2, 3, 4);
	EXPECT(b->host.index_begin, 0, 0, 0, 0);
	EXPECT(b->host.index_end, 1, 2, 3, 4);
	assert_int_equal(hys_batch_rows(b), 4);
	assert_int_equal(hys_batch_keys(b), 4);
	assert_int_equal(hys_batch_entries(b), 4);
	assert_int_equal(hys_batch_coarse_blocks(b), 0);
	assert_int_equal(hys_batch_key_pairs(b), 10);
	assert_int_equal(hys_batch_entry_pairs(b), 10);
	assert_null(b->host.window_begin);
	assert_null(b->host.coarse_base);
	assert_null(b->host.entry_key);
	hys_batch_destroy(b);
}

static void test_not_causal(void **state)
{
	struct hys_batch_desc desc = describe(2, 5);
	struct hys_batch *b = make(*state, &desc);

	EXPECT(b->host.row_begin, 0, 0);
	EXPECT(b->host.row_end, 5, 5);
	assert_int_equal(hys_batch_key_pairs(b), 10);
	hys_batch_destroy(b);
}

static void test_rows_are_the_last_of_the_keys(void **state)
{
	struct hys_batch_desc desc = describe(3, 10);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	b = make(*state, &desc);
	EXPECT(b->host.row_end, 8, 9, 10);
	hys_batch_destroy(b);
}

static void test_more_rows_than_keys(void **state)
{
	struct hys_batch_desc desc = describe(5, 2);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	b = make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 0, 0, 0, 0);
	EXPECT(b->host.row_end, 0, 0, 0, 1, 2);
	assert_int_equal(hys_batch_key_pairs(b), 3);
	hys_batch_destroy(b);
}

static void test_documents_of_length_zero_and_one(void **state)
{
	const int32_t cu[] = {0, 0, 1, 1, 4, 4};
	struct hys_batch_desc desc = describe(4, 4);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	desc.documents = 5;
	desc.cu_seqlens_q = cu;
	b = make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 1, 1, 1);
	EXPECT(b->host.row_end, 1, 2, 3, 4);
	EXPECT(b->host.key_origin, 0, 1, 1, 1);
	hys_batch_destroy(b);
}

static void test_documents_with_other_numbers_of_keys(void **state)
{
	const int32_t q[] = {0, 2, 3, 5}, k[] = {0, 3, 3, 9};
	struct hys_batch_desc desc = describe(5, 9);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	desc.documents = 3;
	desc.cu_seqlens_q = q;
	desc.cu_seqlens_k = k;
	b = make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 0, 3, 3, 3);
	EXPECT(b->host.row_end, 2, 3, 3, 8, 9);
	hys_batch_destroy(b);
}

static void test_window(void **state)
{
	struct hys_batch_desc desc = describe(5, 5);
	struct hys_batch *b;

	desc.window = 2; /* means causal even where the flag does not say so */
	b = make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 0, 1, 2, 3);
	EXPECT(b->host.row_end, 1, 2, 3, 4, 5);
	hys_batch_destroy(b);
}

static void test_a_window_larger_than_int32_sums(void **state)
{
	struct hys_batch_desc desc = describe(3, 3);
	struct hys_batch *b;

	desc.window = INT32_MAX;
	b = make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 0, 0);
	EXPECT(b->host.row_end, 1, 2, 3);
	hys_batch_destroy(b);
}

static void test_positions(void **state)
{
	const int32_t positions[] = {0, 1, 6, 7}; /* the first rank's zigzag shard of 8 */
	struct hys_batch_desc desc = describe(4, 8);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	desc.positions = positions;
	b = make(*state, &desc);
	EXPECT(b->host.row_end, 1, 2, 7, 8);
	hys_batch_destroy(b);
}

static void test_pooled_entries(void **state)
{
	const int32_t q[] = {0, 6, 9};
	struct fixture *f = *state;
	struct hys_batch_desc desc = describe(9, 9);
	struct hys_batch *b;

	f->plan.plan.problem.scoring.pool = 4;
	desc.flags = HYS_BATCH_CAUSAL;
	desc.documents = 2;
	desc.cu_seqlens_q = q;
	b = make(f, &desc);
	/* Six keys own one entry, three own none. */
	assert_int_equal(hys_batch_entries(b), 1);
	EXPECT(b->host.index_begin, 0, 0, 0, 0, 0, 0, 1, 1, 1);
	EXPECT(b->host.index_end, 0, 0, 0, 1, 1, 1, 1, 1, 1);
	EXPECT(b->host.entry_origin, 0, 0, 0, 0, 0, 0, 1, 1, 1);
	assert_int_equal(hys_batch_entry_pairs(b), 3);
	hys_batch_destroy(b);
}

static void test_no_rows_and_no_keys(void **state)
{
	struct fixture *f = *state;
	struct hys_batch_desc desc = describe(0, 0);
	struct hys_batch *b;

	f->plan.plan.problem.choosing.coarse_block = 4;
	f->plan.plan.operations = HYS_OP_BIT(HYS_OP_POOL);
	b = make(f, &desc);
	assert_int_equal(hys_batch_rows(b), 0);
	assert_int_equal(hys_batch_key_pairs(b), 0);
	assert_true(hys_present(&b->views[0].row_begin));
	assert_true(hys_present(&b->views[1].entry_block));
	hys_batch_destroy(b);
	desc.rows = 3;
	b = make(f, &desc);
	EXPECT(b->host.row_begin, 0, 0, 0);
	EXPECT(b->host.row_end, 0, 0, 0);
	hys_batch_destroy(b);
}

/* ---- against the definition, key by key ---- */

struct random_case {
	int32_t documents, q[8], k[8], window, pool, coarse, *positions;
	bool causal;
};

static void draw(struct rng *rng, struct random_case *c)
{
	c->documents = (int32_t)rng_range(rng, 1, 7);
	c->causal = rng_range(rng, 0, 4) != 0;
	c->window = rng_range(rng, 0, 2) ? (int32_t)rng_range(rng, 1, 12) : 0;
	c->pool = (int32_t)rng_range(rng, 1, 5);
	c->coarse = (int32_t)rng_range(rng, 1, 4);
	c->q[0] = c->k[0] = 0;
	for (int d = 0; d < c->documents; d++) {
		c->q[d + 1] = c->q[d] + (int32_t)rng_range(rng, 0, 12);
		c->k[d + 1] = c->k[d] + (int32_t)rng_range(rng, 0, 25);
	}
}

static bool sees_key(const struct random_case *c, int64_t position, int64_t key)
{
	if (c->window > 0)
		return key <= position && key > position - c->window;
	return !c->causal || key <= position;
}

/* A row sees an entry when it sees all of its keys. */
static bool sees_entry(const struct random_case *c, int64_t position, int64_t entry)
{
	for (int64_t key = entry * c->pool; key < (entry + 1) * c->pool; key++)
		if (!sees_key(c, position, key))
			return false;
	return true;
}

static void check_interval(int32_t begin, int32_t end, int32_t origin, int64_t count,
			   bool (*sees)(const struct random_case *, int64_t, int64_t),
			   const struct random_case *c, int64_t position)
{
	assert_true(begin <= end);
	assert_true(begin >= origin && end <= origin + count);
	for (int64_t i = 0; i < count; i++)
		assert_int_equal(sees(c, position, i), origin + i >= begin && origin + i < end);
}

static int32_t entries_before(const struct random_case *c, int32_t document)
{
	int32_t entries = 0;

	for (int32_t d = 0; d < document; d++)
		entries += (c->k[d + 1] - c->k[d]) / c->pool;
	return entries;
}

static void check_rows(const struct random_case *c, const struct hys_batch *b)
{
	int64_t key_pairs = 0, entry_pairs = 0;

	for (int32_t d = 0; d < c->documents; d++) {
		const int64_t n_q = c->q[d + 1] - c->q[d], n_k = c->k[d + 1] - c->k[d];
		const int32_t entry = entries_before(c, d);

		for (int32_t t = c->q[d]; t < c->q[d + 1]; t++) {
			const int64_t p =
				c->positions ? c->positions[t] : n_k - n_q + (t - c->q[d]);

			check_interval(b->host.row_begin[t], b->host.row_end[t], c->k[d], n_k,
				       sees_key, c, p);
			check_interval(b->host.index_begin[t], b->host.index_end[t], entry,
				       n_k / c->pool, sees_entry, c, p);
			assert_int_equal(b->host.key_origin[t], c->k[d]);
			assert_int_equal(b->host.entry_origin[t], entry);
			assert_int_equal(b->key_pairs_before[t], key_pairs);
			assert_int_equal(b->entry_pairs_before[t], entry_pairs);
			key_pairs += b->host.row_end[t] - b->host.row_begin[t];
			entry_pairs += b->host.index_end[t] - b->host.index_begin[t];
		}
	}
	assert_int_equal(hys_batch_key_pairs(b), key_pairs);
	assert_int_equal(hys_batch_entry_pairs(b), entry_pairs);
}

static void check_tables(const struct random_case *c, const struct hys_batch *b)
{
	int32_t block = 0, entry = 0;

	for (int32_t d = 0; d < c->documents; d++) {
		const int32_t n_k = c->k[d + 1] - c->k[d], n_e = n_k / c->pool;
		const int32_t first_entry = entry, first_block = block;

		for (int32_t t = c->q[d]; t < c->q[d + 1]; t++)
			assert_int_equal(b->host.coarse_base[t], block);
		for (int32_t e = 0; e < n_e; e++, entry++) {
			const bool whole = (e / c->coarse + 1) * c->coarse <= n_e;

			assert_int_equal(b->host.entry_key[entry], c->k[d] + e * c->pool);
			assert_int_equal(b->host.entry_doc[entry], d);
			assert_int_equal(b->host.entry_block[entry],
					 whole ? first_block + e / c->coarse : -1);
			if (whole && e % c->coarse == 0) {
				assert_int_equal(b->host.coarse_entry[block], entry);
				assert_int_equal(b->host.coarse_doc[block++], d);
			}
		}
		for (int32_t s = 0; s < n_k; s++)
			assert_int_equal(b->host.key_entry[c->k[d] + s],
					 s / c->pool < n_e ? first_entry + s / c->pool : -1);
	}
	assert_int_equal(hys_batch_coarse_blocks(b), block);
	assert_int_equal(hys_batch_entries(b), entry);
}

static void test_random_batches(void **state)
{
	struct fixture *f = *state;
	struct rng rng;

	rng_seed(&rng, 11);
	f->plan.plan.operations = HYS_OP_BIT(HYS_OP_POOL_BACKWARD);
	for (int i = 0; i < 400; i++) {
		struct random_case c = {0};
		struct hys_batch_desc desc;
		struct hys_batch *b;
		int32_t positions[128];

		draw(&rng, &c);
		desc = describe(c.q[c.documents], c.k[c.documents]);
		if (i % 3 == 0) {
			for (int32_t d = 0; d < c.documents; d++)
				for (int32_t t = c.q[d]; t < c.q[d + 1]; t++)
					positions[t] =
						(int32_t)rng_range(&rng, 0, c.k[d + 1] - c.k[d]);
			desc.positions = c.positions = positions;
		}
		f->plan.plan.problem.scoring.pool = c.pool;
		f->plan.plan.problem.choosing.coarse_block = c.coarse;
		desc.flags = c.causal ? HYS_BATCH_CAUSAL : 0;
		desc.window = c.window;
		desc.documents = c.documents;
		desc.cu_seqlens_q = c.q;
		desc.cu_seqlens_k = c.k;
		b = make(f, &desc);
		check_rows(&c, b);
		check_tables(&c, b);
		hys_batch_destroy(b);
	}
}

/* ---- explicit intervals ---- */

static void test_explicit(void **state)
{
	const int32_t begin[] = {0, 2, 5, 1}, end[] = {3, 2, 6, 6};
	struct hys_batch_desc desc = describe(4, 6);
	struct hys_batch *b;

	desc.row_begin = begin;
	desc.row_end = end;
	b = make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 2, 5, 1);
	EXPECT(b->host.row_end, 3, 2, 6, 6);
	EXPECT(b->host.index_begin, 0, 2, 5, 1);
	EXPECT(b->host.index_end, 3, 2, 6, 6);
	EXPECT(b->host.key_origin, 0, 0, 0, 0);
	assert_int_equal(hys_batch_entries(b), 6);
	assert_int_equal(hys_batch_key_pairs(b), 9);
	hys_batch_destroy(b);
}

static void test_explicit_in_documents(void **state)
{
	const int32_t q[] = {0, 2, 4}, k[] = {0, 3, 8};
	const int32_t begin[] = {0, 1, 3, 0}, end[] = {3, 2, 8, 0};
	struct hys_batch_desc desc = describe(4, 8);
	struct hys_batch *b;

	desc.documents = 2;
	desc.cu_seqlens_q = q;
	desc.cu_seqlens_k = k;
	desc.row_begin = begin;
	desc.row_end = end;
	b = make(*state, &desc);
	/* The last is empty, and is moved into its document. */
	EXPECT(b->host.row_begin, 0, 1, 3, 3);
	EXPECT(b->host.row_end, 3, 2, 8, 3);
	EXPECT(b->host.key_origin, 0, 0, 3, 3);
	hys_batch_destroy(b);
}

static void test_explicit_entries(void **state)
{
	const int32_t begin[] = {0, 0}, end[] = {6, 9};
	const int32_t index_begin[] = {0, 1}, index_end[] = {1, 2};
	struct fixture *f = *state;
	struct hys_batch_desc desc = describe(2, 9);
	struct hys_batch *b;

	f->plan.plan.problem.scoring.pool = 4;
	desc.row_begin = begin;
	desc.row_end = end;
	desc.index_begin = index_begin;
	desc.index_end = index_end;
	b = make(f, &desc);
	assert_int_equal(hys_batch_entries(b), 2);
	EXPECT(b->host.index_begin, 0, 1);
	EXPECT(b->host.index_end, 1, 2);
	hys_batch_destroy(b);
}

/* Documents of 3 and 6 keys own one entry, which the caller need not explain. */
static void test_fewer_entries(void **state)
{
	const int32_t begin[] = {0}, end[] = {9}, index_end[] = {1};
	struct fixture *f = *state;
	struct hys_batch_desc desc = describe(1, 9);
	struct hys_batch *b;

	f->plan.plan.problem.scoring.pool = 4;
	desc.row_begin = desc.index_begin = begin;
	desc.row_end = end;
	desc.index_end = index_end;
	desc.entries = 1;
	b = make(f, &desc);
	assert_int_equal(hys_batch_entries(b), 1);
	hys_batch_destroy(b);
}

static void test_second_source(void **state)
{
	const int32_t begin[] = {0, 3, 4}, end[] = {2, 3, 7};
	struct hys_batch_desc desc = describe(3, 3);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	desc.window_begin = begin;
	desc.window_end = end;
	desc.window_keys = 7;
	b = make(*state, &desc);
	EXPECT(b->host.window_begin, 0, 3, 4);
	EXPECT(b->host.window_end, 2, 3, 7);
	assert_int_equal(b->window_keys, 7);
	hys_batch_destroy(b);
}

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
	struct fixture *f = *state;

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
	struct fixture *f = *state;
	const struct hys_batch_desc desc = describe(1, 1);
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
	struct hys_batch_desc desc = describe(5000, 1000);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	b = make(*state, &desc);
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
	struct fixture *f = *state;
	struct hys_batch_desc desc = describe(20, 20);
	struct hys_batch *b;

	f->plan.plan.problem.scoring.pool = 2;
	f->plan.plan.problem.choosing.coarse_block = 2;
	f->plan.plan.operations = HYS_OP_BIT(HYS_OP_POOL);
	desc.flags = HYS_BATCH_CAUSAL;
	desc.documents = 2;
	desc.cu_seqlens_q = q;
	b = make(f, &desc);
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
	struct fixture *f = *state;
	const struct hys_batch_desc desc = describe(3, 3);
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
	struct fixture *f = *state;
	struct hys_batch_desc desc = describe(20, 20);
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
	struct fixture *f = *state;
	const struct hys_batch_desc desc = describe(3, 3);
	struct hys_batch *b = make(f, &desc);

	assert_int_equal(fake_plan_references(&f->plan), 1);
	hys_batch_destroy(b);
	assert_int_equal(fake_plan_references(&f->plan), 0);
}

static void test_fork(void **state)
{
	struct fixture *f = *state;
	const struct hys_batch_desc desc = describe(3, 3);
	struct hys_batch *b = make(f, &desc), *other = NULL;
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
	struct fixture *f = *state;
	struct hys_batch_desc desc = describe(1 << 20, 1 << 20);
	struct hys_batch *b;

	f->plan.plan.keys_max = desc.keys;
	f->plan.plan.problem.choosing.coarse_block = 128;
	desc.flags = HYS_BATCH_CAUSAL;
	b = make(f, &desc);
	assert_int_equal(hys_batch_key_pairs(b), ((INT64_C(1) << 40) + (1 << 20)) / 2);
	assert_int_equal(hys_batch_coarse_blocks(b), 8192);
	assert_int_equal(b->host.row_end[(1 << 20) - 1], 1 << 20);
	hys_batch_destroy(b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_one_causal_document),
		TEST(test_not_causal),
		TEST(test_rows_are_the_last_of_the_keys),
		TEST(test_more_rows_than_keys),
		TEST(test_documents_of_length_zero_and_one),
		TEST(test_documents_with_other_numbers_of_keys),
		TEST(test_window),
		TEST(test_a_window_larger_than_int32_sums),
		TEST(test_positions),
		TEST(test_pooled_entries),
		TEST(test_no_rows_and_no_keys),
		TEST(test_random_batches),
		TEST(test_explicit),
		TEST(test_explicit_in_documents),
		TEST(test_explicit_entries),
		TEST(test_fewer_entries),
		TEST(test_second_source),
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
