/* omp_lanes.c - tiles whose columns are lanes, for attention. */
#include "omp_lanes.h"

#include <string.h>

struct omp_lanes omp_lanes(const struct omp_heads *heads, int64_t row, int64_t rows, int64_t pitch)
{
	const int64_t per_row = heads->end - heads->begin;

	return (struct omp_lanes){.heads = *heads,
				  .row = row,
				  .rows = rows,
				  .per_row = per_row,
				  .count = rows * per_row,
				  .padded = omp_pad_lanes(rows * per_row),
				  .pitch = pitch};
}

void omp_lanes_load(const struct omp_isa *isa, const struct hys_tensor *x,
		    const struct omp_lanes *lanes, int64_t dim, float *columns, float *spare,
		    int64_t spare_pitch)
{
	for (int64_t lane = 0; lane < lanes->padded; lane += OMP_LANES) {
		for (int64_t i = 0; i < OMP_LANES; i++) {
			const int64_t row = (lane + i) / lanes->per_row;
			const int64_t head = lanes->heads.begin + (lane + i) % lanes->per_row;
			float *to = spare + i * spare_pitch;

			if (lane + i < lanes->count)
				isa->to_f32(x->dtype, omp_at(x, lanes->row + row, head, 0), to,
					    dim);
			else
				memset(to, 0, (size_t)dim * sizeof *to);
		}
		for (int64_t d = 0; d < dim; d++)
			for (int64_t i = 0; i < OMP_LANES; i++)
				columns[d * lanes->pitch + lane + i] = spare[i * spare_pitch + d];
	}
}

void omp_lanes_row(const float *columns, int64_t pitch, int64_t lane, int64_t dim, float *row)
{
	for (int64_t d = 0; d < dim; d++)
		row[d] = columns[d * pitch + lane];
}

int64_t omp_shared_rows(const struct hys_problem *problem, int64_t wanted)
{
	const int64_t rows = wanted / omp_heads_most(problem);

	return hys_max64(1, hys_min64(rows, OMP_ROWS_MOST));
}

void omp_shared_start(struct omp_shared *shared, const struct omp_rows *rows,
		      const struct omp_lanes *lanes)
{
	struct omp_walk walk;

	for (int64_t i = 0; i < lanes->rows; i++) {
		omp_walk_start(&walk, rows, lanes->row + i, lanes->heads.group);
		shared->first[i] = walk.window;
		shared->second[i] = walk.second;
	}
}

struct omp_range omp_shared_all(const struct omp_range *ranges, int64_t rows)
{
	struct omp_range all = {INT64_MAX, 0};

	for (int64_t i = 0; i < rows; i++)
		if (ranges[i].begin < ranges[i].end) {
			all.begin = hys_min64(all.begin, ranges[i].begin);
			all.end = hys_max64(all.end, ranges[i].end);
		}
	return all;
}

bool omp_view_tile(struct omp_view *view, const struct omp_lanes *lanes,
		   const struct omp_range *ranges, struct omp_range tile)
{
	int64_t first = lanes->rows, last = -1;

	*view = (struct omp_view){.ranges = ranges, .keys = {tile.end, tile.begin}, .whole = true};
	for (int64_t i = 0; i < lanes->rows; i++) {
		const struct omp_range seen = {hys_max64(ranges[i].begin, tile.begin),
					       hys_min64(ranges[i].end, tile.end)};
		if (seen.begin >= seen.end)
			continue;
		first = hys_min64(first, i);
		last = i;
		view->keys.begin = hys_min64(view->keys.begin, seen.begin);
		view->keys.end = hys_max64(view->keys.end, seen.end);
	}
	if (last < 0)
		return false;
	view->lane_begin = first * lanes->per_row / OMP_LANES * OMP_LANES;
	view->lane_end = omp_pad_lanes((last + 1) * lanes->per_row);
	view->row_begin = view->lane_begin / lanes->per_row;
	view->row_end = hys_min64(lanes->rows, omp_ceil_div(view->lane_end, lanes->per_row));
	for (int64_t i = view->row_begin; i < view->row_end; i++)
		view->whole = view->whole && ranges[i].begin <= view->keys.begin &&
			      ranges[i].end >= view->keys.end;
	return true;
}

struct omp_range omp_view_row(const struct omp_view *view, int64_t i)
{
	const struct omp_range *range = &view->ranges[i];
	const int64_t count = view->keys.end - view->keys.begin;
	const int64_t begin = hys_max64(0, range->begin - view->keys.begin);
	const int64_t end = hys_min64(count, range->end - view->keys.begin);

	return begin < end ? (struct omp_range){begin, end} : (struct omp_range){0, 0};
}

void omp_view_hide(const struct omp_view *view, const struct omp_lanes *lanes, float *x,
		   float value)
{
	const int64_t count = view->keys.end - view->keys.begin;

	for (int64_t i = view->row_begin; i < view->row_end; i++) {
		const struct omp_range seen = omp_view_row(view, i);
		const int64_t begin = hys_max64(view->lane_begin, i * lanes->per_row);
		const int64_t end = hys_min64(view->lane_end, (i + 1) * lanes->per_row);

		for (int64_t key = 0; key < count; key++) {
			if (key == seen.begin && seen.begin < seen.end) {
				key = seen.end - 1;
				continue;
			}
			for (int64_t lane = begin; lane < end; lane++)
				x[key * lanes->pitch + lane] = value;
		}
	}
}

bool omp_is_finite(const float *x, int64_t rows, int64_t dim, int64_t pitch)
{
	float bad[4] = {0};

	for (int64_t i = 0; i < rows; i++, x += pitch) {
		int64_t d = 0;

		for (; d + 4 <= dim; d += 4)
			for (int j = 0; j < 4; j++)
				bad[j] += x[d + j] * 0.0f;
		for (; d < dim; d++)
			bad[0] += x[d] * 0.0f;
	}
	return (bad[0] + bad[1]) + (bad[2] + bad[3]) == 0.0f;
}
