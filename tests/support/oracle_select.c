/*
 * select: the choice of entries or blocks.
 *
 * Readings of the specification:
 *  - Blocks of `block` entries tile the document from entry_origin.  A block is
 *    a candidate if one of its entries is visible; its score is the maximum over
 *    those, NaN ones left out unless all are NaN.  Its index is its first entry,
 *    visible or not.
 *  - Rank: higher score first, NaN last (below -inf), equal scores (+0 == -0, NaN
 *    and NaN) by smaller index.  The choice is the first min(K, candidates).
 *  - Forced: the last `local_blocks` of the row's visible blocks, newest first,
 *    then the first `first_blocks` of them, ascending, rank above all others.  So
 *    they count towards K, and local ones win when there is no room.
 *  - nan_rows counts a row once, if any visible entry has a NaN score in any
 *    group; in coarse_to_fine and coarse, if any score that takes part is NaN (the
 *    means of complete blocks; the entries of the blocks kept).
 *  - kth is the lowest score among the chosen that were not forced, NaN if that is
 *    one; -inf if all were forced or if there were fewer candidates than wanted.
 *
 * coarse_to_fine:
 *  - Blocks of `coarse_block` entries tile the document from entry_origin.  Those
 *    that lie wholly in the row's interval are scored: the score function applied
 *    to the mean of their index_k rows, computed in f64.  The best `coarse_keep`
 *    are kept, on top of them the block of the row's last visible entry.
 *  - block == 1: first_blocks and local_blocks count coarse blocks, and those are
 *    kept as well, on top of `coarse_keep`; the final choice among their visible
 *    entries forces nothing.
 *  - block > 1 (a divisor of coarse_block): candidates are the blocks whose first
 *    entry lies in a kept coarse block; first_blocks and local_blocks count blocks
 *    and are forced in the final choice, and their coarse blocks are kept as well.
 *
 * coarse alone:
 *  - The candidates are the complete, wholly visible coarse blocks and the forced
 *    ones, which may be partial.  K counts coarse blocks; coarse_keep and block are
 *    not read.  Forced as above, in coarse blocks, with local_blocks at least 1: the
 *    block of the last visible entry is always chosen.  The index is the first entry.
 *    The score of a partial block is that of the mean of its visible entries.
 */
#include "oracle.h"
#include "oracle_internal.h"

/* The row's entries and how blocks tile them: first and last visible block of `size` entries. */
struct tiling {
	int64_t origin, begin, end, size;
	int64_t first, last;
};

static struct tiling tile(const struct ora_scoring *s, int64_t t, int64_t size)
{
	struct tiling tiling = {.size = size};
	tiling.origin = s->entry_origin != NULL ? s->entry_origin[t] : 0;
	ora_entry_interval(s, t, &tiling.begin, &tiling.end);
	tiling.first = (tiling.begin - tiling.origin) / size;
	tiling.last = tiling.end > tiling.begin ? (tiling.end - 1 - tiling.origin) / size
						: tiling.first - 1;
	return tiling;
}

static int64_t block_begin(const struct tiling *tiling, int64_t block)
{
	return tiling->origin + block * tiling->size;
}

static int wholly_visible(const struct tiling *tiling, int64_t block)
{
	const int64_t begin = block_begin(tiling, block);
	return begin >= tiling->begin && begin + tiling->size <= tiling->end;
}

/* Place of a block among the forced ones, from 1: local ones newest first, then first ones; else 0. */
static int32_t forced_order(const struct tiling *tiling, int64_t block, int32_t first_blocks,
			    int32_t local_blocks)
{
	const int64_t from_last = tiling->last - block;
	const int64_t from_first = block - tiling->first;
	if (from_last < local_blocks)
		return (int32_t)from_last + 1;
	if (from_first < first_blocks)
		return local_blocks + (int32_t)from_first + 1;
	return 0;
}

static int compare_candidates(const void *left, const void *right)
{
	const struct ora_candidate *a = left, *b = right;
	if (a->forced != b->forced) {
		if (a->forced == 0 || b->forced == 0)
			return a->forced == 0 ? 1 : -1;
		return a->forced < b->forced ? -1 : 1;
	}
	if (isnan(a->score) != isnan(b->score))
		return isnan(a->score) ? 1 : -1;
	if (a->score > b->score || a->score < b->score)
		return a->score > b->score ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

static void sort_candidates(struct ora_candidate *candidates, int64_t count)
{
	qsort(candidates, (size_t)count, sizeof *candidates, compare_candidates);
}

/* ---- what was worked out before ---- */

/* Candidates of one (row, group), in rank order. */
struct kept_ranking {
	struct ora_candidate *candidates; /* NULL: not known */
	int64_t count;
	int nan;
};

struct ora_memo {
	int64_t places, entries;	     /* T * U, E */
	double *scores;			     /* [T,U,E] */
	unsigned char *known;		     /* [T,U,E] whether the score is there */
	double *scales;			     /* [T,U] of ora_select_scale_of_row; -1: not known */
	struct kept_ranking *final, *coarse; /* [T,U] */
};

void ora_memo_make(struct ora_select *select)
{
	const struct ora_scoring *s = &select->scoring;
	struct ora_memo *memo = ora_alloc(1, sizeof *memo);
	memo->places = s->rows * ora_or_one(s->groups);
	memo->entries = s->entries;
	memo->scores = ora_doubles(memo->places * s->entries);
	memo->known = ora_alloc(memo->places * s->entries, 1);
	memo->scales = ora_doubles(memo->places);
	memo->final = ora_alloc(memo->places, sizeof *memo->final);
	memo->coarse = ora_alloc(memo->places, sizeof *memo->coarse);
	for (int64_t i = 0; i < memo->places; i++)
		memo->scales[i] = -1.0;
	select->memo = memo;
}

void ora_memo_free(struct ora_memo *memo)
{
	if (memo == NULL)
		return;
	for (int64_t i = 0; i < memo->places; i++) {
		free(memo->final[i].candidates);
		free(memo->coarse[i].candidates);
	}
	free(memo->scores);
	free(memo->known);
	free(memo->scales);
	free(memo->final);
	free(memo->coarse);
	free(memo);
}

static int64_t place_in_memo(const struct ora_select *select, int64_t t, int32_t u)
{
	return t * ora_or_one(select->scoring.groups) + u;
}

/* Copies a known ranking, and returns its number of candidates; -1 if it is not known. */
static int64_t recall(const struct kept_ranking *kept, struct ora_candidate *ranking, int *nan)
{
	if (kept == NULL || kept->candidates == NULL)
		return -1;
	memcpy(ranking, kept->candidates, (size_t)kept->count * sizeof *ranking);
	*nan |= kept->nan;
	return kept->count;
}

static void keep(struct kept_ranking *kept, const struct ora_candidate *ranking, int64_t count,
		 int nan)
{
	if (kept == NULL)
		return;
	kept->candidates = ora_alloc(count, sizeof *ranking);
	memcpy(kept->candidates, ranking, (size_t)count * sizeof *ranking);
	kept->count = count;
	kept->nan = nan;
}

static double entry_score(const struct ora_select *select, int64_t t, int32_t u, int64_t e)
{
	const struct ora_scoring *s = &select->scoring;
	struct ora_memo *memo = select->memo;
	if (memo == NULL)
		return ora_score(s, t, u, s->index_k + e * s->dim);
	const int64_t at = place_in_memo(select, t, u) * memo->entries + e;
	if (!memo->known[at]) {
		memo->scores[at] = ora_score(s, t, u, s->index_k + e * s->dim);
		memo->known[at] = 1;
	}
	return memo->scores[at];
}

/* ---- rankings ---- */

/* Score of the mean of entries [begin, end). */
static double mean_score(const struct ora_scoring *s, int64_t t, int32_t u, int64_t begin,
			 int64_t end)
{
	double *mean = ora_doubles(s->dim);
	for (int64_t e = begin; e < end; e++)
		for (int32_t d = 0; d < s->dim; d++)
			mean[d] += s->index_k[e * s->dim + d];
	for (int32_t d = 0; d < s->dim; d++)
		mean[d] /= (double)(end - begin);
	const double score = ora_score(s, t, u, mean);
	free(mean);
	return score;
}

/* Maximum over the visible entries of a block; sets *nan if one is NaN. */
static double block_score(const struct ora_select *select, int64_t t, int32_t u,
			  const struct tiling *tiling, int64_t block, int *nan)
{
	const int64_t begin = ora_max(block_begin(tiling, block), tiling->begin);
	const int64_t end = ora_min(block_begin(tiling, block + 1), tiling->end);
	double best = (double)NAN;
	for (int64_t e = begin; e < end; e++) {
		const double score = entry_score(select, t, u, e);
		if (isnan(score))
			*nan = 1;
		else if (isnan(best) || score > best)
			best = score;
	}
	return best;
}

static int64_t rank_coarse(const struct ora_select *select, int64_t t, int32_t u,
			   struct ora_candidate *ranking, int *nan)
{
	struct kept_ranking *kept =
		select->memo != NULL ? &select->memo->coarse[place_in_memo(select, t, u)] : NULL;
	const struct tiling tiling = tile(&select->scoring, t, select->coarse_block);
	int64_t count = recall(kept, ranking, nan);
	int any_nan = 0;
	if (count >= 0)
		return count;
	count = 0;
	for (int64_t block = tiling.first; block <= tiling.last; block++) {
		if (!wholly_visible(&tiling, block))
			continue;
		const int64_t begin = block_begin(&tiling, block);
		const double score = mean_score(&select->scoring, t, u, begin, begin + tiling.size);
		any_nan |= isnan(score);
		ranking[count++] = (struct ora_candidate){.index = (int32_t)begin, .score = score};
	}
	sort_candidates(ranking, count);
	keep(kept, ranking, count, any_nan);
	*nan |= any_nan;
	return count;
}

int64_t ora_coarse_rank(const struct ora_select *select, int64_t t, int32_t u,
			struct ora_candidate *ranking)
{
	int nan = 0;
	return rank_coarse(select, t, u, ranking, &nan);
}

/* kept[block - tiling->first] = 1 for the coarse blocks that the caller gave. */
static void mark_given(const struct ora_select *select, int64_t t, int32_t u,
		       const struct tiling *tiling, unsigned char *kept)
{
	const int64_t slots = (t * ora_or_one(select->scoring.groups) + u) * select->given_max;
	for (int32_t i = 0; i < select->given_max; i++) {
		const int64_t entry = select->given_blocks[slots + i];
		const int64_t block = (entry - tiling->origin) / tiling->size;
		if (entry >= tiling->origin && block >= tiling->first && block <= tiling->last)
			kept[block - tiling->first] = 1;
	}
}

/* kept[...] = 1 for the coarse blocks of the blocks that the final choice is forced to. */
static void mark_forced(const struct ora_select *select, int64_t t, const struct tiling *coarse,
			unsigned char *kept)
{
	const struct tiling fine = tile(&select->scoring, t, select->block);
	for (int64_t block = fine.first; block <= fine.last; block++)
		if (forced_order(&fine, block, select->first_blocks, select->local_blocks) > 0)
			kept[block * fine.size / coarse->size - coarse->first] = 1;
}

/* The coarse blocks whose entries stand for choice: flags from the first visible block on. */
static unsigned char *keep_coarse(const struct ora_select *select, int64_t t, int32_t u,
				  const struct tiling *tiling, int *nan)
{
	const int64_t blocks = tiling->last - tiling->first + 1;
	unsigned char *kept = ora_alloc(blocks, 1);
	if (select->given_blocks != NULL) {
		mark_given(select, t, u, tiling, kept);
	} else {
		struct ora_candidate *ranking = ora_alloc(blocks, sizeof *ranking);
		const int64_t count = rank_coarse(select, t, u, ranking, nan);
		for (int64_t i = 0; i < count && i < select->coarse_keep; i++)
			kept[(ranking[i].index - tiling->origin) / tiling->size - tiling->first] =
				1;
		free(ranking);
	}
	const int fine = select->block > 1;
	if (fine)
		mark_forced(select, t, tiling, kept);
	for (int64_t block = tiling->first; block <= tiling->last; block++) {
		const int forced = !fine && forced_order(tiling, block, select->first_blocks,
							 select->local_blocks) > 0;
		if (forced || block == tiling->last)
			kept[block - tiling->first] = 1;
	}
	return kept;
}

int64_t ora_coarse_kept(const struct ora_select *select, int64_t t, int32_t u, int32_t *kept)
{
	const struct tiling tiling = tile(&select->scoring, t, select->coarse_block);
	int nan = 0;
	unsigned char *flags = keep_coarse(select, t, u, &tiling, &nan);
	int64_t count = 0;
	for (int64_t block = tiling.first; block <= tiling.last; block++)
		if (flags[block - tiling.first])
			kept[count++] = (int32_t)block_begin(&tiling, block);
	free(flags);
	return count;
}

static int64_t rank_exact(const struct ora_select *select, int64_t t, int32_t u,
			  struct ora_candidate *ranking, int *nan)
{
	const struct tiling tiling = tile(&select->scoring, t, ora_or_one(select->block));
	int64_t count = 0;
	for (int64_t block = tiling.first; block <= tiling.last; block++)
		ranking[count++] = (struct ora_candidate){
			.index = (int32_t)block_begin(&tiling, block),
			.forced = forced_order(&tiling, block, select->first_blocks,
					       select->local_blocks),
			.score = block_score(select, t, u, &tiling, block, nan),
		};
	return count;
}

static int64_t rank_coarse_to_fine(const struct ora_select *select, int64_t t, int32_t u,
				   struct ora_candidate *ranking, int *nan)
{
	const struct tiling coarse = tile(&select->scoring, t, select->coarse_block);
	const struct tiling tiling = tile(&select->scoring, t, ora_or_one(select->block));
	unsigned char *kept = keep_coarse(select, t, u, &coarse, nan);
	int64_t count = 0;
	for (int64_t block = tiling.first; block <= tiling.last; block++) {
		const int64_t coarse_of_block = block * tiling.size / coarse.size;
		const int32_t forced = tiling.size > 1
					       ? forced_order(&tiling, block, select->first_blocks,
							      select->local_blocks)
					       : 0;
		if (!kept[coarse_of_block - coarse.first])
			continue;
		ranking[count++] = (struct ora_candidate){
			.index = (int32_t)block_begin(&tiling, block),
			.forced = forced,
			.score = block_score(select, t, u, &tiling, block, nan),
		};
	}
	free(kept);
	return count;
}

static int64_t rank_coarse_alone(const struct ora_select *select, int64_t t, int32_t u,
				 struct ora_candidate *ranking, int *nan)
{
	const struct tiling tiling = tile(&select->scoring, t, select->coarse_block);
	const int32_t local_blocks = ora_or_one(select->local_blocks);
	int64_t count = 0;
	for (int64_t block = tiling.first; block <= tiling.last; block++) {
		const int32_t forced =
			forced_order(&tiling, block, select->first_blocks, local_blocks);
		const int whole = wholly_visible(&tiling, block);
		if (!forced && !whole)
			continue;
		const int64_t begin = ora_max(block_begin(&tiling, block), tiling.begin);
		const int64_t end = ora_min(block_begin(&tiling, block + 1), tiling.end);
		const double score = mean_score(&select->scoring, t, u, begin, end);
		*nan |= whole && isnan(score);
		ranking[count++] =
			(struct ora_candidate){.index = (int32_t)block_begin(&tiling, block),
					       .forced = forced,
					       .score = score};
	}
	return count;
}

static int64_t rank(const struct ora_select *select, int64_t t, int32_t u,
		    struct ora_candidate *ranking, int *nan)
{
	/* That of coarse_to_fine depends on the blocks, which may be given. */
	struct kept_ranking *kept = select->memo != NULL && select->method != ORA_COARSE_TO_FINE
					    ? &select->memo->final[place_in_memo(select, t, u)]
					    : NULL;
	int64_t count = recall(kept, ranking, nan);
	int any_nan = 0;
	if (count >= 0)
		return count;
	switch (select->method) {
	case ORA_EXACT:
		count = rank_exact(select, t, u, ranking, &any_nan);
		break;
	case ORA_COARSE_TO_FINE:
		count = rank_coarse_to_fine(select, t, u, ranking, &any_nan);
		break;
	case ORA_COARSE:
		count = rank_coarse_alone(select, t, u, ranking, &any_nan);
		break;
	}
	sort_candidates(ranking, count);
	keep(kept, ranking, count, any_nan);
	*nan |= any_nan;
	return count;
}

int64_t ora_select_rank(const struct ora_select *select, int64_t t, int32_t u,
			struct ora_candidate *ranking)
{
	int nan = 0;
	return rank(select, t, u, ranking, &nan);
}

double ora_select_kth(const struct ora_candidate *ranking, int64_t count, int64_t wanted)
{
	if (count == 0 || count < wanted || ranking[count - 1].forced)
		return -(double)INFINITY;
	return ranking[count - 1].score;
}

static int compare_indices(const void *left, const void *right)
{
	const struct ora_candidate *a = left, *b = right;
	return a->index < b->index ? -1 : a->index > b->index;
}

/* `count` are chosen of `wanted` for (t, u), whose outputs are number `place`; reorders `ranking`. */
static void write_picks(const struct ora_select *select, int64_t place,
			struct ora_candidate *ranking, int64_t count, int64_t wanted)
{
	if (select->counts != NULL)
		select->counts[place] = (int32_t)count;
	if (select->kth != NULL)
		select->kth[place] = ora_select_kth(ranking, count, wanted);
	qsort(ranking, (size_t)count, sizeof *ranking, compare_indices);
	for (int64_t i = 0; i < select->topk_max; i++) {
		const int64_t slot = place * select->topk_max + i;
		if (select->indices != NULL)
			select->indices[slot] = i < count ? ranking[i].index : -1;
		if (select->scores != NULL)
			select->scores[slot] = i < count ? ranking[i].score : 0.0;
	}
}

void ora_select(struct ora_select *select)
{
	const struct ora_scoring *s = &select->scoring;
	const int32_t groups = ora_or_one(s->groups);
	const int64_t end = ora_row_end(s->rows, select->row_first, select->row_count);
	struct ora_candidate *ranking = ora_alloc(s->entries + 1, sizeof *ranking);
	select->nan_rows = 0;
	for (int64_t t = select->row_first; t < end; t++) {
		int nan = 0;
		for (int32_t u = 0; u < groups; u++) {
			const int64_t wanted = select->topk != NULL
						       ? ora_min(select->topk[u], select->topk_max)
						       : select->topk_max;
			const int64_t count = ora_min(wanted, rank(select, t, u, ranking, &nan));
			write_picks(select, t * groups + u, ranking, count, wanted);
		}
		select->nan_rows += nan;
	}
	free(ranking);
}

double ora_select_scale_of_row(const struct ora_select *select, int64_t t, int32_t u)
{
	const struct ora_scoring *s = &select->scoring;
	double *known =
		select->memo != NULL ? &select->memo->scales[place_in_memo(select, t, u)] : NULL;
	int64_t begin, end;
	if (known != NULL && *known >= 0.0)
		return *known;
	ora_entry_interval(s, t, &begin, &end);
	double scale = 0.0;
	for (int64_t e = begin; e < end; e++) {
		const double magnitude = ora_score_magnitude(s, t, u, s->index_k + e * s->dim);
		if (isfinite(magnitude) && magnitude > scale)
			scale = magnitude;
	}
	if (known != NULL)
		*known = scale;
	return scale;
}
