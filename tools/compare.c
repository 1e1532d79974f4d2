/* compare.c - judges a run by the file's expected tensors, with SPEC's tolerances. */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Keeps the worst of several judgements: that with the largest error per tolerance. */
static void note(struct case_verdict *verdict, const char *what, double worst, double tolerance)
{
	bool pass = worst <= tolerance; /* false for NaN */
	double ratio = pass ? worst / tolerance : (double)INFINITY;
	double before = !verdict->pass		 ? (double)INFINITY
			: verdict->tolerance > 0 ? verdict->worst / verdict->tolerance
						 : -1;
	if (ratio > before || (!pass && verdict->pass)) {
		verdict->worst = worst;
		verdict->tolerance = tolerance;
		snprintf(verdict->what, sizeof verdict->what, "%s", what);
	}
	verdict->pass = verdict->pass && pass;
}

static int64_t elements(const struct st_tensor *t)
{
	int64_t n = 1;
	for (int32_t d = 0; d < t->rank; d++)
		n *= t->shape[d];
	return n;
}

/* Relative tolerance of o and gradients. */
static double dense_tolerance(hys_dtype dtype, bool gradient)
{
	switch (dtype) {
	case HYS_F16:
		return gradient ? 4e-3 : 2e-3;
	case HYS_BF16:
		return gradient ? 1e-2 : 6e-3;
	default:
		return gradient ? 1e-4 : 1e-5;
	}
}

/* Largest |logit| over all pairs of rows and keys, 0 when that is too many to look at. */
static double largest_logit(const struct tool_case *c, const struct hys_problem *p)
{
	const struct st_tensor *q = case_tensor(c, "q"), *k = case_tensor(c, "k");
	const struct hys_attending *a = &p->attending;
	double largest = 0;
	if (!q || !k || q->rank != 3 || k->rank != 3 || q->shape[1] != a->heads ||
	    q->shape[2] != a->head_dim || k->shape[1] != a->kv_heads || k->shape[2] != a->head_dim)
		return 0; /* not what the operation reads */
	if ((double)elements(q) * (double)k->shape[0] > 1e9)
		return 0;
	for (int64_t row = 0; row < q->shape[0] * a->heads; row++) {
		int64_t kv = row % a->heads / (a->heads / a->kv_heads);
		for (int64_t key = 0; key < k->shape[0]; key++) {
			double sum = 0;
			for (int64_t d = 0; d < a->head_dim; d++)
				sum += tool_get(q->dtype, q->data, row * a->head_dim + d) *
				       tool_get(k->dtype, k->data,
						(key * a->kv_heads + kv) * a->head_dim + d);
			largest = fmax(largest, fabs(sum * a->scale));
		}
	}
	return largest;
}

/* Largest error of a vector against 10x its own largest magnitude, as a multiple of that. Vectors
 * that are 0 but for cancellation (a row that sees one key has dq = 0) count as `floor` large. */
static double vector_error(const struct st_tensor *expected, const struct case_output *got,
			   int64_t start, int64_t width, double floor)
{
	double largest = floor, error = 0;
	for (int64_t i = start; i < start + width; i++) {
		double want = tool_get(expected->dtype, expected->data, i);
		double diff = fabs(tool_get(got->tensor.dtype, got->tensor.host, i) - want);
		largest = fmax(largest, fabs(want));
		error = diff > error || isnan(diff) ? diff : error;
	}
	return error == 0 ? 0 : error / (10 * largest);
}

/* Relative Frobenius error of the whole, and each vector on its own. */
static void compare_dense(struct case_verdict *verdict, const char *name,
			  const struct st_tensor *expected, const struct case_output *got,
			  double tolerance)
{
	int64_t n = elements(expected), width = expected->shape[expected->rank - 1];
	double error2 = 0, size2 = 0, worst = 0;
	for (int64_t i = 0; i < n; i++) {
		double want = tool_get(expected->dtype, expected->data, i);
		double diff = tool_get(got->tensor.dtype, got->tensor.host, i) - want;
		error2 += diff * diff;
		size2 += want * want;
	}
	note(verdict, name, size2 > 0 ? sqrt(error2 / size2) : sqrt(error2), tolerance);
	double floor = n > 0 ? 1e-2 * sqrt(size2 / (double)n) : 0;
	for (int64_t start = 0; width > 0 && start < n; start += width) {
		double error = vector_error(expected, got, start, width, floor);
		worst = error > worst || isnan(error) ? error : worst;
	}
	note(verdict, name, worst, tolerance);
}

static void compare_lse(struct case_verdict *verdict, const struct st_tensor *expected,
			const struct case_output *got, hys_dtype dtype)
{
	double worst = 0;
	for (int64_t i = 0; i < elements(expected); i++) {
		double want = tool_get(expected->dtype, expected->data, i);
		double have = tool_get(got->tensor.dtype, got->tensor.host, i);
		double error = want == have ? 0 : fabs(want - have) / fmax(1, fabs(want));
		worst = error > worst || isnan(error) ? error : worst;
	}
	note(verdict, "lse", worst, dtype == HYS_F32 ? 1e-5 : 1e-3);
}

/* ---- select ---- */

struct select_view {
	const struct tool_case *c;
	const struct hys_problem *p;
	const struct st_tensor *q, *k, *w, *q_scale, *k_scale;
	const int32_t *begin, *end;
};

/* score(t,u,s) in double; *magnitude gets the sum of absolute products. */
static double entry_score(const struct select_view *v, int64_t t, int64_t u, int64_t s,
			  double *magnitude)
{
	const struct hys_scoring *sc = &v->p->scoring;
	int64_t per_group = sc->heads / sc->groups;
	double total = 0;
	*magnitude = 0;
	for (int64_t j = u * per_group; j < (u + 1) * per_group; j++) {
		double dot = 0, absolute = 0;
		double w = v->w ? tool_get(v->w->dtype, v->w->data, t * sc->heads + j) : 1;
		double factor = sc->scale;
		if (v->q_scale)
			factor *= tool_get(HYS_F32, v->q_scale->data, t * sc->heads + j);
		if (v->k_scale)
			factor *= tool_get(HYS_F32, v->k_scale->data, s);
		for (int64_t d = 0; d < sc->dim; d++) {
			double product = tool_get(v->q->dtype, v->q->data,
						  (t * sc->heads + j) * sc->dim + d) *
					 tool_get(v->k->dtype, v->k->data, s * sc->dim + d);
			dot += product;
			absolute += fabs(product);
		}
		double z = factor * dot;
		total += w * (sc->activation == HYS_ACTIVATION_RELU && z < 0 ? 0 : z);
		*magnitude += fabs(w * factor) * absolute;
	}
	return total;
}

/* First entry of the row's document; blocks are counted from there. */
static int64_t document_start(const struct select_view *v, int64_t t)
{
	const struct st_tensor *q = case_tensor(v->c, "cu_seqlens_q");
	const struct st_tensor *k = case_tensor(v->c, "cu_seqlens_k");
	int64_t start = 0;
	if (!q)
		return 0;
	const int32_t *rows = q->data, *keys = k ? k->data : q->data;
	for (int64_t d = 0; d + 1 < q->shape[0] && rows[d + 1] <= t; d++)
		start += (keys[d + 1] - keys[d]) / v->p->scoring.pool;
	return start;
}

/* Whether a pick is one that the problem always keeps: its score is no threshold. */
static bool is_forced(const struct select_view *v, int64_t t, int64_t start, int64_t pick)
{
	const struct hys_choosing *c = &v->p->choosing;
	int64_t block = v->p->scoring.block, number = (pick - start) / block;
	int64_t first = (v->begin[t] - start) / block, last = (v->end[t] - 1 - start) / block;
	return number < first + c->first_blocks || number > last - c->local_blocks;
}

/* Scores of a row's blocks (of one entry when the problem has none); answers the scale of the row. */
static double score_row(const struct select_view *v, int64_t t, int64_t u, int64_t start,
			double *scores)
{
	int64_t block = v->p->scoring.block;
	double scale = 0;
	for (int64_t i = 0; i < v->c->entries; i++)
		scores[i] = -INFINITY;
	for (int64_t s = v->begin[t]; s < v->end[t]; s++) {
		double magnitude, score = entry_score(v, t, u, s, &magnitude);
		int64_t at = start + (s - start) / block * block;
		scores[at] = fmax(scores[at], score);
		scale = fmax(scale, magnitude);
	}
	return scale;
}

static bool contains(const int32_t *list, int64_t n, int32_t value)
{
	for (int64_t i = 0; i < n; i++)
		if (list[i] == value)
			return true;
	return false;
}

static int64_t list_length(const int32_t *list, int64_t n)
{
	int64_t length = 0;
	while (length < n && list[length] >= 0)
		length++;
	return length;
}

/* Largest distance, relative to the row's scale, of a pick that only one side has from the other
 * side's K-th score; infinite when the lists cannot be selections of the same row. */
static double compare_picks(const struct select_view *v, int64_t row, const int32_t *want,
			    const int32_t *have, double *scores)
{
	int64_t k = v->c->topk, t = row / v->p->scoring.groups, u = row % v->p->scoring.groups;
	int64_t n = list_length(want, k);
	if (n != list_length(have, k))
		return INFINITY;
	for (int64_t i = 0; i < n; i++)
		if ((i > 0 && have[i] <= have[i - 1]) || have[i] >= v->c->entries ||
		    want[i] >= v->c->entries)
			return INFINITY;
	if (memcmp(want, have, (size_t)n * sizeof *want) == 0)
		return 0;
	int64_t start = document_start(v, t);
	double scale = score_row(v, t, u, start, scores), kth = INFINITY, worst = 0;
	for (int64_t i = 0; i < n; i++)
		if (!is_forced(v, t, start, want[i]))
			kth = fmin(kth, scores[want[i]]);
	for (int64_t i = 0; i < n; i++) {
		if (!contains(want, n, have[i]))
			worst = fmax(worst, fabs(scores[have[i]] - kth) / scale);
		if (!contains(have, n, want[i]))
			worst = fmax(worst, fabs(scores[want[i]] - kth) / scale);
	}
	return worst;
}

/* The entries that each row sees where the file names none, as hys_batch_create makes them of
 * documents, positions and `causal`. */
static void make_intervals(const struct select_view *v, int32_t *begin, int32_t *end)
{
	const struct st_tensor *q = case_tensor(v->c, "cu_seqlens_q");
	const struct st_tensor *k = case_tensor(v->c, "cu_seqlens_k");
	const struct st_tensor *positions = case_tensor(v->c, "positions");
	const int32_t whole_q[] = {0, (int32_t)v->c->rows}, whole_k[] = {0, (int32_t)v->c->keys};
	const int32_t *rows = q ? q->data : whole_q, *keys = k ? k->data : q ? q->data : whole_k;
	bool causal = case_number(v->c, "causal", 1) != 0;
	int64_t documents = q ? q->shape[0] - 1 : 1;
	int32_t entry = 0, pool = v->p->scoring.pool;
	for (int64_t d = 0; d < documents; d++) {
		int32_t n = keys[d + 1] - keys[d];
		for (int32_t t = rows[d]; t < rows[d + 1]; t++) {
			int32_t at = positions ? ((const int32_t *)positions->data)[t]
					       : n - rows[d + 1] + t;
			int32_t seen = causal ? at + 1 : n;
			begin[t] = entry;
			end[t] = entry + (seen > 0 ? seen < n ? seen : n : 0) / pool;
		}
		entry += n / pool;
	}
}

static void compare_select(struct case_verdict *verdict, const struct tool_case *c,
			   const struct case_run *run, const struct st_tensor *expected)
{
	const struct case_output *got = case_find_output(run, "indices");
	struct select_view v = {c,
				hys_plan_problem(run->plan),
				case_tensor(c, "index_q"),
				case_tensor(c, "index_k"),
				case_tensor(c, "index_w"),
				case_tensor(c, "index_q_scale"),
				case_tensor(c, "index_k_scale"),
				NULL,
				NULL};
	const struct st_tensor *begin = case_tensor(c, "index_begin"),
			       *end = case_tensor(c, "index_end");
	begin = begin ? begin : case_tensor(c, "row_begin");
	end = end ? end : case_tensor(c, "row_end");
	double *scores = malloc(((size_t)c->entries + 1) * sizeof *scores), worst = 0;
	int32_t *made = malloc((2 * (size_t)c->rows + 1) * sizeof *made);
	if (!scores || !made) {
		free(scores);
		free(made);
		note(verdict, "indices: out of memory", INFINITY, 1e-5);
		return;
	}
	if (!begin || !end)
		make_intervals(&v, made, made + c->rows);
	v.begin = begin && end ? begin->data : made;
	v.end = begin && end ? end->data : made + c->rows;
	for (int64_t row = 0; row < c->rows * v.p->scoring.groups; row++) {
		double error =
			compare_picks(&v, row, (const int32_t *)expected->data + row * c->topk,
				      (const int32_t *)got->tensor.host + row * c->topk, scores);
		worst = error > worst || isnan(error) ? error : worst;
	}
	free(scores);
	free(made);
	note(verdict, "indices", worst, v.p->scoring.dtype == HYS_F8E4M3 ? 1e-3 : 1e-5);
}

/* ---- all ---- */

static bool same_shape(const struct st_tensor *expected, const struct hys_tensor *got)
{
	bool same = expected->rank == got->rank && expected->dtype != HYS_DTYPE_DEFAULT &&
		    (expected->dtype == HYS_I32) == (got->dtype == HYS_I32);
	for (int32_t d = 0; same && d < got->rank; d++)
		same = expected->shape[d] == got->shape[d];
	return same;
}

/* Where a tensor that failed is wrong: what a row's search begins with. */
static void locate(struct case_verdict *verdict, const struct st_tensor *expected,
		   const struct hys_tensor *got)
{
	const bool first = expected->dtype == HYS_I32;
	double most = 0;
	int64_t at = -1;
	for (int64_t i = 0; i < elements(expected) && !(first && at >= 0); i++) {
		const double off = fabs(tool_get(expected->dtype, expected->data, i) -
					tool_get(got->dtype, got->host, i));
		if (off > most || (isnan(off) && !isnan(most))) {
			most = off;
			at = i;
		}
	}
	verdict->rank = 0;
	if (at < 0)
		return;
	verdict->rank = expected->rank;
	verdict->expected = tool_get(expected->dtype, expected->data, at);
	verdict->got = tool_get(got->dtype, got->host, at);
	for (int32_t d = expected->rank - 1; d >= 0; d--) {
		verdict->at[d] = at % expected->shape[d];
		at /= expected->shape[d];
	}
}

static void compare_tensor(struct case_verdict *verdict, const struct tool_case *c,
			   const struct case_run *run, const struct st_tensor *expected,
			   double logit_factor)
{
	const char *name = expected->name + strlen("expect.");
	const struct case_output *got = case_find_output(run, name);
	const struct hys_problem *p = hys_plan_problem(run->plan);
	hys_dtype dtype = c->op == HYS_OP_INDEXER_LOSS ? p->scoring.dtype : p->attending.dtype;
	char missing[64];
	if (!got || !same_shape(expected, &got->tensor)) {
		snprintf(missing, sizeof missing, "%.30s: %s", name,
			 got ? "shape or type differs" : "not an output here");
		note(verdict, missing, INFINITY, 1);
	} else if (strcmp(name, "indices") == 0) {
		compare_select(verdict, c, run, expected);
	} else if (strcmp(name, "lse") == 0) {
		compare_lse(verdict, expected, got, dtype);
	} else if (strcmp(name, "loss") == 0) {
		double want = tool_get(expected->dtype, expected->data, 0);
		double have = tool_get(got->tensor.dtype, got->tensor.host, 0);
		note(verdict, name, fabs(want - have), 1e-5 * fabs(want) + 1e-6);
	} else {
		compare_dense(verdict, name, expected, got,
			      logit_factor * dense_tolerance(dtype, name[0] == 'd'));
	}
	if (got && !verdict->pass && strcmp(verdict->what, name) == 0)
		locate(verdict, expected, &got->tensor);
}

struct case_verdict case_compare(const struct tool_case *c, const struct case_run *run)
{
	struct case_verdict verdict = {.pass = true};
	double factor = fmax(1, largest_logit(c, hys_plan_problem(run->plan)) / 16);
	int32_t compared = 0;
	for (int32_t i = 0; i < c->file.count; i++) {
		const struct st_tensor *expected = &c->file.tensors[i];
		if (strncmp(expected->name, "expect.", 7) == 0) {
			compare_tensor(&verdict, c, run, expected, factor);
			compared++;
		}
	}
	if (compared == 0)
		note(&verdict, "the file has no expect.* tensor", INFINITY, 1);
	return verdict;
}
