/*
 * The indexer loss and its gradients.
 *
 * Readings of the specification:
 *  - The set of (t, u) is a list of units.  Sparse: one per valid slot, its score
 *    the maximum over the visible entries of its block [i, i+g) (pool > 1: entry
 *    i alone).  Dense: one per visible entry, whatever g is.
 *  - A slot is valid by the rule of attention and if, besides, one of its entries
 *    is visible: only then is there a score.
 *  - The maximum leaves out NaN unless all are NaN; equal ones go to the smallest entry.
 *  - A dense unit without visible key rows has teacher 0 and stays in the softmax.
 *  - Without lse the shares of a head are a softmax over the key rows of the set,
 *    with the sink, if any, in the denominator.
 *  - A (t, u) whose set is empty or whose teacher sums to 0 is empty: no loss, no
 *    gradient, not counted by the mean.
 *  - Terms of the KL with teacher 0 are 0.
 *  - Row sampling: mean divides by the number of non-empty sampled (t, u), or by
 *    `divisor` if given; sum is multiplied by the stride.
 */
#include "oracle.h"
#include "oracle_internal.h"

struct unit {
	int64_t slot;
	int64_t entry_begin, entry_end;
	int64_t key_begin, key_end;
	int64_t best_entry;
	double score, teacher; /* teacher: unnormalised */
};

/* One (row, group). */
struct row {
	int64_t t;
	int32_t u;
	int64_t count;
	struct unit *units;	 /* room for max(E, K) */
	double *scores, *logits; /* room for max(E, K), S */
};

static int32_t groups_of(const struct ora_loss *loss)
{
	return ora_or_one(loss->scoring.groups);
}

/* The row's visible entries; those of its key rows if nothing else is said. */
static void visible_entries(const struct ora_loss *loss, int64_t t, int64_t *begin, int64_t *end)
{
	struct ora_scoring scoring = loss->scoring;
	if (ora_or_one(loss->attention.pool) == 1) {
		if (scoring.index_begin == NULL)
			scoring.index_begin = loss->attention.row_begin;
		if (scoring.index_end == NULL)
			scoring.index_end = loss->attention.row_end;
	}
	ora_entry_interval(&scoring, t, begin, end);
}

static void collect_dense(const struct ora_loss *loss, struct row *row)
{
	struct ora_attention one_entry = loss->attention;
	int64_t begin, end;
	one_entry.granularity = 1;
	visible_entries(loss, row->t, &begin, &end);
	row->count = 0;
	for (int64_t e = begin; e < end; e++) {
		struct unit *unit = row->units + row->count++;
		*unit = (struct unit){.entry_begin = e, .entry_end = e + 1};
		ora_index_keys(&one_entry, row->t, e, &unit->key_begin, &unit->key_end);
	}
}

static void collect_sparse(const struct ora_loss *loss, struct row *row)
{
	const struct ora_attention *a = &loss->attention;
	const int32_t *indices = a->indices + (row->t * groups_of(loss) + row->u) * a->topk;
	const int64_t step = ora_or_one(a->pool) > 1 ? 1 : ora_or_one(a->granularity);
	int64_t least = 0, begin, end;
	visible_entries(loss, row->t, &begin, &end);
	row->count = 0;
	for (int32_t slot = 0; slot < a->topk; slot++) {
		const int64_t i = indices[slot];
		struct unit unit = {.slot = slot,
				    .entry_begin = ora_max(i, begin),
				    .entry_end = ora_min(i + step, end)};
		ora_index_keys(a, row->t, i, &unit.key_begin, &unit.key_end);
		if (i < least || unit.entry_begin >= unit.entry_end ||
		    unit.key_begin >= unit.key_end)
			continue;
		row->units[row->count++] = unit;
		least = i + step;
	}
}

static void score_units(const struct ora_loss *loss, struct row *row)
{
	const struct ora_scoring *s = &loss->scoring;
	for (int64_t i = 0; i < row->count; i++) {
		struct unit *unit = row->units + i;
		unit->score = (double)NAN;
		unit->best_entry = unit->entry_begin;
		for (int64_t e = unit->entry_begin; e < unit->entry_end; e++) {
			const double score = ora_score(s, row->t, row->u, s->index_k + e * s->dim);
			if (score > unit->score || (isnan(unit->score) && !isnan(score))) {
				unit->score = score;
				unit->best_entry = e;
			}
		}
		row->scores[i] = unit->score;
	}
}

/* Adds the shares of head h over the key rows of every unit to its teacher. */
static void add_head(const struct ora_loss *loss, struct row *row, int32_t h)
{
	const struct ora_attention *a = &loss->attention;
	const int32_t g = h / (a->heads / a->kv_heads);
	const int64_t head = row->t * a->heads + h;
	const double *q = a->q + head * a->head_dim;
	int64_t keys = 0;
	for (int64_t i = 0; i < row->count; i++)
		for (int64_t s = row->units[i].key_begin; s < row->units[i].key_end; s++) {
			const double *k = a->k + (s * a->kv_heads + g) * a->head_dim;
			row->logits[keys++] =
				ora_logit(ora_dot(q, k, a->head_dim), a->scale, a->softcap);
		}
	double total = loss->lse != NULL ? loss->lse[head] : ora_log_sum_exp(row->logits, keys);
	if (a->sink != NULL)
		total = ora_log_add_exp(total, a->sink[h]);
	keys = 0;
	for (int64_t i = 0; i < row->count; i++)
		for (int64_t s = row->units[i].key_begin; s < row->units[i].key_end; s++)
			row->units[i].teacher += ora_share(row->logits[keys++], total);
}

/* Fills the unnormalised teacher and returns its sum. */
static double teach(const struct ora_loss *loss, struct row *row)
{
	const struct ora_attention *a = &loss->attention;
	const int32_t heads_per_group = a->heads / groups_of(loss);
	const int64_t slots = (row->t * groups_of(loss) + row->u) * a->topk;
	if (loss->teacher != NULL)
		for (int64_t i = 0; i < row->count; i++)
			row->units[i].teacher = loss->teacher[slots + row->units[i].slot];
	else
		for (int32_t h = row->u * heads_per_group; h < (row->u + 1) * heads_per_group; h++)
			add_head(loss, row, h);
	double sum = 0.0;
	for (int64_t i = 0; i < row->count; i++)
		sum += row->units[i].teacher;
	if (loss->teacher_out != NULL) {
		ora_zero(loss->teacher_out + slots, a->topk);
		for (int64_t i = 0; i < row->count; i++)
			loss->teacher_out[slots + row->units[i].slot] = row->units[i].teacher;
	}
	return sum;
}

/* Carries d score of an entry into index_q, index_k and index_w. */
static void add_gradients(struct ora_loss *loss, int64_t t, int32_t u, int64_t entry,
			  double d_score)
{
	const struct ora_scoring *s = &loss->scoring;
	const int32_t per_group = s->heads / groups_of(loss);
	const double *k = s->index_k + entry * s->dim;
	for (int32_t j = u * per_group; j < (u + 1) * per_group; j++) {
		const int64_t head = t * s->heads + j;
		const double *q = s->index_q + head * s->dim;
		const double z = s->scale * ora_dot(q, k, s->dim);
		const int passes = s->activation == ORA_IDENTITY || z > 0.0;
		const double w = s->index_w != NULL ? s->index_w[head] : 1.0;
		const double d_dot = passes ? d_score * w * s->scale : 0.0;
		if (loss->d_index_w != NULL)
			loss->d_index_w[head] += passes ? d_score * z : 0.0;
		for (int32_t d = 0; d < s->dim; d++) {
			if (loss->d_index_q != NULL)
				loss->d_index_q[head * s->dim + d] += d_dot * k[d];
			if (loss->d_index_k != NULL)
				loss->d_index_k[entry * s->dim + d] += d_dot * q[d];
		}
	}
}

/* Adds the KL of (t, u) to loss->loss and its gradients, without coefficient and reduction. */
static void add_row(struct ora_loss *loss, struct row *row)
{
	if (loss->attention.dense)
		collect_dense(loss, row);
	else
		collect_sparse(loss, row);
	const double sum = teach(loss, row);
	if (row->count == 0 || sum == 0.0)
		return;
	score_units(loss, row);
	const double total = ora_log_sum_exp(row->scores, row->count);
	loss->non_empty++;
	for (int64_t i = 0; i < row->count; i++) {
		const struct unit *unit = row->units + i;
		const double teacher = unit->teacher / sum;
		const double log_student = unit->score - total;
		if (teacher != 0.0)
			loss->loss += teacher * (log(teacher) - log_student);
		add_gradients(loss, row->t, row->u, unit->best_entry, exp(log_student) - teacher);
	}
}

static void scale_array(double *values, int64_t count, double factor)
{
	if (values != NULL)
		for (int64_t i = 0; i < count; i++)
			values[i] *= factor;
}

static double divisor_of(const struct ora_loss *loss)
{
	return loss->divisor > 0.0 ? loss->divisor : (double)ora_max(loss->non_empty, 1);
}

void ora_indexer_loss(struct ora_loss *loss)
{
	const struct ora_scoring *s = &loss->scoring;
	const int64_t stride = ora_max(loss->row_stride, 1);
	const int64_t end = ora_row_end(s->rows, loss->row_first, loss->row_count);
	const int64_t room = ora_max(s->entries, loss->attention.topk);
	const int64_t q_size = s->rows * s->heads * s->dim, k_size = s->entries * s->dim,
		      w_size = s->rows * s->heads;
	struct row row = {.units = ora_alloc(room, sizeof *row.units),
			  .scores = ora_doubles(room),
			  .logits = ora_doubles(loss->attention.keys)};
	loss->loss = 0.0;
	loss->non_empty = 0;
	ora_zero(loss->d_index_q, q_size);
	ora_zero(loss->d_index_k, k_size);
	ora_zero(loss->d_index_w, w_size);
	for (row.t = loss->row_first; row.t < end; row.t++)
		for (row.u = 0; row.t % stride == loss->row_offset && row.u < groups_of(loss);
		     row.u++)
			add_row(loss, &row);
	const double reduce = loss->sum ? (double)stride : 1.0 / divisor_of(loss);
	loss->loss *= loss->coefficient * reduce;
	scale_array(loss->d_index_q, q_size, loss->coefficient * reduce);
	scale_array(loss->d_index_k, k_size, loss->coefficient * reduce);
	scale_array(loss->d_index_w, w_size, loss->coefficient * reduce);
	free(row.units);
	free(row.scores);
	free(row.logits);
}
