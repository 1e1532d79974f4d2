/* omp_backward_narrow.c - shares, d logits and dq of sets of one row whose key
 * rows few heads share. */
#include <math.h>
#include <string.h>

#include "omp_backward.h"

void omp_narrow_start(const struct omp_backward *b, const struct omp_backward_scratch *s,
		      struct omp_unit *unit)
{
	const struct omp_lanes *lanes = &unit->lanes;
	const float *o = s->spare;

	for (int64_t lane = 0; lane < lanes->count; lane++) {
		const int64_t head = lanes->heads.begin + lane;

		unit->totals[lane] = omp_unit_total(b, lanes->row, head);
		omp_load(b->isa, &b->args->grad_o, lanes->row, head, 1, b->value_dim, s->grad_o, 0);
		omp_load(b->isa, &b->args->o, lanes->row, head, 1, b->value_dim, s->spare, 0);
		/* As d shares are computed, so that a single key row cancels exactly. */
		b->isa->dot_rows(1, 1, b->value_dim, s->grad_o, 0, &o, &unit->means[lane], 1);
	}
	memset(unit->dq, 0, (size_t)(lanes->count * b->at.q_pitch) * sizeof(float));
}

/* Part i of [parts][lanes][pitch]. */
static float *part_of(const struct omp_backward *b, float *rows, int64_t i, int64_t pitch)
{
	return rows + i * omp_heads_most(b->call->problem) * pitch;
}

void omp_narrow_load(const struct omp_backward *b, const struct omp_backward_scratch *s,
		     const struct omp_unit *unit, int64_t part)
{
	const struct omp_lanes *lanes = &unit->lanes;

	omp_load(b->isa, &b->args->q, lanes->row, lanes->heads.begin, lanes->count, b->head_dim,
		 part_of(b, s->q, part, b->at.q_pitch), b->at.q_pitch);
	omp_load(b->isa, &b->args->grad_o, lanes->row, lanes->heads.begin, lanes->count,
		 b->value_dim, part_of(b, s->grad_o, part, b->at.v_pitch), b->at.v_pitch);
}

/* One lane's dot products become shares, its d shares d logits; n is rounded up
 * to whole groups of lanes, which there is room for. */
static void differentiate(const struct omp_backward *b, const struct omp_backward_scratch *s,
			  float total, float mean, float *shares, float *d_logits, int64_t n)
{
	float totals[OMP_TILE], means[OMP_TILE];
	const int64_t padded = omp_pad_lanes(n);

	for (int64_t i = 0; i < padded; i++) {
		totals[i] = total;
		means[i] = mean;
	}
	for (int64_t i = n; i < padded; i++)
		shares[i] = d_logits[i] = 0.0f;
	if (b->softcap <= 0.0f) {
		b->isa->share(shares, d_logits, 0, 1, padded, b->scale, totals, means);
		return;
	}
	omp_logits(b->call->problem, shares, n);
	for (int64_t i = 0; i < n; i++) {
		const float bent = shares[i] / b->softcap;

		s->slope[i] = b->scale * (1.0f - bent * bent);
	}
	b->isa->share(shares, d_logits, 0, 1, padded, 1.0f, totals, means);
	for (int64_t i = 0; i < n; i++)
		d_logits[i] *= s->slope[i];
}

void omp_narrow_share(const struct omp_backward *b, const struct omp_backward_scratch *s,
		      const struct omp_unit *unit, int64_t part, const int64_t *keys, int64_t n,
		      int64_t at)
{
	const struct omp_lanes *lanes = &unit->lanes;
	const int64_t count = lanes->count, pitch = b->at.chunk_pitch;
	const float *const *v_rows = b->v_is_k ? s->k_rows : s->v_rows;
	float *shares = unit->shares + at, *d_logits = unit->d_logits + at;

	omp_key_pointers(b->isa, &b->keys, lanes->heads.kv_head, keys, n, b->head_dim, s->k,
			 s->k_rows);
	if (!b->v_is_k)
		omp_key_pointers(b->isa, &b->values, lanes->heads.kv_head, keys, n, b->value_dim,
				 s->v, s->v_rows);
	b->isa->dot_rows(count, n, b->head_dim, part_of(b, s->q, part, b->at.q_pitch),
			 b->at.q_pitch, s->k_rows, shares, pitch);
	b->isa->dot_rows(count, n, b->value_dim, part_of(b, s->grad_o, part, b->at.v_pitch),
			 b->at.v_pitch, v_rows, d_logits, pitch);
	for (int64_t lane = 0; lane < count; lane++)
		differentiate(b, s, unit->totals[lane], unit->means[lane], shares + lane * pitch,
			      d_logits + lane * pitch, n);
	b->isa->add_rows(count, n, b->head_dim, d_logits, pitch, s->k_rows, unit->dq,
			 b->at.q_pitch);
}

void omp_narrow_store_dq(const struct omp_backward *b, const struct omp_backward_scratch *s,
			 const struct omp_unit *unit)
{
	const struct omp_lanes *lanes = &unit->lanes;

	for (int64_t lane = 0; lane < lanes->count; lane++)
		omp_store(b->isa, &b->args->dq, lanes->row, lanes->heads.begin + lane,
			  unit->dq + lane * b->at.q_pitch, b->head_dim, b->add, s->spare);
}
