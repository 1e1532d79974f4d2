/* wisdom_table.h - what wisdom.c and wisdom_text.c share. */
#ifndef HYS_WISDOM_TABLE_H
#define HYS_WISDOM_TABLE_H

#include "core.h"

#define HYS_KERNEL_NAME_SIZE 64

enum hys_fact_kind { HYS_FACT_CHOICE, HYS_FACT_TRUST, HYS_FACT_PACE };

struct hys_fact {
	enum hys_fact_kind kind;
	hys_op op; /* 0 of trust */
	uint64_t problem, device;
	int64_t nanoseconds; /* of a choice */
	int64_t pace[4];     /* of a pace: 1e-18 s a call, a row, 1e-24 s a FLOP, 1e-18 s a byte */
	char kernel[HYS_KERNEL_NAME_SIZE];
};

struct hys_wisdom {
	struct hys_allocator allocator;
	struct hys_fact *facts; /* in the order learnt */
	int64_t count, capacity;
	int32_t *slot; /* 1 + index into facts, 0 = free */
	int64_t slots; /* a power of two */
};

/* Adds or replaces; false when there is no memory. */
bool hys_wisdom_add(struct hys_wisdom *wisdom, const struct hys_fact *fact);
bool hys_wisdom_copy(const struct hys_wisdom *wisdom, struct hys_wisdom *copy);
void hys_wisdom_clear(struct hys_wisdom *wisdom);

/* False when the name is too long or has a character no kernel name has. */
bool hys_kernel_name_copy(char *target, const char *name, size_t length);

#endif
