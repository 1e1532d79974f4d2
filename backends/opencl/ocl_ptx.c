/* ocl_ptx.c - rewriting of PTX text. */
#include "ocl_ptx.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

#define MARK "//@"
#define DIRECTIVE MARK ".minnctapersm "
#define ARRAY "large_local_"
#define DIGITS_MAX 20

struct writer {
	char *text; /* of rewritten_room() bytes */
	size_t length;
	size_t body; /* where the last function's begins */
};

static void put(struct writer *out, const char *text, size_t length)
{
	memcpy(out->text + out->length, text, length);
	out->length += length;
}

/* First place of `what` in text[0, length), or NULL. */
static const char *find(const char *text, size_t length, const char *what)
{
	const size_t size = strlen(what);
	for (size_t i = 0; i + size <= length; i++)
		if (text[i] == what[0] && memcmp(text + i, what, size) == 0)
			return text + i;
	return NULL;
}

static bool starts(const char *line, size_t length, const char *what)
{
	return length >= strlen(what) && memcmp(line, what, strlen(what)) == 0;
}

static size_t count_blanks(const char *line, size_t length)
{
	size_t blanks = 0;
	while (blanks < length && (line[blanks] == ' ' || line[blanks] == '\t'))
		blanks++;
	return blanks;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* The number at text[0, length) and its digits; -1 when there is none. */
static int64_t number(const char *text, size_t length, size_t *digits)
{
	int64_t value = 0;
	size_t i = 0;
	for (; i < length && is_digit(text[i]) && i < 9; i++)
		value = value * 10 + (text[i] - '0');
	*digits = i;
	return i > 0 ? value : -1;
}

/* `.target sm_90, ...` */
static hys_status put_target(struct writer *out, const char *line, size_t length,
			     const char *target, struct hys_error *error)
{
	const char *name = find(line, length, "sm_");
	const size_t base = strlen(target) - 1;
	size_t digits = 0, used = 0;
	if (name)
		(void)number(name + 3, length - (size_t)(name + 3 - line), &digits);
	used = name ? (size_t)(name - line) + 3 + digits : 0;
	if (digits == 0 || 3 + digits != base || memcmp(name, target, base) != 0 ||
	    (used < length && line[used] >= 'a' && line[used] <= 'z'))
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"the driver compiled for \"%.*s\", %s needs %.*s",
				(int)hys_min64((int64_t)length, 60), line, target, (int)base,
				target);
	put(out, line, (size_t)(name - line));
	put(out, target, strlen(target));
	put(out, line + used, length - used);
	return HYS_OK;
}

/* `.shared .align 16 .b8 kernel_$_large_local_163840[1024];` */
static hys_status put_array(struct writer *out, const char *line, size_t length, const char *array,
			    struct hys_error *error)
{
	const char *wanted = array + strlen(ARRAY), *end = line + length;
	size_t digits = 0, old_digits = 0;
	const int64_t bytes = number(wanted, (size_t)(end - wanted), &digits);
	const char *bracket = wanted + digits;
	int64_t old = -1;
	if (bytes > 0 && bracket < end && *bracket == '[')
		old = number(bracket + 1, (size_t)(end - bracket - 1), &old_digits);
	if (old < 0 || bracket + 1 + old_digits >= end || bracket[1 + old_digits] != ']')
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"the driver declares local memory as \"%.*s\", which is unknown",
				(int)hys_min64((int64_t)length, 80), line);
	if (bytes < old || bytes > HYS_PTX_LOCAL_MAX)
		return hys_fail(error, HYS_INTERNAL, 0,
				"%lld bytes of local memory, expected %lld to %d", (long long)bytes,
				(long long)old, HYS_PTX_LOCAL_MAX);
	put(out, line, (size_t)(bracket + 1 - line));
	put(out, wanted, digits);
	put(out, bracket + 1 + old_digits, (size_t)(end - bracket - 1) - old_digits);
	return HYS_OK;
}

/* `//@.minnctapersm 4`, inside a body: goes in front of it, among the function's directives. */
static void put_directive(struct writer *out, const char *line, size_t length)
{
	char *body = out->text + out->body;
	memmove(body + length + 1, body, out->length - out->body);
	memcpy(body, line, length);
	body[length] = ' ';
	out->length += length + 1;
	out->body += length + 1;
}

/* Everything else: marks become blanks. */
static void put_line(struct writer *out, const char *line, size_t length)
{
	const char *mark;
	while ((mark = find(line, length, MARK)) != NULL) {
		const size_t before = (size_t)(mark - line);
		put(out, line, before);
		put(out, "   ", strlen(MARK));
		line += before + strlen(MARK);
		length -= before + strlen(MARK);
	}
	put(out, line, length);
}

/* No line grows by more than the letter of a target or the digits of a size. */
static size_t rewritten_room(const char *text, size_t length)
{
	size_t lines = 1;
	for (size_t i = 0; i < length; i++)
		lines += text[i] == '\n';
	return length + 1 + lines * DIGITS_MAX;
}

static hys_status rewrite_line(struct writer *out, const char *line, size_t length,
			       const char *target, bool *targeted, struct hys_error *error)
{
	const size_t blanks = count_blanks(line, length);
	const char *array = NULL;
	if (starts(line, length, ".target")) {
		*targeted = true;
		if (target[0])
			return put_target(out, line, length, target, error);
	}
	if (starts(line, length, "{"))
		out->body = out->length;
	if (starts(line + blanks, length - blanks, DIRECTIVE)) {
		if (out->body > 0)
			put_directive(out, line + blanks + strlen(MARK),
				      length - blanks - strlen(MARK));
		return HYS_OK;
	}
	if (starts(line + blanks, length - blanks, ".shared"))
		array = find(line, length, ARRAY);
	if (array)
		return put_array(out, line, length, array, error);
	put_line(out, line, length);
	return HYS_OK;
}

hys_status hys_ptx_rewrite(const struct hys_allocator *allocator, const char *text, size_t bytes,
			   const char *target, char **out, size_t *out_bytes,
			   struct hys_error *error)
{
	struct writer made = {0};
	bool targeted = false;
	hys_status status = HYS_OK;
	while (bytes > 0 && text[bytes - 1] == '\0')
		bytes--;
	made.text = hys_alloc(allocator, (int64_t)rewritten_room(text, bytes));
	if (!made.text)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a program's text");
	for (size_t at = 0; at < bytes;) {
		const char *end = memchr(text + at, '\n', bytes - at);
		const size_t length = end ? (size_t)(end - text) - at : bytes - at;
		HYS_TRY(rewrite_line(&made, text + at, length, target, &targeted, error));
		if (end)
			put(&made, "\n", 1);
		at += length + (end != NULL);
	}
	if (!targeted || memchr(text, '\0', bytes))
		HYS_TRY(hys_fail(error, HYS_UNSUPPORTED, 0,
				 "the driver's program binary is no PTX text"));
	put(&made, "", 1);
	*out = made.text;
	*out_bytes = made.length;
	made.text = NULL;
cleanup:
	hys_free(allocator, made.text);
	return status;
}
