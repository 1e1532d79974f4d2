#include "ranks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "place.h"

int wrong_count, this_rank;

void wrong(const char *format, ...)
{
	va_list arguments;
	char text[512];

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	fprintf(stderr, "rank %d: %s\n", this_rank, text);
	wrong_count++;
}

static void *make(int64_t count, size_t size)
{
	void *memory = calloc((size_t)count + 1, size);

	if (!memory)
		abort();
	return memory;
}

/* ---- sizes ---- */

static int32_t or_else(int32_t value, int32_t other)
{
	return value ? value : other;
}

static struct hys_problem problem_of(const struct step_case *c)
{
	struct hys_problem p = {.struct_size = sizeof p};
	struct hys_error error;

	p.scoring.heads = or_else(c->index_heads, 4);
	p.scoring.dim = or_else(c->index_dim, 16);
	p.scoring.groups = c->groups;
	p.scoring.block = c->block;
	p.scoring.pool = c->pool;
	p.scoring.dtype = c->index_dtype;
	p.scoring.scale = c->exact ? 1 : 0;
	p.choosing.topk_max = or_else(c->topk, 6);
	p.choosing.first_blocks = c->first_blocks;
	p.choosing.local_blocks = c->local_blocks;
	p.choosing.method = c->method;
	p.choosing.coarse_block = c->coarse_block;
	p.choosing.coarse_keep = c->coarse_block ? 3 : 0;
	p.attending.heads = or_else(c->heads, 4);
	p.attending.kv_heads = c->kv_heads;
	p.attending.head_dim = or_else(c->head_dim, 16);
	p.attending.value_dim = c->value_dim;
	p.attending.window = c->window;
	p.attending.first = c->first;
	p.attending.dtype = c->dtype;
	p.attending.flags = c->dense ? HYS_ATTENDING_DENSE : 0;
	if (hys_problem_complete(&p, &error) != HYS_OK)
		wrong("%s: %s", c->name, error.message);
	return p;
}

static int32_t *sums_of(const int32_t *lengths, int32_t *count)
{
	int32_t *cu;

	*count = 0;
	while (lengths[*count] >= 0)
		++*count;
	cu = make(*count + 1, sizeof *cu);
	for (int32_t i = 0; i < *count; i++)
		cu[i + 1] = cu[i] + lengths[i];
	return cu;
}

static void describe(struct step *step)
{
	const struct step_case *c = step->about;
	struct hys_batch_desc *desc = &step->desc;

	*desc = (struct hys_batch_desc){.struct_size = sizeof *desc, .flags = HYS_BATCH_CAUSAL};
	desc->rows = c->rows;
	desc->keys = or_else(c->keys, c->rows);
	if (c->lengths) {
		step->cu_q = sums_of(c->lengths, &desc->documents);
		desc->cu_seqlens_q = step->cu_q;
		desc->rows = desc->keys = step->cu_q[desc->documents];
	}
	if (c->key_lengths) {
		step->cu_k = sums_of(c->key_lengths, &desc->documents);
		desc->cu_seqlens_k = step->cu_k;
		desc->keys = step->cu_k[desc->documents];
	}
	if (c->positions) {
		step->positions = make(desc->rows, 4);
		for (int64_t t = 0; t < desc->rows; t++)
			step->positions[t] = (int32_t)(t * 7 % desc->keys);
		desc->positions = step->positions;
	}
	if (c->window_keys) {
		step->window_begin = make(desc->rows, 4);
		step->window_end = make(desc->rows, 4);
		for (int32_t t = 0; t < desc->rows; t++) {
			const int32_t at = (int32_t)((int64_t)t * c->window_keys / desc->rows);

			step->window_begin[t] = at > 5 ? at - 5 : 0;
			step->window_end[t] = t % 5 == 4 ? step->window_begin[t] : at + 1;
		}
		desc->window_begin = step->window_begin;
		desc->window_end = step->window_end;
		desc->window_keys = c->window_keys;
	}
}

static int64_t entries_of(const struct step *step)
{
	const int32_t pool = step->problem.scoring.pool;
	const int32_t *cu = step->cu_k ? step->cu_k : step->cu_q;
	int64_t entries = 0;

	if (!cu)
		return step->desc.keys / pool;
	for (int32_t d = 0; d < step->desc.documents; d++)
		entries += (cu[d + 1] - cu[d]) / pool;
	return entries;
}

/* ---- arrays ---- */

static void add(struct step *step, enum step_array which, const char *name, bool input,
		hys_cut_part part, hys_dtype dtype, int32_t rank, int64_t rows, int64_t n1,
		int64_t n2)
{
	struct array *array = &step->arrays[which];

	*array = (struct array){name, part, dtype, rank, rows, n1, n2, NULL, input};
	array->data = make(rows * n1 * n2, hys_dtype_size(dtype));
}

#define ALL HYS_CUT_PART_COUNT /* the same on all ranks */

static void add_inputs(struct step *step, int64_t t, int64_t s, int64_t e)
{
	const struct hys_scoring *i = &step->problem.scoring;
	const struct hys_attending *a = &step->problem.attending;
	const int64_t s2 = step->desc.window_keys;

	add(step, INDEX_Q, "index_q", true, HYS_CUT_ROWS, i->dtype, 3, t, i->heads, i->dim);
	add(step, INDEX_K, "index_k", true, HYS_CUT_ENTRIES, i->dtype, 2, e, i->dim, 1);
	add(step, INDEX_W, "index_w", true, HYS_CUT_ROWS, HYS_F32, 2, t, i->heads, 1);
	if (i->dtype == HYS_F8E4M3) {
		add(step, INDEX_Q_SCALE, "index_q_scale", true, HYS_CUT_ROWS, HYS_F32, 2, t,
		    i->heads, 1);
		add(step, INDEX_K_SCALE, "index_k_scale", true, HYS_CUT_ENTRIES, HYS_F32, 1, e, 1,
		    1);
	}
	add(step, Q, "q", true, HYS_CUT_ROWS, a->dtype, 3, t, a->heads, a->head_dim);
	add(step, K, "k", true, HYS_CUT_KEYS, a->dtype, 3, s, a->kv_heads, a->head_dim);
	if (!step->about->shared)
		add(step, V, "v", true, HYS_CUT_KEYS, a->dtype, 3, s, a->kv_heads, a->value_dim);
	if (s2 > 0) {
		add(step, WINDOW_K, "window_k", true, HYS_CUT_WINDOW_KEYS, a->dtype, 3, s2,
		    a->kv_heads, a->head_dim);
		add(step, WINDOW_V, "window_v", true, HYS_CUT_WINDOW_KEYS, a->dtype, 3, s2,
		    a->kv_heads, a->value_dim);
	}
	if (step->about->sink)
		add(step, SINK, "sink", true, ALL, HYS_F32, 1, a->heads, 1, 1);
	add(step, GRAD_O, "grad_o", true, HYS_CUT_ROWS, a->dtype, 3, t, a->heads, a->value_dim);
}

static void add_outputs(struct step *step, int64_t t, int64_t s, int64_t e)
{
	const struct hys_scoring *i = &step->problem.scoring;
	const struct hys_attending *a = &step->problem.attending;
	const int64_t k = step->problem.choosing.topk_max, s2 = step->desc.window_keys;

	add(step, INDICES, "indices", false, HYS_CUT_ROWS, HYS_I32, 3, t, i->groups, k);
	add(step, COUNTS, "counts", false, HYS_CUT_ROWS, HYS_I32, 2, t, i->groups, 1);
	add(step, SCORES, "scores", false, HYS_CUT_ROWS, HYS_F32, 3, t, i->groups, k);
	add(step, KTH, "kth", false, HYS_CUT_ROWS, HYS_F32, 2, t, i->groups, 1);
	add(step, O, "o", false, HYS_CUT_ROWS, a->dtype, 3, t, a->heads, a->value_dim);
	add(step, LSE, "lse", false, HYS_CUT_ROWS, HYS_F32, 2, t, a->heads, 1);
	add(step, DQ, "dq", false, HYS_CUT_ROWS, HYS_F32, 3, t, a->heads, a->head_dim);
	add(step, DK, "dk", false, HYS_CUT_KEYS, a->dtype, 3, s, a->kv_heads, a->head_dim);
	if (!step->about->shared)
		add(step, DV, "dv", false, HYS_CUT_KEYS, HYS_F32, 3, s, a->kv_heads, a->value_dim);
	if (step->about->sink)
		add(step, DSINK, "dsink", false, ALL, HYS_F32, 1, a->heads, 1, 1);
	if (s2 > 0) {
		add(step, DWINDOW_K, "dwindow_k", false, HYS_CUT_WINDOW_KEYS, HYS_F32, 3, s2,
		    a->kv_heads, a->head_dim);
		add(step, DWINDOW_V, "dwindow_v", false, HYS_CUT_WINDOW_KEYS, HYS_F32, 3, s2,
		    a->kv_heads, a->value_dim);
	}
	add(step, LOSS, "loss", false, ALL, HYS_F32, 1, 1, 1, 1);
	add(step, D_INDEX_Q, "d_index_q", false, HYS_CUT_ROWS, HYS_F32, 3, t, i->heads, i->dim);
	add(step, D_INDEX_K, "d_index_k", false, HYS_CUT_ENTRIES, HYS_F32, 2, e, i->dim, 1);
	add(step, D_INDEX_W, "d_index_w", false, HYS_CUT_ROWS, HYS_F32, 2, t, i->heads, 1);
	add(step, TEACHER, "teacher_out", false, HYS_CUT_ROWS, HYS_F32, 3, t, i->groups, k);
	add(step, MASS, "mass", false, HYS_CUT_ROWS, HYS_F32, 2, t, i->groups, 1);
	add(step, RECALL, "recall", false, HYS_CUT_ROWS, HYS_F32, 2, t, i->groups, 1);
}

void step_make(struct step *step, const struct step_case *about)
{
	struct rng rng;

	*step = (struct step){.about = about, .problem = problem_of(about)};
	describe(step);
	add_inputs(step, step->desc.rows, step->desc.keys, entries_of(step));
	add_outputs(step, step->desc.rows, step->desc.keys, entries_of(step));
	rng_seed(&rng, 42);
	for (int32_t i = 0; i < STEP_ARRAYS; i++) {
		struct array *array = &step->arrays[i];
		const bool scale = i == INDEX_Q_SCALE || i == INDEX_K_SCALE;

		for (int64_t x = 0; array->input && x < array->rows * array->n1 * array->n2; x++)
			element_put(array->dtype, array->data, x,
				    element_round(array->dtype,
						  scale		 ? 0.5 + rng_uniform(&rng)
						  : about->exact ? (double)rng_range(&rng, -2, 3)
								 : rng_normal(&rng)));
	}
}

void step_cut(struct step *own, const struct step *whole, const struct hys_cut *cut, int32_t rank)
{
	*own = (struct step){.about = whole->about, .problem = whole->problem};
	for (int32_t i = 0; i < STEP_ARRAYS; i++) {
		const struct array *from = &whole->arrays[i];
		const int64_t row = from->n1 * from->n2 * (int64_t)hys_dtype_size(from->dtype);
		const struct hys_span *runs;
		struct array *to = &own->arrays[i];

		if (!from->name)
			continue;
		*to = *from;
		if (from->part != ALL)
			to->rows = hys_cut_count(cut, from->part, rank);
		to->data = make(to->rows * row, 1);
		if (!from->input)
			memset(to->data, 0x55, (size_t)(to->rows * row));
		else if (from->part == ALL)
			memcpy(to->data, from->data, (size_t)(from->rows * row));
		for (int32_t r = 0, n = hys_cut_owned(cut, from->part, rank, &runs);
		     from->input && r < n; r++) {
			int64_t before = 0;

			for (int32_t b = 0; b < r; b++)
				before += runs[b].count;
			memcpy(to->data + before * row, from->data + runs[r].first * row,
			       (size_t)(runs[r].count * row));
		}
	}
}

void step_free(struct step *step)
{
	for (int32_t i = 0; i < STEP_ARRAYS; i++)
		free(step->arrays[i].data);
	free(step->cu_q);
	free(step->cu_k);
	free(step->window_begin);
	free(step->window_end);
	free(step->positions);
}

struct hys_tensor step_tensor(const struct step *step, enum step_array which)
{
	const struct array *array = &step->arrays[which];

	if (!array->name)
		return (struct hys_tensor){0};
	return hys_host(array->data, array->dtype, array->rank, array->rows, array->n1, array->n2);
}

/* ---- arguments ---- */

#define T(name, which) .name = step_tensor(step, which)

struct hys_select_args step_select(const struct step *step)
{
	return (struct hys_select_args){.struct_size = sizeof(struct hys_select_args),
					T(index_q, INDEX_Q),
					T(index_k, INDEX_K),
					T(index_w, INDEX_W),
					T(index_q_scale, INDEX_Q_SCALE),
					T(index_k_scale, INDEX_K_SCALE),
					T(indices, INDICES),
					T(counts, COUNTS),
					T(scores, SCORES),
					T(kth, KTH)};
}

struct hys_attention_args step_forward(const struct step *step)
{
	return (struct hys_attention_args){.struct_size = sizeof(struct hys_attention_args),
					   T(q, Q),
					   T(k, K),
					   T(v, V),
					   T(indices, INDICES),
					   T(sink, SINK),
					   T(window_k, WINDOW_K),
					   T(window_v, WINDOW_V),
					   T(o, O),
					   T(lse, LSE)};
}

struct hys_attention_grad_args step_backward(const struct step *step)
{
	return (struct hys_attention_grad_args){.struct_size =
							sizeof(struct hys_attention_grad_args),
						T(q, Q),
						T(k, K),
						T(v, V),
						T(indices, INDICES),
						T(sink, SINK),
						T(window_k, WINDOW_K),
						T(window_v, WINDOW_V),
						T(o, O),
						T(lse, LSE),
						T(grad_o, GRAD_O),
						T(dq, DQ),
						T(dk, DK),
						T(dv, DV),
						T(dsink, DSINK),
						T(dwindow_k, DWINDOW_K),
						T(dwindow_v, DWINDOW_V)};
}

struct hys_loss_args step_loss(const struct step *step)
{
	return (struct hys_loss_args){.struct_size = sizeof(struct hys_loss_args),
				      .divisor = step->about->divisor,
				      .reduction = step->about->sum ? HYS_REDUCTION_SUM
								    : HYS_REDUCTION_MEAN,
				      .row_stride = step->about->row_stride,
				      .row_offset = step->about->row_stride > 1 ? 1 : 0,
				      T(index_q, INDEX_Q),
				      T(index_k, INDEX_K),
				      T(index_w, INDEX_W),
				      T(indices, INDICES),
				      T(q, Q),
				      T(k, K),
				      T(lse, LSE),
				      T(sink, SINK),
				      T(loss, LOSS),
				      T(d_index_q, D_INDEX_Q),
				      T(d_index_k, D_INDEX_K),
				      T(d_index_w, D_INDEX_W),
				      T(teacher_out, TEACHER)};
}

struct hys_fidelity_args step_fidelity(const struct step *step)
{
	return (struct hys_fidelity_args){.struct_size = sizeof(struct hys_fidelity_args),
					  .row_stride = step->about->row_stride,
					  .row_offset = step->about->row_stride > 1 ? 1 : 0,
					  T(q, Q),
					  T(k, K),
					  T(indices, INDICES),
					  T(reference, INDICES),
					  T(mass, MASS),
					  T(recall, RECALL)};
}

struct hys_plan *step_plan(struct hys_context *context, const struct step *step, int64_t rows)
{
	struct hys_plan_options options = {.struct_size = sizeof options,
					   .flags = HYS_PLAN_NO_SELF_TEST,
					   .rows_max = rows > 0 ? rows : 1,
					   .keys_max = step->desc.keys > 0 ? step->desc.keys : 1,
					   .window_keys_max = step->desc.window_keys};
	struct hys_plan *plan = NULL;
	struct hys_error error;

	if (hys_plan_create(context, &step->problem, &options, &plan, &error) != HYS_OK)
		wrong("%s: %s", step->about->name, error.message);
	return plan;
}
