/* case.h - one operation on the tensors of a file, for `check` and `run`.
 *
 * A case file is a safetensors file whose metadata names the operation ("op") and the problem
 * (JSON); its tensors carry the names of the operation's arguments, expected results start with
 * "expect.". */
#ifndef HYS_TOOLS_CASE_H
#define HYS_TOOLS_CASE_H

#include "safetensors.h"
#include "tool.h"

#define CASE_OUTPUTS_MAX 8

struct case_output {
	char name[32];
	struct hys_tensor tensor; /* contiguous, host, owned */
};

struct tool_case {
	struct st_file file;
	cJSON *settings; /* the problem's keys, those of --set last */
	struct hys_problem problem;
	hys_op op;
	int64_t rows, keys, entries, window_keys;
	int32_t topk;
};

/* Reads `path`. `op` overrides the file's when not NULL; `sets` are "key=value" texts. Complains
 * itself; answers TOOL_OK or TOOL_USAGE. In a file whose format is hyscale-case-1 and whose own
 * operation it is, every tensor must have a name that the operation reads. */
int case_load(struct tool_case *c, const char *path, const char *op, char *const *sets, int count);
/* The same of a file that has been read, c->file; `path` is for complaints. Frees it on failure. */
int case_take(struct tool_case *c, const char *path, const char *op, char *const *sets, int count);
void case_free(struct tool_case *c);

double case_number(const struct tool_case *c, const char *key, double otherwise);
const struct st_tensor *case_tensor(const struct tool_case *c, const char *name);
/* Whether the case's operation reads a tensor of this name. */
bool case_reads(const struct tool_case *c, const char *name);

/* The first tensor that the operation needs and the file has not; NULL = it has all. */
const char *case_missing(const struct tool_case *c);

/* A case made ready for one device. */
struct case_run {
	struct hys_plan *plan;
	struct hys_exec *exec;
	struct hys_batch *batch;
	struct case_output outputs[CASE_OUTPUTS_MAX];
	int32_t output_count;
};

/* Plans, computes and waits on device `device` of the context. False with *error filled. */
bool case_execute(const struct tool_case *c, struct hys_context *context, int32_t device,
		  struct case_run *run, struct hys_error *error);
void case_run_free(struct case_run *run);
const struct case_output *case_find_output(const struct case_run *run, const char *name);

/* compare.c: the worst error of a run against the file's expected tensors, as SPEC's tolerances
 * say. `worst` over `tolerance` above 1 means failure; `what` names the tensor. */
struct case_verdict {
	bool pass;
	double worst, tolerance;
	char what[64];
	/* of the tensor `what`, when that failed: the element that is furthest off, of indices the first
	 * that differs; rank 0 = none */
	int32_t rank;
	int64_t at[ST_RANK_MAX];
	double expected, got;
};
struct case_verdict case_compare(const struct tool_case *c, const struct case_run *run);

#endif
