#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "wisdom.h"
#include "wisdom_table.h"

#define MAGIC "hyscale-wisdom-"
#define FORMAT MAGIC "1"
#define LINE_MAX_BYTES 256
#define NANO INT64_C(1000000000)

/* ---- writing ---- */

static int print_fact(const struct hys_fact *fact, char *line, size_t size)
{
	if (fact->kind == HYS_FACT_PACE)
		return snprintf(line, size,
				"pace %s %016" PRIx64 " %016" PRIx64 " %s %" PRId64 " %" PRId64
				" %" PRId64 " %" PRId64 "\n",
				hys_op_name(fact->op), fact->problem, fact->device, fact->kernel,
				fact->pace[0], fact->pace[1], fact->pace[2], fact->pace[3]);
	if (fact->kind == HYS_FACT_TRUST)
		return snprintf(line, size, "trust %016" PRIx64 " %016" PRIx64 " %s\n",
				fact->problem, fact->device, fact->kernel);
	return snprintf(line, size,
			"choose %s %016" PRIx64 " %016" PRIx64 " %s %" PRId64 ".%09" PRId64 "\n",
			hys_op_name(fact->op), fact->problem, fact->device, fact->kernel,
			fact->nanoseconds / NANO, fact->nanoseconds % NANO);
}

char *hys_wisdom_print(const struct hys_wisdom *wisdom, int64_t *bytes)
{
	int64_t size = hys_mul64(wisdom->count + 2, LINE_MAX_BYTES);
	char *text = hys_alloc(&wisdom->allocator, size);
	int64_t length = 0;

	if (!text)
		return NULL;
	length += snprintf(text, LINE_MAX_BYTES, FORMAT " %s\n", HYS_VERSION_STRING);
	for (int64_t i = 0; i < wisdom->count; i++)
		length += print_fact(&wisdom->facts[i], text + length, LINE_MAX_BYTES);
	length += snprintf(text + length, LINE_MAX_BYTES, "checksum %016" PRIx64 "\n",
			   hys_hash(hys_hash_start, text, (size_t)length));
	*bytes = length;
	return text;
}

/* ---- reading ---- */

struct line {
	const char *at, *end; /* `end` is its newline */
	int64_t number;
};

struct word {
	const char *text;
	size_t length;
};

static bool is(const struct word *word, const char *text)
{
	return word->length == strlen(text) && memcmp(word->text, text, word->length) == 0;
}

/* The next word of the line; words are parted by one blank. */
static bool next_word(struct line *line, struct word *word)
{
	const char *blank;

	if (line->at > line->end)
		return false;
	blank = memchr(line->at, ' ', (size_t)(line->end - line->at));
	if (!blank)
		blank = line->end;
	*word = (struct word){line->at, (size_t)(blank - line->at)};
	line->at = blank + 1;
	return word->length > 0;
}

static bool at_end(const struct line *line)
{
	return line->at > line->end;
}

static bool parse_hex(struct line *line, uint64_t *value)
{
	struct word word;

	if (!next_word(line, &word) || word.length != 16)
		return false;
	*value = 0;
	for (size_t i = 0; i < 16; i++) {
		const char *digits = "0123456789abcdef";
		/* Its NUL is no digit. NOLINTNEXTLINE(bugprone-not-null-terminated-result) */
		const char *digit = memchr(digits, word.text[i], 16);

		if (!digit)
			return false;
		*value = *value << 4 | (uint64_t)(digit - digits);
	}
	return true;
}

static bool parse_digits(const char *text, size_t length, int64_t *value)
{
	*value = 0;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		*value = *value * 10 + (text[i] - '0');
	}
	return length > 0;
}

/* Up to nine digits, a point, nine digits. */
static bool parse_seconds(struct line *line, int64_t *nanoseconds)
{
	struct word word;
	int64_t whole, rest;
	size_t point;

	if (!next_word(line, &word) || word.length < 11 || word.length > 19)
		return false;
	point = word.length - 10;
	if (word.text[point] != '.' || !parse_digits(word.text, point, &whole) ||
	    !parse_digits(word.text + point + 1, 9, &rest))
		return false;
	*nanoseconds = whole * NANO + rest;
	return true;
}

static bool parse_op(struct line *line, hys_op *op)
{
	struct word word;

	if (!next_word(line, &word))
		return false;
	for (int i = 0; i < HYS_OP_COUNT; i++) {
		if (is(&word, hys_op_name((hys_op)i))) {
			*op = (hys_op)i;
			return true;
		}
	}
	return false;
}

static bool parse_kernel(struct line *line, char *kernel)
{
	struct word word;

	return next_word(line, &word) && hys_kernel_name_copy(kernel, word.text, word.length);
}

static bool parse_pace(struct line *line, struct hys_fact *fact)
{
	struct word word;

	for (int i = 0; i < 4; i++)
		if (!next_word(line, &word) || word.length > 19 ||
		    (word.length == 19 && word.text[0] == '9' && word.text[1] > '0') ||
		    !parse_digits(word.text, word.length, &fact->pace[i]))
			return false;
	return true;
}

static bool parse_kind(struct line *line, enum hys_fact_kind *kind)
{
	static const char *const names[] = {"choose", "trust", "pace"};
	struct word word;

	if (!next_word(line, &word))
		return false;
	for (int i = 0; i < 3; i++)
		if (is(&word, names[i])) {
			*kind = (enum hys_fact_kind)i;
			return true;
		}
	return false;
}

static bool parse_fact(struct line line, struct hys_fact *fact)
{
	memset(fact, 0, sizeof(*fact));
	if (!parse_kind(&line, &fact->kind) ||
	    (fact->kind != HYS_FACT_TRUST && !parse_op(&line, &fact->op)) ||
	    !parse_hex(&line, &fact->problem) || !parse_hex(&line, &fact->device) ||
	    !parse_kernel(&line, fact->kernel))
		return false;
	if (fact->kind == HYS_FACT_CHOICE && !parse_seconds(&line, &fact->nanoseconds))
		return false;
	if (fact->kind == HYS_FACT_PACE && !parse_pace(&line, fact))
		return false;
	return at_end(&line);
}

static hys_status damaged(const struct line *line, const char *expected, struct hys_error *error)
{
	return hys_fail(error, HYS_FORMAT, 0, "wisdom, line %" PRId64 ": expected %s", line->number,
			expected);
}

static hys_status parse_first(struct line line, struct hys_error *error)
{
	struct word format, version;

	if (!next_word(&line, &format) || format.length < strlen(MAGIC) ||
	    memcmp(format.text, MAGIC, strlen(MAGIC)) != 0)
		return damaged(&line, "\"" FORMAT " VERSION\"", error);
	if (!next_word(&line, &version) || !at_end(&line))
		return damaged(&line, "\"" FORMAT " VERSION\"", error);
	if (is(&format, FORMAT) && is(&version, HYS_VERSION_STRING))
		return HYS_OK;
	for (size_t i = 0; i < format.length + 1 + version.length; i++)
		if (format.text[i] < ' ' || format.text[i] > '~')
			return damaged(&line, "\"" FORMAT " VERSION\"", error);
	return hys_fail(error, HYS_VERSION_MISMATCH, 0,
			"wisdom of \"%.*s\", expected \"" FORMAT " %s\"",
			(int)hys_min64(60, (int64_t)(format.length + 1 + version.length)),
			format.text, HYS_VERSION_STRING);
}

/* The last line: nothing may follow it, and it must be right. */
static hys_status parse_checksum(struct line line, const char *text, int64_t bytes,
				 struct hys_error *error)
{
	const char *start = line.at;
	struct word word;
	uint64_t sum;

	if (!next_word(&line, &word) || !parse_hex(&line, &sum) || !at_end(&line))
		return damaged(&line, "\"checksum\" and 16 hexadecimal digits", error);
	if (sum != hys_hash(hys_hash_start, text, (size_t)(start - text)))
		return damaged(&line, "another checksum: the file was changed or cut", error);
	if (line.end + 1 != text + bytes)
		return damaged(&line, "the checksum to be the last line", error);
	return HYS_OK;
}

static bool is_checksum(struct line line)
{
	struct word word;

	return next_word(&line, &word) && is(&word, "checksum");
}

static hys_status parse_lines(struct hys_wisdom *wisdom, const char *text, int64_t bytes,
			      struct hys_error *error)
{
	struct line line = {text, NULL, 0};
	hys_status status = HYS_OK;

	while (status == HYS_OK) {
		struct hys_fact fact;

		line.number++;
		line.end = text + bytes == line.at
				   ? NULL
				   : memchr(line.at, '\n', (size_t)(text + bytes - line.at));
		if (!line.end)
			return damaged(&line, "a line that ends, and a checksum at the end", error);
		if (line.number > 1 && is_checksum(line))
			return parse_checksum(line, text, bytes, error);
		if (line.number == 1)
			status = parse_first(line, error);
		else if (!parse_fact(line, &fact))
			status = damaged(&line,
					 "\"choose OP PROBLEM DEVICE KERNEL SECONDS\", "
					 "\"trust PROBLEM DEVICE KERNEL\" or \"pace OP PROBLEM "
					 "DEVICE KERNEL CALL ROW FLOP BYTE\"",
					 error);
		else if (!hys_wisdom_add(wisdom, &fact))
			status = hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for wisdom");
		line.at = line.end + 1;
	}
	return status;
}

hys_status hys_wisdom_parse(struct hys_wisdom *wisdom, const char *text, int64_t bytes,
			    struct hys_error *error)
{
	struct hys_wisdom whole;
	hys_status status;

	if (!hys_wisdom_copy(wisdom, &whole))
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for wisdom");
	status = parse_lines(&whole, text, bytes, error);
	if (status != HYS_OK) {
		hys_wisdom_clear(&whole);
		return status;
	}
	hys_wisdom_clear(wisdom);
	*wisdom = whole;
	return HYS_OK;
}
