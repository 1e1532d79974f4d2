/* omp_loss.c - the indexer loss: KL(teacher || softmax(score)) over each set,
 * and its gradients. */
#include <math.h>
#include <string.h>

#include "omp_kernels.h"
#include "omp_loss.h"

#define TILE_SETS_MOST 256
#define TILE_BYTES (INT64_C(32) << 20)
#define DENSE_SETS_PER_THREAD 4
#define STORE_ROWS 64 /* entries of one item */

/* ---- memory ---- */

static struct omp_loss_scratch lay_out_scratch(struct omp_arena *arena,
					       const struct hys_problem *problem,
					       const struct omp_loss_layout *at)
{
	const int64_t lanes = at->lanes_pitch;
	const int64_t set_heads = problem->scoring.heads / problem->scoring.groups;
	const int64_t dots = hys_max64(OMP_TILE * lanes, set_heads * at->dots_pitch);

	return (struct omp_loss_scratch){
		.index_q = omp_take(arena, set_heads * at->index_pitch, sizeof(float)),
		.weights = omp_take(arena, set_heads, sizeof(float)),
		.index_k = omp_take(arena, OMP_TILE * at->index_pitch, sizeof(float)),
		.product = omp_take(arena, OMP_TILE * at->index_pitch, sizeof(float)),
		.spare = omp_take(arena, at->index_pitch, sizeof(float)),
		.q = omp_take(arena, problem->attending.head_dim * lanes, sizeof(float)),
		.k = omp_take(arena, OMP_TILE * at->head_pitch, sizeof(float)),
		.dots = omp_take(arena, dots, sizeof(float)),
		.column = omp_take(arena, OMP_TILE, sizeof(float)),
		.totals = omp_take(arena, lanes, sizeof(float)),
		.soften = {omp_take(arena, lanes, sizeof(float)),
			   omp_take(arena, lanes, sizeof(float)),
			   omp_take(arena, lanes, sizeof(float))},
		.sums = omp_take(arena, lanes, sizeof(double)),
		.places = omp_take(arena, OMP_TILE, sizeof(int64_t)),
		.units = omp_take(arena, OMP_TILE, sizeof(int64_t)),
	};
}

/* Dense sets are long: few a thread. Others go in tiles of a size that only
 * the problem decides, because it decides the order of sums. */
static void size_tiles(const struct hys_size *size, int32_t threads, bool dense,
		       struct omp_loss_layout *at)
{
	const struct hys_scoring *scoring = &size->problem->scoring;
	const int64_t set_heads = scoring->heads / scoring->groups;
	const int64_t row_entries =
		size->row_entries > 0 ? hys_min64(size->row_entries, size->entries) : size->entries;
	int64_t set_bytes;

	at->index_pitch = omp_pitch(scoring->dim);
	at->head_pitch = omp_pitch(size->problem->attending.head_dim);
	at->lanes_pitch = omp_pitch(omp_pad_lanes(omp_heads_most(size->problem)));
	at->dots_pitch = omp_pitch(OMP_TILE);
	at->chunk_pitch = omp_pitch(OMP_LOSS_CHUNK);
	at->most = dense ? row_entries : size->topk;
	set_bytes = 16 * (int64_t)size->problem->choosing.topk_max;
	set_bytes += set_heads * (at->chunk_pitch + at->index_pitch) * (int64_t)sizeof(float);
	at->tile_sets = hys_min64(hys_max64(1, TILE_BYTES / set_bytes), TILE_SETS_MOST);
	if (dense)
		at->tile_sets = DENSE_SETS_PER_THREAD * (int64_t)threads;
	at->tile_sets =
		hys_min64(at->tile_sets, hys_max64(1, hys_mul64(size->rows, scoring->groups)));
}

static void lay_out(struct omp_arena *arena, const struct hys_size *size, int32_t threads,
		    bool dense, struct omp_loss_layout *at)
{
	const struct hys_scoring *scoring = &size->problem->scoring;
	const int64_t set_heads = scoring->heads / scoring->groups;
	struct omp_arena counting = {0};

	size_tiles(size, threads, dense, at);
	const int64_t units = hys_mul64(at->tile_sets, at->most);
	const int64_t lanes = at->tile_sets * set_heads;

	at->sets = omp_take(arena, at->tile_sets, sizeof(struct omp_loss_set));
	at->entries = omp_take(arena, dense ? 0 : units, sizeof(int32_t));
	at->slots = omp_take(arena, dense ? 0 : units, sizeof(int32_t));
	at->teacher = omp_take(arena, units, sizeof(float));
	at->scores = omp_take(arena, units, sizeof(float));
	at->d_dots = omp_take(arena, lanes * at->chunk_pitch, sizeof(float));
	at->dq = omp_take(arena, lanes * at->index_pitch, sizeof(float));
	at->dw = omp_take(arena, lanes, sizeof(double));
	at->dk = omp_take(arena, hys_mul64(size->entries, scoring->dim), sizeof(float));
	lay_out_scratch(&counting, size->problem, at);
	at->scratch_bytes = counting.used;
	at->scratch = omp_take(arena, hys_mul64(counting.used, threads), 1);
}

/* A plan does not know whether calls will be dense. */
int64_t omp_indexer_loss_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				   const struct hys_size *size)
{
	const int32_t threads = omp_device(device)->threads;
	struct omp_arena sparse = {0}, dense = {0};
	struct omp_loss_layout at;

	(void)kernel;
	lay_out(&sparse, size, threads, false, &at);
	lay_out(&dense, size, threads, true, &at);
	return hys_max64(sparse.used, dense.used);
}

struct omp_loss_scratch omp_loss_scratch(const struct omp_loss *l, int32_t thread)
{
	struct omp_arena arena = {l->at.scratch + thread * l->at.scratch_bytes, 0};

	return lay_out_scratch(&arena, l->call->problem, &l->at);
}

/* ---- scores ---- */

/* column[n] = scores of entries s->places[n] */
static void score_tile(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t n)
{
	omp_loss_dots(l, s, n, s->dots, l->at.dots_pitch);
	memset(s->column, 0, (size_t)n * sizeof(float));
	for (int64_t h = 0; h < l->set_heads; h++) {
		const float *dots = s->dots + h * l->at.dots_pitch;
		const float w = s->weights[h];

		for (int64_t j = 0; j < n; j++) {
			const float z = l->scale * dots[j];

			s->column[j] += w * (l->relu && z < 0.0f ? 0.0f : z);
		}
	}
}

/* A unit's score is its largest, NaN left out unless there is nothing else;
 * the smallest entry that has it stands for the unit from here on. */
static void score_units(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i)
{
	float *scores = l->at.scores + omp_loss_unit(l, i, 0);
	struct omp_loss_walk walk = {0};
	int64_t previous = -1, n;

	omp_loss_load(l, s, i);
	while ((n = omp_loss_next(l, s, i, false, &walk)) > 0) {
		score_tile(l, s, n);
		for (int64_t j = 0; j < n; j++) {
			const int64_t unit = s->units[j];
			const float score = s->column[j];

			if (unit == previous && !(score > scores[unit]) &&
			    !(isnan(scores[unit]) && !isnan(score)))
				continue;
			previous = unit;
			scores[unit] = score;
			if (!l->dense)
				l->at.entries[omp_loss_unit(l, i, unit)] = (int32_t)s->places[j];
		}
	}
}

/* Scores that the caller has from select. */
static void read_scores(const struct omp_loss *l, int64_t i)
{
	const struct omp_loss_set *set = &l->at.sets[i];

	for (int64_t unit = 0; unit < set->count; unit++) {
		const int64_t at = omp_loss_unit(l, i, unit);

		l->at.scores[at] =
			*(float *)omp_at(&l->args->scores, set->row, set->group, l->at.slots[at]);
	}
}

/* Given scores save scoring, but for finding a block's best entry. */
static void find_scores(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i)
{
	const bool given = hys_present(&l->args->scores);
	const bool blocks = l->at.sets[i].slots.step > 1;

	if (!given || (blocks && l->wants_gradients))
		score_units(l, s, i);
	if (given)
		read_scores(l, i);
}

/* log sum exp of the scores, as the double that it is close to. */
static double total_of(const struct omp_loss *l, const struct omp_loss_scratch *s,
		       const float *scores, int64_t count)
{
	const float top = l->isa->maximum(scores, count);
	double sum = 0.0;

	if (isinf(top) || isnan(top))
		return (double)top;
	for (int64_t at = 0; at < count; at += OMP_TILE) {
		const int64_t n = hys_min64(OMP_TILE, count - at);

		for (int64_t j = 0; j < n; j++)
			s->column[j] = scores[at + j] - top;
		l->isa->exp(s->column, n);
		sum += (double)omp_sum(s->column, n);
	}
	return (double)top + log(sum);
}

/* The set's loss; the teacher becomes d score. */
static void judge(const struct omp_loss *l, const struct omp_loss_scratch *s, int64_t i)
{
	struct omp_loss_set *set = &l->at.sets[i];
	const float *scores = l->at.scores + omp_loss_unit(l, i, 0);
	float *teacher = l->at.teacher + omp_loss_unit(l, i, 0);
	const double total = total_of(l, s, scores, set->count);

	for (int64_t at = 0; at < set->count; at += OMP_TILE) {
		const int64_t n = hys_min64(OMP_TILE, set->count - at);

		for (int64_t j = 0; j < n; j++)
			s->column[j] = (float)((double)scores[at + j] - total);
		l->isa->exp(s->column, n);
		for (int64_t j = 0; j < n; j++) {
			const double share = (double)teacher[at + j] / set->teacher_sum;
			const double log_student = (double)scores[at + j] - total;

			if (share != 0.0)
				set->loss += share * (log(share) - log_student);
			teacher[at + j] = (float)(((double)s->column[j] - share) * l->factor);
		}
	}
}

/* ---- the whole ---- */

static void do_set(void *context, int64_t i, int32_t thread)
{
	const struct omp_loss *l = context;
	const struct omp_loss_scratch s = omp_loss_scratch(l, thread);

	omp_loss_collect(l, i, l->tile + i);
	omp_loss_teach(l, &s, i);
	if (l->wants_scores && l->at.sets[i].count > 0) {
		find_scores(l, &s, i);
		judge(l, &s, i);
	}
}

/* A set that is not empty gets teacher_sum 1. */
static void probe_set(void *context, int64_t i, int32_t thread)
{
	const struct omp_loss *l = context;
	const struct omp_loss_scratch s = omp_loss_scratch(l, thread);

	omp_loss_collect(l, i, l->tile + i);
	l->at.sets[i].teacher_sum = omp_loss_teachable(l, &s, i) ? 1.0 : 0.0;
}

/* Moves on to the next tile; from tile = tile_sets = 0 to the first. */
static bool next_tile(struct omp_loss *l)
{
	l->tile += l->tile_sets;
	l->tile_sets = hys_min64(l->at.tile_sets, l->set_count - l->tile);
	return l->tile_sets > 0;
}

static int64_t count_sets(struct omp_loss *l)
{
	int64_t count = 0;

	for (l->tile = l->tile_sets = 0; next_tile(l);) {
		omp_for(l->threads, l->tile_sets, probe_set, l);
		for (int64_t i = 0; i < l->tile_sets; i++)
			count += l->at.sets[i].teacher_sum != 0.0;
	}
	return count;
}

static void find_factor(struct omp_loss *l)
{
	const struct hys_loss_args *args = l->args;

	if (args->reduction == HYS_REDUCTION_SUM)
		l->factor = args->coefficient * (double)hys_max64(args->row_stride, 1);
	else if (args->divisor != 0.0)
		l->factor = args->coefficient / args->divisor;
	else
		l->factor = args->coefficient / (double)hys_max64(count_sets(l), 1);
}

static double add_tiles(struct omp_loss *l)
{
	double loss = 0.0;

	for (l->tile = l->tile_sets = 0; next_tile(l);) {
		omp_for(l->threads, l->tile_sets, do_set, l);
		for (int64_t i = 0; i < l->tile_sets; i++)
			loss += l->at.sets[i].loss;
		if (l->wants_gradients)
			omp_loss_gradients(l);
	}
	return loss * l->factor;
}

static bool is_sampled(const struct omp_loss *l, int64_t row)
{
	const int64_t stride = hys_max64(l->args->row_stride, 1);

	return (l->call->row_first + row) % stride == l->args->row_offset;
}

/* Rows that do not count have no gradient and no teacher. */
static void zero_row(void *context, int64_t row, int32_t thread)
{
	const struct omp_loss *l = context;
	const struct hys_tensor *dq = &l->args->d_index_q, *dw = &l->args->d_index_w;
	const struct hys_tensor *teacher = &l->args->teacher_out;
	const int64_t heads = l->groups * l->set_heads;
	const size_t bytes = (size_t)l->dim * hys_dtype_size(dq->dtype);

	(void)thread;
	if (is_sampled(l, row))
		return;
	for (int64_t h = 0; hys_present(dq) && !l->add && h < heads; h++)
		memset(omp_at(dq, row, h, 0), 0, bytes);
	if (hys_present(dw) && !l->add)
		memset(omp_at(dw, row, 0, 0), 0, (size_t)heads * sizeof(float));
	for (int64_t u = 0; hys_present(teacher) && u < l->groups; u++)
		memset(omp_at(teacher, row, u, 0), 0, (size_t)teacher->shape[2] * sizeof(float));
}

static void store_item(void *context, int64_t item, int32_t thread)
{
	const struct omp_loss *l = context;
	const struct omp_loss_scratch s = omp_loss_scratch(l, thread);
	const int64_t end = hys_min64((item + 1) * STORE_ROWS, l->call->size.entries);

	for (int64_t e = item * STORE_ROWS; e < end; e++)
		omp_store(l->isa, &l->args->d_index_k, e, 0, l->at.dk + e * l->dim, l->dim, l->add,
			  s.spare);
}

static struct omp_loss make(const struct hys_kernel *kernel, const struct hys_stream *stream,
			    const struct hys_call *call)
{
	const struct hys_loss_args *args = &call->args.loss;
	const struct hys_scoring *scoring = &call->problem->scoring;
	const bool gradients = hys_present(&args->d_index_q) || hys_present(&args->d_index_k) ||
			       hys_present(&args->d_index_w);

	return (struct omp_loss){
		.call = call,
		.args = args,
		.isa = omp_isa_of_stream(kernel, stream),
		.rows = {call->problem, &call->batch, &args->indices, call->size.keys,
			 call->size.entries, 0},
		.keys = {&args->k, NULL, INT64_MAX},
		.index_keys = {&args->index_k, NULL, INT64_MAX},
		.dense = (args->flags & HYS_LOSS_DENSE) != 0,
		.add = (args->flags & HYS_LOSS_ACCUMULATE) != 0,
		.wants_scores = gradients || hys_present(&args->loss),
		.wants_gradients = gradients,
		.groups = scoring->groups,
		.set_heads = scoring->heads / scoring->groups,
		.dim = scoring->dim,
		.head_dim = call->problem->attending.head_dim,
		.scale = (float)scoring->scale,
		.relu = scoring->activation == HYS_ACTIVATION_RELU,
	};
}

/* The first sampled row and the number of sets. */
static void find_sets(struct omp_loss *l)
{
	const int64_t stride = hys_max64(l->args->row_stride, 1), rows = l->call->size.rows;
	const int64_t gap = l->args->row_offset - l->call->row_first % stride;

	l->first_row = gap < 0 ? gap + stride : gap;
	if (l->first_row < rows)
		l->set_count = l->groups * omp_ceil_div(rows - l->first_row, stride);
}

hys_status omp_indexer_loss_run(const struct hys_kernel *kernel, struct hys_stream *stream,
				void *instance, const struct hys_call *call,
				struct hys_error *error)
{
	struct omp_arena arena = omp_arena(&call->workspace);
	struct omp_loss l = make(kernel, stream, call);
	const int64_t items = omp_ceil_div(call->size.entries, STORE_ROWS);

	(void)instance, (void)error;
	l.threads = omp_threads(stream);
	lay_out(&arena, &call->size, l.threads, l.dense, &l.at);
	find_sets(&l);
	find_factor(&l);
	memset(l.at.dk, 0, (size_t)(call->size.entries * l.dim) * sizeof(float));
	if (l.args->row_stride > 1)
		omp_for(l.threads, call->size.rows, zero_row, &l);
	const double loss = add_tiles(&l);

	if (hys_present(&l.args->d_index_k))
		omp_for(l.threads, items, store_item, &l);
	if (hys_present(&l.args->loss)) {
		float *out = omp_at(&l.args->loss, 0, 0, 0);

		*out = (float)(loss + (l.add ? (double)*out : 0.0));
	}
	return HYS_OK;
}
