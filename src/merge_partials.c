/* Outputs that are sums over rows: every lane has its own, in host memory when
 * it is done; they are added in the order of the plan's devices, whatever the
 * timing. Lanes share that work by elements; sums that are to lie on devices
 * are added there, by each device for itself, in the same order. */
#include <string.h>

#include "gather.h"
#include "lane.h"
#include "number.h"

#define BLOCK 512

static int64_t part_bytes(const struct hys_field *field, const struct hys_dims *dims)
{
	return hys_round_up(hys_mul64(hys_field_elements(field, dims), 4), HYS_ALIGN);
}

/* Room for the sums of any operation of the plan. */
static int64_t slot_bytes_of(const struct hys_plan *plan)
{
	int64_t most = 0;

	for (int32_t i = 0; i < HYS_OP_COUNT; i++) {
		const hys_op op = (hys_op)i;
		const struct hys_fields *fields = hys_op_fields(op);
		const struct hys_size size =
			hys_plan_size_max(plan, op, hys_plan_rows_max(plan, op));
		const struct hys_dims dims = hys_dims_max(plan, &size);
		int64_t bytes = 0;

		if (!(plan->operations & HYS_OP_BIT(op)))
			continue;
		for (int32_t f = 0; f < fields->count; f++)
			if (fields->fields[f].flags & HYS_FIELD_PARTIAL)
				bytes = hys_add64(bytes, part_bytes(&fields->fields[f], &dims));
		most = hys_max64(most, bytes);
	}
	return most;
}

/* On the host a lane sums in its slot, and needs another beside it. */
static int64_t slots_of(const struct hys_plan *plan, int32_t lane)
{
	return plan->devices[lane]->host_memory ? 2 : 1;
}

int64_t hys_gather_bytes(const struct hys_plan *plan)
{
	int64_t slots = 0;

	for (int32_t i = 0; i < plan->device_count; i++)
		slots += slots_of(plan, i);
	return plan->device_count < 2 ? 0 : hys_mul64(slot_bytes_of(plan), slots);
}

static bool create_lock(struct hys_gather *gather)
{
	if (pthread_mutex_init(&gather->lock, NULL) != 0)
		return false;
	if (pthread_cond_init(&gather->changed, NULL) == 0)
		return true;
	pthread_mutex_destroy(&gather->lock);
	return false;
}

static struct hys_gather *allocate(const struct hys_plan *plan)
{
	const struct hys_allocator *allocator = &plan->context->host.allocator;
	const int64_t tiles = hys_tiles_of(hys_max64(plan->rows_max, plan->keys_max));
	struct hys_gather *made = hys_alloc(allocator, sizeof(*made));

	if (!made)
		return NULL;
	made->plan = plan;
	made->allocator = allocator;
	made->turns_most = 64 * plan->device_count + 2 * HYS_BATCH_RANGES;
	made->lanes = hys_alloc_array(allocator, plan->device_count, sizeof(*made->lanes));
	made->turns = hys_alloc_array(allocator, made->turns_most, sizeof(*made->turns));
	made->tiles.flops_before = hys_alloc_array(allocator, 2 * (tiles + 1), sizeof(double));
	if (made->lanes && made->turns && made->tiles.flops_before) {
		made->tiles.rows_before = made->tiles.flops_before + tiles + 1;
		return made;
	}
	hys_free(allocator, made->lanes);
	hys_free(allocator, made->turns);
	hys_free(allocator, made->tiles.flops_before);
	hys_free(allocator, made);
	return NULL;
}

static void release(struct hys_gather *gather)
{
	hys_free(gather->allocator, gather->lanes);
	hys_free(gather->allocator, gather->turns);
	hys_free(gather->allocator, gather->tiles.flops_before);
	hys_free(gather->allocator, gather);
}

hys_status hys_gather_create(const struct hys_plan *plan, struct hys_gather **gather,
			     struct hys_error *error)
{
	struct hys_gather *made;

	if (plan->device_count < 2)
		return HYS_OK;
	made = allocate(plan);
	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for an exec");
	made->slot_bytes = slot_bytes_of(plan);
	if (!create_lock(made)) {
		release(made);
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for an exec's lock");
	}
	*gather = made;
	return HYS_OK;
}

/* Pinned, so that copies run at full speed, if that can be had. */
hys_status hys_gather_make_slot(struct hys_exec *exec, int32_t lane, struct hys_error *error)
{
	struct hys_gather *gather = exec->gather;
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	const int64_t bytes = hys_mul64(slots_of(gather->plan, lane), gather->slot_bytes);
	struct hys_gather_lane *own = &gather->lanes[lane];
	void *host = NULL;

	if (backend->host_create && bytes > 0 &&
	    backend->host_create(exec->lanes[lane].stream, bytes, &host, &own->native, NULL) ==
		    HYS_OK) {
		own->slot = memset(host, 0, (size_t)bytes);
		return HYS_OK;
	}
	own->slot = hys_alloc(gather->allocator, bytes);
	if (own->slot)
		return HYS_OK;
	return hys_fail(error, HYS_OUT_OF_MEMORY, 0,
			"no memory for %lld bytes of partial sums of %s", (long long)bytes,
			gather->plan->devices[lane]->info.name);
}

void hys_gather_free_slot(struct hys_exec *exec, int32_t lane)
{
	struct hys_gather_lane *own = exec->gather ? &exec->gather->lanes[lane] : NULL;

	if (!own || !own->slot)
		return;
	if (own->native)
		exec->plan->devices[lane]->backend->host_destroy(exec->lanes[lane].stream,
								 own->slot, own->native);
	else
		hys_free(exec->gather->allocator, own->slot);
	own->slot = NULL;
	own->native = NULL;
}

void hys_gather_destroy(struct hys_gather *gather)
{
	if (!gather)
		return;
	pthread_cond_destroy(&gather->changed);
	pthread_mutex_destroy(&gather->lock);
	release(gather);
}

int64_t hys_gather_ticket(struct hys_gather *gather)
{
	return gather->tickets++;
}

char *hys_gather_slot(const struct hys_gather *gather, int32_t lane)
{
	return gather->lanes[lane].slot;
}

hys_status hys_gather_layout(const struct hys_gather *gather, struct hys_task *task,
			     const char *name, struct hys_error *error)
{
	const struct hys_fields *fields = hys_op_fields(task->call.op);
	int64_t bytes = 0;

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_field *field = &fields->fields[i];
		const struct hys_tensor *tensor = hys_field_tensor(field, &task->call.args);

		if (!(field->flags & HYS_FIELD_PARTIAL) || !hys_present(tensor))
			continue;
		task->slot_offset[i] = bytes;
		bytes += hys_round_up(hys_tensor_elements(tensor) * 4, HYS_ALIGN);
	}
	task->sums_bytes = bytes;
	if (bytes <= gather->slot_bytes)
		return HYS_OK;
	return hys_fail(error, HYS_WORKSPACE_TOO_SMALL, 0,
			"%s: needs %lld bytes for partial sums, the exec has %lld", name,
			(long long)bytes, (long long)gather->slot_bytes);
}

/* ---- on the host ---- */

/* Where element i of a tensor lies, counted in elements. */
static int64_t place_of(const struct hys_tensor *tensor, int64_t i)
{
	int64_t at = 0;

	for (int32_t d = tensor->rank - 1; d >= 0; d--) {
		at += i % tensor->shape[d] * tensor->stride[d];
		i /= tensor->shape[d];
	}
	return at;
}

static void add_block(double *sums, const char *slot, hys_dtype type, int64_t first, int64_t count)
{
	if (type == HYS_I32) {
		const int32_t *values = (const int32_t *)(const void *)slot + first;

		for (int64_t i = 0; i < count; i++)
			sums[i] += values[i];
	} else {
		const float *values = (const float *)(const void *)slot + first;

		for (int64_t i = 0; i < count; i++)
			sums[i] += (double)values[i];
	}
}

static void store_block(const struct hys_tensor *tensor, const double *sums, int64_t first,
			int64_t count, bool accumulate)
{
	for (int64_t i = 0; i < count; i++) {
		const int64_t at = place_of(tensor, first + i);
		const double old =
			accumulate ? hys_number_load(tensor->host, tensor->dtype, at) : 0;

		hys_number_store(tensor->host, tensor->dtype, at, old + sums[i]);
	}
}

/* f32 without gaps, as gradients usually are: no element is looked for. */
static void store_plain(float *target, const double *sums, int64_t count, bool accumulate)
{
	for (int64_t i = 0; i < count; i++)
		target[i] = (float)((accumulate ? (double)target[i] : 0) + sums[i]);
}

static bool is_plain(const struct hys_tensor *tensor)
{
	int64_t stride = 1;

	for (int32_t d = tensor->rank - 1; d >= 0; d--) {
		if (tensor->shape[d] > 1 && tensor->stride[d] != stride)
			return false;
		stride *= hys_max64(tensor->shape[d], 1);
	}
	return true;
}

/* Elements [first, end) of the tensor. */
static void merge_elements(const struct hys_exec *exec, const struct hys_tensor *tensor,
			   int64_t slot_offset, bool accumulate, int64_t first, int64_t end)
{
	const hys_dtype part = tensor->dtype == HYS_I32 ? HYS_I32 : HYS_F32;
	const bool plain = tensor->dtype == HYS_F32 && is_plain(tensor);
	double sums[BLOCK];

	for (int64_t at = first; at < end; at += BLOCK) {
		const int64_t count = hys_min64(BLOCK, end - at);

		memset(sums, 0, sizeof(sums));
		for (int32_t lane = 0; lane < exec->plan->device_count; lane++)
			if (hys_gather_contributes(exec, lane))
				add_block(sums, hys_gather_slot(exec->gather, lane) + slot_offset,
					  part, at, count);
		if (plain)
			store_plain((float *)tensor->host + at, sums, count, accumulate);
		else
			store_block(tensor, sums, at, count, accumulate);
	}
}

static void merge_on_host(const struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			  int32_t i)
{
	struct hys_call *call = (struct hys_call *)(uintptr_t)&task->call;
	const struct hys_tensor *tensor =
		hys_field_tensor(&hys_op_fields(call->op)->fields[i], &call->args);
	const int64_t lanes = exec->plan->device_count;
	const int64_t blocks = (hys_tensor_elements(tensor) + BLOCK - 1) / BLOCK;
	const int64_t first = blocks * lane / lanes * BLOCK;
	const int64_t end =
		hys_min64(blocks * (lane + 1) / lanes * BLOCK, hys_tensor_elements(tensor));

	merge_elements(exec, tensor, task->slot_offset[i], task->accumulate, first, end);
}

/* ---- on devices ---- */

/* The sums of lane `from` where lane `lane` can read them. */
static hys_status fetch(struct hys_exec *exec, int32_t lane, int32_t from,
			const struct hys_task *task, int32_t i, struct hys_region *region,
			struct hys_error *error)
{
	struct hys_lane *own = &exec->lanes[lane];
	const struct hys_device *device = exec->plan->devices[lane];
	struct hys_copy copy = {
		.host = hys_gather_slot(exec->gather, from) + task->slot_offset[i],
		.bytes = region->bytes,
		.count = {1, 1},
	};

	if (device->host_memory) {
		region->host = copy.host;
		return HYS_OK;
	}
	region->buffer = own->workspace;
	region->offset_bytes = task->slot_offset[i];
	if (from == lane)
		return HYS_OK;
	region->offset_bytes += task->sums_bytes;
	copy.device = *region;
	return device->backend->copy_in(own->stream, &copy, error);
}

static hys_status merge_on_device(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
				  int32_t i, struct hys_error *error)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	struct hys_stream *stream = exec->lanes[lane].stream;
	struct hys_call *call = (struct hys_call *)(uintptr_t)&task->call;
	const struct hys_tensor *tensor =
		hys_field_tensor(&hys_op_fields(call->op)->fields[i], &call->args);
	const struct hys_region target = hys_replica_region(tensor, lane);
	hys_status status = HYS_OK;

	if (target.bytes == 0 || atomic_load(&exec->lanes[lane].dropped))
		return HYS_OK;
	if (!task->accumulate)
		HYS_TRY(backend->fill(stream, &target, 0, error));
	for (int32_t from = 0; from < exec->plan->device_count; from++) {
		struct hys_region part = {.bytes = target.bytes};

		if (!hys_gather_contributes(exec, from))
			continue;
		HYS_TRY(fetch(exec, lane, from, task, i, &part, error));
		HYS_TRY(backend->add(stream, &target, &part, tensor->dtype, error));
	}
cleanup:
	return status;
}

hys_status hys_gather_merge(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			    struct hys_error *error)
{
	const struct hys_fields *fields = hys_op_fields(task->call.op);
	struct hys_call *call = (struct hys_call *)(uintptr_t)&task->call;
	bool on_device = false;
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < fields->count; i++) {
		const struct hys_tensor *tensor = hys_field_tensor(&fields->fields[i], &call->args);

		if (task->slot_offset[i] < 0)
			continue;
		if (!tensor->buffer) {
			merge_on_host(exec, lane, task, i);
			continue;
		}
		on_device = true;
		exec->lanes[lane].idle = false;
		HYS_TRY(merge_on_device(exec, lane, task, i, error));
	}
	if (on_device && !atomic_load(&exec->lanes[lane].dropped))
		HYS_TRY(hys_lane_finish(exec, lane, error));
cleanup:
	return status;
}
