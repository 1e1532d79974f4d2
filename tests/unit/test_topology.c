/* Where devices lie, and where threads may go. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_places_of_unknown_devices(void **state)
{
	struct hys_topology *topology = hys_topology_create(&hys_allocator_default);
	static const char *const ids[] = {
		"",	      "GPU-0a1b2c3d",  "ffff:ff:1f.7",	    "0000:zz:00.0",
		"0000:00:00", "0000:00:00.0 ", "99999999999:1:1.1",
	};
	struct hys_device_info info = {.kind = HYS_DEVICE_GPU};

	(void)state;
	assert_non_null(topology);
	for (size_t i = 0; i < COUNT(ids); i++) {
		snprintf(info.id, sizeof(info.id), "%s", ids[i]);
		hys_topology_locate(topology, &info);
		assert_int_equal(info.numa_node, -1);
		assert_string_equal(info.cpus, "");
		hys_topology_bind(topology, &info);
	}
	hys_topology_destroy(topology);
	hys_topology_destroy(NULL);
}

static void test_binding_never_leaves_the_allowed_set(void **state)
{
	struct hys_topology *topology = hys_topology_create(&hys_allocator_default);
	static const char *const lists[] = {"8000-8191", "nonsense", "1-", "-1", "9999999", "5-3"};
	struct hys_device_info info = {.kind = HYS_DEVICE_GPU};
	const int32_t before = hys_topology_cpus_allowed(topology);

	(void)state;
	for (size_t i = 0; i < COUNT(lists); i++) {
		struct hys_topology *after;

		snprintf(info.cpus, sizeof(info.cpus), "%s", lists[i]);
		hys_topology_bind(topology, &info);
		after = hys_topology_create(&hys_allocator_default);
		assert_int_equal(hys_topology_cpus_allowed(after), before);
		hys_topology_destroy(after);
	}
	hys_topology_destroy(topology);
}

static void *bind_to_one(void *argument)
{
	struct hys_topology *topology = argument, *after;
	struct hys_device_info cpu = {.kind = HYS_DEVICE_CPU}, gpu = {.kind = HYS_DEVICE_GPU};
	bool fine;

	/* The first CPU that is allowed. */
	hys_topology_locate(topology, &cpu);
	snprintf(gpu.cpus, sizeof(gpu.cpus), "%ld", strtol(cpu.cpus, NULL, 10));
	hys_topology_bind(topology, &gpu);
	after = hys_topology_create(&hys_allocator_default);
	fine = after && hys_topology_cpus_allowed(after) == 1;
	hys_topology_destroy(after);
	return fine ? argument : NULL;
}

static void test_binding_one_thread(void **state)
{
	struct hys_topology *topology = hys_topology_create(&hys_allocator_default), *mine;
	pthread_t thread;
	void *fine;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, bind_to_one, topology), 0);
	pthread_join(thread, &fine);
	assert_non_null(fine);
	mine = hys_topology_create(&hys_allocator_default);
	assert_int_equal(hys_topology_cpus_allowed(mine), hys_topology_cpus_allowed(topology));
	hys_topology_destroy(mine);
	hys_topology_destroy(topology);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places_of_unknown_devices),
		cmocka_unit_test(test_binding_never_leaves_the_allowed_set),
		cmocka_unit_test(test_binding_one_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
