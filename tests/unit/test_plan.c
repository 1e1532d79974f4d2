/* Plans: what may be asked for, what is chosen and why, what it costs. */
#include <math.h>
#include <stdio.h>

#include "failing_allocator.h"
#include "plan_fixture.h"

/* ---- options ---- */

static void test_wrong_options(void **state)
{
	const struct hys_problem problem = small_problem();
	const struct hys_plan_options good = small_options(HYS_OP_BIT(HYS_OP_SELECT));
	struct hys_plan *plan = NULL;
	const int32_t devices[] = {0, 1}, negative[] = {-1};
	struct hys_plan_options o;

	(void)state;
	assert_int_equal(hys_plan_create(NULL, &problem, &good, &plan, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_create(context, &problem, &good, NULL, NULL),
			 HYS_INVALID_ARGUMENT);
	expect(NULL, &good, HYS_INVALID_ARGUMENT, "problem");
	expect(&problem, NULL, HYS_INVALID_ARGUMENT, "options");
#define WRONG(field, value, status, word)           \
	do {                                        \
		o = good;                           \
		o.field = value;                    \
		expect(&problem, &o, status, word); \
	} while (0)
	WRONG(struct_size, 8, HYS_INVALID_ARGUMENT, "struct_size");
	WRONG(operations, 1u << HYS_OP_COUNT, HYS_INVALID_ARGUMENT, "operations");
	WRONG(operations, HYS_OP_BIT(HYS_OP_POOL), HYS_INVALID_ARGUMENT, "pool");
	WRONG(operations, HYS_OP_BIT(HYS_OP_SELECT_COARSE), HYS_INVALID_ARGUMENT, "coarse_block");
	WRONG(flags, 16, HYS_INVALID_ARGUMENT, "flags");
	WRONG(flags, HYS_PLAN_GUIDED | HYS_PLAN_EQUAL, HYS_INVALID_ARGUMENT, "one of them");
	WRONG(rows_max, 0, HYS_INVALID_ARGUMENT, "rows_max");
	WRONG(rows_max, -1, HYS_INVALID_ARGUMENT, "rows_max");
	WRONG(rows_max, (int64_t)1 << 40, HYS_INVALID_ARGUMENT, "rows_max");
	WRONG(keys_max, 0, HYS_INVALID_ARGUMENT, "keys_max");
	WRONG(keys_max, INT64_MAX, HYS_INVALID_ARGUMENT, "keys_max");
	WRONG(window_keys_max, -1, HYS_INVALID_ARGUMENT, "window_keys_max");
	WRONG(effort, (hys_effort)3, HYS_INVALID_ARGUMENT, "effort");
	WRONG(memory_limit_bytes, -1, HYS_INVALID_ARGUMENT, "memory_limit_bytes");
	WRONG(device_count, 2, HYS_INVALID_ARGUMENT, "device_count");
	WRONG(device_count, -1, HYS_INVALID_ARGUMENT, "device_count");
	WRONG(kernels, "select.nothing", HYS_INVALID_ARGUMENT, "select.nothing");
	WRONG(kernels, "select.ref,,x", HYS_INVALID_ARGUMENT, "kernels");
	o = good;
	o.devices = devices;
	expect(&problem, &o, HYS_INVALID_ARGUMENT, "device_count");
	o.device_count = 2;
	expect(&problem, &o, HYS_INVALID_ARGUMENT, "devices");
	o.devices = negative;
	o.device_count = 1;
	expect(&problem, &o, HYS_INVALID_ARGUMENT, "devices");
}

static void test_problem_is_checked(void **state)
{
	struct hys_problem problem = small_problem();
	struct hys_plan_options options = small_options(0);

	(void)state;
	problem.scoring.groups = 3;
	expect(&problem, &options, HYS_INVALID_ARGUMENT, "scoring.groups");
	problem = small_problem();
	problem.struct_size = 4;
	expect(&problem, &options, HYS_INVALID_ARGUMENT, "struct_size");
	problem = small_problem();
	problem.attending.granularity = 4;
	options.operations = HYS_OP_BIT(HYS_OP_INDEXER_LOSS);
	expect(&problem, &options, HYS_INVALID_ARGUMENT, "granularity");
}

/* 0 = all that the problem has the parts for. */
static void test_operations(void **state)
{
	struct hys_problem problem = small_problem();
	const uint32_t attention = HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD) |
				   HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD) |
				   HYS_OP_BIT(HYS_OP_MERGE) | HYS_OP_BIT(HYS_OP_FIDELITY);
	const uint32_t select = HYS_OP_BIT(HYS_OP_SELECT), loss = HYS_OP_BIT(HYS_OP_INDEXER_LOSS);
	const uint32_t coarse =
		HYS_OP_BIT(HYS_OP_SELECT_COARSE) | HYS_OP_BIT(HYS_OP_SELECT_COARSE_TO_FINE);
	const uint32_t pool = HYS_OP_BIT(HYS_OP_POOL) | HYS_OP_BIT(HYS_OP_POOL_BACKWARD);

	(void)state;
	hys_problem_complete(&problem, NULL);
	assert_int_equal(hys_problem_operations(&problem), attention | select | loss);
	problem.choosing.coarse_block = 16;
	assert_int_equal(hys_problem_operations(&problem),
			 attention | select | loss | coarse | pool);
	problem.scoring.dtype = HYS_F8E4M3;
	assert_int_equal(hys_problem_operations(&problem), attention | select | coarse | pool);
	problem.scoring.heads = 0;
	assert_int_equal(hys_problem_operations(&problem), attention | pool);
	problem.choosing.coarse_block = problem.attending.heads = 0;
	assert_int_equal(hys_problem_operations(&problem), 0);
	problem.scoring.pool = 4;
	assert_int_equal(hys_problem_operations(&problem), pool);
}

static void test_queries(void **state)
{
	struct hys_plan *plan = make_small(HYS_OP_BIT(HYS_OP_SELECT));

	(void)state;
	assert_int_equal(hys_plan_device_count(plan), 1);
	assert_int_equal(hys_plan_device(plan, 0), 0);
	assert_int_equal(hys_plan_device(plan, 1), -1);
	assert_int_equal(hys_plan_device(plan, -1), -1);
	assert_true(hys_plan_problem(plan)->scoring.scale == 0.25);
	assert_int_equal(hys_plan_problem(plan)->choosing.coarse_keep, 64);
	assert_non_null(hys_plan_kernel(plan, HYS_OP_SELECT, 0));
	assert_null(hys_plan_kernel(plan, HYS_OP_SELECT, 1));
	assert_null(hys_plan_kernel(plan, HYS_OP_MERGE, 0));
	assert_null(hys_plan_kernel(plan, HYS_OP_COUNT, 0));
	assert_null(hys_plan_kernel(NULL, HYS_OP_SELECT, 0));
	assert_null(hys_plan_problem(NULL));
	assert_int_equal(hys_plan_device_count(NULL), 0);
	assert_int_equal(hys_plan_device(NULL, 0), -1);
	hys_plan_destroy(plan);
	hys_plan_destroy(NULL);
}

/* ---- choices ---- */

static void test_forced_kernels(void **state)
{
	const struct hys_problem problem = small_problem();
	struct hys_plan_options options =
		small_options(HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_MERGE));
	struct hys_plan *plan = make(&problem, &options);
	char text[TEXT_SIZE];
	const char *merge = hys_plan_kernel(plan, HYS_OP_MERGE, 0);

	(void)state;
	hys_plan_destroy(plan);
	options.kernels = "select.portable,attention_forward.ref";
	plan = make(&problem, &options);
	assert_string_equal(hys_plan_kernel(plan, HYS_OP_SELECT, 0), "select.portable");
	assert_string_equal(hys_plan_kernel(plan, HYS_OP_MERGE, 0), merge);
	hys_plan_describe(plan, text, sizeof(text));
	assert_non_null(strstr(text, "asked for by options.kernels"));
	hys_plan_destroy(plan);
	if (hys_backend_named("opencl")) {
		options.kernels = "merge.ref,select.tile";
		expect(&problem, &options, HYS_UNSUPPORTED, "select.tile");
	}
	options.kernels = "merge.ref,select.ref";
	plan = make(&problem, &options);
	assert_string_equal(hys_plan_kernel(plan, HYS_OP_SELECT, 0), "select.ref");
	assert_string_equal(hys_plan_kernel(plan, HYS_OP_MERGE, 0), "merge.ref");
	hys_plan_destroy(plan);
}

/* Without the instruction set that select would take: AVX2 or NEON. */
static void test_missing_capability(void **state)
{
	const struct hys_problem problem = small_problem();
	struct hys_plan_options options = small_options(HYS_OP_BIT(HYS_OP_SELECT));
	char text[TEXT_SIZE], kernel[64], wanted[128];
	struct hys_plan *plan;
	const char *set;

	(void)state;
	hys_context_destroy(context);
	context = make_context("avx512");
	plan = make(&problem, &options);
	snprintf(kernel, sizeof(kernel), "%s", hys_plan_kernel(plan, HYS_OP_SELECT, 0));
	hys_plan_destroy(plan);
	set = strrchr(kernel, '.') + 1;
	if (strcmp(set, "portable") == 0)
		skip();
	hys_context_destroy(context);
	context = make_context(set);
	plan = make(&problem, &options);
	assert_string_equal(hys_plan_kernel(plan, HYS_OP_SELECT, 0), "select.portable");
	hys_plan_describe(plan, text, sizeof(text));
	snprintf(wanted, sizeof(wanted), "not %s: the device lacks %s", kernel, set);
	assert_non_null(strstr(text, wanted));
	hys_plan_destroy(plan);
	options.kernels = kernel;
	snprintf(wanted, sizeof(wanted), "lacks %s", set);
	expect(&problem, &options, HYS_UNSUPPORTED, wanted);
}

static void test_memory_limit(void **state)
{
	struct hys_problem problem = small_problem();
	struct hys_plan_options options = small_options(HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD));
	struct hys_plan *plan;
	int64_t bytes = 0;

	(void)state;
	plan = make(&problem, &options);
	assert_int_equal(hys_plan_workspace(plan, HYS_OP_ATTENTION_BACKWARD, 128, 0, &bytes, NULL),
			 HYS_OK);
	hys_plan_destroy(plan);
	assert_true(bytes > 0);
	options.memory_limit_bytes = 1;
	options.kernels = "attention_backward.portable";
	expect(&problem, &options, HYS_OUT_OF_MEMORY, "memory_limit_bytes");
	options.kernels = NULL;
	options.memory_limit_bytes = bytes;
	plan = make(&problem, &options);
	hys_plan_destroy(plan);
}

static void test_wisdom(void **state)
{
	const struct hys_problem problem = small_problem();
	struct hys_plan_options options = small_options(HYS_OP_BIT(HYS_OP_SELECT));
	struct hys_plan *plan;
	char text[TEXT_SIZE];
	char kernel[HYS_KERNEL_NAME_MAX];

	(void)state;
	options.effort = HYS_EFFORT_WISDOM;
	expect(&problem, &options, HYS_UNSUPPORTED, "wisdom");
	options.effort = HYS_EFFORT_MEASURE;
	plan = make(&problem, &options);
	snprintf(kernel, sizeof(kernel), "%s", hys_plan_kernel(plan, HYS_OP_SELECT, 0));
	hys_plan_describe(plan, text, sizeof(text));
	assert_non_null(strstr(text, "the fastest here"));
	hys_plan_destroy(plan);
	options.effort = HYS_EFFORT_WISDOM;
	plan = make(&problem, &options);
	assert_string_equal(hys_plan_kernel(plan, HYS_OP_SELECT, 0), kernel);
	hys_plan_destroy(plan);
	/* a choice that is not the table's own */
	plan = make(&problem, &options);
	hys_wisdom_learn(context->wisdom, HYS_OP_SELECT, hys_problem_hash(hys_plan_problem(plan)),
			 hys_device_signature(context->devices[0]), "select.ref", 1, NULL);
	hys_plan_destroy(plan);
	options.effort = HYS_EFFORT_ESTIMATE;
	plan = make(&problem, &options);
	assert_string_equal(hys_plan_kernel(plan, HYS_OP_SELECT, 0), "select.ref");
	hys_plan_describe(plan, text, sizeof(text));
	assert_non_null(strstr(text, "wisdom"));
	hys_plan_destroy(plan);
	hys_wisdom_forget(context);
	plan = make(&problem, &options);
	assert_string_not_equal(hys_plan_kernel(plan, HYS_OP_SELECT, 0), "select.ref");
	hys_plan_destroy(plan);
}

static int steps_seen, steps_told, stop_at;

static int watch(void *user, int32_t step, int32_t steps, const char *what)
{
	assert_ptr_equal(user, &steps_seen);
	assert_int_equal(step, steps_seen);
	assert_true(what && what[0]);
	steps_told = steps;
	return steps_seen++ == stop_at;
}

static void test_progress(void **state)
{
	const struct hys_problem problem = small_problem();
	struct hys_plan_options options = small_options(0);
	struct hys_plan *plan;

	(void)state;
	options.progress = watch;
	options.progress_user = &steps_seen;
	stop_at = -1;
	steps_seen = 0;
	plan = make(&problem, &options);
	hys_plan_destroy(plan);
	assert_int_equal(steps_told, 6);
	assert_int_equal(steps_seen, 7);
	for (stop_at = 0; stop_at < 7; stop_at++) {
		struct hys_error error = {HYS_OK, 0, ""};

		plan = NULL;
		steps_seen = 0;
		assert_int_equal(hys_plan_create(context, &problem, &options, &plan, &error),
				 HYS_CANCELLED);
		assert_null(plan);
		assert_int_equal(steps_seen, stop_at + 1);
	}
}

struct told {
	int32_t step, steps, stop_at;
};

/* Steps that take long are told more than once. */
static int watch_devices(void *user, int32_t step, int32_t steps, const char *what)
{
	struct told *told = user;

	assert_true(step == told->step || step == told->step + 1);
	assert_true((step == steps) == (strcmp(what, "done") == 0));
	told->step = step;
	told->steps = steps;
	return step == told->stop_at;
}

/* Kernels for each device, how fast each is, and all together: nothing is done after "done". */
static void test_progress_of_devices(void **state)
{
	const struct hys_problem problem = small_problem();
	const int32_t devices[] = {0, 0};
	struct told told = {.step = -1, .stop_at = -1};
	struct hys_plan_options options = small_options(0);

	(void)state;
	options.operations = HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD);
	options.rows_max = options.keys_max = 32; /* too few to be rehearsed for long */
	options.devices = devices;
	options.device_count = 2;
	options.progress = watch_devices;
	options.progress_user = &told;
	for (int known = 0; known < 2; known++) { /* by wisdom */
		told.step = -1;
		hys_plan_destroy(make(&problem, &options));
		assert_int_equal(told.steps, 4 + 4 + 2);
		assert_int_equal(told.step, told.steps);
	}
	for (int32_t last = 0; last <= 10; last++) {
		struct hys_plan *plan = NULL;
		struct hys_error error = {HYS_OK, 0, ""};

		hys_wisdom_forget(context);
		told = (struct told){.step = -1, .stop_at = last};
		assert_int_equal(hys_plan_create(context, &problem, &options, &plan, &error),
				 HYS_CANCELLED);
		assert_null(plan);
		assert_int_equal(told.step, last);
	}
	told = (struct told){.step = -1, .stop_at = -1};
	options.flags |= HYS_PLAN_EQUAL;
	hys_plan_destroy(make(&problem, &options));
	assert_int_equal(told.steps, 4);
}

/* ---- describe ---- */

static void test_describe(void **state)
{
	struct hys_plan *plan = make_small(0);
	char text[TEXT_SIZE], cut[TEXT_SIZE];
	const size_t length = hys_plan_describe(plan, NULL, 0);

	(void)state;
	assert_int_equal(hys_plan_describe(plan, text, sizeof(text)), length);
	assert_int_equal(strlen(text), length);
	for (int op = 0; op < HYS_OP_COUNT; op++)
		if (hys_plan_kernel(plan, (hys_op)op, 0))
			assert_non_null(strstr(text, hys_plan_kernel(plan, (hys_op)op, 0)));
	assert_non_null(strstr(text, "100.0% of the rows"));
	for (size_t size = 1; size < length; size += 37) {
		memset(cut, 'x', sizeof(cut));
		assert_int_equal(hys_plan_describe(plan, cut, size), length);
		assert_int_equal(strlen(cut), size - 1);
		assert_memory_equal(cut, text, size - 1);
		assert_int_equal(cut[size], 'x');
	}
	assert_int_equal(hys_plan_describe(NULL, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	hys_plan_destroy(plan);
}

/* ---- cost and workspace ---- */

static void test_cost(void **state)
{
	struct hys_problem problem = small_problem();
	struct hys_plan_options options = small_options(0);
	struct hys_plan *plan, *other;
	struct hys_cost cost = {0}, same = {0};
	struct hys_batch_desc desc = {
		.struct_size = sizeof(desc), .rows = 128, .keys = 1024, .flags = HYS_BATCH_CAUSAL};
	struct hys_batch *batch = NULL;
	/* rows 897, 898 ... 1024 keys each */
	const double pairs = 128 * (897 + 1024) / 2.0;

	(void)state;
	problem.attending.window = 4;
	plan = make(&problem, &options);
	assert_int_equal(hys_batch_create(plan, &desc, &batch, NULL), HYS_OK);
	assert_int_equal(hys_plan_cost(plan, HYS_OP_SELECT, NULL, &cost, NULL), HYS_OK);
	assert_true(cost.flops == 2 * 4 * 16 * pairs);
	assert_int_equal(cost.tensor_bytes, 128 * 4 * 16 * 4 + 1024 * 16 * 4 + 128 * 4 * 4 +
						    128 * 2 * 8 * 4 + 128 * 2 * 4);
	assert_true(cost.bytes == (double)cost.tensor_bytes);
	assert_true(cost.time_s > 0);
	assert_int_equal(cost.workspace_bytes, hys_workspace_max(plan, 0));
	assert_true(cost.peak_bytes >=
		    cost.tensor_bytes + cost.workspace_bytes + hys_batch_bytes(batch) - 4096);
	for (int op = 0; op < HYS_OP_COUNT; op++) {
		if (!hys_plan_kernel(plan, (hys_op)op, 0))
			continue;
		assert_int_equal(hys_plan_cost(plan, (hys_op)op, NULL, &cost, NULL), HYS_OK);
		assert_int_equal(hys_plan_cost(plan, (hys_op)op, batch, &same, NULL), HYS_OK);
		assert_true(cost.flops == same.flops);
		assert_int_equal(cost.tensor_bytes, same.tensor_bytes);
	}
	assert_int_equal(hys_plan_cost(plan, HYS_OP_ATTENTION_FORWARD, NULL, &cost, NULL), HYS_OK);
	assert_true(cost.flops == 2 * 4 * 32 * 128 * (8 + 4.0));
	assert_int_equal(hys_plan_cost(plan, HYS_OP_ATTENTION_BACKWARD, NULL, &cost, NULL), HYS_OK);
	assert_true(cost.flops == 2 * 4 * 80 * 128 * (8 + 4.0));
	assert_int_equal(hys_plan_cost(plan, HYS_OP_POOL, NULL, &cost, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_cost(NULL, HYS_OP_SELECT, NULL, &cost, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_cost(plan, HYS_OP_SELECT, NULL, NULL, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_cost(plan, (hys_op)-1, NULL, &cost, NULL), HYS_INVALID_ARGUMENT);
	other = make_small(HYS_OP_BIT(HYS_OP_SELECT));
	assert_int_equal(hys_plan_cost(other, HYS_OP_SELECT, batch, &cost, NULL),
			 HYS_INVALID_ARGUMENT);
	hys_plan_destroy(other);
	hys_batch_destroy(batch);
	hys_plan_destroy(plan);
}

/* The sums over a causal document are those of a batch of it. */
static void test_work(void **state)
{
	static const int64_t rows[] = {1, 7, 40, 128}, keys[] = {1, 39, 128, 1000};
	struct hys_plan_options options = small_options(HYS_OP_BIT(HYS_OP_SELECT));

	(void)state;
	for (int kind = 0; kind < 4; kind++) {
		struct hys_problem problem = small_problem();
		struct hys_plan *plan;

		problem.choosing.coarse_block = 12;
		problem.choosing.coarse_keep = 3;
		problem.scoring.block = kind == 1 ? 4 : 1;
		problem.scoring.pool = kind == 2 ? 5 : 1;
		problem.attending.flags = kind == 3 ? HYS_ATTENDING_DENSE : 0;
		problem.attending.first = 3;
		plan = make(&problem, &options);
		for (size_t i = 0; i < COUNT(rows) * COUNT(keys); i++) {
			struct hys_batch_desc desc = {.struct_size = sizeof(desc),
						      .rows = rows[i / COUNT(keys)],
						      .keys = keys[i % COUNT(keys)],
						      .flags = HYS_BATCH_CAUSAL};
			struct hys_batch *batch = NULL;
			struct hys_work summed, looped;

			assert_int_equal(hys_batch_create(plan, &desc, &batch, NULL), HYS_OK);
			looped = hys_work_of(hys_plan_problem(plan), batch, 0, 0);
			summed = hys_work_of(hys_plan_problem(plan), NULL, desc.rows, desc.keys);
			assert_memory_equal(&looped, &summed, sizeof(looped));
			hys_batch_destroy(batch);
		}
		hys_plan_destroy(plan);
	}
}

/* More rows never need less, and nothing grows with rows x keys. */
static void test_workspace(void **state)
{
	const struct hys_problem problem = small_problem();
	struct hys_plan_options options = small_options(0);
	struct hys_plan *plan;
	int64_t bytes = 0, last = 0;

	(void)state;
	options.rows_max = options.keys_max = 1 << 20;
	plan = make(&problem, &options);
	for (int op = 0; op < HYS_OP_COUNT; op++) {
		if (!hys_plan_kernel(plan, (hys_op)op, 0))
			continue;
		last = 0;
		for (int64_t rows = 0; rows <= 1 << 20; rows = 4 * rows + 1) {
			assert_int_equal(
				hys_plan_workspace(plan, (hys_op)op, rows, 0, &bytes, NULL),
				HYS_OK);
			assert_true(bytes >= last);
			last = bytes;
		}
		assert_true(last < (int64_t)1 << 33);
	}
	assert_int_equal(hys_plan_workspace(NULL, HYS_OP_SELECT, 1, 0, &bytes, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_workspace(plan, HYS_OP_POOL, 1, 0, &bytes, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_workspace(plan, HYS_OP_SELECT, -1, 0, &bytes, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_workspace(plan, HYS_OP_SELECT, (1 << 20) + 1, 0, &bytes, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_workspace(plan, HYS_OP_SELECT, 1, 1, &bytes, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_plan_workspace(plan, HYS_OP_SELECT, 1, 0, NULL, NULL),
			 HYS_INVALID_ARGUMENT);
	hys_plan_destroy(plan);
}

/* ---- memory ---- */

/* Each allocation failing in turn: a status, nothing left behind. */
static void test_out_of_memory(void **state)
{
	const struct hys_problem problem = small_problem();
	struct hys_plan_options options =
		small_options(HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD));
	struct hys_context_options where = {.struct_size = sizeof(where), .devices = "openmp"};
	struct failing_allocator memory = {0};
	struct hys_context *own = NULL;
	int failures = 0;

	(void)state;
	failing_allocator_use(&memory, &where);
	assert_int_equal(hys_context_create(&where, &own, NULL), HYS_OK);
	for (long n = 1; n < 1000; n++) {
		struct hys_plan *plan = NULL;
		struct hys_error error = {HYS_OK, 0, ""};
		hys_status status;
		long live;

		hys_wisdom_forget(own);
		live = memory.live;
		failing_allocator_arm(&memory, n);
		status = hys_plan_create(own, &problem, &options, &plan, &error);
		if (memory.made < n) { /* not reached */
			assert_int_equal(status, HYS_OK);
			hys_plan_destroy(plan);
			break;
		}
		if (status != HYS_OK) {
			assert_null(plan);
			assert_true(error.message[0]);
			failures++;
		}
		hys_plan_destroy(plan);
		hys_wisdom_forget(own);
		assert_true(memory.live <= live);
	}
	failing_allocator_arm(&memory, 0);
	assert_true(failures > 3);
	hys_context_destroy(own);
	assert_int_equal(memory.live, 0);
}

/* Execs and batches keep what they need of a plan. */
static void test_lifetime(void **state)
{
	struct hys_plan *plan = make_small(HYS_OP_BIT(HYS_OP_SELECT));
	struct hys_batch_desc desc = {.struct_size = sizeof(desc), .rows = 3, .keys = 3};
	struct hys_exec *exec = NULL;
	struct hys_batch *batch = NULL;

	(void)state;
	assert_int_equal(hys_exec_create(plan, NULL, &exec, NULL), HYS_OK);
	assert_int_equal(hys_batch_create(plan, &desc, &batch, NULL), HYS_OK);
	hys_plan_destroy(plan);
	assert_int_equal(hys_batch_rows(batch), 3);
	hys_batch_destroy(batch);
	hys_exec_destroy(exec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_wrong_options),  TEST(test_problem_is_checked),
		TEST(test_operations),	   TEST(test_queries),
		TEST(test_forced_kernels), TEST(test_missing_capability),
		TEST(test_memory_limit),   TEST(test_wisdom),
		TEST(test_progress),	   TEST(test_progress_of_devices),
		TEST(test_describe),	   TEST(test_cost),
		TEST(test_work),	   TEST(test_workspace),
		TEST(test_out_of_memory),  TEST(test_lifetime),
	};

	return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
