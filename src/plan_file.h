/* plan_file.h - the text form of plans, for plan_file.c and its tests. */
#ifndef HYS_PLAN_FILE_H
#define HYS_PLAN_FILE_H

#include "planner.h"

/* What a file says. */
struct hys_plan_text {
	struct hys_wish wish; /* devices are the numbers at the time of saving */
	uint64_t signatures[HYS_PLAN_DEVICES_MAX];
	char names[HYS_PLAN_DEVICES_MAX][HYS_OP_COUNT][HYS_KERNEL_NAME_MAX];
	struct hys_pace paces[HYS_PLAN_DEVICES_MAX][HYS_OP_COUNT];
};

/* Reads any bytes, no terminator needed; nothing is assumed of them:
 *
 *     hyscale-plan-2 <library version>
 *     <field> <number>          one line per number of problem and options
 *     device <number> <signature> <most rows of a call>
 *     kernel <device> <op> <name>
 *     pace <device> <op> <seconds a call, row, FLOP and copied byte> <idle: 0, 1>
 *     checksum <of all bytes before this line>
 *
 * in this order, devices counted from 0, paces with several devices only. Integers are decimal; reals are
 * <integer>p<power of two>, exact and free of any locale; hashes are 16
 * hexadecimal digits. HYS_FORMAT names the line; HYS_VERSION_MISMATCH. */
hys_status hys_plan_parse(struct hys_plan_text *plan, const char *text, int64_t bytes,
			  struct hys_error *error);

/* The text; as snprintf answers, the length that it needs. */
size_t hys_plan_print(const struct hys_plan *plan, char *text, size_t size);

#endif
