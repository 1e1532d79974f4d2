/* What a run costs, and the run as a table. */
#include <math.h>

#include "schedule.h"
#include "text.h"

/* Stretches of a piece that are priced by their middle. */
#define STRETCHES 64

/* ---- one step ---- */

/* The plan's problem with the step's K, counted in entries, and phase. */
static struct hys_problem problem_of(const struct hys_plan *plan, hys_phase phase, double entries)
{
	struct hys_problem problem = plan->problem;

	problem.scoring.block = 1;
	problem.attending.granularity = 1;
	problem.choosing.topk_max = (int32_t)entries;
	problem.attending.flags &= ~HYS_ATTENDING_DENSE;
	if (phase == HYS_PHASE_DENSE) {
		problem.attending.flags |= HYS_ATTENDING_DENSE;
		problem.choosing.topk_max = INT32_MAX; /* the loss reads all entries too */
	}
	return problem;
}

/* Adds `times` times an operation to a sum of FLOPs and one of seconds. */
static void add_op(const struct hys_plan *plan, hys_op op, const struct hys_problem *problem,
		   double times, double *flops, double *seconds)
{
	const struct hys_work work = hys_work_of(problem, NULL, plan->rows_max, plan->keys_max);
	const double one = hys_cost_flops(op, problem, &work);

	*flops += times * one;
	*seconds += times * hys_cost_time_s(plan, op, one);
}

static hys_op select_op(hys_phase phase)
{
	static const hys_op ops[HYS_PHASE_COUNT] = {HYS_OP_SELECT, HYS_OP_SELECT_COARSE,
						    HYS_OP_SELECT_COARSE_TO_FINE, HYS_OP_SELECT};

	return ops[phase];
}

/* The layer's mean K over its groups. */
static double layer_entries(const struct hys_schedule *schedule, const struct hys_plan *plan,
			    int64_t step, int32_t layer)
{
	const int64_t keys = plan->keys_max / plan->problem.scoring.pool;
	double sum = 0;

	for (int32_t u = 0; u < schedule->options.groups; u++)
		sum += (double)hys_schedule_target(schedule, step, layer, u, keys);
	return ceil(sum / schedule->options.groups);
}

/* Adds `times` steps like `step`, of which `key` says whether it is a key
 * step. */
static void add_step(const struct hys_schedule *schedule, const struct hys_plan *plan, hys_run run,
		     int64_t step, bool key, double times, struct hys_schedule_cost *cost)
{
	int64_t end;
	const struct hys_schedule_piece *piece = hys_schedule_piece_at(schedule, step, &end);
	const double stride = piece->loss_row_stride > 0 ? piece->loss_row_stride : 1;
	hys_phase phase = hys_phase_finer(piece->phase, key);

	if (run == HYS_RUN_DENSE)
		phase = HYS_PHASE_DENSE;
	else if (run == HYS_RUN_EXACT && phase != HYS_PHASE_DENSE)
		phase = HYS_PHASE_EXACT;
	for (int32_t l = 0; l < schedule->options.layers; l++) {
		const int32_t source = run == HYS_RUN_EXACT ? l : hys_schedule_source(schedule, l);
		const struct hys_problem problem =
			problem_of(plan, phase, layer_entries(schedule, plan, step, source));

		if (phase != HYS_PHASE_DENSE && source == l)
			add_op(plan, select_op(phase), &problem, times, &cost->select_flops,
			       &cost->select_s);
		add_op(plan, HYS_OP_ATTENTION_FORWARD, &problem, times, &cost->attend_flops,
		       &cost->attend_s);
		add_op(plan, HYS_OP_ATTENTION_BACKWARD, &problem, times, &cost->attend_flops,
		       &cost->attend_s);
		if (source == l)
			add_op(plan, HYS_OP_INDEXER_LOSS, &problem, times / stride,
			       &cost->loss_flops, &cost->loss_s);
	}
}

/* ---- a stretch of the run ---- */

/* Multiples of `period` in [first, end). */
static int64_t multiples(int64_t first, int64_t end, int64_t period)
{
	return period > 0 ? (end - 1) / period - (first + period - 1) / period + 1 : 0;
}

/* Steps [first, end) of one piece. */
static void add_piece(const struct hys_schedule *schedule, const struct hys_plan *plan, hys_run run,
		      int64_t first, int64_t end, struct hys_schedule_cost *cost)
{
	const int64_t stretches = hys_min64(end - first, STRETCHES);

	for (int64_t i = 0; i < stretches; i++) {
		const int64_t a = first + (end - first) / stretches * i +
				  hys_min64(i, (end - first) % stretches);
		const int64_t b = a + (end - first) / stretches + (i < (end - first) % stretches);
		const int64_t keys = multiples(a, b, schedule->options.key_period);

		add_step(schedule, plan, run, a + (b - a) / 2, true, (double)keys, cost);
		add_step(schedule, plan, run, a + (b - a) / 2, false, (double)(b - a - keys), cost);
	}
}

static struct hys_schedule_cost price(const struct hys_schedule *schedule,
				      const struct hys_plan *plan, hys_run run, int64_t first,
				      int64_t end)
{
	struct hys_schedule_cost cost = {0};

	while (first < end) {
		int64_t piece_end;

		hys_schedule_piece_at(schedule, first, &piece_end);
		piece_end = hys_min64(piece_end, end);
		add_piece(schedule, plan, run, first, piece_end, &cost);
		first = piece_end;
	}
	return cost;
}

hys_status hys_schedule_price(const struct hys_schedule *schedule, const struct hys_plan *plan,
			      hys_run run, int64_t step_first, int64_t step_count,
			      struct hys_schedule_cost *cost, struct hys_error *error)
{
	hys_status status;

	if (!schedule || !plan || !cost)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				!schedule ? "schedule"
				: !plan	  ? "plan"
					  : "cost");
	HYS_TRY(hys_context_check(plan->context, error));
	HYS_TRY(hys_check_range(error, "run", (int64_t)run, 0, HYS_RUN_COUNT - 1));
	HYS_TRY(hys_check_range(error, "step_first", step_first, 0, schedule->options.steps - 1));
	HYS_TRY(hys_check_range(error, "step_count", step_count, 0,
				schedule->options.steps - step_first));
	*cost = price(schedule, plan, run, step_first,
		      step_count > 0 ? step_first + step_count : schedule->options.steps);
cleanup:
	return status;
}

/* ---- for people ---- */

#define PHASE_COLUMN 18
#define ENTRIES_COLUMN 34
#define INDEX_COLUMN 50
#define ROWS_COLUMN 58
#define PRICE_COLUMN 68
#define PRICE_WIDTH 24

static void add_seconds(struct hys_text *text, double seconds)
{
	if (isnan(seconds)) {
		hys_text_add(text, ", no kernel");
		return;
	}
	hys_text_add(text, ", ");
	hys_text_add_seconds(text, seconds);
}

static void add_prices(struct hys_text *text, size_t start, const struct hys_schedule_cost *cost)
{
	const double flops[] = {cost->select_flops, cost->attend_flops, cost->loss_flops};
	const double seconds[] = {cost->select_s, cost->attend_s, cost->loss_s};

	for (size_t i = 0; i < 3; i++) {
		hys_text_pad(text, start, PRICE_COLUMN + i * PRICE_WIDTH);
		if (flops[i] <= 0) {
			hys_text_add(text, "none");
			continue;
		}
		hys_text_add_flops(text, flops[i]);
		add_seconds(text, seconds[i]);
	}
}

static void add_entries(struct hys_text *text, const struct hys_schedule_piece *piece)
{
	if (piece->phase == HYS_PHASE_DENSE)
		hys_text_add(text, "all");
	else if (piece->topk > 0)
		hys_text_add(text, "%d", piece->topk);
	else
		hys_text_add(text, "%lld/1000", (long long)(piece->density * 1000 + 0.5));
	if (piece->topk > 0 && piece->topk_end > 0 && piece->topk_end != piece->topk)
		hys_text_add(text, " to %d", piece->topk_end);
	if (piece->topk == 0 && piece->density_end > 0)
		hys_text_add(text, " to %lld/1000", (long long)(piece->density_end * 1000 + 0.5));
}

static void add_piece_line(struct hys_text *text, const struct hys_schedule *schedule,
			   const struct hys_plan *plan, int32_t i)
{
	const struct hys_schedule_piece *piece = &schedule->options.pieces[i];
	const size_t start = text->length;
	int64_t end;

	hys_schedule_piece_at(schedule, piece->step, &end);
	hys_text_add(text, "%lld-%lld", (long long)piece->step, (long long)(end - 1));
	hys_text_pad(text, start, PHASE_COLUMN);
	hys_text_add(text, "%s", hys_phase_name(piece->phase));
	hys_text_pad(text, start, ENTRIES_COLUMN);
	add_entries(text, piece);
	hys_text_pad(text, start, INDEX_COLUMN);
	hys_text_add(text, "%d", hys_schedule_granularity(schedule, piece->phase));
	hys_text_pad(text, start, ROWS_COLUMN);
	hys_text_add(text, "1 in %d", piece->loss_row_stride > 0 ? piece->loss_row_stride : 1);
	if (plan) {
		const struct hys_schedule_cost cost =
			price(schedule, plan, HYS_RUN_SCHEDULED, piece->step, end);

		add_prices(text, start, &cost);
	}
	hys_text_add(text, "\n");
}

static void add_run_line(struct hys_text *text, const struct hys_schedule *schedule,
			 const struct hys_plan *plan, hys_run run, const char *name)
{
	const size_t start = text->length;
	const struct hys_schedule_cost cost =
		price(schedule, plan, run, 0, schedule->options.steps);

	hys_text_add(text, "%s", name);
	add_prices(text, start, &cost);
	hys_text_add(text, "\n");
}

static void add_rules(struct hys_text *text, const struct hys_schedule *schedule)
{
	const struct hys_schedule_options *options = &schedule->options;
	int32_t choosing = 0;

	for (int32_t l = 0; l < options->layers; l++)
		choosing += hys_schedule_source(schedule, l) == l;
	hys_text_add(text, "%lld steps, %d layers of which %d choose, %d groups\n",
		     (long long)options->steps, options->layers, choosing, options->groups);
	if (options->key_period > 0)
		hys_text_add(text, "every %lld steps a key step, one phase finer\n",
			     (long long)options->key_period);
	if (options->recall_floor > 0)
		hys_text_add(text,
			     "feedback every %lld steps: K goes down while recall is at least "
			     "%lld/1000\n",
			     (long long)options->feedback_period,
			     (long long)(options->recall_floor * 1000 + 0.5));
}

static void add_heading(struct hys_text *text, bool priced)
{
	static const char *const prices[] = {"select", "attend", "loss"};
	const size_t start = text->length;

	hys_text_add(text, "steps");
	hys_text_pad(text, start, PHASE_COLUMN);
	hys_text_add(text, "phase");
	hys_text_pad(text, start, ENTRIES_COLUMN);
	hys_text_add(text, "entries");
	hys_text_pad(text, start, INDEX_COLUMN);
	hys_text_add(text, "index");
	hys_text_pad(text, start, ROWS_COLUMN);
	hys_text_add(text, "loss");
	for (size_t i = 0; priced && i < 3; i++) {
		hys_text_pad(text, start, PRICE_COLUMN + i * PRICE_WIDTH);
		hys_text_add(text, "%s", prices[i]);
	}
	hys_text_add(text, "\n");
}

size_t hys_schedule_describe(const struct hys_schedule *schedule, const struct hys_plan *plan,
			     char *buffer, size_t size)
{
	struct hys_text text = {.at = buffer, .size = size};

	if (!schedule)
		return 0;
	add_rules(&text, schedule);
	add_heading(&text, plan != NULL);
	for (int32_t i = 0; i < schedule->options.piece_count; i++)
		add_piece_line(&text, schedule, plan, i);
	if (plan) {
		add_run_line(&text, schedule, plan, HYS_RUN_SCHEDULED, "whole run");
		add_run_line(&text, schedule, plan, HYS_RUN_EXACT, "always exact");
		add_run_line(&text, schedule, plan, HYS_RUN_DENSE, "always dense");
	}
	return text.length;
}
