#include "halves.h"

#include <stdio.h>

#ifdef HYS_WITH_OPENCL
#include "hyscale/opencl.h"

#define PLATFORMS_MAX 16

/* Two devices of half the units of `whole`. */
static bool divide(cl_device_id whole, struct hys_native_device halves[2])
{
	cl_device_id parts[2] = {NULL, NULL};
	cl_uint units = 0, count = 0;
	bool made = true;

	clGetDeviceInfo(whole, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
	const cl_device_partition_property counts[] = {CL_DEVICE_PARTITION_BY_COUNTS, units / 2,
						       units - units / 2,
						       CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
	if (units < 2 || clCreateSubDevices(whole, counts, 2, parts, &count) != CL_SUCCESS ||
	    count != 2)
		return false;
	for (int32_t i = 0; i < 2; i++) {
		cl_context context = clCreateContext(NULL, 1, &parts[i], NULL, NULL, NULL);

		halves[i] = hys_opencl_device(context, parts[i]);
		made = made && context;
	}
	if (!made)
		halves_free(halves);
	return made;
}

bool halves_make(struct hys_native_device halves[2], char *why, size_t size)
{
	cl_platform_id platforms[PLATFORMS_MAX];
	cl_uint count = 0;

	if (clGetPlatformIDs(PLATFORMS_MAX, platforms, &count) != CL_SUCCESS)
		count = 0;
	for (cl_uint i = 0; i < count && i < PLATFORMS_MAX; i++) {
		cl_device_id device = NULL;

		if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL) ==
			    CL_SUCCESS &&
		    divide(device, halves))
			return true;
	}
	snprintf(why, size, "none of %u OpenCL platforms has a device that divides in two", count);
	return false;
}

void halves_free(struct hys_native_device *halves)
{
	for (int32_t i = 0; i < 2; i++) {
		if (halves[i].context)
			clReleaseContext(halves[i].context);
		clReleaseDevice(halves[i].device);
	}
}
#else
bool halves_make(struct hys_native_device halves[2], char *why, size_t size)
{
	(void)halves;
	snprintf(why, size, "built without OpenCL");
	return false;
}

void halves_free(struct hys_native_device *halves)
{
	(void)halves;
}
#endif
