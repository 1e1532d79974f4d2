/* Random problems of select, by each method. */
#include "problem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void draw_method(struct problem_bytes *bytes, struct select_case *about)
{
	about->method = (hys_method)problem_pick(bytes, HYS_METHOD_COARSE_TO_FINE + 1);
	if (about->method <= HYS_METHOD_EXACT)
		return;
	about->coarse_block = problem_size(bytes, 20);
	about->coarse_keep = problem_size(bytes, 12);
}

/* Fewer than the plan's most, per group. */
static void draw_group_topk(struct problem_bytes *bytes, struct select_case *about, int32_t *list)
{
	for (int32_t u = 0; u < about->groups; u++)
		list[u] = 1 + problem_pick(bytes, about->topk - 1);
	about->group_topk = list;
}

static void draw_case(struct problem_bytes *bytes, struct select_case *about, int32_t *list)
{
	static const int32_t blocks[] = {1, 1, 1, 2, 3, 4, 8, 16};

	about->visible = problem_visible(bytes);
	about->groups = 1 + problem_pick(bytes, 3);
	about->heads = about->groups * (1 + problem_pick(bytes, 3));
	about->dim = problem_size(bytes, 70);
	about->block = blocks[problem_pick(bytes, 8)];
	about->pool = 1 + problem_pick(bytes, 6) / 3 * problem_pick(bytes, 4);
	about->dtype =
		(hys_dtype[]){HYS_F32, HYS_F16, HYS_BF16, HYS_F8E4M3}[problem_pick(bytes, 4)];
	about->activation = problem_flag(bytes) ? HYS_ACTIVATION_NONE : HYS_ACTIVATION_RELU;
	about->unweighted = problem_flag(bytes);
	about->scale = (double[]){0, 1, -0.25}[problem_pick(bytes, 3)];
	about->topk = problem_size(bytes, 60);
	about->first = problem_pick(bytes, 4);
	about->local = problem_pick(bytes, 4);
	draw_method(bytes, about);
	about->values = (enum score_values)problem_pick(bytes, SCORES_MIXED + 1);
	about->features =
		problem_features(bytes, SELECT_ONLY_INDICES | SELECT_RANGE | SELECT_RANGE_CUT);
	about->features =
		problem_range(&about->visible, about->features, SELECT_RANGE, SELECT_RANGE_CUT);
	if (about->topk > 1 && problem_flag(bytes))
		draw_group_topk(bytes, about, list);
	if (about->group_topk && problem_flag(bytes))
		about->features |= SELECT_SLOTS;
	if (about->method == HYS_METHOD_EXACT && problem_flag(bytes))
		about->features |= SELECT_EXACT;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const hys_op ops[] = {[HYS_METHOD_DEFAULT] = HYS_OP_SELECT,
				     [HYS_METHOD_EXACT] = HYS_OP_SELECT,
				     [HYS_METHOD_COARSE] = HYS_OP_SELECT_COARSE,
				     [HYS_METHOD_COARSE_TO_FINE] = HYS_OP_SELECT_COARSE_TO_FINE};
	struct subject subject = {.name = "select", .kind = &subject_select};
	struct problem_bytes bytes;
	int32_t list[HYS_GROUPS_MAX];

	problem_begin(&bytes, data, size);
	draw_case(&bytes, &subject.about.select, list);
	problem_name(&subject.about.select.about, &bytes);
	subject.op = ops[subject.about.select.method];
	problem_try(&subject, &bytes);
	return 0;
}
