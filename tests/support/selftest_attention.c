/* Attention: gradients by differences, sets by hand, merge against the whole. */
#include "selftest.h"

#include "oracle.h"
#include "oracle_internal.h"
#include "rng.h"

enum { T = 7, S = 11, S2 = 5, H = 4, G = 2, D = 5, V = 3, U = 2, K = 4 };

/* Everything a problem needs, with room for gradients. */
struct arena {
	double q[T * H * D], k[S * G * D], v[S * G * V], sink[H], window_k[S2 * G * D],
		window_v[S2 * G * V];
	double grad_o[T * H * V], o[T * H * V], lse[T * H];
	double dq[T * H * D], dk[S * G * D], dv[S * G * V], dsink[H], dwindow_k[S2 * G * D],
		dwindow_v[S2 * G * V];
	int32_t indices[T * U * K], row_begin[T], row_end[T], window_begin[T], window_end[T];
	int32_t key_origin[T], entry_origin[T];
};

static void fill(struct arena *m, uint64_t seed)
{
	struct rng rng;
	rng_seed(&rng, seed);
	rng_fill_normal(&rng, m->q, T * H * D, 1.0);
	rng_fill_normal(&rng, m->k, S * G * D, 1.0);
	rng_fill_normal(&rng, m->v, S * G * V, 1.0);
	rng_fill_normal(&rng, m->sink, H, 1.0);
	rng_fill_normal(&rng, m->window_k, S2 * G * D, 1.0);
	rng_fill_normal(&rng, m->window_v, S2 * G * V, 1.0);
	rng_fill_normal(&rng, m->grad_o, T * H * V, 1.0);
	for (int32_t t = 0; t < T; t++) {
		m->row_begin[t] = t / 3;
		m->row_end[t] = t == 3 ? t / 3 : t + 5;
		m->window_begin[t] = t == 3 ? 2 : t / 3;
		m->window_end[t] = t == 3 ? 2 : t / 3 + 2;
		m->key_origin[t] = 0;
		m->entry_origin[t] = 0;
	}
	for (int32_t i = 0; i < T * U; i++)
		rng_sample_sorted(&rng, m->indices + i * K, K, 0, S);
}

static struct ora_attention problem(struct arena *m)
{
	return (struct ora_attention){.rows = T,
				      .keys = S,
				      .window_keys = S2,
				      .heads = H,
				      .kv_heads = G,
				      .head_dim = D,
				      .value_dim = V,
				      .groups = U,
				      .topk = K,
				      .scale = 0.6,
				      .q = m->q,
				      .k = m->k,
				      .v = m->v,
				      .indices = m->indices,
				      .row_begin = m->row_begin,
				      .row_end = m->row_end,
				      .o = m->o,
				      .lse = m->lse,
				      .grad_o = m->grad_o,
				      .dq = m->dq,
				      .dk = m->dk,
				      .dv = m->dv};
}

static double projected_output(void *context)
{
	struct ora_attention *a = context;
	ora_attention_forward(a);
	return ora_dot(a->o, a->grad_o, a->rows * a->heads * a->value_dim);
}

static void check_gradients(struct arena *m, struct ora_attention *a)
{
	ora_attention_backward(a);
	selftest_gradient(projected_output, a, m->q, m->dq, T * H * D, "q");
	selftest_gradient(projected_output, a, m->k, m->dk, S * G * D, "k");
	if (a->v != NULL)
		selftest_gradient(projected_output, a, m->v, m->dv, S * G * V, "v");
	if (a->sink != NULL)
		selftest_gradient(projected_output, a, m->sink, m->dsink, H, "sink");
	if (a->window_k != NULL)
		selftest_gradient(projected_output, a, m->window_k, m->dwindow_k, S2 * G * D,
				  "window_k");
	if (a->window_v != NULL)
		selftest_gradient(projected_output, a, m->window_v, m->dwindow_v, S2 * G * V,
				  "window_v");
}

static void add_second_source(struct arena *m, struct ora_attention *a)
{
	a->sink = m->sink;
	a->dsink = m->dsink;
	a->window_k = m->window_k;
	a->window_v = m->window_v;
	a->window_begin = m->window_begin;
	a->window_end = m->window_end;
	a->dwindow_k = m->dwindow_k;
	a->dwindow_v = m->dwindow_v;
}

static void check_all_gradients(struct arena *m)
{
	fill(m, 1);
	struct ora_attention a = problem(m);
	check_gradients(m, &a);
	a.granularity = 2;
	a.softcap = 1.5;
	a.window = 2;
	a.first = 1;
	add_second_source(m, &a);
	check_gradients(m, &a);
	a = problem(m);
	a.dense = 1;
	a.sink = m->sink;
	a.dsink = m->dsink;
	check_gradients(m, &a);
	a = problem(m);
	a.pool = 3;
	a.key_origin = m->key_origin;
	add_second_source(m, &a);
	a.v = a.window_v = NULL;
	a.dv = a.dwindow_v = NULL;
	check_gradients(m, &a);
	a.v = m->v;
	a.dv = m->dv;
	check_gradients(m, &a);
}

/* Rows of t = 0 for the given slots, as a bit set. */
static unsigned attended(struct ora_attention a, int32_t topk, const int32_t *indices)
{
	int32_t keys[32];
	unsigned set = 0;
	a.indices = indices;
	a.topk = topk;
	const int64_t count = ora_attended_keys(&a, 0, 0, keys);
	for (int64_t i = 0; i < count; i++)
		set |= 1u << keys[i];
	return set;
}

#define ATTENDED(a, ...)                                                           \
	attended(a, (int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), \
		 (int32_t[]){__VA_ARGS__})

static void check_sets(void)
{
	const int32_t begin = 2, end = 10, key_origin = 1, entry_origin = 4;
	struct ora_attention a = {.rows = 1,
				  .keys = 20,
				  .heads = 1,
				  .kv_heads = 1,
				  .row_begin = &begin,
				  .row_end = &end};
	CHECK(ATTENDED(a, 1, 2, 9, 10) == 0x204);
	CHECK(ATTENDED(a, 5, 5, 4, 6, -1, 7) == 0xe0);
	CHECK(ATTENDED(a, -5, 3, INT32_MAX, 4, INT32_MIN) == 0x18);
	a.granularity = 4;
	CHECK(ATTENDED(a, 0, 8, -1) == 0x30c);	  /* 0..3 and 8..11, cut to 2..9 */
	CHECK(ATTENDED(a, 0, 3, 4) == 0xfc);	  /* 3 overlaps 0; 4 is next to the last accepted */
	CHECK(ATTENDED(a, -3, 12, 3, 6) == 0x78); /* absent ones are no predecessors */
	a.window = 1;
	a.first = 2;
	CHECK(ATTENDED(a, 3, -1) == 0x27c);
	a.window = 100;
	CHECK(ATTENDED(a, -1) == 0x3fc);
	a.window = a.first = 0;
	a.granularity = 1;
	a.pool = 3;
	a.key_origin = &key_origin;
	a.entry_origin = &entry_origin;
	CHECK(ATTENDED(a, 3, 4, 6, 7) == 0x38c); /* 4: rows 1..3, 6: 7..9, 7: 10..12 */
	CHECK(ATTENDED(a, 6, 5) == 0x380);
	a.dense = 1;
	CHECK(ATTENDED(a, -1) == 0x3fc);
}

/* Sparse attention over all visible rows is dense attention; two halves merge into it. */
static void check_merge(struct arena *m)
{
	double o_a[T * H * V], o_b[T * H * V], lse_a[T * H], lse_b[T * H];
	int32_t middle[T];
	fill(m, 2);
	struct ora_attention a = problem(m);
	a.dense = 1;
	a.softcap = 2.0;
	for (int32_t t = 0; t < T; t++)
		middle[t] = t == 3   ? m->row_end[t]
			    : t == 4 ? m->row_begin[t]
			    : t == 5 ? m->row_end[t]
				     : t + 2;
	ora_attention_forward(&a);
	struct ora_attention left = a, right = a;
	left.row_end = right.row_begin = middle;
	left.o = o_a, left.lse = lse_a, right.o = o_b, right.lse = lse_b;
	ora_attention_forward(&left);
	ora_attention_forward(&right);
	ora_merge(T * H, V, o_a, lse_a, o_b, lse_b, o_a, lse_a);
	CHECK(ora_relative_error(o_a, m->o, T * H * V) < 1e-14);
	CHECK(ora_worst_vector_error(lse_a, m->lse, T * H, 1, 1.0) < 1e-14);
	CHECK(lse_a[3 * H] == -(double)INFINITY && o_a[3 * H * V] == 0.0);
	memcpy(o_a, m->o, sizeof o_a);
	struct ora_attention sparse = a;
	sparse.dense = 0;
	sparse.window = S;
	ora_attention_forward(&sparse);
	CHECK(memcmp(o_a, m->o, sizeof o_a) == 0);
}

static void check_empty_rows(struct arena *m)
{
	fill(m, 3);
	for (int32_t i = 0; i < T * U * K; i++)
		m->indices[i] = -1;
	struct ora_attention a = problem(m);
	add_second_source(m, &a);
	a.window_k = a.window_v = NULL;
	a.dwindow_k = a.dwindow_v = NULL;
	ora_attention_forward(&a);
	ora_attention_backward(&a);
	int zero = 1;
	for (int i = 0; i < T * H; i++)
		zero &= m->lse[i] == -(double)INFINITY;
	for (int i = 0; i < T * H * V; i++)
		zero &= m->o[i] == 0.0;
	for (int i = 0; i < T * H * D; i++)
		zero &= m->dq[i] == 0.0;
	for (int i = 0; i < S * G * D; i++)
		zero &= m->dk[i] == 0.0;
	CHECK(zero && m->dsink[0] == 0.0);
}

/* Huge logits, a range of rows, and the sink by hand. */
static void check_numbers(struct arena *m)
{
	const double q[] = {1.0}, k[] = {2000.0, 2000.0, -1e6}, v[] = {1.0, 3.0, 100.0},
		     sink[] = {2000.0};
	double o, lse, dsink, grad = 1.0, dv[3];
	struct ora_attention a = {.rows = 1,
				  .keys = 3,
				  .heads = 1,
				  .kv_heads = 1,
				  .head_dim = 1,
				  .value_dim = 1,
				  .dense = 1,
				  .scale = 1.0,
				  .q = q,
				  .k = k,
				  .v = v,
				  .sink = sink,
				  .o = &o,
				  .lse = &lse,
				  .grad_o = &grad,
				  .dsink = &dsink,
				  .dv = dv};
	ora_attention_forward(&a);
	ora_attention_backward(&a);
	CHECK(fabs(o - 4.0 / 3.0) < 1e-12 && fabs(lse - 2000.0 - log(2.0)) < 1e-12 &&
	      a.largest_logit == 1e6);
	CHECK(fabs(dsink + 4.0 / 9.0) < 1e-12 && dv[2] == 0.0 && fabs(dv[0] - 1.0 / 3.0) < 1e-12);
	fill(m, 4);
	a = problem(m);
	a.row_first = 2;
	a.row_count = 2;
	m->o[0] = m->dq[0] = m->lse[4 * H] = 77.0;
	ora_attention_forward(&a);
	ora_attention_backward(&a);
	CHECK(m->o[0] == 77.0 && m->dq[0] == 77.0 && m->lse[4 * H] == 77.0 &&
	      m->lse[2 * H] != 77.0);
}

void selftest_attention(void)
{
	struct arena *m = ora_alloc(1, sizeof *m);
	check_all_gradients(m);
	check_sets();
	check_merge(m);
	check_empty_rows(m);
	check_numbers(m);
	free(m);
}
