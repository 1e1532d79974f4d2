/* Plans as files: what was chosen is written, what is built is built again. */
#include "plan_file.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "file.h"
#include "text.h"

#define FIRST_LINE "hyscale-plan-2"
#define FILE_MAX ((int64_t)1 << 20)
#define WORD_MAX 64

/* ---- the numbers of a plan, in the file's order ---- */

enum kind { INT, REAL, WIDE }; /* int32 and enums, double, int64 */

struct number {
	const char *name;
	size_t offset; /* in struct hys_wish */
	enum kind kind;
};

#define NUMBER(field, kind)                                    \
	{                                                      \
#field, offsetof(struct hys_wish, field), kind \
	}

static const struct number numbers[] = {
	NUMBER(problem.scoring.heads, INT),
	NUMBER(problem.scoring.dim, INT),
	NUMBER(problem.scoring.groups, INT),
	NUMBER(problem.scoring.block, INT),
	NUMBER(problem.scoring.pool, INT),
	NUMBER(problem.scoring.dtype, INT),
	NUMBER(problem.scoring.activation, INT),
	NUMBER(problem.scoring.scale, REAL),
	NUMBER(problem.choosing.topk_max, INT),
	NUMBER(problem.choosing.first_blocks, INT),
	NUMBER(problem.choosing.local_blocks, INT),
	NUMBER(problem.choosing.method, INT),
	NUMBER(problem.choosing.coarse_block, INT),
	NUMBER(problem.choosing.coarse_keep, INT),
	NUMBER(problem.attending.heads, INT),
	NUMBER(problem.attending.kv_heads, INT),
	NUMBER(problem.attending.head_dim, INT),
	NUMBER(problem.attending.value_dim, INT),
	NUMBER(problem.attending.granularity, INT),
	NUMBER(problem.attending.window, INT),
	NUMBER(problem.attending.first, INT),
	NUMBER(problem.attending.dtype, INT),
	NUMBER(problem.attending.scale, REAL),
	NUMBER(problem.attending.softcap, REAL),
	NUMBER(problem.attending.flags, INT),
	NUMBER(operations, INT),
	NUMBER(flags, INT),
	NUMBER(rows_max, WIDE),
	NUMBER(keys_max, WIDE),
	NUMBER(window_keys_max, WIDE),
	NUMBER(memory_limit_bytes, WIDE),
	NUMBER(effort, INT),
	NUMBER(device_count, INT),
};

#define NUMBER_COUNT (sizeof(numbers) / sizeof(numbers[0]))

_Static_assert(sizeof(hys_dtype) == 4 && sizeof(hys_effort) == 4, "enums are read as int32");

/* ---- writing ---- */

/* Exact: a double is an integer of 53 bits times a power of two. */
static void add_real(struct hys_text *text, double value)
{
	int exponent = 0;
	const double mantissa = frexp(value, &exponent);
	int64_t integer = (int64_t)ldexp(mantissa, DBL_MANT_DIG);

	exponent -= DBL_MANT_DIG;
	for (; integer != 0 && integer % 2 == 0; integer /= 2)
		exponent++;
	hys_text_add(text, "%lldp%d", (long long)integer, integer == 0 ? 0 : exponent);
}

static void add_number(struct hys_text *text, const struct hys_wish *wish,
		       const struct number *number)
{
	const char *at = (const char *)wish + number->offset;
	int32_t narrow;
	int64_t wide;
	double real;

	hys_text_add(text, "%s ", number->name);
	if (number->kind == INT) {
		memcpy(&narrow, at, sizeof(narrow));
		hys_text_add(text, "%d", narrow);
	} else if (number->kind == WIDE) {
		memcpy(&wide, at, sizeof(wide));
		hys_text_add(text, "%lld", (long long)wide);
	} else {
		memcpy(&real, at, sizeof(real));
		add_real(text, real);
	}
	hys_text_add(text, "\n");
}

static void add_kernels(struct hys_text *text, const struct hys_plan *plan, int32_t i)
{
	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		const char *name = hys_plan_kernel(plan, (hys_op)op, i);

		if (name)
			hys_text_add(text, "kernel %d %s %s\n", i, hys_op_name((hys_op)op), name);
	}
}

static void add_paces(struct hys_text *text, const struct hys_plan *plan, int32_t i)
{
	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		const struct hys_pace *pace = hys_plan_pace(plan, (hys_op)op, i);
		const double values[] = {pace->call_s, pace->row_s, pace->flop_s, pace->byte_s};

		if (!(plan->operations & HYS_OP_BIT(op)))
			continue;
		hys_text_add(text, "pace %d %s ", i, hys_op_name((hys_op)op));
		for (int32_t v = 0; v < 4; v++) {
			add_real(text, values[v]);
			hys_text_add(text, " ");
		}
		hys_text_add(text, "%d\n", pace->idle);
	}
}

size_t hys_plan_print(const struct hys_plan *plan, char *text, size_t size)
{
	struct hys_text out = {text, size, 0};
	struct hys_wish wish = {
		.problem = plan->problem,
		.operations = plan->operations,
		.flags = plan->flags,
		.rows_max = plan->rows_max,
		.keys_max = plan->keys_max,
		.window_keys_max = plan->window_keys_max,
		.memory_limit_bytes = plan->memory_limit_bytes,
		.effort = plan->effort,
		.device_count = plan->device_count,
	};
	uint64_t sum;

	hys_text_add(&out, "%s %s\n", FIRST_LINE, hys_version_string());
	for (size_t i = 0; i < NUMBER_COUNT; i++)
		add_number(&out, &wish, &numbers[i]);
	for (int32_t i = 0; i < plan->device_count; i++) {
		hys_text_add(&out, "device %d %016llx %lld\n", plan->device_numbers[i],
			     (unsigned long long)hys_device_signature(plan->devices[i]),
			     (long long)(plan->rows_most ? plan->rows_most[i] : plan->rows_max));
	}
	for (int32_t i = 0; i < plan->device_count; i++)
		add_kernels(&out, plan, i);
	for (int32_t i = 0; plan->device_count > 1 && i < plan->device_count; i++)
		add_paces(&out, plan, i);
	sum = hys_hash(hys_hash_start, text, out.length < size ? out.length : size);
	hys_text_add(&out, "checksum %016llx\n", (unsigned long long)sum);
	return out.length;
}

hys_status hys_plan_save(const struct hys_plan *plan, const char *path, struct hys_error *error)
{
	const struct hys_allocator *allocator;
	hys_status status;
	size_t size;
	char *text;

	if (!plan || !path || !path[0])
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is %s", plan ? "path" : "plan",
				plan && path ? "empty" : "NULL");
	status = hys_context_check(plan->context, error);
	if (status != HYS_OK)
		return status;
	allocator = &plan->context->host.allocator;
	size = hys_plan_print(plan, NULL, 0) + 1;
	text = hys_alloc(allocator, (int64_t)size);
	if (!text)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for the text of a plan");
	hys_plan_print(plan, text, size);
	status = hys_file_write(allocator, path, text, (int64_t)size - 1, error);
	hys_free(allocator, text);
	return status;
}

/* ---- reading ---- */

struct reader {
	const char *at, *end;
	int32_t line;
	char word[WORD_MAX];
	struct hys_error *error;
};

static hys_status bad(struct reader *reader, const char *expected)
{
	return hys_fail(reader->error, HYS_FORMAT, 0, "the plan's line %d: expected %s",
			reader->line, expected);
}

/* The next word of the line; behind it is one blank, or a newline when it is
 * the last. */
static hys_status read_word(struct reader *reader, bool last, const char *expected)
{
	int64_t length = 0;

	while (reader->at + length < reader->end && reader->at[length] > ' ' &&
	       reader->at[length] < 127)
		length++;
	if (length == 0 || length >= WORD_MAX || reader->at + length >= reader->end ||
	    reader->at[length] != (last ? '\n' : ' '))
		return bad(reader, expected);
	memcpy(reader->word, reader->at, (size_t)length);
	reader->word[length] = '\0';
	reader->at += length + 1;
	reader->line += last;
	return HYS_OK;
}

static hys_status read_exactly(struct reader *reader, const char *word, bool last)
{
	hys_status status = read_word(reader, last, word);

	if (status == HYS_OK && strcmp(reader->word, word) != 0) {
		reader->line -= last;
		return bad(reader, word);
	}
	return status;
}

/* Decimal digits from *at on, an optional minus before them. */
static bool parse_integer(const char **at, int64_t *value)
{
	const bool negative = **at == '-';
	int64_t digits = 0, result = 0;

	for (*at += negative; **at >= '0' && **at <= '9'; (*at)++, digits++) {
		if (result > (INT64_MAX - 9) / 10)
			return false;
		result = result * 10 + (**at - '0');
	}
	*value = negative ? -result : result;
	return digits > 0;
}

static hys_status read_integer(struct reader *reader, bool last, int64_t least, int64_t most,
			       int64_t *value)
{
	const char *at = reader->word;
	hys_status status = read_word(reader, last, "an integer");

	if (status != HYS_OK)
		return status;
	if (parse_integer(&at, value) && !*at && *value >= least && *value <= most)
		return HYS_OK;
	reader->line -= last;
	return bad(reader, "an integer in range");
}

static hys_status read_real(struct reader *reader, bool last, double *value)
{
	const char *at = reader->word;
	int64_t mantissa, exponent;
	hys_status status = read_word(reader, last, "a number");

	if (status != HYS_OK)
		return status;
	if (parse_integer(&at, &mantissa) && *at++ == 'p' && parse_integer(&at, &exponent) &&
	    !*at && mantissa > -((int64_t)1 << 53) && mantissa < (int64_t)1 << 53 &&
	    exponent >= -1200 && exponent <= 1100) {
		*value = ldexp((double)mantissa, (int)exponent);
		if (isfinite(*value))
			return HYS_OK;
	}
	reader->line -= last;
	return bad(reader, "a number such as 3p-2");
}

static hys_status read_hash(struct reader *reader, bool last, uint64_t *hash)
{
	hys_status status = read_word(reader, last, "16 hexadecimal digits");
	int32_t i = 0;

	if (status != HYS_OK)
		return status;
	for (*hash = 0; reader->word[i]; i++) {
		const char *digits = "0123456789abcdef";
		const char *digit = strchr(digits, reader->word[i]);

		if (!digit || i >= 16)
			break;
		*hash = *hash << 4 | (uint64_t)(digit - digits);
	}
	if (i == 16 && !reader->word[i])
		return HYS_OK;
	reader->line -= last;
	return bad(reader, "16 hexadecimal digits");
}

static hys_status read_number(struct reader *reader, struct hys_wish *wish,
			      const struct number *number)
{
	char *at = (char *)wish + number->offset;
	int64_t wide;
	int32_t narrow;
	double real;
	hys_status status;

	HYS_TRY(read_exactly(reader, number->name, false));
	if (number->kind == REAL) {
		HYS_TRY(read_real(reader, true, &real));
		memcpy(at, &real, sizeof(real));
	} else if (number->kind == WIDE) {
		HYS_TRY(read_integer(reader, true, 0, INT64_MAX, &wide));
		memcpy(at, &wide, sizeof(wide));
	} else {
		HYS_TRY(read_integer(reader, true, 0, INT32_MAX, &wide));
		narrow = (int32_t)wide;
		memcpy(at, &narrow, sizeof(narrow));
	}
cleanup:
	return status;
}

static hys_status read_device(struct reader *reader, struct hys_plan_text *plan, int32_t i)
{
	int64_t number;
	hys_status status;

	HYS_TRY(read_exactly(reader, "device", false));
	HYS_TRY(read_integer(reader, false, 0, INT32_MAX, &number));
	HYS_TRY(read_hash(reader, false, &plan->signatures[i]));
	HYS_TRY(read_integer(reader, true, 0, INT32_MAX, &plan->wish.rows_most[i]));
	plan->wish.devices[i] = (int32_t)number;
cleanup:
	return status;
}

/* How a line of one device and operation begins. */
static hys_status read_operation(struct reader *reader, const char *what, int32_t i, int32_t op)
{
	int64_t device;
	hys_status status;

	HYS_TRY(read_exactly(reader, what, false));
	HYS_TRY(read_integer(reader, false, i, i, &device));
	HYS_TRY(read_exactly(reader, hys_op_name((hys_op)op), false));
cleanup:
	return status;
}

static hys_status read_kernels(struct reader *reader, struct hys_plan_text *plan, int32_t i)
{
	hys_status status = HYS_OK;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		if (!(plan->wish.operations & HYS_OP_BIT(op)))
			continue;
		HYS_TRY(read_operation(reader, "kernel", i, op));
		HYS_TRY(read_word(reader, true, "the name of a kernel"));
		memcpy(plan->names[i][op], reader->word, sizeof(plan->names[i][op]));
	}
cleanup:
	return status;
}

static hys_status read_pace(struct reader *reader, struct hys_pace *pace)
{
	double *const values[] = {&pace->call_s, &pace->row_s, &pace->flop_s, &pace->byte_s};
	int64_t idle;
	hys_status status;

	for (int32_t v = 0; v < 4; v++) {
		HYS_TRY(read_real(reader, false, values[v]));
		if (*values[v] < 0)
			return bad(reader, "a time of 0 or more");
	}
	HYS_TRY(read_integer(reader, true, 0, 1, &idle));
	pace->idle = idle;
cleanup:
	return status;
}

static hys_status read_paces(struct reader *reader, struct hys_plan_text *plan, int32_t i)
{
	hys_status status = HYS_OK;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		if (!(plan->wish.operations & HYS_OP_BIT(op)))
			continue;
		HYS_TRY(read_operation(reader, "pace", i, op));
		HYS_TRY(read_pace(reader, &plan->paces[i][op]));
	}
cleanup:
	return status;
}

static hys_status read_checksum(struct reader *reader, const char *text)
{
	const uint64_t sum = hys_hash(hys_hash_start, text, (size_t)(reader->at - text));
	uint64_t found;
	hys_status status;

	HYS_TRY(read_exactly(reader, "checksum", false));
	HYS_TRY(read_hash(reader, true, &found));
	if (reader->at != reader->end)
		return bad(reader, "the end");
	reader->line--;
	if (found != sum)
		return bad(reader, "the checksum of what is above");
cleanup:
	return status;
}

hys_status hys_plan_parse(struct hys_plan_text *plan, const char *text, int64_t bytes,
			  struct hys_error *error)
{
	struct reader reader = {.at = text, .end = text + bytes, .line = 1, .error = error};
	hys_status status;

	memset(plan, 0, sizeof(*plan));
	HYS_TRY(read_exactly(&reader, FIRST_LINE, false));
	HYS_TRY(read_word(&reader, true, "a version"));
	if (strcmp(reader.word, hys_version_string()) != 0)
		return hys_fail(error, HYS_VERSION_MISMATCH, 0,
				"the plan was saved by version %s, expected %s", reader.word,
				hys_version_string());
	for (size_t i = 0; i < NUMBER_COUNT; i++)
		HYS_TRY(read_number(&reader, &plan->wish, &numbers[i]));
	plan->wish.problem.struct_size = sizeof(plan->wish.problem);
	if (plan->wish.device_count < 1 || plan->wish.device_count > HYS_PLAN_DEVICES_MAX)
		return hys_fail(error, HYS_FORMAT, 0,
				"the plan's device_count is %d, expected 1 to %d",
				plan->wish.device_count, HYS_PLAN_DEVICES_MAX);
	for (int32_t i = 0; i < plan->wish.device_count; i++)
		HYS_TRY(read_device(&reader, plan, i));
	for (int32_t i = 0; i < plan->wish.device_count; i++)
		HYS_TRY(read_kernels(&reader, plan, i));
	for (int32_t i = 0; plan->wish.device_count > 1 && i < plan->wish.device_count; i++)
		HYS_TRY(read_paces(&reader, plan, i));
	HYS_TRY(read_checksum(&reader, text));
cleanup:
	return status;
}

/* ---- loading ---- */

/* Whether the context's device `number` can be the plan's device i, and is not
 * one of those before it. */
static bool can_be(const struct hys_context *context, const struct hys_plan_text *plan, int32_t i,
		   int32_t number)
{
	for (int32_t before = 0; before < i; before++)
		if (plan->wish.devices[before] == number)
			return false;
	return number < context->device_count &&
	       hys_device_signature(context->devices[number]) == plan->signatures[i];
}

/* The device of that signature with the number of then, else the first one that
 * is left: devices that were two stay two. */
static hys_status find_device(const struct hys_context *context, struct hys_plan_text *plan,
			      const int32_t *saved, int32_t i, struct hys_error *error)
{
	int32_t number = saved[i];

	for (int32_t before = 0; before < i; before++)
		if (saved[before] == saved[i]) {
			plan->wish.devices[i] = plan->wish.devices[before];
			return HYS_OK;
		}
	if (!can_be(context, plan, i, number))
		for (number = 0; number < context->device_count; number++)
			if (can_be(context, plan, i, number))
				break;
	plan->wish.devices[i] = number;
	if (number < context->device_count)
		return HYS_OK;
	return hys_fail(error, HYS_VERSION_MISMATCH, 0,
			"the plan's device %d is not among this context's, or its driver or "
			"kernels have changed: no other device has the signature %016llx",
			i, (unsigned long long)plan->signatures[i]);
}

/* The file's numbers must be those of a completed problem; the plan's own
 * checks see to the rest. */
static hys_status load(struct hys_context *context, struct hys_plan_text *plan, const char *text,
		       int64_t bytes, struct hys_plan **made, struct hys_error *error)
{
	int32_t saved[HYS_PLAN_DEVICES_MAX];
	hys_status status;

	HYS_TRY(hys_plan_parse(plan, text, bytes, error));
	HYS_TRY(hys_problem_complete(&plan->wish.problem, error));
	memcpy(saved, plan->wish.devices, sizeof(saved));
	for (int32_t i = 0; i < plan->wish.device_count; i++)
		HYS_TRY(find_device(context, plan, saved, i, error));
	plan->wish.paces = (const struct hys_pace(*)[HYS_OP_COUNT])plan->paces;
	plan->wish.names = (const char(*)[HYS_OP_COUNT][HYS_KERNEL_NAME_MAX])plan->names;
	HYS_TRY(hys_plan_make(context, &plan->wish, made, error));
cleanup:
	return status;
}

hys_status hys_plan_load(struct hys_context *context, const char *path, struct hys_plan **plan,
			 struct hys_error *error)
{
	const struct hys_allocator *allocator;
	struct hys_plan_text *content = NULL;
	char *text = NULL;
	int64_t bytes;
	hys_status status;

	if (!context || !plan || !path || !path[0])
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is %s",
				!context ? "context"
				: !plan	 ? "plan"
					 : "path",
				context && plan && path ? "empty" : "NULL");
	HYS_TRY(hys_context_check(context, error));
	allocator = &context->host.allocator;
	HYS_TRY(hys_file_read(allocator, path, FILE_MAX, &text, &bytes, error));
	content = hys_alloc(allocator, sizeof(*content));
	if (!content)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a plan"));
	HYS_TRY(load(context, content, text, bytes, plan, error));
cleanup:
	if (context) {
		hys_free(&context->host.allocator, content);
		hys_free(&context->host.allocator, text);
	}
	return status;
}
