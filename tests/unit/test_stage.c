/* How operations reach devices: tensors staged where the device has no host
 * memory, rows shared between devices, partial sums merged. Fake kernels check
 * what they are given and write what can be foretold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "foretold.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DEVICES 3

struct fixture {
	struct hys_context *context;
	struct fake_device devices[DEVICES];
	struct fake_plan one, all;
	struct hys_kernel kernels[HYS_OP_COUNT];
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
	fake_plan_init(&f->one, f->context, f->devices, 1);
	fake_plan_init(&f->all, f->context, f->devices, DEVICES);
	f->one.plan.problem = f->all.plan.problem = call_case_problem();
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < DEVICES; i++) {
		assert_int_equal(f->devices[i].buffers, 0);
		assert_int_equal(f->devices[i].streams, 0);
		fake_device_clear(&f->devices[i]);
	}
	hys_context_destroy(f->context);
	free(f);
	return 0;
}

static int64_t rows_of(const struct call_case *made, const struct hys_batch *batch)
{
	if (made->op == HYS_OP_POOL)
		return batch->coarse_blocks;
	return made->op == HYS_OP_POOL_BACKWARD ? batch->entries : batch->rows;
}

static void run_all(struct fixture *f, struct fake_plan *plan, bool accumulate)
{
	struct hys_batch *batch = NULL;
	struct hys_exec *exec = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	call_case_kernels(plan, f->kernels, foretold_run);
	batch = call_case_batch(&plan->plan);
	assert_non_null(batch);
	assert_int_equal(hys_exec_create(&plan->plan, NULL, &exec, &error), HYS_OK);
	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		struct call_case made;

		call_case_make(&made, batch, (hys_op)op);
		if (op == HYS_OP_ATTENTION_BACKWARD)
			made.call.args.attention_grad.flags = accumulate;
		if (op == HYS_OP_POOL_BACKWARD)
			made.call.args.pool_grad.flags = accumulate;
		if (op == HYS_OP_INDEXER_LOSS)
			made.call.args.loss.flags = accumulate;
		if (op == HYS_OP_INDEXER_LOSS)
			made.call.args.loss.divisor = 1;
		if (op <= HYS_OP_SELECT_COARSE_TO_FINE)
			made.call.args.select.topk = NULL;
		foretold_wrong = 0;
		foretold_widen(&made);
		if (call_case_run(&made, exec, batch, &error) != HYS_OK)
			fail_msg("%s: %s", hys_op_name((hys_op)op), error.message);
		assert_int_equal(hys_exec_finish(exec, &error), HYS_OK);
		assert_int_equal(foretold_wrong, 0);
		foretold_check(&made, rows_of(&made, batch),
			       accumulate && (op == HYS_OP_ATTENTION_BACKWARD ||
					      op == HYS_OP_POOL_BACKWARD ||
					      op == HYS_OP_INDEXER_LOSS)
				       ? 1000
				       : 0);
		call_case_clear(&made);
	}
	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
}

static void test_staged(void **state)
{
	struct fixture *f = *state;

	run_all(f, &f->one, false);
}

static void test_staged_accumulating(void **state)
{
	struct fixture *f = *state;

	run_all(f, &f->one, true);
}

static void test_host_memory(void **state)
{
	struct fixture *f = *state;

	f->devices[0].base.host_memory = true;
	run_all(f, &f->one, false);
	run_all(f, &f->one, true);
}

/* ---- several devices ---- */

static void test_shared_rows(void **state)
{
	struct fixture *f = *state;

	run_all(f, &f->all, false);
	run_all(f, &f->all, true);
}

static void test_mixed_devices(void **state)
{
	struct fixture *f = *state;

	f->devices[1].base.host_memory = true;
	run_all(f, &f->all, false);
	run_all(f, &f->all, true);
}

static void test_uneven_shares(void **state)
{
	struct fixture *f = *state;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		f->all.paces[op].row_s = 30;
		f->all.paces[2 * HYS_OP_COUNT + op].idle = true;
	}
	run_all(f, &f->all, false);
}

/* The caller's sums may be of another type: kernels compute in f32. */
static void test_narrow_sums(void **state)
{
	struct fixture *f = *state;
	struct hys_batch *batch;
	struct hys_exec *exec = NULL;
	struct call_case made;
	struct hys_tensor *dk;

	f->all.plan.problem.attending.dtype = HYS_BF16;
	call_case_kernels(&f->all, f->kernels, foretold_run);
	batch = call_case_batch(&f->all.plan);
	assert_int_equal(hys_exec_create(&f->all.plan, NULL, &exec, NULL), HYS_OK);
	call_case_make(&made, batch, HYS_OP_ATTENTION_BACKWARD);
	foretold_widen(&made);
	dk = call_case_tensor(&made, "dk");
	assert_int_equal(dk->dtype, HYS_BF16);
	made.call.args.attention_grad.flags = HYS_GRAD_ACCUMULATE;
	assert_int_equal(call_case_run(&made, exec, batch, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	/* 1000 in bf16, plus 37, in bf16 */
	assert_true(foretold_value(dk, 0) == 1040);
	call_case_clear(&made);
	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
}

static void wait_a_little(void)
{
	const struct timespec time = {0, 30000000};

	nanosleep(&time, NULL);
}

static _Atomic int started;

static hys_status run_counted(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error)
{
	started++;
	return foretold_run(kernel, stream, instance, call, error);
}

/* What one operation writes the next may read on any device. */
static void test_one_after_the_other(void **state)
{
	struct fixture *f = *state;
	struct hys_batch *batch;
	struct hys_exec *exec = NULL;
	struct call_case made;

	call_case_kernels(&f->all, f->kernels, run_counted);
	batch = call_case_batch(&f->all.plan);
	assert_int_equal(hys_exec_create(&f->all.plan, NULL, &exec, NULL), HYS_OK);
	call_case_make(&made, batch, HYS_OP_MERGE);
	started = 0;
	f->devices[0].hold = true;
	assert_int_equal(call_case_run(&made, exec, batch, NULL), HYS_OK);
	assert_int_equal(call_case_run(&made, exec, batch, NULL), HYS_OK);
	wait_a_little();
	assert_int_equal(started, DEVICES - 1); /* device 0 waits for its copies */
	fake_device_open(&f->devices[0], 100);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	assert_int_equal(started, 2 * DEVICES);
	call_case_clear(&made);
	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
}

/* ---- the divisor of a mean over several devices ---- */

static double divisors[DEVICES];
static _Atomic int divisor_count;

static hys_status run_divisor(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error)
{
	(void)kernel;
	(void)stream;
	(void)instance;
	(void)error;
	divisors[divisor_count++] = call->args.loss.divisor;
	return HYS_OK;
}

static void expect_divisor(struct fixture *f, struct call_case *made, struct hys_exec *exec,
			   struct hys_batch *batch, double want)
{
	struct hys_error error = {HYS_OK, 0, ""};

	(void)f;
	divisor_count = 0;
	if (call_case_run(made, exec, batch, &error) != HYS_OK)
		fail_msg("%s", error.message);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	assert_in_range(divisor_count, 1, DEVICES); /* few rows are one device's */
	for (int i = 0; i < divisor_count; i++)
		assert_true(divisors[i] == want);
}

static void absent(struct call_case *made, const char *name)
{
	memset(call_case_tensor(made, name), 0, sizeof(struct hys_tensor));
}

static void test_divisor(void **state)
{
	struct fixture *f = *state;
	struct hys_batch *batch;
	struct hys_exec *exec = NULL;
	struct call_case made;
	int32_t *indices;
	float *teacher;

	call_case_kernels(&f->all, f->kernels, run_divisor);
	batch = call_case_batch(&f->all.plan);
	assert_int_equal(hys_exec_create(&f->all.plan, NULL, &exec, NULL), HYS_OK);
	call_case_make(&made, batch, HYS_OP_INDEXER_LOSS);
	indices = call_case_tensor(&made, "indices")->host;
	expect_divisor(f, &made, exec, batch, 2 * CASE_ROWS);
	/* -1 first is no end; beyond what the row sees is nothing */
	indices[0] = -1;
	expect_divisor(f, &made, exec, batch, 2 * CASE_ROWS);
	indices[0] = indices[1] = indices[2] = -1;
	indices[3] = CASE_KEYS - 1;
	indices[4] = CASE_KEYS;
	indices[5] = INT32_MAX;
	expect_divisor(f, &made, exec, batch, 2 * CASE_ROWS - 2);
	made.call.args.loss.row_stride = 5;
	made.call.args.loss.row_offset = 2;
	expect_divisor(f, &made, exec, batch, 2 * 7);
	made.call.args.loss.row_first = 30;
	expect_divisor(f, &made, exec, batch, 2 * 1);
	made.call.args.loss.row_first = made.call.args.loss.row_stride = 0;
	made.call.args.loss.row_offset = 0;
	made.call.args.loss.divisor = 12;
	expect_divisor(f, &made, exec, batch, 12);
	made.call.args.loss.divisor = 0;
	made.call.args.loss.reduction = HYS_REDUCTION_SUM;
	expect_divisor(f, &made, exec, batch, 0);
	made.call.args.loss.reduction = HYS_REDUCTION_MEAN;
	/* a teacher that says nothing */
	*call_case_tensor(&made, "teacher_in") = *call_case_tensor(&made, "scores");
	absent(&made, "q");
	absent(&made, "k");
	absent(&made, "lse");
	absent(&made, "sink");
	absent(&made, "teacher_out");
	teacher = call_case_tensor(&made, "teacher_in")->host;
	for (int i = 0; i < CASE_ROWS * 6; i++)
		teacher[i] = i / 6 == 20 ? 0 : 1;
	expect_divisor(f, &made, exec, batch, 2 * CASE_ROWS - 4);
	absent(&made, "scores");
	absent(&made, "teacher_in");
	absent(&made, "indices");
	call_case_clear(&made);
	call_case_make(&made, batch, HYS_OP_INDEXER_LOSS);
	absent(&made, "indices");
	absent(&made, "scores");
	absent(&made, "teacher_out");
	made.call.args.loss.flags = HYS_LOSS_DENSE;
	batch->host.index_end[3] = batch->host.index_begin[3];
	expect_divisor(f, &made, exec, batch, 2 * CASE_ROWS - 2);
	call_case_clear(&made);
	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
}

/* ---- workspace ---- */

static int64_t big_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
			     const struct hys_size *size)
{
	(void)kernel;
	(void)device;
	return 1000 * size->rows + size->topk;
}

static int64_t given_bytes, given_offset;

static hys_status run_workspace(const struct hys_kernel *kernel, struct hys_stream *stream,
				void *instance, const struct hys_call *call,
				struct hys_error *error)
{
	(void)kernel;
	(void)stream;
	(void)instance;
	(void)error;
	given_bytes = call->workspace.bytes;
	given_offset = call->workspace.offset_bytes;
	if (given_bytes > 0)
		memset((char *)call->workspace.buffer->native + given_offset, 0,
		       (size_t)given_bytes);
	return HYS_OK;
}

static void test_workspace(void **state)
{
	struct fixture *f = *state;
	struct hys_batch *batch;
	struct hys_exec *exec = NULL;
	struct call_case made;
	struct hys_error error;
	int64_t bytes = 0, less = 0;
	char *wide = malloc((size_t)CASE_ROWS * 2 * 40000 * 4);

	call_case_kernels(&f->one, f->kernels, run_workspace);
	for (int op = 0; op < HYS_OP_COUNT; op++)
		f->kernels[op].workspace = big_workspace;
	f->one.plan.rows_max = CASE_ROWS;
	batch = call_case_batch(&f->one.plan);
	assert_int_equal(hys_exec_create(&f->one.plan, NULL, &exec, NULL), HYS_OK);
	call_case_make(&made, batch, HYS_OP_SELECT);
	assert_int_equal(call_case_run(&made, exec, batch, NULL), HYS_OK);
	assert_int_equal(given_bytes, 1000 * CASE_ROWS + CASE_TOPK);
	assert_int_equal(
		hys_plan_workspace(&f->one.plan, HYS_OP_SELECT, CASE_ROWS, 0, &bytes, NULL),
		HYS_OK);
	assert_int_equal(hys_plan_workspace(&f->one.plan, HYS_OP_SELECT, 1, 0, &less, NULL),
			 HYS_OK);
	assert_true(less < bytes && bytes > given_bytes);
	/* indices wider than any that the plan foresaw */
	assert_non_null(wide);
	*call_case_tensor(&made, "indices") = hys_host(wide, HYS_I32, 3, CASE_ROWS, 2, 40000);
	absent(&made, "scores");
	assert_int_equal(call_case_run(&made, exec, batch, &error), HYS_WORKSPACE_TOO_SMALL);
	assert_non_null(strstr(error.message, "bytes of workspace"));
	free(wide);
	call_case_clear(&made);
	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_staged),	TEST(test_staged_accumulating), TEST(test_host_memory),
		TEST(test_shared_rows), TEST(test_mixed_devices),	TEST(test_uneven_shares),
		TEST(test_narrow_sums), TEST(test_one_after_the_other), TEST(test_divisor),
		TEST(test_workspace),
	};

	return cmocka_run_group_tests_name("stage", tests, NULL, NULL);
}
