#include "subject.h"

#include <stdlib.h>
#include <string.h>

#include "oracle_internal.h"

/* ---- select ---- */

static void make_select(union subject_data *data, const struct subject *subject)
{
	select_make(&data->select, &subject->about.select);
}

static void free_select(union subject_data *data)
{
	select_free(&data->select);
}

static struct suite_want want_select(const union subject_data *data)
{
	return select_want(&data->select);
}

static hys_status call_select(const union subject_data *data, struct place *place,
			      struct hys_batch *batch, struct hys_error *error)
{
	return select_call(&data->select, place, batch, error);
}

static void judge_select(const union subject_data *data, const struct suite_run *run,
			 unsigned flags)
{
	select_try(&data->select, run, flags);
}

const struct subject_kind subject_select = {
	make_select, free_select,  want_select,
	call_select, judge_select, {"indices", "counts", "scores", "kth", "nan_rows"},
};

/* ---- attention ---- */

static void make_attention(union subject_data *data, const struct subject *subject)
{
	attention_make(&data->attention, &subject->about.attention);
}

static void free_attention(union subject_data *data)
{
	attention_free(&data->attention);
}

static struct suite_want want_forward(const union subject_data *data)
{
	return attention_want(&data->attention, HYS_OP_ATTENTION_FORWARD);
}

static struct suite_want want_backward(const union subject_data *data)
{
	return attention_want(&data->attention, HYS_OP_ATTENTION_BACKWARD);
}

static hys_status call_forward(const union subject_data *data, struct place *place,
			       struct hys_batch *batch, struct hys_error *error)
{
	return attention_forward_call(&data->attention, place, batch, error);
}

static hys_status call_backward(const union subject_data *data, struct place *place,
				struct hys_batch *batch, struct hys_error *error)
{
	struct attention_grads grads;
	hys_status status;

	attention_grads_zero(&grads, &data->attention);
	status = attention_backward_call(&data->attention, &grads, place, batch, error);
	attention_grads_free(&grads);
	return status;
}

static void judge_forward(const union subject_data *data, const struct suite_run *run,
			  unsigned flags)
{
	attention_forward_try(&data->attention, run, flags);
}

static void judge_backward(const union subject_data *data, const struct suite_run *run,
			   unsigned flags)
{
	struct attention_grads want;

	attention_grads_make(&want, &data->attention);
	attention_backward_try(&data->attention, &want, run, flags);
	attention_grads_free(&want);
}

const struct subject_kind subject_forward = {
	make_attention, free_attention, want_forward, call_forward, judge_forward, {"o", "lse"},
};

const struct subject_kind subject_backward = {
	make_attention, free_attention, want_backward,
	call_backward,	judge_backward, {"dq", "dk", "dv", "dsink", "dwindow_k", "dwindow_v"},
};

/* ---- the indexer loss ---- */

static void make_loss(union subject_data *data, const struct subject *subject)
{
	loss_make(&data->loss, &subject->about.loss);
}

static void free_loss(union subject_data *data)
{
	loss_free(&data->loss);
}

static struct suite_want want_loss(const union subject_data *data)
{
	return loss_want(&data->loss);
}

static hys_status call_loss(const union subject_data *data, struct place *place,
			    struct hys_batch *batch, struct hys_error *error)
{
	return loss_call(&data->loss, &data->loss.want, place, batch, error);
}

static void judge_loss(const union subject_data *data, const struct suite_run *run, unsigned flags)
{
	loss_try(&data->loss, run, flags);
}

const struct subject_kind subject_loss = {
	make_loss, free_loss,  want_loss,
	call_loss, judge_loss, {"d_index_q", "d_index_w", "d_index_k", "loss", "teacher_out"},
};

/* ---- outputs as bytes ---- */

static struct subject_answer gather(const struct subject *subject, const struct place *place)
{
	struct subject_answer answer = {NULL, 0};

	for (int32_t i = 0; subject->kind->outputs[i]; i++) {
		int64_t size = 0;
		char *part = place_bytes(place, subject->kind->outputs[i], &size);

		if (!part)
			continue;
		char *more = ora_alloc(answer.size + size + 1, 1);
		memcpy(more, answer.bytes ? answer.bytes : "", (size_t)answer.size);
		memcpy(more + answer.size, part, (size_t)size);
		free(answer.bytes);
		free(part);
		answer.bytes = more;
		answer.size += size;
	}
	return answer;
}

struct subject_answer subject_run(const struct subject *subject, const union subject_data *data,
				  const struct suite_run *run)
{
	const bool close = run->about->flags & SUITE_CLOSE;
	struct place place = suite_place(run, close ? 0 : PLACE_PITCHED);
	struct subject_answer answer = {NULL, 0};
	struct hys_error error;

	if (subject->kind->call(data, &place, run->batch, &error) != HYS_OK)
		suite_fail(run, "%s", error.message);
	else if (suite_collect(run, &place))
		answer = gather(subject, &place);
	place_clear(&place);
	return answer;
}

void subject_compare(const struct suite_run *run, const struct subject_answer *got,
		     const struct subject_answer *want, const char *what, int32_t number)
{
	int64_t at = 0;

	if (got->size == want->size && memcmp(got->bytes, want->bytes, (size_t)got->size) == 0)
		return;
	while (at < got->size && at < want->size && got->bytes[at] == want->bytes[at])
		at++;
	suite_fail(run, "other bits %s %d, from byte %lld of %lld on", what, number, (long long)at,
		   (long long)want->size);
}
