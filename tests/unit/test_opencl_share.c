/* The caller's own OpenCL context, queue, memory and events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "fake_backend.h"

#ifdef HYS_WITH_OPENCL
#include "hyscale/opencl.h"

#define BYTES 4096

/* Everything of the first device of the first platform that has one. */
struct theirs {
	cl_device_id device;
	cl_context context;
	cl_command_queue queue;
	cl_mem memory;
	cl_uint references; /* of the queue: drivers hold some of their own */
};

static bool find_device(cl_device_id *device)
{
	cl_platform_id platforms[16];
	cl_uint count = 0;

	if (clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS)
		return false;
	for (cl_uint i = 0; i < count && i < 16; i++)
		if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, device, NULL) == CL_SUCCESS)
			return true;
	return false;
}

static cl_uint references_of_queue(cl_command_queue queue)
{
	cl_uint count = 0;

	clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof(count), &count, NULL);
	return count;
}

static void open_theirs(struct theirs *theirs)
{
	cl_int code;

	theirs->context = clCreateContext(NULL, 1, &theirs->device, NULL, NULL, &code);
	assert_int_equal(code, CL_SUCCESS);
	theirs->queue = clCreateCommandQueue(theirs->context, theirs->device, 0, &code);
	assert_int_equal(code, CL_SUCCESS);
	theirs->memory = clCreateBuffer(theirs->context, CL_MEM_READ_WRITE, BYTES, NULL, &code);
	assert_int_equal(code, CL_SUCCESS);
	assert_int_equal(clEnqueueReadBuffer(theirs->queue, theirs->memory, CL_TRUE, 0, 1,
					     &(char){0}, 0, NULL, NULL),
			 CL_SUCCESS);
	theirs->references = references_of_queue(theirs->queue);
}

static void close_theirs(struct theirs *theirs)
{
	/* The library has given back all that it held. */
	/* PoCL's threads let go of a finished command a little later. */
	for (int i = 0; i < 5000 && references_of_queue(theirs->queue) != theirs->references; i++)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	assert_int_equal(references_of_queue(theirs->queue), theirs->references);
	clReleaseMemObject(theirs->memory);
	clReleaseCommandQueue(theirs->queue);
	clReleaseContext(theirs->context);
}

static cl_int state_of(cl_event event)
{
	cl_int state = CL_QUEUED;

	clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state, NULL);
	return state;
}

static struct hys_context *make_context(const struct theirs *theirs)
{
	const struct hys_native_device native = hys_opencl_device(theirs->context, theirs->device);
	struct hys_context_options options = {.struct_size = sizeof(options)};
	struct hys_context *context = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	options.devices = ""; /* none but the native one */
	options.natives = &native;
	options.native_count = 1;
	if (hys_context_create(&options, &context, &error) != HYS_OK)
		fail_msg("%s", error.message);
	assert_int_equal(hys_context_device_count(context), 1);
	return context;
}

static struct hys_exec *make_exec(struct fake_plan *plan, void *queue)
{
	struct hys_exec_options options = {.struct_size = sizeof(options)};
	struct hys_exec *exec = NULL;

	options.native_queues = queue ? &queue : NULL;
	options.flags = queue ? 0 : HYS_EXEC_ASYNC;
	assert_int_equal(hys_exec_create(&plan->plan, &options, &exec, NULL), HYS_OK);
	return exec;
}

/* Their user event holds our work up, and ours tells them when it is done. */
static void exchange(struct hys_exec *exec, struct hys_buffer *buffer, const struct theirs *theirs)
{
	static unsigned char source[BYTES], target[BYTES];
	cl_int code;
	cl_event gate = clCreateUserEvent(theirs->context, &code), done = NULL;

	assert_int_equal(code, CL_SUCCESS);
	for (int i = 0; i < BYTES; i++)
		source[i] = (unsigned char)(i * 7);
	memset(target, 0, sizeof(target));
	assert_int_equal(hys_opencl_wait(exec, 1, &gate, NULL), HYS_OK);
	assert_int_equal(hys_buffer_write(exec, buffer, 0, source, BYTES, NULL), HYS_OK);
	assert_int_equal(hys_buffer_fill(exec, buffer, 100, 28, 0xab, NULL), HYS_OK);
	assert_int_equal(hys_buffer_copy(exec, buffer, 40, buffer, 3, 33, NULL), HYS_OK);
	assert_int_equal(hys_opencl_record(exec, &done, NULL), HYS_OK);
	assert_non_null(done);
	assert_true(state_of(done) > CL_COMPLETE);
	assert_int_equal(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
	assert_int_equal(clReleaseEvent(gate), CL_SUCCESS);
	assert_int_equal(clEnqueueReadBuffer(theirs->queue, theirs->memory, CL_TRUE, 0, BYTES,
					     target, 1, &done, NULL),
			 CL_SUCCESS);
	memset(source + 100, 0xab, 28);
	memcpy(source + 40, source + 3, 33);
	assert_memory_equal(target, source, BYTES);
	assert_int_equal(state_of(done), CL_COMPLETE);
	assert_int_equal(clReleaseEvent(done), CL_SUCCESS);
	assert_int_equal(hys_exec_finish(exec, NULL), HYS_OK);
}

static void run(bool own_queue)
{
	struct theirs theirs;
	struct hys_context *context;
	struct hys_buffer *buffer = NULL;
	struct hys_exec *exec;
	struct fake_plan plan;
	struct fake_device unused;

	if (!find_device(&theirs.device))
		skip();
	open_theirs(&theirs);
	context = make_context(&theirs);
	fake_device_init(&unused, &context->host, "unused");
	fake_plan_init(&plan, context, &unused, 1);
	plan.devices[0] = context->devices[0];
	exec = make_exec(&plan, own_queue ? theirs.queue : NULL);
	assert_int_equal(hys_opencl_buffer(context, 0, theirs.memory, BYTES, &buffer, NULL),
			 HYS_OK);
	exchange(exec, buffer, &theirs);
	exchange(exec, buffer, &theirs);
	hys_buffer_destroy(buffer);
	hys_exec_destroy(exec);
	hys_context_destroy(context);
	fake_device_clear(&unused);
	close_theirs(&theirs);
}

static void test_their_queue(void **state)
{
	(void)state;
	run(true);
}

static void test_their_memory_on_our_queue(void **state)
{
	(void)state;
	run(false);
}

static void test_natives_that_are_none(void **state)
{
	struct hys_context_options options = {.struct_size = sizeof(options)};
	struct hys_native_device native = {"opencl", NULL, NULL};
	struct hys_context *context = NULL;
	cl_device_id device;

	(void)state;
	if (!find_device(&device))
		skip();
	options.natives = &native;
	options.native_count = 1;
	native.device = device;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	native.device = NULL;
	native.context = device;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	assert_null(context);
}
#else
typedef void *cl_event;
hys_status hys_opencl_wait(struct hys_exec *exec, uint32_t count, const cl_event *events,
			   struct hys_error *error);
hys_status hys_opencl_record(struct hys_exec *exec, cl_event *event, struct hys_error *error);
#endif

static void test_other_devices(void **state)
{
	struct hys_context_options options = {.struct_size = sizeof(options)};
	struct hys_context *context = NULL;
	struct fake_plan plan;
	struct fake_device unused;
	struct hys_exec *exec = NULL;
	struct hys_error error;
	int nothing = 0;
	cl_event event = NULL, some = (cl_event)(void *)&nothing;

	(void)state;
	options.devices = "openmp";
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_OK);
	fake_device_init(&unused, &context->host, "unused");
	fake_plan_init(&plan, context, &unused, 1);
	plan.devices[0] = context->devices[0];
	assert_int_equal(hys_exec_create(&plan.plan, NULL, &exec, NULL), HYS_OK);
	assert_int_equal(hys_opencl_record(exec, &event, &error), HYS_UNSUPPORTED);
	assert_non_null(strstr(error.message, "openmp"));
	assert_int_equal(hys_opencl_wait(exec, 1, &some, NULL), HYS_UNSUPPORTED);
	assert_int_equal(hys_opencl_record(NULL, &event, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_opencl_record(exec, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_opencl_wait(NULL, 1, &some, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_opencl_wait(exec, 1, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_null(event);
	hys_exec_destroy(exec);
	hys_context_destroy(context);
	fake_device_clear(&unused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef HYS_WITH_OPENCL
		cmocka_unit_test(test_their_queue),
		cmocka_unit_test(test_their_memory_on_our_queue),
		cmocka_unit_test(test_natives_that_are_none),
#endif
		cmocka_unit_test(test_other_devices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
