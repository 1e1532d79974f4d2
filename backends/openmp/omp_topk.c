/* omp_topk.c - the K best of a stream of scores. */
#include "omp_topk.h"

#include <math.h>
#include <string.h>

uint32_t omp_topk_key(float score)
{
	const float canonical = score + 0.0f; /* -0 becomes +0 */
	uint32_t bits;
	memcpy(&bits, &canonical, sizeof bits);
	const uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
	return score != score ? 0 : key;
}

static float score_of_key(uint32_t key)
{
	const uint32_t bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
	float score;
	memcpy(&score, &bits, sizeof score);
	return key == 0 ? NAN : score;
}

int64_t omp_topk_capacity(int64_t k, int64_t n, int64_t piece)
{
	const int64_t wanted = hys_max64(hys_mul64(2, k), 1024);
	return hys_add64(hys_min64(wanted, n), piece);
}

void omp_topk_start(struct omp_topk *topk, int64_t k)
{
	topk->k = k;
	topk->count = 0;
	topk->least = NAN;
}

/* Digits of a key, the highest first: sign, exponent and two bits more part
 * nearly all that scores of one row have in common. */
static const struct {
	int32_t shift, bits;
} digits[] = {{21, 11}, {13, 8}, {5, 8}, {0, 5}};
#define BINS 2048

/* One digit of a radix select: which bin holds the k-th largest of n keys that
 * agree in all higher digits. Moves that bin's keys to the front; *k becomes
 * the rank in it and *n their number. */
static uint32_t select_digit(uint32_t *keys, int32_t shift, int32_t bits, int64_t *n, int64_t *k)
{
	const uint32_t mask = (UINT32_C(1) << bits) - 1;
	int32_t bins[BINS];
	int64_t kept = 0;
	uint32_t digit = mask;
	memset(bins, 0, sizeof *bins << bits);
	for (int64_t i = 0; i < *n; i++)
		bins[keys[i] >> shift & mask]++;
	for (; bins[digit] < *k; digit--)
		*k -= bins[digit];
	for (int64_t i = 0; i < *n; i++) {
		const uint32_t key = keys[i];
		keys[kept] = key;
		kept += (key >> shift & mask) == digit;
	}
	*n = kept;
	return digit << shift;
}

/* The k-th largest of n keys, 1 <= k <= n; *ties of the k largest equal it.
 * The keys are reordered. */
static uint32_t kth_largest(uint32_t *keys, int64_t n, int64_t k, int64_t *ties)
{
	uint32_t found = 0;
	for (size_t i = 0; i < sizeof digits / sizeof *digits; i++)
		found |= select_digit(keys, digits[i].shift, digits[i].bits, &n, &k);
	*ties = k;
	return found;
}

/* Moves the candidates that are better than `pivot`, and the first `ties` of
 * those that equal it, to the front; answers how many. Without branches: about
 * every second one stays. */
static int64_t move_best(float *scores, int32_t *indices, int64_t count, uint32_t pivot,
			 int64_t ties)
{
	int64_t kept = 0;
	for (int64_t i = 0; i < count; i++) {
		const float score = scores[i];
		const int32_t index = indices[i];
		const uint32_t key = omp_topk_key(score);
		const bool equal = key == pivot;
		scores[kept] = score;
		indices[kept] = index;
		kept += (key > pivot) | (equal & (ties > 0));
		ties -= equal;
	}
	return kept;
}

/* Keeps the K best of the candidates, in their order; answers the key of the
 * last in rank. Needs count >= k >= 1. */
static uint32_t keep_best(struct omp_topk *topk, const struct omp_isa *isa)
{
	int64_t ties;
	for (int64_t i = 0; i < topk->count; i++)
		topk->keys[i] = omp_topk_key(topk->scores[i]);
	const uint32_t pivot = kth_largest(topk->keys, topk->count, topk->k, &ties);
	if (pivot > 0)
		topk->count =
			isa->keep(topk->scores, topk->indices, topk->count, score_of_key(pivot));
	/* Usually that was all. */
	if (topk->count > topk->k)
		topk->count = move_best(topk->scores, topk->indices, topk->count, pivot, ties);
	return pivot;
}

void omp_topk_push(struct omp_topk *topk, const struct omp_isa *isa, const float *scores, int64_t n,
		   int32_t first)
{
	if (topk->k == 0)
		return;
	if (topk->count + n > topk->capacity) {
		/* Only what is better than the last one kept can still matter;
		 * NaN passes the filter too, which costs time only. */
		const float lowest = score_of_key(keep_best(topk, isa));
		topk->least = lowest != lowest ? -INFINITY : nextafterf(lowest, INFINITY);
	}
	topk->count += isa->filter(scores, n, topk->least, first, topk->scores + topk->count,
				   topk->indices + topk->count);
}

int64_t omp_topk_finish(struct omp_topk *topk, const struct omp_isa *isa, float *lowest)
{
	*lowest = -INFINITY;
	if (topk->k == 0 || topk->count == 0)
		return topk->count = 0;
	const int64_t k = topk->k;
	topk->k = hys_min64(k, topk->count);
	*lowest = score_of_key(keep_best(topk, isa));
	topk->k = k;
	return topk->count;
}
