/* How rows are cut: by cost, in whole tiles, whatever the shapes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "partition.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define LANES 3
#include "lanes_fixture.h"

static int set_up(void **state)
{
	const struct hys_problem problem = {
		.struct_size = sizeof(problem),
		.scoring = {.heads = 4, .dim = 64},
		.choosing = {.topk_max = 512},
		.attending = {.heads = 8, .kv_heads = 1, .head_dim = 64},
	};
	struct fixture *f = make_fixture(NULL);

	plan_fixture(f, &problem, 1 << 17,
		     HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_ATTENTION_FORWARD) |
			     HYS_OP_BIT(HYS_OP_ATTENTION_BACKWARD));
	*state = f;
	return 0;
}

/* ---- batches ---- */

static struct hys_batch *causal(struct fixture *f, int64_t rows, int64_t keys)
{
	const struct hys_batch_desc desc = {
		.struct_size = sizeof(desc), .rows = rows, .keys = keys, .flags = HYS_BATCH_CAUSAL};
	struct hys_batch *batch = NULL;

	assert_int_equal(hys_batch_create(&f->plan.plan, &desc, &batch, NULL), HYS_OK);
	return batch;
}

/* Documents whose lengths fall as 1 over their rank. */
static struct hys_batch *zipf(struct fixture *f, int32_t rows, int32_t documents)
{
	int32_t *starts = calloc((size_t)documents + 1, sizeof(*starts));
	struct hys_batch_desc desc = {.struct_size = sizeof(desc),
				      .rows = rows,
				      .keys = rows,
				      .flags = HYS_BATCH_CAUSAL,
				      .documents = documents,
				      .cu_seqlens_q = starts};
	struct hys_batch *batch = NULL;
	double all = 0;

	for (int32_t d = 0; d < documents; d++)
		all += 1.0 / (1 + (d * 7) % documents);
	for (int32_t d = 0; d < documents; d++)
		starts[d + 1] = starts[d] + (int32_t)(rows / all / (1 + (d * 7) % documents));
	starts[documents] = rows;
	assert_int_equal(hys_batch_create(&f->plan.plan, &desc, &batch, NULL), HYS_OK);
	free(starts);
	return batch;
}

static double longest_over_mean(const struct hys_tiles *tiles, const struct hys_lane_cost *costs,
				int32_t lanes, const int64_t *begin)
{
	double longest = 0, sum = 0;

	for (int32_t i = 0; i < lanes; i++) {
		const double time_s = hys_lane_time_s(tiles, &costs[i], begin[i], begin[i + 1]);

		longest = fmax(longest, time_s);
		sum += time_s;
	}
	return longest / (sum / lanes);
}

/* ---- runs of tiles ---- */

static void expect_balanced(struct hys_batch *batch, hys_op op, const double *speeds)
{
	struct hys_tiles tiles = {.rows = hys_batch_rows(batch)};
	struct hys_lane_cost costs[LANES] = {{0}};
	int64_t begin[LANES + 1];
	double imbalance;

	tiles.flops_before = calloc((size_t)hys_tiles_of(tiles.rows) + 1, sizeof(double));
	hys_tiles_weigh_batch(&tiles, batch, op, 0);
	for (int32_t i = 0; i < LANES; i++)
		costs[i] = (struct hys_lane_cost){.fixed_s = 1e-5,
						  .row_s = 1e-9 / speeds[i],
						  .flop_s = 1e-10 / speeds[i],
						  .rows_most = tiles.rows};
	hys_partition_cut(&tiles, costs, LANES, begin);
	assert_int_equal(begin[0], 0);
	assert_int_equal(begin[LANES], tiles.count);
	for (int32_t i = 0; i < LANES; i++)
		assert_true(begin[i] <= begin[i + 1]);
	imbalance = longest_over_mean(&tiles, costs, LANES, begin);
	/* Of few rows a tile is much for a slow device. */
	if (imbalance > (tiles.rows > 30000 ? 1.01 : 1.08))
		fail_msg("%s: imbalance %g", hys_op_name(op), imbalance);
	free(tiles.flops_before);
}

static void test_balanced(void **state)
{
	struct fixture *f = *state;
	static const double speeds[][LANES] = {{1, 1, 1}, {1, 2, 4}, {30, 1, 2}};
	static const hys_op ops[] = {HYS_OP_SELECT, HYS_OP_ATTENTION_FORWARD};
	struct hys_batch *batches[] = {causal(f, 32768, 32768), causal(f, 4096, 100000),
				       zipf(f, 32768, 40)};

	for (size_t b = 0; b < COUNT(batches); b++) {
		for (size_t s = 0; s < COUNT(speeds); s++)
			for (size_t o = 0; o < COUNT(ops); o++)
				expect_balanced(batches[b], ops[o], speeds[s]);
		hys_batch_destroy(batches[b]);
	}
}

static void test_limits(void **state)
{
	struct hys_tiles tiles = {.rows = 100, .count = 7};
	struct hys_lane_cost costs[LANES] = {{0}};
	int64_t begin[LANES + 1];

	(void)state;
	tiles.flops_before = calloc(8, sizeof(double));
	for (int i = 0; i < 8; i++)
		tiles.flops_before[i] = i;
	for (int32_t i = 0; i < LANES; i++)
		costs[i] = (struct hys_lane_cost){.flop_s = 1, .rows_most = 100};
	costs[1].idle = true;
	hys_partition_cut(&tiles, costs, LANES, begin);
	assert_int_equal(begin[1], 4);
	assert_int_equal(begin[2], 4);
	/* memory for two tiles: the others do the rest */
	costs[1].idle = false;
	costs[0].rows_most = 40;
	hys_partition_cut(&tiles, costs, LANES, begin);
	assert_int_equal(begin[1], 2);
	assert_int_equal(begin[2], 5);
	/* what takes longer to reach than the rest needs */
	costs[0].fixed_s = 100;
	hys_partition_cut(&tiles, costs, LANES, begin);
	assert_int_equal(begin[1], 0);
	/* nobody may: the last that works must */
	for (int32_t i = 0; i < LANES; i++)
		costs[i].rows_most = 16;
	costs[2].idle = true;
	hys_partition_cut(&tiles, costs, LANES, begin);
	assert_int_equal(begin[2], 7);
	assert_int_equal(begin[3], 7);
	/* no rows */
	tiles.rows = tiles.count = 0;
	hys_partition_cut(&tiles, costs, LANES, begin);
	assert_int_equal(begin[3], 0);
	free(tiles.flops_before);
}

/* ---- several runs a lane ---- */

#define RANGES_MOST (HYS_STRIPES_MOST * HYS_LANES_MAX)

/* Each row once, in order, neighbours of different lanes; answers the imbalance by `costs`. */
static double expect_dealt(const struct hys_tiles *tiles, const struct hys_lane_cost *costs,
			   const struct hys_range *ranges, int32_t count)
{
	double times[LANES] = {0}, longest = 0, sum = 0;
	int64_t at = 0;

	for (int32_t r = 0; r < count; r++) {
		const int32_t lane = ranges[r].lane;
		const int64_t end = ranges[r].first + ranges[r].count;

		assert_int_equal(ranges[r].first, at);
		assert_true(ranges[r].count > 0);
		assert_true(end % HYS_ROW_TILE == 0 || end == tiles->rows);
		assert_true(r == 0 || ranges[r - 1].lane != lane);
		times[lane] +=
			hys_lane_time_s(tiles, &costs[lane], at / HYS_ROW_TILE, hys_tiles_of(end)) -
			(times[lane] > 0 ? costs[lane].fixed_s : 0);
		at = end;
	}
	assert_int_equal(at, tiles->rows);
	for (int32_t i = 0; i < LANES; i++) {
		longest = fmax(longest, times[i]);
		sum += times[i];
	}
	return longest / (sum / LANES);
}

/* Where rows cost more than the plan knows, several runs a lane come out more even than one. */
static void test_dealt(void **state)
{
	struct fixture *f = *state;
	struct hys_batch *batch = causal(f, 32760, 32760);
	struct hys_tiles tiles = {.rows = 32760};
	struct hys_lane_cost costs[LANES], real[LANES];
	struct hys_range ranges[RANGES_MOST];
	int32_t count;
	double all_s;

	tiles.flops_before = calloc((size_t)hys_tiles_of(tiles.rows) + 1, sizeof(double));
	hys_tiles_weigh_batch(&tiles, batch, HYS_OP_SELECT, 0);
	all_s = 1e-12 * tiles.flops_before[tiles.count];
	for (int32_t i = 0; i < LANES; i++) {
		costs[i] = (struct hys_lane_cost){.fixed_s = 1e-6 * all_s,
						  .again_s = 1e-6 * all_s,
						  .flop_s = 1e-12 * (i + 1),
						  .rows_most = tiles.rows};
		real[i] = costs[i];
		real[i].row_s = 0.5 * (i + 1) * all_s / (double)tiles.rows;
	}
	count = hys_partition_deal(&tiles, costs, LANES, ranges);
	assert_true(count > 2 * LANES);
	assert_true(expect_dealt(&tiles, costs, ranges, count) < 1.02);
	assert_true(expect_dealt(&tiles, real, ranges, count) < 1.08);
	/* runs that cost much, or that are not wanted: one each */
	for (int32_t i = 0; i < LANES; i++)
		costs[i].again_s = (double)INFINITY;
	count = hys_partition_deal(&tiles, costs, LANES, ranges);
	assert_int_equal(count, LANES);
	assert_true(expect_dealt(&tiles, costs, ranges, count) < 1.02);
	assert_true(expect_dealt(&tiles, real, ranges, count) > 1.15);
	/* so, too, where memory is short, and without whoever is idle */
	for (int32_t i = 0; i < LANES; i++)
		costs[i].again_s = 0;
	costs[2].rows_most = 160;
	count = hys_partition_deal(&tiles, costs, LANES, ranges);
	assert_int_equal(count, LANES);
	assert_int_equal(ranges[2].count, 152);
	costs[0].idle = costs[2].idle = true;
	count = hys_partition_deal(&tiles, costs, LANES, ranges);
	assert_int_equal(count, 1);
	assert_int_equal(ranges[0].lane, 1);
	free(tiles.flops_before);
	hys_batch_destroy(batch);
}

/* ---- indices count ---- */

static void test_used_slots(void **state)
{
	struct fixture *f = *state;
	struct hys_batch *batch = causal(f, 64, 4096);
	struct hys_task task = {.batch = batch};
	struct hys_tiles tiles = {.rows = 64}, batch_tiles = {.rows = 64};
	int32_t *slots = malloc((size_t)64 * 512 * sizeof(*slots));
	double full;

	tiles.flops_before = calloc(5, sizeof(double));
	batch_tiles.flops_before = calloc(5, sizeof(double));
	for (int32_t t = 0; t < 64; t++)
		for (int32_t i = 0; i < 512; i++)
			slots[t * 512 + i] = i < (t < 16 ? 512 : t < 32 ? 16 : 0) ? i : -1;
	task.call.op = HYS_OP_ATTENTION_FORWARD;
	task.call.size.rows = 64;
	task.call.args.attention.indices = hys_host(slots, HYS_I32, 3, 64, 1, 512);
	task.call.args.attention.indices.stride[0] = 512;
	task.call.args.attention.indices.stride[1] = 512;
	hys_tiles_weigh(&tiles, &task);
	hys_tiles_weigh_batch(&batch_tiles, batch, HYS_OP_ATTENTION_FORWARD, 0);
	full = batch_tiles.flops_before[1];
	assert_true(full > 0 && batch_tiles.flops_before[4] == 4 * full);
	assert_true(tiles.flops_before[1] == full);
	assert_true(tiles.flops_before[2] == full + full * 16 / 512);
	assert_true(tiles.flops_before[4] == tiles.flops_before[2]);
	free(tiles.flops_before);
	free(batch_tiles.flops_before);
	free(slots);
	hys_batch_destroy(batch);
}

/* ---- ranges of a batch ---- */

static double speeds[LANES] = {1, 1, 1};

static double sum_of_speeds(const struct hys_batch *batch)
{
	double sum = 0;

	for (int32_t i = 0; i < batch->plan->device_count; i++)
		sum += speeds[i];
	return sum;
}

static double worst_of(struct hys_batch *batch, hys_op op)
{
	struct hys_tiles tiles = {.rows = hys_batch_rows(batch)};
	double loads[LANES] = {0}, all, most = 0;

	tiles.flops_before = calloc((size_t)hys_tiles_of(tiles.rows) + 1, sizeof(double));
	hys_tiles_weigh_batch(&tiles, batch, op, 0);
	all = tiles.flops_before[tiles.count];
	for (int32_t i = 0; i < batch->range_count; i++) {
		const struct hys_range *range = &batch->ranges[i];

		loads[range->lane] +=
			tiles.flops_before[hys_tiles_of(range->first + range->count)] -
			tiles.flops_before[range->first / HYS_ROW_TILE];
	}
	for (int32_t i = 0; i < batch->plan->device_count; i++)
		most = fmax(most, loads[i] / all / speeds[i] * sum_of_speeds(batch));
	free(tiles.flops_before);
	return most;
}

static void expect_ranges(struct hys_batch *batch, double most)
{
	int64_t next = 0;

	for (int32_t i = 0; i < batch->range_count; i++) {
		assert_int_equal(batch->ranges[i].first, next);
		assert_true(batch->ranges[i].count > 0);
		assert_in_range(batch->ranges[i].lane, 0, batch->plan->device_count - 1);
		next += batch->ranges[i].count;
	}
	assert_int_equal(next, hys_batch_rows(batch));
	for (hys_op op = HYS_OP_SELECT; op <= HYS_OP_ATTENTION_BACKWARD; op++)
		if (batch->plan->operations & HYS_OP_BIT(op) && worst_of(batch, op) > most)
			fail_msg("%s: %d ranges, the fullest device has %g of its share",
				 hys_op_name(op), batch->range_count, worst_of(batch, op));
	hys_batch_destroy(batch);
}

/* Both selection, which grows with what a row sees, and attention, which stops
 * growing, at once. */
static void test_ranges(void **state)
{
	struct fixture *f = *state;

	for (int32_t i = 0; i < LANES * HYS_OP_COUNT; i++)
		f->plan.paces[i] = (struct hys_pace){.flop_s = 1e-12};
	for (int32_t lanes = 2; lanes <= LANES; lanes++) {
		f->plan.plan.device_count = lanes;
		expect_ranges(causal(f, 32768, 32768), 1.02);
		expect_ranges(causal(f, 131072, 131072), 1.01);
		expect_ranges(zipf(f, 32768, 40), 1.03);
		expect_ranges(zipf(f, 131072, 300), 1.02);
		expect_ranges(zipf(f, 32768, 8), 1.03);
		expect_ranges(causal(f, 1, 100), 3);
		expect_ranges(causal(f, 100, 100), 3);
		expect_ranges(causal(f, 0, 100), 3);
	}
}

/* Rows that keep all they see are no work, and cost little beside, for kernels that leave them
 * out. */
static void test_rows_that_keep_all(void **state)
{
	struct fixture *f = *state;
	struct hys_kernel *kernel = &f->kernels[HYS_OP_SELECT], other;
	struct hys_batch *batch;
	struct hys_tiles tiles = {.rows = 4096};
	const int64_t kept = 512 / HYS_ROW_TILE;
	const struct hys_lane_cost cost = {.row_s = 1};
	double sums[2][257];

	kernel->keeps_unscored = true;
	batch = causal(f, 4096, 4096);
	tiles.flops_before = sums[0];
	tiles.rows_before = sums[1];
	hys_tiles_weigh_batch(&tiles, batch, HYS_OP_SELECT, 0);
	assert_int_equal(tiles.count, 256);
	assert_true(sums[0][kept] == 0 && sums[0][kept + 1] > 0);
	assert_true(sums[1][kept] < 512 / 4.0 && sums[1][kept] > 0);
	assert_true(fabs(sums[1][kept + 1] - sums[1][kept] - HYS_ROW_TILE) < 1e-9);
	assert_true(fabs(hys_lane_time_s(&tiles, &cost, kept, 256) - (4096 - 512)) < 1e-9);
	assert_true(batch->flops_before[HYS_OP_SELECT][kept] == 0);
	assert_true(batch->rows_before[HYS_OP_SELECT][256] == sums[1][256]);
	hys_tiles_weigh_batch(&tiles, batch, HYS_OP_ATTENTION_FORWARD, 0);
	assert_true(sums[0][1] > 0 && sums[1][256] == 4096);
	other = *kernel; /* of one device, which counts unless it is idle */
	other.keeps_unscored = false;
	f->plan.choices[HYS_OP_COUNT + HYS_OP_SELECT].kernel = &other;
	hys_tiles_weigh_batch(&tiles, batch, HYS_OP_SELECT, 0);
	assert_true(sums[0][1] > 0 && sums[1][256] == 4096);
	hys_plan_pace(&f->plan.plan, HYS_OP_SELECT, 1)->idle = true;
	hys_tiles_weigh_batch(&tiles, batch, HYS_OP_SELECT, 0);
	assert_true(sums[0][kept] == 0 && sums[1][256] < 4096);
	f->plan.plan.split = HYS_SPLIT_EQUAL; /* by number */
	hys_tiles_weigh_batch(&tiles, batch, HYS_OP_SELECT, 0);
	assert_true(sums[1][256] == 4096);
	hys_batch_destroy(batch);
}

/* Device 0's part of what rows cost beside their work. */
static double part_of_rows(const struct hys_batch *batch)
{
	const double *rows = batch->rows_before[HYS_OP_SELECT];
	double part = 0;

	for (int32_t i = 0; i < batch->range_count; i++) {
		const struct hys_range *range = &batch->ranges[i];

		if (range->lane == 0)
			part += rows[hys_tiles_of(range->first + range->count)] -
				rows[range->first / HYS_ROW_TILE];
	}
	return part / rows[hys_tiles_of(hys_batch_rows(batch))];
}

/* What a row takes beside its work is not known so well that one device gets the rows and another
 * the work; nor do few heavy tiles keep all units busy. The paces are those of an H200. */
static void test_rows_and_work(void **state)
{
	struct fixture *f = *state;
	struct hys_problem *problem = &f->plan.plan.problem;

	f->plan.plan.device_count = 2;
	f->plan.plan.operations =
		HYS_OP_BIT(HYS_OP_SELECT) | HYS_OP_BIT(HYS_OP_SELECT_COARSE_TO_FINE);
	f->kernels[HYS_OP_SELECT].gaps = true;
	problem->scoring.heads = 64;
	problem->scoring.dim = 128;
	problem->choosing.topk_max = 2048;
	problem->choosing.coarse_block = 128;
	problem->choosing.coarse_keep = 64;
	for (int32_t i = 0; i < 2; i++) {
		*hys_plan_pace(&f->plan.plan, HYS_OP_SELECT, i) =
			(struct hys_pace){.call_s = 5e-5, .row_s = 6e-8, .flop_s = 1.5e-15};
		*hys_plan_pace(&f->plan.plan, HYS_OP_SELECT_COARSE_TO_FINE, i) =
			(struct hys_pace){.call_s = 5e-5, .row_s = 5e-8, .flop_s = 2.8e-15};
	}
	for (int32_t documents = 4; documents < 20; documents++) {
		struct hys_batch *batch = zipf(f, 32768, documents);
		const double part = part_of_rows(batch);

		if (!(fabs(part - 0.5) <= 0.05))
			fail_msg("%d documents: one of two devices has %g of the rows", documents,
				 part);
		expect_ranges(batch, 1.06);
	}
}

static void take_each(struct fixture *f, double noise, double first, double second, double third)
{
	const double each[LANES] = {first, second, third}, noises[LANES] = {1, noise, 1};

	for (int32_t i = 0; i < LANES; i++)
		*hys_plan_pace(&f->plan.plan, HYS_OP_SELECT, i) =
			(struct hys_pace){.flop_s = each[i] * 1e-12};
	hys_paces_even_out(&f->plan.plan, HYS_OP_SELECT, 0, noises);
}

static double taken(struct fixture *f, int32_t i)
{
	return 1e12 * hys_plan_pace(&f->plan.plan, HYS_OP_SELECT, i)->flop_s;
}

/* Each is measured; what differs by chance does not tell devices of one name apart. */
static void test_namesakes(void **state)
{
	struct fixture *f = *state;

	take_each(f, 1, 1, 1.04, 1.02);
	for (int32_t i = 0; i < LANES; i++)
		assert_true(fabs(taken(f, i) - 1.02) < 1e-9);
	take_each(f, 1, 1, 1.12, 1);
	assert_true(taken(f, 0) == 1 && taken(f, 1) > 1.11 && taken(f, 2) == 1);
	/* Others disturb them: so much more is chance. */
	take_each(f, 1.3, 1, 1.12, 1);
	for (int32_t i = 0; i < LANES; i++)
		assert_true(fabs(taken(f, i) - 1.04) < 1e-9);
	take_each(f, 1.3, 1, 1.3, 1);
	assert_true(taken(f, 0) == 1 && taken(f, 1) > 1.29);
	snprintf(f->devices[2].base.info.name, sizeof(f->devices[2].base.info.name), "other");
	take_each(f, 1, 1, 1.04, 3);
	assert_true(fabs(taken(f, 0) - 1.02) < 1e-9 && fabs(taken(f, 1) - 1.02) < 1e-9);
	assert_true(taken(f, 2) > 2.9);
}

/* Of all operations alike, whatever part of the rows that is in one run. */
static void test_ranges_of_unequal_devices(void **state)
{
	struct fixture *f = *state;

	for (int32_t i = 0; i < LANES; i++) {
		speeds[i] = 1 << i;
		for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
			f->plan.paces[i * HYS_OP_COUNT + op] =
				(struct hys_pace){.flop_s = 1e-12 / speeds[i]};
			f->plan.shares[i * HYS_OP_COUNT + op] = i == 0;
		}
	}
	expect_ranges(causal(f, 131072, 131072), 1.05);
	expect_ranges(zipf(f, 131072, 300), 1.05);
	for (int32_t i = 0; i < LANES; i++)
		speeds[i] = 1;
}

/* A call takes time of its own: two devices need three runs of rows, not more. */
static void test_few_ranges(void **state)
{
	struct fixture *f = *state;

	f->plan.plan.device_count = 2;
	for (int32_t i = 0; i < LANES * HYS_OP_COUNT; i++)
		f->plan.paces[i] = (struct hys_pace){.flop_s = 1e-12, .call_s = 1e-4};
	struct hys_batch *batch = causal(f, 131072, 131072);

	assert_int_equal(batch->range_count, 3);
	expect_ranges(batch, 1.02);
}

/* One that is no help gets none of calls that take longer than what says so, either. */
static void test_a_device_that_is_no_help(void **state)
{
	struct fixture *f = *state;
	const struct hys_pace slow = {.flop_s = 1e-9};
	const int op = HYS_OP_SELECT;

	for (int32_t i = 0; i < LANES; i++)
		*hys_plan_pace(&f->plan.plan, op, i) = slow;
	hys_plan_pace(&f->plan.plan, op, 1)->call_s = HYS_NEVER_S;
	assert_int_equal(hys_partition_plan(&f->plan.plan, false, NULL), HYS_OK);
	assert_true(f->plan.plan.shares[HYS_OP_COUNT + op] == 0);
	assert_true(hys_plan_pace(&f->plan.plan, op, 1)->idle);
	assert_true(f->plan.plan.shares[op] > 0 && f->plan.plan.shares[2 * HYS_OP_COUNT + op] > 0);
}

/* One without memory for any row gets none. */
static void test_a_device_that_cannot(void **state)
{
	struct fixture *f = *state;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		f->plan.paces[HYS_OP_COUNT + op].idle = true;
	struct hys_batch *batch = causal(f, 32768, 32768);

	for (int32_t i = 0; i < batch->range_count; i++)
		assert_int_not_equal(batch->ranges[i].lane, 1);
	hys_batch_destroy(batch);
}

/* What the batch keeps is what weighing says, wherever a call begins and ends. */
static void test_kept_weights(void **state)
{
	static const struct {
		int64_t first, rows;
	} calls[] = {{0, 32768}, {4096, 8192}, {16, 100}, {4096, 1}, {32752, 16}, {32760, 8}};
	struct fixture *f = *state;
	struct hys_batch *batch = zipf(f, 32768, 8);
	struct hys_tiles kept = {0}, weighed = {0};
	struct hys_task task = {.batch = batch};

	kept.flops_before = calloc(2049, sizeof(double));
	weighed.flops_before = calloc(2049, sizeof(double));
	task.call.op = HYS_OP_SELECT;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		kept.rows = weighed.rows = calls[i].rows;
		task.call.row_first = calls[i].first;
		hys_tiles_weigh(&kept, &task);
		hys_tiles_weigh_batch(&weighed, batch, HYS_OP_SELECT, calls[i].first);
		assert_int_equal(kept.count, weighed.count);
		for (int64_t t = 0; t <= kept.count; t++) /* within a tile evenly */
			assert_true(fabs(kept.flops_before[t] - weighed.flops_before[t]) <=
				    (t < kept.count ? 1e-9 : 0.1) *
					    weighed.flops_before[weighed.count]);
	}
	free(kept.flops_before);
	free(weighed.flops_before);
	hys_batch_destroy(batch);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_balanced),
		TEST(test_limits),
		TEST(test_dealt),
		TEST(test_used_slots),
		TEST(test_ranges),
		TEST(test_ranges_of_unequal_devices),
		TEST(test_few_ranges),
		TEST(test_a_device_that_is_no_help),
		TEST(test_a_device_that_cannot),
		TEST(test_kept_weights),
		TEST(test_rows_that_keep_all),
		TEST(test_rows_and_work),
		TEST(test_namesakes),
	};

	return cmocka_run_group_tests_name("partition", tests, NULL, NULL);
}
