/* Two processors, one up to four times slower, share calls whose rows differ: after measuring and
 * rehearsing, each must be busy as long as the other. Kernels take a known time, by what their rows
 * see and use. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "partition.h"
#include "virtual_clock.h"

#define LANES 2
#include "lanes_fixture.h"

#define ROWS 32768
#define TOPK 80
#define HEADS 2
#define DIM 16
#define CALL_S 100e-6
#define ROW_S 1e-6
#define BYTE_S 5e-9
/* The longest busy time over the mean; 1.1 is promised of real ones. */
#define IMBALANCE_MOST 1.05

static bool disturbed;

/* A fake device's buffers are memory. */
static const int32_t *numbers_of(const struct hys_tensor *tensor)
{
	const void *start = tensor->buffer ? tensor->buffer->native : tensor->host;

	return (const int32_t *)start + tensor->offset;
}

static double entries_seen(const struct hys_call *call)
{
	const int32_t *begin = numbers_of(&call->batch.index_begin);
	const int32_t *end = numbers_of(&call->batch.index_end);
	double sum = 0;

	for (int64_t t = 0; t < call->size.rows; t++)
		sum += end[t] - begin[t];
	return sum;
}

static double slots_used(const struct hys_call *call)
{
	const struct hys_tensor *indices = &call->args.attention.indices;
	const int32_t *slots = numbers_of(indices);
	double sum = 0;

	for (int64_t t = 0; t < call->size.rows; t++)
		for (int64_t i = 0; i < indices->shape[2]; i++)
			sum += slots[t * indices->stride[0] + i] >= 0;
	return sum;
}

/* A select of all entries is as long as an attention of a hundredth of them. */
static double work_s(const struct hys_call *call)
{
	return call->op == HYS_OP_SELECT ? 1e-9 * entries_seen(call) : 1e-6 * slots_used(call);
}

static hys_status sleep_rows(const struct hys_kernel *kernel, struct hys_stream *stream,
			     void *instance, const struct hys_call *call, struct hys_error *error)
{
	(void)kernel;
	(void)stream;
	(void)instance;
	(void)error;
	virtual_clock_work(CALL_S + ROW_S * (double)call->size.rows + work_s(call), disturbed);
	return HYS_OK;
}

/* ---- calls ---- */

struct shared_call {
	hys_op op;
	int32_t documents;
	int32_t starts[ROWS + 1]; /* of documents */
	float *vectors, *output;  /* kernels look at none of them */
	int32_t *slots;
};

static void make_call(struct shared_call *call, hys_op op)
{
	call->op = op;
	call->documents = 1;
	call->starts[1] = ROWS;
	call->vectors = calloc(ROWS * HEADS * DIM, sizeof(*call->vectors));
	call->slots = calloc((size_t)ROWS * TOPK, sizeof(*call->slots));
	call->output = calloc(ROWS * HEADS * DIM, sizeof(*call->output));
	assert_non_null(call->vectors);
	assert_non_null(call->output);
	assert_non_null(call->slots);
}

static void clear_call(struct shared_call *call)
{
	free(call->vectors);
	free(call->output);
	free(call->slots);
}

/* The longest first: the last ones' rows keep all that they see. */
static void zipf_documents(struct shared_call *call, int32_t documents)
{
	double all = 0, before = 0;

	for (int32_t d = 0; d < documents; d++)
		all += 1.0 / (d + 1);
	for (int32_t d = 0; d < documents; d++) {
		before += 1.0 / (d + 1);
		call->starts[d + 1] = (int32_t)(ROWS * before / all);
	}
	call->starts[documents] = ROWS;
	call->documents = documents;
}

/* A twentieth of the rows, together, use all slots, the others a twentieth of them. */
static void few_heavy_rows(struct shared_call *call)
{
	for (int64_t t = 0; t < ROWS; t++)
		for (int64_t i = 0; i < TOPK; i++)
			call->slots[t * TOPK + i] =
				i <= t && (i < TOPK / 20 ||
					   (t >= ROWS * 9 / 10 && t < ROWS * 19 / 20))
					? (int32_t)i
					: -1;
}

static hys_status run_call(const struct shared_call *call, struct hys_exec *exec,
			   struct hys_batch *batch, struct hys_error *error)
{
	const struct hys_tensor rows = hys_host(call->vectors, HYS_F32, 3, ROWS, HEADS, DIM);
	const struct hys_tensor o = hys_host(call->output, HYS_F32, 3, ROWS, HEADS, DIM);
	const struct hys_tensor keys = hys_host(call->vectors, HYS_F32, 2, ROWS, DIM, 0);
	const struct hys_tensor kv = hys_host(call->vectors, HYS_F32, 3, ROWS, 1, DIM);
	const struct hys_tensor slots = hys_host(call->slots, HYS_I32, 3, ROWS, 1, TOPK);
	const struct hys_select_args select = {.struct_size = sizeof(select),
					       .row_count = ROWS,
					       .index_q = rows,
					       .index_k = keys,
					       .indices = slots};
	const struct hys_attention_args attention = {.struct_size = sizeof(attention),
						     .row_count = ROWS,
						     .q = rows,
						     .k = kv,
						     .v = kv,
						     .indices = slots,
						     .o = o};

	return call->op == HYS_OP_SELECT ? hys_select(exec, batch, &select, error)
					 : hys_attention_forward(exec, batch, &attention, error);
}

/* ---- plans ---- */

static struct fixture *open_devices(int32_t slower, hys_op op)
{
	const struct hys_problem problem = {
		.struct_size = sizeof(problem),
		.scoring = {.heads = HEADS, .dim = DIM},
		.choosing = {.topk_max = TOPK},
		.attending = {.heads = HEADS, .kv_heads = 1, .head_dim = DIM},
	};
	struct fixture *f = make_fixture(sleep_rows);

	for (int i = 0; i < LANES; i++) {
		struct hys_device *device = &f->devices[i].base;

		snprintf(device->info.id, sizeof(device->info.id), "fake:%d", i);
		device->info.kind = HYS_DEVICE_CPU;
		device->info.compute_units = 1;
		device->info.nominal_flops_per_s = 1e10;
		device->host_memory = true;
		device->slow = i == 0 ? 1 : slower;
		f->plan.rows_most[i] = ROWS;
	}
	f->context->host.cpus_allowed = LANES; /* nobody looks while others compute */
	plan_fixture(f, &problem, ROWS, HYS_OP_BIT(op));
	return f;
}

static double imbalance_of(const struct hys_exec *exec, hys_op op)
{
	double most = 0, sum = 0;

	for (int32_t i = 0; i < LANES; i++) {
		struct hys_exec_report report = {.struct_size = sizeof(report)};

		assert_int_equal(hys_exec_report(exec, op, i, &report, NULL), HYS_OK);
		most = fmax(most, report.busy_s);
		sum += report.busy_s;
	}
	return most * LANES / sum;
}

static double measure(struct fixture *f, const struct shared_call *call, uint32_t split)
{
	const struct hys_batch_desc desc = {.struct_size = sizeof(desc),
					    .rows = ROWS,
					    .keys = ROWS,
					    .flags = HYS_BATCH_CAUSAL,
					    .documents = call->documents,
					    .cu_seqlens_q = call->starts};
	const struct hys_wish wish = {.flags = split};
	struct hys_picker picker = {.context = f->context, .plan = &f->plan.plan, .wish = &wish};
	struct hys_batch *batch = NULL;
	struct hys_exec *exec = NULL;
	struct hys_error error = {HYS_OK, 0, ""};
	double imbalance;

	f->plan.plan.split = split == HYS_PLAN_EQUAL ? HYS_SPLIT_EQUAL : HYS_SPLIT_STATIC;
	if (hys_plan_pace_devices(&picker, &error) != HYS_OK ||
	    hys_batch_create(&f->plan.plan, &desc, &batch, &error) != HYS_OK ||
	    hys_exec_create(&f->plan.plan, NULL, &exec, &error) != HYS_OK)
		fail_msg("%s", error.message);
	disturbed = false;
	for (int n = 0; n < 3; n++)
		if (run_call(call, exec, batch, &error) != HYS_OK ||
		    hys_exec_finish(exec, &error) != HYS_OK)
			fail_msg("%s", error.message);
	imbalance = imbalance_of(exec, call->op);
	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
	return imbalance;
}

/* Others use the cores while the plan is made, or not. */
static void expect_balanced(const struct shared_call *call)
{
	static const int32_t slower[] = {1, 2, 4};

	for (size_t s = 0; s < 2 * sizeof(slower) / sizeof(slower[0]); s++) {
		struct fixture *f = open_devices(slower[s / 2], call->op);
		void *state = f;
		double imbalance;

		disturbed = s % 2 == 1;
		imbalance = measure(f, call, 0);
		if (!(imbalance <= IMBALANCE_MOST))
			fail_msg("1:%d%s: imbalance %.3f, expected %g at most", slower[s / 2],
				 s % 2 ? ", disturbed" : "", imbalance, IMBALANCE_MOST);
		assert_true(measure(f, call, HYS_PLAN_EQUAL) > IMBALANCE_MOST); /* rows differ */
		tear_down(&state);
	}
}

static void test_causal(void **state)
{
	static struct shared_call call;

	(void)state;
	make_call(&call, HYS_OP_SELECT);
	expect_balanced(&call);
	clear_call(&call);
}

static void test_zipf_documents(void **state)
{
	static struct shared_call call;

	(void)state;
	make_call(&call, HYS_OP_SELECT);
	zipf_documents(&call, 64);
	expect_balanced(&call);
	clear_call(&call);
}

static void test_few_heavy_rows(void **state)
{
	static struct shared_call call;

	(void)state;
	make_call(&call, HYS_OP_ATTENTION_FORWARD);
	few_heavy_rows(&call);
	expect_balanced(&call);
	clear_call(&call);
}

/* ---- one that copies ---- */

static void sleep_copy(const struct hys_copy *copy)
{
	virtual_clock_sleep(BYTE_S * (double)(copy->bytes * copy->count[0] * copy->count[1]));
}

static hys_status copy_in(struct hys_stream *stream, const struct hys_copy *copy,
			  struct hys_error *error)
{
	sleep_copy(copy);
	return fake_backend.copy_in(stream, copy, error);
}

static hys_status copy_out(struct hys_stream *stream, const struct hys_copy *copy,
			   struct hys_error *error)
{
	sleep_copy(copy);
	return fake_backend.copy_out(stream, copy, error);
}

/* Rows that use few indices are copied with all their slots. */
static void test_copies(void **state)
{
	struct hys_backend copying = fake_backend;
	static struct shared_call call;
	struct fixture *f;
	void *opened;
	double imbalance, byte_s;

	(void)state;
	copying.copy_in = copy_in;
	copying.copy_out = copy_out;
	make_call(&call, HYS_OP_ATTENTION_FORWARD);
	few_heavy_rows(&call);
	opened = f = open_devices(2, call.op);
	f->devices[0].base.backend = &copying;
	f->devices[0].base.info.kind = HYS_DEVICE_GPU;
	f->devices[0].base.host_memory = false;
	imbalance = measure(f, &call, 0);
	byte_s = hys_plan_pace(&f->plan.plan, call.op, 0)->byte_s;
	if (!(fabs(byte_s - BYTE_S) <= 0.1 * BYTE_S))
		fail_msg("a byte takes %g, expected %g within 10%%", byte_s, BYTE_S);
	if (!(imbalance <= IMBALANCE_MOST))
		fail_msg("imbalance %.3f, expected %g at most", imbalance, IMBALANCE_MOST);
	tear_down(&opened);
	clear_call(&call);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_causal),
		cmocka_unit_test(test_zipf_documents),
		cmocka_unit_test(test_few_heavy_rows),
		cmocka_unit_test(test_copies),
	};

	virtual_clock_main_thread();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
