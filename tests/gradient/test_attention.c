/* The backward pass of attention against differences of the forward pass, on each device. */
#include "attention_case.h"
#include "differences.h"
#include "oracle_internal.h"

#define SHARED (ATTENTION_SHARED | ATTENTION_SHARED_WINDOW)

/* clang-format off */
static const struct attention_case table[] = {
	{CORE("plain"), SEE(7, 20)},
	{CORE("GQA with sink, window, first"), SEE(7, 20), .heads = 4, .kv_heads = 2, .window = 3, .first = 2, .features = ATTENTION_SINK},
	{CORE("shared v, second source"), SEE(7, 20, .window_keys = 6), .head_dim = 12, .value_dim = 8, .features = SHARED | ATTENTION_SINK},
	{CORE("dense with softcap"), SEE(7, 20), .softcap = 1.5, .features = ATTENTION_DENSE},
	{CORE("groups of blocks"), SEE(9, 30), .groups = 2, .granularity = 4, .value_dim = 6},
	{FULL("pools and a second source"), SEE(9, 40, .window_keys = 6), .pool = 4, .window = 2, .heads = 2, .kv_heads = 2},
	{FULL("documents"), .visible = {.q_lengths = LENGTHS(1, 0, 9, 1)}, .window = 2, .features = ATTENTION_SINK},
};
/* clang-format on */

/* sum of grad_o * o, by the library's own forward pass. */
static double project(void *context, const struct suite_run *run)
{
	struct attention_data *data = context;
	const int64_t count = data->visible.rows * data->problem.attending.heads *
			      data->problem.attending.value_dim;
	struct place place = suite_place(run, 0);
	struct hys_error error;
	double sum = (double)NAN;

	if (attention_forward_call(data, &place, run->batch, &error) != HYS_OK)
		suite_fail(run, "forward: %s", error.message);
	else if (suite_collect(run, &place)) {
		double *o = place_values(&place, "o"), *lse = place_values(&place, "lse");

		sum = ora_dot(o, data->grad_o, count);
		memcpy(data->given_o, o, (size_t)count * sizeof(*o));
		memcpy(data->given_lse, lse,
		       (size_t)(count / data->problem.attending.value_dim) * sizeof(*lse));
		free(o);
		free(lse);
	}
	place_clear(&place);
	return sum;
}

struct operand {
	const char *name, *gradient;
	double *values;
	int64_t count;
};

static void check_operands(struct attention_data *data, const struct suite_run *run,
			   const struct place *place)
{
	const struct hys_attending *a = &data->problem.attending;
	const struct visible *v = &data->visible;
	const int64_t k_width = (int64_t)a->kv_heads * a->head_dim;
	const int64_t v_width = (int64_t)a->kv_heads * a->value_dim;
	const struct operand operands[] = {
		{"q", "dq", data->q, v->rows * a->heads * a->head_dim},
		{"k", "dk", data->k, v->keys * k_width},
		{"v", "dv", data->v, v->keys * v_width},
		{"window_k", "dwindow_k", data->window_k, v->window_keys * k_width},
		{"window_v", "dwindow_v", data->window_v, v->window_keys * v_width},
		{"sink", "dsink", data->sink, a->heads},
	};

	for (size_t i = 0; i < sizeof(operands) / sizeof(operands[0]); i++) {
		double *gradient = place_values(place, operands[i].gradient);

		if (operands[i].values && gradient)
			differences_check(run, operands[i].name, project, data, operands[i].values,
					  gradient, operands[i].count, 0.02);
		free(gradient);
	}
}

static void check_device(struct attention_data *data, const struct suite_run *run)
{
	struct place place = suite_place(run, 0);
	struct attention_grads wanted;
	struct hys_error error;

	project(data, run);
	attention_grads_make(&wanted, data);
	if (attention_backward_call(data, &wanted, &place, run->batch, &error) != HYS_OK)
		suite_fail(run, "backward: %s", error.message);
	else if (suite_collect(run, &place))
		check_operands(data, run, &place);
	attention_grads_free(&wanted);
	place_clear(&place);
}

static void run_case(void **state)
{
	struct suite_run run = {0};
	struct attention_data data;
	struct suite_want want;

	attention_make(&data, *state);
	if (data.sink && data.problem.attending.heads > 1)
		data.sink[1] = 0.5; /* minus infinity has no differences */
	want = attention_want(&data, HYS_OP_ATTENTION_FORWARD);
	want.more_ops = HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD);
	while (suite_next(&run, &want))
		check_device(&data, &run);
	attention_free(&data);
}

int main(void)
{
	struct suite_list list = {.size = sizeof(struct attention_case)};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(&list, &table[i]);
	return suite_main_over(SUITE_DEVICES, "gradients of attention", 0, &list, run_case);
}
