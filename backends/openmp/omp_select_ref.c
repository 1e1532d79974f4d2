/* omp_select_ref.c - select in plain loops: all scores of a row, then a
 * bisection on their keys. What other kernels are compared with. */
#include <math.h>
#include <string.h>

#include "omp_kernels.h"
#include "omp_pick.h"

enum state {
	STATE_NONE,	 /* no candidate */
	STATE_CANDIDATE, /* may be chosen by its score */
	STATE_CHOSEN,
	STATE_FORCED
};

/* Units of one (row, group), from the first visible one on. */
struct units {
	struct omp_tiling tiling;
	float *scores;
	uint8_t *states;
};

struct scratch {
	float *q;     /* [HI][DI] of one row */
	float *w;     /* [HI] */
	float *key;   /* [DI] */
	double *sums; /* [DI] */
	struct units units, blocks;
	int32_t nan_rows;
};

struct reference {
	const struct hys_call *call;
	const struct omp_isa *isa;
	int64_t heads, dim, groups;
	struct scratch *scratch; /* [threads] */
};

static void take_units(struct omp_arena *arena, int64_t count, struct units *units)
{
	units->scores = omp_take(arena, count, sizeof *units->scores);
	units->states = omp_take(arena, count, sizeof *units->states);
}

static struct scratch *lay_out(struct omp_arena *arena, const struct hys_size *size, hys_op op,
			       int32_t threads)
{
	const struct hys_scoring *scoring = &size->problem->scoring;
	struct scratch *all = omp_take(arena, threads, sizeof *all);
	struct scratch none = {0};
	for (int32_t i = 0; i < threads; i++) {
		struct scratch *scratch = arena->base ? all + i : &none;
		memset(scratch, 0, sizeof *scratch);
		scratch->q =
			omp_take(arena, (int64_t)scoring->heads * scoring->dim, sizeof *scratch->q);
		scratch->w = omp_take(arena, scoring->heads, sizeof *scratch->w);
		scratch->key = omp_take(arena, scoring->dim, sizeof *scratch->key);
		scratch->sums = omp_take(arena, scoring->dim, sizeof *scratch->sums);
		take_units(arena, size->entries, &scratch->units);
		if (op == HYS_OP_SELECT_COARSE_TO_FINE)
			take_units(arena, size->entries, &scratch->blocks);
	}
	return all;
}

int64_t omp_select_ref_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				 const struct hys_size *size)
{
	struct omp_arena arena = {0};
	lay_out(&arena, size, kernel->op, omp_device(device)->threads);
	return arena.used;
}

static float scale_at(const struct hys_tensor *scale, int64_t i0, int64_t i1)
{
	return hys_present(scale) ? *(const float *)omp_at(scale, i0, i1, 0) : 1.0f;
}

static void load_row(const struct reference *ref, struct scratch *scratch, int64_t t)
{
	const struct hys_select_args *args = &ref->call->args.select;
	for (int64_t j = 0; j < ref->heads; j++) {
		float *q = scratch->q + j * ref->dim;
		const float factor = scale_at(&args->index_q_scale, t, j);
		ref->isa->to_f32(args->index_q.dtype, omp_at(&args->index_q, t, j, 0), q, ref->dim);
		for (int64_t d = 0; d < ref->dim; d++)
			q[d] *= factor;
		scratch->w[j] = scale_at(&args->index_w, t, j);
	}
}

/* The mean of entries [begin, end), or the entry itself, into scratch->key. */
static void load_key(const struct reference *ref, struct scratch *scratch, int64_t begin,
		     int64_t end)
{
	const struct hys_select_args *args = &ref->call->args.select;
	for (int64_t d = 0; d < ref->dim; d++)
		scratch->sums[d] = 0.0;
	for (int64_t e = begin; e < end; e++) {
		const float factor = scale_at(&args->index_k_scale, e, 0);
		ref->isa->to_f32(args->index_k.dtype, omp_at(&args->index_k, e, 0, 0), scratch->key,
				 ref->dim);
		for (int64_t d = 0; d < ref->dim; d++)
			scratch->sums[d] += (double)(scratch->key[d] * factor);
	}
	for (int64_t d = 0; d < ref->dim; d++)
		scratch->key[d] = (float)(scratch->sums[d] / (double)(end - begin));
}

/* The score of scratch->key for a group. */
static float score_key(const struct reference *ref, const struct scratch *scratch, int64_t u)
{
	const struct hys_scoring *scoring = &ref->call->problem->scoring;
	const int64_t heads = ref->heads / ref->groups;
	float score = 0.0f;
	for (int64_t j = u * heads; j < (u + 1) * heads; j++) {
		const float *q = scratch->q + j * ref->dim;
		float z = (float)scoring->scale * ref->isa->dot(q, scratch->key, ref->dim);
		if (scoring->activation == HYS_ACTIVATION_RELU && z < 0.0f)
			z = 0.0f;
		score += scratch->w[j] * z;
	}
	return score;
}

/* The visible entries of unit i. */
static void visible_part(const struct omp_tiling *tiling, int64_t i, int64_t *begin, int64_t *end)
{
	const int64_t first = tiling->origin + (tiling->first + i) * tiling->size;
	*begin = hys_max64(first, tiling->begin);
	*end = hys_min64(first + tiling->size, tiling->end);
}

/* Scores of the units that are candidates or forced: maxima over entries. */
static bool score_entries(const struct reference *ref, struct scratch *scratch, int64_t u)
{
	const struct units *units = &scratch->units;
	bool nan = false;
	for (int64_t i = 0; i < units->tiling.count; i++) {
		int64_t begin, end;
		visible_part(&units->tiling, i, &begin, &end);
		units->scores[i] = NAN;
		if (units->states[i] == STATE_NONE)
			continue;
		for (int64_t e = begin; e < end; e++) {
			load_key(ref, scratch, e, e + 1);
			const float score = score_key(ref, scratch, u);
			nan |= score != score;
			units->scores[i] = fmaxf(units->scores[i], score);
		}
	}
	return nan;
}

/* Scores of blocks: of the means of their visible entries. Whole ones become
 * candidates. */
static bool score_blocks(const struct reference *ref, struct scratch *scratch, int64_t u,
			 struct units *blocks)
{
	bool nan = false;
	for (int64_t i = 0; i < blocks->tiling.count; i++) {
		int64_t begin, end;
		visible_part(&blocks->tiling, i, &begin, &end);
		load_key(ref, scratch, begin, end);
		const float score = score_key(ref, scratch, u);
		const bool whole = end - begin == blocks->tiling.size;
		blocks->scores[i] = score;
		blocks->states[i] = whole ? STATE_CANDIDATE : STATE_NONE;
		nan |= whole && score != score;
	}
	return nan;
}

static int64_t count_from(const struct units *units, uint32_t key)
{
	int64_t count = 0;
	for (int64_t i = 0; i < units->tiling.count; i++)
		count += units->states[i] == STATE_CANDIDATE &&
			 omp_topk_key(units->scores[i]) >= key;
	return count;
}

/* Turns the k best candidates into chosen ones; answers the lowest of their
 * scores, -inf if there are none. */
static float choose_best(struct units *units, int64_t k)
{
	/* The largest key that k candidates reach, bit by bit. */
	uint32_t pivot = 0;
	for (int32_t bit = 31; bit >= 0; bit--)
		if (count_from(units, pivot | UINT32_C(1) << bit) >= k)
			pivot |= UINT32_C(1) << bit;
	int64_t ties = k - (pivot == UINT32_MAX ? 0 : count_from(units, pivot + 1));
	float lowest = k > 0 && count_from(units, 0) > 0 ? INFINITY : -INFINITY;
	for (int64_t i = 0; k > 0 && i < units->tiling.count; i++) {
		const uint32_t key = omp_topk_key(units->scores[i]);
		if (units->states[i] != STATE_CANDIDATE || key < pivot ||
		    (key == pivot && ties-- <= 0))
			continue;
		units->states[i] = STATE_CHOSEN;
		if (key < omp_topk_key(lowest))
			lowest = units->scores[i];
	}
	return lowest;
}

/* Marks forced units, newest local ones first, then first ones; answers how
 * many of k slots are left. */
static int64_t force(struct units *units, int64_t k, int64_t first_blocks, int64_t local_blocks)
{
	const int64_t count = units->tiling.count;
	for (int64_t i = count - 1; k > 0 && i >= 0 && i >= count - local_blocks; i--, k--)
		units->states[i] = STATE_FORCED;
	for (int64_t i = 0; k > 0 && i < first_blocks && i < count - local_blocks; i++, k--)
		units->states[i] = STATE_FORCED;
	return k;
}

static void set_states(struct units *units, enum state state)
{
	for (int64_t i = 0; i < units->tiling.count; i++)
		units->states[i] = (uint8_t)state;
}

/* Coarse to fine: candidates are the units of the coarse blocks that are kept,
 * forced, or hold the last visible entry. */
static bool keep_coarse(const struct reference *ref, struct scratch *scratch, int64_t t, int64_t u)
{
	const struct hys_choosing *choosing = &ref->call->problem->choosing;
	struct units *units = &scratch->units, *blocks = &scratch->blocks;
	const int64_t ratio = choosing->coarse_block / units->tiling.size;
	const int64_t fine_end = units->tiling.first + units->tiling.count;
	blocks->tiling = omp_tiling_of_row(ref->call, t, choosing->coarse_block);
	const bool nan = score_blocks(ref, scratch, u, blocks);
	choose_best(blocks, choosing->coarse_keep);
	for (int64_t i = 0; i < units->tiling.count; i++) {
		const int64_t unit = units->tiling.first + i;
		const int64_t block = unit / ratio - blocks->tiling.first;
		/* Forced in units of what is chosen: blocks, or coarse blocks. */
		const int64_t size = units->tiling.size > 1 ? 1 : ratio;
		const int64_t from_first =
			hys_max64(0, unit / ratio * ratio / size - units->tiling.first / size);
		const int64_t to_last =
			(fine_end - 1) / size -
			hys_min64(fine_end - 1, (unit / ratio + 1) * ratio - 1) / size;
		const bool kept = blocks->states[block] == STATE_CHOSEN ||
				  block == blocks->tiling.count - 1 ||
				  from_first < choosing->first_blocks ||
				  to_last < choosing->local_blocks;
		units->states[i] = kept ? STATE_CANDIDATE : STATE_NONE;
	}
	return nan;
}

static void write(const struct units *units, const struct omp_picked *picked, int64_t k,
		  float lowest)
{
	int64_t place = 0;
	for (int64_t i = 0; i < units->tiling.count; i++) {
		if (units->states[i] < STATE_CHOSEN)
			continue;
		picked->indices[place] = (int32_t)(units->tiling.origin +
						   (units->tiling.first + i) * units->tiling.size);
		if (picked->scores)
			picked->scores[place] = units->scores[i];
		place++;
	}
	if (picked->count)
		*picked->count = (int32_t)place;
	if (picked->kth)
		*picked->kth = place < k ? -INFINITY : lowest;
	for (; place < picked->slots; place++) {
		picked->indices[place] = -1;
		if (picked->scores)
			picked->scores[place] = 0.0f;
	}
}

static bool choose(const struct reference *ref, struct scratch *scratch, int64_t t, int64_t u)
{
	const struct hys_call *call = ref->call;
	const struct hys_choosing *choosing = &call->problem->choosing;
	const struct omp_picked picked = omp_picked(&call->args.select, t, u);
	const bool coarse = call->op == HYS_OP_SELECT_COARSE;
	struct units *units = &scratch->units;
	int64_t first = choosing->first_blocks, local = choosing->local_blocks;
	bool nan = false;

	units->tiling = omp_tiling_of_row(
		call, t, coarse ? choosing->coarse_block : call->problem->scoring.block);
	set_states(units, STATE_CANDIDATE);
	if (coarse) {
		nan = score_blocks(ref, scratch, u, units);
		local = hys_max64(1, local);
	} else if (call->op == HYS_OP_SELECT_COARSE_TO_FINE) {
		nan = keep_coarse(ref, scratch, t, u);
		if (units->tiling.size == 1)
			first = local = 0;
	}
	const int64_t left = force(units, call->topk[u], first, local);
	if (!coarse)
		nan |= score_entries(ref, scratch, u);
	write(units, &picked, call->topk[u], choose_best(units, left));
	return nan;
}

static void row_item(void *context, int64_t t, int32_t thread)
{
	const struct reference *ref = context;
	struct scratch *scratch = ref->scratch + thread;
	bool nan = false;
	load_row(ref, scratch, t);
	for (int64_t u = 0; u < ref->groups; u++)
		nan |= choose(ref, scratch, t, u);
	scratch->nan_rows += nan;
}

hys_status omp_select_ref_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			      void *instance, const struct hys_call *call, struct hys_error *error)
{
	struct omp_arena arena = omp_arena(&call->workspace);
	const int32_t threads = omp_threads(stream);
	struct reference ref = {
		.call = call,
		.isa = omp_isa_of_stream(kernel, stream),
		.heads = call->problem->scoring.heads,
		.dim = call->problem->scoring.dim,
		.groups = call->problem->scoring.groups,
	};
	int32_t nan_rows = 0;
	(void)instance, (void)error;
	ref.scratch = lay_out(&arena, &call->size, call->op, threads);
	omp_for(threads, call->size.rows, row_item, &ref);
	for (int32_t i = 0; i < threads; i++)
		nan_rows += ref.scratch[i].nan_rows;
	if (hys_present(&call->args.select.nan_rows))
		*(int32_t *)omp_at(&call->args.select.nan_rows, 0, 0, 0) = nan_rows;
	return HYS_OK;
}
