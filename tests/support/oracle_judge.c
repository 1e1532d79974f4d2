/* Judges an implementation's picks by the tolerance of the specification. */
#include "oracle.h"
#include "oracle_internal.h"

#include <stdarg.h>

/* One (row, group) under judgement. */
struct trial {
	int64_t t;
	int32_t u;
	const int32_t *picks;		  /* [slots] */
	int64_t slots, count;		  /* count: picks before the first -1 */
	struct ora_candidate *ranking;	  /* the oracle's, in rank order */
	int64_t topk, candidates, wanted; /* wanted = min(topk, candidates) */
	double tolerance;		  /* eps * scale_of_row */
	int strict;			  /* eps = 0 */
	char *message;
	size_t message_size;
};

/* Writes "row t group u: ..." and returns 0. */
static int refuse(const struct trial *trial, const char *format, ...)
{
	if (trial->message == NULL || trial->message_size == 0)
		return 0;
	const int used = snprintf(trial->message, trial->message_size,
				  "row %lld group %d: ", (long long)trial->t, (int)trial->u);
	if (used > 0 && (size_t)used < trial->message_size) {
		va_list arguments;
		va_start(arguments, format);
		vsnprintf(trial->message + used, trial->message_size - (size_t)used, format,
			  arguments);
		va_end(arguments);
	}
	return 0;
}

static int holds(const int32_t *ascending, int64_t count, int32_t index)
{
	for (int64_t i = 0; i < count; i++)
		if (ascending[i] == index)
			return 1;
	return 0;
}

/* Position of an index in the ranking, or -1. */
static int64_t place_of(const struct trial *trial, int32_t index)
{
	for (int64_t i = 0; i < trial->candidates; i++)
		if (trial->ranking[i].index == index)
			return i;
	return -1;
}

/* Strictly ascending, left-packed, -1 behind; sets trial->count. */
static int judge_form(struct trial *trial)
{
	int64_t count = 0;
	while (count < trial->slots && trial->picks[count] >= 0)
		count++;
	for (int64_t i = 0; i < trial->slots; i++) {
		if (i >= count && trial->picks[i] != -1)
			return refuse(trial, "slot %lld holds %d, expected -1 behind %lld picks",
				      (long long)i, (int)trial->picks[i], (long long)count);
		if (i > 0 && i < count && trial->picks[i] <= trial->picks[i - 1])
			return refuse(trial,
				      "slot %lld holds %d after %d, expected ascending order",
				      (long long)i, (int)trial->picks[i], (int)trial->picks[i - 1]);
	}
	trial->count = count;
	return 1;
}

/* Can a candidate of this score be picked though it ranks behind the last one wanted? */
static int near_enough(const struct trial *trial, double score, double kth)
{
	if (trial->strict)
		return 0;
	return isnan(kth) || score >= kth - trial->tolerance;
}

/* Must a candidate of this score, ranking before the last one wanted, be picked? */
static int clearly_above(const struct trial *trial, double score, double kth)
{
	if (trial->strict)
		return 1;
	return isnan(kth) ? !isnan(score) : score > kth + trial->tolerance;
}

static int judge_set(const struct trial *trial)
{
	const double kth = trial->wanted > 0 ? trial->ranking[trial->wanted - 1].score : 0.0;
	const int all_forced = trial->wanted > 0 && trial->ranking[trial->wanted - 1].forced > 0;
	for (int64_t i = 0; i < trial->count; i++) {
		const int64_t place = place_of(trial, trial->picks[i]);
		if (place < 0)
			return refuse(trial, "picked %d, which is no candidate",
				      (int)trial->picks[i]);
		const double score = trial->ranking[place].score;
		if (place >= trial->wanted && (all_forced || !near_enough(trial, score, kth)))
			return refuse(trial,
				      "picked %d with score %.9g, rank %lld of %lld; the last to "
				      "pick has %.9g, tolerance %.3g",
				      (int)trial->picks[i], score, (long long)place,
				      (long long)trial->wanted, kth, trial->tolerance);
	}
	for (int64_t i = 0; i < trial->wanted; i++) {
		const struct ora_candidate *expected = trial->ranking + i;
		if (!expected->forced && !clearly_above(trial, expected->score, kth))
			continue;
		if (!holds(trial->picks, trial->count, expected->index))
			return refuse(trial,
				      "missing %d with score %.9g%s; the last to pick has %.9g, "
				      "tolerance %.3g",
				      (int)expected->index, expected->score,
				      expected->forced ? " (forced)" : "", kth, trial->tolerance);
	}
	return 1;
}

static int same_score(double got, double want, double tolerance)
{
	if (isnan(want) || isnan(got))
		return isnan(want) && isnan(got);
	return got == want || fabs(got - want) <= tolerance;
}

/* A forced block of `coarse` may be partial and then has no score to compare. */
static int judge_scores(const struct trial *trial, const double *scores, enum ora_method method)
{
	for (int64_t i = 0; i < trial->count; i++) {
		const struct ora_candidate *pick =
			trial->ranking + place_of(trial, trial->picks[i]);
		const double want = pick->score;
		if (method == ORA_COARSE && pick->forced)
			continue;
		if (!same_score(scores[i], want, trial->tolerance))
			return refuse(trial,
				      "index %d has score %.9g, expected %.9g, tolerance %.3g",
				      (int)trial->picks[i], scores[i], want, trial->tolerance);
	}
	return 1;
}

static int judge_kth(const struct trial *trial, double kth)
{
	const double want = ora_select_kth(trial->ranking, trial->wanted, trial->topk);
	if (!same_score(kth, want, trial->tolerance))
		return refuse(trial, "kth is %.9g, expected %.9g, tolerance %.3g", kth, want,
			      trial->tolerance);
	return 1;
}

static int judge_row(const struct ora_select *select, const struct ora_picks *answer, int64_t place,
		     struct trial *trial)
{
	const int64_t slots = select->topk_max;
	trial->picks = answer->indices + place * slots;
	trial->slots = slots;
	trial->candidates = ora_select_rank(select, trial->t, trial->u, trial->ranking);
	trial->topk = select->topk != NULL ? ora_min(select->topk[trial->u], slots) : slots;
	trial->wanted = ora_min(trial->topk, trial->candidates);
	if (!judge_form(trial))
		return 0;
	if (answer->counts != NULL && answer->counts[place] != trial->count)
		return refuse(trial, "counts says %d, there are %lld picks",
			      (int)answer->counts[place], (long long)trial->count);
	if (trial->count != trial->wanted)
		return refuse(trial, "%lld picks, expected %lld of %lld candidates",
			      (long long)trial->count, (long long)trial->wanted,
			      (long long)trial->candidates);
	return judge_set(trial) &&
	       (answer->scores == NULL ||
		judge_scores(trial, answer->scores + place * slots, select->method)) &&
	       (answer->kth == NULL || judge_kth(trial, answer->kth[place]));
}

/* Does a pick of [0, count) lie in the coarse block that starts at `block`? */
static int block_is_used(const int32_t *picks, int64_t slots, int64_t block, int64_t size)
{
	for (int64_t i = 0; i < slots; i++)
		if (picks[i] >= block && picks[i] < block + size)
			return 1;
	return 0;
}

/*
 * The coarse blocks that the implementation must or may have kept, in the layout
 * of given_blocks: those clearly above the last one kept, and those near it that
 * hold one of its picks.  A near block without a pick cannot change the verdict.
 */
static void infer_blocks(const struct ora_select *select, struct trial *trial, int32_t *blocks)
{
	const int64_t count = ora_coarse_rank(select, trial->t, trial->u, trial->ranking);
	const int64_t kept = ora_min(select->coarse_keep, count);
	const double last = kept > 0 ? trial->ranking[kept - 1].score : 0.0;
	for (int64_t i = 0; i < count; i++) {
		const struct ora_candidate *block = trial->ranking + i;
		const int inside = i < kept;
		int counts = inside;
		if (inside && kept < count && !clearly_above(trial, block->score, last))
			counts = block_is_used(trial->picks, trial->slots, block->index,
					       select->coarse_block);
		else if (!inside)
			counts = kept > 0 && near_enough(trial, block->score, last) &&
				 block_is_used(trial->picks, trial->slots, block->index,
					       select->coarse_block);
		if (counts)
			*blocks++ = block->index;
	}
}

static void prepare(const struct ora_select *select, double eps, struct trial *trial, int64_t t,
		    int32_t u)
{
	trial->t = t;
	trial->u = u;
	trial->strict = eps == 0.0;
	trial->tolerance = trial->strict ? 0.0 : eps * ora_select_scale_of_row(select, t, u);
}

int ora_select_judge(const struct ora_select *select, const struct ora_picks *picks, double eps,
		     char *message, size_t message_size)
{
	const struct ora_scoring *s = &select->scoring;
	const int32_t groups = ora_or_one(s->groups);
	const int64_t end = ora_row_end(s->rows, select->row_first, select->row_count);
	const int infer = select->method == ORA_COARSE_TO_FINE && select->given_blocks == NULL;
	struct ora_select judged = *select;
	int32_t *blocks = NULL;
	if (infer) {
		judged.given_max = (int32_t)(s->entries / select->coarse_block + 1);
		blocks = ora_alloc(s->rows * groups * judged.given_max, sizeof *blocks);
		for (int64_t i = 0; i < s->rows * groups * judged.given_max; i++)
			blocks[i] = -1;
		judged.given_blocks = blocks;
	}
	struct trial trial = {.ranking = ora_alloc(s->entries + 1, sizeof *trial.ranking),
			      .message = message,
			      .message_size = message_size};
	int well = 1;
	for (int64_t t = select->row_first; well && t < end; t++)
		for (int32_t u = 0; well && u < groups; u++) {
			const int64_t place = (t - select->row_first) * groups + u;
			prepare(select, eps, &trial, t, u);
			trial.picks = picks->indices + place * select->topk_max;
			trial.slots = select->topk_max;
			if (infer)
				infer_blocks(select, &trial,
					     blocks + (t * groups + u) * judged.given_max);
			well = judge_row(&judged, picks, place, &trial);
		}
	free(trial.ranking);
	free(blocks);
	return well;
}

/* Everything that must be kept is, and everything kept may be. */
static int judge_blocks(const struct ora_select *select, struct trial *trial, const int32_t *extra,
			int64_t extras)
{
	trial->wanted = ora_min(select->coarse_keep, trial->candidates);
	const double last = trial->wanted > 0 ? trial->ranking[trial->wanted - 1].score : 0.0;
	for (int64_t i = 0; i < extras; i++)
		if (!holds(trial->picks, trial->count, extra[i]))
			return refuse(trial, "missing block %d, which is always kept",
				      (int)extra[i]);
	for (int64_t i = 0; i < trial->wanted; i++) {
		const struct ora_candidate *block = trial->ranking + i;
		if ((trial->wanted == trial->candidates ||
		     clearly_above(trial, block->score, last)) &&
		    !holds(trial->picks, trial->count, block->index))
			return refuse(trial,
				      "missing block %d with score %.9g; the last kept has %.9g, "
				      "tolerance %.3g",
				      (int)block->index, block->score, last, trial->tolerance);
	}
	for (int64_t i = 0; i < trial->count; i++) {
		const int64_t place = place_of(trial, trial->picks[i]);
		const int ranked =
			place >= 0 && (place < trial->wanted ||
				       (trial->wanted > 0 &&
					near_enough(trial, trial->ranking[place].score, last)));
		if (!ranked && !holds(extra, extras, trial->picks[i]))
			return refuse(trial, "kept block %d, rank %lld of %lld",
				      (int)trial->picks[i], (long long)place,
				      (long long)trial->wanted);
	}
	if (trial->count < trial->wanted || trial->count > trial->wanted + extras)
		return refuse(trial, "kept %lld blocks, expected %lld and at most %lld forced ones",
			      (long long)trial->count, (long long)trial->wanted, (long long)extras);
	return 1;
}

int ora_coarse_judge(const struct ora_select *select, const int32_t *blocks, int32_t blocks_max,
		     double eps, char *message, size_t message_size)
{
	const struct ora_scoring *s = &select->scoring;
	const int32_t groups = ora_or_one(s->groups);
	const int64_t end = ora_row_end(s->rows, select->row_first, select->row_count);
	const int64_t room = s->entries / select->coarse_block + 2;
	int32_t *extra = ora_alloc(room, sizeof *extra);
	struct trial trial = {.ranking = ora_alloc(room, sizeof *trial.ranking),
			      .slots = blocks_max,
			      .message = message,
			      .message_size = message_size};
	struct ora_select only_forced = *select;
	only_forced.coarse_keep = 0;
	only_forced.given_blocks = NULL;
	int well = 1;
	for (int64_t t = select->row_first; well && t < end; t++)
		for (int32_t u = 0; well && u < groups; u++) {
			prepare(select, eps, &trial, t, u);
			trial.picks = blocks + ((t - select->row_first) * groups + u) * blocks_max;
			trial.candidates = ora_coarse_rank(select, t, u, trial.ranking);
			const int64_t extras = ora_coarse_kept(&only_forced, t, u, extra);
			well = judge_form(&trial) && judge_blocks(select, &trial, extra, extras);
		}
	free(trial.ranking);
	free(extra);
	return well;
}
