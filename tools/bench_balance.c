/* bench_balance.c - how evenly devices of different speeds share a call. */
#include "bench_balance.h"

#include <stdlib.h>
#include <string.h>

#include "bench_documents.h"
#include "bench_halves.h"

#define DEVICES_MAX 16
#define WARM_UP_ROWS INT64_C(256)
#define REPEAT_MAX 64
#define OPERANDS_MAX 5
#define LESSONS 2 /* beside the one of the static split */

enum { EQUAL, STATIC, LEARNT, GUIDED, SPLITS };
static const char *const split_names[] = {"equal", "static", "rebalanced", "guided"};

/* Calls that are timed together, as many as take so long: what disturbs a device for some hundredths
 * of a second would be most of the imbalance of shorter ones. */
#define TIMED_S 2
#define TIMED_MOST 8

/* What is computed. Sizes are such that one takes a second or so on one core of a processor. */
static const struct shape {
	const char *name;
	hys_op op;
	int32_t index_heads, index_dim, heads, topk;
	int32_t documents; /* packed, of Zipf lengths; 0 = one causal document */
	int32_t often;	   /* of 1000 rows, those that use all of topk; the others a twentieth */
} shapes[] = {
	{"causal", HYS_OP_SELECT, 1, 32, 0, 64, 0, 0},
	{"Zipf documents", HYS_OP_SELECT, 8, 64, 0, 64, 64, 0},
	{"5% of rows, 20 x keys", HYS_OP_ATTENTION_FORWARD, 0, 0, 8, 1280, 0, 50},
};
#define SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

struct operands {
	void *memory[OPERANDS_MAX];
	int32_t count;
	struct hys_select_args select;
	struct hys_attention_args attention;
};

struct outcome {
	double seconds, imbalance, share[DEVICES_MAX];
	char reason[256]; /* why a device has nothing */
};

/* Each device by itself. */
struct alone {
	double seconds[DEVICES_MAX], fastest_s;
};

struct balance {
	struct hys_context *context;
	int32_t devices[DEVICES_MAX], count;
	const char *speeds; /* "1:4", or "" for what devices are */
	int64_t rows;
	int repeat;
	bool json, compare; /* with the fastest device alone */
	hys_dtype dtype;
	struct hys_error error;
};

/* ---- operands ---- */

static void *take(struct operands *operands, int64_t bytes)
{
	void *memory = malloc((size_t)bytes + 1);
	if (memory)
		operands->memory[operands->count++] = memory;
	return memory;
}

static struct hys_tensor take_real(struct operands *operands, hys_dtype dtype, int32_t rank,
				   int64_t n0, int64_t n1, int64_t n2)
{
	const int64_t n = n0 * n1 * (rank > 2 ? n2 : 1);
	void *values = take(operands, n * (int64_t)hys_dtype_size(dtype));
	uint32_t state = 1;
	for (int64_t i = 0; values && i < n; i++) {
		state = state * 1664525u + 1013904223u;
		tool_put(dtype, values, i, (double)(state >> 8) / 8388608.0 - 1);
	}
	return hys_host(values, dtype, rank, n0, n1, n2);
}

/* The heavy rows lie together, as in one document that needs more. */
static struct hys_tensor take_indices(struct operands *operands, const struct shape *shape,
				      int64_t rows)
{
	const int64_t topk = shape->topk, first = rows * 9 / 10;
	const int64_t heavy = rows * shape->often / 1000;
	int32_t *slots = take(operands, rows * topk * 4);
	for (int64_t t = 0; slots && t < rows; t++) {
		const int64_t wanted = t >= first && t < first + heavy ? topk : topk / 20;
		const int64_t used = wanted < t + 1 ? wanted : t + 1;
		for (int64_t i = 0; i < topk; i++)
			slots[t * topk + i] = i < used ? (int32_t)((t + 1) * i / used) : -1;
	}
	return hys_host(slots, HYS_I32, 3, rows, 1, topk);
}

static bool make_operands(struct operands *operands, const struct shape *shape, int64_t rows,
			  hys_dtype dtype)
{
	struct hys_select_args *select = &operands->select;
	struct hys_attention_args *attention = &operands->attention;
	memset(operands, 0, sizeof *operands);
	select->struct_size = sizeof *select;
	attention->struct_size = sizeof *attention;
	if (shape->op == HYS_OP_SELECT) {
		select->index_q =
			take_real(operands, dtype, 3, rows, shape->index_heads, shape->index_dim);
		select->index_k = take_real(operands, dtype, 2, rows, shape->index_dim, 0);
		select->indices = hys_host(take(operands, rows * shape->topk * 4), HYS_I32, 3, rows,
					   1, shape->topk);
		return select->index_q.host && select->index_k.host && select->indices.host;
	}
	attention->q = take_real(operands, dtype, 3, rows, shape->heads, 64);
	attention->k = take_real(operands, dtype, 3, rows, 1, 64);
	attention->v = take_real(operands, dtype, 3, rows, 1, 64);
	attention->indices = take_indices(operands, shape, rows);
	attention->o =
		hys_host(take(operands, rows * shape->heads * 64 * (int64_t)hys_dtype_size(dtype)),
			 dtype, 3, rows, shape->heads, 64);
	return attention->q.host && attention->k.host && attention->v.host &&
	       attention->indices.host && attention->o.host;
}

static void free_operands(struct operands *operands)
{
	for (int i = 0; i < OPERANDS_MAX; i++)
		free(operands->memory[i]);
}

/* ---- one call ---- */

static hys_status call(struct hys_exec *exec, struct hys_batch *batch, const struct shape *shape,
		       struct operands *operands, int64_t rows, struct hys_error *error)
{
	hys_status status;
	operands->select.row_count = operands->attention.row_count = rows;
	status = shape->op == HYS_OP_SELECT
			 ? hys_select(exec, batch, &operands->select, error)
			 : hys_attention_forward(exec, batch, &operands->attention, error);
	return status == HYS_OK ? hys_exec_finish(exec, error) : status;
}

/* The mean time of calls that are timed together. */
static bool time_calls(struct balance *b, struct hys_exec *exec, struct hys_batch *batch,
		       const struct shape *shape, struct operands *operands, double *seconds)
{
	const double start = tool_now();
	double all = 0;
	int calls = 0;
	while (all < TIMED_S && calls < TIMED_MOST) {
		if (call(exec, batch, shape, operands, b->rows, &b->error) != HYS_OK)
			return false;
		calls++;
		all = tool_now() - start;
	}
	*seconds = all / calls;
	return true;
}

static bool busy_times(struct balance *b, struct hys_exec *exec, hys_op op, double *busy,
		       double *rows)
{
	struct hys_exec_report report = {.struct_size = sizeof report};
	for (int32_t i = 0; i < b->count; i++) {
		if (hys_exec_report(exec, op, i, &report, &b->error) != HYS_OK)
			return false;
		busy[i] = report.busy_s;
		rows[i] = (double)report.rows;
	}
	return true;
}

/* Devices that have no rows do not count. */
static bool time_once(struct balance *b, struct hys_exec *exec, struct hys_batch *batch,
		      const struct shape *shape, struct operands *operands, struct outcome *outcome)
{
	double before[DEVICES_MAX] = {0}, rows_before[DEVICES_MAX] = {0};
	double busy[DEVICES_MAX] = {0}, rows[DEVICES_MAX] = {0};
	double most = 0, sum = 0, all = 0;
	int32_t working = 0;
	if (!busy_times(b, exec, shape->op, before, rows_before) ||
	    !time_calls(b, exec, batch, shape, operands, &outcome->seconds) ||
	    !busy_times(b, exec, shape->op, busy, rows))
		return false;
	for (int32_t i = 0; i < b->count; i++) {
		busy[i] -= before[i];
		rows[i] -= rows_before[i];
		most = busy[i] > most ? busy[i] : most;
		sum += busy[i];
		all += rows[i];
		working += rows[i] > 0;
	}
	for (int32_t i = 0; i < b->count; i++)
		outcome->share[i] = all > 0 ? rows[i] / all : 0;
	outcome->imbalance = sum > 0 ? most / (sum / (working ? working : 1)) : 0;
	return true;
}

/* Medians of several timings. */
static bool time_call(struct balance *b, struct hys_exec *exec, struct hys_batch *batch,
		      const struct shape *shape, struct operands *operands, struct outcome *outcome)
{
	double seconds[REPEAT_MAX], imbalance[REPEAT_MAX];
	if (call(exec, batch, shape, operands, WARM_UP_ROWS, &b->error) != HYS_OK)
		return false;
	for (int i = 0; i < b->repeat; i++) {
		if (!time_once(b, exec, batch, shape, operands, outcome))
			return false;
		seconds[i] = outcome->seconds;
		imbalance[i] = outcome->imbalance;
	}
	outcome->seconds = tool_median(seconds, b->repeat);
	outcome->imbalance = tool_median(imbalance, b->repeat);
	return true;
}

static bool make_plan(struct balance *b, const struct shape *shape, const int32_t *devices,
		      int32_t count, uint32_t flags, struct hys_plan **plan)
{
	const struct hys_problem problem = {
		.struct_size = sizeof problem,
		.scoring = {.heads = shape->index_heads,
			    .dim = shape->index_dim,
			    .dtype = b->dtype},
		.choosing = {.topk_max = shape->topk},
		.attending = {.heads = shape->heads,
			      .kv_heads = shape->heads ? 1 : 0,
			      .head_dim = shape->heads ? 64 : 0,
			      .dtype = b->dtype},
	};
	const struct hys_plan_options wanted = {.struct_size = sizeof wanted,
						.operations = HYS_OP_BIT(shape->op),
						.flags = flags,
						.devices = devices,
						.device_count = count,
						.rows_max = b->rows,
						.keys_max = b->rows,
						.progress = tool_plan_progress};
	return hys_plan_create(b->context, &problem, &wanted, plan, &b->error) == HYS_OK;
}

static bool make_batch(struct balance *b, const struct shape *shape, struct hys_plan *plan,
		       struct hys_batch **batch)
{
	int32_t starts[1025];
	struct hys_batch_desc desc = {.struct_size = sizeof desc,
				      .rows = b->rows,
				      .keys = b->rows,
				      .flags = HYS_BATCH_CAUSAL,
				      .documents = shape->documents};
	if (shape->documents) {
		bench_zipf((int32_t)b->rows, shape->documents, starts);
		desc.cu_seqlens_q = starts;
	}
	return hys_batch_create(plan, &desc, batch, &b->error) == HYS_OK;
}

/* The call on a plan; *learnt, when wanted, is the plan that has learnt from it. */
static bool run_plan(struct balance *b, const struct shape *shape, struct hys_plan *plan,
		     struct operands *operands, struct outcome *outcome, struct hys_plan **learnt)
{
	struct hys_batch *batch = NULL;
	struct hys_exec *exec = NULL;
	bool ok = make_batch(b, shape, plan, &batch) &&
		  hys_exec_create(plan, NULL, &exec, &b->error) == HYS_OK &&
		  time_call(b, exec, batch, shape, operands, outcome);
	if (ok && learnt)
		ok = hys_plan_rebalance(exec, learnt, &b->error) == HYS_OK;
	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
	return ok;
}

/* The reason for which a device has no rows stands in the plan's text. */
static void find_reason(const struct hys_plan *plan, struct outcome *outcome)
{
	char text[8192];
	const char *found;
	hys_plan_describe(plan, text, sizeof text);
	found = strstr(text, "0.0% of the rows: ");
	outcome->reason[0] = '\0';
	if (found)
		snprintf(outcome->reason, sizeof outcome->reason, "%.*s",
			 (int)strcspn(found + 18, "\n"), found + 18);
}

/* Devices that disturb each other are as fast as their shares let them be: what is learnt from one
 * call is corrected by the next. */
static bool run_learnt(struct balance *b, const struct shape *shape, struct hys_plan **learnt,
		       struct operands *operands, struct outcome *outcome)
{
	for (int i = 0; i < LESSONS; i++) {
		struct hys_plan *next = NULL;
		if (!run_plan(b, shape, *learnt, operands, outcome, &next))
			return false;
		hys_plan_destroy(*learnt);
		*learnt = next;
	}
	return run_plan(b, shape, *learnt, operands, outcome, NULL);
}

static bool run_splits(struct balance *b, const struct shape *shape, struct operands *operands,
		       struct outcome *outcomes)
{
	static const uint32_t flags[] = {HYS_PLAN_EQUAL, 0, 0, HYS_PLAN_GUIDED};
	struct hys_plan *plan = NULL, *learnt = NULL;
	bool ok = true;
	for (int split = 0; ok && split < SPLITS; split++) {
		if (split == LEARNT) {
			ok = run_learnt(b, shape, &learnt, operands, &outcomes[split]);
			if (ok)
				find_reason(learnt, &outcomes[split]);
			continue;
		}
		ok = make_plan(b, shape, b->devices, b->count, flags[split], &plan) &&
		     run_plan(b, shape, plan, operands, &outcomes[split],
			      split == STATIC ? &learnt : NULL);
		if (ok)
			find_reason(plan, &outcomes[split]);
		hys_plan_destroy(plan);
		plan = NULL;
	}
	hys_plan_destroy(learnt);
	return ok;
}

/* ---- devices alone ---- */

/* The median of several timings on one device. */
static bool run_alone(struct balance *b, const struct shape *shape, int32_t device,
		      struct operands *operands, double *seconds)
{
	double times[REPEAT_MAX];
	struct hys_plan *plan = NULL;
	struct hys_batch *batch = NULL;
	struct hys_exec *exec = NULL;
	bool ok = make_plan(b, shape, &b->devices[device], 1, 0, &plan) &&
		  make_batch(b, shape, plan, &batch) &&
		  hys_exec_create(plan, NULL, &exec, &b->error) == HYS_OK &&
		  call(exec, batch, shape, operands, WARM_UP_ROWS, &b->error) == HYS_OK;
	for (int i = 0; ok && i < b->repeat; i++)
		ok = time_calls(b, exec, batch, shape, operands, &times[i]);
	*seconds = ok ? tool_median(times, b->repeat) : 0;
	hys_exec_destroy(exec);
	hys_batch_destroy(batch);
	hys_plan_destroy(plan);
	return ok;
}

static bool find_alone(struct balance *b, const struct shape *shape, struct operands *operands,
		       struct alone *alone)
{
	for (int32_t i = 0; i < b->count; i++) {
		if (!run_alone(b, shape, i, operands, &alone->seconds[i]))
			return false;
		if (i == 0 || alone->seconds[i] < alone->fastest_s)
			alone->fastest_s = alone->seconds[i];
	}
	return true;
}

/* ---- reporting ---- */

static void print_head(const struct balance *b)
{
	printf("imbalance: the longest busy time over the mean of all that work; shares: of the "
	       "rows, by device\n%-22s %-18s %-6s ",
	       "rows", "operation", "speeds");
	if (b->compare)
		printf("%*s ", 11 * (int)b->count, "alone, by device");
	printf(" %-10s %9s %10s ", "split", "imbalance", "time");
	printf(b->compare ? "%6s  shares\n" : "  shares\n", "gain");
}

/* On the first line only. */
static void print_alone(const struct balance *b, const struct alone *alone)
{
	for (int32_t i = 0; i < b->count; i++)
		printf(" %10s", alone ? tool_time(alone->seconds[i]) : "");
	printf(" ");
}

static void print_outcome(const struct balance *b, const struct shape *shape,
			  const struct alone *alone, int split, const struct outcome *outcome)
{
	printf("%-22s %-18s %-6s ", split ? "" : shape->name, split ? "" : hys_op_name(shape->op),
	       split ? "" : b->speeds);
	if (b->compare)
		print_alone(b, split ? NULL : alone);
	printf(" %-10s %9.3f %10s ", split_names[split], outcome->imbalance,
	       tool_time(outcome->seconds));
	if (b->compare)
		printf("%5.2fx ", alone->fastest_s / outcome->seconds);
	for (int32_t i = 0; i < b->count; i++)
		printf(" %5.1f%%", 100 * outcome->share[i]);
	printf("%s%s\n", outcome->reason[0] ? "  " : "", outcome->reason);
}

static void print_json(const struct balance *b, const struct shape *shape,
		       const struct alone *alone, int split, const struct outcome *outcome)
{
	cJSON *line = cJSON_CreateObject(), *shares;
	cJSON_AddStringToObject(line, "rows", shape->name);
	cJSON_AddStringToObject(line, "op", hys_op_name(shape->op));
	cJSON_AddStringToObject(line, "speeds", b->speeds);
	cJSON_AddStringToObject(line, "split", split_names[split]);
	cJSON_AddNumberToObject(line, "imbalance", outcome->imbalance);
	cJSON_AddNumberToObject(line, "seconds", outcome->seconds);
	if (b->compare) {
		cJSON *times = cJSON_AddArrayToObject(line, "alone_s");
		for (int32_t i = 0; i < b->count; i++)
			cJSON_AddItemToArray(times, cJSON_CreateNumber(alone->seconds[i]));
	}
	shares = cJSON_AddArrayToObject(line, "shares");
	for (int32_t i = 0; i < b->count; i++)
		cJSON_AddItemToArray(shares, cJSON_CreateNumber(outcome->share[i]));
	cJSON_AddStringToObject(line, "reason", outcome->reason);
	tool_json_line(line);
}

static bool run_shape(struct balance *b, const struct shape *shape)
{
	struct operands operands;
	struct outcome outcomes[SPLITS];
	struct alone alone = {{0}, 0};
	bool ok = make_operands(&operands, shape, b->rows, b->dtype);
	memset(outcomes, 0, sizeof outcomes);
	if (!ok)
		b->error = (struct hys_error){HYS_OUT_OF_MEMORY, 0, "no memory for operands"};
	ok = ok && (!b->compare || find_alone(b, shape, &operands, &alone)) &&
	     run_splits(b, shape, &operands, outcomes);
	for (int split = 0; ok && split < SPLITS; split++)
		(b->json ? print_json : print_outcome)(b, shape, &alone, split, &outcomes[split]);
	fflush(stdout);
	free_operands(&operands);
	return ok;
}

/* ---- devices ---- */

/* Two halves of one device, the second one slowed down. */
static int run_halves(struct balance *b, const char *only)
{
	static const char *const speeds[] = {"1:1", "1:2", "1:4"};
	static const char *const slow[] = {"1,1", "1,2", "1,4"};
	int result = TOOL_OK;
	for (int i = 0; i < 3 && result == TOOL_OK; i++) {
		if (only && strcmp(only, speeds[i]) != 0)
			continue;
		struct hys_native_device halves[2];
		struct hys_context_options options = {.struct_size = sizeof options,
						      .devices = "",
						      .natives = halves,
						      .native_count = 2};
		if (!bench_halves_make(halves))
			return tool_complain("no OpenCL device divides in two; name devices that "
					     "differ with --device");
		setenv("HYS_SLOW", slow[i], 1);
		b->speeds = speeds[i];
		b->count = 2;
		b->devices[0] = 0;
		b->devices[1] = 1;
		bool ok = hys_context_create(&options, &b->context, &b->error) == HYS_OK;
		for (int s = 0; ok && s < SHAPES; s++)
			ok = run_shape(b, &shapes[s]);
		if (!ok)
			result = tool_failed("balance", &b->error);
		hys_context_destroy(b->context);
		b->context = NULL;
		bench_halves_free(halves);
	}
	unsetenv("HYS_SLOW");
	return result;
}

static int run_devices(struct balance *b, const char *device, bool twice)
{
	int32_t *numbers, count;
	int result = tool_open(device, &b->context, &numbers, &count);
	if (result != TOOL_OK)
		return result;
	b->speeds = "own";
	count = twice ? 2 * count : count;
	b->count = count < DEVICES_MAX ? count : DEVICES_MAX;
	for (int32_t i = 0; i < b->count; i++)
		b->devices[i] = numbers[twice ? i / 2 : i];
	if (b->count < 2)
		result = tool_complain("one device cannot share, expected several");
	for (int s = 0; s < SHAPES && result == TOOL_OK; s++)
		if (!run_shape(b, &shapes[s]))
			result = tool_failed("balance", &b->error);
	free(numbers);
	hys_context_destroy(b->context);
	return result;
}

int bench_balance(const struct bench *bench)
{
	struct balance b = {.rows = bench->rows_given ? bench->rows : 32768,
			    .repeat = bench->repeat_given ? (int)bench->repeat : 1,
			    .json = bench->json,
			    .dtype = bench->dtype ? bench->dtype : HYS_F32};
	if (b.rows < 2 * WARM_UP_ROWS)
		return tool_complain("--rows is %lld, expected %lld or more", (long long)b.rows,
				     (long long)(2 * WARM_UP_ROWS));
	b.compare = bench->device != NULL;
	if (b.repeat > REPEAT_MAX)
		return tool_complain("--repeat is %d, expected %d or less", b.repeat, REPEAT_MAX);
	if (!b.json)
		print_head(&b);
	return bench->device ? run_devices(&b, bench->device, bench->twice)
			     : run_halves(&b, bench->speeds);
}
