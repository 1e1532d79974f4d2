/* train_plot.c - loss and recall against steps and against work, drawn by gnuplot. */
#include "train.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

bool train_can_plot(void)
{
	/* A constant command. NOLINTNEXTLINE(cert-env33-c) */
	return system("command -v gnuplot >/dev/null 2>&1") == 0;
}

/* Columns: step, work so far in TFLOP, loss or recall. Recall has a block of its own: it is not measured
 * in every step, and a line skips no gaps. */
static void write_block(FILE *pipe, const struct train_curve *curve, const char *name, int i,
			int field)
{
	fprintf(pipe, "$%s%d << EOD\n", name, i);
	for (int64_t s = 0; s < curve->steps; s++) {
		const double *f = curve->log[s].field;
		if (f[field] >= 0)
			fprintf(pipe, "%.0f %.9g %.9g\n", f[0], f[5] / 1e12, f[field]);
	}
	fprintf(pipe, "EOD\n");
}

static void write_panel(FILE *pipe, const struct train_curve *curves, int count, const char *block,
			int column, const char *x, const char *y)
{
	fprintf(pipe, "set xlabel '%s'\nset ylabel '%s'\nplot ", x, y);
	for (int i = 0; i < count; i++)
		fprintf(pipe, "%s$%s%d using %d:3 with %s lw 2 title '%s'", i ? ", " : "", block, i,
			column, strcmp(block, "recall") == 0 ? "linespoints pt 7" : "lines",
			curves[i].name);
	fprintf(pipe, "\n");
}

/* Quotes end a gnuplot string; a name with one is not drawn but refused. */
static bool plain(const char *text)
{
	return strchr(text, '\'') == NULL && strchr(text, '\n') == NULL;
}

int train_plot(const struct train_curve *curves, int count, const char *path)
{
	FILE *pipe;
	for (int i = 0; i < count; i++)
		if (!plain(path) || !plain(curves[i].name))
			return tool_complain("--plot: '%s' or '%s' has a quote in its name", path,
					     curves[i].name);
	signal(SIGPIPE, SIG_IGN);
	/* A constant command; names go through the pipe. NOLINTNEXTLINE(cert-env33-c) */
	pipe = popen("gnuplot", "w");
	if (!pipe)
		return tool_complain("gnuplot could not be started; install gnuplot-nox");
	fprintf(pipe,
		"set terminal pngcairo size 1200,800\nset output '%s'\nset grid\n"
		"set key noenhanced bottom right\n",
		path);
	for (int i = 0; i < count; i++) {
		write_block(pipe, &curves[i], "loss", i, 2);
		write_block(pipe, &curves[i], "recall", i, 3);
	}
	fprintf(pipe, "set multiplot layout 2,2\n");
	write_panel(pipe, curves, count, "loss", 1, "step", "loss");
	write_panel(pipe, curves, count, "loss", 2, "TFLOP of selection and loss", "loss");
	write_panel(pipe, curves, count, "recall", 1, "step", "share of the oracle");
	write_panel(pipe, curves, count, "recall", 2, "TFLOP of selection and loss",
		    "share of the oracle");
	fprintf(pipe, "unset multiplot\n");
	if (pclose(pipe) != 0)
		return tool_complain("gnuplot failed; see its message above");
	return TOOL_OK;
}
