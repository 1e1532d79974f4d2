/* ocl_products.c - tile sizes and launches of products over gathered rows. */
#include "ocl_products.h"

#define LOCAL 64
#define CPU_GATHER 32
#define CPU_COLUMNS 128
#define TILE_POSITIONS 64
#define TILE_HEADS_MAX 32
#define COMBINE_HEADS_MAX 16
#define SLICED_HEADS_MAX 16
#define MATRIX_PASS 64 /* columns of a tile of all subgroups */
#define ROWS_MAX 256
#define CHUNK_MIN 1024
#define CHUNK_ROWS 16 /* rows of a tile that a full chunk leaves room for */

/* ---- sizes ---- */

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
	while (b != 0) {
		const int64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

int64_t hys_ocl_bundle(int64_t heads, int64_t groups, int64_t kv_heads)
{
	return greatest_common_divisor(heads / groups, heads / kv_heads);
}

/* The smallest power of two, from `low` on, that is not below `value`; at most `high`. */
static int32_t power_of_two(int64_t value, int32_t low, int32_t high)
{
	int32_t power = low;
	while (power < value && power < high)
		power *= 2;
	return power;
}

struct hys_ocl_blocks hys_ocl_blocks_of(const struct hys_ocl_device *device,
					enum hys_ocl_variant variant, int64_t bundle,
					int64_t channels)
{
	struct hys_ocl_blocks blocks = {.width = 1, .lanes = 1, .vectors = 1};
	if (variant == HYS_OCL_CPU_VECTORS) {
		blocks.width = device->vector_width >= 16 ? 16 : device->vector_width >= 8 ? 8 : 4;
		blocks.lanes = power_of_two(bundle, 4, blocks.width);
		blocks.vectors = bundle > blocks.lanes ? 2 : 1;
	}
	blocks.tile_heads = power_of_two(bundle, 4, TILE_HEADS_MAX);
	blocks.channels_each = power_of_two(hys_ocl_divide_up(channels, LOCAL), 1, 4);
	if (variant == HYS_OCL_MATRIX) {
		const struct hys_ocl_unit *unit = device->unit;
		blocks.unit = unit;
		blocks.column_tiles = unit->key_tiles;
		blocks.row_tiles =
			(int32_t)hys_min64(hys_ocl_divide_up(bundle, unit->rows), unit->row_tiles);
	}
	return blocks;
}

void hys_ocl_define_blocks(struct hys_ocl_options *options, enum hys_ocl_variant variant,
			   const struct hys_ocl_blocks *blocks, hys_dtype dtype)
{
	hys_ocl_define(options, "VARIANT", variant);
	if (variant == HYS_OCL_CPU_VECTORS) {
		hys_ocl_define(options, "WIDTH", blocks->width);
		hys_ocl_define(options, "LANES", blocks->lanes);
		hys_ocl_define(options, "VECTORS", blocks->vectors);
	}
	if (variant == HYS_OCL_TILE) {
		hys_ocl_define(options, "TILE_HEADS", blocks->tile_heads);
		hys_ocl_define(options, "CHANNELS_EACH", blocks->channels_each);
	}
	if (variant == HYS_OCL_MATRIX) {
		hys_ocl_define_unit(options, blocks->unit, dtype);
		hys_ocl_define(options, "TILE_HEADS", blocks->tile_heads);
		hys_ocl_define(options, "ROW_TILES", blocks->row_tiles);
		hys_ocl_define(options, "COLUMN_TILES", blocks->column_tiles);
	}
}

struct hys_ocl_tile hys_ocl_tile_of(const struct hys_ocl_blocks *blocks, int64_t heads,
				    int64_t groups, int64_t kv_heads)
{
	struct hys_ocl_tile tile = {0};
	tile.groups = (int32_t)groups;
	tile.heads = (int32_t)heads;
	tile.kv_heads = (int32_t)kv_heads;
	tile.bundle = (int32_t)hys_ocl_bundle(heads, groups, kv_heads);
	tile.bundles = tile.heads / tile.bundle;
	tile.pitch = (int32_t)hys_round_up(tile.bundle, (int64_t)blocks->lanes * blocks->vectors);
	return tile;
}

int64_t hys_ocl_padded(const struct hys_ocl_blocks *blocks, int64_t channels)
{
	if (blocks->unit)
		return hys_round_up(channels, HYS_OCL_UNIT_DEPTH);
	return blocks->width == 1 ? channels : hys_round_up(channels, (int64_t)2 * blocks->width);
}

/* A processor's tiles should stay in its caches; a GPU's should fill it. */
static int64_t budget(const struct hys_device *device)
{
	const int64_t mib = INT64_C(1) << 20;
	return device->info.kind == HYS_DEVICE_CPU ? 32 * mib : 128 * mib;
}

int64_t hys_ocl_take(struct hys_ocl_space *space, int64_t row_bytes)
{
	const int64_t at = space->next;
	space->next =
		hys_add64(space->next, hys_mul64(space->rows, hys_round_up(row_bytes, HYS_ALIGN)));
	return at;
}

int64_t hys_ocl_tile_rows(const struct hys_device *device, int64_t rows, int64_t row_bytes)
{
	const int64_t fit = hys_max64(budget(device), row_bytes) / hys_max64(row_bytes, 1);
	return hys_max64(1, hys_min64(hys_min64(rows, ROWS_MAX), fit));
}

int64_t hys_ocl_tile_bytes(const struct hys_device *device, int64_t rows, int64_t row_bytes)
{
	return hys_min64(hys_mul64(hys_max64(rows, 1), row_bytes),
			 hys_max64(budget(device), row_bytes));
}

int64_t hys_ocl_capacity(const struct hys_device *device, int64_t heads, int64_t positions)
{
	const int64_t row_bytes = budget(device) / CHUNK_ROWS;
	const int64_t most = hys_max64(CHUNK_MIN, row_bytes / (heads * (int64_t)sizeof(float)));
	return hys_min64(hys_round_up(hys_max64(positions, 1), LOCAL), most & ~(LOCAL - 1));
}

/* ---- launches ---- */

void hys_ocl_arg_work(struct hys_ocl_args *args, const struct hys_ocl_job *job)
{
	cl_mem memory = job->work ? job->work->native : NULL;
	hys_ocl_arg(args, memory ? &memory : NULL, sizeof(memory));
}

int64_t hys_ocl_local(const struct hys_ocl_job *job)
{
	return job->variant == HYS_OCL_CPU_VECTORS ? 1 : LOCAL;
}

int64_t hys_ocl_head_groups(const struct hys_ocl_job *job, const struct hys_ocl_tile *tile)
{
	int64_t heads = LOCAL;
	if (job->variant == HYS_OCL_CPU_VECTORS)
		heads = job->blocks.lanes;
	if (job->variant == HYS_OCL_TILE || job->variant == HYS_OCL_MATRIX)
		heads = hys_min64(job->blocks.tile_heads, SLICED_HEADS_MAX);
	return (int64_t)tile->rows * tile->bundles * hys_ocl_divide_up(tile->pitch, heads);
}

static void arg_memory(struct hys_ocl_args *args, const struct hys_tensor *tensor)
{
	cl_mem memory = tensor->buffer ? tensor->buffer->native : NULL;
	hys_ocl_arg(args, memory ? &memory : NULL, sizeof(memory));
}

struct hys_ocl_gathered hys_ocl_gathered_of(const struct hys_ocl_job *job,
					    const struct hys_tensor *tensor)
{
	struct hys_ocl_gathered gathered = {0};
	gathered.offset = tensor->offset;
	gathered.row_stride = tensor->stride[0];
	gathered.head_stride = tensor->rank == 3 ? tensor->stride[1] : 0;
	gathered.type = (int32_t)tensor->dtype;
	gathered.channels = (int32_t)tensor->shape[tensor->rank - 1];
	gathered.width = (int32_t)hys_ocl_padded(&job->blocks, gathered.channels);
	return gathered;
}

hys_status hys_ocl_pack(const struct hys_ocl_job *job, const struct hys_tensor *y,
			const struct hys_tensor *lse, struct hys_ocl_row_map map,
			const struct hys_ocl_operands *at, const struct hys_ocl_tile *tile)
{
	const struct hys_ocl_gathered shape = hys_ocl_gathered_of(job, y);
	const int64_t groups[1] = {(int64_t)tile->rows * tile->bundles * tile->pitch};
	const int64_t local[1] = {LOCAL};
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, "pack");
	hys_ocl_arg_tensor(&args, y);
	hys_ocl_arg_i32(&args, shape.type);
	hys_ocl_arg_i32(&args, shape.channels);
	hys_ocl_arg_i32(&args, shape.width);
	hys_ocl_arg_tensor(&args, lse);
	hys_ocl_arg(&args, &map, sizeof(map));
	hys_ocl_arg_work(&args, job);
	hys_ocl_arg(&args, at, sizeof(*at));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return hys_ocl_launch(&args, 1, groups, local, job->error);
}

/* Work-groups per cell of `scores` or `combine`: tiles of heads. */
static int64_t head_tiles(const struct hys_ocl_job *job, const struct hys_ocl_tile *tile,
			  int64_t most)
{
	if (job->variant == HYS_OCL_MATRIX)
		return hys_ocl_divide_up(tile->bundle,
					 (int64_t)job->blocks.row_tiles * job->blocks.unit->rows);
	if (job->variant != HYS_OCL_TILE)
		return 1;
	return hys_ocl_divide_up(tile->bundle, hys_min64(job->blocks.tile_heads, most));
}

/* Work-groups that share the channels of a vector in `combine` or `scatter`. */
static int64_t channel_tiles(const struct hys_ocl_job *job, const struct hys_ocl_gathered *shape)
{
	if (job->variant == HYS_OCL_CPU_VECTORS)
		return hys_ocl_divide_up(shape->width, CPU_COLUMNS);
	if (job->variant == HYS_OCL_TILE)
		return hys_ocl_divide_up(shape->channels,
					 (int64_t)LOCAL * job->blocks.channels_each);
	if (job->variant == HYS_OCL_MATRIX)
		return hys_ocl_divide_up(shape->channels,
					 (int64_t)MATRIX_PASS * job->blocks.column_tiles);
	return hys_ocl_divide_up(shape->channels, LOCAL);
}

static hys_status launch(const struct hys_ocl_job *job, struct hys_ocl_args *args, int64_t x,
			 int64_t y)
{
	const int64_t groups[2] = {x, y};
	const int64_t local[2] = {
		job->blocks.unit ? hys_ocl_unit_group(job->blocks.unit) : hys_ocl_local(job), 1};
	return hys_ocl_launch(args, 2, groups, local, job->error);
}

hys_status hys_ocl_scores(const struct hys_ocl_job *job, const struct hys_tensor *x,
			  int64_t positions, const struct hys_ocl_operands *at,
			  const struct hys_ocl_tile *tile)
{
	const struct hys_ocl_gathered shape = hys_ocl_gathered_of(job, x);
	const int64_t cells = (int64_t)tile->rows * tile->bundles;
	const int64_t most = hys_min64(positions, tile->capacity);
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, "scores");
	arg_memory(&args, x);
	hys_ocl_arg(&args, &shape, sizeof(shape));
	hys_ocl_arg_work(&args, job);
	hys_ocl_arg(&args, at, sizeof(*at));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	if (job->variant == HYS_OCL_REF)
		return launch(job, &args, cells, hys_ocl_divide_up(most * tile->pitch, LOCAL));
	int64_t positions_each = job->variant == HYS_OCL_TILE ? TILE_POSITIONS : CPU_GATHER;
	if (job->variant == HYS_OCL_MATRIX)
		positions_each = (int64_t)MATRIX_PASS * job->blocks.column_tiles;
	return launch(job, &args, cells * head_tiles(job, tile, TILE_HEADS_MAX),
		      hys_ocl_divide_up(most, positions_each));
}

hys_status hys_ocl_combine(const struct hys_ocl_job *job, const struct hys_tensor *x, bool start,
			   const struct hys_ocl_operands *at, const struct hys_ocl_tile *tile)
{
	const struct hys_ocl_gathered shape = hys_ocl_gathered_of(job, x);
	const int64_t cells = (int64_t)tile->rows * tile->bundles;
	const int64_t sums = (int64_t)tile->pitch * shape.width;
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, "combine");
	arg_memory(&args, x);
	hys_ocl_arg(&args, &shape, sizeof(shape));
	hys_ocl_arg_i32(&args, start);
	hys_ocl_arg_work(&args, job);
	hys_ocl_arg(&args, at, sizeof(*at));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	if (job->variant == HYS_OCL_REF)
		return launch(job, &args, cells, hys_ocl_divide_up(sums, LOCAL));
	return launch(job, &args, cells * head_tiles(job, tile, COMBINE_HEADS_MAX),
		      channel_tiles(job, &shape));
}

/* Keys of a work-group, each of `tiles` for as many keys: enough that looking for them in every row's list costs little and
 * that a row's y is used for several, few enough that there are many work-groups. */
static int64_t key_block(const struct hys_ocl_job *job, int64_t keys, int64_t tiles)
{
	if (job->variant == HYS_OCL_REF)
		return 1;
	if (job->variant == HYS_OCL_MATRIX) { /* rows of a tile should be used */
		const int64_t units = job->stream->device->base.info.compute_units;
		return power_of_two(keys / hys_max64(1, 2 * units / tiles), 64, 2048);
	}
	return power_of_two(keys / (job->variant == HYS_OCL_CPU_VECTORS ? 32 : 512), 64, 2048);
}

hys_status hys_ocl_scatter(const struct hys_ocl_job *job, const struct hys_tensor *out,
			   const struct hys_ocl_operands *at, const struct hys_ocl_tile *tile)
{
	const struct hys_ocl_gathered shape = hys_ocl_gathered_of(job, out);
	const int64_t keys = out->shape[0], tiles = channel_tiles(job, &shape) * tile->kv_heads;
	const int64_t block = key_block(job, keys, tiles);
	struct hys_ocl_args args = hys_ocl_begin_named(job->stream, job->instance, "scatter");
	arg_memory(&args, out);
	hys_ocl_arg(&args, &shape, sizeof(shape));
	hys_ocl_arg_i32(&args, block);
	hys_ocl_arg_work(&args, job);
	hys_ocl_arg(&args, at, sizeof(*at));
	hys_ocl_arg(&args, tile, sizeof(*tile));
	return launch(job, &args, hys_ocl_divide_up(keys, block) * tile->kv_heads,
		      channel_tiles(job, &shape));
}
