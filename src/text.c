#include "text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

void hys_text_add(struct hys_text *text, const char *format, ...)
{
	const size_t left = text->length < text->size ? text->size - text->length : 0;
	va_list arguments;
	int wanted;

	va_start(arguments, format);
	wanted = vsnprintf(left > 0 ? text->at + text->length : NULL, left, format, arguments);
	va_end(arguments);
	if (wanted > 0)
		text->length += (size_t)wanted;
}

void hys_text_pad(struct hys_text *text, size_t start, size_t column)
{
	do
		hys_text_add(text, " ");
	while (text->length - start < column);
}

void hys_text_add_flops(struct hys_text *text, double flops)
{
	static const char *const units[] = {"FLOP",  "kFLOP", "MFLOP", "GFLOP",
					    "TFLOP", "PFLOP", "EFLOP", "ZFLOP"};
	double unit = 1;
	int32_t i = 0;

	for (; flops / unit >= 1000 && i < 7; i++)
		unit *= 1000;
	const int64_t tenths = (int64_t)(flops / unit * 10 + 0.5);
	hys_text_add(text, "%lld.%d %s", (long long)(tenths / 10), (int)(tenths % 10), units[i]);
}

void hys_text_add_seconds(struct hys_text *text, double seconds)
{
	static const struct {
		double from, one;
		const char *name;
	} units[] = {{3.15576e7, 3.15576e7, "years"},
		     {172800, 86400, "days"},
		     {7200, 3600, "h"},
		     {600, 60, "min"},
		     {1, 1, "s"},
		     {1e-3, 1e-3, "ms"},
		     {0, 1e-6, "us"}};
	int32_t i = 0;

	while (i < 6 && !(seconds >= units[i].from))
		i++;
	const double tenths = seconds / units[i].one * 10 + 0.5;
	const int64_t whole = tenths < 1e15 ? (int64_t)tenths : INT64_C(1000000000000000);
	hys_text_add(text, "%lld.%d %s", (long long)(whole / 10), (int)(whole % 10), units[i].name);
}
