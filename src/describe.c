/* A plan as a table for people. */
#include <string.h>

#include "core.h"
#include "text.h"

#define DEVICE_COLUMN 23
#define KERNEL_COLUMN 31
#define WORKSPACE_COLUMN 63
#define WORK_COLUMN 75
#define WHY_COLUMN 87

/* One decimal, without the locale's point. */
static void add_bytes(struct hys_text *text, int64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	int64_t unit = 1;
	int32_t i = 0;

	for (; bytes / unit >= 1024 && i < 6; i++)
		unit *= 1024;
	if (i == 0)
		hys_text_add(text, "%lld B", (long long)bytes);
	else
		hys_text_add(text, "%lld.%d %s", (long long)(bytes / unit),
			     (int)(bytes % unit / (unit / 1024) * 10 / 1024), units[i]);
}

static void add_devices(struct hys_text *text, const struct hys_plan *plan)
{
	for (int32_t i = 0; i < plan->device_count; i++) {
		const struct hys_device_info *info = &plan->devices[i]->info;

		hys_text_add(text, "device %d: %s, %s; ", plan->device_numbers[i], info->backend,
			     info->name);
		if (plan->device_count == 1)
			hys_text_add(text, "100.0%% of the rows; ");
		if (plan->rows_most && plan->rows_most[i] < plan->rows_max)
			hys_text_add(text, "its memory holds %lld rows of a call; ",
				     (long long)plan->rows_most[i]);
		add_bytes(text, hys_workspace_max(plan, i));
		hys_text_add(text, " of workspace\n");
	}
}

static void add_why_not(struct hys_text *text, const char *lines)
{
	while (*lines) {
		const size_t length = strcspn(lines, "\n");
		const size_t start = text->length;

		hys_text_pad(text, start, KERNEL_COLUMN);
		hys_text_add(text, "not %.*s\n", (int)length, lines);
		lines += length;
		lines += *lines == '\n';
	}
}

/* How rows are shared; nothing with one device. */
static void add_split(struct hys_text *text, const struct hys_plan *plan)
{
	static const char *const splits[] = {
		[HYS_SPLIT_STATIC] = "rows are shared by speeds that are %s and frozen: same bits "
				     "every run\n",
		[HYS_SPLIT_GUIDED] =
			"rows are shared in shrinking pieces, first by speeds that are "
			"%s: sums over rows differ from run to run\n",
		[HYS_SPLIT_EQUAL] = "each device computes as many rows, speeds are %s\n",
	};

	if (plan->device_count > 1)
		hys_text_add(text, splits[plan->split], plan->pace_source);
}

static void add_share(struct hys_text *text, const struct hys_plan *plan, hys_op op, int32_t i)
{
	const int64_t permille = (int64_t)(hys_plan_share(plan, op, i) * 1000 + 0.5);

	if (plan->device_count < 2)
		return;
	hys_text_add(text, "; %lld.%lld%% of the rows", (long long)(permille / 10),
		     (long long)(permille % 10));
	if (plan->rows_most && plan->rows_most[i] == 0)
		hys_text_add(text, ": its memory is too small for the keys");
	else if (hys_plan_pace(plan, op, i)->idle)
		hys_text_add(text, ": it would save less than 2%% of the time");
	else if (permille == 0)
		hys_text_add(text, ": the others are done before its copies are");
}

static void add_choice(struct hys_text *text, const struct hys_plan *plan, hys_op op, int32_t i)
{
	const struct hys_choice *choice = hys_plan_choice(plan, op, i);
	const struct hys_size size = hys_plan_size_max(plan, op, hys_plan_rows_max(plan, op));
	const size_t start = text->length;
	struct hys_work work;

	hys_text_add(text, "%s", hys_op_name(op));
	hys_text_pad(text, start, DEVICE_COLUMN);
	hys_text_add(text, "%d", plan->device_numbers[i]);
	hys_text_pad(text, start, KERNEL_COLUMN);
	hys_text_add(text, "%s", choice->kernel->name);
	hys_text_pad(text, start, WORKSPACE_COLUMN);
	add_bytes(text, hys_workspace_bytes(plan, op, i, &size));
	hys_text_pad(text, start, WORK_COLUMN);
	work = hys_work_of(&plan->problem, NULL, plan->rows_max, plan->keys_max);
	hys_text_add_flops(text, hys_cost_flops(op, &plan->problem, &work));
	hys_text_pad(text, start, WHY_COLUMN);
	hys_text_add(text, "%s", choice->why);
	add_share(text, plan, op, i);
	hys_text_add(text, "\n");
	add_why_not(text, choice->why_not);
}

/* ---- the timeline ---- */

#define MICRO_BATCHES 4
#define TIME_COLUMNS 64

static double predicted_s(const struct hys_plan *plan, hys_op op)
{
	struct hys_cost cost = {0};

	if (!(plan->operations & HYS_OP_BIT(op)) ||
	    hys_plan_cost(plan, op, NULL, &cost, NULL) != HYS_OK)
		return 0;
	return cost.time_s;
}

/* One exec's work: micro-batch i from begin[i] on, for `each` seconds. */
static void add_bar(struct hys_text *text, const char *name, const double *begin, double each,
		    double column_s)
{
	const size_t start = text->length;
	int32_t at = 0;

	hys_text_add(text, "  %s", name);
	hys_text_pad(text, start, 13);
	for (int32_t i = 0; i < MICRO_BATCHES; i++) {
		const int32_t first = (int32_t)(begin[i] / column_s + 0.5);
		const int32_t end = (int32_t)((begin[i] + each) / column_s + 0.5);

		for (; at < first; at++)
			hys_text_add(text, ".");
		for (; at < end || at == first; at++)
			hys_text_add(text, "%d", i + 1);
	}
	hys_text_add(text, "\n");
}

/* Selection of the next micro-batch, or group of layers, while attention of
 * this one runs: two execs, the second waits for events of the first. */
static void add_timeline(struct hys_text *text, const struct hys_plan *plan)
{
	const double coarse_s = predicted_s(plan, HYS_OP_SELECT_COARSE_TO_FINE);
	const double exact_s = predicted_s(plan, HYS_OP_SELECT);
	const double select_s = exact_s > 0 ? exact_s : coarse_s;
	const double attend_s = predicted_s(plan, HYS_OP_ATTENTION_FORWARD) +
				predicted_s(plan, HYS_OP_ATTENTION_BACKWARD);
	double selects[MICRO_BATCHES], attends[MICRO_BATCHES], free_s = 0, all_s;

	if (!(select_s > 0) || !(attend_s > 0))
		return;
	for (int32_t i = 0; i < MICRO_BATCHES; i++) {
		selects[i] = i * select_s;
		attends[i] = selects[i] + select_s > free_s ? selects[i] + select_s : free_s;
		free_s = attends[i] + attend_s;
	}
	all_s = MICRO_BATCHES * (select_s + attend_s);
	hys_text_add(text, "timeline of %d micro-batches on two execs, predicted: ", MICRO_BATCHES);
	hys_text_add_seconds(text, free_s);
	hys_text_add(text, ", on one ");
	hys_text_add_seconds(text, all_s);
	hys_text_add(text, ", if the devices have room for both\n");
	add_bar(text, "select", selects, select_s, free_s / TIME_COLUMNS);
	add_bar(text, "attention", attends, attend_s, free_s / TIME_COLUMNS);
}

size_t hys_plan_describe(const struct hys_plan *plan, char *text, size_t size)
{
	struct hys_text out = {text, text ? size : 0, 0};
	size_t start;

	if (text && size > 0)
		text[0] = '\0';
	if (!plan)
		return 0;
	hys_text_add(&out, "calls of at most %lld rows over %lld keys", (long long)plan->rows_max,
		     (long long)plan->keys_max);
	if (plan->window_keys_max > 0)
		hys_text_add(&out, " and %lld of a second source",
			     (long long)plan->window_keys_max);
	hys_text_add(&out, "\n");
	add_devices(&out, plan);
	add_split(&out, plan);
	start = out.length;
	hys_text_add(&out, "operation");
	hys_text_pad(&out, start, DEVICE_COLUMN);
	hys_text_add(&out, "device");
	hys_text_pad(&out, start, KERNEL_COLUMN);
	hys_text_add(&out, "kernel");
	hys_text_pad(&out, start, WORKSPACE_COLUMN);
	hys_text_add(&out, "workspace");
	hys_text_pad(&out, start, WORK_COLUMN);
	hys_text_add(&out, "work");
	hys_text_pad(&out, start, WHY_COLUMN);
	hys_text_add(&out, "why\n");
	for (int32_t op = 0; op < HYS_OP_COUNT; op++)
		for (int32_t i = 0; i < plan->device_count; i++)
			if (plan->operations & HYS_OP_BIT(op))
				add_choice(&out, plan, (hys_op)op, i);
	add_timeline(&out, plan);
	return out.length;
}
