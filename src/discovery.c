#include "discovery.h"

#include <stdio.h>
#include <string.h>

/* ---- lists that grow ---- */

/* An array with room for one more element; NULL when there is no memory, the
 * old one is then untouched. */
static void *grow(const struct hys_allocator *allocator, void *array, int32_t count,
		  int32_t *capacity, size_t size)
{
	int32_t larger = *capacity ? 2 * *capacity : 8;
	void *moved;

	if (count < *capacity)
		return array;
	moved = hys_alloc_array(allocator, larger, size);
	if (!moved)
		return NULL;
	if (count > 0)
		memcpy(moved, array, (size_t)count * size);
	hys_free(allocator, array);
	*capacity = larger;
	return moved;
}

static hys_status add_rejected(struct hys_found *found, const struct hys_device_info *info,
			       struct hys_error *error)
{
	struct hys_device_info *list =
		grow(&found->context->host.allocator, found->rejected, found->rejected_count,
		     &found->rejected_capacity, sizeof(*list));

	if (!list)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a rejected device");
	found->rejected = list;
	list[found->rejected_count++] = *info;
	return HYS_OK;
}

static hys_status add_device(struct hys_found *found, struct hys_device *device, bool native,
			     struct hys_error *error)
{
	struct hys_found_device *list =
		grow(&found->context->host.allocator, found->devices, found->device_count,
		     &found->device_capacity, sizeof(*list));

	if (!list)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a device");
	found->devices = list;
	list[found->device_count].device = device;
	list[found->device_count++].native = native;
	return HYS_OK;
}

static void destroy_device(struct hys_device *device)
{
	device->backend->device_destroy(device);
}

/* ---- what backends report ---- */

static bool take_native(struct hys_found *found)
{
	if (found->natives_left == 0)
		return false;
	found->natives_left--;
	return true;
}

/* The same device by way of another driver. */
static const struct hys_device *find_twin(const struct hys_found *found,
					  const struct hys_device *device)
{
	for (int32_t i = 0; device->info.id[0] && i < found->device_count; i++) {
		const struct hys_device *other = found->devices[i].device;

		if (other->backend == device->backend &&
		    strcmp(other->info.id, device->info.id) == 0)
			return other;
	}
	return NULL;
}

static hys_status reject_twin(struct hys_found *found, const struct hys_device *device,
			      const struct hys_device *twin, struct hys_error *error)
{
	struct hys_device_info info = device->info;

	snprintf(info.reason, sizeof(info.reason), "the same device as %.80s of driver %.80s",
		 twin->info.name, twin->info.driver);
	return add_rejected(found, &info, error);
}

hys_status hys_discovery_add(struct hys_discovery *discovery, struct hys_device *device,
			     struct hys_error *error)
{
	struct hys_found *found = discovery->sink;
	const struct hys_device *twin;
	bool native = take_native(found);
	hys_status status;

	hys_topology_locate(found->context->topology, &device->info);
	device->info.reason[0] = '\0';
	twin = native ? NULL : find_twin(found, device);
	status = twin ? reject_twin(found, device, twin, error)
		      : add_device(found, device, native, error);
	if (twin || status != HYS_OK)
		destroy_device(device);
	return status;
}

hys_status hys_discovery_reject(struct hys_discovery *discovery, const struct hys_device_info *info,
				struct hys_error *error)
{
	struct hys_found *found = discovery->sink;

	if (take_native(found))
		return hys_fail(error, HYS_NO_DEVICE, 0, "options.natives: %s cannot be used: %s",
				info->name, info->reason);
	return add_rejected(found, info, error);
}

/* ---- asking ---- */

static bool wants_backend(const struct hys_wanted_list *wanted, const struct hys_backend *backend)
{
	for (int32_t i = 0; i < wanted->count; i++)
		if (wanted->items[i].backend == backend)
			return true;
	return wanted->all;
}

static hys_status reject_backend(struct hys_found *found, const struct hys_backend *backend,
				 const struct hys_error *why, struct hys_error *error)
{
	struct hys_device_info info = {0};

	snprintf(info.backend, sizeof(info.backend), "%s", backend->name);
	snprintf(info.name, sizeof(info.name), "all of %s", backend->name);
	snprintf(info.reason, sizeof(info.reason), "%.*s", (int)sizeof(info.reason) - 1,
		 why->message);
	info.numa_node = -1;
	hys_host_log(&found->context->host, HYS_LOG_INFO, "%s: %s", backend->name, why->message);
	return add_rejected(found, &info, error);
}

/* A backend that fails is left out, unless the caller asked for what it lacks
 * or this process has no memory (a driver's lack of it has a native code). */
static hys_status judge_failure(struct hys_found *found, const struct hys_backend *backend,
				const struct hys_error *why, bool natives, bool listed,
				struct hys_error *error)
{
	if (why->status == HYS_OUT_OF_MEMORY && why->native == 0)
		return hys_fail(error, why->status, 0, "%s", why->message);
	if (natives)
		return hys_fail(error, why->status, why->native, "%s", why->message);
	if (why->status == HYS_NO_PLATFORM && listed)
		return hys_fail(error, HYS_NO_PLATFORM, why->native,
				"options.devices asks for %s, but %s", backend->name, why->message);
	return reject_backend(found, backend, why, error);
}

static void drop_devices_from(struct hys_found *found, int32_t first)
{
	while (found->device_count > first)
		destroy_device(found->devices[--found->device_count].device);
}

static hys_status ask_backend(struct hys_found *found, const struct hys_backend *backend,
			      const struct hys_native_device *natives, int32_t native_count,
			      bool listed, struct hys_error *error)
{
	struct hys_discovery discovery = {&found->context->host, natives, native_count, found};
	struct hys_error why = {HYS_OK, 0, ""};
	int32_t before = found->device_count;
	hys_status status;

	found->natives_left = native_count;
	status = backend->discover(&discovery, &why);
	if (status == HYS_OK && found->natives_left == 0)
		return HYS_OK;
	if (status == HYS_OK)
		hys_report(&why, HYS_INTERNAL, 0, "%s did not report every native device",
			   backend->name);
	why.status = status == HYS_OK ? HYS_INTERNAL : status;
	drop_devices_from(found, before);
	return judge_failure(found, backend, &why, native_count > 0, listed, error);
}

static int32_t copy_natives(const struct hys_context_options *options, const char *backend,
			    struct hys_native_device *natives)
{
	int32_t count = 0;

	for (int32_t i = 0; i < options->native_count; i++)
		if (strcmp(options->natives[i].backend, backend) == 0)
			natives[count++] = options->natives[i];
	return count;
}

hys_status hys_discover(struct hys_found *found, const struct hys_context_options *options,
			const struct hys_wanted_list *wanted, struct hys_error *error)
{
	const struct hys_allocator *allocator = &found->context->host.allocator;
	const struct hys_backend *backend;
	struct hys_native_device *natives =
		hys_alloc_array(allocator, options->native_count, sizeof(*natives));
	hys_status status = HYS_OK;

	if (!natives)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for the native devices");
	for (int32_t i = 0; (backend = hys_backend_at(i)) != NULL; i++) {
		int32_t count = copy_natives(options, backend->name, natives);
		bool wants = wants_backend(wanted, backend);

		if (wants || count > 0)
			HYS_TRY(ask_backend(found, backend, natives, count, wants && !wanted->all,
					    error));
	}
cleanup:
	hys_free(allocator, natives);
	return status;
}

/* ---- choosing ---- */

static void move_device(struct hys_found *found, struct hys_found_device *entry)
{
	struct hys_context *context = found->context;

	context->devices[context->device_count++] = entry->device;
	entry->device = NULL;
}

static void move_natives(struct hys_found *found)
{
	for (int32_t i = 0; i < found->device_count; i++)
		if (found->devices[i].native)
			move_device(found, &found->devices[i]);
}

/* GPUs, other accelerators, this machine's processors by the CPU backend, and
 * last the same processors by way of a driver. */
static int rank(const struct hys_device *device)
{
	if (device->info.kind == HYS_DEVICE_GPU)
		return 0;
	if (device->info.kind == HYS_DEVICE_ACCELERATOR)
		return 1;
	return device->host_memory ? 2 : 3;
}
#define RANKS 4

/* Those of one backend, or of all (NULL), that have not been moved. */
static int32_t move_ranked(struct hys_found *found, const struct hys_backend *backend)
{
	int32_t before = found->context->device_count;

	for (int r = 0; r < RANKS; r++) {
		for (int32_t i = 0; i < found->device_count; i++) {
			struct hys_found_device *entry = &found->devices[i];

			if (entry->device && rank(entry->device) == r &&
			    (!backend || entry->device->backend == backend))
				move_device(found, entry);
		}
	}
	return found->context->device_count - before;
}

/* Why nothing of `backend` can be used: the first reason that is known. */
static const char *first_reason(const struct hys_found *found, const char *backend)
{
	for (int32_t i = 0; i < found->rejected_count; i++)
		if (!backend || strcmp(found->rejected[i].backend, backend) == 0)
			return found->rejected[i].reason;
	return "there is none";
}

/* Device `number` of the backend in the order of discovery, natives aside. */
static struct hys_found_device *find_numbered(struct hys_found *found,
					      const struct hys_found_device *snapshot,
					      const struct hys_wanted *item)
{
	int32_t number = item->number;

	for (int32_t i = 0; i < found->device_count; i++)
		if (!snapshot[i].native && snapshot[i].device->backend == item->backend &&
		    number-- == 0)
			return &found->devices[i];
	return NULL;
}

static hys_status move_item(struct hys_found *found, const struct hys_found_device *snapshot,
			    const struct hys_wanted *item, struct hys_error *error)
{
	struct hys_found_device *entry;

	if (item->number < 0) {
		if (move_ranked(found, item->backend) > 0)
			return HYS_OK;
		return hys_fail(error, HYS_NO_DEVICE, 0, "options.devices: no %s device: %s",
				item->text, first_reason(found, item->backend->name));
	}
	entry = find_numbered(found, snapshot, item);
	if (!entry)
		return hys_fail(error, HYS_NO_DEVICE, 0, "options.devices: no device %s: %s",
				item->text, first_reason(found, item->backend->name));
	if (entry->device)
		move_device(found, entry);
	return HYS_OK;
}

static hys_status move_wanted(struct hys_found *found, const struct hys_wanted_list *wanted,
			      struct hys_error *error)
{
	const struct hys_allocator *allocator = &found->context->host.allocator;
	struct hys_found_device *snapshot =
		hys_alloc_array(allocator, found->device_count, sizeof(*snapshot));
	hys_status status = HYS_OK;

	if (!snapshot)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for the device list");
	if (found->device_count > 0)
		memcpy(snapshot, found->devices, (size_t)found->device_count * sizeof(*snapshot));
	move_natives(found);
	if (wanted->all)
		move_ranked(found, NULL);
	for (int32_t i = 0; i < wanted->count; i++)
		HYS_TRY(move_item(found, snapshot, &wanted->items[i], error));
cleanup:
	hys_free(allocator, snapshot);
	return status;
}

static hys_status reject_rest(struct hys_found *found, struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int32_t i = 0; status == HYS_OK && i < found->device_count; i++) {
		struct hys_device_info info;

		if (!found->devices[i].device)
			continue;
		info = found->devices[i].device->info;
		snprintf(info.reason, sizeof(info.reason), "not in the list of wanted devices");
		status = add_rejected(found, &info, error);
	}
	return status;
}

hys_status hys_choose_devices(struct hys_found *found, const struct hys_wanted_list *wanted,
			      struct hys_error *error)
{
	struct hys_context *context = found->context;
	hys_status status;

	context->devices = hys_alloc_array(&context->host.allocator, found->device_count,
					   sizeof(struct hys_device *));
	context->speeds = hys_alloc_array(&context->host.allocator, found->device_count,
					  sizeof(*context->speeds));
	if (!context->devices || !context->speeds)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for the devices");
	HYS_TRY(move_wanted(found, wanted, error));
	HYS_TRY(reject_rest(found, error));
	if (context->device_count == 0)
		HYS_TRY(hys_fail(error, HYS_NO_DEVICE, 0, "no usable device: %s",
				 first_reason(found, NULL)));
	context->rejected = found->rejected;
	context->rejected_count = found->rejected_count;
	found->rejected = NULL;
cleanup:
	return status;
}

void hys_found_clear(struct hys_found *found)
{
	const struct hys_allocator *allocator = &found->context->host.allocator;

	for (int32_t i = 0; i < found->device_count; i++)
		if (found->devices[i].device)
			destroy_device(found->devices[i].device);
	hys_free(allocator, found->devices);
	hys_free(allocator, found->rejected);
}
