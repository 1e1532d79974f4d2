/* select, by hand: with one head of dim 1, q = 1 and identity the scores are the index keys. */
#include "selftest.h"

#include "oracle.h"
#include "oracle_internal.h"
#include "rng.h"

enum { SLOTS = 8 };

static const double ones[4] = {1.0, 1.0, 1.0, 1.0};

static struct ora_select simple(const double *scores, int64_t entries)
{
	return (struct ora_select){
		.scoring = {.rows = 1,
			    .entries = entries,
			    .heads = 1,
			    .dim = 1,
			    .activation = ORA_IDENTITY,
			    .scale = 1.0,
			    .index_q = ones,
			    .index_k = scores},
		.topk_max = SLOTS,
	};
}

/* Runs with room for `topk` and compares with a list that ends in -1. */
static int chooses(struct ora_select select, int32_t topk, const int32_t *expected)
{
	int32_t indices[SLOTS], count, wanted = 0;
	int same = 1;
	select.topk = &topk;
	select.indices = indices;
	select.counts = &count;
	ora_select(&select);
	while (expected[wanted] >= 0)
		wanted++;
	for (int32_t i = 0; i < SLOTS; i++)
		same &= indices[i] == (i < wanted ? expected[i] : -1);
	return same && count == wanted;
}

#define CHOOSES(select, topk, ...) CHECK(chooses(select, topk, (const int32_t[]){__VA_ARGS__, -1}))

static void check_order(void)
{
	const double nan = (double)NAN, infinity = (double)INFINITY;
	const double ties[] = {1.0, 2.0, 2.0, 2.0, 0.0, -0.0};
	CHOOSES(simple(ties, 6), 2, 1, 2);
	CHOOSES(simple(ties, 6), 5, 0, 1, 2, 3, 4);
	const double zeros[] = {-0.0, 0.0, -0.0};
	CHOOSES(simple(zeros, 3), 1, 0);
	const double odd[] = {nan, -infinity, nan, -infinity, 1.0};
	CHOOSES(simple(odd, 5), 2, 1, 4);
	CHOOSES(simple(odd, 5), 3, 1, 3, 4);
	CHOOSES(simple(odd, 5), 4, 0, 1, 3, 4);
	CHOOSES(simple(odd, 5), 8, 0, 1, 2, 3, 4);
	struct ora_select select = simple(odd, 5);
	double kth, scores[SLOTS];
	int32_t indices[SLOTS];
	select.kth = &kth;
	select.scores = scores;
	select.indices = indices;
	ora_select(&select);
	CHECK(select.nan_rows == 1 && kth == -infinity && scores[4] == 1.0 && scores[5] == 0.0);
	const int32_t five = 5;
	select.topk = &five;
	ora_select(&select);
	CHECK(isnan(kth));
	select.first_blocks = 5;
	ora_select(&select);
	CHECK(kth == -infinity);
	select.first_blocks = 0;
	const int32_t begin = 2, end = 2;
	select.scoring.index_begin = &begin;
	select.scoring.index_end = &end;
	ora_select(&select);
	CHECK(select.nan_rows == 0 && indices[0] == -1 && kth == -infinity);
}

static void check_forced(void)
{
	const double scores[] = {0, 9, 8, 7, 6, 5, 4, 3};
	struct ora_select select = simple(scores, 8);
	select.first_blocks = 1;
	select.local_blocks = 2;
	CHOOSES(select, 5, 0, 1, 2, 6, 7);
	CHOOSES(select, 3, 0, 6, 7);
	CHOOSES(select, 2, 6, 7);
	CHOOSES(select, 1, 7);
	select.first_blocks = 3;
	select.local_blocks = 1;
	CHOOSES(select, 3, 0, 1, 7);
	select.first_blocks = 6;
	select.local_blocks = 6;
	CHOOSES(select, 8, 0, 1, 2, 3, 4, 5, 6, 7);
	CHOOSES(select, 7, 0, 2, 3, 4, 5, 6, 7);
}

static void check_blocks(void)
{
	const double nan = (double)NAN;
	const double scores[] = {9, 1, 8, 2, 2, 3, 3, 0, nan, 2, nan, nan, 1, 9};
	struct ora_select select = simple(scores, 14);
	select.block = 3;
	CHOOSES(select, 1, 0);
	CHOOSES(select, 2, 0, 12);
	CHOOSES(select, 4, 0, 3, 6, 12);
	/* Entries 2..12 of a document that starts at 2: blocks 2, 5, 8, 11; the last is half visible. */
	const int32_t origin = 2, begin = 3, end = 13;
	select.scoring.entry_origin = &origin;
	select.scoring.index_begin = &begin;
	select.scoring.index_end = &end;
	CHOOSES(select, 1, 5);
	CHOOSES(select, 2, 2, 5);
	CHOOSES(select, 3, 2, 5, 8);
	select.local_blocks = 1;
	CHOOSES(select, 2, 5, 11);
	CHOOSES(select, 1, 11);
	select.first_blocks = 1;
	CHOOSES(select, 2, 2, 11);
	/* All visible entries of block 8 are NaN. */
	const int32_t late_begin = 10, late_end = 12;
	struct ora_select late = select;
	late.first_blocks = late.local_blocks = 0;
	late.scoring.index_begin = &late_begin;
	late.scoring.index_end = &late_end;
	CHOOSES(late, 1, 8);
	const double fallback[] = {nan, nan, 1.0};
	struct ora_select small = simple(fallback, 3);
	small.block = 2;
	CHOOSES(small, 1, 2);
}

static void check_groups_and_weights(void)
{
	/* Two heads: q = (1), (-1); keys 1, -2, 3. */
	const double q[] = {1.0, -1.0}, k[] = {1.0, -2.0, 3.0}, w[] = {2.0, -3.0};
	struct ora_scoring scoring = {.rows = 1,
				      .entries = 3,
				      .heads = 2,
				      .dim = 1,
				      .scale = 0.5,
				      .index_q = q,
				      .index_k = k};
	CHECK(ora_score(&scoring, 0, 0, k + 1) == 1.0 && ora_score(&scoring, 0, 0, k + 2) == 1.5);
	scoring.activation = ORA_IDENTITY;
	CHECK(ora_score(&scoring, 0, 0, k + 1) == 0.0);
	scoring.index_w = w;
	CHECK(ora_score(&scoring, 0, 0, k + 1) == -5.0 &&
	      ora_score_magnitude(&scoring, 0, 0, k + 1) == 5.0);
	scoring.groups = 2;
	CHECK(ora_score(&scoring, 0, 0, k + 1) == -2.0 && ora_score(&scoring, 0, 1, k + 1) == -3.0);
	const int32_t topk[] = {1, 2};
	int32_t indices[4], counts[2];
	struct ora_select select = {.scoring = scoring,
				    .topk_max = 2,
				    .topk = topk,
				    .indices = indices,
				    .counts = counts};
	ora_select(&select);
	CHECK(indices[0] == 2 && indices[1] == -1 && indices[2] == 0 && indices[3] == 2 &&
	      counts[0] == 1 && counts[1] == 2);
	CHECK(ora_select_scale_of_row(&select, 0, 0) == 3.0 &&
	      ora_select_scale_of_row(&select, 0, 1) == 4.5);
	const double not_a_number = (double)NAN;
	scoring.activation = ORA_RELU;
	CHECK(isnan(ora_score(&scoring, 0, 0, &not_a_number)));
}

void selftest_select(void)
{
	check_order();
	check_forced();
	check_blocks();
	check_groups_and_weights();
}

static int accepts(const struct ora_select *select, const int32_t *indices, double eps)
{
	char message[256] = "";
	int32_t count = 0;
	while (count < select->topk_max && indices[count] >= 0)
		count++;
	const struct ora_picks picks = {.indices = indices, .counts = &count};
	const int well = ora_select_judge(select, &picks, eps, message, sizeof message);
	CHECK(well == (message[0] == '\0'));
	return well;
}

#define ACCEPTS(select, eps, ...) accepts(select, (const int32_t[SLOTS]){__VA_ARGS__}, eps)

static void check_verdicts(void)
{
	const double scores[] = {5.0, 4.0, 4.0 - 1e-6, 3.0, 10.0};
	struct ora_select select = simple(scores, 5);
	select.topk_max = 3;
	CHECK(ACCEPTS(&select, 1e-5, 0, 1, 4) && ACCEPTS(&select, 1e-5, 0, 2, 4));
	CHECK(ACCEPTS(&select, 0.0, 0, 1, 4) && !ACCEPTS(&select, 0.0, 0, 2, 4));
	CHECK(!ACCEPTS(&select, 1e-5, 0, 3, 4));  /* below the tolerance */
	CHECK(!ACCEPTS(&select, 1e-5, 1, 2, 4));  /* 0 is missing */
	CHECK(!ACCEPTS(&select, 1e-5, 1, 0, 4));  /* order */
	CHECK(!ACCEPTS(&select, 1e-5, 0, 0, 4));  /* twice */
	CHECK(!ACCEPTS(&select, 1e-5, 0, 4, -1)); /* too few */
	CHECK(!ACCEPTS(&select, 1e-5, 0, -1, 4)); /* hole */
	CHECK(!ACCEPTS(&select, 1e-5, 0, 4, 5));  /* beyond the end */
	CHECK(!ACCEPTS(&select, 1e-5, 0, 4, -2));
	select.first_blocks = 4;
	CHECK(ACCEPTS(&select, 1e-5, 0, 1, 2) && !ACCEPTS(&select, 1e-5, 0, 1, 3));
	select.first_blocks = 0;
	select.local_blocks = 2;
	CHECK(ACCEPTS(&select, 1e-5, 0, 3, 4) && !ACCEPTS(&select, 1e-5, 0, 1, 4));
	const double even[] = {3.0, 3.0, 3.0, 0.0};
	struct ora_select forced = simple(even, 4);
	forced.topk_max = 2;
	forced.local_blocks = 1;
	CHECK(ACCEPTS(&forced, 1e-5, 1, 3) && !ACCEPTS(&forced, 1e-5, 0, 1));
	const int32_t wrong_count = 2, right[] = {0, 3, 4};
	const double own_scores[] = {5.0, 3.0, 10.0 + 1e-7}, kth = 5.0, bad_kth = 3.0;
	CHECK(ora_select_judge(&select, &(struct ora_picks){right, NULL, own_scores, &kth}, 1e-5,
			       NULL, 0));
	CHECK(!ora_select_judge(&select, &(struct ora_picks){right, NULL, own_scores, &kth}, 0.0,
				NULL, 0));
	CHECK(!ora_select_judge(&select, &(struct ora_picks){right, NULL, NULL, &bad_kth}, 1e-5,
				NULL, 0));
	CHECK(!ora_select_judge(&select, &(struct ora_picks){right, &wrong_count, NULL, NULL}, 1e-5,
				NULL, 0));
}

static void check_nan_verdicts(void)
{
	const double nan = (double)NAN;
	const double scores[] = {nan, 1.0, nan, 2.0};
	struct ora_select select = simple(scores, 4);
	select.topk_max = 3;
	CHECK(ACCEPTS(&select, 1e-5, 0, 1, 3) && !ACCEPTS(&select, 1e-5, 0, 1, 2));
	select.topk_max = 2;
	CHECK(ACCEPTS(&select, 1e-5, 1, 3) && !ACCEPTS(&select, 1e-5, 0, 3));
}

/* The oracle's own answer passes strictly, for random problems and every method. */
static void check_own_answers(void)
{
	enum { T = 12, E = 70, HI = 4, DI = 3, U = 2, K = 5 };
	double q[T * HI * DI], k[E * DI], w[T * HI], scores[T * U * K], kth[T * U];
	int32_t begin[T], end[T], origin[T], indices[T * U * K], counts[T * U];
	struct rng rng;
	rng_seed(&rng, 7);
	const enum ora_method methods[] = {ORA_EXACT, ORA_COARSE_TO_FINE, ORA_COARSE};
	for (int round = 0; round < 30; round++) {
		rng_fill_integers(&rng, q, T * HI * DI, -2, 3);
		rng_fill_integers(&rng, k, E * DI, -2, 3);
		rng_fill_normal(&rng, w, T * HI, 1.0);
		for (int t = 0; t < T; t++) {
			origin[t] = (int32_t)rng_range(&rng, 0, 9);
			begin[t] = (int32_t)rng_range(&rng, 0, 30);
			end[t] = (int32_t)rng_range(&rng, begin[t], E + 1);
		}
		struct ora_select select = {
			.scoring = {.rows = T,
				    .entries = E,
				    .heads = HI,
				    .dim = DI,
				    .groups = U,
				    .activation = round % 2 ? ORA_IDENTITY : ORA_RELU,
				    .scale = 1.0,
				    .index_q = q,
				    .index_k = k,
				    .index_w = w,
				    .index_begin = begin,
				    .index_end = end,
				    .entry_origin = origin},
			.block = round % 5 == 0 ? 4 : 1,
			.topk_max = K,
			.first_blocks = round % 3,
			.local_blocks = round % 4 / 2,
			.method = methods[round % 3],
			.coarse_block = 8,
			.coarse_keep = 2,
			.row_first = 2,
			.row_count = 9,
			.indices = indices,
			.counts = counts,
			.scores = scores,
			.kth = kth};
		ora_select(&select);
		const int64_t from = 2 * U;
		const struct ora_picks picks = {indices + from * K, counts + from,
						scores + from * K, kth + from};
		CHECK(ora_select_judge(&select, &picks, 0.0, NULL, 0) &&
		      ora_select_judge(&select, &picks, 1e-5, NULL, 0));
	}
}

void selftest_judge(void)
{
	check_verdicts();
	check_nan_verdicts();
	check_own_answers();
}

/* Entries 0..9 in coarse blocks of 2 with means 3, 1, 5, 2 and an incomplete last block when end = 9. */
static const double coarse_scores[] = {4, 2, 0, 2, 9, 1, 2, 2, 7, 7};

static struct ora_select coarse_case(enum ora_method method, const int32_t *end)
{
	struct ora_select select = simple(coarse_scores, 10);
	select.method = method;
	select.coarse_block = 2;
	select.coarse_keep = 2;
	select.scoring.index_end = end;
	return select;
}

static void check_coarse_to_fine(void)
{
	const int32_t end = 9, given[] = {2, 6, -1};
	int32_t kept[7];
	struct ora_candidate ranking[7];
	struct ora_select select = coarse_case(ORA_COARSE_TO_FINE, &end);
	CHECK(ora_coarse_rank(&select, 0, 0, ranking) == 4 && ranking[0].index == 4 &&
	      ranking[3].index == 2);
	CHECK(ora_coarse_kept(&select, 0, 0, kept) == 3 && kept[0] == 0 && kept[1] == 4 &&
	      kept[2] == 8);
	CHOOSES(select, 3, 0, 4, 8);
	CHOOSES(select, 8, 0, 1, 4, 5, 8);
	select.coarse_keep = 1;
	CHOOSES(select, 8, 4, 5, 8);
	select.local_blocks = 2;
	select.first_blocks = 1;
	CHECK(ora_coarse_kept(&select, 0, 0, kept) == 4 && kept[2] == 6);
	CHOOSES(select, 2, 4, 8);
	CHOOSES(select, 4, 0, 1, 4, 8);
	select.given_blocks = given;
	select.given_max = 3;
	select.first_blocks = select.local_blocks = 0;
	CHOOSES(select, 8, 2, 3, 6, 7, 8);
	/* block 2 in coarse blocks of 4: means 2, 3.5; entry 8 is the rest. */
	select = coarse_case(ORA_COARSE_TO_FINE, &end);
	select.block = 2;
	select.coarse_block = 4;
	select.coarse_keep = 1;
	CHOOSES(select, 8, 4, 6, 8);
	select.first_blocks = 1;
	CHOOSES(select, 2, 0, 4);
	CHOOSES(select, 8, 0, 2, 4, 6, 8);
}

static void check_coarse_alone(void)
{
	const int32_t end = 9, begin = 1;
	struct ora_select select = coarse_case(ORA_COARSE, &end);
	CHOOSES(select, 1, 8);
	CHOOSES(select, 2, 4, 8);
	CHOOSES(select, 3, 0, 4, 8);
	select.scoring.index_begin = &begin; /* block 0 is no longer whole */
	CHOOSES(select, 3, 4, 6, 8);
	select.first_blocks = 1;
	CHOOSES(select, 3, 0, 4, 8);
	CHOOSES(select, 2, 0, 8);
}

static void check_coarse_verdicts(void)
{
	const int32_t end = 9, own[] = {0, 4, 8, -1}, other[] = {4, 6, 8, -1},
		      no_last[] = {0, 4, -1, -1};
	struct ora_select select = coarse_case(ORA_COARSE_TO_FINE, &end);
	select.topk_max = 3;
	CHECK(ora_coarse_judge(&select, own, 4, 1e-5, NULL, 0) &&
	      !ora_coarse_judge(&select, other, 4, 1e-5, NULL, 0));
	CHECK(!ora_coarse_judge(&select, no_last, 4, 1e-5, NULL, 0));
	CHECK(ACCEPTS(&select, 1e-5, 0, 4, 8) && !ACCEPTS(&select, 1e-5, 4, 6, 8));
	/* With a wide tolerance block 6 may have been kept instead of block 0, but not block 2. */
	CHECK(ora_coarse_judge(&select, other, 4, 0.12, NULL, 0));
	CHECK(ACCEPTS(&select, 0.12, 0, 4, 8) && !ACCEPTS(&select, 0.12, 2, 4, 8));
	const double even[] = {3, 3, 0, 0, 3, 3, 3 - 1e-6, 3, 1, 1};
	select.scoring.index_k = even;
	select.topk_max = 5;
	CHECK(ACCEPTS(&select, 1e-5, 0, 1, 4, 5, 8) && !ACCEPTS(&select, 1e-5, 0, 1, 2, 4, 8));
	CHECK(ACCEPTS(&select, 1e-5, 0, 1, 6, 7, 8) && !ACCEPTS(&select, 0.0, 0, 1, 6, 7, 8));
}

void selftest_coarse(void)
{
	check_coarse_to_fine();
	check_coarse_alone();
	check_coarse_verdicts();
}
