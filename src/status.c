#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "hyscale/hyscale.h"

static const char *const status_names[HYS_STATUS_COUNT] = {
#define HYS_STATUS_NAME(name, text) "HYS_" #name,
	HYS_STATUS_MAP(HYS_STATUS_NAME)
#undef HYS_STATUS_NAME
};

static const char *const status_texts[HYS_STATUS_COUNT] = {
#define HYS_STATUS_TEXT(name, text) text,
	HYS_STATUS_MAP(HYS_STATUS_TEXT)
#undef HYS_STATUS_TEXT
};

static const char *const op_names[HYS_OP_COUNT] = {
#define HYS_OP_NAME(name, text) text,
	HYS_OP_MAP(HYS_OP_NAME)
#undef HYS_OP_NAME
};

static const struct {
	const char *name;
	size_t bytes;
} dtypes[HYS_DTYPE_COUNT] = {
	[HYS_DTYPE_DEFAULT] = {"none", 0}, [HYS_F32] = {"f32", 4},	 [HYS_F16] = {"f16", 2},
	[HYS_BF16] = {"bf16", 2},	   [HYS_F8E4M3] = {"f8e4m3", 1}, [HYS_I32] = {"i32", 4},
};

const char *hys_status_name(hys_status status)
{
	return (unsigned)status < HYS_STATUS_COUNT ? status_names[status] : "HYS_UNKNOWN";
}

const char *hys_status_string(hys_status status)
{
	return (unsigned)status < HYS_STATUS_COUNT ? status_texts[status] : "unknown status";
}

const char *hys_op_name(hys_op op)
{
	return (unsigned)op < HYS_OP_COUNT ? op_names[op] : "unknown";
}

size_t hys_dtype_size(hys_dtype dtype)
{
	return (unsigned)dtype < HYS_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *hys_dtype_name(hys_dtype dtype)
{
	return (unsigned)dtype < HYS_DTYPE_COUNT ? dtypes[dtype].name : "none";
}

const char *hys_version_string(void)
{
	return HYS_VERSION_STRING;
}

int hys_version_number(void)
{
	return HYS_VERSION_NUMBER;
}

/* Drivers end their messages in newlines and build logs are full of them. */
static void one_line(char *text)
{
	size_t length = strlen(text);

	while (length > 0 && (unsigned char)text[length - 1] <= ' ')
		text[--length] = '\0';
	for (; *text; text++)
		if ((unsigned char)*text < ' ')
			*text = ' ';
}

void hys_report(struct hys_error *error, hys_status status, int32_t native, const char *format, ...)
{
	va_list arguments;

	if (!error)
		return;
	error->status = status;
	error->native = native;
	va_start(arguments, format);
	if (vsnprintf(error->message, sizeof(error->message), format, arguments) < 0)
		error->message[0] = '\0';
	va_end(arguments);
	one_line(error->message);
}

/* Larger than any struct of this or a coming version: what is above was never
 * set by a caller. */
#define HYS_STRUCT_SIZE_MAX 65536

hys_status hys_check_struct(const void *options, size_t known, const char *name,
			    struct hys_error *error)
{
	const unsigned char *bytes = options;
	size_t given;

	if (!options)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL", name);
	memcpy(&given, options, sizeof(given));
	if (given < known || given > HYS_STRUCT_SIZE_MAX)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: struct_size is %zu, expected %zu (sizeof of the struct)", name,
				given, known);
	for (size_t i = known; i < given; i++)
		if (bytes[i] != 0)
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"%s: struct_size is %zu and a field beyond the %zu bytes "
					"that this version knows is set",
					name, given, known);
	return HYS_OK;
}

hys_status hys_check_range(struct hys_error *error, const char *name, int64_t value, int64_t least,
			   int64_t most)
{
	if (value >= least && value <= most)
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is %lld, expected %lld to %lld", name,
			(long long)value, (long long)least, (long long)most);
}

int64_t hys_mul64(int64_t a, int64_t b)
{
	return b != 0 && a > INT64_MAX / b ? INT64_MAX : a * b;
}

int64_t hys_add64(int64_t a, int64_t b)
{
	return a > INT64_MAX - b ? INT64_MAX : a + b;
}
