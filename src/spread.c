/* A batch's ranges: whose rows of replicated buffers are whose. They are the same
 * for all operations, since rows stay where they were computed, and operations
 * cost differently: so each device gets several, from all over the batch, such
 * that every operation by itself is shared as devices are fast. */
#include <math.h>

#include "partition.h"

/* Ranges a device: kernels lose by short calls, balance by few. */
#define RANGES_FEWEST 4
#define RANGES_MOST 8
#define RANGE_ROWS 4096
/* Exchanges are tried for all pairs of so many ranges at most. */
#define EXCHANGED_MOST 64

struct spread {
	struct hys_batch *batch;
	int64_t tiles;
	int32_t devices, count; /* of ranges */
	int32_t op_count;
	double *before[HYS_OP_COUNT]; /* [tiles + 1] of an operation's work, 0 to 1 */
	/* what a device is to do of an operation's work */
	double shares[HYS_OP_COUNT][HYS_LANES_MAX];
	int64_t begin[HYS_BATCH_RANGES + 1]; /* tiles */
	int32_t lane[HYS_BATCH_RANGES];
};

/* ---- what operations cost ---- */

/* Devices share the work as fast as they do it. */
static void find_shares(struct spread *spread, hys_op op, int32_t n, double flops)
{
	const struct hys_plan *plan = spread->batch->plan;
	double *shares = spread->shares[n], all = 0;

	for (int32_t d = 0; d < spread->devices; d++) {
		const struct hys_pace *pace = hys_plan_pace(plan, op, d);
		const double seconds =
			pace->row_s * (double)spread->batch->rows + pace->flop_s * flops;

		shares[d] = 1 / fmax(seconds, 1e-12);
		all += shares[d];
	}
	for (int32_t d = 0; d < spread->devices; d++)
		shares[d] /= all;
}

/* Shares of the whole; of operations without work, the number of rows. */
static void weigh(struct spread *spread, hys_op op)
{
	struct hys_tiles tiles = {.rows = spread->batch->rows,
				  .flops_before = spread->before[spread->op_count]};
	double flops;

	hys_tiles_weigh_batch(&tiles, spread->batch, op, 0);
	flops = tiles.flops_before[tiles.count];
	for (int64_t i = 0; i <= tiles.count; i++)
		tiles.flops_before[i] = flops > 0 ? tiles.flops_before[i] / flops
						  : (double)i / (double)hys_max64(tiles.count, 1);
	find_shares(spread, op, spread->op_count++, flops);
}

/* How far the fullest device is above its share, of any operation: 1 is
 * perfect. */
static double worst(const struct spread *spread)
{
	double most = 0;

	for (int32_t n = 0; n < spread->op_count; n++) {
		double loads[HYS_LANES_MAX] = {0};

		for (int32_t r = 0; r < spread->count; r++)
			loads[spread->lane[r]] += spread->before[n][spread->begin[r + 1]] -
						  spread->before[n][spread->begin[r]];
		for (int32_t d = 0; d < spread->devices; d++)
			most = fmax(most, loads[d] / fmax(spread->shares[n][d], 1e-6));
	}
	return most;
}

/* ---- cutting and dealing ---- */

/* Ranges of the same work, all operations counting alike. */
static void cut_ranges(struct spread *spread)
{
	int64_t at = 0;

	for (int32_t r = 0; r < spread->count; r++) {
		const double goal = spread->op_count * (r + 1.0) / spread->count;

		for (; at < spread->tiles; at++) {
			double sum = 0;

			for (int32_t n = 0; n < spread->op_count; n++)
				sum += spread->before[n][at + 1];
			if (sum > goal)
				break;
		}
		spread->begin[r + 1] = r + 1 == spread->count ? spread->tiles : at;
	}
}

static bool exchange(struct spread *spread, int32_t a, int32_t b, double *best)
{
	const int32_t lane_a = spread->lane[a];
	const int32_t lane_b = b < spread->count ? spread->lane[b] : b - spread->count;
	double now;

	spread->lane[a] = lane_b;
	if (b < spread->count)
		spread->lane[b] = lane_a;
	now = worst(spread);
	if (now < *best * (1 - 1e-6)) {
		*best = now;
		return true;
	}
	spread->lane[a] = lane_a;
	if (b < spread->count)
		spread->lane[b] = lane_b;
	return false;
}

/* Back and forth over the devices, then whatever exchange, or gift, helps. */
static double deal(struct spread *spread)
{
	const int32_t devices = spread->devices;
	bool better = spread->count <= EXCHANGED_MOST;
	double best;

	for (int32_t r = 0; r < spread->count; r++)
		spread->lane[r] = r / devices % 2 ? devices - 1 - r % devices : r % devices;
	best = worst(spread);
	while (better) {
		better = false;
		for (int32_t a = 0; a < spread->count; a++)
			for (int32_t b = 0; b < spread->count + devices; b++)
				better = exchange(spread, a, b, &best) || better;
	}
	return best;
}

static bool shift(struct spread *spread, int32_t r, int64_t step, double *best)
{
	const int64_t was = spread->begin[r], to = was + step;
	double now;

	if (to < spread->begin[r - 1] || to > spread->begin[r + 1])
		return false;
	spread->begin[r] = to;
	now = worst(spread);
	if (now < *best * (1 - 1e-6)) {
		*best = now;
		return true;
	}
	spread->begin[r] = was;
	return false;
}

/* Moves the ends of ranges, by less and less. */
static void refine(struct spread *spread, double best)
{
	for (int64_t step = spread->tiles / (4 * (int64_t)spread->count); step > 0; step /= 2)
		for (int32_t r = 1; r < spread->count; r++)
			if (!shift(spread, r, step, &best))
				shift(spread, r, -step, &best);
}

/* ---- the batch ---- */

static int32_t count_ranges(const struct hys_batch *batch)
{
	const int64_t devices = batch->plan->device_count;
	const int64_t wanted = hys_min64(batch->rows / (devices * RANGE_ROWS), RANGES_MOST);

	return (int32_t)(devices *
			 hys_min64(hys_max64(wanted, RANGES_FEWEST), HYS_BATCH_RANGES / devices));
}

static void keep(const struct spread *spread)
{
	struct hys_batch *batch = spread->batch;

	batch->range_count = 0;
	for (int32_t r = 0; r < spread->count; r++) {
		const int64_t first = hys_min64(spread->begin[r] * HYS_ROW_TILE, batch->rows);
		const int64_t end = hys_min64(spread->begin[r + 1] * HYS_ROW_TILE, batch->rows);

		if (end > first)
			batch->ranges[batch->range_count++] =
				(struct hys_range){first, end - first, spread->lane[r]};
	}
}

static bool make(struct spread *spread)
{
	const struct hys_plan *plan = spread->batch->plan;
	const struct hys_allocator *allocator = &plan->context->host.allocator;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		if (!(plan->operations & HYS_OP_BIT(op)) || hys_is_pooling((hys_op)op))
			continue;
		spread->before[spread->op_count] =
			hys_alloc_array(allocator, spread->tiles + 1, sizeof(double));
		if (!spread->before[spread->op_count])
			return false;
		weigh(spread, (hys_op)op);
	}
	cut_ranges(spread);
	refine(spread, deal(spread));
	keep(spread);
	return true;
}

bool hys_partition_batch(struct hys_batch *batch)
{
	const struct hys_allocator *allocator = &batch->plan->context->host.allocator;
	struct spread *spread;
	bool made;

	if (batch->plan->device_count < 2)
		return true;
	batch->ranges = hys_alloc_array(allocator, HYS_BATCH_RANGES, sizeof(*batch->ranges));
	spread = hys_alloc(allocator, sizeof(*spread));
	if (!batch->ranges || !spread) {
		hys_free(allocator, spread);
		return false;
	}
	spread->batch = batch;
	spread->tiles = hys_tiles_of(batch->rows);
	spread->devices = batch->plan->device_count;
	spread->count = count_ranges(batch);
	made = make(spread);
	for (int32_t n = 0; n < HYS_OP_COUNT; n++)
		hys_free(allocator, spread->before[n]);
	hys_free(allocator, spread);
	return made;
}
