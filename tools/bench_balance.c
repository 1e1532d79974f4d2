/* bench_balance.c - how evenly devices of different speeds share a call. */
#include "bench_balance.h"

#include <stdlib.h>
#include <string.h>

#include "bench_documents.h"
#include "bench_halves.h"
#include "bench_trace.h"

#define DEVICES_MAX 16
#define WARM_UP_ROWS INT64_C(256)
#define REPEAT_MAX 64
#define OPERANDS_MAX 5

/* Ways of sharing. The plan that has learnt is the static one, re-balanced once from what that
 * one's calls took, so it comes later. */
enum { EQUAL, STATIC, LEARNT, GUIDED, WAYS };
static const char *const way_names[] = {"equal", "static", "rebalanced", "guided"};

/* Calls of a way that are timed: as many as take so long, or so many. Others use the machine,
 * too: cores of a virtual one are up to twice as slow for a hundredth of a second, or ten
 * seconds, one here, one there. So those of two ways take turns, and where rows are shared alike
 * in each call, what counts is the least that each piece of a device's rows ever took. Shares by
 * number are only to be compared with. */
#define TIMED_S 10
#define EQUAL_S 4
#define TIMED_LEAST 5
#define TIMED_MOST 100

#define SHAPES 3

/* What is computed. */
static const struct shape {
	const char *name;
	hys_op op;
	int32_t index_heads, index_dim, pool, heads, topk;
	int32_t documents; /* packed, of Zipf lengths; 0 = one causal document */
	int32_t often;	   /* of 1000 rows, those that use all of topk; the others a twentieth */
} shapes[2][SHAPES] = {
	/* for one core of a processor: pieces of some hundredths of a second */
	{{"causal", HYS_OP_SELECT, 4, 64, 64, 0, 16, 0, 0},
	 {"Zipf documents", HYS_OP_SELECT, 2, 32, 1, 0, 16, 512, 0},
	 {"5% of rows, 20 x keys", HYS_OP_ATTENTION_FORWARD, 0, 0, 1, 1, 640, 0, 50}},
	/* for whole devices: a second or some for a core, some milliseconds for a GPU */
	{{"causal", HYS_OP_SELECT, 4, 32, 1, 0, 64, 0, 0},
	 {"Zipf documents", HYS_OP_SELECT, 8, 64, 1, 0, 64, 64, 0},
	 {"5% of rows, 20 x keys", HYS_OP_ATTENTION_FORWARD, 0, 0, 1, 8, 1280, 0, 50}},
};

struct operands {
	void *memory[OPERANDS_MAX];
	int32_t count;
	struct hys_select_args select;
	struct hys_attention_args attention;
};

/* A plan at work, and what its timed calls took. */
struct way {
	struct hys_plan *plan;
	struct hys_batch *batch;
	struct hys_exec *exec;
	double times[REPEAT_MAX * TIMED_MOST], timed_s, all_s, begun_s;
	int calls;
	double busy[DEVICES_MAX], rows[DEVICES_MAX]; /* by device, of all calls */
	double imbalance, imbalance_of_all;
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
		select->index_k =
			take_real(operands, dtype, 2, rows / shape->pool, shape->index_dim, 0);
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

static bool is_due(const struct balance *b, const struct way *way)
{
	return way->calls < TIMED_LEAST ||
	       (way->all_s < way->timed_s * b->repeat && way->calls < TIMED_MOST * b->repeat);
}

/* Devices that are never busy do not count. */
static double imbalance_of(const double *busy, int32_t count)
{
	double most = 0, sum = 0;
	int32_t working = 0;
	for (int32_t i = 0; i < count; i++) {
		most = busy[i] > most ? busy[i] : most;
		sum += busy[i];
		working += busy[i] > 0;
	}
	return sum > 0 ? most * working / sum : 0;
}

/* Adds what devices took for a call to what they took for all. */
static void note_call(struct way *way, int32_t count, const struct hys_exec_report *before,
		      const struct hys_exec_report *after, double seconds)
{
	for (int32_t i = 0; i < count; i++) {
		way->busy[i] += after[i].busy_s - before[i].busy_s;
		way->rows[i] += (double)(after[i].rows - before[i].rows);
	}
	way->times[way->calls++] = seconds;
	way->all_s += seconds;
}

static bool read_reports(struct balance *b, const struct way *way, hys_op op,
			 struct hys_exec_report *reports)
{
	for (int32_t i = 0; i < hys_plan_device_count(way->plan); i++) {
		reports[i].struct_size = sizeof reports[i];
		if (hys_exec_report(way->exec, op, i, &reports[i], &b->error) != HYS_OK)
			return false;
	}
	return true;
}

static bool time_once(struct balance *b, const struct shape *shape, struct operands *operands,
		      struct way *way)
{
	struct hys_exec_report before[DEVICES_MAX], after[DEVICES_MAX];
	double start;
	if (!read_reports(b, way, shape->op, before))
		return false;
	start = tool_now();
	way->begun_s = way->calls ? way->begun_s : start;
	if (call(way->exec, way->batch, shape, operands, b->rows, &b->error) != HYS_OK)
		return false;
	start = tool_now() - start;
	if (!read_reports(b, way, shape->op, after))
		return false;
	note_call(way, hys_plan_device_count(way->plan), before, after, start);
	return true;
}

/* Two ways take turns, or one is alone. */
static bool time_ways(struct balance *b, const struct shape *shape, struct operands *operands,
		      struct way *one, struct way *other)
{
	for (;;) {
		const bool one_due = is_due(b, one);
		const bool other_due = other && is_due(b, other);
		if (!one_due && !other_due)
			return true;
		if (one_due && !time_once(b, shape, operands, one))
			return false;
		if (other_due && !time_once(b, shape, operands, other))
			return false;
	}
}

/* Guided, pieces differ from call to call; and traces take time, so there are none where devices
 * are compared with one alone. */
static bool is_traced(const struct balance *b, int w)
{
	return w != GUIDED && !b->compare;
}

/* What a device was busy beside its pieces counts as they do. */
static bool find_imbalance(struct balance *b, struct way *way, bool traced)
{
	double busy[DEVICES_MAX], parts[DEVICES_MAX];
	way->imbalance = way->imbalance_of_all = imbalance_of(way->busy, b->count);
	if (!traced)
		return true;
	if (!bench_trace_least(way->exec, way->begun_s, b->count, parts, &b->error))
		return false;
	for (int32_t i = 0; i < b->count; i++)
		busy[i] = way->busy[i] * parts[i];
	way->imbalance = imbalance_of(busy, b->count);
	return true;
}

static double share_of(const struct balance *b, const struct way *way, int32_t device)
{
	double all = 0;
	for (int32_t i = 0; i < b->count; i++)
		all += way->rows[i];
	return all > 0 ? way->rows[device] / all : 0;
}

static bool make_plan(struct balance *b, const struct shape *shape, const int32_t *devices,
		      int32_t count, uint32_t flags, struct hys_plan **plan)
{
	const struct hys_problem problem = {
		.struct_size = sizeof problem,
		.scoring = {.heads = shape->index_heads,
			    .dim = shape->index_dim,
			    .pool = shape->pool,
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

/* The plan is there. */
static bool open_way(struct balance *b, const struct shape *shape, struct operands *operands,
		     struct way *way, bool traced)
{
	const struct hys_exec_options options = {.struct_size = sizeof options,
						 .flags = traced ? HYS_EXEC_TRACE : 0};
	return make_batch(b, shape, way->plan, &way->batch) &&
	       hys_exec_create(way->plan, &options, &way->exec, &b->error) == HYS_OK &&
	       call(way->exec, way->batch, shape, operands, WARM_UP_ROWS, &b->error) == HYS_OK;
}

static void close_way(struct way *way)
{
	hys_exec_destroy(way->exec);
	hys_batch_destroy(way->batch);
	hys_plan_destroy(way->plan);
}

/* The reason for which a device has no rows stands in the plan's text. */
static void find_reason(const struct hys_plan *plan, char *reason, size_t size)
{
	char text[8192];
	const char *found;
	hys_plan_describe(plan, text, sizeof text);
	found = strstr(text, "0.0% of the rows: ");
	reason[0] = '\0';
	if (found)
		snprintf(reason, size, "%.*s", (int)strcspn(found + 18, "\n"), found + 18);
}

static bool run_ways(struct balance *b, const struct shape *shape, struct operands *operands,
		     struct way *ways)
{
	static const uint32_t flags[] = {[EQUAL] = HYS_PLAN_EQUAL, [GUIDED] = HYS_PLAN_GUIDED};
	bool ok = true;
	for (int w = 0; w < WAYS; w++)
		ways[w].timed_s = w == EQUAL ? EQUAL_S : TIMED_S;
	for (int w = 0; ok && w < WAYS; w++)
		if (w != LEARNT)
			ok = make_plan(b, shape, b->devices, b->count, flags[w], &ways[w].plan) &&
			     open_way(b, shape, operands, &ways[w], is_traced(b, w));
	ok = ok && time_ways(b, shape, operands, &ways[EQUAL], &ways[STATIC]) &&
	     hys_plan_rebalance(ways[STATIC].exec, &ways[LEARNT].plan, &b->error) == HYS_OK &&
	     open_way(b, shape, operands, &ways[LEARNT], is_traced(b, LEARNT)) &&
	     time_ways(b, shape, operands, &ways[LEARNT], &ways[GUIDED]);
	for (int w = 0; ok && w < WAYS; w++)
		ok = find_imbalance(b, &ways[w], is_traced(b, w));
	return ok;
}

/* ---- devices alone ---- */

static bool run_alone(struct balance *b, const struct shape *shape, int32_t device,
		      struct operands *operands, double *seconds)
{
	struct way *way = calloc(1, sizeof *way);
	if (way)
		way->timed_s = TIMED_S;
	bool ok = way && make_plan(b, shape, &b->devices[device], 1, 0, &way->plan) &&
		  open_way(b, shape, operands, way, false) &&
		  time_ways(b, shape, operands, way, NULL);
	*seconds = ok ? tool_median(way->times, way->calls) : 0;
	if (way)
		close_way(way);
	free(way);
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
	printf("imbalance: the longest busy time over the mean of all that work, %s\n"
	       "time: the median; shares: of the rows, by device; rebalanced: as static, once, by "
	       "what that one's calls took\n"
	       "%-22s %-18s %-6s ",
	       b->compare ? "of all calls together"
			  : "each piece of the rows at the least that it\ntook in any call; all: "
			    "of all calls together, and so for guided, where pieces differ",
	       "rows", "operation", "speeds");
	if (b->compare)
		printf("%*s ", 11 * (int)b->count, "alone, by device");
	printf(" %-10s %9s ", "split", "imbalance");
	if (!b->compare)
		printf("%6s ", "all");
	printf("%10s %5s ", "time", "calls");
	printf(b->compare ? "%6s  shares\n" : "  shares\n", "gain");
}

/* On the first line only. */
static void print_alone(const struct balance *b, const struct alone *alone)
{
	for (int32_t i = 0; i < b->count; i++)
		printf(" %10s", alone ? tool_time(alone->seconds[i]) : "");
	printf(" ");
}

static void print_way(const struct balance *b, const struct shape *shape, const struct alone *alone,
		      int w, struct way *way)
{
	const double seconds = tool_median(way->times, way->calls);
	char reason[256];
	printf("%-22s %-18s %-6s ", w ? "" : shape->name, w ? "" : hys_op_name(shape->op),
	       w ? "" : b->speeds);
	if (b->compare)
		print_alone(b, w ? NULL : alone);
	printf(" %-10s %9.3f ", way_names[w], way->imbalance);
	if (!b->compare)
		printf("%6.3f ", way->imbalance_of_all);
	printf("%10s %5d ", tool_time(seconds), way->calls);
	if (b->compare)
		printf("%5.2fx ", alone->fastest_s / seconds);
	for (int32_t i = 0; i < b->count; i++)
		printf(" %5.1f%%", 100 * share_of(b, way, i));
	find_reason(way->plan, reason, sizeof reason);
	printf("%s%s\n", reason[0] ? "  " : "", reason);
}

static void print_json(const struct balance *b, const struct shape *shape,
		       const struct alone *alone, int w, struct way *way)
{
	cJSON *line = cJSON_CreateObject(), *shares;
	char reason[256];
	cJSON_AddStringToObject(line, "rows", shape->name);
	cJSON_AddStringToObject(line, "op", hys_op_name(shape->op));
	cJSON_AddStringToObject(line, "speeds", b->speeds);
	cJSON_AddStringToObject(line, "split", way_names[w]);
	cJSON_AddNumberToObject(line, "imbalance", way->imbalance);
	cJSON_AddNumberToObject(line, "imbalance_of_all", way->imbalance_of_all);
	cJSON_AddNumberToObject(line, "seconds", tool_median(way->times, way->calls));
	cJSON_AddNumberToObject(line, "calls", way->calls);
	if (b->compare) {
		cJSON *times = cJSON_AddArrayToObject(line, "alone_s");
		for (int32_t i = 0; i < b->count; i++)
			cJSON_AddItemToArray(times, cJSON_CreateNumber(alone->seconds[i]));
	}
	shares = cJSON_AddArrayToObject(line, "shares");
	for (int32_t i = 0; i < b->count; i++)
		cJSON_AddItemToArray(shares, cJSON_CreateNumber(share_of(b, way, i)));
	find_reason(way->plan, reason, sizeof reason);
	cJSON_AddStringToObject(line, "reason", reason);
	tool_json_line(line);
}

static bool run_shape(struct balance *b, const struct shape *shape)
{
	struct operands operands;
	struct way *ways = calloc(WAYS, sizeof *ways);
	struct alone alone = {{0}, 0};
	bool ok = make_operands(&operands, shape, b->rows, b->dtype) && ways;
	if (!ok)
		b->error = (struct hys_error){HYS_OUT_OF_MEMORY, 0, "no memory for operands"};
	ok = ok && (!b->compare || find_alone(b, shape, &operands, &alone)) &&
	     run_ways(b, shape, &operands, ways);
	for (int w = 0; ok && w < WAYS; w++)
		(b->json ? print_json : print_way)(b, shape, &alone, w, &ways[w]);
	fflush(stdout);
	for (int w = 0; ways && w < WAYS; w++)
		close_way(&ways[w]);
	free(ways);
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
			ok = run_shape(b, &shapes[0][s]);
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
		if (!run_shape(b, &shapes[1][s]))
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
