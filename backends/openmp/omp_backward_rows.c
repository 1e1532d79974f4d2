/* omp_backward_rows.c - the part of attention's backward pass in which threads
 * own rows: shares, d logits and dq of a unit. */
#include <math.h>
#include <string.h>

#include "omp_backward.h"

static int64_t row_of(const struct omp_lanes *lanes, int64_t lane)
{
	return lanes->row + lane / lanes->per_row;
}

static int64_t head_of(const struct omp_lanes *lanes, int64_t lane)
{
	return lanes->heads.begin + lane % lanes->per_row;
}

float omp_unit_total(const struct omp_backward *b, int64_t row, int64_t head)
{
	const struct hys_tensor *sink = &b->args->sink;
	double total = (double)*(const float *)omp_at(&b->args->lse, row, head, 0);

	if (hys_present(sink) && total != -(double)INFINITY)
		total = omp_log_add(total, (double)*(const float *)omp_at(sink, head, 0, 0));
	return (float)total;
}

/* Its total and the sum of o * grad_o. */
static void start_lane(const struct omp_backward *b, const struct omp_backward_scratch *s,
		       struct omp_unit *unit, int64_t lane)
{
	const int64_t row = row_of(&unit->lanes, lane), head = head_of(&unit->lanes, lane);

	unit->totals[lane] = omp_unit_total(b, row, head);
	omp_load(b->isa, &b->args->o, row, head, 1, b->value_dim, s->spare, 0);
	/* As d shares are computed, so that a single key row cancels exactly. */
	b->isa->gemm_nn(1, 1, b->value_dim, s->spare, 0, s->grad_o + lane, unit->lanes.pitch,
			&unit->means[lane], 1, false);
}

void omp_unit_start(const struct omp_backward *b, const struct omp_backward_scratch *s,
		    struct omp_unit *unit)
{
	const struct omp_lanes *lanes = &unit->lanes;

	omp_lanes_load(b->isa, &b->args->grad_o, lanes, b->value_dim, s->grad_o, s->spare,
		       b->at.product_pitch);
	for (int64_t lane = 0; lane < lanes->count; lane++)
		start_lane(b, s, unit, lane);
	for (int64_t lane = lanes->count; lane < lanes->padded; lane++) {
		unit->totals[lane] = -INFINITY;
		unit->means[lane] = 0.0f;
	}
	memset(unit->dq, 0, (size_t)(b->head_dim * lanes->pitch) * sizeof(float));
}

/* Part i of [parts][dim][lanes]. */
static float *part_of(const struct omp_backward *b, float *columns, int64_t i, int64_t dim)
{
	return columns + i * dim * b->at.pitch;
}

void omp_unit_load(const struct omp_backward *b, const struct omp_backward_scratch *s,
		   const struct omp_unit *unit, int64_t part)
{
	omp_lanes_load(b->isa, &b->args->q, &unit->lanes, b->head_dim,
		       part_of(b, s->q, part, b->head_dim), s->spare, b->at.product_pitch);
	omp_lanes_load(b->isa, &b->args->grad_o, &unit->lanes, b->value_dim,
		       part_of(b, s->grad_o, part, b->value_dim), s->spare, b->at.product_pitch);
}

/* From dot products to shares and from d shares to d logits. */
static void differentiate(const struct omp_backward *b, const struct omp_backward_scratch *s,
			  const struct omp_unit *unit, float *shares, float *d_logits, int64_t n)
{
	const int64_t pitch = unit->lanes.pitch, padded = unit->lanes.padded;

	if (b->softcap <= 0.0f) {
		b->isa->share(shares, d_logits, pitch, n, padded, b->scale, unit->totals,
			      unit->means);
		return;
	}
	for (int64_t key = 0; key < n; key++) {
		float *x = shares + key * pitch, *slope = s->slope + key * pitch;

		omp_logits(b->call->problem, x, padded);
		for (int64_t i = 0; i < padded; i++) {
			const float bent = x[i] / b->softcap;

			slope[i] = b->scale * (1.0f - bent * bent);
		}
	}
	b->isa->share(shares, d_logits, pitch, n, padded, 1.0f, unit->totals, unit->means);
	for (int64_t key = 0; key < n; key++)
		for (int64_t i = 0; i < padded; i++)
			d_logits[key * pitch + i] *= s->slope[key * pitch + i];
}

/* dq += k^T d_logits. Where 0 times what a lane does not see would be NaN, each
 * row adds up its own key rows alone. */
static void add_dq(const struct omp_backward *b, const struct omp_unit *unit,
		   const struct omp_view *view, const struct omp_matrix *k, const float *d_logits)
{
	const struct omp_lanes *lanes = &unit->lanes;
	const int64_t pitch = lanes->pitch, count = view->keys.end - view->keys.begin;

	if (view->whole || omp_is_finite(k->at, count, b->head_dim, k->pitch)) {
		b->isa->gemm_tn(b->head_dim, lanes->padded, count, k->at, k->pitch, d_logits, pitch,
				unit->dq, pitch, true);
		return;
	}
	for (int64_t i = 0; i < lanes->rows; i++) {
		const struct omp_range seen = omp_view_row(view, i);
		const int64_t lane = i * lanes->per_row;

		b->isa->gemm_tn(b->head_dim, lanes->per_row, seen.end - seen.begin,
				k->at + seen.begin * k->pitch, k->pitch,
				d_logits + seen.begin * pitch + lane, pitch, unit->dq + lane, pitch,
				true);
	}
}

void omp_unit_share(const struct omp_backward *b, const struct omp_backward_scratch *s,
		    const struct omp_unit *unit, int64_t part, const struct omp_view *view,
		    const int64_t *keys, int64_t from)
{
	const struct omp_lanes *lanes = &unit->lanes;
	const int64_t n = view->keys.end - view->keys.begin, kv_head = lanes->heads.kv_head;
	const int64_t padded = lanes->padded, pitch = lanes->pitch;
	const bool copy = padded > OMP_DIRECT_LANES_MOST;
	const struct omp_matrix k =
		omp_key_rows(b->isa, &b->keys, kv_head, keys, n, b->head_dim, copy, s->k);
	const struct omp_matrix v = b->v_is_k ? k
					      : omp_key_rows(b->isa, &b->values, kv_head, keys, n,
							     b->value_dim, copy, s->v);
	float *shares = unit->shares + from, *d_logits = unit->d_logits + from;

	b->isa->gemm_nn(n, padded, b->head_dim, k.at, k.pitch, part_of(b, s->q, part, b->head_dim),
			pitch, shares, pitch, false);
	b->isa->gemm_nn(n, padded, b->value_dim, v.at, v.pitch,
			part_of(b, s->grad_o, part, b->value_dim), pitch, d_logits, pitch, false);
	differentiate(b, s, unit, shares, d_logits, n);
	if (!view->whole) {
		omp_view_hide(view, lanes, shares, 0.0f);
		omp_view_hide(view, lanes, d_logits, 0.0f);
	}
	add_dq(b, unit, view, &k, d_logits);
}

void omp_unit_store_dq(const struct omp_backward *b, const struct omp_backward_scratch *s,
		       const struct omp_unit *unit)
{
	const struct omp_lanes *lanes = &unit->lanes;

	for (int64_t lane = 0; lane < lanes->count; lane++) {
		omp_lanes_row(unit->dq, lanes->pitch, lane, b->head_dim, s->product);
		omp_store(b->isa, &b->args->dq, row_of(lanes, lane), head_of(lanes, lane),
			  s->product, b->head_dim, b->add, s->spare);
	}
}

void omp_unit_add_dsink(const struct omp_backward *b, const struct omp_unit *unit)
{
	for (int64_t lane = 0; lane < unit->lanes.count; lane++) {
		const int64_t head = head_of(&unit->lanes, lane);
		const float sink = *(const float *)omp_at(&b->args->sink, head, 0, 0);
		const float total = unit->totals[lane];

		if (total != -(float)INFINITY)
			b->at.dsink[head] -=
				exp((double)sink - (double)total) * (double)unit->means[lane];
	}
}
