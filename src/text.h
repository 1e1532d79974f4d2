/* text.h - text put together piece by piece, never past its end. */
#ifndef HYS_TEXT_H
#define HYS_TEXT_H

#include <stddef.h>

/* `length` counts what was wanted, as snprintf does. `at` may be NULL when size
 * is 0. */
struct hys_text {
	char *at;
	size_t size, length;
};

void hys_text_add(struct hys_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Pads with blanks, one at least, to `column` characters behind `start`, an
 * earlier length. */
void hys_text_pad(struct hys_text *text, size_t start, size_t column);
/* "12.3 ms", or us, s, h, days, years; without the locale's point. */
void hys_text_add_seconds(struct hys_text *text, double seconds);
/* "12.3 TFLOP", without the locale's point. */
void hys_text_add_flops(struct hys_text *text, double flops);

#endif
