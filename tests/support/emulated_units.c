#include "emulated_units.h"

#include <stdio.h>
#include <string.h>

#include "ocl_attention.h"
#include "ocl_select.h"

#define ROWS_MAX 32

/* A detail begins with its source; there is room for the longest. */
union detail {
	struct hys_ocl_source source;
	struct hys_ocl_select select;
	struct hys_ocl_products products;
};

static struct hys_kernel kernels[ROWS_MAX];
static union detail details[ROWS_MAX];
static const struct hys_ocl_source *originals[ROWS_MAX];
static struct hys_backend backend;
static int32_t row_count, emulated_fault;

static void define(const struct hys_ocl_source *source, const struct hys_ocl_device *device,
		   const struct hys_problem *problem, struct hys_ocl_options *options)
{
	const size_t row = (size_t)((const union detail *)(const void *)source - details);

	originals[row]->define(source, device, problem, options);
	hys_ocl_define(options, "UNIT_EMULATED", 1);
	hys_ocl_define(options, "EMULATION_FAULT", emulated_fault);
	options->length += (size_t)snprintf(options->text + options->length,
					    sizeof(options->text) - options->length,
					    " -cl-opt-disable -I " HYS_SOURCE_DIR "/tests/support");
	options->overflow = options->overflow || options->length >= sizeof(options->text);
}

static size_t detail_bytes(hys_op op)
{
	return op <= HYS_OP_SELECT_COARSE_TO_FINE ? sizeof(struct hys_ocl_select)
						  : sizeof(struct hys_ocl_products);
}

/* Those built on matrix.clh; other rows for the same devices are not. */
static bool by_unit(const struct hys_kernel *kernel, const struct hys_ocl_unit *unit)
{
	return kernel->needs == unit->capability &&
	       (kernel->run == hys_ocl_select_run || kernel->run == hys_ocl_forward ||
		kernel->run == hys_ocl_backward);
}

static void add_row(const struct hys_kernel *kernel)
{
	originals[row_count] = kernel->detail;
	memcpy(&details[row_count], kernel->detail, detail_bytes(kernel->op));
	details[row_count].source.define = define;
	kernels[row_count] = *kernel;
	kernels[row_count].detail = &details[row_count];
	row_count++;
}

void emulate_unit(struct hys_context *context, const struct hys_ocl_unit *unit, int32_t fault)
{
	row_count = 0;
	emulated_fault = fault;
	for (int32_t i = 0; i < hys_backend_opencl.kernel_count && row_count < ROWS_MAX; i++)
		if (by_unit(&hys_backend_opencl.kernels[i], unit))
			add_row(&hys_backend_opencl.kernels[i]);
	backend = hys_backend_opencl;
	backend.kernels = kernels;
	backend.kernel_count = row_count;
	for (int32_t i = 0; i < context->device_count; i++) {
		struct hys_device *device = context->devices[i];

		if (strcmp(device->backend->name, "opencl") != 0)
			continue;
		hys_ocl_device(device)->unit = unit;
		device->capabilities = unit->capability;
		device->backend = &backend;
	}
}
