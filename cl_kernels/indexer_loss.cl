/* indexer_loss.cl - KL(teacher || softmax(score over the set)) and its gradients.
 *
 * Per tile of rows: the sets, their scores, their teachers, then d score = factor *
 * (softmax - teacher), and from it, chunk by chunk as attention_backward.cl, d_index_q,
 * d_index_k and d_index_w. Everything here but the tile's totals goes by (row, group).
 * Options: VARIANT and those of its products. */
#include "attention_logit.clh"
#include "gradient.clh"
#include "indexer_loss_sets.clh"

/* Bytes behind the start of the workspace. */
struct loss_regions {
	long w;	      /* f32 [rows][groups][pitch]: weights of the index heads */
	long dw;      /* the same: their gradient */
	long part;    /* f32 [rows][groups][capacity]: a position's score or share */
	long score;   /* f32 [rows][groups][most]: of units; then d score */
	long teacher; /* f32 [rows][groups][most] */
	long best;    /* int [rows][groups][most]: best entries of units of several */
	long most;    /* units that there is room for */
	long loss;    /* f32 [rows][groups] */
	long factor;  /* f32: coefficient and reduction; behind it int: sets that count; the
			 pair of floats of the whole loss */
};

struct scoring {
	float scale;
	int relu;
};

static inline heads_t activate(const struct scoring *scoring, heads_t dot_product)
{
	const heads_t z = scoring->scale * dot_product;
	return scoring->relu ? select(z, (heads_t)(0.0f), z < 0.0f) : z;
}

/* ---- the factor ---- */

/* factor = number, or number / counter where the counter counts. One work-item. */
__kernel void set_factor(float number, int counted, __global uchar *work, struct loss_regions at)
{
	__global float *factor = WORK(float, at.factor);
	const int count = WORK(int, at.factor)[1];
	factor[0] = counted ? number / (float)max(count, 1) : number;
	factor[2] = factor[3] = 0.0f;
}

/* One work-item. */
__kernel void clear_counter(__global uchar *work, struct loss_regions at)
{
	WORK(int, at.factor)[1] = 0;
}

/* ---- scores ---- */

/* Weights of the index heads, 1 where absent, 0 behind the last. Work-item: one weight. */
__kernel void pack_weights(const __global float *w, long4 w_at, struct row_map map,
			   __global uchar *work, struct loss_regions at, struct tile tile)
{
	const int e = (int)get_global_id(0), h = e % tile.pitch, cell = e / tile.pitch;
	if (cell < tile.rows * tile.bundles) {
		const long row = row_of(&map, cell / tile.bundles);
		const int head = cell % tile.bundles * tile.bundle + h;
		float weight = h < tile.bundle ? 1.0f : 0.0f;
		if (h < tile.bundle && PRESENT(w_at))
			weight = w[w_at.s0 + row * w_at.s1 + head * w_at.s2];
		WORK(float, at.w)[e] = weight;
	}
}

static inline float sum_heads(heads_t values)
{
#if LANES == 1
	return values;
#else
	float spill[LANES], sum = 0.0f;
	STORE_HEADS(values, spill);
	for (int i = 0; i < LANES; i++)
		sum += spill[i];
	return sum;
#endif
}

/* Scores of the chunk's entries. Work-item: (row and group, position). */
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void
entry_scores(struct scoring scoring, __global uchar *work, struct operands from,
	     struct loss_regions at, struct tile tile)
{
	const long cell = (long)get_group_id(0);
	const int first = (int)get_group_id(1) * 64 + (int)get_local_id(0);
	const int count = min(WORK(int, from.count)[cell], ((int)get_group_id(1) + 1) * 64);
	const __global float *weights = WORK(float, from.weights) + cell_weights(&tile, cell);
	const __global float *w = WORK(float, at.w) + cell * tile.pitch;
	__global float *part = WORK(float, at.part) + cell * tile.capacity;
	for (int p = first; p < count; p += LOCAL) {
		heads_t sum = 0.0f;
		for (int h = 0; h < tile.pitch; h += LANES)
			sum = FMA(
				LOAD_HEADS(w + h),
				activate(&scoring, LOAD_HEADS(weights + (long)p * tile.pitch + h)),
				sum);
		part[p] = sum_heads(sum);
	}
}

/* The positions of unit i in the chunk. */
static inline void unit_positions(int i, int size, int skip, int all, long first, int capacity,
				  int *begin, int *end)
{
	const long low = (long)i * size - skip, high = low + size;
	*begin = (int)clamp(low - first, 0L, (long)capacity);
	*end = (int)clamp(min(high, (long)all) - first, 0L, (long)capacity);
}

/* A unit's score is the largest of its entries', NaN left out unless all are; the first of
 * equal ones is its best. Work-group: (row and group, 64 units). */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
unit_scores(long first, struct rules rules, __global uchar *work, struct set_regions sets_at,
	    struct loss_regions at, struct tile tile)
{
	const long id = (long)get_group_id(0);
	const int i = (int)get_group_id(1) * 64 + (int)get_local_id(0);
	const struct unit_set set = WORK(struct unit_set, sets_at.sets)[id];
	const __global float *part = WORK(float, at.part) + id * tile.capacity;
	const __global int *list = WORK(int, sets_at.list) + id * tile.capacity;
	int begin, end;
	unit_positions(i, rules.step, set.entry_skip, set.entries, first, tile.capacity, &begin,
		       &end);
	if (i < set.units && begin < end) {
		__global float *score_at = WORK(float, at.score) + id * at.most + i;
		__global int *best_at = WORK(int, at.best) + id * at.most + i;
		const bool go_on = (long)i * rules.step - set.entry_skip < first && first > 0;
		float score = go_on ? *score_at : part[begin];
		int best = go_on && rules.step > 1 ? *best_at : list[begin];
		for (int p = begin; p < end; p++)
			if (part[p] > score || (isnan(score) && !isnan(part[p]))) {
				score = part[p];
				best = list[p];
			}
		*score_at = score;
		if (rules.step > 1)
			*best_at = best;
	}
}

/* What the caller has of each unit's slot. Work-group: (row and group, 64 units). */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
take_units(const __global float *given, long4 given_at, long to, struct row_map map, int topk,
	   __global uchar *work, struct set_regions sets_at, struct loss_regions at,
	   struct tile tile)
{
	const int id = (int)get_group_id(0);
	const int i = (int)get_group_id(1) * 64 + (int)get_local_id(0);
	const long row = row_of(&map, id / tile.groups);
	if (i < WORK(struct unit_set, sets_at.sets)[id].units) {
		const int slot = WORK(int, sets_at.slots)[(long)id * topk + i];
		__global float *taken = WORK(float, to) + (long)id * at.most;
		taken[i] = given[given_at.s0 + row * given_at.s1 + id % tile.groups * given_at.s2 +
				 slot];
	}
}

/* ---- teacher ---- */

/* Bytes behind the start of the workspace; f32 [rows][bundles][pitch] each. */
struct totals {
	long most, sum;
	long whole; /* log of the denominator of a head's shares, +inf: it shares nothing */
};

/* Adds the chunk to each head's softmax over the set. Work-group: heads_item_of. */
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void
normalise(int start, struct logit logit, __global uchar *work, struct operands from,
	  struct totals at, struct tile tile)
{
	SLICE_PARTS;
	const struct heads_item item = heads_item_of(&tile);
	const int count = item.real ? WORK(int, from.count)[list_of(&tile, item.cell)] : 0;
	const long place = (long)item.cell * tile.pitch + (item.real ? item.h : 0);
	__global float *weights =
		WORK(float, from.weights) + cell_weights(&tile, item.cell) + item.h;
	const bool fresh = start || !writes(&item);
	const heads_t before =
		fresh ? (heads_t)(NEGATIVE_INFINITY) : LOAD_HEADS(WORK(float, at.most) + place);
	const heads_t sum_before =
		fresh ? (heads_t)(0.0f) : LOAD_HEADS(WORK(float, at.sum) + place);
	heads_t most = largest_logit(&logit, weights, tile.pitch, count, item.slice, false), sum;
	most = fmax(before, most);
	most = LARGEST_OF_SLICES(most);
	sum = sum_shares(&logit, weights, tile.pitch, count, item.slice, false, most);
	sum = SUM_OF_SLICES(sum);
	if (writes(&item)) {
		STORE_HEADS(most, WORK(float, at.most) + place);
		STORE_HEADS(sum_before * share_of(before, most) + sum, WORK(float, at.sum) + place);
	}
}

/* Work-item: one head, those of the padding too. */
__kernel void set_totals(const __global float *lse, long4 lse_at, const __global float *sink,
			 long4 sink_at, struct row_map map, __global uchar *work, struct totals at,
			 struct tile tile)
{
	const int place = (int)get_global_id(0), h = place % tile.pitch, cell = place / tile.pitch;
	if (cell < tile.rows * tile.bundles) {
		const long row = row_of(&map, cell / tile.bundles);
		const int head = cell % tile.bundles * tile.bundle + h;
		float whole = NEGATIVE_INFINITY;
		if (h < tile.bundle && PRESENT(lse_at))
			whole = lse[lse_at.s0 + row * lse_at.s1 + head * lse_at.s2];
		else if (h < tile.bundle)
			whole = WORK(float, at.most)[place] + log(WORK(float, at.sum)[place]);
		if (h < tile.bundle && PRESENT(sink_at))
			whole = log_add_exp(whole, sink[sink_at.s0 + head]);
		WORK(float, at.whole)[place] = whole == NEGATIVE_INFINITY ? INFINITY : whole;
	}
}

/* What the heads of a group share with the chunk's key rows. Work-item: (row and group,
 * position). */
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void
key_shares(struct logit logit, __global uchar *work, struct operands from, struct totals totals,
	   struct loss_regions at, struct tile tile)
{
	const long id = (long)get_group_id(0);
	const int first = (int)get_group_id(1) * 64 + (int)get_local_id(0);
	const int count = min(WORK(int, from.count)[id], ((int)get_group_id(1) + 1) * 64);
	const int bundles = tile.bundles / tile.groups;
	__global float *part = WORK(float, at.part) + id * tile.capacity;
	for (int p = first; p < count; p += LOCAL) {
		heads_t sum = 0.0f;
		for (int b = 0; b < bundles; b++) {
			const long cell = id * bundles + b;
			const __global float *dots = WORK(float, from.weights) +
						     cell_weights(&tile, cell) +
						     (long)p * tile.pitch;
			const __global float *whole = WORK(float, totals.whole) + cell * tile.pitch;
			for (int h = 0; h < tile.pitch; h += LANES)
				sum += exp(logit_of(&logit, LOAD_HEADS(dots + h)) -
					   LOAD_HEADS(whole + h));
		}
		part[p] = sum_heads(sum);
	}
}

/* Adds the shares of a unit's key rows. Work-group: (row and group, 64 units). */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
unit_shares(long first, struct rules rules, __global uchar *work, struct set_regions sets_at,
	    struct loss_regions at, struct tile tile)
{
	const long id = (long)get_group_id(0);
	const int i = (int)get_group_id(1) * 64 + (int)get_local_id(0);
	const struct unit_set set = WORK(struct unit_set, sets_at.sets)[id];
	const __global float *part = WORK(float, at.part) + id * tile.capacity;
	int begin, end;
	unit_positions(i, rules.span, set.key_skip, set.keys, first, tile.capacity, &begin, &end);
	if (i < set.units && (begin < end || first == 0)) {
		__global float *teacher = WORK(float, at.teacher) + id * at.most + i;
		float sum = first == 0 ? 0.0f : *teacher;
		for (int p = begin; p < end; p++)
			sum += part[p];
		*teacher = sum;
	}
}

/* Work-group: (row, group). */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
store_teacher(__global float *out, long4 out_at, struct row_map map, int topk, __global uchar *work,
	      struct set_regions sets_at, struct loss_regions at, struct tile tile)
{
	const int id = (int)get_group_id(0), lane = (int)get_local_id(0);
	const int units = WORK(struct unit_set, sets_at.sets)[id].units;
	const __global int *slots = WORK(int, sets_at.slots) + (long)id * topk;
	const __global float *teacher = WORK(float, at.teacher) + (long)id * at.most;
	out += out_at.s0 + row_of(&map, id / tile.groups) * out_at.s1 +
	       id % tile.groups * out_at.s2;
	for (int slot = lane; slot < topk; slot += 64)
		out[slot] = 0.0f;
	barrier(CLK_GLOBAL_MEM_FENCE);
	for (int i = lane; i < units; i += 64)
		out[slots[i]] = teacher[i];
}

/* ---- loss ---- */

/* The sum of 64 work-items' pairs of floats, in a fixed order. */
INLINE float sum_pairs(__local float *sums, __local float *rests, float sum, float rest)
{
	const int lane = (int)get_local_id(0);
	float whole = 0.0f, whole_rest = 0.0f;
	barrier(CLK_LOCAL_MEM_FENCE);
	sums[lane] = sum;
	rests[lane] = rest;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int i = 0; i < 64; i++) {
		add_to_pair(&whole, &whole_rest, sums[i]);
		whole_rest += rests[i];
	}
	return whole + whole_rest;
}

/* The loss of a set; scores become d score. Work-group: (row, group). */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
judge(__global uchar *work, struct set_regions sets_at, struct loss_regions at)
{
	__local float sums[64], rests[64];
	const long id = (long)get_group_id(0);
	const int lane = (int)get_local_id(0);
	const int units = WORK(struct unit_set, sets_at.sets)[id].units;
	__global float *scores = WORK(float, at.score) + id * at.most;
	const __global float *teacher = WORK(float, at.teacher) + id * at.most;
	const float factor = WORK(float, at.factor)[0];
	float most = NEGATIVE_INFINITY, sum = 0.0f, rest = 0.0f, taught, total;
	for (int i = lane; i < units; i += 64) {
		most = fmax(most, scores[i]);
		add_to_pair(&sum, &rest, teacher[i]);
	}
	taught = sum_pairs(sums, rests, sum, rest);
	barrier(CLK_LOCAL_MEM_FENCE);
	sums[lane] = most;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int i = 0; i < 64; i++)
		most = fmax(most, sums[i]);
	sum = rest = 0.0f;
	for (int i = lane; i < units; i += 64)
		add_to_pair(&sum, &rest, exp(scores[i] - most));
	total = log(sum_pairs(sums, rests, sum, rest));
	sum = rest = 0.0f;
	for (int i = lane; i < units; i += 64) {
		const float share = teacher[i] / taught, log_student = scores[i] - most - total;
		if (share != 0.0f)
			add_to_pair(&sum, &rest, share * (log(share) - log_student));
		scores[i] = taught == 0.0f ? 0.0f : factor * (exp(log_student) - share);
	}
	total = sum_pairs(sums, rests, sum, rest);
	if (lane == 0)
		WORK(float, at.loss)[id] = units == 0 || taught == 0.0f ? 0.0f : total;
}

/* Adds the tile's losses, in a fixed order. One work-group. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
add_loss(__global uchar *work, struct loss_regions at, struct tile tile)
{
	__local float sums[64], rests[64];
	__global float *pair = WORK(float, at.factor) + 2;
	const int lane = (int)get_local_id(0);
	float sum = 0.0f, rest = 0.0f;
	for (int id = lane; id < tile.rows * tile.groups; id += 64)
		add_to_pair(&sum, &rest, WORK(float, at.loss)[id]);
	sums[lane] = sum;
	rests[lane] = rest;
	barrier(CLK_LOCAL_MEM_FENCE);
	if (lane == 0) {
		sum = pair[0];
		rest = pair[1];
		for (int i = 0; i < 64; i++) {
			add_to_pair(&sum, &rest, sums[i]);
			rest += rests[i];
		}
		pair[0] = sum;
		pair[1] = rest;
	}
}

/* One work-item. */
__kernel void store_loss(__global float *loss, long4 loss_at, int accumulate, __global uchar *work,
			 struct loss_regions at)
{
	const __global float *factor = WORK(float, at.factor);
	const float before = accumulate ? loss[loss_at.s0] : 0.0f;
	loss[loss_at.s0] = before + factor[0] * (factor[2] + factor[3]);
}

/* ---- gradients ---- */

/* Dot products become what flows into them, and d_index_w grows. Work-group:
 * heads_item_of. */
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void
spread(int start, long first, struct scoring scoring, __global uchar *work, struct operands from,
       struct loss_regions at, struct tile tile)
{
	SLICE_PARTS;
	const struct heads_item item = heads_item_of(&tile);
	const int count = item.real ? WORK(int, from.count)[item.cell] : 0;
	const long place = (long)item.cell * tile.pitch + (item.real ? item.h : 0);
	const __global float *slopes = WORK(float, at.score) + (long)item.cell * at.most + first;
	__global float *weights =
		WORK(float, from.weights) + cell_weights(&tile, item.cell) + item.h;
	const heads_t w = LOAD_HEADS(WORK(float, at.w) + place) * scoring.scale;
	const bool fresh = start || !writes(&item);
	const heads_t before = fresh ? (heads_t)(0.0f) : LOAD_HEADS(WORK(float, at.dw) + place);
	heads_t sum = 0.0f;
	for (int p0 = item.slice; p0 < count; p0 += SUM_BLOCK * SLICES) {
		heads_t part = 0.0f;
		for (int p = p0; p < min(count, p0 + SUM_BLOCK * SLICES); p += SLICES) {
			__global float *weight = weights + (long)p * tile.pitch;
			const heads_t dot_product = LOAD_HEADS(weight);
			const heads_t slope = slopes[p], none = 0.0f;
			const heads_t z = scoring.scale * dot_product;
			part = FMA(slope, activate(&scoring, dot_product), part);
			STORE_HEADS(scoring.relu ? select(none, slope * w, z > 0.0f) : slope * w,
				    weight);
		}
		sum += part;
	}
	sum = SUM_OF_SLICES(sum);
	if (writes(&item))
		STORE_HEADS(before + sum, WORK(float, at.dw) + place);
}

/* d_index_q and d_index_w, each optional. Work-group: one index head of a row. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
finish_rows(__global void *dq, long4 dq_at, int type, int channels, int width, __global float *dw,
	    long4 dw_at, int accumulate, struct row_map map, __global uchar *work,
	    struct operands from, struct loss_regions at, struct tile tile)
{
	const int head = (int)get_group_id(0) % tile.heads;
	const int r = (int)get_group_id(0) / tile.heads;
	const long row = row_of(&map, r);
	const long cell = (long)r * tile.bundles + head / tile.bundle;
	const int h = head % tile.bundle;
	const __global float *sums =
		WORK(float, from.sums) + cell_vectors(&tile, cell, width) + (long)h * width;
	const long to = dq_at.s0 + row * dq_at.s1 + head * dq_at.s2;
	for (int c = (int)get_local_id(0); PRESENT(dq_at) && c < channels; c += 64)
		store(dq, to + c, type, accumulate ? load(dq, to + c, type) + sums[c] : sums[c]);
	if (PRESENT(dw_at) && get_local_id(0) == 0) {
		const long own = dw_at.s0 + row * dw_at.s1 + head * dw_at.s2;
		const float before = accumulate ? dw[own] : 0.0f;
		dw[own] = before + WORK(float, at.dw)[cell * tile.pitch + h];
	}
}

/* Zero in the rows that are not sampled. Work-group: one row. */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void
clear_rows(__global void *out, long4 out_at, int type, int heads, int channels, long row_first,
	   int stride, int offset)
{
	const long row = (long)get_group_id(0);
	if ((row_first + row) % stride != offset)
		for (int e = (int)get_local_id(0); e < heads * channels; e += 64)
			store(out,
			      out_at.s0 + row * out_at.s1 + e / channels * out_at.s2 + e % channels,
			      type, 0.0f);
}
