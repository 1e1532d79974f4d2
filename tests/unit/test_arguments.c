/* Every operation with each argument wrong in turn: the status, a message that
 * names the operation and the argument, no kernel run, nothing written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_case.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int runs; /* of kernels */
static struct hys_call last;

static hys_status count_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			    void *instance, const struct hys_call *call, struct hys_error *error)
{
	(void)kernel;
	(void)stream;
	(void)instance;
	(void)error;
	runs++;
	last = *call;
	return HYS_OK;
}

struct fixture {
	struct hys_context *context;
	struct fake_device devices[2];
	struct fake_plan plan, other, pair, eighth;
	struct hys_kernel kernels[HYS_OP_COUNT];
	struct hys_exec *exec;
	struct hys_batch *batch;
	struct hys_buffer *here, *elsewhere;
};

static void init_plan(struct fixture *f, struct fake_plan *plan, int32_t devices)
{
	fake_plan_init(plan, f->context, f->devices, devices);
	plan->plan.problem = call_case_problem();
	call_case_kernels(plan, f->kernels, count_run);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct hys_context_options options = {.struct_size = sizeof(options), .devices = "openmp"};

	assert_non_null(f);
	assert_int_equal(hys_context_create(&options, &f->context, NULL), HYS_OK);
	fake_device_init(&f->devices[0], &f->context->host, "fake 0");
	fake_device_init(&f->devices[1], &f->context->host, "fake 1");
	f->devices[0].base.host_memory = true;
	init_plan(f, &f->plan, 1);
	init_plan(f, &f->other, 1);
	init_plan(f, &f->pair, 2);
	init_plan(f, &f->eighth, 1);
	f->eighth.plan.problem.scoring.dtype = HYS_F8E4M3;
	assert_int_equal(hys_exec_create(&f->plan.plan, NULL, &f->exec, NULL), HYS_OK);
	f->batch = call_case_batch(&f->plan.plan);
	assert_non_null(f->batch);
	assert_int_equal(hys_buffer_make(f->context, &f->devices[0].base, 1 << 20, &f->here, NULL),
			 HYS_OK);
	assert_int_equal(
		hys_buffer_make(f->context, &f->devices[1].base, 1 << 20, &f->elsewhere, NULL),
		HYS_OK);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	hys_buffer_destroy(f->here);
	hys_buffer_destroy(f->elsewhere);
	hys_batch_destroy(f->batch);
	hys_exec_destroy(f->exec);
	fake_device_clear(&f->devices[0]);
	fake_device_clear(&f->devices[1]);
	hys_context_destroy(f->context);
	free(f);
	return 0;
}

/* Runs the case, which must fail so and leave no trace. */
static void expect(struct fixture *f, const struct call_case *made, hys_status status,
		   const char *word)
{
	struct hys_error error = {HYS_OK, 0, ""};
	const uint64_t before = call_case_hash(made);
	hys_status found;

	runs = 0;
	found = call_case_run(made, f->exec, f->batch, &error);
	if (found != status)
		fail_msg("%s, %s wrong: %s (%s), expected %s", hys_op_name(made->op), word,
			 hys_status_name(found), error.message, hys_status_name(status));
	assert_int_equal(error.status, status);
	if (!strstr(error.message, word) ||
	    strncmp(error.message, made->name, strlen(made->name)) != 0)
		fail_msg("%s: \"%s\" does not name %s", hys_op_name(made->op), error.message, word);
	assert_int_equal(runs, 0);
	assert_true(call_case_hash(made) == before);
	assert_int_equal(call_case_run(made, f->exec, f->batch, NULL), status);
	assert_int_equal(hys_exec_finish(f->exec, NULL), HYS_OK);
}

static void expect_fine(struct fixture *f, const struct call_case *made)
{
	struct hys_error error = {HYS_OK, 0, ""};

	runs = 0;
	if (call_case_run(made, f->exec, f->batch, &error) != HYS_OK)
		fail_msg("%s: %s", hys_op_name(made->op), error.message);
	assert_int_equal(runs, 1);
}

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

/* ---- rules between arguments ---- */

static void set_u32(struct call_case *made, size_t offset, uint32_t value)
{
	memcpy((char *)&made->call.args + offset, &value, sizeof(value));
}

static void test_numbers(void **state)
{
	struct fixture *f = *state;
	static const struct {
		hys_op op;
		size_t offset;
		uint32_t value;
		const char *word;
	} cases[] = {
		{HYS_OP_SELECT, offsetof(struct hys_select_args, method), 4, "method"},
		{HYS_OP_SELECT, offsetof(struct hys_select_args, method), UINT32_MAX, "method"},
		{HYS_OP_ATTENTION_BACKWARD, offsetof(struct hys_attention_grad_args, flags), 2,
		 "flags"},
		{HYS_OP_INDEXER_LOSS, offsetof(struct hys_loss_args, flags), 4, "flags"},
		{HYS_OP_INDEXER_LOSS, offsetof(struct hys_loss_args, reduction), 2, "reduction"},
		{HYS_OP_INDEXER_LOSS, offsetof(struct hys_loss_args, row_stride), UINT32_MAX,
		 "row_stride"},
		{HYS_OP_INDEXER_LOSS, offsetof(struct hys_loss_args, row_offset), 1, "row_offset"},
		{HYS_OP_INDEXER_LOSS, offsetof(struct hys_loss_args, row_offset), UINT32_MAX,
		 "row_offset"},
		{HYS_OP_POOL, offsetof(struct hys_pool_args, pooling), 4, "pooling"},
		{HYS_OP_POOL, offsetof(struct hys_pool_args, unit), 2, "unit"},
		{HYS_OP_POOL, offsetof(struct hys_pool_args, unit), HYS_POOL_ENTRIES, "unit"},
		{HYS_OP_POOL, offsetof(struct hys_pool_args, pooling), HYS_POOL_MEAN, "gate"},
		{HYS_OP_POOL, offsetof(struct hys_pool_args, pooling), HYS_POOL_BOUNDS, "gate"},
		{HYS_OP_POOL_BACKWARD, offsetof(struct hys_pool_grad_args, flags), 2, "flags"},
		{HYS_OP_POOL_BACKWARD, offsetof(struct hys_pool_grad_args, pooling), 4, "pooling"},
		{HYS_OP_POOL_BACKWARD, offsetof(struct hys_pool_grad_args, pooling), HYS_POOL_MEAN,
		 "gate"},
		{HYS_OP_POOL_BACKWARD, offsetof(struct hys_pool_grad_args, unit), HYS_POOL_ENTRIES,
		 "unit"},
		{HYS_OP_FIDELITY, offsetof(struct hys_fidelity_args, row_stride), UINT32_MAX,
		 "row_stride"},
		{HYS_OP_FIDELITY, offsetof(struct hys_fidelity_args, row_offset), 7, "row_offset"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct call_case made;

		call_case_make(&made, f->batch, cases[i].op);
		set_u32(&made, cases[i].offset, cases[i].value);
		expect(f, &made, HYS_INVALID_ARGUMENT, cases[i].word);
		call_case_clear(&made);
	}
}

static void test_reals(void **state)
{
	struct fixture *f = *state;
	static const double wrong[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
	struct call_case loss, fidelity;

	call_case_make(&loss, f->batch, HYS_OP_INDEXER_LOSS);
	call_case_make(&fidelity, f->batch, HYS_OP_FIDELITY);
	for (size_t i = 0; i < COUNT(wrong); i++) {
		loss.call.args.loss.coefficient = wrong[i];
		expect(f, &loss, HYS_INVALID_ARGUMENT, "coefficient");
		loss.call.args.loss.coefficient = 1;
		loss.call.args.loss.divisor = wrong[i];
		expect(f, &loss, HYS_INVALID_ARGUMENT, "divisor");
		loss.call.args.loss.divisor = 0;
		fidelity.call.args.fidelity.target_mass = wrong[i];
		expect(f, &fidelity, HYS_INVALID_ARGUMENT, "target_mass");
	}
	loss.call.args.loss.divisor = -1;
	expect(f, &loss, HYS_INVALID_ARGUMENT, "divisor");
	fidelity.call.args.fidelity.target_mass = 1.5;
	expect(f, &fidelity, HYS_INVALID_ARGUMENT, "target_mass");
	call_case_clear(&loss);
	call_case_clear(&fidelity);
}

static void test_topk(void **state)
{
	struct fixture *f = *state;
	struct call_case made;
	int32_t topk[2] = {2, 3};

	call_case_make(&made, f->batch, HYS_OP_SELECT);
	made.call.args.select.topk = topk;
	expect_fine(f, &made);
	assert_int_equal(last.topk[0], 2);
	assert_int_equal(last.topk[1], 3);
	topk[1] = 4;
	expect(f, &made, HYS_INVALID_ARGUMENT, "topk[1] is 4, expected 1 to 3");
	topk[1] = 0;
	expect(f, &made, HYS_INVALID_ARGUMENT, "topk[1]");
	topk[1] = 3;
	call_case_tensor(&made, "indices")->shape[2] = 2;
	call_case_tensor(&made, "scores")->shape[2] = 2;
	expect(f, &made, HYS_INVALID_ARGUMENT,
	       "indices has K 2, expected at least the 3 of topk[1]");
	call_case_clear(&made);
}

/* One tensor taken away or given, what it then clashes with. */
static void test_together(void **state)
{
	struct fixture *f = *state;
	static const struct {
		hys_op op;
		const char *absent, *word;
	} cases[] = {
		{HYS_OP_ATTENTION_FORWARD, "window_k", "window_v"},
		{HYS_OP_ATTENTION_BACKWARD, "window_k", "window_v"},
		{HYS_OP_ATTENTION_BACKWARD, "v", "dv"},
		{HYS_OP_ATTENTION_BACKWARD, "sink", "dsink"},
		{HYS_OP_ATTENTION_BACKWARD, "window_v", "dwindow_v"},
		{HYS_OP_INDEXER_LOSS, "indices", "indices"},
		{HYS_OP_INDEXER_LOSS, "q", "q is absent"},
		{HYS_OP_INDEXER_LOSS, "k", "k is absent"},
		{HYS_OP_POOL, "gate", "gate"},
		{HYS_OP_POOL, "y", "y"},
		{HYS_OP_POOL_BACKWARD, "gate", "gate"},
		{HYS_OP_POOL_BACKWARD, "bias", "dbias"},
		{HYS_OP_FIDELITY, "indices", "indices"},
		{HYS_OP_FIDELITY, "reference", "reference"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct call_case made;

		call_case_make(&made, f->batch, cases[i].op);
		memset(call_case_tensor(&made, cases[i].absent), 0, sizeof(struct hys_tensor));
		expect(f, &made, HYS_INVALID_ARGUMENT, cases[i].word);
		call_case_clear(&made);
	}
}

static void test_no_output(void **state)
{
	struct fixture *f = *state;
	static const hys_op ops[] = {HYS_OP_ATTENTION_BACKWARD, HYS_OP_INDEXER_LOSS,
				     HYS_OP_FIDELITY};

	for (size_t n = 0; n < COUNT(ops); n++) {
		struct call_case made;

		call_case_make(&made, f->batch, ops[n]);
		for (int32_t i = 0; i < made.fields->count; i++)
			if (made.fields->fields[i].flags & HYS_FIELD_OUT)
				memset(hys_field_tensor(&made.fields->fields[i], &made.call.args),
				       0, sizeof(struct hys_tensor));
		expect(f, &made, HYS_INVALID_ARGUMENT, "all absent");
		call_case_clear(&made);
	}
}

static void test_shared_value(void **state)
{
	struct fixture *f = *state;
	struct call_case made;

	call_case_make(&made, f->batch, HYS_OP_ATTENTION_FORWARD);
	memset(call_case_tensor(&made, "v"), 0, sizeof(struct hys_tensor));
	expect_fine(f, &made);
	f->plan.plan.problem.attending.head_dim = 6;
	expect(f, &made, HYS_INVALID_ARGUMENT, "v is absent");
	call_case_clear(&made);
}

static void test_second_source(void **state)
{
	struct fixture *f = *state;
	struct hys_batch_desc desc = {
		.struct_size = sizeof(desc), .rows = CASE_ROWS, .keys = CASE_KEYS};
	struct fixture plain = *f;
	struct call_case made;

	assert_int_equal(hys_batch_create(&f->plan.plan, &desc, &plain.batch, NULL), HYS_OK);
	call_case_make(&made, f->batch, HYS_OP_ATTENTION_FORWARD);
	expect(&plain, &made, HYS_INVALID_ARGUMENT, "window_k");
	call_case_clear(&made);
	hys_batch_destroy(plain.batch);
}

static void test_dense_attention(void **state)
{
	struct fixture *f = *state;
	struct call_case made;

	f->plan.plan.problem.attending.flags = HYS_ATTENDING_DENSE;
	call_case_make(&made, f->batch, HYS_OP_ATTENTION_FORWARD);
	expect_fine(f, &made);
	assert_false(hys_present(&last.args.attention.indices));
	call_case_clear(&made);
}

static void test_eighth(void **state)
{
	struct fixture *f = *state;
	struct fixture eighth = *f;
	struct call_case made, plain;
	struct hys_tensor *q, *k;
	float scales[CASE_ROWS * 4] = {0}, more[CASE_KEYS] = {0};

	assert_int_equal(hys_exec_create(&f->eighth.plan, NULL, &eighth.exec, NULL), HYS_OK);
	eighth.batch = call_case_batch(&f->eighth.plan);
	call_case_make(&made, eighth.batch, HYS_OP_SELECT);
	expect(&eighth, &made, HYS_INVALID_ARGUMENT, "index_q_scale");
	q = call_case_tensor(&made, "index_q_scale");
	k = call_case_tensor(&made, "index_k_scale");
	*q = hys_host(scales, HYS_F32, 2, CASE_ROWS, 4, 0);
	expect(&eighth, &made, HYS_INVALID_ARGUMENT, "index_k_scale");
	*k = hys_host(more, HYS_F32, 1, CASE_KEYS, 0, 0);
	expect_fine(&eighth, &made);
	call_case_make(&plain, f->batch, HYS_OP_SELECT);
	*call_case_tensor(&plain, "index_q_scale") = *q;
	expect(f, &plain, HYS_INVALID_ARGUMENT, "index_q_scale");
	call_case_clear(&plain);
	call_case_clear(&made);
	call_case_make(&made, eighth.batch, HYS_OP_INDEXER_LOSS);
	expect(&eighth, &made, HYS_UNSUPPORTED, "f8e4m3");
	call_case_clear(&made);
	hys_batch_destroy(eighth.batch);
	hys_exec_destroy(eighth.exec);
}

static void test_dense_loss(void **state)
{
	struct fixture *f = *state;
	struct call_case made;
	struct hys_tensor *in, share;

	call_case_make(&made, f->batch, HYS_OP_INDEXER_LOSS);
	in = call_case_tensor(&made, "teacher_in");
	share = *call_case_tensor(&made, "scores");
	*in = share;
	expect(f, &made, HYS_INVALID_ARGUMENT, "q is given");
	made.call.args.loss.flags = HYS_LOSS_DENSE;
	expect(f, &made, HYS_UNSUPPORTED, "teacher_in");
	memset(in, 0, sizeof(*in));
	expect(f, &made, HYS_UNSUPPORTED, "teacher_out");
	memset(call_case_tensor(&made, "teacher_out"), 0, sizeof(share));
	expect(f, &made, HYS_INVALID_ARGUMENT, "indices");
	memset(call_case_tensor(&made, "indices"), 0, sizeof(share));
	expect(f, &made, HYS_INVALID_ARGUMENT, "scores");
	memset(call_case_tensor(&made, "scores"), 0, sizeof(share));
	expect_fine(f, &made);
	assert_true(last.args.loss.coefficient == 1);
	assert_int_equal(last.args.loss.row_stride, 1);
	call_case_clear(&made);
}

static void test_teacher_in(void **state)
{
	struct fixture *f = *state;
	static const char *const clashes[] = {"q", "k", "lse", "sink", "teacher_out"};
	struct call_case made;

	call_case_make(&made, f->batch, HYS_OP_INDEXER_LOSS);
	*call_case_tensor(&made, "teacher_in") = *call_case_tensor(&made, "scores");
	for (size_t i = 0; i < COUNT(clashes); i++) {
		expect(f, &made, HYS_INVALID_ARGUMENT, clashes[i]);
		memset(call_case_tensor(&made, clashes[i]), 0, sizeof(struct hys_tensor));
	}
	expect_fine(f, &made);
	call_case_clear(&made);
}

static void test_loss_granularity(void **state)
{
	struct fixture *f = *state;
	struct call_case made;

	call_case_make(&made, f->batch, HYS_OP_INDEXER_LOSS);
	f->plan.plan.problem.attending.granularity = 2;
	expect(f, &made, HYS_UNSUPPORTED, "granularity");
	call_case_clear(&made);
}

static void test_bounds(void **state)
{
	struct fixture *f = *state;
	struct call_case made;
	struct hys_tensor *norm;
	float norms[CASE_KEYS];

	call_case_make(&made, f->batch, HYS_OP_POOL);
	norm = call_case_tensor(&made, "norm");
	*norm = hys_host(norms, HYS_F32, 1, f->batch->coarse_blocks, 0, 0);
	expect(f, &made, HYS_INVALID_ARGUMENT, "norm");
	made.call.args.pool.pooling = HYS_POOL_BOUNDS;
	memset(call_case_tensor(&made, "gate"), 0, sizeof(*norm));
	expect(f, &made, HYS_INVALID_ARGUMENT, "bias");
	memset(call_case_tensor(&made, "bias"), 0, sizeof(*norm));
	memset(call_case_tensor(&made, "y"), 0, sizeof(*norm));
	expect_fine(f, &made);
	memset(norm, 0, sizeof(*norm));
	expect(f, &made, HYS_INVALID_ARGUMENT, "all absent");
	call_case_clear(&made);
	call_case_make(&made, f->batch, HYS_OP_POOL_BACKWARD);
	made.call.args.pool_grad.pooling = HYS_POOL_BOUNDS;
	memset(call_case_tensor(&made, "gate"), 0, sizeof(*norm));
	memset(call_case_tensor(&made, "bias"), 0, sizeof(*norm));
	expect(f, &made, HYS_INVALID_ARGUMENT, "pooling");
	call_case_clear(&made);
}

/* Two series are twice as wide as what comes out. */
static void test_overlapped(void **state)
{
	struct fixture *f = *state;
	struct call_case made;

	call_case_make(&made, f->batch, HYS_OP_POOL);
	made.call.args.pool.pooling = HYS_POOL_OVERLAPPED;
	expect(f, &made, HYS_INVALID_ARGUMENT, "y has shape [10,6], expected [rows=10, C=3]");
	call_case_tensor(&made, "y")->shape[1] = 3;
	expect_fine(f, &made);
	call_case_tensor(&made, "x")->shape[1] = 5;
	expect(f, &made, HYS_INVALID_ARGUMENT, "x");
	call_case_clear(&made);
}

static void test_pool_types(void **state)
{
	struct fixture *f = *state;
	struct call_case made;

	call_case_make(&made, f->batch, HYS_OP_POOL);
	call_case_tensor(&made, "x")->dtype = HYS_BF16;
	expect(f, &made, HYS_INVALID_ARGUMENT, "gate has dtype f32, expected that of x");
	call_case_tensor(&made, "gate")->dtype = HYS_BF16;
	expect_fine(f, &made);
	call_case_tensor(&made, "y")->dtype = HYS_BF16;
	expect_fine(f, &made);
	call_case_tensor(&made, "y")->dtype = HYS_F16;
	expect(f, &made, HYS_INVALID_ARGUMENT, "y has dtype f16, expected that of x, or f32");
	call_case_clear(&made);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_every_tensor),  TEST(test_handles),
		TEST(test_later_caller),  TEST(test_rows),
		TEST(test_limits),	  TEST(test_ranges),
		TEST(test_interleaved),	  TEST(test_buffers),
		TEST(test_buffers_only),  TEST(test_buffers_of_several_devices),
		TEST(test_numbers),	  TEST(test_reals),
		TEST(test_topk),	  TEST(test_together),
		TEST(test_no_output),	  TEST(test_shared_value),
		TEST(test_second_source), TEST(test_dense_attention),
		TEST(test_eighth),	  TEST(test_dense_loss),
		TEST(test_teacher_in),	  TEST(test_loss_granularity),
		TEST(test_bounds),	  TEST(test_overlapped),
		TEST(test_pool_types),
	};

	return cmocka_run_group_tests_name("arguments", tests, NULL, NULL);
}
