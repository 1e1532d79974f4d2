/* omp_backward_keys.c - the part of attention's backward pass in which threads
 * own key rows. */
#include <string.h>

#include "omp_backward.h"

#define RANGES_PER_THREAD 4
#define RANGE_BYTES (INT64_C(512) << 10) /* of dk and dv, to stay in a cache */
#define FETCH_MOST 4096			 /* floats that are fetched ahead */
#define STORE_ROWS 64			 /* key rows of one item */

/* How many ranges: enough for all threads, and small enough for a cache unless
 * the sets are scattered so that little of each would fall into a range. */
static int64_t count_ranges(const struct omp_backward *b, int64_t span, int64_t keys)
{
	const int64_t floats = (b->wants_dk ? b->head_dim : 0) + (b->wants_dv ? b->value_dim : 0);
	const int64_t by_cache = span * floats * (int64_t)sizeof(float) / RANGE_BYTES;
	const int64_t run = b->shared ? OMP_TILE : hys_index_span(b->call->problem);
	const int64_t by_keys = keys * hys_min64(run, OMP_TILE) / OMP_TILE;
	const int64_t by_threads =
		b->threads > 1 ? omp_ceil_div((int64_t)RANGES_PER_THREAD * b->threads, b->kv_heads)
			       : 1;

	return hys_max64(by_threads, hys_min64(by_cache, hys_max64(1, by_keys)));
}

/* Splits the key rows of the chunk evenly; false when there are none. */
static bool split_keys(struct omp_backward *b)
{
	int64_t low = INT64_MAX, high = -1, most = 0;

	for (int64_t set = 0; set < b->blocks * b->at.groups; set++) {
		const int64_t count = b->at.counts[set];
		const int64_t *keys = b->at.keys + set * b->at.chunk;

		if (count > 0) {
			low = hys_min64(low, keys[0]);
			high = hys_max64(high, keys[count - 1]);
		}
		most = hys_max64(most, count);
	}
	if (high < low)
		return false;
	/* Chunks of ranges begin with a tile. */
	b->low = b->shared ? low : low - low % OMP_TILE;
	b->ranges = count_ranges(b, high - b->low + 1, most);
	b->range_keys = hys_round_up(omp_ceil_div(high - b->low + 1, b->ranges), OMP_TILE);
	b->ranges = omp_ceil_div(high - b->low + 1, b->range_keys);
	return true;
}

/* First of ascending keys[count] that is not below key. */
static int64_t lower_bound(const int64_t *keys, int64_t count, int64_t key)
{
	int64_t begin = 0;

	while (begin < count) {
		const int64_t middle = begin + (count - begin) / 2;

		if (keys[middle] < key)
			begin = middle + 1;
		else
			count = middle;
	}
	return begin;
}

/* q and grad_o of lanes [begin, end) of a unit as rows: where they lie, if that
 * is f32 and one row of the call, else copied. */
struct sides {
	struct omp_matrix q, grad_o;
};

static struct omp_matrix load_side(const struct omp_backward *b, const struct hys_tensor *x,
				   const struct omp_lanes *lanes, int64_t dim, float *copy,
				   int64_t pitch)
{
	const int64_t begin = lanes->heads.begin;

	if (lanes->rows == 1 && x->dtype == HYS_F32)
		return (struct omp_matrix){omp_at(x, lanes->row, begin, 0), x->stride[1]};
	for (int64_t i = 0; i < lanes->rows; i++)
		omp_load(b->isa, x, lanes->row + i, begin, lanes->per_row, dim,
			 copy + i * lanes->per_row * pitch, pitch);
	return (struct omp_matrix){copy, pitch};
}

static struct sides load_sides(const struct omp_backward *b, const struct omp_backward_scratch *s,
			       const struct omp_lanes *lanes)
{
	return (struct sides){
		load_side(b, &b->args->q, lanes, b->head_dim, s->q_rows, b->at.q_pitch),
		load_side(b, &b->args->grad_o, lanes, b->value_dim, s->grad_o_rows, b->at.v_pitch),
	};
}

/* The dk or dv of a head's key rows. */
static float *sums_of(const struct omp_backward *b, float *sums, int64_t dim, int64_t kv_head)
{
	return sums + kv_head * omp_key_rows_of(b) * dim;
}

/* sums[key row][dim] += product[n][dim] */
static void scatter(const struct omp_backward *b, const struct omp_backward_scratch *s, float *sums,
		    int64_t dim, const int64_t *keys, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		b->isa->axpy(1.0f, s->product + i * b->at.product_pitch, sums + keys[i] * dim, dim);
}

/* c[n][dim] of left[n][lanes], or left[lanes][n] when lanes are rows, times
 * right[lanes][dim]. */
static void multiply(const struct omp_backward *b, const struct omp_lanes *lanes, int64_t n,
		     int64_t dim, const float *left, const struct omp_matrix *right, float *c,
		     int64_t pitch, bool accumulate)
{
	if (b->narrow)
		b->isa->gemm_tn(n, dim, lanes->count, left, b->at.chunk_pitch, right->at,
				right->pitch, c, pitch, accumulate);
	else
		b->isa->gemm_nn(n, dim, lanes->count, left, lanes->pitch, right->at, right->pitch,
				c, pitch, accumulate);
}

/* sums += left right, as above */
static void add_product(const struct omp_backward *b, const struct omp_backward_scratch *s,
			const struct omp_lanes *lanes, const float *left,
			const struct omp_matrix *right, float *sums, int64_t dim,
			const int64_t *keys, int64_t n)
{
	sums = sums_of(b, sums, dim, lanes->heads.kv_head);
	if (keys[n - 1] - keys[0] == n - 1) {
		multiply(b, lanes, n, dim, left, right, sums + keys[0] * dim, dim, true);
		return;
	}
	multiply(b, lanes, n, dim, left, right, s->product, b->at.product_pitch, false);
	scatter(b, s, sums, dim, keys, n);
}

/* Adds what the unit's lanes [lane, lane + lanes->count) say about n <= OMP_TILE
 * key rows, whose shares and d logits begin at key row `at`. */
static void collect_keys(const struct omp_backward *b, const struct omp_backward_scratch *s,
			 const struct omp_unit *unit, const struct omp_lanes *lanes, int64_t lane,
			 const struct sides *sides, const int64_t *keys, int64_t n, int64_t at)
{
	const int64_t from = b->narrow ? at : at * lanes->pitch + lane;
	const float *shares = unit->shares + from, *d_logits = unit->d_logits + from;
	const int64_t kv_head = lanes->heads.kv_head, pitch = b->at.product_pitch;

	if (b->wants_dk && b->v_is_k) {
		multiply(b, lanes, n, b->head_dim, d_logits, &sides->q, s->product, pitch, false);
		multiply(b, lanes, n, b->value_dim, shares, &sides->grad_o, s->product, pitch,
			 true);
		scatter(b, s, sums_of(b, b->at.dk, b->head_dim, kv_head), b->head_dim, keys, n);
	} else if (b->wants_dk) {
		add_product(b, s, lanes, d_logits, &sides->q, b->at.dk, b->head_dim, keys, n);
	}
	if (b->wants_dv)
		add_product(b, s, lanes, shares, &sides->grad_o, b->at.dv, b->value_dim, keys, n);
}

/* The same row by row, each with the key rows that it sees: 0 times a q or
 * grad_o that is not finite would reach others. */
static void collect_rows(const struct omp_backward *b, const struct omp_backward_scratch *s,
			 const struct omp_unit *unit, const struct sides *sides,
			 const int64_t *keys, int64_t n, int64_t at)
{
	const struct omp_range *ranges = omp_unit_ranges(b, unit, s->shared, keys[0]);

	for (int64_t i = 0; i < unit->lanes.rows; i++) {
		struct omp_lanes row = unit->lanes;
		const int64_t lane = i * row.per_row;
		const struct sides own = {
			{sides->q.at + lane * sides->q.pitch, sides->q.pitch},
			{sides->grad_o.at + lane * sides->grad_o.pitch, sides->grad_o.pitch}};
		const int64_t begin = hys_max64(ranges[i].begin, keys[0]) - keys[0];
		const int64_t end = hys_min64(ranges[i].end, keys[0] + n) - keys[0];

		row.count = row.per_row;
		if (begin < end)
			collect_keys(b, s, unit, &row, lane, &own, keys + begin, end - begin,
				     at + begin);
	}
}

static bool all_finite(const struct omp_backward *b, const struct omp_lanes *lanes,
		       const struct sides *sides)
{
	return omp_is_finite(sides->q.at, lanes->count, b->head_dim, sides->q.pitch) &&
	       omp_is_finite(sides->grad_o.at, lanes->count, b->value_dim, sides->grad_o.pitch);
}

void omp_unit_collect(const struct omp_backward *b, const struct omp_backward_scratch *s,
		      const struct omp_unit *unit, const int64_t *keys, int64_t begin, int64_t end)
{
	const struct sides sides = load_sides(b, s, &unit->lanes);
	const bool finite = !b->shared || !unit->hides || all_finite(b, &unit->lanes, &sides);

	for (int64_t at = begin; at < end; at += OMP_TILE) {
		const int64_t n = hys_min64(OMP_TILE, end - at);

		if (finite || !(unit->hides >> at / OMP_TILE & 1))
			collect_keys(b, s, unit, &unit->lanes, 0, &sides, keys + at, n, at);
		else
			collect_rows(b, s, unit, &sides, keys + at, n, at);
	}
}

/* What a unit has for a range of key rows. */
struct hit {
	const struct omp_unit *unit;
	const int64_t *keys;
	int64_t begin, end;
};

static void collect_hit(const struct omp_backward *b, const struct omp_backward_scratch *s,
			const struct hit *hit)
{
	if (hit->unit)
		omp_unit_collect(b, s, hit->unit, hit->keys, hit->begin, hit->end);
}

/* Asks memory for a hit's first tile, while another one is worked on. */
static void fetch_hit(const struct omp_backward *b, const struct hit *hit)
{
	const int64_t pitch = hit->unit->lanes.pitch;
	const int64_t n = hys_min64(OMP_TILE, hit->end - hit->begin) * pitch;

	if (b->narrow || n > FETCH_MOST)
		return;
	for (int64_t i = 0; i < n; i += 16) {
		__builtin_prefetch(hit->unit->shares + hit->begin * pitch + i);
		__builtin_prefetch(hit->unit->d_logits + hit->begin * pitch + i);
	}
}

static void collect_range(void *context, int64_t item, int32_t thread)
{
	const struct omp_backward *b = context;
	const struct omp_backward_scratch s = omp_backward_scratch(b, thread);
	const int64_t low = b->low + item / b->kv_heads * b->range_keys;
	struct hit last = {0};

	for (int64_t i = 0; i < b->blocks * b->at.segments; i++) {
		const struct omp_unit *unit = b->at.units + i;
		const int64_t *keys = b->at.keys + unit->set * b->at.chunk;
		const int64_t count = b->at.counts[unit->set];

		if (unit->lanes.heads.kv_head != item % b->kv_heads)
			continue;
		const struct hit hit = {unit, keys, lower_bound(keys, count, low),
					lower_bound(keys, count, low + b->range_keys)};

		if (hit.begin >= hit.end)
			continue;
		fetch_hit(b, &hit);
		collect_hit(b, &s, &last);
		last = hit;
	}
	collect_hit(b, &s, &last);
}

void omp_backward_collect(struct omp_backward *b)
{
	if ((b->wants_dk || b->wants_dv) && split_keys(b))
		omp_for(b->threads, b->ranges * b->kv_heads, collect_range, b);
}

/* ---- first and last ---- */

static void zero_item(void *context, int64_t item, int32_t thread)
{
	const struct omp_backward *b = context;
	const int64_t first = item * STORE_ROWS;
	const int64_t all = omp_key_rows_of(b) * b->kv_heads;
	const int64_t count = hys_min64(STORE_ROWS, all - first);

	(void)thread;
	memset(b->at.dk + first * b->head_dim, 0, (size_t)(count * b->head_dim) * sizeof(float));
	memset(b->at.dv + first * b->value_dim, 0, (size_t)(count * b->value_dim) * sizeof(float));
}

void omp_backward_zero(struct omp_backward *b)
{
	omp_for(b->threads, omp_ceil_div(omp_key_rows_of(b) * b->kv_heads, STORE_ROWS), zero_item,
		b);
}

/* Where v is the first V channels of k, dk holds both parts. */
static void join_row(const struct omp_backward *b, int64_t row)
{
	for (int64_t g = 0; g < b->kv_heads; g++) {
		float *dk = sums_of(b, b->at.dk, b->head_dim, g) + row * b->head_dim;
		const float *dv = sums_of(b, b->at.dv, b->value_dim, g) + row * b->value_dim;

		for (int64_t d = 0; d < b->value_dim; d++)
			dk[d] += dv[d];
	}
}

/* Row `row` of both sources goes where its gradient is wanted. */
static void store_row(const struct omp_backward *b, const struct omp_backward_scratch *s,
		      int64_t row, const struct hys_tensor *first, const struct hys_tensor *second,
		      float *sums, int64_t dim)
{
	const int64_t split = b->call->size.keys;
	const struct hys_tensor *x = row < split ? first : second;

	for (int64_t g = 0; hys_present(x) && g < b->kv_heads; g++)
		omp_store(b->isa, x, row < split ? row : row - split, g,
			  sums_of(b, sums, dim, g) + row * dim, dim, b->add_sums, s->spare);
}

static void store_item(void *context, int64_t item, int32_t thread)
{
	const struct omp_backward *b = context;
	const struct hys_attention_grad_args *args = b->args;
	const struct omp_backward_scratch s = omp_backward_scratch(b, thread);
	const int64_t first = item * STORE_ROWS;
	const int64_t end = hys_min64(first + STORE_ROWS, omp_key_rows_of(b));

	for (int64_t row = first; row < end; row++) {
		if (!b->v_is_k && (row < b->keys.split ? b->first_shared : b->second_shared))
			join_row(b, row);
		store_row(b, &s, row, &args->dk, &args->dwindow_k, b->at.dk, b->head_dim);
		store_row(b, &s, row, &args->dv, &args->dwindow_v, b->at.dv, b->value_dim);
	}
}

void omp_backward_store(struct omp_backward *b)
{
	omp_for(b->threads, omp_ceil_div(omp_key_rows_of(b), STORE_ROWS), store_item, b);
}
