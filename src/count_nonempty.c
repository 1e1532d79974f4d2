/* How many (row, group) of an indexer loss have a set: what `mean` divides by,
 * when several devices share the rows. On the host, where all tensors of such
 * a call are. */
#include "core.h"

/* Whether row t sees of what index i stands for: a key row, for the teacher, and
 * an entry, for a score. */
static bool index_sees(const struct hys_task *task, int64_t t, int64_t i)
{
	const struct hys_batch *batch = task->batch;
	const struct hys_problem *problem = task->call.problem;
	const struct hys_batch_arrays *host = &batch->host;
	const int64_t span = hys_index_span(problem), step = hys_index_step(problem);
	int64_t begin = i;

	if (problem->scoring.pool > 1) {
		if (i >= batch->entries)
			return false;
		begin = host->key_origin[t] + (i - host->entry_origin[t]) * span;
	}
	return hys_max64(begin, host->row_begin[t]) < hys_min64(begin + span, host->row_end[t]) &&
	       hys_max64(i, host->index_begin[t]) < hys_min64(i + step, host->index_end[t]);
}

static double share_of(const struct hys_tensor *teacher, int64_t row, int64_t group, int64_t slot)
{
	return (double)((const float *)teacher->host)[row * teacher->stride[0] +
						      group * teacher->stride[1] + slot];
}

/* Slots in order, as everywhere: what lies below the last accepted index plus
 * the step is absent. */
static bool has_set(const struct hys_task *task, int64_t row, int64_t group)
{
	const struct hys_loss_args *loss = &task->call.args.loss;
	const struct hys_tensor *indices = &loss->indices;
	const int64_t step = hys_index_step(task->call.problem);
	const int32_t *slots = (const int32_t *)indices->host + row * indices->stride[0] +
			       group * indices->stride[1];
	int64_t least = 0;
	double sum = 0;

	for (int64_t s = 0; s < indices->shape[2]; s++) {
		if (slots[s] < least || !index_sees(task, task->call.row_first + row, slots[s]))
			continue;
		if (!hys_present(&loss->teacher_in))
			return true;
		sum += share_of(&loss->teacher_in, row, group, s);
		least = slots[s] + step;
	}
	return sum != 0;
}

int64_t hys_count_nonempty(const struct hys_task *task)
{
	const struct hys_loss_args *loss = &task->call.args.loss;
	const struct hys_batch_arrays *host = &task->batch->host;
	const int64_t groups = task->call.problem->scoring.groups;
	int64_t count = 0;

	for (int64_t row = 0; row < task->call.size.rows; row++) {
		const int64_t t = task->call.row_first + row;

		if (t % loss->row_stride != loss->row_offset)
			continue;
		if (loss->flags & HYS_LOSS_DENSE)
			count += host->index_begin[t] < host->index_end[t] ? groups : 0;
		else
			for (int64_t u = 0; u < groups; u++)
				count += has_set(task, row, u);
	}
	return count;
}
