/* omp_loss_gradient.c - from d score to index_q, index_k and index_w, the same
 * bits for any number of threads.
 *
 * As in the attention's backward pass: a tile of sets, a chunk of their units
 * at a time. First threads share the sets: d dots go to memory, dq and dw grow.
 * Then threads own disjoint ranges of entries and add up what the tile's sets,
 * in order, hold for them. When dense, chunks are cut at the same entries for
 * every set, so that the order of sums does not depend on the tile either. */
#include <string.h>

#include "omp_loss.h"

#define RANGES_PER_THREAD 4

void omp_loss_load(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i)
{
	const struct omp_loss_set *set = &l->at.sets[i];
	const struct hys_tensor *w = &l->args->index_w;
	const int64_t first = set->group * l->set_heads;

	omp_load(l->isa, &l->args->index_q, set->row, first, l->set_heads, l->dim, s->index_q,
		 l->at.index_pitch);
	for (int64_t j = 0; j < l->set_heads; j++)
		s->weights[j] = hys_present(w) ? *(float *)omp_at(w, set->row, first + j, 0) : 1.0f;
}

struct omp_matrix omp_loss_dots(const struct omp_loss *l, const struct omp_loss_scratch *s,
				int64_t n, float *dots, int64_t pitch)
{
	const struct omp_matrix index_k = omp_key_rows(l->isa, &l->index_keys, 0, s->places, n,
						       l->dim, false, s->index_k);

	l->isa->gemm_nt(l->set_heads, n, l->dim, s->index_q, l->at.index_pitch, index_k.at,
			index_k.pitch, dots, pitch, false);
	return index_k;
}

/* Units of set i in the chunk. */
static struct omp_range chunk_units(const struct omp_loss *l, int64_t i)
{
	const struct omp_loss_set *set = &l->at.sets[i];
	const int64_t origin = l->dense ? set->entries.begin : 0;
	const int64_t begin = l->chunk * OMP_LOSS_CHUNK - origin;

	return (struct omp_range){hys_max64(begin, 0),
				  hys_min64(begin + OMP_LOSS_CHUNK, set->count)};
}

/* The chunks that any set of the tile has units in. */
static struct omp_range chunks_of_tile(const struct omp_loss *l)
{
	struct omp_range units = {INT64_MAX, 0};

	for (int64_t i = 0; i < l->tile_sets; i++) {
		const struct omp_loss_set *set = &l->at.sets[i];
		const int64_t origin = l->dense ? set->entries.begin : 0;

		if (set->count > 0) {
			units.begin = hys_min64(units.begin, origin);
			units.end = hys_max64(units.end, origin + set->count);
		}
	}
	return (struct omp_range){units.begin / OMP_LOSS_CHUNK,
				  omp_ceil_div(units.end, OMP_LOSS_CHUNK)};
}

static float *d_dots_of(const struct omp_loss *l, int64_t i)
{
	return l->at.d_dots + i * l->set_heads * l->at.chunk_pitch;
}

/* One head's dots become d dots; answers d w. */
static double derive(const struct omp_loss *l, const float *d_score, float w, float *dots,
		     int64_t n)
{
	double dw = 0.0;

	for (int64_t j = 0; j < n; j++) {
		const float z = l->scale * dots[j];
		const bool passes = !l->relu || z > 0.0f;

		dw += passes ? (double)d_score[j] * (double)z : 0.0;
		dots[j] = passes ? d_score[j] * w * l->scale : 0.0f;
	}
	return dw;
}

/* Units [first, first + n) of set i, n <= OMP_TILE; `from` is their place in
 * the chunk. */
static void share_units(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i,
			int64_t first, int64_t n, int64_t from)
{
	const float *d_score = l->at.teacher + omp_loss_unit(l, i, first);
	float *d_dots = d_dots_of(l, i) + from;

	for (int64_t j = 0; j < n; j++)
		s->places[j] = omp_loss_entry(l, i, first + j);
	const struct omp_matrix index_k = omp_loss_dots(l, s, n, d_dots, l->at.chunk_pitch);

	for (int64_t h = 0; h < l->set_heads; h++)
		l->at.dw[i * l->set_heads + h] +=
			derive(l, d_score, s->weights[h], d_dots + h * l->at.chunk_pitch, n);
	l->isa->gemm_nn(l->set_heads, l->dim, n, d_dots, l->at.chunk_pitch, index_k.at,
			index_k.pitch, l->at.dq + i * l->set_heads * l->at.index_pitch,
			l->at.index_pitch, true);
}

static void share_set(void *context, int64_t i, int32_t thread)
{
	const struct omp_loss *l = context;
	const struct omp_loss_scratch s = omp_loss_scratch(l, thread);
	const struct omp_range units = chunk_units(l, i);

	if (units.begin >= units.end)
		return;
	omp_loss_load(l, &s, i);
	for (int64_t at = units.begin; at < units.end; at += OMP_TILE)
		share_units(l, &s, i, at, hys_min64(OMP_TILE, units.end - at), at - units.begin);
}

/* First of set i's units in the range whose entry is not below `entry`. */
static int64_t lower_bound(const struct omp_loss *l, int64_t i, struct omp_range units,
			   int64_t entry)
{
	while (units.begin < units.end) {
		const int64_t middle = units.begin + (units.end - units.begin) / 2;

		if (omp_loss_entry(l, i, middle) < entry)
			units.begin = middle + 1;
		else
			units.end = middle;
	}
	return units.begin;
}

/* Splits the entries of the chunk evenly; false when there are none. */
static bool split_entries(struct omp_loss *l)
{
	int64_t low = INT64_MAX, high = -1;

	for (int64_t i = 0; i < l->tile_sets; i++) {
		const struct omp_range units = chunk_units(l, i);

		if (units.begin < units.end) {
			low = hys_min64(low, omp_loss_entry(l, i, units.begin));
			high = hys_max64(high, omp_loss_entry(l, i, units.end - 1));
		}
	}
	l->low = low;
	l->ranges = l->threads > 1 ? RANGES_PER_THREAD * l->threads : 1;
	l->range_entries = high < low ? 0 : omp_ceil_div(high - low + 1, l->ranges);
	return high >= low;
}

/* What units [at, at + n) of set i, n <= OMP_TILE, add to their entries, which
 * follow each other when dense. */
static void collect_units(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i,
			  int64_t at, int64_t n, const float *d_dots)
{
	float *sums = l->at.dk + omp_loss_entry(l, i, at) * l->dim;

	l->isa->gemm_tn(n, l->dim, l->set_heads, d_dots, l->at.chunk_pitch, s->index_q,
			l->at.index_pitch, l->dense ? sums : s->product,
			l->dense ? l->dim : l->at.index_pitch, l->dense);
	for (int64_t j = 0; !l->dense && j < n; j++) {
		float *sum = l->at.dk + omp_loss_entry(l, i, at + j) * l->dim;
		const float *product = s->product + j * l->at.index_pitch;

		for (int64_t d = 0; d < l->dim; d++)
			sum[d] += product[d];
	}
}

/* What set i adds to the entries of one range. */
static void collect_set(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i,
			struct omp_range range)
{
	const struct omp_range units = chunk_units(l, i);
	const int64_t begin = lower_bound(l, i, units, range.begin);
	const int64_t end = lower_bound(l, i, units, range.end);

	if (begin < end)
		omp_loss_load(l, s, i);
	for (int64_t at = begin; at < end; at += OMP_TILE)
		collect_units(l, s, i, at, hys_min64(OMP_TILE, end - at),
			      d_dots_of(l, i) + at - units.begin);
}

static void collect_range(void *context, int64_t item, int32_t thread)
{
	const struct omp_loss *l = context;
	const struct omp_loss_scratch s = omp_loss_scratch(l, thread);
	const int64_t begin = l->low + item * l->range_entries;

	for (int64_t i = 0; i < l->tile_sets; i++)
		if (l->at.sets[i].count > 0)
			collect_set(l, &s, i, (struct omp_range){begin, begin + l->range_entries});
}

static void finish_set(void *context, int64_t i, int32_t thread)
{
	const struct omp_loss *l = context;
	const struct omp_loss_scratch s = omp_loss_scratch(l, thread);
	const struct omp_loss_set *set = &l->at.sets[i];
	const struct hys_tensor *dq = &l->args->d_index_q, *dw = &l->args->d_index_w;

	for (int64_t j = 0; j < l->set_heads; j++) {
		const int64_t lane = i * l->set_heads + j, head = set->group * l->set_heads + j;

		if (hys_present(dq))
			omp_store(l->isa, dq, set->row, head, l->at.dq + lane * l->at.index_pitch,
				  l->dim, l->add, s.spare);
		if (hys_present(dw)) {
			float *out = omp_at(dw, set->row, head, 0);

			*out = (float)(l->at.dw[lane] + (l->add ? (double)*out : 0.0));
		}
	}
}

void omp_loss_gradients(struct omp_loss *l)
{
	const int64_t lanes = l->tile_sets * l->set_heads;
	const struct omp_range chunks = chunks_of_tile(l);

	memset(l->at.dq, 0, (size_t)(lanes * l->at.index_pitch) * sizeof(float));
	memset(l->at.dw, 0, (size_t)lanes * sizeof(double));
	for (l->chunk = chunks.begin; l->chunk < chunks.end; l->chunk++) {
		omp_for(l->threads, l->tile_sets, share_set, l);
		if (hys_present(&l->args->d_index_k) && split_entries(l))
			omp_for(l->threads, l->ranges, collect_range, l);
	}
	omp_for(l->threads, l->tile_sets, finish_set, l);
}
