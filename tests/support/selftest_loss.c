/* The indexer loss: gradients by differences, reductions, teachers, blocks and pools. */
#include "selftest.h"

#include "oracle.h"
#include "oracle_internal.h"
#include "rng.h"

enum { T = 8, S = 12, HI = 4, DI = 3, H = 4, G = 2, D = 4, U = 2, K = 3 };

struct arena {
	double index_q[T * HI * DI], index_k[S * DI], index_w[T * HI], q[T * H * D], k[S * G * D],
		sink[H], lse[T * H];
	double teacher[T * U * K], d_index_q[T * HI * DI], d_index_k[S * DI], d_index_w[T * HI];
	int32_t indices[T * U * K], row_begin[T], row_end[T], index_begin[T], index_end[T];
};

static void fill(struct arena *m, uint64_t seed)
{
	struct rng rng;
	rng_seed(&rng, seed);
	rng_fill_normal(&rng, m->index_q, T * HI * DI, 1.0);
	rng_fill_normal(&rng, m->index_k, S * DI, 1.0);
	rng_fill_normal(&rng, m->index_w, T * HI, 1.0);
	rng_fill_normal(&rng, m->q, T * H * D, 1.0);
	rng_fill_normal(&rng, m->k, S * G * D, 1.0);
	rng_fill_normal(&rng, m->sink, H, 1.0);
	for (int32_t t = 0; t < T; t++) {
		m->row_begin[t] = t / 4;
		m->row_end[t] = t == 2 ? 0 : t + 4;
		m->index_begin[t] = 0;
		m->index_end[t] = m->row_end[t] / 3;
	}
	for (int32_t i = 0; i < T * U; i++)
		rng_sample_sorted(&rng, m->indices + i * K, K, 0, S);
	struct ora_attention a = {.rows = T,
				  .keys = S,
				  .heads = H,
				  .kv_heads = G,
				  .head_dim = D,
				  .value_dim = D,
				  .scale = 0.5,
				  .dense = 1,
				  .q = m->q,
				  .k = m->k,
				  .row_begin = m->row_begin,
				  .row_end = m->row_end,
				  .lse = m->lse};
	ora_attention_forward(&a);
}

static struct ora_loss problem(struct arena *m, enum ora_activation activation)
{
	return (struct ora_loss){.scoring = {.rows = T,
					     .entries = S,
					     .heads = HI,
					     .dim = DI,
					     .groups = U,
					     .activation = activation,
					     .scale = 0.8,
					     .index_q = m->index_q,
					     .index_k = m->index_k,
					     .index_w = m->index_w},
				 .attention = {.rows = T,
					       .keys = S,
					       .heads = H,
					       .kv_heads = G,
					       .head_dim = D,
					       .topk = K,
					       .scale = 0.5,
					       .q = m->q,
					       .k = m->k,
					       .indices = m->indices,
					       .row_begin = m->row_begin,
					       .row_end = m->row_end},
				 .coefficient = 0.7,
				 .d_index_q = m->d_index_q,
				 .d_index_k = m->d_index_k,
				 .d_index_w = m->d_index_w};
}

static double value(void *context)
{
	struct ora_loss *loss = context;
	ora_indexer_loss(loss);
	return loss->loss;
}

static void check_gradients(struct arena *m, struct ora_loss *loss)
{
	double *q = ora_doubles(T * HI * DI), *k = ora_doubles(S * DI), *w = ora_doubles(T * HI);
	struct ora_loss quiet = *loss;
	ora_indexer_loss(loss);
	memcpy(q, m->d_index_q, sizeof m->d_index_q);
	memcpy(k, m->d_index_k, sizeof m->d_index_k);
	memcpy(w, m->d_index_w, sizeof m->d_index_w);
	quiet.d_index_q = quiet.d_index_k = quiet.d_index_w = NULL;
	CHECK(loss->loss > 0.0);
	selftest_gradient(value, &quiet, m->index_q, q, T * HI * DI, "index_q");
	selftest_gradient(value, &quiet, m->index_k, k, loss->scoring.entries * DI, "index_k");
	if (loss->scoring.index_w != NULL)
		selftest_gradient(value, &quiet, m->index_w, w, T * HI, "index_w");
	free(q);
	free(k);
	free(w);
}

static void check_all_gradients(struct arena *m)
{
	fill(m, 11);
	struct ora_loss loss = problem(m, ORA_RELU);
	check_gradients(m, &loss);
	loss = problem(m, ORA_IDENTITY);
	loss.attention.granularity = 2;
	loss.attention.sink = m->sink;
	loss.attention.softcap = 1.0;
	loss.scoring.index_w = NULL;
	loss.sum = 1;
	loss.row_stride = 3;
	loss.row_offset = 1;
	check_gradients(m, &loss);
	loss = problem(m, ORA_RELU);
	loss.attention.dense = 1;
	loss.lse = m->lse;
	loss.attention.sink = m->sink;
	check_gradients(m, &loss);
	loss = problem(m, ORA_RELU);
	loss.scoring.entries = S / 3;
	loss.scoring.index_begin = m->index_begin;
	loss.scoring.index_end = m->index_end;
	loss.attention.pool = 3;
	loss.attention.dense = 1;
	check_gradients(m, &loss);
	loss.attention.dense = 0;
	for (int32_t i = 0; i < T * U * K; i++)
		m->indices[i] = i % K;
	check_gradients(m, &loss);
}

/* The teacher given out and in again gives the same loss, whatever its scale. */
static void check_teacher(struct arena *m)
{
	fill(m, 12);
	struct ora_loss loss = problem(m, ORA_RELU);
	loss.lse = m->lse;
	loss.teacher_out = m->teacher;
	ora_indexer_loss(&loss);
	double dq[T * HI * DI];
	memcpy(dq, m->d_index_q, sizeof dq);
	for (int i = 0; i < T * U * K; i++)
		m->teacher[i] *= 3.0;
	struct ora_loss again = problem(m, ORA_RELU);
	again.teacher = m->teacher;
	again.attention.q = again.attention.k = NULL;
	ora_indexer_loss(&again);
	CHECK(fabs(again.loss - loss.loss) < 1e-14 && again.non_empty == loss.non_empty);
	CHECK(ora_relative_error(m->d_index_q, dq, T * HI * DI) < 1e-13);
	/* Shares of disjoint sets add up: all rows' shares of a head sum to 1 when lse covers them. */
	int32_t all[T * U * S];
	double sums[T * U * S], total = 0.0;
	for (int32_t i = 0; i < T * U * S; i++)
		all[i] = i % S;
	loss.attention.indices = all;
	loss.attention.topk = S;
	loss.teacher_out = sums;
	ora_indexer_loss(&loss);
	for (int i = 0; i < S; i++)
		total += sums[(1 * U + 1) * S + i];
	CHECK(fabs(total - H / U) < 1e-13);
}

static void check_reductions(struct arena *m)
{
	fill(m, 13);
	struct ora_loss mean = problem(m, ORA_RELU), sum = mean, half = mean, other = mean;
	ora_indexer_loss(&mean);
	sum.sum = 1;
	ora_indexer_loss(&sum);
	CHECK(mean.non_empty <= (T - 1) * U && mean.non_empty > 0);
	CHECK(fabs(sum.loss - mean.loss * (double)mean.non_empty) < 1e-12);
	half.divisor = 5.0;
	ora_indexer_loss(&half);
	CHECK(fabs(half.loss * 5.0 - sum.loss) < 1e-12);
	half.sum = other.sum = 1;
	half.row_stride = other.row_stride = 2;
	other.row_offset = 1;
	ora_indexer_loss(&half);
	ora_indexer_loss(&other);
	CHECK(fabs((half.loss + other.loss) / 2.0 - sum.loss) < 1e-12);
	half.row_stride = other.row_stride = 0;
	other.row_offset = 0;
	half.row_count = other.row_first = 3;
	ora_indexer_loss(&half);
	ora_indexer_loss(&other);
	CHECK(fabs(half.loss + other.loss - sum.loss) < 1e-12);
}

/* One key: p = teacher = 1.  Two keys, by hand.  A tie inside a block goes to the first entry. */
static void check_by_hand(void)
{
	const double one[] = {1.0}, keys[] = {2.0, 2.0, 1.0}, attention_k[] = {0.0, 0.0, 0.0};
	const int32_t single[] = {1, -1}, both[] = {0, 2}, junk[] = {2, 0};
	double dk[3];
	struct ora_loss loss = {.scoring = {.rows = 1,
					    .entries = 3,
					    .heads = 1,
					    .dim = 1,
					    .activation = ORA_IDENTITY,
					    .scale = 1.0,
					    .index_q = one,
					    .index_k = keys},
				.attention = {.rows = 1,
					      .keys = 3,
					      .heads = 1,
					      .kv_heads = 1,
					      .head_dim = 1,
					      .topk = 2,
					      .scale = 1.0,
					      .q = one,
					      .k = attention_k,
					      .indices = single},
				.coefficient = 2.0,
				.d_index_k = dk};
	ora_indexer_loss(&loss);
	CHECK(loss.loss == 0.0 && loss.non_empty == 1 && dk[1] == 0.0);
	loss.attention.indices = junk; /* 0 lies below 2: absent */
	ora_indexer_loss(&loss);
	CHECK(loss.loss == 0.0 && loss.non_empty == 1);
	/* Blocks 0..1 (score 2, teacher 2/3) and 2 (score 1, teacher 1/3). */
	loss.attention.indices = both;
	loss.attention.granularity = 2;
	ora_indexer_loss(&loss);
	const double p = exp(2.0) / (exp(2.0) + exp(1.0));
	const double kl = 2.0 / 3.0 * log(2.0 / 3.0 / p) + 1.0 / 3.0 * log(1.0 / 3.0 / (1.0 - p));
	CHECK(fabs(loss.loss - 2.0 * kl) < 1e-14);
	CHECK(fabs(dk[0] - 2.0 * (p - 2.0 / 3.0)) < 1e-14 && dk[1] == 0.0 &&
	      fabs(dk[2] + dk[0]) < 1e-14);
	const double far[] = {-(double)INFINITY}, no_teacher[] = {0.0, 0.0},
		     one_sided[] = {0.0, 5.0};
	loss.teacher = no_teacher;
	ora_indexer_loss(&loss);
	CHECK(loss.loss == 0.0 && loss.non_empty == 0 && dk[0] == 0.0);
	loss.teacher = one_sided;
	ora_indexer_loss(&loss);
	CHECK(fabs(loss.loss + 2.0 * log(1.0 - p)) < 1e-14);
	loss.teacher = NULL;
	loss.lse = far;
	ora_indexer_loss(&loss);
	CHECK(loss.loss == 0.0 && loss.non_empty == 0);
}

void selftest_loss(void)
{
	struct arena *m = ora_alloc(1, sizeof *m);
	check_all_gradients(m);
	check_teacher(m);
	check_reductions(m);
	check_by_hand();
	free(m);
}
