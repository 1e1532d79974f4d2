/* plan_schedule.c - the phases of a training run, priced by one plan. */
#include "plan_schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COARSE_ENTRIES 128
#define KEY_PERIOD 20

/* The last piece of each ends with the run; shares are thousandths of its steps. */
static const struct preset {
	const char *name;
	int piece_count;
	struct {
		hys_phase phase;
		int from;
	} pieces[3];
	int64_t key_period;
} presets[] = {
	{"progressive",
	 3,
	 {{HYS_PHASE_DENSE, 0}, {HYS_PHASE_COARSE, 20}, {HYS_PHASE_COARSE_TO_FINE, 200}},
	 KEY_PERIOD},
	{"exact", 2, {{HYS_PHASE_DENSE, 0}, {HYS_PHASE_EXACT, 20}}, 0},
	{"dense", 1, {{HYS_PHASE_DENSE, 0}}, 0},
};

void plan_schedule_problem(struct hys_problem *problem)
{
	const int32_t block = problem->scoring.block > 0 ? problem->scoring.block : 1;

	if (problem->choosing.coarse_block == 0)
		problem->choosing.coarse_block =
			block < COARSE_ENTRIES ? COARSE_ENTRIES / block * block : block;
}

static const struct preset *find_preset(const char *name)
{
	for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
		if (strcmp(presets[i].name, name) == 0)
			return &presets[i];
	return NULL;
}

bool plan_schedule_known(const char *name)
{
	return find_preset(name) != NULL;
}

static hys_status make_schedule(const struct plan_schedule *wanted, const struct preset *preset,
				const struct hys_problem *problem, struct hys_schedule **schedule,
				struct hys_error *error)
{
	const int64_t entries = (int64_t)problem->choosing.topk_max * problem->scoring.block;
	struct hys_schedule_piece pieces[3] = {{0}};
	struct hys_schedule_options options = {
		.struct_size = sizeof options,
		.steps = wanted->steps,
		.layers = (int32_t)wanted->layers,
		.groups = problem->scoring.groups,
		.topk_max = (int32_t)(entries < INT32_MAX ? entries : INT32_MAX),
		.block = problem->scoring.block,
		.coarse_block = problem->choosing.coarse_block,
		.pieces = pieces,
		.piece_count = preset->piece_count,
		.key_period = preset->key_period};

	for (int i = 0; i < preset->piece_count; i++) {
		/* Each piece has a step at least, however short the run. */
		int64_t step = wanted->steps * preset->pieces[i].from / 1000;
		pieces[i].step = step < i ? i : step;
		pieces[i].phase = preset->pieces[i].phase;
		pieces[i].topk = pieces[i].phase == HYS_PHASE_DENSE ? 0 : options.topk_max;
	}
	return hys_schedule_create(&options, schedule, error);
}

/* ---- one phase ---- */

/* What the plan's device i takes for its rows of one operation, which see all keys: tensors and workspace. */
static hys_status op_bytes(const struct hys_plan *plan, const struct plan_schedule *wanted,
			   hys_op op, int32_t i, int64_t *bytes, struct hys_error *error)
{
	const int64_t rows = (int64_t)ceil(hys_plan_share(plan, op, i) * (double)wanted->rows);
	const struct hys_batch_desc last = {.struct_size = sizeof last,
					    .rows = rows,
					    .keys = wanted->tokens,
					    .flags = HYS_BATCH_CAUSAL};
	struct hys_batch *batch = NULL;
	struct hys_cost cost;
	int64_t workspace = 0;
	*bytes = 0;
	if (rows == 0 || !hys_plan_kernel(plan, op, i))
		return HYS_OK;
	hys_status status =
		hys_batch_create((struct hys_plan *)(uintptr_t)plan, &last, &batch, error);
	if (status == HYS_OK)
		status = hys_plan_cost(plan, op, batch, &cost, error);
	if (status == HYS_OK)
		status = hys_plan_workspace(plan, op, rows, i, &workspace, error);
	if (status == HYS_OK)
		*bytes = cost.tensor_bytes + workspace;
	hys_batch_destroy(batch);
	return status;
}

/* The most memory that one of the phase's operations takes on the plan's device i. */
static hys_status phase_bytes(const struct hys_plan *plan, const struct plan_schedule *wanted,
			      hys_phase phase, int32_t i, int64_t *most, struct hys_error *error)
{
	static const hys_op selects[HYS_PHASE_COUNT] = {
		HYS_OP_ATTENTION_FORWARD, HYS_OP_SELECT_COARSE, HYS_OP_SELECT_COARSE_TO_FINE,
		HYS_OP_SELECT};
	const hys_op ops[] = {selects[phase], HYS_OP_ATTENTION_FORWARD, HYS_OP_ATTENTION_BACKWARD,
			      HYS_OP_INDEXER_LOSS};
	hys_status status = HYS_OK;
	*most = 0;
	for (size_t o = 0; status == HYS_OK && o < sizeof ops / sizeof ops[0]; o++) {
		int64_t bytes;
		status = op_bytes(plan, wanted, ops[o], i, &bytes, error);
		if (status == HYS_OK && bytes > *most)
			*most = bytes;
	}
	return status;
}

static double seconds_of(const struct hys_schedule_cost *cost)
{
	return cost->select_s + cost->attend_s + cost->loss_s;
}

static void add_json(cJSON *line, const char *name, const struct hys_schedule_cost *cost)
{
	cJSON *part = cJSON_AddObjectToObject(line, name);
	cJSON_AddNumberToObject(part, "select_flops", cost->select_flops);
	cJSON_AddNumberToObject(part, "attend_flops", cost->attend_flops);
	cJSON_AddNumberToObject(part, "loss_flops", cost->loss_flops);
	cJSON_AddNumberToObject(part, "select_s", cost->select_s);
	cJSON_AddNumberToObject(part, "attend_s", cost->attend_s);
	cJSON_AddNumberToObject(part, "loss_s", cost->loss_s);
}

#define MEMORY_TEXT 160

/* "286 GiB", or of each device, as "286 GiB + 12 GiB". */
static void memory_text(const struct hys_plan *plan, const int64_t *bytes, char text[MEMORY_TEXT])
{
	text[0] = '\0';
	for (int32_t i = 0; bytes && i < hys_plan_device_count(plan); i++) {
		const size_t length = strlen(text);
		snprintf(text + length, MEMORY_TEXT - length, "%s%s", i ? " + " : "",
			 tool_bytes((double)bytes[i]));
	}
}

static void print_json(const struct hys_plan *plan, const char *phase, int64_t step,
		       const int64_t *bytes, const struct hys_schedule_cost cost[HYS_RUN_COUNT])
{
	cJSON *line = cJSON_CreateObject();
	cJSON *devices;
	cJSON_AddStringToObject(line, "phase", phase);
	cJSON_AddNumberToObject(line, "step", (double)step);
	devices = cJSON_AddArrayToObject(line, "device_bytes");
	for (int32_t i = 0; bytes && i < hys_plan_device_count(plan); i++)
		cJSON_AddItemToArray(devices, cJSON_CreateNumber((double)bytes[i]));
	add_json(line, "scheduled", &cost[HYS_RUN_SCHEDULED]);
	add_json(line, "always_exact", &cost[HYS_RUN_EXACT]);
	add_json(line, "always_dense", &cost[HYS_RUN_DENSE]);
	tool_json_line(line);
}

/* `bytes` of each device, NULL = not said. */
static void print_line(const struct plan_schedule *wanted, const struct hys_plan *plan,
		       const char *phase, int64_t step, const int64_t *bytes,
		       const struct hys_schedule_cost cost[HYS_RUN_COUNT])
{
	const struct hys_schedule_cost *own = &cost[HYS_RUN_SCHEDULED];
	const double seconds = seconds_of(own);
	char memory[MEMORY_TEXT];

	if (wanted->json) {
		print_json(plan, phase, step, bytes, cost);
		return;
	}
	memory_text(plan, bytes, memory);
	printf("%-16s %10lld %13s %13s %13s %11s %9.2fx %9.2fx  %s\n", phase, (long long)step,
	       tool_rate(own->select_flops, "FLOP"), tool_rate(own->attend_flops, "FLOP"),
	       tool_rate(own->loss_flops, "FLOP"), tool_time(seconds),
	       seconds_of(&cost[HYS_RUN_EXACT]) / seconds,
	       seconds_of(&cost[HYS_RUN_DENSE]) / seconds, memory);
}

/* Prices steps [first, first + count) as scheduled, exact and dense. */
static hys_status price_all(const struct hys_schedule *schedule, const struct hys_plan *plan,
			    int64_t first, int64_t count,
			    struct hys_schedule_cost cost[HYS_RUN_COUNT], struct hys_error *error)
{
	hys_status status = HYS_OK;

	for (int run = 0; status == HYS_OK && run < HYS_RUN_COUNT; run++)
		status = hys_schedule_price(schedule, plan, (hys_run)run, first, count, &cost[run],
					    error);
	return status;
}

/* One step priced and printed with the memory of its phase. */
static hys_status print_step(const struct plan_schedule *wanted,
			     const struct hys_schedule *schedule, const struct hys_plan *plan,
			     int64_t step, hys_phase phase, const char *name,
			     struct hys_error *error)
{
	const int32_t devices = hys_plan_device_count(plan);
	struct hys_schedule_cost cost[HYS_RUN_COUNT];
	int64_t *bytes = calloc((size_t)devices, sizeof *bytes);
	hys_status status;
	if (!bytes) {
		snprintf(error->message, sizeof error->message, "%d numbers", devices);
		return error->status = HYS_OUT_OF_MEMORY;
	}
	status = price_all(schedule, plan, step, 1, cost, error);
	for (int32_t i = 0; status == HYS_OK && i < devices; i++)
		status = phase_bytes(plan, wanted, phase, i, &bytes[i], error);
	if (status == HYS_OK)
		print_line(wanted, plan, name, step, bytes, cost);
	free(bytes);
	return status;
}

static hys_status print_phases(const struct plan_schedule *wanted, const struct preset *preset,
			       const struct hys_schedule *schedule, const struct hys_plan *plan,
			       struct hys_error *error)
{
	struct hys_schedule_cost cost[HYS_RUN_COUNT];
	struct hys_schedule_question question = {.struct_size = sizeof question};
	hys_status status;

	/* The first step of each phase that is no key step, then the key steps of the last. */
	for (int i = 0; i < preset->piece_count; i++) {
		struct hys_decision decision;
		question.step = wanted->steps * preset->pieces[i].from / 1000;
		question.step = question.step < i ? i : question.step;
		status = hys_schedule_decide(schedule, &question, &decision, error);
		if (status == HYS_OK && decision.key_step && question.step + 1 < wanted->steps)
			question.step++;
		if (status == HYS_OK)
			status = hys_schedule_decide(schedule, &question, &decision, error);
		if (status == HYS_OK)
			status = print_step(wanted, schedule, plan, question.step, decision.phase,
					    hys_phase_name(decision.phase), error);
		if (status != HYS_OK)
			return status;
	}
	question.step = preset->key_period
				? (wanted->steps - 1) / preset->key_period * preset->key_period
				: 0;
	if (question.step > wanted->steps * preset->pieces[preset->piece_count - 1].from / 1000) {
		status = print_step(wanted, schedule, plan, question.step, HYS_PHASE_EXACT,
				    "key step", error);
		if (status != HYS_OK)
			return status;
	}
	status = price_all(schedule, plan, 0, 0, cost, error);
	if (status == HYS_OK)
		print_line(wanted, plan, "whole run", wanted->steps, NULL, cost);
	return status;
}

static void print_head(const struct plan_schedule *wanted, const struct hys_schedule *schedule,
		       const struct hys_plan *plan)
{
	size_t size = hys_schedule_describe(schedule, plan, NULL, 0) + 1;
	char *text = malloc(size);

	if (text) {
		hys_schedule_describe(schedule, plan, text, size);
		printf("\nschedule %s: ", wanted->name);
		fputs(text, stdout);
	}
	free(text);
	printf("\nOne step, all %lld layers, forward, backward and loss; how many times longer the "
	       "same step takes always exact, always dense\n"
	       "%-16s %10s %13s %13s %13s %11s %10s %10s  %s\n",
	       (long long)wanted->layers, "phase", "step", "indexer", "attention", "loss",
	       "predicted", "exact", "dense",
	       hys_plan_device_count(plan) > 1 ? "memory of each device" : "memory");
}

int plan_schedule_print(const struct plan_schedule *wanted, const struct hys_plan *plan)
{
	const struct preset *preset = find_preset(wanted->name);
	struct hys_schedule *schedule = NULL;
	struct hys_error error;

	if (!preset)
		return tool_complain("--schedule '%s' is not known", wanted->name);
	hys_status status =
		make_schedule(wanted, preset, hys_plan_problem(plan), &schedule, &error);
	if (status == HYS_OK && !wanted->json)
		print_head(wanted, schedule, plan);
	if (status == HYS_OK)
		status = print_phases(wanted, preset, schedule, plan, &error);
	hys_schedule_destroy(schedule);
	return status == HYS_OK ? TOOL_OK : tool_failed("--schedule", &error);
}
