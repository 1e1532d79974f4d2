/* omp_bound.c - keys that exact selection need not score.
 *
 * Cauchy and Schwarz: a score is at most |k| * sum of w_j |scale| |q_j| over the
 * heads j that can add something, those with w_j > 0 after a ReLU. Rounding adds
 * less than gamma * |k| * sum of |w_j scale| |q_j|, gamma = (dim + heads + 8) *
 * 2^-23, and below FLT_MIN less than 2^-149 at each step. So panels whose longest
 * key cannot reach a row's running threshold are left out, which changes nothing
 * that is chosen. NaN and infinities make the bound NaN or infinite, and such
 * panels are scored. */
#include <math.h>

#include "omp_select.h"

#define SAMPLE_ROWS 4
/* Of a sample's panels, how many must be found to be needless. */
#define WORTHWHILE 0.05
/* Fewer rows do not pay for the keys' norms. */
#define ROWS_LEAST 16

bool omp_bound_applies(const struct hys_call *call)
{
	const struct hys_choosing *choosing = &call->problem->choosing;
	const bool forced = choosing->first_blocks > 0 || choosing->local_blocks > 0;
	return call->op == HYS_OP_SELECT && call->size.rows >= ROWS_LEAST &&
	       /* Forced blocks are chosen unseen, but their scores may be wanted. */
	       !(forced && hys_present(&call->args.select.scores));
}

double omp_bound_norm(const struct omp_isa *isa, const float *x, int64_t n)
{
	double squares = (double)isa->dot(x, x, n) * (1.0 + (double)n * 0x1p-23);
	if (squares >= 0x1p-100)
		return sqrt(squares);
	squares = 0.0; /* they may have underflowed */
	for (int64_t i = 0; i < n; i++)
		squares += (double)x[i] * (double)x[i];
	return sqrt(squares) * (1.0 + (double)n * 0x1p-50);
}

struct omp_bound omp_bound_of_query(const struct omp_isa *isa, const struct omp_query *query,
				    int64_t u)
{
	const double scale = fabs((double)query->scale);
	const double gamma = (double)(query->dim + query->heads + 8) * 0x1p-23;
	double reach = 0.0, magnitude = 0.0, weights = 0.0;
	for (int64_t j = u * query->group_heads; j < (u + 1) * query->group_heads; j++) {
		const double w = (double)query->w[j];
		const double norm =
			scale * omp_bound_norm(isa, query->q + j * query->dim, query->dim);
		magnitude += fabs(w) * norm;
		reach += (query->relu && w < 0.0 ? 0.0 : fabs(w)) * norm;
		weights += fabs(w);
	}
	return (struct omp_bound){
		.factor = (reach + gamma * magnitude) * (1.0 + 0x1p-40),
		.least = (weights * (1.0 + scale) * (double)(query->dim + 1) +
			  (double)query->heads) *
			 0x1p-149,
	};
}

/* Longest key of panels [first, end); NaN wins. */
static double longest(const struct omp_panels *panels, int64_t first, int64_t end)
{
	double norm = 0.0;
	for (int64_t p = first; p < end; p++)
		norm = norm != norm || (double)panels->norms[p] <= norm ? norm
									: (double)panels->norms[p];
	return norm;
}

bool omp_bound_skips(const struct omp_select *select, const struct omp_bound *bounds,
		     const struct omp_pick *picks, int64_t first, int64_t end)
{
	const double norm = longest(&select->entries, first, end);
	for (int64_t u = 0; u < select->groups; u++)
		/* Not true of a NaN on either side. */
		if (!(bounds[u].factor * norm + bounds[u].least < (double)picks[u].topk.least))
			return false;
	return true;
}

/* The k-th largest of n scores, 1 <= k <= n. */
static float kth_of_few(const float *scores, int64_t n, int64_t k)
{
	for (int64_t i = 0; i < n; i++) {
		int64_t above = 0, equal = 0;
		for (int64_t j = 0; j < n; j++) {
			above += scores[j] > scores[i];
			equal += scores[j] == scores[i];
		}
		if (above < k && above + equal >= k)
			return scores[i];
	}
	return NAN;
}

/* Share of the panels that row t's first group would leave out, if its
 * threshold were what some of its panels suggest. */
static double needless_share(const struct omp_select *select, struct omp_select_scratch *scratch,
			     int64_t t)
{
	const int64_t panel = select->isa->panel, most = OMP_STRIP / panel;
	const struct omp_tiling seen = omp_tiling_of_row(select->call, t, 1);
	const int64_t first = omp_ceil_div(seen.begin, panel), end = seen.end / panel;
	const int64_t wanted =
		hys_mul64(select->call->topk[0], select->call->problem->scoring.block);
	struct omp_select_row row = {.t = t};
	int64_t count = 0, needless = 0;
	if (end - first < 4 * most || wanted >= seen.count)
		return 0.0;
	omp_load_query(select, scratch, 0, &row);
	const struct omp_query group = omp_query_group(&row.query, 0);
	for (int64_t i = 0; i < most; i++, count += panel)
		omp_score_panels(select, scratch, &group, &select->entries,
				 first + i * (end - first) / most, 1, scratch->strip + count);
	const double rank = ceil((double)count * (double)wanted / (double)seen.count);
	const double least = (double)kth_of_few(scratch->strip, count, (int64_t)rank);
	const struct omp_bound bound = omp_bound_of_query(select->isa, &group, 0);
	for (int64_t p = first; p < end; p++)
		needless += bound.factor * (double)select->entries.norms[p] + bound.least < least;
	return (double)needless / (double)(end - first);
}

bool omp_bound_pays(const struct omp_select *select)
{
	const int64_t rows = select->call->size.rows;
	double share = 0.0;
	if (select->half_dim)
		select->isa->half_begin();
	for (int64_t i = 0; i < SAMPLE_ROWS; i++)
		share += needless_share(select, select->scratch,
					(2 * i + 1) * rows / ((int64_t)2 * SAMPLE_ROWS));
	if (select->half_dim)
		select->isa->half_end();
	return share >= WORTHWHILE * SAMPLE_ROWS;
}
