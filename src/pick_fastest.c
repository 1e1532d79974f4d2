/* Choosing the kernel of one operation on one device by measuring: all that can
 * run do the same call, warm and in turns. */
#include <math.h>
#include <stdio.h>

#include "pick.h"
#include "text.h"
#include "trial.h"

#define MEASURE_REPEATS 8
/* After the first, in each of which all take turns that have not taken so many times longer than the fastest. A
 * first time may be ten times too long, on a processor that others use, too. */
#define ROUNDS 3
#define BEATEN_AT_FIRST 30.0
#define BEATEN 3.0
/* Kernels that are expected to be so many times slower than the fastest so far are not measured: to build and
 * test each takes seconds on a GPU. */
#define HOPELESS 8.0

/* Large enough to tell kernels apart, small enough to wait for: of a GPU that has nothing to do on most of its
 * units they tell little. */
static struct hys_trial_size measure_size(const struct hys_plan *plan,
					  const struct hys_device_info *info)
{
	const struct hys_size most = hys_plan_size_max(plan, HYS_OP_SELECT, plan->rows_max);
	const bool gpu = info->kind == HYS_DEVICE_GPU;
	const int64_t rows = gpu ? hys_max64(64, INT64_C(8) * info->compute_units) : 64;
	const int64_t keys = gpu ? 8192 : 4096;
	struct hys_trial_size size = {
		.rows = hys_min64(plan->rows_max, rows),
		.keys = hys_min64(plan->keys_max, keys * plan->problem.scoring.pool),
		.window_keys = hys_min64(plan->window_keys_max, 256),
	};

	size.topk = hys_min64(plan->problem.choosing.topk_max, hys_max64(1, most.entries));
	return size;
}

/* "the fastest here, 1.2 ms" */
static void describe_time(char *reason, size_t size, const char *what, double seconds)
{
	struct hys_text text = {reason, size, 0};

	hys_text_add(&text, "%s, ", what);
	hys_text_add_seconds(&text, seconds);
}

static void note_time(struct hys_attempt *attempt, const char *name, double seconds)
{
	char reason[64];

	describe_time(reason, sizeof(reason), "slower", seconds);
	hys_attempt_note(attempt, name, reason);
}

static hys_status learn(struct hys_attempt *attempt, double seconds, struct hys_error *error)
{
	struct hys_context *context = attempt->picker->context;
	hys_status status;

	pthread_mutex_lock(&context->lock);
	status = hys_wisdom_learn(context->wisdom, attempt->op, attempt->picker->problem_hash,
				  hys_device_signature(attempt->device),
				  attempt->choice->kernel->name, seconds, error);
	pthread_mutex_unlock(&context->lock);
	return status;
}

/* ---- the contest ---- */

struct entrant {
	const struct hys_kernel *kernel;
	void *program;
	double seconds; /* the shortest so far; infinite when it failed */
};

struct contest {
	struct hys_attempt *attempt;
	struct hys_trial trial; /* the same call for all */
	struct entrant entrants[HYS_CANDIDATES_MAX];
	int32_t count;
};

/* The first of the fastest; NULL when none is left. */
static struct entrant *leader_of(struct contest *contest)
{
	struct entrant *leader = NULL;
	double best = (double)INFINITY;

	for (int32_t i = 0; i < contest->count; i++)
		if (contest->entrants[i].seconds < best) {
			leader = &contest->entrants[i];
			best = leader->seconds;
		}
	return leader;
}

/* Times it once more. What fails is out, and says why. */
static void time_entrant(struct contest *contest, struct entrant *entrant)
{
	struct hys_attempt *attempt = contest->attempt;
	const struct hys_site site = {attempt->picker->context, attempt->device};
	struct hys_error failure = {HYS_OK, 0, ""};
	double seconds;
	const hys_status status =
		hys_trial_run(&contest->trial, &site, entrant->kernel, entrant->program,
			      MEASURE_REPEATS, NULL, &seconds, &failure);

	if (status == HYS_OK) {
		entrant->seconds = fmin(entrant->seconds, seconds);
		return;
	}
	entrant->seconds = (double)INFINITY;
	attempt->status = status;
	snprintf(attempt->reason, sizeof(attempt->reason), "%.180s", failure.message);
	hys_attempt_note(attempt, entrant->kernel->name, attempt->reason);
}

/* Whether there is another and measuring this one is no use; says so. */
static bool is_out(struct contest *contest, const struct hys_kernel *kernel)
{
	struct hys_attempt *attempt = contest->attempt;
	const struct entrant *leader = leader_of(contest);
	char reason[64];

	if (!leader)
		return false;
	if (kernel == hys_reference_kernel(attempt->device->backend, attempt->op)) {
		hys_attempt_note(attempt, kernel->name, "only when no other can run");
		return true;
	}
	if (leader->kernel->efficiency <= HOPELESS * kernel->efficiency)
		return false;
	snprintf(reason, sizeof(reason), "not measured, expected to be %.0f times slower",
		 leader->kernel->efficiency / kernel->efficiency);
	hys_attempt_note(attempt, kernel->name, reason);
	return true;
}

static void enter(struct contest *contest, const struct hys_kernel *kernel)
{
	struct entrant *entrant = &contest->entrants[contest->count];

	if (is_out(contest, kernel))
		return;
	*entrant = (struct entrant){.kernel = kernel, .seconds = (double)INFINITY};
	if (!hys_attempt_try(contest->attempt, kernel, &entrant->program)) {
		hys_attempt_note(contest->attempt, kernel->name, contest->attempt->reason);
		return;
	}
	contest->count++;
	time_entrant(contest, entrant);
}

/* All that may still win take turns, so that what disturbs one of them disturbs the others, too. The first of a
 * process are slow, so that one alone is timed again as well. */
static void take_turns(struct contest *contest)
{
	const int32_t rounds = contest->count > 1 ? ROUNDS : 1;

	for (int32_t round = 0; round < rounds; round++)
		for (int32_t i = 0; i < contest->count; i++) {
			const struct entrant *leader = leader_of(contest);
			const double beaten = round == 0 ? BEATEN_AT_FIRST : BEATEN;

			if (leader && contest->entrants[i].seconds <= beaten * leader->seconds)
				time_entrant(contest, &contest->entrants[i]);
		}
}

/* The leader becomes the choice; the others say how slow they were. */
static hys_status settle(struct contest *contest, struct hys_error *error)
{
	struct hys_attempt *attempt = contest->attempt;
	struct entrant *leader = leader_of(contest);
	char why[64];

	if (!leader)
		return hys_attempt_fail(attempt, error);
	for (int32_t i = 0; i < contest->count; i++)
		if (&contest->entrants[i] != leader &&
		    contest->entrants[i].seconds < (double)INFINITY)
			note_time(attempt, contest->entrants[i].kernel->name,
				  contest->entrants[i].seconds);
	describe_time(why, sizeof(why), "the fastest here", leader->seconds);
	hys_attempt_choose(attempt, leader->kernel, leader->program, why);
	leader->program = NULL;
	return learn(attempt, leader->seconds, error);
}

hys_status hys_choose_fastest(struct hys_attempt *attempt, const struct hys_candidates *candidates,
			      struct hys_error *error)
{
	const struct hys_plan *plan = attempt->picker->plan;
	const struct hys_trial_size size = measure_size(plan, &attempt->device->info);
	struct contest contest = {.attempt = attempt};
	hys_status status;

	HYS_TRY(hys_trial_make(&contest.trial, attempt->picker->context, &plan->problem,
			       attempt->op, &size, error));
	for (int32_t i = 0; i < candidates->count; i++)
		enter(&contest, candidates->kernels[i]);
	take_turns(&contest);
	status = settle(&contest, error);
cleanup:
	for (int32_t i = 0; i < contest.count; i++)
		if (contest.entrants[i].program)
			attempt->device->backend->program_destroy(attempt->device,
								  contest.entrants[i].program);
	hys_trial_clear(&contest.trial);
	return status;
}
