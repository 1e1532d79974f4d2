/* Every operation with each argument wrong in turn: the status, a message that
 * names the operation and the argument, no kernel run, nothing written. */
#include <stdio.h>

#include "argument_fixture.h"

/* ---- every tensor of every operation ---- */

static hys_dtype other_type(hys_dtype dtype)
{
	return dtype == HYS_I32 ? HYS_F32 : HYS_I32;
}

static void spoil_memory(struct fixture *f, struct call_case *made, const char *name,
			 struct hys_tensor *tensor)
{
	const struct hys_tensor good = *tensor;

	tensor->host = NULL;
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	tensor->host = (char *)good.host + 1;
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	*tensor = good;
	tensor->buffer = f->here;
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	tensor->host = NULL;
	tensor->buffer = f->elsewhere;
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	tensor->buffer = f->here;
	tensor->offset = (1 << 20) / 4;
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	*tensor = good;
	tensor->offset = -1;
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	tensor->offset = INT64_MAX;
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	*tensor = good;
}

static void spoil_shape(struct fixture *f, struct call_case *made, const char *name,
			struct hys_tensor *tensor)
{
	const struct hys_tensor good = *tensor;

	tensor->dtype = other_type(good.dtype);
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	tensor->dtype = (hys_dtype)99;
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	tensor->dtype = HYS_DTYPE_DEFAULT;
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	*tensor = good;
	for (int32_t rank = -1; rank <= 5; rank++) {
		tensor->rank = rank;
		if (rank != good.rank)
			expect(f, made, HYS_INVALID_ARGUMENT, name);
	}
	*tensor = good;
	for (int32_t d = 0; d < good.rank; d++) {
		tensor->shape[d] = -1;
		expect(f, made, HYS_INVALID_ARGUMENT, name);
		tensor->shape[d] = INT64_MAX;
		if (strcmp(name, "x") != 0 && strcmp(name, "indices") != 0 &&
		    strcmp(name, "reference") != 0)
			expect(f, made, HYS_INVALID_ARGUMENT, name);
		*tensor = good;
	}
	tensor->shape[0]++;
	expect(f, made, HYS_INVALID_ARGUMENT, name);
	*tensor = good;
}

static void spoil_strides(struct fixture *f, struct call_case *made, const struct hys_field *field,
			  struct hys_tensor *tensor)
{
	const struct hys_tensor good = *tensor;
	const int32_t rank = good.rank;

	if (good.shape[rank - 1] > 1) {
		tensor->stride[rank - 1] = 2;
		expect(f, made, HYS_INVALID_ARGUMENT, field->name);
		*tensor = good;
	}
	if (rank > 1) {
		tensor->stride[0] = -1;
		expect(f, made, HYS_INVALID_ARGUMENT, field->name);
		tensor->stride[0] = INT64_MAX / 2;
		expect(f, made, HYS_INVALID_ARGUMENT, field->name);
		tensor->stride[0] = 1;
		if (field->flags & HYS_FIELD_OUT)
			expect(f, made, HYS_INVALID_ARGUMENT, field->name);
		*tensor = good;
	}
}

/* An output in the memory of any other tensor. */
static void spoil_overlap(struct fixture *f, struct call_case *made, const struct hys_field *field,
			  struct hys_tensor *tensor)
{
	const struct hys_tensor good = *tensor;

	for (int32_t j = 0; (field->flags & HYS_FIELD_OUT) && j < made->fields->count; j++) {
		const struct hys_field *other = &made->fields->fields[j];
		const struct hys_tensor *there = hys_field_tensor(other, &made->call.args);

		if (other == field || !hys_present(there))
			continue;
		tensor->host = (char *)there->host + made->bytes[j] - 4;
		expect(f, made, HYS_INVALID_ARGUMENT, field->name);
		*tensor = good;
	}
}

static void test_every_tensor(void **state)
{
	struct fixture *f = *state;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		struct call_case made;

		call_case_make(&made, f->batch, (hys_op)op);
		expect_fine(f, &made);
		for (int32_t i = 0; i < made.fields->count; i++) {
			const struct hys_field *field = &made.fields->fields[i];
			struct hys_tensor *tensor = hys_field_tensor(field, &made.call.args);
			const struct hys_tensor good = *tensor;

			if (!hys_present(tensor))
				continue;
			memset(tensor, 0, sizeof(*tensor));
			if (!(field->flags & HYS_FIELD_OPTIONAL))
				expect(f, &made, HYS_INVALID_ARGUMENT, field->name);
			*tensor = good;
			spoil_memory(f, &made, field->name, tensor);
			spoil_shape(f, &made, field->name, tensor);
			spoil_strides(f, &made, field, tensor);
			spoil_overlap(f, &made, field, tensor);
		}
		expect_fine(f, &made);
		call_case_clear(&made);
	}
}

/* ---- what all operations share ---- */

static void test_handles(void **state)
{
	struct fixture *f = *state;
	struct hys_batch *foreign = call_case_batch(&f->other.plan);
	struct hys_error error = {HYS_OK, 0, ""};

	assert_non_null(foreign);
	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		struct call_case made;
		struct fixture spoilt = *f;

		call_case_make(&made, f->batch, (hys_op)op);
		spoilt.exec = NULL;
		runs = 0;
		assert_int_equal(call_case_run(&made, NULL, f->batch, &error),
				 HYS_INVALID_ARGUMENT);
		assert_non_null(strstr(error.message, "exec"));
		spoilt = *f;
		spoilt.batch = NULL;
		expect(&spoilt, &made, HYS_INVALID_ARGUMENT, "batch");
		spoilt.batch = foreign;
		expect(&spoilt, &made, HYS_INVALID_ARGUMENT, "batch");
		for (size_t size = 0; size <= made.fields->args_bytes + 8; size += 8) {
			memcpy(&made.call.args, &size, sizeof(size));
			if (size < made.fields->args_bytes)
				expect(f, &made, HYS_INVALID_ARGUMENT, "struct_size");
		}
		call_case_clear(&made);
	}
	assert_int_equal(hys_select(f->exec, f->batch, NULL, &error), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_attention_forward(f->exec, f->batch, NULL, &error),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_attention_backward(f->exec, f->batch, NULL, &error),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_indexer_loss(f->exec, f->batch, NULL, &error), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_pool(f->exec, f->batch, NULL, &error), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_pool_backward(f->exec, f->batch, NULL, &error), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_merge(f->exec, f->batch, NULL, &error), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_fidelity(f->exec, f->batch, NULL, &error), HYS_INVALID_ARGUMENT);
	assert_non_null(strstr(error.message, "args"));
	hys_batch_destroy(foreign);
}

/* A caller of a later version: larger, but nothing set that this one lacks. */
static void test_later_caller(void **state)
{
	struct fixture *f = *state;
	struct call_case made;
	struct {
		struct hys_merge_args args;
		int64_t later;
	} call;

	call_case_make(&made, f->batch, HYS_OP_MERGE);
	call.args = made.call.args.merge;
	call.args.struct_size = sizeof(call);
	call.later = 0;
	assert_int_equal(hys_merge(f->exec, f->batch, &call.args, NULL), HYS_OK);
	call.later = 1;
	assert_int_equal(hys_merge(f->exec, f->batch, &call.args, NULL), HYS_INVALID_ARGUMENT);
	call_case_clear(&made);
}

static void test_rows(void **state)
{
	struct fixture *f = *state;
	static const struct {
		int64_t first, count;
		const char *word;
	} cases[] = {
		{-1, 0, "row_first"}, {1000, 0, "row_first"}, {INT64_MIN, 0, "row_first"},
		{0, -1, "row_count"}, {0, 1000, "row_count"}, {5, INT64_MAX, "row_count"},
	};

	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		for (size_t i = 0; i < COUNT(cases); i++) {
			struct call_case made;

			call_case_make(&made, f->batch, (hys_op)op);
			made.call.args.select.row_first = cases[i].first;
			made.call.args.select.row_count = cases[i].count;
			expect(f, &made, HYS_INVALID_ARGUMENT, cases[i].word);
			call_case_clear(&made);
		}
}

static void test_limits(void **state)
{
	struct fixture *f = *state;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		struct call_case made;

		call_case_make(&made, f->batch, (hys_op)op);
		f->plan.plan.operations &= ~HYS_OP_BIT(op);
		expect(f, &made, HYS_INVALID_ARGUMENT, hys_op_name((hys_op)op));
		f->plan.plan.operations |= HYS_OP_BIT(op);
		f->plan.plan.rows_max = CASE_ROWS - 1;
		if (op != HYS_OP_POOL && op != HYS_OP_POOL_BACKWARD)
			expect(f, &made, HYS_WORKSPACE_TOO_SMALL, "row_count");
		f->plan.plan.rows_max = 1024;
		call_case_clear(&made);
	}
}

/* ---- tensors for all rows, or for the range ---- */

static void test_ranges(void **state)
{
	struct fixture *f = *state;
	struct call_case made;
	struct hys_tensor *q, *lse;

	call_case_make(&made, f->batch, HYS_OP_ATTENTION_FORWARD);
	made.call.args.attention.row_first = 5;
	made.call.args.attention.row_count = 9;
	q = call_case_tensor(&made, "q");
	lse = call_case_tensor(&made, "lse");
	lse->shape[0] = 9;
	lse->stride[0] = 6;
	expect_fine(f, &made);
	assert_int_equal(last.size.rows, 9);
	assert_int_equal(last.row_first, 5);
	assert_int_equal(last.args.attention.q.shape[0], 9);
	assert_ptr_equal(last.args.attention.q.host, (float *)q->host + 5 * 60);
	assert_int_equal(last.args.attention.q.stride[0], 60);
	assert_int_equal(last.args.attention.q.stride[1], 10);
	assert_int_equal(last.args.attention.q.stride[2], 1);
	assert_ptr_equal(last.args.attention.lse.host, lse->host);
	assert_ptr_equal(last.batch.row_end.host, f->batch->host.row_end + 5);
	assert_true(last.size.key_pairs ==
		    (double)(f->batch->key_pairs_before[14] - f->batch->key_pairs_before[5]));
	lse->shape[0] = 10;
	expect(f, &made, HYS_INVALID_ARGUMENT,
	       "lse has shape [10,6], expected [rows=9 or 37, H=6]");
	made.call.args.attention.row_first = CASE_ROWS;
	made.call.args.attention.row_count = 0;
	lse->shape[0] = 0;
	lse->host = NULL;
	expect_fine(f, &made);
	assert_int_equal(last.size.rows, 0);
	call_case_clear(&made);
}

/* Slices of one packed projection may be outputs; slices that touch may not. */
static void test_interleaved(void **state)
{
	struct fixture *f = *state;
	struct call_case made;
	struct hys_tensor *dk, *dv;
	float *packed = calloc(CASE_KEYS, 34 * sizeof(*packed));

	assert_non_null(packed);
	call_case_make(&made, f->batch, HYS_OP_ATTENTION_BACKWARD);
	dk = call_case_tensor(&made, "dk");
	dv = call_case_tensor(&made, "dv");
	dk->host = packed;
	dv->host = packed + 20;
	dk->stride[0] = dv->stride[0] = 34;
	expect_fine(f, &made);
	dv->host = packed + 19;
	expect(f, &made, HYS_INVALID_ARGUMENT, "dk");
	dv->host = packed + 20;
	dv->stride[0] = 33;
	expect(f, &made, HYS_INVALID_ARGUMENT, "dk");
	call_case_clear(&made);
	free(packed);
}

/* Memory that a buffer wraps is the caller's host memory too. */
static void test_buffers(void **state)
{
	struct fixture *f = *state;
	struct call_case made;
	struct hys_tensor *o, *q;

	call_case_make(&made, f->batch, HYS_OP_ATTENTION_FORWARD);
	o = call_case_tensor(&made, "o");
	q = call_case_tensor(&made, "q");
	o->host = NULL;
	o->buffer = f->here;
	o->offset = 16;
	expect_fine(f, &made);
	assert_ptr_equal(last.args.attention.o.host, (float *)f->here->native + 16);
	assert_null(last.args.attention.o.buffer);
	q->host = (float *)f->here->native + 16;
	expect(f, &made, HYS_INVALID_ARGUMENT, "o overlaps q");
	call_case_clear(&made);
}

static void test_buffers_only(void **state)
{
	struct fixture *f = *state;
	struct call_case made;

	call_case_make(&made, f->batch, HYS_OP_MERGE);
	f->plan.plan.flags = HYS_PLAN_BUFFERS_ONLY;
	expect(f, &made, HYS_INVALID_ARGUMENT, "o_a");
	call_case_clear(&made);
}

static void test_buffers_of_several_devices(void **state)
{
	struct fixture *f = *state;
	struct fixture pair = *f;
	struct call_case made;
	struct hys_tensor *k;

	f->devices[1].base.host_memory = true;
	assert_int_equal(hys_exec_create(&f->pair.plan, NULL, &pair.exec, NULL), HYS_OK);
	pair.batch = call_case_batch(&f->pair.plan);
	call_case_make(&made, pair.batch, HYS_OP_ATTENTION_FORWARD);
	k = call_case_tensor(&made, "k");
	k->host = NULL;
	k->buffer = f->here;
	expect(&pair, &made, HYS_UNSUPPORTED, "k lies in a buffer");
	call_case_clear(&made);
	hys_batch_destroy(pair.batch);
	hys_exec_destroy(pair.exec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_every_tensor), TEST(test_handles),
		TEST(test_later_caller), TEST(test_rows),
		TEST(test_limits),	 TEST(test_ranges),
		TEST(test_interleaved),	 TEST(test_buffers),
		TEST(test_buffers_only), TEST(test_buffers_of_several_devices),
	};

	return cmocka_run_group_tests_name("arguments", tests, NULL, NULL);
}
