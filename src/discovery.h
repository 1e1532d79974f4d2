/* discovery.h - what is found, and which of it the caller wants. */
#ifndef HYS_DISCOVERY_H
#define HYS_DISCOVERY_H

#include "core.h"

/* One item of the caller's device list. */
struct hys_wanted {
	const struct hys_backend *backend;
	int32_t number; /* -1 = all of the backend */
	char text[32];	/* as the caller wrote it */
};

struct hys_wanted_list {
	struct hys_wanted *items; /* freed by the maker of the list */
	int32_t count;
	bool all; /* no list was given: everything is wanted */
};

struct hys_found_device {
	struct hys_device *device; /* NULL once moved to the context */
	bool native;
};

struct hys_found {
	struct hys_context *context;
	struct hys_found_device *devices;
	int32_t device_count, device_capacity;
	struct hys_device_info *rejected;
	int32_t rejected_count, rejected_capacity;
	int32_t natives_left; /* reports to come that answer a native device */
};

/* Reads a device list such as "opencl:0,openmp"; NULL = all. */
hys_status hys_wanted_parse(const struct hys_allocator *allocator, const char *devices,
			    struct hys_wanted_list *wanted, struct hys_error *error);

/* Asks every backend from which something is wanted. */
hys_status hys_discover(struct hys_found *found, const struct hys_context_options *options,
			const struct hys_wanted_list *wanted, struct hys_error *error);

/* Moves the wanted devices into the context, in their final order; what is left
 * over becomes a rejected entry. */
hys_status hys_choose_devices(struct hys_found *found, const struct hys_wanted_list *wanted,
			      struct hys_error *error);

/* Destroys what has not been moved. */
void hys_found_clear(struct hys_found *found);

#endif
