/* What plans have learnt: a hash table of facts. */
#include <string.h>

#include "file.h"
#include "wisdom.h"
#include "wisdom_table.h"

#define FILE_MAX ((int64_t)64 << 20)

/* ---- the table ---- */

static bool same_fact(const struct hys_fact *a, const struct hys_fact *b)
{
	/* An operation has one choice per problem and device; a problem may
	 * trust and time many kernels. */
	return a->kind == b->kind && a->op == b->op && a->problem == b->problem &&
	       a->device == b->device &&
	       (a->kind == HYS_FACT_CHOICE || strcmp(a->kernel, b->kernel) == 0);
}

static uint64_t hash_fact(const struct hys_fact *fact)
{
	uint64_t hash = hys_hash(hys_hash_start, &fact->problem, sizeof(fact->problem));
	const int32_t kind = (int32_t)fact->kind * HYS_OP_COUNT + (int32_t)fact->op;

	hash = hys_hash(hash, &fact->device, sizeof(fact->device));
	hash = hys_hash(hash, &kind, sizeof(kind));
	return fact->kind == HYS_FACT_CHOICE ? hash
					     : hys_hash(hash, fact->kernel, strlen(fact->kernel));
}

/* The slot that holds the fact, or the free one where it belongs. */
static int64_t find_slot(const struct hys_wisdom *wisdom, const struct hys_fact *fact)
{
	int64_t slot = (int64_t)(hash_fact(fact) & (uint64_t)(wisdom->slots - 1));

	while (wisdom->slot[slot] && !same_fact(&wisdom->facts[wisdom->slot[slot] - 1], fact))
		slot = (slot + 1) & (wisdom->slots - 1);
	return slot;
}

/* Room for `count` facts at less than half full slots. */
static bool reserve(struct hys_wisdom *wisdom, int64_t count)
{
	struct hys_wisdom larger = *wisdom;

	if (count <= wisdom->capacity)
		return true;
	larger.capacity = hys_max64(16, 2 * wisdom->capacity);
	while (larger.capacity < count)
		larger.capacity *= 2;
	larger.slots = 2 * larger.capacity;
	larger.facts = hys_alloc_array(&wisdom->allocator, larger.capacity, sizeof(*larger.facts));
	larger.slot = hys_alloc_array(&wisdom->allocator, larger.slots, sizeof(*larger.slot));
	if (!larger.facts || !larger.slot) {
		hys_free(&wisdom->allocator, larger.facts);
		hys_free(&wisdom->allocator, larger.slot);
		return false;
	}
	for (int64_t i = 0; i < wisdom->count; i++) {
		larger.facts[i] = wisdom->facts[i];
		larger.slot[find_slot(&larger, &larger.facts[i])] = (int32_t)(i + 1);
	}
	hys_free(&wisdom->allocator, wisdom->facts);
	hys_free(&wisdom->allocator, wisdom->slot);
	*wisdom = larger;
	return true;
}

bool hys_wisdom_add(struct hys_wisdom *wisdom, const struct hys_fact *fact)
{
	int64_t slot;

	if (!reserve(wisdom, wisdom->count + 1))
		return false;
	slot = find_slot(wisdom, fact);
	if (!wisdom->slot[slot])
		wisdom->slot[slot] = (int32_t)++wisdom->count;
	wisdom->facts[wisdom->slot[slot] - 1] = *fact;
	return true;
}

static const struct hys_fact *find_fact(const struct hys_wisdom *wisdom,
					const struct hys_fact *fact)
{
	int64_t slot;

	if (wisdom->count == 0)
		return NULL;
	slot = find_slot(wisdom, fact);
	return wisdom->slot[slot] ? &wisdom->facts[wisdom->slot[slot] - 1] : NULL;
}

bool hys_wisdom_copy(const struct hys_wisdom *wisdom, struct hys_wisdom *copy)
{
	*copy = (struct hys_wisdom){.allocator = wisdom->allocator};
	for (int64_t i = 0; i < wisdom->count; i++) {
		if (!hys_wisdom_add(copy, &wisdom->facts[i])) {
			hys_wisdom_clear(copy);
			return false;
		}
	}
	return true;
}

void hys_wisdom_clear(struct hys_wisdom *wisdom)
{
	hys_free(&wisdom->allocator, wisdom->facts);
	hys_free(&wisdom->allocator, wisdom->slot);
	*wisdom = (struct hys_wisdom){.allocator = wisdom->allocator};
}

struct hys_wisdom *hys_wisdom_create(const struct hys_allocator *allocator)
{
	struct hys_wisdom *wisdom = hys_alloc(allocator, sizeof(*wisdom));

	if (wisdom)
		wisdom->allocator = *allocator;
	return wisdom;
}

void hys_wisdom_destroy(struct hys_wisdom *wisdom)
{
	struct hys_allocator allocator;

	if (!wisdom)
		return;
	hys_wisdom_clear(wisdom);
	allocator = wisdom->allocator;
	hys_free(&allocator, wisdom);
}

/* ---- facts ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
	return hys_hash(hash, text, strlen(text) + 1);
}

uint64_t hys_device_signature(const struct hys_device *device)
{
	const struct hys_backend *backend = device->backend;
	uint64_t hash = hash_text(hys_hash_start, backend->name);

	hash = hash_text(hash, device->info.name);
	hash = hash_text(hash, device->info.driver);
	hash = hys_hash(hash, &device->info.compute_units, sizeof(device->info.compute_units));
	hash = hys_hash(hash, &device->slow, sizeof(device->slow));
	for (int32_t i = 0; i < backend->kernel_count; i++)
		hash = hash_text(hash, backend->kernels[i].name);
	return hash;
}

const char *hys_wisdom_find(const struct hys_wisdom *wisdom, hys_op op, uint64_t problem,
			    uint64_t device)
{
	struct hys_fact key = {.op = op, .problem = problem, .device = device};
	const struct hys_fact *fact = find_fact(wisdom, &key);

	return fact ? fact->kernel : NULL;
}

bool hys_kernel_name_copy(char *target, const char *name, size_t length)
{
	if (length == 0 || length >= HYS_KERNEL_NAME_SIZE)
		return false;
	for (size_t i = 0; i < length; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789._-", name[i]) || !name[i])
			return false;
	memcpy(target, name, length);
	target[length] = '\0';
	return true;
}

static hys_status remember(struct hys_wisdom *wisdom, struct hys_fact *fact, const char *kernel,
			   struct hys_error *error)
{
	if (!hys_kernel_name_copy(fact->kernel, kernel, strlen(kernel)))
		return hys_fail(error, HYS_INTERNAL, 0, "%.64s cannot be the name of a kernel",
				kernel);
	if (!hys_wisdom_add(wisdom, fact))
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for wisdom");
	return HYS_OK;
}

hys_status hys_wisdom_learn(struct hys_wisdom *wisdom, hys_op op, uint64_t problem, uint64_t device,
			    const char *kernel, double seconds, struct hys_error *error)
{
	struct hys_fact fact = {.op = op, .problem = problem, .device = device};

	/* A time that is no time is kept as 0: the choice counts. */
	if (seconds > 0 && seconds < 1e9)
		fact.nanoseconds = (int64_t)(seconds * 1e9 + 0.5);
	return remember(wisdom, &fact, kernel, error);
}

/* A rounded multiple of `unit` that fits. */
static int64_t units_of(double seconds, double unit)
{
	const double count = seconds / unit + 0.5;

	return count > 0 ? (int64_t)(count < 9e18 ? count : 9e18) : 0;
}

hys_status hys_wisdom_learn_pace(struct hys_wisdom *wisdom, hys_op op, uint64_t problem,
				 uint64_t device, const char *kernel, const struct hys_pace *pace,
				 struct hys_error *error)
{
	struct hys_fact fact = {
		.kind = HYS_FACT_PACE,
		.op = op,
		.problem = problem,
		.device = device,
		.pace = {units_of(pace->call_s, 1e-18), units_of(pace->row_s, 1e-18),
			 units_of(pace->flop_s, 1e-24), units_of(pace->byte_s, 1e-18)},
	};

	return remember(wisdom, &fact, kernel, error);
}

bool hys_wisdom_pace(const struct hys_wisdom *wisdom, hys_op op, uint64_t problem, uint64_t device,
		     const char *kernel, struct hys_pace *pace)
{
	struct hys_fact key = {
		.kind = HYS_FACT_PACE, .op = op, .problem = problem, .device = device};
	const struct hys_fact *fact;

	if (!hys_kernel_name_copy(key.kernel, kernel, strlen(kernel)))
		return false;
	fact = find_fact(wisdom, &key);
	if (!fact)
		return false;
	*pace = (struct hys_pace){
		.call_s = (double)fact->pace[0] * 1e-18,
		.row_s = (double)fact->pace[1] * 1e-18,
		.flop_s = (double)fact->pace[2] * 1e-24,
		.byte_s = (double)fact->pace[3] * 1e-18,
	};
	return true;
}

bool hys_wisdom_trusts(const struct hys_wisdom *wisdom, uint64_t problem, uint64_t device,
		       const char *kernel)
{
	struct hys_fact key = {.kind = HYS_FACT_TRUST, .problem = problem, .device = device};

	return hys_kernel_name_copy(key.kernel, kernel, strlen(kernel)) &&
	       find_fact(wisdom, &key) != NULL;
}

hys_status hys_wisdom_trust(struct hys_wisdom *wisdom, uint64_t problem, uint64_t device,
			    const char *kernel, struct hys_error *error)
{
	struct hys_fact fact = {.kind = HYS_FACT_TRUST, .problem = problem, .device = device};

	return remember(wisdom, &fact, kernel, error);
}

/* ---- files ---- */

static hys_status check_path(const struct hys_context *context, const char *path,
			     struct hys_error *error)
{
	hys_status status = hys_context_check(context, error);

	if (status == HYS_OK && (!path || !path[0]))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "path is %s",
				path ? "empty" : "NULL");
	return status;
}

hys_status hys_wisdom_import(struct hys_context *context, const char *path, struct hys_error *error)
{
	char *text = NULL;
	int64_t bytes;
	hys_status status = check_path(context, path, error);

	if (status != HYS_OK)
		return status;
	HYS_TRY(hys_file_read(&context->host.allocator, path, FILE_MAX, &text, &bytes, error));
	pthread_mutex_lock(&context->lock);
	status = hys_wisdom_parse(context->wisdom, text, bytes, error);
	pthread_mutex_unlock(&context->lock);
cleanup:
	hys_free(&context->host.allocator, text);
	return status;
}

hys_status hys_wisdom_export(struct hys_context *context, const char *path, struct hys_error *error)
{
	hys_status status = check_path(context, path, error);
	int64_t bytes = 0;
	char *text;

	if (status != HYS_OK)
		return status;
	pthread_mutex_lock(&context->lock);
	text = hys_wisdom_print(context->wisdom, &bytes);
	pthread_mutex_unlock(&context->lock);
	if (!text)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for the text of wisdom");
	status = hys_file_write(&context->host.allocator, path, text, bytes, error);
	hys_free(&context->host.allocator, text);
	return status;
}

void hys_wisdom_forget(struct hys_context *context)
{
	/* In a forked child the lock may be held for ever. */
	if (hys_context_check(context, NULL) != HYS_OK)
		return;
	pthread_mutex_lock(&context->lock);
	hys_wisdom_clear(context->wisdom);
	pthread_mutex_unlock(&context->lock);
}
