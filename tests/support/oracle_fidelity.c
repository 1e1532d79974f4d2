/* Merging of partial attention, and how much of dense attention a selection captures. */
#include "oracle.h"
#include "oracle_internal.h"

void ora_merge(int64_t vectors, int32_t value_dim, const double *o_a, const double *lse_a,
               const double *o_b, const double *lse_b, double *o, double *lse)
{
    for (int64_t i = 0; i < vectors; i++) {
        const double total = ora_log_add_exp(lse_a[i], lse_b[i]);
        const double share_a = ora_share(lse_a[i], total), share_b = ora_share(lse_b[i], total);
        for (int64_t d = i * value_dim; d < (i + 1) * value_dim; d++)
            o[d] = (share_a == 0.0 ? 0.0 : share_a * o_a[d]) + (share_b == 0.0 ? 0.0 : share_b * o_b[d]);
        lse[i] = total;
    }
}

static int is_sampled(struct ora_sampling sampling, int64_t t)
{
    return t % ora_max(sampling.row_stride, 1) == sampling.row_offset;
}

/* mass[s] = mean over the heads of group u of the dense softmax over the row's [begin, end), from `begin` on. */
static void dense_mass(const struct ora_attention *a, int64_t t, int32_t u, int64_t begin, int64_t end, double *mass)
{
    const int32_t per_group = a->heads / ora_or_one(a->groups);
    double *logits = ora_doubles(end - begin);
    ora_zero(mass, end - begin);
    for (int32_t h = u * per_group; h < (u + 1) * per_group; h++) {
        const int32_t g = h / (a->heads / a->kv_heads);
        const double *q = a->q + (t * a->heads + h) * a->head_dim;
        for (int64_t s = begin; s < end; s++) {
            const double *k = a->k + (s * a->kv_heads + g) * a->head_dim;
            logits[s - begin] = ora_logit(ora_dot(q, k, a->head_dim), a->scale, a->softcap);
        }
        const double total = ora_log_sum_exp(logits, end - begin);
        for (int64_t i = 0; i < end - begin; i++)
            mass[i] += ora_share(logits[i], total) / (double)per_group;
    }
    free(logits);
}

/* Takes the mass of [begin, end) out of the row's array, so that each key row is counted once. */
static double take(double *mass, int64_t row_begin, int64_t begin, int64_t end)
{
    double taken = 0.0;
    for (int64_t s = begin; s < end; s++) {
        taken += mass[s - row_begin];
        mass[s - row_begin] = 0.0;
    }
    return taken;
}

void ora_fidelity_mass(const struct ora_attention *a, struct ora_sampling sampling, double *mass)
{
    const int64_t row_end = ora_row_end(a->rows, a->row_first, a->row_count);
    double *row_mass = ora_doubles(a->keys);
    int32_t *keys = ora_alloc(a->keys, sizeof *keys);
    for (int32_t u = 0; u < ora_or_one(a->groups); u++) {
        int64_t rows = 0;
        double sum = 0.0;
        for (int64_t t = a->row_first; t < row_end; t++) {
            int64_t begin, end;
            ora_key_interval(a, t, &begin, &end);
            if (!is_sampled(sampling, t) || begin == end)
                continue;
            dense_mass(a, t, u, begin, end, row_mass);
            const int64_t count = ora_attended_keys(a, t, u, keys);
            for (int64_t i = 0; i < count; i++)
                sum += row_mass[keys[i] - begin];
            rows++;
        }
        mass[u] = rows > 0 ? sum / (double)rows : 1.0;
    }
    free(keys);
    free(row_mass);
}

/* |picks in exact| / |exact| of one (row, group), or -1 if exact is empty. */
static double recall_of(const int32_t *picks, const int32_t *exact, int32_t topk)
{
    int32_t wanted = 0, found = 0;
    for (int32_t i = 0; i < topk && exact[i] >= 0; i++, wanted++)
        for (int32_t j = 0; j < topk; j++)
            if (picks[j] == exact[i]) {
                found++;
                break;
            }
    return wanted > 0 ? (double)found / (double)wanted : -1.0;
}

void ora_fidelity_recall(int64_t rows, int32_t groups, int32_t topk, const int32_t *picks, const int32_t *exact,
                         struct ora_sampling sampling, double *recall)
{
    for (int32_t u = 0; u < groups; u++) {
        int64_t counted = 0;
        double sum = 0.0;
        for (int64_t t = 0; t < rows; t++) {
            const int64_t slots = (t * groups + u) * topk;
            const double of_row = is_sampled(sampling, t) ? recall_of(picks + slots, exact + slots, topk) : -1.0;
            if (of_row < 0.0)
                continue;
            sum += of_row;
            counted++;
        }
        recall[u] = counted > 0 ? sum / (double)counted : 1.0;
    }
}

/* Adds the captured mass of one row to curve[0..topk_max]. */
static void add_curve(const struct ora_attention *a, const struct ora_select *select, int64_t t, int32_t u,
                      int32_t topk_max, double *row_mass, struct ora_candidate *ranking, double *curve)
{
    int64_t begin, end;
    ora_key_interval(a, t, &begin, &end);
    dense_mass(a, t, u, begin, end, row_mass);
    double captured = take(row_mass, begin, ora_max(begin, end - a->window), end);
    captured += take(row_mass, begin, begin, ora_min(end, begin + a->first));
    const int64_t count = ora_select_rank(select, t, u, ranking);
    curve[0] += captured;
    for (int32_t n = 1; n <= topk_max; n++) {
        int64_t from, to;
        if (n <= count) {
            ora_index_keys(a, t, ranking[n - 1].index, &from, &to);
            captured += take(row_mass, begin, from, to);
        }
        curve[n] += captured;
    }
}

void ora_fidelity_curve(const struct ora_attention *a, const struct ora_select *select,
                        struct ora_sampling sampling, int32_t topk_max, double *curve)
{
    const int64_t row_end = ora_row_end(a->rows, a->row_first, a->row_count);
    const int64_t points = (int64_t)topk_max + 1;
    double *row_mass = ora_doubles(a->keys);
    struct ora_candidate *ranking = ora_alloc(select->scoring.entries + 1, sizeof *ranking);
    for (int32_t u = 0; u < ora_or_one(a->groups); u++) {
        double *of_group = curve + u * points;
        int64_t rows = 0;
        ora_zero(of_group, points);
        for (int64_t t = a->row_first; t < row_end; t++) {
            int64_t begin, end;
            ora_key_interval(a, t, &begin, &end);
            if (!is_sampled(sampling, t) || begin == end)
                continue;
            add_curve(a, select, t, u, topk_max, row_mass, ranking, of_group);
            rows++;
        }
        for (int64_t n = 0; n < points; n++)
            of_group[n] = rows > 0 ? of_group[n] / (double)rows : 1.0;
    }
    free(ranking);
    free(row_mass);
}

int32_t ora_fidelity_smallest(const double *curve, int32_t topk_max, double target)
{
    for (int32_t n = 0; n <= topk_max; n++)
        if (curve[n] >= target)
            return n;
    return -1;
}
