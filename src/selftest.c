/* Whether a kernel computes on this device and driver what the plain reference
 * computes on the CPU. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "number.h"
#include "text.h"
#include "trial.h"

/* Bounds that keep a test of any problem at a fraction of a second. */
#define ENTRIES_MAX 3000
#define KEYS_MAX 1700
#define ROW_WORK_MAX 8.0e6

/* ---- sizes ---- */

/* Entries in which every rule of choosing has something to do. */
static int64_t choosing_entries(const struct hys_problem *problem, hys_op op, int64_t topk)
{
	const struct hys_choosing *choosing = &problem->choosing;
	int64_t entries = (topk + 6) * problem->scoring.block;

	if (op == HYS_OP_SELECT_COARSE)
		entries = (topk + 4) * choosing->coarse_block;
	if (op == HYS_OP_SELECT_COARSE_TO_FINE)
		entries = (hys_min64(choosing->coarse_keep, 8) + 4) * choosing->coarse_block;
	return entries;
}

static bool reads_keys(hys_op op)
{
	return op == HYS_OP_ATTENTION_FORWARD || op == HYS_OP_ATTENTION_BACKWARD ||
	       op == HYS_OP_INDEXER_LOSS || op == HYS_OP_FIDELITY;
}

static int64_t trial_topk(const struct hys_problem *problem, hys_op op)
{
	const struct hys_choosing *choosing = &problem->choosing;
	const int64_t forced = (int64_t)choosing->first_blocks + choosing->local_blocks;
	const int64_t granularity = problem->attending.granularity;
	/* Enough to fill tiles of 32 positions, but not with large blocks. */
	const int64_t few = hys_max64(hys_min64(37, 150 / granularity),
				      hys_min64(7, hys_max64(2, 400 / granularity)));

	return hys_min64(choosing->topk_max, reads_keys(op) ? few : hys_min64(forced + 5, 100));
}

/* Entries or key rows, so that some are chosen and some are not. */
static int64_t trial_keys(const struct hys_problem *problem, hys_op op, int64_t topk)
{
	const struct hys_attending *attending = &problem->attending;
	const int64_t read =
		(int64_t)attending->window + attending->first + (topk + 1) * attending->granularity;
	const int64_t units = reads_keys(op) ? read : choosing_entries(problem, op, topk);
	const int64_t pool = problem->scoring.pool;
	const int64_t most = reads_keys(op) ? KEYS_MAX : ENTRIES_MAX * pool;

	return hys_min64(hys_max64(hys_mul64(units, pool * 3) / 2, 60), most) + 7;
}

static struct hys_trial_size trial_size(const struct hys_problem *problem, hys_op op)
{
	const struct hys_attending *attending = &problem->attending;
	struct hys_trial_size size = {
		.rows = 9,
		.window_keys = attending->heads > 0 ? 13 : 0,
		.topk = trial_topk(problem, op),
		.documents = true,
		.test = true,
	};
	double row_work;

	size.keys = trial_keys(problem, op, size.topk);
	row_work = (double)size.keys *
		   (reads_keys(op) ? (double)attending->heads *
					     (attending->head_dim + attending->value_dim)
				   : (double)problem->scoring.heads * problem->scoring.dim);
	if (row_work > ROW_WORK_MAX)
		size.rows = 4;
	return size;
}

/* ---- comparing ---- */

struct comparison {
	const struct hys_trial *trial;
	const char *got, *want; /* blocks of outputs */
	char *reason;
};

static double load(const struct comparison *c, const char *block, int32_t field, int64_t i)
{
	const struct hys_field *f = &hys_op_fields(c->trial->op)->fields[field];
	struct hys_call *call = (struct hys_call *)(uintptr_t)&c->trial->call;

	return hys_number_load(block + c->trial->at[field], hys_field_tensor(f, &call->args)->dtype,
			       i);
}

static int32_t find_field(const struct comparison *c, const char *name)
{
	const struct hys_fields *fields = hys_op_fields(c->trial->op);

	for (int32_t i = 0; i < fields->count; i++)
		if (strcmp(fields->fields[i].name, name) == 0)
			return i;
	return -1;
}

static hys_status differs(const struct comparison *c, const char *name, int64_t element, double got,
			  double want)
{
	snprintf(c->reason, HYS_REASON_SIZE,
		 "failed its self-test: element %lld of %s is %.7g, expected %.7g",
		 (long long)element, name, got, want);
	return HYS_DEVICE_FAILED;
}

/* Relative Frobenius norm, twice what the operation promises: the reference
 * rounds too. */
static double tolerance_of(const struct comparison *c, const struct hys_field *field)
{
	static const double values[] = {[HYS_F32] = 1e-5, [HYS_F16] = 2e-3, [HYS_BF16] = 6e-3};
	static const double grads[] = {[HYS_F32] = 1e-4, [HYS_F16] = 4e-3, [HYS_BF16] = 1e-2};
	const struct hys_problem *problem = &c->trial->plan.problem;

	switch (c->trial->op) {
	case HYS_OP_ATTENTION_FORWARD:
		if (strcmp(field->name, "lse") == 0)
			return problem->attending.dtype == HYS_F32 ? 2e-5 : 2e-3;
		return 2 * values[problem->attending.dtype];
	case HYS_OP_MERGE:
		return 2 * values[problem->attending.dtype];
	case HYS_OP_ATTENTION_BACKWARD:
		return 2 * grads[problem->attending.dtype];
	case HYS_OP_INDEXER_LOSS:
		return 2 * grads[hys_max64(problem->attending.dtype, problem->scoring.dtype)];
	default:
		return 2e-4;
	}
}

/* What is not finite must be the same; the rest is compared as one vector. */
static hys_status compare_reals(const struct comparison *c, int32_t i)
{
	const struct hys_field *field = &hys_op_fields(c->trial->op)->fields[i];
	const int64_t count = hys_field_elements(field, &c->trial->dims);
	double difference = 0, size = 0, most = 0;
	int64_t worst = 0;

	for (int64_t e = 0; e < count; e++) {
		const double got = load(c, c->got, i, e), want = load(c, c->want, i, e);
		const double off = fabs(got - want);

		if (!isfinite(want) && got == want)
			continue;
		if (!isfinite(got) || !isfinite(want))
			return differs(c, field->name, e, got, want);
		difference += off * off;
		size += want * want;
		if (off > most) {
			most = off;
			worst = e;
		}
	}
	if (sqrt(difference) <= tolerance_of(c, field) * sqrt(size) + 1e-6)
		return HYS_OK;
	return differs(c, field->name, worst, load(c, c->got, i, worst),
		       load(c, c->want, i, worst));
}

static hys_status compare_integers(const struct comparison *c, int32_t i, double slack)
{
	const struct hys_field *field = &hys_op_fields(c->trial->op)->fields[i];
	const int64_t count = hys_field_elements(field, &c->trial->dims);

	for (int64_t e = 0; e < count; e++) {
		const double got = load(c, c->got, i, e), want = load(c, c->want, i, e);

		if (fabs(got - want) > slack)
			return differs(c, field->name, e, got, want);
	}
	return HYS_OK;
}

/* ---- choices ---- */

/* A mean of small integers is exact when it is of a power of two of them; the
 * coarse choice also scores the part of its last block that a row sees. */
static bool means_are_exact(const struct comparison *c)
{
	const int32_t block = c->trial->plan.problem.choosing.coarse_block;

	return c->trial->op == HYS_OP_SELECT ||
	       (c->trial->op == HYS_OP_SELECT_COARSE_TO_FINE && (block & (block - 1)) == 0);
}

/* How far a score may be off: not at all where every product and sum is exact
 * in f32, else a few roundings of the largest sum there can be. */
static double score_slack(const struct comparison *c)
{
	const struct hys_scoring *scoring = &c->trial->plan.problem.scoring;
	const double scales = scoring->dtype == HYS_F8E4M3 ? 4 : 1;
	const int32_t group_heads = scoring->heads / scoring->groups;
	int exponent;

	if (fabs(frexp(scoring->scale, &exponent)) == 0.5 && means_are_exact(c))
		return 0;
	return 1e-6 * fabs(scoring->scale) * scales * 3 * 9 * scoring->dim * group_heads;
}

struct picks {
	const struct comparison *c;
	const char *block;
	int32_t indices, scores;
	int64_t first, slots; /* of this row and group */
};

/* Picks of `a` that `b` lacks must score as b's last: the K-th. */
static hys_status compare_picks(const struct picks *a, const struct picks *b, double kth,
				double slack)
{
	int64_t j = 0;

	for (int64_t i = 0; i < a->slots; i++) {
		const double index = load(a->c, a->block, a->indices, a->first + i);
		const double score = load(a->c, a->block, a->scores, a->first + i);
		double other = -1;

		if (index < 0)
			break;
		for (; j < b->slots; j++) {
			other = load(b->c, b->block, b->indices, b->first + j);
			if (other < 0 || other >= index)
				break;
		}
		if (j < b->slots && other == index) {
			other = load(b->c, b->block, b->scores, b->first + j);
			if (fabs(score - other) > slack)
				return differs(a->c, "scores", a->first + i, score, other);
		} else if (!(fabs(score - kth) <= slack)) {
			return differs(a->c, "indices", a->first + i, index, other);
		}
	}
	return HYS_OK;
}

static hys_status compare_choices(const struct comparison *c)
{
	const int32_t indices = find_field(c, "indices"), scores = find_field(c, "scores");
	const int32_t kth = find_field(c, "kth");
	const int64_t slots = c->trial->size.topk;
	const int64_t groups = c->trial->call.size.rows * c->trial->plan.problem.scoring.groups;
	const double slack = score_slack(c);
	hys_status status;

	HYS_TRY(compare_integers(c, find_field(c, "counts"), 0));
	HYS_TRY(compare_integers(c, find_field(c, "nan_rows"), 0));
	for (int64_t r = 0; r < groups; r++) {
		const struct picks got = {c, c->got, indices, scores, r * slots, slots};
		const struct picks want = {c, c->want, indices, scores, r * slots, slots};
		const double got_kth = load(c, c->got, kth, r), want_kth = load(c, c->want, kth, r);

		if (got_kth != want_kth && !(fabs(got_kth - want_kth) <= slack))
			return differs(c, "kth", r, got_kth, want_kth);
		HYS_TRY(compare_picks(&got, &want, want_kth, slack));
		HYS_TRY(compare_picks(&want, &got, got_kth, slack));
	}
cleanup:
	return status;
}

static hys_status compare(const struct comparison *c)
{
	const struct hys_fields *fields = hys_op_fields(c->trial->op);
	hys_status status = HYS_OK;

	if (c->trial->op <= HYS_OP_SELECT_COARSE_TO_FINE)
		return compare_choices(c);
	for (int32_t i = 0; i < fields->count; i++) {
		if (!(fields->fields[i].flags & HYS_FIELD_OUT) || c->trial->at[i] < 0)
			continue;
		if (fields->fields[i].type == HYS_TYPE_I32)
			HYS_TRY(compare_integers(c, i, 1)); /* a sum at its target */
		else
			HYS_TRY(compare_reals(c, i));
	}
cleanup:
	return status;
}

/* ---- running ---- */

const struct hys_kernel *hys_reference_kernel(const struct hys_backend *backend, hys_op op)
{
	char name[64];

	snprintf(name, sizeof(name), "%s.ref", hys_op_name(op));
	for (int32_t i = 0; i < backend->kernel_count; i++)
		if (backend->kernels[i].op == op && strcmp(backend->kernels[i].name, name) == 0)
			return &backend->kernels[i];
	return NULL;
}

static hys_status run_reference(const struct hys_trial *trial, const struct hys_site *site,
				char *output, struct hys_error *error)
{
	const struct hys_backend *backend = site->device->backend;
	const struct hys_kernel *kernel = hys_reference_kernel(backend, trial->op);
	void *program = NULL;
	hys_status status;

	if (!kernel)
		return hys_fail(error, HYS_INTERNAL, 0, "%s has no reference for %s", backend->name,
				hys_op_name(trial->op));
	HYS_TRY(backend->program_create(site->device, kernel, &trial->plan.problem, &program,
					error));
	HYS_TRY(hys_trial_run(trial, site, kernel, program, 1, output, NULL, error));
cleanup:
	if (program)
		backend->program_destroy(site->device, program);
	return status;
}

static void copy_field(const struct comparison *from, const char *name,
		       const struct hys_trial *trial)
{
	const struct comparison to = {.trial = trial};
	const int32_t source = find_field(from, name), target = find_field(&to, name);
	const struct hys_field *field = &hys_op_fields(trial->op)->fields[target];
	struct hys_call *call = (struct hys_call *)(uintptr_t)&trial->call;
	const size_t size = hys_dtype_size(hys_field_tensor(field, &call->args)->dtype);

	memcpy(trial->input + trial->at[target], from->got + from->trial->at[source],
	       (size_t)hys_field_elements(field, &trial->dims) * size);
}

/* The backward pass wants the forward pass's own results. */
static hys_status forward_first(const struct hys_trial *backward, const struct hys_site *reference,
				struct hys_error *error)
{
	struct hys_trial forward;
	struct comparison from = {.trial = &forward};
	char *output = NULL;
	hys_status status;

	HYS_TRY(hys_trial_make(&forward, reference->context, &backward->plan.problem,
			       HYS_OP_ATTENTION_FORWARD, &backward->size, error));
	output = hys_alloc(forward.allocator, forward.bytes);
	if (!output)
		HYS_TRY(hys_fail(error, HYS_OUT_OF_MEMORY, 0, "no memory for a self-test"));
	HYS_TRY(run_reference(&forward, reference, output, error));
	from.got = output;
	copy_field(&from, "o", backward);
	copy_field(&from, "lse", backward);
cleanup:
	hys_free(forward.allocator, output);
	hys_trial_clear(&forward);
	return status;
}

hys_status hys_self_test(const struct hys_site *site, const struct hys_site *reference,
			 const struct hys_problem *problem, const struct hys_kernel *kernel,
			 void *program, char reason[HYS_REASON_SIZE])
{
	const struct hys_trial_size size = trial_size(problem, kernel->op);
	struct hys_trial trial;
	struct comparison c = {.trial = &trial, .reason = reason};
	struct hys_error error = {HYS_OK, 0, ""};
	char *got = NULL, *want = NULL;
	hys_status status;

	reason[0] = '\0';
	HYS_TRY(hys_trial_make(&trial, reference->context, problem, kernel->op, &size, &error));
	if (kernel->op == HYS_OP_ATTENTION_BACKWARD)
		HYS_TRY(forward_first(&trial, reference, &error));
	got = hys_alloc(trial.allocator, trial.bytes);
	want = hys_alloc(trial.allocator, trial.bytes);
	if (!got || !want)
		HYS_TRY(hys_fail(&error, HYS_OUT_OF_MEMORY, 0, "no memory for a self-test"));
	HYS_TRY(run_reference(&trial, reference, want, &error));
	HYS_TRY(hys_trial_run(&trial, site, kernel, program, 1, got, NULL, &error));
	c.got = got;
	c.want = want;
	HYS_TRY(compare(&c));
cleanup:
	if (status != HYS_OK && !reason[0])
		snprintf(reason, HYS_REASON_SIZE, "its self-test could not run: %.150s",
			 error.message);
	hys_free(trial.allocator, got);
	hys_free(trial.allocator, want);
	hys_trial_clear(&trial);
	return status;
}
