/* The safetensors reader against files that are almost right, and against its own writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../tools/safetensors.h"

/* A file in memory: header length, header, `data` zero bytes. The caller frees. */
static unsigned char *make(const char *header, int64_t data, int64_t *size)
{
	size_t length = strlen(header);
	unsigned char *bytes = calloc(1, 8 + length + (size_t)data);
	assert_non_null(bytes);
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)((uint64_t)length >> 8 * i);
	memcpy(bytes + 8, header, length);
	*size = (int64_t)(8 + length) + data;
	return bytes;
}

static void refuse(const char *header, int64_t data, const char *reason)
{
	struct st_file file;
	char message[ST_MESSAGE] = "";
	int64_t size = 0;
	unsigned char *bytes = make(header, data, &size);
	assert_false(st_parse(&file, bytes, size, message));
	if (!strstr(message, reason))
		fail_msg("'%s' does not say '%s'", message, reason);
	assert_null(strchr(message, '\n'));
	assert_int_equal(file.count, 0);
	free(bytes);
}

static void refuses_damage(void **state)
{
	(void)state;
	refuse("[]", 0, "not a JSON object");
	refuse("{", 0, "not JSON");
	refuse("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype");
	refuse("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
	       "unknown dtype");
	refuse("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no shape");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
	       "not a size");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4,
	       "not a size");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1e300],\"data_offsets\":[0,4]}}", 4,
	       "not a size");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}"
	       "}",
	       4, "not a size");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
	       4, "more than 8 dimensions");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
	       "data_offsets");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4,
	       "data_offsets");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
	       "its shape needs");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "truncated");
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
	       "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
	       4, "twice");
	refuse("{\"a\":7}", 0, "no dtype");
	refuse("{\"__metadata__\":7}", 0, "not an object");
	refuse("{\"__metadata__\":{\"a\":7}}", 0, "not a string");
}

static void refuses_every_truncation(void **state)
{
	const char *header = "{\"a\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}";
	struct st_file file;
	char message[ST_MESSAGE];
	int64_t size = 0;
	unsigned char *bytes = make(header, 12, &size);
	(void)state;
	for (int64_t cut = 0; cut < size; cut++) {
		/* An exact copy, so that a sanitizer sees the first byte read too far. */
		unsigned char *part = malloc((size_t)cut + 1);
		assert_non_null(part);
		memcpy(part, bytes, (size_t)cut);
		assert_false(st_parse(&file, part, cut, message));
		free(part);
	}
	assert_true(st_parse(&file, bytes, size, message));
	assert_int_equal(st_find(&file, "a")->bytes, 12);
	st_free(&file);
	free(bytes);
}

static void reads_what_it_writes(void **state)
{
	char path[] = "/tmp/hyscale_st_XXXXXX", message[ST_MESSAGE];
	float values[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
	int32_t list[2] = {-1, 5};
	char a[] = "a", b[] = "layer/\"b\"";
	struct st_tensor tensors[2] = {
		{.name = a,
		 .dtype = HYS_F32,
		 .rank = 2,
		 .shape = {2, 3},
		 .data = values,
		 .bytes = 24},
		{.name = b, .dtype = HYS_I32, .rank = 1, .shape = {2}, .data = list, .bytes = 8},
	};
	const char *metadata[] = {"op", "select", "note", "a \"quoted\" line"};
	struct st_file file;
	int descriptor = mkstemp(path);
	(void)state;
	assert_true(descriptor >= 0);
	close(descriptor);
	assert_true(st_write(path, tensors, 2, metadata, 2, message));
	assert_true(st_read(&file, path, message));
	assert_int_equal(file.count, 2);
	assert_string_equal(st_metadata(&file, "note"), "a \"quoted\" line");
	assert_memory_equal(st_find(&file, "a")->data, values, 24);
	assert_memory_equal(st_find(&file, "layer/\"b\"")->data, list, 8);
	assert_int_equal(st_find(&file, "a")->shape[1], 3);
	assert_null(st_find(&file, "c"));
	assert_null(st_metadata(&file, "c"));
	st_free(&file);
	unlink(path);
	assert_false(st_write("/nonexistent/x", tensors, 2, metadata, 2, message));
	assert_false(st_read(&file, "/nonexistent/x", message));
}

/* What is there and is no regular file is neither read nor replaced. */
static void leaves_what_is_no_file(void **state)
{
	char path[64], message[ST_MESSAGE];
	float value = 1;
	char name[] = "a";
	struct st_tensor tensor = {.name = name,
				   .dtype = HYS_F32,
				   .rank = 1,
				   .shape = {1},
				   .data = &value,
				   .bytes = sizeof(value)};
	struct st_file file;
	struct stat what;

	(void)state;
	assert_false(st_read(&file, "/tmp", message));
	assert_non_null(strstr(message, "regular file"));
	snprintf(path, sizeof(path), "/tmp/hyscale_st_%ld", (long)getpid());
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_false(st_write(path, &tensor, 1, NULL, 0, message));
	assert_non_null(strstr(message, "regular file"));
	assert_true(lstat(path, &what) == 0 && S_ISFIFO(what.st_mode));
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_damage),
		cmocka_unit_test(refuses_every_truncation),
		cmocka_unit_test(reads_what_it_writes),
		cmocka_unit_test(leaves_what_is_no_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
