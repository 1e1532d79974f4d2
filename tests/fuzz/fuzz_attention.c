/* Random problems of attention, forward and backward. */
#include "problem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void draw_heads(struct problem_bytes *bytes, struct attention_case *about)
{
	about->kv_heads = 1 + problem_pick(bytes, 3);
	about->groups = problem_flag(bytes) ? about->kv_heads : 1;
	about->heads = about->kv_heads * (1 + problem_pick(bytes, 4));
	about->head_dim = problem_size(bytes, 70);
	about->value_dim = about->features & ATTENTION_SHARED
				   ? 1 + problem_pick(bytes, about->head_dim)
				   : problem_size(bytes, 70);
}

/* What is not for each other. */
static unsigned settle(const struct attention_case *about, unsigned features)
{
	features = problem_range(&about->visible, features, ATTENTION_RANGE, ATTENTION_RANGE_CUT);
	if (!(features & ATTENTION_DENSE))
		features &= ~ATTENTION_IGNORED;
	if (features & ATTENTION_ONLY_DQ)
		features &= ~ATTENTION_ONLY_DK;
	if (about->visible.window_keys == 0)
		features &= ~ATTENTION_SHARED_WINDOW;
	return features;
}

static void draw_case(struct problem_bytes *bytes, struct attention_case *about)
{
	about->visible = problem_visible(bytes);
	if (problem_flag(bytes))
		about->visible.window_keys = problem_size(bytes, 30);
	about->features = settle(about, problem_features(bytes, 2 * ATTENTION_IGNORED - 1));
	draw_heads(bytes, about);
	about->topk = problem_size(bytes, 40);
	about->pool = 1 + problem_pick(bytes, 6) / 3 * problem_pick(bytes, 4);
	about->granularity = about->pool > 1 ? 1 : problem_size(bytes, 9);
	about->window = problem_flag(bytes) ? problem_size(bytes, 30) : 0;
	about->first = problem_flag(bytes) ? problem_size(bytes, 10) : 0;
	about->dtype = (hys_dtype[]){HYS_F32, HYS_F16, HYS_BF16}[problem_pick(bytes, 3)];
	about->softcap = problem_pick(bytes, 4) == 3 ? 3.0 : 0;
	about->scale = (double[]){0, 0.5, -0.2}[problem_pick(bytes, 3)];
	about->indices = (enum index_pattern)problem_pick(bytes, INDICES_ABSENT + 1);
	about->values = (enum attention_values)problem_pick(bytes, ATTENTION_UNREAD_NAN + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct subject subject = {.name = "attention"};
	struct problem_bytes bytes;

	problem_begin(&bytes, data, size);
	subject.op = problem_flag(&bytes) ? HYS_OP_ATTENTION_BACKWARD : HYS_OP_ATTENTION_FORWARD;
	subject.kind =
		subject.op == HYS_OP_ATTENTION_BACKWARD ? &subject_backward : &subject_forward;
	draw_case(&bytes, &subject.about.attention);
	problem_name(&subject.about.attention.about, &bytes);
	problem_try(&subject, &bytes);
	return 0;
}
