/* bench_quantize.c - what making f8 of index_q and index_k takes, apart from the selection. */
#include "bench_quantize.h"

#include <stdlib.h>

struct quantizing {
	struct bench_data data;
	struct hys_plan *plan;
	struct hys_quantize_args rows, keys;
};

static struct hys_quantize_args args_of(struct bench_data *data, hys_dtype dtype, int32_t rank,
					int64_t n, int64_t heads, int64_t dim)
{
	const int64_t second = rank == 3 ? heads : dim, third = rank == 3 ? dim : 0;
	struct hys_quantize_args args = {.struct_size = sizeof args};
	args.x = bench_tensor(data, dtype, rank, n, second, third, 1);
	args.f8 = bench_tensor(data, HYS_F8E4M3, rank, n, second, third, 0);
	args.scale = bench_tensor(data, HYS_F32, rank - 1, n, heads, 0, 0);
	return args;
}

static hys_status call(void *what)
{
	struct quantizing *q = what;
	struct hys_error *error = &q->data.error;
	hys_status status = hys_quantize(q->data.exec, &q->rows, error);
	if (status == HYS_OK)
		status = hys_quantize(q->data.exec, &q->keys, error);
	return status == HYS_OK ? hys_exec_finish(q->data.exec, error) : status;
}

/* Any plan will do: the exec's is not used. */
static bool open_exec(struct quantizing *q)
{
	const struct hys_exec_options options = {.struct_size = sizeof options,
						 .flags = HYS_EXEC_QUANTIZE};
	const struct hys_plan_options wanted = {.struct_size = sizeof wanted,
						.operations = HYS_OP_BIT(HYS_OP_MERGE),
						.devices = &q->data.device,
						.device_count = 1,
						.rows_max = 1,
						.keys_max = 1};
	const struct hys_problem problem = {
		.struct_size = sizeof problem,
		.attending = {.heads = 1, .kv_heads = 1, .head_dim = 8, .value_dim = 8}};
	return hys_plan_create(q->data.context, &problem, &wanted, &q->plan, &q->data.error) ==
		       HYS_OK &&
	       hys_exec_create(q->plan, &options, &q->data.exec, &q->data.error) == HYS_OK;
}

static int bench_device(const struct bench *b, struct hys_context *context, int32_t device,
			bool first)
{
	const struct hys_scoring *s = &b->problem.scoring;
	const double vectors = (double)b->rows * s->heads + (double)b->keys, start = tool_now();
	struct quantizing q = {.data = {.context = context, .device = device, .seed = 1}};
	struct bench_result result = {.kernel = "quantize", .dtype = b->dtype ? b->dtype : HYS_F32};
	bool ok = hys_context_device_info(context, device, &result.info, &q.data.error) == HYS_OK &&
		  hys_context_measure(context, device, &result.peak, &q.data.error) == HYS_OK &&
		  open_exec(&q);
	result.before = (struct bench_first){.context = b->context_s, .plan = tool_now() - start};
	if (ok) {
		q.rows = args_of(&q.data, result.dtype, 3, b->rows, s->heads, s->dim);
		q.keys = args_of(&q.data, result.dtype, 2, b->keys, 1, s->dim);
		ok = !q.data.failed && bench_time(b, &q.data, result.info.kind != HYS_DEVICE_CPU,
						  call, &q, &result.timing);
	}
	result.before.call = result.timing.first;
	result.memory = q.data.bytes;
	result.cost.bytes =
		vectors * (s->dim * (1.0 + (double)hys_dtype_size(result.dtype)) + sizeof(float));
	if (ok)
		bench_report(b, HYS_OP_COUNT, &result, first);
	const int exit = ok ? TOOL_OK : tool_failed(b->op, &q.data.error);
	hys_exec_destroy(q.data.exec);
	bench_data_free(&q.data);
	hys_plan_destroy(q.plan);
	return exit;
}

int bench_quantize(const struct bench *bench)
{
	struct bench b = *bench;
	struct hys_context *context;
	int32_t *numbers, count;
	if (b.dtype == HYS_F8E4M3)
		return tool_complain("quantize makes f8 of --dtype f32, f16 or bf16");
	b.problem.attending = (struct hys_attending){0};
	b.context_s = tool_now();
	int result = tool_open(b.device, &context, &numbers, &count);
	if (result != TOOL_OK)
		return result;
	b.context_s = tool_now() - b.context_s;
	for (int32_t i = 0; i < count && (i == 0 || b.device); i++) {
		const int one = bench_device(&b, context, numbers[i], i == 0);
		result = one != TOOL_OK ? one : result;
	}
	free(numbers);
	hys_context_destroy(context);
	return result;
}
