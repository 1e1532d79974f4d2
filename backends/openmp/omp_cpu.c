/* omp_cpu.c - what processor this is: cpuid, /proc, /sys. Nothing here fails:
 * what cannot be found out keeps its default. */
#define _GNU_SOURCE /* syscall */
#include "omp_cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <unistd.h>

#include "omp_internal.h"

#ifdef HYS_ISA_AVX2
#include <cpuid.h>

#define BF16_BIT (1u << 5)
#define TILE_BITS (1u << 22 | 1u << 24) /* AMX-BF16, AMX-TILE */
#define XSAVE_BIT (1u << 27)
#define TILE_STATE (3u << 17)

/* Whether processor and system know tiles, by the features of leaf 7. */
static bool has_tiles(unsigned int features)
{
	unsigned int a, b, c = 0, d, low, high;
	if ((features & TILE_BITS) != TILE_BITS || !__get_cpuid(1, &a, &b, &c, &d) ||
	    !(c & XSAVE_BIT))
		return false;
	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	(void)high;
	return (low & TILE_STATE) == TILE_STATE;
}

uint64_t omp_cpu_capabilities(void)
{
	uint64_t found = 0;
	unsigned int a, b, c = 0, d;
	__builtin_cpu_init();
	/* These two also ask whether the system saves the wide registers. */
	if (__builtin_cpu_supports("avx2"))
		found |= OMP_CAN_AVX2;
	if (__builtin_cpu_supports("fma"))
		found |= OMP_CAN_FMA;
	/* Not every compiler's cpu_supports knows f16c. */
	if ((found & OMP_CAN_AVX2) && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C))
		found |= OMP_CAN_F16C;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		found |= OMP_CAN_AVX512;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && has_tiles(d))
		found |= OMP_CAN_AMX;
	if ((found & OMP_CAN_AVX512) && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BF16_BIT))
		found |= OMP_CAN_AVX512BF16;
	if ((found & OMP_CAN_AVX512BF16) && !__builtin_cpu_is("intel"))
		found |= OMP_CAN_FASTBF16;
	return found;
}

#else

uint64_t omp_cpu_capabilities(void)
{
#ifdef HYS_ISA_NEON
	return OMP_CAN_NEON;
#else
	return 0;
#endif
}

#endif

#ifdef SYS_arch_prctl

#define REQUEST_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM, asm/prctl.h */
#define TILE_DATA 18		  /* XFEATURE_XTILEDATA */

static bool tiles_permitted;

static void request_tiles(void)
{
	tiles_permitted = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool omp_cpu_permit_tiles(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, request_tiles);
	return tiles_permitted;
}

#else

bool omp_cpu_permit_tiles(void)
{
	return false;
}

#endif

/* Copies what follows "key<blanks>: " in the line, if the line starts so. */
static bool take_field(const char *line, const char *key, char *value, size_t size)
{
	const size_t length = strlen(key);
	if (strncmp(line, key, length) != 0)
		return false;
	const char *from = line + length + strspn(line + length, " \t");
	if (*from != ':')
		return false;
	from += 1 + strspn(from + 1, " \t");
	snprintf(value, size, "%.*s", (int)strcspn(from, "\n"), from);
	return true;
}

/* First value of `key` in /proc/cpuinfo; value stays when there is none. */
static void read_cpuinfo(const char *key, char *value, size_t size)
{
	char line[256];
	FILE *file = fopen("/proc/cpuinfo", "r");
	if (!file)
		return;
	while (fgets(line, sizeof line, file))
		if (take_field(line, key, value, size))
			break;
	fclose(file);
}

void omp_cpu_describe(struct hys_device_info *info)
{
	snprintf(info->name, sizeof info->name, "CPU");
	read_cpuinfo("model name", info->name, sizeof info->name);
	read_cpuinfo("vendor_id", info->vendor, sizeof info->vendor);
#ifdef _SC_PHYS_PAGES
	const long pages = sysconf(_SC_PHYS_PAGES);
	const long bytes = sysconf(_SC_PAGESIZE);
	if (pages > 0 && bytes > 0)
		info->memory_bytes = hys_mul64(pages, bytes);
#endif
	info->max_allocation_bytes = info->memory_bytes;
}

/* A number in a file, 0 when there is none. */
static double read_number(const char *path)
{
	char text[64] = "";
	FILE *file = fopen(path, "r");
	if (!file)
		return 0.0;
	if (!fgets(text, sizeof text, file))
		text[0] = '\0';
	fclose(file);
	return strtod(text, NULL);
}

double omp_cpu_clock(void)
{
	const double khz = read_number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
	char mhz[32] = "";
	if (khz > 0.0)
		return khz * 1e3;
	read_cpuinfo("cpu MHz", mhz, sizeof mhz);
	return strtod(mhz, NULL) > 0.0 ? strtod(mhz, NULL) * 1e6 : 2e9;
}
