#include "problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS_MOST 32 /* kernel rows of one operation */

void problem_begin(struct problem_bytes *bytes, const uint8_t *data, size_t size)
{
	*bytes = (struct problem_bytes){
		.at = data, .left = size, .seed = hys_hash(hys_hash_start, data, size)};
}

int32_t problem_pick(struct problem_bytes *bytes, int32_t choices)
{
	if (bytes->left == 0)
		return 0;
	bytes->left--;
	return *bytes->at++ % choices;
}

bool problem_flag(struct problem_bytes *bytes)
{
	return problem_pick(bytes, 2) == 1;
}

int32_t problem_size(struct problem_bytes *bytes, int32_t most)
{
	static const int32_t edges[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65};
	const int32_t at = problem_pick(bytes, 28);

	if (at < 14)
		return edges[at] < most ? edges[at] : most;
	return 1 + problem_pick(bytes, most);
}

unsigned problem_features(struct problem_bytes *bytes, unsigned features)
{
	unsigned chosen = 0;

	for (unsigned bit = 1; bit <= features; bit <<= 1)
		if ((features & bit) && problem_flag(bytes))
			chosen |= bit;
	return chosen;
}

static void draw_documents(struct problem_bytes *bytes, struct visible_spec *spec)
{
	const int32_t documents = problem_pick(bytes, 5);

	for (int32_t d = 0; d < documents; d++) {
		bytes->q_lengths[d] = problem_pick(bytes, 12);
		bytes->k_lengths[d] = problem_pick(bytes, 30);
	}
	bytes->q_lengths[documents] = bytes->k_lengths[documents] = -1;
	if (documents > 0)
		spec->q_lengths = bytes->q_lengths;
	if (documents > 0 && problem_flag(bytes))
		spec->k_lengths = bytes->k_lengths;
}

struct visible_spec problem_visible(struct problem_bytes *bytes)
{
	struct visible_spec spec = {
		.rows = problem_size(bytes, 40) - problem_flag(bytes),
		.keys = problem_size(bytes, 90) - problem_flag(bytes),
		.full = problem_flag(bytes),
	};

	if (problem_flag(bytes))
		spec.window = problem_size(bytes, 40);
	spec.how = (enum visible_how)problem_pick(bytes, 3);
	draw_documents(bytes, &spec);
	return spec;
}

static int32_t count_rows(const struct visible_spec *visible)
{
	int32_t rows = 0;

	if (!visible->q_lengths)
		return visible->rows;
	for (int32_t d = 0; visible->q_lengths[d] >= 0; d++)
		rows += visible->q_lengths[d];
	return rows;
}

unsigned problem_range(const struct visible_spec *visible, unsigned features, unsigned range,
		       unsigned range_cut)
{
	if (count_rows(visible) < 3)
		return features & ~(range | range_cut);
	return features & range ? features & ~range_cut : features;
}

void problem_name(struct suite_case *about, const struct problem_bytes *bytes)
{
	snprintf(about->name, sizeof(about->name), "fuzz %016" PRIx64, bytes->seed);
	about->flags = SUITE_CORE;
}

/* ---- what is tried ---- */

/* Of each kernel row, in the order in which they are gone through. */
struct answers {
	struct subject_answer of[ROWS_MOST];
	int32_t count;
};

/* The first time keeps the answers, the others compare. */
static void go_through(const struct subject *subject, const union subject_data *data,
		       const struct suite_want *want, struct answers *answers, int32_t threads)
{
	struct suite_run run = {0};

	for (int32_t row = 0; suite_next(&run, want) && row < ROWS_MOST; row++) {
		struct subject_answer answer = subject_run(subject, data, &run);

		if (row == answers->count) {
			answers->of[answers->count++] = answer;
			continue;
		}
		subject_compare(&run, &answer, &answers->of[row], "with threads:", threads);
		free(answer.bytes);
	}
}

static void judge_all(const struct subject *subject, const union subject_data *data,
		      const struct suite_want *want, unsigned placement)
{
	struct suite_run run = {0};

	while (suite_next(&run, want))
		subject->kind->judge(data, &run, placement);
}

/* The library's word on it; a refusal has a message. */
static bool is_legal(const struct suite_want *want)
{
	struct hys_problem problem = *want->problem;
	struct hys_error error = {HYS_OK, 0, ""};

	if (hys_problem_complete(&problem, &error) == HYS_OK)
		return true;
	if (!error.message[0])
		abort();
	return false;
}

void problem_try(const struct subject *subject, struct problem_bytes *bytes)
{
	static struct suite *one, *several;
	const unsigned placement =
		suite_placements.flags[problem_pick(bytes, suite_placements.count)];
	struct answers answers = {.count = 0};
	union subject_data data;
	struct suite_want want;

	if (!one) {
		one = suite_begin(SUITE_KERNELS, UINT32_MAX, 1);
		several = suite_begin(SUITE_KERNELS, UINT32_MAX, 3);
	}
	subject->kind->make(&data, subject);
	want = subject->kind->want(&data);
	if (is_legal(&want)) {
		suite_use(one);
		judge_all(subject, &data, &want, placement);
		go_through(subject, &data, &want, &answers, 1);
		suite_use(several);
		go_through(subject, &data, &want, &answers, 3);
	}
	subject->kind->release(&data);
	for (int32_t i = 0; i < answers.count; i++)
		free(answers.of[i].bytes);
	if (suite_failures() > 0)
		abort();
}
