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

#include "call_case.h"
#include "number.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DEVICES 3
#define PAD 3 /* elements between rows */

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

/* ---- kernels ---- */

static char *memory_of(const struct hys_tensor *tensor)
{
	char *start = tensor->buffer ? tensor->buffer->native : tensor->host;

	return start + tensor->offset * (int64_t)hys_dtype_size(tensor->dtype);
}

static int64_t elements_of(const struct hys_tensor *tensor)
{
	int64_t count = 1;

	for (int32_t d = 0; d < tensor->rank; d++)
		count *= tensor->shape[d];
	return count;
}

/* Where element i lies behind the tensor's start. */
static int64_t at(const struct hys_tensor *tensor, int64_t i)
{
	int64_t place = 0;

	for (int32_t d = tensor->rank - 1; d >= 0; d--) {
		place += i % tensor->shape[d] * tensor->stride[d];
		i /= tensor->shape[d];
	}
	return place;
}

static double value_at(const struct hys_tensor *tensor, int64_t i)
{
	return hys_number_load(memory_of(tensor), tensor->dtype, at(tensor, i));
}

/* Element i of field number `field` of a whole call's inputs. */
static double pattern(int32_t field, int64_t i)
{
	return (double)((i * 7 + field) % 61);
}

static int wrong; /* inputs that were not the pattern */
static pthread_mutex_t wrong_lock = PTHREAD_MUTEX_INITIALIZER;

static void check_inputs(const struct hys_call *call, const struct hys_fields *fields)
{
	struct hys_call *own = (struct hys_call *)(uintptr_t)call;
	int bad = 0;

	for (int32_t f = 0; f < fields->count; f++) {
		const struct hys_field *field = &fields->fields[f];
		const struct hys_tensor *tensor = hys_field_tensor(field, &own->args);
		int64_t before = 0;

		if (!hys_present(tensor) || (field->flags & HYS_FIELD_OUT))
			continue;
		if (field->dims[0] == HYS_DIM_ROWS && tensor->shape[0] > 0)
			before = call->row_first * elements_of(tensor) / tensor->shape[0];
		for (int64_t i = 0; i < elements_of(tensor); i++)
			bad += value_at(tensor, i) != pattern(f, before + i);
	}
	pthread_mutex_lock(&wrong_lock);
	wrong += bad;
	pthread_mutex_unlock(&wrong_lock);
}

static bool accumulates(const struct hys_call *call)
{
	if (call->op == HYS_OP_INDEXER_LOSS)
		return call->args.loss.flags & HYS_LOSS_ACCUMULATE;
	if (call->op == HYS_OP_POOL_BACKWARD)
		return call->args.pool_grad.flags & HYS_GRAD_ACCUMULATE;
	return call->op == HYS_OP_ATTENTION_BACKWARD &&
	       call->args.attention_grad.flags & HYS_GRAD_ACCUMULATE;
}

/* Row outputs get the row's number, sums over rows how many there were. */
static hys_status run_foretold(const struct hys_kernel *kernel, struct hys_stream *stream,
			       void *instance, const struct hys_call *call, struct hys_error *error)
{
	const struct hys_fields *fields = hys_op_fields(call->op);
	struct hys_call *own = (struct hys_call *)(uintptr_t)call;

	(void)kernel;
	(void)stream;
	(void)instance;
	(void)error;
	check_inputs(call, fields);
	for (int32_t f = 0; f < fields->count; f++) {
		const struct hys_field *field = &fields->fields[f];
		const struct hys_tensor *tensor = hys_field_tensor(field, &own->args);
		const bool part = field->flags & HYS_FIELD_PARTIAL;

		if (!hys_present(tensor) || !(field->flags & HYS_FIELD_OUT))
			continue;
		for (int64_t i = 0; i < elements_of(tensor); i++) {
			const int64_t row = part ? 0 : i / (elements_of(tensor) / tensor->shape[0]);
			double value = (double)(part ? call->size.rows : call->row_first + row);

			if (accumulates(call))
				value += value_at(tensor, i);
			hys_number_store(memory_of(tensor), tensor->dtype, at(tensor, i), value);
		}
	}
	return HYS_OK;
}

/* ---- strided callers ---- */

/* The call's tensors in wider memory: PAD elements behind each row, and
 * between the runs of rank 3. */
static void widen(struct call_case *made)
{
	for (int32_t f = 0; f < made->fields->count; f++) {
		const struct hys_field *field = &made->fields->fields[f];
		struct hys_tensor *tensor = hys_field_tensor(field, &made->call.args);
		int64_t stride = 1;

		if (!hys_present(tensor))
			continue;
		for (int32_t d = tensor->rank - 1; d >= 0; d--) {
			tensor->stride[d] = stride;
			stride = stride * tensor->shape[d] + PAD;
		}
		free(made->memory[f]);
		made->bytes[f] = stride * 4 - 128;
		made->memory[f] = malloc((size_t)stride * 4);
		assert_non_null(made->memory[f]);
		memset(made->memory[f], 0x5a, (size_t)stride * 4);
		tensor->host = made->memory[f];
		for (int64_t i = 0; i < elements_of(tensor); i++)
			hys_number_store(tensor->host, tensor->dtype, at(tensor, i),
					 field->flags & HYS_FIELD_OUT ? 1000 : pattern(f, i));
	}
}

/* Every output as foretold, `base` more, and 0x5a between. */
static void check_outputs(struct call_case *made, int64_t rows, double base)
{
	for (int32_t f = 0; f < made->fields->count; f++) {
		const struct hys_field *field = &made->fields->fields[f];
		struct hys_tensor *tensor = hys_field_tensor(field, &made->call.args);
		const int64_t size = (int64_t)hys_dtype_size(tensor->dtype);
		char *memory = tensor->host;

		if (!hys_present(tensor) || !(field->flags & HYS_FIELD_OUT))
			continue;
		for (int64_t i = 0; i < elements_of(tensor); i++) {
			const bool part = field->flags & HYS_FIELD_PARTIAL;
			const int64_t row = i / (elements_of(tensor) / tensor->shape[0]);
			const double want = base + (double)(part ? rows : row);

			if (value_at(tensor, i) != want)
				fail_msg("%s: %s[%d] is %g, expected %g", hys_op_name(made->op),
					 field->name, (int)i, value_at(tensor, i), want);
			memset(memory + at(tensor, i) * size, 0x5a, (size_t)size);
		}
		for (int64_t i = 0; i < made->bytes[f] + 128; i++)
			assert_int_equal(memory[i], 0x5a);
	}
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

	call_case_kernels(plan, f->kernels, run_foretold);
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
		wrong = 0;
		widen(&made);
		if (call_case_run(&made, exec, batch, &error) != HYS_OK)
			fail_msg("%s: %s", hys_op_name((hys_op)op), error.message);
		assert_int_equal(hys_exec_finish(exec, &error), HYS_OK);
		assert_int_equal(wrong, 0);
		check_outputs(&made, rows_of(&made, batch),
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

	f->all.shares[0] = 0.01;
	f->all.shares[1] = 0.99;
	f->all.shares[2] = 0;
	run_all(f, &f->all, false);
}

static void test_rows_before(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(hys_rows_before(&f->all.plan, 1000, 0), 0);
	for (int64_t rows = 0; rows < 200; rows++) {
		int64_t last = 0;

		for (int32_t i = 0; i <= DEVICES; i++) {
			const int64_t before = hys_rows_before(&f->all.plan, rows, i);

			assert_true(before >= last && before <= rows);
			assert_true(before == rows || before % 16 == 0);
			last = before;
		}
		assert_int_equal(last, rows);
	}
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
	call_case_kernels(&f->all, f->kernels, run_foretold);
	batch = call_case_batch(&f->all.plan);
	assert_int_equal(hys_exec_create(&f->all.plan, NULL, &exec, NULL), HYS_OK);
	call_case_make(&made, batch, HYS_OP_ATTENTION_BACKWARD);
	widen(&made);
	dk = call_case_tensor(&made, "dk");
	assert_int_equal(dk->dtype, HYS_BF16);
	made.call.args.attention_grad.flags = HYS_GRAD_ACCUMULATE;
	assert_int_equal(call_case_run(&made, exec, batch, NULL), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	/* 1000 in bf16, plus 37, in bf16 */
	assert_true(value_at(dk, 0) == 1040);
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
	return run_foretold(kernel, stream, instance, call, error);
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

static void test_failing_lane(void **state)
{
	struct fixture *f = *state;
	static const char letters[] = {'i', 'o', 'F'};
	struct hys_batch *batch;
	struct hys_exec *exec = NULL;
	struct call_case made;
	struct hys_error error;

	call_case_kernels(&f->all, f->kernels, run_foretold);
	batch = call_case_batch(&f->all.plan);
	assert_int_equal(hys_exec_create(&f->all.plan, NULL, &exec, NULL), HYS_OK);
	call_case_make(&made, batch, HYS_OP_ATTENTION_BACKWARD);
	for (size_t i = 0; i < COUNT(letters); i++) {
		const uint64_t sums = hys_hash(hys_hash_start, call_case_tensor(&made, "dk")->host,
					       CASE_KEYS * 4);
		hys_status first;

		f->devices[1].fail = letters[i];
		first = call_case_run(&made, exec, batch, NULL);
		assert_int_equal(first, HYS_OK);
		for (int n = 0; n < 40; n++)
			call_case_run(&made, exec, batch, NULL);
		assert_int_equal(hys_exec_finish(exec, &error), HYS_DEVICE_FAILED);
		assert_non_null(strstr(error.message, "fake 1"));
		if (i == 0) /* nothing was merged */
			assert_true(hys_hash(hys_hash_start, call_case_tensor(&made, "dk")->host,
					     CASE_KEYS * 4) == sums);
		assert_int_equal(call_case_run(&made, exec, batch, NULL), HYS_OK);
		assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	}
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_staged),
		TEST(test_staged_accumulating),
		TEST(test_host_memory),
		TEST(test_shared_rows),
		TEST(test_mixed_devices),
		TEST(test_uneven_shares),
		TEST(test_rows_before),
		TEST(test_narrow_sums),
		TEST(test_one_after_the_other),
		TEST(test_failing_lane),
		TEST(test_divisor),
		TEST(test_workspace),
	};

	return cmocka_run_group_tests_name("stage", tests, NULL, NULL);
}
