/* Limits of control groups, from folders that look like theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cgroup.h"
#include "core.h"

static char root[64], self[80];

static void put(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(path, 0700);
		*at = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int set_up(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/hyscale-cgroup-%ld", (long)getpid());
	snprintf(self, sizeof(self), "%s/self", root);
	return mkdir(root, 0700);
}

static int tear_down(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

static void expect(int32_t cpus, int64_t memory)
{
	const struct hys_cgroup_limits limits = hys_cgroup_read(root, self);

	assert_int_equal(limits.cpus, cpus);
	assert_int_equal(limits.memory_bytes, memory);
}

static void test_second(void **state)
{
	(void)state;
	put("self", "0::/a/b\n");
	expect(0, 0);
	put("a/b/cpu.max", "max 100000\n");
	put("a/b/memory.max", "max\n");
	expect(0, 0);
	put("a/b/cpu.max", "250000 100000\n");
	put("a/b/memory.max", "1073741824\n");
	expect(3, 1 << 30);
	/* The group above is stricter in one of them. */
	put("a/cpu.max", "800000 100000\n");
	put("a/memory.max", "1000000\n");
	expect(3, 1000000);
	put("cpu.max", "50000 100000\n");
	expect(1, 1000000);
}

static void test_first(void **state)
{
	(void)state;
	put("self", "9:memory:/box\n4:cpu,cpuacct:/box\n1:name=systemd:/box\n");
	put("cpu/box/cpu.cfs_quota_us", "-1\n");
	put("cpu/box/cpu.cfs_period_us", "100000\n");
	put("memory/box/memory.limit_in_bytes", "9223372036854771712\n");
	expect(0, 0);
	put("cpu/cpu.cfs_quota_us", "400000\n");
	put("cpu/cpu.cfs_period_us", "100000\n");
	put("memory/box/memory.limit_in_bytes", "77\n");
	expect(4, 77);
}

/* The path of the machine outside, as containers see it. */
static void test_foreign_path(void **state)
{
	(void)state;
	put("self", "0::/outside/only\n");
	put("cpu.max", "200000 100000\n");
	expect(2, 0);
}

static void test_nonsense(void **state)
{
	static const char *const lines[] = {"",	      "0::",	"0",	  ":::",	  "0:cpu",
					    "::/x\n", "0::../", "0::/\n", "a:b,cpu,:/q\n"};

	(void)state;
	put("cpu.max", "nonsense\n");
	put("memory.max", "-5\n");
	put("cpu/q/cpu.cfs_quota_us", "12\n");
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		put("self", lines[i]);
		expect(0, 0);
	}
	unlink(self);
	expect(0, 0);
}

static void test_this_machine(void **state)
{
	struct hys_topology *topology = hys_topology_create(&hys_allocator_default);
	const struct hys_cgroup_limits limits = hys_cgroup_read(NULL, NULL);

	(void)state;
	assert_non_null(topology);
	assert_int_equal(hys_topology_cpus_quota(topology), limits.cpus);
	hys_topology_destroy(topology);
}

static void test_memory_left(void **state)
{
	char meminfo[sizeof(root) + 16];

	(void)state;
	snprintf(meminfo, sizeof(meminfo), "%s/meminfo", root);
	assert_int_equal(hys_memory_left(meminfo, 0), INT64_MAX);
	assert_int_equal(hys_memory_left(meminfo, 4096), 4096);
	put("meminfo", "MemTotal:       64 kB\nMemAvailable:   12 kB\nCached: 3 kB\n");
	assert_int_equal(hys_memory_left(meminfo, 0), 12 * 1024);
	assert_int_equal(hys_memory_left(meminfo, 4096), 4096);
	assert_int_equal(hys_memory_left(meminfo, 1 << 20), 12 * 1024);
	put("meminfo", "MemAvailable: none\n");
	assert_int_equal(hys_memory_left(meminfo, 4096), 4096);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_second),   TEST(test_first),	      TEST(test_foreign_path),
		TEST(test_nonsense), TEST(test_memory_left),  TEST(test_this_machine),
	};

	return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
