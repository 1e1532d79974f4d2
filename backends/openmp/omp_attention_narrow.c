/* omp_attention_narrow.c - attention forward where few heads share a key/value
 * head and rows share nothing.
 *
 * An item is one row and one set, for all heads that attend to it. Lanes are
 * rows of q[lanes][D], logits[lanes][keys] and o[lanes][V], and key rows are
 * read once each, where they lie unless they are not f32. */
#include <float.h>
#include <string.h>

#include "omp_attention.h"

struct scratch {
	int64_t keys[OMP_TILE];
	const float *k[OMP_TILE], *v[OMP_TILE];
	float *q, *o;		  /* [H][D], [H][V] */
	float *k_tile, *v_tile;	  /* [OMP_TILE][D], [OMP_TILE][V] */
	float *largest, *shares;  /* [H], [OMP_NARROW_LANES_MOST][OMP_TILE] */
	double *sum;		  /* [H] of exp(logit - largest) */
	int64_t k_pitch, v_pitch; /* of q and k, of o and v */
};

static struct scratch lay_out(struct omp_arena *arena, const struct hys_problem *problem)
{
	const int64_t heads = problem->attending.heads;
	struct scratch s = {
		.k_pitch = omp_pitch(problem->attending.head_dim),
		.v_pitch = omp_pitch(problem->attending.value_dim),
	};

	s.q = omp_take(arena, heads * s.k_pitch, sizeof(float));
	s.o = omp_take(arena, heads * s.v_pitch, sizeof(float));
	s.k_tile = omp_take(arena, OMP_TILE * s.k_pitch, sizeof(float));
	s.v_tile = omp_take(arena, OMP_TILE * s.v_pitch, sizeof(float));
	s.shares = omp_take(arena, (int64_t)OMP_NARROW_LANES_MOST * OMP_TILE, sizeof(float));
	s.largest = omp_take(arena, heads, sizeof(float));
	s.sum = omp_take(arena, heads, sizeof(double));
	return s;
}

int64_t omp_narrow_scratch(const struct hys_problem *problem)
{
	struct omp_arena arena = {0};

	lay_out(&arena, problem);
	return arena.used;
}

/* One lane's dot products become shares relative to the largest logit so far;
 * what was summed before shrinks accordingly. */
static void soften(const struct omp_forward *f, const struct scratch *s, int64_t lane, int64_t head,
		   int64_t count)
{
	float *x = s->shares + lane * OMP_TILE, shrink;

	if (f->capped)
		omp_logits(f->call->problem, x, count);
	const double sum =
		(double)f->isa->soften_row(x, count, f->scale, &s->largest[head], &shrink);

	s->sum[head] = s->sum[head] * (double)shrink + sum;
	if (shrink != 1.0f)
		omp_scale(s->o + head * s->v_pitch, f->value_dim, shrink);
}

static void attend_tile(const struct omp_forward *f, struct scratch *s,
			const struct omp_heads *heads, int64_t count)
{
	const int64_t lanes = heads->end - heads->begin;

	omp_key_pointers(f->isa, &f->keys, heads->kv_head, s->keys, count, f->head_dim, s->k_tile,
			 s->k);
	if (!f->v_is_k)
		omp_key_pointers(f->isa, &f->values, heads->kv_head, s->keys, count, f->value_dim,
				 s->v_tile, s->v);
	f->isa->dot_rows(lanes, count, f->head_dim, s->q + heads->begin * s->k_pitch, s->k_pitch,
			 s->k, s->shares, OMP_TILE);
	for (int64_t lane = 0; lane < lanes; lane++)
		soften(f, s, lane, heads->begin + lane, count);
	f->isa->add_rows(lanes, count, f->value_dim, s->shares, OMP_TILE, f->v_is_k ? s->k : s->v,
			 s->o + heads->begin * s->v_pitch, s->v_pitch);
}

void omp_narrow_item(void *context, int64_t item, int32_t thread)
{
	const struct omp_forward *f = context;
	const struct hys_problem *problem = f->call->problem;
	const int64_t groups = problem->scoring.groups, all = problem->attending.heads;
	const int64_t row = f->order[item / groups], group = item % groups;
	struct omp_arena arena = {f->scratch + thread * f->scratch_bytes, 0};
	struct scratch s = lay_out(&arena, problem);
	struct omp_walk walk;
	int64_t count;

	omp_load(f->isa, &f->args->q, row, 0, all, f->head_dim, s.q, s.k_pitch);
	memset(s.o, 0, (size_t)(all * s.v_pitch) * sizeof(float));
	for (int64_t head = 0; head < all; head++) {
		s.largest[head] = -FLT_MAX;
		s.sum[head] = 0.0;
	}
	omp_walk_start(&walk, &f->rows, row, group);
	while ((count = omp_walk_keys(&walk, s.keys, OMP_TILE)) > 0) {
		struct omp_heads heads = {0};

		while (omp_heads_next(problem, false, &heads))
			if (heads.group == group)
				attend_tile(f, &s, &heads, count);
	}
	for (int64_t head = group * all / groups; head < (group + 1) * all / groups; head++)
		omp_forward_finish(f, row, head, (double)s.largest[head], s.sum[head],
				   s.o + head * s.v_pitch);
}
