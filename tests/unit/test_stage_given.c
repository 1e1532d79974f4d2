/* What kernels are given beside tensors: the divisor of a mean over several devices, workspace. */
#include "stage_fixture.h"

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
	assert_int_equal(divisor_count, DEVICES);
	for (int i = 0; i < DEVICES; i++)
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_divisor),
		TEST(test_workspace),
	};

	return cmocka_run_group_tests_name("stage_given", tests, NULL, NULL);
}
