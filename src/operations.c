/* The public operations: their own rules, around what the field tables check. */
#include <math.h>

#include "planner.h"

static bool given(const struct hys_tensor *tensor)
{
	return hys_present(tensor) || tensor->host || tensor->buffer;
}

/* A rule between arguments: `what` says which is wrong and what was expected. */
static hys_status rule(const struct hys_request *request, bool kept, const char *what,
		       struct hys_error *error)
{
	if (kept)
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: %s", request->name, what);
}

static hys_status check_number(const struct hys_request *request, const char *what, int64_t value,
			       int64_t least, int64_t most, struct hys_error *error)
{
	if (value >= least && value <= most)
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: %s is %lld, expected %lld to %lld",
			request->name, what, (long long)value, (long long)least, (long long)most);
}

static hys_status check_flags(const struct hys_request *request, uint32_t flags, uint32_t known,
			      struct hys_error *error)
{
	if ((flags & ~known) == 0)
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: flags is 0x%x, known are 0x%x",
			request->name, flags, known);
}

/* Fills in the default of row_stride. */
static hys_status check_sampling(const struct hys_request *request, int32_t *stride, int32_t offset,
				 struct hys_error *error)
{
	hys_status status = check_number(request, "row_stride", *stride, 0, INT32_MAX, error);

	if (status != HYS_OK)
		return status;
	if (*stride == 0)
		*stride = 1;
	return check_number(request, "row_offset", offset, 0, *stride - 1, error);
}

static bool any_output(const struct hys_request *request)
{
	struct hys_call *call = (struct hys_call *)(uintptr_t)&request->call;

	for (int32_t i = 0; i < request->fields->count; i++) {
		const struct hys_field *field = &request->fields->fields[i];

		if ((field->flags & HYS_FIELD_OUT) && given(hys_field_tensor(field, &call->args)))
			return true;
	}
	return false;
}

/* ---- select ---- */

static hys_status select_op(const struct hys_request *request, hys_op *op, struct hys_error *error)
{
	static const hys_op ops[] = {
		[HYS_METHOD_EXACT] = HYS_OP_SELECT,
		[HYS_METHOD_COARSE] = HYS_OP_SELECT_COARSE,
		[HYS_METHOD_COARSE_TO_FINE] = HYS_OP_SELECT_COARSE_TO_FINE,
	};
	hys_method method = request->call.args.select.method;
	hys_status status = check_number(request, "method", method, HYS_METHOD_DEFAULT,
					 HYS_METHOD_COARSE_TO_FINE, error);

	if (status != HYS_OK)
		return status;
	if (method == HYS_METHOD_DEFAULT)
		method = request->plan->problem.choosing.method;
	*op = ops[method];
	return HYS_OK;
}

static hys_status check_select(struct hys_request *request, struct hys_error *error)
{
	const struct hys_select_args *args = &request->call.args.select;
	const bool f8 = request->plan->problem.scoring.dtype == HYS_F8E4M3;
	hys_status status;

	HYS_TRY(rule(request, given(&args->index_q_scale) == f8,
		     f8 ? "index_q_scale is absent, expected with f8e4m3"
			: "index_q_scale is given, expected with f8e4m3 only",
		     error));
	HYS_TRY(rule(request, given(&args->index_k_scale) == f8,
		     f8 ? "index_k_scale is absent, expected with f8e4m3"
			: "index_k_scale is given, expected with f8e4m3 only",
		     error));
cleanup:
	return status;
}

/* Fills call.topk; the tensor's K is known by now. */
static hys_status check_topk(struct hys_request *request, struct hys_error *error)
{
	const struct hys_problem *problem = &request->plan->problem;
	const int32_t *topk = request->call.args.select.topk;
	const int64_t room = request->call.size.topk;

	for (int32_t u = 0; u < problem->scoring.groups; u++) {
		const int32_t wanted = topk ? topk[u] : problem->choosing.topk_max;

		if (wanted < 1 || wanted > problem->choosing.topk_max)
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"%s: topk[%d] is %d, expected 1 to %d", request->name, u,
					wanted, problem->choosing.topk_max);
		if (wanted > room)
			return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
					"%s: indices has K %lld, expected at least the %d of "
					"topk[%d]",
					request->name, (long long)room, wanted, u);
		request->call.topk[u] = wanted;
	}
	request->call.args.select.topk = NULL;
	return HYS_OK;
}

hys_status hys_select(struct hys_exec *exec, struct hys_batch *batch,
		      const struct hys_select_args *args, struct hys_error *error)
{
	struct hys_request request;
	hys_status status;
	hys_op op;

	HYS_TRY(hys_request_open(&request, "select", exec, batch, args, sizeof(*args), error));
	HYS_TRY(select_op(&request, &op, error));
	HYS_TRY(hys_request_rows(&request, op, batch->rows, error));
	HYS_TRY(check_select(&request, error));
	HYS_TRY(hys_request_tensors(&request, error));
	HYS_TRY(check_topk(&request, error));
	HYS_TRY(hys_request_submit(&request, error));
cleanup:
	return status;
}

/* ---- attention ---- */

/* What forward and backward share. Drops indices that are not read. */
static hys_status check_attention(struct hys_request *request, const struct hys_tensor *v,
				  struct hys_tensor *indices, const struct hys_tensor *window_k,
				  const struct hys_tensor *window_v, struct hys_error *error)
{
	const struct hys_attending *attending = &request->plan->problem.attending;
	const bool fits = attending->value_dim <= attending->head_dim;
	hys_status status;

	HYS_TRY(rule(request, given(v) || fits,
		     "v is absent, expected one: value_dim is more than head_dim, so that k cannot "
		     "hold it",
		     error));
	HYS_TRY(rule(request, !given(window_k) || request->batch->host.window_begin,
		     "window_k is given, expected a batch with window_begin and window_end",
		     error));
	HYS_TRY(rule(request, !given(window_v) || given(window_k),
		     "window_v is given without window_k", error));
	HYS_TRY(rule(request, !given(window_k) || given(window_v) || fits,
		     "window_v is absent, expected one: value_dim is more than head_dim", error));
	if (!given(window_k))
		request->call.size.window_keys = 0;
	if (attending->flags & HYS_ATTENDING_DENSE)
		*indices = (struct hys_tensor){0};
cleanup:
	return status;
}

hys_status hys_attention_forward(struct hys_exec *exec, struct hys_batch *batch,
				 const struct hys_attention_args *args, struct hys_error *error)
{
	struct hys_request request;
	struct hys_attention_args *own = &request.call.args.attention;
	hys_status status;

	HYS_TRY(hys_request_open(&request, "attention_forward", exec, batch, args, sizeof(*args),
				 error));
	HYS_TRY(hys_request_rows(&request, HYS_OP_ATTENTION_FORWARD, batch->rows, error));
	HYS_TRY(check_attention(&request, &own->v, &own->indices, &own->window_k, &own->window_v,
				error));
	HYS_TRY(hys_request_tensors(&request, error));
	HYS_TRY(hys_request_submit(&request, error));
cleanup:
	return status;
}

static hys_status check_grads(struct hys_request *request, struct hys_error *error)
{
	const struct hys_attention_grad_args *args = &request->call.args.attention_grad;
	hys_status status;

	HYS_TRY(check_flags(request, args->flags, HYS_GRAD_ACCUMULATE | HYS_GRAD_ACCUMULATE_KEYS,
			    error));
	HYS_TRY(rule(request, any_output(request),
		     "dq, dk, dv, dsink, dwindow_k and dwindow_v are "
		     "all absent, expected one of them",
		     error));
	HYS_TRY(rule(request, !given(&args->dv) || given(&args->v),
		     "dv is given without v: dk holds both parts of a shared v", error));
	HYS_TRY(rule(request, !given(&args->dsink) || given(&args->sink),
		     "dsink is given without sink", error));
	HYS_TRY(rule(request, !given(&args->dwindow_k) || given(&args->window_k),
		     "dwindow_k is given without window_k", error));
	HYS_TRY(rule(request, !given(&args->dwindow_v) || given(&args->window_v),
		     "dwindow_v is given without window_v: dwindow_k holds both parts", error));
	request->accumulate = request->keeps = hys_adds_sums(args->flags);
cleanup:
	return status;
}

hys_status hys_attention_backward(struct hys_exec *exec, struct hys_batch *batch,
				  const struct hys_attention_grad_args *args,
				  struct hys_error *error)
{
	struct hys_request request;
	struct hys_attention_grad_args *own = &request.call.args.attention_grad;
	hys_status status;

	HYS_TRY(hys_request_open(&request, "attention_backward", exec, batch, args, sizeof(*args),
				 error));
	HYS_TRY(hys_request_rows(&request, HYS_OP_ATTENTION_BACKWARD, batch->rows, error));
	HYS_TRY(check_attention(&request, &own->v, &own->indices, &own->window_k, &own->window_v,
				error));
	HYS_TRY(check_grads(&request, error));
	HYS_TRY(hys_request_tensors(&request, error));
	HYS_TRY(hys_request_submit(&request, error));
cleanup:
	return status;
}

/* ---- indexer loss ---- */

static hys_status check_loss_numbers(struct hys_request *request, struct hys_error *error)
{
	struct hys_loss_args *args = &request->call.args.loss;
	hys_status status;

	HYS_TRY(check_flags(request, args->flags, HYS_LOSS_ACCUMULATE | HYS_LOSS_DENSE, error));
	HYS_TRY(check_number(request, "reduction", args->reduction, HYS_REDUCTION_MEAN,
			     HYS_REDUCTION_SUM, error));
	HYS_TRY(rule(request, isfinite(args->coefficient),
		     "coefficient is not a finite number, expected one", error));
	HYS_TRY(rule(request, isfinite(args->divisor) && args->divisor >= 0,
		     "divisor is negative or not a finite number, expected 0 or more", error));
	HYS_TRY(check_sampling(request, &args->row_stride, args->row_offset, error));
	if (args->coefficient == 0)
		args->coefficient = 1;
cleanup:
	return status;
}

static hys_status check_loss_set(struct hys_request *request, struct hys_error *error)
{
	const struct hys_loss_args *args = &request->call.args.loss;
	const bool dense = args->flags & HYS_LOSS_DENSE;
	hys_status status;

	if (dense && (given(&args->teacher_in) || given(&args->teacher_out)))
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"%s: %s is given with HYS_LOSS_DENSE, whose teacher would be as "
				"large as rows x entries",
				request->name,
				given(&args->teacher_in) ? "teacher_in" : "teacher_out");
	HYS_TRY(rule(request, !dense || !given(&args->indices),
		     "indices is given with HYS_LOSS_DENSE, expected absent: the set is every "
		     "visible entry",
		     error));
	HYS_TRY(rule(request, !dense || !given(&args->scores),
		     "scores is given with HYS_LOSS_DENSE, expected absent", error));
	HYS_TRY(rule(request, dense || given(&args->indices),
		     "indices is absent, expected a tensor (or HYS_LOSS_DENSE)", error));
cleanup:
	return status;
}

static hys_status check_loss_teacher(struct hys_request *request, struct hys_error *error)
{
	const struct hys_loss_args *args = &request->call.args.loss;
	const bool in = given(&args->teacher_in);
	hys_status status;

	HYS_TRY(rule(request, given(&args->q) != in,
		     in ? "q is given with teacher_in, expected one of them"
			: "q is absent, expected it or teacher_in",
		     error));
	HYS_TRY(rule(request, given(&args->k) != in,
		     in ? "k is given with teacher_in, expected one of them"
			: "k is absent, expected it or teacher_in",
		     error));
	HYS_TRY(rule(request, !in || !given(&args->lse), "lse is given with teacher_in", error));
	HYS_TRY(rule(request, !in || !given(&args->sink), "sink is given with teacher_in", error));
	HYS_TRY(rule(request, !in || !given(&args->teacher_out),
		     "teacher_out is given with teacher_in, expected q and k", error));
cleanup:
	return status;
}

static hys_status check_loss(struct hys_request *request, struct hys_error *error)
{
	const struct hys_loss_args *args = &request->call.args.loss;
	const char *lacks = hys_problem_lacks(&request->plan->problem, HYS_OP_INDEXER_LOSS);
	hys_status status;

	if (lacks)
		return hys_fail(error, HYS_UNSUPPORTED, 0, "%s: the plan's %s", request->name,
				lacks);
	HYS_TRY(check_loss_numbers(request, error));
	HYS_TRY(check_loss_set(request, error));
	HYS_TRY(check_loss_teacher(request, error));
	HYS_TRY(rule(request, any_output(request),
		     "loss, d_index_q, d_index_k, d_index_w and teacher_out are all absent, "
		     "expected one of them",
		     error));
	request->accumulate = args->flags & HYS_LOSS_ACCUMULATE;
	request->keeps = request->accumulate || args->row_stride > 1;
	request->counts = args->reduction == HYS_REDUCTION_MEAN && args->divisor == 0;
cleanup:
	return status;
}

hys_status hys_indexer_loss(struct hys_exec *exec, struct hys_batch *batch,
			    const struct hys_loss_args *args, struct hys_error *error)
{
	struct hys_request request;
	hys_status status;

	HYS_TRY(hys_request_open(&request, "indexer_loss", exec, batch, args, sizeof(*args),
				 error));
	HYS_TRY(hys_request_rows(&request, HYS_OP_INDEXER_LOSS, batch->rows, error));
	HYS_TRY(check_loss(&request, error));
	HYS_TRY(hys_request_tensors(&request, error));
	HYS_TRY(hys_request_submit(&request, error));
cleanup:
	return status;
}

hys_status hys_loss_groups(struct hys_exec *exec, struct hys_batch *batch,
			   const struct hys_loss_args *args, int64_t *groups,
			   struct hys_error *error)
{
	struct hys_request request;
	struct hys_task task = {0};
	hys_status status;

	if (!groups)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "groups is NULL");
	HYS_TRY(hys_request_open(&request, "loss_groups", exec, batch, args, sizeof(*args), error));
	HYS_TRY(hys_request_rows(&request, HYS_OP_INDEXER_LOSS, batch->rows, error));
	HYS_TRY(check_loss(&request, error));
	HYS_TRY(hys_request_tensors(&request, error));
	HYS_TRY(rule(&request, !args->indices.buffer, "indices is a buffer, expected host memory",
		     error));
	HYS_TRY(rule(&request, !args->teacher_in.buffer,
		     "teacher_in is a buffer, expected host memory", error));
	task.call = request.call;
	task.batch = batch;
	*groups = hys_count_nonempty(&task);
cleanup:
	return status;
}

/* ---- pooling ---- */

/* Fills what the unit says of sizes. */
static hys_status check_unit(struct hys_request *request, hys_pooling pooling, hys_pool_unit unit,
			     struct hys_error *error)
{
	const struct hys_problem *problem = &request->plan->problem;
	const struct hys_batch *batch = request->batch;
	const bool blocks = unit == HYS_POOL_BLOCKS;
	int64_t *size = request->dims.size;
	hys_status status;

	HYS_TRY(check_number(request, "pooling", pooling, HYS_POOL_MEAN, HYS_POOL_BOUNDS, error));
	size[HYS_DIM_UNITS] = blocks ? batch->coarse_blocks : batch->entries;
	size[HYS_DIM_POOL_ROWS] = blocks ? batch->entries : batch->keys;
	size[HYS_DIM_POOL_SIZE] = blocks ? problem->choosing.coarse_block : problem->scoring.pool;
	request->series = pooling == HYS_POOL_OVERLAPPED ? 2 : 1;
cleanup:
	return status;
}

static hys_status check_unit_number(const struct hys_request *request, hys_pool_unit unit,
				    struct hys_error *error)
{
	const struct hys_problem *problem = &request->plan->problem;
	hys_status status;

	HYS_TRY(check_number(request, "unit", unit, HYS_POOL_ENTRIES, HYS_POOL_BLOCKS, error));
	HYS_TRY(rule(request, unit != HYS_POOL_ENTRIES || problem->scoring.pool > 1,
		     "unit is HYS_POOL_ENTRIES, expected a problem with scoring.pool above 1",
		     error));
	HYS_TRY(rule(request, unit != HYS_POOL_BLOCKS || problem->choosing.coarse_block > 0,
		     "unit is HYS_POOL_BLOCKS, expected a problem with choosing.coarse_block",
		     error));
cleanup:
	return status;
}

static hys_status check_gate(const struct hys_request *request, hys_pooling pooling,
			     const struct hys_tensor *gate, const struct hys_tensor *bias,
			     struct hys_error *error)
{
	const bool gated = pooling == HYS_POOL_GATED || pooling == HYS_POOL_OVERLAPPED;
	hys_status status;

	HYS_TRY(rule(request, given(gate) == gated,
		     gated ? "gate is absent, expected with gated and overlapped pooling"
			   : "gate is given, expected with gated and overlapped pooling only",
		     error));
	HYS_TRY(rule(request, gated || !given(bias),
		     "bias is given, expected with gated and overlapped pooling only", error));
cleanup:
	return status;
}

static hys_status check_pool_outputs(const struct hys_request *request, struct hys_error *error)
{
	const struct hys_pool_args *args = &request->call.args.pool;
	const bool bounds = args->pooling == HYS_POOL_BOUNDS;
	const struct {
		const struct hys_tensor *tensor;
		const char *what;
	} only[] = {
		{&args->norm, "norm is given, expected with bounds only"},
		{&args->radius, "radius is given, expected with bounds only"},
		{&args->lowest, "lowest is given, expected with bounds only"},
		{&args->highest, "highest is given, expected with bounds only"},
	};
	hys_status status;

	HYS_TRY(rule(request, bounds || given(&args->y), "y is absent, expected a tensor", error));
	for (size_t i = 0; i < sizeof(only) / sizeof(only[0]); i++)
		HYS_TRY(rule(request, bounds || !given(only[i].tensor), only[i].what, error));
	HYS_TRY(rule(request, any_output(request),
		     "y, norm, radius, lowest and highest are all absent, expected one of them",
		     error));
cleanup:
	return status;
}

hys_status hys_pool(struct hys_exec *exec, struct hys_batch *batch,
		    const struct hys_pool_args *args, struct hys_error *error)
{
	struct hys_request request;
	struct hys_pool_args *own = &request.call.args.pool;
	hys_status status;

	HYS_TRY(hys_request_open(&request, "pool", exec, batch, args, sizeof(*args), error));
	HYS_TRY(check_unit_number(&request, own->unit, error));
	HYS_TRY(hys_request_rows(
		&request, HYS_OP_POOL,
		own->unit == HYS_POOL_BLOCKS ? batch->coarse_blocks : batch->entries, error));
	HYS_TRY(check_unit(&request, own->pooling, own->unit, error));
	HYS_TRY(check_gate(&request, own->pooling, &own->gate, &own->bias, error));
	HYS_TRY(check_pool_outputs(&request, error));
	HYS_TRY(hys_request_tensors(&request, error));
	HYS_TRY(hys_request_submit(&request, error));
cleanup:
	return status;
}

static hys_status check_pool_grads(struct hys_request *request, struct hys_error *error)
{
	const struct hys_pool_grad_args *args = &request->call.args.pool_grad;
	hys_status status;

	HYS_TRY(check_flags(request, args->flags, HYS_GRAD_ACCUMULATE, error));
	HYS_TRY(rule(request, args->pooling != HYS_POOL_BOUNDS,
		     "pooling is HYS_POOL_BOUNDS, which has no backward", error));
	HYS_TRY(rule(request, !given(&args->dgate) || given(&args->gate),
		     "dgate is given without gate", error));
	HYS_TRY(rule(request, !given(&args->dbias) || given(&args->bias),
		     "dbias is given without bias", error));
	request->accumulate = request->keeps = args->flags & HYS_GRAD_ACCUMULATE;
cleanup:
	return status;
}

hys_status hys_pool_backward(struct hys_exec *exec, struct hys_batch *batch,
			     const struct hys_pool_grad_args *args, struct hys_error *error)
{
	struct hys_request request;
	struct hys_pool_grad_args *own = &request.call.args.pool_grad;
	hys_status status;

	HYS_TRY(hys_request_open(&request, "pool_backward", exec, batch, args, sizeof(*args),
				 error));
	HYS_TRY(check_unit_number(&request, own->unit, error));
	HYS_TRY(hys_request_rows(&request, HYS_OP_POOL_BACKWARD,
				 own->unit == HYS_POOL_BLOCKS ? batch->entries : batch->keys,
				 error));
	HYS_TRY(check_unit(&request, own->pooling, own->unit, error));
	HYS_TRY(check_gate(&request, own->pooling, &own->gate, &own->bias, error));
	HYS_TRY(check_pool_grads(&request, error));
	HYS_TRY(hys_request_tensors(&request, error));
	HYS_TRY(hys_request_submit(&request, error));
cleanup:
	return status;
}

/* ---- merge and fidelity ---- */

hys_status hys_merge(struct hys_exec *exec, struct hys_batch *batch,
		     const struct hys_merge_args *args, struct hys_error *error)
{
	struct hys_request request;
	hys_status status;

	HYS_TRY(hys_request_open(&request, "merge", exec, batch, args, sizeof(*args), error));
	HYS_TRY(hys_request_rows(&request, HYS_OP_MERGE, batch->rows, error));
	HYS_TRY(hys_request_tensors(&request, error));
	HYS_TRY(hys_request_submit(&request, error));
cleanup:
	return status;
}

static hys_status check_fidelity(struct hys_request *request, struct hys_error *error)
{
	struct hys_fidelity_args *args = &request->call.args.fidelity;
	const bool compares = given(&args->mass) || given(&args->recall);
	hys_status status;

	HYS_TRY(check_sampling(request, &args->row_stride, args->row_offset, error));
	HYS_TRY(rule(request, args->target_mass >= 0 && args->target_mass <= 1,
		     "target_mass is not between 0 and 1", error));
	HYS_TRY(rule(request, any_output(request),
		     "mass, recall and topk_needed are all absent, expected one of them", error));
	HYS_TRY(rule(request, !compares || given(&args->indices),
		     "indices is absent, expected for mass and recall", error));
	HYS_TRY(rule(request, !given(&args->recall) || given(&args->reference),
		     "reference is absent, expected for recall", error));
	if (args->target_mass == 0)
		args->target_mass = 0.95;
	request->keeps = args->row_stride > 1;
cleanup:
	return status;
}

hys_status hys_fidelity(struct hys_exec *exec, struct hys_batch *batch,
			const struct hys_fidelity_args *args, struct hys_error *error)
{
	struct hys_request request;
	hys_status status;

	HYS_TRY(hys_request_open(&request, "fidelity", exec, batch, args, sizeof(*args), error));
	HYS_TRY(hys_request_rows(&request, HYS_OP_FIDELITY, batch->rows, error));
	HYS_TRY(check_fidelity(&request, error));
	HYS_TRY(hys_request_tensors(&request, error));
	HYS_TRY(hys_request_submit(&request, error));
cleanup:
	return status;
}
