/* Same plan, batch and input: same bits, however often, with any number of threads, and, where
 * rows do not meet in sums, in whatever ranges of rows. Sums over ranges agree with the whole. */
#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>
#include <cmocka.h>

#include "oracle_internal.h"
#include "subject.h"

#define REPEATS 10
#define THREADS 8
#define ROWS_MOST 64 /* kernel rows of one operation on all devices */

/* ---- what is run ---- */

#define SELECT(op) op, &subject_select
#define FORWARD HYS_OP_ATTENTION_FORWARD, &subject_forward
#define BACKWARD HYS_OP_ATTENTION_BACKWARD, &subject_backward
#define LOSS HYS_OP_INDEXER_LOSS, &subject_loss
#define CLOSE(text) .about = {.name = text, .flags = SUITE_CLOSE}
#define GATHER                                                                         \
	.dtype = HYS_BF16, .heads = 16, .head_dim = 192, .value_dim = 128, .topk = 50, \
	.features = ATTENTION_SHARED
#define DOCUMENTS .q_lengths = LENGTHS(150, 0, 1, 49), .k_lengths = LENGTHS(400, 2, 1, 200)
#define FEWER_ROWS .q_lengths = LENGTHS(40, 0, 1, 19), .k_lengths = LENGTHS(400, 2, 1, 200)

/* clang-format off */
static const struct subject subjects[] = {
	{"select", SELECT(HYS_OP_SELECT), {.select = {
		CORE("select"), .visible = {DOCUMENTS}, .dim = 24, .topk = 60}}},
	{"select, blocks in groups, bf16", SELECT(HYS_OP_SELECT), {.select = {
		CORE("blocks"), .visible = {DOCUMENTS}, .dim = 24, .topk = 20, .block = 4, .groups = 2, .first = 1, .local = 1, .dtype = HYS_BF16}}},
	{"select, bf16", SELECT(HYS_OP_SELECT), {.select = {
		FULL("bf16"), .visible = {DOCUMENTS}, .heads = 20, .dim = 40, .topk = 60, .dtype = HYS_BF16}}},
	{"select, f8", SELECT(HYS_OP_SELECT), {.select = {
		FULL("f8"), .visible = {DOCUMENTS}, .heads = 20, .dim = 40, .topk = 60, .dtype = HYS_F8E4M3}}},
	{"select, coarse to fine, bf16", SELECT(HYS_OP_SELECT_COARSE_TO_FINE), {.select = {
		FULL("fine bf16"), .visible = {DOCUMENTS}, .topk = 40, .method = HYS_METHOD_COARSE_TO_FINE, .coarse_block = 16, .coarse_keep = 5, .dtype = HYS_BF16}}},
	{"select, coarse to fine", SELECT(HYS_OP_SELECT_COARSE_TO_FINE), {.select = {
		CORE("fine"), .visible = {DOCUMENTS}, .topk = 40, .method = HYS_METHOD_COARSE_TO_FINE, .coarse_block = 16, .coarse_keep = 5}}},
	{"select, coarse, bf16", SELECT(HYS_OP_SELECT_COARSE), {.select = {
		FULL("coarse bf16"), .visible = {DOCUMENTS}, .topk = 5, .method = HYS_METHOD_COARSE, .coarse_block = 16, .dtype = HYS_BF16}}},
	{"attention", FORWARD, {.attention = {
		CORE("attention"), .visible = {DOCUMENTS, .window_keys = 30}, .heads = 6, .kv_heads = 2, .topk = 70, .window = 9, .features = ATTENTION_SINK}}},
	{"attention, dense f16", FORWARD, {.attention = {
		CORE("dense"), .visible = {DOCUMENTS}, .dtype = HYS_F16, .features = ATTENTION_DENSE}}},
	{"attention, MLA bf16", FORWARD, {.attention = {
		CORE("MLA"), .visible = {DOCUMENTS}, .heads = 16, .head_dim = 40, .value_dim = 32, .topk = 50, .dtype = HYS_BF16, .features = ATTENTION_SHARED}}},
	{"attention, dense bf16, several tiles", FORWARD, {.attention = {
		FULL("dense bf16"), .visible = {DOCUMENTS}, .dtype = HYS_BF16, .heads = 6, .kv_heads = 2, .head_dim = 64, .features = ATTENTION_DENSE}}},
	{"attention, blocks bf16", FORWARD, {.attention = {
		FULL("blocks bf16"), .visible = {DOCUMENTS}, .dtype = HYS_BF16, .heads = 6, .kv_heads = 2, .head_dim = 64, .granularity = 16, .topk = 9, .window = 9}}},
	{"attention, gathered bf16", FORWARD, {.attention = {
		CLOSE("gathered bf16"), .visible = {DOCUMENTS}, GATHER}}},
	{"attention backward", BACKWARD, {.attention = {
		CORE("backward"), .visible = {DOCUMENTS, .window_keys = 30}, .heads = 6, .kv_heads = 2, .topk = 70, .window = 9, .features = ATTENTION_SINK}}},
	{"attention backward, dense", BACKWARD, {.attention = {
		FULL("dense backward"), .visible = {DOCUMENTS}, .features = ATTENTION_DENSE}}},
	{"attention backward, dense bf16", BACKWARD, {.attention = {
		FULL("dense backward bf16"), .visible = {DOCUMENTS}, .dtype = HYS_BF16, .heads = 6, .kv_heads = 2, .head_dim = 64, .features = ATTENTION_DENSE}}},
	{"attention backward, blocks bf16", BACKWARD, {.attention = {
		FULL("blocks backward bf16"), .visible = {DOCUMENTS}, .dtype = HYS_BF16, .heads = 6, .kv_heads = 2, .head_dim = 64, .granularity = 16, .topk = 9, .window = 9}}},
	{"attention backward, gathered bf16", BACKWARD, {.attention = {
		CLOSE("gathered backward bf16"), .visible = {FEWER_ROWS}, GATHER}}},
	{"indexer loss", LOSS, {.loss = {
		CORE("loss"), .visible = {DOCUMENTS}, .groups = 2, .topk = 50}}},
	{"indexer loss, dense", LOSS, {.loss = {
		FULL("dense loss"), .visible = {DOCUMENTS}, .features = LOSS_DENSE}}},
	{"indexer loss, gathered bf16", LOSS, {.loss = {
		CLOSE("gathered loss"), .visible = {FEWER_ROWS}, .topk = 50, .index_heads = 5, .index_dim = 64, .heads = 20, .head_dim = 64, .index_dtype = HYS_BF16, .dtype = HYS_BF16}}},
};
/* clang-format on */

/* ---- repeats and threads ---- */

/* One answer per kernel row and device, from the default number of threads. */
struct first_answers {
	const struct hys_kernel *kernels[ROWS_MOST];
	char devices[ROWS_MOST][96];
	struct subject_answer answers[ROWS_MOST];
	int32_t count;
};

static const struct subject_answer *find_first(const struct first_answers *first,
					       const struct suite_row *row)
{
	for (int32_t i = 0; i < first->count; i++)
		if (first->kernels[i] == row->kernel &&
		    strcmp(first->devices[i], row->info->info.name) == 0)
			return &first->answers[i];
	return NULL;
}

/* Keeps the first run of a kernel; compares all others with it. */
static void repeat(const struct subject *subject, const union subject_data *data,
		   const struct suite_run *run, struct first_answers *first, int32_t threads)
{
	if (run->row->kernel->order_free)
		return;
	for (int32_t i = 0; i < (threads > 0 ? 3 : REPEATS); i++) {
		const struct subject_answer *want = find_first(first, run->row);
		struct subject_answer answer = subject_run(subject, data, run);

		if (want) {
			subject_compare(run, &answer, want,
					threads > 0 ? "with threads:" : "in repeat",
					threads > 0 ? threads : i);
			free(answer.bytes);
		} else if (first->count < ROWS_MOST) {
			first->kernels[first->count] = run->row->kernel;
			snprintf(first->devices[first->count], sizeof(first->devices[0]), "%s",
				 run->row->info->info.name);
			first->answers[first->count++] = answer;
		}
	}
}

/* Kernels for devices other than processors have no threads to vary. */
static int32_t most_threads(void)
{
	const char *devices = getenv("HYS_TEST_DEVICES");

	return devices && !strstr(devices, "openmp") ? 0 : THREADS;
}

static void test_repeats(void **state)
{
	const struct subject *subject = *state;
	struct first_answers first = {.count = 0};
	union subject_data data;
	struct suite_want want;

	subject->kind->make(&data, subject);
	want = subject->kind->want(&data);
	/* Processors do nothing else for subjects that are there for GPUs: once with all threads is enough. */
	for (int32_t threads = 0; threads <= most_threads();
	     threads += want.about->flags & SUITE_CLOSE ? THREADS : 1) {
		struct suite_run run = {0};

		suite_begin(SUITE_KERNELS, HYS_OP_BIT(subject->op), threads);
		while (suite_next(&run, &want))
			repeat(subject, &data, &run, &first, threads);
		suite_end();
	}
	subject->kind->release(&data);
	for (int32_t i = 0; i < first.count; i++) {
		print_message("  repeated: %s on %s\n", first.kernels[i]->name, first.devices[i]);
		free(first.answers[i].bytes);
	}
	if (first.count == 0 && (getenv("HYS_TEST_KERNELS") || most_threads() == 0))
		skip();
	assert_true(first.count > 0);
	assert_int_equal(suite_failures(), 0);
}

/* ---- ranges ---- */

static const int64_t cuts[][8] = {
	{0, 1, 17, 64, 100, 163, 199, 200},
	{0, 50, 51, 52, 150, 151, 152, 200},
	{0, 199, 200},
};

/* Rows [first, first + count) of the first output. */
static char *take_rows(const char *all, int64_t bytes, int64_t rows, int64_t first, int64_t count,
		       int64_t *size)
{
	const int64_t per_row = bytes / rows;
	char *part = ora_alloc(count * per_row, 1);

	*size = count * per_row;
	memcpy(part, all + first * per_row, (size_t)*size);
	return part;
}

static void set_range(const struct subject *subject, union subject_data *data,
		      struct select_case *select, struct attention_case *attention, int64_t first,
		      int64_t count)
{
	if (subject->op == HYS_OP_ATTENTION_FORWARD) {
		*attention = subject->about.attention;
		attention->features |= ATTENTION_RANGE;
		data->attention.about = attention;
		data->attention.row_first = first;
		data->attention.row_count = count;
	} else {
		*select = subject->about.select;
		select->features |= SELECT_RANGE;
		data->select.about = select;
		data->select.row_first = first;
		data->select.row_count = count;
	}
}

/* The range's rows of each output of rows are the whole's. */
static void compare_range(const struct subject *subject, const struct suite_run *run,
			  const struct place *whole, const struct place *part, int64_t first,
			  int64_t count, int64_t rows)
{
	for (int32_t i = 0; subject->kind->outputs[i]; i++) {
		int64_t bytes = 0, size = 0, same = 0;
		char *all = place_bytes(whole, subject->kind->outputs[i], &bytes);
		char *cut = place_bytes(part, subject->kind->outputs[i], &same);

		if (all && strcmp(subject->kind->outputs[i], "nan_rows") != 0) {
			char *want = take_rows(all, bytes, rows, first, count, &size);
			char *got = take_rows(cut, bytes, rows, first, count, &size);
			struct subject_answer a = {got, size}, b = {want, size};

			subject_compare(run, &a, &b, "in the range from row", (int32_t)first);
			free(want);
			free(got);
		}
		free(all);
		free(cut);
	}
}

static void try_ranges(const struct subject *subject, union subject_data *data,
		       const struct suite_run *run, const int64_t *cut)
{
	const int64_t rows = hys_batch_rows(run->batch);
	struct place whole = suite_place(run, 0);
	struct select_case select;
	struct attention_case attention;
	struct hys_error error;

	set_range(subject, data, &select, &attention, 0, rows);
	if (subject->kind->call(data, &whole, run->batch, &error) != HYS_OK)
		suite_fail(run, "%s", error.message);
	else if (suite_collect(run, &whole))
		for (int32_t i = 0; cut[i] < rows; i++) {
			struct place part = suite_place(run, 0);

			set_range(subject, data, &select, &attention, cut[i], cut[i + 1] - cut[i]);
			if (subject->kind->call(data, &part, run->batch, &error) != HYS_OK)
				suite_fail(run, "%s", error.message);
			else if (suite_collect(run, &part))
				compare_range(subject, run, &whole, &part, cut[i],
					      cut[i + 1] - cut[i], rows);
			place_clear(&part);
		}
	place_clear(&whole);
}

static void test_ranges(void **state)
{
	const struct subject *subject = *state;
	struct suite_run run = {0};
	union subject_data data;
	struct suite_want want;

	subject->kind->make(&data, subject);
	want = subject->kind->want(&data);
	suite_begin(SUITE_KERNELS, HYS_OP_BIT(subject->op), 0);
	while (suite_next(&run, &want))
		for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
			try_ranges(subject, &data, &run, cuts[i]);
	suite_end();
	subject->kind->release(&data);
	assert_int_equal(suite_failures(), 0);
}

/* ---- sums in ranges ---- */

static const struct attention_case streamed_backward = {
	CORE("backward in ranges"), .visible = {DOCUMENTS}, .topk = 30, .window = 9};
static const struct loss_case streamed_loss = {CORE("loss in ranges"), .visible = {DOCUMENTS},
					       .topk = 30, .groups = 2};

/* Adds what the call gave to what the next one starts from. */
static void carry(const struct place *place, const char *name, double *into, int64_t count)
{
	double *values = place_values(place, name);

	if (into && values)
		memcpy(into, values, (size_t)count * sizeof(*into));
	free(values);
}

static void stream_backward(struct attention_data *data, const struct suite_run *run,
			    const struct attention_grads *want)
{
	const struct hys_attending *a = &data->problem.attending;
	const int64_t dk = data->visible.keys * a->kv_heads * a->head_dim;
	const int64_t dv = data->visible.keys * a->kv_heads * a->value_dim;
	const double tolerance = attention_tolerance(data, true);
	struct attention_case about = *data->about;
	const struct attention_case *whole = data->about;
	struct attention_grads sum = {.dk = ora_doubles(dk), .dv = ora_doubles(dv)};
	struct hys_error error;

	about.features |= ATTENTION_RANGE | ATTENTION_ACCUMULATE;
	data->about = &about;
	for (int32_t i = 0; cuts[0][i] < data->visible.rows; i++) {
		struct place place = suite_place(run, 0);

		data->row_first = cuts[0][i];
		data->row_count = cuts[0][i + 1] - cuts[0][i];
		if (attention_backward_call(data, &sum, &place, run->batch, &error) != HYS_OK)
			suite_fail(run, "%s", error.message);
		else if (suite_collect(run, &place)) {
			carry(&place, "dk", sum.dk, dk);
			carry(&place, "dv", sum.dv, dv);
		}
		place_clear(&place);
	}
	data->about = whole;
	suite_close(run, "dk in ranges", sum.dk, want->dk, data->visible.keys * a->kv_heads,
		    a->head_dim, tolerance);
	suite_close(run, "dv in ranges", sum.dv, want->dv, data->visible.keys * a->kv_heads,
		    a->value_dim, tolerance);
}

static void test_backward_in_ranges(void **state)
{
	struct suite_run run = {0};
	struct attention_data data;
	struct attention_grads want;
	struct suite_want suite;

	(void)state;
	attention_make(&data, &streamed_backward);
	attention_grads_make(&want, &data);
	suite = attention_want(&data, HYS_OP_ATTENTION_BACKWARD);
	suite_begin(SUITE_KERNELS, HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD), 0);
	while (suite_next(&run, &suite))
		stream_backward(&data, &run, &want);
	suite_end();
	attention_grads_free(&want);
	attention_free(&data);
	assert_int_equal(suite_failures(), 0);
}

static void stream_loss(struct loss_data *data, const struct suite_run *run)
{
	const int64_t count = data->visible.entries * data->problem.scoring.dim;
	struct loss_case about = *data->about;
	const struct loss_case *whole = data->about;
	struct loss_grads sum = {.d_index_k = ora_doubles(count)};
	struct hys_error error;

	about.features |= LOSS_RANGE | LOSS_ACCUMULATE;
	about.divisor = (double)data->oracle.non_empty;
	data->about = &about;
	for (int32_t i = 0; cuts[0][i] < data->visible.rows; i++) {
		struct place place = suite_place(run, 0);

		data->row_first = cuts[0][i];
		data->row_count = cuts[0][i + 1] - cuts[0][i];
		if (loss_call(data, &sum, &place, run->batch, &error) != HYS_OK)
			suite_fail(run, "%s", error.message);
		else if (suite_collect(run, &place)) {
			carry(&place, "d_index_k", sum.d_index_k, count);
			carry(&place, "loss", &sum.loss, 1);
		}
		place_clear(&place);
	}
	data->about = whole;
	if (!(fabs(sum.loss - data->want.loss) <= 1e-5 * fabs(data->want.loss) + 1e-6))
		suite_fail(run, "loss in ranges is %.9g, expected %.9g", sum.loss, data->want.loss);
	suite_close(run, "d_index_k in ranges", sum.d_index_k, data->want.d_index_k,
		    data->visible.entries, data->problem.scoring.dim, loss_tolerance(data));
}

static void test_loss_in_ranges(void **state)
{
	struct suite_run run = {0};
	struct loss_data data;
	struct suite_want want;

	(void)state;
	loss_make(&data, &streamed_loss);
	want = loss_want(&data);
	suite_begin(SUITE_KERNELS, HYS_OP_BIT(HYS_OP_INDEXER_LOSS), 0);
	while (suite_next(&run, &want))
		stream_loss(&data, &run);
	suite_end();
	loss_free(&data);
	assert_int_equal(suite_failures(), 0);
}

/* ---- all of them ---- */

#define SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

static bool has_ranges(const struct subject *subject)
{
	return subject->op != HYS_OP_ATTENTION_BACKWARD && subject->op != HYS_OP_INDEXER_LOSS;
}

int main(void)
{
	struct CMUnitTest tests[2 * SUBJECTS + 2];
	char names[SUBJECTS][64];
	size_t count = 0;

	for (size_t i = 0; i < SUBJECTS; i++) {
		void *subject = (void *)(uintptr_t)&subjects[i];

		tests[count++] = (struct CMUnitTest){.name = subjects[i].name,
						     .test_func = test_repeats,
						     .initial_state = subject};
		if (!has_ranges(&subjects[i]))
			continue;
		snprintf(names[i], sizeof(names[i]), "%s, in ranges", subjects[i].name);
		tests[count++] = (struct CMUnitTest){
			.name = names[i], .test_func = test_ranges, .initial_state = subject};
	}
	tests[count++] = (struct CMUnitTest){.name = "attention backward, in ranges",
					     .test_func = test_backward_in_ranges};
	tests[count++] = (struct CMUnitTest){.name = "indexer loss, in ranges",
					     .test_func = test_loss_in_ranges};
	if (getenv("HYS_TEST_FILTER"))
		cmocka_set_test_filter(getenv("HYS_TEST_FILTER"));
	return _cmocka_run_group_tests("determinism", tests, count, NULL, NULL);
}
