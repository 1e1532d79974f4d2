/* Self-tests let right kernels pass and catch wrong ones: the reference with
 * its operands permuted, scaled or cut short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trial.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct hys_context *context;
static struct hys_site site;

static int set_up(void **state)
{
	struct hys_context_options options = {.struct_size = sizeof(options), .devices = "openmp"};

	(void)state;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_OK);
	site = (struct hys_site){context, context->devices[0]};
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	hys_context_destroy(context);
	return 0;
}

/* ---- a kernel that is the reference, but for one thing ---- */

typedef void spoil(struct hys_call *call);

static const struct hys_kernel *reference;
static spoil *spoiler;

static hys_status run_spoilt(const struct hys_kernel *kernel, struct hys_stream *stream,
			     void *instance, const struct hys_call *call, struct hys_error *error)
{
	struct hys_call spoilt = *call;

	(void)kernel;
	if (spoiler)
		spoiler(&spoilt);
	return reference->run(reference, stream, instance, &spoilt, error);
}

static hys_status try_spoilt(const struct hys_problem *problem, hys_op op, spoil *how,
			     char reason[HYS_REASON_SIZE])
{
	struct hys_kernel kernel;

	reference = hys_reference_kernel(site.device->backend, op);
	assert_non_null(reference);
	kernel = *reference;
	kernel.name = "spoilt";
	kernel.run = run_spoilt;
	spoiler = how;
	return hys_self_test(&site, &site, problem, &kernel, NULL, reason);
}

static void shift(struct hys_tensor *tensor, int64_t elements)
{
	tensor->host = (char *)tensor->host + elements * (int64_t)hys_dtype_size(tensor->dtype);
}

/* Every head is the second. */
static void second_head(struct hys_tensor *tensor)
{
	shift(tensor, tensor->stride[1]);
	tensor->stride[1] = 0;
}

static void index_heads(struct hys_call *call)
{
	second_head(&call->args.select.index_q);
}

static void index_weights(struct hys_call *call)
{
	call->args.select.index_w.dtype = HYS_DTYPE_DEFAULT;
}

static void index_keys(struct hys_call *call)
{
	shift(&call->args.select.index_k, call->args.select.index_k.stride[0]);
	call->size.entries--;
	call->args.select.index_k.shape[0]--;
	for (int64_t t = 0; t < call->size.rows; t++)
		if (((int32_t *)call->batch.index_end.host)[t] > call->size.entries)
			((int32_t *)call->batch.index_end.host)[t]--;
}

static void fewer(struct hys_call *call)
{
	call->topk[0]--;
}

static void more_visible(struct hys_call *call)
{
	int32_t *end = call->batch.index_end.host;

	for (int64_t t = 0; t < call->size.rows - 1; t++)
		if (end[t] < call->size.entries)
			end[t]++;
}

static void other_activation(struct hys_call *call)
{
	static struct hys_problem problem;

	problem = *call->problem;
	problem.scoring.activation = problem.scoring.activation == HYS_ACTIVATION_NONE
					     ? HYS_ACTIVATION_RELU
					     : HYS_ACTIVATION_NONE;
	call->problem = call->size.problem = &problem;
}

static void heads(struct hys_call *call)
{
	second_head(&call->args.attention.q);
}

static void values(struct hys_call *call)
{
	shift(&call->args.attention.v, 1);
	call->args.attention.v.shape[0]--;
}

static void no_sink(struct hys_call *call)
{
	call->args.attention.sink.dtype = HYS_DTYPE_DEFAULT;
}

static void no_window_source(struct hys_call *call)
{
	call->args.attention.window_k.dtype = HYS_DTYPE_DEFAULT;
	call->args.attention.window_v.dtype = HYS_DTYPE_DEFAULT;
}

static void other_slots(struct hys_call *call)
{
	shift(&call->args.attention.indices, 1);
	call->args.attention.indices.shape[2]--;
	call->size.topk--;
}

static void scale(struct hys_call *call)
{
	static struct hys_problem problem;

	problem = *call->problem;
	problem.attending.scale *= 1.01;
	problem.attending.window++;
	call->problem = call->size.problem = &problem;
}

static void grad_heads(struct hys_call *call)
{
	second_head(&call->args.attention_grad.grad_o);
}

static void grad_swapped(struct hys_call *call)
{
	struct hys_tensor o = call->args.attention_grad.o;

	call->args.attention_grad.o = call->args.attention_grad.grad_o;
	call->args.attention_grad.grad_o = o;
}

static void no_dsink(struct hys_call *call)
{
	call->args.attention_grad.dsink.dtype = HYS_DTYPE_DEFAULT;
}

static void loss_heads(struct hys_call *call)
{
	second_head(&call->args.loss.q);
}

static void loss_lse(struct hys_call *call)
{
	call->args.loss.lse.dtype = HYS_DTYPE_DEFAULT;
}

static void loss_sum(struct hys_call *call)
{
	call->args.loss.reduction = HYS_REDUCTION_SUM;
}

static void pool_no_bias(struct hys_call *call)
{
	call->args.pool.bias.dtype = HYS_DTYPE_DEFAULT;
}

static void pool_grad_no_bias(struct hys_call *call)
{
	call->args.pool_grad.bias.dtype = HYS_DTYPE_DEFAULT;
	call->args.pool_grad.dbias.dtype = HYS_DTYPE_DEFAULT;
}

static void merge_swapped(struct hys_call *call)
{
	struct hys_tensor a = call->args.merge.lse_a;

	call->args.merge.lse_a = call->args.merge.lse_b;
	call->args.merge.lse_b = a;
}

static void fidelity_reference(struct hys_call *call)
{
	call->args.fidelity.reference = call->args.fidelity.indices;
	shift(&call->args.fidelity.reference, 1);
	call->args.fidelity.reference.shape[2]--;
}

static const struct {
	hys_op op;
	spoil *how;
	const char *what;
} spoils[] = {
	{HYS_OP_SELECT, index_heads, "index heads"},
	{HYS_OP_SELECT, index_weights, "weights"},
	{HYS_OP_SELECT, index_keys, "index keys"},
	{HYS_OP_SELECT, fewer, "topk"},
	{HYS_OP_SELECT, more_visible, "visibility"},
	{HYS_OP_SELECT, other_activation, "activation"},
	{HYS_OP_SELECT_COARSE, index_heads, "index heads"},
	{HYS_OP_SELECT_COARSE, fewer, "topk"},
	{HYS_OP_SELECT_COARSE_TO_FINE, index_heads, "index heads"},
	{HYS_OP_SELECT_COARSE_TO_FINE, index_weights, "weights"},
	{HYS_OP_ATTENTION_FORWARD, heads, "heads"},
	{HYS_OP_ATTENTION_FORWARD, values, "values"},
	{HYS_OP_ATTENTION_FORWARD, no_sink, "sink"},
	{HYS_OP_ATTENTION_FORWARD, no_window_source, "second source"},
	{HYS_OP_ATTENTION_FORWARD, other_slots, "indices"},
	{HYS_OP_ATTENTION_FORWARD, scale, "scale and window"},
	{HYS_OP_ATTENTION_BACKWARD, grad_heads, "heads of grad_o"},
	{HYS_OP_ATTENTION_BACKWARD, grad_swapped, "o and grad_o"},
	{HYS_OP_ATTENTION_BACKWARD, no_dsink, "an output not written"},
	{HYS_OP_INDEXER_LOSS, loss_heads, "heads"},
	{HYS_OP_INDEXER_LOSS, loss_lse, "lse"},
	{HYS_OP_INDEXER_LOSS, loss_sum, "reduction"},
	{HYS_OP_POOL, pool_no_bias, "bias"},
	{HYS_OP_POOL_BACKWARD, pool_grad_no_bias, "bias"},
	{HYS_OP_MERGE, merge_swapped, "lse"},
	{HYS_OP_FIDELITY, fidelity_reference, "reference"},
};

static struct hys_problem problem_of(hys_dtype dtype)
{
	struct hys_problem problem = {
		.struct_size = sizeof(problem),
		.scoring = {.heads = 8, .dim = 24, .groups = 2, .dtype = dtype},
		.choosing = {.topk_max = 20,
			     .local_blocks = 1,
			     .coarse_block = 6,
			     .coarse_keep = 3},
		.attending = {.heads = 8,
			      .kv_heads = 2,
			      .head_dim = 20,
			      .value_dim = 12,
			      .window = 3,
			      .first = 2,
			      .dtype = dtype},
	};

	assert_int_equal(hys_problem_complete(&problem, NULL), HYS_OK);
	return problem;
}

static void test_spoilt(void **state)
{
	static const hys_dtype types[] = {HYS_F32, HYS_F16, HYS_BF16};
	char reason[HYS_REASON_SIZE];

	(void)state;
	for (size_t t = 0; t < COUNT(types); t++) {
		const struct hys_problem problem = problem_of(types[t]);

		for (size_t i = 0; i < COUNT(spoils); i++) {
			if (try_spoilt(&problem, spoils[i].op, NULL, reason) != HYS_OK)
				fail_msg("%s: %s", hys_op_name(spoils[i].op), reason);
			if (try_spoilt(&problem, spoils[i].op, spoils[i].how, reason) !=
			    HYS_DEVICE_FAILED)
				fail_msg("%s of %s passes with %s spoilt",
					 hys_op_name(spoils[i].op), hys_dtype_name(types[t]),
					 spoils[i].what);
			assert_non_null(strstr(reason, "failed its self-test"));
		}
	}
}

static hys_status run_failing(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error)
{
	(void)stream;
	(void)instance;
	(void)call;
	return hys_fail(error, HYS_DEVICE_FAILED, 7, "%s is broken", kernel->name);
}

static void test_failing(void **state)
{
	const struct hys_problem problem = problem_of(HYS_F32);
	struct hys_kernel kernel = *hys_reference_kernel(site.device->backend, HYS_OP_SELECT);
	char reason[HYS_REASON_SIZE];

	(void)state;
	kernel.run = run_failing;
	assert_int_equal(hys_self_test(&site, &site, &problem, &kernel, NULL, reason),
			 HYS_DEVICE_FAILED);
	assert_non_null(strstr(reason, "is broken"));
}

/* Every kernel of this machine's processor, over problems of many shapes. */
static void test_shapes(void **state)
{
	const struct hys_backend *backend = site.device->backend;
	struct hys_problem problems[6];
	char reason[HYS_REASON_SIZE];

	(void)state;
	for (size_t i = 0; i < COUNT(problems); i++)
		problems[i] = problem_of(HYS_F32);
	problems[1].scoring.pool = 4;
	problems[1].attending.granularity = 1;
	problems[2].scoring.block = problems[2].attending.granularity = 3;
	problems[3].scoring.dtype = HYS_F8E4M3;
	problems[4].attending.kv_heads = 1;
	problems[4].choosing.topk_max = 1;
	problems[4].choosing.local_blocks = 0;
	problems[5].attending.flags = HYS_ATTENDING_DENSE;
	problems[5].scoring.activation = HYS_ACTIVATION_NONE;
	for (size_t p = 0; p < COUNT(problems); p++)
		for (int32_t i = 0; i < backend->kernel_count; i++) {
			const struct hys_kernel *kernel = &backend->kernels[i];

			if (kernel->needs & ~site.device->capabilities)
				continue;
			if (kernel->op == HYS_OP_INDEXER_LOSS && p == 3)
				continue;
			if (kernel->applicable &&
			    !kernel->applicable(kernel, site.device, &problems[p], reason))
				continue;
			if (hys_self_test(&site, &site, &problems[p], kernel, NULL, reason) !=
			    HYS_OK)
				fail_msg("problem %d, %s: %s", (int)p, kernel->name, reason);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_spoilt, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_failing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_shapes, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("selftest", tests, NULL, NULL);
}
