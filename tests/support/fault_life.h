/* fault_life.h - a program's life with the library in which one thing after the
 * other fails.
 *
 * Each part of it is repeated with the first, second, ... call that can fail
 * failing, until it comes through without. Every time the library has to answer
 * a status with a message, hold nothing more than before, and work afterwards. */
#ifndef HYS_TEST_FAULT_LIFE_H
#define HYS_TEST_FAULT_LIFE_H

#include "core.h"

/* What can fail. */
struct fault {
	void (*arm)(long number); /* the number-th from now on fails; 0: none does */
	bool (*fired)(void);	  /* since it was armed */
	long (*live)(void);	  /* things that are held */
	bool (*may_answer)(hys_status status);
	/* Sets hooks; NULL = none. */
	void (*prepare)(struct hys_context_options *options);
	bool operations_too; /* else they must not meet what fails at all */
	/* Name of what failed last; NULL = calls have none. */
	const char *(*name)(void);
};

/* `devices` as in the options of a context. Each is one cmocka test's body. */
void fault_context(const struct fault *fault, const char *devices);
void fault_plan(const struct fault *fault, const char *devices, uint32_t operations);
void fault_exec(const struct fault *fault, const char *devices);
void fault_operations(const struct fault *fault, const char *devices);
void fault_copies(const struct fault *fault, const char *devices);
void fault_wisdom(const struct fault *fault, const char *devices);

#endif
