/* A case of attention, forward and backward: features as data, made into operands and the
 * oracle's answer. */
#ifndef HYS_TEST_ATTENTION_CASE_H
#define HYS_TEST_ATTENTION_CASE_H

#include "indices.h"
#include "oracle.h"
#include "suite.h"

enum attention_values {
	ATTENTION_NORMAL = 0,
	ATTENTION_SHARP,      /* logits of some hundreds */
	ATTENTION_HUGE,	      /* values of 1e30, or the type's largest */
	ATTENTION_TINY,	      /* values of 1e-30; the type's denormals */
	ATTENTION_EQUAL,      /* all keys the same */
	ATTENTION_UNREAD_NAN, /* key rows that no row attends to are NaN */
	ATTENTION_LATE_NAN,   /* so are a few that only the last rows attend to */
	ATTENTION_MINUS	      /* keys of minus infinity: logits of -inf, some rows have no other */
};

#define ATTENTION_DENSE 1u
#define ATTENTION_SHARED 2u	   /* v = k[..., :V] */
#define ATTENTION_SHARED_WINDOW 4u /* the second source's likewise */
#define ATTENTION_SINK 8u	   /* one per head, one of them -inf */
#define ATTENTION_NO_LSE 16u	   /* forward without lse */
#define ATTENTION_RANGE 32u	   /* rows [rows/3, 2 rows/3) of whole tensors */
#define ATTENTION_RANGE_CUT 64u	   /* the same with tensors of just these rows */
#define ATTENTION_ACCUMULATE 128u  /* backward: add to what is there */
#define ATTENTION_WRITE_DQ 4096u   /* with that: but dq is written */
#define ATTENTION_F32_GRADS 256u   /* backward: gradients in f32 */
#define ATTENTION_ONLY_DQ 512u	   /* backward: no other gradient */
#define ATTENTION_ONLY_DK 1024u	   /* backward: dk alone (of the second source: none) */
#define ATTENTION_IGNORED 2048u	   /* indices are given though the problem is dense */

struct attention_case {
	struct suite_case about; /* first */
	struct visible_spec visible;
	int32_t heads, kv_heads, head_dim, value_dim; /* 0: 4, 1, 16, head_dim */
	int32_t groups, topk, granularity, pool;      /* 0: 1, 6, 1, 1 */
	int32_t window, first;
	hys_dtype dtype;
	double scale, softcap;
	enum index_pattern indices;
	enum attention_values values;
	unsigned features; /* ATTENTION_* */
};

struct attention_data {
	const struct attention_case *about;
	struct hys_problem problem;
	struct visible visible;
	int64_t row_first, row_count;
	int32_t topk; /* slots; 0 without indices */
	int32_t *indices;
	double *q, *k, *v, *sink, *window_k, *window_v; /* rounded; v NULL when shared */
	double *o, *lse;				/* the oracle's, not rounded */
	double *given_o, *given_lse, *grad_o;		/* of the backward pass, rounded */
	unsigned char *read;				/* [S] attended by any row of the range */
	unsigned char *window_read;			/* [S2] */
	unsigned char *nothing;				/* [T,H] nothing to attend to */
	struct ora_attention oracle;			/* with o and lse filled */
};

void attention_make(struct attention_data *data, const struct attention_case *about);
void attention_free(struct attention_data *data);
struct suite_want attention_want(const struct attention_data *data, hys_op op);

hys_status attention_forward_call(const struct attention_data *data, struct place *place,
				  struct hys_batch *batch, struct hys_error *error);
/* Calls, collects, and compares with the oracle. */
void attention_forward_try(const struct attention_data *data, const struct suite_run *run,
			   unsigned flags);

/* What the backward pass is to answer, added to `before` where accumulating. */
struct attention_grads {
	double *dq, *dk, *dv, *dsink, *dwindow_k, *dwindow_v; /* NULL = not asked for */
};
void attention_grads_make(struct attention_grads *want, const struct attention_data *data);
/* Zeroed arrays for what the case asks for. */
void attention_grads_zero(struct attention_grads *grads, const struct attention_data *data);
void attention_grads_free(struct attention_grads *grads);
/* `before`: what the outputs hold, when accumulating. */
hys_status attention_backward_call(const struct attention_data *data,
				   const struct attention_grads *before, struct place *place,
				   struct hys_batch *batch, struct hys_error *error);
void attention_backward_try(const struct attention_data *data, const struct attention_grads *want,
			    const struct suite_run *run, unsigned flags);

/* SPEC's tolerance of outputs (or of gradients) for the largest logit. */
double attention_tolerance(const struct attention_data *data, bool gradient);

/* For suite_main: every kernel row, every placement. */
void attention_forward_run(void **state);
void attention_backward_run(void **state);

#endif
