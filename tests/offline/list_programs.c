/* list_programs FOLDER: every program that the OpenCL backend builds, for compiling where there is
 * no device. The program's whole text goes to FOLDER/<file>; standard output gets lines of
 * fields between tabs:
 *   row      name, the first row with the same program
 *   program  target, row, file, kernel functions, rewritten for ("-" = not), problem, build options
 * Options come from the rows' own functions, for published models and for some shapes and types
 * that they leave out. Fails when a row has no program on any target. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "ocl_internal.h"

#define LIST_MAX 4096

/* A device as discovery would describe it. */
struct target {
	const char *name;
	hys_device_kind kind;
	const char *platform, *device;
	int32_t vector_width;
	int32_t compute_capability;
	int32_t dpas_lanes;
};

static const struct target targets[] = {
	{"gfx90a", HYS_DEVICE_GPU, "AMD Accelerated Parallel Processing", "gfx90a", 1, 0, 0},
	{"gfx942", HYS_DEVICE_GPU, "AMD Accelerated Parallel Processing", "gfx942", 1, 0, 0},
	{"gfx1100", HYS_DEVICE_GPU, "AMD Accelerated Parallel Processing", "gfx1100", 1, 0, 0},
	{"gfx1201", HYS_DEVICE_GPU, "AMD Accelerated Parallel Processing", "gfx1201", 1, 0, 0},
	{"sm_75", HYS_DEVICE_GPU, "NVIDIA CUDA", "Tesla T4", 1, 75, 0},
	{"sm_80", HYS_DEVICE_GPU, "NVIDIA CUDA", "NVIDIA A100", 1, 80, 0},
	{"sm_89", HYS_DEVICE_GPU, "NVIDIA CUDA", "NVIDIA L40", 1, 89, 0},
	{"sm_90", HYS_DEVICE_GPU, "NVIDIA CUDA", "NVIDIA H200", 1, 90, 0},
	{"tgllp", HYS_DEVICE_GPU, "Intel(R) OpenCL Graphics", "Intel(R) Iris(R) Xe Graphics", 1, 0,
	 0},
	{"dg2", HYS_DEVICE_GPU, "Intel(R) OpenCL Graphics", "Intel(R) Arc(TM) A770", 1, 0, 8},
	{"pvc", HYS_DEVICE_GPU, "Intel(R) OpenCL Graphics", "Intel(R) Data Center GPU Max", 1, 0,
	 16},
	/* what any device may be given: as SPIR-V */
	{"gpu", HYS_DEVICE_GPU, "any", "any", 1, 0, 0},
	{"cpu8", HYS_DEVICE_CPU, "any", "any", 8, 0, 0},
	{"cpu16", HYS_DEVICE_CPU, "any", "any", 16, 0, 0},
};

struct shape {
	const char *name;
	struct hys_problem problem;
};

#define SIZE sizeof(struct hys_problem)
#define NAMED_MAX 32

/* The models' shapes are all bf16, and none is odd. */
static const struct shape others[] = {
	{"odd-f32",
	 {SIZE,
	  {.heads = 3, .dim = 5, .groups = 3, .dtype = HYS_F32},
	  {.topk_max = 7, .coarse_block = 4, .coarse_keep = 2},
	  {.heads = 3, .kv_heads = 3, .head_dim = 7, .value_dim = 3, .dtype = HYS_F32}}},
	{"wide-f16",
	 {SIZE,
	  {.heads = 64, .dim = 128, .dtype = HYS_F16},
	  {.topk_max = 2048, .coarse_block = 128},
	  {.heads = 128,
	   .kv_heads = 1,
	   .head_dim = 576,
	   .value_dim = 512,
	   .softcap = 30,
	   .dtype = HYS_F16}}},
	{"wide-f8",
	 {SIZE,
	  {.heads = 64, .dim = 128, .dtype = HYS_F8E4M3},
	  {.topk_max = 2048, .coarse_block = 128},
	  {.heads = 64, .kv_heads = 8, .head_dim = 128, .dtype = HYS_BF16}}},
	{"plain-f32",
	 {SIZE,
	  {.heads = 32, .dim = 64, .dtype = HYS_F32},
	  {.topk_max = 512, .coarse_block = 64},
	  {.heads = 32, .kv_heads = 8, .head_dim = 128, .dtype = HYS_F32}}},
	{"dense-bf16",
	 {SIZE,
	  {.heads = 4, .dim = 64, .dtype = HYS_BF16},
	  {.topk_max = 64},
	  {.heads = 16,
	   .kv_heads = 4,
	   .head_dim = 128,
	   .dtype = HYS_BF16,
	   .flags = HYS_ATTENDING_DENSE}}},
	{"dense-f16",
	 {SIZE,
	  {.heads = 4, .dim = 64, .dtype = HYS_F16},
	  {.topk_max = 64},
	  {.heads = 16,
	   .kv_heads = 16,
	   .head_dim = 192,
	   .value_dim = 128,
	   .softcap = 30,
	   .dtype = HYS_F16,
	   .flags = HYS_ATTENDING_DENSE}}},
};

#define OTHER_COUNT (sizeof(others) / sizeof(others[0]))

static struct shape shapes[NAMED_MAX + OTHER_COUNT];
static int32_t shape_count;

/* What was printed, so that it is printed once. */
static char *printed[LIST_MAX];
static int32_t printed_count;

static const struct hys_host host = {.disable = ""};
static const struct hys_ocl_quirk quirk = {.platform = ""};

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "list_programs: %s: %s\n", what, why);
	return EXIT_FAILURE;
}

static struct hys_ocl_device device_of(const struct target *target)
{
	struct hys_ocl_device device = {.base = {.host = &host}, .quirk = &quirk};
	device.base.backend = &hys_backend_opencl;
	device.base.info.kind = target->kind;
	device.base.info.local_memory_bytes = 48 << 10;
	snprintf(device.base.info.name, sizeof(device.base.info.name), "%s", target->device);
	snprintf(device.platform_name, sizeof(device.platform_name), "%s", target->platform);
	device.work_group_max = 1024;
	device.fast_fma = true;
	device.vector_width = target->vector_width;
	device.compute_capability = target->compute_capability;
	device.dpas_lanes = target->dpas_lanes;
	hys_ocl_find_capabilities(&device);
	return device;
}

static int add_shape(const char *name, const struct hys_problem *problem)
{
	struct shape *shape = &shapes[shape_count++];
	struct hys_error error = {HYS_OK, 0, ""};
	*shape = (struct shape){name, *problem};
	if (shape->problem.choosing.coarse_block == 0)
		shape->problem.choosing.coarse_block =
			4 * (int32_t)hys_max64(shape->problem.scoring.block, 32);
	if (hys_problem_complete(&shape->problem, &error) != HYS_OK)
		return fail(name, error.message);
	return EXIT_SUCCESS;
}

static int fill_shapes(void)
{
	struct hys_error error = {HYS_OK, 0, ""};
	for (int32_t i = 0; hys_problem_name(i); i++) {
		struct hys_problem problem;
		if (i == NAMED_MAX ||
		    hys_problem_named(hys_problem_name(i), &problem, &error) != HYS_OK)
			return fail(hys_problem_name(i), error.message);
		if (add_shape(hys_problem_name(i), &problem) != EXIT_SUCCESS)
			return EXIT_FAILURE;
	}
	for (size_t i = 0; i < OTHER_COUNT; i++)
		if (add_shape(others[i].name, &others[i].problem) != EXIT_SUCCESS)
			return EXIT_FAILURE;
	return EXIT_SUCCESS;
}

static bool print_once(const char *key)
{
	for (int32_t i = 0; i < printed_count; i++)
		if (strcmp(printed[i], key) == 0)
			return false;
	if (printed_count < LIST_MAX)
		printed[printed_count] = malloc(strlen(key) + 1);
	if (printed_count == LIST_MAX || !printed[printed_count])
		exit(fail("programs", "too many"));
	strcpy(printed[printed_count++], key);
	return true;
}

static int write_text(const char *folder, const char *file)
{
	struct hys_error error = {HYS_OK, 0, ""};
	struct hys_ocl_text text;
	char path[4096];
	bool written = true;
	snprintf(path, sizeof(path), "%s/%s", folder, file);
	if (!print_once(path))
		return EXIT_SUCCESS;
	if (hys_ocl_program_text(file, &text, &error) != HYS_OK)
		return fail(file, error.message);
	FILE *out = fopen(path, "wb");
	if (!out)
		return fail(path, strerror(errno));
	for (cl_uint i = 0; i < text.count; i++)
		written &= fwrite(text.pieces[i], 1, text.lengths[i], out) == text.lengths[i];
	return fclose(out) == 0 && written ? EXIT_SUCCESS : fail(path, "cannot be written");
}

/* One line, unless it was printed for another problem. */
static int print_program(const char *folder, const char *target,
			 const struct hys_ocl_device *device, const char *row,
			 const struct hys_ocl_source *source, const struct shape *shape)
{
	struct hys_error error = {HYS_OK, 0, ""};
	struct hys_ocl_options options;
	char entries[1024] = "", key[8192];
	if (hys_ocl_program_options(device, source, shape ? &shape->problem : NULL, &options,
				    &error) != HYS_OK)
		return fail(row, error.message);
	for (int32_t i = 0; source->entries[i]; i++) {
		strncat(entries, i ? " " : "", sizeof(entries) - strlen(entries) - 1);
		strncat(entries, source->entries[i], sizeof(entries) - strlen(entries) - 1);
	}
	snprintf(key, sizeof(key), "%s %s %s %s", target, row, source->file, options.text);
	if (print_once(key))
		printf("program\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", target, row, source->file, entries,
		       source->rewrite ? source->rewrite[0] ? source->rewrite : "local" : "-",
		       shape ? shape->name : "any", options.text);
	return write_text(folder, source->file);
}

/* The first row with the same program. */
static const struct hys_kernel *first_alike(const struct hys_kernel *kernel)
{
	const struct hys_kernel *first = hys_ocl_kernels;
	while (first->detail != kernel->detail)
		first++;
	return first;
}

static bool fits(const struct hys_kernel *kernel, const struct hys_ocl_device *device,
		 const struct hys_problem *problem)
{
	char reason[HYS_REASON_SIZE];
	return (kernel->needs & ~device->base.capabilities) == 0 &&
	       (!kernel->applicable || kernel->applicable(kernel, &device->base, problem, reason));
}

/* Whether a shape gives the row a program that others do not. Of reference kernels only the types
 * matter: the first shape of each pair of them will do. Dense shapes are for rows that do nothing
 * else. */
static bool adds(const struct hys_kernel *kernel, const struct hys_ocl_device *device,
		 int32_t shape)
{
	struct hys_problem problem = shapes[shape].problem;
	const size_t length = strlen(kernel->name);
	if (!fits(kernel, device, &problem))
		return false;
	if (problem.attending.flags & HYS_ATTENDING_DENSE) {
		problem.attending.flags = 0;
		return !fits(kernel, device, &problem);
	}
	if (length < 4 || strcmp(kernel->name + length - 4, ".ref") != 0)
		return true;
	for (int32_t i = 0; i < shape; i++)
		if (shapes[i].problem.scoring.dtype == problem.scoring.dtype &&
		    shapes[i].problem.attending.dtype == problem.attending.dtype)
			return false;
	return true;
}

static int print_row(const char *folder, const struct hys_kernel *kernel)
{
	const char *name = first_alike(kernel)->name;
	bool any = false;
	printf("row\t%s\t%s\n", kernel->name, name);
	for (size_t t = 0; t < sizeof(targets) / sizeof(targets[0]); t++) {
		const struct hys_ocl_device device = device_of(&targets[t]);
		/* a processor runs all rows, but what matters on it is its own */
		if (targets[t].kind == HYS_DEVICE_CPU && !(kernel->needs & HYS_OCL_CPU))
			continue;
		for (int32_t i = 0; i < shape_count; i++) {
			if (!adds(kernel, &device, i))
				continue;
			any = true;
			if (print_program(folder, targets[t].name, &device, name, kernel->detail,
					  &shapes[i]) != EXIT_SUCCESS)
				return EXIT_FAILURE;
		}
	}
	return any ? EXIT_SUCCESS : fail(kernel->name, "no problem and target here that it is for");
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return fail("usage", "list_programs FOLDER");
	if (fill_shapes() != EXIT_SUCCESS)
		return EXIT_FAILURE;
	for (int32_t i = 0; i < HYS_OCL_KERNEL_COUNT; i++)
		if (print_row(argv[1], &hys_ocl_kernels[i]) != EXIT_SUCCESS)
			return EXIT_FAILURE;
	printf("row\tpeak\tpeak\nrow\tadd\tadd\nrow\tquantize\tquantize\n");
	for (size_t t = 0; t < sizeof(targets) / sizeof(targets[0]); t++) {
		const struct hys_ocl_device device = device_of(&targets[t]);
		if (print_program(argv[1], targets[t].name, &device, "peak", &hys_ocl_peak_source,
				  NULL) != EXIT_SUCCESS ||
		    print_program(argv[1], targets[t].name, &device, "add", &hys_ocl_add_source,
				  NULL) != EXIT_SUCCESS ||
		    print_program(argv[1], targets[t].name, &device, "quantize",
				  &hys_ocl_quantize_source, NULL) != EXIT_SUCCESS)
			return EXIT_FAILURE;
	}
	while (printed_count > 0)
		free(printed[--printed_count]);
	return ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
