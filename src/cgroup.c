#include "cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_SIZE 1024
#define LINE_SIZE 1024

/* The first line of a file; false when there is none. */
static bool read_line(const char *folder, const char *name, char *line, size_t size)
{
	char path[PATH_SIZE + 64];
	FILE *file;
	bool found;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "r");
	if (!file)
		return false;
	found = fgets(line, (int)size, file) != NULL;
	fclose(file);
	return found;
}

/* A number above 0; 0 for "max", -1 and whatever else. */
static int64_t number(const char *text)
{
	const long long value = strtoll(text, NULL, 10);

	return value > 0 ? value : 0;
}

static void limit_cpus(struct hys_cgroup_limits *limits, int64_t quota, int64_t period)
{
	int64_t cpus;

	if (quota <= 0 || period <= 0)
		return;
	cpus = (quota + period - 1) / period;
	if (cpus < INT32_MAX && (limits->cpus == 0 || cpus < limits->cpus))
		limits->cpus = (int32_t)cpus;
}

/* Version 1 says "none" by a number near 2^63. */
static void limit_memory(struct hys_cgroup_limits *limits, int64_t bytes)
{
	if (bytes > 0 && bytes < INT64_C(1) << 60 &&
	    (limits->memory_bytes == 0 || bytes < limits->memory_bytes))
		limits->memory_bytes = bytes;
}

static void read_second(struct hys_cgroup_limits *limits, const char *folder)
{
	char line[LINE_SIZE];
	const char *period;

	if (read_line(folder, "cpu.max", line, sizeof(line))) {
		period = strchr(line, ' ');
		limit_cpus(limits, number(line), period ? number(period) : 0);
	}
	if (read_line(folder, "memory.max", line, sizeof(line)))
		limit_memory(limits, number(line));
}

static void read_first(struct hys_cgroup_limits *limits, const char *folder)
{
	char line[LINE_SIZE];
	int64_t quota;

	if (read_line(folder, "cpu.cfs_quota_us", line, sizeof(line))) {
		quota = number(line);
		if (read_line(folder, "cpu.cfs_period_us", line, sizeof(line)))
			limit_cpus(limits, quota, number(line));
	}
	if (read_line(folder, "memory.limit_in_bytes", line, sizeof(line)))
		limit_memory(limits, number(line));
}

/* A group and all above it, up to the root. In a container the path may be that
 * of the machine outside: then only the root is there to be read. */
static void walk(struct hys_cgroup_limits *limits, const char *root, const char *path,
		 void (*read)(struct hys_cgroup_limits *limits, const char *folder))
{
	char folder[PATH_SIZE];
	size_t base = strlen(root);

	if ((size_t)snprintf(folder, sizeof(folder), "%s%s", root, path) >= sizeof(folder))
		return;
	for (;;) {
		char *last;

		read(limits, folder);
		last = strrchr(folder, '/');
		if (strlen(folder) <= base || !last || (size_t)(last - folder) < base)
			return;
		*last = '\0';
	}
}

/* Whether a comma list has the word. */
static bool has(const char *list, const char *word)
{
	const size_t length = strlen(word);

	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, word, length) == 0 && (at[length] == ',' || !at[length]))
			return true;
	}
	return false;
}

/* "4:cpu,cpuacct:/path", or "0::/path" of version 2. */
static void read_group(struct hys_cgroup_limits *limits, const char *root, char *line)
{
	static const char *const controllers[] = {"cpu", "memory"};
	char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
	char folder[PATH_SIZE];

	if (!path)
		return;
	*names++ = '\0';
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	if (!names[0])
		walk(limits, root, path, read_second);
	for (int i = 0; i < 2; i++)
		if (has(names, controllers[i]) &&
		    (size_t)snprintf(folder, sizeof(folder), "%s/%s", root, controllers[i]) <
			    sizeof(folder))
			walk(limits, folder, path, read_first);
}

int64_t hys_memory_left(const char *meminfo, int64_t limit_bytes)
{
	static const char name[] = "MemAvailable:";
	FILE *file = fopen(meminfo ? meminfo : "/proc/meminfo", "r");
	int64_t left = limit_bytes > 0 ? limit_bytes : INT64_MAX;
	char line[LINE_SIZE];

	if (!file)
		return left;
	while (fgets(line, sizeof(line), file)) {
		int64_t kib;

		if (strncmp(line, name, sizeof(name) - 1) != 0)
			continue;
		kib = number(line + sizeof(name) - 1);
		if (kib > 0 && kib < left / 1024)
			left = kib * 1024;
	}
	fclose(file);
	return left;
}

struct hys_cgroup_limits hys_cgroup_read(const char *root, const char *self)
{
	struct hys_cgroup_limits limits = {0, 0};
	char line[LINE_SIZE];
	FILE *file = fopen(self ? self : "/proc/self/cgroup", "r");

	if (!file)
		return limits;
	while (fgets(line, sizeof(line), file))
		read_group(&limits, root ? root : "/sys/fs/cgroup", line);
	fclose(file);
	return limits;
}
