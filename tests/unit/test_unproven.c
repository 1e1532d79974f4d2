/* A kernel that ran on no device yet is left out of plans, with the reason, unless it is asked for by name; one
 * with other tile sizes is left out unless plans measure, and then one that has no chance is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core.h"

#define KERNELS_MAX 256

static struct hys_kernel kernels[KERNELS_MAX];
static struct hys_backend backend;
static struct hys_context *context;
static const char *preferred; /* the kernel that a plan takes by itself */

static const struct hys_problem problem = {.struct_size = sizeof(problem),
					   .attending = {.heads = 2, .head_dim = 8}};

static hys_effort effort;

static hys_status make(const char *names, struct hys_plan **plan, struct hys_error *error)
{
	struct hys_plan_options options = {.struct_size = sizeof(options),
					   .operations = HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD),
					   .rows_max = 16,
					   .keys_max = 16};

	options.kernels = names;
	options.effort = effort;
	return hys_plan_create(context, &problem, &options, plan, error);
}

/* The processor's backend with a table of its own. */
static int set_up(void **state)
{
	const struct hys_context_options options = {.struct_size = sizeof(options),
						    .devices = "openmp"};
	struct hys_plan *plan = NULL;

	(void)state;
	if (hys_context_create(&options, &context, NULL) != HYS_OK ||
	    make(NULL, &plan, NULL) != HYS_OK)
		return 1;
	preferred = hys_plan_kernel(plan, HYS_OP_ATTENTION_FORWARD, 0);
	hys_plan_destroy(plan);
	backend = *context->devices[0]->backend;
	if (backend.kernel_count > KERNELS_MAX)
		return 1;
	for (int32_t i = 0; i < backend.kernel_count; i++)
		kernels[i] = backend.kernels[i];
	backend.kernels = kernels;
	context->devices[0]->backend = &backend;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	hys_context_destroy(context);
	return 0;
}

/* Plans leave the preferred kernel out, with this reason. */
static void check_left_out(const char *reason)
{
	struct hys_plan *plan = NULL;
	char text[8192];

	assert_int_equal(make(NULL, &plan, NULL), HYS_OK);
	assert_string_not_equal(hys_plan_kernel(plan, HYS_OP_ATTENTION_FORWARD, 0), preferred);
	hys_plan_describe(plan, text, sizeof(text));
	assert_non_null(strstr(text, preferred));
	assert_non_null(strstr(text, reason));
	hys_plan_destroy(plan);
}

static void check_asked_for(void)
{
	struct hys_plan *plan = NULL;

	assert_int_equal(make(preferred, &plan, NULL), HYS_OK);
	assert_string_equal(hys_plan_kernel(plan, HYS_OP_ATTENTION_FORWARD, 0), preferred);
	hys_plan_destroy(plan);
}

static void mark(bool unproven, bool order_free, bool resized)
{
	for (int32_t i = 0; i < backend.kernel_count; i++) {
		const bool own = strcmp(kernels[i].name, preferred) == 0;
		kernels[i].unproven = own && unproven;
		kernels[i].order_free = own && order_free;
		kernels[i].resized = own && resized;
	}
}

static void test_unproven(void **state)
{
	(void)state;
	mark(true, false, false);
	check_left_out("has not run on such a device yet");
	check_asked_for();
}

static void test_order_free(void **state)
{
	(void)state;
	mark(false, true, false);
	check_left_out("gives other bits on every run");
	check_asked_for();
}

/* Whether the plan's description has the text. */
static bool is_said(const char *what)
{
	struct hys_plan *plan = NULL;
	char text[8192];

	assert_int_equal(make(NULL, &plan, NULL), HYS_OK);
	hys_plan_describe(plan, text, sizeof(text));
	hys_plan_destroy(plan);
	return strstr(text, what) != NULL;
}

static void test_resized(void **state)
{
	(void)state;
	mark(false, false, true);
	assert_false(is_said(preferred));
	check_asked_for();
	effort = HYS_EFFORT_MEASURE;
	assert_true(is_said(preferred));
	effort = HYS_EFFORT_ESTIMATE;
}

static void test_hopeless(void **state)
{
	static const char other[] = "attention_forward.portable";

	(void)state;
	if (strcmp(preferred, other) == 0)
		skip(); /* only the reference comes behind it */
	mark(false, false, false);
	effort = HYS_EFFORT_MEASURE;
	assert_false(is_said("not measured"));
	for (int32_t i = 0; i < backend.kernel_count; i++)
		if (strcmp(kernels[i].name, other) == 0)
			kernels[i].efficiency /= 64;
	assert_true(is_said("not measured, expected to be "));
	effort = HYS_EFFORT_ESTIMATE;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unproven),
		cmocka_unit_test(test_order_free),
		cmocka_unit_test(test_resized),
		cmocka_unit_test(test_hopeless),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
