/* Several devices: the lanes do one operation at a time, and the last of them
 * to finish adds up what each computed of the outputs that are sums over rows,
 * in the order of the plan's devices, whatever the timing. */
#include "core.h"

#include "number.h"

struct hys_gather {
	const struct hys_plan *plan;
	const struct hys_allocator *allocator;
	char *memory; /* a slot per lane */
	int64_t slot_bytes;
	int64_t tickets; /* given out; the exec's thread only */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int64_t current;  /* the operation that lanes may do */
	int32_t arrived;  /* lanes that are done with it */
	int32_t counted;  /* lanes that know their non-empty groups */
	int64_t nonempty; /* of those */
	bool failed;	  /* one could not do it */
};

static int64_t part_bytes(const struct hys_field *field, const struct hys_dims *dims)
{
	return hys_round_up(hys_mul64(hys_field_elements(field, dims), 4), HYS_ALIGN);
}

/* Room for the partial outputs of any operation of the plan. */
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

int64_t hys_gather_bytes(const struct hys_plan *plan)
{
	return plan->device_count < 2 ? 0 : hys_mul64(slot_bytes_of(plan), plan->device_count);
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

hys_status hys_gather_create(const struct hys_plan *plan, struct hys_gather **gather,
			     struct hys_error *error)
{
	const struct hys_allocator *allocator = &plan->context->host.allocator;
	struct hys_gather *made;
	int64_t bytes;

	if (plan->device_count < 2)
		return HYS_OK;
	made = hys_alloc(allocator, sizeof(*made));
	if (!made)
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for an exec");
	made->plan = plan;
	made->allocator = allocator;
	made->slot_bytes = slot_bytes_of(plan);
	bytes = hys_gather_bytes(plan);
	made->memory = hys_alloc(allocator, bytes);
	if (!made->memory) {
		hys_free(allocator, made);
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0,
				"no memory for %lld bytes of partial sums of %d devices",
				(long long)bytes, plan->device_count);
	}
	if (!create_lock(made)) {
		hys_free(allocator, made->memory);
		hys_free(allocator, made);
		return hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for an exec's lock");
	}
	*gather = made;
	return HYS_OK;
}

void hys_gather_destroy(struct hys_gather *gather)
{
	if (!gather)
		return;
	pthread_cond_destroy(&gather->changed);
	pthread_mutex_destroy(&gather->lock);
	hys_free(gather->allocator, gather->memory);
	hys_free(gather->allocator, gather);
}

int64_t hys_gather_ticket(struct hys_gather *gather)
{
	return gather->tickets++;
}

char *hys_gather_slot(const struct hys_gather *gather, int32_t lane)
{
	return gather->memory + lane * gather->slot_bytes;
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
	if (bytes <= gather->slot_bytes)
		return HYS_OK;
	return hys_fail(error, HYS_WORKSPACE_TOO_SMALL, 0,
			"%s: needs %lld bytes for partial sums, the exec has %lld", name,
			(long long)bytes, (long long)gather->slot_bytes);
}

/* ---- merging ---- */

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

static void merge_tensor(const struct hys_gather *gather, const struct hys_tensor *tensor,
			 int64_t slot_offset, bool accumulate)
{
	const hys_dtype part = tensor->dtype == HYS_I32 ? HYS_I32 : HYS_F32;
	const int64_t count = hys_tensor_elements(tensor);

	for (int64_t i = 0; i < count; i++) {
		const int64_t at = place_of(tensor, i);
		double sum = accumulate ? hys_number_load(tensor->host, tensor->dtype, at) : 0;

		for (int32_t lane = 0; lane < gather->plan->device_count; lane++)
			sum += hys_number_load(hys_gather_slot(gather, lane) + slot_offset, part,
					       i);
		hys_number_store(tensor->host, tensor->dtype, at, sum);
	}
}

static void merge(const struct hys_gather *gather, const struct hys_task *task)
{
	const struct hys_fields *fields = hys_op_fields(task->call.op);
	struct hys_call *call = (struct hys_call *)(uintptr_t)&task->call;

	for (int32_t i = 0; i < fields->count; i++)
		if (task->slot_offset[i] >= 0)
			merge_tensor(gather, hys_field_tensor(&fields->fields[i], &call->args),
				     task->slot_offset[i], task->accumulate);
}

/* ---- meeting ---- */

static void enter(struct hys_gather *gather, int64_t ticket)
{
	pthread_mutex_lock(&gather->lock);
	while (gather->current != ticket)
		pthread_cond_wait(&gather->changed, &gather->lock);
	pthread_mutex_unlock(&gather->lock);
}

/* The last lane to leave merges and lets all go on. `task` NULL for a lane
 * that could not do it. */
static void leave(struct hys_gather *gather, const struct hys_task *task)
{
	pthread_mutex_lock(&gather->lock);
	gather->failed = gather->failed || !task;
	gather->arrived++;
	if (gather->arrived == gather->plan->device_count) {
		if (!gather->failed)
			merge(gather, task);
		gather->current++;
		gather->arrived = 0;
		gather->counted = 0;
		gather->nonempty = 0;
		gather->failed = false;
	}
	pthread_cond_broadcast(&gather->changed);
	pthread_mutex_unlock(&gather->lock);
}

/* Adds this lane's count and answers that of all lanes; -1 when one of them
 * could not count. */
static int64_t count_together(struct hys_gather *gather, int64_t own)
{
	int64_t all;

	pthread_mutex_lock(&gather->lock);
	gather->nonempty += own;
	gather->counted++;
	pthread_cond_broadcast(&gather->changed);
	while (gather->counted < gather->plan->device_count && gather->arrived == 0)
		pthread_cond_wait(&gather->changed, &gather->lock);
	all = gather->counted < gather->plan->device_count ? -1 : gather->nonempty;
	pthread_mutex_unlock(&gather->lock);
	return all;
}

/* A mean over all lanes' rows needs the number of all non-empty groups before
 * any gradient can be written. */
static hys_status run_loss(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			   struct hys_error *error)
{
	struct hys_task counted = *task;
	const int64_t all = count_together(exec->gather, hys_count_nonempty(task));

	if (all < 0)
		return HYS_CANCELLED;
	counted.call.args.loss.divisor = (double)all;
	return hys_stage_run(exec, lane, &counted, error);
}

hys_status hys_gather_run(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
			  struct hys_error *error)
{
	const struct hys_backend *backend = exec->plan->devices[lane]->backend;
	hys_status status = HYS_OK;
	bool skipped;

	enter(exec->gather, task->ticket);
	skipped = hys_exec_failure(exec, NULL) != HYS_OK;
	if (!skipped)
		status = (task->counts ? run_loss : hys_stage_run)(exec, lane, task, error);
	if (!skipped && status == HYS_OK)
		status = backend->finish(exec->lanes[lane].stream, error);
	leave(exec->gather, skipped || status != HYS_OK ? NULL : task);
	/* Another lane's failure is that lane's to report. */
	return status == HYS_CANCELLED ? HYS_OK : status;
}
