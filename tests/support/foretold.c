#include "foretold.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "number.h"

#define PAD 3 /* elements between rows */

static char *memory_of(const struct hys_tensor *tensor)
{
	char *start = tensor->buffer ? tensor->buffer->native : tensor->host;

	return start + tensor->offset * (int64_t)hys_dtype_size(tensor->dtype);
}

static int64_t elements_of(const struct hys_tensor *tensor)
{
	int64_t count = 1;

	for (int32_t d = 0; d < tensor->rank; d++)
		count *= tensor->shape[d];
	return count;
}

/* Where element i lies behind the tensor's start. */
static int64_t at(const struct hys_tensor *tensor, int64_t i)
{
	int64_t place = 0;

	for (int32_t d = tensor->rank - 1; d >= 0; d--) {
		place += i % tensor->shape[d] * tensor->stride[d];
		i /= tensor->shape[d];
	}
	return place;
}

double foretold_value(const struct hys_tensor *tensor, int64_t i)
{
	return hys_number_load(memory_of(tensor), tensor->dtype, at(tensor, i));
}

/* How much further than it is numbered the row of element i of a call's rows lies. */
static int64_t rows_further(const struct hys_call *call, const struct hys_tensor *tensor, int64_t i)
{
	const int64_t row = i / (elements_of(tensor) / tensor->shape[0]);
	int64_t further = 0;

	for (int32_t g = 0; g < call->gap_count; g++)
		further += row >= call->gaps[g].at ? call->gaps[g].by : 0;
	return further;
}

/* Element i of field number `field` of a whole call's inputs. */
double foretold_pattern(int32_t field, int64_t i)
{
	return (double)((i * 7 + field) % 61);
}

int foretold_wrong;
static pthread_mutex_t wrong_lock = PTHREAD_MUTEX_INITIALIZER;

static void check_inputs(const struct hys_call *call, const struct hys_fields *fields)
{
	struct hys_call *own = (struct hys_call *)(uintptr_t)call;
	int bad = 0;

	for (int32_t f = 0; f < fields->count; f++) {
		const struct hys_field *field = &fields->fields[f];
		const struct hys_tensor *tensor = hys_field_tensor(field, &own->args);
		int64_t row = 0; /* elements of one, of the tensors that are cut */

		if (!hys_present(tensor) || (field->flags & HYS_FIELD_OUT))
			continue;
		if (field->dims[0] == HYS_DIM_ROWS && tensor->shape[0] > 0)
			row = elements_of(tensor) / tensor->shape[0];
		for (int64_t i = 0; i < elements_of(tensor); i++) {
			const int64_t further = row > 0 ? rows_further(call, tensor, i) : 0;
			const int64_t place = at(tensor, i) + further * tensor->stride[0];

			bad += hys_number_load(memory_of(tensor), tensor->dtype, place) !=
			       foretold_pattern(f, (call->row_first + further) * row + i);
		}
	}
	pthread_mutex_lock(&wrong_lock);
	foretold_wrong += bad;
	pthread_mutex_unlock(&wrong_lock);
}

static bool accumulates(const struct hys_call *call)
{
	if (call->op == HYS_OP_INDEXER_LOSS)
		return call->args.loss.flags & HYS_LOSS_ACCUMULATE;
	if (call->op == HYS_OP_POOL_BACKWARD)
		return call->args.pool_grad.flags & HYS_GRAD_ACCUMULATE;
	return call->op == HYS_OP_ATTENTION_BACKWARD &&
	       call->args.attention_grad.flags & HYS_GRAD_ACCUMULATE;
}

/* Row outputs get the row's number, sums over rows how many there were. */
hys_status foretold_run(const struct hys_kernel *kernel, struct hys_stream *stream, void *instance,
			const struct hys_call *call, struct hys_error *error)
{
	const struct hys_fields *fields = hys_op_fields(call->op);
	struct hys_call *own = (struct hys_call *)(uintptr_t)call;

	(void)kernel;
	(void)stream;
	(void)instance;
	(void)error;
	check_inputs(call, fields);
	for (int32_t f = 0; f < fields->count; f++) {
		const struct hys_field *field = &fields->fields[f];
		const struct hys_tensor *tensor = hys_field_tensor(field, &own->args);
		const bool part = field->flags & HYS_FIELD_PARTIAL;

		if (!hys_present(tensor) || !(field->flags & HYS_FIELD_OUT))
			continue;
		for (int64_t i = 0; i < elements_of(tensor); i++) {
			const int64_t row = part ? 0 : i / (elements_of(tensor) / tensor->shape[0]);
			const int64_t further = part ? 0 : rows_further(call, tensor, i);
			const int64_t place = at(tensor, i) + further * tensor->stride[0];
			double value =
				(double)(part ? call->size.rows : call->row_first + row + further);

			if (accumulates(call))
				value += hys_number_load(memory_of(tensor), tensor->dtype, place);
			hys_number_store(memory_of(tensor), tensor->dtype, place, value);
		}
	}
	return HYS_OK;
}

/* ---- strided callers ---- */

/* The call's tensors in wider memory: PAD elements behind each row, and
 * between the runs of rank 3. */
void foretold_widen(struct call_case *made)
{
	for (int32_t f = 0; f < made->fields->count; f++) {
		const struct hys_field *field = &made->fields->fields[f];
		struct hys_tensor *tensor = hys_field_tensor(field, &made->call.args);
		int64_t stride = 1;

		if (!hys_present(tensor))
			continue;
		for (int32_t d = tensor->rank - 1; d >= 0; d--) {
			tensor->stride[d] = stride;
			stride = stride * tensor->shape[d] + PAD;
		}
		free(made->memory[f]);
		made->bytes[f] = stride * 4 - 128;
		made->memory[f] = malloc((size_t)stride * 4);
		assert_non_null(made->memory[f]);
		memset(made->memory[f], 0x5a, (size_t)stride * 4);
		tensor->host = made->memory[f];
		for (int64_t i = 0; i < elements_of(tensor); i++)
			hys_number_store(tensor->host, tensor->dtype, at(tensor, i),
					 field->flags & HYS_FIELD_OUT ? FORETOLD_BASE
								      : foretold_pattern(f, i));
	}
}

/* Every output as foretold, `base` more, and 0x5a between. */
void foretold_check(struct call_case *made, int64_t rows, double base)
{
	for (int32_t f = 0; f < made->fields->count; f++) {
		const struct hys_field *field = &made->fields->fields[f];
		struct hys_tensor *tensor = hys_field_tensor(field, &made->call.args);
		const int64_t size = (int64_t)hys_dtype_size(tensor->dtype);
		char *memory = tensor->host;

		if (!hys_present(tensor) || !(field->flags & HYS_FIELD_OUT))
			continue;
		for (int64_t i = 0; i < elements_of(tensor); i++) {
			const bool part = field->flags & HYS_FIELD_PARTIAL;
			const int64_t row = i / (elements_of(tensor) / tensor->shape[0]);
			const double want = base + (double)(part ? rows : row);

			if (foretold_value(tensor, i) != want)
				fail_msg("%s: %s[%d] is %g, expected %g", hys_op_name(made->op),
					 field->name, (int)i, foretold_value(tensor, i), want);
			memset(memory + at(tensor, i) * size, 0x5a, (size_t)size);
		}
		for (int64_t i = 0; i < made->bytes[f] + 128; i++)
			assert_int_equal(memory[i], 0x5a);
	}
}
