#include "suite.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>

#include <setjmp.h>
#include <cmocka.h>

#include "halves.h"
#include "oracle.h"
#include "oracle_internal.h"

const int32_t suite_edges[SUITE_EDGES] = {1, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129};
static const unsigned placements[] = {0, PLACE_PITCHED, PLACE_PITCHED | PLACE_SWAPPED,
				      PLACE_PITCHED | PLACE_BUFFER};
struct suite_placements suite_placements = {placements, 4};

#define ROWS_MAX 512

void (*suite_prepare)(struct hys_context *context);

struct suite {
	struct hys_context *context;
	struct hys_native_device halves[2];
	struct suite_row rows[ROWS_MAX];
	int32_t row_count;
};

static struct suite *now; /* the one that suite_next goes through */
static int32_t row_at, failures;
static const struct suite_row *current;

/* ---- devices and rows ---- */

static void print_log(void *user, hys_log_level level, const char *message)
{
	(void)user;
	if (level == HYS_LOG_ERROR)
		print_message("log: %s\n", message);
}

/* Names of the capabilities that the row needs and the device lacks. */
static void name_lacking(struct suite_row *row)
{
	const struct hys_backend *backend = row->info->backend;
	const uint64_t lacking = row->kernel->needs & ~row->info->capabilities;
	size_t used = (size_t)snprintf(row->reason, sizeof(row->reason), "the device lacks");

	row->incapable = true;
	for (int32_t bit = 0; backend->capability_names[bit]; bit++)
		if ((lacking >> bit & 1) && used < sizeof(row->reason))
			used += (size_t)snprintf(row->reason + used, sizeof(row->reason) - used,
						 " %s", backend->capability_names[bit]);
}

static void list_rows(int32_t device, uint32_t ops)
{
	const struct hys_device *info = now->context->devices[device];
	const char *only = getenv("HYS_TEST_KERNELS");

	for (int32_t i = 0; i < info->backend->kernel_count; i++) {
		struct suite_row *row = &now->rows[now->row_count];

		if (only && fnmatch(only, info->backend->kernels[i].name, 0) != 0)
			continue;
		if (!(ops & HYS_OP_BIT(info->backend->kernels[i].op)) || now->row_count == ROWS_MAX)
			continue;
		*row = (struct suite_row){.devices = {device},
					  .device_count = 1,
					  .info = info,
					  .kernel = &info->backend->kernels[i]};
		if (row->kernel->needs & ~info->capabilities)
			name_lacking(row);
		now->row_count++;
	}
}

static void list_devices(const int32_t *devices, int32_t count)
{
	struct suite_row *row = &now->rows[now->row_count++];

	*row = (struct suite_row){.device_count = count, .info = now->context->devices[devices[0]]};
	memcpy(row->devices, devices, (size_t)count * sizeof(*devices));
}

/* First device whose memory is the host's, or is not; -1 without one. */
static int32_t find_device(bool host_memory)
{
	for (int32_t i = 0; i < now->context->device_count; i++)
		if (now->context->devices[i]->host_memory == host_memory)
			return i;
	return -1;
}

static void list_several(void)
{
	const int32_t cpu = find_device(true), other = find_device(false);

	list_devices((const int32_t[]){cpu, cpu}, 2);
	list_devices((const int32_t[]){cpu, cpu, cpu}, 3);
	if (other >= 0)
		list_devices((const int32_t[]){other, cpu}, 2);
}

static void list_all(enum suite_over over, uint32_t ops)
{
	now->row_count = 0;
	if (over == SUITE_SEVERAL)
		list_several();
	if (over == SUITE_HALVES)
		list_devices((const int32_t[]){0, 1}, 2);
	for (int32_t i = 0; i < now->context->device_count; i++) {
		if (over == SUITE_KERNELS)
			list_rows(i, ops);
		if (over == SUITE_DEVICES)
			list_devices(&i, 1);
	}
}

/* Gives every OpenCL device the capability that HYS_TEST_GRANT names. */
static void grant(void)
{
	const char *name = getenv("HYS_TEST_GRANT");

	for (int32_t i = 0; name && i < now->context->device_count; i++) {
		struct hys_device *device = now->context->devices[i];

		for (int32_t bit = 0; device->backend->capability_names[bit]; bit++)
			if (strcmp(device->backend->capability_names[bit], name) == 0)
				device->capabilities |= UINT64_C(1) << bit;
	}
}

/* Ends the process where there is nothing to divide. */
static void take_halves(struct hys_context_options *options)
{
	char why[96];

	if (!halves_make(now->halves, why, sizeof(why))) {
		print_message("skipped: %s\n", why);
		exit(SUITE_SKIPPED);
	}
	options->devices = "";
	options->natives = now->halves;
	options->native_count = 2;
}

struct suite *suite_begin(enum suite_over over, uint32_t ops, int32_t threads)
{
	struct hys_context_options options = {
		.struct_size = sizeof(options), .log = print_log, .threads = threads};
	struct hys_error error;

	options.devices = getenv("HYS_TEST_DEVICES");
	if (threads > 0)
		options.devices = "openmp";

	now = ora_alloc(1, sizeof(*now));
	if (over == SUITE_HALVES)
		take_halves(&options);
	if (hys_context_create(&options, &now->context, &error) != HYS_OK) {
		print_error("no context: %s\n", error.message);
		exit(1);
	}
	grant();
	if (suite_prepare)
		suite_prepare(now->context);
	list_all(over, ops);
	return now;
}

void suite_use(struct suite *suite)
{
	now = suite;
}

void suite_end(void)
{
	hys_context_destroy(now->context);
	if (now->halves[0].backend)
		halves_free(now->halves);
	free(now);
	now = NULL;
}

int32_t suite_failures(void)
{
	const int32_t count = failures;

	failures = 0;
	return count;
}

static void say_what_is_missing(void)
{
	if (find_device(false) < 0)
		print_message("no OpenCL device here: OpenCL kernels are skipped%s%s\n",
			      now->context->rejected_count > 0 ? ": " : "",
			      now->context->rejected_count > 0 ? now->context->rejected[0].reason
							       : "");
}

static bool uses_opencl(const struct suite_row *row)
{
	for (int32_t i = 0; i < row->device_count; i++)
		if (!now->context->devices[row->devices[i]]->host_memory)
			return true;
	return false;
}

static const char *kernel_of(const struct suite_row *row)
{
	return row->kernel ? row->kernel->name : row->device_count > 1 ? "several" : "planned";
}

/* ---- one run ---- */

static void close_run(struct suite_run *run)
{
	hys_exec_destroy(run->exec);
	hys_batch_destroy(run->batch);
	hys_plan_destroy(run->plan);
	run->exec = NULL;
	run->batch = NULL;
	run->plan = NULL;
}

static hys_status make_plan(struct suite_run *run, const struct suite_want *want)
{
	const struct hys_plan_options options = {
		.struct_size = sizeof(options),
		.operations = HYS_OP_BIT(want->op) | (run->row->kernel ? 0 : want->more_ops),
		/* Of so few rows a device may be left out otherwise. */
		.flags = run->row->device_count > 1 ? HYS_PLAN_EQUAL : 0,
		.devices = run->row->devices,
		.device_count = run->row->device_count,
		.rows_max = ora_max(want->rows, 1),
		.keys_max = ora_max(want->keys, 1),
		.window_keys_max = want->window_keys,
		.kernels = run->row->kernel ? run->row->kernel->name : NULL,
	};

	return hys_plan_create(now->context, want->problem, &options, &run->plan, &run->error);
}

static bool open_run(struct suite_run *run, const struct suite_want *want)
{
	hys_status status = make_plan(run, want);

	if (status == HYS_OK)
		status = hys_exec_create(run->plan, NULL, &run->exec, &run->error);
	if (status == HYS_OK)
		status = hys_batch_create(run->plan, want->desc, &run->batch, &run->error);
	if (status == HYS_OK)
		return true;
	suite_fail(run, "%s: %s", hys_status_name(status), run->error.message);
	close_run(run);
	return false;
}

/* A plan for a row that says that it is not for this must be refused, with the row's
 * own reason. */
static void check_refused(struct suite_run *run, const struct suite_want *want)
{
	hys_status status = make_plan(run, want);

	if (status != HYS_UNSUPPORTED)
		suite_fail(run, "plan answers %s, expected HYS_UNSUPPORTED",
			   hys_status_name(status));
	else if (!strstr(run->error.message, run->row->reason))
		suite_fail(run, "the plan's message \"%s\" lacks the reason \"%s\"",
			   run->error.message, run->row->reason);
	close_run(run);
}

static bool is_for(struct suite_row *row, const struct suite_want *want)
{
	struct hys_problem problem = *want->problem;
	struct hys_error error;

	if (hys_problem_complete(&problem, &error) != HYS_OK) {
		print_error("%s: the problem is refused: %s\n", want->about->name, error.message);
		failures++;
		return false;
	}
	return !row->kernel || !row->kernel->applicable ||
	       row->kernel->applicable(row->kernel, row->info, &problem, row->reason);
}

bool suite_next(struct suite_run *run, const struct suite_want *want)
{
	const bool core = (want->about->flags & SUITE_CORE) || getenv("HYS_TEST_FULL");

	current = NULL;
	close_run(run);
	if (!run->about)
		row_at = 0;
	run->about = want->about;
	run->context = now->context;
	for (; row_at < now->row_count; row_at++) {
		struct suite_row *row = &now->rows[row_at];

		run->row = row;
		if ((row->kernel && row->kernel->op != want->op) || row->incapable)
			continue;
		if (!core && uses_opencl(row)) {
			row->not_core++;
		} else if (!is_for(row, want)) {
			check_refused(run, want);
		} else if (open_run(run, want)) {
			row->ran++;
			row_at++;
			current = row;
			return true;
		}
	}
	return false;
}

const struct suite_row *suite_current(void)
{
	return current;
}

void suite_fail(const struct suite_run *run, const char *format, ...)
{
	char text[400];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	failures++;
	print_error("%s: %s on %s: %s\n", run->about->name, kernel_of(run->row),
		    run->row->info->info.name, text);
}

struct place suite_place(const struct suite_run *run, unsigned flags)
{
	struct place place = {
		.context = run->context, .exec = run->exec, .device = run->row->devices[0]};

	place.flags = flags;
	return place;
}

bool suite_collect(const struct suite_run *run, struct place *place)
{
	char message[400];

	if (place_collect(place, message, sizeof(message)))
		return true;
	suite_fail(run, "%s", message);
	return false;
}

/* ---- comparison ---- */

static double root_mean_square(const double *values, int64_t count)
{
	double sum = 0;

	for (int64_t i = 0; i < count; i++)
		sum += isfinite(values[i]) ? values[i] * values[i] : 0;
	return count > 0 ? sqrt(sum / (double)count) : 0;
}

void suite_close(const struct suite_run *run, const char *name, double *got, const double *want,
		 int64_t vectors, int64_t length, double tolerance)
{
	const double floor = 0.01 * root_mean_square(want, vectors * length);
	const double whole = ora_relative_error(got, want, vectors * length);
	const double worst = ora_worst_vector_error(got, want, vectors, length, floor);

	if (!(whole <= tolerance))
		suite_fail(run, "%s: error %.3g of the whole, tolerance %.3g", name, whole,
			   tolerance);
	else if (!(worst <= 10 * tolerance))
		suite_fail(run, "%s: error %.3g of a vector, tolerance %.3g", name, worst,
			   10 * tolerance);
	free(got);
}

static bool near(double got, double want, double tolerance)
{
	if (isnan(want) || isnan(got))
		return isnan(want) && isnan(got);
	return got == want || fabs(got - want) <= tolerance;
}

void suite_each(const struct suite_run *run, const char *name, double *got, const double *want,
		int64_t count, struct suite_tolerance tolerance)
{
	for (int64_t i = 0; i < count; i++) {
		const double allowed = tolerance.absolute +
				       tolerance.relative * fmax(tolerance.least, fabs(want[i]));

		if (near(got[i], want[i], allowed))
			continue;
		suite_fail(run, "%s[%lld] is %.9g, expected %.9g, tolerance %.3g", name,
			   (long long)i, got[i], want[i], allowed);
		break;
	}
	free(got);
}

void suite_same(const struct suite_run *run, const char *name, const double *got,
		const double *want, int64_t count, const unsigned char *marked, int64_t length)
{
	for (int64_t i = 0; i < count; i++)
		if (marked[i / length] && !(got[i] == want[i])) {
			suite_fail(run, "%s[%lld] is %.9g, expected exactly %.9g", name,
				   (long long)i, got[i], want[i]);
			break;
		}
}

/* ---- cases ---- */

uint64_t suite_seed(const struct suite_case *about)
{
	return hys_hash(hys_hash_start, about->name, strlen(about->name));
}

void *suite_add(struct suite_list *list, const void *item)
{
	if (list->count == list->room) {
		list->room = 2 * list->room + 64;
		list->cases = realloc(list->cases, (size_t)list->room * list->size);
		if (!list->cases)
			abort();
	}
	return memcpy(list->cases + (size_t)list->count++ * list->size, item, list->size);
}

void suite_sweep(struct suite_list *list, const void *base, const char *what, size_t offset,
		 const int32_t *values, int32_t count)
{
	for (int32_t i = 0; i < count; i++) {
		struct suite_case *copy = suite_add(list, base);

		memcpy((char *)copy + offset, &values[i], sizeof(values[i]));
		snprintf(copy->name, sizeof(copy->name), "%s=%d", what, values[i]);
		copy->flags = i % 4 == 0 || i == count - 1 ? SUITE_CORE : 0;
	}
}

static void (*run_case)(void **state);

static void run_one(void **state)
{
	suite_failures();
	run_case(state);
	if (failures > 0)
		fail_msg("%d failures", failures);
}

static void print_row(const struct suite_row *row)
{
	print_message("  %-40s %d x %-24s", kernel_of(row), row->device_count,
		      row->info->info.name);
	if (row->incapable)
		print_message(" skipped: %s\n", row->reason);
	else
		print_message(" %3d cases, %d left out here%s%s\n", row->ran, row->not_core,
			      row->reason[0] ? "; not for some: " : "", row->reason);
}

static void coverage(void **state)
{
	const int32_t count = now->row_count;
	int32_t uncovered = 0;

	(void)state;
	for (int32_t i = 0; i < count; i++) {
		print_row(&now->rows[i]);
		uncovered += now->rows[i].ran == 0 && !now->rows[i].incapable;
	}
	suite_end();
	if (count == 0)
		fail_msg("no kernel of this operation on any device");
	if (uncovered > 0 && !getenv("HYS_TEST_PART"))
		fail_msg("%d kernel rows that no case ran", uncovered);
}

/* Leaves in the list what HYS_TEST_PART names. */
static void take_part(struct suite_list *list)
{
	const char *text = getenv("HYS_TEST_PART");
	int32_t part = 1, parts = 1, kept = 0;

	if (text && (sscanf(text, "%d/%d", &part, &parts) != 2 || part < 1 || part > parts)) {
		print_error("HYS_TEST_PART is \"%s\", expected such as 2/5\n", text);
		exit(1);
	}
	for (int32_t i = part - 1; i < list->count; i += parts)
		memmove(list->cases + (size_t)kept++ * list->size,
			list->cases + (size_t)i * list->size, list->size);
	list->count = kept;
}

int suite_main_over(enum suite_over over, const char *name, uint32_t ops, struct suite_list *list,
		    void (*run)(void **state))
{
	const char *filter = getenv("HYS_TEST_FILTER");
	struct CMUnitTest *tests;
	size_t count = 0;
	int status = 1;

	take_part(list);
	tests = ora_alloc(list->count + 1, sizeof(*tests));
	suite_begin(over, ops, 0);
	say_what_is_missing();
	run_case = run;
	for (int32_t i = 0; i < list->count; i++) {
		struct suite_case *about = (void *)(list->cases + (size_t)i * list->size);

		if (!filter || fnmatch(filter, about->name, 0) == 0)
			tests[count++] = (struct CMUnitTest){
				.name = about->name, .test_func = run_one, .initial_state = about};
	}
	if (!filter || fnmatch(filter, "coverage", 0) == 0)
		tests[count++] = (struct CMUnitTest){.name = "coverage", .test_func = coverage};
	if (count > 0)
		status = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
	else
		print_error("HYS_TEST_FILTER=%s: no case of %s has such a name\n", filter, name);
	free(tests);
	free(list->cases);
	return status;
}

int suite_main(const char *name, uint32_t ops, struct suite_list *list, void (*run)(void **state))
{
	return suite_main_over(SUITE_KERNELS, name, ops, list, run);
}
