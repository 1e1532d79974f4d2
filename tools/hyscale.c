/* hyscale.c - the command: finds the subcommand and hands over. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

static const struct tool_command *const commands[] = {
	&tool_devices, &tool_plan, &tool_check,	 &tool_run,
	&tool_bench,   &tool_demo, &tool_stream, &tool_tune,
#ifdef HYS_WITH_OPENBLAS
	&tool_train,
#endif
};
#define COMMAND_COUNT ((int)(sizeof commands / sizeof commands[0]))

static void print_help(FILE *stream)
{
	fprintf(stream,
		"Usage: hyscale COMMAND [OPTION...] [ARGUMENT...]\n"
		"Learned sparse attention: which devices there are, what would run on them,\n"
		"whether it is right and how fast it is.\n\nCommands:\n");
	for (int i = 0; i < COMMAND_COUNT; i++)
		fprintf(stream, "  %-13s  %s\n", commands[i]->name, commands[i]->summary);
	fprintf(stream,
		"\n'hyscale COMMAND --help' tells more, with examples.\n"
		"\nEnvironment:\n"
		"  HYS_DISABLE    capabilities to do without, for example avx2\n"
		"  HYS_CACHE_DIR  where built OpenCL programs are kept\n"
		"  HYS_VERBOSE    set: show what the library logs\n"
		"  NO_COLOR       set: no colours\n"
		"\nWith --json, why a command could not be run is {\"error\": ...} on standard "
		"output,\n"
		"too; what is wrong with its options is told on standard error alone.\n"
		"\nExit status: 0 done, 1 it ran and something is wrong, 2 it could not be run.\n");
}

static bool wants_json(int argc, char **argv)
{
	for (int i = 2; i < argc; i++)
		if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "-j") == 0)
			return true;
	return false;
}

static int run(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return TOOL_USAGE;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("hyscale %s\n", hys_version_string());
		return TOOL_OK;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
		print_help(stdout);
		return TOOL_OK;
	}
	if (wants_json(argc, argv))
		tool_json_errors();
	argp_err_exit_status = TOOL_USAGE;
	setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
	for (int i = 0; i < COMMAND_COUNT; i++) {
		if (strcmp(argv[1], commands[i]->name) == 0) {
			/* argp and complaints name the program "hyscale COMMAND". */
			static char name[32];
			snprintf(name, sizeof name, "hyscale %s", commands[i]->name);
			argv[1] = name;
			program_invocation_name = name;
			program_invocation_short_name = name;
			return commands[i]->run(argc - 1, argv + 1);
		}
	}
	return tool_complain("unknown command '%s'; 'hyscale --help' lists them", argv[1]);
}

/* Results that did not reach a full disk or a closed pipe are no results. */
static int check_output(void)
{
	static bool told;

	errno = 0;
	if (told || (fflush(stdout) == 0 && !ferror(stdout)))
		return TOOL_OK;
	told = true;
	return tool_complain("standard output cannot be written%s%s", errno ? ": " : "",
			     errno ? strerror(errno) : "");
}

/* argp leaves by exit() once it has printed a help. */
static void check_at_exit(void)
{
	const int code = check_output();

	if (code != TOOL_OK)
		_exit(code);
}

int main(int argc, char **argv)
{
	int code = atexit(check_at_exit) == 0 ? run(argc, argv) : TOOL_USAGE;
	int written = check_output();

	return code == TOOL_OK ? written : code;
}
