/* The caller's device list. */
#include <stdlib.h>
#include <string.h>

#include "discovery.h"

#define ITEMS_MAX 64
#define NUMBER_MAX 1000000

static hys_status parse_number(const char *text, struct hys_wanted *wanted, struct hys_error *error)
{
	char *end = NULL;
	long number = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;

	if (number < 0 || number > NUMBER_MAX || *end)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"options.devices: \"%s\", expected a number behind the colon",
				wanted->text);
	wanted->number = (int32_t)number;
	return HYS_OK;
}

static hys_status parse_backend(const char *name, struct hys_wanted *wanted,
				struct hys_error *error)
{
	wanted->backend = hys_backend_named(name);
	if (wanted->backend)
		return HYS_OK;
	if (strcmp(name, "opencl") == 0)
		return hys_fail(error, HYS_NO_PLATFORM, 0,
				"options.devices asks for opencl, but this library was built "
				"without it (WITH_OPENCL)");
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
			"options.devices: no backend is called \"%s\", expected opencl or openmp",
			name);
}

static hys_status parse_item(const char *text, size_t length, struct hys_wanted *wanted,
			     struct hys_error *error)
{
	char name[sizeof(wanted->text)];
	char *colon;

	if (length == 0 || length >= sizeof(name))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"options.devices: item \"%.*s\", expected BACKEND or BACKEND:N",
				(int)hys_min64((int64_t)length, 40), text);
	memcpy(name, text, length);
	name[length] = '\0';
	memcpy(wanted->text, name, length + 1);
	wanted->number = -1;
	colon = strchr(name, ':');
	if (colon) {
		hys_status status = parse_number(colon + 1, wanted, error);

		if (status != HYS_OK)
			return status;
		*colon = '\0';
	}
	return parse_backend(name, wanted, error);
}

static hys_status check_twice(const struct hys_wanted *items, int32_t count,
			      struct hys_error *error)
{
	const struct hys_wanted *last = &items[count - 1];

	for (const struct hys_wanted *item = items; item < last; item++)
		if (item->backend == last->backend && item->number == last->number)
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"options.devices names %s twice", last->text);
	return HYS_OK;
}

hys_status hys_wanted_parse(const struct hys_allocator *allocator, const char *devices,
			    struct hys_wanted_list *wanted, struct hys_error *error)
{
	hys_status status = HYS_OK;
	struct hys_wanted *items;
	int32_t count = 0;
	bool more = devices && *devices;

	items = hys_alloc_array(allocator, ITEMS_MAX, sizeof(*items));
	if (!items)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for the device list");
	while (more) {
		size_t length = strcspn(devices, ",");

		if (count == ITEMS_MAX)
			HYS_TRY(hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					 "options.devices has more than %d items", ITEMS_MAX));
		HYS_TRY(parse_item(devices, length, &items[count++], error));
		HYS_TRY(check_twice(items, count, error));
		more = devices[length] == ',';
		devices += length + more;
	}
	wanted->all = !devices;
	wanted->count = count;
	wanted->items = items;
	items = NULL;
cleanup:
	hys_free(allocator, items);
	return status;
}
