#include "fake_backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN_REFERENCES 1000

struct hys_stream {
	struct fake_device *device;
};

static struct fake_device *fake(struct hys_device *device)
{
	return (struct fake_device *)(void *)device;
}

/* Logs the call; HYS_DEVICE_FAILED when it is to fail. */
static hys_status note(struct fake_device *device, char letter, struct hys_error *error)
{
	bool fails;

	pthread_mutex_lock(&device->lock);
	if (device->length < FAKE_LOG_SIZE - 1)
		device->log[device->length++] = letter;
	device->thread = pthread_self();
	fails = device->fail == letter;
	if (fails)
		device->fail = 0;
	pthread_mutex_unlock(&device->lock);
	if (!fails)
		return HYS_OK;
	return hys_fail(error, HYS_DEVICE_FAILED, -5, "%s was told to fail at %c",
			device->base.info.name, letter);
}

static void count(struct fake_device *device, int32_t *counter, int32_t step)
{
	pthread_mutex_lock(&device->lock);
	*counter += step;
	pthread_mutex_unlock(&device->lock);
}

static void pass_gate(struct fake_device *device)
{
	if (!device->hold)
		return;
	while (sem_wait(&device->gate) != 0 && errno == EINTR)
		;
}

static hys_status discover(struct hys_discovery *discovery, struct hys_error *error)
{
	(void)discovery;
	return hys_fail(error, HYS_NO_DEVICE, 0, "fake devices are made by hand");
}

static void device_destroy(struct hys_device *device)
{
	(void)device;
}

static hys_status measure(struct hys_device *device, struct hys_device_speed *speed,
			  struct hys_error *error)
{
	(void)device;
	(void)error;
	*speed = (struct hys_device_speed){1e9, 1e9};
	return HYS_OK;
}

static hys_status buffer_create(struct hys_buffer *buffer, struct hys_error *error)
{
	struct fake_device *device = fake(buffer->device);

	if (device->fail_buffer)
		return hys_fail(error, HYS_OUT_OF_MEMORY, -4, "%s is full", device->base.info.name);
	buffer->native = malloc((size_t)buffer->bytes);
	if (!buffer->native)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory");
	memset(buffer->native, 0xee, (size_t)buffer->bytes);
	count(device, &device->buffers, 1);
	return HYS_OK;
}

static void buffer_destroy(struct hys_buffer *buffer)
{
	count(fake(buffer->device), &fake(buffer->device)->buffers, -1);
	free(buffer->native);
}

static hys_status program_create(struct hys_device *device, const struct hys_kernel *kernel,
				 const struct hys_problem *problem, void **program,
				 struct hys_error *error)
{
	(void)device;
	(void)kernel;
	(void)problem;
	(void)program;
	(void)error;
	return HYS_OK;
}

static void program_destroy(struct hys_device *device, void *program)
{
	(void)device;
	(void)program;
}

static hys_status stream_create(struct hys_device *device, void *native_queue,
				struct hys_stream **stream, struct hys_error *error)
{
	struct hys_stream *made;

	(void)native_queue;
	if (fake(device)->fail_stream)
		return hys_fail(error, HYS_DEVICE_FAILED, -36, "%s has no queue",
				device->info.name);
	made = malloc(sizeof(*made));
	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory");
	made->device = fake(device);
	count(made->device, &made->device->streams, 1);
	*stream = made;
	return HYS_OK;
}

static void stream_destroy(struct hys_stream *stream)
{
	count(stream->device, &stream->device->streams, -1);
	free(stream);
}

static hys_status instance_create(struct hys_stream *stream, const struct hys_kernel *kernel,
				  void *program, void **instance, struct hys_error *error)
{
	(void)stream;
	(void)kernel;
	(void)program;
	(void)instance;
	(void)error;
	return HYS_OK;
}

static void instance_destroy(struct hys_stream *stream, void *instance)
{
	(void)stream;
	(void)instance;
}

static char *address(const struct hys_region *region)
{
	return (char *)(region->buffer ? region->buffer->native : region->host) +
	       region->offset_bytes;
}

static void copy_runs(const struct hys_copy *copy, bool in)
{
	for (int64_t i = 0; i < copy->count[0]; i++)
		for (int64_t j = 0; j < copy->count[1]; j++) {
			char *host = (char *)copy->host + i * copy->host_pitch[0] +
				     j * copy->host_pitch[1];
			char *device = address(&copy->device) + i * copy->device_pitch[0] +
				       j * copy->device_pitch[1];

			memcpy(in ? device : host, in ? host : device, (size_t)copy->bytes);
		}
}

static hys_status copy_in(struct hys_stream *stream, const struct hys_copy *copy,
			  struct hys_error *error)
{
	pass_gate(stream->device);
	copy_runs(copy, true);
	return note(stream->device, 'i', error);
}

static hys_status copy_out(struct hys_stream *stream, const struct hys_copy *copy,
			   struct hys_error *error)
{
	pass_gate(stream->device);
	copy_runs(copy, false);
	return note(stream->device, 'o', error);
}

static hys_status fill(struct hys_stream *stream, const struct hys_region *region, uint8_t value,
		       struct hys_error *error)
{
	pass_gate(stream->device);
	memset(address(region), value, (size_t)region->bytes);
	return note(stream->device, 'f', error);
}

static hys_status copy(struct hys_stream *stream, const struct hys_region *target,
		       const struct hys_region *source, struct hys_error *error)
{
	pass_gate(stream->device);
	memcpy(address(target), address(source), (size_t)source->bytes);
	return note(stream->device, 'c', error);
}

static hys_status add(struct hys_stream *stream, const struct hys_region *target,
		      const struct hys_region *part, hys_dtype dtype, struct hys_error *error)
{
	pass_gate(stream->device);
	for (int64_t i = 0; i < target->bytes / 4; i++)
		if (dtype == HYS_I32)
			((int32_t *)(void *)address(target))[i] +=
				((int32_t *)(void *)address(part))[i];
		else
			((float *)(void *)address(target))[i] +=
				((float *)(void *)address(part))[i];
	return note(stream->device, 'a', error);
}

static hys_status record(struct hys_stream *stream, void **event, struct hys_error *error)
{
	hys_status status = note(stream->device, 'r', error);

	if (status != HYS_OK)
		return status;
	*event = malloc(1);
	if (!*event)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory");
	count(stream->device, &stream->device->events, 1);
	return HYS_OK;
}

static hys_status wait(struct hys_stream *stream, void *event, struct hys_error *error)
{
	(void)event;
	return note(stream->device, 'w', error);
}

static hys_status event_wait(struct hys_device *device, void *event, struct hys_error *error)
{
	(void)event;
	return note(fake(device), 'e', error);
}

static void event_destroy(struct hys_device *device, void *event)
{
	count(fake(device), &fake(device)->events, -1);
	free(event);
}

static hys_status finish(struct hys_stream *stream, struct hys_error *error)
{
	return note(stream->device, 'F', error);
}

static const char *const capability_names[] = {NULL};

const struct hys_backend fake_backend = {
	.name = "fake",
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
	.record = record,
	.wait = wait,
	.event_wait = event_wait,
	.event_destroy = event_destroy,
	.finish = finish,
};

void fake_device_init(struct fake_device *device, const struct hys_host *host, const char *name)
{
	memset(device, 0, sizeof(*device));
	device->base.backend = &fake_backend;
	device->base.host = host;
	device->base.info.kind = HYS_DEVICE_GPU;
	device->base.info.numa_node = -1;
	snprintf(device->base.info.backend, sizeof(device->base.info.backend), "fake");
	snprintf(device->base.info.name, sizeof(device->base.info.name), "%s", name);
	pthread_mutex_init(&device->lock, NULL);
	sem_init(&device->gate, 0, 0);
}

void fake_device_clear(struct fake_device *device)
{
	pthread_mutex_destroy(&device->lock);
	sem_destroy(&device->gate);
}

void fake_device_open(struct fake_device *device, int32_t times)
{
	for (int32_t i = 0; i < times; i++)
		sem_post(&device->gate);
}

void fake_plan_init(struct fake_plan *plan, struct hys_context *context,
		    struct fake_device *devices, int32_t device_count)
{
	memset(plan, 0, sizeof(*plan));
	plan->plan.context = context;
	atomic_init(&plan->plan.references, OWN_REFERENCES);
	plan->plan.problem.struct_size = sizeof(plan->plan.problem);
	plan->plan.problem.choosing.coarse_block = 64;
	hys_problem_complete(&plan->plan.problem, NULL);
	plan->plan.rows_max = plan->plan.keys_max = plan->plan.window_keys_max = 1024;
	plan->plan.devices = plan->devices;
	plan->plan.device_numbers = plan->numbers;
	plan->plan.paces = plan->paces;
	plan->plan.shares = plan->shares;
	plan->plan.rows_most = plan->rows_most;
	plan->plan.device_count = device_count;
	plan->plan.choices = plan->choices;
	for (int32_t i = 0; i < device_count; i++) {
		plan->devices[i] = &devices[i].base;
		plan->numbers[i] = i;
		plan->rows_most[i] = plan->plan.rows_max;
		for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
			plan->paces[i * HYS_OP_COUNT + op].row_s = 1;
			plan->shares[i * HYS_OP_COUNT + op] = 1.0 / device_count;
		}
	}
}

int fake_plan_references(const struct fake_plan *plan)
{
	return atomic_load(&plan->plan.references) - OWN_REFERENCES;
}
