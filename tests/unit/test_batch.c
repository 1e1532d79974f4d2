/* What rows see: descriptions, explicit intervals, tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "batch_fixture.h"
#include "rng.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

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
	struct hys_batch_desc desc = batch_describe(4, 4);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	b = batch_make(*state, &desc);
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
	struct hys_batch_desc desc = batch_describe(2, 5);
	struct hys_batch *b = batch_make(*state, &desc);

	EXPECT(b->host.row_begin, 0, 0);
	EXPECT(b->host.row_end, 5, 5);
	assert_int_equal(hys_batch_key_pairs(b), 10);
	hys_batch_destroy(b);
}

static void test_rows_are_the_last_of_the_keys(void **state)
{
	struct hys_batch_desc desc = batch_describe(3, 10);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	b = batch_make(*state, &desc);
	EXPECT(b->host.row_end, 8, 9, 10);
	hys_batch_destroy(b);
}

static void test_more_rows_than_keys(void **state)
{
	struct hys_batch_desc desc = batch_describe(5, 2);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	b = batch_make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 0, 0, 0, 0);
	EXPECT(b->host.row_end, 0, 0, 0, 1, 2);
	assert_int_equal(hys_batch_key_pairs(b), 3);
	hys_batch_destroy(b);
}

static void test_documents_of_length_zero_and_one(void **state)
{
	const int32_t cu[] = {0, 0, 1, 1, 4, 4};
	struct hys_batch_desc desc = batch_describe(4, 4);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	desc.documents = 5;
	desc.cu_seqlens_q = cu;
	b = batch_make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 1, 1, 1);
	EXPECT(b->host.row_end, 1, 2, 3, 4);
	EXPECT(b->host.key_origin, 0, 1, 1, 1);
	hys_batch_destroy(b);
}

static void test_documents_with_other_numbers_of_keys(void **state)
{
	const int32_t q[] = {0, 2, 3, 5}, k[] = {0, 3, 3, 9};
	struct hys_batch_desc desc = batch_describe(5, 9);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	desc.documents = 3;
	desc.cu_seqlens_q = q;
	desc.cu_seqlens_k = k;
	b = batch_make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 0, 3, 3, 3);
	EXPECT(b->host.row_end, 2, 3, 3, 8, 9);
	hys_batch_destroy(b);
}

static void test_window(void **state)
{
	struct hys_batch_desc desc = batch_describe(5, 5);
	struct hys_batch *b;

	desc.window = 2; /* means causal even where the flag does not say so */
	b = batch_make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 0, 1, 2, 3);
	EXPECT(b->host.row_end, 1, 2, 3, 4, 5);
	hys_batch_destroy(b);
}

static void test_a_window_larger_than_int32_sums(void **state)
{
	struct hys_batch_desc desc = batch_describe(3, 3);
	struct hys_batch *b;

	desc.window = INT32_MAX;
	b = batch_make(*state, &desc);
	EXPECT(b->host.row_begin, 0, 0, 0);
	EXPECT(b->host.row_end, 1, 2, 3);
	hys_batch_destroy(b);
}

static void test_positions(void **state)
{
	const int32_t positions[] = {0, 1, 6, 7}; /* the first rank's zigzag shard of 8 */
	struct hys_batch_desc desc = batch_describe(4, 8);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	desc.positions = positions;
	b = batch_make(*state, &desc);
	EXPECT(b->host.row_end, 1, 2, 7, 8);
	hys_batch_destroy(b);
}

static void test_pooled_entries(void **state)
{
	const int32_t q[] = {0, 6, 9};
	struct batch_fixture *f = *state;
	struct hys_batch_desc desc = batch_describe(9, 9);
	struct hys_batch *b;

	f->plan.plan.problem.scoring.pool = 4;
	desc.flags = HYS_BATCH_CAUSAL;
	desc.documents = 2;
	desc.cu_seqlens_q = q;
	b = batch_make(f, &desc);
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
	struct batch_fixture *f = *state;
	struct hys_batch_desc desc = batch_describe(0, 0);
	struct hys_batch *b;

	f->plan.plan.problem.choosing.coarse_block = 4;
	f->plan.plan.operations = HYS_OP_BIT(HYS_OP_POOL);
	b = batch_make(f, &desc);
	assert_int_equal(hys_batch_rows(b), 0);
	assert_int_equal(hys_batch_key_pairs(b), 0);
	assert_true(hys_present(&b->views[0].row_begin));
	assert_true(hys_present(&b->views[1].entry_block));
	hys_batch_destroy(b);
	desc.rows = 3;
	b = batch_make(f, &desc);
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
	struct batch_fixture *f = *state;
	struct rng rng;

	rng_seed(&rng, 11);
	f->plan.plan.operations = HYS_OP_BIT(HYS_OP_POOL_BACKWARD);
	for (int i = 0; i < 400; i++) {
		struct random_case c = {0};
		struct hys_batch_desc desc;
		struct hys_batch *b;
		int32_t positions[128];

		draw(&rng, &c);
		desc = batch_describe(c.q[c.documents], c.k[c.documents]);
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
		b = batch_make(f, &desc);
		check_rows(&c, b);
		check_tables(&c, b);
		hys_batch_destroy(b);
	}
}

/* ---- explicit intervals ---- */

static void test_explicit(void **state)
{
	const int32_t begin[] = {0, 2, 5, 1}, end[] = {3, 2, 6, 6};
	struct hys_batch_desc desc = batch_describe(4, 6);
	struct hys_batch *b;

	desc.row_begin = begin;
	desc.row_end = end;
	b = batch_make(*state, &desc);
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
	struct hys_batch_desc desc = batch_describe(4, 8);
	struct hys_batch *b;

	desc.documents = 2;
	desc.cu_seqlens_q = q;
	desc.cu_seqlens_k = k;
	desc.row_begin = begin;
	desc.row_end = end;
	b = batch_make(*state, &desc);
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
	struct batch_fixture *f = *state;
	struct hys_batch_desc desc = batch_describe(2, 9);
	struct hys_batch *b;

	f->plan.plan.problem.scoring.pool = 4;
	desc.row_begin = begin;
	desc.row_end = end;
	desc.index_begin = index_begin;
	desc.index_end = index_end;
	b = batch_make(f, &desc);
	assert_int_equal(hys_batch_entries(b), 2);
	EXPECT(b->host.index_begin, 0, 1);
	EXPECT(b->host.index_end, 1, 2);
	hys_batch_destroy(b);
}

/* Documents of 3 and 6 keys own one entry, which the caller need not explain. */
static void test_fewer_entries(void **state)
{
	const int32_t begin[] = {0}, end[] = {9}, index_end[] = {1};
	struct batch_fixture *f = *state;
	struct hys_batch_desc desc = batch_describe(1, 9);
	struct hys_batch *b;

	f->plan.plan.problem.scoring.pool = 4;
	desc.row_begin = desc.index_begin = begin;
	desc.row_end = end;
	desc.index_end = index_end;
	desc.entries = 1;
	b = batch_make(f, &desc);
	assert_int_equal(hys_batch_entries(b), 1);
	hys_batch_destroy(b);
}

static void test_second_source(void **state)
{
	const int32_t begin[] = {0, 3, 4}, end[] = {2, 3, 7};
	struct hys_batch_desc desc = batch_describe(3, 3);
	struct hys_batch *b;

	desc.flags = HYS_BATCH_CAUSAL;
	desc.window_begin = begin;
	desc.window_end = end;
	desc.window_keys = 7;
	b = batch_make(*state, &desc);
	EXPECT(b->host.window_begin, 0, 3, 4);
	EXPECT(b->host.window_end, 2, 3, 7);
	assert_int_equal(b->window_keys, 7);
	hys_batch_destroy(b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, batch_set_up, batch_tear_down)

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
