/* Argument checks that the field tables drive: the same for every operation. */
#include "core.h"

#include <string.h>

#include "text.h"

static const char *const dim_names[HYS_DIM_COUNT] = {
	[HYS_DIM_ROWS] = "rows",      [HYS_DIM_KEYS] = "S",	 [HYS_DIM_ENTRIES] = "E",
	[HYS_DIM_WINDOW_KEYS] = "S2", [HYS_DIM_HEADS] = "H",	 [HYS_DIM_KV_HEADS] = "G",
	[HYS_DIM_HEAD_DIM] = "D",     [HYS_DIM_VALUE_DIM] = "V", [HYS_DIM_INDEX_HEADS] = "HI",
	[HYS_DIM_INDEX_DIM] = "DI",   [HYS_DIM_GROUPS] = "U",	 [HYS_DIM_TOPK] = "K",
	[HYS_DIM_REFERENCE] = "K2",   [HYS_DIM_ONE] = "",	 [HYS_DIM_CHANNELS2] = "channels",
	[HYS_DIM_CHANNELS] = "C",     [HYS_DIM_UNITS] = "units", [HYS_DIM_POOL_ROWS] = "N",
	[HYS_DIM_POOL_SIZE] = "size",
};

/* ---- the call as a whole ---- */

hys_status hys_request_open(struct hys_request *request, const char *name, struct hys_exec *exec,
			    struct hys_batch *batch, const void *args, size_t args_bytes,
			    struct hys_error *error)
{
	hys_status status;
	char what[64];

	if (!exec || !batch)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: %s is NULL", name,
				exec ? "batch" : "exec");
	HYS_TRY(hys_context_check(exec->plan->context, error));
	if (batch->plan != exec->plan)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: batch was made for another plan than exec's", name);
	hys_text_add(&(struct hys_text){what, sizeof(what), 0}, "%s: args", name);
	HYS_TRY(hys_check_struct(args, args_bytes, what, error));
	memset(request, 0, sizeof(*request));
	request->name = name;
	request->exec = exec;
	request->batch = batch;
	request->plan = exec->plan;
	request->series = 1;
	memcpy(&request->call.args, args, args_bytes);
cleanup:
	return status;
}

static hys_status check_range(struct hys_request *request, struct hys_error *error)
{
	struct hys_args_head head;
	const int64_t total = request->rows_total;

	memcpy(&head, &request->call.args, sizeof(head));
	if (head.row_first < 0 || head.row_first > total)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: row_first is %lld, expected 0 to %lld", request->name,
				(long long)head.row_first, (long long)total);
	if (head.row_count < 0 || head.row_count > total - head.row_first)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: row_count is %lld, expected 0 to %lld", request->name,
				(long long)head.row_count, (long long)(total - head.row_first));
	request->row_first = head.row_first;
	request->row_count = head.row_count > 0 ? head.row_count : total - head.row_first;
	return HYS_OK;
}

/* What workspaces were sized for. */
static hys_status check_limits(const struct hys_request *request, struct hys_error *error)
{
	const struct hys_plan *plan = request->plan;
	const struct hys_batch *batch = request->batch;
	const struct {
		const char *what;
		int64_t value, most;
	} limits[] = {
		{"row_count", request->row_count, hys_plan_rows_max(plan, request->op)},
		{"the batch's number of keys", batch->keys, plan->keys_max},
		{"the batch's number of entries", batch->entries,
		 plan->keys_max / plan->problem.scoring.pool},
		{"the batch's number of window keys", batch->window_keys, plan->window_keys_max},
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (limits[i].value > limits[i].most)
			return hys_fail(error, HYS_WORKSPACE_TOO_SMALL, 0,
					"%s: %s is %lld, the plan was made for %lld at most",
					request->name, limits[i].what, (long long)limits[i].value,
					(long long)limits[i].most);
	return HYS_OK;
}

hys_status hys_request_rows(struct hys_request *request, hys_op op, int64_t rows_total,
			    struct hys_error *error)
{
	const struct hys_batch *batch = request->batch;
	struct hys_size *size = &request->call.size;
	hys_status status;

	if (!(request->plan->operations & HYS_OP_BIT(op)))
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: the plan was made without the operation %s", request->name,
				hys_op_name(op));
	request->op = op;
	request->fields = hys_op_fields(op);
	request->rows_total = rows_total;
	HYS_TRY(check_range(request, error));
	HYS_TRY(check_limits(request, error));
	size->problem = &request->plan->problem;
	size->rows = request->row_count;
	size->keys = batch->keys;
	size->entries = batch->entries;
	size->window_keys = batch->window_keys;
	size->coarse_blocks = batch->coarse_blocks;
	request->dims = hys_dims_of(size);
	request->call.op = op;
	request->call.problem = size->problem;
	request->call.row_first = request->row_first;
cleanup:
	return status;
}

/* ---- one tensor ---- */

static hys_status bad_tensor(const struct hys_request *request, const struct hys_field *field,
			     struct hys_error *error, const char *what, int64_t value,
			     const char *expected)
{
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: %s has %s %lld, expected %s",
			request->name, field->name, what, (long long)value, expected);
}

/* A tensor without a type must have nothing else either. */
static hys_status check_presence(const struct hys_request *request, const struct hys_field *field,
				 const struct hys_tensor *tensor, struct hys_error *error)
{
	if (hys_present(tensor))
		return HYS_OK;
	if (tensor->host || tensor->buffer || tensor->rank != 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: %s has no dtype, expected one (or a tensor of all zeros, "
				"which is absent)",
				request->name, field->name);
	if (field->flags & HYS_FIELD_OPTIONAL)
		return HYS_OK;
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: %s is absent, expected a tensor",
			request->name, field->name);
}

static hys_status bad_type(const struct hys_request *request, const struct hys_field *field,
			   hys_dtype found, const char *expected, struct hys_error *error)
{
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: %s has dtype %s, expected %s",
			request->name, field->name, hys_dtype_name(found), expected);
}

/* The first tensor of a pooling call, x, says what the others are. */
static hys_status check_pool_type(struct hys_request *request, const struct hys_field *field,
				  hys_dtype dtype, struct hys_error *error)
{
	if (request->pool_dtype == HYS_DTYPE_DEFAULT) {
		if (dtype != HYS_F32 && dtype != HYS_F16 && dtype != HYS_BF16)
			return bad_type(request, field, dtype, "f32, f16 or bf16", error);
		request->pool_dtype = dtype;
	}
	if (dtype == request->pool_dtype || (field->type == HYS_TYPE_POOL_OUT && dtype == HYS_F32))
		return HYS_OK;
	return bad_type(request, field, dtype,
			field->type == HYS_TYPE_POOL ? "that of x" : "that of x, or f32", error);
}

static hys_status check_type(struct hys_request *request, const struct hys_field *field,
			     hys_dtype dtype, struct hys_error *error)
{
	const bool grad = field->type == HYS_TYPE_INDEX_GRAD || field->type == HYS_TYPE_ATTEND_GRAD;
	hys_dtype own;
	char expected[32];

	if (field->type == HYS_TYPE_POOL || field->type == HYS_TYPE_POOL_OUT)
		return check_pool_type(request, field, dtype, error);
	own = hys_field_dtype(field, &request->plan->problem);
	if (dtype == own || (grad && dtype == HYS_F32))
		return HYS_OK;
	hys_text_add(&(struct hys_text){expected, sizeof(expected), 0}, "%s%s", hys_dtype_name(own),
		     grad && own != HYS_F32 ? " or f32" : "");
	return bad_type(request, field, dtype, expected, error);
}

static void name_dim(struct hys_text *text, const struct hys_request *request, enum hys_dim dim)
{
	const int64_t size = request->dims.size[dim];

	if (dim == HYS_DIM_ONE)
		hys_text_add(text, "1");
	else if (size < 0)
		hys_text_add(text, "%s", dim_names[dim]);
	else
		hys_text_add(text, "%s=%lld", dim_names[dim], (long long)size);
	if (dim == HYS_DIM_ROWS && request->rows_total != size)
		hys_text_add(text, " or %lld", (long long)request->rows_total);
}

static hys_status bad_shape(const struct hys_request *request, const struct hys_field *field,
			    const struct hys_tensor *tensor, struct hys_error *error)
{
	char found[96], expected[128];
	struct hys_text f = {found, sizeof(found), 0}, e = {expected, sizeof(expected), 0};

	for (int32_t d = 0; d < field->rank; d++) {
		hys_text_add(&f, "%s%lld", d ? "," : "", (long long)tensor->shape[d]);
		hys_text_add(&e, "%s", d ? ", " : "");
		name_dim(&e, request, field->dims[d]);
	}
	return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: %s has shape [%s], expected [%s]",
			request->name, field->name, found, expected);
}

/* Whether a size is right; one that is not known yet becomes it. */
static bool fits_dim(struct hys_request *request, enum hys_dim dim, int64_t size)
{
	int64_t *wanted = &request->dims.size[dim];

	if (dim == HYS_DIM_ROWS)
		return size == *wanted || size == request->rows_total;
	if (*wanted >= 0)
		return size == *wanted;
	if (size < 0 || (dim == HYS_DIM_CHANNELS2 && (size < 1 || size % request->series != 0)))
		return false;
	*wanted = size;
	if (dim == HYS_DIM_CHANNELS2)
		request->dims.size[HYS_DIM_CHANNELS] = size / request->series;
	return true;
}

static hys_status check_shape(struct hys_request *request, const struct hys_field *field,
			      const struct hys_tensor *tensor, struct hys_error *error)
{
	if (tensor->rank != field->rank)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s: %s has rank %d, expected %d",
				request->name, field->name, tensor->rank, field->rank);
	for (int32_t d = 0; d < field->rank; d++)
		if (!fits_dim(request, field->dims[d], tensor->shape[d]))
			return bad_shape(request, field, tensor, error);
	return HYS_OK;
}

static hys_status fill_strides(const struct hys_request *request, const struct hys_field *field,
			       struct hys_tensor *tensor, struct hys_error *error)
{
	const int32_t last = tensor->rank - 1;

	if (tensor->shape[last] > 1 && tensor->stride[last] != 0 && tensor->stride[last] != 1)
		return bad_tensor(request, field, error, "a last stride of", tensor->stride[last],
				  "1: the last dimension must be contiguous");
	tensor->stride[last] = 1;
	for (int32_t d = last - 1; d >= 0; d--) {
		if (tensor->stride[d] < 0)
			return bad_tensor(request, field, error, "a stride of", tensor->stride[d],
					  "0 or more");
		if (tensor->stride[d] == 0)
			tensor->stride[d] = hys_mul64(tensor->stride[d + 1],
						      hys_max64(tensor->shape[d + 1], 1));
	}
	return HYS_OK;
}

/* Elements from the first to behind the last; INT64_MAX when they do not fit. */
static int64_t extent(const struct hys_tensor *tensor)
{
	int64_t last = 0;

	for (int32_t d = 0; d < tensor->rank; d++) {
		if (tensor->shape[d] == 0)
			return 0;
		last = hys_add64(last, hys_mul64(tensor->shape[d] - 1, tensor->stride[d]));
	}
	return hys_add64(last, 1);
}

/* No element of an output is another's: sorted by stride, each dimension must
 * step over all that the smaller ones span. */
static bool overlaps_itself(const struct hys_tensor *tensor)
{
	int64_t spanned = 1;
	bool done[4] = {false};

	for (int32_t step = 0; step < tensor->rank; step++) {
		int32_t next = 0;

		while (done[next])
			next++;
		for (int32_t d = next + 1; d < tensor->rank; d++)
			if (!done[d] && tensor->stride[d] < tensor->stride[next])
				next = d;
		done[next] = true;
		if (tensor->shape[next] <= 1)
			continue;
		if (tensor->stride[next] < spanned)
			return true;
		spanned = hys_add64(spanned,
				    hys_mul64(tensor->shape[next] - 1, tensor->stride[next]));
	}
	return false;
}

static bool is_contiguous(const struct hys_tensor *tensor)
{
	int64_t stride = 1;

	for (int32_t d = tensor->rank - 1; d >= 0; d--) {
		if (tensor->shape[d] > 1 && tensor->stride[d] != stride)
			return false;
		stride *= hys_max64(tensor->shape[d], 1);
	}
	return true;
}

/* Of a plan of several devices: one copy for each. */
static hys_status check_replicated(struct hys_request *request, const struct hys_field *field,
				   const struct hys_tensor *tensor, struct hys_error *error)
{
	const struct hys_plan *plan = request->plan;
	const struct hys_buffer *buffer = tensor->buffer;
	bool fits = buffer->replica_count == plan->device_count;

	for (int32_t i = 0; fits && i < plan->device_count; i++)
		fits = buffer->replicas[i]->device == plan->devices[i];
	if (!fits || request->op == HYS_OP_POOL || request->op == HYS_OP_POOL_BACKWARD)
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"%s: %s lies in a buffer, expected host memory%s: the plan has %d "
				"devices",
				request->name, field->name,
				fits ? "" : " or a buffer of hys_buffer_replicate",
				plan->device_count);
	if (request->counts)
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"%s: %s lies in a replicated buffer and divisor is 0, expected the "
				"number of non-empty (row, group)",
				request->name, field->name);
	if ((field->flags & HYS_FIELD_PARTIAL) &&
	    ((tensor->dtype != HYS_F32 && tensor->dtype != HYS_I32) || !is_contiguous(tensor)))
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"%s: %s is a sum in a replicated buffer, expected it contiguous "
				"and f32",
				request->name, field->name);
	request->spread = true;
	return HYS_OK;
}

static hys_status check_buffer(struct hys_request *request, const struct hys_field *field,
			       const struct hys_tensor *tensor, int64_t end_bytes,
			       struct hys_error *error)
{
	const struct hys_buffer *buffer = tensor->buffer;
	hys_status status;

	if (tensor->host)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: %s has host memory and a buffer, expected one of them",
				request->name, field->name);
	if (request->plan->device_count > 1)
		HYS_TRY(check_replicated(request, field, tensor, error));
	else if (buffer->device != request->plan->devices[0])
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: %s lies in a buffer of %s, expected the plan's device %s",
				request->name, field->name, buffer->device->info.name,
				request->plan->devices[0]->info.name);
	if (end_bytes > buffer->bytes)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: %s ends at byte %lld of its buffer, expected at most %lld",
				request->name, field->name, (long long)end_bytes,
				(long long)buffer->bytes);
	status = HYS_OK;
cleanup:
	return status;
}

static hys_status check_host(const struct hys_request *request, const struct hys_field *field,
			     const struct hys_tensor *tensor, int64_t end_bytes,
			     struct hys_error *error)
{
	const uintptr_t address = (uintptr_t)tensor->host;

	if (!tensor->host)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: %s has neither host memory nor a buffer", request->name,
				field->name);
	if (request->plan->flags & HYS_PLAN_BUFFERS_ONLY)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: %s lies in host memory, expected a buffer: the plan was made "
				"with HYS_PLAN_BUFFERS_ONLY",
				request->name, field->name);
	if (address % hys_dtype_size(tensor->dtype) != 0)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
				"%s: %s lies at %p, expected a multiple of its %zu-byte elements",
				request->name, field->name, tensor->host,
				hys_dtype_size(tensor->dtype));
	if ((uint64_t)end_bytes > UINTPTR_MAX - address)
		return bad_tensor(request, field, error, "an end at byte", end_bytes,
				  "one within memory");
	return HYS_OK;
}

static hys_status check_memory(struct hys_request *request, const struct hys_field *field,
			       const struct hys_tensor *tensor, struct hys_error *error)
{
	const int64_t elements = extent(tensor);
	int64_t end;

	if (tensor->offset < 0)
		return bad_tensor(request, field, error, "an offset of", tensor->offset,
				  "0 or more");
	end = hys_mul64(hys_add64(tensor->offset, elements),
			(int64_t)hys_dtype_size(tensor->dtype));
	if (end == INT64_MAX)
		return bad_tensor(request, field, error, "a stride of", tensor->stride[0],
				  "an extent below 2^63 bytes");
	if (elements > 0 && (field->flags & HYS_FIELD_OUT) && overlaps_itself(tensor))
		return hys_fail(
			error, HYS_INVALID_ARGUMENT, 0,
			"%s: %s overlaps itself: an output's strides must keep its elements "
			"apart",
			request->name, field->name);
	if (tensor->buffer)
		return check_buffer(request, field, tensor, elements > 0 ? end : 0, error);
	return elements > 0 ? check_host(request, field, tensor, end, error) : HYS_OK;
}

static hys_status check_tensor(struct hys_request *request, const struct hys_field *field,
			       struct hys_tensor *tensor, struct hys_error *error)
{
	hys_status status;

	HYS_TRY(check_presence(request, field, tensor, error));
	if (!hys_present(tensor))
		return HYS_OK;
	HYS_TRY(check_type(request, field, tensor->dtype, error));
	HYS_TRY(check_shape(request, field, tensor, error));
	HYS_TRY(fill_strides(request, field, tensor, error));
	HYS_TRY(check_memory(request, field, tensor, error));
cleanup:
	return status;
}

/* ---- overlap ---- */

/* Bytes that a tensor touches, as one range of an address space: that of the
 * process, or a buffer's. */
struct span {
	const void *space;
	uint64_t begin, end;	 /* equal = none */
	uint64_t pitch, row_end; /* bytes between rows and from one's start to end */
};

static struct span span_of(const struct hys_tensor *tensor)
{
	const uint64_t size = hys_dtype_size(tensor->dtype);
	struct hys_tensor row = *tensor;
	struct span span = {0};

	if (tensor->buffer && !tensor->buffer->device->host_memory)
		span.space = tensor->buffer->native;
	else
		span.begin = (uintptr_t)(tensor->buffer ? tensor->buffer->native : tensor->host);
	row.shape[0] = hys_min64(row.shape[0], 1);
	span.begin += (uint64_t)tensor->offset * size;
	span.end = span.begin + (uint64_t)extent(tensor) * size;
	span.pitch = (uint64_t)tensor->stride[0] * size;
	span.row_end = (uint64_t)extent(&row) * size;
	return span;
}

/* Rows of one pitch that lie between each other's, as slices of a packed
 * projection do. */
static bool interleaved(const struct span *a, const struct span *b)
{
	uint64_t distance;

	if (a->pitch != b->pitch || a->pitch == 0)
		return false;
	if (b->begin < a->begin)
		return interleaved(b, a);
	distance = (b->begin - a->begin) % a->pitch;
	return distance >= a->row_end && distance + b->row_end <= a->pitch;
}

/* By range: other arrangements that interleave without touching are refused. */
static bool spans_meet(const struct span *a, const struct span *b)
{
	if (a->space != b->space || a->begin == a->end || b->begin == b->end)
		return false;
	return a->begin < b->end && b->begin < a->end && !interleaved(a, b);
}

static hys_status check_overlap(struct hys_request *request, struct hys_error *error)
{
	const struct hys_field *fields = request->fields->fields;
	const int32_t count = request->fields->count;
	struct span spans[HYS_FIELDS_MAX] = {{0}};

	for (int32_t i = 0; i < count; i++) {
		const struct hys_tensor *tensor = hys_field_tensor(&fields[i], &request->call.args);

		if (hys_present(tensor))
			spans[i] = span_of(tensor);
	}
	for (int32_t i = 0; i < count; i++)
		for (int32_t j = 0; j < count; j++) {
			if (i == j || !(fields[i].flags & HYS_FIELD_OUT))
				continue;
			if (spans_meet(&spans[i], &spans[j]))
				return hys_fail(error, HYS_INVALID_ARGUMENT, 0,
						"%s: %s overlaps %s, expected outputs apart from "
						"all other tensors",
						request->name, fields[i].name, fields[j].name);
		}
	return HYS_OK;
}

/* ---- the range ---- */

/* Cuts to the range what holds all rows, and folds offsets into pointers. */
static void cut_tensor(const struct hys_request *request, const struct hys_field *field,
		       struct hys_tensor *tensor)
{
	const int64_t size = (int64_t)hys_dtype_size(tensor->dtype);

	if (field->dims[0] == HYS_DIM_ROWS && tensor->shape[0] != request->row_count) {
		tensor->shape[0] = request->row_count;
		if (extent(tensor) > 0)
			tensor->offset += request->row_first * tensor->stride[0];
	}
	if (tensor->buffer && tensor->buffer->device->host_memory &&
	    request->plan->device_count == 1) {
		tensor->host = tensor->buffer->native;
		tensor->buffer = NULL;
	}
	if (tensor->host) {
		tensor->host = (char *)tensor->host + tensor->offset * size;
		tensor->offset = 0;
	}
}

hys_status hys_request_tensors(struct hys_request *request, struct hys_error *error)
{
	const struct hys_fields *fields = request->fields;
	hys_status status = HYS_OK;

	for (int32_t i = 0; i < fields->count; i++)
		HYS_TRY(check_tensor(request, &fields->fields[i],
				     hys_field_tensor(&fields->fields[i], &request->call.args),
				     error));
	HYS_TRY(check_overlap(request, error));
	for (int32_t i = 0; i < fields->count; i++) {
		struct hys_tensor *tensor =
			hys_field_tensor(&fields->fields[i], &request->call.args);

		if (hys_present(tensor))
			cut_tensor(request, &fields->fields[i], tensor);
	}
	request->call.size.topk = hys_max64(request->dims.size[HYS_DIM_TOPK], 0);
cleanup:
	return status;
}
