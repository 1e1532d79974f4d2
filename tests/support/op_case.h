/* A case of any operation, for programs whose cases go over several of them. */
#ifndef HYS_TEST_OP_CASE_H
#define HYS_TEST_OP_CASE_H

#include "attention_case.h"
#include "fidelity_case.h"
#include "loss_case.h"
#include "merge_case.h"
#include "pool_case.h"
#include "select_case.h"

/* One of these, told apart by `op`. */
struct op_case {
	struct suite_case about; /* first; the others' own are not read */
	hys_op op;
	struct select_case select;
	struct attention_case attention;
	struct loss_case loss;
	struct pool_case pool;
	struct fidelity_case fidelity;
	struct merge_case merge;
};

/* Beginnings of what is behind `about` in a row of a table; select's op follows its method. */
#define SELECT .op = HYS_OP_SELECT, .select
#define SELECT_COARSE .op = HYS_OP_SELECT_COARSE, .select
#define SELECT_FINE .op = HYS_OP_SELECT_COARSE_TO_FINE, .select
#define FORWARD .op = HYS_OP_ATTENTION_FORWARD, .attention
#define BACKWARD .op = HYS_OP_ATTENTION_BACKWARD, .attention
#define LOSS .op = HYS_OP_INDEXER_LOSS, .loss
#define POOL .op = HYS_OP_POOL, .pool
#define POOL_BACKWARD .op = HYS_OP_POOL_BACKWARD, .pool
#define FIDELITY .op = HYS_OP_FIDELITY, .fidelity
#define MERGE .op = HYS_OP_MERGE, .merge

/* For suite_main. */
void op_case_run(void **state);

#endif
