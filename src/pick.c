/* Choosing the kernel of one operation on one device: what can run, in the
 * order of the backend's table, unless the caller, a file, wisdom or a
 * measurement says otherwise. */
#include <stdio.h>
#include <string.h>

#include "partition.h"
#include "pick.h"
#include "text.h"
#include "trial.h"

/* ---- the reference device ---- */

/* A CPU device of the context's, or one in a context made for the occasion. */
static void seek_reference(struct hys_picker *picker)
{
	struct hys_context *context = picker->context;
	struct hys_context_options options = {.struct_size = sizeof(options)};
	int32_t last = 0;

	if (picker->reference_sought)
		return;
	picker->reference_sought = true;
	for (int32_t i = 0; i < context->device_count && !picker->reference; i++)
		if (context->devices[i]->host_memory)
			picker->reference = context->devices[i];
	if (picker->reference)
		return;
	while (hys_backend_at(last + 1))
		last++;
	options.devices = hys_backend_at(last)->name;
	options.cache_dir = "";
	options.disable = context->host.disable;
	options.threads = context->host.threads;
	options.allocate = context->host.allocator.allocate;
	options.release = context->host.allocator.release;
	options.allocate_user = context->host.allocator.user;
	if (hys_context_create(&options, &picker->reference_context, NULL) == HYS_OK)
		picker->reference = picker->reference_context->devices[0];
}

void hys_picker_clear(struct hys_picker *picker)
{
	hys_context_destroy(picker->reference_context);
	picker->reference_context = NULL;
	picker->reference = NULL;
}

/* ---- one candidate ---- */

static hys_status check_needs(struct hys_attempt *attempt, const struct hys_kernel *kernel)
{
	const uint64_t missing = kernel->needs & ~attempt->device->capabilities;
	const char *const *names = attempt->device->backend->capability_names;
	struct hys_text text = {attempt->reason, sizeof(attempt->reason), 0};
	int32_t shown = 0;

	if (missing == 0)
		return HYS_OK;
	hys_text_add(&text, "the device lacks");
	for (int32_t bit = 0; bit < 64 && names && names[bit]; bit++)
		if (missing >> bit & 1)
			hys_text_add(&text, "%s %s", shown++ ? "," : "", names[bit]);
	return HYS_UNSUPPORTED;
}

/* A self-test finds wrong results; nothing ends a kernel that waits forever. */
static hys_status check_wanted(struct hys_attempt *attempt, const struct hys_kernel *kernel)
{
	if (attempt->named || !(kernel->unproven || kernel->order_free))
		return HYS_OK;
	snprintf(attempt->reason, sizeof(attempt->reason),
		 "%s, and is only used when options.kernels names it",
		 kernel->unproven ? "has not run on such a device yet"
				  : "gives other bits on every run");
	return HYS_UNSUPPORTED;
}

static hys_status check_memory(struct hys_attempt *attempt, const struct hys_kernel *kernel)
{
	struct hys_plan *plan = attempt->picker->plan;
	const int64_t most = hys_plan_rows_max(plan, attempt->op);
	/* Of several devices a small one takes fewer rows. */
	const int64_t rows = plan->device_count > 1 ? hys_min64(most, HYS_ROW_TILE) : most;
	const struct hys_size size = hys_plan_size_max(plan, attempt->op, rows);
	const struct hys_kernel *chosen = attempt->choice->kernel;
	int64_t bytes;

	attempt->choice->kernel = kernel;
	bytes = hys_workspace_bytes(plan, attempt->op, attempt->index, &size);
	attempt->choice->kernel = chosen;
	if (bytes < INT64_MAX &&
	    (plan->memory_limit_bytes == 0 || bytes <= plan->memory_limit_bytes))
		return HYS_OK;
	snprintf(attempt->reason, sizeof(attempt->reason),
		 "needs %lld bytes of workspace, memory_limit_bytes is %lld", (long long)bytes,
		 (long long)plan->memory_limit_bytes);
	return HYS_OUT_OF_MEMORY;
}

static bool is_trusted(struct hys_attempt *attempt, const struct hys_kernel *kernel)
{
	struct hys_context *context = attempt->picker->context;
	bool trusted;

	pthread_mutex_lock(&context->lock);
	trusted = hys_wisdom_trusts(context->wisdom, attempt->picker->problem_hash,
				    hys_device_signature(attempt->device), kernel->name);
	pthread_mutex_unlock(&context->lock);
	return trusted;
}

static hys_status trust(struct hys_attempt *attempt, const struct hys_kernel *kernel)
{
	struct hys_context *context = attempt->picker->context;
	struct hys_error error = {HYS_OK, 0, ""};
	hys_status status;

	pthread_mutex_lock(&context->lock);
	status = hys_wisdom_trust(context->wisdom, attempt->picker->problem_hash,
				  hys_device_signature(attempt->device), kernel->name, &error);
	pthread_mutex_unlock(&context->lock);
	if (status != HYS_OK)
		snprintf(attempt->reason, sizeof(attempt->reason), "%.180s", error.message);
	return status;
}

/* The reference of the CPU backend is what others are compared with. */
static hys_status check_itself(struct hys_attempt *attempt, const struct hys_kernel *kernel,
			       void *program)
{
	struct hys_picker *picker = attempt->picker;
	struct hys_context *context = picker->context;
	const struct hys_site site = {context, attempt->device};
	struct hys_site reference;
	hys_status status;

	if (picker->plan->flags & HYS_PLAN_NO_SELF_TEST)
		return HYS_OK;
	if (attempt->device->host_memory &&
	    kernel == hys_reference_kernel(attempt->device->backend, attempt->op))
		return HYS_OK;
	if (is_trusted(attempt, kernel))
		return HYS_OK;
	seek_reference(picker);
	if (!picker->reference) {
		hys_host_log(&context->host, HYS_LOG_WARNING,
			     "%s is not tested: there is no device for the reference",
			     kernel->name);
		return HYS_OK;
	}
	reference.context = picker->reference_context ? picker->reference_context : context;
	reference.device = picker->reference;
	status = hys_self_test(&site, &reference, &picker->plan->problem, kernel, program,
			       attempt->reason);
	return status == HYS_OK ? trust(attempt, kernel) : status;
}

static hys_status build(struct hys_attempt *attempt, const struct hys_kernel *kernel,
			void **program)
{
	struct hys_error error = {HYS_OK, 0, ""};
	hys_status status = hys_builds_take(attempt->picker, attempt->op, attempt->index, kernel,
					    program, &error);

	if (status != HYS_OK)
		snprintf(attempt->reason, sizeof(attempt->reason), "%.180s", error.message);
	return status;
}

/* What can be told without its program. */
static hys_status check(struct hys_attempt *attempt, const struct hys_kernel *kernel)
{
	const struct hys_problem *problem = &attempt->picker->plan->problem;
	hys_status status;

	attempt->reason[0] = '\0';
	HYS_TRY(check_needs(attempt, kernel));
	HYS_TRY(check_wanted(attempt, kernel));
	if (kernel->applicable &&
	    !kernel->applicable(kernel, attempt->device, problem, attempt->reason))
		HYS_TRY(HYS_UNSUPPORTED);
	HYS_TRY(check_memory(attempt, kernel));
cleanup:
	return status;
}

/* Whether the kernel can run; why not is left in the attempt. */
bool hys_attempt_try(struct hys_attempt *attempt, const struct hys_kernel *kernel, void **program)
{
	hys_status status;

	*program = NULL;
	attempt->last = kernel->name;
	HYS_TRY(check(attempt, kernel));
	HYS_TRY(build(attempt, kernel, program));
	HYS_TRY(check_itself(attempt, kernel, *program));
	return true;
cleanup:
	if (*program)
		attempt->device->backend->program_destroy(attempt->device, *program);
	*program = NULL;
	attempt->status = status;
	return false;
}

void hys_attempt_note(struct hys_attempt *attempt, const char *name, const char *reason)
{
	struct hys_choice *choice = attempt->choice;
	struct hys_text text = {choice->why_not, sizeof(choice->why_not), strlen(choice->why_not)};

	hys_text_add(&text, "%s%s: %s", text.length ? "\n" : "", name, reason);
}

/* ---- candidates ---- */

static bool in_list(const char *list, const char *name)
{
	const size_t length = strlen(name);

	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
			return true;
	}
	return false;
}

static const struct hys_kernel *find_kernel(const struct hys_backend *backend, hys_op op,
					    const char *name)
{
	for (int32_t i = 0; i < backend->kernel_count; i++)
		if (backend->kernels[i].op == op && strcmp(backend->kernels[i].name, name) == 0)
			return &backend->kernels[i];
	return NULL;
}

static void add_candidate(struct hys_candidates *candidates, const struct hys_kernel *kernel)
{
	for (int32_t i = 0; i < candidates->count; i++)
		if (candidates->kernels[i] == kernel)
			return;
	if (candidates->count < HYS_CANDIDATES_MAX)
		candidates->kernels[candidates->count++] = kernel;
}

/* Those of the list, or, without one, all but those whose tiles nobody measures. */
static void add_listed(const struct hys_attempt *attempt, const char *list,
		       struct hys_candidates *candidates)
{
	const struct hys_backend *backend = attempt->device->backend;
	const bool measures = attempt->picker->wish->effort == HYS_EFFORT_MEASURE;

	for (int32_t i = 0; i < backend->kernel_count; i++) {
		const struct hys_kernel *kernel = &backend->kernels[i];

		if (kernel->op == attempt->op &&
		    (list ? in_list(list, kernel->name) : measures || !kernel->resized))
			add_candidate(candidates, kernel);
	}
}

/* Wisdom's choice, if its kernel still exists. */
static void add_wise(const struct hys_attempt *attempt, struct hys_candidates *candidates)
{
	struct hys_context *context = attempt->picker->context;
	const struct hys_kernel *kernel = NULL;
	const char *name;

	pthread_mutex_lock(&context->lock);
	name = hys_wisdom_find(context->wisdom, attempt->op, attempt->picker->problem_hash,
			       hys_device_signature(attempt->device));
	if (name)
		kernel = find_kernel(attempt->device->backend, attempt->op, name);
	pthread_mutex_unlock(&context->lock);
	if (!kernel)
		return;
	add_candidate(candidates, kernel);
	candidates->why = "the fastest known (wisdom)";
}

static hys_status list_candidates(const struct hys_attempt *attempt,
				  struct hys_candidates *candidates, struct hys_error *error)
{
	const struct hys_wish *wish = attempt->picker->wish;
	const struct hys_kernel *fixed;

	memset(candidates, 0, sizeof(*candidates));
	candidates->only = true;
	if (wish->names) {
		fixed = find_kernel(attempt->device->backend, attempt->op,
				    wish->names[attempt->index][attempt->op]);
		if (!fixed)
			return hys_fail(
				error, HYS_FORMAT, 0,
				"the plan's file has the kernel %s for %s, which %s has not",
				wish->names[attempt->index][attempt->op], hys_op_name(attempt->op),
				attempt->device->backend->name);
		add_candidate(candidates, fixed);
		candidates->named = true;
		candidates->why = "from the plan's file";
		return HYS_OK;
	}
	if (wish->kernels)
		add_listed(attempt, wish->kernels, candidates);
	candidates->why = "asked for by options.kernels";
	candidates->named = candidates->count > 0;
	if (candidates->named)
		return HYS_OK;
	candidates->why = "most preferred that can run";
	if (wish->effort != HYS_EFFORT_MEASURE)
		add_wise(attempt, candidates);
	if (wish->effort == HYS_EFFORT_WISDOM && candidates->count == 0)
		return hys_fail(error, HYS_UNSUPPORTED, 0,
				"no wisdom for %s on %s: it was never measured there",
				hys_op_name(attempt->op), attempt->device->info.name);
	candidates->only = wish->effort == HYS_EFFORT_WISDOM;
	if (!candidates->only)
		add_listed(attempt, NULL, candidates);
	return HYS_OK;
}

/* ---- choosing ---- */

void hys_attempt_choose(struct hys_attempt *attempt, const struct hys_kernel *kernel, void *program,
			const char *why)
{
	attempt->choice->kernel = kernel;
	attempt->choice->program = program;
	snprintf(attempt->choice->why, sizeof(attempt->choice->why), "%s", why);
}

hys_status hys_attempt_fail(const struct hys_attempt *attempt, struct hys_error *error)
{
	if (!attempt->last)
		return hys_fail(error, HYS_UNSUPPORTED, 0, "%s has no kernel for %s",
				attempt->device->backend->name, hys_op_name(attempt->op));
	return hys_fail(error, attempt->status, 0, "no kernel for %s can run on %s; %s: %s",
			hys_op_name(attempt->op), attempt->device->info.name, attempt->last,
			attempt->reason);
}

static hys_status choose_first(struct hys_attempt *attempt, const struct hys_candidates *candidates,
			       struct hys_error *error)
{
	void *program;

	for (int32_t i = 0; i < candidates->count; i++) {
		if (hys_attempt_try(attempt, candidates->kernels[i], &program)) {
			hys_attempt_choose(attempt, candidates->kernels[i], program,
					   i == 0 || candidates->only
						   ? candidates->why
						   : "most preferred that can run");
			return HYS_OK;
		}
		hys_attempt_note(attempt, candidates->kernels[i]->name, attempt->reason);
	}
	return hys_attempt_fail(attempt, error);
}

static struct hys_attempt attempt_of(struct hys_picker *picker, hys_op op, int32_t device)
{
	const struct hys_attempt attempt = {
		.picker = picker,
		.op = op,
		.index = device,
		.device = picker->plan->devices[device],
		.choice = &picker->plan->choices[device * HYS_OP_COUNT + (int32_t)op],
	};
	return attempt;
}

const struct hys_kernel *hys_pick_likely(struct hys_picker *picker, hys_op op, int32_t device)
{
	struct hys_candidates candidates;
	struct hys_attempt attempt = attempt_of(picker, op, device);

	if (list_candidates(&attempt, &candidates, NULL) != HYS_OK)
		return NULL;
	attempt.named = candidates.named;
	for (int32_t i = 0; i < candidates.count; i++)
		if (check(&attempt, candidates.kernels[i]) == HYS_OK)
			return candidates.kernels[i];
	return NULL;
}

hys_status hys_pick_kernel(struct hys_picker *picker, hys_op op, int32_t device,
			   struct hys_error *error)
{
	struct hys_candidates candidates;
	struct hys_attempt attempt = attempt_of(picker, op, device);
	hys_status status = list_candidates(&attempt, &candidates, error);

	if (status != HYS_OK)
		return status;
	attempt.named = candidates.named;
	if (picker->wish->effort == HYS_EFFORT_MEASURE && !candidates.only)
		return hys_choose_fastest(&attempt, &candidates, error);
	return choose_first(&attempt, &candidates, error);
}
