/* check.h - statuses and messages, for the core and the backends. */
#ifndef HYS_CHECK_H
#define HYS_CHECK_H

#include <stdint.h>

#include "hyscale/base.h"

/* Records a failure. `error` may be NULL. */
void hys_report(struct hys_error *error, hys_status status, int32_t native, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The same, and answers its status: `return hys_fail(...)`. A macro, so that analyzers
 * see which status it is. */
#define hys_fail(error, status, ...) (hys_report(error, status, __VA_ARGS__), (status))

/* Checks an option struct that begins with struct_size: not NULL, at least the
 * `known` bytes of this version, and nothing set beyond them. `name` is the
 * argument's. */
hys_status hys_check_struct(const void *options, size_t known, const char *name,
			    struct hys_error *error);

/* HYS_INVALID_ARGUMENT when an argument or field is outside [least, most]. */
hys_status hys_check_range(struct hys_error *error, const char *name, int64_t value, int64_t least,
			   int64_t most);

/* Leaves the function at its `cleanup` label with `status` set. */
#define HYS_TRY(expression)            \
	do {                           \
		status = (expression); \
		if (status != HYS_OK)  \
			goto cleanup;  \
	} while (0)

static inline int64_t hys_min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t hys_max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* a * b for sizes >= 0, INT64_MAX when it does not fit. */
int64_t hys_mul64(int64_t a, int64_t b);
/* a + b for sizes >= 0, INT64_MAX when it does not fit. */
int64_t hys_add64(int64_t a, int64_t b);

/* Rounds up to a multiple of `unit`, a power of two; saturates. */
static inline int64_t hys_round_up(int64_t bytes, int64_t unit)
{
	return bytes > INT64_MAX - unit ? INT64_MAX : (bytes + unit - 1) & ~(unit - 1);
}

#endif
