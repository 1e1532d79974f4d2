#include "fault_life.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "call_case.h"

#define PATH_BYTES 64

/* What there is without a fault, up to the part that is looked at. */
struct life {
	const struct fault *fault;
	const char *devices;
	struct hys_context *context;
	struct hys_plan *plan;
	struct hys_exec *exec;
	struct hys_batch *batch;
	struct hys_buffer *buffer;
	char path[PATH_BYTES];
	uint32_t operations, flags; /* of the plan */
	struct call_case call;
	struct hys_error error;
};

typedef hys_status life_part(struct life *life);

static void must(const struct life *life, hys_status status)
{
	if (status != HYS_OK)
		fail_msg("%s: %s", hys_status_name(status), life->error.message);
}

/* ---- the parts ---- */

static hys_status open_context(struct life *life)
{
	struct hys_context_options options = {
		.struct_size = sizeof(options), .devices = life->devices, .cache_dir = ""};

	if (life->fault->prepare)
		life->fault->prepare(&options);
	return hys_context_create(&options, &life->context, &life->error);
}

static hys_status make_plan(struct life *life)
{
	const struct hys_problem problem = call_case_problem();
	const struct hys_plan_options options = {
		.struct_size = sizeof(options),
		.operations = life->operations,
		.flags = life->flags,
		.rows_max = CASE_ROWS,
		.keys_max = CASE_KEYS,
		.window_keys_max = CASE_WINDOW_KEYS,
	};

	return hys_plan_create(life->context, &problem, &options, &life->plan, &life->error);
}

static hys_status make_batch(struct life *life)
{
	const int32_t begin[CASE_ROWS] = {0}, end[CASE_ROWS] = {1, 2, 3};
	const struct hys_batch_desc desc = {
		.struct_size = sizeof(desc),
		.rows = CASE_ROWS,
		.keys = CASE_KEYS,
		.flags = HYS_BATCH_CAUSAL,
		.window_begin = begin,
		.window_end = end,
		.window_keys = CASE_WINDOW_KEYS,
	};

	return hys_batch_create(life->plan, &desc, &life->batch, &life->error);
}

static void clear_plan(struct life *life)
{
	hys_plan_destroy(life->plan);
	life->plan = NULL;
}

static void clear_exec(struct life *life)
{
	hys_buffer_destroy(life->buffer);
	hys_batch_destroy(life->batch);
	hys_exec_destroy(life->exec);
	life->buffer = NULL;
	life->batch = NULL;
	life->exec = NULL;
}

static hys_status whole_context(struct life *life)
{
	const hys_status status = open_context(life);

	hys_context_destroy(life->context);
	life->context = NULL;
	return status;
}

/* Made, saved, loaded. Self-tests run as if for the first time. */
static hys_status whole_plan(struct life *life)
{
	struct hys_plan *loaded = NULL;
	hys_status status = make_plan(life);

	if (status == HYS_OK)
		status = hys_plan_save(life->plan, life->path, &life->error);
	if (status == HYS_OK)
		status = hys_plan_load(life->context, life->path, &loaded, &life->error);
	hys_plan_destroy(loaded);
	clear_plan(life);
	hys_wisdom_forget(life->context);
	unlink(life->path);
	return status;
}

static hys_status open_exec(struct life *life)
{
	hys_status status = hys_exec_create(life->plan, NULL, &life->exec, &life->error);

	if (status == HYS_OK)
		status = make_batch(life);
	if (status == HYS_OK)
		status = hys_buffer_create(life->context, 0, 1000, &life->buffer, &life->error);
	return status;
}

/* An exec of its own and events between the two. */
static hys_status whole_exec(struct life *life)
{
	const struct hys_exec_options options = {.struct_size = sizeof(options),
						 .flags = HYS_EXEC_ASYNC | HYS_EXEC_QUANTIZE};
	struct hys_exec *other = NULL;
	struct hys_event *event = NULL;
	hys_status status = open_exec(life);

	if (status == HYS_OK)
		status = hys_exec_create(life->plan, &options, &other, &life->error);
	if (status == HYS_OK)
		status = hys_exec_record(life->exec, &event, &life->error);
	if (status == HYS_OK)
		status = hys_exec_wait(other, event, &life->error);
	if (status == HYS_OK)
		status = hys_event_wait(event, &life->error);
	if (status == HYS_OK)
		status = hys_exec_finish(other, &life->error);
	hys_exec_destroy(other);
	hys_event_destroy(event);
	clear_exec(life);
	return status;
}

static hys_status finish(struct life *life, hys_status status)
{
	struct hys_error error;
	const hys_status kept = hys_exec_finish(life->exec, &error);

	if (status != HYS_OK || kept == HYS_OK)
		return status;
	life->error = error;
	return kept;
}

static hys_status whole_operation(struct life *life)
{
	return finish(life, call_case_run(&life->call, life->exec, life->batch, &life->error));
}

static hys_status whole_copies(struct life *life)
{
	unsigned char out[100], in[100];
	hys_status status;

	memset(out, 7, sizeof(out));
	memset(in, 0, sizeof(in));
	status = hys_buffer_fill(life->exec, life->buffer, 0, 1000, 3, &life->error);
	if (status == HYS_OK)
		status = hys_buffer_write(life->exec, life->buffer, 50, out, 60, &life->error);
	if (status == HYS_OK)
		status = hys_buffer_read(life->exec, life->buffer, 20, in, 100, &life->error);
	status = finish(life, status);
	if (status == HYS_OK && (in[29] != 3 || in[30] != 7 || in[89] != 7 || in[90] != 3))
		fail_msg("copies went wrong");
	return status;
}

static hys_status whole_wisdom(struct life *life)
{
	hys_status status = hys_wisdom_export(life->context, life->path, &life->error);

	if (status == HYS_OK)
		status = hys_wisdom_import(life->context, life->path, &life->error);
	unlink(life->path);
	return status;
}

/* ---- over and over ---- */

static void begin(struct life *life, const struct fault *fault, const char *devices)
{
	int file;

	memset(life, 0, sizeof(*life));
	life->fault = fault;
	life->devices = devices;
	life->flags = HYS_PLAN_NO_SELF_TEST;
	strcpy(life->path, "fault-XXXXXX");
	file = mkstemp(life->path);
	assert_true(file >= 0);
	close(file);
}

/* Everything that was made goes, and with it all that the library held. */
static void end(struct life *life, long held)
{
	call_case_clear(&life->call);
	clear_exec(life);
	clear_plan(life);
	hys_context_destroy(life->context);
	unlink(life->path);
	assert_int_equal(life->fault->live(), held);
}

static void judge(const struct life *life, long number, hys_status status, long held)
{
	const struct fault *fault = life->fault;
	const char *call = fault->name && fault->fired() ? fault->name() : "call";

	if (fault->live() != held)
		fail_msg("%s %ld failing: %ld things are held, before %ld (%s)", call, number,
			 fault->live(), held, hys_status_name(status));
	if (status == HYS_OK)
		return;
	if (!fault->may_answer(status))
		fail_msg("%s %ld failing: %s: %s", call, number, hys_status_name(status),
			 life->error.message);
	if (life->error.status != status || life->error.message[0] == '\0')
		fail_msg("%s %ld failing: %s without a message", call, number,
			 hys_status_name(status));
}

/* Answers how many calls could fail. */
static long break_each(struct life *life, life_part *part)
{
	const struct fault *fault = life->fault;
	const long held = fault->live();
	long number = 0;
	bool fired = true;

	while (fired) {
		hys_status status;

		memset(&life->error, 0, sizeof(life->error));
		fault->arm(++number);
		status = part(life);
		fired = fault->fired();
		judge(life, number, status, held);
		fault->arm(0);
		if (!fired)
			must(life, status);
	}
	print_message("  %ld calls failed in turn\n", number - 1);
	return number - 1;
}

void fault_context(const struct fault *fault, const char *devices)
{
	const long held = fault->live();
	struct life life;

	begin(&life, fault, devices);
	must(&life, whole_context(&life));
	assert_true(break_each(&life, whole_context) > 0);
	end(&life, held);
}

void fault_plan(const struct fault *fault, const char *devices, uint32_t operations)
{
	const long held = fault->live();
	struct life life;

	begin(&life, fault, devices);
	life.operations = operations;
	life.flags = 0;
	must(&life, open_context(&life));
	must(&life, whole_plan(&life));
	assert_true(break_each(&life, whole_plan) > 0);
	end(&life, held);
}

void fault_exec(const struct fault *fault, const char *devices)
{
	const long held = fault->live();
	struct life life;

	begin(&life, fault, devices);
	must(&life, open_context(&life));
	must(&life, make_plan(&life));
	must(&life, whole_exec(&life));
	assert_true(break_each(&life, whole_exec) > 0);
	end(&life, held);
}

static void break_operation(struct life *life, hys_op op)
{
	uint64_t right;

	call_case_make(&life->call, life->batch, op);
	must(life, whole_operation(life));
	right = call_case_hash(&life->call);
	if (break_each(life, whole_operation) > 0 && !life->fault->operations_too)
		fail_msg("%s allocates", hys_op_name(op));
	/* What failed before leaves no trace. */
	must(life, whole_operation(life));
	assert_true(call_case_hash(&life->call) == right);
	call_case_clear(&life->call);
	memset(&life->call, 0, sizeof(life->call));
}

void fault_operations(const struct fault *fault, const char *devices)
{
	const long held = fault->live();
	struct life life;

	begin(&life, fault, devices);
	must(&life, open_context(&life));
	must(&life, make_plan(&life));
	must(&life, open_exec(&life));
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		break_operation(&life, (hys_op)op);
	end(&life, held);
}

void fault_copies(const struct fault *fault, const char *devices)
{
	const long held = fault->live();
	struct life life;

	begin(&life, fault, devices);
	life.operations = HYS_OP_BIT(HYS_OP_MERGE);
	must(&life, open_context(&life));
	must(&life, make_plan(&life));
	must(&life, open_exec(&life));
	must(&life, whole_copies(&life));
	if (break_each(&life, whole_copies) > 0 && !fault->operations_too)
		fail_msg("copies allocate");
	must(&life, whole_copies(&life));
	end(&life, held);
}

void fault_wisdom(const struct fault *fault, const char *devices)
{
	const long held = fault->live();
	struct life life;

	begin(&life, fault, devices);
	must(&life, open_context(&life));
	must(&life, make_plan(&life));
	must(&life, whole_wisdom(&life));
	break_each(&life, whole_wisdom);
	end(&life, held);
}
