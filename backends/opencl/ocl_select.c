/* ocl_select.c - select: programs and the workspace's layout. */
#include <stdio.h>

#include "ocl_select.h"

/* Of lines of scores and the like: what limits the rows of a tile. */
#define TILE_BYTES_CPU ((int64_t)32 << 20)
#define TILE_BYTES_GPU ((int64_t)256 << 20)
/* As select_fine_wgmma.cl lays it out; two work-groups share a compute unit. */
#define WGMMA_LOCAL_BYTES 115200
/* Of packed keys. */
#define STRIP_BYTES ((int64_t)512 << 20)

static int32_t divide_up(int32_t a, int32_t b)
{
	return (a + b - 1) / b;
}

/* A work-item with 16 to 64 products in registers, whatever the heads of a group. */
static void tile_sizes(struct hys_ocl_select_tiles *tiles, int32_t heads)
{
	tiles->item_heads = heads < 8 ? heads : 8;
	tiles->head_items = 1;
	while (tiles->head_items < 8 && tiles->head_items * tiles->item_heads < heads)
		tiles->head_items *= 2;
	tiles->item_keys = tiles->head_items >= 4 ? 8 : 4;
	tiles->tile_keys = 64 / tiles->head_items * tiles->item_keys;
}

/* As many accumulators as the processor's registers hold: 16 vectors of 16 floats with
 * 512-bit registers, fewer with narrower ones. */
static void cpu_sizes(struct hys_ocl_select_tiles *tiles, int32_t heads, int32_t vector_width)
{
	const int32_t accumulators = vector_width >= 16 ? 16 : vector_width >= 8 ? 6 : 2;
	const int32_t most = accumulators >= 8 ? 8 : accumulators;
	tiles->head_blocks = divide_up(heads, most);
	tiles->block_heads = divide_up(heads, tiles->head_blocks);
	tiles->vectors = 1;
	while (tiles->vectors < 8 && 2 * tiles->vectors * tiles->block_heads <= accumulators)
		tiles->vectors *= 2;
	tiles->panel_keys = 16 * tiles->vectors;
}

/* Keys are held in registers: fewer at once when they are long. */
static void matrix_sizes(struct hys_ocl_select_tiles *tiles, const struct hys_ocl_unit *unit,
			 int32_t dim)
{
	tiles->depths = divide_up(dim, HYS_OCL_UNIT_DEPTH);
	tiles->key_tiles = unit->key_tiles;
	tiles->matrix_keys = unit->subgroups * unit->columns * tiles->key_tiles;
}

static bool by_matrix(const struct hys_ocl_select *select)
{
	return select->scorer == HYS_OCL_SCORE_MATRIX ||
	       select->scorer == HYS_OCL_SCORE_MATRIX_FINE;
}

struct hys_ocl_select_tiles hys_ocl_select_tiles(const struct hys_ocl_select *select,
						 const struct hys_ocl_device *device,
						 const struct hys_problem *problem)
{
	const int32_t heads = problem->scoring.heads / problem->scoring.groups;
	struct hys_ocl_select_tiles tiles = {0};
	const bool cpu = select->scorer == HYS_OCL_SCORE_CPU;
	tile_sizes(&tiles, heads);
	cpu_sizes(&tiles, heads, device->vector_width);
	tiles.pick = cpu ? 1 : 64;
	tiles.key_align = cpu ? tiles.panel_keys : 1;
	if (by_matrix(select))
		matrix_sizes(&tiles, device->unit, problem->scoring.dim);
	if (select->scorer == HYS_OCL_SCORE_MATRIX)
		tiles.key_align = tiles.matrix_keys;
	return tiles;
}

static void define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const struct hys_ocl_select *select = (const struct hys_ocl_select *)(const void *)source;
	const struct hys_ocl_select_tiles tiles = hys_ocl_select_tiles(select, device, problem);
	hys_ocl_define(options, "INDEX_TYPE", problem->scoring.dtype);
	hys_ocl_define(options, "PICK", tiles.pick);
	hys_ocl_define(options, "KEY_ALIGN", tiles.key_align);
	if (select->scorer == HYS_OCL_SCORE_CPU) {
		hys_ocl_define(options, "BLOCK_HEADS", tiles.block_heads);
		hys_ocl_define(options, "VECTORS", tiles.vectors);
	} else if (select->scorer != HYS_OCL_SCORE_REF) {
		hys_ocl_define(options, "HEAD_ITEMS", tiles.head_items);
		hys_ocl_define(options, "ITEM_HEADS", tiles.item_heads);
		hys_ocl_define(options, "ITEM_KEYS", tiles.item_keys);
	}
	if (select->scorer == HYS_OCL_SCORE_WGMMA) {
		const struct hys_scoring *scoring = &problem->scoring;
		const int64_t relu = scoring->scale < 0 ? 2 : 1;
		hys_ocl_define(options, "GROUP_HEADS", scoring->heads / scoring->groups);
		hys_ocl_define(options, "DIM", scoring->dim);
		hys_ocl_define(options, "COARSE", problem->choosing.coarse_block);
		hys_ocl_define(options, "ACTIVATION",
			       scoring->activation == HYS_ACTIVATION_RELU ? relu : 0);
		hys_ocl_define(options, "LOCAL_BYTES", WGMMA_LOCAL_BYTES);
	}
	if (by_matrix(select)) {
		hys_ocl_define_unit(options, device->unit, problem->scoring.dtype);
		hys_ocl_define(options, "DEPTHS", tiles.depths);
		hys_ocl_define(options, "KEY_TILES", tiles.key_tiles);
		hys_ocl_define(options, "HEAD_TILES", device->unit->head_tiles);
	}
}

#define EXACT_ENTRIES "count_nan_rows", "score_blocks", "pick_entries"
#define COARSE_ENTRIES                                                                 \
	"count_nan_rows", "coarse_means", "score_edges", "pick_coarse", "keep_coarse", \
		"score_kept_blocks", "pick_kept", "score_kept"
#define PACKED_ENTRIES "pack_keys", "pack_q", "score_panels"

static const char *const exact_entries[] = {EXACT_ENTRIES, "score_keys", NULL};
static const char *const exact_cpu_entries[] = {EXACT_ENTRIES, PACKED_ENTRIES, NULL};
static const char *const coarse_entries[] = {COARSE_ENTRIES, "score_keys", NULL};
static const char *const coarse_cpu_entries[] = {COARSE_ENTRIES, PACKED_ENTRIES, NULL};
static const char *const coarse_wgmma_entries[] = {COARSE_ENTRIES, "split_means", "score_means",
						   "choose_kept", NULL};
static const char *const exact_matrix_entries[] = {EXACT_ENTRIES, "score_entries", NULL};
static const char *const clblast_entries[] = {COARSE_ENTRIES, "score_keys", "score_products", NULL};

const struct hys_ocl_select hys_ocl_select_ref = {
	{"select_ref.cl", exact_entries, define, NULL, NULL}, HYS_OCL_SCORE_REF};
const struct hys_ocl_select hys_ocl_select_tile = {
	{"select_tile.cl", exact_entries, define, NULL, NULL}, HYS_OCL_SCORE_TILE};
const struct hys_ocl_select hys_ocl_select_cpu = {
	{"select_cpu.cl", exact_cpu_entries, define, NULL, NULL}, HYS_OCL_SCORE_CPU};
const struct hys_ocl_select hys_ocl_coarse_ref = {
	{"select_ref.cl", coarse_entries, define, NULL, NULL}, HYS_OCL_SCORE_REF};
const struct hys_ocl_select hys_ocl_coarse_tile = {
	{"select_tile.cl", coarse_entries, define, NULL, NULL}, HYS_OCL_SCORE_TILE};
const struct hys_ocl_select hys_ocl_coarse_cpu = {
	{"select_cpu.cl", coarse_cpu_entries, define, NULL, NULL}, HYS_OCL_SCORE_CPU};
/* The two steps of coarse_to_fine use the programs of coarse. */
const struct hys_ocl_select hys_ocl_fine_clblast = {
	{"select_tile.cl", clblast_entries, define, hys_ocl_gemm_prepare, NULL},
	HYS_OCL_SCORE_CLBLAST};

const struct hys_ocl_select hys_ocl_select_matrix = {
	{"select_matrix.cl", exact_matrix_entries, define, NULL, NULL}, HYS_OCL_SCORE_MATRIX};
const struct hys_ocl_select hys_ocl_fine_matrix = {
	{"select_matrix.cl", coarse_entries, define, NULL, NULL}, HYS_OCL_SCORE_MATRIX_FINE};

const struct hys_ocl_select hys_ocl_fine_wgmma = {
	{"select_fine_wgmma.cl", coarse_wgmma_entries, define, NULL, "sm_90a"},
	HYS_OCL_SCORE_WGMMA};

bool hys_ocl_select_fine_applicable(const struct hys_kernel *kernel,
				    const struct hys_device *device,
				    const struct hys_problem *problem, char reason[HYS_REASON_SIZE])
{
	const struct hys_scoring *scoring = &problem->scoring;
	(void)kernel;
	(void)device;
	if (scoring->dtype != HYS_BF16)
		snprintf(reason, HYS_REASON_SIZE, "it scores bf16, the index is %s",
			 hys_dtype_name(scoring->dtype));
	else if (scoring->heads / scoring->groups > 64 || scoring->dim > 128)
		snprintf(reason, HYS_REASON_SIZE,
			 "it scores up to 64 heads of 128 in a group, the index has %d of %d",
			 (int)(scoring->heads / scoring->groups), (int)scoring->dim);
	else
		return true;
	return false;
}

bool hys_ocl_select_matrix_applicable(const struct hys_kernel *kernel,
				      const struct hys_device *device,
				      const struct hys_problem *problem,
				      char reason[HYS_REASON_SIZE])
{
	const struct hys_ocl_device *own = hys_ocl_device(device);
	const int32_t most = own->unit->depths_max * HYS_OCL_UNIT_DEPTH;
	(void)kernel;
	if (!hys_ocl_unit_multiplies(own, "the index", problem->scoring.dtype, reason))
		return false;
	if (problem->scoring.dim <= most)
		return true;
	snprintf(reason, HYS_REASON_SIZE,
		 "keys of up to %d channels fit into registers, these have %d", (int)most,
		 (int)problem->scoring.dim);
	return false;
}

bool hys_ocl_select_clblast_applicable(const struct hys_kernel *kernel,
				       const struct hys_device *device,
				       const struct hys_problem *problem,
				       char reason[HYS_REASON_SIZE])
{
	(void)kernel;
	(void)device;
	if (problem->scoring.dtype == HYS_F32)
		return true;
	snprintf(reason, HYS_REASON_SIZE, "CLBlast multiplies f32, the index is %s",
		 hys_dtype_name(problem->scoring.dtype));
	return false;
}

/* Forced coarse blocks that one row may have, at either end. */
static int64_t forced_slots(const struct hys_problem *problem, int64_t blocks)
{
	if (problem->scoring.block == 1)
		return blocks;
	/* they start anywhere in a coarse block */
	return blocks == 0 ? 0
			   : 1 + hys_ocl_divide_up(blocks * problem->scoring.block,
						   problem->choosing.coarse_block);
}

static int64_t slots_of(const struct hys_size *size, int64_t row_entries)
{
	const struct hys_choosing *choosing = &size->problem->choosing;
	int64_t slots = choosing->coarse_keep +
			forced_slots(size->problem, choosing->first_blocks) +
			hys_max64(1, forced_slots(size->problem, choosing->local_blocks));
	/* a row sees at most one block in part at either end */
	return hys_min64(slots, row_entries / choosing->coarse_block + 2);
}

/* Takes `bytes` of the workspace. */
static int64_t take(struct hys_ocl_select_layout *layout, int64_t bytes)
{
	int64_t offset = layout->bytes;
	layout->bytes = hys_add64(offset, hys_round_up(bytes, HYS_ALIGN));
	return offset;
}

/* Bytes of each row of a tile, by region. */
struct row_bytes {
	int64_t lines, blocks, packed, edges, lists, fine, panels, products;
};

static int64_t sum_of(const struct row_bytes *row)
{
	return row->lines + row->blocks + row->packed + row->edges + row->lists + row->fine +
	       row->panels + row->products;
}

static struct row_bytes bytes_of_row(const struct hys_ocl_select *select,
				     const struct hys_ocl_select_tiles *tiles, hys_op op,
				     const struct hys_size *size,
				     const struct hys_ocl_select_layout *layout)
{
	const struct hys_scoring *scoring = &size->problem->scoring;
	const int64_t groups = scoring->groups, f32 = sizeof(float);
	const int64_t coarse = size->problem->choosing.coarse_block;
	const bool cpu = select->scorer == HYS_OCL_SCORE_CPU, blocks = scoring->block > 1;
	struct row_bytes row = {.lines = groups * layout->line_size * f32};
	if (cpu)
		row.packed = groups * tiles->head_blocks * tiles->block_heads * scoring->dim * f32;
	if (op == HYS_OP_SELECT && blocks)
		row.blocks = groups * layout->block_line_size * f32;
	if (op == HYS_OP_SELECT_COARSE)
		row.edges = (int64_t)2 * scoring->dim * f32;
	if (op != HYS_OP_SELECT_COARSE_TO_FINE)
		return row;
	row.lists = groups * (layout->slots + 1) * (int64_t)sizeof(int32_t);
	row.fine = groups * layout->slots * coarse * f32;
	if (blocks)
		row.blocks = row.fine / scoring->block;
	if (cpu)
		row.panels = groups * tiles->panel_keys * scoring->dim * f32;
	if (select->scorer == HYS_OCL_SCORE_CLBLAST)
		row.products = scoring->heads * layout->keys * f32;
	return row;
}

/* Packing all entries pays when more are scored than there are. Room is kept whether or not it
 * does, so that a smaller call never needs more. */
static void lay_out_entries(struct hys_ocl_select_layout *layout,
			    const struct hys_ocl_select_tiles *tiles, const struct hys_size *size)
{
	const struct hys_problem *problem = size->problem;
	const int64_t dim_bytes = problem->scoring.dim * (int64_t)sizeof(float);
	const int64_t bytes = hys_mul64(hys_round_up(size->entries, tiles->panel_keys), dim_bytes);
	const double scored = (double)size->rows * problem->scoring.groups * (double)layout->slots *
			      problem->choosing.coarse_block;
	layout->pack_entries = bytes <= STRIP_BYTES && scored > (double)size->entries;
	layout->entries = take(layout, hys_min64(bytes, STRIP_BYTES));
}

void hys_ocl_select_lay_out(const struct hys_ocl_select *select,
			    const struct hys_ocl_device *device, hys_op op,
			    const struct hys_size *size, struct hys_ocl_select_layout *layout)
{
	const struct hys_problem *problem = size->problem;
	const struct hys_ocl_select_tiles tiles = hys_ocl_select_tiles(select, device, problem);
	const int64_t dim_bytes = problem->scoring.dim * (int64_t)sizeof(float);
	const bool coarse = op != HYS_OP_SELECT;
	*layout = (struct hys_ocl_select_layout){0};
	layout->keys = coarse ? size->coarse_blocks : size->entries;
	const int64_t most = size->row_entries ? size->row_entries : size->entries;
	layout->row_keys =
		coarse ? hys_min64(layout->keys, most / problem->choosing.coarse_block) : most;
	/* whole panels of up to 128 keys, of which the first and the last may be seen in part */
	layout->line_size = hys_round_up(layout->row_keys + 127, 128);
	layout->block_line_size = most / problem->scoring.block + 2;
	layout->slots = op == HYS_OP_SELECT_COARSE_TO_FINE ? slots_of(size, most) : 0;
	layout->strip_keys = hys_min64(hys_round_up(layout->keys, 256),
				       hys_max64(256, STRIP_BYTES / dim_bytes / 256 * 256));

	const struct row_bytes row = bytes_of_row(select, &tiles, op, size, layout);
	const int64_t each = hys_max64(1, sum_of(&row));
	const bool cpu_device = device->base.info.kind == HYS_DEVICE_CPU;
	const int64_t limit = cpu_device ? TILE_BYTES_CPU : TILE_BYTES_GPU;
	layout->rows = hys_min64(hys_max64(1, limit / each), hys_max64(1, size->rows));
	layout->rows = hys_min64(layout->rows, HYS_OCL_GROUPS_MAX / problem->scoring.groups);

	layout->flags = take(layout, size->rows * (int64_t)sizeof(int32_t));
	layout->means = take(layout, coarse ? layout->keys * dim_bytes : 0);
	layout->parts = take(layout, select->scorer == HYS_OCL_SCORE_WGMMA
					     ? layout->keys * (dim_bytes + (int64_t)sizeof(float))
					     : 0);
	layout->strip = take(
		layout, select->scorer == HYS_OCL_SCORE_CPU ? layout->strip_keys * dim_bytes : 0);
	if (select->scorer == HYS_OCL_SCORE_CPU && op == HYS_OP_SELECT_COARSE_TO_FINE)
		lay_out_entries(layout, &tiles, size);
	layout->lines = take(layout, layout->rows * row.lines);
	layout->blocks = take(layout, layout->rows * row.blocks);
	layout->packed = take(layout, layout->rows * row.packed);
	layout->edges = take(layout, layout->rows * row.edges);
	layout->lists = take(layout, layout->rows * row.lists);
	layout->fine = take(layout, layout->rows * row.fine);
	layout->panels = take(layout, layout->rows * row.panels);
	layout->products = take(layout, layout->rows * row.products);
	/* Fewer keys may allow more rows: ask for what the fullest tile takes. */
	const int64_t fullest = hys_min64(hys_max64(limit, each), hys_mul64(size->rows, each));
	layout->bytes += hys_max64(0, fullest - layout->rows * each) + (int64_t)HYS_ALIGN * 13;
}

int64_t hys_ocl_select_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
				 const struct hys_size *size)
{
	struct hys_ocl_select_layout layout;
	hys_ocl_select_lay_out(kernel->detail, hys_ocl_device(device), kernel->op, size, &layout);
	return layout.bytes;
}
