/* ocl_matrix.c - the table of matrix units, and which of them a device has. */
#include "ocl_matrix.h"

#include <stdio.h>
#include <string.h>

enum { MMA, MFMA_GFX90A, MFMA, WMMA, WMMA_GFX12, DPAS_8, DPAS_16, UNITS };

/* Tiles were chosen for the registers that compilers report, without spills: 154 of 255 on NVIDIA, 70
 * of 512 on CDNA, 142 of 256 on RDNA, all 128 on Intel. CDNA2 takes denormal operands for zero, which
 * in f16 are too large to lose. */
const struct hys_ocl_unit hys_ocl_units[] = {
	[MMA] = {"mma", HYS_OCL_UNIT_MMA, HYS_OCL_MMA, true, 32, 4, 8, 16, 12, 2, 2, 8},
	[MFMA_GFX90A] = {"mfma of gfx90a", HYS_OCL_UNIT_MFMA, HYS_OCL_MFMA, false, 64, 4, 16, 16,
			 12, 2, 2, 4},
	[MFMA] = {"mfma", HYS_OCL_UNIT_MFMA, HYS_OCL_MFMA, true, 64, 4, 16, 16, 12, 2, 2, 4},
	[WMMA] = {"wmma", HYS_OCL_UNIT_WMMA, HYS_OCL_WMMA, true, 32, 4, 16, 16, 12, 1, 1, 4},
	[WMMA_GFX12] = {"wmma of gfx12", HYS_OCL_UNIT_WMMA_GFX12, HYS_OCL_WMMA, true, 32, 4, 16, 16,
			12, 2, 1, 4},
	[DPAS_8] = {"dpas of 8 lanes", HYS_OCL_UNIT_DPAS, HYS_OCL_DPAS, true, 8, 8, 8, 8, 8, 1, 2,
		    4},
	[DPAS_16] = {"dpas of 16 lanes", HYS_OCL_UNIT_DPAS, HYS_OCL_DPAS, true, 16, 4, 8, 16, 8, 1,
		     2, 4},
};
const int32_t hys_ocl_unit_count = UNITS;

/* AMD's own platform calls devices by their processors, "gfx90a:sramecc+:xnack-"; others that have
 * AMD's GPUs compile without its builtins. */
static const struct {
	const char *start;
	int32_t unit;
} processors[] = {
	{"gfx90a", MFMA_GFX90A}, {"gfx940", MFMA}, {"gfx941", MFMA},
	{"gfx942", MFMA},	 {"gfx11", WMMA},  {"gfx120", WMMA_GFX12},
};

static const struct hys_ocl_unit *find_processor(const char *name)
{
	for (size_t i = 0; i < sizeof(processors) / sizeof(processors[0]); i++)
		if (strncmp(name, processors[i].start, strlen(processors[i].start)) == 0)
			return &hys_ocl_units[processors[i].unit];
	return NULL;
}

const struct hys_ocl_unit *hys_ocl_find_unit(const struct hys_ocl_device *device)
{
	if (device->compute_capability >= 80)
		return &hys_ocl_units[MMA];
	if (strstr(device->platform_name, "AMD"))
		return find_processor(device->base.info.name);
	if (device->dpas_lanes == 8)
		return &hys_ocl_units[DPAS_8];
	return device->dpas_lanes == 16 ? &hys_ocl_units[DPAS_16] : NULL;
}

void hys_ocl_define_unit(struct hys_ocl_options *options, const struct hys_ocl_unit *unit,
			 hys_dtype dtype)
{
	hys_ocl_define(options, "UNIT", unit->kind);
	hys_ocl_define(options, "UNIT_LANES", unit->lanes);
	hys_ocl_define(options, "UNIT_TYPE", dtype == HYS_F16 ? HYS_F16 : HYS_BF16);
	hys_ocl_define(options, "SUBGROUPS", unit->subgroups);
}

bool hys_ocl_unit_multiplies(const struct hys_ocl_device *device, const char *what, hys_dtype dtype,
			     char reason[HYS_REASON_SIZE])
{
	const struct hys_ocl_unit *unit = device->unit;
	if (dtype == HYS_F32 || (dtype == HYS_F16 && !unit->f16))
		snprintf(reason, HYS_REASON_SIZE, "%s multiplies %s, %s is %s", unit->name,
			 unit->f16 ? "bf16 and f16" : "bf16", what, hys_dtype_name(dtype));
	else if ((size_t)unit->subgroups * (size_t)unit->lanes > device->work_group_max)
		snprintf(reason, HYS_REASON_SIZE,
			 "work-groups of %d work-items are needed, the device has %zu",
			 (int)(unit->subgroups * unit->lanes), device->work_group_max);
	else
		reason[0] = 0;
	return reason[0] == 0;
}

bool hys_ocl_unit_multiplies_weights(const struct hys_ocl_device *device, const char *what,
				     hys_dtype dtype, char reason[HYS_REASON_SIZE])
{
	if (dtype != HYS_F16)
		return hys_ocl_unit_multiplies(device, what, dtype, reason);
	snprintf(reason, HYS_REASON_SIZE,
		 "weights of gradients may be too small for f16, %s is f16", what);
	return false;
}
