/* wisdom.h - the text form of wisdom, for wisdom.c and its tests. */
#ifndef HYS_WISDOM_H
#define HYS_WISDOM_H

#include "core.h"

/* Adds every line of `text` (any bytes, no terminator needed), or none:
 *
 *     hyscale-wisdom-1 <library version>
 *     choose <op> <problem> <device> <kernel> <seconds>
 *     trust <problem> <device> <kernel>
 *     pace <op> <problem> <device> <kernel> <call> <row> <FLOP> <byte>
 *     checksum <of all bytes before this line>
 *
 * Hashes are 16 lowercase hexadecimal digits, seconds have nine decimals; paces
 * are integers, 1e-18 s of a call, a row and a copied byte, 1e-24 s of a FLOP;
 * one blank between words, one newline behind every line. HYS_FORMAT names the
 * line; HYS_VERSION_MISMATCH, HYS_OUT_OF_MEMORY. */
hys_status hys_wisdom_parse(struct hys_wisdom *wisdom, const char *text, int64_t bytes,
			    struct hys_error *error);

/* The text of all that is known; freed by the caller. NULL when there is no
 * memory. */
char *hys_wisdom_print(const struct hys_wisdom *wisdom, int64_t *bytes);

#endif
