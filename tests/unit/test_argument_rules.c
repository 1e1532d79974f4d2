/* Rules between arguments, and numbers among them: the status, a message that names the operation and
 * the argument, no kernel run, nothing written. */
#include <math.h>

#include "argument_fixture.h"

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
		{HYS_OP_ATTENTION_BACKWARD, offsetof(struct hys_attention_grad_args, flags), 4,
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_numbers),	  TEST(test_reals),	      TEST(test_topk),
		TEST(test_together),	  TEST(test_no_output),	      TEST(test_shared_value),
		TEST(test_second_source), TEST(test_dense_attention), TEST(test_eighth),
		TEST(test_dense_loss),	  TEST(test_teacher_in),      TEST(test_loss_granularity),
		TEST(test_bounds),	  TEST(test_overlapped),      TEST(test_pool_types),
	};

	return cmocka_run_group_tests_name("argument_rules", tests, NULL, NULL);
}
