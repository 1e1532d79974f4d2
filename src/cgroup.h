/* cgroup.h - what the control groups of this process leave it of the machine. */
#ifndef HYS_CGROUP_H
#define HYS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

struct hys_cgroup_limits {
	int32_t cpus;	      /* rounded up; 0 = no limit that is known */
	int64_t memory_bytes; /* 0 = no limit that is known */
};

/* `root` is where the groups are mounted (NULL = /sys/fs/cgroup), `self` says
 * which are ours (NULL = /proc/self/cgroup). Both versions of control groups;
 * the strictest of a group and those above it. What cannot be read limits
 * nothing. */
struct hys_cgroup_limits hys_cgroup_read(const char *root, const char *self);

/* Bytes that can still be used without swapping or being killed: what the machine has
 * (`meminfo`, NULL = /proc/meminfo), no more than `limit_bytes` if that is above 0.
 * INT64_MAX when nobody knows. */
int64_t hys_memory_left(const char *meminfo, int64_t limit_bytes);

#endif
