/* tool.h - what the subcommands of `hyscale` share. */
#ifndef HYS_TOOLS_TOOL_H
#define HYS_TOOLS_TOOL_H

#include <argp.h>
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

#include "hyscale/hyscale.h"

/* Exit codes: 0 done and right, 1 it ran and something is wrong, 2 it could not be run. */
enum tool_exit { TOOL_OK = 0, TOOL_WRONG = 1, TOOL_USAGE = 2 };

/* One file per subcommand defines one of these; hyscale.c lists them. */
struct tool_command {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
};

extern const struct tool_command tool_devices, tool_plan, tool_check, tool_run, tool_bench,
	tool_demo, tool_stream, tool_tune, tool_train;

/* Prints "hyscale COMMAND: ..." to stderr in one line; answers TOOL_USAGE. */
int tool_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for a library failure: what was tried, status and message. */
int tool_failed(const char *what, const struct hys_error *error);
/* Complaints from now on appear as {"error": "..."} on stdout, too. */
void tool_json_errors(void);

/* Colours for stdout: empty strings unless it is a terminal and NO_COLOR is unset. */
struct tool_colours {
	const char *good, *bad, *dim, *bold, *off;
};
const struct tool_colours *tool_colours(void);

/* A context with the devices that --device names: NULL or "all" = every one, a backend's name, a
 * device's number or part of its name. Answers TOOL_OK and, in *numbers (the caller frees it) and
 * *count, the context's device numbers that match. */
int tool_open(const char *device, struct hys_context **context, int32_t **numbers, int32_t *count);
/* Takes what the file knows, if one is named. */
int tool_wisdom(struct hys_context *context, const char *path);

/* Writes what is known now, so that a file that cannot be written is told before anything is measured. */
int tool_can_write_wisdom(struct hys_context *context, const char *path);
/* Prints what hys_plan_describe says. */
int tool_describe(const struct hys_plan *plan);

/* Seconds of a monotonic clock. */
double tool_now(void);
/* Median of n values, which are sorted in place. */
double tool_median(double *values, int n);
/* "1.50 GiB", "12 kB"-like text in a static ring of buffers, good for one printf. */
const char *tool_bytes(double bytes);
const char *tool_rate(double per_second, const char *unit);
const char *tool_time(double seconds);
/* Largest resident memory of this process so far, bytes; 0 when unknown. */
int64_t tool_peak_memory(void);

/* Memory that can still be used, bytes: of a processor what the machine and its control groups have
 * left, of another device what it has in all. 0 when unknown. */
int64_t tool_memory_left(const struct hys_device_info *info);
/* The same of the machine alone. */
int64_t tool_host_memory_left(void);
/* Whether the device has `bytes`; if not, *error has both numbers and `advice`, what to do. */
bool tool_fits(int64_t bytes, const struct hys_device_info *info, const char *advice,
	       struct hys_error *error);

/* A progress bar on stderr, only when that is a terminal; step == steps ends it. */
void tool_progress(int64_t step, int64_t steps, const char *what);
/* The same as hys_progress, for plan options; user is ignored. */
int tool_plan_progress(void *user, int32_t step, int32_t steps, const char *what);

/* Prints one JSON line to stdout and deletes the object. */
void tool_json_line(cJSON *object);
/* Strictly parses a decimal integer within [low, high]. */
bool tool_integer(const char *text, int64_t low, int64_t high, int64_t *value);
/* The same of a command's option `key`, or a usage error that names it and the bounds. */
int64_t tool_number(struct argp_state *state, const struct argp_option *options, int key,
		    const char *text, int64_t low, int64_t high);
/* Position of `text` in the n names, or a usage error that names the option and all of them. */
int tool_choice(struct argp_state *state, const char *option, const char *text,
		const char *const *names, int n);
/* What the last --model or -m of a command line names, otherwise `model`: it is taken before the
 * options that change what it sets. */
const char *tool_model(int argc, char **argv, const char *model);

/* Conversions of one element or n, for data that tools make or judge. */
double tool_get(hys_dtype dtype, const void *data, int64_t i);
void tool_put(hys_dtype dtype, void *data, int64_t i, double value);

#endif
