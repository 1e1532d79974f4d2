/* A plan of LANES fake devices, a number that the including file defines; it says what is planned. */
#ifndef HYS_TEST_LANES_FIXTURE_H
#define HYS_TEST_LANES_FIXTURE_H

#include "call_case.h"

struct fixture {
	struct hys_context *context;
	struct fake_device devices[LANES];
	struct fake_plan plan;
	struct hys_kernel kernels[HYS_OP_COUNT];
};

/* All kernels are `run`. */
static inline struct fixture *make_fixture(
	hys_status (*run)(const struct hys_kernel *kernel, struct hys_stream *stream,
			  void *instance, const struct hys_call *call, struct hys_error *error))
{
	struct fixture *f = calloc(1, sizeof(*f));
	const struct hys_context_options options = {.struct_size = sizeof(options),
						    .devices = "openmp"};

	assert_non_null(f);
	assert_int_equal(hys_context_create(&options, &f->context, NULL), HYS_OK);
	for (int i = 0; i < LANES; i++)
		fake_device_init(&f->devices[i], &f->context->host, "fake");
	fake_plan_init(&f->plan, f->context, f->devices, LANES);
	call_case_kernels(&f->plan, f->kernels, run);
	return f;
}

/* Completes the problem; the largest call has as many rows as keys. */
static inline void plan_fixture(struct fixture *f, const struct hys_problem *problem, int64_t rows,
				uint32_t operations)
{
	f->plan.plan.problem = *problem;
	assert_int_equal(hys_problem_complete(&f->plan.plan.problem, NULL), HYS_OK);
	f->plan.plan.rows_max = f->plan.plan.keys_max = rows;
	f->plan.plan.operations = operations;
}

static inline int tear_down(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < LANES; i++)
		fake_device_clear(&f->devices[i]);
	hys_context_destroy(f->context);
	free(f);
	return 0;
}

#endif
