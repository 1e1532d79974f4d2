/* Execs of real plans on this machine's processor: workspaces, and a pipeline
 * of two execs ordered by events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core.h"
#include "rng.h"

enum { ROWS = 96, HI = 4, DI = 16, H = 4, D = 32, K = 8, STEPS = 12 };

struct fixture {
	struct hys_context *context;
	struct hys_plan *plan;
	struct hys_batch *batch;
	float index_q[STEPS][ROWS * HI * DI], index_k[ROWS * DI];
	float q[ROWS * H * D], k[ROWS * D], v[ROWS * D];
};

static void fill(struct rng *rng, float *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		values[i] = (float)rng_normal(rng);
}

static void make_plan(struct fixture *f)
{
	struct hys_problem problem = {.struct_size = sizeof(problem)};
	struct hys_plan_options options = {.struct_size = sizeof(options)};
	struct hys_error error = {HYS_OK, 0, ""};

	problem.scoring.heads = HI;
	problem.scoring.dim = DI;
	problem.choosing.topk_max = K;
	problem.attending.heads = H;
	problem.attending.head_dim = D;
	options.operations = HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD);
	options.rows_max = options.keys_max = ROWS;
	if (hys_plan_create(f->context, &problem, &options, &f->plan, &error) != HYS_OK)
		fail_msg("%s", error.message);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct hys_context_options options = {.struct_size = sizeof(options)};
	struct hys_batch_desc desc = {.struct_size = sizeof(desc)};
	struct rng rng;

	assert_non_null(f);
	rng_seed(&rng, 3);
	fill(&rng, &f->index_q[0][0], sizeof(f->index_q) / sizeof(float));
	fill(&rng, f->index_k, ROWS * DI);
	fill(&rng, f->q, ROWS * H * D);
	fill(&rng, f->k, ROWS * D);
	fill(&rng, f->v, ROWS * D);
	options.devices = "openmp";
	assert_int_equal(hys_context_create(&options, &f->context, NULL), HYS_OK);
	make_plan(f);
	desc.rows = desc.keys = ROWS;
	desc.flags = HYS_BATCH_CAUSAL;
	assert_int_equal(hys_batch_create(f->plan, &desc, &f->batch, NULL), HYS_OK);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	hys_batch_destroy(f->batch);
	hys_plan_destroy(f->plan);
	hys_context_destroy(f->context);
	free(f);
	return 0;
}

static struct hys_exec *make(struct fixture *f, uint32_t flags, struct hys_buffer *workspace)
{
	struct hys_exec_options options = {.struct_size = sizeof(options), .flags = flags};
	struct hys_exec *exec = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	options.workspaces = workspace ? &workspace : NULL;
	if (hys_exec_create(f->plan, &options, &exec, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return exec;
}

static hys_status choose(struct fixture *f, struct hys_exec *exec, int step, int32_t *indices)
{
	struct hys_select_args args = {.struct_size = sizeof(args)};

	args.index_q = hys_host(f->index_q[step], HYS_F32, 3, ROWS, HI, DI);
	args.index_k = hys_host(f->index_k, HYS_F32, 2, ROWS, DI, 0);
	args.indices = hys_host(indices, HYS_I32, 3, ROWS, 1, K);
	return hys_select(exec, f->batch, &args, NULL);
}

static hys_status attend(struct fixture *f, struct hys_exec *exec, const int32_t *indices, float *o)
{
	struct hys_attention_args args = {.struct_size = sizeof(args)};

	args.q = hys_host(f->q, HYS_F32, 3, ROWS, H, D);
	args.k = hys_host(f->k, HYS_F32, 3, ROWS, 1, D);
	args.v = hys_host(f->v, HYS_F32, 3, ROWS, 1, D);
	args.indices = hys_host(indices, HYS_I32, 3, ROWS, 1, K);
	args.o = hys_host(o, HYS_F32, 3, ROWS, H, D);
	return hys_attention_forward(exec, f->batch, &args, NULL);
}

static int32_t (*new_indices(void))[ROWS * K]
{
	int32_t(*indices)[ROWS * K] = calloc(STEPS, sizeof(*indices));

	assert_non_null(indices);
	return indices;
}

static float (*new_outputs(void))[ROWS * H * D]
{
	float(*o)[ROWS * H * D] = calloc(STEPS, sizeof(*o));

	assert_non_null(o);
	return o;
}

/* One exec chooses the next step's keys while another attends to this one's. */
static void test_a_pipeline(void **state)
{
	struct fixture *f = *state;
	struct hys_exec *serial = make(f, 0, NULL);
	struct hys_exec *chooser = make(f, HYS_EXEC_ASYNC, NULL);
	struct hys_exec *attender = make(f, HYS_EXEC_ASYNC, NULL);
	int32_t(*indices)[ROWS * K] = new_indices(), (*expected)[ROWS * K] = new_indices();
	float(*o)[ROWS * H * D] = new_outputs(), (*expected_o)[ROWS * H * D] = new_outputs();

	for (int i = 0; i < STEPS; i++) {
		struct hys_event *event = NULL;

		assert_int_equal(choose(f, serial, i, expected[i]), HYS_OK);
		assert_int_equal(attend(f, serial, expected[i], expected_o[i]), HYS_OK);
		assert_int_equal(choose(f, chooser, i, indices[i]), HYS_OK);
		assert_int_equal(hys_exec_record(chooser, &event, NULL), HYS_OK);
		assert_int_equal(hys_exec_wait(attender, event, NULL), HYS_OK);
		hys_event_destroy(event);
		assert_int_equal(attend(f, attender, indices[i], o[i]), HYS_OK);
	}
	assert_int_equal(hys_exec_finish(attender, NULL), HYS_OK);
	assert_memory_equal(indices, expected, STEPS * sizeof(*indices));
	assert_memory_equal(o, expected_o, STEPS * sizeof(*o));
	assert_int_equal(indices[0][0], 0); /* row 0 sees only itself */
	free(indices);
	free(expected);
	free(o);
	free(expected_o);
	hys_exec_destroy(serial);
	hys_exec_destroy(chooser);
	hys_exec_destroy(attender);
}

/* The largest workspace of any planned operation. */
static int64_t needed(const struct fixture *f)
{
	static const hys_op ops[] = {HYS_OP_SELECT, HYS_OP_ATTENTION_FORWARD};
	int64_t most = 0;

	for (int i = 0; i < 2; i++) {
		int64_t bytes = 0;

		assert_int_equal(hys_plan_workspace(f->plan, ops[i], ROWS, 0, &bytes, NULL),
				 HYS_OK);
		most = hys_max64(most, bytes);
	}
	return most;
}

static void test_the_callers_workspace(void **state)
{
	struct fixture *f = *state;
	const int64_t bytes = needed(f);
	struct hys_buffer *workspace = NULL;
	struct hys_exec *exec;
	int32_t indices[ROWS * K];

	if (bytes == 0)
		skip();
	assert_int_equal(hys_buffer_create(f->context, 0, bytes, &workspace, NULL), HYS_OK);
	exec = make(f, 0, workspace);
	assert_int_equal(choose(f, exec, 0, indices), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	hys_exec_destroy(exec);
	hys_buffer_destroy(workspace);
}

static void test_too_small_a_workspace(void **state)
{
	struct fixture *f = *state;
	const int64_t bytes = needed(f);
	struct hys_exec_options options = {.struct_size = sizeof(options)};
	struct hys_buffer *workspace = NULL;
	struct hys_exec *exec = NULL;
	struct hys_error error = {HYS_OK, 0, ""};
	char numbers[2][24];

	if (bytes < 2)
		skip();
	assert_int_equal(hys_buffer_create(f->context, 0, bytes - 1, &workspace, NULL), HYS_OK);
	options.workspaces = &workspace;
	assert_int_equal(hys_exec_create(f->plan, &options, &exec, &error),
			 HYS_WORKSPACE_TOO_SMALL);
	assert_null(exec);
	snprintf(numbers[0], sizeof(numbers[0]), "%lld", (long long)bytes);
	snprintf(numbers[1], sizeof(numbers[1]), "%lld", (long long)bytes - 1);
	assert_non_null(strstr(error.message, numbers[0]));
	assert_non_null(strstr(error.message, numbers[1]));
	hys_buffer_destroy(workspace);
}

/* Objects hold what they were made from, whatever the order of farewells. */
static void test_references(void **state)
{
	struct fixture *f = *state;
	struct hys_exec *exec = make(f, HYS_EXEC_ASYNC, NULL);
	int32_t indices[ROWS * K];

	hys_plan_destroy(f->plan);
	hys_context_destroy(f->context);
	assert_int_equal(choose(f, exec, 1, indices), HYS_OK);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	hys_exec_destroy(exec);
	hys_batch_destroy(f->batch);
	f->batch = NULL;
	f->plan = NULL;
	f->context = NULL;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_pipeline),
		TEST(test_the_callers_workspace),
		TEST(test_too_small_a_workspace),
		TEST(test_references),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
