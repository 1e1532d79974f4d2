/* A batch's ranges: whose rows of replicated buffers are whose. They are the same
 * for all operations, since rows stay where they were computed, and operations
 * cost differently: so each device gets several, from all over the batch, such
 * that every operation by itself is shared as devices are fast. Unless a kernel
 * takes all at once, each range is a call of its own, and what a call takes
 * counts: the fewest that balance. */
#include <math.h>

#include "partition.h"

/* Ranges a device that are tried, the fewest first, and what is good enough:
 * the fullest device's time over that of perfect shares. */
static const int32_t ranges_tried[] = {2, 3, 4, 6, 8};
#define TRIES ((int32_t)(sizeof(ranges_tried) / sizeof(ranges_tried[0])))
#define GOOD_ENOUGH 1.01
/* Exchanges are tried for all pairs of so many ranges at most. */
#define EXCHANGED_MOST 64
/* Moves of all ends by one step; as many as help, but not for ever. */
#define PASSES_MOST 32
/* Equal parts of rows keep shares right where a measured pace is not. */
#define WEIGHT_OF_ROWS 0.1
/* By so much what rows cost may be wrong beside their work. */
#define UNSURE 0.3

/* What part of the time of perfect shares a device takes for the whole work, for
 * all rows, for a call. */
struct measure {
	const double *before; /* [tiles + 1] of the operation's work; NULL = none */
	const double *rows_before;
	double weight, work[HYS_LANES_MAX], rows[HYS_LANES_MAX], call[HYS_LANES_MAX];
	bool joins[HYS_LANES_MAX]; /* all ranges are one call */
};

struct division {
	int32_t count;			     /* of ranges */
	int64_t begin[HYS_BATCH_RANGES + 1]; /* tiles */
	int32_t lane[HYS_BATCH_RANGES];	     /* among those that work */
};

struct spread {
	struct hys_batch *batch;
	int64_t tiles;
	int32_t devices, numbers[HYS_LANES_MAX]; /* that work at all */
	int32_t measure_count;			 /* the last one is of rows alone */
	struct measure measures[HYS_OP_COUNT + 1];
	struct division now, best;
};

/* ---- what operations cost ---- */

static bool is_spread(const struct hys_plan *plan, int32_t op)
{
	return plan->operations & HYS_OP_BIT(op) && !hys_is_pooling((hys_op)op);
}

/* Devices that have no memory for rows, or nothing to do. If all are so, all work. */
static void find_devices(struct spread *spread)
{
	const struct hys_plan *plan = spread->batch->plan;

	for (int32_t d = 0; d < plan->device_count; d++) {
		bool idle = true;

		for (int32_t op = 0; op < HYS_OP_COUNT; op++)
			if (is_spread(plan, op))
				idle = idle && hys_plan_pace(plan, (hys_op)op, d)->idle;
		if (!idle)
			spread->numbers[spread->devices++] = d;
	}
	if (spread->devices > 0)
		return;
	for (int32_t d = 0; d < plan->device_count; d++)
		spread->numbers[spread->devices++] = d;
}

/* Devices share the work as fast as they do it. */
static void measure(struct spread *spread, hys_op op)
{
	const struct hys_plan *plan = spread->batch->plan;
	const double rows = spread->batch->rows_before[op][spread->tiles];
	struct measure *own = &spread->measures[spread->measure_count++];
	double flops, perfect_s, rates = 0;

	own->before = spread->batch->flops_before[op];
	own->rows_before = spread->batch->rows_before[op];
	own->weight = 1;
	flops = own->before[spread->tiles];
	for (int32_t d = 0; d < spread->devices; d++) {
		const struct hys_pace *pace = hys_plan_pace(plan, op, spread->numbers[d]);

		own->work[d] = fmax(pace->flop_s * flops, 1e-12);
		own->rows[d] = pace->row_s * rows;
		own->call[d] = HYS_CALL_BEHIND * pace->call_s;
		own->joins[d] = hys_plan_choice(plan, op, spread->numbers[d])->kernel->gaps;
		rates += 1 / (own->work[d] + own->rows[d]);
	}
	perfect_s = 1 / rates;
	for (int32_t d = 0; d < spread->devices; d++) {
		own->work[d] /= perfect_s;
		own->rows[d] /= perfect_s;
		own->call[d] /= perfect_s;
	}
}

/* As many rows as a device is fast, in the mean of the operations. */
static void measure_rows(struct spread *spread)
{
	struct measure *own = &spread->measures[spread->measure_count];

	own->weight = WEIGHT_OF_ROWS;
	for (int32_t d = 0; d < spread->devices; d++) {
		double share = 0;

		for (int32_t n = 0; n < spread->measure_count; n++)
			share += 1 / (spread->measures[n].work[d] + spread->measures[n].rows[d]);
		own->rows[d] = (spread->measure_count + 1e-12) / (share + 1e-12);
	}
	spread->measure_count++;
}

/* ---- how good a division is ---- */

/* Part of a sum before a tile, 0 to 1; of operations without, of the number of tiles. */
static double part_before(const struct spread *spread, const double *sums, int64_t tile)
{
	if (sums && sums[spread->tiles] > 0)
		return sums[tile] / sums[spread->tiles];
	return (double)tile / (double)hys_max64(spread->tiles, 1);
}

/* Calls: ranges behind each other are one. */
static void count_calls(const struct division *division, double *calls)
{
	int32_t last = -1;

	for (int32_t r = 0; r < division->count; r++) {
		if (division->begin[r] == division->begin[r + 1])
			continue;
		calls[division->lane[r]] += division->lane[r] != last;
		last = division->lane[r];
	}
}

/* Of one operation: how far from perfect all devices are, and how far above it the fullest is
 * at worst. */
static double judge(const struct spread *spread, const struct measure *own, const double *calls,
		    double *fullest)
{
	const struct division *division = &spread->now;
	double work[HYS_LANES_MAX] = {0}, rows[HYS_LANES_MAX] = {0}, sum = 0;

	for (int32_t r = 0; r < division->count; r++) {
		const int64_t begin = division->begin[r], end = division->begin[r + 1];
		const int32_t d = division->lane[r];

		work[d] += own->work[d] * (part_before(spread, own->before, end) -
					   part_before(spread, own->before, begin));
		rows[d] += own->rows[d] * (part_before(spread, own->rows_before, end) -
					   part_before(spread, own->rows_before, begin));
	}
	for (int32_t d = 0; d < spread->devices; d++) {
		const double fair = own->rows[d] / (own->work[d] + own->rows[d]);
		const double unsure = own->before ? UNSURE * fabs(rows[d] - fair) : 0;
		const double time = work[d] + rows[d] +
				    own->call[d] * (own->joins[d] ? fmin(calls[d], 1) : calls[d]);

		sum += (time - 1) * (time - 1) + unsure * unsure;
		*fullest = own->before ? fmax(*fullest, time + unsure) : *fullest;
	}
	return own->weight * sum;
}

static double judge_all(const struct spread *spread, double *fullest)
{
	double calls[HYS_LANES_MAX] = {0}, sum = 0;

	*fullest = 0;
	count_calls(&spread->now, calls);
	for (int32_t n = 0; n < spread->measure_count; n++)
		sum += judge(spread, &spread->measures[n], calls, fullest);
	return sum;
}

/* Whether the division is better now than `best`, which follows. */
static bool is_better(const struct spread *spread, double *best)
{
	double fullest;
	const double now = judge_all(spread, &fullest);

	if (!(now < *best * (1 - 1e-6)))
		return false;
	*best = now;
	return true;
}

/* ---- cutting and dealing ---- */

/* Ranges of the same work, all operations counting alike. */
static void cut_ranges(struct spread *spread)
{
	struct division *division = &spread->now;
	int64_t at = 0;

	for (int32_t r = 0; r < division->count; r++) {
		const double goal = spread->measure_count * (r + 1.0) / division->count;

		for (; at < spread->tiles; at++) {
			double sum = 0;

			for (int32_t n = 0; n < spread->measure_count; n++)
				sum += part_before(spread, spread->measures[n].before, at + 1);
			if (sum > goal)
				break;
		}
		division->begin[r + 1] = r + 1 == division->count ? spread->tiles : at;
	}
}

static bool exchange(struct spread *spread, int32_t a, int32_t b, double *best)
{
	struct division *division = &spread->now;
	const int32_t lane_a = division->lane[a], count = division->count;
	const int32_t lane_b = b < count ? division->lane[b] : b - count;

	if (lane_a == lane_b)
		return false;
	division->lane[a] = lane_b;
	if (b < count)
		division->lane[b] = lane_a;
	if (is_better(spread, best))
		return true;
	division->lane[a] = lane_a;
	if (b < count)
		division->lane[b] = lane_b;
	return false;
}

/* Back and forth over the devices, then whatever exchange, or gift, helps. */
static void deal(struct spread *spread)
{
	struct division *division = &spread->now;
	const int32_t devices = spread->devices;
	bool better = division->count <= EXCHANGED_MOST;
	double best = (double)INFINITY;

	for (int32_t r = 0; r < division->count; r++)
		division->lane[r] = r / devices % 2 ? devices - 1 - r % devices : r % devices;
	is_better(spread, &best);
	while (better) {
		better = false;
		for (int32_t a = 0; a < division->count; a++)
			for (int32_t b = 0; b < division->count + devices; b++)
				better = exchange(spread, a, b, &best) || better;
	}
}

static bool shift(struct spread *spread, int32_t r, int64_t step, double *best)
{
	struct division *division = &spread->now;
	const int64_t was = division->begin[r], to = was + step;

	if (to < division->begin[r - 1] || to > division->begin[r + 1])
		return false;
	division->begin[r] = to;
	if (is_better(spread, best))
		return true;
	division->begin[r] = was;
	return false;
}

/* Moves the ends of ranges, by less and less. */
static void refine(struct spread *spread)
{
	const int32_t count = spread->now.count;
	double best = (double)INFINITY;

	is_better(spread, &best);
	for (int64_t step = spread->tiles / (4 * (int64_t)count); step > 0; step /= 2) {
		bool better = true;

		for (int32_t pass = 0; better && pass < PASSES_MOST; pass++) {
			better = false;
			for (int32_t r = 1; r < count; r++)
				better = shift(spread, r, step, &best) ||
					 shift(spread, r, -step, &best) || better;
		}
	}
}

/* The fewest ranges that are good enough, else the best. */
static void divide(struct spread *spread)
{
	double best = (double)INFINITY;

	for (int32_t i = 0; i < TRIES; i++) {
		const int32_t count = ranges_tried[i] * spread->devices;
		double fullest;

		if (count > HYS_BATCH_RANGES || (i > 0 && best < GOOD_ENOUGH))
			break;
		spread->now.count = count;
		cut_ranges(spread);
		deal(spread);
		refine(spread);
		judge_all(spread, &fullest);
		if (i == 0 || fullest < best) {
			best = fullest;
			spread->best = spread->now;
		}
	}
}

/* ---- the batch ---- */

static void keep(const struct spread *spread)
{
	const struct division *division = &spread->best;
	struct hys_batch *batch = spread->batch;
	struct hys_range *last = NULL;

	for (int32_t r = 0; r < division->count; r++) {
		const int64_t first = hys_min64(division->begin[r] * HYS_ROW_TILE, batch->rows);
		const int64_t end = hys_min64(division->begin[r + 1] * HYS_ROW_TILE, batch->rows);
		const int32_t lane = spread->numbers[division->lane[r]];

		if (end == first)
			continue;
		if (last && last->lane == lane) {
			last->count += end - first;
			continue;
		}
		last = &batch->ranges[batch->range_count++];
		*last = (struct hys_range){first, end - first, lane};
	}
}

static bool weigh(struct hys_batch *batch, int32_t op)
{
	const struct hys_allocator *allocator = &batch->plan->context->host.allocator;
	const int64_t sums = hys_tiles_of(batch->rows) + 1;
	struct hys_tiles tiles = {.rows = batch->rows};

	tiles.flops_before = hys_alloc_array(allocator, 2 * sums, sizeof(double));
	if (!tiles.flops_before)
		return false;
	tiles.rows_before = tiles.flops_before + sums;
	hys_tiles_weigh_batch(&tiles, batch, (hys_op)op, 0);
	batch->flops_before[op] = tiles.flops_before;
	batch->rows_before[op] = tiles.rows_before;
	return true;
}

bool hys_partition_batch(struct hys_batch *batch)
{
	const struct hys_plan *plan = batch->plan;
	const struct hys_allocator *allocator = &plan->context->host.allocator;
	struct spread *spread;

	if (plan->device_count < 2)
		return true;
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		if (is_spread(plan, op) && !weigh(batch, op))
			return false;
	batch->ranges = hys_alloc_array(allocator, HYS_BATCH_RANGES, sizeof(*batch->ranges));
	spread = hys_alloc(allocator, sizeof(*spread));
	if (!batch->ranges || !spread) {
		hys_free(allocator, spread);
		return false;
	}
	spread->batch = batch;
	spread->tiles = hys_tiles_of(batch->rows);
	find_devices(spread);
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		if (is_spread(plan, op))
			measure(spread, (hys_op)op);
	measure_rows(spread);
	divide(spread);
	keep(spread);
	hys_free(allocator, spread);
	return true;
}
