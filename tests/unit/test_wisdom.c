#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "failing_allocator.h"
#include "rng.h"
#include "wisdom.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct hys_wisdom *make(void)
{
	struct hys_wisdom *wisdom = hys_wisdom_create(&hys_allocator_default);

	assert_non_null(wisdom);
	return wisdom;
}

/* Some of everything. */
static struct hys_wisdom *filled(void)
{
	const struct hys_pace pace = {
		.call_s = 1e-3, .row_s = 2e-9, .flop_s = 3e-14, .byte_s = 5e-11};
	struct hys_wisdom *wisdom = make();

	assert_int_equal(hys_wisdom_learn(wisdom, HYS_OP_SELECT, 1, 2, "select.tile", 0.25, NULL),
			 HYS_OK);
	assert_int_equal(hys_wisdom_learn(wisdom, HYS_OP_POOL, 1, 2, "pool.ref", 1e-9, NULL),
			 HYS_OK);
	assert_int_equal(hys_wisdom_learn(wisdom, HYS_OP_SELECT, UINT64_MAX, 0, "select.ref",
					  12345.678901234, NULL),
			 HYS_OK);
	assert_int_equal(hys_wisdom_trust(wisdom, 1, 2, "select.tile", NULL), HYS_OK);
	assert_int_equal(hys_wisdom_trust(wisdom, 1, 2, "pool.ref", NULL), HYS_OK);
	assert_int_equal(
		hys_wisdom_learn_pace(wisdom, HYS_OP_SELECT, 1, 2, "select.tile", &pace, NULL),
		HYS_OK);
	return wisdom;
}

static char *text_of(const struct hys_wisdom *wisdom, int64_t *bytes)
{
	char *text = hys_wisdom_print(wisdom, bytes);

	assert_non_null(text);
	return text;
}

static void free_text(char *text)
{
	hys_free(&hys_allocator_default, text);
}

/* A text with the right checksum behind it. */
static int64_t sign(const char *lines, char *text, size_t size)
{
	const uint64_t sum = hys_hash(hys_hash_start, lines, strlen(lines));

	return snprintf(text, size, "%schecksum %016llx\n", lines, (unsigned long long)sum);
}

static void test_facts(void **state)
{
	struct hys_wisdom *wisdom = filled();
	struct hys_pace pace;

	(void)state;
	assert_string_equal(hys_wisdom_find(wisdom, HYS_OP_SELECT, 1, 2), "select.tile");
	assert_string_equal(hys_wisdom_find(wisdom, HYS_OP_POOL, 1, 2), "pool.ref");
	assert_null(hys_wisdom_find(wisdom, HYS_OP_MERGE, 1, 2));
	assert_null(hys_wisdom_find(wisdom, HYS_OP_SELECT, 2, 2));
	assert_null(hys_wisdom_find(wisdom, HYS_OP_SELECT, 1, 1));
	assert_true(hys_wisdom_trusts(wisdom, 1, 2, "select.tile"));
	assert_true(hys_wisdom_trusts(wisdom, 1, 2, "pool.ref"));
	assert_true(hys_wisdom_pace(wisdom, HYS_OP_SELECT, 1, 2, "select.tile", &pace));
	assert_true(fabs(pace.call_s - 1e-3) < 1e-15 && fabs(pace.row_s - 2e-9) < 1e-17 &&
		    fabs(pace.flop_s - 3e-14) < 1e-23);
	assert_true(fabs(pace.byte_s - 5e-11) < 1e-17 && !pace.idle);
	assert_false(hys_wisdom_pace(wisdom, HYS_OP_SELECT, 1, 2, "select.ref", &pace));
	assert_false(hys_wisdom_pace(wisdom, HYS_OP_POOL, 1, 2, "select.tile", &pace));
	assert_false(hys_wisdom_pace(wisdom, HYS_OP_SELECT, 1, 1, "select.tile", &pace));
	assert_false(hys_wisdom_trusts(wisdom, 1, 2, "select.ref"));
	assert_false(hys_wisdom_trusts(wisdom, 2, 1, "select.tile"));
	hys_wisdom_destroy(wisdom);
}

static void test_later_facts_replace(void **state)
{
	struct hys_wisdom *wisdom = filled();
	int64_t before, after;

	(void)state;
	free_text(text_of(wisdom, &before));
	hys_wisdom_learn(wisdom, HYS_OP_SELECT, 1, 2, "select.wide", 0.125, NULL);
	hys_wisdom_trust(wisdom, 1, 2, "pool.ref", NULL);
	assert_string_equal(hys_wisdom_find(wisdom, HYS_OP_SELECT, 1, 2), "select.wide");
	free_text(text_of(wisdom, &after));
	assert_int_equal(before, after);
	hys_wisdom_destroy(wisdom);
}

static void test_many_facts(void **state)
{
	struct hys_wisdom *wisdom = make();
	char name[32];

	(void)state;
	for (uint64_t i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "select.%llu", (unsigned long long)i);
		assert_int_equal(hys_wisdom_learn(wisdom, HYS_OP_SELECT, i, i * i, name, 1, NULL),
				 HYS_OK);
	}
	for (uint64_t i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "select.%llu", (unsigned long long)i);
		assert_string_equal(hys_wisdom_find(wisdom, HYS_OP_SELECT, i, i * i), name);
	}
	hys_wisdom_destroy(wisdom);
}

static void test_names_that_no_kernel_has(void **state)
{
	struct hys_wisdom *wisdom = make();
	char longest[65];

	(void)state;
	memset(longest, 'a', 64);
	longest[64] = '\0';
	assert_int_equal(hys_wisdom_trust(wisdom, 1, 1, longest, NULL), HYS_INTERNAL);
	longest[63] = '\0';
	assert_int_equal(hys_wisdom_trust(wisdom, 1, 1, longest, NULL), HYS_OK);
	assert_int_equal(hys_wisdom_trust(wisdom, 1, 1, "", NULL), HYS_INTERNAL);
	assert_int_equal(hys_wisdom_trust(wisdom, 1, 1, "a b", NULL), HYS_INTERNAL);
	assert_int_equal(hys_wisdom_trust(wisdom, 1, 1, "a\nb", NULL), HYS_INTERNAL);
	hys_wisdom_destroy(wisdom);
}

static void test_round_trip(void **state)
{
	struct hys_wisdom *wisdom = filled(), *copy = make();
	int64_t bytes, again;
	char *text = text_of(wisdom, &bytes), *second;

	(void)state;
	assert_int_equal(strlen(text), bytes);
	assert_int_equal(hys_wisdom_parse(copy, text, bytes, NULL), HYS_OK);
	second = text_of(copy, &again);
	assert_int_equal(bytes, again);
	assert_string_equal(text, second);
	free_text(text);
	free_text(second);
	hys_wisdom_destroy(wisdom);
	hys_wisdom_destroy(copy);
}

static void test_the_text(void **state)
{
	struct hys_wisdom *wisdom = make();
	const char *expected =
		"hyscale-wisdom-1 " HYS_VERSION_STRING "\n"
		"choose select 0000000000000001 000000000000000f select.a 0.500000000\n"
		"trust 0000000000000001 000000000000000f select.a\n"
		"pace select 0000000000000001 000000000000000f select.a 1000000000000000 "
		"2000000000 9000000000000000000 50000000\n";
	const struct hys_pace pace = {.call_s = 1e-3, .row_s = 2e-9, .flop_s = 1, .byte_s = 5e-11};
	char signed_text[512];
	int64_t bytes;
	char *text;

	(void)state;
	hys_wisdom_learn(wisdom, HYS_OP_SELECT, 1, 15, "select.a", 0.5, NULL);
	hys_wisdom_trust(wisdom, 1, 15, "select.a", NULL);
	hys_wisdom_learn_pace(wisdom, HYS_OP_SELECT, 1, 15, "select.a", &pace, NULL);
	text = text_of(wisdom, &bytes);
	sign(expected, signed_text, sizeof(signed_text));
	assert_string_equal(text, signed_text);
	free_text(text);
	hys_wisdom_destroy(wisdom);
}

/* ---- damage ---- */

/* Parses into wisdom that knows something, which must not change. */
static hys_status parse_damaged(const char *text, int64_t bytes, struct hys_error *error)
{
	struct hys_wisdom *wisdom = filled();
	int64_t before_bytes, after_bytes;
	char *before = text_of(wisdom, &before_bytes), *after;
	const hys_status status = hys_wisdom_parse(wisdom, text, bytes, error);

	if (status != HYS_OK) {
		after = text_of(wisdom, &after_bytes);
		assert_string_equal(before, after);
		free_text(after);
	}
	free_text(before);
	hys_wisdom_destroy(wisdom);
	return status;
}

static void test_cut_anywhere(void **state)
{
	struct hys_wisdom *wisdom = filled();
	int64_t bytes;
	char *text = text_of(wisdom, &bytes);

	(void)state;
	for (int64_t cut = 0; cut < bytes; cut++) {
		/* Exactly as long as it is, so that a sanitizer sees a read past it. */
		char *part = malloc(cut ? (size_t)cut : 1);

		assert_non_null(part);
		memcpy(part, text, (size_t)cut);
		assert_int_equal(parse_damaged(part, cut, NULL), HYS_FORMAT);
		free(part);
	}
	free_text(text);
	hys_wisdom_destroy(wisdom);
}

static void test_any_byte_changed(void **state)
{
	struct hys_wisdom *wisdom = filled();
	int64_t bytes;
	char *text = text_of(wisdom, &bytes);
	const char values[] = {0, '\n', ' ', '~', (char)0xff};

	(void)state;
	for (int64_t i = 0; i < bytes; i++) {
		for (size_t v = 0; v < COUNT(values); v++) {
			const char kept = text[i];

			text[i] = values[v];
			if (values[v] != kept)
				assert_int_not_equal(parse_damaged(text, bytes, NULL), HYS_OK);
			text[i] = kept;
		}
	}
	free_text(text);
	hys_wisdom_destroy(wisdom);
}

static void test_random_bytes(void **state)
{
	struct rng rng;
	char text[300];

	(void)state;
	rng_seed(&rng, 7);
	for (int i = 0; i < 3000; i++) {
		const int64_t bytes = (int64_t)(rng_u64(&rng) % sizeof(text));

		for (int64_t b = 0; b < bytes; b++)
			text[b] = (char)rng_u64(&rng);
		if (i % 2 && bytes > 24)
			memcpy(text, "hyscale-wisdom-1 " HYS_VERSION_STRING "\n",
			       strlen("hyscale-wisdom-1 " HYS_VERSION_STRING "\n"));
		assert_int_not_equal(parse_damaged(text, bytes, NULL), HYS_OK);
	}
}

/* Signed rightly, so that it is the line that is judged. */
static void test_bad_lines(void **state)
{
#define KEY "0000000000000001 0000000000000002"
	static const char *const lines[] = {
		"choose select " KEY " select.a",
		"choose select " KEY " select.a 1",
		"choose select " KEY " select.a 1.5",
		"choose select " KEY " select.a -1.000000000",
		"choose select " KEY " select.a 1.00000000x",
		"choose select " KEY " select.a 1234567890.000000000",
		"choose select " KEY " select.a nan",
		"choose select " KEY " select.a 1.000000000 ",
		"choose select " KEY " select.a 1.000000000 more",
		"choose select  " KEY " select.a 1.000000000",
		"choose unknown " KEY " select.a 1.000000000",
		"choose select 1 2 select.a 1.000000000",
		"choose select 000000000000000G 0000000000000002 select.a 1.000000000",
		"choose select 000000000000000A 0000000000000002 select.a 1.000000000",
		"choose select " KEY " SELECT 1.000000000",
		"choose select " KEY
		" aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1.000000000",
		"trust " KEY,
		"trust " KEY " select.a 1.000000000",
		"trust " KEY " ",
		"choose",
		"pace select " KEY " select.a 1 2 3",
		"pace select " KEY " select.a 1 2 3 4 5",
		"pace select " KEY " select.a 1 -2 3 4",
		"pace select " KEY " select.a 1 2 9100000000000000000 4",
		"pace select " KEY " select.a 1 2 10000000000000000000 4",
		"pace " KEY " select.a 1 2 3 4",
		"forget " KEY " select.a",
		" trust " KEY " select.a",
		"",
		"\r",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(lines); i++) {
		struct hys_error error = {HYS_OK, 0, ""};
		char plain[400], text[500];
		int64_t bytes;

		snprintf(plain, sizeof(plain),
			 "hyscale-wisdom-1 " HYS_VERSION_STRING "\ntrust " KEY " good\n%s\n",
			 lines[i]);
		bytes = sign(plain, text, sizeof(text));
		if (parse_damaged(text, bytes, &error) != HYS_FORMAT)
			fail_msg("accepted: %s", lines[i]);
		assert_non_null(strstr(error.message, "line 3"));
	}
}

static void test_versions(void **state)
{
	static const struct {
		const char *first;
		hys_status status;
	} cases[] = {
		{"hyscale-wisdom-1 " HYS_VERSION_STRING "\n", HYS_OK},
		{"hyscale-wisdom-1 99.0.0\n", HYS_VERSION_MISMATCH},
		{"hyscale-wisdom-2 " HYS_VERSION_STRING "\n", HYS_VERSION_MISMATCH},
		{"hyscale-plan-2 " HYS_VERSION_STRING "\n", HYS_FORMAT},
		{"hyscale-wisdom-1\n", HYS_FORMAT},
		{"hyscale-wisdom-1 1 2\n", HYS_FORMAT},
		{"\n", HYS_FORMAT},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		char text[200];
		const int64_t bytes = sign(cases[i].first, text, sizeof(text));

		assert_int_equal(parse_damaged(text, bytes, NULL), cases[i].status);
	}
}

static void test_nothing_behind_the_checksum(void **state)
{
	struct hys_wisdom *wisdom = filled();
	int64_t bytes;
	char *text = text_of(wisdom, &bytes);
	char *longer = malloc((size_t)bytes + 1);

	(void)state;
	assert_non_null(longer);
	memcpy(longer, text, (size_t)bytes);
	longer[bytes] = '\n';
	assert_int_equal(parse_damaged(longer, bytes, NULL), HYS_OK);
	assert_int_equal(parse_damaged(longer, bytes + 1, NULL), HYS_FORMAT);
	free(longer);
	free_text(text);
	hys_wisdom_destroy(wisdom);
}

/* ---- memory ---- */

static void test_every_allocation_failing(void **state)
{
	struct failing_allocator memory = {0};
	struct hys_context_options options = {.struct_size = sizeof(options)};
	struct hys_allocator allocator;
	struct hys_wisdom *source = filled();
	hys_status status = HYS_OUT_OF_MEMORY;
	int64_t bytes;
	char *text = text_of(source, &bytes);

	(void)state;
	failing_allocator_use(&memory, &options);
	allocator =
		(struct hys_allocator){options.allocate, options.release, options.allocate_user};
	for (long n = 1; status != HYS_OK; n++) {
		struct hys_wisdom *wisdom;

		failing_allocator_arm(&memory, 0);
		wisdom = hys_wisdom_create(&allocator);
		assert_non_null(wisdom);
		assert_int_equal(hys_wisdom_trust(wisdom, 9, 9, "kept", NULL), HYS_OK);
		failing_allocator_arm(&memory, n);
		status = hys_wisdom_parse(wisdom, text, bytes, NULL);
		assert_true(status == HYS_OK || status == HYS_OUT_OF_MEMORY);
		assert_true(hys_wisdom_trusts(wisdom, 9, 9, "kept"));
		assert_int_equal(hys_wisdom_trusts(wisdom, 1, 2, "pool.ref"), status == HYS_OK);
		hys_wisdom_destroy(wisdom);
		assert_int_equal(memory.live, 0);
		assert_true(n < 100);
	}
	free_text(text);
	hys_wisdom_destroy(source);
}

/* ---- files ---- */

static struct hys_context *make_context(void)
{
	struct hys_context_options options = {.struct_size = sizeof(options), .devices = "openmp"};
	struct hys_context *context = NULL;

	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_OK);
	return context;
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "wb");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
	assert_int_equal(fclose(file), 0);
}

static void test_export_and_import(void **state)
{
	struct hys_context *a = make_context(), *b = make_context();
	char folder[] = "/tmp/hyscale-test-XXXXXX", path[64];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/wisdom", folder);
	hys_wisdom_trust(a->wisdom, 3, 4, "select.a", NULL);
	hys_wisdom_trust(b->wisdom, 5, 6, "select.b", NULL);
	write_file(path, "old content that is to be replaced");
	assert_int_equal(hys_wisdom_export(a, path, NULL), HYS_OK);
	assert_int_equal(hys_wisdom_import(b, path, NULL), HYS_OK);
	assert_true(hys_wisdom_trusts(b->wisdom, 3, 4, "select.a"));
	assert_true(hys_wisdom_trusts(b->wisdom, 5, 6, "select.b"));
	hys_wisdom_forget(b);
	assert_false(hys_wisdom_trusts(b->wisdom, 3, 4, "select.a"));
	hys_wisdom_forget(NULL);
	/* Nothing else was left behind. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
	hys_context_destroy(a);
	hys_context_destroy(b);
}

static void test_bad_files(void **state)
{
	struct hys_context *context = make_context();
	char folder[] = "/tmp/hyscale-test-XXXXXX", path[64], nowhere[80];
	struct hys_error error;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/wisdom", folder);
	snprintf(nowhere, sizeof(nowhere), "%s/none/wisdom", folder);
	assert_int_equal(hys_wisdom_import(context, path, &error), HYS_IO);
	assert_non_null(strstr(error.message, path));
	assert_int_not_equal(error.native, 0);
	assert_int_equal(hys_wisdom_export(context, nowhere, &error), HYS_IO);
	assert_int_equal(hys_wisdom_import(context, folder, NULL), HYS_FORMAT);
	assert_int_equal(hys_wisdom_export(context, folder, NULL), HYS_IO);
	write_file(path, "");
	assert_int_equal(hys_wisdom_import(context, path, NULL), HYS_FORMAT);
	assert_int_equal(truncate(path, (off_t)1 << 27), 0);
	assert_int_equal(hys_wisdom_import(context, path, NULL), HYS_FORMAT);
	assert_int_equal(hys_wisdom_import(context, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_wisdom_import(context, "", NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_wisdom_export(context, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_wisdom_import(NULL, path, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_wisdom_export(NULL, path, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
	hys_context_destroy(context);
}

static void test_signatures(void **state)
{
	struct hys_context *context = make_context();
	struct hys_device device = *context->devices[0];
	const uint64_t signature = hys_device_signature(&device);

	(void)state;
	assert_int_equal(hys_device_signature(&device), signature);
	strcat(device.info.driver, "1");
	assert_int_not_equal(hys_device_signature(&device), signature);
	device = *context->devices[0];
	device.info.name[0]++;
	assert_int_not_equal(hys_device_signature(&device), signature);
	hys_context_destroy(context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_later_facts_replace),
		cmocka_unit_test(test_many_facts),
		cmocka_unit_test(test_names_that_no_kernel_has),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_the_text),
		cmocka_unit_test(test_cut_anywhere),
		cmocka_unit_test(test_any_byte_changed),
		cmocka_unit_test(test_random_bytes),
		cmocka_unit_test(test_bad_lines),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_nothing_behind_the_checksum),
		cmocka_unit_test(test_every_allocation_failing),
		cmocka_unit_test(test_export_and_import),
		cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_signatures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
