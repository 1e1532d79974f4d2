/* ocl_select_scan.c - select by one pass over the keys: programs, workspace, launches. */
#include "ocl_select_scan.h"

#include <math.h>
#include <stdio.h>

/* As in select_scan.clh, select_order.clh and select_skip.clh. */
#define SEGMENT 8192 /* keys */
#define JUDGED_LINES 64
#define SORT_ITEMS 512
#define PREPARE_ITEMS 128
#define TILE_LINES 64 /* a multiple of what any scan takes */
#define KEY_ITEMS 256 /* keys that a work-group measures */
#define CHUNKS_MOST 512
#define ORDER_ITEMS 256
#define HELD_ITEMS 4096
#define WEIGHTS_BYTES 448 /* of a line at most */
#define THRESHOLD_LINES 4 /* of a work-group */
#define LINE_BYTES 16	  /* of struct line, of struct range */
#define PAIR_BYTES 8

#define SPLITS_MAX 8
#define LISTS_MAX 64	  /* of a line */
#define LARGEST_TILE 1.25 /* of a compute unit's share of all work */
#define CAPACITY_LEAST 64
#define CAPACITY_MORE 48
#define SAMPLES_MOST 4096
#define SAMPLES_FEW 1024 /* that find_thresholds takes */
#define CHUNK_LEAST 2048
#define SLOTS_MOST 1024
#define SCRATCH_BYTES ((int64_t)256 << 20)
/* Of lists and samples: what limits the lines of a pass. */
#define PASS_BYTES_LEAST ((int64_t)256 << 20)
#define PASS_BYTES_MOST ((int64_t)3 << 30)

#define ENTRIES                                                                                   \
	"prepare_lines", "find_thresholds", "find_thresholds_many", "scan_keys", "choose_listed", \
		"choose_long", "repair_lines", "count_nan_rows"

#define SKIPPING_ENTRIES \
	"judge_skipping", "order_keys", "find_reaches", "scan_in_order", "name_listed"

static const char *const entries[] = {ENTRIES, NULL};
static const char *const wgmma_entries[] = {ENTRIES, SKIPPING_ENTRIES, NULL};
static const char *const e4m3_entries[] = {ENTRIES, SKIPPING_ENTRIES, "measure_keys", NULL};

static void define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_ocl_scan *scan = (const struct hys_ocl_scan *)(const void *)source;
	const struct hys_scoring *scoring = &problem->scoring;
	const int32_t relu = scoring->scale < 0 ? 2 : 1;
	(void)device;
	hys_ocl_define(options, "INDEX_TYPE", scoring->dtype);
	hys_ocl_define(options, "GROUP_HEADS", scoring->heads / scoring->groups);
	hys_ocl_define(options, "DIM", scoring->dim);
	hys_ocl_define(options, "KEY_GROUPS", scan->key_groups);
	hys_ocl_define(options, "KEY_SETS", scan->key_sets);
	hys_ocl_define(options, "ACTIVATION",
		       scoring->activation == HYS_ACTIVATION_RELU ? relu : 0);
	if (scan->local_bytes)
		hys_ocl_define(options, "LOCAL_BYTES", scan->local_bytes);
}

const struct hys_ocl_scan hys_ocl_scan_wgmma = {
	.source = {"select_wgmma.cl", wgmma_entries, define, NULL, "sm_90a"},
	.local_bytes = 143360,
	.items = 384,
	.tile_lines = 64,
	.line_lists = 8,
	.key_groups = 2,
	.key_sets = 4,
	.skips = true,
};

/* Keys of one byte a channel take half the registers: there is room for twice as many warpgroups. */
const struct hys_ocl_scan hys_ocl_scan_wgmma_e4m3 = {
	.source = {"select_wgmma.cl", e4m3_entries, define, NULL, "sm_90a"},
	.local_bytes = 147456,
	.items = 640,
	.tile_lines = 64,
	.line_lists = 16,
	.key_groups = 4,
	.key_sets = 4,
	.e4m3 = true,
	.skips = true,
};

/* Tensor cores of sm_80 and newer, 48 KiB of local memory. */
const struct hys_ocl_scan hys_ocl_scan_mma = {
	.source = {"select_scan_mma.cl", entries, define, NULL, ""},
	.items = 256,
	.tile_lines = 8,
	.line_lists = 1,
	.key_groups = 2,
	.key_sets = 1,
};

bool hys_ocl_scan_applicable(const struct hys_kernel *kernel, const struct hys_device *device,
			     const struct hys_problem *problem, char reason[HYS_REASON_SIZE])
{
	const struct hys_scoring *scoring = &problem->scoring;
	const struct hys_choosing *choosing = &problem->choosing;
	const struct hys_ocl_scan *scan = kernel->detail;
	(void)device;
	if (scan->e4m3 ? scoring->dtype != HYS_F8E4M3
		       : scoring->dtype != HYS_BF16 && scoring->dtype != HYS_F16)
		snprintf(reason, HYS_REASON_SIZE, "it scores %s, the index is %s",
			 scan->e4m3 ? "f8e4m3" : "bf16 and f16", hys_dtype_name(scoring->dtype));
	else if (scoring->heads / scoring->groups > 64 || scoring->dim > 128)
		snprintf(reason, HYS_REASON_SIZE,
			 "it scores up to 64 heads of 128 in a group, the index has %d of %d",
			 (int)(scoring->heads / scoring->groups), (int)scoring->dim);
	else if (scoring->block > 1)
		snprintf(reason, HYS_REASON_SIZE, "it chooses entries, not blocks of %d",
			 (int)scoring->block);
	else if (choosing->first_blocks > 0 || choosing->local_blocks > 0)
		snprintf(reason, HYS_REASON_SIZE, "it does not force first or local entries");
	else
		return true;
	return false;
}

/* ---- the workspace ---- */

/* Sizes of a call, the same for all its passes. */
struct layout {
	struct hys_ocl_scan_pass pass; /* offsets and sizes */
	int64_t lines;		       /* of a pass at most, a multiple of TILE_LINES * groups */
	int64_t bytes;
};

static int64_t take(struct layout *layout, int64_t bytes)
{
	int64_t offset = layout->bytes;
	layout->bytes = hys_add64(offset, hys_round_up(bytes, HYS_ALIGN));
	return offset;
}

static int64_t most_entries(const struct hys_size *size)
{
	return hys_max64(1, size->row_entries ? size->row_entries : size->entries);
}

static int32_t splits_most(const struct hys_ocl_scan *scan)
{
	return (int32_t)hys_min64(SPLITS_MAX, LISTS_MAX / scan->line_lists);
}

/* Work-groups of the scan that share a tile of lines, so that all compute units have work twice (of e4m3,
 * where uneven lists cost more, or hardly less, since the costliest come first), and none much more than what
 * is each one's share. */
static int32_t splits_of(const struct hys_ocl_scan *scan, const struct hys_device *device,
			 const struct hys_size *size, int64_t lines)
{
	const int64_t tiles = hys_ocl_divide_up(lines, scan->tile_lines);
	const int64_t units = device->info.compute_units;
	/* of a pass */
	const double pairs =
		size->entry_pairs * fmin((double)lines / (double)hys_max64(size->rows, 1),
					 size->problem->scoring.groups);
	const double largest = (double)most_entries(size) * scan->tile_lines;
	const int64_t eighths = scan->e4m3 ? 15 : 16; /* of a unit's work-groups, at least */
	int32_t splits = 1;
	while (splits < splits_most(scan) &&
	       (8 * tiles * splits < eighths * units ||
		largest / splits > LARGEST_TILE * pairs / (double)units))
		splits *= 2;
	return splits;
}

/* Keys that a work-group scans at a time; samples come in whole such blocks. */
static int64_t block_keys(const struct hys_ocl_scan *scan)
{
	return (int64_t)64 * scan->key_groups * scan->key_sets;
}

/* Entries that a line's lists should have room for: 2.5 times K; more where a sample of a 32nd, of SAMPLES_MOST at
 * most, says less of the threshold. As sample_rank() of select_scan.clh has it, `rank` of the sample lie above it, and
 * three standard deviations more may. Never less for more entries: plans are made for the most. */
static double entries_listed(const struct hys_ocl_scan *scan, double topk, double visible)
{
	const double samples = fmin(fmax(visible / 32, (double)block_keys(scan)), SAMPLES_MOST);
	const double mean = samples * fmin(1.25 * topk / visible, 1.0);
	const double rank = fmax(mean + 2 * sqrt(mean), 1.0);
	return fmin(fmax(2.5 * topk, visible / samples * (rank + 3 * sqrt(rank))), visible);
}

/* Entries of one list, and more where they are short, which are less even. */
static int32_t capacity_of(const struct hys_ocl_scan *scan, const struct hys_size *size,
			   int32_t splits)
{
	const double visible = (double)most_entries(size);
	const double listed = entries_listed(scan, fmin((double)size->topk, visible), visible);
	const int64_t wanted =
		hys_ocl_divide_up((int64_t)listed + 64, (int64_t)splits * scan->line_lists) +
		(splits > 1 ? CAPACITY_MORE : 0);
	return (int32_t)hys_max64(CAPACITY_LEAST, hys_round_up(wanted, 8));
}

/* A line's heads as products read them. */
static int64_t packed_bytes(const struct hys_problem *problem)
{
	const int64_t heads = problem->scoring.heads / problem->scoring.groups;
	const int64_t row =
		(int64_t)problem->scoring.dim * (problem->scoring.dtype == HYS_F8E4M3 ? 1 : 2);
	return hys_round_up(heads, 16) * (row <= 128 ? 128 : 256);
}

static int64_t line_bytes(const struct hys_ocl_scan *scan, const struct hys_size *size,
			  int32_t splits, int32_t samples)
{
	const int64_t lists = (int64_t)splits * scan->line_lists, i32 = sizeof(cl_int);
	return packed_bytes(size->problem) + WEIGHTS_BYTES + (int64_t)2 * LINE_BYTES +
	       samples * i32 +
	       lists * (capacity_of(scan, size, splits) * (int64_t)PAIR_BYTES + i32) + 7 * i32;
}

static int64_t pass_limit(const struct hys_device *device)
{
	return hys_min64(PASS_BYTES_MOST,
			 hys_max64(PASS_BYTES_LEAST, device->info.memory_bytes / 32));
}

/* Of a line at most, however its pass is split. */
static int64_t most_line_bytes(const struct hys_ocl_scan *scan, const struct hys_size *size,
			       int32_t samples)
{
	int64_t most = 0;
	for (int32_t splits = 1; splits <= splits_most(scan); splits *= 2)
		most = hys_max64(most, line_bytes(scan, size, splits, samples));
	return most;
}

static void lay_out_repair(struct layout *layout, const struct hys_size *size)
{
	struct hys_ocl_scan_pass *pass = &layout->pass;
	const int64_t most = most_entries(size);
	const int64_t chunk =
		hys_max64(CHUNK_LEAST, hys_round_up(hys_ocl_divide_up(most, CHUNKS_MOST), 128));
	const int64_t bytes = hys_round_up(most, 128) + chunk; /* pairs */
	pass->repair_chunk = (cl_int)chunk;
	pass->repair_chunks = (cl_int)hys_ocl_divide_up(most, chunk);
	pass->repair_slots =
		(cl_int)hys_min64(SLOTS_MOST, hys_max64(1, SCRATCH_BYTES / (bytes * PAIR_BYTES)));
	pass->scratch =
		take(layout, hys_max64(bytes * PAIR_BYTES,
				       hys_min64(SCRATCH_BYTES, SLOTS_MOST * bytes * PAIR_BYTES)));
}

/* Regions of `lines` lines, one behind the other. */
static void lay_out_lines(struct layout *layout, const struct hys_ocl_scan *scan,
			  const struct hys_problem *problem, int64_t lines)
{
	struct hys_ocl_scan_pass *pass = &layout->pass;
	const int64_t lists = (int64_t)pass->splits * scan->line_lists, i32 = sizeof(cl_int);
	pass->rows = take(layout, lines * i32);
	pass->packed = take(layout, lines * packed_bytes(problem));
	pass->weights = take(layout, lines * WEIGHTS_BYTES);
	pass->table = take(layout, lines * LINE_BYTES);
	pass->thresholds = take(layout, lines * i32);
	pass->floors = take(layout, lines * i32);
	pass->errors = take(layout, lines * i32);
	pass->reaches = take(layout, lines * i32);
	pass->tiles = take(layout, hys_ocl_divide_up(lines, TILE_LINES) * LINE_BYTES);
	pass->samples = take(layout, hys_round_up(lines, TILE_LINES) * pass->samples_room * i32);
	pass->lists = take(layout, lines * lists * pass->capacity * PAIR_BYTES);
	pass->counts = take(layout, lines * lists * i32);
	pass->repairs = take(layout, lines * i32);
	pass->longs = take(layout, lines * i32);
}

/* What a pass clears before: counts of lines, then what tiles cost, then two sums. */
static int64_t done_numbers(int64_t lines)
{
	return 3 + 2 * lines + hys_ocl_divide_up(lines, TILE_LINES) + 2;
}

/* Keys are skipped in whole segments that a row sees, of which there should be more than one. */
static void lay_out_skipping(struct layout *layout, const struct hys_ocl_scan *scan,
			     const struct hys_size *size)
{
	struct hys_ocl_scan_pass *pass = &layout->pass;
	const int64_t segments = size->entries / SEGMENT;
	if (!scan->skips || most_entries(size) < 2 * (int64_t)SEGMENT)
		return;
	pass->segments = (cl_int)segments;
	pass->key_order = take(layout, segments * SEGMENT * (int64_t)sizeof(cl_int));
	pass->block_norms =
		take(layout, segments * SEGMENT / block_keys(scan) * (int64_t)sizeof(cl_float));
}

static void lay_out(const struct hys_ocl_scan *scan, const struct hys_device *device,
		    const struct hys_size *size, struct layout *layout)
{
	const int64_t groups = size->problem->scoring.groups, unit = TILE_LINES * groups;
	const int64_t lines = hys_max64(unit, hys_round_up(size->rows, TILE_LINES) * groups);
	struct hys_ocl_scan_pass *pass = &layout->pass;
	*layout = (struct layout){0};
	pass->groups = (cl_int)groups;
	pass->samples_room = (cl_int)hys_min64(
		SAMPLES_MOST, hys_round_up(most_entries(size) / 32 + 1, block_keys(scan)));
	/* passes of one size: the fewest that fit */
	const int64_t each = most_line_bytes(scan, size, pass->samples_room);
	const int64_t fit = hys_max64(1, pass_limit(device) / each / unit);
	const int64_t passes = hys_ocl_divide_up(lines / unit, fit);
	layout->lines = hys_ocl_divide_up(lines / unit, passes) * unit;
	pass->splits = splits_of(scan, device, size, layout->lines);
	pass->capacity = capacity_of(scan, size, pass->splits);
	/* cleared together, as far as `done` */
	pass->flags = take(layout, size->rows * (int64_t)sizeof(cl_int));
	pass->longest = take(layout, 2 * (int64_t)sizeof(cl_float));
	/* for all lines, and in front: NVIDIA's driver fails over fills behind 2 GiB */
	pass->done = take(layout, done_numbers(lines) * (int64_t)sizeof(cl_int));
	pass->order = take(layout, lines / TILE_LINES * (int64_t)sizeof(cl_int));
	lay_out_repair(layout, size);
	lay_out_skipping(layout, scan, size);
	lay_out_lines(layout, scan, size->problem, layout->lines);
}

int64_t hys_ocl_scan_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
			       const struct hys_size *size)
{
	const struct hys_ocl_scan *scan = kernel->detail;
	struct layout layout;
	lay_out(scan, device, size, &layout);
	const int64_t unit = TILE_LINES * (int64_t)size->problem->scoring.groups;
	const int64_t lines = hys_max64(1, hys_ocl_divide_up(size->rows, TILE_LINES)) * unit;
	const int64_t each = most_line_bytes(scan, size, layout.pass.samples_room);
	const int64_t room =
		hys_min64(hys_mul64(lines, each), hys_max64(pass_limit(device), unit * each));
	return hys_add64(layout.pass.rows, room) + (int64_t)16 * HYS_ALIGN;
}

/* ---- the launches ---- */

/* A call in progress. */
struct job {
	struct hys_stream *stream;
	void *instance;
	const struct hys_call *call;
	const struct hys_select_args *args;
	const struct hys_ocl_scan *scan;
	struct layout layout;
	struct hys_ocl_scan_pass pass; /* the one in progress */
};

/* Begins with what all kernels take first. */
static struct hys_ocl_args begin(const struct job *job, enum hys_ocl_scan_step step)
{
	struct hys_ocl_args args = hys_ocl_begin(job->stream, job->instance, step);
	hys_ocl_arg(&args, &job->pass, sizeof(job->pass));
	hys_ocl_arg_region(&args, &job->call->workspace, 0);
	return args;
}

static hys_status launch(struct hys_ocl_args *args, int64_t groups, int64_t items,
			 struct hys_error *error)
{
	return hys_ocl_launch(args, 1, &groups, &items, error);
}

static void output_args(struct hys_ocl_args *args, const struct job *job)
{
	hys_ocl_arg_tensor(args, &job->args->indices);
	hys_ocl_arg_tensor(args, &job->args->counts);
	hys_ocl_arg_tensor(args, &job->args->scores);
	hys_ocl_arg_tensor(args, &job->args->kth);
}

/* What a pass begins with as zero; what the call does, before its first. */
static hys_status clear(const struct job *job, struct hys_error *error)
{
	const struct hys_ocl_scan_pass *pass = &job->pass;
	const int64_t from = pass->line_first > 0 ? pass->done : pass->flags;
	struct hys_region region = job->call->workspace;
	region.offset_bytes += from;
	region.bytes = pass->done - from + done_numbers(pass->lines) * (int64_t)sizeof(cl_int);
	return hys_backend_opencl.fill(job->stream, &region, 0, error);
}

static hys_status prepare_lines(const struct job *job, struct hys_error *error)
{
	struct {
		cl_int group[HYS_GROUPS_MAX];
	} topk = {{0}};
	struct hys_ocl_args args = begin(job, HYS_OCL_SCAN_PREPARE);
	for (int32_t i = 0; i < job->pass.groups; i++)
		topk.group[i] = job->call->topk[i];
	hys_ocl_arg(&args, &topk, sizeof(topk));
	hys_ocl_arg_array(&args, &job->call->batch.index_begin);
	hys_ocl_arg_array(&args, &job->call->batch.index_end);
	hys_ocl_arg_tensor(&args, &job->args->index_q);
	hys_ocl_arg_tensor(&args, &job->args->index_q_scale);
	hys_ocl_arg_tensor(&args, &job->args->index_w);
	return launch(&args, job->pass.lines, PREPARE_ITEMS, error);
}

static void key_args(struct hys_ocl_args *args, const struct job *job)
{
	hys_ocl_arg_tensor(args, &job->args->index_k);
	hys_ocl_arg_tensor(args, &job->args->index_k_scale);
}

/* The longest key, to which errors of e4m3 are in proportion. */
static hys_status measure_keys(const struct job *job, struct hys_error *error)
{
	const int64_t keys = job->args->index_k.shape[0];
	struct hys_ocl_args args = begin(job, HYS_OCL_SCAN_MEASURE);
	key_args(&args, job);
	hys_ocl_arg_i64(&args, keys);
	return launch(&args, hys_ocl_divide_up(keys, KEY_ITEMS), KEY_ITEMS, error);
}

/* Of a line at most: a 32nd of what its tile sees, in whole blocks. */
static int64_t samples_most(const struct job *job)
{
	const int64_t block = block_keys(job->scan);
	const int64_t wanted = (job->call->size.entries / 32 + block / 2) / block * block;
	return hys_min64(hys_max64(wanted, block), job->pass.samples_room);
}

/* As many work-groups as may run at a time, or fewer. */
static int64_t running_groups(const struct job *job, int64_t wanted)
{
	return hys_min64(wanted, 4 * (int64_t)job->stream->device->base.info.compute_units);
}

static hys_status find_thresholds(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_args args =
		begin(job, samples_most(job) > SAMPLES_FEW ? HYS_OCL_SCAN_THRESHOLDS_MANY
							   : HYS_OCL_SCAN_THRESHOLDS);
	const int64_t items = (int64_t)32 * THRESHOLD_LINES;
	const int64_t tiles = hys_ocl_divide_up(job->pass.lines, TILE_LINES);
	return launch(&args,
		      hys_ocl_divide_up(tiles, items) +
			      hys_ocl_divide_up(job->pass.lines, THRESHOLD_LINES),
		      items, error);
}

static int64_t scan_tiles(const struct job *job)
{
	return hys_ocl_divide_up(job->pass.lines, TILE_LINES) *
	       (TILE_LINES / job->scan->tile_lines);
}

/* All keys, or a sample of them. */
static hys_status scan_keys(const struct job *job, bool sampled, struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, HYS_OCL_SCAN_KEYS);
	key_args(&args, job);
	hys_ocl_arg_i32(&args, sampled);
	return launch(&args, scan_tiles(job) * (sampled ? 1 : job->pass.splits), job->scan->items,
		      error);
}

/* Finds out whether skipping keys pays; if it does, puts them in order and finds what lines reach. */
static hys_status prepare_skipping(const struct job *job, struct hys_error *error)
{
	hys_status status = HYS_OK;
	struct hys_ocl_args args = begin(job, HYS_OCL_SCAN_JUDGE);
	key_args(&args, job);
	hys_ocl_arg_tensor(&args, &job->args->index_q);
	HYS_TRY(launch(&args, JUDGED_LINES, PREPARE_ITEMS, error));
	args = begin(job, HYS_OCL_SCAN_ORDER);
	key_args(&args, job);
	HYS_TRY(launch(&args, job->pass.segments, SORT_ITEMS, error));
	args = begin(job, HYS_OCL_SCAN_REACHES);
	hys_ocl_arg_tensor(&args, &job->args->index_q);
	/* as many for each unit as 3 and 4, of which so many run there at a time, divide */
	HYS_TRY(launch(&args, hys_min64(job->pass.lines, 3 * running_groups(job, job->pass.lines)),
		       PREPARE_ITEMS, error));
cleanup:
	return status;
}

/* All keys, or where that pays those that may exceed thresholds: the device decides. */
static hys_status scan_all(const struct job *job, struct hys_error *error)
{
	hys_status status = HYS_OK;
	struct hys_ocl_args args;
	if (job->pass.segments == 0)
		return scan_keys(job, false, error);
	HYS_TRY(prepare_skipping(job, error));
	HYS_TRY(scan_keys(job, false, error));
	args = begin(job, HYS_OCL_SCAN_IN_ORDER);
	key_args(&args, job);
	HYS_TRY(launch(&args, scan_tiles(job) * job->pass.splits, job->scan->items, error));
	args = begin(job, HYS_OCL_SCAN_NAME);
	HYS_TRY(launch(&args, running_groups(job, job->pass.lines), ORDER_ITEMS, error));
cleanup:
	return status;
}

/* `step`: for lines whose lists fit into a work-group's registers, or for the others. */
static hys_status choose_listed(const struct job *job, enum hys_ocl_scan_step step,
				struct hys_error *error)
{
	const int64_t lines = job->pass.lines;
	struct hys_ocl_args args = begin(job, step);
	key_args(&args, job);
	hys_ocl_arg_tensor(&args, &job->args->index_q);
	output_args(&args, job);
	return launch(&args, step == HYS_OCL_SCAN_CHOOSE ? lines : running_groups(job, lines),
		      ORDER_ITEMS, error);
}

static hys_status repair_lines(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_args args = begin(job, HYS_OCL_SCAN_REPAIR);
	key_args(&args, job);
	hys_ocl_arg_tensor(&args, &job->args->index_q);
	output_args(&args, job);
	return launch(&args, running_groups(job, job->pass.lines * job->pass.repair_chunks),
		      ORDER_ITEMS, error);
}

static hys_status count_nan_rows(const struct job *job, struct hys_error *error)
{
	struct hys_ocl_args args = hys_ocl_begin(job->stream, job->instance, HYS_OCL_SCAN_NAN_ROWS);
	hys_ocl_arg_region(&args, &job->call->workspace, job->layout.pass.flags);
	hys_ocl_arg_i64(&args, job->call->size.rows);
	hys_ocl_arg_tensor(&args, &job->args->nan_rows);
	return launch(&args, 1, 64, error);
}

static void set_gaps(struct hys_ocl_scan_pass *pass, const struct hys_call *call)
{
	for (int32_t i = 0; i < HYS_GAPS_MAX; i++) {
		const bool there = i < call->gap_count;
		pass->gaps[i].at = there ? call->gaps[i].at : INT64_MAX;
		pass->gaps[i].by = there ? call->gaps[i].by : 0;
	}
}

static hys_status run_pass(const struct job *job, struct hys_error *error)
{
	hys_status status = HYS_OK;
	HYS_TRY(clear(job, error));
	if (job->scan->e4m3 && job->pass.line_first == 0)
		HYS_TRY(measure_keys(job, error));
	HYS_TRY(prepare_lines(job, error));
	HYS_TRY(scan_keys(job, true, error));
	HYS_TRY(find_thresholds(job, error));
	HYS_TRY(scan_all(job, error));
	HYS_TRY(choose_listed(job, HYS_OCL_SCAN_CHOOSE, error));
	/* there are none if all the room of a line's lists can be held, and nothing is scored again */
	if (job->scan->e4m3 ||
	    (int64_t)job->pass.capacity * job->pass.splits * job->scan->line_lists > HELD_ITEMS)
		HYS_TRY(choose_listed(job, HYS_OCL_SCAN_CHOOSE_LONG, error));
	HYS_TRY(repair_lines(job, error));
cleanup:
	return status;
}

hys_status hys_ocl_scan_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			    void *instance, const struct hys_call *call, struct hys_error *error)
{
	struct job job = {.stream = stream,
			  .instance = instance,
			  .call = call,
			  .args = &call->args.select,
			  .scan = kernel->detail};
	const int64_t lines = call->size.rows * call->problem->scoring.groups;
	hys_status status = HYS_OK;
	lay_out(job.scan, &stream->device->base, &call->size, &job.layout);
	job.pass = job.layout.pass;
	set_gaps(&job.pass, call);
	job.pass.scale = (cl_float)call->problem->scoring.scale;
	job.pass.room = (cl_int)call->size.topk;
	job.pass.scored = hys_present(&job.args->scores) || hys_present(&job.args->kth) ||
			  hys_present(&job.args->nan_rows);
	for (int64_t first = 0; first < lines; first += job.layout.lines) {
		job.pass.line_first = first;
		job.pass.lines = hys_min64(job.layout.lines, lines - first);
		HYS_TRY(run_pass(&job, error));
	}
	if (hys_present(&job.args->nan_rows))
		HYS_TRY(count_nan_rows(&job, error));
cleanup:
	return status;
}
