#include "tool.h"

#include <math.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static bool json_errors;

void tool_json_errors(void)
{
	json_errors = true;
}

int tool_complain(const char *format, ...)
{
	char message[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	for (char *c = message; *c; c++) /* names come from files */
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, message);
	if (json_errors) {
		cJSON *line = cJSON_CreateObject();
		cJSON_AddStringToObject(line, "error", message);
		tool_json_line(line);
	}
	return TOOL_USAGE;
}

int tool_failed(const char *what, const struct hys_error *error)
{
	return tool_complain("%s: %s (%s)", what, error->message, hys_status_name(error->status));
}

const struct tool_colours *tool_colours(void)
{
	static const struct tool_colours plain = {"", "", "", "", ""};
	static const struct tool_colours ansi = {"\033[32m", "\033[31m", "\033[2m", "\033[1m",
						 "\033[0m"};
	return isatty(STDOUT_FILENO) && !getenv("NO_COLOR") ? &ansi : &plain;
}

bool tool_integer(const char *text, int64_t low, int64_t high, int64_t *value)
{
	char *end = NULL;
	errno = 0;
	long long parsed = strtoll(text, &end, 10);
	if (end == text || *end != '\0' || errno || parsed < low || parsed > high)
		return false;
	*value = parsed;
	return true;
}

int64_t tool_number(struct argp_state *state, const struct argp_option *options, int key,
		    const char *text, int64_t low, int64_t high)
{
	int64_t value = low;
	while (options->name && options->key != key)
		options++;
	if (!tool_integer(text, low, high, &value))
		argp_error(state, "--%s is '%s', expected a whole number from %lld to %lld",
			   options->name ? options->name : "?", text, (long long)low,
			   (long long)high);
	return value;
}

int tool_choice(struct argp_state *state, const char *option, const char *text,
		const char *const *names, int n)
{
	char all[256] = "";
	for (int i = 0; i < n; i++) {
		const size_t length = strlen(all);
		if (strcmp(text, names[i]) == 0)
			return i;
		snprintf(all + length, sizeof all - length, "%s%s", i ? ", " : "", names[i]);
	}
	argp_error(state, "%s '%s' is unknown; it is one of %s", option, text, all);
	return 0;
}

const char *tool_model(int argc, char **argv, const char *model)
{
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--model=", 8) == 0)
			model = argv[i] + 8;
		else if ((strcmp(argv[i], "--model") == 0 || strcmp(argv[i], "-m") == 0) &&
			 i + 1 < argc)
			model = argv[i + 1];
	}
	return model;
}

static bool device_matches(const char *wanted, int32_t number, const struct hys_device_info *info)
{
	int64_t parsed = 0;
	if (!wanted || strcmp(wanted, "all") == 0)
		return true;
	if (tool_integer(wanted, 0, INT32_MAX, &parsed))
		return parsed == number;
	return strcmp(wanted, info->backend) == 0 || strstr(info->name, wanted);
}

/* The part of a comma list at *at, which moves on; false at the end. */
static bool next_part(const char **at, char part[256])
{
	const size_t length = strcspn(*at, ",");
	if (!**at)
		return false;
	snprintf(part, 256, "%.*s", (int)(length < 255 ? length : 255), *at);
	*at += length + ((*at)[length] == ',');
	return true;
}

/* Marks the devices that match; answers how many do. */
static int32_t mark_devices(const char *wanted, struct hys_context *context, bool *marked)
{
	const int32_t total = hys_context_device_count(context);
	int32_t found = 0;
	for (int32_t i = 0; i < total; i++) {
		struct hys_device_info info;
		struct hys_error error;
		if (hys_context_device_info(context, i, &info, &error) != HYS_OK ||
		    !device_matches(wanted, i, &info))
			continue;
		marked[i] = true;
		found++;
	}
	return found;
}

/* A device, or a comma list of them; a name may hold commas itself, so the whole text is tried first. */
static int match_devices(const char *device, struct hys_context *context, int32_t **numbers,
			 int32_t *count)
{
	const int32_t total = hys_context_device_count(context);
	bool *marked = calloc((size_t)total + 1, sizeof *marked);
	char part[256];
	*count = 0;
	*numbers = calloc((size_t)total + 1, sizeof **numbers);
	if (!*numbers || !marked) {
		free(marked);
		return tool_complain("out of memory");
	}
	if (mark_devices(device, context, marked) == 0)
		for (const char *at = device ? device : ""; next_part(&at, part);)
			if (mark_devices(part, context, marked) == 0) {
				free(marked);
				return tool_complain(
					"no device matches '%s'; 'hyscale devices' lists them",
					part);
			}
	for (int32_t i = 0; i < total; i++)
		if (marked[i])
			(*numbers)[(*count)++] = i;
	free(marked);
	return *count > 0 ? TOOL_OK : tool_complain("there is no device");
}

static void print_log(void *user, hys_log_level level, const char *message)
{
	(void)user;
	if (level <= HYS_LOG_WARNING || getenv("HYS_VERBOSE"))
		fprintf(stderr, "%s\n", message);
}

int tool_open(const char *device, struct hys_context **context, int32_t **numbers, int32_t *count)
{
	struct hys_context_options options = {.struct_size = sizeof options, .log = print_log};
	struct hys_error error;
	*context = NULL;
	*numbers = NULL;
	/* Asking for a backend by name brings its own reason when it is missing. */
	if (device && (strcmp(device, "openmp") == 0 || strcmp(device, "opencl") == 0))
		options.devices = device;
	if (hys_context_create(&options, context, &error) != HYS_OK)
		return tool_failed("no devices", &error);
	int result = match_devices(device, *context, numbers, count);
	if (result != TOOL_OK) {
		free(*numbers);
		hys_context_destroy(*context);
	}
	return result;
}

int tool_wisdom(struct hys_context *context, const char *path)
{
	struct hys_error error;
	if (path && hys_wisdom_import(context, path, &error) != HYS_OK)
		return tool_failed("wisdom", &error);
	return TOOL_OK;
}

int tool_can_write_wisdom(struct hys_context *context, const char *path)
{
	struct hys_error error;
	return hys_wisdom_export(context, path, &error) == HYS_OK ? TOOL_OK
								  : tool_failed("wisdom", &error);
}

int tool_describe(const struct hys_plan *plan)
{
	size_t size = hys_plan_describe(plan, NULL, 0) + 1;
	char *text = malloc(size);
	if (!text)
		return tool_complain("out of memory");
	hys_plan_describe(plan, text, size);
	fputs(text, stdout);
	free(text);
	return TOOL_OK;
}

double tool_now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double tool_median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof *values, compare_doubles);
	return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

static char *text_slot(void)
{
	static char ring[16][32];
	static unsigned next;
	return ring[next++ % 16];
}

const char *tool_bytes(double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	char *text = text_slot();
	int unit = 0;
	while (bytes >= 1024 && unit < 5) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, 32, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
	return text;
}

const char *tool_rate(double per_second, const char *unit)
{
	static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z"};
	char *text = text_slot();
	int prefix = 0;
	while (per_second >= 1000 && prefix < 7) {
		per_second /= 1000;
		prefix++;
	}
	snprintf(text, 32, "%.1f %s%s", per_second, prefixes[prefix], unit);
	return text;
}

const char *tool_time(double seconds)
{
	static const struct {
		double from, one;
		const char *format;
	} units[] = {{3.15576e10, 3.15576e7, "%.3g years"},
		     {3.15576e7, 3.15576e7, "%.1f years"},
		     {172800, 86400, "%.1f days"},
		     {7200, 3600, "%.1f h"},
		     {600, 60, "%.1f min"},
		     {1, 1, "%.2f s"},
		     {1e-3, 1e-3, "%.2f ms"},
		     {0, 1e-6, "%.1f us"}};
	char *text = text_slot();
	int unit = 0;
	while (unit < 7 && !(seconds >= units[unit].from))
		unit++;
	snprintf(text, 32, units[unit].format, seconds / units[unit].one);
	return text;
}

int64_t tool_peak_memory(void)
{
	struct rusage usage;
	return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

int64_t tool_host_memory_left(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[256];
	long long kib = 0;
	while (file && fgets(line, sizeof line, file))
		if (strncmp(line, "MemAvailable:", 13) == 0)
			kib = strtoll(line + 13, NULL, 10);
	if (file)
		fclose(file);
	return (int64_t)kib * 1024;
}

/* What a control group allows is in memory_bytes of the processor. */
int64_t tool_memory_left(const struct hys_device_info *info)
{
	const int64_t left = info->kind == HYS_DEVICE_CPU ? tool_host_memory_left() : 0;
	return left > 0 && (info->memory_bytes == 0 || left < info->memory_bytes)
		       ? left
		       : info->memory_bytes;
}

bool tool_fits(int64_t bytes, const struct hys_device_info *info, const char *advice,
	       struct hys_error *error)
{
	const int64_t left = tool_memory_left(info);
	if (left == 0 || bytes <= left)
		return true;
	*error = (struct hys_error){.status = HYS_OUT_OF_MEMORY};
	snprintf(error->message, sizeof error->message, "needs %s, %.64s has %s%s: %s",
		 tool_bytes((double)bytes), info->name, tool_bytes((double)left),
		 info->kind == HYS_DEVICE_CPU ? " left" : "", advice);
	return false;
}

void tool_progress(int64_t step, int64_t steps, const char *what)
{
	if (!isatty(STDERR_FILENO))
		return;
	int filled = steps > 0 ? (int)(24 * step / steps) : 24;
	fprintf(stderr, "\r[%.*s%*s] %-48.48s", filled, "########################", 24 - filled, "",
		what);
	if (step >= steps)
		fprintf(stderr, "\r%76s\r", "");
	fflush(stderr);
}

int tool_plan_progress(void *user, int32_t step, int32_t steps, const char *what)
{
	(void)user;
	tool_progress(step, steps, what);
	return 0;
}

/* Bytes of the character at `text`, 0 if it is not UTF-8: no encoding but the shortest, no surrogates. */
static int utf8_length(const unsigned char *text)
{
	static const struct {
		unsigned char low, high, second_low, second_high;
		int bytes;
	} leads[] = {{0x01, 0x7f, 0, 0, 1},	  {0xc2, 0xdf, 0x80, 0xbf, 2},
		     {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
		     {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
		     {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
		     {0xf4, 0xf4, 0x80, 0x8f, 4}};
	for (size_t i = 0; i < sizeof leads / sizeof leads[0]; i++) {
		if (text[0] < leads[i].low || text[0] > leads[i].high)
			continue;
		if (leads[i].bytes > 1 &&
		    (text[1] < leads[i].second_low || text[1] > leads[i].second_high))
			return 0;
		for (int b = 2; b < leads[i].bytes; b++)
			if ((text[b] & 0xc0) != 0x80)
				return 0;
		return leads[i].bytes;
	}
	return 0;
}

/* Names of files may be any bytes, JSON may not. */
static void make_utf8(char *text)
{
	while (*text) {
		const int length = utf8_length((const unsigned char *)text);
		if (length == 0)
			*text = '?';
		text += length > 0 ? length : 1;
	}
}

void tool_json_line(cJSON *object)
{
	char *text = cJSON_PrintUnformatted(object);
	if (text)
		make_utf8(text);
	puts(text ? text : "{\"error\":\"out of memory\"}");
	cJSON_free(text);
	cJSON_Delete(object);
}

static double from_float_bits(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return (double)value;
}

static double from_f16(uint16_t bits)
{
	int exponent = bits >> 10 & 31, fraction = bits & 1023;
	double sign = bits & 0x8000 ? -1 : 1;
	if (exponent == 31)
		return fraction ? (double)NAN : sign * (double)INFINITY;
	return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static double from_f8(uint8_t bits)
{
	int exponent = bits >> 3 & 15, fraction = bits & 7;
	double sign = bits & 0x80 ? -1 : 1;
	if ((bits & 0x7f) == 0x7f)
		return NAN;
	return sign * (exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9));
}

double tool_get(hys_dtype dtype, const void *data, int64_t i)
{
	switch (dtype) {
	case HYS_F32:
		return (double)((const float *)data)[i];
	case HYS_F16:
		return from_f16(((const uint16_t *)data)[i]);
	case HYS_BF16:
		return from_float_bits((uint32_t)((const uint16_t *)data)[i] << 16);
	case HYS_F8E4M3:
		return from_f8(((const uint8_t *)data)[i]);
	case HYS_I32:
		return ((const int32_t *)data)[i];
	default:
		return 0;
	}
}

/* Exponent and rounded fraction of a small float's magnitude; ties to even by nearbyint. What is
 * too large becomes `overflow`, NaN the bits `nan`. */
static uint32_t to_small(double value, int fraction_bits, int bias, uint32_t overflow, uint32_t nan)
{
	int exponent = 0;
	double magnitude = fabs(value);
	if (magnitude == 0)
		return 0;
	frexp(magnitude, &exponent);
	exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
	double scaled = nearbyint(ldexp(magnitude, fraction_bits - exponent));
	double units = scaled + ldexp((double)(exponent + bias - 1), fraction_bits);
	return isnan(value) ? nan : units > (double)overflow ? overflow : (uint32_t)units;
}

void tool_put(hys_dtype dtype, void *data, int64_t i, double value)
{
	uint32_t sign = signbit(value) ? 1 : 0;
	switch (dtype) {
	case HYS_F32:
		((float *)data)[i] = (float)value;
		break;
	case HYS_F16:
		((uint16_t *)data)[i] =
			(uint16_t)(sign << 15 | to_small(value, 10, 15, 0x7c00, 0x7e00));
		break;
	case HYS_BF16:
		((uint16_t *)data)[i] =
			(uint16_t)(sign << 15 | to_small(value, 7, 127, 0x7f80, 0x7fc0));
		break;
	case HYS_F8E4M3:
		((uint8_t *)data)[i] = (uint8_t)(sign << 7 | to_small(value, 3, 7, 0x7e, 0x7f));
		break;
	case HYS_I32:
		((int32_t *)data)[i] = (int32_t)value;
		break;
	default:
		break;
	}
}
