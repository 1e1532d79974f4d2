/*
 * A table of cases against every kernel row of every backend, every device, or
 * several devices at once.
 *
 * A program hands its cases to suite_main. Each case is a cmocka test: it makes
 * its data and the oracle's answer once, then asks suite_next for one device
 * and kernel row after the other. The last test says which rows were covered
 * and why others were not; a row that could run and that no case ran fails it.
 *
 * HYS_TEST_FILTER=PATTERN   the cases of that name; it is a failure when there are none
 * HYS_TEST_PART=2/5         every fifth case from the second on, for processes beside each other
 * HYS_TEST_KERNELS=PATTERN  kernel rows of that name
 * HYS_TEST_DEVICES=NAMES    these devices, as in struct hys_context_options
 * HYS_TEST_FULL=1           all cases on devices that compile a program per problem too
 * HYS_TEST_GRANT=cpu        every device that knows this capability has it: a simulator does
 *                           not say that it is a processor
 */
#ifndef HYS_TEST_SUITE_H
#define HYS_TEST_SUITE_H

#include <stdbool.h>

#include "core.h"
#include "place.h"

#define SUITE_CORE 1u	/* also on backends that compile a program per problem */
#define SUITE_SINGLE 2u /* one tile: for the slowest checks */
#define SUITE_CLOSE 4u	/* rows without gaps, as kernels that copy whole rows want them */

/* First member, `about`, of every kind of case. */
struct suite_case {
	char name[64];
	unsigned flags;
};

/* Beginnings of a row of a table of cases: for all backends, or for the reference ones. */
#define CORE(text) .about = {.name = text, .flags = SUITE_CORE}
#define FULL(text) .about = {.name = text}
/* Documents' lengths, in a struct visible_spec; small lists of numbers. */
#define LENGTHS(...) ((const int32_t[]){__VA_ARGS__, -1})
#define NUMBERS(...) ((const int32_t[]){__VA_ARGS__})

/* What a program's cases run on. */
enum suite_over {
	SUITE_KERNELS, /* each kernel row of the operations, forced, on each device */
	SUITE_DEVICES, /* each device with the planner's choice */
	SUITE_SEVERAL, /* the CPU twice, three times, and with an OpenCL device */
	SUITE_HALVES   /* two halves of an OpenCL device; without one nothing runs */
};

#define SUITE_DEVICES_MAX 3
#define SUITE_SKIPPED 77 /* exit status of a program that has nothing to run on */

/* One kernel row on one device, or devices. */
struct suite_row {
	int32_t devices[SUITE_DEVICES_MAX]; /* of the context */
	int32_t device_count;
	const struct hys_device *info;	 /* the first one's */
	const struct hys_kernel *kernel; /* NULL = the planner's choice */
	int32_t ran, not_core;
	char reason[HYS_REASON_SIZE]; /* of the last case that it could not do */
	bool incapable;		      /* the device lacks what it needs */
};

/* A plan that is forced to a row, with what it takes to run. */
struct suite_run {
	const struct suite_case *about;
	const struct suite_row *row;
	struct hys_context *context;
	struct hys_plan *plan;
	struct hys_exec *exec;
	struct hys_batch *batch;
	struct hys_error error;
};

/* What a case needs of a plan. */
struct suite_want {
	const struct suite_case *about;
	const struct hys_problem *problem;
	hys_op op;
	uint32_t more_ops; /* bits of others to plan, over devices only */
	int64_t rows, keys, window_keys;
	const struct hys_batch_desc *desc;
};

/* Goes from row to row; start with *run all zero. False at the end; what the last
 * call made is destroyed. Rows that the case is not for are passed over. */
bool suite_next(struct suite_run *run, const struct suite_want *want);
/* The row of the last suite_next, NULL while plans are made. */
const struct suite_row *suite_current(void);

/* Adds a failure of the case on the row; printed at once. */
void suite_fail(const struct suite_run *run, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The ways to place tensors that a run goes through: flags of place.h. A program may set
 * others before its suite_main. */
struct suite_placements {
	const unsigned *flags;
	int32_t count;
};
extern struct suite_placements suite_placements;
struct place suite_place(const struct suite_run *run, unsigned flags);
/* Collects, and reports what is wrong. */
bool suite_collect(const struct suite_run *run, struct place *place);

/* |got - want| of `vectors` vectors of `length`: the whole by Frobenius norm within
 * `tolerance`, each vector within 10 of it. Vectors below `floor` times the root mean
 * square of all are measured by that instead of their own magnitude. Frees `got`. */
void suite_close(const struct suite_run *run, const char *name, double *got, const double *want,
		 int64_t vectors, int64_t length, double tolerance);
/* |got - want| <= absolute + relative * max(least, |want|) for each element; NaN and
 * infinities must be the same. */
struct suite_tolerance {
	double absolute, relative, least;
};
/* Frees `got`. */
void suite_each(const struct suite_run *run, const char *name, double *got, const double *want,
		int64_t count, struct suite_tolerance tolerance);
/* got[i] must have the bits of want[i] where marked[i / length]. */
void suite_same(const struct suite_run *run, const char *name, const double *got,
		const double *want, int64_t count, const unsigned char *marked, int64_t length);

/* A growing list of cases, each `size` bytes. */
struct suite_list {
	char *cases;
	size_t size;
	int32_t count, room;
};

/* Copies `item`; answers the copy, good until the next call. */
void *suite_add(struct suite_list *list, const void *item);
/* Variants of `base` with the int32_t at `offset` set to each of `values` (count of
 * them), called "<what>=<value>". Every fourth and the last are core cases. */
void suite_sweep(struct suite_list *list, const void *base, const char *what, size_t offset,
		 const int32_t *values, int32_t count);
/* Sizes around tile edges. */
#define SUITE_EDGES 12
extern const int32_t suite_edges[SUITE_EDGES];

/* Runs every case with `run`, on rows of `ops` (bits), then the coverage test. Frees the
 * list. Answers main's status. */
int suite_main(const char *name, uint32_t ops, struct suite_list *list, void (*run)(void **state));
int suite_main_over(enum suite_over over, const char *name, uint32_t ops, struct suite_list *list,
		    void (*run)(void **state));

/* Called with each new context before its rows are listed; NULL = nothing. */
extern void (*suite_prepare)(struct hys_context *context);

/* What suite_main does by itself: rows of `ops` on the devices of a context. With a number of
 * threads it has the CPU alone. Ends the process where there is no context. */
struct suite *suite_begin(enum suite_over over, uint32_t ops, int32_t threads);
/* Goes on with another one that was begun. */
void suite_use(struct suite *suite);
/* Ends the one in use. */
void suite_end(void);
/* How many failures there were since the last call. */
int32_t suite_failures(void);

/* Seeds from the name of a case. */
uint64_t suite_seed(const struct suite_case *about);

#endif
