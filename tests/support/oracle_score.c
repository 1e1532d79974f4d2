/* Scores of entries, shared by select and the indexer loss. */
#include "oracle.h"
#include "oracle_internal.h"

/* relu keeps NaN. */
static double activate(enum ora_activation activation, double z)
{
	return activation == ORA_RELU && z < 0.0 ? 0.0 : z;
}

double ora_score(const struct ora_scoring *s, int64_t t, int32_t u, const double *key)
{
	const int32_t per_group = s->heads / ora_or_one(s->groups);
	double score = 0.0;
	for (int32_t j = u * per_group; j < (u + 1) * per_group; j++) {
		const double *q = s->index_q + (t * s->heads + j) * s->dim;
		const double w = s->index_w != NULL ? s->index_w[t * s->heads + j] : 1.0;
		score += w * activate(s->activation, s->scale * ora_dot(q, key, s->dim));
	}
	return score;
}

double ora_score_magnitude(const struct ora_scoring *s, int64_t t, int32_t u, const double *key)
{
	const int32_t per_group = s->heads / ora_or_one(s->groups);
	double magnitude = 0.0;
	for (int32_t j = u * per_group; j < (u + 1) * per_group; j++) {
		const double *q = s->index_q + (t * s->heads + j) * s->dim;
		const double w = s->index_w != NULL ? s->index_w[t * s->heads + j] : 1.0;
		double products = 0.0;
		for (int32_t d = 0; d < s->dim; d++)
			products += fabs(q[d] * key[d]);
		magnitude += fabs(w * s->scale) * products;
	}
	return magnitude;
}

void ora_entry_interval(const struct ora_scoring *s, int64_t t, int64_t *begin, int64_t *end)
{
	const int64_t origin = s->entry_origin != NULL ? s->entry_origin[t] : 0;
	*begin = ora_max(origin, s->index_begin != NULL ? s->index_begin[t] : 0);
	*begin = ora_max(*begin, 0);
	*end = s->index_end != NULL ? ora_min(s->index_end[t], s->entries) : s->entries;
	*end = ora_max(*end, *begin);
}
