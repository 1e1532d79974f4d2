#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "discovery.h"
#include "slow.h"
#include "text.h"

/* ---- hys_host ---- */

bool hys_host_disabled(const struct hys_host *host, const char *name)
{
	size_t length = strlen(name);

	for (const char *item = host->disable; *item;) {
		size_t span = strcspn(item, ", ");

		if (span > 0 && span == length && memcmp(item, name, length) == 0)
			return true;
		item += span + (item[span] != '\0');
	}
	return false;
}

void hys_host_log(const struct hys_host *host, hys_log_level level, const char *format, ...)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	char message[512];
	va_list arguments;

	if (!host->log)
		return;
	va_start(arguments, format);
	if (vsnprintf(message, sizeof(message), format, arguments) >= 0) {
		pthread_mutex_lock(&one_at_a_time);
		host->log(host->log_user, level, message);
		pthread_mutex_unlock(&one_at_a_time);
	}
	va_end(arguments);
}

/* ---- options ---- */

static hys_status check_natives(const struct hys_context_options *options, struct hys_error *error)
{
	if (options->native_count < 0 || (options->native_count > 0 && !options->natives))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"options.native_count is %d and natives %s NULL",
				options->native_count, options->natives ? "not" : "is");
	for (int32_t i = 0; i < options->native_count; i++) {
		const struct hys_native_device *native = &options->natives[i];

		if (!native->backend || !hys_backend_named(native->backend))
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"options.natives[%d].backend is \"%.40s\", expected one "
					"that was built in",
					i, native->backend ? native->backend : "NULL");
		if (!native->context || !native->device)
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"options.natives[%d] has no context or device", i);
	}
	return HYS_OK;
}

static hys_status check_options(const struct hys_context_options *options, struct hys_error *error)
{
	hys_status status = hys_check_struct(options, sizeof(*options), "options", error);

	if (status != HYS_OK)
		return status;
	if (options->threads < 0 || options->threads > 65536)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"options.threads is %d, expected 0 to 65536", options->threads);
	if (!options->allocate != !options->release)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"options.allocate and options.release: expected both or neither");
	return check_natives(options, error);
}

/* FOLDER plus a fixed rest; NULL when there is no memory. */
static char *join(const struct hys_allocator *allocator, const char *folder, const char *rest)
{
	size_t bytes = strlen(folder) + strlen(rest) + 1;
	char *path = hys_alloc(allocator, (int64_t)bytes);

	if (path)
		snprintf(path, bytes, "%s%s", folder, rest);
	return path;
}

static bool is_capability(const char *item, size_t length)
{
	const struct hys_backend *backend;

	if (length == strlen("defects") && memcmp(item, "defects", length) == 0)
		return true;
	for (int32_t b = 0; (backend = hys_backend_at(b)); b++)
		for (const char *const *name = backend->capability_names; name && *name; name++)
			if (strlen(*name) == length && memcmp(*name, item, length) == 0)
				return true;
	return false;
}

/* A name that no backend has disables nothing: most likely it is misspelt. */
static hys_status check_disable(const char *list, const char *source, struct hys_error *error)
{
	char known[192];
	struct hys_text text = {known, sizeof(known), 0};
	const struct hys_backend *backend;

	for (const char *item = list; *item;) {
		const size_t span = strcspn(item, ", ");

		if (span > 0 && !is_capability(item, span)) {
			for (int32_t b = 0; (backend = hys_backend_at(b)); b++)
				for (int32_t i = 0; backend->capability_names[i]; i++)
					hys_text_add(&text, "%s, ", backend->capability_names[i]);
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"%s has '%.*s', expected some of %sdefects", source,
					(int)(span < 32 ? span : 32), item, known);
		}
		item += span + (item[span] != '\0');
	}
	return HYS_OK;
}

/* *path stays NULL when there is to be no cache. */
static hys_status find_cache_dir(const struct hys_allocator *allocator, const char *wanted,
				 char **path, struct hys_error *error)
{
	const char *folder = wanted ? wanted : getenv("HYS_CACHE_DIR");
	const char *rest = "";

	if (!folder) {
		folder = getenv("XDG_CACHE_HOME");
		rest = "/hyscale";
		if (!folder || folder[0] != '/') { /* relative ones are to be ignored */
			folder = getenv("HOME");
			rest = "/.cache/hyscale";
		}
	}
	if (!folder || !folder[0])
		return HYS_OK;
	*path = join(allocator, folder, rest);
	return *path ? HYS_OK
		     : hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for the cache's path");
}

static hys_status fill_host(struct hys_context *context, const struct hys_context_options *options,
			    struct hys_error *error)
{
	struct hys_host *host = &context->host;
	const char *disable = options->disable ? options->disable : getenv("HYS_DISABLE");
	hys_status status;

	HYS_TRY(check_disable(disable ? disable : "",
			      options->disable ? "options.disable" : "HYS_DISABLE", error));
	HYS_TRY(find_cache_dir(&host->allocator, options->cache_dir, &context->cache_dir, error));
	context->disable = hys_alloc_string(&host->allocator, disable ? disable : "");
	context->topology = hys_topology_create(&host->allocator);
	context->wisdom = hys_wisdom_create(&host->allocator);
	if (!context->disable || !context->topology || !context->wisdom)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a context"));
	host->cache_dir = context->cache_dir;
	host->disable = context->disable;
	host->threads = options->threads;
	host->cpus_allowed = hys_topology_cpus_allowed(context->topology);
	host->cpus_quota = hys_topology_cpus_quota(context->topology);
	host->log = options->log;
	host->log_user = options->log_user;
cleanup:
	return status;
}

/* ---- life ---- */

static hys_status find_devices(struct hys_context *context,
			       const struct hys_context_options *options, struct hys_error *error)
{
	struct hys_wanted_list wanted = {0};
	struct hys_found found = {.context = context};
	hys_status status;

	HYS_TRY(hys_wanted_parse(&context->host.allocator, options->devices, &wanted, error));
	HYS_TRY(hys_discover(&found, options, &wanted, error));
	HYS_TRY(hys_choose_devices(&found, &wanted, error));
cleanup:
	hys_found_clear(&found);
	hys_free(&context->host.allocator, wanted.items);
	return status;
}

static hys_status make_context(const struct hys_allocator *allocator, struct hys_context **context,
			       struct hys_error *error)
{
	struct hys_context *made = hys_alloc(allocator, sizeof(*made));

	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a context");
	made->host.allocator = *allocator;
	made->process = getpid();
	atomic_init(&made->references, 1);
	if (pthread_mutex_init(&made->lock, NULL) != 0) {
		hys_free(allocator, made);
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a lock");
	}
	*context = made;
	return HYS_OK;
}

hys_status hys_context_create(const struct hys_context_options *options,
			      struct hys_context **context, struct hys_error *error)
{
	struct hys_context_options defaults = {.struct_size = sizeof(defaults)};
	struct hys_allocator allocator = hys_allocator_default;
	struct hys_context *made = NULL;
	hys_status status;

	options = options ? options : &defaults;
	HYS_TRY(check_options(options, error));
	if (!context)
		HYS_TRY(hys_fail(error, HYS_INVALID_ARGUMENT, 0, "context is NULL"));
	if (options->allocate)
		allocator = (struct hys_allocator){options->allocate, options->release,
						   options->allocate_user};
	HYS_TRY(make_context(&allocator, &made, error));
	HYS_TRY(fill_host(made, options, error));
	HYS_TRY(find_devices(made, options, error));
	hys_slow_read(made);
	*context = made;
	made = NULL;
cleanup:
	hys_context_release(made);
	return status;
}

/* A forked child leaves the devices to their maker: drivers do not survive a
 * fork, their shutdown least of all. */
static void destroy(struct hys_context *context)
{
	struct hys_allocator allocator = context->host.allocator;
	bool mine = context->process == getpid();

	for (int32_t i = 0; mine && i < context->device_count; i++)
		context->devices[i]->backend->device_destroy(context->devices[i]);
	hys_free(&allocator, context->devices);
	hys_free(&allocator, context->rejected);
	hys_free(&allocator, context->speeds);
	hys_wisdom_destroy(context->wisdom);
	hys_topology_destroy(context->topology);
	hys_free(&allocator, context->cache_dir);
	hys_free(&allocator, context->disable);
	pthread_mutex_destroy(&context->lock);
	hys_free(&allocator, context);
}

void hys_context_retain(struct hys_context *context)
{
	atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
}

void hys_context_release(struct hys_context *context)
{
	if (context &&
	    atomic_fetch_sub_explicit(&context->references, 1, memory_order_acq_rel) == 1)
		destroy(context);
}

void hys_context_destroy(struct hys_context *context)
{
	hys_context_release(context);
}

hys_status hys_context_check(const struct hys_context *context, struct hys_error *error)
{
	if (!context)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "context is NULL");
	if (context->process != getpid())
		return hys_fail(error, HYS_FORKED, 0,
				"the context belongs to process %lld and this is its child %lld: "
				"make one after fork",
				(long long)context->process, (long long)getpid());
	return HYS_OK;
}

/* ---- queries ---- */

int32_t hys_context_device_count(const struct hys_context *context)
{
	return context ? context->device_count : 0;
}

int32_t hys_context_rejected_count(const struct hys_context *context)
{
	return context ? context->rejected_count : 0;
}

static hys_status check_number(const struct hys_context *context, int32_t i, int32_t count,
			       const void *target, struct hys_error *error)
{
	hys_status status = hys_context_check(context, error);

	if (status != HYS_OK)
		return status;
	if (i < 0 || i >= count)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "i is %d, expected 0 to %d", i,
				count - 1);
	if (!target)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "the result's pointer is NULL");
	return HYS_OK;
}

hys_status hys_context_device_info(const struct hys_context *context, int32_t i,
				   struct hys_device_info *info, struct hys_error *error)
{
	hys_status status =
		check_number(context, i, hys_context_device_count(context), info, error);

	if (status == HYS_OK)
		*info = context->devices[i]->info;
	return status;
}

hys_status hys_context_rejected(const struct hys_context *context, int32_t i,
				struct hys_device_info *info, struct hys_error *error)
{
	hys_status status =
		check_number(context, i, hys_context_rejected_count(context), info, error);

	if (status == HYS_OK)
		*info = context->rejected[i];
	return status;
}

hys_status hys_context_measure(struct hys_context *context, int32_t i,
			       struct hys_device_speed *speed, struct hys_error *error)
{
	struct hys_device_speed measured;
	hys_status status =
		check_number(context, i, hys_context_device_count(context), speed, error);

	if (status != HYS_OK)
		return status;
	pthread_mutex_lock(&context->lock);
	measured = context->speeds[i];
	if (measured.flops_per_s <= 0) {
		status = context->devices[i]->backend->measure(context->devices[i], &measured,
							       error);
		if (status == HYS_OK)
			context->speeds[i] = measured;
	}
	pthread_mutex_unlock(&context->lock);
	if (status == HYS_OK)
		*speed = measured;
	return status;
}
