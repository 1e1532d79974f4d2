/* omp_fidelity.c - how much of dense attention a selection captures. A sampled
 * row's dense attention is computed whole: one number per visible key. */
#include <math.h>
#include <string.h>

#include "omp_kernels.h"
#include "omp_rows.h"

struct scratch {
	float *q;      /* [head_dim] */
	float *key;    /* [head_dim] */
	float *logits; /* [keys] */
	float *mass;   /* [keys] */
};

struct fidelity {
	const struct omp_isa *isa;
	const struct hys_call *call;
	struct omp_rows chosen, reference;
	struct scratch *scratch; /* [threads] */
};

static struct scratch *lay_out(struct omp_arena *arena, const struct hys_size *size,
			       int32_t threads)
{
	const int64_t dim = size->problem->attending.head_dim;
	const int64_t keys = size->row_keys > 0 ? size->row_keys : size->keys;
	struct scratch *all = omp_take(arena, threads, sizeof *all);
	struct scratch none = {0};
	for (int32_t i = 0; i < threads; i++) {
		struct scratch *scratch = arena->base ? all + i : &none;
		scratch->q = omp_take(arena, dim, sizeof *scratch->q);
		scratch->key = omp_take(arena, dim, sizeof *scratch->key);
		scratch->logits = omp_take(arena, keys, sizeof *scratch->logits);
		scratch->mass = omp_take(arena, keys, sizeof *scratch->mass);
	}
	return all;
}

int64_t omp_fidelity_workspace(const struct hys_kernel *kernel, const struct hys_device *device,
			       const struct hys_size *size)
{
	struct omp_arena arena = {0};
	(void)kernel;
	lay_out(&arena, size, omp_device(device)->threads);
	return arena.used;
}

/* Logits of one head, from the first visible key on; answers the largest. */
static float compute_logits(const struct fidelity *fidelity, struct scratch *scratch, int64_t t,
			    int64_t h, struct omp_range keys)
{
	const struct hys_fidelity_args *args = &fidelity->call->args.fidelity;
	const struct hys_attending *attending = &fidelity->call->problem->attending;
	const int64_t g = h / (attending->heads / attending->kv_heads);
	const int64_t dim = attending->head_dim;
	const float scale = (float)attending->scale, cap = (float)attending->softcap;
	float largest = -INFINITY;
	fidelity->isa->to_f32(args->q.dtype, omp_at(&args->q, t, h, 0), scratch->q, dim);
	for (int64_t s = keys.begin; s < keys.end; s++) {
		fidelity->isa->to_f32(args->k.dtype, omp_at(&args->k, s, g, 0), scratch->key, dim);
		float logit = scale * fidelity->isa->dot(scratch->q, scratch->key, dim);
		if (cap > 0.0f)
			logit = cap * tanhf(logit / cap);
		scratch->logits[s - keys.begin] = logit;
		largest = largest != largest || logit <= largest ? largest : logit;
	}
	return largest;
}

/* mass = mean over the group's heads of dense attention to each visible key. */
static void compute_mass(const struct fidelity *fidelity, struct scratch *scratch, int64_t t,
			 int64_t u, struct omp_range keys)
{
	const struct hys_problem *problem = fidelity->call->problem;
	const int64_t heads = problem->attending.heads / problem->scoring.groups;
	const int64_t count = keys.end - keys.begin;
	memset(scratch->mass, 0, (size_t)count * sizeof *scratch->mass);
	for (int64_t h = u * heads; h < (u + 1) * heads; h++) {
		const float largest = compute_logits(fidelity, scratch, t, h, keys);
		double total = 0.0;
		if (largest == -INFINITY)
			continue;
		for (int64_t i = 0; i < count; i++)
			scratch->logits[i] -= largest;
		fidelity->isa->exp(scratch->logits, count);
		for (int64_t i = 0; i < count; i++)
			total += (double)scratch->logits[i];
		fidelity->isa->axpy((float)(1.0 / (total * (double)heads)), scratch->logits,
				    scratch->mass, count);
	}
}

static double sum_range(const float *mass, int64_t begin, int64_t end)
{
	double sum = 0.0;
	for (int64_t i = begin; i < end; i++)
		sum += (double)mass[i];
	return sum;
}

static double captured(const struct fidelity *fidelity, const float *mass, int64_t t, int64_t u,
		       struct omp_range keys)
{
	struct omp_walk walk;
	struct omp_range range;
	double sum = 0.0;
	omp_walk_start(&walk, &fidelity->chosen, t, u);
	while (omp_walk_next(&walk, &range))
		sum += sum_range(mass, range.begin - keys.begin, range.end - keys.begin);
	return sum;
}

static float float_of(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

/* Sum of the masses that are not below `least`, and how many. */
static double sum_from(const float *mass, int64_t count, float least, int64_t *many)
{
	double sum = 0.0;
	*many = 0;
	for (int64_t i = 0; i < count; i++)
		if (mass[i] >= least) {
			sum += (double)mass[i];
			++*many;
		}
	return sum;
}

/* Fewest keys, largest first, that reach the share `target` of all mass. The
 * mass of the last one is found bit by bit: floats that are not negative are
 * ordered like their bits. */
static int64_t keys_needed(const float *mass, int64_t count, double target)
{
	uint32_t last = 0;
	int64_t many, more;
	const double wanted = target * sum_range(mass, 0, count);
	if (count == 0 || wanted <= 0.0)
		return 0;
	for (int32_t bit = 30; bit >= 0; bit--)
		if (sum_from(mass, count, float_of(last | UINT32_C(1) << bit), &many) >= wanted)
			last |= UINT32_C(1) << bit;
	sum_from(mass, count, float_of(last), &many);
	const double above = sum_from(mass, count, float_of(last + 1), &more);
	if (last == 0)
		return more;
	const double missing = ceil((wanted - above) / (double)float_of(last));
	return hys_min64(many, more + hys_max64(1, (int64_t)missing));
}

/* Share of the reference that is among the chosen; both ascend. */
static double recall(const struct fidelity *fidelity, int64_t t, int64_t u)
{
	struct omp_slots chosen, reference;
	struct omp_slot have, want;
	int64_t wanted = 0, found = 0;
	omp_slots_start(&chosen, &fidelity->chosen, t, u);
	omp_slots_start(&reference, &fidelity->reference, t, u);
	bool some = omp_slots_next(&chosen, &have);
	for (; omp_slots_next(&reference, &want); wanted++) {
		while (some && have.index < want.index)
			some = omp_slots_next(&chosen, &have);
		found += some && have.index == want.index;
	}
	return wanted > 0 ? (double)found / (double)wanted : 1.0;
}

static void judge_group(const struct fidelity *fidelity, struct scratch *scratch, int64_t t,
			int64_t u)
{
	const struct hys_fidelity_args *args = &fidelity->call->args.fidelity;
	const struct omp_range keys = omp_visible_keys(&fidelity->chosen, t);
	const int64_t count = hys_max64(0, keys.end - keys.begin);
	if (count > 0 && (hys_present(&args->mass) || hys_present(&args->topk_needed)))
		compute_mass(fidelity, scratch, t, u, keys);
	if (hys_present(&args->mass))
		*(float *)omp_at(&args->mass, t, u, 0) =
			count > 0 ? (float)captured(fidelity, scratch->mass, t, u, keys) : 1.0f;
	if (hys_present(&args->topk_needed))
		*(int32_t *)omp_at(&args->topk_needed, t, u, 0) =
			(int32_t)keys_needed(scratch->mass, count, args->target_mass);
	if (hys_present(&args->recall))
		*(float *)omp_at(&args->recall, t, u, 0) = (float)recall(fidelity, t, u);
}

static void row_item(void *context, int64_t t, int32_t thread)
{
	const struct fidelity *fidelity = context;
	const struct hys_fidelity_args *args = &fidelity->call->args.fidelity;
	if ((fidelity->call->row_first + t) % args->row_stride != args->row_offset)
		return;
	for (int64_t u = 0; u < fidelity->call->problem->scoring.groups; u++)
		judge_group(fidelity, fidelity->scratch + thread, t, u);
}

hys_status omp_fidelity_run(const struct hys_kernel *kernel, struct hys_stream *stream,
			    void *instance, const struct hys_call *call, struct hys_error *error)
{
	struct omp_arena arena = omp_arena(&call->workspace);
	const int32_t threads = omp_threads(stream);
	struct fidelity fidelity = {
		.isa = omp_isa_of_stream(kernel, stream),
		.call = call,
		.chosen = {.problem = call->problem,
			   .batch = &call->batch,
			   .indices = &call->args.fidelity.indices,
			   .keys = call->size.keys,
			   .entries = call->size.entries},
		.scratch = lay_out(&arena, &call->size, threads),
	};
	(void)instance, (void)error;
	fidelity.reference = fidelity.chosen;
	fidelity.reference.indices = &call->args.fidelity.reference;
	omp_for_rows(threads, call->size.rows, row_item, &fidelity);
	return HYS_OK;
}
