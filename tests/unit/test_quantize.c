/* Vectors to f8: every device gives the codes and scales that plain arithmetic gives. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core.h"
#include "devices_fixture.h"
#include "number.h"

#define ROWS 7
#define HEADS_MAX 3
#define DIM_MAX 300
#define PITCH_MAX (DIM_MAX + 11)
#define ELEMENTS_MAX (ROWS * HEADS_MAX * PITCH_MAX + 16)

/* A shape and how it lies; heads 0 = rank 2. */
static const struct layout {
	int64_t heads, dim, gap, offset;
} layouts[] = {
	{3, 128, 0, 0}, {3, 128, 8, 16}, {3, 128, 3, 5}, {2, 24, 0, 0},	 {1, 1, 0, 0},
	{2, 13, 2, 1},	{2, 300, 0, 0},	 {3, 296, 8, 8}, {0, 128, 0, 0}, {0, 65, 4, 3},
};
static const hys_dtype dtypes[] = {HYS_F32, HYS_F16, HYS_BF16};

/* What rows are made of, by their number. */
static double value_of(int64_t row, int64_t i, hys_dtype dtype)
{
	static const double sizes[ROWS] = {1, 448, 449, 1e-5, 0, 3e4, 1e-30};
	const double wave = (double)((i * 7919 + row * 31) % 2001 - 1000) / 1000;
	const bool narrow = dtype == HYS_F16;

	if (row == 5 && i == 2)
		return (double)NAN;
	if (row == 5 && i == 1)
		return -(double)INFINITY;
	if (row == 6)
		return wave * (narrow ? 1e-7 : i == 3 ? 1e-41 : sizes[6]);
	return i == 0 ? sizes[row] : wave * sizes[row];
}

static void want_vector(const void *x, hys_dtype dtype, int64_t at, int64_t dim, unsigned char *f8,
			float *scale)
{
	double most = 0;
	int exponent = -100;

	for (int64_t i = 0; i < dim; i++) {
		const double size = fabs(hys_number_load(x, dtype, at + i));

		most = isfinite(size) && size > most ? size : most;
	}
	while (ldexp(448, exponent) < most)
		exponent++;
	*scale = (float)(most == 0 ? 1 : ldexp(1, exponent));
	for (int64_t i = 0; i < dim; i++)
		hys_number_store(f8, HYS_F8E4M3, i,
				 hys_number_load(x, dtype, at + i) / (double)*scale);
}

static struct hys_tensor tensor_of(const struct layout *layout, hys_dtype dtype, void *host,
				   struct hys_buffer *buffer, bool scales)
{
	const int64_t pitch = layout->dim + layout->gap, heads = layout->heads;
	struct hys_tensor tensor = {.dtype = dtype, .rank = heads ? 3 : 2, .shape = {ROWS}};

	tensor.rank -= scales;
	tensor.host = buffer ? NULL : host;
	tensor.buffer = buffer;
	if (heads)
		tensor.shape[1] = heads;
	if (scales)
		return tensor;
	tensor.offset = layout->offset;
	tensor.shape[tensor.rank - 1] = layout->dim;
	tensor.stride[0] = pitch * (heads ? heads : 1);
	tensor.stride[1] = heads ? pitch : 1;
	tensor.stride[2] = heads ? 1 : 0;
	return tensor;
}

struct memory {
	void *x;
	unsigned char *f8;
	float *scale;
	struct hys_buffer *buffers[3];
};

static void compare(const struct layout *layout, hys_dtype dtype, const struct memory *memory)
{
	const int64_t heads = layout->heads ? layout->heads : 1;
	unsigned char f8[DIM_MAX];
	float scale;

	for (int64_t v = 0; v < ROWS * heads; v++) {
		const int64_t at = layout->offset + v * (layout->dim + layout->gap);

		want_vector(memory->x, dtype, at, layout->dim, f8, &scale);
		assert_true(memory->scale[v] == scale);
		for (int64_t i = 0; i < layout->dim; i++)
			if ((f8[i] & 0x7f) == 0x7f)
				assert_int_equal(memory->f8[at + i] & 0x7f, 0x7f);
			else
				assert_int_equal(memory->f8[at + i], f8[i]);
		for (int64_t i = layout->dim; i < layout->dim + layout->gap; i++)
			assert_int_equal(memory->f8[at + i], 0x55);
	}
}

static void try_layout(struct hys_exec *exec, const struct layout *layout, hys_dtype dtype,
		       struct memory *memory)
{
	const int64_t heads = layout->heads ? layout->heads : 1;
	const int64_t pitch = layout->dim + layout->gap;
	const int64_t bytes = ELEMENTS_MAX * (int64_t)hys_dtype_size(dtype);
	const bool host = exec->plan->devices[0]->host_memory;
	struct hys_buffer **b = memory->buffers;
	struct hys_quantize_args args = {.struct_size = sizeof(args)};
	struct hys_error error;

	memset(memory->f8, 0x55, ELEMENTS_MAX);
	for (int64_t v = 0; v < ROWS * heads; v++)
		for (int64_t i = 0; i < layout->dim; i++)
			hys_number_store(memory->x, dtype, layout->offset + v * pitch + i,
					 value_of(v / heads, i, dtype));
	args.x = tensor_of(layout, dtype, memory->x, host ? NULL : b[0], false);
	args.f8 = tensor_of(layout, HYS_F8E4M3, memory->f8, host ? NULL : b[1], false);
	args.scale = tensor_of(layout, HYS_F32, memory->scale, host ? NULL : b[2], true);
	if (!host) {
		assert_int_equal(hys_buffer_write(exec, b[0], 0, memory->x, bytes, NULL), HYS_OK);
		assert_int_equal(hys_buffer_write(exec, b[1], 0, memory->f8, ELEMENTS_MAX, NULL),
				 HYS_OK);
	}
	if (hys_quantize(exec, &args, &error) != HYS_OK)
		fail_msg("%s", error.message);
	if (!host) {
		assert_int_equal(hys_buffer_read(exec, b[1], 0, memory->f8, ELEMENTS_MAX, NULL),
				 HYS_OK);
		assert_int_equal(
			hys_buffer_read(exec, b[2], 0, memory->scale, ROWS * HEADS_MAX * 4, NULL),
			HYS_OK);
	}
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
	compare(layout, dtype, memory);
}

static struct hys_exec *make_exec(const int32_t *devices, int32_t count, uint32_t flags,
				  struct hys_plan **plan)
{
	const struct hys_problem problem = {
		.struct_size = sizeof(problem),
		.attending = {.heads = 1, .kv_heads = 1, .head_dim = 8, .value_dim = 8}};
	const struct hys_plan_options wanted = {.struct_size = sizeof(wanted),
						.operations = HYS_OP_BIT(HYS_OP_MERGE),
						.devices = devices,
						.device_count = count,
						.rows_max = 1,
						.keys_max = 1};
	const struct hys_exec_options options = {.struct_size = sizeof(options), .flags = flags};
	struct hys_exec *exec;

	assert_int_equal(hys_plan_create(context, &problem, &wanted, plan, NULL), HYS_OK);
	assert_int_equal(hys_exec_create(*plan, &options, &exec, NULL), HYS_OK);
	return exec;
}

static void test_codes(void **state)
{
	(void)state;
	for (int32_t d = 0; d < context->device_count; d++) {
		struct memory memory = {malloc(ELEMENTS_MAX * 4),
					malloc(ELEMENTS_MAX),
					malloc(ROWS * HEADS_MAX * 4),
					{NULL}};
		struct hys_plan *plan;
		struct hys_exec *exec = make_exec(&d, 1, HYS_EXEC_QUANTIZE, &plan);
		const int64_t bytes[] = {ELEMENTS_MAX * 4, ELEMENTS_MAX, ROWS * HEADS_MAX * 4};

		assert_true(memory.x && memory.f8 && memory.scale);
		for (int32_t i = 0; i < 3; i++)
			assert_int_equal(hys_buffer_make(context, context->devices[d], bytes[i],
							 &memory.buffers[i], NULL),
					 HYS_OK);
		for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++)
			for (size_t t = 0; t < sizeof(dtypes) / sizeof(dtypes[0]); t++)
				try_layout(exec, &layouts[l], dtypes[t], &memory);
		for (int32_t i = 0; i < 3; i++)
			hys_buffer_destroy(memory.buffers[i]);
		hys_exec_destroy(exec);
		hys_plan_destroy(plan);
		free(memory.x);
		free(memory.f8);
		free(memory.scale);
		/* As the stage oclgrind looks for it. */
		print_message("%d x quantize on %s\n",
			      (int)(sizeof(layouts) / sizeof(layouts[0]) * sizeof(dtypes) /
				    sizeof(dtypes[0])),
			      context->devices[d]->info.name);
	}
}

static void expect(struct hys_exec *exec, const struct hys_quantize_args *args, hys_status status,
		   const char *words)
{
	struct hys_error error = {0};

	assert_int_equal(hys_quantize(exec, args, &error), status);
	if (!strstr(error.message, words))
		fail_msg("\"%s\" lacks \"%s\"", error.message, words);
}

static void test_refusals(void **state)
{
	static const struct layout layout = {2, 16, 0, 0};
	unsigned char f8[ROWS * 32];
	float x[ROWS * 32] = {0}, scale[ROWS * 2];
	static const int32_t twice[] = {0, 0};
	struct hys_plan *plan, *bare, *shared;
	struct hys_exec *exec = make_exec(twice, 1, HYS_EXEC_QUANTIZE, &plan);
	struct hys_exec *without = make_exec(twice, 1, 0, &bare);
	struct hys_exec *both = make_exec(twice, 2, HYS_EXEC_QUANTIZE, &shared);
	const struct hys_quantize_args good = {
		.struct_size = sizeof(good),
		.x = tensor_of(&layout, HYS_F32, x, NULL, false),
		.f8 = tensor_of(&layout, HYS_F8E4M3, f8, NULL, false),
		.scale = tensor_of(&layout, HYS_F32, scale, NULL, true)};
	struct hys_quantize_args args = good;

	(void)state;
	expect(NULL, &good, HYS_INVALID_ARGUMENT, "exec is NULL");
	expect(exec, NULL, HYS_INVALID_ARGUMENT, "args");
	expect(without, &good, HYS_UNSUPPORTED, "HYS_EXEC_QUANTIZE");
	expect(both, &good, HYS_UNSUPPORTED, "2 devices");
	args.x.dtype = HYS_F8E4M3;
	expect(exec, &args, HYS_INVALID_ARGUMENT, "x has dtype f8e4m3");
	args = good;
	args.f8.dtype = HYS_F32;
	expect(exec, &args, HYS_INVALID_ARGUMENT, "f8 has dtype f32");
	args = good;
	args.scale.shape[1] = 3;
	expect(exec, &args, HYS_INVALID_ARGUMENT, "scale has shape [7,3]");
	args = good;
	args.scale.rank = 1;
	expect(exec, &args, HYS_INVALID_ARGUMENT, "scale has rank 1");
	args = good;
	args.f8.host = x;
	expect(exec, &args, HYS_INVALID_ARGUMENT, "overlaps");
	if (!context->devices[0]->host_memory)
		expect(exec, &good, HYS_UNSUPPORTED, "host memory");
	args = good;
	args.x.shape[0] = args.f8.shape[0] = args.scale.shape[0] = 0;
	if (context->devices[0]->host_memory)
		assert_int_equal(hys_quantize(exec, &args, NULL), HYS_OK);
	hys_exec_destroy(both);
	hys_exec_destroy(without);
	hys_exec_destroy(exec);
	hys_plan_destroy(shared);
	hys_plan_destroy(bare);
	hys_plan_destroy(plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes),
					   cmocka_unit_test(test_refusals)};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
