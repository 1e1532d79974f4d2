/* Where devices lie in the machine. Everything here may fail without harm: what
 * is not known stays unknown. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HYS_WITH_HWLOC
#include <hwloc.h>
#endif

#include "cgroup.h"
#include "core.h"

/* The kernel's own limit on any machine of today. */
#define CPUS_MAX 8192

struct cpus {
	unsigned char set[CPUS_MAX]; /* 0 or 1 */
};

struct hys_topology {
	struct hys_allocator allocator;
	struct cpus allowed;
	int32_t allowed_count;
	struct hys_cgroup_limits limits;
	bool described; /* another machine's, which HWLOC_XMLFILE or HWLOC_SYNTHETIC describes */
#ifdef HYS_WITH_HWLOC
	hwloc_topology_t machine; /* NULL when it could not be loaded */
	bool has_devices;	  /* machine knows PCI devices, too */
#endif
};

/* ---- sets of CPUs ---- */

static int32_t cpus_count(const struct cpus *cpus)
{
	int32_t count = 0;

	for (int i = 0; i < CPUS_MAX; i++)
		count += cpus->set[i];
	return count;
}

/* "0-3,8"; empty when the text does not fit. */
static void cpus_print(const struct cpus *cpus, char *text, size_t size)
{
	size_t length = 0;

	for (int i = 0; i < CPUS_MAX; i++) {
		int last = i, more;

		if (!cpus->set[i])
			continue;
		while (last + 1 < CPUS_MAX && cpus->set[last + 1])
			last++;
		more = last == i ? snprintf(text + length, size - length, "%s%d", length ? "," : "",
					    i)
				 : snprintf(text + length, size - length, "%s%d-%d",
					    length ? "," : "", i, last);
		if (more < 0 || (size_t)more >= size - length) {
			text[0] = '\0';
			return;
		}
		length += (size_t)more;
		i = last;
	}
	text[length] = '\0';
}

/* The inverse, for text that cpus_print made. False when there are none. */
static bool cpus_parse(struct cpus *cpus, const char *text)
{
	memset(cpus, 0, sizeof(*cpus));
	while (*text) {
		char *end;
		long first = strtol(text, &end, 10), last = first;

		if (end == text)
			return false;
		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		if (first < 0 || last < first || last >= CPUS_MAX)
			return false;
		memset(cpus->set + first, 1, (size_t)(last - first + 1));
		text = *end == ',' ? end + 1 : end;
		if (*end && *end != ',')
			return false;
	}
	return cpus_count(cpus) > 0;
}

static void allowed_by_system(struct cpus *allowed)
{
	size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
	union {
		cpu_set_t set;
		unsigned char room[CPUS_MAX / 8 + sizeof(cpu_set_t)];
	} mask;
	long online;

	memset(&mask, 0, sizeof(mask));
	if (sched_getaffinity(0, bytes, &mask.set) == 0) {
		for (int i = 0; i < CPUS_MAX; i++)
			allowed->set[i] = CPU_ISSET_S(i, bytes, &mask.set) != 0;
		return;
	}
	online = sysconf(_SC_NPROCESSORS_ONLN);
	for (int i = 0; i < CPUS_MAX && i < online; i++)
		allowed->set[i] = 1;
}

static void bind_to(const struct cpus *cpus)
{
	size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
	union {
		cpu_set_t set;
		unsigned char room[CPUS_MAX / 8 + sizeof(cpu_set_t)];
	} mask;

	memset(&mask, 0, sizeof(mask));
	for (int i = 0; i < CPUS_MAX; i++)
		if (cpus->set[i])
			CPU_SET_S(i, bytes, &mask.set);
	/* A refusal leaves the thread where it is, which is fine too. */
	(void)sched_setaffinity(0, bytes, &mask.set);
}

/* ---- hwloc ---- */

#ifdef HYS_WITH_HWLOC
/* hwloc's own OpenCL, CUDA and X11 components would start drivers inside this
 * process; they add OS devices only, which are filtered out as well. Its x86
 * component moves the calling thread from CPU to CPU, for details that are not
 * needed here. */
static void configure(hwloc_topology_t machine)
{
#if HWLOC_API_VERSION >= 0x00020100
	static const char *const unwanted[] = {
		"opencl", "cuda", "nvml", "rsmi", "levelzero", "gl",
#ifdef __linux__
		"x86",
#endif
	};
	for (size_t i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
		hwloc_topology_set_components(machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
					      unwanted[i]);
	/* A device may hang on a socket that this process may not use. */
	hwloc_topology_set_flags(machine, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
#endif
	hwloc_topology_set_all_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_NONE);
	/* What memory and PCI devices may hang on. */
	hwloc_topology_set_type_filter(machine, HWLOC_OBJ_PACKAGE,
				       HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
	hwloc_topology_set_type_filter(machine, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
}

static bool load(hwloc_topology_t *loaded, enum hwloc_type_filter_e devices)
{
	hwloc_topology_t machine;

	if (hwloc_topology_init(&machine) != 0)
		return false;
	configure(machine);
	hwloc_topology_set_type_filter(machine, HWLOC_OBJ_PCI_DEVICE, devices);
	hwloc_topology_set_type_filter(machine, HWLOC_OBJ_BRIDGE, devices);
	if (hwloc_topology_load(machine) != 0) {
		hwloc_topology_destroy(machine);
		return false;
	}
	*loaded = machine;
	return true;
}

static bool cpus_of_set(hwloc_const_cpuset_t set, struct cpus *cpus)
{
	if (!set)
		return false;
	for (unsigned i = 0; i < CPUS_MAX; i++)
		cpus->set[i] = hwloc_bitmap_isset(set, i) != 0;
	return true;
}

static void load_machine(struct hys_topology *topology)
{
	if (!load(&topology->machine, HWLOC_TYPE_FILTER_KEEP_NONE))
		return;
	/* Of a description that it cannot read, hwloc makes this machine. */
	topology->described = !hwloc_topology_is_thissystem(topology->machine);
	if (topology->described)
		cpus_of_set(hwloc_topology_get_allowed_cpuset(topology->machine),
			    &topology->allowed);
}

/* Looking for PCI devices takes twenty times as long as all the rest: only once
 * there is one to place. */
static void load_devices(struct hys_topology *topology)
{
	hwloc_topology_t machine;

	if (topology->has_devices)
		return;
	topology->has_devices = true;
	if (!load(&machine, HWLOC_TYPE_FILTER_KEEP_IMPORTANT))
		return;
	if (topology->described == (hwloc_topology_is_thissystem(machine) != 0)) {
		hwloc_topology_destroy(machine); /* the description is gone meanwhile */
		return;
	}
	if (topology->machine)
		hwloc_topology_destroy(topology->machine);
	topology->machine = machine;
}

static void unload_machine(struct hys_topology *topology)
{
	if (topology->machine)
		hwloc_topology_destroy(topology->machine);
}

struct pci_address {
	unsigned domain, bus, device, function;
};

/* "0000:c1:00.0" or "c1:00.0". The widths keep numbers from overflowing. */
static bool parse_pci(const char *id, struct pci_address *pci)
{
	int end = 0;

	if (sscanf(id, "%8x:%2x:%2x.%1x%n", &pci->domain, &pci->bus, &pci->device, &pci->function,
		   &end) == 4 &&
	    !id[end])
		return true;
	pci->domain = 0;
	end = 0;
	return sscanf(id, "%2x:%2x.%1x%n", &pci->bus, &pci->device, &pci->function, &end) == 3 &&
	       !id[end];
}

static bool cpus_near(struct hys_topology *topology, const char *id, struct cpus *cpus)
{
	struct pci_address pci;
	hwloc_obj_t device, place;

	if (!parse_pci(id, &pci))
		return false;
	load_devices(topology);
	if (!topology->machine)
		return false;
	device = hwloc_get_pcidev_by_busid(topology->machine, pci.domain, pci.bus, pci.device,
					   pci.function);
	if (!device)
		return false;
	place = hwloc_get_non_io_ancestor_obj(topology->machine, device);
	return place && cpus_of_set(place->cpuset, cpus);
}

/* The node that holds all of these CPUs; -1 when they span several. */
static int32_t node_of(const struct hys_topology *topology, const struct cpus *cpus)
{
	hwloc_obj_t node = NULL;

	if (!topology->machine)
		return -1;
	while ((node = hwloc_get_next_obj_by_type(topology->machine, HWLOC_OBJ_NUMANODE, node))) {
		bool inside = node->cpuset != NULL;

		for (unsigned i = 0; inside && i < CPUS_MAX; i++)
			inside = !cpus->set[i] || hwloc_bitmap_isset(node->cpuset, i);
		if (inside)
			return (int32_t)node->os_index;
	}
	return -1;
}
#else
static void load_machine(struct hys_topology *topology)
{
	(void)topology;
}

static void unload_machine(struct hys_topology *topology)
{
	(void)topology;
}

static bool cpus_near(struct hys_topology *topology, const char *id, struct cpus *cpus)
{
	(void)topology;
	(void)id;
	(void)cpus;
	return false;
}

static int32_t node_of(const struct hys_topology *topology, const struct cpus *cpus)
{
	(void)topology;
	(void)cpus;
	return -1;
}
#endif

/* ---- what the core asks ---- */

struct hys_topology *hys_topology_create(const struct hys_allocator *allocator)
{
	struct hys_topology *topology = hys_alloc(allocator, sizeof(*topology));

	if (!topology)
		return NULL;
	topology->allocator = *allocator;
	allowed_by_system(&topology->allowed);
	topology->allowed_count = (int32_t)hys_max64(1, cpus_count(&topology->allowed));
	topology->limits = hys_cgroup_read(NULL, NULL);
	load_machine(topology);
	return topology;
}

void hys_topology_destroy(struct hys_topology *topology)
{
	struct hys_allocator allocator;

	if (!topology)
		return;
	unload_machine(topology);
	allocator = topology->allocator;
	hys_free(&allocator, topology);
}

int32_t hys_topology_cpus_allowed(const struct hys_topology *topology)
{
	return topology->allowed_count;
}

int32_t hys_topology_cpus_quota(const struct hys_topology *topology)
{
	return topology->limits.cpus;
}

bool hys_topology_is_described(const struct hys_topology *topology)
{
	return topology->described;
}

void hys_topology_locate(struct hys_topology *topology, struct hys_device_info *info)
{
	struct cpus cpus;

	info->numa_node = -1;
	info->cpus[0] = '\0';
	if (info->kind == HYS_DEVICE_CPU) {
		cpus = topology->allowed;
		if (topology->limits.memory_bytes > 0 &&
		    info->memory_bytes > topology->limits.memory_bytes)
			info->memory_bytes = topology->limits.memory_bytes;
	} else if (!cpus_near(topology, info->id, &cpus))
		return;
	info->numa_node = node_of(topology, &cpus);
	for (int i = 0; i < CPUS_MAX; i++)
		cpus.set[i] &= topology->allowed.set[i];
	cpus_print(&cpus, info->cpus, sizeof(info->cpus));
}

/* A CPU device's thread may run anywhere it is allowed to already; CPUs of
 * another machine mean nothing here. */
void hys_topology_bind(const struct hys_topology *topology, const struct hys_device_info *info)
{
	struct cpus cpus;

	if (topology->described || info->kind == HYS_DEVICE_CPU || !cpus_parse(&cpus, info->cpus))
		return;
	for (int i = 0; i < CPUS_MAX; i++)
		cpus.set[i] &= topology->allowed.set[i];
	if (cpus_count(&cpus) > 0)
		bind_to(&cpus);
}
