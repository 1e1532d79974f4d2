/* omp_tile.c - f32 tiles of heads and key rows, for attention and the loss. */
#include "omp_tile.h"

#include <math.h>

/* Rows that a gather asks memory for before it needs them. */
#define AHEAD 8
#define CACHE_LINE 64

bool omp_heads_next(const struct hys_problem *problem, bool one_group, struct omp_heads *heads)
{
	const struct hys_attending *attending = &problem->attending;
	const int64_t per_kv = attending->heads / attending->kv_heads;
	const int64_t groups = one_group ? 1 : problem->scoring.groups;
	const int64_t per_group = attending->heads / groups;
	const int64_t begin = heads->end;

	if (begin >= attending->heads)
		return false;
	*heads = (struct omp_heads){begin, 0, begin / per_kv, begin / per_group};
	heads->end = hys_min64((heads->kv_head + 1) * per_kv, (heads->group + 1) * per_group);
	return true;
}

int64_t omp_heads_most(const struct hys_problem *problem)
{
	return problem->attending.heads / problem->attending.kv_heads;
}

int64_t omp_parts_most(const struct hys_problem *problem)
{
	const int64_t per_kv = problem->attending.heads / problem->attending.kv_heads;
	const int64_t per_group = problem->attending.heads / problem->scoring.groups;

	return per_group / per_kv + 2; /* one may be cut at either end */
}

struct omp_source omp_values(const struct omp_source *keys, const struct hys_tensor *v,
			     const struct hys_tensor *window_v)
{
	return (struct omp_source){hys_present(v) ? v : keys->first,
				   hys_present(window_v) ? window_v : keys->second, keys->split};
}

/* One array of a source, for one head. */
struct array {
	const char *base;
	int64_t row_bytes;
	hys_dtype dtype;
};

static struct array array_of(const struct hys_tensor *from, int64_t kv_head)
{
	if (!from)
		return (struct array){0};
	return (struct array){omp_at(from, 0, kv_head, 0),
			      from->stride[0] * (int64_t)hys_dtype_size(from->dtype), from->dtype};
}

/* Where rows of both arrays of a source lie. */
struct place {
	struct array first, second;
	int64_t split;
};

static struct place place_of(const struct omp_source *source, int64_t kv_head)
{
	return (struct place){array_of(source->first, kv_head), array_of(source->second, kv_head),
			      source->split};
}

static inline const char *row_of(const struct place *place, int64_t row, hys_dtype *dtype)
{
	const bool second = row >= place->split;
	const struct array *from = second ? &place->second : &place->first;

	*dtype = from->dtype;
	return from->base + (second ? row - place->split : row) * from->row_bytes;
}

static void prefetch_row(const struct place *place, int64_t row, int64_t dim)
{
	hys_dtype dtype;
	const char *at = row_of(place, row, &dtype);
	const char *end = at + dim * (dtype == HYS_F32 ? 4 : dtype == HYS_F8E4M3 ? 1 : 2);

	for (; at < end; at += CACHE_LINE)
		__builtin_prefetch(at, 0, 2);
}

void omp_prefetch(const struct omp_source *source, int64_t kv_head, int64_t kv_heads,
		  const int64_t *rows, int64_t count, int64_t dim)
{
	for (int64_t i = 0; i < count; i++)
		for (int64_t head = kv_head; head < kv_head + kv_heads; head++) {
			const struct place place = place_of(source, head);

			prefetch_row(&place, rows[i], dim);
		}
}

void omp_gather(const struct omp_isa *isa, const struct omp_source *source, int64_t kv_head,
		const int64_t *rows, int64_t count, int64_t dim, float *tile, int64_t pitch)
{
	const struct place place = place_of(source, kv_head);
	hys_dtype dtype;

	for (int64_t i = 0; i < count; i++) {
		if (i + AHEAD < count)
			prefetch_row(&place, rows[i + AHEAD], dim);
		const char *from = row_of(&place, rows[i], &dtype);

		isa->to_f32(dtype, from, tile + i * pitch, dim);
	}
}

struct omp_matrix omp_key_rows(const struct omp_isa *isa, const struct omp_source *source,
			       int64_t kv_head, const int64_t *rows, int64_t count, int64_t dim,
			       bool copy, float *tile)
{
	const struct hys_tensor *from = rows[0] >= source->split ? source->second : source->first;
	const int64_t first = rows[0] >= source->split ? rows[0] - source->split : rows[0];
	const int64_t last = rows[count - 1];

	if (!copy && from->dtype == HYS_F32 && last - rows[0] == count - 1 &&
	    (rows[0] >= source->split || last < source->split))
		return (struct omp_matrix){omp_at(from, first, kv_head, 0), from->stride[0]};
	omp_gather(isa, source, kv_head, rows, count, dim, tile, omp_pitch(dim));
	return (struct omp_matrix){tile, omp_pitch(dim)};
}

void omp_key_pointers(const struct omp_isa *isa, const struct omp_source *source, int64_t kv_head,
		      const int64_t *rows, int64_t count, int64_t dim, float *tile,
		      const float **pointers)
{
	const struct place place = place_of(source, kv_head);
	const int64_t pitch = omp_pitch(dim);
	hys_dtype dtype;

	for (int64_t i = 0; i < count; i++) {
		const void *row = row_of(&place, rows[i], &dtype);

		pointers[i] = dtype == HYS_F32 ? row : tile + i * pitch;
		if (dtype != HYS_F32)
			isa->to_f32(dtype, row, tile + i * pitch, dim);
	}
}

void omp_load(const struct omp_isa *isa, const struct hys_tensor *x, int64_t row, int64_t first,
	      int64_t count, int64_t dim, float *tile, int64_t pitch)
{
	for (int64_t i = 0; i < count; i++)
		isa->to_f32(x->dtype, omp_at(x, row, first + i, 0), tile + i * pitch, dim);
}

void omp_store(const struct omp_isa *isa, const struct hys_tensor *x, int64_t i0, int64_t i1,
	       float *values, int64_t n, bool add, float *spare)
{
	void *target = omp_at(x, i0, i1, 0);

	if (add) {
		isa->to_f32(x->dtype, target, spare, n);
		for (int64_t i = 0; i < n; i++)
			values[i] += spare[i];
	}
	isa->from_f32(x->dtype, values, target, n);
}

void omp_scale(float *x, int64_t n, float factor)
{
	for (int64_t i = 0; i < n; i++)
		x[i] *= factor;
}

float omp_sum(const float *x, int64_t n)
{
	float lane[8] = {0};
	int64_t i = 0;

	for (; i + 8 <= n; i += 8)
		for (int j = 0; j < 8; j++)
			lane[j] += x[i + j];
	for (int j = 0; i + j < n; j++)
		lane[j] += x[i + j];
	return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
	       ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

void omp_logits(const struct hys_problem *problem, float *x, int64_t n)
{
	const float cap = (float)problem->attending.softcap;

	omp_scale(x, n, (float)problem->attending.scale);
	for (int64_t i = 0; cap > 0.0f && i < n; i++)
		x[i] = cap * tanhf(x[i] / cap);
}

double omp_log_add(double a, double b)
{
	const double larger = a > b ? a : b;
	const double smaller = a > b ? b : a;

	if (isnan(a) || isnan(b))
		return a + b;
	return isinf(larger) ? larger : larger + log1p(exp(smaller - larger));
}
