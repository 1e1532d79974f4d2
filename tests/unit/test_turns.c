/* How several devices take turns: pieces, devices that fail in the middle of a
 * call, little memory, buffers that lie on all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "foretold.h"
#include "lane.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DEVICES 3

struct fixture {
	struct hys_context *context;
	struct fake_device devices[DEVICES];
	struct fake_plan all;
	struct hys_kernel kernels[HYS_OP_COUNT];
	struct hys_batch *batch;
	struct hys_exec *exec;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct hys_context_options options = {.struct_size = sizeof(options), .devices = "openmp"};
	static const char *const names[DEVICES] = {"fake 0", "fake 1", "fake 2"};

	assert_non_null(f);
	assert_int_equal(hys_context_create(&options, &f->context, NULL), HYS_OK);
	for (int i = 0; i < DEVICES; i++)
		fake_device_init(&f->devices[i], &f->context->host, names[i]);
	fake_plan_init(&f->all, f->context, f->devices, DEVICES);
	f->all.plan.problem = call_case_problem();
	call_case_kernels(&f->all, f->kernels, foretold_run);
	*state = f;
	return 0;
}

/* Behind what the test itself says of the plan. */
static void open_exec(struct fixture *f)
{
	struct hys_error error = {HYS_OK, 0, ""};

	f->batch = call_case_batch(&f->all.plan);
	assert_non_null(f->batch);
	if (hys_exec_create(&f->all.plan, NULL, &f->exec, &error) != HYS_OK)
		fail_msg("%s", error.message);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	hys_exec_destroy(f->exec);
	hys_batch_destroy(f->batch);
	for (int i = 0; i < DEVICES; i++) {
		assert_int_equal(f->devices[i].buffers, 0);
		assert_int_equal(f->devices[i].streams, 0);
		fake_device_clear(&f->devices[i]);
	}
	hys_context_destroy(f->context);
	free(f);
	return 0;
}

static void make_backward(struct fixture *f, struct call_case *made, bool accumulate)
{
	call_case_make(made, f->batch, HYS_OP_ATTENTION_BACKWARD);
	made->call.args.attention_grad.flags = accumulate ? HYS_GRAD_ACCUMULATE : 0;
	foretold_widen(made);
	foretold_wrong = 0;
}

static void run_backward(struct fixture *f, struct hys_error *error)
{
	struct call_case made;

	make_backward(f, &made, false);
	if (call_case_run(&made, f->exec, f->batch, error) != HYS_OK ||
	    hys_exec_finish(f->exec, error) != HYS_OK)
		fail_msg("%s", error->message);
	assert_int_equal(foretold_wrong, 0);
	foretold_check(&made, CASE_ROWS, 0);
	call_case_clear(&made);
}

/* ---- pieces ---- */

static void test_guided(void **state)
{
	struct fixture *f = *state;
	struct hys_error error = {HYS_OK, 0, ""};

	f->all.plan.split = HYS_SPLIT_GUIDED;
	open_exec(f);
	for (int i = 0; i < 20; i++)
		run_backward(f, &error);
	assert_string_equal(error.message, "");
}

/* Each device computes at most 16 rows at a time, the second none at all. */
static void test_little_memory(void **state)
{
	struct fixture *f = *state;
	struct hys_error error = {HYS_OK, 0, ""};
	struct hys_exec_report report = {.struct_size = sizeof(report)};

	for (int i = 0; i < DEVICES; i++)
		f->all.rows_most[i] = 16;
	f->all.rows_most[1] = 0;
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		f->all.paces[HYS_OP_COUNT + op].idle = true;
	open_exec(f);
	run_backward(f, &error);
	assert_int_equal(hys_exec_report(f->exec, HYS_OP_ATTENTION_BACKWARD, 1, &report, NULL),
			 HYS_OK);
	assert_int_equal(report.rows, 0);
	assert_int_equal(hys_exec_report(f->exec, HYS_OP_ATTENTION_BACKWARD, 2, &report, NULL),
			 HYS_OK);
	assert_int_equal(report.rows, CASE_ROWS - 16);
}

/* ---- looking before sleeping ---- */

static double cpu_time_s(void)
{
	struct timespec now;

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Threads that look for what they wait for do the same as those that sleep; and
 * when there is nothing to do, they sleep, too. */
static void test_patient(void **state)
{
	const struct timespec pause = {.tv_nsec = 200000000};
	struct fixture *f = *state;
	struct hys_error error = {HYS_OK, 0, ""};
	double before;

	f->context->host.cpus_allowed = 2 * (DEVICES + 1);
	f->context->host.cpus_quota = 0;
	open_exec(f);
	assert_true(f->exec->looks);
	for (int i = 0; i < 20; i++)
		run_backward(f, &error);
	assert_string_equal(error.message, "");
	before = cpu_time_s();
	assert_int_equal(nanosleep(&pause, NULL), 0);
	assert_true(cpu_time_s() - before < 0.05);
}

static bool may_look(struct fixture *f, int32_t allowed, int32_t quota)
{
	f->context->host.cpus_allowed = allowed;
	f->context->host.cpus_quota = quota;
	return hys_exec_may_look(&f->all.plan);
}

/* Not where it would keep others from a core. */
static void test_who_may_look(void **state)
{
	const int32_t enough = 2 * (DEVICES + 1);
	struct fixture *f = *state;

	assert_true(may_look(f, enough, 0));
	assert_true(may_look(f, enough, enough));
	assert_false(may_look(f, enough - 1, 0));
	assert_false(may_look(f, 64, enough - 1));
	assert_true(may_look(f, 64, 0));
	f->devices[1].base.host_memory = true;
	f->all.plan.operations = HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD);
	hys_plan_pace(&f->all.plan, HYS_OP_SELECT, 1)->idle = true;
	assert_false(may_look(f, 64, 0));
	hys_plan_pace(&f->all.plan, HYS_OP_ATTENTION_FORWARD, 1)->idle = true;
	assert_true(may_look(f, 64, 0)); /* that processor has nothing to do */
	f->devices[1].base.host_memory = false;
}

/* ---- traces ---- */

static void test_trace(void **state)
{
	struct fixture *f = *state;
	const struct hys_exec_options options = {.struct_size = sizeof(options),
						 .flags = HYS_EXEC_TRACE};
	struct hys_trace_span span = {.struct_size = sizeof(span)};
	struct hys_error error = {HYS_OK, 0, ""};
	int64_t rows = 0, merges = 0;

	open_exec(f);
	assert_int_equal(hys_exec_span_count(f->exec), 0);
	hys_exec_destroy(f->exec);
	assert_int_equal(hys_exec_create(&f->all.plan, &options, &f->exec, NULL), HYS_OK);
	run_backward(f, &error);
	for (int64_t n = 0; n < hys_exec_span_count(f->exec); n++) {
		assert_int_equal(hys_exec_span(f->exec, n, &span, NULL), HYS_OK);
		assert_int_equal(span.op, HYS_OP_ATTENTION_BACKWARD);
		assert_in_range(span.device, 0, DEVICES - 1);
		assert_true(span.begin_s <= span.end_s && span.begin_s > 0);
		rows += strcmp(span.what, "kernel") == 0 ? span.row_count : 0;
		merges += strcmp(span.what, "merge") == 0;
	}
	assert_int_equal(rows, CASE_ROWS);
	assert_int_equal(merges, DEVICES);
	assert_int_equal(hys_exec_span(f->exec, -1, &span, &error), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_exec_span(f->exec, 10000, &span, &error), HYS_INVALID_ARGUMENT);
	span.struct_size = 8;
	assert_int_equal(hys_exec_span(f->exec, 0, &span, &error), HYS_INVALID_ARGUMENT);
}

/* ---- failures ---- */

static void test_one_fails(void **state)
{
	struct fixture *f = *state;
	static const char letters[] = {'i', 'o', 'F'};

	for (size_t i = 0; i < COUNT(letters); i++)
		for (int guided = 0; guided < 2; guided++) {
			struct hys_exec_report report = {.struct_size = sizeof(report)};
			struct hys_error error = {HYS_OK, 0, ""};
			struct hys_event *event = NULL;

			if (guided && letters[i] == 'F')
				continue; /* a lane that got nothing fails in finish itself */
			f->all.plan.split = guided ? HYS_SPLIT_GUIDED : HYS_SPLIT_STATIC;
			open_exec(f);
			f->devices[1].fail = letters[i];
			run_backward(f, &error);
			if (f->devices[1].fail) { /* guided: the others were quicker */
				assert_true(guided);
			} else {
				assert_int_equal(error.status, HYS_OK);
				assert_non_null(strstr(error.message, "fake 1 was dropped"));
				assert_non_null(strstr(error.message, "bits may differ"));
				assert_int_equal(hys_exec_report(f->exec, HYS_OP_ATTENTION_BACKWARD,
								 1, &report, NULL),
						 HYS_OK);
				assert_int_equal(report.dropped, 1);
				assert_non_null(strstr(report.reason, "told to fail"));
				/* It is not asked again, and said once. */
				memset(&error, 0, sizeof(error));
				f->devices[1].length = 0;
				memset(f->devices[1].log, 0, sizeof(f->devices[1].log));
				run_backward(f, &error);
				assert_int_equal(hys_exec_record(f->exec, &event, NULL), HYS_OK);
				assert_int_equal(hys_exec_wait(f->exec, event, NULL), HYS_OK);
				assert_int_equal(hys_event_wait(event, NULL), HYS_OK);
				hys_event_destroy(event);
				assert_int_equal(hys_exec_finish(f->exec, NULL), HYS_OK);
				/* Only to be told to wait. */
				assert_int_equal(strspn(f->devices[1].log, "w"),
						 f->devices[1].length);
				assert_string_equal(error.message, "");
			}
			f->devices[1].fail = 0;
			hys_exec_destroy(f->exec);
			hys_batch_destroy(f->batch);
			f->exec = NULL;
			f->batch = NULL;
		}
}

static void test_two_fail(void **state)
{
	struct fixture *f = *state;
	struct hys_error error = {HYS_OK, 0, ""};

	open_exec(f);
	f->devices[0].fail = 'i';
	f->devices[2].fail = 'F';
	run_backward(f, &error);
	assert_non_null(strstr(error.message, "was dropped"));
}

/* Then the call fails, and after finish all take part again. */
static void test_all_fail(void **state)
{
	struct fixture *f = *state;
	struct hys_error error = {HYS_OK, 0, ""};
	struct call_case made;

	open_exec(f);
	for (int i = 0; i < DEVICES; i++)
		f->devices[i].fail = 'i';
	make_backward(f, &made, false);
	assert_int_equal(call_case_run(&made, f->exec, f->batch, NULL), HYS_OK);
	for (int i = 0; i < 40; i++)
		call_case_run(&made, f->exec, f->batch, NULL);
	assert_int_equal(hys_exec_finish(f->exec, &error), HYS_DEVICE_FAILED);
	assert_non_null(strstr(error.message, "told to fail at i"));
	call_case_clear(&made);
	memset(&error, 0, sizeof(error));
	run_backward(f, &error);
	assert_string_equal(error.message, "");
}

/* Rows may have been added to already: nobody can say. */
static void test_cannot_be_redone(void **state)
{
	struct fixture *f = *state;
	struct hys_error error = {HYS_OK, 0, ""};
	struct call_case made;

	open_exec(f);
	make_backward(f, &made, true);
	f->devices[1].fail = 'o';
	assert_int_equal(call_case_run(&made, f->exec, f->batch, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(f->exec, &error), HYS_DEVICE_FAILED);
	assert_non_null(strstr(error.message, "fake 1"));
	call_case_clear(&made);
	/* Sums alone are merged when all is well, so they can. */
	make_backward(f, &made, true);
	memset(call_case_tensor(&made, "dq"), 0, sizeof(struct hys_tensor));
	f->devices[1].fail = 'o';
	memset(&error, 0, sizeof(error));
	assert_int_equal(call_case_run(&made, f->exec, f->batch, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(f->exec, &error), HYS_OK);
	assert_non_null(strstr(error.message, "fake 1 was dropped"));
	foretold_check(&made, CASE_ROWS, FORETOLD_BASE);
	call_case_clear(&made);
}

/* ---- replicated buffers ---- */

#define PLACES 24

struct replicas {
	struct hys_buffer *buffers[PLACES];
	struct hys_tensor host[PLACES];
};

/* Moves the call's tensors to buffers on all devices. */
static void replicate(struct fixture *f, struct call_case *made, struct replicas *replicas)
{
	memset(replicas, 0, sizeof(*replicas));
	for (int32_t i = 0; i < made->fields->count; i++) {
		const struct hys_field *field = &made->fields->fields[i];
		struct hys_tensor *tensor = hys_field_tensor(field, &made->call.args);
		const int64_t elements = hys_present(tensor) ? hys_tensor_elements(tensor) : 0;

		if (elements == 0)
			continue;
		replicas->host[i] = *tensor;
		assert_int_equal(tensor->dtype == HYS_F32 || tensor->dtype == HYS_I32, 1);
		for (int64_t e = 0; e < elements; e++)
			if (tensor->dtype == HYS_F32)
				((float *)tensor->host)[e] =
					field->flags & HYS_FIELD_OUT
						? FORETOLD_BASE
						: (float)foretold_pattern(i, e);
			else
				((int32_t *)tensor->host)[e] = (int32_t)foretold_pattern(i, e);
		assert_int_equal(hys_buffer_replicate(&f->all.plan, elements * 4,
						      &replicas->buffers[i], NULL),
				 HYS_OK);
		assert_int_equal(hys_buffer_write(f->exec, replicas->buffers[i], 0, tensor->host,
						  elements * 4, NULL),
				 HYS_OK);
		*tensor = hys_device(replicas->buffers[i], 0, tensor->dtype, tensor->rank,
				     tensor->shape[0], tensor->shape[1], tensor->shape[2]);
	}
	assert_int_equal(hys_exec_finish(f->exec, NULL), HYS_OK);
}

static void check_replicas(struct fixture *f, struct call_case *made, struct replicas *replicas,
			   double base)
{
	for (int32_t i = 0; i < made->fields->count; i++) {
		const struct hys_field *field = &made->fields->fields[i];
		struct hys_tensor *tensor = hys_field_tensor(field, &made->call.args);
		const int64_t elements = replicas->buffers[i] ? hys_tensor_elements(tensor) : 0;
		float *values = replicas->host[i].host;

		if (elements == 0 || !(field->flags & HYS_FIELD_OUT))
			continue;
		if (!(field->flags & HYS_FIELD_PARTIAL)) {
			assert_int_equal(hys_rows_read(f->exec, f->batch, tensor, 0, CASE_ROWS,
						       values, NULL),
					 HYS_OK);
			assert_int_equal(hys_exec_finish(f->exec, NULL), HYS_OK);
			for (int64_t e = 0; e < elements; e++)
				assert_true(values[e] ==
					    (float)(base + (double)(e / (elements / CASE_ROWS))));
			continue;
		}
		for (int32_t d = 0; d < DEVICES; d++) {
			const struct hys_region region = hys_replica_region(tensor, d);
			const float *copy =
				(const float *)(const void *)((char *)region.buffer->native +
							      region.offset_bytes);

			for (int64_t e = 0; e < elements; e++)
				assert_true(copy[e] == (float)(base + CASE_ROWS));
		}
	}
}

static void test_replicated(void **state)
{
	struct fixture *f = *state;
	struct replicas replicas;
	struct call_case made;

	open_exec(f);
	for (int accumulate = 0; accumulate < 2; accumulate++) {
		call_case_make(&made, f->batch, HYS_OP_ATTENTION_BACKWARD);
		made.call.args.attention_grad.flags = accumulate;
		replicate(f, &made, &replicas);
		foretold_wrong = 0;
		assert_int_equal(call_case_run(&made, f->exec, f->batch, NULL), HYS_OK);
		assert_int_equal(hys_exec_finish(f->exec, NULL), HYS_OK);
		assert_int_equal(foretold_wrong, 0);
		check_replicas(f, &made, &replicas, accumulate ? FORETOLD_BASE : 0);
		for (int32_t i = 0; i < PLACES; i++)
			hys_buffer_destroy(replicas.buffers[i]);
		call_case_clear(&made);
	}
}

/* Ranges of a device that its kernel does in one call, if it can, with gaps: as
 * many as fit, of rows that lie in buffers. */
static void test_gaps(void **state)
{
	static const struct hys_range ranges[] = {{0, 8, 1},  {8, 5, 0},  {13, 11, 1},
						  {24, 8, 2}, {32, 1, 1}, {33, CASE_ROWS - 33, 0}};
	static const int64_t most[] = {CASE_ROWS, 19};
	static const int64_t calls[][DEVICES] = {{1, 1, 1}, {1, 2, 1}, {2, 3, 1}};
	struct fixture *f = *state;

	for (int round = 0; round < 3; round++) {
		const struct hys_exec_options options = {.struct_size = sizeof(options),
							 .flags = HYS_EXEC_TRACE};
		struct hys_trace_span span = {.struct_size = sizeof(span)};
		int64_t count[DEVICES] = {0}, rows = 0;
		struct replicas replicas;
		struct call_case made;

		for (int i = 0; i < DEVICES; i++)
			f->all.rows_most[i] = most[round % 2];
		for (int op = 0; op < HYS_OP_COUNT; op++)
			f->kernels[op].gaps = round < 2;
		f->batch = call_case_batch(&f->all.plan);
		memcpy(f->batch->ranges, ranges, sizeof(ranges));
		f->batch->range_count = (int32_t)COUNT(ranges);
		assert_int_equal(hys_exec_create(&f->all.plan, &options, &f->exec, NULL), HYS_OK);
		call_case_make(&made, f->batch, HYS_OP_ATTENTION_BACKWARD);
		replicate(f, &made, &replicas);
		foretold_wrong = 0;
		assert_int_equal(call_case_run(&made, f->exec, f->batch, NULL), HYS_OK);
		assert_int_equal(hys_exec_finish(f->exec, NULL), HYS_OK);
		assert_int_equal(foretold_wrong, 0);
		check_replicas(f, &made, &replicas, 0);
		for (int64_t n = 0; n < hys_exec_span_count(f->exec); n++) {
			assert_int_equal(hys_exec_span(f->exec, n, &span, NULL), HYS_OK);
			count[span.device] += strcmp(span.what, "kernel") == 0;
			rows += strcmp(span.what, "kernel") == 0 ? span.row_count : 0;
		}
		assert_int_equal(rows, CASE_ROWS);
		assert_memory_equal(count, calls[round], sizeof(count));
		for (int32_t i = 0; i < PLACES; i++)
			hys_buffer_destroy(replicas.buffers[i]);
		call_case_clear(&made);
		hys_exec_destroy(f->exec);
		hys_batch_destroy(f->batch);
		f->exec = NULL;
		f->batch = NULL;
	}
}

/* What lies on the lost device cannot be had again. */
static void test_replicated_fails(void **state)
{
	struct fixture *f = *state;
	struct hys_error error = {HYS_OK, 0, ""};
	struct replicas replicas;
	struct call_case made;

	open_exec(f);
	call_case_make(&made, f->batch, HYS_OP_ATTENTION_BACKWARD);
	replicate(f, &made, &replicas);
	f->devices[2].fail = 'o';
	assert_int_equal(call_case_run(&made, f->exec, f->batch, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(f->exec, &error), HYS_DEVICE_FAILED);
	/* A device that was dropped by a call on host memory has no rows either. */
	f->devices[1].fail = 'i';
	run_backward(f, &error);
	assert_int_equal(call_case_run(&made, f->exec, f->batch, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(f->exec, &error), HYS_DEVICE_FAILED);
	assert_non_null(strstr(error.message, "lost with fake 1"));
	for (int32_t i = 0; i < PLACES; i++)
		hys_buffer_destroy(replicas.buffers[i]);
	call_case_clear(&made);
}

static void test_wrong_replicas(void **state)
{
	struct fixture *f = *state;
	struct hys_error error;
	struct hys_buffer *buffer = NULL;
	struct call_case made;
	struct hys_tensor *dk;

	open_exec(f);
	assert_int_equal(hys_buffer_replicate(NULL, 8, &buffer, &error), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_replicate(&f->all.plan, 0, &buffer, &error),
			 HYS_INVALID_ARGUMENT);
	f->devices[2].fail_buffer = true;
	assert_int_equal(hys_buffer_replicate(&f->all.plan, 8, &buffer, &error), HYS_OUT_OF_MEMORY);
	assert_null(buffer);
	f->devices[2].fail_buffer = false;
	assert_int_equal(hys_buffer_replicate(&f->all.plan, 1 << 16, &buffer, &error), HYS_OK);
	call_case_make(&made, f->batch, HYS_OP_ATTENTION_BACKWARD);
	dk = call_case_tensor(&made, "dk");
	dk->host = NULL;
	dk->buffer = buffer;
	dk->stride[0] = 1000;
	assert_int_equal(call_case_run(&made, f->exec, f->batch, &error), HYS_UNSUPPORTED);
	assert_non_null(strstr(error.message, "dk is a sum"));
	dk->stride[0] = 0;
	assert_int_equal(hys_rows_read(f->exec, f->batch, dk, 0, 1, &error, &error),
			 HYS_INVALID_ARGUMENT);
	call_case_clear(&made);
	hys_buffer_destroy(buffer);
}

static void test_wrong_questions(void **state)
{
	struct fixture *f = *state;
	struct hys_exec_report report = {.struct_size = sizeof(report)};
	struct hys_plan *plan = NULL;
	struct hys_error error;

	open_exec(f);
	assert_int_equal(hys_exec_report(NULL, HYS_OP_MERGE, 0, &report, &error),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_exec_report(f->exec, HYS_OP_MERGE, DEVICES, &report, &error),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_exec_report(f->exec, HYS_OP_COUNT, 0, &report, &error),
			 HYS_INVALID_ARGUMENT);
	report.struct_size = 8;
	assert_int_equal(hys_exec_report(f->exec, HYS_OP_MERGE, 0, &report, &error),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_rebalance(NULL, &plan, &error), HYS_INVALID_ARGUMENT);
	f->all.plan.split = HYS_SPLIT_EQUAL;
	assert_int_equal(hys_plan_rebalance(f->exec, &plan, &error), HYS_UNSUPPORTED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_guided),
		TEST(test_little_memory),
		TEST(test_patient),
		TEST(test_who_may_look),
		TEST(test_trace),
		TEST(test_one_fails),
		TEST(test_two_fail),
		TEST(test_all_fail),
		TEST(test_cannot_be_redone),
		TEST(test_replicated),
		TEST(test_gaps),
		TEST(test_replicated_fails),
		TEST(test_wrong_replicas),
		TEST(test_wrong_questions),
	};

	return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
