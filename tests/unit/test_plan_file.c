/* Plans as files: that they say the same, and what is said of those that were changed. */
#include <locale.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan_fixture.h"

static char path[64];

static size_t print(const struct hys_plan *plan, char *text)
{
	const size_t length = hys_plan_print(plan, text, TEXT_SIZE);

	assert_true(length < TEXT_SIZE);
	return length;
}

static void make_path(void)
{
	snprintf(path, sizeof(path), "/tmp/hyscale-plan-%ld", (long)getpid());
}

static void write_file(const char *text, size_t length)
{
	FILE *file = fopen(path, "wb");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, length, file), length);
	fclose(file);
}

static void test_round_trip(void **state)
{
	struct hys_problem problem = small_problem();
	struct hys_plan_options options = small_options(0);
	const int32_t devices[] = {0, 0, 0};
	struct hys_plan *plan, *loaded = NULL;
	struct hys_error error = {HYS_OK, 0, ""};
	char text[TEXT_SIZE], again[TEXT_SIZE];

	(void)state;
	make_path();
	problem.scoring.scale = -1.0 / 3;
	problem.attending.softcap = 50;
	problem.attending.window = 7;
	options.kernels = "select.portable";
	options.devices = devices;
	options.device_count = 3;
	options.window_keys_max = 99;
	options.memory_limit_bytes = (int64_t)1 << 50;
	plan = make(&problem, &options);
	hys_plan_pace(plan, HYS_OP_SELECT, 0)->row_s = 0.1;
	hys_plan_pace(plan, HYS_OP_SELECT, 1)->idle = true;
	plan->rows_most[2] = 48;
	print(plan, text);
	assert_int_equal(hys_plan_save(plan, path, NULL), HYS_OK);
	if (hys_plan_load(context, path, &loaded, &error) != HYS_OK)
		fail_msg("%s", error.message);
	print(loaded, again);
	assert_string_equal(text, again);
	assert_true(hys_problem_hash(&plan->problem) == hys_problem_hash(&loaded->problem));
	assert_true(hys_plan_pace(loaded, HYS_OP_SELECT, 0)->row_s == 0.1);
	assert_true(hys_plan_pace(loaded, HYS_OP_SELECT, 1)->idle && loaded->rows_most[2] == 48);
	assert_string_equal(hys_plan_kernel(loaded, HYS_OP_SELECT, 2), "select.portable");
	hys_plan_describe(loaded, text, sizeof(text));
	assert_non_null(strstr(text, "from the plan's file"));
	hys_plan_destroy(loaded);
	hys_plan_destroy(plan);
	unlink(path);
}

/* Numbers are written without a point, whatever the locale's is. */
static void test_locale(void **state)
{
	struct hys_plan *plan = make_small(HYS_OP_BIT(HYS_OP_SELECT));
	static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
	char text[TEXT_SIZE], again[TEXT_SIZE];

	(void)state;
	plan->problem.scoring.scale = 0.1;
	print(plan, text);
	assert_null(strchr(text + strcspn(text, "\n"), ','));
	for (size_t i = 0; i < COUNT(locales); i++)
		if (setlocale(LC_ALL, locales[i]))
			break;
	print(plan, again);
	setlocale(LC_ALL, "C");
	assert_string_equal(text, again);
	hys_plan_destroy(plan);
}

/* Every cut and every changed byte is found. */
static void test_damaged_text(void **state)
{
	struct hys_plan *plan = make_small(0);
	struct hys_plan_text *parsed = malloc(sizeof(*parsed));
	char text[TEXT_SIZE];
	const size_t length = print(plan, text);

	(void)state;
	assert_non_null(parsed);
	assert_int_equal(hys_plan_parse(parsed, text, (int64_t)length, NULL), HYS_OK);
	for (size_t cut = 0; cut < length; cut++) {
		/* memory of exactly that size, for the sanitizers */
		char *part = malloc(cut + 1);
		struct hys_error error = {HYS_OK, 0, ""};

		assert_non_null(part);
		memcpy(part, text, cut);
		assert_int_equal(hys_plan_parse(parsed, part, (int64_t)cut, &error), HYS_FORMAT);
		assert_non_null(strstr(error.message, "line"));
		free(part);
	}
	for (size_t i = 0; i < length; i++) {
		hys_status status;

		text[i] ^= 1;
		status = hys_plan_parse(parsed, text, (int64_t)length, NULL);
		assert_true(status == HYS_FORMAT || status == HYS_VERSION_MISMATCH);
		text[i] ^= 1;
	}
	text[length] = '\n';
	assert_int_equal(hys_plan_parse(parsed, text, (int64_t)length + 1, NULL), HYS_FORMAT);
	free(parsed);
	hys_plan_destroy(plan);
}

/* Rewrites a word of a saved plan, with a fitting checksum, and loads it. */
static hys_status load_changed(const struct hys_plan *plan, const char *from, const char *to,
			       struct hys_error *error)
{
	struct hys_plan *loaded = NULL;
	char text[TEXT_SIZE], changed[TEXT_SIZE];
	char *found, *sum;
	size_t length;
	hys_status status;

	print(plan, text);
	found = strstr(text, from);
	assert_non_null(found);
	snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(found - text), text, to,
		 found + strlen(from));
	sum = strstr(changed, "checksum ");
	assert_non_null(sum);
	length = (size_t)(sum - changed);
	length += (size_t)snprintf(
		sum, 64, "checksum %016llx\n",
		(unsigned long long)hys_hash(hys_hash_start, changed, (size_t)(sum - changed)));
	write_file(changed, length);
	status = hys_plan_load(context, path, &loaded, error);
	if (status != HYS_OK)
		assert_null(loaded);
	hys_plan_destroy(loaded);
	unlink(path);
	return status;
}

static void test_changed_files(void **state)
{
	struct hys_plan *plan = make_small(0);
	static const struct {
		const char *from, *to;
		hys_status status;
		const char *word;
	} cases[] = {
		{"hyscale-plan-2", "hyscale-plan-2", HYS_OK, ""},
		{"hyscale-plan-2", "hyscale-plan-1", HYS_FORMAT, "line 1"},
		{HYS_VERSION_STRING, "9.9.9", HYS_VERSION_MISMATCH, "9.9.9"},
		{"scoring.heads 4", "scoring.heads -4", HYS_FORMAT, "line 2"},
		{"scoring.heads 4", "scoring.heads 4294967300", HYS_FORMAT, "line 2"},
		{"scoring.heads 4", "scoring.heads 4x", HYS_FORMAT, "line 2"},
		{"scoring.heads 4", "scoring.heads  4", HYS_FORMAT, "line 2"},
		{"scoring.heads 4", "scoring.heads 5", HYS_INVALID_ARGUMENT, "scoring.groups"},
		{"scoring.scale 1p-2", "scoring.scale 0.25", HYS_FORMAT, "line"},
		{"scoring.scale 1p-2", "scoring.scale 1p99999", HYS_FORMAT, "line"},
		{"scoring.scale 1p-2", "scoring.scale 1p1024", HYS_FORMAT, "line"},
		{"operations ", "operations 1", HYS_FORMAT, "line"},
		{"rows_max 128", "rows_max 0", HYS_INVALID_ARGUMENT, "rows_max"},
		{"device_count 1", "device_count 0", HYS_FORMAT, "device_count"},
		{"device_count 1", "device_count 1000", HYS_FORMAT, "device_count"},
		{"device 0 ", "device 0 0", HYS_FORMAT, "line"},
		{"device 0 ", "device 7 ", HYS_OK, ""},
		{"kernel 0 select select.", "kernel 0 select merge.", HYS_FORMAT, "merge."},
		{"kernel 0 select ", "kernel 1 select ", HYS_FORMAT, "line"},
	};

	(void)state;
	make_path();
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct hys_error error = {HYS_OK, 0, ""};
		const hys_status status = load_changed(plan, cases[i].from, cases[i].to, &error);

		if (status != cases[i].status || !strstr(error.message, cases[i].word))
			fail_msg("%s: %s (%s)", cases[i].to, hys_status_name(status),
				 error.message);
	}
	hys_plan_destroy(plan);
}

static void test_other_device(void **state)
{
	struct hys_plan *plan = make_small(HYS_OP_BIT(HYS_OP_SELECT)), *loaded = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	(void)state;
	make_path();
	assert_int_equal(hys_plan_save(plan, path, NULL), HYS_OK);
	hys_plan_destroy(plan);
	/* as after an update of the driver */
	snprintf(context->devices[0]->info.driver, sizeof(context->devices[0]->info.driver),
		 "another");
	assert_int_equal(hys_plan_load(context, path, &loaded, &error), HYS_VERSION_MISMATCH);
	assert_null(loaded);
	unlink(path);
}

/* A rename would put a file in the place of a device's node or of a link. */
static void test_no_file_to_replace(void **state)
{
	struct hys_plan *plan = make_small(HYS_OP_BIT(HYS_OP_SELECT)), *loaded = NULL;
	struct hys_error error = {HYS_OK, 0, ""};
	struct stat what;
	char link[sizeof(path) + 8];

	(void)state;
	make_path();
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(hys_plan_save(plan, path, &error), HYS_IO);
	assert_non_null(strstr(error.message, "regular file"));
	assert_true(lstat(path, &what) == 0 && S_ISFIFO(what.st_mode));
	unlink(path);
	snprintf(link, sizeof(link), "%s.link", path);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(hys_plan_save(plan, link, NULL), HYS_IO);
	assert_int_equal(hys_plan_save(plan, path, NULL), HYS_OK);
	assert_int_equal(hys_plan_save(plan, link, NULL), HYS_OK);
	assert_true(lstat(link, &what) == 0 && S_ISLNK(what.st_mode));
	assert_int_equal(hys_plan_load(context, link, &loaded, NULL), HYS_OK);
	hys_plan_destroy(loaded);
	hys_plan_destroy(plan);
	unlink(link);
	unlink(path);
}

static void test_wrong_paths(void **state)
{
	struct hys_plan *plan = make_small(HYS_OP_BIT(HYS_OP_SELECT)), *loaded = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	(void)state;
	assert_int_equal(hys_plan_save(NULL, "x", NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_save(plan, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_save(plan, "", NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_save(plan, "/nonexistent/plan", &error), HYS_IO);
	assert_true(error.native != 0);
	assert_int_equal(hys_plan_load(NULL, "x", &loaded, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_load(context, NULL, &loaded, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_load(context, "", &loaded, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_load(context, "x", NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_load(context, "/nonexistent/plan", &loaded, NULL), HYS_IO);
	assert_int_equal(hys_plan_load(context, "/tmp", &loaded, NULL), HYS_FORMAT);
	assert_null(loaded);
	hys_plan_destroy(plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_round_trip),	       TEST(test_locale),	TEST(test_damaged_text),
		TEST(test_changed_files),      TEST(test_other_device), TEST(test_wrong_paths),
		TEST(test_no_file_to_replace),
	};

	return cmocka_run_group_tests_name("plan_file", tests, NULL, NULL);
}
