/* Documents that stay whole need no keys of other ranks. So the lighter ones are
 * given to ranks as they are, and of the heaviest, as few as will do, every rank
 * gets what it lacks of rows and pairs. */
#include <math.h>
#include <string.h>

#include "cut.h"

static const struct hys_allocator *const allocator = &hys_allocator_default;

/* Ranks may have so much of the mean. */
#define MOST 1.01
/* Nothing is gained when so much of the rows is dealt after all. */
#define DEALT_MOST 0.75
/* Ranks times documents that are tried. */
#define TRIED_MOST (INT64_C(1) << 22)
/* Ways to deal the same documents. */
#define ROUNDS 4

/* `spared` is what rows that see less than attention reads at most do not read:
 * with the number of rows it says what they do. */
enum { ROWS, PAIRS, SPARED, KINDS };

struct load {
	double of[KINDS];
};

struct packing {
	const struct hys_cut *cut;
	double read;			/* keys of a row at most */
	double *spared_before;		/* [rows + 1] */
	struct hys_cut_tile *documents; /* the heaviest first; origin: their numbers */
	int32_t *home;			/* [documents] in that order: rank */
	bool *dealt;			/* [documents] by number */
	struct load *given;		/* [ranks] by whole documents */
	double *ahead;			/* [ranks] spared by what was dealt before */
	struct load all;
};

/* ---- loads ---- */

static struct load load_of(const struct packing *packing, int64_t first, int64_t count)
{
	const int64_t *pairs = packing->cut->batch.key_pairs_before;
	const double *spared = packing->spared_before;

	return (struct load){{(double)count, (double)(pairs[first + count] - pairs[first]),
			      spared[first + count] - spared[first]}};
}

static struct load load_of_document(const struct packing *packing, int64_t i)
{
	return load_of(packing, packing->documents[i].first, packing->documents[i].count);
}

static void add(struct load *to, const struct load *more)
{
	for (int kind = 0; kind < KINDS; kind++)
		to->of[kind] += more->of[kind];
}

static double attended(const struct packing *packing, const struct load *load)
{
	return load->of[ROWS] * packing->read - load->of[SPARED];
}

static void fill_spared(struct packing *packing)
{
	const struct hys_cut *cut = packing->cut;
	const struct hys_limits limits = hys_limits_of(&cut->plan.problem);
	const int64_t *before = cut->batch.key_pairs_before;

	packing->read = limits.dense ? 0 : limits.read;
	for (int64_t t = 0; t < cut->batch.rows; t++)
		packing->spared_before[t + 1] =
			packing->spared_before[t] +
			fmax(0, packing->read - (double)(before[t + 1] - before[t]));
}

static void fill_documents(struct packing *packing)
{
	const struct hys_documents *documents = &packing->cut->documents;

	for (int32_t d = 0; d < documents->count; d++) {
		const int64_t first = documents->q[d], count = documents->q[d + 1] - first;

		packing->documents[d] = (struct hys_cut_tile){
			first, count, d, load_of(packing, first, count).of[PAIRS]};
	}
	hys_cut_sort(packing->documents, documents->count);
	packing->all = load_of(packing, 0, packing->cut->batch.rows);
}

/* ---- whole documents ---- */

/* The rank that has least of what the whole documents are, of those that have
 * room for one more; -1 = none has. What rows are spared counts most: dealing
 * the other documents makes up for rows and pairs, hardly for that. */
static int32_t find_rank(const struct packing *packing, const struct load *document,
			 const struct load *whole)
{
	static const double weights[KINDS] = {0.25, 0.25, 1};
	const double ranks = packing->cut->ranks;
	double least = HUGE_VAL;
	int32_t found = -1;

	for (int32_t rank = 0; rank < packing->cut->ranks; rank++) {
		struct load load = packing->given[rank];
		double most = 0;

		add(&load, document);
		for (int kind = 0; kind < KINDS; kind++)
			if (whole->of[kind] > 0)
				most = fmax(most, weights[kind] * load.of[kind] / whole->of[kind]);
		if (most < least && load.of[ROWS] * ranks <= MOST * packing->all.of[ROWS] &&
		    load.of[PAIRS] * ranks <= MOST * packing->all.of[PAIRS]) {
			least = most;
			found = rank;
		}
	}
	return found;
}

/* All documents but the first `dealt` ones. */
static bool give_whole(struct packing *packing, int32_t dealt)
{
	const int32_t count = packing->cut->documents.count;
	struct load whole = {{0}};

	for (int32_t rank = 0; rank < packing->cut->ranks; rank++) {
		packing->given[rank] = (struct load){{0, 0, packing->ahead[rank]}};
		add(&whole, &packing->given[rank]);
	}
	for (int32_t i = dealt; i < count; i++) {
		const struct load document = load_of_document(packing, i);

		add(&whole, &document);
	}
	for (int32_t i = dealt; i < count; i++) {
		const struct load document = load_of_document(packing, i);
		const int32_t rank = find_rank(packing, &document, &whole);

		if (rank < 0)
			return false;
		packing->home[i] = rank;
		add(&packing->given[rank], &document);
	}
	for (int32_t rank = 0; rank < packing->cut->ranks; rank++)
		packing->given[rank].of[SPARED] -= packing->ahead[rank];
	return true;
}

/* ---- and the others ---- */

/* What each rank lacks. */
static void find_shares(const struct packing *packing, struct hys_cut_share *shares)
{
	const int32_t ranks = packing->cut->ranks;

	for (int32_t rank = 0; rank < ranks; rank++) {
		const struct load *given = &packing->given[rank];
		const double rows = packing->all.of[ROWS] / ranks - given->of[ROWS];

		shares[rank].rows = (int64_t)fmax(0, rows + 0.5);
		shares[rank].pairs = fmax(0, packing->all.of[PAIRS] / ranks - given->of[PAIRS]);
	}
}

static hys_status deal(struct packing *packing, int32_t count, int32_t strata,
		       struct hys_cut_share *shares, struct hys_run_list *lists,
		       struct hys_error *error)
{
	for (int32_t i = 0; i < packing->cut->documents.count; i++)
		packing->dealt[packing->documents[i].origin] = i < count;
	for (int32_t rank = 0; rank < packing->cut->ranks; rank++)
		lists[rank].count = 0;
	find_shares(packing, shares);
	return hys_cut_deal(packing->cut, packing->dealt, shares, strata, lists, error);
}

static struct load load_of_rank(const struct packing *packing, const struct hys_run_list *list)
{
	struct load load = {{0}};

	for (int64_t i = 0; i < list->count; i++) {
		const struct load run = load_of(packing, list->runs[i].first, list->runs[i].count);

		add(&load, &run);
	}
	return load;
}

/* Whether all ranks have the same, more or less. What those that were dealt are
 * spared is noted: whole documents can make up for it. */
static bool is_even(struct packing *packing, const struct hys_run_list *lists)
{
	const double ranks = packing->cut->ranks;
	const double reads = attended(packing, &packing->all);
	bool even = true;

	for (int32_t rank = 0; rank < packing->cut->ranks; rank++) {
		struct load load = load_of_rank(packing, &lists[rank]);

		packing->ahead[rank] = load.of[SPARED];
		add(&load, &packing->given[rank]);
		even &= load.of[ROWS] * ranks <= MOST * packing->all.of[ROWS] &&
			load.of[PAIRS] * ranks <= MOST * packing->all.of[PAIRS] &&
			attended(packing, &load) * ranks <= MOST * reads;
	}
	return even;
}

static hys_status add_whole(const struct packing *packing, int32_t dealt,
			    struct hys_run_list *lists, struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int32_t i = dealt; i < packing->cut->documents.count; i++)
		HYS_TRY(hys_run_add(&lists[packing->home[i]], packing->documents[i].first,
				    packing->documents[i].count, error));
cleanup:
	return status;
}

/* Deals the first documents. Strata cost messages and make ranks alike. */
static hys_status try_dealing(struct packing *packing, int32_t dealt, struct hys_cut_share *shares,
			      struct hys_run_list *lists, bool *given, struct hys_error *error)
{
	static const int32_t strata[ROUNDS] = {1, 1, 1, 8};
	hys_status status = HYS_OK;

	memset(packing->ahead, 0, (size_t)packing->cut->ranks * sizeof(*packing->ahead));
	for (int round = 0; round < ROUNDS && !*given && give_whole(packing, dealt); round++) {
		HYS_TRY(deal(packing, dealt, strata[round], shares, lists, error));
		*given = is_even(packing, lists);
	}
	if (*given)
		HYS_TRY(add_whole(packing, dealt, lists, error));
cleanup:
	return status;
}

/* More and more of the heaviest are dealt. */
static hys_status search(struct packing *packing, struct hys_cut_share *shares,
			 struct hys_run_list *lists, bool *given, struct hys_error *error)
{
	const int32_t count = packing->cut->documents.count;
	double rows = 0;
	hys_status status = HYS_OK;

	for (int32_t dealt = 0, next; dealt < count && rows < DEALT_MOST; dealt = next) {
		HYS_TRY(try_dealing(packing, dealt, shares, lists, given, error));
		if (*given)
			return HYS_OK;
		next = dealt + 1 + dealt / 4;
		for (int32_t i = dealt; i < next && i < count; i++)
			rows += (double)packing->documents[i].count / packing->all.of[ROWS];
	}
	for (int32_t rank = 0; rank < packing->cut->ranks; rank++)
		lists[rank].count = 0;
cleanup:
	return status;
}

/* ---- all ---- */

static hys_status allocate(struct packing *packing, struct hys_error *error)
{
	const struct hys_cut *cut = packing->cut;
	const int64_t documents = cut->documents.count, ranks = cut->ranks;

	packing->spared_before = hys_alloc_array(allocator, cut->batch.rows + 1, sizeof(double));
	packing->documents = hys_alloc_array(allocator, documents, sizeof(*packing->documents));
	packing->home = hys_alloc_array(allocator, documents, sizeof(*packing->home));
	packing->dealt = hys_alloc_array(allocator, documents, sizeof(*packing->dealt));
	packing->given = hys_alloc_array(allocator, ranks, sizeof(*packing->given));
	packing->ahead = hys_alloc_array(allocator, ranks, sizeof(*packing->ahead));
	if (packing->spared_before && packing->documents && packing->home && packing->dealt &&
	    packing->given && packing->ahead)
		return HYS_OK;
	return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory to share %lld documents out",
			(long long)documents);
}

hys_status hys_cut_documents(const struct hys_cut *cut, struct hys_cut_share *shares,
			     struct hys_run_list *lists, bool *given, struct hys_error *error)
{
	struct packing packing = {.cut = cut};
	hys_status status;

	*given = false;
	if (!cut->together || cut->ranks < 2 || cut->documents.count < 2 ||
	    hys_mul64(cut->ranks, cut->documents.count) > TRIED_MOST)
		return HYS_OK;
	HYS_TRY(allocate(&packing, error));
	fill_spared(&packing);
	fill_documents(&packing);
	HYS_TRY(search(&packing, shares, lists, given, error));
cleanup:
	hys_free(allocator, packing.spared_before);
	hys_free(allocator, packing.documents);
	hys_free(allocator, packing.home);
	hys_free(allocator, packing.dealt);
	hys_free(allocator, packing.given);
	hys_free(allocator, packing.ahead);
	return status;
}
