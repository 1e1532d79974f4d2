/* Cuts over ranks: a partition of the rows, balanced, with what each rank needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cut.h"
#include "rng.h"

#define MILLION 1048576

static struct hys_problem problem_of(int32_t pool, int32_t block)
{
	struct hys_problem problem = {.struct_size = sizeof problem};

	problem.scoring.heads = 4;
	problem.scoring.dim = 16;
	problem.scoring.pool = pool;
	problem.scoring.block = block;
	problem.choosing.topk_max = 2048;
	problem.attending.heads = 4;
	problem.attending.head_dim = 16;
	problem.attending.granularity = pool > 1 ? 1 : block;
	return problem;
}

static struct hys_cut *cut_of(const struct hys_batch_desc *desc, int32_t ranks, hys_cut_way way,
			      int32_t pool, int32_t block)
{
	struct hys_problem problem = problem_of(pool, block);
	struct hys_cut_options options = {
		.struct_size = sizeof options, .ranks = ranks, .way = way};
	struct hys_error error = {0};
	struct hys_cut *cut = NULL;

	if (hys_cut_create(&problem, desc, &options, &cut, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return cut;
}

/* Lengths of rank i are total / (i + 1)^1.1, scaled, and in random order. */
static int32_t *zipf(int64_t total, int32_t documents, uint64_t seed)
{
	int32_t *cu = calloc((size_t)documents + 1, sizeof *cu);
	double *lengths = calloc((size_t)documents, sizeof *lengths), sum = 0;
	struct rng rng;

	rng_seed(&rng, seed);
	for (int32_t i = 0; i < documents; i++)
		sum += lengths[i] = pow(i + 1, -1.1);
	for (int32_t i = documents - 1; i > 0; i--) {
		const int32_t j = (int32_t)rng_range(&rng, 0, i + 1);
		const double kept = lengths[i];

		lengths[i] = lengths[j];
		lengths[j] = kept;
	}
	double at = 0;
	for (int32_t i = 0; i < documents; i++) {
		at += lengths[i] / sum * (double)total;
		cu[i + 1] = (int32_t)at;
	}
	cu[documents] = (int32_t)total;
	free(lengths);
	return cu;
}

struct spread {
	double pairs, rows, attended;
};

/* Most of a rank over the mean. */
static struct spread spread_of(const struct hys_cut *cut, const int32_t *cu, int32_t documents)
{
	const int32_t ranks = hys_cut_ranks(cut);
	double pairs = 0, pairs_most = 0, rows_most = 0, attended = 0, attended_most = 0;

	for (int32_t rank = 0; rank < ranks; rank++) {
		const struct hys_span *runs;
		const int32_t count = hys_cut_owned(cut, HYS_CUT_ROWS, rank, &runs);
		const double own = (double)hys_cut_key_pairs(cut, rank);
		double read = 0;
		int32_t d = 0;

		for (int32_t i = 0; i < count; i++)
			for (int64_t t = runs[i].first; t < runs[i].first + runs[i].count; t++) {
				while (d < documents - 1 && cu && t >= cu[d + 1])
					d++;
				read += fmin(2048, (double)(t + 1 - (cu ? cu[d] : 0)));
			}
		pairs += own;
		attended += read;
		pairs_most = fmax(pairs_most, own);
		attended_most = fmax(attended_most, read);
		rows_most = fmax(rows_most, (double)hys_cut_count(cut, HYS_CUT_ROWS, rank));
	}
	return (struct spread){pairs_most / pairs * ranks,
			       rows_most / (double)hys_cut_size(cut, HYS_CUT_ROWS) * ranks,
			       attended_most / attended * ranks};
}

static void test_balance(void **state)
{
	static const int32_t many[] = {64, 1024};

	(void)state;
	for (int32_t documents = 0; documents <= 10000; documents = documents ? documents * 10 : 10)
		for (int32_t i = 0; i < 2; i++) {
			int32_t *cu = documents ? zipf(MILLION, documents, 7) : NULL;
			struct hys_batch_desc desc = {.struct_size = sizeof desc,
						      .rows = MILLION,
						      .keys = MILLION,
						      .flags = HYS_BATCH_CAUSAL,
						      .documents = documents,
						      .cu_seqlens_q = cu};
			struct hys_cut *cut = cut_of(&desc, many[i], HYS_CUT_BALANCED, 1, 1);
			const struct spread spread = spread_of(cut, cu, documents);
			struct hys_cut *equal = cut_of(&desc, many[i], HYS_CUT_CONTIGUOUS, 1, 1);

			print_message(
				"%5d documents, %4d ranks: pairs %.4f rows %.4f attended %.4f; "
				"contiguous: pairs %.3f\n",
				documents, many[i], spread.pairs, spread.rows, spread.attended,
				spread_of(equal, cu, documents).pairs);
			assert_true(spread.pairs <= 1.02);
			assert_true(spread.rows <= 1.02);
			assert_true(spread.attended <= 1.05);
			hys_cut_destroy(cut);
			hys_cut_destroy(equal);
			free(cu);
		}
}

/* Every element has one owner. */
static void check_partition(const struct hys_cut *cut, hys_cut_part part)
{
	const int64_t size = hys_cut_size(cut, part);
	unsigned char *owned = calloc((size_t)size + 1, 1);
	int64_t sum = 0;

	for (int32_t rank = 0; rank < hys_cut_ranks(cut); rank++) {
		const struct hys_span *runs;
		const int32_t count = hys_cut_owned(cut, part, rank, &runs);
		int64_t last = -1, own = 0;

		for (int32_t i = 0; i < count; i++) {
			assert_true(runs[i].count > 0 && runs[i].first > last);
			last = runs[i].first + runs[i].count - 1;
			assert_true(last < size);
			own += runs[i].count;
			for (int64_t t = runs[i].first; t <= last; t++)
				assert_int_equal(owned[t]++, 0);
		}
		assert_int_equal(own, hys_cut_count(cut, part, rank));
		sum += own;
	}
	assert_int_equal(sum, size);
	free(owned);
}

/* All that is sent is received, and all that is needed is owned or received. */
static void check_traffic(const struct hys_cut *cut, hys_cut_part part)
{
	int64_t sent = 0, received = 0, messages = 0;
	const int32_t ranks = hys_cut_ranks(cut), slices = hys_cut_slices(cut);
	struct hys_flow *flows = calloc((size_t)ranks, sizeof *flows);
	int64_t *slots = calloc((size_t)ranks * (size_t)slices, sizeof *slots);

	for (int32_t rank = 0; rank < ranks; rank++)
		flows[rank].received = slots + rank * slices;
	assert_int_equal(hys_cut_flows(cut, part, flows, NULL), HYS_OK);
	for (int32_t rank = 0; rank < hys_cut_ranks(cut); rank++) {
		const struct hys_cut_traffic traffic = hys_cut_traffic(cut, part, rank);
		const struct hys_span *own, *need;
		const int32_t own_count = hys_cut_owned(cut, part, rank, &own);
		const int32_t need_count = hys_cut_needed(cut, part, rank, &need);
		int64_t wanted = 0;

		for (int32_t i = 0; i < need_count; i++)
			for (int64_t t = need[i].first; t < need[i].first + need[i].count; t++) {
				bool mine = false;
				for (int32_t j = 0; j < own_count; j++)
					mine |= t >= own[j].first &&
						t < own[j].first + own[j].count;
				wanted += !mine;
			}
		assert_int_equal(traffic.received, wanted);
		for (int32_t s = 0; s < slices; s++)
			wanted -= flows[rank].received[s];
		assert_int_equal(wanted, 0);
		assert_int_equal(traffic.sent, flows[rank].sent);
		assert_int_equal(traffic.messages_received, flows[rank].messages_in);
		assert_int_equal(traffic.messages_sent, flows[rank].messages_out);
		sent += traffic.sent;
		received += traffic.received;
		messages += traffic.messages_sent - traffic.messages_received;
	}
	assert_int_equal(sent, received);
	assert_int_equal(messages, 0);
	free(slots);
	free(flows);
}

static int64_t received_keys(const struct hys_cut *cut)
{
	int64_t received = 0;

	for (int32_t rank = 0; rank < hys_cut_ranks(cut); rank++)
		received += hys_cut_traffic(cut, HYS_CUT_KEYS, rank).received;
	return received;
}

/* Of documents of Zipf's lengths few are dealt, so most keys stay where they are,
 * and the ranks are as even as they must be. */
static void test_documents_stay_whole(void **state)
{
	static const struct {
		int32_t ranks, documents;
		double most; /* keys that travel, of all there are */
	} cases[] = {{2, 64, 0.4}, {3, 64, 0.7},   {4, 64, 0.9},
		     {8, 64, 2}, {2, 500, 0.35}, {4, 500, 0.8}};
	const int64_t tokens = 131072;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int32_t *cu = zipf(tokens, cases[i].documents, 3);
		struct hys_batch_desc desc = {.struct_size = sizeof desc,
					      .rows = tokens,
					      .keys = tokens,
					      .flags = HYS_BATCH_CAUSAL,
					      .documents = cases[i].documents,
					      .cu_seqlens_q = cu};
		struct hys_cut *cut = cut_of(&desc, cases[i].ranks, HYS_CUT_BALANCED, 1, 1);
		const struct spread spread = spread_of(cut, cu, cases[i].documents);
		const double travels = (double)received_keys(cut) / (double)tokens;

		print_message("%5d documents, %4d ranks: %.2f of the keys travel; pairs %.4f rows "
			      "%.4f attended %.4f\n",
			      cases[i].documents, cases[i].ranks, travels, spread.pairs,
			      spread.rows, spread.attended);
		assert_true(travels <= cases[i].most);
		assert_true(spread.pairs <= 1.0101);
		assert_true(spread.rows <= 1.0101);
		assert_true(spread.attended <= 1.0101);
		hys_cut_destroy(cut);
		free(cu);
	}
}

/* Those that can be shared out as they are need nothing of each other. */
static void test_documents_alike(void **state)
{
	int32_t cu[13];
	struct hys_batch_desc desc = {.struct_size = sizeof desc,
				      .rows = 1200,
				      .keys = 1200,
				      .flags = HYS_BATCH_CAUSAL,
				      .documents = 12,
				      .cu_seqlens_q = cu};

	(void)state;
	for (int32_t d = 0; d <= 12; d++)
		cu[d] = 100 * d;
	for (int32_t ranks = 2; ranks <= 4; ranks++) {
		struct hys_cut *cut = cut_of(&desc, ranks, HYS_CUT_BALANCED, 1, 1);

		assert_int_equal(received_keys(cut), 0);
		for (int32_t rank = 0; rank < ranks; rank++)
			assert_int_equal(hys_cut_count(cut, HYS_CUT_ROWS, rank), 1200 / ranks);
		hys_cut_destroy(cut);
	}
}

static const int32_t odd[] = {0, 1, 1, 20, 150, 151, 301, 310};
static const int32_t odd_keys[] = {0, 30, 32, 60, 260, 261, 500, 523};

static void test_partition(void **state)
{
	static const int32_t ranks[] = {1, 2, 3, 4, 7, 31, 400}, pools[] = {1, 4, 3};

	(void)state;
	for (int32_t way = 0; way < HYS_CUT_WAY_COUNT; way++)
		for (int32_t i = 0; i < 7; i++)
			for (int32_t p = 0; p < 3; p++)
				for (int32_t unlike = 0; unlike < 2; unlike++) {
					struct hys_batch_desc desc = {
						.struct_size = sizeof desc,
						.rows = 310,
						.keys = unlike ? 523 : 310,
						.flags = HYS_BATCH_CAUSAL,
						.documents = 7,
						.cu_seqlens_q = odd,
						.cu_seqlens_k = unlike ? odd_keys : NULL};
					struct hys_cut *cut =
						cut_of(&desc, ranks[i], (hys_cut_way)way, pools[p],
						       p == 2 ? 2 : 1);
					for (int32_t part = 0; part < HYS_CUT_PART_COUNT; part++) {
						check_partition(cut, (hys_cut_part)part);
						if (part != HYS_CUT_ROWS)
							check_traffic(cut, (hys_cut_part)part);
					}
					hys_cut_destroy(cut);
				}
}

/* Pools stay whole: their keys have the owner of their entry. */
static void test_pools(void **state)
{
	struct hys_batch_desc desc = {.struct_size = sizeof desc,
				      .rows = 310,
				      .keys = 310,
				      .flags = HYS_BATCH_CAUSAL,
				      .documents = 7,
				      .cu_seqlens_q = odd};

	(void)state;
	for (int32_t way = 0; way < HYS_CUT_WAY_COUNT; way++) {
		struct hys_cut *cut = cut_of(&desc, 4, (hys_cut_way)way, 4, 1);

		for (int32_t rank = 0; rank < 4; rank++) {
			const struct hys_span *runs;
			const int32_t count = hys_cut_owned(cut, HYS_CUT_KEYS, rank, &runs);
			int64_t pools = 0;

			for (int32_t i = 0; i < count; i++)
				for (int64_t t = runs[i].first; t < runs[i].first + runs[i].count;
				     t++)
					for (int32_t d = 0; d < 7; d++)
						if (t >= odd[d] && t + 4 <= odd[d + 1] &&
						    (t - odd[d]) % 4 == 0) {
							assert_true(t + 4 <=
								    runs[i].first + runs[i].count);
							pools++;
						}
			assert_int_equal(pools, hys_cut_count(cut, HYS_CUT_ENTRIES, rank));
		}
		hys_cut_destroy(cut);
	}
}

static void test_arguments(void **state)
{
	struct hys_problem problem = problem_of(1, 1);
	struct hys_batch_desc desc = {.struct_size = sizeof desc, .rows = 8, .keys = 8};
	struct hys_cut_options options = {.struct_size = sizeof options, .ranks = 2};
	struct hys_cut *cut = NULL;
	struct hys_error error;

	(void)state;
	assert_int_equal(hys_cut_create(NULL, &desc, &options, &cut, &error), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_cut_create(&problem, NULL, &options, &cut, &error),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_cut_create(&problem, &desc, &options, NULL, &error),
			 HYS_INVALID_ARGUMENT);
	options.ranks = 0;
	assert_int_equal(hys_cut_create(&problem, &desc, &options, &cut, &error),
			 HYS_INVALID_ARGUMENT);
	assert_non_null(strstr(error.message, "options.ranks"));
	options.ranks = 2;
	options.way = HYS_CUT_WAY_COUNT;
	assert_int_equal(hys_cut_create(&problem, &desc, &options, &cut, &error),
			 HYS_INVALID_ARGUMENT);
	assert_null(cut);
	assert_string_equal(hys_cut_way_name(HYS_CUT_ZIGZAG), "zigzag");
	assert_int_equal(hys_cut_ranks(NULL), 0);
	assert_int_equal(hys_cut_count(NULL, HYS_CUT_ROWS, 0), 0);
	hys_cut_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_balance),		cmocka_unit_test(test_documents_stay_whole),
		cmocka_unit_test(test_documents_alike), cmocka_unit_test(test_partition),
		cmocka_unit_test(test_pools),		cmocka_unit_test(test_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
