#include "bench_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64: a counter through a mixing function. */
static uint64_t next(uint64_t *seed)
{
	uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* Sum of four 16-bit uniforms, shifted and scaled to variance 1: close to normal, and quick. */
static double normal(uint64_t *seed)
{
	uint64_t bits = next(seed);
	double sum = 0;
	for (int i = 0; i < 4; i++)
		sum += (double)(bits >> 16 * i & 0xffff) / 65536.0;
	return (sum - 2) * sqrt(3.0);
}

static void fail(struct bench_data *data, hys_status status, const char *message)
{
	data->failed = true;
	data->error = (struct hys_error){.status = status};
	snprintf(data->error.message, sizeof data->error.message, "%s", message);
}

static bool upload(struct bench_data *data, struct hys_buffer *buffer, const void *host,
		   int64_t bytes)
{
	data->failed =
		hys_buffer_write(data->exec, buffer, 0, host, bytes, &data->error) != HYS_OK ||
		hys_exec_finish(data->exec, &data->error) != HYS_OK;
	return !data->failed;
}

static struct hys_buffer *new_buffer(struct bench_data *data, int64_t bytes)
{
	struct hys_buffer **slot = &data->buffers[data->count];
	if (data->failed)
		return NULL;
	if (data->count_only) {
		data->bytes += bytes;
		return NULL;
	}
	if (data->count == BENCH_BUFFERS_MAX) {
		fail(data, HYS_INTERNAL, "too many operands");
		return NULL;
	}
	data->failed = hys_buffer_create(data->context, data->device, bytes > 0 ? bytes : 1, slot,
					 &data->error) != HYS_OK;
	if (data->failed)
		return NULL;
	data->count++;
	data->bytes += bytes;
	return *slot;
}

/* Past the first FRESH, runs of those from random places, which is much quicker. */
void bench_fill(char *host, hys_dtype dtype, int64_t n, double spread, uint64_t *seed)
{
	enum { FRESH = 1 << 24, RUN = 1 << 12 };
	const int64_t size = (int64_t)hys_dtype_size(dtype), fresh = n < FRESH ? n : FRESH;
	for (int64_t i = 0; i < fresh; i++)
		tool_put(dtype, host, i, spread * normal(seed));
	for (int64_t i = fresh; i < n; i += RUN) {
		int64_t from = (int64_t)(next(seed) % (FRESH - RUN));
		int64_t count = n - i < RUN ? n - i : RUN;
		memcpy(host + i * size, host + from * size, (size_t)(count * size));
	}
}

/* Rows of `dim` normal numbers, times log-normal ones that are alike for RUN. */
static void fill_keys(char *host, hys_dtype dtype, int64_t n, int64_t dim, double sigma,
		      uint64_t *seed)
{
	enum { RUN = 64 };
	double norm = 1.0;
	for (int64_t i = 0; i < n; i++) {
		if (i % (RUN * dim) == 0)
			norm = exp(sigma * normal(seed));
		tool_put(dtype, host, i, norm * normal(seed));
	}
}

struct hys_tensor bench_keys(struct bench_data *data, hys_dtype dtype, int64_t keys, int64_t dim,
			     double sigma)
{
	if (sigma <= 0)
		return bench_tensor(data, dtype, 2, keys, dim, 0, 1);
	int64_t bytes = keys * dim * (int64_t)hys_dtype_size(dtype);
	struct hys_buffer *buffer = new_buffer(data, bytes);
	char *host = malloc((size_t)bytes + 1);
	if (!host)
		fail(data, HYS_OUT_OF_MEMORY, "no host memory to make operands in");
	if (host && buffer) {
		fill_keys(host, dtype, keys * dim, dim, sigma, &data->seed);
		upload(data, buffer, host, bytes);
	}
	free(host);
	return hys_device(buffer, 0, dtype, 2, keys, dim, 0);
}

/* Makes some rows equal to the one before. */
static void repeat_rows(char *host, int64_t rows, int64_t row_bytes, double share)
{
	for (int64_t t = 1; t < rows; t++) {
		uint64_t seed = (uint64_t)t;
		if ((double)(next(&seed) >> 11) * 0x1p-53 < share)
			memcpy(host + t * row_bytes, host + (t - 1) * row_bytes, (size_t)row_bytes);
	}
}

static void drop_signs(float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = fabsf(x[i]);
}

/* Normal numbers times `spread`, of f32 perhaps without their signs. */
static struct hys_buffer *filled(struct bench_data *data, hys_dtype dtype, int64_t rows, int64_t n,
				 double spread, double share, bool positive)
{
	const int64_t bytes = n * (int64_t)hys_dtype_size(dtype);
	struct hys_buffer *buffer = new_buffer(data, bytes);
	if (spread > 0 && bytes > data->staged)
		data->staged = bytes;
	if (buffer && spread > 0) {
		char *host = malloc((size_t)bytes + 1);
		if (host) {
			bench_fill(host, dtype, n, spread, &data->seed);
			if (positive)
				drop_signs((float *)(void *)host, n);
			if (share > 0)
				repeat_rows(host, rows, bytes / rows, share);
			upload(data, buffer, host, bytes);
		} else {
			fail(data, HYS_OUT_OF_MEMORY, "no host memory to make operands in");
		}
		free(host);
	}
	return buffer;
}

struct hys_tensor bench_tensor(struct bench_data *data, hys_dtype dtype, int32_t rank, int64_t n0,
			       int64_t n1, int64_t n2, double spread)
{
	const int64_t n = n0 * (rank > 1 ? n1 : 1) * (rank > 2 ? n2 : 1);
	return hys_device(filled(data, dtype, n0, n, spread, 0, false), 0, dtype, rank, n0, n1, n2);
}

struct hys_tensor bench_rows(struct bench_data *data, hys_dtype dtype, int32_t rank, int64_t n0,
			     int64_t n1, int64_t n2, double share)
{
	const int64_t n = n0 * n1 * (rank > 2 ? n2 : 1);
	return hys_device(filled(data, dtype, n0, n, 1, share, false), 0, dtype, rank, n0, n1, n2);
}

struct hys_tensor bench_weights(struct bench_data *data, int64_t rows, int64_t heads, double share,
				bool positive)
{
	return hys_device(filled(data, HYS_F32, rows, rows * heads, 1, share, positive), 0, HYS_F32,
			  2, rows, heads, 0);
}

/* Marks `count` of `choices` places (Floyd's sampling). */
static void mark_distinct(uint8_t *marks, int64_t choices, int64_t count, uint64_t *seed)
{
	memset(marks, 0, (size_t)choices);
	for (int64_t j = choices - count; j < choices; j++) {
		int64_t pick = (int64_t)(next(seed) % (uint64_t)(j + 1));
		marks[marks[pick] ? j : pick] = 1;
	}
}

/* Keeps about `share` of the marks of the list above and adds others at random. */
static void mark_like(const int32_t *above, int64_t topk, int64_t choices, int64_t count,
		      int64_t step, double share, uint8_t *marks, uint64_t *seed)
{
	int64_t marked = 0;
	memset(marks, 0, (size_t)choices);
	for (int64_t i = 0; i < topk && above[i] >= 0; i++)
		if ((double)(next(seed) >> 11) * 0x1p-53 < share) {
			marks[above[i] / step] = 1;
			marked++;
		}
	while (marked < count) {
		uint8_t *mark = &marks[next(seed) % (uint64_t)choices];
		marked += !*mark;
		*mark = 1;
	}
}

/* `above`: the same group's list of the row before, or NULL. */
static void choose(int32_t *list, const int32_t *above, const struct bench_choice *choice,
		   int64_t visible, uint8_t *marks, uint64_t *seed)
{
	int64_t step = choice->step, topk = choice->topk;
	int64_t choices = (visible + step - 1) / step, kept = 0;
	int64_t count = choices < topk ? choices : topk;
	if (above && choice->share > 0)
		mark_like(above, topk, choices, count, step, choice->share, marks, seed);
	else
		mark_distinct(marks, choices, count, seed);
	for (int64_t i = 0; i < choices; i++)
		if (marks[i])
			list[kept++] = (int32_t)(i * step);
	while (kept < topk)
		list[kept++] = -1;
}

struct hys_tensor bench_indices(struct bench_data *data, const struct bench_choice *choice)
{
	const int64_t rows = choice->rows, groups = choice->groups, topk = choice->topk;
	int64_t bytes = rows * groups * topk * 4;
	struct hys_buffer *buffer = new_buffer(data, bytes);
	int32_t *host = malloc((size_t)bytes + 1);
	uint8_t *marks = malloc((size_t)choice->keys + 1);
	const bool made = host && marks;
	if (!made)
		fail(data, HYS_OUT_OF_MEMORY, "no host memory to make indices in");
	for (int64_t list = 0; made && !data->failed && list < rows * groups; list++) {
		int64_t visible =
			choice->causal ? choice->keys - rows + list / groups + 1 : choice->keys;
		choose(host + list * topk, list < groups ? NULL : host + (list - groups) * topk,
		       choice, visible > 0 ? visible : 0, marks, &data->seed);
	}
	if (!data->failed)
		upload(data, buffer, host, bytes);
	free(marks);
	free(host);
	return hys_device(buffer, 0, HYS_I32, 3, rows, groups, topk);
}

void bench_flush(struct bench_data *data)
{
	const int64_t bytes = (int64_t)256 << 20; /* more than any cache of today */
	if (!data->flushed)
		data->flushed = new_buffer(data, bytes);
	if (!data->failed)
		data->failed = hys_buffer_fill(data->exec, data->flushed, 0, bytes, 1,
					       &data->error) != HYS_OK ||
			       hys_exec_finish(data->exec, &data->error) != HYS_OK;
}

void bench_data_free(struct bench_data *data)
{
	for (int32_t i = 0; i < data->count; i++)
		hys_buffer_destroy(data->buffers[i]);
	data->count = 0;
}
