/* lessons.h - what calls of rows that are alike teach of a device. */
#ifndef HYS_LESSONS_H
#define HYS_LESSONS_H

#include <stdint.h>

#define HYS_ROUNDS_MOST 256

/* Rows that see much tell what work takes, rows that see little what a row takes beside it. */
enum { HYS_HEAVY, HYS_LIGHT, HYS_ACTS };

/* What a device took for calls of one kind of rows, and what their rows count for. */
struct hys_seen {
	int32_t calls;
	double busy_s[HYS_ROUNDS_MOST], weight[HYS_ROUNDS_MOST];
	double row_flops; /* of the last */
	/* the least that calls of the fewest rows took on the device alone; infinity and 0 = none yet */
	double tiny_s, tiny_weight;
};

/* What a call takes whatever its rows, what a row takes, and a flop. */
struct hys_lesson {
	double fixed_s, row_s, flop_s;
	double noise; /* what calls took on average over the least: 1 = nothing disturbed them */
};

/* No more than HYS_ROUNDS_MOST; calls without rows are left out. */
void hys_seen_note(struct hys_seen *seen, double busy_s, double weight, double flops);
/* `lesson` holds what was foretold of rows and flops, then what seen[acts] tells. What is fixed is
 * `fixed_least_s` at least. */
void hys_lessons_learn(const struct hys_seen *seen, int32_t acts, double fixed_least_s,
		       struct hys_lesson *lesson);

#endif
