/* Machines that hwloc is given a description of: two sockets with GPUs, a container, none at all. hwloc
 * takes this machine instead of a description that it cannot read, without a word: each test asserts
 * which one it got. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core.h"

#define FOLDER HYS_SOURCE_DIR "/tests/topology/"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct place {
	const char *id; /* NULL: the processor */
	int32_t node;
	const char *cpus;
};

static struct hys_topology *described(const char *variable, const char *value)
{
	struct hys_topology *topology;

	unsetenv("HWLOC_XMLFILE");
	unsetenv("HWLOC_SYNTHETIC");
	setenv(variable, value, 1);
	topology = hys_topology_create(&hys_allocator_default);
	assert_non_null(topology);
	return topology;
}

static void expect_places(struct hys_topology *topology, const struct place *places, size_t count)
{
	assert_true(hys_topology_is_described(topology));
	for (size_t i = 0; i < count; i++) {
		struct hys_device_info info = {.kind = places[i].id ? HYS_DEVICE_GPU
								    : HYS_DEVICE_CPU};

		snprintf(info.id, sizeof(info.id), "%s", places[i].id ? places[i].id : "");
		hys_topology_locate(topology, &info);
		assert_int_equal(info.numa_node, places[i].node);
		assert_string_equal(info.cpus, places[i].cpus);
	}
	assert_true(hys_topology_is_described(topology)); /* devices were looked for, too */
	hys_topology_destroy(topology);
}

static void test_two_sockets(void **state)
{
	static const struct place places[] = {
		{"0000:21:00.0", 0, "0-3"}, {"a1:00.0", 1, "4-7"},    {"0000:f1:00.0", -1, "0-7"},
		{"0000:22:00.0", -1, ""},   {"0001:21:00.0", -1, ""}, {NULL, -1, "0-7"},
	};

	(void)state;
	expect_places(described("HWLOC_XMLFILE", FOLDER "two_sockets.xml"), places, COUNT(places));
}

/* Near means near and allowed; a GPU of the other socket is still known to be there. */
static void test_container(void **state)
{
	static const struct place places[] = {
		{NULL, 1, "5-6"},
		{"0000:a1:00.0", 1, "5-6"},
		{"0000:21:00.0", 0, ""},
		{"0000:f1:00.0", -1, "5-6"},
	};

	(void)state;
	expect_places(described("HWLOC_XMLFILE", FOLDER "container.xml"), places, COUNT(places));
}

static void test_virtual_machine(void **state)
{
	static const struct place places[] = {
		{NULL, 0, "0-1"},
		{"0000:00:02.0", 0, "0-1"}, /* a disk */
		{"0000:21:00.0", -1, ""},
	};

	(void)state;
	expect_places(described("HWLOC_XMLFILE", FOLDER "virtual.xml"), places, COUNT(places));
}

static void test_virtual_machine_with_a_gpu(void **state)
{
	static const struct place places[] = {
		{NULL, 0, "0-15"},
		{"0000:00:06.0", 0, "0-15"},
		{"00:06.0", 0, "0-15"},
		{"0000:00:05.0", -1, ""},
	};

	(void)state;
	expect_places(described("HWLOC_XMLFILE", FOLDER "virtual_h200.xml"), places, COUNT(places));
}

static void test_synthetic(void **state)
{
	static const struct place wide[] = {{NULL, -1, "0-31"}, {"0000:21:00.0", -1, ""}};
	static const struct place one[] = {{NULL, 0, "0"}, {"0000:21:00.0", -1, ""}};

	(void)state;
	expect_places(described("HWLOC_SYNTHETIC", "pack:2 [numa(memory=68719476736)] core:8 pu:2"),
		      wide, COUNT(wide));
	expect_places(described("HWLOC_SYNTHETIC", "pu:1"), one, COUNT(one));
}

/* The CPUs of another machine must not become this process's. */
static void test_no_binding_elsewhere(void **state)
{
	struct hys_topology *topology = described("HWLOC_XMLFILE", FOLDER "two_sockets.xml"), *here;
	struct hys_device_info info = {.kind = HYS_DEVICE_GPU, .id = "0000:21:00.0"};
	const int32_t threads = hys_topology_cpus_allowed(topology);

	(void)state;
	assert_true(hys_topology_is_described(topology));
	hys_topology_locate(topology, &info);
	snprintf(info.cpus, sizeof(info.cpus), "0");
	hys_topology_bind(topology, &info);
	unsetenv("HWLOC_XMLFILE");
	here = hys_topology_create(&hys_allocator_default);
	assert_non_null(here);
	assert_false(hys_topology_is_described(here));
	assert_int_equal(hys_topology_cpus_allowed(here), threads);
	hys_topology_destroy(here);
	hys_topology_destroy(topology);
}

/* ---- descriptions that are none ---- */

static void locate_all(struct hys_topology *topology)
{
	static const char *const ids[] = {"0000:21:00.0", "0000:a1:00.0", "0000:f1:00.0"};
	struct hys_device_info info = {.kind = HYS_DEVICE_CPU};

	hys_topology_locate(topology, &info);
	assert_in_range(info.numa_node + 1, 0, 4096);
	for (size_t i = 0; i < COUNT(ids); i++) {
		info = (struct hys_device_info){.kind = HYS_DEVICE_GPU};
		snprintf(info.id, sizeof(info.id), "%s", ids[i]);
		hys_topology_locate(topology, &info);
		assert_in_range(info.numa_node + 1, 0, 4096);
		hys_topology_bind(topology, &info);
	}
}

/* Devices are looked for later than the rest, when the file may be gone. */
static void locate_in(const char *text, size_t bytes, bool expected, bool remove_early)
{
	char path[] = "topology-XXXXXX";
	int file = mkstemp(path);
	struct hys_topology *topology;

	assert_true(file >= 0);
	assert_int_equal(write(file, text, bytes), bytes);
	close(file);
	topology = described("HWLOC_XMLFILE", path);
	assert_int_equal(hys_topology_is_described(topology), expected);
	if (remove_early)
		remove(path);
	locate_all(topology);
	hys_topology_destroy(topology);
	remove(path);
}

static void test_malformed(void **state)
{
	static const char *const texts[] = {
		"",
		"nonsense",
		"<?xml version=\"1.0\"?>",
		"<topology version=\"2.0\">",
		"<?xml version=\"1.0\"?><topology version=\"9.9\"><object "
		"type=\"Machine\"/></topology>",
		"<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"Machine\" "
		"cpuset=\"-\"/></topology>",
		"<?xml version=\"1.0\"?><topology version=\"2.0\"></topology>",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(texts); i++)
		locate_in(texts[i], strlen(texts[i]), false, false);
	locate_in(texts[1], strlen(texts[1]), false, true);
}

static void test_cut_short(void **state)
{
	static char text[16384];
	FILE *file = fopen(FOLDER "two_sockets.xml", "r");
	size_t bytes;

	(void)state;
	assert_non_null(file);
	bytes = fread(text, 1, sizeof(text), file);
	fclose(file);
	assert_in_range(bytes, 1, sizeof(text) - 1);
	locate_in(text, bytes, true, false);
	locate_in(text, bytes, true, true);
	for (size_t cut = 97; cut + 16 < bytes; cut += 97)
		locate_in(text, cut, false, false);
}

/* The descriptions reach what a caller sees of a context. */
static void test_context(void **state)
{
	struct hys_context_options options = {.struct_size = sizeof(options), .devices = "openmp"};
	struct hys_device_info info;
	struct hys_context *context;

	(void)state;
	setenv("HWLOC_XMLFILE", FOLDER "container.xml", 1);
	assert_int_equal(hys_context_create(&options, &context, NULL), HYS_OK);
	assert_int_equal(hys_context_device_info(context, 0, &info, NULL), HYS_OK);
	assert_int_equal(info.numa_node, 1);
	assert_string_equal(info.cpus, "5-6");
	hys_context_destroy(context);
}

static int leave_environment(void **state)
{
	(void)state;
	unsetenv("HWLOC_XMLFILE");
	unsetenv("HWLOC_SYNTHETIC");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_two_sockets, leave_environment),
		cmocka_unit_test_teardown(test_container, leave_environment),
		cmocka_unit_test_teardown(test_virtual_machine, leave_environment),
		cmocka_unit_test_teardown(test_virtual_machine_with_a_gpu, leave_environment),
		cmocka_unit_test_teardown(test_synthetic, leave_environment),
		cmocka_unit_test_teardown(test_no_binding_elsewhere, leave_environment),
		cmocka_unit_test_teardown(test_malformed, leave_environment),
		cmocka_unit_test_teardown(test_cut_short, leave_environment),
		cmocka_unit_test_teardown(test_context, leave_environment),
	};

#ifndef HYS_WITH_HWLOC
	printf("built without hwloc\n");
	return 77;
#endif
	return cmocka_run_group_tests(tests, NULL, NULL);
}
