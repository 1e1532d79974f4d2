#include "text.h"

#include <stdarg.h>
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
