#include "indices.h"

#include "oracle_internal.h"

/* What a row's indices may name. */
struct reach {
	int32_t origin, begin, end, step;
};

static struct reach reach_of(const struct indices_want *want, int64_t t)
{
	const struct visible *v = want->visible;

	if (v->pool > 1)
		return (struct reach){v->entry_origin[t], v->index_begin[t], v->index_end[t], 1};
	return (struct reach){v->key_origin[t], v->row_begin[t], v->row_end[t], want->granularity};
}

/* Up to topk, anywhere, at least a step apart; the first may begin before the interval. */
static void draw_some(const struct indices_want *want, int64_t t, int32_t *slots, struct rng *rng)
{
	const struct reach r = reach_of(want, t);
	const int64_t wanted = rng_range(rng, 0, (int64_t)want->topk + 1);
	int64_t next = ora_max(0, r.begin - rng_range(rng, 0, r.step));

	for (int64_t i = 0; i < wanted; i++) {
		const int64_t left = (r.end - next) / r.step, missing = wanted - i;

		if (left > missing)
			next += rng_range(rng, 0, (left - missing) * r.step / missing + 1);
		if (next >= r.end)
			break;
		slots[i] = (int32_t)next;
		next += r.step;
	}
}

static void draw_all(const struct indices_want *want, int64_t t, int32_t *slots)
{
	const struct reach r = reach_of(want, t);
	int32_t index = r.origin + (r.begin - r.origin) / r.step * r.step;

	for (int32_t i = 0; i < want->topk && index < r.end; i++, index += r.step)
		slots[i] = index;
}

static void draw_junk(const struct indices_want *want, int32_t *slots, struct rng *rng)
{
	static const int32_t odd[] = {-1, INT32_MAX, INT32_MIN, -7, INT32_MAX - 1, 0};
	const int32_t keys = (int32_t)want->visible->keys;

	for (int32_t i = 0; i < want->topk; i++) {
		switch (rng_range(rng, 0, 5)) {
		case 0:
			slots[i] = odd[rng_range(rng, 0, 6)];
			break;
		case 1:
			slots[i] = i > 0 ? slots[i - 1] : 0;
			break;
		case 2:
			slots[i] = keys + (int32_t)rng_range(rng, -2, 3);
			break;
		default:
			slots[i] = (int32_t)rng_range(rng, 0, ora_max(keys, 1));
			break;
		}
	}
}

int32_t *indices_make(const struct indices_want *want, struct rng *rng)
{
	const int64_t places = want->visible->rows * want->groups;
	int32_t *indices;

	if (want->pattern == INDICES_ABSENT)
		return NULL;
	indices = ora_alloc(places * want->topk, sizeof(*indices));
	memset(indices, 0xff, (size_t)(places * want->topk) * sizeof(*indices));
	for (int64_t place = 0; place < places; place++) {
		int32_t *slots = indices + place * want->topk;

		if (want->pattern == INDICES_SOME)
			draw_some(want, place / want->groups, slots, rng);
		else if (want->pattern == INDICES_ALL)
			draw_all(want, place / want->groups, slots);
		else if (want->pattern == INDICES_JUNK)
			draw_junk(want, slots, rng);
	}
	return indices;
}
