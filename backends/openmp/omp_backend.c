/* omp_backend.c - the CPU as one device: discovery, memory, streams. Work is
 * done by the calling thread and OpenMP's, so that everything is finished when
 * a call returns and events are nothing. */
#include <stdio.h>
#include <string.h>

#ifdef HYS_WITH_OPENMP
#include <omp.h>
#endif

#include "omp_cpu.h"
#include "omp_internal.h"
#include "omp_kernels.h"
#include "omp_measure.h"

/* What the rows below stand for. */
static const enum omp_set portable = OMP_SET_PORTABLE;
#ifdef HYS_ISA_NEON
static const enum omp_set neon = OMP_SET_NEON;
#endif
#ifdef HYS_ISA_AVX2
static const enum omp_set avx2 = OMP_SET_AVX2;
#endif
#ifdef HYS_ISA_AVX512
static const enum omp_set avx512 = OMP_SET_AVX512;
#endif
#ifdef HYS_ISA_AVX512BF16
static const enum omp_set avx512bf16 = OMP_SET_AVX512BF16;
#endif
#ifdef HYS_ISA_AMX
static const enum omp_set amx = OMP_SET_AMX;
#endif

static const struct hys_kernel kernels[] = {
#include "omp_kernels.def"
};

static const char *const capability_names[] = {"avx2", "fma",  "f16c",	   "avx512", "avx512bf16",
					       "amx",  "neon", "fastbf16", NULL};

#define THREADS_MAX 1024

/* Not only host->cpus_allowed: the runtime may have bound the calling thread
 * alone (OMP_PROC_BIND), whose processors those are. */
static int64_t count_processors(const struct hys_host *host)
{
#ifdef HYS_WITH_OPENMP
	return hys_max64(omp_get_num_procs(), host->cpus_allowed);
#else
	return host->cpus_allowed;
#endif
}

static int32_t count_threads(const struct hys_host *host)
{
#ifdef HYS_WITH_OPENMP
	/* More threads than a container gets time for only wait for each other. */
	const int64_t most = host->cpus_quota > 0 ? host->cpus_quota : THREADS_MAX;
	const int64_t usual =
		hys_min64(most, hys_min64(omp_get_max_threads(), count_processors(host)));
	const int64_t wanted = host->threads > 0 ? host->threads : usual;
	return (int32_t)hys_max64(1, hys_min64(wanted, THREADS_MAX));
#else
	(void)host;
	return 1;
#endif
}

static uint64_t find_capabilities(const struct hys_host *host)
{
	uint64_t found = omp_cpu_capabilities();
	for (int32_t i = 0; capability_names[i]; i++)
		if (hys_host_disabled(host, capability_names[i]))
			found &= ~(UINT64_C(1) << i);
	if ((found & OMP_CAN_AMX) && !omp_cpu_permit_tiles()) {
		hys_host_log(host, HYS_LOG_WARNING, "the system does not permit AMX tiles");
		found &= ~(uint64_t)OMP_CAN_AMX;
	}
	return found;
}

static void list_capabilities(uint64_t capabilities, char *text, size_t size)
{
	size_t used = 0;
	text[0] = '\0';
	for (int32_t i = 0; capability_names[i]; i++)
		if ((capabilities >> i & 1) && used < size)
			used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "",
						 capability_names[i]);
}

static void describe(struct omp_device *device)
{
	struct hys_device_info *info = &device->base.info;
	/* Two 8-wide multiply-adds a cycle with AVX2, two 4-wide additions and
	 * two multiplications without. */
	const bool wide = (device->base.capabilities & OMP_NEEDS_AVX2) == OMP_NEEDS_AVX2;
	const int64_t units = hys_min64(device->threads, count_processors(device->base.host));
	omp_cpu_describe(info);
	snprintf(info->backend, sizeof info->backend, "openmp");
#ifdef HYS_WITH_OPENMP
	snprintf(info->driver, sizeof info->driver, "OpenMP %d", _OPENMP);
#else
	snprintf(info->driver, sizeof info->driver, "serial");
#endif
	info->kind = HYS_DEVICE_CPU;
	info->compute_units = device->threads;
	info->numa_node = -1;
	info->nominal_flops_per_s =
		(double)hys_max64(1, units) * (wide ? 32.0 : 16.0) * omp_cpu_clock();
	list_capabilities(device->base.capabilities, info->capabilities, sizeof info->capabilities);
}

/* There is no CPU device but the one found here. */
static hys_status reject_natives(struct hys_discovery *discovery, struct hys_error *error)
{
	struct hys_device_info info = {.backend = "openmp", .name = "native", .numa_node = -1};
	hys_status status = HYS_OK;
	snprintf(info.reason, sizeof info.reason, "the CPU backend takes no native devices");
	for (int32_t i = 0; i < discovery->native_count && status == HYS_OK; i++)
		status = hys_discovery_reject(discovery, &info, error);
	return status;
}

static hys_status discover(struct hys_discovery *discovery, struct hys_error *error)
{
	const hys_status status = reject_natives(discovery, error);
	if (status != HYS_OK)
		return status;
	struct omp_device *device = hys_alloc(&discovery->host->allocator, sizeof *device);
	if (!device)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for the CPU device");
	device->base.backend = &hys_backend_openmp;
	device->base.host = discovery->host;
	device->base.host_memory = true;
	device->base.capabilities = find_capabilities(discovery->host);
	device->threads = count_threads(discovery->host);
	for (int32_t set = 0; set < OMP_SETS; set++)
		omp_isa_fill(device->isas + set, (enum omp_set)set);
	describe(device);
	return hys_discovery_add(discovery, &device->base, error);
}

static void device_destroy(struct hys_device *device)
{
	if (device)
		hys_free(&device->host->allocator, device);
}

static hys_status measure(struct hys_device *device, struct hys_device_speed *speed,
			  struct hys_error *error)
{
	const uint64_t has = device->capabilities;
	enum omp_set set = OMP_SET_PORTABLE;

	if (has & OMP_NEEDS_NEON)
		set = OMP_SET_NEON;
	if ((has & OMP_NEEDS_AVX2) == OMP_NEEDS_AVX2)
		set = OMP_SET_AVX2;
	if ((has & OMP_NEEDS_AVX512) == OMP_NEEDS_AVX512)
		set = OMP_SET_AVX512;
	return omp_measure(omp_device(device), omp_device(device)->isas + set, speed, error);
}

#define TOUCH_BYTES ((int64_t)1 << 21)

struct touching {
	char *memory;
	int64_t bytes;
};

static void touch_piece(void *context, int64_t piece, int32_t thread)
{
	const struct touching *touching = context;
	const int64_t at = piece * TOUCH_BYTES;
	(void)thread;
	memset(touching->memory + at, 0, (size_t)hys_min64(TOUCH_BYTES, touching->bytes - at));
}

/* Touched by the threads that will use it, so that it lies near all of them. */
static hys_status buffer_create(struct hys_buffer *buffer, struct hys_error *error)
{
	const struct omp_device *device = omp_device(buffer->device);
	struct touching touching = {
		hys_alloc_untouched(&buffer->device->host->allocator, buffer->bytes),
		buffer->bytes};
	buffer->native = touching.memory;
	if (buffer->native) {
		omp_for(device->threads, (buffer->bytes + TOUCH_BYTES - 1) / TOUCH_BYTES,
			touch_piece, &touching);
		return HYS_OK;
	}
	return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a buffer of %lld bytes",
			(long long)buffer->bytes);
}

static void buffer_destroy(struct hys_buffer *buffer)
{
	hys_free(&buffer->device->host->allocator, buffer->native);
}

static hys_status program_create(struct hys_device *device, const struct hys_kernel *kernel,
				 const struct hys_problem *problem, void **program,
				 struct hys_error *error)
{
	(void)device, (void)kernel, (void)problem, (void)error;
	*program = NULL;
	return HYS_OK;
}

static void program_destroy(struct hys_device *device, void *program)
{
	(void)device, (void)program;
}

static hys_status stream_create(struct hys_device *device, void *native_queue,
				struct hys_stream **stream, struct hys_error *error)
{
	if (native_queue)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"the CPU backend has no queues to share");
	struct omp_stream *made = hys_alloc(&device->host->allocator, sizeof *made);
	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a stream");
	made->device = (struct omp_device *)(void *)device;
	*stream = (struct hys_stream *)(void *)made;
	return HYS_OK;
}

static void stream_destroy(struct hys_stream *stream)
{
	struct omp_stream *made = (struct omp_stream *)(void *)stream;
	if (made)
		hys_free(&made->device->base.host->allocator, made);
}

static hys_status instance_create(struct hys_stream *stream, const struct hys_kernel *kernel,
				  void *program, void **instance, struct hys_error *error)
{
	(void)stream, (void)kernel, (void)program, (void)error;
	*instance = NULL;
	return HYS_OK;
}

static void instance_destroy(struct hys_stream *stream, void *instance)
{
	(void)stream, (void)instance;
}

static char *region_pointer(const struct hys_region *region)
{
	char *base = region->buffer ? region->buffer->native : region->host;
	return base + region->offset_bytes;
}

static hys_status copy_in(struct hys_stream *stream, const struct hys_copy *copy,
			  struct hys_error *error)
{
	const char *from = copy->host;
	char *to = region_pointer(&copy->device);
	(void)stream, (void)error;
	for (int64_t i = 0; copy->bytes > 0 && i < copy->count[0]; i++)
		for (int64_t j = 0; j < copy->count[1]; j++)
			memcpy(to + i * copy->device_pitch[0] + j * copy->device_pitch[1],
			       from + i * copy->host_pitch[0] + j * copy->host_pitch[1],
			       (size_t)copy->bytes);
	return HYS_OK;
}

static hys_status copy_out(struct hys_stream *stream, const struct hys_copy *copy,
			   struct hys_error *error)
{
	const char *from = region_pointer(&copy->device);
	char *to = copy->host;
	(void)stream, (void)error;
	for (int64_t i = 0; copy->bytes > 0 && i < copy->count[0]; i++)
		for (int64_t j = 0; j < copy->count[1]; j++)
			memcpy(to + i * copy->host_pitch[0] + j * copy->host_pitch[1],
			       from + i * copy->device_pitch[0] + j * copy->device_pitch[1],
			       (size_t)copy->bytes);
	return HYS_OK;
}

static hys_status fill(struct hys_stream *stream, const struct hys_region *region, uint8_t value,
		       struct hys_error *error)
{
	(void)stream, (void)error;
	if (region->bytes > 0)
		memset(region_pointer(region), value, (size_t)region->bytes);
	return HYS_OK;
}

static hys_status copy(struct hys_stream *stream, const struct hys_region *target,
		       const struct hys_region *source, struct hys_error *error)
{
	(void)stream, (void)error;
	if (source->bytes > 0)
		memcpy(region_pointer(target), region_pointer(source), (size_t)source->bytes);
	return HYS_OK;
}

#define ADD_BLOCK ((int64_t)1 << 16)

struct addition {
	char *target;
	const char *part;
	int64_t count;
	hys_dtype dtype;
};

static void add_block(void *context, int64_t block, int32_t thread)
{
	const struct addition *addition = context;
	const int64_t first = block * ADD_BLOCK;
	const int64_t end = hys_min64(first + ADD_BLOCK, addition->count);
	(void)thread;
	if (addition->dtype == HYS_I32) {
		int32_t *target = (int32_t *)(void *)addition->target;
		const int32_t *part = (const int32_t *)(const void *)addition->part;
		for (int64_t i = first; i < end; i++)
			target[i] += part[i];
	} else {
		float *target = (float *)(void *)addition->target;
		const float *part = (const float *)(const void *)addition->part;
		for (int64_t i = first; i < end; i++)
			target[i] += part[i];
	}
}

static hys_status add(struct hys_stream *stream, const struct hys_region *target,
		      const struct hys_region *part, hys_dtype dtype, struct hys_error *error)
{
	struct addition addition = {region_pointer(target), region_pointer(part), target->bytes / 4,
				    dtype};
	(void)error;
	omp_for(omp_threads(stream), (addition.count + ADD_BLOCK - 1) / ADD_BLOCK, add_block,
		&addition);
	return HYS_OK;
}

static hys_status record(struct hys_stream *stream, void **event, struct hys_error *error)
{
	(void)stream, (void)error;
	*event = NULL;
	return HYS_OK;
}

static hys_status wait_for(struct hys_stream *stream, void *event, struct hys_error *error)
{
	(void)stream, (void)event, (void)error;
	return HYS_OK;
}

static hys_status event_wait(struct hys_device *device, void *event, struct hys_error *error)
{
	(void)device, (void)event, (void)error;
	return HYS_OK;
}

static void event_destroy(struct hys_device *device, void *event)
{
	(void)device, (void)event;
}

static hys_status finish(struct hys_stream *stream, struct hys_error *error)
{
	(void)stream, (void)error;
	return HYS_OK;
}

const struct hys_backend hys_backend_openmp = {
	.name = "openmp",
	.kernels = kernels,
	.kernel_count = sizeof kernels / sizeof kernels[0],
	.capability_names = capability_names,
	.discover = discover,
	.device_destroy = device_destroy,
	.measure = measure,
	.buffer_create = buffer_create,
	.buffer_destroy = buffer_destroy,
	.program_create = program_create,
	.program_destroy = program_destroy,
	.stream_create = stream_create,
	.stream_destroy = stream_destroy,
	.instance_create = instance_create,
	.instance_destroy = instance_destroy,
	.copy_in = copy_in,
	.copy_out = copy_out,
	.fill = fill,
	.copy = copy,
	.add = add,
	.quantize = omp_quantize,
	.record = record,
	.wait = wait_for,
	.event_wait = event_wait,
	.event_destroy = event_destroy,
	.finish = finish,
};
