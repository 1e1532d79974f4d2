/* How operations reach devices: tensors staged where the device has no host
 * memory, rows shared between devices, partial sums merged. Fake kernels check
 * what they are given and write what can be foretold. */
#include <time.h>

#include "number.h"
#include "stage_fixture.h"

#define PAD 3 /* elements between rows */

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
	};

	return cmocka_run_group_tests_name("stage", tests, NULL, NULL);
}
