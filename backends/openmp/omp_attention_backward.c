/* omp_attention_backward.c - attention backward, the same bits for any number
 * of threads.
 *
 * Rows go in tiles, the key rows of each row's set in chunks. For a tile and
 * a chunk, first threads share the rows: shares and d logits are recomputed
 * into memory, dq grows. Then threads own disjoint ranges of key rows, and add
 * what the tile's rows, in order, hold for them to dk and dv. So a key row's
 * gradient is added up by (tile, chunk, row, head), whoever does it. */
#include <math.h>
#include <string.h>

#include "omp_kernels.h"
#include "omp_tile.h"

#define CHUNK_MOST 512
#define TILE_ROWS_MOST 128
#define TILE_BYTES (INT64_C(64) << 20) /* of shares, d logits and dq */
#define RANGES_PER_THREAD 4
#define STORE_ROWS 64 /* key rows of one item */

/* Scratch of one thread. */
struct scratch {
	float *q, *grad_o; /* [M][D], [M][V]: heads of one key/value head */
	float *k, *v;	   /* [OMP_TILE][D], [OMP_TILE][V] */
	float *slope;	   /* [OMP_TILE] derivative of a logit by its dot */
	float *product;	   /* [OMP_TILE][max(D, V)] */
	float *spare;	   /* [max(D, V)] */
};

/* What depends on the call's size alone, and where it lies. */
struct layout {
	int64_t groups; /* with sets of their own */
	int64_t chunk, tile_rows;
	int64_t q_pitch, v_pitch, chunk_pitch, product_pitch;
	struct omp_walk *walks; /* [tile_rows][groups] */
	int64_t *keys;		/* [tile_rows][groups][chunk] */
	int64_t *counts;	/* [tile_rows][groups] */
	float *shares;		/* [tile_rows][H][chunk] */
	float *d_logits;
	float *dq;	/* [tile_rows][H][D] */
	float *totals;	/* [tile_rows][H] logarithms of the denominators */
	float *means;	/* [tile_rows][H] sums of o * grad_o */
	double *dsink;	/* [H] */
	float *dk, *dv; /* [S + S2][G][D], [S + S2][G][V] */
	char *scratch;
	int64_t scratch_bytes;
};

struct backward {
	const struct hys_call *call;
	const struct hys_attention_grad_args *args;
	const struct omp_isa *isa;
	struct omp_rows rows;
	struct omp_source keys, values;
	bool shared;			  /* all v = first V channels of k */
	bool first_shared, second_shared; /* of that source */
	bool dense, add;
	bool wants_dk, wants_dv;
	int64_t heads, kv_heads, head_dim, value_dim;
	float scale, softcap;
	int32_t threads;
	struct layout at;
	/* the tile and chunk at work */
	int64_t tile, tile_rows;
	int64_t low, range_keys, ranges; /* key rows [low + i * range_keys, ...) */
};

static struct scratch lay_out_scratch(struct omp_arena *arena, const struct hys_problem *problem,
				      const struct layout *at)
{
	const int64_t heads = omp_heads_most(problem);

	return (struct scratch){
		.q = omp_take(arena, heads * at->q_pitch, sizeof(float)),
		.grad_o = omp_take(arena, heads * at->v_pitch, sizeof(float)),
		.k = omp_take(arena, OMP_TILE * at->q_pitch, sizeof(float)),
		.v = omp_take(arena, OMP_TILE * at->v_pitch, sizeof(float)),
		.slope = omp_take(arena, OMP_TILE, sizeof(float)),
		.product = omp_take(arena, OMP_TILE * at->product_pitch, sizeof(float)),
		.spare = omp_take(arena, at->product_pitch, sizeof(float)),
	};
}

/* Chunk and tile size. Only the problem decides the rows of a tile, because they
 * decide the order of sums where a set has more than one chunk. */
static void size_tiles(const struct hys_size *size, struct layout *at)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t larger = hys_max64(attending->head_dim, attending->value_dim);
	int64_t row_bytes;

	at->groups = attending->flags & HYS_ATTENDING_DENSE ? 1 : size->problem->scoring.groups;
	at->chunk = hys_max64(1, hys_min64(omp_walk_most(size), CHUNK_MOST));
	at->q_pitch = omp_pitch(attending->head_dim);
	at->v_pitch = omp_pitch(attending->value_dim);
	at->product_pitch = omp_pitch(larger);
	at->chunk_pitch = omp_pitch(at->chunk);
	row_bytes = attending->heads * (2 * omp_pitch(CHUNK_MOST) + at->q_pitch) *
		    (int64_t)sizeof(float);
	row_bytes += at->groups * CHUNK_MOST * (int64_t)sizeof(int64_t);
	at->tile_rows = hys_min64(hys_max64(1, TILE_BYTES / row_bytes), TILE_ROWS_MOST);
	at->tile_rows = hys_min64(at->tile_rows, hys_max64(1, size->rows));
}

static void lay_out(struct omp_arena *arena, const struct hys_size *size, int32_t threads,
		    struct layout *at)
{
	const struct hys_attending *attending = &size->problem->attending;
	const int64_t key_heads =
		hys_mul64(hys_add64(size->keys, size->window_keys), attending->kv_heads);
	struct omp_arena counting = {0};

	size_tiles(size, at);
	const int64_t sets = at->tile_rows * at->groups;
	const int64_t lanes = at->tile_rows * attending->heads;

	at->walks = omp_take(arena, sets, sizeof(struct omp_walk));
	at->keys = omp_take(arena, sets * at->chunk, sizeof(int64_t));
	at->counts = omp_take(arena, sets, sizeof(int64_t));
	at->shares = omp_take(arena, lanes * at->chunk_pitch, sizeof(float));
	at->d_logits = omp_take(arena, lanes * at->chunk_pitch, sizeof(float));
	at->dq = omp_take(arena, lanes * at->q_pitch, sizeof(float));
	at->totals = omp_take(arena, lanes, sizeof(float));
	at->means = omp_take(arena, lanes, sizeof(float));
	at->dsink = omp_take(arena, attending->heads, sizeof(double));
	at->dk = omp_take(arena, hys_mul64(key_heads, attending->head_dim), sizeof(float));
	at->dv = omp_take(arena, hys_mul64(key_heads, attending->value_dim), sizeof(float));
	lay_out_scratch(&counting, size->problem, at);
	at->scratch_bytes = counting.used;
	at->scratch = omp_take(arena, hys_mul64(counting.used, threads), 1);
}

int64_t omp_attention_backward_workspace(const struct hys_kernel *kernel,
					 const struct hys_device *device,
					 const struct hys_size *size)
{
	struct omp_arena arena = {0};
	struct layout at;

	(void)kernel;
	lay_out(&arena, size, omp_device(device)->threads, &at);
	return arena.used;
}

static struct scratch scratch_of(const struct backward *b, int32_t thread)
{
	struct omp_arena arena = {b->at.scratch + thread * b->at.scratch_bytes, 0};

	return lay_out_scratch(&arena, b->call->problem, &b->at);
}

static void load_heads(const struct backward *b, const struct scratch *s,
		       const struct omp_heads *heads, int64_t row)
{
	const int64_t count = heads->end - heads->begin;

	omp_load(b->isa, &b->args->q, row, heads->begin, count, b->head_dim, s->q, b->at.q_pitch);
	omp_load(b->isa, &b->args->grad_o, row, heads->begin, count, b->value_dim, s->grad_o,
		 b->at.v_pitch);
}

/* ---- threads share the rows ---- */

/* The denominator's logarithm, -inf where nothing was attended, and
 * sum of o * grad_o. */
static void start_head(const struct backward *b, const struct scratch *s, int64_t i, int64_t head)
{
	const int64_t row = b->tile + i, lane = i * b->heads + head;
	const struct hys_tensor *sink = &b->args->sink;
	double total = (double)*(const float *)omp_at(&b->args->lse, row, head, 0);

	if (hys_present(sink) && total != -(double)INFINITY)
		total = omp_log_add(total, (double)*(const float *)omp_at(sink, head, 0, 0));
	b->at.totals[lane] = (float)total;
	omp_load(b->isa, &b->args->grad_o, row, head, 1, b->value_dim, s->grad_o, 0);
	omp_load(b->isa, &b->args->o, row, head, 1, b->value_dim, s->product, 0);
	/* As d shares are computed, so that a single key row cancels exactly. */
	b->isa->gemm_nt(1, 1, b->value_dim, s->grad_o, 0, s->product, 0, &b->at.means[lane], 1,
			false);
}

static void start_row(void *context, int64_t i, int32_t thread)
{
	const struct backward *b = context;
	const struct scratch s = scratch_of(b, thread);
	const int64_t floats = b->heads * b->at.q_pitch;

	for (int64_t u = 0; u < b->at.groups; u++)
		omp_walk_start(&b->at.walks[i * b->at.groups + u], &b->rows, b->tile + i, u);
	for (int64_t head = 0; head < b->heads; head++)
		start_head(b, &s, i, head);
	memset(b->at.dq + i * floats, 0, (size_t)floats * sizeof(float));
}

/* From dot products to shares and from d shares to d logits, n <= OMP_TILE. */
static void differentiate(const struct backward *b, const struct scratch *s, int64_t lane,
			  float *shares, float *d_logits, int64_t n)
{
	const float total = b->at.totals[lane], mean = b->at.means[lane];

	if (total == -(float)INFINITY) {
		memset(shares, 0, (size_t)n * sizeof(float));
		memset(d_logits, 0, (size_t)n * sizeof(float));
		return;
	}
	omp_logits(b->call->problem, shares, n);
	for (int64_t i = 0; i < n; i++) {
		const float bent = b->softcap > 0.0f ? shares[i] / b->softcap : 0.0f;

		s->slope[i] = b->scale * (1.0f - bent * bent);
		shares[i] -= total;
	}
	b->isa->exp(shares, n);
	for (int64_t i = 0; i < n; i++)
		d_logits[i] = shares[i] * (d_logits[i] - mean) * s->slope[i];
}

/* Positions [first, first + n) of the chunk, for the heads that s holds. */
static void share_tile(const struct backward *b, const struct scratch *s,
		       const struct omp_heads *heads, int64_t i, int64_t first, int64_t n)
{
	const struct layout *at = &b->at;
	const int64_t count = heads->end - heads->begin;
	const int64_t lane = i * b->heads + heads->begin;
	const int64_t *keys = at->keys + (i * at->groups + heads->group) * at->chunk + first;
	float *shares = at->shares + lane * at->chunk_pitch + first;
	float *d_logits = at->d_logits + lane * at->chunk_pitch + first;

	omp_gather(b->isa, &b->keys, heads->kv_head, keys, n, b->head_dim, s->k, at->q_pitch);
	if (!b->shared)
		omp_gather(b->isa, &b->values, heads->kv_head, keys, n, b->value_dim, s->v,
			   at->v_pitch);
	b->isa->gemm_nt(count, n, b->head_dim, s->q, at->q_pitch, s->k, at->q_pitch, shares,
			at->chunk_pitch, false);
	b->isa->gemm_nt(count, n, b->value_dim, s->grad_o, at->v_pitch, b->shared ? s->k : s->v,
			b->shared ? at->q_pitch : at->v_pitch, d_logits, at->chunk_pitch, false);
	for (int64_t h = 0; h < count; h++)
		differentiate(b, s, lane + h, shares + h * at->chunk_pitch,
			      d_logits + h * at->chunk_pitch, n);
	b->isa->gemm_nn(count, b->head_dim, n, d_logits, at->chunk_pitch, s->k, at->q_pitch,
			at->dq + lane * at->q_pitch, at->q_pitch, true);
}

/* The next chunk of row i of the tile. */
static void share_row(void *context, int64_t i, int32_t thread)
{
	const struct backward *b = context;
	const struct layout *at = &b->at;
	const struct scratch s = scratch_of(b, thread);
	struct omp_heads heads = {0};

	for (int64_t set = i * at->groups; set < (i + 1) * at->groups; set++)
		at->counts[set] =
			omp_walk_keys(&at->walks[set], at->keys + set * at->chunk, at->chunk);
	while (omp_heads_next(b->call->problem, b->dense, &heads)) {
		const int64_t count = at->counts[i * at->groups + heads.group];

		if (count > 0)
			load_heads(b, &s, &heads, b->tile + i);
		for (int64_t first = 0; first < count; first += OMP_TILE)
			share_tile(b, &s, &heads, i, first, hys_min64(OMP_TILE, count - first));
	}
}

static void finish_row(void *context, int64_t i, int32_t thread)
{
	const struct backward *b = context;
	const struct scratch s = scratch_of(b, thread);

	for (int64_t head = 0; head < b->heads; head++)
		omp_store(b->isa, &b->args->dq, b->tile + i, head,
			  b->at.dq + (i * b->heads + head) * b->at.q_pitch, b->head_dim, b->add,
			  s.spare);
}

/* ---- threads own key rows ---- */

/* Splits the key rows of the chunk evenly; false when there are none. */
static bool split_keys(struct backward *b)
{
	int64_t low = INT64_MAX, high = -1;

	for (int64_t set = 0; set < b->tile_rows * b->at.groups; set++) {
		const int64_t count = b->at.counts[set];
		const int64_t *keys = b->at.keys + set * b->at.chunk;

		if (count > 0) {
			low = hys_min64(low, keys[0]);
			high = hys_max64(high, keys[count - 1]);
		}
	}
	b->low = low;
	b->ranges = b->threads > 1 ? RANGES_PER_THREAD * b->threads : 1;
	b->range_keys = high < low ? 0 : omp_ceil_div(high - low + 1, b->ranges);
	return high >= low;
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

/* sums[key row][G][dim] += product[n][dim] */
static void scatter(const struct backward *b, const struct scratch *s, float *sums, int64_t dim,
		    int64_t kv_head, const int64_t *keys, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		float *sum = sums + (keys[i] * b->kv_heads + kv_head) * dim;
		const float *product = s->product + i * b->at.product_pitch;

		for (int64_t d = 0; d < dim; d++)
			sum[d] += product[d];
	}
}

/* Adds what the heads in s say about n <= OMP_TILE key rows, whose place in
 * shares and d_logits is `from`. */
static void collect_keys(const struct backward *b, const struct scratch *s,
			 const struct omp_heads *heads, const int64_t *keys, int64_t n,
			 int64_t from)
{
	const struct layout *at = &b->at;
	const int64_t count = heads->end - heads->begin;

	if (b->wants_dk) {
		b->isa->gemm_tn(n, b->head_dim, count, at->d_logits + from, at->chunk_pitch, s->q,
				at->q_pitch, s->product, at->product_pitch, false);
		if (b->shared)
			b->isa->gemm_tn(n, b->value_dim, count, at->shares + from, at->chunk_pitch,
					s->grad_o, at->v_pitch, s->product, at->product_pitch,
					true);
		scatter(b, s, at->dk, b->head_dim, heads->kv_head, keys, n);
	}
	if (b->wants_dv) {
		b->isa->gemm_tn(n, b->value_dim, count, at->shares + from, at->chunk_pitch,
				s->grad_o, at->v_pitch, s->product, at->product_pitch, false);
		scatter(b, s, at->dv, b->value_dim, heads->kv_head, keys, n);
	}
}

/* What row i of the tile adds to the key rows of one range and kv head. */
static void collect_row(const struct backward *b, const struct scratch *s, int64_t i,
			int64_t kv_head, struct omp_range range)
{
	const struct layout *at = &b->at;
	struct omp_heads heads = {0};

	while (omp_heads_next(b->call->problem, b->dense, &heads)) {
		const int64_t set = i * at->groups + heads.group;
		const int64_t *keys = at->keys + set * at->chunk;

		if (heads.kv_head != kv_head)
			continue;
		const int64_t begin = lower_bound(keys, at->counts[set], range.begin);
		const int64_t end = lower_bound(keys, at->counts[set], range.end);
		const int64_t lane = i * b->heads + heads.begin;

		if (begin < end)
			load_heads(b, s, &heads, b->tile + i);
		for (int64_t p = begin; p < end; p += OMP_TILE)
			collect_keys(b, s, &heads, keys + p, hys_min64(OMP_TILE, end - p),
				     lane * at->chunk_pitch + p);
	}
}

static void collect_range(void *context, int64_t item, int32_t thread)
{
	const struct backward *b = context;
	const struct scratch s = scratch_of(b, thread);
	const int64_t begin = b->low + item / b->kv_heads * b->range_keys;

	for (int64_t i = 0; i < b->tile_rows; i++)
		collect_row(b, &s, i, item % b->kv_heads,
			    (struct omp_range){begin, begin + b->range_keys});
}

/* ---- the whole ---- */

static void add_dsink(const struct backward *b)
{
	for (int64_t lane = 0; lane < b->tile_rows * b->heads; lane++) {
		const int64_t head = lane % b->heads;
		const float sink = *(const float *)omp_at(&b->args->sink, head, 0, 0);
		const float total = b->at.totals[lane];

		if (total != -(float)INFINITY)
			b->at.dsink[head] -=
				exp((double)sink - (double)total) * (double)b->at.means[lane];
	}
}

static void do_tile(struct backward *b)
{
	const bool collects = b->wants_dk || b->wants_dv;

	omp_for(b->threads, b->tile_rows, start_row, b);
	for (;;) {
		omp_for(b->threads, b->tile_rows, share_row, b);
		if (!split_keys(b))
			break;
		if (collects)
			omp_for(b->threads, b->ranges * b->kv_heads, collect_range, b);
	}
	if (hys_present(&b->args->dq))
		omp_for(b->threads, b->tile_rows, finish_row, b);
	if (hys_present(&b->args->sink) && hys_present(&b->args->dsink))
		add_dsink(b);
}

static int64_t key_rows(const struct backward *b)
{
	return b->call->size.keys + b->call->size.window_keys;
}

static void zero_item(void *context, int64_t item, int32_t thread)
{
	const struct backward *b = context;
	const int64_t first = item * STORE_ROWS * b->kv_heads;
	const int64_t count =
		hys_min64(STORE_ROWS * b->kv_heads, key_rows(b) * b->kv_heads - first);

	(void)thread;
	memset(b->at.dk + first * b->head_dim, 0, (size_t)(count * b->head_dim) * sizeof(float));
	memset(b->at.dv + first * b->value_dim, 0, (size_t)(count * b->value_dim) * sizeof(float));
}

/* Where v is the first V channels of k, dk holds both parts. */
static void join_row(const struct backward *b, int64_t row)
{
	for (int64_t g = 0; g < b->kv_heads; g++) {
		float *dk = b->at.dk + (row * b->kv_heads + g) * b->head_dim;
		const float *dv = b->at.dv + (row * b->kv_heads + g) * b->value_dim;

		for (int64_t d = 0; d < b->value_dim; d++)
			dk[d] += dv[d];
	}
}

/* Row `row` of both sources goes where its gradient is wanted. */
static void store_row(const struct backward *b, const struct scratch *s, int64_t row,
		      const struct hys_tensor *first, const struct hys_tensor *second, float *sums,
		      int64_t dim)
{
	const int64_t split = b->call->size.keys;
	const struct hys_tensor *x = row < split ? first : second;

	for (int64_t g = 0; hys_present(x) && g < b->kv_heads; g++)
		omp_store(b->isa, x, row < split ? row : row - split, g,
			  sums + (row * b->kv_heads + g) * dim, dim, b->add, s->spare);
}

static void store_item(void *context, int64_t item, int32_t thread)
{
	const struct backward *b = context;
	const struct hys_attention_grad_args *args = b->args;
	const struct scratch s = scratch_of(b, thread);
	const int64_t first = item * STORE_ROWS;
	const int64_t end = hys_min64(first + STORE_ROWS, key_rows(b));

	for (int64_t row = first; row < end; row++) {
		if (!b->shared && (row < b->keys.split ? b->first_shared : b->second_shared))
			join_row(b, row);
		store_row(b, &s, row, &args->dk, &args->dwindow_k, b->at.dk, b->head_dim);
		store_row(b, &s, row, &args->dv, &args->dwindow_v, b->at.dv, b->value_dim);
	}
}

static void store_dsink(const struct backward *b)
{
	for (int64_t head = 0; head < b->heads; head++) {
		float *out = omp_at(&b->args->dsink, head, 0, 0);

		*out = (float)(b->at.dsink[head] + (b->add ? (double)*out : 0.0));
	}
}

static struct backward make(const struct hys_kernel *kernel, const struct hys_stream *stream,
			    const struct hys_call *call)
{
	const struct hys_attention_grad_args *args = &call->args.attention_grad;
	const struct hys_attending *attending = &call->problem->attending;
	const int64_t second = hys_present(&args->window_k) ? call->size.window_keys : 0;
	const bool first_shared = !hys_present(&args->v);
	const bool second_shared = second > 0 && !hys_present(&args->window_v);
	const bool shared = first_shared && (second == 0 || second_shared);
	struct backward b = {
		.call = call,
		.args = args,
		.isa = omp_isa_of_stream(kernel, stream),
		.rows = {call->problem, &call->batch, &args->indices, call->size.keys,
			 call->size.entries, second},
		.keys = {&args->k, &args->window_k, call->size.keys},
		.shared = shared,
		.first_shared = first_shared,
		.second_shared = second_shared,
		.dense = (attending->flags & HYS_ATTENDING_DENSE) != 0,
		.add = (args->flags & HYS_GRAD_ACCUMULATE) != 0,
		.wants_dk = hys_present(&args->dk) || hys_present(&args->dwindow_k),
		.heads = attending->heads,
		.kv_heads = attending->kv_heads,
		.head_dim = attending->head_dim,
		.value_dim = attending->value_dim,
		.scale = (float)attending->scale,
		.softcap = (float)attending->softcap,
	};

	b.values = omp_values(&b.keys, &args->v, &args->window_v);
	b.wants_dv = !shared && (hys_present(&args->dv) || hys_present(&args->dwindow_v) ||
				 (first_shared && hys_present(&args->dk)) ||
				 (second_shared && hys_present(&args->dwindow_k)));
	return b;
}

hys_status omp_attention_backward_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				      void *instance, const struct hys_call *call,
				      struct hys_error *error)
{
	struct omp_arena arena = omp_arena(&call->workspace);
	struct backward b = make(kernel, stream, call);

	(void)instance, (void)error;
	b.threads = omp_threads(stream);
	lay_out(&arena, &call->size, b.threads, &b.at);
	memset(b.at.dsink, 0, (size_t)b.heads * sizeof(double));
	omp_for(b.threads, omp_ceil_div(key_rows(&b), STORE_ROWS), zero_item, &b);
	for (; b.tile < call->size.rows; b.tile += b.at.tile_rows) {
		b.tile_rows = hys_min64(b.at.tile_rows, call->size.rows - b.tile);
		do_tile(&b);
	}
	omp_for(b.threads, omp_ceil_div(key_rows(&b), STORE_ROWS), store_item, &b);
	if (hys_present(&b.args->dsink))
		store_dsink(&b);
	return HYS_OK;
}
