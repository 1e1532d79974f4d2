/* omp_rows.c - which key rows a row attends to, as ascending disjoint ranges. */
#include "omp_rows.h"

static struct omp_range cut(struct omp_range range, int64_t begin, int64_t end)
{
	return (struct omp_range){hys_max64(range.begin, begin), hys_min64(range.end, end)};
}

static bool is_empty(struct omp_range range)
{
	return range.begin >= range.end;
}

static struct omp_range interval(const struct hys_tensor *begin, const struct hys_tensor *end,
				 int64_t t, int64_t count)
{
	const struct omp_range range = {omp_number(begin, t, 0), omp_number(end, t, count)};

	return cut(range, 0, count);
}

struct omp_range omp_visible_keys(const struct omp_rows *rows, int64_t t)
{
	return interval(&rows->batch->row_begin, &rows->batch->row_end, t, rows->keys);
}

struct omp_range omp_visible_entries(const struct omp_rows *rows, int64_t t)
{
	return interval(&rows->batch->index_begin, &rows->batch->index_end, t, rows->entries);
}

void omp_slots_start(struct omp_slots *slots, const struct omp_rows *rows, int64_t t, int64_t u)
{
	const struct hys_problem *problem = rows->problem;

	*slots = (struct omp_slots){.step = hys_index_step(problem),
				    .span = hys_index_span(problem),
				    .ratio = 1,
				    .visible = omp_visible_keys(rows, t)};
	if (problem->scoring.pool > 1) {
		slots->key_origin = omp_number(&rows->batch->key_origin, t, 0);
		slots->entry_origin = omp_number(&rows->batch->entry_origin, t, 0);
		slots->ratio = problem->scoring.pool;
	}
	if (hys_present(rows->indices)) {
		slots->indices = omp_at(rows->indices, t, u, 0);
		slots->count = rows->indices->shape[2];
	}
}

struct omp_range omp_slots_keys(const struct omp_slots *slots, int64_t index)
{
	const int64_t begin = slots->key_origin + (index - slots->entry_origin) * slots->ratio;
	const struct omp_range range = {begin, begin + slots->span};

	return cut(range, slots->visible.begin, slots->visible.end);
}

bool omp_slots_next(struct omp_slots *slots, struct omp_slot *slot)
{
	while (slots->next < slots->count) {
		slot->slot = slots->next++;
		slot->index = slots->indices[slot->slot];
		if (slot->index < slots->least)
			continue;
		slot->keys = omp_slots_keys(slots, slot->index);
		if (is_empty(slot->keys))
			continue;
		slots->least = slot->index + slots->step;
		return true;
	}
	return false;
}

void omp_walk_start(struct omp_walk *walk, const struct omp_rows *rows, int64_t t, int64_t u)
{
	const struct hys_attending *attending = &rows->problem->attending;
	const struct omp_range visible = omp_visible_keys(rows, t);
	const int64_t first_end = hys_min64(visible.begin + attending->first, visible.end);
	const int64_t window_begin = hys_max64(visible.end - attending->window, first_end);

	omp_slots_start(&walk->slots, rows, t, u);
	walk->first = (struct omp_range){visible.begin, first_end};
	walk->window = (struct omp_range){window_begin, visible.end};
	walk->second = interval(&rows->batch->window_begin, &rows->batch->window_end, t,
				rows->window_keys);
	walk->second.begin += rows->keys;
	walk->second.end += rows->keys;
	walk->rest = (struct omp_range){0, 0};
	if (attending->flags & HYS_ATTENDING_DENSE) {
		walk->slots.count = 0;
		walk->first.end = walk->first.begin;
		walk->window.begin = visible.begin;
	}
}

/* Hands out *from, if there is anything in it, and empties it. */
static bool take(struct omp_range *from, struct omp_range *range)
{
	*range = *from;
	from->begin = from->end;
	return !is_empty(*range);
}

bool omp_walk_next(struct omp_walk *walk, struct omp_range *range)
{
	const int64_t first_end = walk->first.end;
	const int64_t window_begin = walk->window.begin;
	struct omp_slot slot;

	if (take(&walk->first, range))
		return true;
	while (omp_slots_next(&walk->slots, &slot)) {
		*range = cut(slot.keys, first_end, window_begin);
		if (!is_empty(*range))
			return true;
	}
	return take(&walk->window, range) || take(&walk->second, range);
}

int64_t omp_walk_keys(struct omp_walk *walk, int64_t *keys, int64_t most)
{
	int64_t count = 0;

	while (count < most) {
		if (is_empty(walk->rest) && !omp_walk_next(walk, &walk->rest))
			break;
		while (count < most && walk->rest.begin < walk->rest.end)
			keys[count++] = walk->rest.begin++;
	}
	return count;
}

/* The most that one row sees; 0 says that this is not known. */
static int64_t bound(int64_t row_most, int64_t all)
{
	return row_most > 0 ? hys_min64(row_most, all) : all;
}

int64_t omp_walk_most(const struct hys_size *size)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t visible = bound(size->row_keys, size->keys);
	int64_t most = hys_mul64(size->topk, hys_index_span(size->problem));

	most = hys_add64(most, (int64_t)attending->first + attending->window);
	if (attending->flags & HYS_ATTENDING_DENSE || most > visible)
		most = visible;
	return hys_add64(most, bound(size->row_window_keys, size->window_keys));
}
