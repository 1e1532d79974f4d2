#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#ifdef HYS_WITH_OPENCL
#include <CL/cl.h>
#endif

#include "core.h"
#include "failing_allocator.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct hys_context_options cpu_only(void)
{
	struct hys_context_options options = {.struct_size = sizeof(options)};

	options.devices = "openmp";
	return options;
}

static struct hys_context *make(const struct hys_context_options *options)
{
	struct hys_context *context = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	if (hys_context_create(options, &context, &error) != HYS_OK)
		fail_msg("%s", error.message);
	return context;
}

static struct hys_context *make_cpu(void)
{
	const struct hys_context_options options = cpu_only();

	return make(&options);
}

/* Runs in a child, so that its environment and drivers are its own. */
static bool in_child(bool (*check)(void))
{
	const pid_t child = fork();
	int how = 0;

	assert_true(child >= 0);
	if (child == 0)
		_exit(check() ? 0 : 1);
	assert_int_equal(waitpid(child, &how, 0), child);
	assert_true(WIFEXITED(how));
	assert_in_range(WEXITSTATUS(how), 0, 1);
	return WEXITSTATUS(how) == 0;
}

/* ---- OpenCL that is not there; first, while no driver is loaded ---- */

/* Not every loader takes its list of drivers from OCL_ICD_VENDORS. */
static bool opencl_can_be_hidden(void)
{
#ifdef HYS_WITH_OPENCL
	cl_uint count = 0;

	setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
	return clGetPlatformIDs(0, NULL, &count) != CL_SUCCESS || count == 0;
#else
	return true;
#endif
}

static bool opencl_wanted_but_absent(void)
{
	struct hys_context_options options = cpu_only();
	struct hys_context *context = NULL;
	struct hys_error error = {HYS_OK, 0, ""};

	setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
	options.devices = "opencl,openmp";
	return hys_context_create(&options, &context, &error) == HYS_NO_PLATFORM && !context &&
	       strstr(error.message, "opencl") && strlen(error.message) > 40;
}

static bool cpu_goes_on_without_opencl(void)
{
	struct hys_context *context = NULL;
	struct hys_device_info info;
	bool fine;

	setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
	if (hys_context_create(NULL, &context, NULL) != HYS_OK)
		return false;
	fine = hys_context_device_info(context, 0, &info, NULL) == HYS_OK &&
	       strcmp(info.backend, "openmp") == 0;
#ifdef HYS_WITH_OPENCL
	fine = fine && hys_context_rejected_count(context) == 1 &&
	       hys_context_rejected(context, 0, &info, NULL) == HYS_OK &&
	       strcmp(info.backend, "opencl") == 0 && info.reason[0];
#endif
	hys_context_destroy(context);
	return fine;
}

static void test_no_platform(void **state)
{
	(void)state;
	if (!in_child(opencl_can_be_hidden)) {
		print_message("the OpenCL loader here ignores OCL_ICD_VENDORS\n");
		skip();
	}
	assert_true(in_child(opencl_wanted_but_absent));
	assert_true(in_child(cpu_goes_on_without_opencl));
}

/* ---- options ---- */

static void test_wrong_lists(void **state)
{
	static const struct {
		const char *devices;
		hys_status status;
	} cases[] = {
		{"cuda", HYS_INVALID_ARGUMENT},
		{"openmp,", HYS_INVALID_ARGUMENT},
		{",openmp", HYS_INVALID_ARGUMENT},
		{"openmp,,openmp:0", HYS_INVALID_ARGUMENT},
		{" openmp", HYS_INVALID_ARGUMENT},
		{"OpenMP", HYS_INVALID_ARGUMENT},
		{"openmp:", HYS_INVALID_ARGUMENT},
		{"openmp:x", HYS_INVALID_ARGUMENT},
		{"openmp:-1", HYS_INVALID_ARGUMENT},
		{"openmp:+1", HYS_INVALID_ARGUMENT},
		{"openmp:0x", HYS_INVALID_ARGUMENT},
		{"openmp:0:0", HYS_INVALID_ARGUMENT},
		{"openmp:99999999999999999999", HYS_INVALID_ARGUMENT},
		{"openmp,openmp", HYS_INVALID_ARGUMENT},
		{"openmp:0,openmp:00", HYS_INVALID_ARGUMENT},
		{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", HYS_INVALID_ARGUMENT},
		{"openmp:7", HYS_NO_DEVICE},
		{"openmp:0,openmp:7", HYS_NO_DEVICE},
		{"", HYS_NO_DEVICE},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct hys_context_options options = cpu_only();
		struct hys_context *context = NULL;
		struct hys_error error = {HYS_OK, 0, ""};
		hys_status status;

		options.devices = cases[i].devices;
		status = hys_context_create(&options, &context, &error);
		if (status != cases[i].status)
			fail_msg("\"%s\": %s", cases[i].devices, hys_status_name(status));
		assert_null(context);
		assert_int_equal(error.status, status);
		assert_true(error.message[0]);
	}
}

static void test_a_long_list(void **state)
{
	struct hys_context_options options = cpu_only();
	struct hys_context *context = NULL;
	char list[4096] = "openmp:0";

	(void)state;
	for (int i = 1; i < 80; i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), ",openmp:%d", i);
	options.devices = list;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
}

static void test_named_twice_in_two_ways(void **state)
{
	struct hys_context_options options = cpu_only();
	struct hys_context *context;

	(void)state;
	options.devices = "openmp:0,openmp";
	/* All that is left of openmp may be nothing. */
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_NO_DEVICE);
}

static void test_wrong_options(void **state)
{
	struct hys_context_options options = cpu_only(), source = cpu_only();
	struct failing_allocator memory = {0};
	struct hys_native_device native = {"openmp", NULL, NULL};
	struct hys_context *context = NULL;

	(void)state;
	failing_allocator_use(&memory, &source);
	options.struct_size = 8;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	options = cpu_only();
	options.threads = -1;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	options = cpu_only();
	options.allocate = source.allocate;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	options = cpu_only();
	options.release = source.release;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	options = cpu_only();
	options.native_count = -1;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	options.native_count = 1;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	options.natives = &native;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	native = (struct hys_native_device){"cuda", &native, &native};
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	native.backend = NULL;
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_INVALID_ARGUMENT);
	options = cpu_only();
	assert_int_equal(hys_context_create(&options, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_null(context);
	assert_int_equal(memory.made, 0);
}

static void test_cache_folder(void **state)
{
	static const struct {
		const char *option, *own, *xdg, *home, *expected;
	} cases[] = {
		{"/o", "/own", "/xdg", "/home/a", "/o"},
		{NULL, "/own", "/xdg", "/home/a", "/own"},
		{NULL, NULL, "/xdg", "/home/a", "/xdg/hyscale"},
		{NULL, NULL, "relative", "/home/a", "/home/a/.cache/hyscale"},
		{NULL, NULL, "", "/home/a", "/home/a/.cache/hyscale"},
		{NULL, NULL, NULL, "/home/a", "/home/a/.cache/hyscale"},
		{NULL, NULL, NULL, NULL, NULL},
		{NULL, "", "/xdg", "/home/a", NULL},
		{"", "/own", "/xdg", "/home/a", NULL},
	};
	static const char *const names[] = {"HYS_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
	char *kept[3];

	(void)state;
	for (int n = 0; n < 3; n++)
		kept[n] = getenv(names[n]) ? strdup(getenv(names[n])) : NULL;
	for (size_t i = 0; i < COUNT(cases); i++) {
		const char *const values[] = {cases[i].own, cases[i].xdg, cases[i].home};
		struct hys_context_options options = cpu_only();
		struct hys_context *context;

		for (int n = 0; n < 3; n++)
			values[n] ? setenv(names[n], values[n], 1) : unsetenv(names[n]);
		options.cache_dir = cases[i].option;
		context = make(&options);
		if (cases[i].expected)
			assert_string_equal(context->host.cache_dir, cases[i].expected);
		else
			assert_null(context->host.cache_dir);
		hys_context_destroy(context);
	}
	for (int n = 0; n < 3; n++) {
		kept[n] ? setenv(names[n], kept[n], 1) : unsetenv(names[n]);
		free(kept[n]);
	}
}

static void test_disable(void **state)
{
	struct hys_context_options options = cpu_only();
	struct hys_context *context;

	(void)state;
	options.disable = "avx2,amx, f16c";
	context = make(&options);
	assert_true(hys_host_disabled(&context->host, "avx2"));
	assert_true(hys_host_disabled(&context->host, "amx"));
	assert_true(hys_host_disabled(&context->host, "f16c"));
	assert_false(hys_host_disabled(&context->host, "avx"));
	assert_false(hys_host_disabled(&context->host, "avx512"));
	assert_false(hys_host_disabled(&context->host, ""));
	hys_context_destroy(context);
}

static void test_disable_what_is_not(void **state)
{
	static const char *const lists[] = {"avx-512", "avx2,foo", "avx", "avx2 ,x", "AVX2"};
	struct hys_context_options options = cpu_only();
	struct hys_context *context = NULL;
	struct hys_error error;

	(void)state;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		options.disable = lists[i];
		assert_int_equal(hys_context_create(&options, &context, &error),
				 HYS_INVALID_ARGUMENT);
		assert_null(context);
		assert_non_null(strstr(error.message, "options.disable has '"));
		assert_non_null(strstr(error.message, "avx2, "));
	}
}

static void test_disable_from_the_environment(void **state)
{
	char *kept = getenv("HYS_DISABLE") ? strdup(getenv("HYS_DISABLE")) : NULL;
	struct hys_context_options options = cpu_only();
	struct hys_context *context;

	(void)state;
	setenv("HYS_DISABLE", "avx2", 1);
	context = make(&options);
	assert_true(hys_host_disabled(&context->host, "avx2"));
	hys_context_destroy(context);
	options.disable = "";
	context = make(&options);
	assert_false(hys_host_disabled(&context->host, "avx2"));
	hys_context_destroy(context);
	kept ? setenv("HYS_DISABLE", kept, 1) : unsetenv("HYS_DISABLE");
	free(kept);
}

/* ---- what is found ---- */

static void test_the_cpu_device(void **state)
{
	struct hys_context *context = make_cpu();
	struct hys_device_info info;

	(void)state;
	assert_int_equal(hys_context_device_count(context), 1);
	assert_int_equal(hys_context_device_info(context, 0, &info, NULL), HYS_OK);
	assert_string_equal(info.backend, "openmp");
	assert_int_equal(info.kind, HYS_DEVICE_CPU);
	assert_true(info.name[0]);
	assert_string_equal(info.reason, "");
	assert_true(context->host.cpus_allowed >= 1);
	assert_true(info.cpus[0]);
	hys_context_destroy(context);
}

/* GPUs come first, and this machine's processors as such before the same as a
 * driver shows them. */
static void test_the_order(void **state)
{
	struct hys_context *context = make(NULL);
	int last = 0;

	(void)state;
	for (int32_t i = 0; i < hys_context_device_count(context); i++) {
		const struct hys_device *device = context->devices[i];
		const int rank = device->info.kind == HYS_DEVICE_GPU	       ? 0
				 : device->info.kind == HYS_DEVICE_ACCELERATOR ? 1
				 : device->host_memory			       ? 2
									       : 3;

		assert_true(rank >= last);
		last = rank;
	}
	assert_true(last >= 2);
	hys_context_destroy(context);
}

static void test_all_that_is_known_is_listed(void **state)
{
	struct hys_context *all = make(NULL), *cpu = make_cpu();
	struct hys_device_info info;

	(void)state;
	for (int32_t i = 0; i < hys_context_rejected_count(all); i++) {
		assert_int_equal(hys_context_rejected(all, i, &info, NULL), HYS_OK);
		assert_true(info.reason[0]);
		assert_true(info.backend[0]);
	}
	/* Backends that are not in the list are not even asked. */
	for (int32_t i = 0; i < hys_context_rejected_count(cpu); i++) {
		assert_int_equal(hys_context_rejected(cpu, i, &info, NULL), HYS_OK);
		assert_string_equal(info.backend, "openmp");
	}
	hys_context_destroy(all);
	hys_context_destroy(cpu);
}

static void test_wrong_numbers(void **state)
{
	struct hys_context *context = make_cpu();
	struct hys_device_info info, before;
	struct hys_device_speed speed;

	(void)state;
	memset(&info, 0x5a, sizeof(info));
	before = info;
	assert_int_equal(hys_context_device_info(context, 1, &info, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_context_device_info(context, -1, &info, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_context_device_info(context, 0, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_context_device_info(NULL, 0, &info, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(
		hys_context_rejected(context, hys_context_rejected_count(context), &info, NULL),
		HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_context_rejected(NULL, 0, &info, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_context_measure(context, 1, &speed, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_context_measure(context, 0, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_context_measure(NULL, 0, &speed, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_context_device_count(NULL), 0);
	assert_int_equal(hys_context_rejected_count(NULL), 0);
	assert_memory_equal(&info, &before, sizeof(info));
	hys_context_destroy(context);
	hys_context_destroy(NULL);
}

static void *measure(void *argument)
{
	static struct hys_device_speed speeds[4];
	static atomic_int next;
	struct hys_device_speed *speed = &speeds[atomic_fetch_add(&next, 1) % 4];

	return hys_context_measure(argument, 0, speed, NULL) == HYS_OK ? speed : NULL;
}

static void test_speed_is_measured_once(void **state)
{
	struct hys_context *context = make_cpu();
	struct hys_device_speed *speeds[4];
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, measure, context), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], (void **)&speeds[i]);
	for (int i = 0; i < 4; i++) {
		assert_non_null(speeds[i]);
		assert_true(speeds[i]->flops_per_s > 0 && speeds[i]->bytes_per_s > 0);
		assert_memory_equal(speeds[i], speeds[0], sizeof(*speeds[0]));
	}
	hys_context_destroy(context);
}

/* ---- buffers ---- */

static void test_buffers(void **state)
{
	struct hys_context *context = make_cpu();
	struct hys_buffer *buffer = NULL, *wrapped = NULL;
	char memory[64];

	(void)state;
	assert_int_equal(hys_buffer_create(context, 0, 100, &buffer, NULL), HYS_OK);
	assert_int_equal(hys_buffer_bytes(buffer), 100);
	assert_int_equal(hys_buffer_wrap(context, 0, memory, sizeof(memory), &wrapped, NULL),
			 HYS_OK);
	assert_ptr_equal(wrapped->native, memory);
	/* Buffers keep their context. */
	hys_context_destroy(context);
	hys_buffer_destroy(wrapped);
	hys_buffer_destroy(buffer);
	hys_buffer_destroy(NULL);
	assert_int_equal(hys_buffer_bytes(NULL), 0);
}

static void test_wrong_buffers(void **state)
{
	struct hys_context *context = make_cpu();
	struct hys_buffer *buffer = NULL;
	char memory[64];

	(void)state;
	assert_int_equal(hys_buffer_create(NULL, 0, 1, &buffer, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_create(context, 1, 1, &buffer, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_create(context, -1, 1, &buffer, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_create(context, 0, 0, &buffer, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_create(context, 0, -5, &buffer, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_create(context, 0, 1, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_create(context, 0, INT64_MAX, &buffer, NULL),
			 HYS_OUT_OF_MEMORY);
	assert_int_equal(hys_buffer_wrap(context, 0, NULL, 1, &buffer, NULL), HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_wrap(context, 0, memory, 0, &buffer, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_wrap(context, 2, memory, 1, &buffer, NULL),
			 HYS_INVALID_ARGUMENT);
	assert_int_equal(hys_buffer_wrap(context, 0, memory, 1, NULL, NULL), HYS_INVALID_ARGUMENT);
	assert_null(buffer);
	hys_context_destroy(context);
}

/* ---- forks ---- */

static struct hys_context *parents_context;
static struct hys_buffer *parents_buffer;

static bool child_of_a_context(void)
{
	struct hys_device_speed speed;
	struct hys_buffer *buffer = NULL;
	struct hys_error error;
	bool fine = hys_context_device_count(parents_context) == 1;

	fine = fine && hys_context_measure(parents_context, 0, &speed, NULL) == HYS_FORKED &&
	       hys_buffer_create(parents_context, 0, 8, &buffer, &error) == HYS_FORKED &&
	       strstr(error.message, "fork") && !buffer &&
	       hys_wisdom_import(parents_context, "/tmp/x", NULL) == HYS_FORKED;
	hys_buffer_destroy(parents_buffer);
	hys_context_destroy(parents_context);
	parents_context = make_cpu(); /* a child may have its own */
	hys_context_destroy(parents_context);
	return fine;
}

static void test_fork(void **state)
{
	(void)state;
	parents_context = make_cpu();
	assert_int_equal(hys_buffer_create(parents_context, 0, 64, &parents_buffer, NULL), HYS_OK);
	assert_true(in_child(child_of_a_context));
	hys_buffer_destroy(parents_buffer);
	hys_context_destroy(parents_context);
}

/* ---- memory ---- */

static void test_every_allocation_failing(void **state)
{
	struct failing_allocator memory = {0};
	struct hys_context_options options = cpu_only();
	hys_status status = HYS_OUT_OF_MEMORY;
	long n = 0;

	(void)state;
	failing_allocator_use(&memory, &options);
	while (status != HYS_OK) {
		struct hys_context *context = NULL;
		struct hys_buffer *buffer = NULL;
		struct hys_error error = {HYS_OK, 0, ""};

		failing_allocator_arm(&memory, ++n);
		status = hys_context_create(&options, &context, &error);
		if (status == HYS_OK)
			status = hys_buffer_create(context, 0, 4096, &buffer, &error);
		hys_buffer_destroy(buffer);
		hys_context_destroy(context);
		assert_int_equal(memory.live, 0);
		if (status != HYS_OK) {
			assert_int_equal(status, HYS_OUT_OF_MEMORY);
			assert_int_equal(error.status, status);
			assert_true(error.message[0]);
		}
		assert_true(n < 1000);
	}
	assert_true(n > 8);
}

/* ---- log ---- */

static void keep_message(void *user, hys_log_level level, const char *message)
{
	snprintf(user, 64, "%d %s", level, message);
}

static void test_log(void **state)
{
	char last[64] = "";
	struct hys_host host = {.log = keep_message, .log_user = last};

	(void)state;
	hys_host_log(&host, HYS_LOG_WARNING, "%s took %d s", "a build", 3);
	assert_string_equal(last, "1 a build took 3 s");
	host.log = NULL;
	hys_host_log(&host, HYS_LOG_ERROR, "nobody listens");
	assert_string_equal(last, "1 a build took 3 s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_platform), /* before any driver is loaded */
		cmocka_unit_test(test_wrong_lists),
		cmocka_unit_test(test_a_long_list),
		cmocka_unit_test(test_named_twice_in_two_ways),
		cmocka_unit_test(test_wrong_options),
		cmocka_unit_test(test_cache_folder),
		cmocka_unit_test(test_disable),
		cmocka_unit_test(test_disable_what_is_not),
		cmocka_unit_test(test_disable_from_the_environment),
		cmocka_unit_test(test_the_cpu_device),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_wrong_numbers),
		cmocka_unit_test(test_speed_is_measured_once),
		cmocka_unit_test(test_buffers),
		cmocka_unit_test(test_wrong_buffers),
		cmocka_unit_test(test_every_allocation_failing),
		cmocka_unit_test(test_log),
		cmocka_unit_test(test_the_order),
		cmocka_unit_test(test_all_that_is_known_is_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
