/* ocl_device.c - finding devices, what they can do, what is known of them. */
#include <stdio.h>
#include <string.h>

#include "ocl_matrix.h"

#define PLATFORMS_MAX 32
#define DEVICES_MAX 64
#define WORK_GROUP_LEAST 64

/* First fit by parts of names; the last row fits all. Vendor ids are no help: PoCL answers
 * Intel's on any processor. */
static const struct hys_ocl_quirk quirks[] = {
	{.platform = "Portable Computing Language", .own_cache = true},
	{.platform = "Oclgrind", .own_cache = true},
	/* Mesa 22.3.6: after clFlush, clFinish returns at once if nothing was given since. Its
	 * llvmpipe leaves loops when a work-item has been round them 65535 times in all. */
	{.platform = "rusticl",
	 .device = "llvmpipe",
	 .own_cache = true,
	 .finish_forgets = true,
	 .defect = "llvmpipe ends loops after 65535 rounds: large problems would come out wrong"},
	{.platform = "rusticl", .own_cache = true, .finish_forgets = true},
	{.platform = "NVIDIA", .flops_per_clock = 256},
	{.platform = "AMD", .flops_per_clock = 128},
	{.platform = "Intel(R) OpenCL", .flops_per_clock = 16},
	{.platform = ""},
};

/* cl_khr_pci_bus_info, cl_nv_device_attribute_query and cl_khr_device_uuid, which
 * 1.2 headers need not have; cl_intel_required_subgroup_size. */
#define DEVICE_PCI_BUS_INFO_KHR 0x410F
#define DEVICE_COMPUTE_CAPABILITY_MAJOR_NV 0x4000
#define DEVICE_COMPUTE_CAPABILITY_MINOR_NV 0x4001
#define DEVICE_PCI_BUS_ID_NV 0x4008
#define DEVICE_PCI_SLOT_ID_NV 0x4009
#define DEVICE_PCI_DOMAIN_ID_NV 0x400A
#define DEVICE_UUID_KHR 0x106A
#define DEVICE_SUB_GROUP_SIZES_INTEL 0x4108

/* A device that was reported before. */
struct seen_device {
	cl_device_id id;
	cl_platform_id platform;
	hys_device_kind kind;
	char place[64], uuid[40], name[96];
};

struct seen {
	struct seen_device devices[DEVICES_MAX];
	int32_t count;
	int32_t considered; /* rejected ones too */
};

static const struct hys_ocl_quirk *find_quirk(const char *platform, const char *device)
{
	const struct hys_ocl_quirk *quirk = quirks;
	while (!strstr(platform, quirk->platform) ||
	       (quirk->device && !strstr(device, quirk->device)))
		quirk++;
	return quirk;
}

static void device_text(cl_device_id id, cl_device_info what, char *text, size_t size)
{
	char long_text[1024] = "";
	if (clGetDeviceInfo(id, what, sizeof(long_text) - 1, long_text, NULL) != CL_SUCCESS)
		long_text[0] = 0;
	const char *start = long_text + strspn(long_text, " ");
	snprintf(text, size, "%s", start);
}

/* A number of any width up to 64 bits; 0 when the device does not know. */
static uint64_t device_number(cl_device_id id, cl_device_info what)
{
	union {
		uint64_t wide;
		uint32_t narrow;
	} value = {0};
	size_t bytes = 0;
	if (clGetDeviceInfo(id, what, sizeof(value), &value, &bytes) != CL_SUCCESS)
		return 0;
	return bytes == sizeof(value.narrow) ? value.narrow : value.wide;
}

static bool has_extension(cl_device_id id, const char *name)
{
	char extensions[8192] = "";
	const size_t length = strlen(name);
	if (clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, sizeof(extensions) - 1, extensions, NULL) !=
	    CL_SUCCESS)
		return false;
	for (const char *at = extensions; (at = strstr(at, name)) != NULL; at += length)
		if ((at == extensions || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
			return true;
	return false;
}

static void find_place(cl_device_id id, char *place, size_t size)
{
	cl_uint khr[4] = {0}; /* domain, bus, device, function */
	size_t bytes = 0;
	place[0] = 0;
	if (has_extension(id, "cl_khr_pci_bus_info") &&
	    clGetDeviceInfo(id, DEVICE_PCI_BUS_INFO_KHR, sizeof(khr), khr, &bytes) == CL_SUCCESS &&
	    bytes == sizeof(khr)) {
		snprintf(place, size, "%04x:%02x:%02x.%x", khr[0], khr[1], khr[2], khr[3]);
		return;
	}
	cl_uint bus = 0, slot = 0;
	if (has_extension(id, "cl_nv_device_attribute_query") &&
	    clGetDeviceInfo(id, DEVICE_PCI_BUS_ID_NV, sizeof(bus), &bus, NULL) == CL_SUCCESS &&
	    clGetDeviceInfo(id, DEVICE_PCI_SLOT_ID_NV, sizeof(slot), &slot, NULL) == CL_SUCCESS)
		snprintf(place, size, "%04x:%02x:%02x.%x",
			 (unsigned int)device_number(id, DEVICE_PCI_DOMAIN_ID_NV), bus, slot >> 3,
			 slot & 7);
}

static void find_uuid(cl_device_id id, char *uuid, size_t size)
{
	unsigned char raw[16];
	size_t bytes = 0;
	uuid[0] = 0;
	if (!has_extension(id, "cl_khr_device_uuid") ||
	    clGetDeviceInfo(id, DEVICE_UUID_KHR, sizeof(raw), raw, &bytes) != CL_SUCCESS ||
	    bytes != sizeof(raw))
		return;
	for (size_t i = 0; i < sizeof(raw) && 2 * i + 3 <= size; i++)
		snprintf(uuid + 2 * i, 3, "%02x", raw[i]);
}

static hys_device_kind kind_of(cl_device_id id)
{
	uint64_t type = device_number(id, CL_DEVICE_TYPE);
	if (type & CL_DEVICE_TYPE_GPU)
		return HYS_DEVICE_GPU;
	return type & CL_DEVICE_TYPE_CPU ? HYS_DEVICE_CPU : HYS_DEVICE_ACCELERATOR;
}

static double nominal_flops(const struct hys_ocl_quirk *quirk, cl_device_id id)
{
	double per_clock = quirk->flops_per_clock;
	if (per_clock == 0) /* two multiply-adds of a vector */
		per_clock = 4.0 *
			    (double)hys_max64(1, (int64_t)device_number(
							 id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT));
	return per_clock * (double)device_number(id, CL_DEVICE_MAX_COMPUTE_UNITS) *
	       (double)device_number(id, CL_DEVICE_MAX_CLOCK_FREQUENCY) * 1e6;
}

/* Subgroups with which Intel's matrix units work: the smallest that the device has. */
static int32_t find_dpas_lanes(cl_device_id id)
{
	size_t sizes[8] = {0}, bytes = 0, least = 0;
	if (!has_extension(id, "cl_intel_subgroup_matrix_multiply_accumulate") ||
	    clGetDeviceInfo(id, DEVICE_SUB_GROUP_SIZES_INTEL, sizeof(sizes), sizes, &bytes) !=
		    CL_SUCCESS)
		return 0;
	for (size_t i = 0; i < bytes / sizeof(sizes[0]); i++)
		if (least == 0 || sizes[i] < least)
			least = sizes[i];
	return (int32_t)least;
}

/* What the device can do, less what the caller pretends away. */
void hys_ocl_find_capabilities(struct hys_ocl_device *device)
{
	const char *const *names = hys_backend_opencl.capability_names;
	struct hys_device_info *info = &device->base.info;
	uint64_t found = 0;
	size_t used = 0;
	if (info->kind == HYS_DEVICE_CPU)
		found |= HYS_OCL_CPU;
#ifdef HYS_WITH_CLBLAST
	found |= HYS_OCL_CLBLAST;
#endif
	if (device->compute_capability == 90)
		found |= HYS_OCL_WGMMA;
	device->unit = hys_ocl_find_unit(device);
	if (device->unit)
		found |= device->unit->capability;
	for (int32_t i = 0; names[i]; i++) {
		if (hys_host_disabled(device->base.host, names[i]))
			found &= ~(UINT64_C(1) << i);
		if (found >> i & 1)
			used += (size_t)snprintf(info->capabilities + used,
						 sizeof(info->capabilities) - used, "%s%s",
						 used ? " " : "", names[i]);
	}
	if (device->compute_capability)
		snprintf(info->capabilities + used, sizeof(info->capabilities) - used, "%ssm_%d",
			 used ? " " : "", (int)device->compute_capability);
	device->base.capabilities = found;
}

static void describe(struct hys_ocl_device *device)
{
	struct hys_device_info *info = &device->base.info;
	cl_device_id id = device->id;
	char uuid[40];
	snprintf(info->backend, sizeof(info->backend), "opencl");
	device_text(id, CL_DEVICE_NAME, info->name, sizeof(info->name));
	device->quirk = find_quirk(device->platform_name, info->name);
	device_text(id, CL_DEVICE_VENDOR, info->vendor, sizeof(info->vendor));
	device_text(id, CL_DRIVER_VERSION, info->driver, sizeof(info->driver));
	find_place(id, info->id, sizeof(info->id));
	find_uuid(id, uuid, sizeof(uuid));
	if (!info->id[0])
		snprintf(info->id, sizeof(info->id), "%s", uuid);
	info->kind = kind_of(id);
	info->compute_units = (int32_t)device_number(id, CL_DEVICE_MAX_COMPUTE_UNITS);
	info->numa_node = -1;
	info->memory_bytes = (int64_t)device_number(id, CL_DEVICE_GLOBAL_MEM_SIZE);
	info->max_allocation_bytes = (int64_t)device_number(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
	info->local_memory_bytes = (int64_t)device_number(id, CL_DEVICE_LOCAL_MEM_SIZE);
	info->nominal_flops_per_s = nominal_flops(device->quirk, id);
	device->work_group_max = (size_t)device_number(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
	device->vector_width = (int32_t)device_number(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
	uint64_t fp = device_number(id, CL_DEVICE_SINGLE_FP_CONFIG);
	device->fast_fma = (fp & CL_FP_FMA) && !(fp & CL_FP_SOFT_FLOAT);
	if (has_extension(id, "cl_nv_device_attribute_query"))
		device->compute_capability =
			(int32_t)(10 * device_number(id, DEVICE_COMPUTE_CAPABILITY_MAJOR_NV) +
				  device_number(id, DEVICE_COMPUTE_CAPABILITY_MINOR_NV));
	device->base.builds_long = device->compute_capability > 0;
	device->dpas_lanes = find_dpas_lanes(id);
	hys_ocl_find_capabilities(device);
}

/* Fills `reason` and answers false when the device cannot be used. */
static bool usable(const struct hys_ocl_device *device, char *reason, size_t size)
{
	char version[96];
	int major = 0, minor = 0;
	device_text(device->id, CL_DEVICE_VERSION, version, sizeof(version));
	if (sscanf(version, "OpenCL %4d.%4d", &major, &minor) != 2 || major * 10 + minor < 12)
		snprintf(reason, size, "\"%s\": OpenCL 1.2 or newer is needed", version);
	else if (device->quirk->defect && !hys_host_disabled(device->base.host, "defects"))
		snprintf(reason, size, "%s", device->quirk->defect);
	else if (!device_number(device->id, CL_DEVICE_AVAILABLE))
		snprintf(reason, size, "the driver says that the device is not available");
	else if (!device_number(device->id, CL_DEVICE_COMPILER_AVAILABLE))
		snprintf(reason, size, "the driver has no OpenCL C compiler");
	else if (!device_number(device->id, CL_DEVICE_ENDIAN_LITTLE))
		snprintf(reason, size, "the device is not little endian");
	else if (device->work_group_max < WORK_GROUP_LEAST)
		snprintf(reason, size,
			 "work-groups of %d work-items are needed, the device has %zu",
			 WORK_GROUP_LEAST, device->work_group_max);
	else if (device->base.info.local_memory_bytes < 16384)
		snprintf(reason, size,
			 "16384 bytes of local memory are needed, the device has %lld",
			 (long long)device->base.info.local_memory_bytes);
	else
		reason[0] = 0;
	return reason[0] == 0;
}

static bool ends_in(const char *text, const char *end)
{
	size_t length = strlen(text), of_end = strlen(end);
	return of_end > 0 && length >= of_end && strcmp(text + length - of_end, end) == 0;
}

/* The same device by way of another platform: by PCI address, UUID or, for processors, by
 * name, to which some put a prefix. Two devices of one platform with one name are meant
 * (POCL_DEVICES="pthread pthread"). */
static bool is_twin(const struct seen_device *a, const struct seen_device *b)
{
	if (a->platform == b->platform)
		return false;
	return (a->place[0] && strcmp(a->place, b->place) == 0) ||
	       (a->uuid[0] && strcmp(a->uuid, b->uuid) == 0) ||
	       (a->kind == HYS_DEVICE_CPU && b->kind == HYS_DEVICE_CPU &&
		(ends_in(a->name, b->name) || ends_in(b->name, a->name)));
}

static bool was_seen(const struct seen *seen, cl_device_id id)
{
	for (int32_t i = 0; i < seen->count; i++)
		if (seen->devices[i].id == id)
			return true;
	return false;
}

/* Notes a device; fills `reason` and answers true when it was there before. */
static bool is_duplicate(struct seen *seen, const struct hys_ocl_device *device, char *reason,
			 size_t size)
{
	const struct hys_device_info *info = &device->base.info;
	struct seen_device now = {
		.id = device->id, .platform = device->platform, .kind = info->kind};
	snprintf(now.place, sizeof(now.place), "%s", info->id);
	find_uuid(device->id, now.uuid, sizeof(now.uuid));
	snprintf(now.name, sizeof(now.name), "%s", info->name);
	for (int32_t i = 0; i < seen->count; i++)
		if (is_twin(&seen->devices[i], &now)) {
			snprintf(reason, size, "the same device as \"%s\", which is used",
				 seen->devices[i].name);
			return true;
		}
	if (seen->count < DEVICES_MAX)
		seen->devices[seen->count++] = now;
	return false;
}

void hys_ocl_device_destroy(struct hys_device *base)
{
	struct hys_ocl_device *device = hys_ocl_device(base);
	if (!device)
		return;
	if (device->queue)
		clReleaseCommandQueue(device->queue);
	if (device->context) {
		hys_ocl_gemm_forget();
		clReleaseContext(device->context);
	}
	hys_free(&device->base.host->allocator, device);
}

static hys_status open_device(struct hys_ocl_device *device, cl_context native,
			      struct hys_error *error)
{
	cl_int code = CL_SUCCESS;
	if (native) {
		code = clRetainContext(native);
		device->context = code == CL_SUCCESS ? native : NULL;
	} else {
		cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
						      (cl_context_properties)device->platform, 0};
		device->context = clCreateContext(properties, 1, &device->id, NULL, NULL, &code);
	}
	if (code != CL_SUCCESS)
		return hys_ocl_check(error, code, native ? "clRetainContext" : "clCreateContext");
	device->queue = clCreateCommandQueue(device->context, device->id, 0, &code);
	return hys_ocl_check(error, code, "clCreateCommandQueue");
}

/* Adds or rejects one device; `native` is the caller's context or NULL. */
static hys_status consider(struct hys_discovery *discovery, struct seen *seen,
			   cl_platform_id platform, cl_device_id id, cl_context native,
			   struct hys_error *error)
{
	struct hys_ocl_device *device = hys_alloc(&discovery->host->allocator, sizeof(*device));
	if (!device)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for an OpenCL device");
	seen->considered++;
	device->base.backend = &hys_backend_opencl;
	device->base.host = discovery->host;
	device->platform = platform;
	device->id = id;
	(void)clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(device->platform_name) - 1,
				device->platform_name, NULL);
	(void)clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof(device->platform_version) - 1,
				device->platform_version, NULL);
	describe(device);

	struct hys_device_info *info = &device->base.info;
	struct hys_error failure = {0};
	if (usable(device, info->reason, sizeof(info->reason)) &&
	    (!is_duplicate(seen, device, info->reason, sizeof(info->reason)) || native)) {
		if (open_device(device, native, &failure) == HYS_OK)
			return hys_discovery_add(discovery, &device->base, error);
		snprintf(info->reason, sizeof(info->reason), "%.190s", failure.message);
	}
	hys_status status = hys_discovery_reject(discovery, info, error);
	hys_ocl_device_destroy(&device->base);
	return status;
}

static hys_status consider_natives(struct hys_discovery *discovery, struct seen *seen,
				   struct hys_error *error)
{
	for (int32_t i = 0; i < discovery->native_count; i++) {
		const struct hys_native_device *native = &discovery->natives[i];
		cl_platform_id platform = NULL;
		cl_int code = native->context && native->device
				      ? clGetDeviceInfo(native->device, CL_DEVICE_PLATFORM,
							sizeof(platform), &platform, NULL)
				      : CL_INVALID_DEVICE;
		if (code != CL_SUCCESS)
			return hys_fail(error, HYS_INVALID_ARGUMENT, code,
					"natives[%d] is not an OpenCL context with one of its "
					"devices: %s (%d)",
					(int)i, hys_ocl_error_name(code), (int)code);
		hys_status status =
			consider(discovery, seen, platform, native->device, native->context, error);
		if (status != HYS_OK)
			return status;
	}
	return HYS_OK;
}

/* Devices of one kind, of all platforms: GPUs are wanted before processors. */
static hys_status consider_type(struct hys_discovery *discovery, struct seen *seen,
				const cl_platform_id *platforms, cl_uint platform_count,
				cl_device_type type, struct hys_error *error)
{
	for (cl_uint p = 0; p < platform_count; p++) {
		cl_device_id ids[DEVICES_MAX];
		cl_uint count = 0;
		/* An empty platform answers -1 here; one that is broken is as good as empty. */
		if (clGetDeviceIDs(platforms[p], type, DEVICES_MAX, ids, &count) != CL_SUCCESS)
			continue;
		for (cl_uint d = 0; d < count && d < DEVICES_MAX; d++) {
			if (was_seen(seen, ids[d])) /* of several types, or a native */
				continue;
			hys_status status =
				consider(discovery, seen, platforms[p], ids[d], NULL, error);
			if (status != HYS_OK)
				return status;
		}
	}
	return HYS_OK;
}

hys_status hys_ocl_discover(struct hys_discovery *discovery, struct hys_error *error)
{
	static const cl_device_type types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR,
					       CL_DEVICE_TYPE_CPU};
	cl_platform_id platforms[PLATFORMS_MAX];
	cl_uint platform_count = 0;
	hys_status status = HYS_OK;
	struct seen *seen = hys_alloc(&discovery->host->allocator, sizeof(*seen));
	if (!seen)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory to list OpenCL devices");

	HYS_TRY(consider_natives(discovery, seen, error));
	cl_int code = clGetPlatformIDs(PLATFORMS_MAX, platforms, &platform_count);
	if ((code != CL_SUCCESS || platform_count == 0) && discovery->native_count == 0)
		status = hys_fail(
			error, HYS_NO_PLATFORM, code,
			"no OpenCL platform is installed: install the device's driver package, "
			"or pocl-opencl-icd for processors, and see what clinfo says");
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && status == HYS_OK; i++)
		status = consider_type(discovery, seen, platforms,
				       platform_count < PLATFORMS_MAX ? platform_count
								      : PLATFORMS_MAX,
				       types[i], error);
	if (status == HYS_OK && seen->considered == 0)
		status = hys_fail(error, HYS_NO_DEVICE, 0,
				  "the OpenCL platforms that are installed (%u) have no devices: see "
				  "what clinfo says; PoCL needs a folder that it can write to, "
				  "POCL_CACHE_DIR",
				  platform_count);
cleanup:
	hys_free(&discovery->host->allocator, seen);
	return status;
}
