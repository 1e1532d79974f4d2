/* An operation with its operands as data: what it takes to make, call and judge it, whichever it is, and its
 * outputs as bytes. */
#ifndef HYS_TEST_SUBJECT_H
#define HYS_TEST_SUBJECT_H

#include "attention_case.h"
#include "loss_case.h"
#include "select_case.h"

union subject_data {
	struct select_data select;
	struct attention_data attention;
	struct loss_data loss;
};

struct subject;

struct subject_kind {
	void (*make)(union subject_data *data, const struct subject *subject);
	void (*release)(union subject_data *data);
	struct suite_want (*want)(const union subject_data *data);
	hys_status (*call)(const union subject_data *data, struct place *place,
			   struct hys_batch *batch, struct hys_error *error);
	/* Calls, collects, and compares with the oracle. */
	void (*judge)(const union subject_data *data, const struct suite_run *run, unsigned flags);
	const char *outputs[7]; /* NULL terminated; the first is of rows */
};

extern const struct subject_kind subject_select, subject_forward, subject_backward, subject_loss;

struct subject {
	const char *name;
	hys_op op;
	const struct subject_kind *kind;
	union {
		struct select_case select;
		struct attention_case attention;
		struct loss_case loss;
	} about;
};

/* Elements of all outputs of one call, one after the other; freed by the caller. NULL bytes after a failure,
 * which is reported. */
struct subject_answer {
	char *bytes;
	int64_t size;
};

struct subject_answer subject_run(const struct subject *subject, const union subject_data *data,
				  const struct suite_run *run);
/* Reports where they differ: "other bits `what` `number`, ...". */
void subject_compare(const struct suite_run *run, const struct subject_answer *got,
		     const struct subject_answer *want, const char *what, int32_t number);

#endif
