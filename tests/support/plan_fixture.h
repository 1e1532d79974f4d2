/*
 * Small plans on the processor.
 */
#ifndef HYS_TEST_PLAN_FIXTURE_H
#define HYS_TEST_PLAN_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_file.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TEXT_SIZE 16384

static struct hys_context *context;

static inline struct hys_context *make_context(const char *disable)
{
	struct hys_context_options options = {.struct_size = sizeof(options), .devices = "openmp"};
	struct hys_context *made = NULL;

	options.disable = disable;
	assert_int_equal(hys_context_create(&options, &made, NULL), HYS_OK);
	return made;
}

static inline int set_up(void **state)
{
	(void)state;
	context = make_context("");
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	hys_context_destroy(context);
	return 0;
}

static inline struct hys_problem small_problem(void)
{
	struct hys_problem problem = {
		.struct_size = sizeof(problem),
		.scoring = {.heads = 4, .dim = 16, .groups = 2},
		.choosing = {.topk_max = 8},
		.attending = {.heads = 4, .kv_heads = 2, .head_dim = 16},
	};

	return problem;
}

static inline struct hys_plan_options small_options(uint32_t operations)
{
	struct hys_plan_options options = {
		.struct_size = sizeof(options),
		.operations = operations,
		.rows_max = 128,
		.keys_max = 1024,
	};

	return options;
}

static inline struct hys_plan *make(const struct hys_problem *problem,
				    const struct hys_plan_options *options)
{
	struct hys_plan *plan = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	if (hys_plan_create(context, problem, options, &plan, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return plan;
}

static inline struct hys_plan *make_small(uint32_t operations)
{
	const struct hys_problem problem = small_problem();
	const struct hys_plan_options options = small_options(operations);

	return make(&problem, &options);
}

static inline void expect(const struct hys_problem *problem, const struct hys_plan_options *options,
			  hys_status status, const char *word)
{
	struct hys_plan *plan = (struct hys_plan *)(uintptr_t)1;
	struct hys_error error = {HYS_OK, 0, ""};
	const hys_status found = hys_plan_create(context, problem, options, &plan, &error);

	if (found != status || !strstr(error.message, word))
		fail_msg("%s (%s), expected %s (%s)", hys_status_name(found), error.message,
			 hys_status_name(status), word);
	assert_int_equal((uintptr_t)plan, 1);
	assert_int_equal(hys_plan_create(context, problem, options, &plan, NULL), status);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
