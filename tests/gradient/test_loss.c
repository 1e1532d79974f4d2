/* The gradients of the indexer loss against differences of the loss, on each device. */
#include "differences.h"
#include "loss_case.h"
#include "oracle_internal.h"

#define NONE HYS_ACTIVATION_NONE

/* clang-format off */
static const struct loss_case table[] = {
	{CORE("sparse"), SEE(9, 30)},
	{CORE("dense without activation"), SEE(7, 20), .activation = NONE, .features = LOSS_DENSE},
	{CORE("groups of blocks"), SEE(9, 40), .groups = 2, .block = 4, .activation = NONE},
	{CORE("lse and sink, sum"), SEE(9, 30), .activation = NONE, .features = LOSS_LSE | LOSS_SINK | LOSS_SUM, .coefficient = 0.5},
	{FULL("sampled, divisor"), SEE(20, 30), .activation = NONE, .features = LOSS_SAMPLED, .divisor = 7},
	{FULL("pools, unweighted"), SEE(9, 60), .pool = 4, .activation = NONE, .features = LOSS_UNWEIGHTED},
	{FULL("teacher in"), SEE(9, 30), .activation = NONE, .features = LOSS_TEACHER_IN},
	{FULL("dense with activation"), SEE(7, 20), .features = LOSS_DENSE},
};
/* clang-format on */

static double find_loss(void *context, const struct suite_run *run)
{
	struct loss_data *data = context;
	const struct loss_grads none = {0};
	struct place place = suite_place(run, 0);
	struct hys_error error;
	double value = (double)NAN;

	if (loss_call(data, &none, &place, run->batch, &error) != HYS_OK)
		suite_fail(run, "%s", error.message);
	else if (suite_collect(run, &place)) {
		double *loss = place_values(&place, "loss");

		value = *loss;
		free(loss);
	}
	place_clear(&place);
	return value;
}

static void check(struct loss_data *data, const struct suite_run *run, const struct place *place,
		  const char *name, const char *gradient_name, double *values, int64_t count)
{
	double *gradient = place_values(place, gradient_name);

	if (gradient)
		differences_check(run, name, find_loss, data, values, gradient, count, 0.01);
	free(gradient);
}

static void check_device(struct loss_data *data, const struct suite_run *run)
{
	const struct hys_scoring *s = &data->problem.scoring;
	const int64_t lanes = data->visible.rows * s->heads;
	struct place place = suite_place(run, 0);
	struct hys_error error;

	if (loss_call(data, &data->want, &place, run->batch, &error) != HYS_OK) {
		suite_fail(run, "%s", error.message);
	} else if (suite_collect(run, &place)) {
		check(data, run, &place, "index_q", "d_index_q", data->index_q, lanes * s->dim);
		check(data, run, &place, "index_k", "d_index_k", data->index_k,
		      data->visible.entries * s->dim);
		check(data, run, &place, "index_w", "d_index_w", data->index_w, lanes);
	}
	place_clear(&place);
}

static void run_case(void **state)
{
	struct suite_run run = {0};
	struct loss_data data;
	struct suite_want want;

	loss_make(&data, *state);
	want = loss_want(&data);
	while (suite_next(&run, &want))
		check_device(&data, &run);
	loss_free(&data);
}

int main(void)
{
	struct suite_list list = {.size = sizeof(struct loss_case)};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(&list, &table[i]);
	return suite_main_over(SUITE_DEVICES, "gradients of the indexer loss", 0, &list, run_case);
}
