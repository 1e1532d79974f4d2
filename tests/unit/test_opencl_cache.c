/* Built OpenCL programs on disk: what is damaged or not meant is never handed to a driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef HYS_WITH_OPENCL
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"
#include "ocl_internal.h"
#include "ocl_merge.h"

#define BINARY_BYTES 300
#define PATH_SIZE 1024

static char folder[64]; /* made for each test */
static struct hys_host host;
static unsigned char binary[BINARY_BYTES];

static void remove_tree(const char *path)
{
	char child[PATH_SIZE];
	DIR *entries = opendir(path);

	for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
		remove_tree(child);
	}
	if (entries)
		closedir(entries);
	remove(path);
}

static int count_files(const char *path)
{
	DIR *entries = opendir(path);
	int count = 0;

	for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;)
		count += entry->d_name[0] != '.';
	if (entries)
		closedir(entries);
	return count;
}

static int set_up(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/hyscale-cache-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	host = (struct hys_host){.allocator = hys_allocator_default,
				 .cache_dir = folder,
				 .disable = "",
				 .cpus_allowed = 1};
	for (size_t i = 0; i < BINARY_BYTES; i++)
		binary[i] = (unsigned char)(i * 7 + 3);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	remove_tree(folder);
	return 0;
}

static struct hys_ocl_key key_of(const char *text)
{
	struct hys_ocl_key key = {0};

	key.length = (size_t)snprintf(key.text, sizeof(key.text), "%s", text);
	return key;
}

/* The only file of the folder. */
static void only_file(char *path)
{
	DIR *entries = opendir(folder);

	assert_int_equal(count_files(folder), 1);
	assert_non_null(entries);
	for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
		if (entry->d_name[0] != '.')
			snprintf(path, PATH_SIZE, "%s/%s", folder, entry->d_name);
	closedir(entries);
}

/* Stores the binary for `key`, and says where. */
static void store(const struct hys_ocl_key *key, char *path)
{
	hys_ocl_cache_store(&host, key, binary, BINARY_BYTES);
	only_file(path);
}

/* Whether the cache has the right binary for `key`; it must never have a wrong one. */
static bool loads(const struct hys_ocl_key *key)
{
	unsigned char *found = NULL;
	size_t bytes = 0;

	if (!hys_ocl_cache_load(&host, key, &found, &bytes)) {
		assert_null(found);
		return false;
	}
	assert_int_equal(bytes, BINARY_BYTES);
	assert_memory_equal(found, binary, BINARY_BYTES);
	hys_free(&host.allocator, found);
	return true;
}

static unsigned char *read_all(const char *path, size_t *bytes)
{
	unsigned char *content = malloc(1 << 16);
	FILE *file = fopen(path, "rb");

	assert_non_null(content);
	assert_non_null(file);
	*bytes = fread(content, 1, 1 << 16, file);
	assert_int_equal(fclose(file), 0);
	return content;
}

static void write_all(const char *path, const unsigned char *content, size_t bytes)
{
	FILE *file = fopen(path, "wb");

	assert_non_null(file);
	assert_int_equal(fwrite(content, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

static void test_keeps_what_is_stored(void **state)
{
	const struct hys_ocl_key key = key_of("driver 1\noptions -DX=1\n");
	char nested[128];

	(void)state;
	snprintf(nested, sizeof(nested), "%s/a/b", folder);
	host.cache_dir = nested;
	assert_false(loads(&key));
	hys_ocl_cache_store(&host, &key, binary, BINARY_BYTES);
	assert_true(loads(&key));
	hys_ocl_cache_store(&host, &key, binary, BINARY_BYTES);
	assert_true(loads(&key));
	assert_int_equal(count_files(nested), 1); /* nothing half written stays behind */
}

static void test_other_key_finds_nothing(void **state)
{
	const struct hys_ocl_key key = key_of("driver 1\n"), other = key_of("driver 2\n");
	char path[PATH_SIZE], path_of_other[PATH_SIZE];

	(void)state;
	store(&other, path_of_other);
	assert_int_equal(remove(path_of_other), 0);
	store(&key, path);
	assert_string_not_equal(path, path_of_other);
	assert_false(loads(&other));
	/* as if both keys had one hash */
	assert_int_equal(rename(path, path_of_other), 0);
	assert_false(loads(&other));
	assert_false(loads(&key));
}

static void test_truncated_file_is_ignored(void **state)
{
	const struct hys_ocl_key key = key_of("driver 1\n");
	char path[PATH_SIZE];
	size_t bytes;
	unsigned char *content;

	(void)state;
	store(&key, path);
	content = read_all(path, &bytes);
	for (size_t length = 0; length < bytes; length++) {
		write_all(path, content, length);
		assert_false(loads(&key));
	}
	content[bytes] = 0;
	write_all(path, content, bytes + 1);
	assert_false(loads(&key));
	write_all(path, content, bytes);
	assert_true(loads(&key));
	free(content);
}

static void test_changed_file_is_ignored(void **state)
{
	const struct hys_ocl_key key = key_of("driver 1\n");
	char path[PATH_SIZE];
	size_t bytes;
	unsigned char *content;

	(void)state;
	store(&key, path);
	content = read_all(path, &bytes);
	for (size_t i = 0; i < bytes; i++) {
		content[i] ^= 0x10;
		write_all(path, content, bytes);
		assert_false(loads(&key));
		content[i] ^= 0x10;
	}
	free(content);
	/* and is replaced by the next store */
	hys_ocl_cache_store(&host, &key, binary, BINARY_BYTES);
	assert_true(loads(&key));
}

static void test_unusable_folder_is_no_error(void **state)
{
	const struct hys_ocl_key key = key_of("driver 1\n");
	char path[PATH_SIZE], file[128];

	(void)state;
	/* a folder in the file's place */
	store(&key, path);
	assert_int_equal(remove(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	hys_ocl_cache_store(&host, &key, binary, BINARY_BYTES);
	assert_false(loads(&key));
	assert_int_equal(count_files(folder), 1);
	/* a file in the folder's place */
	snprintf(file, sizeof(file), "%s/file", folder);
	write_all(file, binary, 1);
	host.cache_dir = file;
	hys_ocl_cache_store(&host, &key, binary, BINARY_BYTES);
	assert_false(loads(&key));
	/* no cache at all */
	host.cache_dir = NULL;
	hys_ocl_cache_store(&host, &key, binary, BINARY_BYTES);
	assert_false(loads(&key));
}

/* ---- with a device ---- */

static hys_status build_merge(struct hys_context *context)
{
	const struct hys_problem problem = {
		.struct_size = sizeof(problem),
		.attending = {.heads = 2, .value_dim = 3, .dtype = HYS_F32},
	};
	cl_program program = NULL;
	struct hys_error error;
	hys_status status =
		hys_ocl_program_build(hys_ocl_device(context->devices[0]), &hys_ocl_merge_source,
				      &problem, &program, &error);

	if (status != HYS_OK)
		print_message("%s\n", error.message);
	else
		clReleaseProgram(program);
	return status;
}

/* Overwrites the middle of each file. */
static void damage_all(const char *path)
{
	char child[PATH_SIZE];
	DIR *entries = opendir(path);

	assert_non_null(entries);
	for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
		size_t bytes;
		unsigned char *content;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
		content = read_all(child, &bytes);
		content[bytes / 2] ^= 0xff;
		write_all(child, content, bytes);
		free(content);
	}
	closedir(entries);
}

static void test_programs_come_from_the_cache(void **state)
{
	const struct hys_context_options options = {
		.struct_size = sizeof(options), .devices = "opencl", .cache_dir = folder};
	struct hys_context *context = NULL;
	struct hys_error error;
	hys_status status = hys_context_create(&options, &context, &error);
	bool own_cache;

	(void)state;
	if (status != HYS_OK) {
		print_message("skipped, no OpenCL device: %s\n", error.message);
		skip();
	}
	own_cache = hys_ocl_device(context->devices[0])->quirk->own_cache;
	assert_int_equal(build_merge(context), HYS_OK);
	assert_int_equal(count_files(folder), own_cache ? 0 : 1);
	assert_int_equal(build_merge(context), HYS_OK);
	damage_all(folder);
	assert_int_equal(build_merge(context), HYS_OK);
	assert_int_equal(count_files(folder), own_cache ? 0 : 1);
	hys_context_destroy(context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_keeps_what_is_stored, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_other_key_finds_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_truncated_file_is_ignored, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_changed_file_is_ignored, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_unusable_folder_is_no_error, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_programs_come_from_the_cache, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	printf("skipped: built without OpenCL\n");
	return 77;
}

#endif
