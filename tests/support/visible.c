#include "visible.h"

#include "oracle_internal.h"

static int32_t count_documents(const int32_t *lengths)
{
	int32_t count = 0;

	while (lengths && lengths[count] >= 0)
		count++;
	return count;
}

/* Prefix sums of `lengths`, or of the one length `whole`. */
static int32_t *sum_lengths(const int32_t *lengths, int32_t documents, int32_t whole)
{
	int32_t *cu = ora_alloc(ora_max(documents, 1) + 1, sizeof(*cu));

	cu[1] = whole;
	for (int32_t d = 0; d < documents; d++)
		cu[d + 1] = cu[d] + lengths[d];
	return cu;
}

static int32_t *new_array(int64_t count)
{
	return ora_alloc(count, sizeof(int32_t));
}

/* First entry of each document: documents own whole pools only. */
static int32_t entry_origin(const struct visible *v, int32_t document)
{
	int32_t origin = 0;

	for (int32_t d = 0; d < document; d++)
		origin += (v->cu_k[d + 1] - v->cu_k[d]) / v->pool;
	return origin;
}

static bool sees_key(const struct visible_spec *spec, int32_t position, int32_t key)
{
	if (spec->window > 0 && key <= position - spec->window)
		return false;
	return (spec->full && spec->window == 0) || key <= position;
}

/* The keys, then the entries whose keys are all seen, of a row at `position`. */
static void look(struct visible *v, const struct visible_spec *spec, int32_t document, int64_t t,
		 int32_t position)
{
	const int32_t origin = v->cu_k[document], keys = v->cu_k[document + 1] - origin;
	const int32_t first = v->entry_origin[t];
	int32_t begin = 0, end = 0;

	for (int32_t key = keys - 1; key >= 0; key--)
		if (sees_key(spec, position, key)) {
			end = end ? end : key + 1;
			begin = key;
		}
	v->row_begin[t] = origin + begin;
	v->row_end[t] = origin + end;
	v->index_begin[t] = v->index_end[t] = first;
	for (int32_t e = keys / v->pool - 1; e >= 0; e--)
		if (e * v->pool >= begin && (e + 1) * v->pool <= end) {
			if (v->index_end[t] == first)
				v->index_end[t] = first + e + 1;
			v->index_begin[t] = first + e;
		}
}

/* Any interval of [least, most), now and then none. */
static void draw_interval(struct rng *rng, int32_t least, int32_t most, int32_t *begin,
			  int32_t *end)
{
	*begin = (int32_t)rng_range(rng, least, (int64_t)most + 1);
	*end = (int32_t)rng_range(rng, *begin, (int64_t)most + 1);
	if (rng_range(rng, 0, 4) == 0)
		*end = *begin;
}

static void draw_intervals(struct visible *v, int32_t document, int64_t t, struct rng *rng)
{
	draw_interval(rng, v->cu_k[document], v->cu_k[document + 1], &v->row_begin[t],
		      &v->row_end[t]);
	if (v->pool > 1) {
		const int32_t entries = (v->cu_k[document + 1] - v->cu_k[document]) / v->pool;

		draw_interval(rng, v->entry_origin[t], v->entry_origin[t] + entries,
			      &v->index_begin[t], &v->index_end[t]);
	} else {
		v->index_begin[t] = v->row_begin[t];
		v->index_end[t] = v->row_end[t];
	}
}

static void fill_document(struct visible *v, const struct visible_spec *spec, int32_t document,
			  struct rng *rng)
{
	const int32_t rows = v->cu_q[document + 1] - v->cu_q[document];
	const int32_t keys = v->cu_k[document + 1] - v->cu_k[document];

	for (int32_t i = 0; i < rows; i++) {
		const int64_t t = v->cu_q[document] + i;
		int32_t position = keys - rows + i;

		v->key_origin[t] = v->cu_k[document];
		v->entry_origin[t] = entry_origin(v, document);
		if (v->positions) {
			v->positions[t] = (int32_t)rng_range(rng, 0, ora_max(keys, 1));
			position = v->positions[t];
		}
		if (v->explicit_intervals)
			draw_intervals(v, document, t, rng);
		else
			look(v, spec, document, t, position);
		if (v->window_keys > 0)
			draw_interval(rng, 0, (int32_t)v->window_keys, &v->window_begin[t],
				      &v->window_end[t]);
	}
}

static void describe(struct visible *v, const struct visible_spec *spec)
{
	v->desc = (struct hys_batch_desc){
		.struct_size = sizeof(v->desc),
		.rows = v->rows,
		.keys = v->keys,
		.documents = v->documents,
		.cu_seqlens_q = v->documents > 0 ? v->cu_q : NULL,
		.cu_seqlens_k = v->documents > 0 && spec->k_lengths ? v->cu_k : NULL,
		.window_begin = v->window_begin,
		.window_end = v->window_end,
		.window_keys = v->window_keys,
	};
	if (v->explicit_intervals) {
		v->desc.row_begin = v->row_begin;
		v->desc.row_end = v->row_end;
		v->desc.index_begin = v->pool > 1 ? v->index_begin : NULL;
		v->desc.index_end = v->pool > 1 ? v->index_end : NULL;
	} else {
		v->desc.flags = spec->full ? 0 : HYS_BATCH_CAUSAL;
		v->desc.window = spec->window;
		v->desc.positions = v->positions;
	}
}

void visible_make(struct visible *v, const struct visible_spec *spec, int32_t pool, struct rng *rng)
{
	const int32_t documents = count_documents(spec->q_lengths);
	const int32_t *k_lengths = spec->k_lengths ? spec->k_lengths : spec->q_lengths;

	*v = (struct visible){.documents = documents, .pool = pool};
	v->cu_q = sum_lengths(spec->q_lengths, documents, spec->rows);
	v->cu_k = sum_lengths(k_lengths, documents, spec->keys);
	v->rows = v->cu_q[ora_max(documents, 1)];
	v->keys = v->cu_k[ora_max(documents, 1)];
	v->entries = entry_origin(v, (int32_t)ora_max(documents, 1));
	v->window_keys = spec->window_keys;
	v->explicit_intervals = spec->how == VISIBLE_EXPLICIT;
	v->positions = spec->how == VISIBLE_POSITIONS ? new_array(v->rows) : NULL;
	v->row_begin = new_array(v->rows);
	v->row_end = new_array(v->rows);
	v->index_begin = new_array(v->rows);
	v->index_end = new_array(v->rows);
	v->key_origin = new_array(v->rows);
	v->entry_origin = new_array(v->rows);
	v->window_begin = v->window_keys > 0 ? new_array(v->rows) : NULL;
	v->window_end = v->window_keys > 0 ? new_array(v->rows) : NULL;
	for (int32_t d = 0; d < ora_max(documents, 1); d++)
		fill_document(v, spec, d, rng);
	describe(v, spec);
}

void visible_free(struct visible *v)
{
	int32_t *arrays[] = {v->cu_q,	      v->cu_k,	       v->positions, v->row_begin,
			     v->row_end,      v->index_begin,  v->index_end, v->key_origin,
			     v->entry_origin, v->window_begin, v->window_end};

	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
		free(arrays[i]);
	*v = (struct visible){0};
}
