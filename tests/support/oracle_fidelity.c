/* Merging of partial attention, and how much of dense attention a selection captures. */
#include "oracle.h"
#include "oracle_internal.h"

void ora_merge(int64_t vectors, int32_t value_dim, const double *o_a, const double *lse_a,
	       const double *o_b, const double *lse_b, double *o, double *lse)
{
	for (int64_t i = 0; i < vectors; i++) {
		const double total = ora_log_add_exp(lse_a[i], lse_b[i]);
		const double share_a = ora_share(lse_a[i], total),
			     share_b = ora_share(lse_b[i], total);
		for (int64_t d = i * value_dim; d < (i + 1) * value_dim; d++)
			o[d] = (share_a == 0.0 ? 0.0 : share_a * o_a[d]) +
			       (share_b == 0.0 ? 0.0 : share_b * o_b[d]);
		lse[i] = total;
	}
}

/* mass[s] = mean over the heads of group u of the dense softmax over the row's [begin, end), from `begin` on. */
static void dense_mass(const struct ora_attention *a, int64_t t, int32_t u, int64_t begin,
		       int64_t end, double *mass)
{
	const int32_t per_group = a->heads / ora_or_one(a->groups);
	double *logits = ora_doubles(end - begin);
	ora_zero(mass, end - begin);
	for (int32_t h = u * per_group; h < (u + 1) * per_group; h++) {
		const int32_t g = h / (a->heads / a->kv_heads);
		const double *q = a->q + (t * a->heads + h) * a->head_dim;
		for (int64_t s = begin; s < end; s++) {
			const double *k = a->k + (s * a->kv_heads + g) * a->head_dim;
			logits[s - begin] =
				ora_logit(ora_dot(q, k, a->head_dim), a->scale, a->softcap);
		}
		const double total = ora_log_sum_exp(logits, end - begin);
		for (int64_t i = 0; i < end - begin; i++)
			mass[i] += ora_share(logits[i], total) / (double)per_group;
	}
	free(logits);
}

double ora_row_mass(const struct ora_attention *a, int64_t t, int32_t u)
{
	int64_t begin, end;
	ora_key_interval(a, t, &begin, &end);
	if (begin == end)
		return 1.0;
	double *mass = ora_doubles(end - begin);
	int32_t *keys = ora_alloc(end - begin, sizeof *keys);
	dense_mass(a, t, u, begin, end, mass);
	const int64_t count = ora_attended_keys(a, t, u, keys);
	double captured = 0.0;
	for (int64_t i = 0; i < count; i++)
		captured += mass[keys[i] - begin];
	free(keys);
	free(mass);
	return captured;
}

static int compare_descending(const void *left, const void *right)
{
	const double a = *(const double *)left, b = *(const double *)right;
	return a > b ? -1 : a < b;
}

int32_t ora_row_keys_needed(const struct ora_attention *a, int64_t t, int32_t u, double target)
{
	int64_t begin, end;
	ora_key_interval(a, t, &begin, &end);
	double *mass = ora_doubles(end - begin);
	dense_mass(a, t, u, begin, end, mass);
	qsort(mass, (size_t)(end - begin), sizeof *mass, compare_descending);
	int32_t needed = 0;
	for (double sum = 0.0; sum < target && needed < end - begin; needed++)
		sum += mass[needed];
	free(mass);
	return needed;
}

double ora_row_recall(const int32_t *picks, int32_t picks_max, const int32_t *exact,
		      int32_t exact_max)
{
	int32_t wanted = 0, found = 0;
	for (int32_t i = 0; i < exact_max && exact[i] >= 0; i++, wanted++)
		for (int32_t j = 0; j < picks_max; j++)
			if (picks[j] == exact[i]) {
				found++;
				break;
			}
	return wanted > 0 ? (double)found / (double)wanted : 1.0;
}

void ora_fidelity_mass(const struct ora_attention *a, int64_t row_stride, int64_t row_offset,
		       double *mass)
{
	const int64_t row_end = ora_row_end(a->rows, a->row_first, a->row_count);
	for (int32_t u = 0; u < ora_or_one(a->groups); u++) {
		int64_t rows = 0;
		double sum = 0.0;
		for (int64_t t = a->row_first; t < row_end; t++) {
			int64_t begin, end;
			ora_key_interval(a, t, &begin, &end);
			if (t % ora_max(row_stride, 1) != row_offset || begin == end)
				continue;
			sum += ora_row_mass(a, t, u);
			rows++;
		}
		mass[u] = rows > 0 ? sum / (double)rows : 1.0;
	}
}
