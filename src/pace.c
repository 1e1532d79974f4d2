/* What operations take on devices that share rows: three small calls each, then a
 * rehearsal of all together (rehearse.c), or what wisdom knows of them. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "partition.h"
#include "trial.h"

/* The largest call is of this part of the plan's rows, and takes about so long
 * at most, by the device's nominal speed, with heads of so many bytes. */
#define PART_OF_ROWS 64
#define ROWS_LEAST INT64_C(16)
#define ROWS_MOST INT64_C(2048)
#define KEYS_MOST INT64_C(8192)
#define TIME_MOST_S 0.15
#define BYTES_MOST ((int64_t)1 << 28)
/* GPUs select for tiles of as many rows, which fewer than one for each unit do not keep busy. */
#define TILE_ROWS 64
#define REPEATS 8			/* fewer when they take long: others may disturb */
#define COPY_BYTES ((int64_t)128 << 20) /* more than caches hold */
#define COPIES 4			/* in and out */
/* Devices of one name whose times differ by less are as fast: the rest is chance. So is as much
 * of what disturbs them. */
#define ALIKE 1.05
#define ALIKE_OF_NOISE 0.5
#define ALIKE_MOST 1.25
/* Memory of a device that an exec's workspace may take. */
#define MEMORY_PART 0.8

struct probe {
	struct hys_picker *picker;
	hys_op op;
	int32_t index;
	struct hys_device *device;
	const struct hys_choice *choice;
};

static double nominal_flop_s(const struct probe *probe)
{
	const double rate =
		probe->choice->kernel->efficiency * probe->device->info.nominal_flops_per_s;

	return 1 / fmax(rate, 1e9);
}

static double trial_flops(const struct probe *probe, const struct hys_trial_size *size)
{
	const struct hys_problem *problem = &probe->picker->plan->problem;
	const struct hys_work work = hys_work_of(problem, NULL, size->rows, size->keys);

	return hys_cost_flops(probe->op, problem, &work);
}

static hys_status time_call(const struct probe *probe, int64_t rows, int64_t keys, double *seconds,
			    double *flops)
{
	const struct hys_plan *plan = probe->picker->plan;
	const struct hys_site site = {probe->picker->context, probe->device};
	const int64_t entries = hys_max64(1, keys / plan->problem.scoring.pool);
	const struct hys_trial_size size = {
		.rows = rows,
		.keys = keys,
		.topk = hys_min64(plan->problem.choosing.topk_max, entries),
	};
	struct hys_trial trial;
	hys_status status;

	*flops = trial_flops(probe, &size);
	HYS_TRY(hys_trial_make(&trial, site.context, &plan->problem, probe->op, &size, NULL));
	HYS_TRY(hys_trial_run(&trial, &site, probe->choice->kernel, probe->choice->program, REPEATS,
			      NULL, seconds, NULL));
cleanup:
	hys_trial_clear(&trial);
	return status;
}

/* Keys of a row that takes hardly more than the call, of rows that see little, and of rows that
 * see much. */
struct shapes {
	int64_t rows, least, few, keys;
};

/* Some kernels of exact select neither score rows that see no more than they keep nor choose from
 * them: none of these rows is such a one, else what choosing takes would be taken for work. */
static struct shapes shapes_of(const struct probe *probe, int64_t rows)
{
	const struct hys_plan *plan = probe->picker->plan;
	const int64_t pool = plan->problem.scoring.pool;
	const int64_t kept = probe->op == HYS_OP_SELECT ? plan->problem.choosing.topk_max : 0;
	const int64_t wanted = hys_is_select(probe->op) ? rows + kept * pool : 64 * pool;
	const int64_t keys = hys_min64(plan->keys_max, hys_max64(KEYS_MOST * pool, 4 * wanted));
	const int64_t few = hys_min64(wanted, hys_max64(keys / 2, 1));

	return (struct shapes){rows, hys_min64(few, 64 * pool), few, keys};
}

static int64_t most_rows(const struct probe *probe)
{
	const struct hys_plan *plan = probe->picker->plan;
	const struct hys_scoring *scoring = &plan->problem.scoring;
	const struct hys_device_info *info = &probe->device->info;
	int64_t rows = hys_max64(ROWS_LEAST, hys_min64(plan->rows_max / PART_OF_ROWS, ROWS_MOST));

	if (hys_is_select(probe->op)) {
		const int64_t row_bytes = (int64_t)scoring->heads * scoring->dim *
					  (int64_t)hys_dtype_size(scoring->dtype);
		const int64_t fill = (int64_t)info->compute_units * TILE_ROWS;

		if (info->kind == HYS_DEVICE_GPU)
			rows = hys_max64(rows, hys_min64(fill, BYTES_MOST / row_bytes));
		rows = hys_min64(rows, hys_max64(plan->keys_max / 4, 1));
	}
	return hys_min64(rows, plan->rows_max);
}

static struct shapes find_shapes(const struct probe *probe)
{
	int64_t rows = most_rows(probe);

	for (; rows >= 2 * ROWS_LEAST; rows /= 2) {
		const struct hys_trial_size size = {.rows = rows,
						    .keys = shapes_of(probe, rows).keys};

		if (trial_flops(probe, &size) * nominal_flop_s(probe) < TIME_MOST_S)
			break;
	}
	return shapes_of(probe, rows);
}

/* A tiny call, rows that see little, rows that see much: what is left when the
 * tiny one is taken off belongs to the rows and to their work. */
static hys_status measure_calls(const struct probe *probe, struct hys_pace *pace)
{
	const struct shapes shapes = find_shapes(probe);
	const int64_t rows = shapes.rows;
	double tiny_s, rows_s, all_s, flops[3];
	hys_status status;

	HYS_TRY(time_call(probe, hys_min64(rows, 1), shapes.least, &tiny_s, &flops[0]));
	HYS_TRY(time_call(probe, rows, shapes.few, &rows_s, &flops[1]));
	HYS_TRY(time_call(probe, rows, shapes.keys, &all_s, &flops[2]));
	pace->call_s = tiny_s;
	all_s = fmax(all_s - tiny_s, 1e-9);
	rows_s = fmax(rows_s - tiny_s, 0);
	if (flops[2] > flops[1])
		pace->flop_s = fmax(all_s - rows_s, 0) / (flops[2] - flops[1]);
	pace->row_s = fmax(rows_s - flops[1] * pace->flop_s, 0) / (double)rows;
	if (!(pace->flop_s > 0) && flops[2] > 0) {
		pace->flop_s = all_s / flops[2];
		pace->row_s = 0;
	} else if (!(pace->flop_s > 0) && !(pace->row_s > 0)) {
		pace->row_s = all_s / (double)rows;
	}
cleanup:
	return status;
}

/* The mean of both ways; the first copy warms up. */
static hys_status time_copies(struct hys_buffer *buffer, void *host, double *seconds)
{
	struct hys_device *device = buffer->device;
	const struct hys_backend *backend = device->backend;
	const struct hys_copy copy = {.host = host,
				      .device = {NULL, buffer, 0, COPY_BYTES},
				      .bytes = COPY_BYTES,
				      .count = {1, 1}};
	struct hys_stream *stream = NULL;
	hys_status status;

	*seconds = 0;
	HYS_TRY(backend->stream_create(device, NULL, &stream, NULL));
	for (int32_t i = 0; i <= COPIES; i++) {
		const double start = hys_now_s();

		HYS_TRY((i % 2 ? backend->copy_out : backend->copy_in)(stream, &copy, NULL));
		HYS_TRY(backend->finish(stream, NULL));
		*seconds += i > 0 ? (hys_now_s() - start) / COPIES : 0;
	}
cleanup:
	if (stream)
		backend->stream_destroy(stream);
	return status;
}

/* A device without a place for the copy gets none of the rows anyway. */
static double measure_copies(struct hys_picker *picker, struct hys_device *device)
{
	const struct hys_allocator *allocator = &picker->context->host.allocator;
	struct hys_buffer *buffer = NULL;
	double seconds = 0;
	void *host;

	if (device->host_memory || (picker->plan->flags & HYS_PLAN_BUFFERS_ONLY))
		return 0;
	host = hys_alloc(allocator, COPY_BYTES);
	if (host && hys_buffer_make(picker->context, device, COPY_BYTES, &buffer, NULL) == HYS_OK &&
	    time_copies(buffer, host, &seconds) != HYS_OK)
		seconds = 0;
	hys_buffer_destroy(buffer);
	hys_free(allocator, host);
	return seconds / (double)COPY_BYTES;
}

/* ---- wisdom ---- */

/* Devices that copy and compute at the same time disturb each other; those whose
 * tensors lie on them already, hardly. */
static bool rehearses(const struct hys_plan *plan)
{
	return plan->split != HYS_SPLIT_EQUAL && !(plan->flags & HYS_PLAN_BUFFERS_ONLY);
}

/* Of a device beside others of its name, which have slower and faster places and parts. */
static bool has_namesakes(const struct hys_plan *plan, const struct hys_device *device)
{
	const uint64_t signature = hys_device_signature(device);

	for (int32_t i = 0; i < plan->device_count; i++)
		if (plan->devices[i] != device &&
		    hys_device_signature(plan->devices[i]) == signature)
			return true;
	return false;
}

/* What devices take that were rehearsed is true of them together. */
static uint64_t pace_key(const struct hys_picker *picker, const struct hys_device *device)
{
	const struct hys_plan *plan = picker->plan;
	uint64_t key = picker->problem_hash;

	if (has_namesakes(plan, device))
		key = hys_hash(key, device->info.id, strlen(device->info.id));

	for (int32_t i = 0; rehearses(plan) && i < plan->device_count; i++) {
		const uint64_t signature = hys_device_signature(plan->devices[i]);

		key = hys_hash(key, &signature, sizeof(signature));
	}
	return key;
}

static bool recall(const struct probe *probe, struct hys_pace *pace)
{
	struct hys_context *context = probe->picker->context;
	bool known;

	if (probe->picker->wish->effort == HYS_EFFORT_MEASURE)
		return false;
	pthread_mutex_lock(&context->lock);
	known = hys_wisdom_pace(context->wisdom, probe->op, pace_key(probe->picker, probe->device),
				hys_device_signature(probe->device), probe->choice->kernel->name,
				pace);
	pthread_mutex_unlock(&context->lock);
	return known;
}

static hys_status remember(const struct probe *probe, struct hys_error *error)
{
	const struct hys_pace *pace = hys_plan_pace(probe->picker->plan, probe->op, probe->index);
	struct hys_context *context = probe->picker->context;
	hys_status status;

	pthread_mutex_lock(&context->lock);
	status = hys_wisdom_learn_pace(
		context->wisdom, probe->op, pace_key(probe->picker, probe->device),
		hys_device_signature(probe->device), probe->choice->kernel->name, pace, error);
	pthread_mutex_unlock(&context->lock);
	return status;
}

/* ---- all ---- */

static struct probe probe_of(struct hys_picker *picker, int32_t i, int32_t op)
{
	return (struct probe){
		.picker = picker,
		.op = (hys_op)op,
		.index = i,
		.device = picker->plan->devices[i],
		.choice = hys_plan_choice(picker->plan, (hys_op)op, i),
	};
}

/* The same device may be in the plan more than once, or another of its kind that
 * cannot be told from it. */
static int32_t same_device_before(const struct hys_plan *plan, int32_t index)
{
	const struct hys_device *device = plan->devices[index];
	const uint64_t signature = hys_device_signature(device);

	for (int32_t i = 0; i < index; i++)
		if (plan->devices[i] == device ||
		    (hys_device_signature(plan->devices[i]) == signature &&
		     strcmp(plan->devices[i]->info.id, device->info.id) == 0))
			return i;
	return -1;
}

/* What the plan's largest call would take. */
static double largest_s(const struct hys_plan *plan, hys_op op, const struct hys_pace *pace)
{
	const int64_t rows = hys_plan_rows_max(plan, op);
	const struct hys_work work = hys_work_of(&plan->problem, NULL, rows, plan->keys_max);
	const double flops = hys_is_pooling(op) ? 0 : hys_cost_flops(op, &plan->problem, &work);

	return pace->call_s + pace->row_s * (double)rows + pace->flop_s * flops;
}

/* How much devices that are as fast may differ. */
static double alike(double noise)
{
	return fmax(ALIKE, fmin(1 + ALIKE_OF_NOISE * (noise - 1), ALIKE_MOST));
}

/* Who was told to leave all to another is not as fast, however long calls take. */
void hys_paces_even_out(struct hys_plan *plan, hys_op op, int32_t first, const double *noise)
{
	const uint64_t signature = hys_device_signature(plan->devices[first]);
	struct hys_pace mean = {0};
	double least = (double)INFINITY, most = 0, disturbed = 1;
	int32_t count = 0;

	for (int32_t i = 0; i < plan->device_count; i++) {
		const struct hys_pace *pace = hys_plan_pace(plan, op, i);
		const double seconds = largest_s(plan, op, pace);

		if (hys_device_signature(plan->devices[i]) != signature)
			continue;
		if (pace->call_s >= HYS_NEVER_S)
			return;
		disturbed = fmax(disturbed, noise ? noise[i] : 1);
		mean.call_s += pace->call_s;
		mean.row_s += pace->row_s;
		mean.flop_s += pace->flop_s;
		mean.byte_s += pace->byte_s;
		least = fmin(least, seconds);
		most = fmax(most, seconds);
		count++;
	}
	if (!(most <= alike(disturbed) * least))
		return;
	mean.call_s /= count;
	mean.row_s /= count;
	mean.flop_s /= count;
	mean.byte_s /= count;
	for (int32_t i = 0; i < plan->device_count; i++)
		if (hys_device_signature(plan->devices[i]) == signature)
			*hys_plan_pace(plan, op, i) = mean;
}

/* Those of each name, once. */
static void even_out(struct hys_plan *plan, hys_op op, const double *noise)
{
	for (int32_t i = 0; i < plan->device_count; i++) {
		const uint64_t signature = hys_device_signature(plan->devices[i]);
		int32_t first = 0;

		while (hys_device_signature(plan->devices[first]) != signature)
			first++;
		if (first == i)
			hys_paces_even_out(plan, op, i, noise);
	}
}

/* *byte_s is measured when it is first needed. */
static void find_pace(const struct probe *probe, double *byte_s, uint32_t *fresh)
{
	struct hys_plan *plan = probe->picker->plan;
	struct hys_pace *pace = hys_plan_pace(plan, probe->op, probe->index);
	const int32_t twin = same_device_before(plan, probe->index);

	if (twin >= 0) {
		*pace = *hys_plan_pace(plan, probe->op, twin);
		return;
	}
	if (recall(probe, pace))
		return;
	*fresh |= HYS_OP_BIT(probe->op);
	if (measure_calls(probe, pace) != HYS_OK) {
		*pace = (struct hys_pace){.flop_s = nominal_flop_s(probe), .row_s = 1e-9};
		hys_host_log(&probe->picker->context->host, HYS_LOG_WARNING,
			     "%s could not be timed on %s: its nominal speed is taken",
			     hys_op_name(probe->op), probe->device->info.name);
	}
	if (*byte_s < 0)
		*byte_s = measure_copies(probe->picker, probe->device);
	pace->byte_s = *byte_s;
}

/* *fresh: operations that wisdom did not know of some device. */
static hys_status find_paces(struct hys_picker *picker, uint32_t *fresh, struct hys_error *error)
{
	struct hys_plan *plan = picker->plan;
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < plan->device_count; i++) {
		double byte_s = -1;

		for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
			const struct probe probe = probe_of(picker, i, op);

			if (!(plan->operations & HYS_OP_BIT(op)))
				continue;
			HYS_TRY(hys_picker_next(picker, error, "timing %s on %s",
						hys_op_name((hys_op)op),
						plan->devices[i]->info.name));
			find_pace(&probe, &byte_s, fresh);
		}
	}
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		if (*fresh & HYS_OP_BIT(op))
			even_out(plan, (hys_op)op, NULL);
cleanup:
	return status;
}

static hys_status remember_paces(struct hys_picker *picker, uint32_t fresh, struct hys_error *error)
{
	struct hys_plan *plan = picker->plan;
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < plan->device_count; i++)
		for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
			const struct probe probe = probe_of(picker, i, op);

			if (fresh & HYS_OP_BIT(op) && same_device_before(plan, i) < 0)
				HYS_TRY(remember(&probe, error));
		}
cleanup:
	return status;
}

/* Who is idle was said by what devices take alone. */
static hys_status rehearse_all(struct hys_picker *picker, uint32_t fresh, struct hys_error *error)
{
	struct hys_plan *plan = picker->plan;
	double noise[HYS_LANES_MAX];
	hys_status status = HYS_OK;

	for (int32_t op = 0; op < HYS_OP_COUNT; op++) {
		if (!(plan->operations & HYS_OP_BIT(op)))
			continue;
		HYS_TRY(hys_picker_next(picker, error, "%s on all devices together",
					hys_op_name((hys_op)op)));
		if (!(fresh & HYS_OP_BIT(op)))
			continue;
		HYS_TRY(hys_plan_rehearse(picker, (hys_op)op, noise, error));
		even_out(plan, (hys_op)op, noise);
		for (int32_t i = 0; i < plan->device_count; i++)
			hys_plan_pace(plan, (hys_op)op, i)->idle = plan->rows_most[i] == 0;
	}
cleanup:
	return status;
}

/* As many rows for each, whatever they take. */
static void pace_equally(struct hys_plan *plan)
{
	for (int32_t i = 0; i < plan->device_count * HYS_OP_COUNT; i++)
		plan->paces[i] = (struct hys_pace){.row_s = 1};
}

static void pace_from_file(struct hys_plan *plan, const struct hys_wish *wish)
{
	for (int32_t i = 0; i < plan->device_count; i++) {
		plan->rows_most[i] = wish->rows_most[i];
		for (int32_t op = 0; op < HYS_OP_COUNT; op++)
			*hys_plan_pace(plan, (hys_op)op, i) = wish->paces[i][op];
	}
}

/* ---- memory ---- */

static int64_t memory_for_rows(const struct hys_plan *plan, int32_t i)
{
	const struct hys_device *device = plan->devices[i];
	int64_t most = INT64_MAX;

	if (plan->memory_limit_bytes > 0)
		most = plan->memory_limit_bytes;
	if (device->host_memory)
		return most;
	if (device->info.memory_bytes > 0)
		most = hys_min64(most, (int64_t)(MEMORY_PART * (double)device->info.memory_bytes));
	return most;
}

/* A device that cannot hold its part of a call gets less of it. */
static hys_status limit_rows(struct hys_plan *plan, struct hys_error *error)
{
	int64_t together = 0;

	for (int32_t i = 0; i < plan->device_count; i++) {
		const int64_t bytes = memory_for_rows(plan, i);
		int64_t *rows = &plan->rows_most[i];

		while (*rows > 0 && hys_workspace_max(plan, i) > bytes)
			*rows = *rows <= HYS_ROW_TILE
					? 0
					: hys_round_up(*rows / 2 - HYS_ROW_TILE / 2, HYS_ROW_TILE);
		together = hys_add64(together, *rows);
		for (int32_t op = 0; *rows == 0 && op < HYS_OP_COUNT; op++)
			hys_plan_pace(plan, (hys_op)op, i)->idle = true;
	}
	if (together >= plan->rows_max)
		return HYS_OK;
	return hys_fail(error, HYS_OUT_OF_MEMORY, 0,
			"the devices' memory holds %lld rows together, options.rows_max is %lld",
			(long long)together, (long long)plan->rows_max);
}

int32_t hys_plan_pace_steps(const struct hys_plan *plan, const struct hys_wish *wish)
{
	const int32_t operations = hys_count_operations(plan->operations);

	if (plan->device_count == 1 || wish->paces || plan->split == HYS_SPLIT_EQUAL)
		return 0;
	return operations * (plan->device_count + rehearses(plan));
}

hys_status hys_plan_pace_devices(struct hys_picker *picker, struct hys_error *error)
{
	struct hys_plan *plan = picker->plan;
	const struct hys_wish *wish = picker->wish;
	uint32_t fresh = 0;
	hys_status status;

	if (wish->paces) {
		pace_from_file(plan, wish);
		plan->pace_source = "of the plan's file";
		return hys_partition_plan(plan, true, error);
	}
	if (plan->split == HYS_SPLIT_EQUAL) {
		pace_equally(plan);
		plan->pace_source = "taken as equal";
	} else {
		HYS_TRY(find_paces(picker, &fresh, error));
		plan->pace_source = "measured";
	}
	HYS_TRY(limit_rows(plan, error));
	HYS_TRY(hys_partition_plan(plan, false, error));
	if (rehearses(plan)) {
		HYS_TRY(rehearse_all(picker, fresh, error));
		if (fresh)
			HYS_TRY(hys_partition_plan(plan, false, error));
	}
	HYS_TRY(remember_paces(picker, fresh, error));
cleanup:
	return status;
}
