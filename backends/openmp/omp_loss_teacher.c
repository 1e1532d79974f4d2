/* omp_loss_teacher.c - the sets of the indexer loss and the attention's share
 * of each of their units. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "omp_loss.h"

static bool is_empty(struct omp_range range)
{
	return range.begin >= range.end;
}

static struct omp_range unit_entries(const struct omp_loss *l, int64_t i, int64_t unit)
{
	const struct omp_loss_set *set = &l->at.sets[i];
	const int64_t index = omp_loss_entry(l, i, unit);
	const int64_t count = l->dense ? 1 : set->slots.step;

	return (struct omp_range){hys_max64(index, set->entries.begin),
				  hys_min64(index + count, set->entries.end)};
}

/* The indices that count and that have a visible entry, hence a score. */
static void collect_slots(const struct omp_loss *l, int64_t i)
{
	struct omp_loss_set *set = &l->at.sets[i];
	struct omp_slot slot;
	int64_t least = 0;

	while (omp_slots_next(&set->slots, &slot)) {
		const int64_t at = omp_loss_unit(l, i, set->count);

		l->at.entries[at] = (int32_t)slot.index;
		l->at.slots[at] = (int32_t)slot.slot;
		if (is_empty(unit_entries(l, i, set->count)))
			set->slots.least = least;
		else
			set->count++;
		least = set->slots.least;
	}
}

void omp_loss_collect(const struct omp_loss *l, int64_t i, int64_t set_number)
{
	const int64_t stride = hys_max64(l->args->row_stride, 1);
	struct omp_loss_set *set = &l->at.sets[i];

	*set = (struct omp_loss_set){.row = l->first_row + set_number / l->groups * stride,
				     .group = set_number % l->groups};
	omp_slots_start(&set->slots, &l->rows, set->row, set->group);
	set->entries = omp_visible_entries(&l->rows, set->row);
	if (!l->dense) {
		collect_slots(l, i);
		return;
	}
	if (l->call->problem->scoring.pool == 1)
		set->slots.span = 1;
	set->count = hys_max64(0, set->entries.end - set->entries.begin);
}

int64_t omp_loss_next(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i,
		      bool keys, struct omp_loss_walk *walk)
{
	const struct omp_loss_set *set = &l->at.sets[i];
	int64_t count = 0;

	while (count < OMP_TILE) {
		if (is_empty(walk->rest)) {
			if (walk->unit >= set->count)
				break;
			walk->rest =
				keys ? omp_slots_keys(&set->slots, omp_loss_entry(l, i, walk->unit))
				     : unit_entries(l, i, walk->unit);
			walk->unit++;
		}
		for (; count < OMP_TILE && !is_empty(walk->rest); count++) {
			s->units[count] = walk->unit - 1;
			s->places[count] = walk->rest.begin++;
		}
	}
	return count;
}

/* Dot products, or with a softcap logits, of the lanes in s->q with the next key
 * rows of set i. */
static int64_t next_dots(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i,
			 const struct omp_lanes *lanes, struct omp_loss_walk *walk)
{
	const int64_t count = omp_loss_next(l, s, i, true, walk);

	if (count == 0)
		return 0;
	const struct omp_matrix k = omp_key_rows(l->isa, &l->keys, lanes->heads.kv_head, s->places,
						 count, l->head_dim, false, s->k);

	l->isa->gemm_nn(count, lanes->padded, l->head_dim, k.at, k.pitch, s->q, lanes->pitch,
			s->dots, lanes->pitch, false);
	for (int64_t key = 0; l->call->problem->attending.softcap > 0.0 && key < count; key++)
		omp_logits(l->call->problem, s->dots + key * lanes->pitch, lanes->padded);
	return count;
}

/* What makes logits of next_dots' numbers. */
static float scale_of(const struct omp_loss *l)
{
	const struct hys_attending *attending = &l->call->problem->attending;

	return attending->softcap > 0.0 ? 1.0f : (float)attending->scale;
}

/* Each lane's sum of exp over the set's own key rows, where the caller gives no
 * lse: s->sums, relative to s->soften.largest. */
static void sum_exp(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i,
		    const struct omp_lanes *lanes)
{
	struct omp_loss_walk walk = {0};
	int64_t count;

	for (int64_t lane = 0; lane < lanes->padded; lane++) {
		s->soften.largest[lane] = -FLT_MAX;
		s->sums[lane] = 0.0;
	}
	while ((count = next_dots(l, s, i, lanes, &walk)) > 0) {
		l->isa->soften(s->dots, lanes->pitch, count, lanes->padded, scale_of(l),
			       &s->soften);
		for (int64_t lane = 0; lane < lanes->padded; lane++)
			s->sums[lane] = s->sums[lane] * (double)s->soften.shrink[lane] +
					(double)s->soften.sums[lane];
	}
}

static void find_totals(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i,
			const struct omp_lanes *lanes)
{
	const struct hys_tensor *lse = &l->args->lse, *sink = &l->args->sink;
	const int64_t row = l->at.sets[i].row;

	if (!hys_present(lse))
		sum_exp(l, s, i, lanes);
	for (int64_t lane = 0; lane < lanes->padded; lane++) {
		const int64_t head = lanes->heads.begin + lane;

		s->totals[lane] = -INFINITY;
		if (lane >= lanes->count)
			continue;
		double total = hys_present(lse)
				       ? (double)*(float *)omp_at(lse, row, head, 0)
				       : (double)s->soften.largest[lane] + log(s->sums[lane]);

		if (hys_present(sink))
			total = omp_log_add(total, (double)*(float *)omp_at(sink, head, 0, 0));
		s->totals[lane] = (float)total;
	}
}

/* column[count] = sum over lanes of exp(logit - total); nothing is shared
 * where the total is -inf. */
static void sum_shares(const struct omp_loss *l, const struct omp_loss_scratch *s,
		       const struct omp_lanes *lanes, int64_t count)
{
	memset(s->column, 0, (size_t)count * sizeof(float));
	l->isa->share(s->dots, NULL, lanes->pitch, count, lanes->padded, scale_of(l), s->totals,
		      NULL);
	l->isa->add_lanes(s->dots, lanes->pitch, count, lanes->padded, s->column);
}

static bool any_nonzero(const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (x[i] != 0.0f)
			return true;
	return false;
}

/* Adds the heads' shares to the teacher; when only probing, answers whether
 * there is one that is not 0, as soon as it is found. */
static bool teach_heads(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i,
			const struct omp_heads *heads, bool probing)
{
	const struct omp_lanes lanes = omp_lanes(heads, l->at.sets[i].row, 1, l->at.lanes_pitch);
	float *teacher = l->at.teacher + omp_loss_unit(l, i, 0);
	struct omp_loss_walk walk = {0};
	int64_t count;

	/* Key rows come later: their tile is room for rows before they are columns. */
	omp_lanes_load(l->isa, &l->args->q, &lanes, l->head_dim, s->q, s->k, l->at.head_pitch);
	find_totals(l, s, i, &lanes);
	while ((count = next_dots(l, s, i, &lanes, &walk)) > 0) {
		sum_shares(l, s, &lanes, count);
		if (probing && any_nonzero(s->column, count))
			return true;
		for (int64_t j = 0; !probing && j < count; j++)
			teacher[s->units[j]] += s->column[j];
	}
	return false;
}

static float *slot_of(const struct omp_loss *l, const struct hys_tensor *x, int64_t i, int64_t unit)
{
	const struct omp_loss_set *set = &l->at.sets[i];

	return omp_at(x, set->row, set->group, l->at.slots[omp_loss_unit(l, i, unit)]);
}

static double sum_teacher(const float *teacher, int64_t count)
{
	double sum = 0.0;

	for (int64_t unit = 0; unit < count; unit++)
		sum += (double)teacher[unit];
	return sum;
}

static void write_teacher(const struct omp_loss *l, int64_t i)
{
	const struct hys_tensor *out = &l->args->teacher_out;
	const struct omp_loss_set *set = &l->at.sets[i];
	const float *teacher = l->at.teacher + omp_loss_unit(l, i, 0);

	if (!hys_present(out))
		return;
	memset(omp_at(out, set->row, set->group, 0), 0, (size_t)out->shape[2] * sizeof(float));
	for (int64_t unit = 0; unit < set->count; unit++)
		*slot_of(l, out, i, unit) = teacher[unit];
}

static void read_teacher(const struct omp_loss *l, int64_t i)
{
	float *teacher = l->at.teacher + omp_loss_unit(l, i, 0);

	for (int64_t unit = 0; unit < l->at.sets[i].count; unit++)
		teacher[unit] = *slot_of(l, &l->args->teacher_in, i, unit);
}

void omp_loss_teach(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i)
{
	struct omp_loss_set *set = &l->at.sets[i];
	float *teacher = l->at.teacher + omp_loss_unit(l, i, 0);
	struct omp_heads heads = {0};

	if (hys_present(&l->args->teacher_in)) {
		read_teacher(l, i);
	} else {
		memset(teacher, 0, (size_t)set->count * sizeof(float));
		while (omp_heads_next(l->call->problem, false, &heads))
			if (heads.group == set->group)
				teach_heads(l, s, i, &heads, false);
	}
	write_teacher(l, i);
	set->teacher_sum = sum_teacher(teacher, set->count);
	if (set->teacher_sum == 0.0)
		set->count = 0;
}

bool omp_loss_teachable(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i)
{
	const struct omp_loss_set *set = &l->at.sets[i];
	struct omp_heads heads = {0};

	if (hys_present(&l->args->teacher_in)) {
		read_teacher(l, i);
		return sum_teacher(l->at.teacher + omp_loss_unit(l, i, 0), set->count) != 0.0;
	}
	while (omp_heads_next(l->call->problem, false, &heads))
		for (int64_t h = heads.begin; heads.group == set->group && h < heads.end; h++) {
			const struct omp_heads one = {h, h + 1, heads.kv_head, heads.group};

			if (teach_heads(l, s, i, &one, true))
				return true;
		}
	return false;
}
