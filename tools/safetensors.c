#define _XOPEN_SOURCE 700
#include "safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX (100 << 20)	       /* as other readers of the format limit it */
#define INTEGER_MAX 9007199254740992.0 /* exact in JSON's doubles */

static const struct {
	const char *name;
	hys_dtype dtype;
	int32_t bytes;
} dtypes[] = {
	{"F32", HYS_F32, 4},
	{"F16", HYS_F16, 2},
	{"BF16", HYS_BF16, 2},
	{"F8_E4M3", HYS_F8E4M3, 1},
	{"I32", HYS_I32, 4},
	{"F64", HYS_DTYPE_DEFAULT, 8},
	{"I64", HYS_DTYPE_DEFAULT, 8},
	{"U64", HYS_DTYPE_DEFAULT, 8},
	{"U32", HYS_DTYPE_DEFAULT, 4},
	{"I16", HYS_DTYPE_DEFAULT, 2},
	{"U16", HYS_DTYPE_DEFAULT, 2},
	{"I8", HYS_DTYPE_DEFAULT, 1},
	{"U8", HYS_DTYPE_DEFAULT, 1},
	{"BOOL", HYS_DTYPE_DEFAULT, 1},
	{"F8_E5M2", HYS_DTYPE_DEFAULT, 1},
};
#define DTYPE_COUNT ((int32_t)(sizeof dtypes / sizeof dtypes[0]))

__attribute__((format(printf, 2, 3))) static void describe(char message[ST_MESSAGE],
							   const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(message, ST_MESSAGE, format, args);
	va_end(args);
	for (char *c = message; *c; c++) /* names come from the file */
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
}
/* A macro, so that analyzers see which way its callers go. */
#define fail(...) (describe(__VA_ARGS__), false)

static bool json_integer(const cJSON *item, int64_t *value)
{
	if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > INTEGER_MAX ||
	    item->valuedouble != (double)(int64_t)item->valuedouble)
		return false;
	*value = (int64_t)item->valuedouble;
	return true;
}

static bool parse_dtype(struct st_tensor *tensor, const cJSON *entry, int32_t *element_bytes,
			char message[ST_MESSAGE])
{
	const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "dtype"));
	if (!name)
		return fail(message, "tensor '%.60s' has no dtype", tensor->name);
	for (int32_t i = 0; i < DTYPE_COUNT; i++) {
		if (strcmp(name, dtypes[i].name) == 0) {
			snprintf(tensor->dtype_name, sizeof tensor->dtype_name, "%s", name);
			tensor->dtype = dtypes[i].dtype;
			*element_bytes = dtypes[i].bytes;
			return true;
		}
	}
	return fail(message, "tensor '%.60s' has the unknown dtype '%.20s'", tensor->name, name);
}

static bool parse_shape(struct st_tensor *tensor, const cJSON *entry, int64_t *elements,
			char message[ST_MESSAGE])
{
	const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
	const cJSON *size;
	if (!cJSON_IsArray(shape))
		return fail(message, "tensor '%.60s' has no shape", tensor->name);
	*elements = 1;
	cJSON_ArrayForEach(size, shape)
	{
		int64_t n = 0;
		if (tensor->rank == ST_RANK_MAX)
			return fail(message, "tensor '%.60s' has more than %d dimensions",
				    tensor->name, ST_RANK_MAX);
		if (!json_integer(size, &n) || (n > 0 && *elements > INT64_MAX / 8 / n))
			return fail(message, "tensor '%.60s': size %d is not a size", tensor->name,
				    tensor->rank);
		tensor->shape[tensor->rank++] = n;
		*elements *= n;
	}
	return true;
}

static bool parse_offsets(struct st_tensor *tensor, const cJSON *entry, int64_t expected,
			  const unsigned char *data, int64_t data_bytes, char message[ST_MESSAGE])
{
	const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
	int64_t begin = 0, end = 0;
	if (cJSON_GetArraySize(offsets) != 2 ||
	    !json_integer(cJSON_GetArrayItem(offsets, 0), &begin) ||
	    !json_integer(cJSON_GetArrayItem(offsets, 1), &end) || end < begin)
		return fail(message, "tensor '%.60s' has no valid data_offsets", tensor->name);
	if (end > data_bytes)
		return fail(message,
			    "tensor '%.60s' ends at byte %" PRId64 " of %" PRId64
			    " bytes of data: the file is truncated",
			    tensor->name, end, data_bytes);
	if (end - begin != expected)
		return fail(message,
			    "tensor '%.60s' has %" PRId64 " bytes, its shape needs %" PRId64,
			    tensor->name, end - begin, expected);
	tensor->data = data + begin;
	tensor->bytes = expected;
	return true;
}

/* The format asks for no alignment; reading elements does. */
static bool align_data(struct st_tensor *tensor, int32_t element_bytes, char message[ST_MESSAGE])
{
	if ((uintptr_t)tensor->data % (uintptr_t)element_bytes == 0)
		return true;
	tensor->aligned = malloc((size_t)tensor->bytes + 1);
	if (!tensor->aligned)
		return fail(message, "out of memory for %" PRId64 " bytes", tensor->bytes);
	memcpy(tensor->aligned, tensor->data, (size_t)tensor->bytes);
	tensor->data = tensor->aligned;
	return true;
}

static bool parse_tensor(struct st_file *file, const cJSON *entry, const unsigned char *data,
			 int64_t data_bytes, char message[ST_MESSAGE])
{
	struct st_tensor *tensor = &file->tensors[file->count];
	int32_t element_bytes = 0;
	int64_t elements = 0;
	if (st_find(file, entry->string))
		return fail(message, "tensor '%.60s' appears twice", entry->string);
	tensor->name = strdup(entry->string);
	if (!tensor->name)
		return fail(message, "out of memory");
	file->count++;
	return parse_dtype(tensor, entry, &element_bytes, message) &&
	       parse_shape(tensor, entry, &elements, message) &&
	       parse_offsets(tensor, entry, elements * element_bytes, data, data_bytes, message) &&
	       align_data(tensor, element_bytes, message);
}

static bool parse_metadata(struct st_file *file, const cJSON *object, char message[ST_MESSAGE])
{
	const cJSON *item;
	if (!cJSON_IsObject(object))
		return fail(message, "__metadata__ is not an object");
	file->metadata = calloc((size_t)cJSON_GetArraySize(object) * 2 + 1, sizeof(char *));
	if (!file->metadata)
		return fail(message, "out of memory");
	cJSON_ArrayForEach(item, object)
	{
		if (!cJSON_IsString(item))
			return fail(message, "metadata '%.60s' is not a string", item->string);
		char **pair = &file->metadata[2 * (int64_t)file->metadata_count];
		pair[0] = strdup(item->string);
		pair[1] = strdup(item->valuestring);
		file->metadata_count++;
		if (!pair[0] || !pair[1])
			return fail(message, "out of memory");
	}
	return true;
}

static bool parse_header(struct st_file *file, const cJSON *header, const unsigned char *data,
			 int64_t data_bytes, char message[ST_MESSAGE])
{
	const cJSON *entry;
	if (!cJSON_IsObject(header))
		return fail(message, "not a safetensors file: the header is not a JSON object");
	file->count = 0;
	file->tensors = calloc((size_t)cJSON_GetArraySize(header) + 1, sizeof *file->tensors);
	if (!file->tensors)
		return fail(message, "out of memory");
	cJSON_ArrayForEach(entry, header)
	{
		bool metadata = strcmp(entry->string, "__metadata__") == 0;
		if (metadata && file->metadata)
			return fail(message, "__metadata__ appears twice");
		if (metadata ? !parse_metadata(file, entry, message)
			     : !parse_tensor(file, entry, data, data_bytes, message))
			return false;
	}
	return true;
}

bool st_parse(struct st_file *file, const void *bytes, int64_t size, char message[ST_MESSAGE])
{
	const unsigned char *start = bytes;
	uint64_t length = 0;
	*file = (struct st_file){0};
	if (size < 8)
		return fail(message, "not a safetensors file: %" PRId64 " bytes are too few", size);
	for (int i = 7; i >= 0; i--)
		length = length << 8 | start[i];
	if (length > HEADER_MAX || (int64_t)length > size - 8)
		return fail(message,
			    "not a safetensors file, or truncated: header of %" PRIu64
			    " bytes in a file of %" PRId64,
			    length, size);
	cJSON *header = cJSON_ParseWithLength((const char *)start + 8, (size_t)length);
	bool ok = header ? parse_header(file, header, start + 8 + length,
					size - 8 - (int64_t)length, message)
			 : fail(message, "not a safetensors file: the header is not JSON");
	cJSON_Delete(header);
	if (!ok)
		st_free(file);
	return ok;
}

static bool read_all(FILE *stream, unsigned char **bytes, int64_t *size, char message[ST_MESSAGE])
{
	struct stat what;

	/* a directory claims a size of 2^63 - 1, and a device none */
	if (fstat(fileno(stream), &what) != 0 || !S_ISREG(what.st_mode))
		return fail(message, "cannot be read: not a regular file");
	if (fseeko(stream, 0, SEEK_END) != 0 || (*size = ftello(stream)) < 0 ||
	    fseeko(stream, 0, SEEK_SET) != 0)
		return fail(message, "cannot be read: %s", strerror(errno));
	if ((uint64_t)*size < SIZE_MAX / 2)
		*bytes = malloc((size_t)*size + 1);
	if (!*bytes)
		return fail(message, "out of memory for %" PRId64 " bytes", *size);
	if (fread(*bytes, 1, (size_t)*size, stream) != (size_t)*size)
		return fail(message, "cannot be read: %s", errno ? strerror(errno) : "short read");
	return true;
}

bool st_read(struct st_file *file, const char *path, char message[ST_MESSAGE])
{
	unsigned char *bytes = NULL;
	int64_t size = 0;
	*file = (struct st_file){0};
	errno = 0;
	struct stat what;
	/* A pipe would be waited for. */
	if (stat(path, &what) == 0 && !S_ISREG(what.st_mode))
		return fail(message, "is not a regular file");
	FILE *stream = fopen(path, "rb");
	if (!stream)
		return fail(message, "cannot be opened: %s", strerror(errno));
	bool ok = read_all(stream, &bytes, &size, message) && st_parse(file, bytes, size, message);
	fclose(stream);
	if (!ok) {
		free(bytes);
		return false;
	}
	file->owned = bytes;
	return true;
}

void st_free(struct st_file *file)
{
	for (int32_t i = 0; i < file->count; i++) {
		free(file->tensors[i].name);
		free(file->tensors[i].aligned);
	}
	for (int64_t i = 0; i < 2 * (int64_t)file->metadata_count; i++)
		free(file->metadata[i]);
	free(file->tensors);
	free(file->metadata);
	free(file->owned);
	*file = (struct st_file){0};
}

const struct st_tensor *st_find(const struct st_file *file, const char *name)
{
	for (int32_t i = 0; i < file->count; i++)
		if (strcmp(file->tensors[i].name, name) == 0)
			return &file->tensors[i];
	return NULL;
}

const char *st_metadata(const struct st_file *file, const char *key)
{
	for (int64_t i = 0; i < file->metadata_count; i++)
		if (strcmp(file->metadata[2 * i], key) == 0)
			return file->metadata[2 * i + 1];
	return NULL;
}

static const char *dtype_name(hys_dtype dtype)
{
	for (int32_t i = 0; i < DTYPE_COUNT; i++)
		if (dtypes[i].dtype == dtype)
			return dtypes[i].name;
	return "U8";
}

static bool add_tensor(cJSON *header, const struct st_tensor *tensor, int64_t *offset)
{
	cJSON *entry = cJSON_AddObjectToObject(header, tensor->name);
	cJSON *shape = cJSON_CreateArray();
	bool ok = entry && cJSON_AddStringToObject(entry, "dtype", dtype_name(tensor->dtype)) &&
		  cJSON_AddItemToObject(entry, "shape", shape);
	for (int32_t d = 0; ok && d < tensor->rank; d++)
		ok = cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[d]));
	cJSON *offsets = ok ? cJSON_AddArrayToObject(entry, "data_offsets") : NULL;
	ok = offsets && cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*offset)) &&
	     cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)(*offset + tensor->bytes)));
	*offset += tensor->bytes;
	return ok;
}

/* The header as text, padded with blanks so that the data starts at a multiple of 8. */
static char *make_header(const struct st_tensor *tensors, int32_t count,
			 const char *const *metadata, int32_t metadata_count)
{
	cJSON *header = cJSON_CreateObject();
	cJSON *object = cJSON_AddObjectToObject(header, "__metadata__");
	int64_t offset = 0;
	bool ok = object;
	for (int64_t i = 0; ok && i < metadata_count; i++)
		ok = cJSON_AddStringToObject(object, metadata[2 * i], metadata[2 * i + 1]);
	for (int32_t i = 0; ok && i < count; i++)
		ok = add_tensor(header, &tensors[i], &offset);
	char *text = ok ? cJSON_PrintUnformatted(header) : NULL;
	cJSON_Delete(header);
	if (!text)
		return NULL;
	size_t length = strlen(text), padded = (length + 7) / 8 * 8;
	char *result = malloc(padded + 1);
	if (result) {
		memset(result, ' ', padded);
		memcpy(result, text, length);
		result[padded] = '\0';
	}
	cJSON_free(text);
	return result;
}

static bool write_all(FILE *stream, const char *header, const struct st_tensor *tensors,
		      int32_t count)
{
	const size_t length = strlen(header);
	unsigned char prefix[8];
	for (int i = 0; i < 8; i++)
		prefix[i] = (unsigned char)((uint64_t)length >> 8 * i);
	bool ok = fwrite(prefix, 1, 8, stream) == 8 && fwrite(header, 1, length, stream) == length;
	for (int32_t i = 0; ok && i < count; i++)
		ok = fwrite(tensors[i].data, 1, (size_t)tensors[i].bytes, stream) ==
		     (size_t)tensors[i].bytes;
	return ok && fflush(stream) == 0;
}

/* Where a rename is to put the file: what a link leads to; never in the place of a device. */
static bool find_place(const char *path, char **place, char message[ST_MESSAGE])
{
	struct stat what;

	*place = NULL;
	if (lstat(path, &what) != 0) {
		*place = strdup(path);
		return *place || fail(message, "out of memory");
	}
	*place = realpath(path, NULL);
	if (!*place || stat(*place, &what) != 0)
		return fail(message, "cannot be written: %s", strerror(errno));
	return S_ISREG(what.st_mode) || fail(message, "cannot be written: not a regular file");
}

static bool replace_file(const char *path, const struct st_tensor *tensors, int32_t count,
			 const char *const *metadata, int32_t metadata_count,
			 char message[ST_MESSAGE])
{
	size_t length = strlen(path) + 8;
	char *temporary = malloc(length), *header = NULL;
	bool ok = false;
	FILE *stream = NULL;
	if (temporary) {
		snprintf(temporary, length, "%s.part", path);
		header = make_header(tensors, count, metadata, metadata_count);
	}
	if (!header) {
		free(temporary);
		return fail(message, "out of memory");
	}
	stream = fopen(temporary, "wb");
	ok = stream && write_all(stream, header, tensors, count);
	if (stream && fclose(stream) != 0)
		ok = false;
	if (!ok || rename(temporary, path) != 0) {
		ok = fail(message, "cannot be written: %s", strerror(errno));
		if (stream)
			unlink(temporary);
	}
	free(header);
	free(temporary);
	return ok;
}

bool st_write(const char *path, const struct st_tensor *tensors, int32_t count,
	      const char *const *metadata, int32_t metadata_count, char message[ST_MESSAGE])
{
	char *place;
	bool ok = find_place(path, &place, message) &&
		  replace_file(place, tensors, count, metadata, metadata_count, message);

	free(place);
	return ok;
}
