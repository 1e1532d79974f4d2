#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A small legal problem with every part. */
static struct hys_problem whole(void)
{
	struct hys_problem p = {.struct_size = sizeof(p)};

	p.scoring.heads = 4;
	p.scoring.dim = 32;
	p.scoring.groups = 2;
	p.scoring.block = 16;
	p.choosing.coarse_block = 64;
	p.attending.heads = 8;
	p.attending.kv_heads = 2;
	p.attending.head_dim = 64;
	return p;
}

static void test_defaults(void **state)
{
	struct hys_problem p = whole();

	(void)state;
	p.scoring.groups = 0;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_OK);
	assert_int_equal(p.scoring.groups, 1);
	assert_int_equal(p.scoring.pool, 1);
	assert_int_equal(p.scoring.dtype, HYS_F32);
	assert_true(p.scoring.scale == 1 / sqrt(32.0));
	assert_int_equal(p.choosing.topk_max, 2048);
	assert_int_equal(p.choosing.coarse_keep, 64);
	assert_int_equal(p.choosing.method, HYS_METHOD_EXACT);
	assert_int_equal(p.attending.value_dim, 64);
	assert_int_equal(p.attending.granularity, 16);
	assert_int_equal(p.attending.dtype, HYS_F32);
	assert_true(p.attending.scale == 0.125);
}

static void test_completing_twice_changes_nothing(void **state)
{
	struct hys_problem p = whole(), again;

	(void)state;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_OK);
	again = p;
	assert_int_equal(hys_problem_complete(&again, NULL), HYS_OK);
	assert_int_equal(hys_problem_hash(&again), hys_problem_hash(&p));
}

/* One field wrong at a time; the message names it. */
struct wrong {
	const char *field;
	size_t offset;
	int32_t value;
};

#define WRONG(part, field, value)                                                 \
	{                                                                         \
#part "." #field, offsetof(struct hys_problem, part.field), value \
	}

static const struct wrong wrong[] = {
	WRONG(scoring, heads, -1),	   WRONG(scoring, heads, 100000),
	WRONG(scoring, dim, -1),	   WRONG(scoring, dim, 0),
	WRONG(scoring, groups, -1),	   WRONG(scoring, groups, 3),
	WRONG(scoring, groups, 257),	   WRONG(scoring, block, -1),
	WRONG(scoring, pool, -1),	   WRONG(scoring, dtype, HYS_I32),
	WRONG(scoring, dtype, 77),	   WRONG(scoring, dtype, -1),
	WRONG(scoring, activation, 2),	   WRONG(scoring, activation, -1),
	WRONG(choosing, topk_max, -1),	   WRONG(choosing, first_blocks, -1),
	WRONG(choosing, local_blocks, -1), WRONG(choosing, method, 4),
	WRONG(choosing, method, -1),	   WRONG(choosing, coarse_block, -1),
	WRONG(choosing, coarse_block, 24), WRONG(choosing, coarse_keep, -1),
	WRONG(attending, heads, -1),	   WRONG(attending, kv_heads, -1),
	WRONG(attending, kv_heads, 3),	   WRONG(attending, head_dim, 0),
	WRONG(attending, head_dim, -8),	   WRONG(attending, value_dim, -1),
	WRONG(attending, granularity, -1), WRONG(attending, window, -1),
	WRONG(attending, first, -1),	   WRONG(attending, dtype, HYS_F8E4M3),
	WRONG(attending, dtype, -1),	   WRONG(attending, flags, 2),
};

static void test_each_field_wrong(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(wrong); i++) {
		struct hys_error error = {HYS_OK, 0, ""};
		struct hys_problem p = whole(), before;

		memcpy((char *)&p + wrong[i].offset, &wrong[i].value, sizeof(wrong[i].value));
		before = p;
		if (hys_problem_complete(&p, &error) != HYS_INVALID_ARGUMENT)
			fail_msg("%s = %d is accepted", wrong[i].field, wrong[i].value);
		if (!strstr(error.message, wrong[i].field))
			fail_msg("%s = %d: %s", wrong[i].field, wrong[i].value, error.message);
		assert_int_equal(error.status, HYS_INVALID_ARGUMENT);
		assert_memory_equal(&p, &before, sizeof(p));
	}
}

static void test_factors(void **state)
{
	const double bad[] = {(double)NAN, (double)INFINITY, 1e39, -1e39, 1e-50};

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct hys_problem p = whole(), q = whole(), r = whole();

		p.scoring.scale = bad[i];
		q.attending.scale = bad[i];
		r.attending.softcap = bad[i];
		assert_int_equal(hys_problem_complete(&p, NULL), HYS_INVALID_ARGUMENT);
		assert_int_equal(hys_problem_complete(&q, NULL), HYS_INVALID_ARGUMENT);
		assert_int_equal(hys_problem_complete(&r, NULL), HYS_INVALID_ARGUMENT);
	}
}

static void test_negative_scale_is_legal_and_negative_softcap_is_not(void **state)
{
	struct hys_problem p = whole();

	(void)state;
	p.scoring.scale = -1;
	p.attending.scale = -2;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_OK);
	p.attending.softcap = -30;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_INVALID_ARGUMENT);
}

static void test_methods_need_a_coarse_block(void **state)
{
	struct hys_error error;
	struct hys_problem p = whole();

	(void)state;
	p.choosing.coarse_block = 0;
	p.choosing.method = HYS_METHOD_COARSE_TO_FINE;
	assert_int_equal(hys_problem_complete(&p, &error), HYS_INVALID_ARGUMENT);
	assert_non_null(strstr(error.message, "choosing.coarse_block"));
}

static void test_pooled_keys(void **state)
{
	struct hys_problem p = whole();

	(void)state;
	p.scoring.pool = 4;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_UNSUPPORTED);
	p.attending.granularity = 1;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_OK);
	p = whole();
	p.scoring.pool = 4;
	p.scoring.block = 1;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_OK);
	assert_int_equal(p.attending.granularity, 1);
	p.attending.granularity = 4;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_INVALID_ARGUMENT);
}

static void test_parts_may_be_absent(void **state)
{
	struct hys_problem p = {.struct_size = sizeof(p)};

	(void)state;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_INVALID_ARGUMENT);
	p.attending.heads = 9;
	p.attending.head_dim = 64;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_OK);
	p = (struct hys_problem){.struct_size = sizeof(p)};
	p.scoring.heads = 4;
	p.scoring.dim = 32;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_OK);
	p = (struct hys_problem){.struct_size = sizeof(p)};
	p.scoring.pool = 4;
	assert_int_equal(hys_problem_complete(&p, NULL), HYS_OK);
}

static void test_struct_size(void **state)
{
	struct {
		struct hys_problem known;
		char newer[8];
	} p = {whole(), ""};

	(void)state;
	assert_int_equal(hys_problem_complete(NULL, NULL), HYS_INVALID_ARGUMENT);
	p.known.struct_size = 0;
	assert_int_equal(hys_problem_complete(&p.known, NULL), HYS_INVALID_ARGUMENT);
	p.known.struct_size = sizeof(p.known) - 1;
	assert_int_equal(hys_problem_complete(&p.known, NULL), HYS_INVALID_ARGUMENT);
	p.known.struct_size = SIZE_MAX;
	assert_int_equal(hys_problem_complete(&p.known, NULL), HYS_INVALID_ARGUMENT);
	p.known.struct_size = sizeof(p);
	assert_int_equal(hys_problem_complete(&p.known, NULL), HYS_OK);
	p.newer[3] = 1;
	assert_int_equal(hys_problem_complete(&p.known, NULL), HYS_INVALID_ARGUMENT);
}

static void test_hash_sees_every_field(void **state)
{
	const struct hys_problem plain = whole();

	(void)state;
	for (size_t i = 0; i < COUNT(wrong); i++) {
		struct hys_problem p = plain;

		memcpy((char *)&p + wrong[i].offset, &wrong[i].value, sizeof(wrong[i].value));
		if (hys_problem_hash(&p) == hys_problem_hash(&plain))
			fail_msg("%s does not change the hash", wrong[i].field);
	}
}

static void test_hash_sees_every_factor(void **state)
{
	struct hys_problem p = whole(), q = whole(), r = whole(), s = whole();

	(void)state;
	q.scoring.scale = 3;
	r.attending.scale = 3;
	s.attending.softcap = 3;
	assert_int_not_equal(hys_problem_hash(&p), hys_problem_hash(&q));
	assert_int_not_equal(hys_problem_hash(&p), hys_problem_hash(&r));
	assert_int_not_equal(hys_problem_hash(&p), hys_problem_hash(&s));
	assert_int_not_equal(hys_problem_hash(&q), hys_problem_hash(&r));
}

static void test_hash_ignores_padding(void **state)
{
	struct hys_problem p, q;
	const struct hys_problem source = whole();

	(void)state;
	memset(&p, 0x00, sizeof(p));
	memset(&q, 0xff, sizeof(q));
	p.scoring = q.scoring = source.scoring;
	p.choosing = q.choosing = source.choosing;
	p.attending = q.attending = source.attending;
	assert_int_equal(hys_problem_hash(&p), hys_problem_hash(&q));
}

static void test_named_problems_are_legal(void **state)
{
	const char *expected[] = {"dsv32", "glm5", "hyv4",     "msa",	 "nsa",
				  "moba",  "qsa",  "dsv4-csa", "smollm2"};

	(void)state;
	for (size_t i = 0; i < COUNT(expected); i++) {
		struct hys_error error = {HYS_OK, 0, ""};
		struct hys_problem p;

		assert_string_equal(hys_problem_name((int32_t)i), expected[i]);
		assert_int_equal(hys_problem_named(expected[i], &p, &error), HYS_OK);
		if (hys_problem_complete(&p, &error) != HYS_OK)
			fail_msg("%s: %s", expected[i], error.message);
		assert_true(p.scoring.heads > 0 && p.attending.heads > 0);
	}
	assert_null(hys_problem_name((int32_t)COUNT(expected)));
	assert_null(hys_problem_name(-1));
}

static void test_dsv32(void **state)
{
	struct hys_problem p;

	(void)state;
	assert_int_equal(hys_problem_named("dsv32", &p, NULL), HYS_OK);
	assert_int_equal(p.scoring.heads, 64);
	assert_int_equal(p.scoring.dim, 128);
	assert_int_equal(p.scoring.activation, HYS_ACTIVATION_RELU);
	assert_int_equal(p.choosing.topk_max, 2048);
	assert_int_equal(p.attending.heads, 128);
	assert_int_equal(p.attending.head_dim, 576);
	assert_int_equal(p.attending.value_dim, 512);
}

static void test_unknown_name(void **state)
{
	struct hys_error error;
	struct hys_problem p, before;

	(void)state;
	memset(&p, 0x5a, sizeof(p));
	before = p;
	assert_int_equal(hys_problem_named("gpt2", &p, &error), HYS_INVALID_ARGUMENT);
	assert_non_null(strstr(error.message, "gpt2"));
	assert_non_null(strstr(error.message, "dsv4-csa"));
	assert_non_null(strstr(error.message, "smollm2"));
	assert_memory_equal(&p, &before, sizeof(p));
	assert_int_equal(hys_problem_named(NULL, &p, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_problem_named("msa", NULL, &error), HYS_INVALID_ARGUMENT);
	assert_non_null(strstr(error.message, "problem"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_completing_twice_changes_nothing),
		cmocka_unit_test(test_each_field_wrong),
		cmocka_unit_test(test_factors),
		cmocka_unit_test(test_negative_scale_is_legal_and_negative_softcap_is_not),
		cmocka_unit_test(test_methods_need_a_coarse_block),
		cmocka_unit_test(test_pooled_keys),
		cmocka_unit_test(test_parts_may_be_absent),
		cmocka_unit_test(test_struct_size),
		cmocka_unit_test(test_hash_sees_every_field),
		cmocka_unit_test(test_hash_sees_every_factor),
		cmocka_unit_test(test_hash_ignores_padding),
		cmocka_unit_test(test_named_problems_are_legal),
		cmocka_unit_test(test_dsv32),
		cmocka_unit_test(test_unknown_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
