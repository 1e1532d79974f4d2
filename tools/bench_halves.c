#include "bench_halves.h"

#ifdef HYS_WITH_OPENCL
#include "hyscale/opencl.h"

#define PLATFORMS_MAX 16

static bool divide(cl_device_id whole, cl_device_id parts[2])
{
	cl_uint units = 0, count = 0;
	clGetDeviceInfo(whole, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
	const cl_device_partition_property counts[] = {CL_DEVICE_PARTITION_BY_COUNTS, units / 2,
						       units / 2,
						       CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
	return units >= 2 && clCreateSubDevices(whole, counts, 2, parts, &count) == CL_SUCCESS &&
	       count == 2;
}

bool bench_halves_make(struct hys_native_device halves[2])
{
	cl_platform_id platforms[PLATFORMS_MAX];
	cl_device_id parts[2] = {NULL, NULL}, whole;
	cl_uint count = 0;
	bool found = false;
	if (clGetPlatformIDs(PLATFORMS_MAX, platforms, &count) != CL_SUCCESS)
		return false;
	for (cl_uint i = 0; !found && i < count && i < PLATFORMS_MAX; i++)
		found = clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &whole, NULL) ==
				CL_SUCCESS &&
			divide(whole, parts);
	for (int i = 0; found && i < 2; i++)
		halves[i] = hys_opencl_device(clCreateContext(NULL, 1, &parts[i], NULL, NULL, NULL),
					      parts[i]);
	if (found && halves[0].context && halves[1].context)
		return true;
	if (found)
		bench_halves_free(halves);
	return false;
}

void bench_halves_free(struct hys_native_device halves[2])
{
	for (int i = 0; i < 2; i++) {
		if (halves[i].context)
			clReleaseContext(halves[i].context);
		clReleaseDevice(halves[i].device);
	}
}
#else
bool bench_halves_make(struct hys_native_device halves[2])
{
	(void)halves;
	return false;
}

void bench_halves_free(struct hys_native_device halves[2])
{
	(void)halves;
}
#endif
