/* ranks_data.c - a rank's device, its page-locked memory, its operands, its trace. */
#include "ranks_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef HYS_WITH_OPENCL
#include "hyscale/opencl.h"
#endif

/* ---- the device ---- */

#ifdef HYS_WITH_OPENCL
/* The `wanted`-th GPU of all platforms, or the only devices there are. */
static cl_device_id find_device(int wanted)
{
	const cl_device_type types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ALL};
	cl_platform_id platforms[16];
	cl_device_id found[64] = {NULL};
	cl_uint platform_count = 0;
	if (clGetPlatformIDs(16, platforms, &platform_count) != CL_SUCCESS)
		return NULL;
	for (int t = 0; t < 2; t++) {
		cl_uint count = 0;
		for (cl_uint p = 0; p < platform_count && p < 16; p++) {
			cl_uint more = 0;
			if (clGetDeviceIDs(platforms[p], types[t], 64 - count, found + count,
					   &more) == CL_SUCCESS)
				count += more < 64 - count ? more : 64 - count;
		}
		if (count > 0)
			return found[wanted % (int)count];
	}
	return NULL;
}

static bool open_native(struct ranks_device *device, int local_rank, struct hys_error *error)
{
	cl_device_id id = find_device(local_rank);
	cl_int code = CL_DEVICE_NOT_FOUND;
	if (id)
		device->native_context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
	if (device->native_context)
		device->native_queue = clCreateCommandQueue(device->native_context, id, 0, &code);
	if (!device->native_queue) {
		error->status = HYS_NO_DEVICE;
		snprintf(error->message, sizeof error->message,
			 "no OpenCL context on the rank's device (%d)", code);
		return false;
	}
	const struct hys_native_device native = hys_opencl_device(device->native_context, id);
	const struct hys_context_options options = {.struct_size = sizeof options,
						    .devices = "",
						    .natives = &native,
						    .native_count = 1};
	device->on_device = true;
	return hys_context_create(&options, &device->context, error) == HYS_OK;
}

static void *allocate_pinned(void *user, size_t bytes, size_t align)
{
	struct ranks_device *device = user;
	(void)align; /* mapped memory begins at a page */
	for (int i = 0; i < RANKS_BUFFERS_MAX; i++) {
		if (device->pinned[i].memory)
			continue;
		cl_mem memory = clCreateBuffer(device->native_context,
					       CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes,
					       NULL, NULL);
		if (!memory)
			return NULL;
		device->pinned[i].memory = memory;
		device->pinned[i].host = clEnqueueMapBuffer(device->native_queue, memory, CL_TRUE,
							    CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0,
							    NULL, NULL, NULL);
		if (!device->pinned[i].host) {
			clReleaseMemObject(memory);
			device->pinned[i].memory = NULL;
		}
		return device->pinned[i].host;
	}
	return NULL;
}

static void release_pinned(void *user, void *pointer)
{
	struct ranks_device *device = user;
	for (int i = 0; pointer && i < RANKS_BUFFERS_MAX; i++)
		if (device->pinned[i].memory && device->pinned[i].host == pointer) {
			clEnqueueUnmapMemObject(device->native_queue, device->pinned[i].memory,
						pointer, 0, NULL, NULL);
			clFinish(device->native_queue);
			clReleaseMemObject(device->pinned[i].memory);
			device->pinned[i].memory = NULL;
		}
}
#endif

void ranks_device_memory(struct ranks_device *device, struct hys_cp_options *options)
{
#ifdef HYS_WITH_OPENCL
	if (!device->on_device)
		return;
	options->allocate = allocate_pinned;
	options->release = release_pinned;
	options->allocate_user = device;
#else
	(void)device;
	(void)options;
#endif
}

bool ranks_device_open(struct ranks_device *device, const char *name, int local_rank,
		       struct hys_error *error)
{
	const struct hys_context_options options = {.struct_size = sizeof options,
						    .devices = "openmp"};
	*device = (struct ranks_device){.number = 0};
#ifdef HYS_WITH_OPENCL
	if (strcmp(name, "opencl") == 0)
		return open_native(device, local_rank, error);
#endif
	(void)local_rank;
	if (strcmp(name, "openmp") == 0)
		return hys_context_create(&options, &device->context, error) == HYS_OK;
	error->status = HYS_NO_DEVICE;
	snprintf(error->message, sizeof error->message, "device '%s' is not one of opencl, openmp",
		 name);
	return false;
}

void ranks_device_close(struct ranks_device *device)
{
	hys_context_destroy(device->context);
#ifdef HYS_WITH_OPENCL
	if (device->native_queue)
		clReleaseCommandQueue(device->native_queue);
	if (device->native_context)
		clReleaseContext(device->native_context);
#endif
}

/* ---- operands ---- */

#define CHUNK (((int64_t)1 << 23) - 77) /* elements made; the rest repeats them */

static double uniform(uint64_t *seed)
{
	uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (double)(z >> 40) * 0x1p-23 - 1;
}

static void *take_chunk(struct ranks_data *data, size_t bytes)
{
	struct hys_cp_options options = {.struct_size = sizeof options};
	ranks_device_memory(data->device, &options);
	return options.allocate ? options.allocate(data->device, bytes, 64) : malloc(bytes);
}

static void give_chunk(struct ranks_data *data, void *chunk)
{
	struct hys_cp_options options = {.struct_size = sizeof options};
	ranks_device_memory(data->device, &options);
	if (options.release)
		options.release(data->device, chunk);
	else
		free(chunk);
}

static char *random_chunk(struct ranks_data *data, hys_dtype dtype)
{
	char *chunk = data->chunks[dtype];
	if (chunk)
		return chunk;
	chunk = take_chunk(data, (size_t)CHUNK * hys_dtype_size(dtype));
	/* sqrt(3): the standard deviation of a uniform number is that of its span. */
	for (int64_t i = 0; chunk && i < CHUNK; i++)
		tool_put(dtype, chunk, i, sqrt(3.0) * uniform(&data->seed));
	return data->chunks[dtype] = chunk;
}

/* The length is odd, so that rows do not equal their neighbours. */
static void fill(struct ranks_data *data, struct hys_buffer *buffer, char *host, hys_dtype dtype,
		 int64_t n)
{
	const int64_t size = (int64_t)hys_dtype_size(dtype);
	const char *chunk = random_chunk(data, dtype);
	data->failed |= !chunk;
	for (int64_t i = 0; chunk && !data->failed && i < n; i += CHUNK) {
		const int64_t bytes = (n - i < CHUNK ? n - i : CHUNK) * size;
		if (buffer)
			data->failed = hys_buffer_write(data->exec, buffer, i * size, chunk, bytes,
							&data->error) != HYS_OK;
		else
			memcpy(host + i * size, chunk, (size_t)bytes);
	}
	if (buffer && !data->failed)
		data->failed = hys_exec_finish(data->exec, &data->error) != HYS_OK;
}

struct hys_tensor ranks_tensor(struct ranks_data *data, hys_dtype dtype, int32_t rank, int64_t n0,
			       int64_t n1, int64_t n2, bool random)
{
	const int64_t n = n0 * (rank > 1 ? n1 : 1) * (rank > 2 ? n2 : 1);
	const int64_t bytes = n * (int64_t)hys_dtype_size(dtype) + 1;
	const int32_t i = data->count;
	if (data->failed)
		return (struct hys_tensor){0};
	if (data->device->on_device)
		data->failed = hys_buffer_create(data->device->context, data->device->number, bytes,
						 &data->buffers[i], &data->error) != HYS_OK;
	else
		data->failed = !(data->hosts[i] = calloc((size_t)bytes, 1));
	data->count++;
	if (!data->failed && random)
		fill(data, data->buffers[i], data->hosts[i], dtype, n);
	return data->device->on_device ? hys_device(data->buffers[i], 0, dtype, rank, n0, n1, n2)
				       : hys_host(data->hosts[i], dtype, rank, n0, n1, n2);
}

void ranks_data_free(struct ranks_data *data)
{
	for (int32_t i = 0; i < data->count; i++) {
		hys_buffer_destroy(data->buffers[i]);
		free(data->hosts[i]);
	}
	data->count = 0;
	for (int i = 0; i < HYS_DTYPE_COUNT; i++) {
		if (data->chunks[i])
			give_chunk(data, data->chunks[i]);
		data->chunks[i] = NULL;
	}
}

static struct hys_tensor scales(struct ranks_data *data, int32_t rank, int64_t n0, int64_t n1)
{
	struct hys_tensor made = ranks_tensor(data, HYS_F32, rank, n0, n1, 0, 0);
	const int64_t bytes = n0 * (rank > 1 ? n1 : 1) * 4;
	/* 0x3f3f3f3f = 0.747: any positive scale will do. */
	if (made.buffer && bytes > 0)
		data->failed |= hys_buffer_fill(data->exec, made.buffer, 0, bytes, 0x3f,
						&data->error) != HYS_OK;
	if (made.host)
		memset(made.host, 0x3f, (size_t)bytes);
	return made;
}

static void make_select(struct ranks_data *data, const struct ranks_options *options, int64_t rows,
			int64_t entries, struct hys_select_args *args)
{
	const struct hys_scoring *s = &options->problem.scoring;
	args->struct_size = sizeof *args;
	args->index_q = ranks_tensor(data, s->dtype, 3, rows, s->heads, s->dim, 1);
	args->index_k = ranks_tensor(data, s->dtype, 2, entries, s->dim, 0, 1);
	args->index_w = ranks_tensor(data, HYS_F32, 2, rows, s->heads, 0, 1);
	if (s->dtype == HYS_F8E4M3) {
		args->index_q_scale = scales(data, 2, rows, s->heads);
		args->index_k_scale = scales(data, 1, entries, 1);
	}
	args->indices = ranks_tensor(data, HYS_I32, 3, rows, s->groups,
				     options->problem.choosing.topk_max, 0);
}

bool ranks_step_make(struct ranks_data *data, const struct ranks_options *options, int64_t rows,
		     int64_t entries, int64_t keys, struct ranks_step *step)
{
	const struct hys_attending *a = &options->problem.attending;
	const bool shared = a->kv_heads == 1 && a->value_dim < a->head_dim;
	struct hys_attention_args *f = &step->forward;
	struct hys_attention_grad_args *b = &step->backward;
	*step = (struct ranks_step){0};
	make_select(data, options, rows, entries, &step->select);
	f->struct_size = sizeof *f;
	f->q = ranks_tensor(data, a->dtype, 3, rows, a->heads, a->head_dim, 1);
	f->k = ranks_tensor(data, a->dtype, 3, keys, a->kv_heads, a->head_dim, 1);
	if (!shared)
		f->v = ranks_tensor(data, a->dtype, 3, keys, a->kv_heads, a->value_dim, 1);
	f->indices = step->select.indices;
	f->o = ranks_tensor(data, a->dtype, 3, rows, a->heads, a->value_dim, 0);
	f->lse = ranks_tensor(data, HYS_F32, 2, rows, a->heads, 0, 0);
	if (options->no_backward)
		return !data->failed;
	*b = (struct hys_attention_grad_args){.struct_size = sizeof *b,
					      .q = f->q,
					      .k = f->k,
					      .v = f->v,
					      .indices = f->indices,
					      .o = f->o,
					      .lse = f->lse};
	b->grad_o = ranks_tensor(data, a->dtype, 3, rows, a->heads, a->value_dim, 1);
	b->dq = ranks_tensor(data, a->dtype, 3, rows, a->heads, a->head_dim, 0);
	b->dk = ranks_tensor(data, HYS_F32, 3, keys, a->kv_heads, a->head_dim, 0);
	if (!shared)
		b->dv = ranks_tensor(data, HYS_F32, 3, keys, a->kv_heads, a->value_dim, 0);
	return !data->failed;
}

/* ---- the network ---- */

static double exchange_s(MPI_Comm comm, int other, void *out, void *in, int bytes, int times)
{
	double start;
	MPI_Barrier(comm);
	start = MPI_Wtime();
	for (int i = 0; other >= 0 && i < times; i++)
		MPI_Sendrecv(out, bytes, MPI_BYTE, other, 8, in, bytes, MPI_BYTE, other, 8, comm,
			     MPI_STATUS_IGNORE);
	return (MPI_Wtime() - start) / times;
}

/* Neighbours exchange small and large messages, all pairs at once. */
void ranks_network(MPI_Comm comm, struct hys_network *network)
{
	enum { BYTES = 4 << 20 };
	char *out = calloc(2, BYTES), *in = out ? out + BYTES : NULL;
	double slow[2] = {0, 0}, worst[2];
	int rank, ranks;
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &ranks);
	const int other = (rank ^ 1) < ranks ? rank ^ 1 : -1;
	network->bytes_per_s = 1e10;
	network->latency_s = 1e-6;
	if (out && ranks > 1) {
		exchange_s(comm, other, out, in, BYTES, 2);
		slow[0] = exchange_s(comm, other, out, in, 8, 200);
		slow[1] = exchange_s(comm, other, out, in, BYTES, 8);
		MPI_Allreduce(slow, worst, 2, MPI_DOUBLE, MPI_MAX, comm);
		network->latency_s = worst[0];
		network->bytes_per_s = BYTES / worst[1];
	}
	free(out);
}

/* ---- the trace ---- */

void ranks_trace_add(void *user, double start_s, double end_s, const char *what)
{
	struct ranks_trace *trace = user;
	if (trace->count == RANKS_EVENTS_MAX)
		return;
	trace->events[trace->count].start_s = start_s;
	trace->events[trace->count].end_s = end_s;
	snprintf(trace->events[trace->count].what, sizeof trace->events[0].what, "%s", what);
	trace->count++;
}

static void print_rank(const struct ranks_trace *trace, int rank)
{
	printf("rank %d  (ms from the step's begin: from, to, how long)\n", rank);
	for (int32_t i = 0; i < trace->count; i++)
		printf("  %10.3f %10.3f %10.3f  %s\n",
		       1e3 * (trace->events[i].start_s - trace->zero_s),
		       1e3 * (trace->events[i].end_s - trace->zero_s),
		       1e3 * (trace->events[i].end_s - trace->events[i].start_s),
		       trace->events[i].what);
}

void ranks_trace_print(const struct ranks_trace *trace, MPI_Comm comm)
{
	struct ranks_trace *other = malloc(sizeof *other);
	int rank, ranks;
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &ranks);
	if (rank != 0)
		MPI_Send(trace, (int)sizeof *trace, MPI_BYTE, 0, 9, comm);
	for (int i = 0; rank == 0 && other && i < ranks; i++) {
		if (i == 0)
			*other = *trace;
		else
			MPI_Recv(other, (int)sizeof *other, MPI_BYTE, i, 9, comm,
				 MPI_STATUS_IGNORE);
		print_rank(other, i);
	}
	free(other);
}
