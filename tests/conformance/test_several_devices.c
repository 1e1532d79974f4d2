/* Rows shared between devices: what comes of it is what one device gives, within tolerance. */
#include "attention_case.h"
#include "loss_case.h"
#include "select_case.h"

#include "oracle_internal.h"

#define DOCUMENTS \
	.visible = {.q_lengths = LENGTHS(50, 0, 1, 40), .k_lengths = LENGTHS(90, 2, 1, 70)}

/* One of the three, told apart by `op`. */
struct shared_case {
	struct suite_case about;
	hys_op op;
	struct select_case select;
	struct attention_case attention;
	struct loss_case loss;
};

#define SELECT .op = HYS_OP_SELECT, .select
#define FORWARD .op = HYS_OP_ATTENTION_FORWARD, .attention
#define BACKWARD .op = HYS_OP_ATTENTION_BACKWARD, .attention
#define LOSS .op = HYS_OP_INDEXER_LOSS, .loss

/* clang-format off */
static const struct shared_case table[] = {
	{CORE("select"), SELECT = {DOCUMENTS}},
	{CORE("select, NaN"), SELECT = {DOCUMENTS, .values = SCORES_NAN}},
	{FULL("select, blocks in groups"), SELECT = {DOCUMENTS, .block = 4, .groups = 2}},
	{FULL("select, range"), SELECT = {DOCUMENTS, .features = SELECT_RANGE}},
	{FULL("select, one row"), SELECT = {SEE(1, 40)}},
	{FULL("select, no rows"), SELECT = {SEE(0, 40)}},
	{CORE("forward"), FORWARD = {DOCUMENTS, .window = 5, .features = ATTENTION_SINK}},
	{FULL("forward, MLA bf16"), FORWARD = {DOCUMENTS, .dtype = HYS_BF16, .head_dim = 40, .value_dim = 32, .features = ATTENTION_SHARED}},
	{FULL("forward, range of its own tensors"), FORWARD = {DOCUMENTS, .features = ATTENTION_RANGE_CUT}},
	{CORE("backward"), BACKWARD = {SEE(60, 90, .window_keys = 20), .kv_heads = 2, .features = ATTENTION_SINK}},
	{FULL("backward, accumulate"), BACKWARD = {DOCUMENTS, .features = ATTENTION_ACCUMULATE}},
	{FULL("backward, accumulate bf16"), BACKWARD = {DOCUMENTS, .dtype = HYS_BF16, .features = ATTENTION_ACCUMULATE}},
	{FULL("backward, shared f16"), BACKWARD = {DOCUMENTS, .dtype = HYS_F16, .features = ATTENTION_SHARED}},
	{FULL("backward, range"), BACKWARD = {DOCUMENTS, .features = ATTENTION_RANGE}},
	{FULL("backward, one row"), BACKWARD = {SEE(1, 40)}},
	{CORE("loss, mean"), LOSS = {DOCUMENTS}},
	{CORE("loss, sum, accumulate"), LOSS = {DOCUMENTS, .features = LOSS_SUM | LOSS_ACCUMULATE}},
	{FULL("loss, sampled"), LOSS = {DOCUMENTS, .features = LOSS_SAMPLED | LOSS_TEACHER_OUT}},
	{FULL("loss, dense"), LOSS = {DOCUMENTS, .features = LOSS_DENSE}},
	{FULL("loss, dense, sampled range"), LOSS = {DOCUMENTS, .features = LOSS_DENSE | LOSS_SAMPLED | LOSS_RANGE}},
	{FULL("loss, teacher in, divisor"), LOSS = {DOCUMENTS, .divisor = 9, .features = LOSS_TEACHER_IN}},
	{FULL("loss, bf16"), LOSS = {DOCUMENTS, .index_dtype = HYS_BF16, .features = LOSS_ACCUMULATE}},
	{FULL("loss, no rows"), LOSS = {SEE(0, 40)}},
};
/* clang-format on */

/* Several devices take no buffers. */
static const unsigned placements[] = {0, PLACE_PITCHED | PLACE_SWAPPED};
#define PLACEMENTS (sizeof(placements) / sizeof(placements[0]))

static void run_select(const struct select_case *about)
{
	struct suite_run run = {0};
	struct select_data data;
	struct suite_want want;

	select_make(&data, about);
	want = select_want(&data);
	while (suite_next(&run, &want))
		for (size_t i = 0; i < PLACEMENTS; i++)
			select_try(&data, &run, placements[i]);
	select_free(&data);
}

static void run_attention(const struct attention_case *about, hys_op op)
{
	struct suite_run run = {0};
	struct attention_data data;
	struct attention_grads grads;
	struct suite_want want;

	attention_make(&data, about);
	attention_grads_make(&grads, &data);
	want = attention_want(&data, op);
	while (suite_next(&run, &want))
		for (size_t i = 0; i < PLACEMENTS; i++) {
			if (op == HYS_OP_ATTENTION_FORWARD)
				attention_forward_try(&data, &run, placements[i]);
			else
				attention_backward_try(&data, &grads, &run, placements[i]);
		}
	attention_grads_free(&grads);
	attention_free(&data);
}

static void run_loss(const struct loss_case *about)
{
	struct suite_run run = {0};
	struct loss_data data;
	struct suite_want want;

	loss_make(&data, about);
	want = loss_want(&data);
	while (suite_next(&run, &want))
		for (size_t i = 0; i < PLACEMENTS; i++)
			loss_try(&data, &run, placements[i]);
	loss_free(&data);
}

static void run_case(void **state)
{
	struct shared_case shared = *(const struct shared_case *)*state;

	shared.select.about = shared.attention.about = shared.loss.about = shared.about;
	if (shared.op == HYS_OP_SELECT)
		run_select(&shared.select);
	else if (shared.op == HYS_OP_INDEXER_LOSS)
		run_loss(&shared.loss);
	else
		run_attention(&shared.attention, shared.op);
}

int main(void)
{
	struct suite_list list = {.size = sizeof(struct shared_case)};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		suite_add(&list, &table[i]);
	return suite_main_over(SUITE_SEVERAL, "several devices", 0, &list, run_case);
}
