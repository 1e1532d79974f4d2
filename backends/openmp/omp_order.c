/* omp_order.c - the costliest items first. */
#include "omp_order.h"

/* Costs below EXACT have a bucket each, those from there on EIGHTHS for each
 * power of two. */
#define EXACT 16
#define EIGHTHS 8
#define BUCKETS (EXACT + 60 * EIGHTHS)

static int32_t bucket_of(int64_t cost)
{
	int32_t power = 0;

	if (cost < EXACT)
		return cost > 0 ? (int32_t)cost : 0;
	while (cost >> power >= (int64_t)2 * EIGHTHS)
		power++;
	return EXACT + (power - 1) * EIGHTHS + (int32_t)(cost >> power) - EIGHTHS;
}

void omp_order(int32_t *order, int64_t count, omp_cost *cost, const void *context)
{
	int64_t places[BUCKETS + 1] = {0};

	/* places[b]: how many are behind those of bucket b */
	for (int64_t i = 0; i < count; i++)
		places[bucket_of(cost(context, i)) + 1]++;
	for (int32_t b = 0; b < BUCKETS; b++)
		places[b + 1] += places[b];
	for (int64_t i = 0; i < count; i++)
		order[count - 1 - places[bucket_of(cost(context, i))]++] = (int32_t)i;
}

static int64_t length(struct omp_range range)
{
	return hys_max64(range.end - range.begin, 0);
}

int64_t omp_attended(const struct omp_rows *rows, int64_t t)
{
	int64_t count = 0;

	for (int64_t u = 0; u < rows->problem->scoring.groups; u++) {
		struct omp_walk walk;

		omp_walk_start(&walk, rows, t, u);
		count +=
			hys_count_slots(walk.slots.indices, walk.slots.count, 0) * walk.slots.span +
			length(walk.first) + length(walk.window) + length(walk.second);
	}
	return count;
}
