/* Vectors to f8: what index_q and index_k of an f8 selection are made by. */
#include "core.h"

#include <string.h>

#define ROW(name, flags, type, rank, ...)                                                \
	{                                                                                \
#name, offsetof(struct hys_quantize_args, name), flags, HYS_TYPE_##type, \
			{__VA_ARGS__ }, rank                                             \
	}

/* clang-format off */
static const struct hys_field of_rows[] = {
	ROW(x, 0, POOL, 3, HYS_DIM_ROWS, HYS_DIM_INDEX_HEADS, HYS_DIM_INDEX_DIM),
	ROW(f8, HYS_FIELD_OUT, F8, 3, HYS_DIM_ROWS, HYS_DIM_INDEX_HEADS, HYS_DIM_INDEX_DIM),
	ROW(scale, HYS_FIELD_OUT, F32, 2, HYS_DIM_ROWS, HYS_DIM_INDEX_HEADS),
};
static const struct hys_field of_keys[] = {
	ROW(x, 0, POOL, 2, HYS_DIM_ROWS, HYS_DIM_INDEX_DIM),
	ROW(f8, HYS_FIELD_OUT, F8, 2, HYS_DIM_ROWS, HYS_DIM_INDEX_DIM),
	ROW(scale, HYS_FIELD_OUT, F32, 1, HYS_DIM_ROWS),
};
/* clang-format on */

static const struct hys_fields tables[] = {
	{of_rows, 3, sizeof(struct hys_quantize_args)},
	{of_keys, 3, sizeof(struct hys_quantize_args)},
};

static hys_status run(struct hys_exec *exec, int32_t lane, const struct hys_task *task,
		      struct hys_error *error)
{
	return exec->plan->devices[lane]->backend->quantize(exec->lanes[lane].stream,
							    &task->call.args.quantize, error);
}

static hys_status check_exec(const struct hys_exec *exec, struct hys_error *error)
{
	if (exec->plan->device_count > 1)
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"quantize: the exec has %d devices, expected one",
				exec->plan->device_count);
	if (!exec->quantizes || !exec->plan->devices[0]->backend->quantize)
		return hys_fail(error, HYS_UNSUPPORTED, 0, "quantize: %s",
				exec->quantizes ? "the device's backend can not"
						: "the exec was made without HYS_EXEC_QUANTIZE");
	return HYS_OK;
}

/* x says what sizes the outputs have. */
static void take_sizes(struct hys_request *request)
{
	const struct hys_tensor *x = &request->call.args.quantize.x;

	for (int32_t d = 0; d < HYS_DIM_COUNT; d++)
		request->dims.size[d] = -1;
	request->fields = &tables[x->rank == 2];
	request->rows_total = request->row_count = request->dims.size[HYS_DIM_ROWS] = x->shape[0];
}

static hys_status check_place(const struct hys_exec *exec, const struct hys_quantize_args *args,
			      struct hys_error *error)
{
	const struct hys_tensor *tensors[] = {&args->x, &args->f8, &args->scale};

	for (size_t i = 0; i < 3; i++)
		if (tensors[i]->host && !exec->plan->devices[0]->host_memory)
			return hys_fail(
				error, HYS_UNSUPPORTED, 0,
				"quantize: a tensor lies in host memory, expected buffers of "
				"%s",
				exec->plan->devices[0]->info.name);
	return HYS_OK;
}

hys_status hys_quantize(struct hys_exec *exec, const struct hys_quantize_args *args,
			struct hys_error *error)
{
	struct hys_request request = {.name = "quantize", .exec = exec, .series = 1};
	struct hys_quantize_args *own = &request.call.args.quantize;
	struct hys_task task = {.run = run};
	hys_status status;

	if (!exec)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "quantize: exec is NULL");
	HYS_TRY(hys_context_check(exec->plan->context, error));
	HYS_TRY(hys_check_struct(args, sizeof(*args), "quantize: args", error));
	HYS_TRY(check_exec(exec, error));
	request.plan = exec->plan;
	memcpy(own, args, sizeof(*args));
	take_sizes(&request);
	HYS_TRY(hys_request_tensors(&request, error));
	HYS_TRY(check_place(exec, own, error));
	task.call.args.quantize = *own;
	if (hys_tensor_elements(&own->scale) > 0)
		HYS_TRY(hys_exec_submit(exec, 0, &task, error));
cleanup:
	return status;
}
