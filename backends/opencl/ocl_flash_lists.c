/* ocl_flash_lists.c - which rows read a tile of keys by their indices. Host side of
 * cl_kernels/flash_lists.clh. */
#include "ocl_flash.h"

#define LIST_TILE 64
#define LIST_ITEMS 64
#define SCAN 256
#define LOCAL 256

static int64_t take(int64_t *next, int64_t bytes)
{
	const int64_t at = *next;
	*next = hys_add64(*next, hys_round_up(bytes, HYS_ALIGN));
	return at;
}

int64_t hys_ocl_flash_reached(const struct hys_problem *problem, int64_t topk)
{
	return hys_mul64(topk, hys_ocl_divide_up(hys_index_span(problem), LIST_TILE) + 1);
}

int64_t hys_ocl_flash_lay_out_lists(int64_t next, const struct hys_size *size, int64_t rows,
				    struct hys_ocl_key_lists *lists)
{
	const int64_t groups = size->problem->scoring.groups;
	const int64_t tiles = hys_ocl_divide_up(size->keys, LIST_TILE);
	/* a row reaches no tile twice */
	const int64_t most = hys_min64(hys_ocl_flash_reached(size->problem, size->topk), tiles);
	const int64_t cells = hys_mul64(rows, groups), entries = hys_mul64(cells, most);

	lists->words = (int32_t)hys_ocl_divide_up(rows, 32);
	lists->tiles = (int32_t)tiles;
	lists->groups = (int32_t)groups;
	lists->most = (int32_t)most;
	lists->slopes = -1;
	lists->marks = take(&next, hys_mul64(groups * tiles * lists->words, 4));
	lists->before = take(&next, hys_mul64(groups * tiles * lists->words, 4));
	lists->starts = take(&next, (groups * tiles + 1) * 4);
	lists->rows = take(&next, hys_mul64(entries, 4));
	lists->keys = take(&next, hys_mul64(entries, 8));
	lists->counts = take(&next, hys_mul64(cells, 4));
	lists->reached = take(&next, hys_mul64(entries, 4));
	lists->entries = take(&next, hys_mul64(entries, 4));
	return next;
}

static hys_status launch(const struct hys_ocl_job *job, const struct hys_ocl_key_lists *lists,
			 const char *entry, int64_t items, int64_t local)
{
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, entry);
	hys_ocl_arg(&args, lists, sizeof(*lists));
	hys_ocl_arg_work(&args, job);
	return hys_ocl_flash_launch(&args, items, local, job->error);
}

/* The kernels that read the indices. */
static hys_status walk(const struct hys_ocl_job *job, const struct hys_call *call,
		       const struct hys_tensor *indices, const struct hys_ocl_key_lists *lists,
		       const char *entry)
{
	const struct hys_ocl_rules rules = hys_ocl_flash_rules(&call->size);
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, entry);
	hys_ocl_arg_tensor(&args, indices);
	hys_ocl_arg_array(&args, &call->batch.row_begin);
	hys_ocl_arg_array(&args, &call->batch.row_end);
	hys_ocl_arg(&args, &rules, sizeof(rules));
	hys_ocl_arg_i32(&args, call->size.rows);
	hys_ocl_arg(&args, lists, sizeof(*lists));
	hys_ocl_arg_work(&args, job);
	return hys_ocl_flash_launch(&args, call->size.rows * lists->groups, LOCAL, job->error);
}

hys_status hys_ocl_flash_make_lists(const struct hys_ocl_job *job, const struct hys_call *call,
				    const struct hys_tensor *indices,
				    const struct hys_ocl_key_lists *lists)
{
	const int64_t count = (int64_t)lists->groups * lists->tiles;
	hys_status status;

	HYS_TRY(launch(job, lists, "clear_marks", count * lists->words, LOCAL));
	HYS_TRY(walk(job, call, indices, lists, "mark_lists"));
	HYS_TRY(launch(job, lists, "count_lists", count * LIST_ITEMS, LIST_ITEMS));
	HYS_TRY(launch(job, lists, "start_lists", SCAN, SCAN));
	HYS_TRY(walk(job, call, indices, lists, "fill_lists"));
cleanup:
	return status;
}
