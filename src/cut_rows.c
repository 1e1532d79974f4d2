/* The three ways to give rows to ranks. */
#include <math.h>

#include "cut.h"

static const struct hys_allocator *const allocator = &hys_allocator_default;

/* Documents of unlike lengths are cut in so many strata of like weight. */
#define STRATA 8
/* Tiles of a rank and stratum, about. */
#define TILES 8

static int64_t pairs_of(const struct hys_cut *cut, int64_t first, int64_t count)
{
	const int64_t *before = cut->batch.key_pairs_before;

	return before[first + count] - before[first];
}

/* ---- equal ranges ---- */

/* The start of row t's unit. */
static int64_t align(const struct hys_cut *cut, int64_t t)
{
	const int32_t *origin = cut->documents.q;
	int32_t low = 0, high = cut->documents.count;

	if (cut->unit == 1 || !cut->together || t >= cut->batch.rows)
		return t;
	while (high - low > 1) {
		const int32_t middle = low + (high - low) / 2;

		if (origin[middle] <= t)
			low = middle;
		else
			high = middle;
	}
	return t - (t - origin[low]) % cut->unit;
}

/* Range i of `parts`. */
static struct hys_span range_of(const struct hys_cut *cut, int64_t i, int64_t parts)
{
	const int64_t rows = cut->batch.rows;
	const int64_t begin = align(cut, rows * i / parts),
		      end = align(cut, rows * (i + 1) / parts);

	return (struct hys_span){begin, end - begin};
}

static hys_status give_ranges(const struct hys_cut *cut, int32_t rank, struct hys_run_list *list,
			      struct hys_error *error)
{
	const int64_t ranks = cut->ranks;
	struct hys_span run = range_of(cut, rank, ranks);
	hys_status status;

	if (cut->way == HYS_CUT_CONTIGUOUS)
		return hys_run_add(list, run.first, run.count, error);
	run = range_of(cut, rank, 2 * ranks);
	HYS_TRY(hys_run_add(list, run.first, run.count, error));
	run = range_of(cut, 2 * ranks - 1 - rank, 2 * ranks);
	HYS_TRY(hys_run_add(list, run.first, run.count, error));
cleanup:
	return status;
}

/* ---- balanced: every rank gets heavy and light rows ---- */

/* Tiles from the heaviest to the lightest, taken from both ends. */
struct deck {
	struct hys_cut_tile *tiles;
	int64_t heavy, light; /* what is left: [heavy, light) */
	int64_t rows, pairs;  /* of these */
};

static bool is_before(const struct hys_cut_tile *a, const struct hys_cut_tile *b)
{
	return a->weight > b->weight || (a->weight == b->weight && a->first < b->first);
}

static void sift(struct hys_cut_tile *tiles, int64_t at, int64_t count)
{
	const struct hys_cut_tile moved = tiles[at];

	for (int64_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && is_before(&tiles[child], &tiles[child + 1]))
			child++;
		if (!is_before(&moved, &tiles[child]))
			break;
		tiles[at] = tiles[child];
	}
	tiles[at] = moved;
}

void hys_cut_sort(struct hys_cut_tile *tiles, int64_t count)
{
	for (int64_t i = count / 2; i-- > 0;)
		sift(tiles, i, count);
	for (int64_t last = count - 1; last > 0; last--) {
		const struct hys_cut_tile end = tiles[0];

		tiles[0] = tiles[last];
		tiles[last] = end;
		sift(tiles, 0, last);
	}
}

/* About `rows` rows from the heavy end or the light end of a tile, cut between
 * units: its last rows, or its first. */
static struct hys_span part_of(const struct hys_cut *cut, const struct hys_cut_tile *tile,
			       int64_t rows, bool heavy)
{
	const int64_t end = tile->first + tile->count;
	int64_t at = heavy ? end - rows : tile->first + rows;

	if (rows >= tile->count)
		return (struct hys_span){tile->first, tile->count};
	if (cut->together)
		at -= (at - tile->origin) % cut->unit;
	at = hys_max64(tile->first, at);
	return heavy ? (struct hys_span){at, end - at}
		     : (struct hys_span){tile->first, at - tile->first};
}

/* Takes about `rows` from an end of the deck; into `list` unless it is NULL:
 * then it only answers the pairs. */
static hys_status take(const struct hys_cut *cut, struct deck *deck, int64_t rows, bool heavy,
		       struct hys_run_list *list, int64_t *pairs, struct hys_error *error)
{
	struct deck left = *deck;
	hys_status status = HYS_OK;

	while (rows > 0 && left.heavy < left.light) {
		struct hys_cut_tile *tile = &left.tiles[heavy ? left.heavy : left.light - 1];
		const struct hys_span run = part_of(cut, tile, rows, heavy);

		if (run.count == 0)
			break;
		*pairs += pairs_of(cut, run.first, run.count);
		rows -= run.count;
		if (list)
			HYS_TRY(hys_run_add(list, run.first, run.count, error));
		if (run.count == tile->count) {
			left.heavy += heavy;
			left.light -= !heavy;
		} else {
			/* Part of a tile is the last that is taken. */
			if (list && !heavy)
				tile->first += run.count;
			if (list)
				tile->count -= run.count;
			rows = 0;
		}
		left.rows -= run.count;
		left.pairs -= pairs_of(cut, run.first, run.count);
	}
	if (list)
		*deck = left;
cleanup:
	return status;
}

/* So many heavy ones among `rows` that their pairs come nearest to `target`. */
static int64_t find_heavy(const struct hys_cut *cut, struct deck *deck, int64_t rows, double target)
{
	int64_t low = 0, high = rows;

	while (low < high) {
		const int64_t middle = low + (high - low) / 2;
		int64_t pairs = 0;

		(void)take(cut, deck, middle, true, NULL, &pairs, NULL);
		(void)take(cut, deck, rows - middle, false, NULL, &pairs, NULL);
		if ((double)pairs < target)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static hys_status deal(const struct hys_cut *cut, struct deck *deck,
		       const struct hys_cut_share *shares, struct hys_run_list *lists,
		       struct hys_error *error)
{
	struct hys_cut_share left = {0};
	hys_status status = HYS_OK;

	for (int32_t rank = 0; rank < cut->ranks; rank++) {
		left.rows += shares[rank].rows;
		left.pairs += shares[rank].pairs;
	}
	for (int32_t rank = 0; rank < cut->ranks; rank++) {
		const struct hys_cut_share *share = &shares[rank];
		const int64_t before = deck->rows;
		const int64_t rows =
			left.rows > 0 ? (before * share->rows + left.rows / 2) / left.rows : 0;
		const double target =
			left.pairs > 0 ? (double)deck->pairs * share->pairs / left.pairs : 0;
		const int64_t heavy = find_heavy(cut, deck, rows, target);
		int64_t pairs = 0;

		HYS_TRY(take(cut, deck, heavy, true, &lists[rank], &pairs, error));
		HYS_TRY(take(cut, deck, hys_max64(0, rows - (before - deck->rows)), false,
			     &lists[rank], &pairs, error));
		if (rank == cut->ranks - 1)
			HYS_TRY(take(cut, deck, deck->rows, true, &lists[rank], &pairs, error));
		left.rows -= share->rows;
		left.pairs -= share->pairs;
	}
cleanup:
	return status;
}

/* Tiles of the documents that are dealt; into `tiles` unless it is NULL. */
static int64_t count_tiles(const struct hys_cut *cut, const bool *dealt, int64_t step,
			   struct hys_cut_tile *tiles)
{
	const struct hys_documents *documents = &cut->documents;
	int64_t count = 0;

	for (int32_t d = 0; d < documents->count; d++)
		for (int64_t t = documents->q[d]; !(dealt && !dealt[d]) && t < documents->q[d + 1];
		     t += step) {
			const int64_t rows = hys_min64(step, documents->q[d + 1] - t);

			if (tiles)
				tiles[count] = (struct hys_cut_tile){
					t, rows, documents->q[d],
					(double)pairs_of(cut, t, rows) / (double)rows};
			count++;
		}
	return count;
}

/* Deals stratum after stratum: within one, rows weigh about the same, so that
 * what grows slower than a row's pairs is shared evenly, too. */
static hys_status deal_strata(const struct hys_cut *cut, struct hys_cut_tile *tiles, int64_t count,
			      int32_t strata, const struct hys_cut_share *shares,
			      struct hys_run_list *lists, struct hys_error *error)
{
	int64_t rows = 0, at = 0, passed = 0;
	hys_status status = HYS_OK;

	for (int64_t i = 0; i < count; i++)
		rows += tiles[i].count;
	for (int32_t s = 0; s < strata; s++) {
		struct deck deck = {.tiles = tiles, .heavy = at};

		while (at < count && (s == strata - 1 || passed < rows * (s + 1) / strata)) {
			deck.rows += tiles[at].count;
			deck.pairs += pairs_of(cut, tiles[at].first, tiles[at].count);
			passed += tiles[at++].count;
		}
		deck.light = at;
		HYS_TRY(deal(cut, &deck, shares, lists, error));
	}
cleanup:
	return status;
}

hys_status hys_cut_deal(const struct hys_cut *cut, const bool *dealt,
			const struct hys_cut_share *shares, int32_t strata,
			struct hys_run_list *lists, struct hys_error *error)
{
	const int64_t wanted =
		hys_max64(1, cut->batch.rows / ((int64_t)cut->ranks * STRATA * TILES));
	const int64_t step = hys_mul64((wanted + cut->unit - 1) / cut->unit, cut->unit);
	const int64_t count = count_tiles(cut, dealt, step, NULL);
	struct hys_cut_tile *tiles = hys_alloc_array(allocator, count, sizeof(*tiles));
	hys_status status;

	if (!tiles)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %lld tiles of rows",
				 (long long)count));
	count_tiles(cut, dealt, step, tiles);
	hys_cut_sort(tiles, count);
	HYS_TRY(deal_strata(cut, tiles, count, strata, shares, lists, error));
cleanup:
	hys_free(allocator, tiles);
	return status;
}

static hys_status give_balanced(const struct hys_cut *cut, struct hys_run_list *lists,
				struct hys_error *error)
{
	struct hys_cut_share *shares = hys_alloc_array(allocator, cut->ranks, sizeof(*shares));
	bool given = false;
	hys_status status;

	if (!shares)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %d ranks",
				 cut->ranks));
	HYS_TRY(hys_cut_documents(cut, shares, lists, &given, error));
	for (int32_t rank = 0; rank < cut->ranks; rank++)
		shares[rank] = (struct hys_cut_share){1, 1};
	if (!given)
		HYS_TRY(hys_cut_deal(cut, NULL, shares, cut->documents.count > 1 ? STRATA : 1,
				     lists, error));
cleanup:
	hys_free(allocator, shares);
	return status;
}

/* ---- all ---- */

static hys_status join(struct hys_cut *cut, struct hys_run_list *lists, struct hys_error *error)
{
	struct hys_run_table *table = &cut->owned[HYS_CUT_ROWS];
	hys_status status = HYS_OK;

	for (int32_t rank = 0; rank < cut->ranks; rank++) {
		hys_run_sort(&lists[rank]);
		HYS_TRY(hys_run_table_add(table, rank, 0, 0, error));
		for (int64_t i = 0; i < lists[rank].count; i++)
			HYS_TRY(hys_run_table_add(table, rank, lists[rank].runs[i].first,
						  lists[rank].runs[i].count, error));
	}
cleanup:
	return status;
}

hys_status hys_cut_rows(struct hys_cut *cut, struct hys_error *error)
{
	struct hys_run_list *lists = hys_alloc_array(allocator, cut->ranks, sizeof(*lists));
	hys_status status;

	if (!lists)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for %d ranks",
				 cut->ranks));
	HYS_TRY(hys_run_table_make(&cut->owned[HYS_CUT_ROWS], cut->ranks, error));
	if (cut->way == HYS_CUT_BALANCED)
		HYS_TRY(give_balanced(cut, lists, error));
	for (int32_t rank = 0; cut->way != HYS_CUT_BALANCED && rank < cut->ranks; rank++)
		HYS_TRY(give_ranges(cut, rank, &lists[rank], error));
	HYS_TRY(join(cut, lists, error));
cleanup:
	for (int32_t rank = 0; lists && rank < cut->ranks; rank++)
		hys_run_clear(&lists[rank]);
	hys_free(allocator, lists);
	return status;
}
