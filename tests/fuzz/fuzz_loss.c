/* Random problems of the indexer loss and its gradients. */
#include "problem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is not for each other. */
static unsigned settle(const struct loss_case *about, unsigned features)
{
	features = problem_range(&about->visible, features, LOSS_RANGE, LOSS_RANGE_CUT);
	if (features & LOSS_DENSE)
		features &= ~(LOSS_TEACHER_IN | LOSS_TEACHER_OUT | LOSS_SCORES);
	if (features & LOSS_TEACHER_IN)
		features &= ~LOSS_TEACHER_OUT;
	return features;
}

static void draw_case(struct problem_bytes *bytes, struct loss_case *about)
{
	static const hys_dtype dtypes[] = {HYS_F32, HYS_F16, HYS_BF16};

	about->visible = problem_visible(bytes);
	about->features = settle(about, problem_features(bytes, 2 * LOSS_UNWEIGHTED - 1));
	about->kv_heads = 1 + problem_pick(bytes, 3);
	about->groups = problem_flag(bytes) ? about->kv_heads : 1;
	about->heads = about->kv_heads * (1 + problem_pick(bytes, 3));
	about->index_heads = about->groups * (1 + problem_pick(bytes, 3));
	about->index_dim = problem_size(bytes, 40);
	about->head_dim = problem_size(bytes, 40);
	about->topk = problem_size(bytes, 40);
	about->pool = 1 + problem_pick(bytes, 6) / 3 * problem_pick(bytes, 4);
	about->block = about->pool > 1 ? 1 : problem_size(bytes, 9);
	about->index_dtype = dtypes[problem_pick(bytes, 3)];
	about->dtype = dtypes[problem_pick(bytes, 3)];
	about->activation = problem_flag(bytes) ? HYS_ACTIVATION_NONE : HYS_ACTIVATION_RELU;
	about->softcap = problem_pick(bytes, 4) == 3 ? 3.0 : 0;
	about->coefficient = (double[]){0, -2.5}[problem_pick(bytes, 2)];
	about->divisor = problem_flag(bytes) ? 7 : 0;
	about->indices = (enum index_pattern)problem_pick(bytes, INDICES_EMPTY + 1);
	about->values = (enum loss_values)problem_pick(bytes, LOSS_SHARP + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct subject subject = {.name = "loss", .op = HYS_OP_INDEXER_LOSS, .kind = &subject_loss};
	struct problem_bytes bytes;

	problem_begin(&bytes, data, size);
	draw_case(&bytes, &subject.about.loss);
	problem_name(&subject.about.loss.about, &bytes);
	problem_try(&subject, &bytes);
	return 0;
}
