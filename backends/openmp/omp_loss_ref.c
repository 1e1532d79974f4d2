/* omp_loss_ref.c - the indexer loss as plain loops over doubles, one set after
 * the other. */
#include <math.h>
#include <string.h>

#include "omp_kernels.h"
#include "omp_tile.h"

struct unit {
	int64_t slot;
	struct omp_range entries, keys;
	int64_t best; /* the entry whose score it has */
	double score, teacher;
};

struct ref {
	const struct hys_call *call;
	const struct hys_loss_args *args;
	const struct omp_isa *isa;
	struct omp_rows rows;
	bool dense, add;
	int64_t groups, set_heads, dim; /* U, HI / U, DI */
	int64_t heads, kv_heads, head_dim;
	/* the set at work */
	int64_t row, group, count;
	struct omp_slots slots;
	struct unit *units;
	float *index_q, *index_k, *q, *k, *out, *spare;
	double *dq, *dw; /* [HI/U][DI], [HI/U] */
	/* of all sets */
	double *dk; /* [E][DI] */
	double factor, loss;
	int64_t sets; /* that are not empty */
};

static void lay_out(struct omp_arena *arena, const struct hys_size *size, struct ref *r)
{
	const struct hys_scoring *scoring = &size->problem->scoring;
	const int64_t head_dim = size->problem->attending.head_dim;
	const int64_t set_heads = scoring->heads / scoring->groups;

	r->units = omp_take(arena, hys_max64(size->topk, size->entries), sizeof(struct unit));
	r->index_q = omp_take(arena, set_heads * scoring->dim, sizeof(float));
	r->index_k = omp_take(arena, scoring->dim, sizeof(float));
	r->q = omp_take(arena, head_dim, sizeof(float));
	r->k = omp_take(arena, head_dim, sizeof(float));
	r->out = omp_take(arena, scoring->dim, sizeof(float));
	r->spare = omp_take(arena, scoring->dim, sizeof(float));
	r->dq = omp_take(arena, set_heads * scoring->dim, sizeof(double));
	r->dw = omp_take(arena, set_heads, sizeof(double));
	r->dk = omp_take(arena, hys_mul64(size->entries, scoring->dim), sizeof(double));
}

int64_t omp_indexer_loss_ref_workspace(const struct hys_kernel *kernel,
				       const struct hys_device *device, const struct hys_size *size)
{
	struct omp_arena arena = {0};
	struct ref r;

	(void)kernel, (void)device;
	lay_out(&arena, size, &r);
	return arena.used;
}

static double dot(const float *a, const float *b, int64_t n)
{
	double sum = 0.0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)a[i] * (double)b[i];
	return sum;
}

static double read_f32(const struct hys_tensor *x, int64_t i0, int64_t i1, int64_t i2)
{
	return (double)*(const float *)omp_at(x, i0, i1, i2);
}

static void collect_dense(struct ref *r, struct omp_range entries)
{
	if (r->call->problem->scoring.pool == 1)
		r->slots.span = 1;
	for (int64_t e = entries.begin; e < entries.end; e++)
		r->units[r->count++] =
			(struct unit){0, {e, e + 1}, omp_slots_keys(&r->slots, e), e, 0.0, 0.0};
}

/* The units of (row, group): indices that count and have a visible entry. */
static void collect(struct ref *r)
{
	const struct omp_range entries = omp_visible_entries(&r->rows, r->row);
	struct omp_slot slot;
	int64_t least = 0;

	r->count = 0;
	omp_slots_start(&r->slots, &r->rows, r->row, r->group);
	if (r->dense)
		collect_dense(r, entries);
	while (!r->dense && omp_slots_next(&r->slots, &slot)) {
		const struct omp_range own = {hys_max64(slot.index, entries.begin),
					      hys_min64(slot.index + r->slots.step, entries.end)};

		if (own.begin < own.end)
			r->units[r->count++] =
				(struct unit){slot.slot, own, slot.keys, own.begin, 0.0, 0.0};
		else
			r->slots.least = least;
		least = r->slots.least;
	}
}

static double logit(const struct ref *r, int64_t head, int64_t key)
{
	const struct hys_attending *attending = &r->call->problem->attending;
	const int64_t kv_head = head / (r->heads / r->kv_heads);

	omp_load(r->isa, &r->args->k, key, kv_head, 1, r->head_dim, r->k, 0);
	const double l = attending->scale * dot(r->q, r->k, r->head_dim);

	return attending->softcap > 0.0 ? attending->softcap * tanh(l / attending->softcap) : l;
}

static double total_of(const struct ref *r, int64_t head)
{
	double total = -(double)INFINITY;

	if (hys_present(&r->args->lse))
		total = read_f32(&r->args->lse, r->row, head, 0);
	else
		for (int64_t i = 0; i < r->count; i++)
			for (int64_t s = r->units[i].keys.begin; s < r->units[i].keys.end; s++)
				total = omp_log_add(total, logit(r, head, s));
	if (hys_present(&r->args->sink))
		total = omp_log_add(total, read_f32(&r->args->sink, head, 0, 0));
	return total;
}

static void teach_head(const struct ref *r, int64_t head)
{
	omp_load(r->isa, &r->args->q, r->row, head, 1, r->head_dim, r->q, 0);
	const double total = total_of(r, head);

	for (int64_t i = 0; i < r->count && total != -(double)INFINITY; i++)
		for (int64_t s = r->units[i].keys.begin; s < r->units[i].keys.end; s++)
			r->units[i].teacher += exp(logit(r, head, s) - total);
}

/* Fills the teacher, not normalised; answers its sum. */
static double teach(const struct ref *r)
{
	const struct hys_tensor *in = &r->args->teacher_in;
	const int64_t per_group = r->heads / r->groups;
	double sum = 0.0;

	for (int64_t i = 0; hys_present(in) && i < r->count; i++)
		r->units[i].teacher = read_f32(in, r->row, r->group, r->units[i].slot);
	for (int64_t h = 0; !hys_present(in) && h < per_group; h++)
		teach_head(r, r->group * per_group + h);
	for (int64_t i = 0; i < r->count; i++)
		sum += r->units[i].teacher;
	return sum;
}

static void write_teacher(const struct ref *r)
{
	const struct hys_tensor *out = &r->args->teacher_out;

	if (!hys_present(out))
		return;
	memset(omp_at(out, r->row, r->group, 0), 0, (size_t)out->shape[2] * sizeof(float));
	for (int64_t i = 0; i < r->count; i++)
		*(float *)omp_at(out, r->row, r->group, r->units[i].slot) =
			(float)r->units[i].teacher;
}

static void load_entry(const struct ref *r, int64_t entry)
{
	omp_load(r->isa, &r->args->index_k, entry, 0, 1, r->dim, r->index_k, 0);
}

static double weight(const struct ref *r, int64_t j)
{
	const struct hys_tensor *w = &r->args->index_w;

	return hys_present(w) ? read_f32(w, r->row, r->group * r->set_heads + j, 0) : 1.0;
}

static double score(const struct ref *r, int64_t entry)
{
	const bool relu = r->call->problem->scoring.activation == HYS_ACTIVATION_RELU;
	double sum = 0.0;

	load_entry(r, entry);
	for (int64_t j = 0; j < r->set_heads; j++) {
		const double z = r->call->problem->scoring.scale *
				 dot(r->index_q + j * r->dim, r->index_k, r->dim);

		sum += weight(r, j) * (relu && z < 0.0 ? 0.0 : z);
	}
	return sum;
}

/* The largest score of each unit, NaN left out unless there is nothing else. */
static void score_units(const struct ref *r)
{
	const struct hys_tensor *given = &r->args->scores;

	for (int64_t i = 0; i < r->count; i++) {
		struct unit *unit = &r->units[i];

		unit->score = (double)NAN;
		for (int64_t e = unit->entries.begin; e < unit->entries.end; e++) {
			const double own = score(r, e);

			if (own > unit->score || (isnan(unit->score) && !isnan(own))) {
				unit->score = own;
				unit->best = e;
			}
		}
		if (hys_present(given))
			unit->score = read_f32(given, r->row, r->group, unit->slot);
	}
}

/* Carries d score of an entry to the set's heads. */
static void add_gradients(const struct ref *r, int64_t entry, double d_score)
{
	const struct hys_scoring *scoring = &r->call->problem->scoring;
	double *dk = r->dk + entry * r->dim;

	load_entry(r, entry);
	for (int64_t j = 0; j < r->set_heads; j++) {
		const float *q = r->index_q + j * r->dim;
		const double z = scoring->scale * dot(q, r->index_k, r->dim);

		if (scoring->activation == HYS_ACTIVATION_RELU && !(z > 0.0))
			continue;
		const double d_dot = d_score * weight(r, j) * scoring->scale;

		r->dw[j] += d_score * z;
		for (int64_t d = 0; d < r->dim; d++) {
			r->dq[j * r->dim + d] += d_dot * (double)r->index_k[d];
			dk[d] += d_dot * (double)q[d];
		}
	}
}

/* As logarithms of sums go: an infinite largest score is the result. */
static double log_sum_exp(const struct ref *r)
{
	double total = -(double)INFINITY;

	for (int64_t i = 0; i < r->count; i++)
		total = omp_log_add(total, r->units[i].score);
	return total;
}

static void judge(struct ref *r, double sum)
{
	const double total = log_sum_exp(r);

	for (int64_t i = 0; i < r->count; i++) {
		const double share = r->units[i].teacher / sum;
		const double log_student = r->units[i].score - total;

		if (share != 0.0)
			r->loss += share * (log(share) - log_student);
		add_gradients(r, r->units[i].best, (exp(log_student) - share) * r->factor);
	}
}

static void store(const struct ref *r, const struct hys_tensor *x, int64_t i0, int64_t i1,
		  const double *values)
{
	for (int64_t d = 0; d < r->dim; d++)
		r->out[d] = (float)values[d];
	omp_store(r->isa, x, i0, i1, r->out, r->dim, r->add, r->spare);
}

static void store_f32(const struct ref *r, float *out, double value)
{
	*out = (float)(value + (r->add ? (double)*out : 0.0));
}

static void store_set(const struct ref *r)
{
	for (int64_t j = 0; j < r->set_heads; j++) {
		const int64_t head = r->group * r->set_heads + j;

		if (hys_present(&r->args->d_index_q))
			store(r, &r->args->d_index_q, r->row, head, r->dq + j * r->dim);
		if (hys_present(&r->args->d_index_w))
			store_f32(r, omp_at(&r->args->d_index_w, r->row, head, 0), r->dw[j]);
	}
}

static void do_set(struct ref *r, bool sampled, bool counting)
{
	double sum = 0.0;

	r->count = 0;
	memset(r->dq, 0, (size_t)(r->set_heads * r->dim) * sizeof(double));
	memset(r->dw, 0, (size_t)r->set_heads * sizeof(double));
	if (sampled) {
		collect(r);
		sum = teach(r);
	}
	r->sets += sum != 0.0;
	if (counting)
		return;
	write_teacher(r);
	if (sum != 0.0) {
		omp_load(r->isa, &r->args->index_q, r->row, r->group * r->set_heads, r->set_heads,
			 r->dim, r->index_q, r->dim);
		score_units(r);
		judge(r, sum);
	}
	store_set(r);
}

static void do_sets(struct ref *r, bool counting)
{
	const int64_t stride = hys_max64(r->args->row_stride, 1);

	for (r->row = 0; r->row < r->call->size.rows; r->row++) {
		const int64_t t = r->call->row_first + r->row;

		for (r->group = 0; r->group < r->groups; r->group++)
			do_set(r, t % stride == r->args->row_offset, counting);
	}
}

static void find_factor(struct ref *r)
{
	const struct hys_loss_args *args = r->args;

	if (args->reduction == HYS_REDUCTION_SUM) {
		r->factor = args->coefficient * (double)hys_max64(args->row_stride, 1);
	} else if (args->divisor != 0.0) {
		r->factor = args->coefficient / args->divisor;
	} else {
		do_sets(r, true);
		r->factor = args->coefficient / (double)hys_max64(r->sets, 1);
	}
}

hys_status omp_indexer_loss_ref_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				    void *instance, const struct hys_call *call,
				    struct hys_error *error)
{
	const struct hys_loss_args *args = &call->args.loss;
	const struct hys_problem *problem = call->problem;
	struct omp_arena arena = omp_arena(&call->workspace);
	struct ref r = {
		.call = call,
		.args = args,
		.isa = omp_isa_of_stream(kernel, stream),
		.rows = {problem, &call->batch, &args->indices, call->size.keys, call->size.entries,
			 0},
		.dense = (args->flags & HYS_LOSS_DENSE) != 0,
		.add = (args->flags & HYS_LOSS_ACCUMULATE) != 0,
		.groups = problem->scoring.groups,
		.set_heads = problem->scoring.heads / problem->scoring.groups,
		.dim = problem->scoring.dim,
		.heads = problem->attending.heads,
		.kv_heads = problem->attending.kv_heads,
		.head_dim = problem->attending.head_dim,
	};

	(void)stream, (void)instance, (void)error;
	lay_out(&arena, &call->size, &r);
	memset(r.dk, 0, (size_t)(call->size.entries * r.dim) * sizeof(double));
	find_factor(&r);
	do_sets(&r, false);
	for (int64_t e = 0; hys_present(&args->d_index_k) && e < call->size.entries; e++)
		store(&r, &args->d_index_k, e, 0, r.dk + e * r.dim);
	if (hys_present(&args->loss))
		store_f32(&r, omp_at(&args->loss, 0, 0, 0), r.loss * r.factor);
	return HYS_OK;
}
