#include "act.h"

#include "clock.h"

hys_status hys_act_open(struct hys_act *act, struct hys_plan *whole, hys_op op,
			struct hys_error *error)
{
	const struct hys_batch_desc desc = {.struct_size = sizeof(desc),
					    .rows = act->size.rows,
					    .keys = act->size.keys,
					    .flags = act->size.all_seen ? 0 : HYS_BATCH_CAUSAL};
	hys_status status;

	act->whole = whole;
	act->plan = *whole;
	atomic_init(&act->plan.references, 1);
	act->plan.operations = HYS_OP_BIT(op);
	act->plan.rows_max = act->size.rows;
	act->plan.keys_max = act->size.keys;
	act->plan.window_keys_max = 0;
	act->plan.split = HYS_SPLIT_STATIC;
	HYS_TRY(hys_trial_make(&act->trial, whole->context, &whole->problem, op, &act->size,
			       error));
	HYS_TRY(hys_batch_create(&act->plan, &desc, &act->batch, error));
	HYS_TRY(hys_exec_create(&act->plan, NULL, &act->exec, error));
	for (int32_t i = 0; i < hys_op_fields(op)->count; i++) {
		struct hys_tensor *tensor =
			hys_field_tensor(&hys_op_fields(op)->fields[i], &act->trial.call.args);

		if (act->trial.at[i] >= 0)
			tensor->host = act->trial.input + act->trial.at[i];
	}
cleanup:
	return status;
}

void hys_act_close(struct hys_act *act)
{
	hys_exec_destroy(act->exec);
	hys_batch_destroy(act->batch);
	hys_trial_clear(&act->trial);
}

static hys_status submit(struct hys_act *act, struct hys_error *error)
{
	struct hys_call *call = &act->trial.call;

	switch (act->trial.op) {
	case HYS_OP_SELECT:
		call->args.select.method = HYS_METHOD_EXACT;
		return hys_select(act->exec, act->batch, &call->args.select, error);
	case HYS_OP_SELECT_COARSE:
		call->args.select.method = HYS_METHOD_COARSE;
		return hys_select(act->exec, act->batch, &call->args.select, error);
	case HYS_OP_SELECT_COARSE_TO_FINE:
		call->args.select.method = HYS_METHOD_COARSE_TO_FINE;
		return hys_select(act->exec, act->batch, &call->args.select, error);
	case HYS_OP_ATTENTION_FORWARD:
		return hys_attention_forward(act->exec, act->batch, &call->args.attention, error);
	case HYS_OP_ATTENTION_BACKWARD:
		return hys_attention_backward(act->exec, act->batch, &call->args.attention_grad,
					      error);
	case HYS_OP_INDEXER_LOSS:
		return hys_indexer_loss(act->exec, act->batch, &call->args.loss, error);
	default:
		return hys_fidelity(act->exec, act->batch, &call->args.fidelity, error);
	}
}

hys_status hys_act_call(struct hys_act *act, int64_t rows, double *seconds, struct hys_error *error)
{
	const double begun = hys_now_s();
	hys_status status;

	/* all args begin like these */
	act->trial.call.args.select.row_first = act->size.rows - rows;
	act->trial.call.args.select.row_count = rows;
	HYS_TRY(submit(act, error));
	HYS_TRY(hys_exec_finish(act->exec, error));
	*seconds = hys_now_s() - begun;
cleanup:
	return status;
}

hys_status hys_act_call_alone(struct hys_act *act, int32_t alone, int64_t rows, double *seconds,
			      struct hys_error *error)
{
	bool idle[HYS_LANES_MAX] = {false};
	hys_status status;

	for (int32_t i = 0; i < act->whole->device_count; i++) {
		idle[i] = hys_plan_pace(act->whole, act->trial.op, i)->idle;
		hys_plan_pace(act->whole, act->trial.op, i)->idle = i != alone;
	}
	status = hys_act_call(act, rows, seconds, error);
	for (int32_t i = 0; i < act->whole->device_count; i++)
		hys_plan_pace(act->whole, act->trial.op, i)->idle = idle[i];
	return status;
}

const struct hys_tally *hys_act_tally(const struct hys_act *act, int32_t i)
{
	return &act->exec->lanes[i].tallies[act->trial.op];
}
