#include "op_case.h"

/* What the operation's own runner is given. */
static struct suite_case *own_case(struct op_case *both)
{
	switch (both->op) {
	case HYS_OP_ATTENTION_FORWARD:
	case HYS_OP_ATTENTION_BACKWARD:
		return &both->attention.about;
	case HYS_OP_INDEXER_LOSS:
		return &both->loss.about;
	case HYS_OP_POOL:
	case HYS_OP_POOL_BACKWARD:
		return &both->pool.about;
	case HYS_OP_FIDELITY:
		return &both->fidelity.about;
	case HYS_OP_MERGE:
		return &both->merge.about;
	default:
		return &both->select.about;
	}
}

void op_case_run(void **state)
{
	static void (*const runs[HYS_OP_COUNT])(void **state) = {
		[HYS_OP_SELECT] = select_run,
		[HYS_OP_SELECT_COARSE] = select_run,
		[HYS_OP_SELECT_COARSE_TO_FINE] = select_run,
		[HYS_OP_ATTENTION_FORWARD] = attention_forward_run,
		[HYS_OP_ATTENTION_BACKWARD] = attention_backward_run,
		[HYS_OP_INDEXER_LOSS] = loss_run,
		[HYS_OP_POOL] = pool_run,
		[HYS_OP_POOL_BACKWARD] = pool_backward_run,
		[HYS_OP_FIDELITY] = fidelity_run,
		[HYS_OP_MERGE] = merge_run,
	};
	struct op_case both = *(const struct op_case *)*state;
	void *own = own_case(&both);

	static const hys_method methods[] = {HYS_METHOD_EXACT, HYS_METHOD_COARSE,
					     HYS_METHOD_COARSE_TO_FINE};

	*own_case(&both) = both.about;
	if (both.op <= HYS_OP_SELECT_COARSE_TO_FINE)
		both.select.method = methods[both.op];
	runs[both.op](&own);
}
